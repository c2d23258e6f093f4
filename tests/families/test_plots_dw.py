"""Figures, table and section of the domain-wall kernel, against the records that they show."""

import math
import os
import re

import numpy as np
import pytest
from checking import once_a_kind, refused
from dw_figure_records import (
    INPUTS,
    LARGE,
    SMALL,
    SPEEDS,
    TRIAD,
    everything,
    layouts,
    record,
    scan,
    workers,
)
from plotting import (
    Results,
    assert_legible,
    curve_labels,
    dot_values,
    footnotes,
    frame,
    line,
    measured_briefly,
    panel_texts,
    values_beside,
)

import memkern as mk
from memkern.families.dw.data import hops, in_order
from memkern.families.dw.findings import findings
from memkern.families.dw.kernels import dw, report_cases
from memkern.models import LayerConditions, simulate
from memkern.plots import figures, sections, tables
from memkern.plots.frames import frame_of
from memkern.spec.kernel import Check


def test_records_of_another_setting_are_left_out():
    rows = [*everything(), *layouts(parity="even"), *layouts(dtype="float32", speed=999.0)]
    kept, notes = hops(frame(rows), "")
    assert set(kept["parity"]) == {"full"} and set(kept["dtype"]) == {"float64"}
    assert "64 records under another setting" in notes[0]
    assert "64 records" in footnotes(figures["dw-layouts"](frame(rows)))


def test_order_of_layouts():
    forms = ["lexicographic", "RIRI s, 512 bit", "RRII x4, 256 bit", "RRII s, 128 bit"]
    forms += ["RRII s, 512 bit", "RRII x8, 512 bit"]
    assert in_order(forms) == [
        *("RRII s, 512 bit", "RRII s, 128 bit", "RRII x4, 256 bit", "RRII x8, 512 bit"),
        *("RIRI s, 512 bit", "lexicographic"),
    ]


# ---------------------------------------------------------------------------------- the figures


def test_layouts_and_options_beside_the_roofline(whole):
    small, large = figures["dw-layouts"](whole).axes
    assert small.get_title() == "8x8x8x8, Ls 8: in cache"
    assert large.get_title() == "16x16x16x16, Ls 8: beyond caches"
    assert curve_labels(large) == [
        *("ordinary stores", "ordinary stores, prefetch", "non-temporal stores"),
        *("non-temporal stores, prefetch", "roofline"),
    ]
    rows = [f"{kind}, 512 bit" for kind in SPEEDS]
    assert [text.get_text() for text in large.get_yticklabels()] == rows
    speeds = {f"{kind}, 512 bit": 4 * speed for kind, speed in SPEEDS.items()}
    for label, gain in zip(curve_labels(large)[:4], (1, 1.4, 1.1, 1.54), strict=True):
        wanted = {row: pytest.approx(gain * speed) for row, speed in speeds.items()}
        assert dot_values(large, label) == wanted
    for label, site_B in zip(curve_labels(large)[:4], (1104, 1104, 912, 912), strict=True):
        limit = dict.fromkeys(rows, pytest.approx(1320 / site_B * TRIAD))
        assert values_beside(large, label, "roofline") == limit
    # Ordinary stores to a cache have no roofline without a machine file.
    assert values_beside(small, "ordinary stores", "roofline") == {}
    assert len(values_beside(small, "non-temporal stores", "roofline")) == len(rows)
    assert "5 lattices with fewer cases left out." in footnotes(large.figure)


def test_in_caches_only_non_temporal_stores_have_a_roofline():
    (ax,) = figures["dw-layouts"](frame([record("RRII s", SMALL, variant="nt")])).axes
    limit = dot_values(ax, "roofline")
    assert limit == {"RRII s, 512 bit": pytest.approx(1320 / 192 * TRIAD)}
    (ax,) = figures["dw-layouts"](frame([record("RRII s", SMALL)])).axes
    assert dot_values(ax, "_roofline") == {} and curve_labels(ax) == ["ordinary stores"]


