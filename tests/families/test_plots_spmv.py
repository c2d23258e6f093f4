"""Figures, table and section of sparse products, against the records that they show."""

import json
import math

import numpy as np
import pytest
from checking import refused
from pandas import DataFrame
from plotting import (
    Results,
    assert_legible,
    curve_labels,
    dot_values,
    footnotes,
    frame,
    line,
    panel_texts,
    values_beside,
)
from spmv_figure_records import SPEEDS, blocks, everything, lengths, matrices, record

from memkern.families.spmv.data import in_order, products
from memkern.families.spmv.findings import findings
from memkern.plots import figures, sections, tables
from memkern.plots.frames import frame_of
from memkern.plots.sentences import speed_ups, tell


def drawn(name, rows, **options):
    """Return the panels of a figure, for a single panel the panel itself."""
    axes = figures[name](rows if isinstance(rows, Results) else frame(rows), **options).axes
    return axes if len(axes) > 1 else axes[0]


def test_matrices_without_names_stay_apart():
    shapes = ((100, 500), (1000, 9000))
    rows = [record("crs", "", shape, matrix=name) for shape in shapes for name in ("matrix", "x")]
    labels = products(frame(rows[:3]), "")[0]["label"]
    assert labels.tolist() == ["matrix, 500 nonzeros", "x", "matrix, 9000 nonzeros"]


def test_labels_that_are_shortened_alike_have_rows_of_their_own():
    ends = ("kkt:a name that is too ", " for its row:7:3")
    shape = (100, 500)
    rows = [record("crs", word.join(ends), shape, speed=n) for n, word in ((1, "long"), (2, "big"))]
    ax = drawn("spmv-matrices", rows)
    assert sorted(dot_values(ax, "CRS").values()) == [1, 2]
    assert_legible(ax.figure)


def test_order_of_formats():
    kinds = ["CSC", "SELL-16", "ELL", "SELL-8", "CRS", "SELL-8"]
    assert in_order(kinds) == ["CRS", "SELL-8", "SELL-16", "ELL", "CSC"]


def test_performance_against_row_length(whole):
    ax = drawn("spmv-row-length", whole)
    counts = [f"CRS, {n} accumulator{'s' * (n > 1)}" for n in (1, 2, 3)]
    assert curve_labels(ax)[1:] == [*counts, "SELL-8", "SELL-16"]
    assert list(line(ax, counts[0]).get_xdata()) == [4, 8, 16, 32, 128]
    assert ax.get_ylim()[0] == 0 and ax.get_title() == "4 workers"
    two = drawn("spmv-row-length", whole, accumulators="2", formats="sell-16, crs")
    assert curve_labels(two)[1:] == ["CRS, 2 accumulators", "SELL-16"]
    # The kernel's own choice of accumulators has a line, too.
    own = [row | {"unroll": 0} for row in lengths() if row["unroll"] in (0, 1)]
    assert curve_labels(drawn("spmv-row-length", own))[1:] == ["CRS", "SELL-8", "SELL-16"]
    # Of two sizes with rows of one length, the larger is drawn.
    small = [row | {"performance_GFLOPs": 99.0, "nonzeros": 1000} for row in lengths()]
    ax = drawn("spmv-row-length", [*lengths(), *small])
    assert max(line(ax, "SELL-8").get_ydata()) == 6.0


def test_saturation_is_of_hpcg_beside_the_roofline(whole):
    ax = drawn("spmv-saturation", whole)
    assert ax.get_title() == "hpcg:68" and ax.get_ylim()[0] == 0
    ax = drawn("spmv-saturation", whole, matrix="rmat")
    assert ax.get_title() == "rmat:18:16:0"
    np.testing.assert_allclose(line(ax, "CRS").get_ydata(), [0.5, 1, 2])
    without = [row for row in matrices() if not row["name"].startswith("hpcg")]
    assert drawn("spmv-saturation", without).get_title().startswith("kkt")  # the largest


def test_each_format_is_beside_its_own_roofline():
    padded = [
        row | {"roofline_GFLOPs": row["roofline_GFLOPs"] * (1 - 0.5 * ("sell" in row["kernel"]))}
        for row in matrices()
    ]
    ax = drawn("spmv-saturation", padded)
    limits = {one.get_color(): one.get_ydata()[-1] for one in ax.lines
              if one.get_label() == "_roofline"}  # fmt: skip
    assert limits[line(ax, "CRS").get_color()] == 2 * limits[line(ax, "SELL-8").get_color()]
    ax = drawn("spmv-matrices", padded)
    crs, sell = (values_beside(ax, kind, "roofline")["hpcg:68"] for kind in ("CRS", "SELL-8"))
    assert crs == 2 * sell


