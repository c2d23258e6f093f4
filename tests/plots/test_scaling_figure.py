"""The figure and the table of scaling."""

import itertools

import numpy as np
import pandas as pd
import pytest
from checking import refused
from in_turns import results
from plotting import LONG, curve_labels, footnotes, line
from scaling_records import KERNELS, rows

import memkern as mk
from memkern.plots import figures, tables


def frame(*found):
    return pd.DataFrame(list(itertools.chain(*found)))


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


def test_panels_are_named_and_further_cases_are_counted():
    fig = figures["scaling"](frame(rows(), rows(platform=LONG, ranks=(2, 4, 6, 256, 512))))
    assert len(fig.axes) == 4
    assert fig.axes[0].get_title(loc="left") == "Strong scaling, 1 thread per rank, Machine"
    # Ideal scaling begins at the smallest number of ranks.
    assert list(line(fig.axes[2], "ideal").get_xdata()) == [2, 512]
    assert list(line(fig.axes[2], "ideal").get_ydata()) == [1, 256]
    modes = frame(rows(), rows(scaling="weak", bind="core", comm="shmem"))
    titles = [ax.get_title(loc="left") for ax in figures["scaling"](modes).axes[::2]]
    assert titles == [
        "Strong scaling, 1 thread per rank",
        "Weak scaling, 1 thread per rank, bound to cores, OpenSHMEM",
    ]
    many = frame(rows([f"loops.kernel{number}" for number in range(11)]))
    assert "3 further cases left out." in footnotes(figures["scaling"](many))
    sizes = frame(rows(), rows(scaling_size=22_000_000, case_id="large-strong"))
    fig = figures["scaling"](sizes.assign(case_id=sizes["case_id"] + sizes["kernel"]))
    assert curve_labels(fig.axes[0])[0] == "raider.triad, 8700000"
    # Records with other options have the same name.
    other = [row | {"case_id": f"other{row['case_id']}"} for row in rows(KERNELS[:1])]
    note = footnotes(figures["scaling"](frame(rows(), other)))
    assert "4 rows of the same names with other options left out." in note


def test_the_table_is_that_of_efficiencies():
    records = results(rows())
    pd.testing.assert_frame_equal(tables["scaling"](records), mk.efficiencies(records))
