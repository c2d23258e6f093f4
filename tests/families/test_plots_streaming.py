"""Figures, tables and section of streaming kernels, against the records that they show."""

import math

import numpy as np
import pandas as pd
import pytest
from checking import once_a_kind, refused
from plotting import (
    KIB,
    LONG,
    MIB,
    Family,
    Results,
    assert_legible,
    common_columns,
    curve_labels,
    disturbed_markers,
    footnotes,
    frame,
    line,
    own_and_faulty,
)

from memkern import reference
from memkern.errors import InputError
from memkern.families.bs.figures import fitted, own_tests
from memkern.families.streaming.findings import findings
from memkern.models import from_memory
from memkern.plots import figures, sections, tables
from memkern.plots.drawing import in_bytes, named, spaced
from memkern.plots.frames import frame_of, listed, three_figures, usable
from memkern.plots.selection import cache_ends, prevailing, select
from memkern.shared.streaming_records import as_defined, levels, short

OWN = "Own Machine 3000, 4 threads"
LONG_PLATFORM = f"{LONG}, 112 threads"
STREAMS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
# Bandwidths of a machine with caches of 32 KiB and 1 MiB per core, and 16 MiB for all cores.
BANDWIDTHS = ((4 * 32 * KIB, 400.0), (4 * MIB, 200.0), (16 * MIB, 150.0), (math.inf, 30.0))
FIGURES = (
    *("barrier-cost", "bs-fit", "bs-mesh", "loops-cycles", "loops-tlb-misses", "matvec"),
    *("matvec-traffic", "raider-kernels", "raider-scaling", "raider-sizes", "saturation", "sizes"),
)
TABLES = ("bs-t0-wmax", "loops-cycles", "raider-systems", "raider-table")
PUBLISHED = ("raider-kernels", "raider-scaling", "raider-sizes")  # figures that need no records


def record(kernel, size, bandwidth, **other):
    """Return one record with the columns that figures read."""
    return {
        **common_columns(kernel, 4, "Own Machine 3000"),
        "definition": "",
        "elements": size // 8,
        "variant": "simd",
        "repetition": "fork",
        "unroll": 0,
        "bytes_B": size,
        "footprint_B": size,
        "time_min_s": size / bandwidth / 1e9,
        "bandwidth_GBps": bandwidth,
        "clock_GHz": 2.0,
        "cycles_per_vector": 64 * 2.0 / bandwidth,
        "performance_GFLOPs": math.nan,
    } | other


def held(size):
    """Return the bandwidth for data of this size."""
    return next(bandwidth for end, bandwidth in BANDWIDTHS if size <= end)


def stream(sizes=tuple(16 * KIB * 2**i for i in range(15)), nt=True, **other):
    """Return STREAM over sizes from L1 to memory."""
    rows = []
    for name in STREAMS:
        for size in map(int, sizes):
            rows.append(record(f"stream.{name}", size, held(size), **other))
            if nt:
                rows.append(record(f"stream.{name}", size, 45.0, **other, variant="nt"))
    return rows


def bs(numbers=range(1, 6), **other):
    """Return BS1 to BS5: 2 us, 150 GB/s for the first 16 MiB and 30 GB/s for the rest."""
    rows = []
    for number in numbers:
        for size in map(int, 64 * KIB * 2 ** np.arange(0, 13, 0.5)):
            time = 2e-6 + size / 150e9
            if size > 16 * MIB:
                time = (size - 16 * MIB) / 30e9 + 16 * MIB / 150e9
            rows.append(record(f"bs.bs{number}", size, size / time / 1e9, **other))
    return rows


def meshes(**other):
    """Return BS6 to BS8: 3 us and 100 GB/s at every degree and size."""
    rows = []
    for number in (6, 7, 8):
        for degree in range(1, 8):
            for side in (2, 3, 4, 6, 8, 12):
                size = 28 * side**3 * (degree + 1) ** 3
                bandwidth = size / (3e-6 + size / 100e9) / 1e9
                how = {"degree": degree, "mesh_elements": side, **other}
                rows.append(record(f"bs.bs{number}", size, bandwidth, **how))
    return rows


def raider(**other):
    """Return all twenty kernels in three sizes, two definitions and two patterns."""
    rows = []
    for elements in (100_000, 1_000_000, 10_000_000):
        for access, slower in {"": 1, "gather_": 8, "scatter_": 10, "sg_": 16}.items():
            for name, arrays in STREAMS.items():
                for pattern, gain in {"permutation": 1, "stride:8": 2}.items():
                    for definition, more in {"paper": 1, "release": 1.5}.items():
                        size = 8 * elements * arrays
                        how = {
                            "elements": elements,
                            "definition": definition,
                            "index_pattern": pattern if access else None,
                            **other,
                        }
                        bandwidth = held(size) / slower * (gain if access else 1) * more
                        rows.append(record(f"raider.{access}{name}", size, bandwidth, **how))
        rows += [
            record(f"raider.central_{name}", 1, 500.0, elements=elements, index_pattern="", **other)
            for name in STREAMS
        ]
    return rows


def loops(names=("triad", "sum", "update"), unrolls=(0, 1, 4), **other):
    """Return loops on one thread, whose bandwidth grows with unrolling."""
    rows = []
    for name in names:
        for unroll in unrolls:
            for size in map(int, 8 * KIB * 2 ** np.arange(15)):
                bandwidth = held(4 * size) / 4 * (1 + unroll / 8)
                how = {"unroll": unroll, "threads": 1, "platform": "Own Machine 3000, 1 thread"}
                # Page walks of every page of 4 KiB beyond a TLB of 1024 entries.
                how |= {"counted_tlb_misses": size / 4096 if size > 4 * MIB else 1 + unroll}
                rows.append(record(f"loops.{name}", size, bandwidth, **{**how, **other}))
    return rows


