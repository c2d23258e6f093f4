"""Figures, findings and section of latency, against the records that they show."""

import numpy as np
import pytest
from checking import refused
from latency_records import (
    SIZES,
    all_records,
    banks,
    chains,
    gathers,
    loaded,
    nodes,
    pairs,
    record,
    sampled,
    sizes,
)
from plotting import (
    KIB,
    MIB,
    Results,
    curve_labels,
    disturbed_markers,
    footnotes,
    line,
    panel_texts,
)

from memkern.families.latency.data import concurrency
from memkern.families.latency.findings import findings
from memkern.plots import figures, tables
from memkern.plots.style import lacking


def test_banks_are_drawn_by_their_conflicts():
    (ax,) = figures["latency-banks"](Results([*banks(), *banks("uint64", 1024)])).axes
    one, several = "32 bits, 1 warp a block", "64 bits, 32 warps a block"
    assert curve_labels(ax) == [one, several]
    rows = tables["latency-banks"](Results([*banks(), *banks("uint64", 1024)]))
    single = rows[rows["dtype"] == "uint32"].set_index("stride")
    assert list(single.loc[[1, 2, 24, 31, 32], "ways"]) == [1, 2, 8, 1, 32]
    assert single.loc[32, "cycles"] == 2 * single.loc[32, "ns_per_access"]
    # Each lane's word takes two banks, and half of the lanes are served at a time.
    double = rows[rows["dtype"] == "uint64"].set_index("stride")
    assert list(double.loc[[1, 2, 24, 31, 32], "ways"]) == [2, 4, 16, 2, 32]
    broadcast = tables["latency-banks"](Results([record("banks", 15.0, stride=0, dtype="uint32",
                                                        block_threads=32)]))  # fmt: skip
    assert list(broadcast["ways"]) == [1] and broadcast["cycles"].isna().all()


def test_variants_of_a_gpu_are_drawn_apart_with_its_own_cache():
    card = {"machine": "Own Card 3000", "backend": "cuda", "device": "cuda:0"}
    own = [{**row, "variant": "auto", "backend": "openmp", "device": "cpu"} for row in sizes()]
    rows = [*own, *sizes(variant="simt", **card), *sizes(variant="l2", **card)]
    results = Results(rows)
    results.environments["e1"]["devices"] = {"cuda:0": {"l2_B": 2 * MIB}}
    host, gpu = sorted(figures["latency-sizes"](results).axes, key=lambda ax: len(ax.texts))[::-1]
    assert "random order" in curve_labels(host)
    assert {"random order, simt", "random order, l2"} <= set(curve_labels(gpu))
    assert [text.get_text() for text in gpu.texts] == ["L2", "memory"]
    assert len([text for text in host.texts if text.get_text() == "L1"]) == 1


def test_loads_and_atomic_operations_of_processors_and_gpus_are_in_one_figure():
    own = {"backend": "openmp", "variant": "auto"}
    rows = [*sizes(**own), *sizes(**CARD), *sizes(**CARD | {"variant": "l2"})]
    rows += [
        {
            **record("chase", 10.0 * threads, **how), "kernel": "amo.ptrchase",
            "words": 2**10 * 4**i, "dtype": "uint64", "primitive": "add", "threads": threads,
            # The rate by the shortest time.
            "rate_GAMS": 0.2 / threads,
        }
        for how in (own, CARD) for i in range(2) for threads in (1, 4)
    ]  # fmt: skip
    (ax,) = figures["latency-devices"](Results(rows)).axes
    what = {"Own Machine 3000": ["loads", "atomic add"]}
    what["Own Card 3000"] = ["loads, simt", "loads, l2", "atomic add"]
    assert set(curve_labels(ax)) == {f"{w}, {name}" for name in what for w in what[name]}
    atomic = line(ax, "atomic add, Own Card 3000")
    assert list(atomic.get_xdata()) == [2**13, 2**15] and list(atomic.get_ydata()) == [10.0, 10.0]


def test_only_one_worker_and_chain_is_a_latency():
    others = [*chains(), *sizes(threads=2)]
    fig = figures["latency-sizes"](Results([*sizes(), *others]))
    assert len(line(fig.axes[0], "random order").get_xdata()) == len(SIZES)


