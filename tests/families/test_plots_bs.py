"""Exhibits of the finite-element streaming tests with published values."""

import math

import numpy as np
import pandas as pd
import pytest
from checking import once_a_kind, refused
from plotting import Results, assert_legible, curve_labels, footnotes, frame, line
from streaming_figure_records import bs, meshes, threads

from memkern.plots import figures, sections, tables

DEVICES = ("Radeon VII", "Titan V", "MI60", "V100")
OWN = {"environment_id": "e1", "platform": "Own, 4 threads", "kernel": "bs.bs1", "device": "cpu"}


def of_machine(**about):
    """Return a record on the processor and one on the GPU of a described machine."""
    results = Results([OWN, {**OWN, "device": "cuda:0", "platform": "Card"}, OWN])
    results.environments["e1"]["machine"] |= {
        "model": "Own", "cores": 4, "memory_B": 64 * 2**30, **about,
    }  # fmt: skip
    results.environments["e1"]["memory"] = {"kind": "DDR5", "peak_GBps": 76.8}
    results.environments["e1"]["devices"] = {
        "cuda:0": {
            "name": "Card", "units": 132, "l2_B": 50 * 2**20, "memory_B": 80 * 2**30,
            "peak_GBps": 3352.0,
        }
    }  # fmt: skip
    return results


def test_own_machines_stand_beside_the_published_devices():
    published = tables["bs-devices"](None)
    assert published["platform"].tolist() == ["Radeon VII", "MI60", "Titan V", "V100"]
    assert published["tdp_W"].tolist() == [250, 225, 250, 300]
    assert published["peak_bandwidth_GBps"].tolist() == [1000, 1000, 653, 900]
    table = tables["bs-devices"](of_machine())
    assert table["row"].tolist() == ["own", "own", *["published"] * 4]
    host, card = table.iloc[0], table.iloc[1]
    assert host[["platform", "compute_units", "memory"]].tolist() == ["Own", 4, "64 GB DDR5"]
    # In 2^20 B: four L1 of 32 KiB (without instructions), four L2 of 1 MiB, an L3 of 16 MiB.
    assert host[["l1_MB", "l2_MB", "l3_MB"]].tolist() == [0.125, 4, 16]
    assert host["peak_bandwidth_GBps"] == 76.8 and math.isnan(host["tdp_W"])
    assert card[["platform", "compute_units", "memory"]].tolist() == ["Card", 132, "80 GB"]
    assert card[["l2_MB", "peak_bandwidth_GBps"]].tolist() == [50, 3352]
    assert math.isnan(card["l1_MB"])


def test_unknown_facts_of_own_machines_are_empty():
    virtual = tables["bs-devices"](of_machine(hypervisor="KVM")).iloc[0]
    assert math.isnan(virtual["peak_bandwidth_GBps"]) and virtual["memory"] == "64 GB DDR5"
    (bare,) = tables["bs-devices"](pd.DataFrame([OWN])).query("row == 'own'").to_dict("records")
    assert bare["platform"] == "Own, 4 threads" and bare["memory"] == ""
    assert pd.isna(bare["compute_units"]) and math.isnan(bare["l2_MB"])
    with refused("'platform'"):
        tables["bs-devices"](pd.DataFrame([{"kernel": "bs.bs1"}]))


@pytest.mark.parametrize("records", [[1], {"platform": ["x"]}])
def test_devices_of_other_objects_are_refused(records):
    with refused("not a DataFrame or a ResultSet"):
        tables["bs-devices"](records)


def published_lines(ax):
    """Return the published lines of a panel by device, as sizes and bandwidths."""
    lines = {label: line(ax, label) for label in curve_labels(ax) if "published" in label}
    return {
        label.removesuffix(", published fit"): (curve.get_xdata(), curve.get_ydata())
        for label, curve in lines.items()
    }