def threads(counts=(1, 2, 4), names=("stream.copy", "stream.triad", "bs.bs3"), name="Own", **other):
    """Return kernels that scale up to two threads."""
    rows = []
    for kernel in names:
        for count in counts:
            platform = f"{name}, {count} thread{'s' * (count > 1)}"
            how = {"threads": count, "platform": platform, **other}
            rows.append(record(kernel, 2**30, 20.0 * min(count, 2), **how))
    return rows


def barriers(counts=(1, 2, 4), name="Own", **other):
    """Return three kinds of barrier: 100, 200 and 300 ns for each thread."""
    rows = []
    for i, kind in enumerate(("spin", "omp-active", "omp-passive")):
        for count in counts:
            cost = 1e-7 * (i + 1) * count
            how = {
                "platform": f"{name}, {count} thread{'s' * (count > 1)}",
                "threads": count,
                "barrier": kind,
                "barrier_s": cost,
                "barrier_low_s": 0.9 * cost,
                "barrier_high_s": 1.5 * cost,
            }
            rows.append(record("launch.barrier", 1, math.nan, **{**how, **other}))
    return rows


def matvec(**other):
    """Return matrix-vector products, at half the speed with the non-temporal hint.

    By the model, L3 holds y up to 8 MiB; counters find 10 % more.
    """
    rows = []
    for count in (1000, 10_000, 100_000, 1_000_000, 10_000_000):
        for variant, speed in {"auto": 8.0, "nta": 4.0}.items():
            elements, spilled = 192 * count, 8 * count > 8 * MIB
            how = {"rows": count, "elements": elements, "variant": variant}
            how |= {"performance_GFLOPs": speed}
            how |= {"memory_load_B": (8 + 8 * spilled) * elements}
            how |= {"memory_store_B": 8 * spilled * elements}
            how |= {f"counted_{name}": 1.1 * how[name] for name in how if name.endswith("_B")}
            how |= other
            rows.append(record("loops.matvec", 192 * 8 * count, 6 * speed, **how))
    return rows


def everything(**other):
    """Return records for all figures."""
    return [
        *stream(**other),
        *bs(**other),
        *meshes(**other),
        *raider(**other),
        *loops(**other),
        *threads(**other),
        *barriers(**other),
        *matvec(**other),
    ]


INPUTS = {
    **own_and_faulty(everything, "bandwidth_GBps"),
    "several": lambda: Results(
        [
            *everything(),
            *(
                row | {"bandwidth_GBps": 3 * row["bandwidth_GBps"]}
                for row in everything(platform=LONG_PLATFORM, environment_id="e2")
                if row["kernel"] != "launch.barrier"
            ),
            *barriers(counts=(1, 8, 112), name=LONG),
            *threads(counts=(1, 8, 112), name=LONG, environment_id="e2"),
        ]
    ),
    "few": lambda: frame(
        [
            *stream(sizes=[MIB, 2 * MIB], nt=False)[:2],
            *bs(numbers=[3])[:4],
            *meshes()[:3],
            *raider()[:1],
            *loops(names=["triad"], unrolls=[0])[:2],
            *threads(counts=(1, 2), names=["stream.add"]),
            *barriers(counts=(2,)),
            *matvec()[:2],
        ]
    ),
}

FAMILY = Family(
    section="streaming",
    findings=findings,
    title="Streaming",
    command="",
    figures=FIGURES,
    tables=TABLES,
    everything=everything,
    inputs=INPUTS,
    lacking=(["valid", "disturbed"], ["kernel", "valid"]),
    integers=("elements", "threads", "degree"),
    disturbed=lambda rows: rows.groupby("kernel").cumcount().eq(5) | rows["bytes_B"].eq(2**30),
    missing=[],
    images=11,
    shown="Wmax",
    published=(*PUBLISHED, "bs-fit", "bs-mesh", "bs-t0-wmax", "loops-cycles"),
    independent=("raider-systems",),
    # Of several unrollings with page walks, an undisturbed one is drawn.
    without_markers=(*PUBLISHED, "loops-tlb-misses"),
)


@pytest.mark.parametrize("name", once_a_kind(PUBLISHED))
def test_published_data_alone_are_legible(name):
    fig = figures[name](None)
    assert_legible(fig)
    assert "Published clusters only." in footnotes(fig)


@pytest.mark.parametrize("name", ["sizes", "bs-fit", "saturation", "raider-kernels"])
@pytest.mark.parametrize("bandwidth", [0.0, float("nan"), "fast"])
def test_wrong_bandwidths_are_refused(name, bandwidth):
    with pytest.raises(InputError, match=f"{bandwidth} GB/s"):
        figures[name](frame(everything()).assign(bandwidth_GBps=bandwidth))


def test_kernels_that_move_nothing_have_no_bandwidth_to_refuse():
    nothing = {"bandwidth_GBps": 0.0, "bytes_B": 0}
    rows = [*stream(), record("bs.bs0", 1, 1.0) | nothing, record("loops.peakflops", 1, 1.0)]
    chosen, _ = select(frame(rows), ["stream", "bs", "loops"])
    assert {name.partition(".")[0] for name in chosen["kernel"]} == {"stream"}
    known, _ = select(frame(rows), ["bs.bs0"], value="time_min_s")
    assert len(known) == 1


