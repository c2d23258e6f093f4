"""Figures, findings and section of latency, against the records that they show."""

import math
import re

import numpy as np
import pytest
from checking import once_a_kind, refused, run
from plotting import (
    KIB,
    LONG,
    MIB,
    Results,
    assert_legible,
    common_columns,
    curve_labels,
    disturbed_markers,
    footnotes,
    frame,
    hardest_first,
    line,
    panel_texts,
)

from memkern import report
from memkern.engine.sweeping import sweep
from memkern.families.latency import verb
from memkern.families.latency.data import DIFFERS, concurrency, measured_caches
from memkern.families.latency.findings import findings
from memkern.families.latency.kernels import GROUP, report_cases
from memkern.formats import ResultSet
from memkern.machine import caches, topology
from memkern.machine.topology import machine_environment
from memkern.plots import figures, save, sections, tables
from memkern.plots.style import lacking

FIGURES = (
    "latency-banks", "latency-chains", "latency-cores", "latency-gather", "latency-histogram",
    "latency-loaded",
    "latency-numa", "latency-sizes", "latency-structure",
)  # fmt: skip
SIZES = tuple(16 * KIB * 4**i for i in range(7))


def record(kernel, ns, machine="Own Machine 3000", threads=1, **other):
    """Return one record with the columns that figures read."""
    return {
        **common_columns(f"latency.{kernel}", threads, machine),
        "pages": "4k",
        "pages_requested": "default",
        "ns_per_access": ns,
        "lines": other.get("size_B", 64) // 64,
        "clock_GHz": 4.0,
        "time_min_s": 0.9e-3,
        "time_median_s": 1e-3,
        "ci_relative": 0.02,
        "bandwidth_GBps": 8 / ns,
    } | other


def sizes(order="random", **other):
    """Return chases of 2 ns in the first size and twice as long in each further one."""
    how = {"chains": 1, "order": order, **other}
    return [record("chase", 2.0 * 2**i, size_B=size, **how) for i, size in enumerate(SIZES)]


def chains(most=16, size=SIZES[-1], ns=128.0, **other):
    """Return chases with 1 to 32 chains; a core has at most `most` loads in flight."""
    return [
        record("chase", ns / min(n, most), size_B=size, order="random", chains=n, **other)
        for n in (1, 2, 4, 8, 16, 32)
    ]


def loaded(threads=4, size=SIZES[-1], slower=3.0, **other):
    """Return latencies that grow with the traffic, up to `slower` times 128 ns."""
    return [
        record(
            "loaded", 128 * (1 + (slower - 1) * share**3), size_B=size, loads=loads, pause=pause,
            traffic_GBps=share * (100 - 5 * (GROUP - loads)), threads=threads, order="random",
            **other,
        )
        for loads in (8, 6, 4)
        for pause, share in ((0, 1.0), (64, 0.7), (256, 0.4), (1024, 0.1))
    ]  # fmt: skip