def test_lattices_and_workers_are_a_choice(whole):
    (ax,) = figures["dw-layouts"](whole, lattices="64x8").axes
    assert ax.get_title() == "64x8x8x16, Ls 8: beyond caches" and curve_labels(ax)[:1] == [
        "ordinary stores"
    ]
    (ax,) = figures["dw-layouts"](whole, threads=1).axes
    best = dot_values(ax, "non-temporal stores, prefetch")
    assert best["RRII s, 512 bit"] == pytest.approx(16 * 1.54)


def test_the_distance_of_prefetch_is_named_if_there_are_several():
    rows = [record("RRII s", prefetch=n, speed=s) for n, s in ((1, 5.0), (2, 7.0), (4, 6.0))]
    (ax,) = figures["dw-layouts"](frame(rows)).axes
    assert "7 (2 ahead)" in panel_texts(ax)
    (ax,) = figures["dw-layouts"](frame(rows[:1])).axes
    assert "5" in panel_texts(ax)


def test_builds_have_rows_of_their_own():
    kinds = ("RRII s", "lexicographic")
    rows = [record(kind, speed=40.0) for kind in kinds]
    rows += [record(kind, speed=30.0, environment_id="e2") for kind in kinds]
    results = Results(rows)
    for key, compiler in (("e1", "GCC 14.2.0"), ("e2", "Clang 19.1.0")):
        results.environments[key]["build"] = {"compiler": compiler, "flags": "-O3"}
    (ax,) = figures["dw-layouts"](results).axes
    assert dot_values(ax, "ordinary stores") == {
        f"{form}\n{compiler}": speed
        for form in ("RRII s, 512 bit", "lexicographic")
        for compiler, speed in (("Clang 19.1.0", 30.0), ("GCC 14.2.0", 40.0))
    }
    assert_legible(ax.figure)


def test_scaling_is_of_one_lattice(whole):
    (ax,) = figures["dw-scaling"](whole).axes
    assert ax.get_title() == "16x16x16x16, Ls 8"
    assert curve_labels(ax) == ["RRII s", "RIRI s", "roofline"]
    for kind in ("RRII s", "RIRI s"):
        assert list(line(ax, kind).get_xdata()) == [1, 2, 4]
        wanted = SPEEDS[kind] * 1.54 * np.array([1, 2, 4])
        np.testing.assert_allclose(line(ax, kind).get_ydata(), wanted)
    limits = [curve for curve in ax.lines if curve.get_label() == "_roofline"]
    assert [curve.get_color() for curve in limits] == [
        line(ax, kind).get_color() for kind in ("RRII s", "RIRI s")
    ]
    np.testing.assert_allclose(limits[0].get_ydata(), 1320 / 912 * TRIAD)
    assert ax.get_ylim()[0] == 0


def test_extent_names_the_conditions_of_the_last_cache(whole):
    (ax,) = figures["dw-extent"](whole).axes
    assert ax.get_title() == "Lx x 8 x 8 x 16, Ls 8"
    curve = line(ax, "RRII s")
    assert list(curve.get_xdata()) == [4, 8, 16, 32, 64]
    limit = next(curve for curve in ax.lines if curve.get_label() == "_roofline")
    where = [LayerConditions((n, 8, 8, 16), 8, threads=4).holds(2**24, 4) for n in range(4, 65)]
    names = list(dict.fromkeys(where))
    assert names == ["t", "z", "y"]
    assert panel_texts(ax) == ["LC_z", "LC_y"]  # there is no room for LC_t
    ends = [line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1]
    assert ends == [4 + len(where) - 1 - where[::-1].index(name) for name in names[:-1]]
    np.testing.assert_allclose(
        limit.get_ydata(),
        [
            1320 / LayerConditions((n, 8, 8, 16), 8, threads=4).site_B(2**24, 4) * TRIAD
            for n in (4, 8, 16, 32, 64)
        ],
    )
    assert "Above: conditions that 16 MiB of cache fulfil for RRII s." in footnotes(ax.figure)
    (ax,) = figures["dw-extent"](frame(everything())).axes  # the caches are unknown
    assert panel_texts(ax) == [] and "Above" not in footnotes(ax.figure)