def test_the_setting_with_most_cases_prevails():
    rows = [
        *stream(nt=False),
        *stream(sizes=[KIB, MIB], nt=False, dtype="float32"),
        *stream(sizes=[KIB], nt=False, platform="Other, 1 thread", dtype="float32"),
    ]
    kept, notes = prevailing(frame(rows))
    assert kept.groupby("platform")["dtype"].unique().map(list).to_dict() == {
        OWN: ["float64"],
        "Other, 1 thread": ["float32"],
    }
    assert notes == ["8 records under another setting (backend, dtype, threads) left out."]
    tied = frame([record("stream.copy", MIB, 9.0, threads=count) for count in (8, 2)])
    assert prevailing(tied)[0]["threads"].tolist() == [8]
    assert prevailing(frame(rows).iloc[:0])[0].empty


def test_definition_and_pattern_choose_records():
    rows = frame(raider())
    kept = as_defined(rows, "release", "stride:8")
    assert set(kept["definition"]) == {"", "release"}
    assert set(kept[kept["kernel"] == "raider.sg_copy"]["index_pattern"]) == {"stride:8"}
    assert kept["kernel"].nunique() == 20
    assert len(as_defined(frame(stream()), "paper", "permutation")) == len(stream())


def test_the_caches_of_all_cores_count_together():
    rows = frame_of(Results(stream()))
    assert cache_ends(rows) == [("L1", 4 * 32 * KIB), ("L2", 4 * MIB), ("L3", 16 * MIB)]
    one = frame_of(Results(loops()))
    assert cache_ends(one) == [("L1", 32 * KIB), ("L2", MIB), ("L3", 16 * MIB)]
    assert cache_ends(frame_of(Results(stream(environment_id="e2")))) == []
    assert cache_ends(frame_of(Results(stream(backend="cuda")))) == []
    assert cache_ends(frame(stream())) == []


def test_levels_leave_out_sizes_near_the_end_of_a_cache():
    rows = [record("stream.copy", kib * KIB, 1.0) for kib in (96, 128, 256, 3072, 8192, 16384)]
    rows += [record("stream.copy", 64 * MIB, 1.0)]
    rows = frame_of(Results(rows))
    known = levels(rows, from_memory(rows)).tolist()
    assert known == ["L1", "", "L2", "L2", "L3", "", "memory"]
    rows.attrs.clear()
    unknown = levels(rows, from_memory(rows)).tolist()
    assert unknown == ["L1", "", "", "", "", "", "memory"]


def test_words_of_labels():
    assert [short(name) for name in ("bs.bs3", "raider.sg_copy")] == ["BS3", "sg copy"]
    assert named(LONG_PLATFORM, 20).endswith(", 112 threads") and named("nocona") == "nocona"
    assert spaced(8.7e6).split() == ["8", "700", "000"]
    assert [in_bytes(size) for size in (512, 64 * KIB, 3 * MIB)] == ["512 B", "64 KiB", "3 MiB"]
    assert listed(["a", "b", "c"]) == "a, b and c"
    numbers = (0.53312, 3950.4, math.inf, -math.inf)
    assert list(map(three_figures, numbers)) == ["0.533", "3950", "∞", "-∞"]


# ---------------------------------------------------------------------------------- the figures


def test_sizes_draw_every_point_and_both_kinds_of_stores(whole):
    fig = figures["sizes"](whole, kernels="stream")
    (ax,) = fig.axes
    sizes = 16 * KIB * 2 ** np.arange(15)
    for name in STREAMS:
        curve = line(ax, name)
        np.testing.assert_array_equal(curve.get_xdata(), sizes)
        np.testing.assert_allclose(curve.get_ydata(), [held(size) for size in sizes])
    dashed = [curve for curve in ax.lines if curve.get_label() == "_nt"]
    assert len(dashed) == 4 and all((curve.get_ydata() == 45).all() for curve in dashed)
    assert dashed[0].get_color() == line(ax, "copy").get_color()
    assert dashed[0].is_dashed() and not line(ax, "copy").is_dashed()
    assert "Dashed: non-temporal stores." in footnotes(fig)
    assert [text.get_text() for text in ax.texts] == ["L1", "L2", "L3", "memory"]
    ends = {curve.get_xdata()[0] for curve in ax.lines if len(set(curve.get_xdata())) == 1}
    assert ends == {4 * 32 * KIB, 4 * MIB, 16 * MIB}


def test_a_line_of_sizes_joins_the_best_variants():
    rows = [row | {"variant": "nt" if row["bytes_B"] > MIB else "simd"} for row in stream(nt=False)]
    fig = figures["sizes"](frame(rows))
    assert len(line(fig.axes[0], "triad").get_xdata()) == 15
    rings = [curve for curve in fig.axes[0].lines if curve.get_label() == "_best is nt"]
    assert len(rings) == 4 and min(rings[0].get_xdata()) == 2 * MIB
    assert "Ringed" in footnotes(fig) and "Dashed" not in footnotes(fig)


def test_sizes_separate_records_of_the_rotation():
    rows = [row | {"rotation": False} for row in stream(nt=False)]
    rows += stream(sizes=[3 * MIB], nt=False, rotation=True)
    fig = figures["sizes"](frame(rows))
    assert 3 * MIB not in line(fig.axes[0], "copy").get_xdata()
    assert "4 records under another setting (rotation) left out" in footnotes(fig)
    only = figures["sizes"](frame(stream(nt=False, rotation=True)))
    assert len(line(only.axes[0], "copy").get_xdata()) == 15


