"""The figure and the table of scaling, and tests shared with the ones of slowdowns."""

import itertools
import math
import sys

import neighbour_records
import numpy as np
import pandas as pd
import pytest
from checking import once_a_kind, refused
from in_turns import over_ranks
from plotting import (
    LONG,
    assert_legible,
    curve_labels,
    disturbed_markers,
    footnotes,
    hardest_first,
    line,
)

import memkern as mk
from memkern.plots import figures, save, tables

KERNELS = ["raider.triad", "raider.gather_triad", "raider.scatter_triad"]


def rows(kernels=KERNELS, ranks=(1, 2, 4, 8), platform="Machine", loss=0.9, **more):
    """Return records whose efficiency is multiplied by `loss` if the number of ranks doubles."""
    mode = more.get("scaling", "strong")
    found = []
    for turn, (number, kernel), n in itertools.product(range(3), enumerate(kernels), ranks):
        speed = (2 * (loss - 0.02 * number)) ** math.log2(n) * 1.002 ** (turn * n)
        work = n if mode == "weak" else 1
        more_bytes = {"bytes_B": 10**9 * work} | more
        found.append(over_ranks(kernel, n, turn, work / speed, platform, **more_bytes))
    return found


def frame(*found):
    return pd.DataFrame(list(itertools.chain(*found)))


MANY = [f"loops.kernel{number}" for number in range(11)]
RECORDS = {
    "one": lambda: frame(rows()),
    "a pair": lambda: frame(rows(KERNELS[:1], (1, 2))),
    "modes": lambda: frame(rows(), rows(scaling="weak", bind="core", comm="shmem")),
    "machines": lambda: frame(rows(), rows(platform=LONG, ranks=(2, 4, 6, 256, 512))),
    "threads": lambda: frame(rows(), rows(threads=16, bind="socket")),
    "long titles": lambda: frame(
        rows(threads=16, bind="socket"), rows(threads=16, bind="node", platform=LONG)
    ),
    "long names": lambda: frame(rows([f"{kernel} {LONG}" for kernel in KERNELS])),
    "many": lambda: frame(rows(MANY)),
    "disturbed": lambda: frame(rows(disturbed=True)),
    "few turns": lambda: frame(
        row | {"time_median_s": row["time_median_s"] * (1 + row["repeat"] * (row["ranks"] > 2))}
        for row in rows()
        if row["repeat"] < 2
    ),
    "worse": lambda: frame(rows(loss=0.3)),
}


@pytest.mark.parametrize("records", once_a_kind(hardest_first(RECORDS, "long names")))
def test_the_figure_is_legible(records):
    fig = figures["scaling"](RECORDS[records]())
    assert fig.get_figwidth() == 6.9
    assert_legible(fig)


@pytest.mark.parametrize("mode", ["strong", "weak"])
def test_curves_are_speed_up_and_efficiency_beside_ideal_scaling(mode):
    fig = figures["scaling"](frame(rows(scaling=mode)))
    speed, percent = fig.axes
    assert speed.get_title(loc="left") == f"{mode.capitalize()} scaling, 1 thread per rank"
    for ax in (speed, percent):
        assert curve_labels(ax) == [*KERNELS, "ideal"]
        assert ax.get_xlabel() == "Ranks"
    triad = line(speed, "raider.triad")
    assert list(triad.get_xdata()) == [1, 2, 4, 8]
    np.testing.assert_allclose(triad.get_ydata(), 1.8 ** np.arange(4), rtol=0.02)
    np.testing.assert_allclose(
        line(percent, "raider.triad").get_ydata(), 100 * 0.9 ** np.arange(4), rtol=0.02
    )
    np.testing.assert_allclose(line(speed, "ideal").get_ydata(), [1, 8])
    np.testing.assert_allclose(line(percent, "ideal").get_ydata(), [100, 100])
    assert percent.get_ylim()[0] == 0
    assert "95 % intervals over the turns" in footnotes(fig)
    assert not cut(speed)


def test_bars_are_the_intervals():
    records = frame(rows(KERNELS[:1], (1, 2)))
    fig = figures["scaling"](records)
    (bars,) = fig.axes[0].collections
    ((x, low), (_, high)) = bars.get_segments()[0]
    row = tables["scaling"](records).iloc[1]
    assert (x, low, high) == pytest.approx((2, row["low"], row["high"]))
    assert "over the turns" in footnotes(fig) and "next run" not in footnotes(fig)


