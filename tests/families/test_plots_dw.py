"""Figures, table and section of the domain-wall kernel, against the records that they show."""

import math
import re

import numpy as np
import pytest
from checking import refused
from dw_figure_records import (
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
    panel_texts,
    values_beside,
)

from memkern.families.dw.data import in_order
from memkern.families.dw.findings import findings
from memkern.models import LayerConditions, simulate
from memkern.plots import figures, sections, tables
from memkern.plots.frames import frame_of


def test_order_of_layouts():
    forms = ["lexicographic", "RIRI s, 512 bit", "RRII x4, 256 bit", "RRII s, 128 bit"]
    forms += ["RRII s, 512 bit", "RRII x8, 512 bit"]
    assert in_order(forms) == [
        *("RRII s, 512 bit", "RRII s, 128 bit", "RRII x4, 256 bit", "RRII x8, 512 bit"),
        *("RIRI s, 512 bit", "lexicographic"),
    ]


OPTIONS = ("ordinary stores", "ordinary stores, prefetch")
OPTIONS += tuple(name.replace("ordinary", "non-temporal") for name in OPTIONS)
ROWS = [f"{kind}, 512 bit" for kind in SPEEDS]


def alike(value):
    """Return one value for all rows of a panel."""
    return dict.fromkeys(ROWS, pytest.approx(value))


def test_layouts_and_options_beside_the_roofline(whole):
    small, large = figures["dw-layouts"](whole).axes
    titles = ["8x8x8x8, Ls 8: in cache", "16x16x16x16, Ls 8: beyond caches"]
    assert [small.get_title(), large.get_title()] == titles
    assert curve_labels(large) == [*OPTIONS, "roofline"]
    assert [text.get_text() for text in large.get_yticklabels()] == ROWS
    for label, site_B in zip(OPTIONS, (1104, 1104, 912, 912), strict=True):
        assert values_beside(large, label, "roofline") == alike(1320 / site_B * TRIAD)
    # Ordinary stores to a cache have no roofline without a machine file.
    assert values_beside(small, "ordinary stores", "roofline") == {}
    assert values_beside(small, "non-temporal stores", "roofline") == alike(1320 / 192 * TRIAD)
    (ax,) = figures["dw-layouts"](frame([record("RRII s", SMALL)])).axes
    assert curve_labels(ax) == ["ordinary stores"]
    assert "5 lattices with fewer cases left out." in footnotes(large.figure)


def test_lattices_and_workers_are_a_choice(whole):
    (ax,) = figures["dw-layouts"](whole, lattices="64x8").axes
    assert ax.get_title() == "64x8x8x16, Ls 8: beyond caches"
    assert curve_labels(ax)[:1] == ["ordinary stores"]
    (ax,) = figures["dw-layouts"](whole, threads=1).axes
    assert dot_values(ax, OPTIONS[-1])["RRII s, 512 bit"] == pytest.approx(16 * 1.54)


def test_the_distance_of_prefetch_is_named_if_there_are_several():
    rows = [record("RRII s", prefetch=n, speed=s) for n, s in ((1, 5.0), (2, 7.0), (4, 6.0))]
    for given, text in ((rows, "7 (2 ahead)"), (rows[:1], "5")):
        assert text in panel_texts(figures["dw-layouts"](frame(given)).axes[0])


def test_builds_have_rows_of_their_own():
    builds = (("e1", 40.0), ("e2", 30.0))
    results = Results([record("RRII s", speed=speed, environment_id=key) for key, speed in builds])
    for key, compiler in (("e1", "GCC 14.2.0"), ("e2", "Clang 19.1.0")):
        results.environments[key]["build"] = {"compiler": compiler, "flags": "-O3"}
    (ax,) = figures["dw-layouts"](results).axes
    assert dot_values(ax, "ordinary stores") == {
        "RRII s, 512 bit\nClang 19.1.0": 30.0,
        "RRII s, 512 bit\nGCC 14.2.0": 40.0,
    }


def limits_of(ax, label="_roofline"):
    """Return the lines of a limit."""
    return [curve for curve in ax.lines if curve.get_label() == label]


def test_scaling_is_of_one_lattice(whole):
    (ax,) = figures["dw-scaling"](whole).axes
    assert ax.get_title() == "16x16x16x16, Ls 8"
    assert curve_labels(ax) == ["RRII s", "RIRI s", "roofline"]
    for kind, limit in zip(("RRII s", "RIRI s"), limits_of(ax), strict=True):
        assert list(line(ax, kind).get_xdata()) == [1, 2, 4]
        # The best of the options.
        wanted = SPEEDS[kind] * 1.54 * np.array([1, 2, 4])
        np.testing.assert_allclose(line(ax, kind).get_ydata(), wanted)
        assert limit.get_color() == line(ax, kind).get_color()