def test_sizes_select_families_and_kernels_and_split_large_panels(whole):
    titles = [ax.get_title() for ax in figures["sizes"](whole, kernels="bs.bs1, loops").axes]
    assert titles[0] == f"{OWN}\nBS" and "Own Machine 3000, 1 thread\nLoops" in titles
    assert not any("Raider" in ax.get_title() for ax in figures["sizes"](whole).axes)
    assert "matvec" not in {
        label for ax in figures["sizes"](whole).axes for label in curve_labels(ax)
    }
    assert "gather add" in curve_labels(figures["sizes"](frame(raider()), kernels="raider").axes[0])
    many = frame(loops(names=[f"loop{i}" for i in range(11)], unrolls=[0]))
    titles = [ax.get_title() for ax in figures["sizes"](many).axes]
    assert titles == ["Loops (1 of 2)", "Loops (2 of 2)"]
    with pytest.raises(InputError, match="nothing"):
        figures["sizes"](whole, kernels="nothing")
    with pytest.raises(InputError, match="two sizes"):
        figures["sizes"](frame(stream(sizes=[MIB])))


def test_saturation_draws_ideal_scaling_from_one_thread():
    fig = figures["saturation"](frame(threads()))
    assert [ax.get_title() for ax in fig.axes] == ["STREAM copy", "STREAM triad", "BS3"]
    for ax in fig.axes:
        mine, ideal = line(ax, "Own"), line(ax, "ideal")
        assert list(mine.get_xdata()) == [1, 2, 4] and list(mine.get_ydata()) == [20, 40, 40]
        np.testing.assert_allclose(ideal.get_ydata(), 20 * np.asarray(ideal.get_xdata()))
    with pytest.raises(InputError, match="two thread counts"):
        figures["saturation"](frame(threads(counts=(4,))))


def test_saturation_draws_loops_without_unrolling_beside_the_best():
    rows = threads(names=["loops.triad"], unroll=1) + threads(names=["loops.sum"], unroll=1)
    rows += [
        row | {"unroll": 8, "bandwidth_GBps": 2 * row["bandwidth_GBps"]}
        for row in rows
        if row["kernel"] == "loops.triad"
    ]
    total, triad = figures["saturation"](frame(rows)).axes
    assert list(line(triad, "Own").get_ydata()) == [40, 80, 80]
    assert list(line(triad, "Own, not unrolled").get_ydata()) == [20, 40, 40]
    assert line(triad, "Own, not unrolled").get_color() == line(triad, "Own").get_color()
    assert curve_labels(total) == ["Own", "ideal"]  # there is no other unrolling


def test_t0_is_fitted_in_the_caches_and_wmax_beyond():
    chosen, _ = own_tests(Results(bs()), ["bs.bs1"])
    (one,), notes = fitted(chosen)
    assert one.t0_us[0] == pytest.approx(2.0) and one.wmax_GBps[0] == pytest.approx(30.0)
    assert notes == []
    # Neither line is fitted to 8 to 16 MiB.
    between = chosen["footprint_B"].between(8 * MIB, 16 * MIB, inclusive="right")
    assert one.used.equals(~between)
    (all_sizes,), _ = fitted(chosen, leave_out="none")
    assert len(all_sizes.fits) == 1 and all_sizes.used.all()
    (large,), _ = fitted(chosen, leave_out="caches")
    assert large.fits[0].t0_s * 1e6 == pytest.approx(-16 * MIB * (1 / 30 - 1 / 150) * 1e-3)
    assert large.t0() == "T0 not resolved"
    assert large.fits[0].t0_ci_s[1] < 0 and all(map(math.isnan, large.t0_us))
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
    assert one.t0_us[0] == pytest.approx(2.0)
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
    assert "Wmax of BS1 is of the caches" in footnotes(figures["bs-fit"](Results(rows)))


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


def test_raider_bars_are_own_and_published_values(whole):
    fig = figures["raider-kernels"](whole, definition="release", index_pattern="stride:8")
    titles = ["Regular", "Gather", "Scatter", "Scatter-gather", "Central"]
    assert [ax.get_title() for ax in fig.axes if ax.get_title()] == titles
    heights = {
        container.get_label(): [bar.get_height() for bar in container]
        for container in fig.axes[1].containers
    }
    np.testing.assert_allclose(heights[OWN], [30 / 8 * 2 * 1.5] * 4)
    for platform, number in (("nocona", 3), ("thor", 4)):
        rows = reference.load("raider2022")
        rows = rows[(rows["figure"] == number) & rows["kernel"].str.contains("gather_")]
        assert heights[platform] == rows["bandwidth_GBps"].tolist()
    limits = [ax.get_ylim()[1] for ax in fig.axes[:4]]
    assert len(set(limits)) == 1 and fig.axes[4].get_ylim()[1] > 500
    assert "10 000 000" in footnotes(fig).replace("\N{NO-BREAK SPACE}", " ")


def test_raider_notes_missing_records():
    fig = figures["raider-kernels"](frame(raider()), definition="other")
    assert "No own record with definition other" not in footnotes(fig)  # central kernels stay
    none = [row for row in raider() if "central" not in row["kernel"]]
    note = footnotes(figures["raider-kernels"](frame(none), definition="other"))
    assert "No own record with definition other and pattern permutation." in note
    assert "`memkern raider" in footnotes(figures["raider-sizes"](frame(stream())))


def test_raider_sizes_draw_three_triads(whole):
    fig = figures["raider-sizes"](whole)
    for ax, slower in zip(fig.axes, (1, 8, 10), strict=True):
        mine = line(ax, OWN)
        assert list(mine.get_xdata()) == [100_000, 1_000_000, 10_000_000]
        wanted = [held(24 * n) / slower for n in (100_000, 1_000_000, 10_000_000)]
        np.testing.assert_allclose(mine.get_ydata(), wanted)
        assert len(line(ax, "thor, MPI").get_xdata()) == 5
        assert mine.get_linewidth() > line(ax, "nocona, OpenMP").get_linewidth()