def test_long_intervals_do_not_stretch_the_axes():
    records = frame(rows(KERNELS[:1], (1, 2)))
    usual = [ax.get_ylim() for ax in figures["scaling"](records).axes]
    # Two turns that differ: the interval has one degree of freedom.
    late = (records["ranks"] == 2) & (records["repeat"] == 1)
    records.loc[late, "time_median_s"] *= 1.5
    records = records[records["repeat"] < 2]
    row = tables["scaling"](records).iloc[1]
    assert row["low"] < 0.2 and row["high"] > 10
    fig = figures["scaling"](records)
    assert_legible(fig)
    speed, percent = fig.axes
    assert np.ravel([speed.get_ylim(), percent.get_ylim()]) == pytest.approx(np.ravel(usual), 0.3)
    bottom, top = speed.get_ylim()
    heads = [(line.get_marker(), *line.get_xydata().ravel()) for line in cut(speed)]
    assert heads == [(7, 2, bottom), (6, 2, top)]
    assert [line.get_marker() for line in cut(percent)] == [6]


def cut(ax):
    """Return the arrowheads of intervals that are longer than the axis."""
    return [line for line in ax.lines if line.get_label() == "interval beyond the axis"]


def test_oversubscribed_points_are_left_out():
    records = frame(rows())
    records["oversubscribed"] = records["ranks"] > 2
    fig = figures["scaling"](records)
    assert list(line(fig.axes[0], "raider.triad").get_xdata()) == [1, 2]
    assert "6 points with more workers than processing units on a host left out." in footnotes(fig)
    assert tables["scaling"](records)["oversubscribed"].sum() == 6
    for ranks in (0, 1):
        with refused("no case was measured by two numbers of ranks"):
            figures["scaling"](records.assign(oversubscribed=records["ranks"] > ranks))


def test_disturbed_points_are_hollow_and_have_no_bars():
    records = frame(rows(KERNELS[:1]))
    records["disturbed"] = records["ranks"] == 4
    fig = figures["scaling"](records)
    assert [list(curve.get_xdata()) for curve in disturbed_markers(fig)] == [[4], [4]]
    assert "Hollow: from a disturbed record." in footnotes(fig)


def test_panels_are_named_and_further_cases_are_counted():
    fig = figures["scaling"](RECORDS["machines"]())
    assert len(fig.axes) == 4
    assert fig.axes[0].get_title(loc="left") == "Strong scaling, 1 thread per rank, Machine"
    # Ideal scaling begins at the smallest number of ranks.
    assert list(line(fig.axes[2], "ideal").get_xdata()) == [2, 512]
    assert list(line(fig.axes[2], "ideal").get_ydata()) == [1, 256]
    titles = [ax.get_title(loc="left") for ax in figures["scaling"](RECORDS["modes"]()).axes[::2]]
    assert titles == [
        "Strong scaling, 1 thread per rank",
        "Weak scaling, 1 thread per rank, bound to cores, OpenSHMEM",
    ]
    assert "3 further cases left out." in footnotes(figures["scaling"](RECORDS["many"]()))
    sizes = frame(rows(), rows(scaling_size=22_000_000, case_id="large-strong"))
    fig = figures["scaling"](sizes.assign(case_id=sizes["case_id"] + sizes["kernel"]))
    assert curve_labels(fig.axes[0])[0] == "raider.triad, 8700000"
    # Records with other options have the same name.
    other = [row | {"case_id": f"other{row['case_id']}"} for row in rows(KERNELS[:1])]
    note = footnotes(figures["scaling"](frame(rows(), other)))
    assert "4 rows of the same names with other options left out." in note


BOTH = pytest.mark.parametrize(
    ("name", "rows", "values", "culprit"),
    [
        ("scaling", rows, mk.efficiencies, "`memkern scaling` measures them"),
        ("corun", neighbour_records.rows, mk.slowdowns, "measure with `memkern corun`"),
    ],
)


@BOTH
def test_the_figure_and_the_table_take_result_sets_and_become_files(
    name, rows, values, culprit, tmp_path
):
    results = mk.ResultSet(rows(), [np.empty(0)] * len(rows()))
    pd.testing.assert_frame_equal(tables[name](results), values(results))
    assert save(figures[name](results), tmp_path / "x.png").stat().st_size > 1000


@BOTH
def test_other_records_are_refused(name, rows, values, culprit):
    ordinary = [{"kernel": "stream.triad", "valid": True}]
    for exhibit in (figures[name], tables[name]):
        for records in (None, frame(ordinary), frame(rows(valid=False))):
            with refused(culprit):
                exhibit(records)


@BOTH
def test_the_figure_does_not_import_pyplot(name, rows, values, culprit, monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    figures[name](frame(rows()))
    assert "matplotlib.pyplot" not in sys.modules