def test_traffic_of_the_model_and_of_the_simulation(whole):
    scanned, cores = figures["dw-traffic"](whole).axes
    # 8^3 x 16 is the smallest lattice that is larger than the last cache of 16 MiB.
    assert scanned.get_title() == "Lx x 8 x 8 x 16, Ls 8, one worker"
    assert cores.get_title() == "16 x 8 x 8 x 16, Ls 8"
    whole_line = scanned.lines[0]
    for lx, site_B in zip(whole_line.get_xdata(), whole_line.get_ydata(), strict=True):
        assert site_B == LayerConditions((lx, 8, 8, 16)).site_B(2**24)
    marked = line(scanned, "_simulated")
    # Larger lattices are not simulated.
    assert list(marked.get_xdata()) == [2, 4, 8, 16]
    lx, site_B = marked.get_xdata()[-1], marked.get_ydata()[-1]
    assert site_B == simulate((lx, 8, 8, 16), 8, 2**24)
    marked = [curve for curve in cores.lines if curve.get_label() == "_simulated"][1]
    n, site_B = marked.get_xdata()[1], marked.get_ydata()[1]
    assert n == 2 and site_B == simulate((16, 8, 8, 16), 8, 2**24, cuts=(1, 2, 2, 2), threads=2)
    assert panel_texts(cores) == ["LC_t", "LC_z", "LC_y", "LC_x"]
    assert scanned.get_ylim() == cores.get_ylim()
    assert "Cases that take long to simulate have no marker." in footnotes(cores.figure)


def test_traffic_begins_before_the_first_condition_is_broken():
    """As figure 21 of the paper, by whose text L2 of 8 MiB holds LC_z up to an Lx of 4."""
    how = {"lattice": "24x24x24x24", "cuts": "1x2x2x2", "cache_MiB": 8}
    drawn = figures["dw-traffic"](**how).axes[0].lines[0]
    heights = dict(zip(drawn.get_xdata(), drawn.get_ydata(), strict=True))
    assert [heights[lx] for lx in (2, 3, 4, 5)] == [1104, 1104, 1104, 1488]


def counted(rows, L2=True):
    """Return records with counts of 1.1 times the modelled traffic with memory, and with L2."""
    found = []
    for row in rows:
        updates = row["performance_GFLOPs"] * 1e9 * row["time_min_s"] / 1320
        row = row | {"L2_load_B": 1600 * updates, "L2_store_B": 192 * updates}
        names = [f"{level}_{way}_B" for level in ("memory", "L2") for way in ("load", "store")]
        found.append(row | {f"counted_{n}": 1.1 * row[n] for n in names if L2 or "L2" not in n})
    return found


def test_counted_traffic_of_layouts_has_panels_beside_layer_conditions():
    fig = figures["dw-layouts"](Results(counted(layouts())))
    small, large, in_cache, memory, _, l2 = fig.axes
    speeds = [small.get_xlabel(), large.get_xlabel()]
    assert speeds == ["Performance (GFLOP/s)"] * 2 and "roofline" in curve_labels(large)
    assert memory.get_xlabel() == "Traffic with memory (B per site update)"
    assert l2.get_xlabel() == "Traffic with L2 (B per site update)"
    rows = [f"{kind}, 512 bit" for kind in SPEEDS]
    every = dict.fromkeys
    assert dot_values(memory, "ordinary stores") == every(rows, pytest.approx(1.1 * 1104))
    assert dot_values(memory, "non-temporal stores") == every(rows, pytest.approx(1.1 * 912))
    # Each bar is beside the prediction for its own kind of stores.
    for label, site_B in (("ordinary stores", 1104), ("non-temporal stores", 912)):
        predicted = values_beside(memory, label, "by layer conditions")
        assert predicted == every(rows, pytest.approx(site_B))
    assert dot_values(l2, "ordinary stores, prefetch") == every(rows, pytest.approx(1.1 * 1792))
    # In caches, only non-temporal stores reach memory.
    assert dot_values(in_cache, "ordinary stores") == {}
    assert dot_values(in_cache, "non-temporal stores") == every(rows, pytest.approx(1.1 * 192))
    predicted = values_beside(in_cache, "non-temporal stores", "by layer conditions")
    assert predicted == every(rows, pytest.approx(192))
    assert_legible(fig)