def scaled(ranks=(1, 2, 4), size=8_700_000, **other):
    """Return the triads of strong scaling at 20 GB/s of each rank, with two turns."""
    return [
        record(
            f"raider.{access}triad",
            size // n * 8,
            20.0 * n / slower * (1 + 0.01 * turn),
            definition="paper" if access else "",
            index_pattern="permutation" if access else None,
            **{
                "scaling": "strong",
                "scaling_size": size,
                "ranks": n,
                "platform": OWN + f" a rank, {n} ranks" * (n > 1),
                "oversubscribed": n > 2,
                "repeat": turn,
                **other,
            },
        )
        for access, slower in {"": 1, "gather_": 8, "scatter_": 10}.items()
        for n in ranks
        for turn in range(2)
    ]


SCALED = {
    "several": lambda: [
        *scaled(range(1, 65)),
        *scaled(platform=LONG_PLATFORM, oversubscribed=False),
    ],
    "own": lambda: scaled(),
    "sizes": lambda: [*scaled(), *scaled(size=22_000_000), *raider()],
    "disturbed": lambda: scaled(disturbed=True),
}


@pytest.mark.parametrize("records", once_a_kind(SCALED))
def test_scaling_beside_clusters_is_legible(records):
    assert_legible(figures["raider-scaling"](frame(SCALED[records]())))


def test_raider_scaling_draws_clusters_over_nodes_and_own_records_over_ranks():
    rows = [*scaled(), *scaled(size=22_000_000, ranks=(1, 2)), *scaled(scaling="weak"), *raider()]
    fig = figures["raider-scaling"](frame(rows))
    assert [ax.get_title() for ax in fig.axes] == ["Triad", "Gather triad", "Scatter triad"]
    published = reference.load("raider2022")
    for ax, access, slower in zip(fig.axes, ("", "gather_", "scatter_"), (1, 8, 10), strict=True):
        drawn = {c.get_label().replace("\N{NO-BREAK SPACE}", " "): c for c in ax.lines}
        for size in ("8 700 000", "22 000 000"):
            mine = drawn[f"{OWN} per rank, {size} elements"]
            # The best case, without oversubscribed ranks.
            assert list(mine.get_xdata()) == [1, 2]
            np.testing.assert_allclose(mine.get_ydata(), 20.2 * np.array([1, 2]) / slower)
        for cluster, number, size in (("nocona", 7, "8 700 000"), ("thor", 8, "22 000 000")):
            wanted = published[
                (published["figure"] == number) & (published["kernel"] == f"raider.{access}triad")
            ]
            line_of = drawn[f"{cluster}, {size} elements"]
            assert list(line_of.get_xdata()) == [2, 4, 6, 8, 10]
            assert list(line_of.get_ydata()) == wanted["bandwidth_GBps"].tolist()
    note = footnotes(fig)
    assert "6 records with more workers than processing units on a host left out." in note
    assert "128 cores of each node of nocona and 32 cores of each node of thor were used." in note


# The models of the paper, each on the same machine at another bandwidth.
MODELS = {"none": 1.0, "mpi": 0.5, "shmem": 0.25}


def of_models(**other):
    """Return RaiderSTREAM with OpenMP alone, over MPI and over OpenSHMEM, one rank each."""
    return [
        row | {"comm": comm, "bandwidth_GBps": share * row["bandwidth_GBps"]}
        for comm, share in MODELS.items()
        for row in raider(**other)
    ]


def test_models_have_a_series_each():
    rows = frame(of_models())
    labels = {"Own Machine 3000, 4 threads": 1.0, "Own Machine 3000, MPI, 4 threads": 0.5}
    labels["Own Machine 3000, OpenSHMEM, 4 threads"] = 0.25
    sizes = figures["raider-sizes"](rows)
    for ax, slower in zip(sizes.axes, (1, 8, 10), strict=True):
        for label, share in labels.items():
            np.testing.assert_allclose(
                line(ax, label).get_ydata(), share * np.array([200.0, 30.0, 30.0]) / slower
            )
    kernels = figures["raider-kernels"](rows)
    bars = {group.get_label(): group for group in kernels.axes[0].containers}
    for label, share in labels.items():
        assert bars[label][0].get_height() == pytest.approx(30 * share)
    table = tables["raider-table"](rows)
    assert set(table["platform"]) == set(labels)
    for fig in (sizes, kernels):
        assert_legible(fig)


def test_models_scale_in_lines_of_their_own():
    rows = [
        row | {"comm": comm, "bandwidth_GBps": MODELS[comm] * row["bandwidth_GBps"]}
        for comm in ("mpi", "shmem")
        for row in scaled()
    ]
    fig = figures["raider-scaling"](frame(rows))
    own = {name: line for name in curve_labels(fig.axes[0]) if ", 4 threads" in name}
    assert [name.split(", ")[1] for name in own] == ["MPI", "OpenSHMEM"]
    mpi, shmem = (line(fig.axes[0], name).get_ydata() for name in own)
    np.testing.assert_allclose(mpi, 2 * shmem)
    assert "of single runs (`--turns 5` measures means)" in footnotes(fig)


