"""Figures, tables and section of streaming kernels, against the records that they show."""

import math

import numpy as np
import pandas as pd
import pytest
from checking import refused
from plotting import (
    KIB,
    MIB,
    Results,
    curve_labels,
    disturbed_markers,
    footnotes,
    frame,
    line,
)
from streaming_figure_records import (
    LONG_PLATFORM,
    OWN,
    STREAMS,
    barriers,
    bs,
    everything,
    loops,
    raider,
    record,
    stream,
    threads,
)

from memkern import reference
from memkern.families.streaming.findings import findings
from memkern.models import from_memory
from memkern.plots import figures, sections
from memkern.plots.drawing import in_bytes, named, spaced
from memkern.plots.frames import frame_of, joined, three_figures
from memkern.plots.selection import cache_ends, prevailing, select
from memkern.results.ratios import asked
from memkern.shared.streaming_records import as_defined, levels, short


@pytest.mark.parametrize("name", ["sizes", "bs-fit", "saturation", "raider-kernels"])
@pytest.mark.parametrize("bandwidth", [0.0, float("nan"), "fast"])
def test_wrong_bandwidths_are_refused(name, bandwidth):
    with refused(f"{bandwidth} GB/s"):
        figures[name](frame(everything()).assign(bandwidth_GBps=bandwidth))


def test_kernels_that_move_nothing_have_no_bandwidth_to_refuse():
    nothing = {"bandwidth_GBps": 0.0, "bytes_B": 0}
    rows = [*stream(), record("bs.bs0", 1, 1.0) | nothing, record("loops.peakflops", 1, 1.0)]
    chosen, _ = select(frame(rows), ["stream", "bs", "loops"])
    assert set(chosen["kernel"]) == {f"stream.{name}" for name in STREAMS}
    assert len(select(frame(rows), ["bs.bs0"], value="time_min_s")[0]) == 1


def test_the_setting_with_most_cases_prevails():
    rows = [
        *stream(nt=False),
        *stream(sizes=[KIB, MIB], nt=False, dtype="float32"),
        *stream(sizes=[KIB], nt=False, platform="Other, 1 thread", dtype="float32"),
    ]
    kept, notes = prevailing(frame(rows))
    settings = set(zip(kept["platform"], kept["dtype"], strict=True))
    assert settings == {(OWN, "float64"), ("Other, 1 thread", "float32")}
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


@pytest.mark.parametrize(
    ("rows", "ends"),
    [
        (Results(stream()), [4 * 32 * KIB, 4 * MIB, 16 * MIB]),
        (Results(loops()), [32 * KIB, MIB, 16 * MIB]),
        (Results(stream(environment_id="e2")), []),
        (Results(stream(backend="cuda")), []),
        (frame(stream()), []),
    ],
)
def test_the_caches_of_all_cores_count_together(rows, ends):
    assert cache_ends(frame_of(rows)) == list(zip(("L1", "L2", "L3"), ends, strict=False))


def test_levels_leave_out_sizes_near_the_end_of_a_cache():
    rows = [record("stream.copy", kib * KIB, 1.0) for kib in (96, 128, 256, 3072, 8192, 16384)]
    rows += [record("stream.copy", 64 * MIB, 1.0)]
    rows = frame_of(Results(rows))
    known = ["L1", "", "L2", "L2", "L3", "", "memory"]
    assert levels(rows, from_memory(rows)).tolist() == known
    rows.attrs.clear()
    unknown = ["L1", *[""] * 5, "memory"]
    assert levels(rows, from_memory(rows)).tolist() == unknown


def test_words_of_labels():
    assert [short(name) for name in ("bs.bs3", "raider.sg_copy")] == ["BS3", "sg copy"]
    assert named(LONG_PLATFORM, 20).endswith(", 112 threads") and named("nocona") == "nocona"
    assert spaced(8.7e6).split() == ["8", "700", "000"]
    assert [in_bytes(size) for size in (512, 64 * KIB, 3 * MIB)] == ["512 B", "64 KiB", "3 MiB"]
    assert joined(["a", "b", "c"]) == "a, b and c"
    numbers = (0.53312, 3950.4, math.inf, -math.inf)
    assert list(map(three_figures, numbers)) == ["0.533", "3950", "∞", "-∞"]


def lines_of(fig, label):
    """Return the lines with a label in the first panel."""
    return [curve for curve in fig.axes[0].lines if curve.get_label() == label]


def test_sizes_draw_both_kinds_of_stores(whole):
    fig = figures["sizes"](whole, kernels="stream")
    (ax,) = fig.axes
    dashed = lines_of(fig, "_nt")
    assert len(dashed) == 4 and all((curve.get_ydata() == 45).all() for curve in dashed)
    assert dashed[0].get_color() == line(ax, "copy").get_color()
    assert dashed[0].is_dashed() and not line(ax, "copy").is_dashed()
    assert "Dashed: non-temporal stores." in footnotes(fig)


