"""Figures and tables of all kernels: blocks of GPUs, slowdowns, fleets and explanations."""

import fleet_records as fleet
import in_turns
import neighbour_records as neighbours
import numpy as np
import pandas as pd
import pytest
from checking import refused
from exhibit_records import INPUTS, blocks, explanations, two_kinds_of_nodes
from explanation_records import CASES, explained
from plotting import LONG, footnotes, frame, line, panel_texts

import memkern as mk
from memkern.plots import figures, sections, tables

ROWS = {name: explained(*rows) for name, (rows, _) in CASES.items()}


# ---------------------------------------------------------------------------- block sizes on a GPU


def test_the_map_has_the_best_record_of_each_cell():
    rows = blocks()
    slower = rows[1] | {"bandwidth_GBps": 1.0}
    elsewhere = rows[1] | {"backend": "openmp", "bandwidth_GBps": 9999.0}
    rows = frame([*rows, slower, elsewhere])
    triad, gather = (ax for ax in figures["gpu-blocks"](rows).axes if ax.get_title())
    assert (triad.get_title(), gather.get_title()) == ("loops.triad", "spatter.gather")
    assert panel_texts(triad)[:5] == ["64", "65", "66", "68", "72"]
    assert panel_texts(triad)[-1] == "1032"
    table = tables["gpu-blocks"](rows)
    assert len(table) == 2 * 5 * 5
    assert table["of_best"].max() == 1.0
    top = table[table["of_best"] == 1.0]
    assert set(zip(top["block_threads"], top["unroll"], strict=True)) == {(1024, 8)}


def test_kernels_can_be_chosen_and_disturbed_records_are_marked():
    rows = frame(blocks()).assign(disturbed=lambda rows: rows["block_threads"] == 128)
    (triad,) = (ax for ax in figures["gpu-blocks"](rows, kernels="loops").axes if ax.get_title())
    assert "(136)" in panel_texts(triad) and "In parentheses" in footnotes(triad.figure)


def test_records_without_a_choice_are_refused():
    with refused("no kernel was measured on a GPU with several block sizes"):
        figures["gpu-blocks"](frame(blocks()[:1]))


# --------------------------------------------------------------------------------------- slowdowns


def test_cells_have_the_slowdowns():
    fig = figures["corun"](frame(neighbours.rows()))
    ax = fig.axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == neighbours.KERNELS
    assert [text.get_text() for text in ax.get_xticklabels()] == neighbours.KERNELS
    grid = ax.images[0].get_array()
    expected = np.tile(1 + 0.3 * np.arange(5), (5, 1))
    np.testing.assert_allclose(grid, expected, rtol=0.002)
    assert panel_texts(ax)[:5] == [
        "(1.00\n±0.01)", "1.30\n±0.01", "1.60\n±0.01", "1.90\n±0.01", "2.20\n±0.01",
    ]  # fmt: skip
    assert "in parentheses if the interval includes 1" in footnotes(fig)


def test_disturbed_entries_have_no_colour():
    found = frame(neighbours.rows())
    found["disturbed"] = (found["kernel"] == "amo.rand") & (found["beside"] == "loops.load")
    ax = figures["corun"](found).axes[0]
    shown = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    assert np.argwhere(np.isnan(shown)).tolist() == [[3, 0]]
    assert panel_texts(ax)[15] == "1.00 *"


def test_each_machine_has_a_panel():
    rows, other = neighbours.rows(), neighbours.rows(platform="Other")
    fig = figures["corun"](frame([*rows, *other, *neighbours.rows(platform=LONG)]))
    assert [ax.get_title() for ax in fig.axes[:2]] == ["Machine", "Other"]
    # Different numbers of threads have no panels of their own.
    other = [row | {"environment_id": "g", "threads": 1} for row in rows]
    fig = figures["corun"](frame([*rows, *other]))
    assert "25 rows of the same names with other options" in footnotes(fig)


def test_the_table_is_that_of_slowdowns():
    records = in_turns.results(neighbours.rows())
    pd.testing.assert_frame_equal(tables["corun"](records), mk.slowdowns(records))


# ------------------------------------------------------------------------------------------ fleets


def test_nodes_that_are_off_are_drawn_beside_what_would_be_found():
    given = fleet.results(
        [*fleet.records(), *(one | {"node": "d"} for one in fleet.records(1, disturbed=True))]
    )
    for record in given.records[:2]:
        record["time_min_s"] *= 1.5
    (ax,) = figures["fleet"](given).axes
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert len(names) == 16 and names[-1] == "n00"
    assert panel_texts(ax) == ["memory"]
    assert len(line(ax, "in the range").get_xdata()) == 15
    (percent,) = line(ax, "off").get_xdata()
    assert percent == pytest.approx(50, abs=5)
    table = tables["fleet"](given).groupby("part", sort=False)[["least_slowdown", "half"]].median()
    widths = [patch.get_x() + patch.get_width() for patch in ax.patches]
    assert widths == pytest.approx([*100 * table.loc["all cases"]], rel=0.2)
    assert widths[1] < widths[0] < percent
    note = footnotes(figures["fleet"](given))
    assert "Not judged: d (disturbed)." in note and "slow is named with" in note


def test_each_processor_has_a_panel():
    fig = figures["fleet"](two_kinds_of_nodes())
    assert [ax.get_title(loc="left").rpartition(", ")[2] for ax in fig.axes] == [
        "16 nodes", "12 nodes",
    ]  # fmt: skip
    assert len(panel_texts(fig.axes[0])) == 2 and panel_texts(fig.axes[1]) == []
    assert "Not judged: alone (nothing to compare with)." in footnotes(fig)
    # Of many nodes, those at both ends.
    many = figures["fleet"](INPUTS["fleet"].others["many"]()).axes[0]
    assert len(many.get_yticklabels()) == 40 and len(panel_texts(many)) == 10


def test_records_without_nodes_are_refused():
    with refused("memkern compare fleet -o"):
        figures["fleet"](fleet.results([one | {"node": None} for one in fleet.records()]))
    with refused("no node can be judged"):
        figures["fleet"](fleet.results(fleet.records(disturbed=True)))


# ------------------------------------------------------------------------------------ explanations


def test_bars_are_times_relative_to_the_case():
    name = "a random gather over small pages"
    ax = figures["explanation"](explanations(name)).axes[0]
    one = ROWS[name]
    assert [label.get_text() for label in ax.get_yticklabels()] == [row.name for row in one.tried]
    widths = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in ax.patches}
    assert widths == {y: row.ratio for y, row in enumerate(one.tried)}
    assert ax.get_title() == f"a.kernel\n{one.first[0]}"
    assert panel_texts(ax)[0] == "0.02"


def test_the_table_has_each_experiment():
    table = tables["explanation"](explanations())
    assert len(table) == sum(len(one.tried) for one in ROWS.values())
    first = next(iter(ROWS.values())).tried[0]
    assert table.loc[0, ["name", "ratio", "low"]].tolist() == [first.name, first.ratio, first.low]


def test_reports_have_a_section_only_with_explanations():
    found = sections["why"](explanations("a short triad"))
    assert found.findings[0].startswith("a.kernel: without launch it takes 95 % [95, 95] less")
    assert [exhibit.name for exhibit in found.exhibits] == ["explanation"] * 2
    assert sections["why"](explanations("a short triad").assign(explained_by="")) is None
    assert "5 further records" in footnotes(figures["explanation"](explanations()))
