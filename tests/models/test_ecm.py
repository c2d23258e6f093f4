"""The ECM model: published loops, domains, and bad input."""

import math
from collections import OrderedDict

import pytest
from checking import refused

import memkern as mk
from memkern import reference
from memkern.families.spmv.model import crs_row_cycles, sell_column_cycles
from memkern.models import Ecm, EcmLevel, LayerConditions, Overlap, StencilConditions
from memkern.models.ecm import store_GBps
from memkern.models.published_machines import published
from memkern.spec.kernel import Traffic, Transfer

A64FX = published("A64FX")
LEVELS = ("L1", "L2", "memory")
# Doubles in a vector of 512 bits.
LANES = 8
# Level that holds three rows of the stencil, by the statement of the published row.
HOLDER = {
    "5-point stencil, LC satisfied": "L1",
    "5-point stencil, LC violated in L1": "L2",
    "5-point stencil, LC violated": "memory",
}


def transfers_of(kernel, statement="", **options):
    """Return the transfers of a published loop per vector of every stream."""
    if kernel == "loops.stencil":
        case = mk.case(kernel, rows=1000, columns=1002, variant="simd", threads=1, **options)
        units = 1000 / LANES
        holding = LEVELS[LEVELS.index(HOLDER[statement]) :]
        caches = [
            {"level": int(name[1:]), "size_B": 2**30 if name in holding else 1}
            for name in LEVELS[:-1]
        ]
    else:
        case = mk.case(kernel, elements=1024, variant="simd", threads=1, **options)
        units, caches = 1 / LANES, []
    return {
        level: Transfer(load_B / units, store_B / units)
        for level, (load_B, store_B) in case.transfers(LEVELS, caches).items()
    }


@pytest.mark.parametrize(
    "row", reference.rows("alappat2021-kernels"), ids=lambda row: row["kernel"] + row["statement"]
)
def test_the_published_loops(row):
    moved = transfers_of(row["kernel"], row["statement"])
    model = A64FX.model_of()
    assert model.predict(moved, at="L1").cycles == row["pred_l1"]
    assert model.predict(moved, at="L2").cycles == row["pred_l2"]
    difference = abs(model.predict(moved).cycles - row["pred_mem"])
    assert difference <= max(0.1, 0.035 * row["pred_mem"]) + 1e-9


def test_a_crs_row_with_27_nonzeros():
    fma = A64FX.instruction("fma").latency_cycles.value
    reduction = A64FX.instruction("horizontal add").latency_cycles.value
    core = crs_row_cycles(27, LANES, fma, reduction)
    assert core == 4 * 9 + 49
    matrix = Traffic(read=27 * 8.0, index=27 * 4.0).transfers(LEVELS)
    predicted = A64FX.model_of().predict(matrix, core)
    assert predicted.cycles == 85
    assert predicted.bound == "core"
    assert round(predicted.bandwidth_GBps(12)) == 101
    assert round(predicted.rate(12) * 2 * 27 / 1e9, 1) == 16.8
    # 12 cores do not saturate the memory of a CMG.
    assert predicted.saturating_cores is None


def test_the_rows_of_sparse_formats():
    assert crs_row_cycles(1, 8, 9, 49) == 9 + 49
    assert crs_row_cycles(64, 8, 9, 49, step=6) == 8 * 9 + 49
    # Two accumulators: four steps each, and one more addition.
    assert crs_row_cycles(64, 8, 9, 49, step=6, accumulators=2) == 8 * 6 + 49
    assert sell_column_cycles(8, 8, 9, 6) == 9
    assert sell_column_cycles(32, 8, 9, 6) == 24


def test_memory_hides_all_other_transfers_if_it_takes_longest():
    moved = {"L1": Transfer(128, 64), "L2": Transfer(128, 64), "memory": Transfer(1024, 0)}
    predicted = A64FX.model_of().predict(moved)
    assert predicted.data == pytest.approx(1024 * 2.2 / 227)
    assert predicted.bound == "memory"
    # L1 and L2 together take longer here than memory, which alone takes longer than either.
    less = A64FX.model_of().predict({**moved, "L1": Transfer(448, 64), "memory": Transfer(460, 0)})
    assert (less.data, less.bound) == (3.5 + 4, "L2")


