"""Figures and tables of loops, stencils, matrix-vector products and barriers."""

import math

import numpy as np
import pytest
from checking import refused
from plotting import KIB, MIB, Results, curve_labels, footnotes, frame, line
from streaming_figure_records import (
    barriers,
    everything,  # noqa: F401 (for the fixture `whole`)
    loops,
    matvec,
    stream,
)

from memkern.plots import figures, tables
from memkern.plots.frames import frame_of

ONE = "Own Machine 3000, 1 thread"


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


def test_builds_have_panels_of_their_own():
    fast, slow = (loops(["triad"], [0], environment_id=key) for key in ("e1", "e2"))
    for row in slow:
        row["cycles_per_vector"] *= 2
    results = Results([*fast, *slow])
    for key, flags in (("e1", "-Ofast -DNDEBUG"), ("e2", "-O1 -DNDEBUG")):
        results.environments[key]["build"] = {"compiler": "GNU 12.2.0", "flags": flags}
    panels = {ax.get_title(): ax for ax in figures["loops-cycles"](results).axes}
    assert panels.keys() == {f"triad\nGNU 12.2.0 {o} -DNDEBUG" for o in ("-O1", "-Ofast")}
    lowest = [min(line(ax, "kernel's own unrolling").get_ydata()) for ax in panels.values()]
    assert max(lowest) == pytest.approx(2 * min(lowest))


def test_stencils_have_panels_by_the_level_that_holds_their_rows():
    rows = [
        row | {"cycles_per_vector": slower * row["cycles_per_vector"]}
        for slower, where in enumerate(("L1", "L2", "memory"), start=1)
        for row in loops(names=["stencil"], unrolls=[0], layer_condition=where)
    ]
    titles = [ax.get_title() for ax in figures["loops-cycles"](Results(rows)).axes]
    assert titles == [f"stencil, rows in {where}" for where in ("L1", "L2", "memory")]
    table = tables["loops-cycles"](Results(rows))
    cycles = table.loc[table["kernel"] == "loops.stencil", f"{ONE}: L1"].tolist()
    np.testing.assert_allclose(cycles, [1.28, 2.56, 3.84])
    # The caches decide on the panel.
    held = [row | {"conditions": "L1 none, L2 rows"} for row in rows[:15]]
    (ax,) = figures["loops-cycles"](Results(held)).axes
    assert ax.get_title() == "stencil, rows in L2"


def test_matrix_vector_draws_both_limits():
    fig = figures["matvec"](Results([*matvec(), *stream()]))
    (ax,) = fig.axes
    heights = {label: line(ax, label).get_ydata()[0] for label in curve_labels(ax)}
    # Non-temporal stores have STREAM's highest bandwidth in memory.
    eight, hint = "8 B from memory an element", "non-temporal prefetch hint on A"
    limits = {eight: 2 * 45 / 8, "24 B from memory an element": 2 * 45 / 24}
    assert heights == pytest.approx({"plain": 8.0, hint: 4.0} | limits)
    # The paper has the size of y in bytes on its axis.
    assert ax.get_xlabel() == "Size of y"
    assert list(line(ax, "plain").get_xdata()) == sorted(8 * row["rows"] for row in matvec())[::2]
    fig.draw_without_rendering()
    assert all(tick.get_text().endswith("iB") for tick in ax.get_xticklabels())
    given = figures["matvec"](frame(matvec()), memory_GBps=16.0)
    assert line(given.axes[0], eight).get_ydata()[0] == 4.0
    assert curve_labels(figures["matvec"](frame(matvec())).axes[0]) == ["plain", hint]
    for wrong in (0.0, -1.0, math.inf):
        with refused("memory_GBps"):
            figures["matvec"](frame(matvec()), memory_GBps=wrong)
    # In older files, `nt` of these loads is the prefetch hint.
    old = [row | {"variant": row["variant"].replace("nta", "nt")} for row in matvec()]
    (ax,) = figures["matvec"](Results([*old, *stream()])).axes
    assert list(line(ax, hint).get_ydata()) == [4.0] * 5
    rows = frame_of(frame([*old, *stream(sizes=[MIB])])).groupby("kernel")["variant"].agg(set)
    assert rows["loops.matvec"] == {"auto", "nta"} and rows["stream.copy"] == {"simd", "nt"}


def test_traffic_of_matvec_is_counted_beside_the_model():
    (ax,) = figures["matvec-traffic"](Results(matvec())).axes
    sizes, model = 8 * 10.0 ** np.arange(3, 8), np.array([8, 8, 8, 8, 24])
    wanted = {"counted": 1.1, "by the model": 1.0, "counted, prefetch hint on A": 1.1}
    assert curve_labels(ax) == [*wanted, "8 B: y in a cache", "24 B: y in memory"]
    for label, share in wanted.items():
        np.testing.assert_allclose(line(ax, label).get_data(), [sizes, share * model])
    np.testing.assert_allclose(line(ax, "24 B: y in memory").get_ydata(), 24)


def test_traffic_of_matvec_without_counters_is_modelled():
    rows = matvec(counted_memory_load_B=math.nan, counters_note="no counters here")
    fig = figures["matvec-traffic"](frame(rows))
    assert "counted" not in curve_labels(fig.axes[0])
    assert len(line(fig.axes[0], "by the model").get_xdata()) == 5
    assert "By the model alone: no counters here." in footnotes(fig)


def test_page_walks_are_drawn_for_each_size_of_pages():
    rows = loops(["triad"], pages_requested="4k")
    rows += loops(["triad"], pages_requested="thp", counted_tlb_misses=3.0)
    (ax,) = figures["loops-tlb-misses"](Results(rows)).axes
    assert curve_labels(ax) == ["triad, 4k pages", "triad, thp pages"]
    sizes = 8 * KIB * 2 ** np.arange(15)
    # Of several unrollings, that with the fewest cycles.
    wanted = np.where(sizes > 4 * MIB, 256, 5 * MIB / sizes)
    np.testing.assert_allclose(line(ax, "triad, 4k pages").get_data(), [sizes, wanted])
    np.testing.assert_allclose(line(ax, "triad, thp pages").get_ydata(), 3 * MIB / sizes)


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


def test_cycles_table_has_levels_beside_the_a64fx(whole):
    table = tables["loops-cycles"](whole).set_index("kernel")
    own = [f"{ONE}: {level}" for level in ("L1", "L2", "memory")]
    cycles = [64 * 2.0 / (bandwidth / 4 * 1.5) for bandwidth in (400, 200, 30)]
    np.testing.assert_allclose(table.loc["loops.triad", own].astype(float), cycles)
    assert table.loc["loops.triad", "A64FX predicted: L2"] == 6
    assert table.loc["loops.triad", "A64FX measured: memory"] == 5.7
    assert math.isnan(table.loc["loops.update", "A64FX predicted: L1"])
    assert table.loc["loops.update", own].notna().all()
    assert tables["loops-cycles"](None).shape == (13, 8)
    one = tables["loops-cycles"](frame(loops(names=["load"])))
    assert one["kernel"].tolist() == ["loops.load"]
