"""Figures, tables and section of streaming kernels, against the records that they show."""

import math

import numpy as np
import pandas as pd
import pytest
from checking import once_a_kind
from plotting import (
    KIB,
    MIB,
    Results,
    assert_legible,
    curve_labels,
    disturbed_markers,
    footnotes,
    frame,
    line,
)
from streaming_family import PUBLISHED
from streaming_figure_records import (
    LONG_PLATFORM,
    OWN,
    STREAMS,
    barriers,
    bs,
    everything,
    held,
    loops,
    raider,
    record,
    stream,
    threads,
)

from memkern import reference
from memkern.errors import InputError
from memkern.families.streaming.findings import findings
from memkern.models import from_memory
from memkern.plots import figures, sections
from memkern.plots.drawing import in_bytes, named, spaced
from memkern.plots.frames import frame_of, joined, three_figures, usable
from memkern.plots.selection import cache_ends, prevailing, select
from memkern.results.ratios import asked
from memkern.shared.streaming_records import as_defined, levels, short


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
    assert joined(["a", "b", "c"]) == "a, b and c"
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
    both = "45 GB/s with non-temporal stores and 30 GB/s with ordinary stores"
    assert f": copy {both}; triad {both}." in text
    assert "by a factor of 1.50 in copy and 1.50 in triad" in text
    assert "triad reaches 400 GB/s in L1, 200 GB/s in L2, 150 GB/s in L3 and 30 GB/s in" in text
    assert (
        "T0 2 [2, 2] µs for sizes within the caches and Wmax 30 [30, 30] GB/s beyond them" in text
    )
    assert "An empty launch, BS0, takes 1.5 µs." in text
    assert "gather triad is 8.00 times slower (3.75 GB/s)" in text
    assert "10.00 times slower" in text and "10 000 000" in text.replace("\N{NO-BREAK SPACE}", " ")
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


def test_loads_from_memory_are_set_beside_copies():
    """The ratios are those that are measured in turns."""
    rows = [*stream(), *(record("loops.load", size * MIB, 36.0) for size in (64, 128, 256))]
    rows = [row | {"case_id": f"{row['kernel']} {row['variant']}"} for row in rows]
    (text,) = [one for one in findings(frame_of(Results(rows))) if "loads" in one]
    assert text == "The bandwidth of loads is 0.80 times that of copy and 0.80 times that of triad."
    told = asked([findings], frame_of(Results(rows)))
    copy, triad, load = ("stream.copy", "stream.triad", "loops.load")
    kernels = [[row["kernel"] for row in group] for group in told]
    assert kernels == [[copy, copy], [copy, load], [triad, triad], [triad, load]]


def test_section_marks_disturbed_numbers():
    rows = frame(stream(nt=False)).assign(disturbed=True)
    text = " ".join(findings(frame_of(rows)))
    assert "At the largest size (256 MiB): copy 30 GB/s (disturbed)" in text


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


def test_usable_leaves_out_records_that_failed_validation():
    rows = frame(stream()).assign(valid=lambda rows: rows.index > 2)
    kept, notes = usable(rows, ["stream.copy"], [])
    assert len(kept) == 27 and notes == ["3 records that failed validation left out."]
