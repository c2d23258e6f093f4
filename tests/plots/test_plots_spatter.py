"""Figures and tables of Spatter: legible, and checked against the records that they show."""

import numpy as np
import pandas as pd
import pytest
from checking import PROPERTY, once_a_kind, refused, run
from hypothesis import given
from hypothesis import strategies as st
from plotting import curve_labels, footnotes, line
from spatter_records import (
    GATHER,
    OWN,
    PUBLISHED_CPUS,
    PUBLISHED_GPUS,
    SCATTER,
    STRIDE_1,
    STRIDES,
    fastest,
    gpu_records,
    labelled,
    over_stride_1,
    own_records,
    published,
    record,
)

from memkern import reference
from memkern.cli import analysis
from memkern.errors import InputError
from memkern.families.spatter import data as spatter_data
from memkern.families.spatter import of_paper
from memkern.families.spatter.findings import findings, transfers
from memkern.families.spatter.radars import radius
from memkern.plots import describe, figures, tables
from memkern.plots.frames import frame_of
from memkern.plots.style import lacking, plain


def without_prefetchers(frame, share=0.4):
    """Return records with default prefetchers, and without them at a share of the bandwidth."""
    off = frame.assign(prefetchers="off", bandwidth_GBps=share * frame["bandwidth_GBps"])
    return pd.concat([frame.assign(prefetchers="default"), off], ignore_index=True)


def test_exhibits_have_short_descriptions():
    for function in (*figures.values(), *tables.values()):
        assert 20 < len(describe(function)) <= 100 and "\n" not in describe(function)


def test_stride_figure_draws_published_and_own_values():
    fig = figures["spatter-fig3"](own_records())
    assert [ax.get_title() for ax in fig.axes] == ["Gather", "Scatter"]
    assert "GB/s" in fig.axes[0].get_ylabel()
    for ax, kernel in zip(fig.axes, (GATHER, SCATTER), strict=True):
        for platform in PUBLISHED_CPUS:
            curve = line(ax, labelled(platform, strides=True))
            assert list(curve.get_xdata()) == STRIDES
            assert list(curve.get_ydata()) == published(platform, kernel)
        mine = line(ax, plain(OWN))
        np.testing.assert_allclose(mine.get_ydata(), fastest(kernel))
        others = [line(ax, labelled(platform, strides=True)) for platform in PUBLISHED_CPUS]
        for other in others:
            assert mine.get_zorder() > other.get_zorder()
            assert mine.get_linewidth() > other.get_linewidth()
        assert len({(curve.get_color(), curve.get_marker()) for curve in [mine, *others]}) == 7


def test_gpu_figure_takes_own_records_of_cuda_only():
    fig = figures["spatter-fig5"](own_records())
    assert curve_labels(fig.axes[0]) == PUBLISHED_GPUS
    assert "No own record of uniform strides on a GPU (backend cuda)" in footnotes(fig)
    fig = figures["spatter-fig5"](gpu_records())
    np.testing.assert_allclose(line(fig.axes[0], "Own GPU").get_ydata(), fastest(GATHER))
    assert footnotes(fig) == ""
    assert "Own GPU" not in curve_labels(figures["spatter-fig3"](gpu_records()).axes[0])


@pytest.mark.parametrize(
    ("pattern", "delta", "stride"),
    [
        ("UNIFORM:8:4", "32", 4),
        ("UNIFORM:8:4:NR", "whatever", 4),
        ("UNIFORM:16:2", "32", 2),
        ("UNIFORM:8:4", "8", None),
        ("UNIFORM:8:4", "32,64", None),
        ("0,4,8", "12", None),
        ("MS1:8:4:20", "32", None),
    ],
)
def test_only_disjoint_uniform_patterns_count_as_strides(pattern, delta, stride):
    rows = pd.DataFrame([record(GATHER, pattern, 5.0, delta=delta, suite="")])
    points, _ = spatter_data.points_of(rows)
    assert points[points["own"]]["stride"].tolist() == ([] if stride is None else [stride])