def pairs(units=4, **other):
    """Return all pairs of units: 50 ns for neighbours, 100 ns for others; half with two lines."""
    return [
        record(
            "ping_pong", (50.0 if b // 2 == a // 2 else 100.0) / lines, pin=f"{a},{b}",
            lines=lines, threads=2, take_by="load", **other,
        )
        for lines in (1, 2)
        for a in range(units)
        for b in range(a + 1, units)
    ]  # fmt: skip


def nodes(units=2, memories=2, **other):
    """Return 100 ns and 50 GB/s to a node's own memory, 200 ns and 25 GB/s to other memory."""
    rows = []
    for near in range(units):
        for far in range(memories):
            slower = 1 + (near != far)
            how = {"name": f"units of node {near}, memory of node {far}", **other}
            how |= {"size_B": 2**30, "order": "random", "chains": 1, "time_min_s": 1.0}
            rows.append(record("chase", 100.0 * slower, **how))
            rows.append({**rows[-1], "kernel": "stream.triad", "bandwidth_GBps": 50.0 / slower})
    return rows


def levels(ends, **other):
    """Return chases in random order, of 1 KiB to 128 MiB, with the latency of each level."""
    every = [round(KIB * 2 ** (k / 4)) for k in range(69)]
    return [
        record("chase", next(ns for end, ns in ends.items() if size <= end), size_B=size,
               order="random", chains=1, **other)
        for size in every
    ]  # fmt: skip


def pair(order, distance_B, second, first, size_B, **other):
    """Return a chase through pairs with these times of the first and the second access."""
    return record("chase", (first + second) / 2, size_B=size_B, order=order, chains=1,
                  distance_B=distance_B, **other)  # fmt: skip


def structured(line_B=64, fetched=False, reaches=(64, 1536), ends=None, **other):
    """Return records of a whole structure: caches, TLBs of 2 ns and 20 ns a miss, and pairs."""
    dense = levels(ends or {32 * KIB: 1.0, MIB: 4.0, 16 * MIB: 15.0, 2**40: 100.0}, **other)
    costs = (0.0, 2.0, 20.0)
    apart = [
        {
            **row, "order": "one-per-page", "size_B": 4096 * row["lines"], "pages_requested": "4k",
            "ns_per_access": row["ns_per_access"] + costs[np.searchsorted(reaches, row["lines"])],
        }
        for row in dense
        if 16 <= row["lines"] <= 2**14
    ]  # fmt: skip
    both = [
        pair(order, int(distance), 1.0 if distance < line_B else far, far, size, **other)
        for order in ("pairs", "pairs-across")
        for size, far in ((4 * MIB, 4.0), (128 * MIB, 15.0))
        for distance in 2 ** np.arange(3, 11)
    ]
    if fetched:
        both = [
            pair("pairs", line_B, 4.0, 15.0, 128 * MIB, **other)
            if (row["order"], row["distance_B"], row["size_B"]) == ("pairs", line_B, 128 * MIB)
            else row
            for row in both
        ]
    return [*dense, *apart, *both]


def gathers(**other):
    """Return a random gather of 100 million lines per second, and strided ones of 200 million."""
    patterns = {f"UNIFORM:8:{stride}:NR": 0.5 for stride in (4, 8, 16, 64, 128)}
    return [
        record("chase", 1.0, pattern=pattern, dtype="float64", bytes_model_B=64e5, **other)
        | {"kernel": "spatter.gather", "time_median_s": 1e-3 * share}
        for pattern, share in {**patterns, "RANDOM:1048576:33554432:1": 1.0}.items()
    ]


def banks(dtype="uint32", block_threads=32, **other):
    """Return loads of 16 ns and 1 ns more for each further lane of a warp in the same bank."""
    return [
        record(
            "banks", 15.0 + math.gcd(stride, 32), stride=stride, dtype=dtype,
            block_threads=block_threads, gpu_clock_GHz=2.0, **other,
        )
        for stride in range(1, 33)
    ]  # fmt: skip


def all_records(**other):
    return [
        *banks(**other), *banks(block_threads=1024, **other),
        *sizes(**other), *chains(**other), *loaded(**other), *pairs(**other), *nodes(**other),
        *gathers(**other),
    ]  # fmt: skip


INPUTS = {
    "own": [*all_records(), *structured()],
    "several": [
        *all_records(), *structured(), *all_records(machine=LONG), *structured(machine=LONG),
    ],
    "many": [
        *banks(), *banks("uint64"), *banks(block_threads=1024), *banks("uint64", 1024),
        *sizes(), *sizes("in-page"), *sizes("one-per-page"), *sizes(pages_requested="thp"),
        *chains(), *chains(size=64 * KIB, ns=6.0, most=4), *chains(size=MIB, ns=20.0, most=8),
        *loaded(threads=64, slower=8.0), *pairs(units=24), *nodes(12, 12), *gathers(),
        *structured(reaches=(1024, 1536)),
    ],
    "disturbed": [
        *all_records(), *structured(), *all_records(disturbed=True, pages="thp"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    once_a_kind(
        [(name, given) for name in FIGURES for given in hardest_first(INPUTS)],
        kind=lambda case: case[0],
        name=" ".join,
    ),
)
def test_every_figure_is_legible(case):
    name, records = case
    assert_legible(figures[name](sampled(INPUTS[records])))


@pytest.mark.parametrize("name", once_a_kind(FIGURES))
def test_every_figure_becomes_a_file(name, tmp_path):
    assert save(figures[name](sampled(INPUTS["own"])), tmp_path / "x.pdf").stat().st_size > 5000


@pytest.mark.parametrize("name", FIGURES)
def test_figures_say_how_to_measure_what_they_lack(name):
    with refused("`memkern latency .*-o .*parquet`"):
        figures[name](frame([record("other", 1.0)]))


def test_banks_are_drawn_by_their_conflicts():
    fig = figures["latency-banks"](Results([*banks(), *banks("uint64", 1024)]))
    (ax,) = fig.axes
    one, several = "32 bits, 1 warp a block", "64 bits, 32 warps a block"
    assert curve_labels(ax) == [one, several]
    assert list(line(ax, one).get_ydata()) == [15.0 + math.gcd(s, 32) for s in range(1, 33)]
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


def test_sizes_draw_each_order():
    fig = figures["latency-sizes"](Results([*sizes(), *sizes("in-page")]))
    (ax,) = fig.axes
    assert {"random order", "in-page order"} <= set(curve_labels(ax))
    assert list(line(ax, "random order").get_xdata()) == list(SIZES)
    assert list(line(ax, "random order").get_ydata()) == [2.0 * 2**i for i in range(7)]


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
    card = {"backend": "cuda", "variant": "simt", "machine": "Own Card 3000"}
    rows = [*sizes(**own), *sizes(**card), *sizes(**{**card, "variant": "l2"})]
    rows += [
        {
            **record("chase", 10.0 * threads, **how), "kernel": "amo.ptrchase",
            "words": 2**10 * 4**i, "dtype": "uint64", "primitive": "add", "threads": threads,
            # The rate by the shortest time.
            "rate_GAMS": 0.2 / threads,
        }
        for how in (own, card) for i in range(2) for threads in (1, 4)
    ]  # fmt: skip
    fig = figures["latency-devices"](Results(rows))
    assert_legible(fig)
    (ax,) = fig.axes
    what = {"Own Machine 3000": ["loads", "atomic add"]}
    what["Own Card 3000"] = ["loads, simt", "loads, l2", "atomic add"]
    assert set(curve_labels(ax)) == {f"{w}, {name}" for name in what for w in what[name]}
    atomic = line(ax, "atomic add, Own Card 3000")
    assert list(atomic.get_xdata()) == [2**13, 2**15] and list(atomic.get_ydata()) == [10.0, 10.0]
    for alone in (own, card):
        with refused("chases on a processor and on a GPU are needed"):
            figures["latency-devices"](Results(sizes(**alone)))


def test_only_one_worker_and_chain_is_a_latency():
    others = [*chains(), *sizes(threads=2)]
    fig = figures["latency-sizes"](Results([*sizes(), *others]))
    assert len(line(fig.axes[0], "random order").get_xdata()) == len(SIZES)
    with refused("no chase was measured over two sizes"):
        figures["latency-sizes"](Results(chains()))
    with refused("with one worker"):
        figures["latency-sizes"](Results(sizes(threads=2)))


def test_loads_in_flight_are_latency_times_rate():
    found, _ = concurrency(Results(chains(most=10)))
    assert sorted(found["in_flight"]) == pytest.approx([1, 2, 4, 8, 10, 10])
    with refused("with one and with several chains"):
        concurrency(Results(sizes()))
    with refused("with one and with several chains"):
        concurrency(Results(chains()[1:]))
    most = line(figures["latency-chains"](Results(chains(most=10))).axes[0], "as many as chains")
    assert most.get_xdata().tolist() == most.get_ydata().tolist()


def table(rows):
    """Return the table latency-structure with its column `what` as index."""
    return tables["latency-structure"](Results(rows)).set_index("what")


def test_the_structure_stands_beside_what_the_system_says():
    # The system reports L1 of 32 KiB, L2 of 1 MiB and L3 of 16 MiB; a quarter of L3 is usable.
    rows = structured(ends={32 * KIB: 1.0, MIB: 4.0, 4 * MIB: 15.0, 2**40: 100.0})
    found = table(rows)
    assert list(found.index) == [
        "cache 1", "cache 2", "cache 3", "beyond", "TLB 1", "TLB 2", "page walk", "line",
        "adjacent line",
    ]  # fmt: skip
    assert found["ns"].tolist() == pytest.approx([1, 4, 15, 100, 0, 1.8, 18, 3, 14])
    assert found["cycles"].tolist() == pytest.approx((4 * found["ns"]).tolist())
    assert found["fits_B"][:3].tolist() == [32 * KIB, MIB, 4 * MIB]
    assert found["agrees"].tolist() == ["yes", "yes", "differs", *[""] * 4, "yes", ""]
    assert found["found"].tolist() == [
        "32 KiB to 38.1 KiB", "1 MiB to 1.19 MiB", "4 MiB to 4.76 MiB", "from 4.76 MiB",
        "64 to 76 pages", "1448 to 1722 pages", "in 16384 pages", "64 B", "not fetched with it",
    ]  # fmt: skip
    assert found["system"].tolist() == [
        "L1: 32 KiB", "L2: 1 MiB", "L3: 16 MiB", "", "unknown", "unknown", "", "64 B", "unknown",
    ]  # fmt: skip
    (_, said) = findings(Results(rows))
    assert said == "By latency, cache 3 has 4 MiB to 4.76 MiB, the system reports L3: 16 MiB"


def test_sizes_of_caches_are_confirmed_or_that_of_the_last_one_is_measured():
    def measured(rows):
        return measured_caches(Results(rows))

    ends = {32 * KIB: 1.0, MIB: 4.0, 4 * MIB: 15.0, 2**40: 100.0}
    assert measured(structured(ends=ends)) == {
        "L1": 32 * KIB, "L2": MIB, "L3": pytest.approx(4.36 * MIB, rel=0.01),
    }  # fmt: skip
    assert measured(structured()) == {"L1": 32 * KIB, "L2": MIB, "L3": 16 * MIB}
    # L3 is unknown without a rise beyond L2, or if all buffers may be in the last cache.
    assert measured(structured(ends={32 * KIB: 1.0, MIB: 4.0, 2**40: 9.0})) == {
        "L1": 32 * KIB, "L2": MIB,
    }  # fmt: skip
    small = [row for row in structured(ends=ends) if row["size_B"] <= 16 * MIB]
    assert set(measured(small)) == {"L1", "L2"}
    assert measured([row for row in structured() if row["order"] != "random"]) == {}
    # The table has the size that the system reports even if another size was measured before.
    again = Results(structured(ends=ends))
    again.environments["e1"]["measured_caches"] = {"sizes_B": measured(structured(ends=ends))}
    shown = tables["latency-structure"](again).set_index("what")
    assert shown.loc["cache 3", "system"] == "L3: 16 MiB" and measured_caches(again)["L3"] < 5 * MIB


def test_measured_sizes_of_caches_are_stored(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = structured(ends={32 * KIB: 1.0, MIB: 4.0, 4 * MIB: 15.0, 2**40: 100.0})
    monkeypatch.setattr(verb, "measure", lambda *_, **__: Results(rows))
    monkeypatch.setattr(verb, "health_of", lambda _: "healthy")
    monkeypatch.setattr(verb, "exit_code", lambda _: 0)
    code, out, err = run(capsys, "latency", "structure")
    assert code == 0 and "L3: 16 MiB" in out and out.endswith("healthy\n")
    assert err == (
        "memkern: sizes of caches for later records, until the next boot: L1 32 KiB, L2 1 MiB, "
        "L3 4.36 MiB\n"
    )
    stored = machine_environment()["measured_caches"]["sizes_B"]
    assert list(stored) == ["L1", "L2", "L3"] and stored["L1"] == 32 * KIB
    assert "measured: L1 32 KiB, L2 1024 KiB, L3 4" in run(capsys, "info")[1]
    # Small cases, as in tests, do not measure the machine's caches.
    caches.path().unlink()
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    assert run(capsys, "latency", "structure", "-q")[0] == 0 and not caches.path().exists()


def test_lines_that_differ_or_come_in_pairs_are_said():
    found = table(structured(line_B=128))
    assert found["found"]["line"] == "128 B" and found["agrees"]["line"] == DIFFERS
    found = table(structured(fetched=True))
    assert found["found"]["line"] == "64 B" and found["agrees"]["line"] == "yes"
    assert found["found"]["adjacent line"] == "fetched with it"
    assert found["ns"]["adjacent line"] == pytest.approx(3)
    found = table(structured(line_B=4096))
    assert found["found"]["line"] == "not found" and "adjacent line" not in found.index
    few = [r for r in structured(fetched=True) if r["size_B"] != 128 * MIB]
    assert "adjacent line" not in table(few).index
    unknown = tables["latency-structure"](frame(structured())).set_index("what")
    assert set(unknown["agrees"]) == {""} and unknown["system"]["line"] == "unknown"


def test_parts_of_a_structure_are_shown_alone():
    rows = structured()
    assert set(table([r for r in rows if r["order"] == "random"]).index) == {
        "cache 1", "cache 2", "cache 3", "beyond",
    }  # fmt: skip
    assert set(table([r for r in rows if r["order"].startswith("pairs")]).index) == {
        "line", "adjacent line",
    }  # fmt: skip
    with refused("no latency is the same over three sizes"):
        table(sizes())
    with refused("latency structure"):
        table([r for r in rows if r["order"] == "one-per-page"])
    # All pages fit in the TLBs.
    found = table(structured(reaches=(64, 2**20)))
    assert found["found"]["TLB 2"] == "at least 16384 pages" and "page walk" not in found.index
    # Disturbed records are ignored, as well as huge pages, which have other TLBs.
    huge = [{**r, "pages": "thp", "ns_per_access": 1.0} for r in rows if r["lines"] < 2**14]
    disturbed = [{**r, "disturbed": True, "ns_per_access": 0.1} for r in rows]
    apart = [r for r in huge if r["order"] == "one-per-page"]
    assert table([*rows, *apart, *disturbed]).equals(table(rows))


def test_tlbs_stand_beside_those_of_the_processor():
    entries = [{"level": 1, "entries": 64}, {"level": 2, "entries": 8192}]
    shown = tables["latency-structure"](Results(structured(), tlbs=entries)).set_index("what")
    assert shown.loc["TLB 1", ["system", "agrees"]].tolist() == ["64 entries", "yes"]
    assert shown.loc["TLB 2", ["system", "agrees"]].tolist() == ["8192 entries", DIFFERS]
    one = tables["latency-structure"](Results(structured(), tlbs=entries[:1])).set_index("what")
    assert one.loc["TLB 2", ["system", "agrees"]].tolist() == ["unknown", ""]


def test_pairs_in_the_large_buffer_do_not_decide_on_the_line():
    rows = structured()
    for row in rows:
        if row.get("distance_B") == 32 and row["size_B"] == 128 * MIB:
            row["ns_per_access"] += 5.0
    assert table(rows).loc["line", "found"] == "64 B"
    # They decide if the small buffer has no pairs.
    far = [row for row in rows if row["size_B"] != 4 * MIB or "distance_B" not in row]
    assert table(far).loc["line", "found"] == "32 B"


def test_the_structure_is_drawn_with_its_marks():
    fig = figures["latency-structure"](Results(structured()))
    costs, both = fig.axes
    assert {"TLB 1: 64 pages", "TLB 2: 1448 pages", "page walks"} == set(panel_texts(costs))
    assert set(panel_texts(both)) == {"same line", "other lines of 64 B"}
    assert curve_labels(both) == [
        f"{order} in {size} MiB" for size in (4, 128) for order in ("pairs", "pairs-across")
    ]
    within, across = (line(both, f"{order} in 128 MiB") for order in ("pairs", "pairs-across"))
    assert list(within.get_xdata()) == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert list(within.get_ydata()) == pytest.approx([0, 0, 0, *[14] * 5])
    assert list(across.get_xdata()) == [64, 128, 256, 512, 1024]
    assert "either access first" in footnotes(fig)
    (alone,) = figures["latency-structure"](
        Results([r for r in structured() if r["order"].startswith("pairs")])
    ).axes
    assert "Distance" in alone.get_xlabel()
    with refused("no chase shows what translation costs"):
        figures["latency-structure"](Results(sizes()))


def sampled(rows):
    """Return records with samples around their times."""
    rng = np.random.default_rng(0)
    return Results(rows, [1e-3 * np.exp(0.1 * rng.standard_normal(50)) for _ in rows])


def test_samples_are_drawn_as_histograms():
    fig = figures["latency-histogram"](sampled([*sizes(), *sizes("in-page"), *chains()]))
    assert len(fig.axes) == 6
    assert [ax.get_title() for ax in fig.axes] == [
        "16 KiB", "64 KiB", "256 KiB", "4 MiB", "16 MiB", "64 MiB",
    ]  # fmt: skip
    for ax, ns in zip(fig.axes, (2, 4, 8, 32, 64, 128), strict=True):
        assert [curve.get_xdata()[0] for curve in ax.lines] == [ns, ns]
        heights = sum(patch.get_height() for patch in ax.patches)
        assert heights == pytest.approx(200)
        assert ax.get_xscale() == "linear"
    (ax,) = figures["latency-histogram"](sampled(sizes()), sizes="1MiB").axes
    assert ax.get_title() == "1 MiB"
    wide = Results(sizes()[:1], [[1e-3, 9e-3]])
    assert figures["latency-histogram"](wide).axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    "records, options, problem",
    [
        (frame(sizes()), {}, "no chase with one chain has samples"),
        (Results(sizes()), {}, "no chase with one chain has samples"),
        (Results(sizes()[:1], [[1e-3, -1.0]]), {}, "some are missing, or out of range"),
        (sampled(sizes()), {"sizes": "5KiB"}, "no chase was measured in 5 KiB, only in 16 KiB"),
        (sampled(sizes()), {"sizes": "big"}, "is not a size in bytes"),
    ],
)
def test_wrong_histograms_are_refused(records, options, problem):
    with refused(problem):
        figures["latency-histogram"](records, **options)


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
        assert set(line(ax, "most by chains").get_ydata()) == {100.0}
    strides = line(strided, "strided gather")
    assert list(strides.get_xdata()) == [64, 128, 512, 1024]
    assert list(strides.get_ydata()) == pytest.approx([200.0] * 4)
    assert list(line(strided, "random gather").get_ydata()) == pytest.approx([100.0] * 2)
    note = footnotes(figures["latency-gather"](Results(rows)))
    assert "bounds random gathers" in note and "do not reach" not in note
    rows = [*chains(most=32), *gathers()]
    assert "32 chains do not reach this bound." in footnotes(
        figures["latency-gather"](Results(rows))
    )
    with refused("no gather by one worker is random or has a stride"):
        figures["latency-gather"](Results([*chains(), *gathers()[:1]]))
    with refused("no machine has chases and gathers"):
        figures["latency-gather"](Results([*chains(), *gathers(machine="Other")]))
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
    labels = curve_labels(light.axes[0])
    assert labels == ["100 % loads", "75 % loads", "50 % loads", "no traffic", "most traffic"]
    assert set(line(light.axes[0], "no traffic").get_ydata()) == {128.0}
    without = figures["latency-loaded"](Results(loaded(slower=1.4)))
    assert "no traffic" not in curve_labels(without.axes[0])


def test_loaded_latencies_have_their_intervals():
    rows = [row for row in loaded() if row["loads"] == 8]
    (bars,) = figures["latency-loaded"](Results(rows)).axes[0].collections
    ends = sorted(segment[:, 1].tolist() for segment in bars.get_segments())
    latencies = sorted(row["ns_per_access"] for row in rows)
    np.testing.assert_allclose(ends, [[0.98 * ns, 1.02 * ns] for ns in latencies])


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
    with refused("no two workers were pinned to a unit each: `memkern latency cores"):
        figures["latency-cores"](Results([loose]))
    assert figures["latency-cores"](Results([row, loose])).axes[0].images


NODES = [
    {"node": 0, "cpus": "0-1", "memory_B": 2**34},
    {"node": 1, "cpus": "2-3", "memory_B": 2**34},
    {"node": 2, "cpus": "4-5", "memory_B": 2**34},
    {"node": 3, "cpus": "", "memory_B": 2**34},  # memory only
]


def numa(monkeypatch, capsys, nodes, memories, *words):
    """Return the output of ``memkern latency numa`` on a machine with these nodes, and its records.

    Loads take 100 ns, and 50 ns more for each step between the numbers of the two nodes.
    """
    measured = []

    def measure(cases, *_):
        for case in cases:
            near, far = map(int, re.findall(r"\d+", case.labels["name"]))
            how = {"name": case.labels["name"], "numa": case.knobs.numa, "pin": case.knobs.pin}
            how |= {"size_B": 2**14, "order": "random", "chains": 1, "time_min_s": 1e-3}
            ns = 100.0 + 50.0 * abs(near - far)
            row = record(
                "chase", ns, oversubscribed=False, stop="runs", bandwidth_GBps=5e3 / ns, **how
            )
            measured.append({**row, "kernel": case.spec.name})
        return ResultSet(measured, [np.ones(3)] * len(measured), {})

    environment = {"machine": {"numa_nodes": nodes}}
    monkeypatch.setattr(topology, "machine_environment", lambda: environment)
    monkeypatch.setattr(topology, "numa_nodes", lambda: memories)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(verb, "measure", measure)
    code, out, error = run(capsys, "latency", "numa", "--sizes", "16KiB", *words)
    assert code == 0
    return out.splitlines(), error, measured


def test_four_nodes_are_measured_printed_and_drawn(monkeypatch, capsys):
    out, error, rows = numa(monkeypatch, capsys, NODES, [0, 1, 2, 3])
    assert error == "" and len(rows) == 2 * 3 * 4
    assert out == [
        "ns from a load to the next, by the node of the units (rows) and of the memory (columns):",
        "node        0       1       2       3",
        "   0    100.0   150.0   200.0   250.0",
        "   1    150.0   100.0   150.0   200.0",
        "   2    200.0   150.0   100.0   150.0",
        "GB/s of a triad, by the node of the units (rows) and of the memory (columns):",
        "node        0       1       2       3",
        "   0     50.0    33.3    25.0    20.0",
        "   1     33.3    50.0    33.3    25.0",
        "   2     25.0    33.3    50.0    33.3",
    ]
    shown = tables["latency-numa"](Results(rows)).set_index(["units", "memory"])
    assert len(shown) == 12
    assert shown.loc[(1, 3), ["ns_per_access", "bandwidth_GBps"]].tolist() == [200.0, 25.0]
    latencies, bandwidths = (
        ax.images[0].get_array() for ax in figures["latency-numa"](Results(rows)).axes[:2]
    )
    assert latencies.shape == bandwidths.shape == (3, 4)
    assert latencies[0].tolist() == [100.0, 150.0, 200.0, 250.0]


def test_memory_that_may_not_be_used_is_left_out(monkeypatch, capsys):
    out, error, rows = numa(monkeypatch, capsys, NODES, [0, 2])
    assert [row["numa"] for row in rows[::2]] == ["node:0", "node:2"] * 3
    assert [text.split() for text in out[1:3]] == [["node", "0", "2"], ["0", "100.0", "200.0"]]
    assert error.splitlines() == [
        f"memkern: memory of node {node} is left out: this process may not use it"
        for node in (1, 3)
    ]


@pytest.mark.parametrize("memories", [[0, 1, 2, 3], [0, 2, 3]])
def test_a_node_without_memory_has_a_row_and_no_column(monkeypatch, capsys, memories):
    bare = [{**node, "memory_B": 0 if node["node"] == 1 else node["memory_B"]} for node in NODES]
    out, error, rows = numa(monkeypatch, capsys, bare, memories)
    assert error == "memkern: node 1 has no memory: only its units are measured\n"
    assert [row["numa"] for row in rows[::2]] == ["node:0", "node:2", "node:3"] * 3
    assert [text.split() for text in out[1:4]] == [
        ["node", "0", "2", "3"],
        ["0", "100.0", "200.0", "250.0"],
        ["1", "150.0", "150.0", "200.0"],
    ]
    latencies = figures["latency-numa"](Results(rows)).axes[0].images[0].get_array()
    assert latencies.shape == (3, 3)


def test_unknown_nodes_are_one(monkeypatch, capsys):
    out, error, rows = numa(monkeypatch, capsys, None, [0])
    assert error == "" and out[-1] == "this machine has one NUMA node: no memory is remote"
    assert [(row["pin"], row["numa"]) for row in rows] == [
        ("0", "first-touch"),
        ("0,1,2,3,4,5", "first-touch"),
    ]
    assert out[1:3] == ["node        0", "   0    100.0"]
    assert numa(monkeypatch, capsys, None, [0], "-q")[0] == []


def test_the_best_record_of_a_pair_of_nodes_counts():
    rows = nodes(units=1, memories=1)
    worse = {**rows[0], "ns_per_access": 900.0, "disturbed": True}
    slower = {**rows[1], "bandwidth_GBps": 1.0}
    records = Results([*rows, worse, slower])
    latencies, bandwidths = (ax.images[0] for ax in figures["latency-numa"](records).axes[:2])
    assert latencies.get_array().tolist() == [[100.0]]
    assert bandwidths.get_array().tolist() == [[50.0]]
    (row,) = tables["latency-numa"](records).to_dict("records")
    assert (row["ns_per_access"], row["bandwidth_GBps"]) == (100.0, 50.0)
    assert not row["disturbed"]
    (row,) = tables["latency-numa"](Results([worse, slower])).to_dict("records")
    assert row["disturbed"]


def test_nodes_have_a_map_of_latency_and_one_of_bandwidth():
    fig = figures["latency-numa"](Results([*nodes(units=2, memories=3), *sizes()]))
    latencies, bandwidths = (ax.images[0].get_array() for ax in fig.axes[:2])
    assert latencies.tolist() == [[100, 200, 200], [200, 100, 200]]
    assert bandwidths.tolist() == [[50, 25, 25], [25, 50, 25]]
    assert "nothing is remote" in footnotes(figures["latency-numa"](Results(nodes(1, 1))))
    with refused("no record is of NUMA nodes"):
        figures["latency-numa"](Results([{**row, "name": "x"} for row in nodes()]))
    # Remote memory adds no point to the curve over sizes.
    fig = figures["latency-sizes"](Results([*nodes(), *sizes()]))
    assert len(line(fig.axes[0], "random order").get_xdata()) == len(SIZES)


def test_disturbed_records_are_hollow():
    rows = [*sizes()[:-1], record("chase", 9.0, size_B=SIZES[-1], chains=1, order="random",
                                  disturbed=True)]  # fmt: skip
    (curve,) = disturbed_markers(figures["latency-sizes"](Results(rows)))
    assert list(curve.get_ydata()) == [9.0]


def test_findings_follow_from_the_records():
    first, second, bound, third = findings(Results(all_records()))
    assert "which bounds random gathers" in bound
    assert "takes 2 ns ±2 % in 16 KiB and 128 ns ±2 % in 64 MiB" in first
    assert "32 independent chains in 64 MiB have 16 loads in flight: 8 ns ±2 % from" in second
    assert "answer to another core's write takes 50 to 100 ns" in third
    assert findings(Results(sizes())) == [first]
    named = findings(Results([*sizes(), *sizes(machine="Other")]))
    assert named[1].startswith("Other: ")


def test_the_section_in_a_report(tmp_path):
    cases = [case.with_(runs=2) for case in report_cases(True, 2**20, 2**30)]
    results = sweep(cases, progress=False)
    assert results.valid
    section = sections["latency"](results.to_frame())
    assert section is not None and len(section.exhibits) == 2
    path = report.write(results, tmp_path / "r.html", title="Latency", environment={})
    assert "Loads in flight" in path.read_text()
