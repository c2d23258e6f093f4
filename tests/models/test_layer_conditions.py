"""Layer conditions: the paper's numbers, and comparisons of predicted and simulated traffic."""

import math
from typing import Any

import pytest
from checking import PROPERTY, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from memkern.models.layer_conditions import (
    FLOPS,
    LayerConditions,
    StencilConditions,
    held_by,
    simulate,
)

CUBE = (24, 24, 24, 24)
RIRI: dict[str, Any] = {"layout": "RIRI", "cuts": (1, 1, 2, 2)}
RRII: dict[str, Any] = {"layout": "RRII", "cuts": (1, 2, 2, 2)}


@pytest.mark.parametrize("ls", [1, 8, 12])
def test_the_scalar_conditions(ls):
    x, y, z = 6, 10, 14
    extents = (x, y, z, 18)
    wanted = {
        "s": 2880,
        "x": 2 * ls * (72 / ls + 96 + 12) * 16,
        "y": 2 * ls * x * (72 / ls + 84 + 12) * 16,
        "z": 2 * ls * x * y * (72 / ls + 60 + 12) * 16,
        "t": 2 * ls * x * y * z * (72 / ls + 36 + 12) * 16,
    }
    assert LayerConditions(extents, ls).conditions() == pytest.approx(wanted)
    assert LayerConditions(extents, ls).paper_conditions() == pytest.approx(wanted)
    half = {name: size / 2 for name, size in wanted.items()}
    assert LayerConditions(extents, ls, value_B=4).conditions() == pytest.approx(half)
    # One parity halves the sites of rows, planes and volumes, but not the size of a site update.
    even = LayerConditions(extents, ls, parity="even").conditions()
    assert even == pytest.approx({**half, "s": 2880})


@pytest.mark.parametrize(
    "how, s_B, factors", [(RIRI, 11520, (8, 8, 8, 4)), (RRII, 23040, (16, 16, 8, 4))]
)
def test_vectors_of_512_bits(how, s_B, factors):
    general = LayerConditions(CUBE, 8, **how).conditions()
    paper = LayerConditions(CUBE, 8, **how).paper_conditions()
    scalar = LayerConditions(CUBE, 8).conditions()
    assert general["s"] == s_B
    assert paper["s"] == 11520
    for direction, factor in zip("xyzt", factors, strict=True):
        assert general[direction] == pytest.approx(factor / 2 * scalar[direction])
        assert paper[direction] == pytest.approx(factor / 2 * scalar[direction])


def test_cuts_in_x_and_s():
    scalar = LayerConditions(CUBE, 8)
    x = LayerConditions(CUBE, 8, cuts=(4, 1, 1, 1)).conditions()
    assert x == pytest.approx(scalar.conditions() | {"s": 4 * 2880, "x": 4 * 29952})
    s = LayerConditions(CUBE, 8, s_cut=4)
    # Sites of different s share their links.
    assert s.conditions() == scalar.conditions() | {"s": (72 + 4 * 108) * 16}
    assert s.site_B(1) == (18 + 96 + 24) * 16
    assert s.site_B(1e5) == scalar.site_B(1e5)


@pytest.mark.parametrize("w", [1, 2])
@pytest.mark.parametrize("value_B", [4, 8])
@pytest.mark.parametrize("how", [{}, RIRI, RRII, {"parity": "odd"}])
def test_bytes_of_a_site_update(w, value_B, how):
    model = LayerConditions(CUBE, 8, write_factor=w, value_B=value_B, **how)
    assert model.holds(1) == "none"
    assert model.site_B(1) == (72 + 96 + 12 * w) * 2 * value_B
    for condition, k in zip("sxyzt", (8, 7, 5, 3, 1), strict=True):
        limit_B = model.conditions()[condition]
        assert model.holds(1.001 * limit_B) == condition
        assert model.holds(limit_B) != condition
        assert model.site_B(1.001 * limit_B) == (72 / 8 + 12 * k + 12 * w) * 2 * value_B
    assert model.holds(math.inf) == "all"
    assert model.site_B(math.inf) == (24 * value_B if w == 1 else 0)


