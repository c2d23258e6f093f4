"""Figures and tables of the finite-element streaming tests: fits, and published devices."""

import math

import numpy as np
import pandas as pd
import pytest
from checking import refused
from plotting import MIB, Results, curve_labels, footnotes, frame, line
from streaming_figure_records import (
    OWN,
    bs,
    everything,  # noqa: F401 (for the fixture `whole`)
    meshes,
    stream,
    threads,
)

from memkern.families.bs.figures import fitted, own_tests
from memkern.families.streaming.findings import findings
from memkern.plots import figures, sections, tables
from memkern.plots.frames import frame_of, three_figures

DEVICES = ("Radeon VII", "Titan V", "MI60", "V100")
RECORD = {"environment_id": "e1", "platform": OWN, "kernel": "bs.bs1", "device": "cpu"}


def fit_of(records, **options):
    """Return the fit of the only test."""
    (one,), notes = fitted(own_tests(records, ["bs.bs1"])[0], **options)
    assert notes == []
    return one


def lines_of(fig, label, panel=0):
    """Return the x and y of each line with a label in a panel."""
    lines = [curve for curve in fig.axes[panel].lines if curve.get_label() == label]
    return [tuple(map(np.asarray, curve.get_data())) for curve in lines]


def published_lines(ax):
    """Return the published lines of a panel by device, as sizes and bandwidths."""
    ending = ", published fit"
    labels = [label for label in curve_labels(ax) if label.endswith(ending)]
    return {label.removesuffix(ending): line(ax, label).get_data() for label in labels}


def of_machine(**about):
    """Return a record on the processor and one on the GPU of a described machine."""
    results = Results([RECORD, {**RECORD, "device": "cuda:0", "platform": "Card"}, RECORD])
    environment = results.environments["e1"]
    environment["machine"] |= {"model": "Own", "cores": 4, "memory_B": 64 * 2**30, **about}
    environment["memory"] = {"kind": "DDR5", "peak_GBps": 76.8}
    card = {"name": "Card", "units": 132, "l2_B": 50 * MIB, "memory_B": 80 * 2**30}
    environment["devices"] = {"cuda:0": {**card, "peak_GBps": 3352.0}}
    return results


def test_own_machines_stand_beside_the_published_devices():
    published = tables["bs-devices"](None)
    assert published["platform"].tolist() == ["Radeon VII", "MI60", "Titan V", "V100"]
    assert published["tdp_W"].tolist() == [250, 225, 250, 300]
    assert published["peak_bandwidth_GBps"].tolist() == [1000, 1000, 653, 900]
    table = tables["bs-devices"](of_machine())
    assert table["row"].tolist() == ["own", "own", *["published"] * 4]
    columns = ["platform", "compute_units", "memory", "l1_MB", "l2_MB", "l3_MB"]
    host, card = (
        table[[*columns, "peak_bandwidth_GBps", "tdp_W"]].astype(object).fillna(0).values[:2]
    )
    # In 2^20 B: four L1 of 32 KiB (without instructions), four L2 of 1 MiB, an L3 of 16 MiB.
    assert host.tolist() == ["Own", 4, "64 GB DDR5", 0.125, 4, 16, 76.8, 0]
    assert card.tolist() == ["Card", 132, "80 GB", 0, 50, 0, 3352, 0]


def test_unknown_facts_of_own_machines_are_empty():
    virtual = tables["bs-devices"](of_machine(hypervisor="KVM")).iloc[0]
    assert math.isnan(virtual["peak_bandwidth_GBps"]) and virtual["memory"] == "64 GB DDR5"
    (bare,) = tables["bs-devices"](frame([RECORD])).query("row == 'own'").to_dict("records")
    assert bare["platform"] == OWN and bare["memory"] == ""
    assert pd.isna(bare["compute_units"]) and math.isnan(bare["l2_MB"])
    for wrong, why in (
        (frame([{"kernel": "bs.bs1"}]), "'platform'"),
        ({"platform": ["x"]}, "not a DataFrame or a ResultSet"),
    ):
        with refused(why):
            tables["bs-devices"](wrong)