def test_extent_names_the_conditions_of_the_last_cache(whole):
    (ax,) = figures["dw-extent"](whole).axes
    assert ax.get_title() == "Lx x 8 x 8 x 16, Ls 8"
    assert list(line(ax, "RRII s").get_xdata()) == [4, 8, 16, 32, 64]
    models = {n: LayerConditions((n, 8, 8, 16), 8, threads=4) for n in range(4, 65)}
    where = [model.holds(2**24, 4) for model in models.values()]
    assert list(dict.fromkeys(where)) == ["t", "z", "y"]
    assert panel_texts(ax) == ["LC_z", "LC_y"]  # there is no room for LC_t
    ends = [line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1]
    assert ends == [4 + len(where) - 1 - where[::-1].index(name) for name in ("t", "z")]
    assert "Above: conditions that 16 MiB of cache fulfil for RRII s." in footnotes(ax.figure)
    (ax,) = figures["dw-extent"](frame(everything())).axes  # the caches are unknown
    assert panel_texts(ax) == [] and "Above" not in footnotes(ax.figure)


def points(curve):
    """Return the values of a line by their positions."""
    return dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))


def test_traffic_of_the_model_and_of_the_simulation(whole):
    scanned, cores = figures["dw-traffic"](whole).axes
    # 8^3 x 16 is the smallest lattice that is larger than the last cache of 16 MiB.
    assert scanned.get_title() == "Lx x 8 x 8 x 16, Ls 8, one worker"
    assert cores.get_title() == "16 x 8 x 8 x 16, Ls 8"
    for lx, site_B in points(line(scanned, "_predicted")).items():
        assert site_B == LayerConditions((lx, 8, 8, 16)).site_B(2**24)
    found = points(line(scanned, "_simulated"))
    # Larger lattices are not simulated.
    assert list(found) == [2, 4, 8, 16] and found[16] == simulate((16, 8, 8, 16), 8, 2**24)
    cut = points(limits_of(cores, "_simulated")[1])
    assert cut[2] == simulate((16, 8, 8, 16), 8, 2**24, cuts=(1, 2, 2, 2), threads=2)
    assert panel_texts(cores) == ["LC_t", "LC_z", "LC_y", "LC_x"]
    assert scanned.get_ylim() == cores.get_ylim()
    assert "Cases that take long to simulate have no marker." in footnotes(cores.figure)


def test_traffic_needs_no_records():
    fig = figures["dw-traffic"](cuts="1x2x2x2", lattice="8x4x4x8", cache_MiB=0.5, ls=4)
    assert curve_labels(fig.axes[0]) == ["cut y2 z2 t2"]
    assert "Beyond 512 KiB of cache" in footnotes(fig) and "take long" not in footnotes(fig)
    assert "Beyond 32 MiB of cache" in footnotes(figures["dw-traffic"](cuts="1x2x2x2"))
    # As figure 21 of the paper, by whose text L2 of 8 MiB holds LC_z up to an Lx of 4.
    how = {"lattice": "24x24x24x24", "cuts": "1x2x2x2", "cache_MiB": 8}
    heights = points(line(figures["dw-traffic"](**how).axes[0], "_predicted"))
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
    *speeds, in_cache, memory, _, l2 = figures["dw-layouts"](Results(counted(layouts()))).axes
    assert {ax.get_xlabel() for ax in speeds} == {"Performance (GFLOP/s)"} and len(speeds) == 2
    assert memory.get_xlabel() == "Traffic with memory (B per site update)"
    assert l2.get_xlabel() == "Traffic with L2 (B per site update)"
    # Each bar is beside the prediction for its own kind of stores.
    for ax, label, site_B in (
        (memory, "ordinary stores", 1104),
        (memory, "non-temporal stores", 912),
        (l2, "ordinary stores, prefetch", 1792),
        # In caches, only non-temporal stores reach memory.
        (in_cache, "non-temporal stores", 192),
    ):
        assert dot_values(ax, label) == alike(1.1 * site_B)
        assert values_beside(ax, label, "by layer conditions") == alike(site_B)
    assert dot_values(in_cache, "ordinary stores") == {}
    assert_legible(memory.figure)


@pytest.mark.parametrize("name, rows", [("dw-scaling", workers()), ("dw-extent", scan())])
def test_counted_traffic_over_workers_and_extents(name, rows):
    speed, memory = figures[name](Results(counted(rows, L2=False))).axes
    assert speed.get_ylabel() == "Performance (GFLOP/s)" and "roofline" in curve_labels(speed)
    assert memory.get_ylabel() == "Traffic with memory (B per site update)"
    assert memory.get_xlabel() == speed.get_xlabel() and memory.get_title() == speed.get_title()
    model = limits_of(memory, "_by layer conditions")[0]
    np.testing.assert_allclose(line(memory, "RRII s").get_ydata(), 1.1 * model.get_ydata())
    assert_legible(speed.figure)