def test_a_cache_of_the_footprint_holds_the_whole_lattice():
    model = LayerConditions((8, 8, 8, 8), 8)
    assert model.footprint_B() == 8**4 * (72 + 2 * 12 * 8) * 16
    assert model.holds(model.footprint_B()) == "all"
    assert model.holds(model.footprint_B() - 1) == "t"
    assert LayerConditions((8, 8, 8, 8), 8, parity="odd").footprint_B() == model.footprint_B() / 2
    # Non-temporal stores bypass the caches.
    without = LayerConditions((8, 8, 8, 8), 8, write_factor=1)
    assert without.footprint_B() == 8**4 * (72 + 12 * 8) * 16


def test_roofline():
    model = LayerConditions(CUBE, 8)
    assert FLOPS == 1320
    assert model.updates == 24**4 * 8
    assert LayerConditions(CUBE, 8, parity="even", **RIRI).updates == 24**4 * 4
    limit_B = 1.001 * model.conditions()["t"]
    assert model.roofline_GFLOPs(60, limit_B) == pytest.approx(1320 / 720 * 60)
    assert model.roofline_GFLOPs(60, math.inf) == math.inf


@settings(PROPERTY, max_examples=60)
@given(
    st.tuples(*[st.integers(1, 12)] * 4),
    st.integers(1, 16),
    st.lists(st.floats(1, 1e10), min_size=2, max_size=2),
    st.integers(1, 4),
)
def test_larger_caches_never_move_more(extents, ls, caches, threads):
    model = LayerConditions(extents, ls, threads=min(threads, math.prod(extents)))
    small, large = sorted(caches)
    for sharing in (1, threads):
        assert model.site_B(large, sharing) <= model.site_B(small, sharing) + 1e-9


@pytest.mark.parametrize(
    "threads, sharing, slices",
    [
        (1, 1, 3),
        (24, 24, 1),
        (12, 12, 2),
        (8, 8, 3),
        (6, 6, 3),
        (16, 16, 3),
        (48, 48, 1),
        (24, 4, 6 / 4),
        (12, 4, 9 / 4),
        (8, 4, 3),
        (24, 1, 3),
    ],
)
def test_threads_share_slices(threads, sharing, slices):
    model = LayerConditions(CUBE, 8, threads=threads)
    for condition, rest in zip("xyz", (4, 2, 0), strict=True):
        assert model.spinors(condition, sharing) == pytest.approx(slices + rest)
    # Each of the threads that share slices needs less cache.
    room_B = 2 * 8 * 24**2 * (9 + 12 * (slices + 2) + 12) * 16
    assert model.conditions(sharing)["z"] == pytest.approx(room_B)
    cache_B = 1.001 * room_B * sharing
    assert model.shared_cache_B(cache_B, sharing) == pytest.approx(1.001 * room_B)
    assert model.holds(cache_B, sharing) == "z"
    assert model.site_B(cache_B, sharing) == pytest.approx((9 + 12 * slices + 24) * 16)


@pytest.mark.parametrize(
    "threads, sharing, k", [(1, 1, 1), (8, 1, 1 + 2 / 3), (8, 4, 1 + 2 / 12), (8, 8, 1), (24, 1, 3)]
)
def test_slices_at_the_ends_of_parts_are_counted(threads, sharing, k):
    model = LayerConditions(CUBE, 8, threads=threads)
    assert model.spinors("t", sharing) == pytest.approx(k)
    own = 24**4 / threads * (72 + 96 * (k + 1)) * 16
    assert model.footprint_B(sharing) == pytest.approx(own)


def test_sharing_is_limited_by_the_threads():
    model = LayerConditions(CUBE, threads=2)
    assert model.shared_cache_B(1e6, 48) == 5e5
    assert model.site_B(1e6, 48) == model.site_B(1e6, 2)


def test_neighbours_coincide_where_extents_are_small():
    assert LayerConditions((2, 8, 8, 8)).spinors("s") == 7
    assert LayerConditions((8, 8, 8, 2)).spinors("z") == 2
    assert LayerConditions((8, 8, 8, 1)).spinors("z") == 1
    assert LayerConditions((1, 1, 1, 1)).spinors("s") == 1