def test_loads_in_flight_are_latency_times_rate():
    found, _ = concurrency(Results(chains(most=10)))
    assert sorted(found["in_flight"]) == pytest.approx([1, 2, 4, 8, 10, 10])
    most = line(figures["latency-chains"](Results(chains(most=10))).axes[0], "as many as chains")
    assert most.get_xdata().tolist() == most.get_ydata().tolist()


def test_samples_are_drawn_as_histograms():
    fig = figures["latency-histogram"](sampled([*sizes(), *sizes("in-page"), *chains()]))
    assert len(fig.axes) == 6
    assert [ax.get_title() for ax in fig.axes] == [
        "16 KiB", "64 KiB", "256 KiB", "4 MiB", "16 MiB", "64 MiB",
    ]  # fmt: skip
    for ax, ns in zip(fig.axes, (2, 4, 8, 32, 64, 128), strict=True):
        assert [curve.get_xdata()[0] for curve in ax.lines] == [ns, ns]
        # Samples are around their median, with a deviation of a tenth.
        edges = [patch.get_x() for patch in ax.patches]
        assert 0.6 * ns < min(edges) < ns < max(edges) < 1.5 * ns
        heights = sum(patch.get_height() for patch in ax.patches)
        assert heights == pytest.approx(200)
        assert ax.get_xscale() == "linear"
    (ax,) = figures["latency-histogram"](sampled(sizes()), sizes="1MiB").axes
    assert ax.get_title() == "1 MiB"
    wide = Results(sizes()[:1], [[1e-3, 9e-3]])
    assert figures["latency-histogram"](wide).axes[0].get_xscale() == "log"


CARD = {"backend": "cuda", "variant": "simt", "machine": "Own Card 3000"}


@pytest.mark.parametrize(
    ("name", "records", "options", "problem"),
    [
        ("histogram", sizes(), {}, "no chase with one chain has samples"),
        ("histogram", Results(sizes()[:1], [[1e-3, -1.0]]), {}, "some are missing, or out of"),
        ("histogram", sampled(sizes()), {"sizes": "5KiB"}, "was measured in 5 KiB, only in 16 KiB"),
        ("histogram", sampled(sizes()), {"sizes": "big"}, "is not a size in bytes"),
        ("devices", sizes(variant="auto"), {}, "chases on a processor and on a GPU are needed"),
        ("devices", sizes(**CARD), {}, "chases on a processor and on a GPU are needed"),
        ("sizes", chains(), {}, "no chase was measured over two sizes"),
        ("sizes", sizes(threads=2), {}, "with one worker"),
        ("chains", chains()[1:], {}, "with one and with several chains"),
        ("gather", [*chains(), *gathers()[:1]], {}, "no gather by one worker is random or has a"),
        ("gather", [*chains(), *gathers(machine="Other")], {}, "no machine has chases and gathers"),
        ("cores", [pairs()[0] | {"pin": "none"}], {}, "no two workers were pinned to a unit each"),
        ("numa", [row | {"name": "x"} for row in nodes()], {}, "no record is of NUMA nodes"),
        ("structure", sizes(), {}, "no chase shows the cost of address translation"),
    ],
)
def test_what_lacks_records_is_refused(name, records, options, problem):
    with refused(problem):
        figures[f"latency-{name}"](
            Results(records) if isinstance(records, list) else records, **options
        )


def test_strided_gathers_have_the_lines_of_their_record():
    rows = [*chains(most=10, ns=100.0), *gathers(memory_line_B=256)]
    _, strided = figures["latency-gather"](Results(rows)).axes
    strides = line(strided, "strided gather")
    assert list(strides.get_xdata()) == [512, 1024]
    # 64e5 bytes in half a millisecond are 50 lines per microsecond.
    assert list(strides.get_ydata()) == pytest.approx([50, 50])