def test_own_points_beside_published_ones_are_means_of_repeats():

    def repeated(factor, **other):
        return [
            row | {"bandwidth_GBps": factor * row["bandwidth_GBps"], "case_id": str(case)} | other
            for case, row in enumerate(raider())
        ]

    rows = [*repeated(1.0), *repeated(1.2), *repeated(1.7)]
    fig = figures["raider-sizes"](frame(rows))
    mine = line(fig.axes[0], "Own Machine 3000, 4 threads")
    np.testing.assert_allclose(mine.get_ydata(), 1.3 * np.array([200.0, 30.0, 30.0]))
    assert "means of five runs, own ones of 3." in footnotes(fig)
    # Disturbed repeats do not count, and a slower variant is another case.
    rows += [*repeated(9.0, disturbed=True), *raider(case_id="another")]
    fig = figures["raider-kernels"](frame(rows))
    regular = {group.get_label(): group for group in fig.axes[0].containers}
    assert regular["Own Machine 3000, 4 threads"][3].get_height() == pytest.approx(39)
    faster = [row for row in repeated(2.0, case_id="b") if row["kernel"] == "raider.gather_triad"]
    assert "own ones of 1 to 3." in footnotes(figures["raider-sizes"](frame([*rows, *faster])))
    single = figures["raider-sizes"](frame(raider()))
    assert "own ones are the best of single runs (`--repeats 5` measures" in footnotes(single)
    assert "means of five" not in footnotes(figures["raider-sizes"](None))


def test_systems_are_those_of_table_2_and_of_own_records():
    published = tables["raider-systems"](None)
    assert published["platform"].tolist() == ["nocona", "thor"]
    assert published["cores_per_socket"].tolist() == [64, 16]
    assert published["l3_MiB"].tolist() == [16, 40]
    results = Results(of_models(comm_library="", comm_transport="vader"))
    for row in results.rows:
        row["comm_library"] = {"mpi": "Open MPI 5", "shmem": "Sandia"}.get(row["comm"], "")
    machine = results.environments["e1"]["machine"]
    machine |= {"architecture": "riscv64", "model": "Own", "sockets": 2, "cores": 8, "threads": 16}
    machine["memory_B"] = 3 * 2**30
    table = tables["raider-systems"](results)
    own = table[table["row"] == "own"].iloc[0]
    assert len(table) == 3 and own["platform"] == own["processor"] == "Own"
    assert (own["sockets"], own["cores_per_socket"], own["threads_per_core"]) == (2, 4, 2)
    assert own[["memory_GiB", "l1_KiB", "l2_KiB", "l3_MiB"]].tolist() == [3, 32, 1024, 16]
    assert own[["mpi", "openshmem", "interconnect"]].tolist() == ["Open MPI 5", "Sandia", "vader"]
    # A table of records has no description of the machine.
    assert len(tables["raider-systems"](frame(of_models()))) == 2


def test_raider_scaling_notes_missing_records():
    for rows in (raider(), scaled(scaling="weak"), bs()):
        assert "`memkern scaling -o" in footnotes(figures["raider-scaling"](frame(rows)))


def test_loops_draw_each_unrolling_and_the_fewest_cycles(whole):
    fig = figures["loops-cycles"](whole)
    assert [ax.get_title() for ax in fig.axes] == ["triad", "sum", "update"]
    for ax in fig.axes:
        own, most = line(ax, "kernel's own unrolling"), line(ax, "unrolled 4")
        np.testing.assert_allclose(own.get_ydata(), 1.5 * np.asarray(most.get_ydata()))
        assert list(line(ax, "fewest cycles").get_ydata()) == list(most.get_ydata())
        assert own.get_ydata()[0] == pytest.approx(64 * 2.0 / 100)
    plain = figures["loops-cycles"](frame(loops(unrolls=[0])))
    assert curve_labels(plain.axes[0]) == ["kernel's own unrolling"]


def test_stencils_have_panels_by_the_level_that_holds_their_rows():
    rows = [
        row
        for where, slower in {"L1": 1, "L2": 2, "memory": 3}.items()
        for row in loops(names=["stencil"], unrolls=[0], layer_condition=where)
        for row in [row | {"cycles_per_vector": slower * row["cycles_per_vector"]}]
    ]
    titles = [ax.get_title() for ax in figures["loops-cycles"](Results(rows)).axes]
    assert titles == [f"stencil, rows in {where}" for where in ("L1", "L2", "memory")]
    table = tables["loops-cycles"](Results(rows)).set_index("statement")
    column = "Own Machine 3000, 1 thread: L1"
    cycles = table[table["kernel"] == "loops.stencil"][column].tolist()
    np.testing.assert_allclose(cycles, [1.28, 2.56, 3.84])


def test_the_caches_decide_on_the_panel_of_a_stencil():
    rows = loops(
        names=["stencil"], unrolls=[0], layer_condition="L1", conditions="L1 none, L2 rows"
    )
    (ax,) = figures["loops-cycles"](Results(rows)).axes
    assert ax.get_title() == "stencil, rows in L2"


def test_matrix_vector_draws_both_limits():
    fig = figures["matvec"](Results([*matvec(), *stream()]))
    (ax,) = fig.axes
    assert list(line(ax, "plain").get_ydata()) == [8.0] * 5
    assert list(line(ax, "non-temporal prefetch hint on A").get_ydata()) == [4.0] * 5
    # Non-temporal stores have STREAM's highest bandwidth in memory.
    assert line(ax, "8 B from memory an element").get_ydata()[0] == pytest.approx(2 * 45 / 8)
    assert line(ax, "24 B from memory an element").get_ydata()[0] == pytest.approx(2 * 45 / 24)
    ends = [curve.get_xdata()[0] for curve in ax.lines if len(set(curve.get_xdata())) == 1]
    assert [end for end in ends if end > 1] == [32 * KIB * 4 / 8, 4 * MIB / 8, 16 * MIB / 8]
    given = figures["matvec"](frame(matvec()), memory_GBps=16.0)
    assert line(given.axes[0], "8 B from memory an element").get_ydata()[0] == 4.0
    without = curve_labels(figures["matvec"](frame(matvec())).axes[0])
    assert not any("from memory" in label for label in without)
    for wrong in (0.0, -1.0, math.inf):
        with pytest.raises(InputError, match="memory_GBps"):
            figures["matvec"](frame(matvec()), memory_GBps=wrong)