# Caches as recorded in an environment: four cores with two processing units each.
SMT: list[dict[str, Any]] = [
    {"level": 1, "type": "data", "size_B": 2**15, "shared_by": 2, "instances": 4},
    {"level": 1, "type": "instruction", "size_B": 2**15, "shared_by": 2, "instances": 4},
    {"level": 2, "type": "unified", "size_B": 2**20, "shared_by": 2, "instances": 4},
    {"level": 3, "type": "unified", "size_B": 2**25, "shared_by": 8, "instances": 1},
]
# Two cores with two processing units each, and four cores with one, which share L2.
HYBRID: list[dict[str, Any]] = [
    {"level": 1, "type": "data", "size_B": 48 * 2**10, "shared_by": 2, "instances": 2},
    {"level": 1, "type": "data", "size_B": 32 * 2**10, "shared_by": 1, "instances": 4},
    {"level": 2, "type": "unified", "size_B": 5 * 2**18, "shared_by": 2, "instances": 2},
    {"level": 2, "type": "unified", "size_B": 2 * 2**20, "shared_by": 4, "instances": 1},
    {"level": 3, "type": "unified", "size_B": 2**24, "shared_by": 8, "instances": 1},
]


@pytest.mark.parametrize(
    "caches, threads, workers",
    [
        (SMT, 1, [1, 1, 1]), (SMT, 4, [1, 1, 4]),
        # Some cores have two workers.
        (SMT, 5, [2, 2, 5]), (SMT, 8, [2, 2, 8]),
    ],
)  # fmt: skip
def test_each_core_has_a_worker_before_one_has_two(caches, threads, workers):
    rows = LayerConditions(CUBE, 8, threads=threads).levels(caches)
    assert [row["sharing"] for row in rows] == workers
    for row in rows:
        assert row["core_B"] == row["size_B"] / row["sharing"]
        layer_B = row["core_B"] / 2
        assert held_by(layer_B, row["cache"], caches, threads)
        assert not held_by(layer_B + 1, row["cache"], caches, threads)
        columns = int(layer_B) // 24
        for wider, held in ((0, "fits"), (1, "exceeds")):
            model = StencilConditions(100 * threads, columns + wider, threads=threads)
            below = {"L1": "L2", "L2": "L3", "L3": "memory"}[row["cache"]]
            moved = model.transfers((row["cache"], below), caches)[below]
            assert (moved.load_B == 4 * 8) == (held == "exceeds")


@pytest.mark.parametrize(
    "threads, sizes_KiB",
    [(1, [32, 1280, 16384]), (2, [32, 1024, 8192]), (6, [32, 512, 16384 / 6])],
)
def test_of_several_kinds_of_caches_the_smallest_share_counts(threads, sizes_KiB):
    for caches in (HYBRID, HYBRID[::-1]):
        rows = LayerConditions(CUBE, 8, threads=threads).levels(caches)
        assert [row["core_B"] / 2**10 for row in rows] == pytest.approx(sizes_KiB)
        for row in rows:
            assert held_by(row["core_B"] / 2, row["cache"], caches, threads)
            assert not held_by(row["core_B"] / 2 + 1, row["cache"], caches, threads)


def test_levels_are_those_of_a_machines_data_caches():
    model = LayerConditions(CUBE, 8, threads=2)
    caches = [
        {"level": 3, "type": "unified", "size_B": 36_000_000, "shared_by": 16, "instances": 1},
        {"level": 1, "type": "data", "size_B": 32768, "shared_by": 1},
        {"level": 1, "type": "instruction", "size_B": 32768, "shared_by": 1},
        {"level": 2, "type": "unified", "size_B": 1 << 20, "shared_by": None},
        {"level": 4, "type": "unified", "size_B": None},
    ]
    rows = model.levels(caches)
    assert [(row["cache"], row["sharing"], row["condition"]) for row in rows] == [
        ("L1", 1, "x"),
        ("L2", 1, "y"),
        ("L3", 2, "z"),
    ]


def test_a_cache_of_one_byte_reloads_everything():
    for w in (1, 2):
        assert simulate((4, 4, 4, 4), 2, 1, write_factor=w) == (72 / 2 + 96 + 12 * w) * 16


