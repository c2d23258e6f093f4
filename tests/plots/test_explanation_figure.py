"""The figure and table of the experiments that explain times, and the section of a report."""

import pandas as pd
import pytest
from explanation_records import CASES, explained
from plotting import assert_legible, footnotes, panel_texts

from memkern.errors import InputError
from memkern.plots import figures, sections, tables

ROWS = {name: explained(*rows) for name, (rows, _) in CASES.items()}


def everything(*names):
    """Return a record of each named case, and one that was not explained."""
    records = [
        {
            "platform": "A Processor, 2 threads",
            "kernel": "a.kernel",
            "case_id": name,
            "rotation": "",
        }
        | ROWS[name].columns
        for name in names or CASES
    ]
    return pd.DataFrame([*records, {**records[0], "explained_by": ""}])


@pytest.mark.parametrize("names", [(), ("a random gather over small pages",)])
def test_the_figure_is_legible(names):
    fig = figures["explanation"](everything(*names))
    assert_legible(fig)
    assert len(fig.axes) == (len(names) or 8)
    assert ("5 further records" in footnotes(fig)) == (not names)


def test_bars_are_times_relative_to_the_case():
    name = "a random gather over small pages"
    ax = figures["explanation"](everything(name)).axes[0]
    one = ROWS[name]
    assert [label.get_text() for label in ax.get_yticklabels()] == [row.name for row in one.tried]
    widths = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in ax.patches}
    assert widths == {y: row.ratio for y, row in enumerate(one.tried)}
    assert ax.get_title() == f"a.kernel\n{one.first[0]}"
    assert panel_texts(ax)[0] == "0.02"


def test_the_table_has_each_experiment():
    table = tables["explanation"](everything())
    assert len(table) == sum(len(one.tried) for one in ROWS.values())
    first = next(iter(ROWS.values())).tried[0]
    assert table.loc[0, ["name", "ratio", "low"]].tolist() == [first.name, first.ratio, first.low]


def test_reports_have_a_section_only_with_explanations():
    found = sections["why"](everything("a short triad"))
    assert found.findings[0].startswith("a.kernel: without launch it takes 95 % [95, 95] less")
    assert [exhibit.name for exhibit in found.exhibits] == ["explanation"] * 2
    without = everything("a short triad").assign(explained_by="")
    assert sections["why"](without) is None
    with pytest.raises(InputError, match="no record was explained: `memkern stream"):
        figures["explanation"](without)
