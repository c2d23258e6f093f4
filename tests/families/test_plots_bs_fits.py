"""Fits of T0 and Wmax to BS1 to BS8, and the figures and table that show them."""

import math

import numpy as np
import pytest
from plotting import MIB, Results, footnotes, frame, line
from streaming_figure_records import (
    OWN,
    bs,
    everything,  # noqa: F401 (for the fixture `whole`)
    stream,
)

from memkern.errors import InputError
from memkern.families.bs.figures import fitted, own_tests
from memkern.families.streaming.findings import findings
from memkern.plots import figures, tables
from memkern.plots.frames import frame_of, three_figures


def test_t0_is_fitted_in_the_caches_and_wmax_beyond():
    chosen, _ = own_tests(Results(bs()), ["bs.bs1"])
    (one,), notes = fitted(chosen)
    assert one.fits[0].t0_s == pytest.approx(2e-6) and one.wmax_GBps[0] == pytest.approx(30.0)
    assert notes == []
    # Neither line is fitted to 8 to 16 MiB.
    between = chosen["footprint_B"].between(8 * MIB, 16 * MIB, inclusive="right")
    assert one.used.equals(~between)
    (all_sizes,), _ = fitted(chosen, leave_out="none")
    assert len(all_sizes.fits) == 1 and all_sizes.used.all()
    (large,), _ = fitted(chosen, leave_out="caches")
    assert large.fits[0].t0_s * 1e6 == pytest.approx(-16 * MIB * (1 / 30 - 1 / 150) * 1e-3)
    assert large.t0() == "T0 not resolved"
    assert large.fits[0].t0_ci_s[1] < 0
    table = tables["bs-t0-wmax"](Results(bs()), leave_out="caches")
    assert (
        table.loc[0, [f"{large.platform}: T0{end}_us" for end in ("", "_low", "_high")]]
        .isna()
        .all()
    )
    (largest,), _ = fitted(chosen, leave_out=64.0 * MIB)
    assert largest.fits[0].left_out_B == 64 * MIB
    with pytest.raises(InputError, match="not 'cache'"):
        fitted(chosen, leave_out="cache")


def test_an_unresolved_t0_is_shown_by_its_upper_bound():
    rng = np.random.default_rng(1)
    rows = [
        row | {"time_min_s": row["time_min_s"] * (1 + 0.03 * rng.standard_normal())}
        for row in bs(numbers=[1])
        if row["bytes_B"] >= 2 * MIB
    ]
    (one,), _ = fitted(own_tests(Results(rows), ["bs.bs1"])[0])
    fit = one.fits[0]
    assert fit.t0_ci_s[0] < 0 < fit.t0_ci_s[1]
    words = f"below {three_figures(1e6 * fit.t0_ci_s[1])} µs"
    (ax,) = figures["bs-fit"](Results(rows)).axes
    assert ax.texts[0].get_text().startswith(f"T₀ {words}   Wmax ")
    rows += stream(sizes=[64 * MIB])
    text = " ".join(findings(frame_of(Results(rows))))
    assert f"with T0 {words} for sizes within the caches and Wmax" in text
    table = tables["bs-t0-wmax"](Results(rows)).set_index("test")
    assert math.isnan(table.loc["BS1", f"{OWN}: T0_us"])
    assert table.loc["BS1", f"{OWN}: T0_high_us"] == pytest.approx(1e6 * fit.t0_ci_s[1])


def test_no_line_is_drawn_where_it_misses_by_a_third():
    fig = figures["bs-fit"](frame(bs(numbers=[1])))
    (curve,) = (curve for curve in fig.axes[0].lines if curve.get_label() == "_fit")
    x, y = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
    (one,), _ = fitted(own_tests(frame(bs(numbers=[1])), ["bs.bs1"])[0])
    (fit,) = one.fits
    assert not fit.holds.all() and np.isnan(y).any() and np.isfinite(y).any()
    for size in fit.points["bytes_B"][~fit.holds]:
        assert np.isnan(np.interp(size, x, y))
    assert "No line is drawn at sizes that it misses by more than a third" in footnotes(fig)


def test_records_of_other_pages_are_not_fitted_together():
    many, few = bs(numbers=[1], pages_requested="thp"), bs(numbers=[1], pages_requested="4k")[:8]
    rows = many + [row | {"time_min_s": row["time_min_s"] / 2} for row in few]
    (one,), _ = fitted(own_tests(Results(rows), ["bs.bs1"])[0])
    assert one.fits[0].t0_s == pytest.approx(2e-6)
    assert "8 records under another setting" in footnotes(figures["bs-fit"](Results(rows)))