def test_records_with_published_counts_are_preferred():
    rows = [
        record(GATHER, "AMG-G0", 500.0, count_rule="footprint"),
        record(GATHER, "AMG-G0", 50.0),
        record(GATHER, "AMG-G0", 60.0),
        record(GATHER, "AMG-G1", 7.0, count_rule="footprint"),
    ]
    points, _ = spatter_data.points_of(pd.DataFrame(rows))
    assert points[points["own"]]["bandwidth_GBps"].tolist() == [60.0, 7.0]
    fig = figures["spatter-radars-cpu"](own_records(count_rule="footprint"))
    assert "other counts than the published" in footnotes(fig)


def test_other_types_are_left_out_and_idle_threads_may_be_unknown():
    frame = own_records()
    frame.loc[0, "dtype"] = "float32"
    assert "1 record in another type than float64" in footnotes(figures["spatter-fig3"](frame))
    own, notes = spatter_data.points_of(own_records(working_threads=1))
    assert not own["own"].any() and "records with idle threads left out." in notes[0]
    own, _ = spatter_data.points_of(own_records(working_threads=1).drop(columns="threads"))
    assert own[own["own"]]["threads"].isna().all() and own["own"].any()


def test_no_finding_calls_a_disturbed_record_the_best():
    def told(records):
        return " ".join(findings(frame_of(records)))

    records = own_records()
    assert "simd won 32" in told(records)
    wins = records["pattern"].eq("LULESH-G2")
    records.loc[wins, "bandwidth_GBps"] *= 50
    assert "the best LULESH-G2" in told(records) and "disturbed" not in told(records)
    # If the fastest variant of a case is disturbed, another variant wins.
    fastest = records["variant"].eq("simd") & records["pattern"].eq("UNIFORM:8:4")
    text = told(records.assign(disturbed=wins | fastest))
    assert "the best AMG-G0" in text and "simd won 28" in text and "scalar won 4" in text


def test_findings_mark_disturbed_numbers():
    text = " ".join(findings(frame_of(own_records(disturbed=True))))
    assert "gather 82.5 GB/s (disturbed)" in text and "kernel (disturbed), and the best" in text
    assert "Each of its 4 threads has 20.6 GB/s (disturbed) in the stride-1 gather" in text


def test_simd_against_scalar_pairs_the_same_case():
    fig = figures["spatter-fig6"](own_records())
    for ax in fig.axes:
        np.testing.assert_allclose(line(ax, "simd").get_ydata(), [1.25] * 8)
        np.testing.assert_allclose(line(ax, "auto").get_ydata(), [0.9] * 8)
        low, high = ax.get_ylim()
        assert low < 0.9 and high > 1.25


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(lambda f: f[f["variant"] == "simd"], id="one variant"),
        pytest.param(lambda f: f[f["variant"] != "scalar"], id="no scalar"),
        pytest.param(
            lambda f: f[(f["variant"] == "scalar") == (f["pages_requested"] == "4k")],
            id="pairs on other pages",
        ),
        pytest.param(lambda f: f.iloc[-3:], id="no stride"),
        pytest.param(lambda f: None, id="no own records"),
    ],
)
def test_simd_against_scalar_needs_pairs(rows):
    with refused("the variant scalar and with simd or auto: `memkern report`"):
        figures["spatter-fig6"](rows(own_records()))


def test_each_page_policy_has_a_curve():
    fig = figures["spatter-pages"](own_records(pages="4k"))
    for label, huge in (("4k", 1.0), ("thp (obtained: 4k)", 1.1)):
        expected = huge / 1.1 * fastest(GATHER)
        np.testing.assert_allclose(line(fig.axes[0], label).get_ydata(), expected)
    with pytest.raises(InputError, match="two page policies"):
        figures["spatter-pages"](own_records(pages_requested="thp"))


def table_5(kernel):
    """Return the patterns of one kernel in the order of table 5, with their deltas."""
    rows = reference.rows("lavin2020-patterns")
    return {row["pattern"]: row["delta"] for row in rows if row["kernel"] == kernel}