def test_published_fits_are_drawn_without_own_records():
    fits, mesh = figures["bs-fit"](None), figures["bs-mesh"](None)
    for fig, tests in ((fits, "12345"), (mesh, "67")):
        assert [ax.get_title(loc="left")[:3] for ax in fig.axes] == [f"BS{n}" for n in tests]
        assert {(tuple(published_lines(ax)), ax.get_yscale()) for ax in fig.axes} == {
            (DEVICES, "linear")
        }
        assert "table 3 of Chalmers" in footnotes(fig) and "No own record" not in footnotes(fig)
    # Table 3 of the paper: BS3 on a V100 has T0 7.62 us and Wmax 809 GB/s, so B0.8 is 24.7 MB.
    size, bandwidth = published_lines(fits.axes[2])["V100"]
    np.testing.assert_allclose(bandwidth, size / (7.62e-6 + size / 809e9) / 1e9)
    assert np.interp(4 * 7.62e-6 * 809e9, size, bandwidth) == pytest.approx(0.8 * 809, rel=1e-3)
    assert (size[0], size[-1]) == pytest.approx((2**16, 2**30))
    size, bandwidth = published_lines(mesh.axes[1])["Titan V"]
    np.testing.assert_allclose(bandwidth, size / (1.77e-6 + size / 563e9) / 1e9)


def test_published_fits_have_the_sizes_of_own_records():
    fig = figures["bs-fit"](frame(bs(numbers=[2])))
    (ax,) = fig.axes
    own = [row["bytes_B"] for row in bs(numbers=[2])]
    size, _ = published_lines(ax)["MI60"]
    assert (size[0], size[-1]) == pytest.approx((min(own), max(own)))
    assert curve_labels(ax)[0] == OWN
    # Five rows of a legend and the small print leave the panel its height.
    fig.draw_without_rendering()
    assert ax.get_window_extent().height > fig.dpi
    # Own bandwidths of at most 150 GB/s would be flat on a linear axis up to 850 GB/s.
    assert ax.get_yscale() == "log"
    faster = frame(bs(numbers=[2])).assign(bandwidth_GBps=lambda rows: 9 * rows["bandwidth_GBps"])
    assert figures["bs-fit"](faster).axes[0].get_yscale() == "linear"
    # A single size has published lines on both sides.
    row = meshes()[0]
    size, _ = published_lines(figures["bs-mesh"](frame([row])).axes[0])["MI60"]
    assert (size[0], size[-1]) == pytest.approx((row["bytes_B"] / 8, 8 * row["bytes_B"]))


@pytest.mark.parametrize(("name", "tests"), [("bs-fit", "1..5"), ("bs-mesh", "6..8")])
def test_records_of_other_kernels_leave_the_published_fits(name, tests):
    fig = figures[name](frame(threads(names=["stream.copy"])))
    assert f"No own record: `memkern bs {tests} " in footnotes(fig)


def test_a_report_without_meshes_does_not_draw_them():
    mesh = "BS6 to BS8 by polynomial degree"
    for rows, of_bs, shown in (
        (bs(), True, False),
        (bs() + meshes(), True, True),
        (threads(names=["stream.copy"]), False, False),
    ):
        titles = [one.title for one in sections["streaming"](frame(rows)).exhibits]
        assert (mesh in titles) == shown
        assert any(title.startswith("BS") for title in titles) == of_bs


def test_t0_is_fitted_in_the_caches_and_wmax_beyond():
    records = Results(bs())
    one = fit_of(records)
    assert one.fits[0].t0_s == pytest.approx(2e-6) and one.wmax_GBps[0] == pytest.approx(30.0)
    # Neither line is fitted to 8 to 16 MiB.
    between = one.rows["footprint_B"].between(8 * MIB, 16 * MIB, inclusive="right")
    assert one.used.equals(~between)
    all_sizes = fit_of(records, leave_out="none")
    assert len(all_sizes.fits) == 1 and all_sizes.used.all()
    assert fit_of(records, leave_out=64.0 * MIB).fits[0].left_out_B == 64 * MIB
    large = fit_of(records, leave_out="caches")
    assert large.fits[0].t0_s * 1e6 == pytest.approx(-16 * MIB * (1 / 30 - 1 / 150) * 1e-3)
    assert large.t0() == "T0 not resolved" and large.fits[0].t0_ci_s[1] < 0
    table = tables["bs-t0-wmax"](records, leave_out="caches")
    assert table.loc[0, [f"{OWN}: T0{end}_us" for end in ("", "_low", "_high")]].isna().all()
    with refused("not 'cache'"):
        fit_of(records, leave_out="cache")


def test_an_unresolved_t0_is_shown_by_its_upper_bound():
    noise = np.random.default_rng(1)
    rows = [
        row | {"time_min_s": row["time_min_s"] * (1 + 0.03 * noise.standard_normal())}
        for row in bs(numbers=[1])
        if row["bytes_B"] >= 2 * MIB
    ]
    low, high = fit_of(Results(rows)).fits[0].t0_ci_s
    assert low < 0 < high
    words = f"below {three_figures(1e6 * high)} µs"
    (ax,) = figures["bs-fit"](Results(rows)).axes
    assert ax.texts[0].get_text().startswith(f"T₀ {words}   Wmax ")
    rows += stream(sizes=[64 * MIB])
    text = " ".join(findings(frame_of(Results(rows))))
    assert f"with T0 {words} for sizes within the caches and Wmax" in text
    first = tables["bs-t0-wmax"](Results(rows)).iloc[0]
    assert math.isnan(first[f"{OWN}: T0_us"])
    assert first[f"{OWN}: T0_high_us"] == pytest.approx(1e6 * high)