def test_a_line_of_sizes_joins_the_best_variants():
    rows = [row | {"variant": "nt" if row["bytes_B"] > MIB else "simd"} for row in stream(nt=False)]
    fig = figures["sizes"](frame(rows))
    assert len(line(fig.axes[0], "triad").get_xdata()) == 15
    rings = lines_of(fig, "_best is nt")
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
    def panels(rows, kernels=""):
        axes = figures["sizes"](rows, kernels=kernels).axes
        return {ax.get_title(): curve_labels(ax) for ax in axes}

    some, every = panels(whole, "bs.bs1, loops"), panels(whole)
    assert next(iter(some)) == f"{OWN}\nBS" and "Own Machine 3000, 1 thread\nLoops" in some
    assert not any("Raider" in title or "matvec" in labels for title, labels in every.items())
    of_raider = panels(frame(raider()), "raider")
    assert "gather add" in of_raider["RaiderSTREAM (1 of 2)"]
    many = panels(frame(loops(names=[f"loop{i}" for i in range(11)], unrolls=[0])))
    assert list(map(len, many.values())) == [6, 5] and "Loops (2 of 2)" in many
    with refused("nothing"):
        panels(whole, "nothing")


def test_saturation_draws_ideal_scaling_from_one_thread():
    fig = figures["saturation"](frame(threads()))
    assert [ax.get_title() for ax in fig.axes] == ["STREAM copy", "STREAM triad", "BS3"]
    for ax in fig.axes:
        counts, ideal = line(ax, "ideal").get_data()
        np.testing.assert_allclose(ideal, 20 * counts)
        # Ideal scaling does not extend the axis.
        assert ax.get_ylim() == (0, pytest.approx(1.15 * 40))


def test_saturation_draws_loops_without_unrolling_beside_the_best():
    rows = threads(names=["loops.triad", "loops.sum"], unroll=1)
    rows += [
        row | {"unroll": 8, "bandwidth_GBps": 2 * row["bandwidth_GBps"]}
        for row in threads(names=["loops.triad"])
    ]
    total, triad = figures["saturation"](frame(rows)).axes
    best, single = line(triad, "Own"), line(triad, "Own, not unrolled")
    assert (list(best.get_ydata()), list(single.get_ydata())) == ([40, 80, 80], [20, 40, 40])
    assert best.get_color() == single.get_color()
    assert curve_labels(total) == ["Own", "ideal"]  # there is no other unrolling


def test_findings_follow_from_the_records():
    rows = [
        row
        for row in everything(platform=OWN, threads=4)
        if row["kernel"].partition(".")[0] not in ("launch", "loops")
    ]
    empty = record("bs.bs0", 1, 1.0, bandwidth_GBps=0.0, time_min_s=1.5e-6)
    section = sections["streaming"](frame_of(Results([*rows, empty])))
    text = " ".join(section.findings).replace("\N{NO-BREAK SPACE}", " ")
    both = "45 GB/s with non-temporal stores and 30 GB/s with ordinary stores"
    for found in (
        "From memory (90.5 MiB or more, beyond which bandwidth no longer drops",
        f": copy {both}; triad {both}.",
        "by a factor of 1.50 in copy and 1.50 in triad",
        "triad reaches 400 GB/s in L1, 200 GB/s in L2, 150 GB/s in L3 and 30 GB/s in",
        "T0 2 [2, 2] µs for sizes within the caches and Wmax 30 [30, 30] GB/s beyond them",
        "An empty launch, BS0, takes 1.5 µs.",
        "gather triad is 8.00 times slower (3.75 GB/s)",
        "10.00 times slower",
        "10 000 000",
    ):
        assert found in text
    titles = {exhibit.title for exhibit in section.exhibits}
    assert "Bandwidth from L1 to memory" in titles
    assert titles.isdisjoint({"Cycles of loops", "Cycles of loops in each memory level"})
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


def test_loads_from_memory_are_set_beside_copies():
    """The ratios are those that are measured in turns."""
    rows = [*stream(), *(record("loops.load", size * MIB, 36.0) for size in (64, 128, 256))]
    rows = [row | {"case_id": f"{row['kernel']} {row['variant']}"} for row in rows]
    (text,) = [one for one in findings(frame_of(Results(rows))) if "loads" in one]
    assert text == "The bandwidth of loads is 0.80 times that of copy and 0.80 times that of triad."
    told = asked([findings], frame_of(Results(rows)))
    copy, triad, load = ("stream.copy", "stream.triad", "loops.load")
    kernels = [[row["kernel"] for row in group] for group in told]
    assert kernels == [[copy, copy], [triad, triad], [copy, load], [triad, load]]


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
    assert "20 GB/s in L3" in text and "disturbed" not in text
    fig = figures["bs-fit"](Results(disturbed.to_dict("records")))
    assert "1 disturbed record in no fit." in footnotes(fig)
    size = rows[first]["bytes_B"].iloc[0]
    assert [list(curve.get_xdata()) for curve in disturbed_markers(fig)] == [[size]]
    assert size not in line(fig.axes[0], "_left out").get_xdata()