def test_fits_of_unknown_caches_are_of_all_sizes():
    chosen, _ = own_tests(frame(bs()), ["bs.bs1"])
    (one,), _ = fitted(chosen)
    assert len(one.fits) == 1
    assert "more than 10 % off their line" in footnotes(figures["bs-fit"](frame(bs())))


def test_too_few_sizes_beyond_the_caches_are_not_fitted():
    rows = [row for row in bs(numbers=[1]) if row["bytes_B"] < 40 * MIB]
    (one,), _ = fitted(own_tests(Results(rows), ["bs.bs1"])[0])
    assert one.in_caches and one.wmax_GBps[0] == pytest.approx(150)
    assert max(one.fits[0].points["bytes_B"]) == 8 * MIB
    assert "Wmax of BS1 is a bandwidth of the caches" in footnotes(figures["bs-fit"](Results(rows)))


def test_bs_fit_draws_points_lines_and_parameters(whole):
    fig = figures["bs-fit"](whole)
    titles = [ax.get_title(loc="left").partition(":")[0] for ax in fig.axes]
    assert titles[:5] == [f"BS{number}" for number in range(1, 6)]
    ax = fig.axes[0]
    assert ax.texts[0].get_text().startswith("T₀ 2 [2, 2] µs   Wmax 30 [30, 30] GB/s")
    held_line, beyond = (curve for curve in ax.lines if curve.get_label() == "_fit")
    x = np.asarray(held_line.get_xdata())
    np.testing.assert_allclose(held_line.get_ydata(), x / (2e-6 + x / 150e9) / 1e9)
    assert max(held_line.get_xdata()) <= 8 * MIB < 16 * MIB < min(beyond.get_xdata())
    (mark,) = (curve for curve in ax.lines if curve.get_label() == "_b80")
    assert mark.get_xdata()[0] == pytest.approx(4 * 2e-6 * 150e9)
    assert mark.get_ydata()[0] == pytest.approx(120)
    pale = line(ax, "_left out")
    assert len(pale.get_xdata()) > 0 and "Pale" in footnotes(fig)


def test_a_single_size_is_left_out_with_a_note():
    rows = [*bs(numbers=[1]), *bs(numbers=[2])[:1]]
    fig = figures["bs-fit"](frame(rows))
    assert len(fig.axes) == 1
    assert f"BS2 on {OWN} not fitted: a fit needs at least 3 points" in footnotes(fig)
    with pytest.raises(InputError, match=r"memkern bs 1\.\.5 --sizes 64KiB:512MiB:60"):
        figures["bs-fit"](frame(rows[-1:]))


def test_bs_mesh_draws_a_line_for_each_degree_and_the_fit_at_seven(whole):
    fig = figures["bs-mesh"](whole)
    assert len(fig.axes) == 3
    for ax in fig.axes:
        for degree in range(1, 8):
            assert len(line(ax, f"N = {degree}").get_xdata()) == 6
        assert "T₀ 3 [3, 3] µs" in [text.get_text() for text in ax.texts]
        fit = line(ax, "fit, N = 7")
        x = np.asarray(fit.get_xdata())
        np.testing.assert_allclose(fit.get_ydata(), x / (3e-6 + x / 100e9) / 1e9)


def test_t0_wmax_table_has_own_fits_before_the_published_ones(whole):
    table = tables["bs-t0-wmax"](whole).set_index("test")
    assert list(table.index) == [f"BS{number}" for number in range(1, 8)]
    assert list(table.columns[:6]) == [
        f"{OWN}: {name}"
        for name in (
            *("T0_us", "T0_low_us", "T0_high_us"),
            *("Wmax_GBps", "Wmax_low_GBps", "Wmax_high_GBps"),
        )
    ]
    assert table.loc["BS4", f"{OWN}: T0_us"] == pytest.approx(2)
    assert table.loc["BS4", f"{OWN}: Wmax_GBps"] == pytest.approx(30)
    assert table.loc["BS7", f"{OWN}: T0_us"] == pytest.approx(3)
    assert table.loc["BS7", f"{OWN}: Wmax_GBps"] == pytest.approx(100)
    assert table.loc["BS1", "V100: T0_us"] == pytest.approx(2.9)
    alone = tables["bs-t0-wmax"](None)
    assert alone.shape == (7, 13) and alone.notna().all(axis=None)
    partly = tables["bs-t0-wmax"](frame(bs(numbers=[2])))
    assert partly.columns[1] == f"{OWN}: T0_us" and math.isnan(partly.iloc[0, 1])