@pytest.mark.parametrize("name, rows", [("dw-scaling", workers()), ("dw-extent", scan())])
def test_counted_traffic_over_workers_and_extents(name, rows):
    fig = figures[name](Results(counted(rows, L2=False)))
    speed, memory = fig.axes
    assert speed.get_ylabel() == "Performance (GFLOP/s)" and "roofline" in curve_labels(speed)
    assert memory.get_ylabel() == "Traffic with memory (B per site update)"
    assert memory.get_xlabel() == speed.get_xlabel() and memory.get_title() == speed.get_title()
    model = next(one for one in memory.lines if one.get_label() == "_by layer conditions")
    np.testing.assert_allclose(line(memory, "RRII s").get_ydata(), 1.1 * model.get_ydata())
    assert "by layer conditions" in curve_labels(memory)
    assert_legible(fig)
    alone = figures[name](Results(rows)).axes
    assert len(alone) == 1 and curve_labels(alone[0]) == curve_labels(speed)


def test_counts_are_drawn_beside_layer_conditions_and_simulation():
    rows = counted([record("RRII s", "24x8x8x16", n) for n in (1, 2)])
    rows += counted([record("RRII s", "12x8x8x16", 1)])
    other = counted([record("RRII s", "24x8x8x16", 1, machine="Other", site_B=9.0)])
    fig = figures["dw-traffic"](Results([*rows, *other]), cuts="1x1x1x1")
    scanned, cores = fig.axes
    assert cores.get_title() == "24 x 8 x 8 x 16, Ls 8"  # the largest counted
    assert list(line(scanned, "_counted").get_xdata()) == [12, 24]
    assert list(line(cores, "_counted").get_xdata()) == [1, 2]
    np.testing.assert_allclose(line(cores, "_counted").get_ydata(), 1.1 * 1104)
    assert "Crosses: by counters." in footnotes(fig)
    # Non-temporal stores and half of the sites are no cases of this figure.
    others = [record("RRII s", "24x8x8x16", 1, variant="nt", parity="full")]
    fig = figures["dw-traffic"](Results(counted(others)), cuts="1x1x1x1")
    assert "Crosses" not in footnotes(fig)
    stream = {"kernel": "stream.copy", "counted_memory_load_B": 5.0}
    assert len(figures["dw-traffic"](frame([record("RRII s") | stream])).axes) == 2


@pytest.mark.parametrize("given", once_a_kind(["several", "own", "few"]))
def test_traffic_is_legible(given):
    assert_legible(figures["dw-traffic"](INPUTS[given]()))


def test_traffic_needs_no_records():
    fig = figures["dw-traffic"](cuts="1x2x2x2", lattice="8x4x4x8", cache_MiB=0.5, ls=4)
    assert curve_labels(fig.axes[0]) == ["cut y2 z2 t2"]
    assert "Beyond 512 KiB of cache" in footnotes(fig)
    assert "not simulated" not in footnotes(fig)
    assert_legible(fig)
    assert "Beyond 32 MiB of cache" in footnotes(figures["dw-traffic"](cuts="1x2x2x2"))


# ------------------------------------------------------------------------------------- the table


