"""Tests of the figures, tables and sections of all families."""

import amo_figure_records
import dw_figure_records
import messages_figure_records
import numpy as np
import pandas as pd
import pytest
import spmv_figure_records
import streaming_family
import transfers_figure_records
from checking import once_a_kind, refused
from plotting import Results, assert_legible, disturbed_markers, footnotes, frame, hardest_first

from memkern import report
from memkern.plots import figures, save, sections, tables
from memkern.plots.frames import frame_of

FAMILIES = [
    module.FAMILY
    for module in (
        amo_figure_records,
        dw_figure_records,
        messages_figure_records,
        spmv_figure_records,
        transfers_figure_records,
        streaming_family,
    )
]
BY_SECTION = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.section)


def names_of(family, without=()):
    """Return the functions that make the figures and tables of a family by name, except some."""
    made = {f"figure {name}": figures[name] for name in family.figures if name not in without}
    return made | {f"table {name}": tables[name] for name in family.tables if name not in without}


def each(choose):
    """Parametrise a test by the families and the values chosen for each family."""
    chosen = [(family, *some) for family in FAMILIES for some in choose(family)]
    words = [" ".join(word for word in some if isinstance(word, str)) for some in chosen]
    return [pytest.param(*some, id=word) for some, word in zip(chosen, words, strict=True)]


@pytest.mark.parametrize(
    "case",
    once_a_kind(
        [
            (family, name, given)
            for family in FAMILIES
            for name in family.figures
            for given in hardest_first(family.inputs)
            if name not in family.independent
        ],
        # The figures of a family are built from the same parts.
        kind=lambda case: case[0].section,
        name=lambda case: f"{case[1]} {case[2]}",
    ),
)
def test_every_figure_is_legible(case):
    family, name, given = case
    fig = figures[name](family.inputs[given]())
    assert fig.get_figwidth() in (3.35, 6.9)
    assert_legible(fig)


@pytest.mark.parametrize(
    "case",
    once_a_kind(
        [(family, name) for family in FAMILIES for name in family.figures],
        name=lambda case: case[1],
    ),
)
def test_every_figure_becomes_a_file(case, tmp_path):
    family, name = case
    fig = figures[name](Results(family.everything()))
    assert save(fig, tmp_path / "figure.pdf").stat().st_size > 1000


@pytest.mark.parametrize(
    ("family", "name", "make"),
    each(lambda family: names_of(family, (*family.published, *family.independent)).items()),
)
def test_without_records_the_command_is_named(family, name, make):
    for records in (None, frame(family.everything()).assign(kernel="spatter.gather")):
        with refused(f"`memkern {family.command}"):
            make(records)


@pytest.mark.parametrize(
    ("family", "name", "make"), each(lambda family: names_of(family, family.independent).items())
)
def test_wrong_records_are_refused(family, name, make):
    rows = frame(family.everything())
    with refused("no record"):
        make(rows.iloc[:0])
    with refused("list"):
        make([1, 2])
    for columns in family.lacking:
        with refused(", ".join(map(repr, columns))):
            make(rows.drop(columns=columns))


@pytest.mark.parametrize(
    ("family", "name", "rows", "options", "culprit"), each(lambda family: family.missing)
)
def test_missing_records_are_named(family, name, rows, options, culprit):
    with refused(culprit):
        figures[name](frame(rows), **options)


@pytest.mark.parametrize(
    "case",
    once_a_kind(
        [(family, name) for family in FAMILIES for name in family.figures],
        kind=lambda case: case[0].section,
        name=lambda case: case[1],
    ),
)
def test_records_of_other_families_may_lack_the_columns(case):
    family, name = case
    other = {"platform": "Own", "kernel": "spatter.scatter", "valid": True, "disturbed": False}
    rows = frame(family.everything())
    mixed = pd.concat([frame([other]), rows], ignore_index=True)
    mixed = mixed.astype(dict.fromkeys(family.integers, "Int64"))
    alone, beside = (figures[name](records).axes for records in (rows, mixed))
    for before, after in zip(alone, beside, strict=True):
        for one, same in zip(before.lines, after.lines, strict=True):
            np.testing.assert_array_equal(one.get_ydata(), same.get_ydata())


@pytest.mark.parametrize(
    ("family", "name"),
    each(lambda family: [(n,) for n in family.figures if n not in family.independent]),
)
def test_invalid_records_are_left_out_and_disturbed_ones_hollow(family, name):
    rows = frame(family.everything())
    rows["valid"] = rows.groupby("kernel").cumcount().ne(4)
    rows["disturbed"] = family.disturbed(rows)
    fig = figures[name](rows)
    assert "failed validation left out" in footnotes(fig)
    marked = name not in family.without_markers
    assert bool(disturbed_markers(fig)) == marked
    assert ("Hollow" in footnotes(fig)) == marked


# The streaming family's records are already from two machines.
@pytest.mark.parametrize("family", FAMILIES[:-1], ids=lambda family: family.section)
def test_findings_of_several_machines_name_them(family):
    one, two = family.everything(), family.everything(machine="Other")
    found = family.findings(frame_of(frame([*one, *two])))
    assert found[0].startswith("Own Machine 3000")
    assert found[-1].startswith("Other")
    assert len(found) == 2 * len(family.findings(frame_of(frame(one))))


@pytest.mark.parametrize(
    ("family", "rows", "shown", "found", "remarks"), each(lambda family: family.few)
)
def test_sections_of_few_records(family, rows, shown, found, remarks):
    section = sections[family.section](frame(rows))
    numbers = (len(section.exhibits), len(section.findings), len(section.remarks))
    assert numbers == (shown, found, remarks)
    assert all("\n" not in remark for remark in section.remarks)


@pytest.mark.parametrize(("family", "words"), each(lambda family: [(w,) for w in family.marked]))
def test_findings_mark_disturbed_numbers(family, words):
    assert words in " ".join(family.findings(frame_of(frame(family.everything(disturbed=True)))))


@BY_SECTION
def test_sections_of_other_records(family):
    assert sections[family.section](frame([{"kernel": "spatter.gather"}])) is None
    assert sections[family.section](frame([{"platform": "Own"}])) is None


def test_the_order_of_the_sections():
    known = ("spatter", "streaming", "atomics", "spmv", "dw", "latency", "messages", "transfers")
    assert [name for name in sections if name in known] == [*known]


@pytest.mark.parametrize(
    "family",
    once_a_kind(
        sorted(FAMILIES, key=lambda family: family.images), name=lambda family: family.section
    ),
)
def test_sections_in_a_report(family, tmp_path):
    records = Results(family.everything())
    path = report.write(records, tmp_path / "report.html", title="A title", environment={})
    text = path.read_text(encoding="utf-8")
    assert f"<h2>{family.title}</h2>" in text
    assert text.count("<svg") == family.images and family.shown in text