def test_gathers_stand_beside_chains():
    # The same gathers in a cache, where they are much faster.
    small = [{**r, "bytes_model_B": 64e3, "time_median_s": 1e-7} for r in gathers()]
    rows = [*chains(most=10, ns=100.0), *chains(size=64 * KIB, ns=10.0), *small, *gathers()]
    chained, strided = figures["latency-gather"](Results(rows)).axes
    label = "chains of random loads"
    assert sorted(line(chained, label).get_ydata()) == pytest.approx([10, 20, 40, 80, 100, 100])
    for ax in (chained, strided):
        assert set(line(ax, "highest rate of chains").get_ydata()) == {100.0}
    assert list(line(strided, "strided gather").get_ydata()) == pytest.approx([200.0] * 4)
    assert list(line(strided, "random gather").get_ydata()) == pytest.approx([100.0] * 2)
    note = footnotes(figures["latency-gather"](Results(rows)))
    assert "upper limit of random gathers" in note and "still increases" not in note
    rows = [*chains(most=32), *gathers()]
    told = " ".join(footnotes(figures["latency-gather"](Results(rows))).split())
    assert "The rate still increases up to 32 chains" in told
    fig = figures["latency-gather"](Results([*chains(), *gathers(), *gathers(machine="Other")]))
    (told,) = lacking(fig)
    assert told.startswith("Other left out: no record of chains: `memkern latency")
    assert told in " ".join(footnotes(fig).split())


def test_findings_tell_the_share_of_the_bound_that_a_random_gather_has():
    found = findings(Results([*chains(most=10, ns=100.0), *gathers()]))
    assert found[-1].startswith("16 chains in 64 MiB load 100 million lines/s, which bounds random")
    assert found[-1].endswith("; a random gather loads 100, 100 % of it")
    strided = [row for row in gathers() if row["pattern"].startswith("UNIFORM")]
    (text,) = [t for t in findings(Results([*chains(most=10), *strided])) if "bounds" in t]
    assert text.endswith("bounds random gathers of a core")
    assert not any("bounds" in t for t in findings(Results(chains())))


def test_chains_in_another_cache_are_left_out():
    rows = [*chains(most=10), *chains(size=8 * MIB, ns=100.0)[:3], *chains(size=8 * MIB, ns=10)[3:]]
    found, notes = concurrency(Results(rows))
    assert sorted(found.loc[found["size_B"] == 8 * MIB, "chains"]) == [1, 2, 4]
    assert any("3 points left out" in note for note in notes)
    assert "a shared cache held more" in footnotes(figures["latency-chains"](Results(rows)))


def test_loaded_latency_names_saturation():
    saturated = figures["latency-loaded"](Results([*sizes(), *loaded(slower=3.0)]))
    assert not any("not saturated" in text for text in panel_texts(saturated.axes[0]))
    light = figures["latency-loaded"](Results([*sizes(), *loaded(slower=1.4, threads=2)]))
    assert "not saturated with 1 generator" in panel_texts(light.axes[0])
    assert set(line(light.axes[0], "no traffic").get_ydata()) == {128.0}
    without = figures["latency-loaded"](Results(loaded(slower=1.4)))
    assert "no traffic" not in curve_labels(without.axes[0])


def test_loaded_latencies_have_their_intervals():
    # Half of the width is 2 % and 60 times the value.
    for half, factor in ((0.02, 1.0202), (60.0, 120.0083)):
        about = {"ci_relative": half, "time_median_s": 1.0}
        about |= {"time_ci_low_s": 1 / factor, "time_ci_high_s": factor}
        rows = [row | about for row in loaded() if row["loads"] == 8]
        ax = figures["latency-loaded"](Results(rows)).axes[0]
        ends = sorted(segment[:, 1].tolist() for segment in ax.collections[0].get_segments())
        latencies = sorted(row["ns_per_access"] for row in rows)
        np.testing.assert_allclose(ends, [[ns / factor, factor * ns] for ns in latencies], 1e-6)
        assert max(latencies) < ax.get_ylim()[1] < 4 * max(latencies)


def test_loaded_latency_is_beside_the_same_chain_without_traffic():
    rows = loaded(slower=3.0)
    (size,) = {row["size_B"] for row in rows}
    slow = {**rows[0], "ns_per_access": 999.0, "disturbed": True}
    others = [
        record("chase", 10.0, size_B=size, chains=1, order="in-page"),
        record("chase", 20.0, size_B=size, chains=1, order="random", pages_requested="thp"),
    ]
    fig = figures["latency-loaded"](Results([slow, *rows, *others, *sizes()]))
    drawn = sum(len(curve.get_xdata()) for curve in fig.axes[0].lines if "%" in curve.get_label())
    assert drawn == len(rows) and not disturbed_markers(fig)
    assert set(line(fig.axes[0], "no traffic").get_ydata()) == {128.0}
    without = figures["latency-loaded"](Results([*rows, *others]))
    assert "no traffic" not in curve_labels(without.axes[0])