@pytest.mark.parametrize(
    "case", once_a_kind([("spatter-fig8", SCATTER), ("spatter-fig7", GATHER)], name=" ".join)
)
def test_a_circle_is_a_pattern_and_a_spoke_a_platform(case):
    name, kernel = case
    records = own_records(disturbed=lambda frame: frame["pattern"].eq("AMG-G1"))
    fig = figures[name](records)
    axes = {ax.get_label(): ax for ax in fig.axes}
    assert list(axes) == ["key", *table_5(kernel)]
    named = {text.get_text() for text in axes["key"].texts}
    assert named == {
        "A", "BDW", "SKX", "TX2", "KNL", "CLX", "Naples", "K40c", "TitanXP", "P100", "V100",
    }  # fmt: skip
    assert f"A: {OWN}." in footnotes(fig)
    spokes = {}
    for pattern in table_5(kernel):
        for label, platforms, colour in (
            ("published cpu", PUBLISHED_CPUS, "#0072b2"),
            ("published gpu", PUBLISHED_GPUS, "#009e73"),
        ):
            dots = line(axes[pattern], label)
            expected = [over_stride_1(platform, kernel, pattern) for platform in platforms]
            np.testing.assert_allclose(dots.get_ydata(), radius(expected))
            angles = spokes.setdefault(label, tuple(dots.get_xdata()))
            assert angles == tuple(dots.get_xdata()) and dots.get_color() == colour
        own = records[records["pattern"].eq(pattern)]["bandwidth_GBps"] / STRIDE_1[kernel]
        np.testing.assert_allclose(line(axes[pattern], "own cpu").get_ydata(), radius(own))
        hollow = [c for c in axes[pattern].lines if c.get_label() == "_disturbed"]
        assert any(len(c.get_xdata()) for c in hollow) == (pattern == "AMG-G1")
    rings = [c for c in axes["key"].lines if c.get_label() == "_ring"]
    (black,) = (c for c in rings if c.get_color() == "black")
    assert set(black.get_ydata()) == {radius(1.0)}


# Deltas with which GPUs ran patterns that have a delta of 8 in table 5.
_AS_RUN_ON_GPUS = {
    "LULESH-G1": 1, "LULESH-G3": 4, "LULESH-G6": 1, "NEKBONE-G1": 1, "NEKBONE-G2": 5,
}  # fmt: skip


def test_bandwidths_by_delta_are_those_over_stride_1():
    fig = figures["spatter-delta"](own_records())
    cpus, gpus = fig.axes
    assert (cpus.get_title(), gpus.get_title()) == ("CPUs", "GPUs")
    assert cpus.get_xlabel().startswith("Delta")
    for ax, platform, other in ((cpus, "Broadwell", {}), (gpus, "V100", _AS_RUN_ON_GPUS)):
        dots = line(ax, labelled(platform))
        expected = {
            (other.get(pattern, delta), over_stride_1(platform, kernel, pattern))
            for kernel in (GATHER, SCATTER)
            for pattern, delta in table_5(kernel).items()
        }
        assert set(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == expected
    assert f"GPUs ran {', '.join(list(_AS_RUN_ON_GPUS)[:-1])} and NEKBONE-G2 with other" in (
        footnotes(fig)
    )
    assert len(line(cpus, plain(OWN)).get_xdata()) == 34
    # Own records of 16 merged instances, and of the pattern itself.
    for ax, records, label, delta, length in (
        (1, gpu_records(), "Own GPU", "80", 256), (0, own_records(), plain(OWN), "5", 16),
    ):  # fmt: skip
        named = ~records["pattern"].str.startswith("UNIFORM")
        records.loc[named, "delta"], records["pattern_length"] = delta, length
        assert set(line(figures["spatter-delta"](records).axes[ax], label).get_xdata()) == {5}
    crossed = [c for c in cpus.lines if c.get_label() == "_scatter"]
    assert all(set(c.get_xdata()) <= {0, 1, 8} and len(c.get_xdata()) == 5 for c in crossed)


@pytest.mark.parametrize(
    ("records", "culprit"),
    [
        (lambda: own_records().drop(columns=["kernel", "valid"]), "'kernel', 'valid'"),
        (lambda: own_records(bandwidth_GBps=0.0), "0.0 GB/s"),
        (lambda: own_records(bandwidth_GBps=float("nan")), "nan GB/s"),
        (lambda: own_records(bandwidth_GBps="fast"), "fast GB/s"),
    ],
)
def test_wrong_records_are_refused(records, culprit):
    with refused(culprit):
        spatter_data.points_of(records())


@PROPERTY
@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=12),
    st.sampled_from([0.1, 0.2, 0.5]),
)
def test_labels_are_spread_without_overlap_and_in_order(positions, width):
    x = np.array(positions)
    moved = of_paper._spread(pd.Series(x), width, 0.0, 10.0)
    order = np.argsort(x, kind="stable")
    gaps = np.diff(moved.iloc[order])
    assert (gaps >= width - 1e-9).all()
    assert moved.min() >= -1e-9 and moved.max() <= 10 + 1e-9
    settled = of_paper._spread(moved, width, 0.0, 10.0)
    np.testing.assert_allclose(settled, moved, atol=1e-6)