def test_table_has_a_row_for_each_lattice_form_and_option(whole):
    table = tables["dw-table"](whole)
    case = table.set_index(["lattice", "layout", "cut", "option"])
    assert case.index.is_unique and len(table) == 2 * 16 + 10
    one = case.loc[(LARGE, "RRII", "s", "non-temporal stores, prefetch")]
    assert one["performance_GFLOPs"] == pytest.approx(64 * 1.54) and one["site_B"] == pytest.approx(
        912
    )
    assert one["roofline_GFLOPs"] == pytest.approx(1320 / 912 * TRIAD)
    assert one["vector_bits"] == 512 and one["Ls"] == 8
    assert math.isnan(case.loc[(SMALL, "RIRI", "s", "ordinary stores")]["roofline_GFLOPs"])
    assert table["lattice"].iloc[0] == "4x8x8x16" and table["lattice"].iloc[-1] == "64x8x8x16"
    assert set(tables["dw-table"](whole, threads=2)["platform"]) == {"Own Machine 3000, 2 threads"}


# ------------------------------------------------------------------------------------ the section


def test_findings_follow_from_the_records(whole):
    section = sections["dw"](frame_of(whole))
    text = " ".join(section.findings)
    assert (
        "4 workers on 8x8x8x8, Ls 8, in cache: RRII s, 512 bit (non-temporal "
        "stores) has 106 GFLOP/s and is "
    ) in text
    assert "larger than the caches: RRII s, 512 bit (non-temporal stores, prefetch)" in text
    assert (
        "With prefetch the kernel is 0.80 times as fast on 8x8x8x8, Ls 8, in cache and 1.40 times"
        in text
    )
    assert "With non-temporal stores the kernel is 1.10 times as fast on 8x8x8x8" in text
    assert "Speed-up with 4 threads on 16x16x16x16, Ls 8: 4.00 in RRII s" in text
    assert "With Lx from 4 to 64 beside 8x8x16, RRII s goes from 64 GFLOP/s to 64 GFLOP/s" in text
    assert "the last cache holds LC_t up to Lx = " in text and "LC_y beyond." in text
    assert len(section.exhibits) == 5 and section.remarks == ()


def test_the_fastest_is_an_undisturbed_form_where_there_is_any():
    rows = frame(everything())
    before = " ".join(findings(frame_of(rows)))
    fastest = re.search(r"in cache: (\S+)", before)[1]
    disturbed = rows.assign(disturbed=rows["layout"].eq(fastest))
    after = " ".join(findings(frame_of(disturbed)))
    assert f"in cache: {fastest}" in before and f"in cache: {fastest}" not in after
    assert f"{fastest} " in after and "(disturbed)" in after


# ------------------------------------------------------------------------------- real measurements


@pytest.mark.usefixtures("ceilings")
def test_a_real_measurement_is_drawn():
    several = [
        dw((lx, 4, 4, 4), layout=layout, threads=n, runs=3).measure().results
        for lx in (4, 8)
        for n in (1, 2)
        for layout in ("RRII", "RIRI", "lexicographic")
    ]
    together = sum(several[1:], several[0])
    rows = together.to_frame()
    mine = rows[(rows["lattice"] == "8x4x4x4") & (rows["layout"] == "RRII")]
    (ax,) = figures["dw-scaling"](together).axes
    kind = f"RRII {mine['cut'].iloc[0]}"
    assert list(line(ax, kind).get_ydata()) == list(mine["performance_GFLOPs"])
    (ax,) = figures["dw-extent"](together).axes
    assert list(line(ax, kind).get_xdata()) == [4, 8]
    assert len(tables["dw-table"](together)) == 6