@pytest.mark.parametrize("name", once_a_kind(["bs-fit", "bs-mesh"]))
def test_published_fits_alone_are_legible(name):
    assert_legible(figures[name](None))


def test_published_fits_are_drawn_without_own_records():
    fig = figures["bs-fit"](None)
    titles = [ax.get_title(loc="left")[:3] for ax in fig.axes if ax.get_visible()]
    assert titles == ["BS1", "BS2", "BS3", "BS4", "BS5"]
    for ax in fig.axes[:5]:
        assert tuple(published_lines(ax)) == DEVICES and ax.get_yscale() == "linear"
    # Table 3 of the paper: BS3 on a V100 has T0 7.62 us and Wmax 809 GB/s, so B0.8 is 24.7 MB.
    size, bandwidth = published_lines(fig.axes[2])["V100"]
    np.testing.assert_allclose(bandwidth, size / (7.62e-6 + size / 809e9) / 1e9)
    assert np.interp(4 * 7.62e-6 * 809e9, size, bandwidth) == pytest.approx(0.8 * 809, rel=1e-3)
    assert (size[0], size[-1]) == pytest.approx((2**16, 2**30))
    mesh = figures["bs-mesh"](None)
    assert [ax.get_title(loc="left")[:3] for ax in mesh.axes] == ["BS6", "BS7"]
    size, bandwidth = published_lines(mesh.axes[1])["Titan V"]
    np.testing.assert_allclose(bandwidth, size / (1.77e-6 + size / 563e9) / 1e9)
    assert "table 3 of Chalmers" in footnotes(mesh) and "No own record" not in footnotes(mesh)


def test_published_fits_have_the_sizes_of_own_records():
    fig = figures["bs-fit"](frame(bs(numbers=[2])))
    (ax,) = fig.axes
    size, _ = published_lines(ax)["MI60"]
    own = [row["bytes_B"] for row in bs(numbers=[2])]
    assert (size[0], size[-1]) == pytest.approx((min(own), max(own)))
    assert curve_labels(ax)[0] == "Own Machine 3000, 4 threads"
    # Five rows of a legend and the small print leave the panel its height.
    assert_legible(fig)
    assert ax.get_window_extent().height > fig.dpi
    # Own bandwidths of at most 150 GB/s would be flat on a linear axis up to 850 GB/s.
    assert ax.get_yscale() == "log"
    rows = [row | {"time_min_s": row["time_min_s"] / 9, "bandwidth_GBps": 9 * row["bandwidth_GBps"]}
            for row in bs(numbers=[2])]  # fmt: skip
    assert figures["bs-fit"](frame(rows)).axes[0].get_yscale() == "linear"
    # A single size has published lines on both sides.
    row = meshes()[0]
    (ax,) = figures["bs-mesh"](frame([row])).axes
    size, _ = published_lines(ax)["MI60"]
    assert (size[0], size[-1]) == pytest.approx((row["bytes_B"] / 8, 8 * row["bytes_B"]))


def test_gather_scatter_has_no_published_fit():
    fig = figures["bs-mesh"](frame(meshes()))
    assert [tuple(published_lines(ax)) for ax in fig.axes] == [DEVICES, DEVICES, ()]


@pytest.mark.parametrize(("name", "tests"), [("bs-fit", "1..5"), ("bs-mesh", "6..8")])
def test_records_of_other_kernels_leave_the_published_fits(name, tests):
    fig = figures[name](frame(threads(names=["stream.copy"])))
    assert f"No own record: `memkern bs {tests} " in footnotes(fig)


def test_a_report_without_meshes_does_not_draw_them():
    def titles(rows):
        return [shown.title for shown in sections["streaming"](frame(rows)).exhibits]

    assert "BS6 to BS8 by polynomial degree" not in titles(bs())
    assert "BS6 to BS8 by polynomial degree" in titles(bs() + meshes())
    assert not any(title.startswith("BS") for title in titles(threads(names=["stream.copy"])))