def test_prefetchers_off_over_on():
    frame = own_records()
    fig = figures["spatter-fig4"](without_prefetchers(frame))
    titles = [ax.get_title() for ax in fig.axes]
    assert titles == [
        f"Gather: {OWN}", "Gather, each over its own stride 1",
        f"Scatter: {OWN}", "Scatter, each over its own stride 1",
    ]  # fmt: skip
    for (left, right), kernel in ((fig.axes[:2], GATHER), (fig.axes[2:], SCATTER)):
        on = fastest(kernel)
        for name, share in (("prefetchers on", 1.0), ("prefetchers off", 0.4)):
            assert line(left, name).get_xdata().tolist() == STRIDES
            np.testing.assert_allclose(line(left, name).get_ydata(), share * on)
            np.testing.assert_allclose(line(right, name).get_ydata(), on / on[0])
    assert "not published as numbers" in footnotes(fig)
    # Without stride 1 nothing is drawn over it.
    fig = figures["spatter-fig4"](without_prefetchers(frame[frame["pattern"] != "UNIFORM:8:1"]))
    assert [ax.get_title() for ax in fig.axes] == titles[::2]
    left, right = (ax.get_position() for ax in fig.axes)
    assert left.y0 == right.y0 and left.x1 < right.x0  # side by side in one row
    assert f"{OWN}: no gather of stride 1 in both ways." in footnotes(fig)
    # Other figures ignore the records without prefetchers.
    everywhere = without_prefetchers(frame, 5.0)
    for each in (spatter_data.points_of, spatter_data.own_records):
        pd.testing.assert_frame_equal(
            each(everywhere)[0].drop(columns="prefetchers", errors="ignore"), each(frame)[0]
        )


def test_random_order_over_ascending_order():
    rows = []
    for kernel, ratio in ((GATHER, 0.5), (SCATTER, 0.75)):
        for stride in (1, 4, 16):
            for seed, share in (("", 1.0), (":1", ratio)):
                pattern = f"BASES:8:{stride}:1024{seed}"
                for variant, gain in (("scalar", 1.0), ("simd", 1.5)):
                    rows.append(record(kernel, pattern, 40 / stride * share * gain,
                                       delta=str(8192 * stride), variant=variant))  # fmt: skip
    rows.append(record(GATHER, "BASES:8:2:1024", 10.0, delta="16384"))  # without the other order
    fig = figures["spatter-fig4"](pd.DataFrame(rows))
    for ax, ratio in zip(fig.axes[::2], (0.5, 0.75), strict=True):
        ascending, random = line(ax, "ascending order"), line(ax, "random order")
        assert random.get_xdata().tolist() == [1, 4, 16]
        np.testing.assert_allclose(random.get_ydata() / ascending.get_ydata(), ratio)
    with refused("no pattern was measured with and without prefetchers"):
        figures["spatter-fig4"](pd.DataFrame(rows[::2]).iloc[:1])