@pytest.mark.parametrize("layout", ["RIRI", "RRII"])
def test_all_bytes_of_memory_have_one_bandwidth_in_the_paper(layout):
    cuts = (1, 1, 2, 2) if layout == "RIRI" else (1, 2, 2, 2)
    moved = LayerConditions((24,) * 4, 8, cuts, layout=layout).transfers(LEVELS, A64FX.caches)
    assert moved["memory"] == (1488 - 192, 192)
    assert moved["L2"] == (1872, 192)
    predicted = A64FX.model_of().predict(moved)
    # Equation of T_i = V_i / b_i and section "Multicore": a triad has 213 GB/s, at 2.2 GHz.
    assert sum(predicted.terms["memory"]) == pytest.approx(1488 * 2.2 / 213)
    assert predicted.limits["memory"] == pytest.approx(1488 * 2.2 / 213)
    assert predicted.memory_rate == "triad"
    assert sum(predicted.terms["L2"]) == 35.25
    # Pairs of numbers are transfers as well.
    assert A64FX.model_of().predict({level: (*both,) for level, both in moved.items()}) == predicted
    # Loads dominate a sparse product.
    row = Traffic(read=27 * 8 + 8, index=27 * 4, write=8).transfers(LEVELS)
    sparse = A64FX.model_of().predict(row)
    assert sparse.memory_rate == "load"
    assert sum(sparse.terms["memory"]) == pytest.approx(sum(row["memory"]) * 2.2 / 227)
    # By default, loads and stores have their own bandwidths.
    apart = A64FX.model_of(memory_rate="apart").predict(moved)
    assert apart.memory_rate == "apart"
    store = store_GBps(227, 213)
    assert apart.terms["memory"] == pytest.approx((1296 * 2.2 / 227, 192 * 2.2 / store))
    assert A64FX.model_of().predict(moved, at="L2").memory_rate == ""


def test_stores_follow_from_loads_and_a_triad():
    store = store_GBps(227, 213)
    assert 1 / (0.75 / 227 + 0.25 / store) == pytest.approx(213)
    model = A64FX.model_of()
    loads = model.predict(transfers_of("loops.load"))
    triad = model.predict(transfers_of("loops.triad"))
    assert loads.bandwidth_GBps(12) == pytest.approx(227)
    assert triad.bandwidth_GBps(12) == pytest.approx(213)
    assert loads.bandwidth_GBps(48) == pytest.approx(4 * 227)


def simple(cores=4, domains=1, limit_B=3.0):
    """Return a model in which a line of 64 bytes takes 64 cycles from memory."""
    levels = (
        EcmLevel("L1", math.inf, math.inf),
        EcmLevel("memory", 1.0, 1.0, limit_B, limit_B),
    )
    return Ecm(levels, Overlap("max", ("L1", "memory")), 1.0, cores, domains)


@pytest.mark.parametrize(
    ("domains", "limit_B", "saturating", "limited", "linear"),
    [
        # The paper's form exceeds the limit at N_s.
        (1, 2.5, 3, [1, 2, 2.5, 2.5], [1, 2, 3, 3]),
        # Three cores just reach this limit.
        (1, 3.0, 3, [1, 2, 3, 3], [1, 2, 3, 3]),
        (2, 4.5, None, [*range(1, 9)], [*range(1, 9)]),
        (3, 2.0, 2, [1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6], [1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6]),
    ],
)
def test_cores_scale_to_the_limit_and_domains_add(domains, limit_B, saturating, limited, linear):
    line = {"L1": Transfer(64.0, 0.0), "memory": Transfer(64.0, 0.0)}
    predicted = simple(cores=4, domains=domains, limit_B=limit_B).predict(line)
    assert predicted.limit == pytest.approx(64 / limit_B)
    assert predicted.saturating_cores == saturating
    for scaling, rates in (("limited", limited), ("linear", linear)):
        found = [predicted.bandwidth_GBps(n, scaling) for n in range(1, 4 * domains + 1)]
        assert found == pytest.approx(rates)


def test_loads_and_stores_share_the_limit_of_a_domain():
    copy = {"L1": Transfer(64.0, 64.0), "memory": Transfer(128.0, 64.0)}
    assert simple(limit_B=3.0).predict(copy).limit == pytest.approx(192 / 3)


def test_the_triad_of_unlimited_transfers_is_unlimited():
    assert EcmLevel("memory", math.inf, math.inf, 2.0, 2.0).triad == (math.inf, 2.0)
    level = A64FX.model_of().levels[-1]
    assert level.triad == pytest.approx((213 / 2.2, 213 / 2.2))


def test_a_shared_cache_limits_as_well():
    # 12 cores with 64 bytes per cycle each share the 512 bytes per cycle of L2.
    predicted = A64FX.model_of().predict(transfers_of("loops.load"), at="L2")
    assert predicted.limits == {"L1": 0.0, "L2": 64 / 512}
    assert predicted.saturating_cores == 12
    assert predicted.bandwidth_GBps(12) == pytest.approx(512 * 2.2)