def test_traffic_of_matvec_is_counted_beside_the_model():
    (ax,) = figures["matvec-traffic"](Results(matvec())).axes
    model = [8, 8, 8, 8, 24]
    assert curve_labels(ax) == [
        *("counted", "by the model", "counted, prefetch hint on A"),
        *("8 B: y in a cache", "24 B: y in memory"),
    ]
    assert list(line(ax, "by the model").get_xdata()) == [8 * 10**n for n in range(3, 8)]
    np.testing.assert_allclose(line(ax, "by the model").get_ydata(), model)
    for label in ("counted", "counted, prefetch hint on A"):
        np.testing.assert_allclose(line(ax, label).get_ydata(), 1.1 * np.array(model))
    np.testing.assert_allclose(line(ax, "24 B: y in memory").get_ydata(), 24)
    assert [text.get_text() for text in ax.texts] == ["L1", "L2", "L3", "memory"]
    assert (ax.get_ylim()[0], ax.get_ylabel()) == (0, "Traffic (B per element of A)")


def test_traffic_of_matvec_without_counters_is_modelled():
    rows = matvec(counted_memory_load_B=math.nan, counters_note="no counters here")
    fig = figures["matvec-traffic"](frame(rows))
    assert "counted" not in curve_labels(fig.axes[0])
    assert len(line(fig.axes[0], "by the model").get_xdata()) == 5
    assert "By the model alone: no counters here." in footnotes(fig)
    nothing = frame(rows).drop(columns="memory_load_B")
    with refused(
        "no record of loops.matvec in float64 has its traffic with memory: `memkern loops"
    ):
        figures["matvec-traffic"](nothing)


def test_page_walks_are_drawn_for_each_size_of_pages():
    rows = loops(["triad"], pages_requested="4k")
    rows += loops(["triad"], pages_requested="thp", counted_tlb_misses=3.0)
    (ax,) = figures["loops-tlb-misses"](Results(rows)).axes
    assert curve_labels(ax) == ["triad, 4k pages", "triad, thp pages"]
    sizes = 8 * KIB * 2 ** np.arange(15)
    small = line(ax, "triad, 4k pages")
    assert list(small.get_xdata()) == list(sizes)
    # Of several unrollings, that with the fewest cycles.
    wanted = np.where(sizes > 4 * MIB, 256, 5 * MIB / sizes)
    np.testing.assert_allclose(small.get_ydata(), wanted)
    np.testing.assert_allclose(line(ax, "triad, thp pages").get_ydata(), 3 * MIB / sizes)
    with refused(
        "no valid record of loops.triad has a counted_tlb_misses: `memkern loops -k triad"
    ):
        figures["loops-tlb-misses"](frame(loops(["triad"], counted_tlb_misses=math.nan)))
    with refused("no loop has its page walks at two sizes"):
        figures["loops-tlb-misses"](frame(rows[:1]))


def test_nt_of_matvec_in_older_files_is_the_prefetch_hint():
    old = [row | {"variant": row["variant"].replace("nta", "nt")} for row in matvec()]
    (ax,) = figures["matvec"](Results([*old, *stream()])).axes
    assert list(line(ax, "non-temporal prefetch hint on A").get_ydata()) == [4.0] * 5
    rows = frame_of(frame([*old, *stream(sizes=[MIB])]))
    loads, stores = rows[rows["kernel"] == "loops.matvec"], rows[rows["kernel"] == "stream.copy"]
    assert set(loads["variant"]) == {"auto", "nta"} and set(stores["variant"]) == {"simd", "nt"}


def test_barriers_are_drawn_in_nanoseconds_and_cycles():
    fig = figures["barrier-cost"](frame(barriers()))
    time, cycles = fig.axes
    np.testing.assert_allclose(line(time, "OpenMP, active").get_ydata(), [200, 400, 800])
    np.testing.assert_allclose(line(cycles, "OpenMP, active").get_ydata(), [400, 800, 1600])
    bars = time.collections[0].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], np.outer([100, 200, 400], [0.9, 1.5]))
    # The paper's text tells cycles of the A64FX.
    told = line(cycles, "A64FX, hardware barrier")
    assert (list(told.get_xdata()), list(told.get_ydata())) == ([12, 48], [550, 2200])
    assert not [label for label in curve_labels(time) if "A64FX" in label]
    fig = figures["barrier-cost"](frame(barriers(clock_GHz=math.nan)))
    assert len(fig.axes) == 1 and "no clock frequency" in footnotes(fig)


# ----------------------------------------------------------------------------------- the tables


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


def test_cycles_table_has_levels_beside_the_a64fx(whole):
    table = tables["loops-cycles"](whole).set_index("kernel")
    own = [f"Own Machine 3000, 1 thread: {level}" for level in ("L1", "L2", "memory")]
    cycles = [64 * 2.0 / (bandwidth / 4 * 1.5) for bandwidth in (400, 200, 30)]
    np.testing.assert_allclose(table.loc["loops.triad", own].astype(float), cycles)
    assert table.loc["loops.triad", "A64FX predicted: L2"] == 6
    assert table.loc["loops.triad", "A64FX measured: memory"] == 5.7
    assert math.isnan(table.loc["loops.update", "A64FX predicted: L1"])
    assert table.loc["loops.update", own].notna().all()
    assert tables["loops-cycles"](None).shape == (13, 8)
    one = tables["loops-cycles"](frame(loops(names=["load"])))
    assert one["kernel"].tolist() == ["loops.load"]
    with refused("no record of loops"):
        tables["loops-cycles"](frame(stream()))