def test_a_cache_of_the_footprint_loads_nothing():
    model = LayerConditions((4, 4, 4, 4), 2)
    whole_B = model.footprint_B()
    assert simulate((4, 4, 4, 4), 2, whole_B) == 0
    assert simulate((4, 4, 4, 4), 2, whole_B, write_factor=1) == 12 * 16
    assert simulate((4, 4, 4, 4), 2, whole_B - 1) > 0


def test_the_simulation_of_three_sites_by_hand():
    # A site reads three spinors and 72 links; each result that enters the cache evicts another. The
    # cache holds three spinors and the links and result of one site, so that the spinors stay.
    room_B = (3 * 12 + 72 + 12) * 16
    assert simulate((3, 1, 1, 1), 1, room_B) == (72 + 24) * 16
    assert simulate((3, 1, 1, 1), 1, room_B, value_B=4) == (72 + 24) * 8


LATTICES: list[tuple[tuple[int, int, int, int], int, dict[str, Any]]] = [
    ((8, 8, 8, 8), 8, {}),
    ((12, 10, 8, 16), 4, {"write_factor": 1}),
    ((8, 8, 8, 8), 8, {"value_B": 4}),
    ((8, 8, 16, 12), 8, {"cuts": (1, 1, 2, 2)}),
    ((8, 16, 16, 12), 8, {"cuts": (1, 2, 2, 2)}),
    ((16, 8, 8, 8), 8, {"parity": "even"}),
]


@pytest.mark.parametrize("extents, ls, how", LATTICES)
@pytest.mark.parametrize("condition", "xyzt")
def test_one_thread_moves_what_is_predicted(extents, ls, how, condition):
    model = LayerConditions(extents, ls, **how)
    cache_B = 1.25 * model.conditions()[condition]
    assert model.holds(cache_B) == condition
    # Rows at the ends of planes are loaded once more.
    assert simulate(extents, ls, cache_B, **how) == pytest.approx(model.site_B(cache_B), rel=0.02)
    if condition == "x":
        below_B = 0.3 * model.conditions()[condition]
        got = simulate(extents, ls, below_B, **how)
        assert got == pytest.approx((72 / ls + 96 + 12 * model.write_factor) * 2 * model.value_B)


@pytest.mark.parametrize(
    "threads, sharing",
    [(16, 16), (4, 4), (32, 32), (64, 64), (16, 4), (4, 2), (4, 1), (32, 1)],
)
@pytest.mark.parametrize("condition", "xyz")
def test_threads_move_what_is_predicted(threads, sharing, condition):
    extents = (8, 8, 8, 16) if threads != 32 else (8, 8, 24, 16)
    model = LayerConditions(extents, 8, threads=threads)
    cache_B = 1.2 * model.conditions(sharing)[condition] * sharing
    got = simulate(extents, 8, cache_B, threads=threads, sharing=sharing)
    assert got == pytest.approx(model.site_B(cache_B, sharing), rel=0.015)


def test_threads_load_the_slices_at_the_ends_of_their_parts():
    extents = (4, 4, 4, 48)
    model = LayerConditions(extents, 8, threads=3)
    for sharing in (1, 2, 3):
        cache_B = 1.2 * model.conditions(sharing)["t"] * sharing
        assert model.holds(cache_B, sharing) == "t"
        got = simulate(extents, 8, cache_B, threads=3, sharing=sharing)
        assert got == pytest.approx(model.site_B(cache_B, sharing), rel=0.002)
        assert model.spinors("t", sharing) == pytest.approx(
            1 + {1: 1 / 8, 2: 1 / 16, 3: 0}[sharing]
        )


# Tested conditions: the next one must fail clearly, although layers of blocks are thin.
BLOCKED: list[tuple[tuple[int, int, int, int], tuple[int, int, int, int], str, dict[str, Any]]] = [
    ((8, 8, 16, 12), (0, 0, 4, 0), "xyzt", {}),
    ((8, 8, 16, 12), (0, 0, 6, 0), "zt", {}),  # the last block is smaller
    ((16, 16, 8, 8), (4, 4, 0, 0), "yzt", {}),
    ((8, 16, 12, 8), (0, 4, 0, 4), "xyz", {}),
    ((16, 16, 8, 8), (8, 8, 0, 0), "yt", {"write_factor": 1}),
    ((16, 16, 8, 8), (8, 8, 0, 0), "xz", {"parity": "even"}),
]