@pytest.mark.usefixtures("ceilings")
@pytest.mark.parametrize("quick", once_a_kind([False, True]))
def test_a_report_measures_what_its_section_shows(quick, monkeypatch):
    def unchecked(prepared):
        yield
        return Check(True, 0.0, "none")

    # The reference of all these lattices takes seconds.
    monkeypatch.setattr(mk.Prepared, "_validation", unchecked)
    cases = report_cases(quick, 2**18, 2**31)
    cases = [case for case in cases if case.iterations * case.spec.counts.width(case) <= 8 * 12**4]
    section = sections["dw"](frame_of(measured_briefly(cases)))
    several = len(os.sched_getaffinity(0)) > 1
    titles = {exhibit.title for exhibit in section.exhibits}
    assert {"Performance by layout and option", "Layouts and options in numbers"} <= titles
    assert ("Performance against the workers" in titles) == (several and not quick)
    assert ("Performance against Lx" in titles) == (not quick)
    if several and not quick:
        assert len(titles) == 5 and section.remarks == ()


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    ("cache_B", "memory_B"),
    [(2**23, 2**26), (2**25, 2**28), (2**25, 2**31), (2**25, 2**34), (2**23, 2**34)],
)
def test_a_report_takes_no_more_than_half_of_the_memory(quick, cache_B, memory_B):
    cases = report_cases(quick, cache_B, memory_B)
    assert len({case.identity() for case in cases}) == len(cases) > 0
    sizes = [case.bytes_B for case in cases]
    assert max(sizes) <= memory_B / 2 and (quick or max(sizes) > 2**22)
    assert {case.columns["parity"] for case in cases} == {"full"}
    if memory_B == 2**34 and not quick:
        lattices = {case.columns["lattice"] for case in cases}
        assert ("16x16x16x16" in lattices) == (cache_B == 2**25)
    assert sum(case.stop.budget_s for case in cases) < 2


# Tables of the paper


def test_the_published_terms_are_beside_those_of_layer_conditions():
    table = tables["dw-ecm"]()
    published = table[table["row"] == "published"]
    assert published["cycles"].tolist() == published["printed_cycles"].tolist()
    assert published["data_cycles"].to_numpy() == pytest.approx([60.9, 69.7, 68.3, 82.5])
    assert published["compiler"].tolist() == ["GCC", "GCC", "FCC", "FCC"]
    computed = table[table["row"] == "computed"].set_index("layout")
    assert list(computed.index) == ["RIRI", "RRII"]
    # Links and spinors of 2688 B at 128 B per cycle, and a result of 192 B at 64 B.
    assert computed["L1_load_cycles"].tolist() == [21, 21]
    assert computed["L1_store_cycles"].tolist() == [3, 3]
    assert computed["L2_cycles"].tolist() == [35.25, 35.25]
    assert computed["memory_cycles"].to_numpy() == pytest.approx(1488 * 2.2 / 213)
    # RRII: 840 multiply-adds and additions of vectors of 8 numbers, half a cycle each.
    assert computed["core_cycles"].to_numpy() == pytest.approx([166.5, 52.5])
    assert computed["cycles"].to_numpy() == pytest.approx([166.5, 21 + 35.25])
    assert computed["printed_cycles"].isna().all()


def test_the_published_layer_conditions_are_in_bytes():
    table = tables["dw-conditions"]().set_index("condition")
    assert table["site_B"].to_dict() == {
        "none": 3072, "LC_s": 2064, "LC_x": 1872, "LC_y": 1488, "LC_z": 1104, "LC_t": 720,
    }  # fmt: skip
    assert table["scalar_B"].tolist() == [0, 2880, 29952, 645120, 11943936, 201719808]
    assert table["RIRI_B"].tolist() == [0, 11520, 119808, 2580480, 47775744, 403439616]
    assert table["RRII_B"].tolist() == [0, 11520, 239616, 5160960, 47775744, 403439616]
    small = tables["dw-conditions"](lattice="8x8x8x16", ls=12).set_index("condition")
    assert small.loc["LC_z", "scalar_B"] == 2 * 12 * 8 * 8 * (6 + 60 + 12) * 16
    assert small.loc["LC_s", "site_B"] == (6 + 96 + 24) * 16
    with refused("lattice '8x8x8' must be four numbers such as 8x8x8x16"):
        tables["dw-conditions"](lattice="8x8x8")
    with refused("ls must be an integer, not 'x'"):
        tables["dw-conditions"](ls="x")