def test_fits_of_unknown_caches_are_of_all_sizes_and_no_line_misses_by_a_third():
    rows = frame(bs(numbers=[1]))
    (fit,) = fit_of(rows).fits
    fig = figures["bs-fit"](rows)
    ((x, y),) = lines_of(fig, "_fit")
    assert not fit.holds.all() and np.isnan(y).any() and np.isfinite(y).any()
    for size in fit.points["bytes_B"][~fit.holds]:
        assert np.isnan(np.interp(size, x, y))
    assert "No line is drawn at sizes that it misses by more than a third" in footnotes(fig)
    assert "more than 10 % off their line" in footnotes(fig)


def test_records_of_other_pages_are_not_fitted_together():
    many, few = bs(numbers=[1], pages_requested="thp"), bs(numbers=[1], pages_requested="4k")[:8]
    rows = Results(many + [row | {"time_min_s": row["time_min_s"] / 2} for row in few])
    assert fit_of(rows).fits[0].t0_s == pytest.approx(2e-6)
    assert "8 records under another setting" in footnotes(figures["bs-fit"](rows))


def test_too_few_sizes_beyond_the_caches_are_not_fitted():
    rows = Results([row for row in bs(numbers=[1]) if row["bytes_B"] < 40 * MIB])
    one = fit_of(rows)
    assert one.in_caches and one.wmax_GBps[0] == pytest.approx(150)
    assert max(one.fits[0].points["bytes_B"]) == 8 * MIB
    assert "Wmax of BS1 is a bandwidth of the caches" in footnotes(figures["bs-fit"](rows))


def test_bs_fit_draws_points_lines_and_parameters(whole):
    fig = figures["bs-fit"](whole)
    assert fig.axes[0].texts[0].get_text() == "T₀ 2 [2, 2] µs   Wmax 30 [30, 30] GB/s"
    (x, y), (beyond, _) = lines_of(fig, "_fit")
    np.testing.assert_allclose(y, x / (2e-6 + x / 150e9) / 1e9)
    assert max(x) <= 8 * MIB < 16 * MIB < min(beyond)
    np.testing.assert_allclose(lines_of(fig, "_b80"), [[[4 * 2e-6 * 150e9], [120]]])
    assert "Pale" in footnotes(fig)


def test_a_single_size_is_left_out_with_a_note():
    rows = [*bs(numbers=[1]), *bs(numbers=[2])[:1]]
    fig = figures["bs-fit"](frame(rows))
    assert len(fig.axes) == 1
    assert f"BS2 on {OWN} not fitted: a fit needs at least 3 points" in footnotes(fig)
    with refused("memkern bs 1..5 --sizes 64KiB:512MiB:60"):
        figures["bs-fit"](frame(rows[-1:]))


def test_bs_mesh_draws_a_line_for_each_degree_and_the_fit_at_seven(whole):
    fig = figures["bs-mesh"](whole)
    # There is no published fit of BS8.
    assert [tuple(published_lines(ax)) for ax in fig.axes] == [DEVICES, DEVICES, ()]
    for number, ax in enumerate(fig.axes):
        lengths = [len(line(ax, f"N = {degree}").get_xdata()) for degree in range(1, 8)]
        assert lengths == [6] * 7
        assert "T₀ 3 [3, 3] µs" in [text.get_text() for text in ax.texts]
        ((x, y),) = lines_of(fig, "fit, N = 7", number)
        np.testing.assert_allclose(y, x / (3e-6 + x / 100e9) / 1e9)


def test_t0_wmax_table_has_own_fits_before_the_published_ones(whole):
    table = tables["bs-t0-wmax"](whole).set_index("test")
    assert list(table.index) == [f"BS{number}" for number in range(1, 8)]
    own = table.loc[["BS4", "BS7"], [f"{OWN}: T0_us", f"{OWN}: Wmax_GBps"]]
    np.testing.assert_allclose(own.astype(float), [[2, 30], [3, 100]])
    assert table.loc["BS1", "V100: T0_us"] == pytest.approx(2.9)
    alone = tables["bs-t0-wmax"](None)
    assert alone.shape == (7, 13) and alone.notna().all(axis=None)
    partly = tables["bs-t0-wmax"](frame(bs(numbers=[2])))
    assert partly.columns[1] == f"{OWN}: T0_us" and math.isnan(partly.iloc[0, 1])