def test_small_and_large_matrices_have_panels_of_their_own(whole):
    small, large = drawn("spmv-matrices", whole)
    assert small.get_title() == "4 workers, within 16 MiB of cache"
    assert large.get_title() == "4 workers, beyond 16 MiB of cache"
    assert list(dot_values(small, "CRS")) == ["5pt:300:300"]
    names = [text.get_text() for text in large.get_yticklabels()]
    assert names[0] == "rmat:18:16:0" and names[2] == "hpcg:68" and len(names) == 3
    assert (small.get_ylim(), large.get_ylim()) == ((0.5, -0.5), (2.5, -0.5))  # both are full
    # The best sigma is named if there are several.
    sell = {name: dot_values(large, "SELL-8")[name] for name in (names[0], names[2])}
    assert sell == {"hpcg:68": 6.0, "rmat:18:16:0": pytest.approx(4 * 0.96 - 0.04)}
    assert {"3.8 (σ all)", "6"} <= {*panel_texts(large)}
    assert "Tall and skinny matrices left out." in footnotes(large.figure)
    # A matrix that one format fits into the caches is small.
    shape = (90_000, 900_000)
    rows = [record("crs", "arrow", shape), record("sell-8", "arrow", shape, beta=0.2)]
    assert "within" in drawn("spmv-matrices", Results(rows)).get_title()


def test_formats_and_matrices_are_a_choice():
    rows = matrices(kinds=tuple(SPEEDS))
    ax = drawn("spmv-matrices", rows, formats="csc,crs, ELL,sell", matrices="hpcg,5pt")
    assert curve_labels(ax) == ["CRS", "SELL-8", "SELL-16", "ELL", "CSC", "roofline"]
    assert list(dot_values(ax, "CSC")) == ["5pt:300:300", "hpcg:68"]
    assert ax.get_title() == "4 workers"  # the caches are unknown
    only = drawn("spmv-matrices", lengths())  # drawn if there are no others
    assert len(dot_values(only, "CRS")) == 5
    assert drawn("spmv-matrices", rows, threads=1).get_title() == "1 worker"


def test_requested_variants_and_builds_are_series():
    def series(rows, formats="crs"):
        ax = drawn("spmv-matrices", rows, formats=formats, matrices="hpcg")
        return {kind: dot_values(ax, kind)["hpcg:68"] for kind in curve_labels(ax)[:-1]}

    rows = matrices(counts=(4,), variant="simd", variant_choice="requested")
    both = rows + [row | {"variant": "nta", "performance_GFLOPs": 7.5} for row in rows]
    assert list(series(both).items()) == [("CRS, nta", 7.5), ("CRS, simd", 4.0)]
    # A variant that a trial chose has no series of its own.
    assert series([row | {"variant_choice": "trial"} for row in both]) == {"CRS": 7.5}
    other = [row | {"environment_id": "e2", "performance_GFLOPs": 3.5} for row in rows]
    results = Results([*rows, *other])
    gcc, clang = "GCC 14.2.0", "Clang 19.1.0"

    def builds(*each):
        for key, (compiler, flags) in zip(("e1", "e2"), each, strict=True):
            results.environments[key]["build"] = {"compiler": compiler, "flags": flags}

    builds((gcc, "-O3"), (gcc, "-O1"))
    found = series(results, "crs,sell-8")
    assert list(found) == [f"{kind}, {gcc} -O{n}" for kind in ("CRS", "SELL-8") for n in (1, 3)]
    assert list(found.values())[:2] == [3.5, 4.0]
    builds((clang, "-O3"), (gcc, "-O1"))
    assert list(series(results)) == [f"CRS, {clang}", f"CRS, {gcc}"]
    builds((clang, "-O3"), (clang, "-O3"))
    assert list(series(results)) == ["CRS"]


def test_fill_in_by_sigma(whole):
    axes = drawn("spmv-fill-in", whole)
    assert [ax.get_title() for ax in axes] == ["C = 8", "C = 16"]
    for ax in axes:
        assert curve_labels(ax) == ["rmat:18:16:0"] and ax.get_ylim()[0] == 0
        assert list(line(ax, "rmat:18:16:0").get_xdata()) == [1, 32, 1024, 262_144]
    # The lines that sigma changes most are drawn.
    many = [
        row | {"name": f"m{i}", "beta": 1 - (1 - row["beta"]) / (i + 1)}
        for i in range(12)
        for row in blocks()
    ]
    first, _ = drawn("spmv-fill-in", many)
    assert curve_labels(first) == [f"m{i}" for i in range(8)]
    assert "4 matrices" in footnotes(first.figure)


def test_other_libraries_are_drawn_beside(tmp_path):
    file = tmp_path / "beside.json"
    rows = [{"matrix": "rmat:18", "peer": "oneMKL", "peer, GFLOP/s": 1.25}]
    file.write_text(json.dumps({"rows": rows}))
    fig = figures["spmv-matrices"](frame(everything()), libraries=str(file))
    drawn = [x for ax in fig.axes for one in ax.lines if "library" in one.get_label()
             for x in one.get_xdata()]  # fmt: skip
    assert set(drawn) == {1.25} and "Other libraries: oneMKL for rmat:18." in footnotes(fig)
    file.write_text("{}")
    with refused("beside.json can't be read as the performance of other libraries"):
        figures["spmv-matrices"](frame(everything()), libraries=str(file))


