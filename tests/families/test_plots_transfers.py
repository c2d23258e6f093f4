"""Figure, tables and section of transfers from and to a GPU, against the records that they show."""

import numpy as np
import pytest
from plotting import curve_labels, frame, line
from transfers_figure_records import LINES, SIZES, everything, record

from memkern.families.transfers.figures import findings, fits, transfers
from memkern.plots import figures, tables
from memkern.plots.frames import frame_of


def test_curves_and_lines_are_the_records(whole):
    axes = figures["transfers"](whole).axes
    assert [ax.get_title() for ax in axes] == [
        "To the device", "From the device", "Both ways at once", "Between two devices",
    ]  # fmt: skip
    assert curve_labels(axes[0]) == [
        "pinned", "pageable", "managed, prefetched", "managed, read at the other end",
    ]  # fmt: skip
    assert curve_labels(axes[3]) == ["direct", "staged"]
    pinned = line(axes[2], "pinned")
    wanted = [2 * size / (5e-6 + 2 * size / 50e9) / 1e9 for size in SIZES]
    np.testing.assert_allclose(pinned.get_ydata(), wanted)
    fitted = [curve for curve in axes[2].lines if curve.get_label() == "_fit"]
    assert len(fitted) == 4
    np.testing.assert_allclose(fitted[0].get_ydata(), wanted, rtol=1e-6)


def test_fits_have_the_lines_of_the_records(whole):
    found = fits(transfers(whole, "")[0])
    assert len(found) == 14
    names = {"pinned": ("pinned", "copy"), "staged": ("device", "staged")}
    for (_, _, series), fit in found.items():
        if series in names:
            t0, wmax = LINES[names[series]]
            assert fit.t0_s == pytest.approx(t0, rel=1e-6)
            assert fit.wmax_GBps == pytest.approx(wmax / 1e9, rel=1e-6)
    table = tables["transfers-fit"](whole)
    assert len(table) == 14 and table.iloc[0]["Wmax_GBps"].startswith("50 [")
    every = tables["transfers"](whole)
    assert len(every) == len(everything())
    assert every["time_us"].min() == pytest.approx(1e6 * (5e-6 + 8 / 50e9))
    few = frame([record("both", "pinned", "copy", size) for size in (8, 32)])
    assert fits(transfers(few, "")[0]) == {} and len(tables["transfers-fit"](few)) == 0
    assert len(figures["transfers"](few).axes) == 1


def test_findings_follow_from_the_records(whole):
    text = " ".join(findings(frame_of(whole)))
    assert "To the device, highest bandwidth: pinned 50 GB/s, managed, prefetched" in text
    assert "Between two devices, highest bandwidth: direct" in text
    assert "Time of a transfer of no data: to the device, pinned, 5 µs" in text