@pytest.mark.parametrize("extents, blocks, conditions, how", BLOCKED)
def test_blocks_move_what_is_predicted(extents, blocks, conditions, how):
    model = LayerConditions(extents, 8, blocks=blocks, **how)
    for condition in conditions:
        cache_B = 1.2 * model.conditions()[condition]
        assert model.holds(cache_B) == condition
        got = simulate(extents, 8, cache_B, blocks=blocks, **how)
        assert got == pytest.approx(model.site_B(cache_B), rel=0.015)
    # Blocks fulfil a condition in a smaller cache than the whole lattice, with some more spinors.
    whole = LayerConditions(extents, 8, **how)
    assert model.conditions()["t"] < whole.conditions()["t"]
    assert 1 < model.spinors("t") <= 3


def test_blocks_of_the_outermost_loop_alone_change_nothing():
    plain = LayerConditions((8, 8, 8, 8), 8)
    for blocks in ((0, 0, 0, 2), (8, 9, 0, 2)):
        model = LayerConditions((8, 8, 8, 8), 8, blocks=blocks)
        assert model.conditions() == plain.conditions() and model.spinors("t") == 1
        assert simulate((8, 8, 8, 8), 8, 3e6, blocks=blocks) == simulate((8, 8, 8, 8), 8, 3e6)


def test_loops_in_another_order_reuse_in_that_order():
    # Reversed extents with reversed loops are the same case, except for the order in which a site
    # reads its neighbours.
    got = simulate((12, 6, 8, 10), 4, 3e5, order="xyzt")
    assert got == pytest.approx(simulate((10, 8, 6, 12), 4, 3e5), rel=0.01)
    assert got != simulate((12, 6, 8, 10), 4, 3e5)


@pytest.mark.parametrize(
    "wrong, match",
    [
        ({"extents": (4, 4, 4)}, "extents must be four integers"),
        ({"extents": (4, 4, 4, 0)}, "extents in t must be at least 1, not 0"),
        ({"cuts": (1, 3, 1, 1)}, "the extent in y must be a multiple of 3, .* not 4"),
        ({"cuts": (1, 1, 1, 4), "parity": "odd"}, "the extent in t must be a multiple of 8"),
        ({"parity": "both"}, "parity must be full, even or odd, not 'both'"),
        ({"ls": 0}, "ls must be at least 1, not 0"),
        ({"blocks": (2, 2, 2)}, "blocks must be four integers"),
        ({"blocks": (2, 2, 2, -1)}, "blocks in t must be at least 0, not -1"),
    ],
)
def test_wrong_lattices_are_refused(wrong, match):
    given_ = {"extents": (4, 4, 4, 4), "ls": 8, **wrong}
    with refused(match):
        LayerConditions(**given_)
    with refused(match):
        simulate(cache_B=1e6, **given_)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: LayerConditions(CUBE, s_cut=3), "ls must be a multiple of s_cut = 3, not 8"),
        (lambda: LayerConditions(CUBE, write_factor=3), "write_factor must be 2 or 1, not 3"),
        (lambda: LayerConditions(CUBE, layout="IRIR"), "layout must be .* not 'IRIR'"),
        (lambda: LayerConditions((2, 2, 2, 2), threads=17), "the 16 computed sites, not 17"),
        (lambda: LayerConditions(CUBE).holds(0), "cache_B must be positive, not 0"),
        (lambda: LayerConditions(CUBE).site_B(1e6, 0), "sharing must be at least 1, not 0"),
        (lambda: LayerConditions(CUBE).roofline_GFLOPs(-1, 1e6), "bandwidth_GBps must be positive"),
        (lambda: LayerConditions(CUBE).spinors("w"), "condition must be one of none, s, x, y"),
        (lambda: simulate(CUBE, 8, math.nan), "cache_B must be positive, not nan"),
        (lambda: simulate(CUBE, 8, 1e6, order="tzy"), "order must be a permutation of tzyx"),
    ],
)
def test_wrong_numbers_are_refused(call, match):
    with refused(match):
        call()