def test_table_has_a_row_for_each_matrix_and_form(whole):
    table = tables["spmv-matrices"](whole)
    assert set(table["platform"]) == {"Own Machine 3000, 4 threads"}
    case = table.set_index(["matrix", "format"])
    assert case.index.is_unique and len(table) == 3 * 3 + (1 + 2 * 4) + 5 * 3
    one = case.loc[("hpcg:68", "SELL-8-1")]
    columns = ["performance_GFLOPs", "roofline_GFLOPs", "bandwidth_GBps", "conversion"]
    assert one[columns].tolist() == [6.0, 4.0, 36, pytest.approx(20)]
    assert one["alpha_implied"] == pytest.approx(3 * one["alpha"])
    assert math.isnan(one["roofline_min_fraction"])
    assert case.loc[("hpcg:68", "CRS")]["roofline_min_fraction"] == 1.0
    assert case.loc[("rmat:18:16:0", "SELL-16-all")]["beta"] == pytest.approx(0.96 * 0.5**0.1)
    assert case.loc[("tsm:32768:128", "CRS, 3 accumulators")]["performance_GFLOPs"] == 7.0
    order = table[table["matrix"] == "rmat:18:16:0"]["format"].tolist()
    assert order[:3] == ["CRS", "SELL-8-1", "SELL-8-32"] and order[-1] == "SELL-16-all"
    fewer = tables["spmv-matrices"](whole, threads=2)["platform"]
    assert set(fewer) == {"Own Machine 3000, 2 threads"}
    # No alpha is implied where memory was not the limit.
    assert table.set_index("matrix").loc["5pt:300:300"]["alpha_implied"].isna().all()
    below = tables["spmv-matrices"](frame(matrices(alpha_implied=-0.5)))
    assert below["alpha_implied"].isna().all() and below["alpha"].notna().all()


def test_a_speed_up_above_the_threads_has_a_remark():
    row = speed_ups("", lambda rows: rows, lambda kinds: ["CRS"], "rate", "label")
    for seconds, text in (
        ((), "2.97 (more than the threads, but not measured in turns)"),
        ((2.0, 1.0), "2.00 ± 0.02"),
        ((3.0, 1.0), "3.00 ± 0.03 (more than the threads: caches of more cores hold more)"),
    ):
        rows = DataFrame(
            {"kind": "CRS", "label": "m", "threads": [1, 2], "rate": [1.0, 2.97],
             "disturbed": False, "case_id": ["1", "2"], "time_min_s": [1.0, 1 / 2.97],
             "turns_s": [json.dumps({"now": [[s] * 3] * 4}) for s in seconds] or ""}
        )  # fmt: skip
        assert tell([row], rows) == [f"Speed-up with 2 threads on m: {text} in CRS."]


def test_findings_follow_from_the_records(whole):
    section = sections["spmv"](frame_of(whole))
    for words in (
        "4 workers on hpcg:68, which is larger than the caches: CRS 4 GFLOP/s, 100 % of",
        "The roofline is 4 GFLOP/s, by the 24 GB/s of loads from memory",
        "5pt:300:300 in SELL-8 reaches 6 GFLOP/s, 1.5 times the limit of memory",
        "Loads of x cost most for rmat:18:16:0: SELL-8 is at",
        "of 4 nonzeros CRS with 1 accumulator 0.5 GFLOP/s and SELL-8 6 GFLOP/s",
        "of 128 nonzeros CRS with 3 accumulators 7 GFLOP/s and SELL-8 6 GFLOP/s",
        "Speed-up with 4 threads on hpcg:68: 4.00 in CRS",
        "beta of rmat:18:16:0 in SELL-8 from 0.25 to 0.96; by all rows it has",
        "has 3.8 GFLOP/s instead of 3 GFLOP/s with sigma 1, 1.27 times.",
        "Conversion to SELL takes as long as 20 products",
    ):
        assert words in " ".join(section.findings)
    assert len(section.exhibits) == 5 and section.remarks == ()


def test_disturbed_rooflines_and_unknown_caches_are_not_mentioned():
    unknown = ("roofline_GFLOPs", "roofline_fraction", "roofline_s", "load_GBps", "alpha_implied")
    section = sections["spmv"](frame_of(Results(everything(**dict.fromkeys(unknown, math.nan)))))
    text = " ".join(section.findings)
    assert "on hpcg:68, which is larger than the caches: CRS 4 GFLOP/s; " in text
    assert "5pt:300:300 in SELL-8 reaches 6 GFLOP/s." in text
    assert "nan" not in text and "roofline" not in text and len(section.exhibits) == 5
    for exhibit in section.exhibits[:3]:
        assert not [ax for ax in exhibit.content.axes if "roofline" in curve_labels(ax)]
    text = " ".join(findings(frame_of(frame(everything()))))
    assert "4 workers on hpcg:68: CRS" in text and "From the caches" not in text