def test_a_disturbed_chain_leaves_no_others_out():
    rows = chains()
    for row in rows:
        if row["chains"] == 1:
            row |= {"disturbed": True, "ns_per_access": 10 * row["ns_per_access"]}
    drawn = figures["latency-chains"](Results(rows)).axes[0].get_lines()[0]
    assert len(drawn.get_xdata()) == len({row["chains"] for row in rows})


def test_traffic_beyond_saturation_is_drawn_in_the_order_of_its_pauses():
    rows = [row for row in loaded() if row["loads"] == 8]
    rows.sort(key=lambda row: row["pause"])
    for row, traffic in zip(rows, (30.0, 40.0, 35.0, 20.0), strict=True):
        row["traffic_GBps"] = traffic
    fig = figures["latency-loaded"](Results(rows))
    drawn = line(fig.axes[0], "100 % loads").get_xdata()[:4]
    assert drawn.tolist() == [30.0, 40.0, 35.0, 20.0]
    assert line(fig.axes[0], "_highest").get_xdata().tolist() == [40.0]


def test_every_pair_stands_twice_in_the_map():
    fig = figures["latency-cores"](Results(pairs(units=3)))
    values = fig.axes[0].images[0].get_array()
    assert values[0, 1] == values[1, 0] == 50.0 and values[0, 2] == 100.0
    assert sorted(panel_texts(fig.axes[0])) == ["100"] * 4 + ["50"] * 2


def test_units_of_a_core_are_side_by_side_in_the_map():
    rows = [
        record("ping_pong", ns, pin=pin, lines=1, threads=2, take_by="load")
        for pin, ns in {
            "0,1": 100.0, "1,0": 110.0, "0,2": 10.0, "2,0": 20.0, "1,2": 100.0, "2,1": 120.0,
        }.items()
    ]  # fmt: skip
    smt = figures["latency-cores"](Results(rows, units="0,2,1")).axes[0]
    assert [text.get_text() for text in smt.get_xticklabels()] == ["0", "2", "1"]
    values = smt.images[0].get_array()
    assert (values[0, 1], values[1, 0]) == (10.0, 20.0)
    assert (values[0, 2], values[2, 0]) == (100.0, 110.0)
    unknown = figures["latency-cores"](Results(rows)).axes[0]
    assert [text.get_text() for text in unknown.get_xticklabels()] == ["0", "1", "2"]


def test_disturbed_cells_of_maps_are_hatched():
    def corners(ax):
        return {patch.get_xy() for patch in ax.patches if patch.get_hatch()}

    rows = [row | {"disturbed": row["pin"] == "0,2"} for row in pairs(units=3)]
    cores = figures["latency-cores"](Results(rows))
    assert corners(cores.axes[0]) == {(-0.5, 1.5), (1.5, -0.5)}
    assert "Hatched: from a disturbed record." in footnotes(cores)
    rows = [row | {"disturbed": "node 1, memory of node 0" in row["name"]} for row in nodes()]
    by_node = figures["latency-numa"](Results(rows))
    assert [corners(ax) for ax in by_node.axes[:2]] == [{(-0.5, 0.5)}] * 2
    assert "Hatched: from a disturbed record." in footnotes(by_node)
    assert "disturbed" not in footnotes(figures["latency-numa"](Results(nodes())))


def test_workers_without_units_of_their_own_have_no_place_in_the_map():
    (row,) = pairs(units=2)[:1]
    loose = {**row, "pin": "none"}
    assert figures["latency-cores"](Results([row, loose])).axes[0].images


def test_findings_follow_from_the_records():
    first, second, bound, third = findings(Results(all_records()))
    assert "which bounds random gathers" in bound
    assert (
        "takes 2 ns ±2 % in L1, 4 ns ±2 % in L2, 32 ns ±2 % in L3 and 128 ns ±2 % in mem" in first
    )
    assert "32 independent chains in 64 MiB have 16 loads in flight: 8 ns ±2 % from" in second
    assert "answer to another core's write takes 50 to 100 ns" in third
    assert findings(Results(sizes())) == [first]
    named = findings(Results([*sizes(), *sizes(machine="Other")]))
    assert named[1].startswith("Other: ")
