"""Spatter's tables, and the bandwidth-bandwidth figure."""

import math

import numpy as np
import pandas as pd
import pytest
from checking import refused
from plotting import assert_legible, footnotes
from spatter_records import (
    GATHER,
    OWN,
    PAGES,
    PUBLISHED_CPUS,
    PUBLISHED_GPUS,
    SCATTER,
    STRIDE_1,
    STRIDES,
    THREADS,
    VARIANTS,
    own_records,
    published,
    record,
)

from memkern import reference
from memkern.plots import figures, tables


def test_tables_of_applications_platforms_and_patterns():
    kernels, applications = (tables[f"spatter-table{number}"]() for number in (1, 2))
    assert kernels["gathers"].sum() == 9754089 and kernels["scatters"].sum() == 1860283
    assert kernels["moved_percent"].max() == 67.6
    assert applications["application"].tolist() == ["AMG", "LULESH", "Nekbone", "PENNANT"]
    platforms = tables["spatter-table3"](own_records(), stream_GBps=33.3).set_index("platform")
    shown = platforms[["stream_MBps", "threads", "backend"]]
    assert shown.loc[OWN].tolist() == [33300, 4, "openmp"]
    assert shown.loc["Knights Landing"].tolist() == [249313, 272, "openmp"]
    assert len(platforms) == 10 and "Naples" not in platforms.index
    own = [
        record(GATHER, "UNIFORM:20:3", 1.0, delta="60"), record(SCATTER, "a name", 1.0),
        record(GATHER, "MS1:8:4:20", 1.0),
    ]  # fmt: skip
    patterns = tables["spatter-table5"](pd.DataFrame(own))
    assert patterns["row"].tolist() == ["published"] * 34 + ["own"] * 2
    assert patterns.iloc[-2].tolist() == [
        "UNIFORM:20:3", "gather", "own", f"[{','.join(str(3 * i) for i in range(16))},...]", "60",
        "", "uniform",
    ]  # fmt: skip
    (note,) = patterns.attrs["notes"]
    assert note.startswith("a name left out: ")
    others = pd.DataFrame([{"kernel": "stream.triad"}])
    assert len(tables["spatter-table5"](others)) == 34
    with refused("'delta'"):
        tables["spatter-table5"](pd.DataFrame(own).drop(columns="delta"))


def test_the_classes_of_the_patterns_are_the_types_of_table_5():
    table = tables["spatter-table5"]()
    types = table["type"].str.lower().replace({"": "complex"})
    types = types.str.replace(r"^stride-.*", "uniform", regex=True)
    assert table["class"].tolist() == types.tolist()
    assert set(types) == {"uniform", "broadcast", "mostly stride-1", "complex"}


def test_bandwidth_bandwidth_draws_the_values_and_constant_fractions():
    records = own_records(platform="Own, a Machine, 1 thread")
    fig = figures["spatter-fig9"](records, patterns=["AMG-G0", "PENNANT-S0"], omit="")
    assert "In parentheses: threads." in footnotes(fig)
    gather, scatter = fig.axes
    marks = {c.get_label(): c for c in scatter.collections}
    points = {tuple(pair) for pair in np.asarray(marks["PENNANT-S0"].get_offsets()).tolist()}
    for platform in (*PUBLISHED_CPUS, *PUBLISHED_GPUS):
        value = published(platform, SCATTER, "PENNANT-S0")
        assert (published(platform, SCATTER)[0], value) in points
    own = next(c for c in gather.collections if c.get_label() == "_own")
    np.testing.assert_allclose(own.get_offsets(), [[STRIDE_1[GATHER], 100.0]])
    diagonals = [c for c in gather.lines if c.get_label() == "_share"]
    shares = [c.get_ydata() / np.array(c.get_xdata()) for c in diagonals]
    assert all(share[0] == pytest.approx(share[1]) for share in shares)
    assert 1.0 in [share[0] for share in shares]
    cpus = (f"{platform} ({threads})" for platform, threads in THREADS.items())
    names = {text.get_text() for text in gather.texts}
    assert names == {"Own, a Machine (1)", *cpus, *PUBLISHED_GPUS}


def test_bandwidth_bandwidth_marks_strides_and_the_patterns_of_the_paper():
    fig = figures["spatter-fig9"](None)
    gather, scatter = ({c.get_label(): c for c in ax.collections} for ax in fig.axes)
    assert list(gather) == [
        "stride 1", "stride 16", *(f"PENNANT-G{number}" for number in (6, 9, 12, 15)),
    ]  # fmt: skip
    assert list(scatter) == ["stride 1", "stride 16", "LULESH-S1", "LULESH-S3"]
    assert not any("Skylake" in text.get_text() for text in fig.axes[0].texts)
    for marks, kernel in ((gather, GATHER), (scatter, SCATTER)):
        for name, number in (("stride 1", 0), ("stride 16", 4)):
            points = {tuple(pair) for pair in np.asarray(marks[name].get_offsets()).tolist()}
            assert len(points) == 9
            for platform in ("Broadwell", "Naples", "V100"):
                strides = published(platform, kernel)
                assert (strides[0], strides[number]) in points
    only = figures["spatter-fig9"](own_records(), patterns="stride 1,stride 64").axes
    assert [[c.get_label() for c in ax.collections] for ax in only] == 2 * [
        ["stride 1", "_own", "stride 64", "_own"]
    ]