def test_raider_table_has_definitions_and_patterns(whole):
    table = tables["raider-table"](whole)
    assert len(table) == 4 * 2 + 12 * 4 + 4
    assert set(table["elements"]) == {10_000_000}
    case = table.set_index(["kernel", "definition", "index_pattern"])["bandwidth_GBps"]
    assert case["raider.gather_add", "release", "stride:8"] == pytest.approx(30 / 8 * 3)
    with pytest.raises(InputError, match="memkern raider"):
        tables["raider-table"](None)


# ------------------------------------------------------------------------------------ the section


def test_findings_follow_from_the_records(whole):
    rows = [
        row
        for row in everything(platform=OWN, threads=4)
        if row["kernel"].partition(".")[0] not in ("launch", "loops")
    ]
    empty = record("bs.bs0", 1, 1.0, bandwidth_GBps=0.0, time_min_s=1.5e-6)
    section = sections["streaming"](frame_of(Results([*rows, empty])))
    text = " ".join(section.findings)
    assert "From memory (90.5 MiB or more, beyond which bandwidth no longer drops" in text
    both = "45.0 GB/s with non-temporal stores and 30.0 GB/s with ordinary stores"
    assert f": copy {both}; triad {both}." in text
    assert "by a factor of 1.50 in copy and 1.50 in triad" in text
    assert "triad reaches 400 GB/s in L1, 200 GB/s in L2, 150 GB/s in L3 and 30.0 GB/s in" in text
    assert (
        "T0 2 [2, 2] µs for sizes within the caches and Wmax 30 [30, 30] GB/s beyond them" in text
    )
    assert "An empty launch, BS0, takes 1.5 µs." in text
    assert "gather triad is 8.0 times slower (3.75 GB/s)" in text
    assert "10.0 times slower" in text and "10 000 000" in text.replace("\N{NO-BREAK SPACE}", " ")
    titles = [exhibit.title for exhibit in section.exhibits]
    assert "Bandwidth from L1 to memory" in titles and "Cycles of loops" not in titles
    assert "Cycles of loops in each memory level" not in titles
    assert any(remark.startswith("Matrix times vector: ") for remark in section.remarks)
    for name in ("chalmers2020", "raider2022", "alappat2021-kernels"):
        assert reference.cite(name) in section.citation


def test_the_section_shows_all_figures_and_tables(whole):
    section = sections["streaming"](frame_of(whole))
    titles = [exhibit.title for exhibit in section.exhibits]
    assert len(titles) == 14 and section.remarks == ()
    # Those of counters are left out without a remark where nothing was counted.
    counted = {"Page walks of loops", "Traffic of matrix times vector"}
    rows = frame(everything())
    few = sections["streaming"](rows[[name for name in rows if "counted" not in name]])
    assert counted <= set(titles)
    assert {exhibit.title for exhibit in few.exhibits} == set(titles) - counted
    assert not [remark for remark in few.remarks if "counters" in remark]
    assert any(line.startswith(f"{OWN}: ") for line in section.findings)


@pytest.mark.parametrize(
    ("rows", "there"),
    [
        ([record("spatter.gather", 8, 1.0)], False),
        ([record("launch.empty", 8, 1.0)], False),
        (barriers(), True),
        (stream(sizes=[MIB]), True),
        (loops(names=["peakflops"], unrolls=[0]), True),
    ],
)
def test_section_of_little_or_nothing(rows, there):
    section = sections["streaming"](frame(rows))
    assert (section is not None) == there
    if section is not None:
        assert section.title == "Streaming" and section.remarks


def test_section_marks_disturbed_numbers():
    rows = frame(stream(nt=False)).assign(disturbed=True)
    text = " ".join(findings(frame_of(rows)))
    assert "At the largest size (256 MiB): copy 30.0 GB/s (disturbed)" in text


def test_disturbed_records_are_neither_fitted_nor_the_best():
    rows = frame([*bs(numbers=[1]), *stream(nt=False)])
    first = rows.index == rows[rows["kernel"] == "bs.bs1"].index[2]
    disturbed = rows.assign(
        disturbed=first | rows["bandwidth_GBps"].eq(150),
        time_min_s=rows["time_min_s"] * (1 + 50 * first),
    )
    quiet = disturbed.assign(disturbed=False, bandwidth_GBps=20.0)[~first]
    both = Results(pd.concat([disturbed, quiet]).to_dict("records"))
    text = " ".join(findings(frame_of(both)))
    assert "T0 2 [2, 2] µs" in text
    assert "20.0 GB/s in L3" in text and "disturbed" not in text
    fig = figures["bs-fit"](Results(disturbed.to_dict("records")))
    assert "1 disturbed record in no fit." in footnotes(fig)
    size = rows[first]["bytes_B"].iloc[0]
    assert [list(curve.get_xdata()) for curve in disturbed_markers(fig)] == [[size]]
    assert size not in line(fig.axes[0], "_left out").get_xdata()


def test_usable_leaves_out_records_that_failed_validation():
    rows = frame(stream()).assign(valid=lambda rows: rows.index > 2)
    kept, notes = usable(rows, ["stream.copy"], [])
    assert len(kept) == 27 and notes == ["3 records that failed validation left out."]