def test_counts_are_drawn_beside_layer_conditions_and_simulation():
    rows = counted([record("RRII s", "24x8x8x16", n) for n in (1, 2)])
    rows += counted([record("RRII s", "12x8x8x16", 1)])
    other = counted([record("RRII s", "24x8x8x16", 1, machine="Other", site_B=9.0)])
    scanned, cores = figures["dw-traffic"](Results([*rows, *other]), cuts="1x1x1x1").axes
    assert cores.get_title() == "24 x 8 x 8 x 16, Ls 8"  # the largest counted
    assert list(points(line(scanned, "_counted"))) == [12, 24]
    assert points(line(cores, "_counted")) == dict.fromkeys((1, 2), pytest.approx(1.1 * 1104))
    assert "Crosses: by counters." in footnotes(cores.figure)
    # Non-temporal stores are no cases of this figure, nor are other kernels.
    stream = {"kernel": "stream.copy", "counted_memory_load_B": 5.0}
    for given in (
        counted([record("RRII s", "24x8x8x16", 1, variant="nt")]),
        [record("RRII s") | stream],
    ):
        assert "Crosses" not in footnotes(figures["dw-traffic"](Results(given), cuts="1x1x1x1"))


def test_table_has_a_row_for_each_lattice_form_and_option(whole):
    table = tables["dw-table"](whole)
    case = table.set_index(["lattice", "layout", "cut", "option"])
    assert case.index.is_unique and len(table) == 2 * 16 + 10
    one = case.loc[(LARGE, "RRII", "s", OPTIONS[-1])]
    assert one["vector_bits"] == 512 and one["Ls"] == 8 and one["site_B"] == pytest.approx(912)
    numbers = one[["performance_GFLOPs", "roofline_GFLOPs"]].tolist()
    assert numbers == pytest.approx([64 * 1.54, 1320 / 912 * TRIAD])
    assert math.isnan(case.loc[(SMALL, "RIRI", "s", "ordinary stores")]["roofline_GFLOPs"])
    assert table["lattice"].iloc[[0, -1]].tolist() == ["4x8x8x16", "64x8x8x16"]
    assert set(tables["dw-table"](whole, threads=2)["platform"]) == {"Own Machine 3000, 2 threads"}


def test_findings_follow_from_the_records(whole):
    section = sections["dw"](frame_of(whole))
    for words in (
        "4 workers on 8x8x8x8, Ls 8, in cache: RRII s, 512 bit (non-temporal stores) has 106 "
        "GFLOP/s and is ",
        "larger than the caches: RRII s, 512 bit (non-temporal stores, prefetch)",
        "With prefetch the kernel is 0.80 times as fast on 8x8x8x8, Ls 8, in cache and 1.40 times",
        "With non-temporal stores the kernel is 1.10 times as fast on 8x8x8x8",
        "Speed-up with 4 threads on 16x16x16x16, Ls 8: 4.00 in RRII s",
        "With Lx from 4 to 64 beside 8x8x16, RRII s goes from 64 GFLOP/s to 64 GFLOP/s",
        "the last cache holds LC_t up to Lx = ",
        "LC_y beyond.",
    ):
        assert words in " ".join(section.findings)
    assert len(section.exhibits) == 5 and section.remarks == ()


def test_the_fastest_is_an_undisturbed_form_where_there_is_any():
    rows = frame(everything())
    before = " ".join(findings(frame_of(rows)))
    fastest = re.search(r"in cache: (\S+)", before)[1]
    after = " ".join(findings(frame_of(rows.assign(disturbed=rows["layout"].eq(fastest)))))
    assert f"in cache: {fastest}" not in after
    assert f"{fastest} " in after and "(disturbed)" in after


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
    columns = ["scalar_B", "RIRI_B", "RRII_B"]
    assert table.loc["LC_x", columns].tolist() == [29952, 119808, 239616]
    assert table.loc["LC_t", columns].tolist() == [201719808, 403439616, 403439616]
    small = tables["dw-conditions"](lattice="8x8x8x16", ls=12).set_index("condition")
    assert small.loc["LC_z", "scalar_B"] == 2 * 12 * 8 * 8 * (6 + 60 + 12) * 16
    with refused("lattice '8x8x8' must be four numbers such as 8x8x8x16"):
        tables["dw-conditions"](lattice="8x8x8")
    with refused("ls must be an integer, not 'x'"):
        tables["dw-conditions"](ls="x")