def test_bandwidth_bandwidth_notes_values_below_the_scale():
    frame = own_records()
    frame.loc[frame["pattern"] == "AMG-G0", "bandwidth_GBps"] = 1e-6
    fig = figures["spatter-fig9"](frame, patterns="AMG-G0,AMG-G1,LULESH-S1")
    assert f"AMG-G0 on {OWN}, 1e-06 GB/s" in footnotes(fig)
    crossed = [c for c in fig.axes[0].lines if c.get_label() == "_off"]
    own = [c for c in fig.axes[0].collections if c.get_label() == "_own"]
    lowest = min(c.get_offsets()[0, 1] for c in own)
    assert [c.get_ydata()[0] for c in crossed] == [lowest]
    low, high = fig.axes[0].get_ylim()
    assert low < lowest and high / low < 2**17


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"patterns": ["AMG-G7"]}, "AMG-G7"),
        ({"patterns": ["stride 3"]}, "'stride 3' is no application pattern or stride"),
        ({"patterns": []}, "one to six"),
        ({"patterns": [f"PENNANT-G{i}" for i in range(7)]}, "one to six"),
        ({"omit": "Skylark"}, "platform 'Skylark' is not one of .*: did you mean Skylake"),
    ],
)
def test_bandwidth_bandwidth_refuses_other_names(options, culprit):
    with refused(culprit):
        figures["spatter-fig9"](None, **options)


def test_bandwidth_bandwidth_of_one_kernel_fits_a_column():
    fig = figures["spatter-fig9"](own_records(), patterns="PENNANT-G0,PENNANT-G12")
    assert fig.get_figwidth() == 3.35
    assert_legible(fig)


def test_table_4_has_the_harmonic_means_and_correlations_of_the_data():
    table = tables["spatter-table4"](own_records()).set_index("platform")
    rows = reference.load("lavin2020")
    for platform in ("Naples", "V100"):
        for suite in ("AMG", "LULESH", "NEKBONE", "PENNANT"):
            x = rows[(rows["platform"] == platform) & (rows["suite"] == suite.lower())]
            mean = len(x) / np.sum(1 / x["bandwidth_GBps"])
            assert table.loc[platform, suite] == pytest.approx(mean)
    for kind, name, number in (("cpu", "CPUs", 6), ("gpu", "GPUs", 3)):
        known = table[(table["kind"] == kind) & (table["row"] == "published")]
        known = known[known["STREAM"].notna()]
        assert len(known) == number
        for suite in ("AMG", "LULESH", "NEKBONE", "PENNANT"):
            r = np.corrcoef(known[suite], known["STREAM"])[0, 1]
            assert table.loc[f"Pearson's R, published {name}", suite] == pytest.approx(r)
    assert math.isnan(table.loc["V100", "STREAM"])
    assert table.loc["Broadwell", "STREAM"] == 43
    assert table.loc[OWN, "AMG"] == pytest.approx(2 / (1 / 100 + 1.2 / 100))
    assert math.isnan(table.loc[OWN, "STREAM"])


def test_table_4_has_no_mean_of_an_incomplete_application_and_notes_what_it_lacks():
    alien = [record("spatter.gather", "UNIFORM:4:3", 1.0, suite=""), record("stream.copy", "", 1.0)]
    frame = pd.concat([own_records(), pd.DataFrame(alien)], ignore_index=True)
    frame = frame[frame["pattern"] != "LULESH-G3"]
    table = tables["spatter-table4"](frame, stream_GBps=33.0)
    rows = table.set_index("platform")
    assert math.isnan(rows.loc[OWN, "LULESH"])
    assert rows.loc[OWN, "PENNANT"] > 0 and rows.loc[OWN, "STREAM"] == 33
    without = tables["spatter-table4"](None).set_index("platform")
    pd.testing.assert_frame_equal(without, rows.drop(index=OWN))
    notes = " ".join(table.attrs["notes"])
    assert "1 record of other kernels than gather and scatter (stream.copy) left out." in notes
    strides = len(STRIDES) * 2 * len(VARIANTS) * len(PAGES) + 1
    assert f"{strides} records of patterns that are no application's (UNIFORM:8:1, " in notes
    assert f"{OWN} has no mean of LULESH" in notes and "valid record of LULESH-G3." in notes
    assert "AMG" not in notes
    assert tables["spatter-table4"](None).attrs["notes"] == []


@pytest.mark.parametrize("stream", [0, -1.0, math.inf])
@pytest.mark.parametrize("name", ["spatter-table3", "spatter-table4"])
def test_tables_refuse_a_wrong_stream(name, stream):
    with refused(f"stream_GBps is {stream}, which is not a positive number"):
        tables[name](None, stream_GBps=stream)