def test_own_strides_are_printed_beside_a_published_processor():
    text = spatter_data.beside_published(own_records())
    gather, here, share, skylake, _, sentence, scatter, *_ = text.splitlines()
    assert gather.split() == ["gather", "at", "stride", *map(str, STRIDES)]
    assert scatter.startswith("scatter at stride")
    assert here.startswith("here, 4 threads: GB/s")
    assert [float(x) for x in here.split()[-8:]] == pytest.approx(fastest(GATHER), abs=0.01)
    assert share.split()[-8:-4] == ["100%", "50%", "25%", "12%"]
    assert skylake.startswith("Skylake, 24 threads: GB/s")
    values = published("Skylake", GATHER)
    assert [float(x) for x in skylake.split()[-8:]] == pytest.approx(values, abs=0.01)
    there = f"{100 * values[3] / values[0]:.0f} %"
    assert sentence.startswith("at stride 8 a gather keeps 12 % of its bandwidth at stride 1 here,")
    assert f"{there} on Skylake" in sentence
    assert "12 % (disturbed) of its" in spatter_data.beside_published(own_records(disturbed=True))
    both = [own_records(), own_records(platform="Other, 1 thread")]
    several = spatter_data.beside_published(pd.concat(both, ignore_index=True)).splitlines()
    assert len(several) == 2 * len(text.splitlines())
    assert several[7].startswith("on Other, 1 thread, 4 threads: GB/s")
    assert several[7].split()[-8:] == here.split()[-8:]
    # Without strides there is nothing to compare.
    patterns = own_records()
    patterns = patterns[~patterns["pattern"].str.startswith("UNIFORM")]
    assert spatter_data.beside_published(patterns) == ""
    assert spatter_data.beside_published(gpu_records()) == ""


def test_machines_without_a_second_file_are_told(capsys, monkeypatch, tmp_path):
    frame = own_records()
    strides = frame["pattern"].str.startswith("UNIFORM")
    other = frame.assign(platform="Other Machine, 2 threads")
    lone = "Other Machine, 2 threads left out: no record of "
    scalar, small = (
        strides & other[column].eq(value)
        for column, value in (("variant", "scalar"), ("pages_requested", "4k"))
    )
    for name, rows, what, suite in (
        ("delta", ~strides, "stride 1", "ustride-cpu"),
        ("fig8", strides, "application patterns", "apps"),
        ("fig9", strides, "application patterns", "apps"),
        ("fig6", scalar, "two variants", "ustride-cpu --variant scalar,simd"),
        ("pages", small, "as many page policies", "ustride-cpu --pages 4k,thp"),
    ):
        fig = figures[f"spatter-{name}"](pd.concat([frame, other[rows]]))
        assert f"{lone}{what}." in footnotes(fig)
        (told,) = lacking(fig)
        command = f"{lone}{what}: `memkern suite {suite} -o more.db` measures them"
        assert told.removesuffix("; give more.db as well") == command
    assert lacking(figures["spatter-delta"](frame)) == []
    (told,) = lacking(figures["spatter-radars-gpu"](gpu_records()[~strides]))
    assert "`memkern suite ustride-gpu --device cuda -o more.db`" in told
    # The command line prints them.
    monkeypatch.setattr(analysis, "_loaded", lambda _: frame[~strides])
    target = str(tmp_path / "x.svg")
    assert run(capsys, "figure", "spatter-radars-cpu", "patterns.db", "-o", target) == (
        0, f"{target}\n", f"memkern: {OWN} left out: no record of stride 1: `memkern suite "
        "ustride-cpu -o more.db` measures them; give more.db as well\n",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["spatter-fig6", "spatter-pages"])
def test_kernels_without_records_have_no_panel(name):
    gathers = own_records().query("kernel == @GATHER")
    assert [ax.get_title() for ax in figures[name](gathers).axes] == ["Gather"]


def test_what_memory_transfers_for_a_value_follows_from_the_fall():
    points = spatter_data.published().assign(own=True)
    found = {
        name: {one["word"]: one["sector"] for one in transfers(rows)}
        for name, rows in points.groupby("platform")
    }
    # The plateaus from stride 4 to 8 of section 5.2, and a K40 that has none in its gathers.
    for platform in ("P100", "Titan XP"):
        assert found[platform] == {"gather": "32 B", "scatter": "32 B"}
    assert "gather" not in found["K40"]
    # Lines of 64 B.
    assert found["Naples"] == {"gather": "64 B", "scatter": "64 B"}
    # Without a stride between, the fall is unknown.
    gap = points[points["platform"].eq("P100") & points["stride"].ne(2)]
    assert transfers(gap) == []