GOOD, NOTHING = (dict.fromkeys(LEVELS, Transfer(bytes_B, 0.0)) for bytes_B in (64.0, 0.0))
TWO_CACHES = (EcmLevel("L1", 1.0, 1.0), EcmLevel("L2", 1.0, 1.0))


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: A64FX.model_of().predict(GOOD, at="L3"), "^at 'L3' is not one of L1, L2, memory"),
        (lambda: A64FX.model_of().predict({"L1": Transfer(1.0, 1.0)}), "the transfers have no L2"),
        (lambda: A64FX.model_of().predict(GOOD, -1.0), "^core must be a finite number of at least"),
        (lambda: A64FX.model_of().predict({**GOOD, "L2": Transfer(-1.0, 0.0)}), "loads of L2"),
        (lambda: A64FX.model_of().predict(NOTHING), "takes no time"),
        (lambda: EcmLevel("L1", 0.0, 1.0), "load_B of L1 must be positive"),
        (lambda: A64FX.model_of(memory_rate="one"), "memory_rate 'one' is not one of apart, com"),
        (lambda: Ecm(TWO_CACHES, Overlap.parse("L1 + L2"), 1.0), "then memory"),
        (lambda: simple(domains=3).predict(GOOD).bandwidth_GBps(13), "cores must be at most 12"),
        (lambda: simple().predict(GOOD).cycles_of(1, "naive"), "scaling"),
        (lambda: store_GBps(100, 200), "too slow for a triad"),
        (lambda: store_GBps(0, 200), "load_GBps must be positive"),
        (lambda: crs_row_cycles(0, 8, 9, 49), "nonzeros must be at least 1"),
        (lambda: sell_column_cycles(8, 8, -1, 6), "fma_latency"),
        (lambda: StencilConditions(0, 10), "rows must be at least 1"),
        (lambda: StencilConditions(10, 10, write_factor=3), "write_factor"),
        (lambda: StencilConditions(10, 10).holds(0), "cache_B must be positive"),
        (lambda: StencilConditions(10, 10).transfers(LEVELS, []), "the size of L1 is not known"),
    ],
)
def test_numbers_out_of_range_are_refused(call, match):
    with refused(match):
        call()


def test_a_loop_without_transfers_takes_the_time_of_its_core():
    assert A64FX.model_of().predict(NOTHING, 3.0).cycles == 3


def test_non_temporal_stores_cross_two_boundaries():
    moved = Traffic(read=8.0, write=8.0).transfers(("L1", "L2", "L3", "memory"), bypass=True)
    assert moved == {
        "L1": (8, 8),
        "L2": (8, 0),
        "L3": (8, 0),
        "memory": (8, 8),
    }
    ordinary = mk.case("loops.copy", elements=1024, variant="simd", threads=1)
    assert ordinary.transfers(LEVELS)["L2"] == (16, 8)
    assert ordinary.with_(variant="nt").transfers(LEVELS)["L2"] == (8, 0)


def reads_per_point(rows, columns, held):
    """Return the number of values per point fetched by an LRU cache for `held` values."""
    cache: OrderedDict[int, None] = OrderedDict()
    fetched = 0
    for at in range(columns, (rows - 1) * columns):
        for there in (at - columns, at - 1, at, at + 1, at + columns):
            fetched += there not in cache
            cache[there] = None
            cache.move_to_end(there)
            if len(cache) > held:
                cache.popitem(last=False)
    return fetched / ((rows - 2) * columns)


@pytest.mark.parametrize("columns", [20, 50])
def test_the_stencil_against_a_simulated_cache(columns):
    conditions = StencilConditions(40, columns)
    enough, little = 6 * columns, columns
    assert conditions.holds(8 * enough)
    assert not conditions.holds(8 * enough - 1)
    for held, reads in ((enough, 1), (little, 3)):
        moved = conditions.transfer(8 * held)
        assert moved == (8 * (reads + 1), 8)
        # The first and the last row are read as well.
        assert reads_per_point(40, columns, held) == pytest.approx(reads, rel=0.06)


def test_threads_share_the_room_for_rows():
    alone, both = StencilConditions(1000, 100), StencilConditions(1000, 100, threads=2)
    cache_B = 6 * 100 * 8
    assert alone.holds(cache_B, sharing=2)  # the other thread does not exist
    assert both.holds(cache_B)
    assert not both.holds(2 * cache_B - 1, sharing=2)
    assert both.holds(2 * cache_B, sharing=2)
    # Each thread also reads a row at either end of its part.
    assert both.transfer(cache_B).load_B == pytest.approx(8 * (1 + 2 / 500) + 8)
    assert StencilConditions(9, 9, write_factor=1).transfer(2**20) == (8, 8)
