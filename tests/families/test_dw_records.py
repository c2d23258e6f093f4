"""Records of the domain-wall kernel: traffic by layer condition, rooflines, the chosen variant."""

import math
from typing import Any

import pytest
from checking import NEEDS_STREAMED, assert_share_of_memory
from dw_cases import fixed

import memkern as mk
from memkern.families.dw import kernels as family
from memkern.inputs import lattice
from memkern.models.layer_conditions import LayerConditions

pytestmark = pytest.mark.usefixtures("ceilings")


@pytest.mark.parametrize("parity", lattice.PARITIES)
@pytest.mark.parametrize(
    "way, columns",
    [
        ({"layout": "RRII", "vector": 128, "cut": "t"}, ("RRII", "t2", 2, 128)),
        ({"layout": "RIRI", "vector": 128}, ("RIRI", "s", 1, 128)),
        ({"layout": "RRII", "vector": 128, "dtype": "float32", "cut": "zt"},
         ("RRII", "z2 t2", 4, 128)),
        ({"layout": "lexicographic"}, ("lexicographic", "", 1, 64)),
    ],
)  # fmt: skip
def test_the_record_of_a_hop(way, columns, parity):
    extents, ls = (2, 6, 4, 8), 3
    how = fixed(parity=parity, runs=5, prefetch=2, name="mine", **way)
    measured = mk.dw.measure(extents, ls=ls, **how)
    record = measured.record
    assert measured.valid
    assert (record["kernel"], record["name"]) == ("dw.hop", "mine")
    assert (record["lattice"], record["Ls"], record["parity"]) == ("2x6x4x8", ls, parity)
    names = ("layout", "cut", "partitions", "vector_bits")
    assert tuple(record[name] for name in names) == columns
    assert (record["order"], record["block"], record["share_planes"]) == ("tzyx", "", False)
    assert (record["prefetch"], record["prefetch_into"]) == (2, "L2")
    assert (record["dtype"], record["index_dtype"]) == (way.get("dtype", "float64"), "")
    # Each site and s takes 1320 flops.
    updates = math.prod(extents) * ls // (1 if parity == "full" else 2)
    flops = 1320 * updates
    assert record["performance_GFLOPs"] == pytest.approx(flops / record["time_min_s"] / 1e9)
    model = family.model_of(mk.dw.case(extents, ls=ls, **how))
    caches = measured.environment["machine"]["caches"]
    if caches:
        moved_B = record["memory_load_B"] + record["memory_store_B"]
        assert moved_B / updates == pytest.approx(model.levels(caches)[-1]["site_B"])
        names = [str(cache["cache"]) for cache in model.levels(caches)]
        assert [part.split()[0] for part in record["conditions"].split(", ")] == names


def test_the_model_follows_order_and_shared_planes():
    def model(extents: Any, **way: Any) -> LayerConditions:
        return family.model_of(mk.dw.case(extents, layout="lexicographic", **way))

    turned = model((4, 6, 8, 10), order="xyzt", threads=2)
    assert turned == model((10, 8, 6, 4), threads=2)
    assert model((4, 6, 8, 10), order="xtzy").extents == (6, 8, 10, 4)
    apart, together = (model((4, 4, 4, 8), threads=2, share_planes=s) for s in (False, True))
    assert (apart.threads, together.threads) == (2, 1)
    # Two workers that share planes use a shared cache like one worker.
    assert together.holds(2**20, 2) == model((4, 4, 4, 8), threads=1).holds(2**20, 2)


@pytest.mark.parametrize(
    "way, site_B",
    [
        ({"layout": "lexicographic"}, {"none": 3072, "s": 2064, "all": 0}),
        ({"layout": "RRII", "cut": "s", "vector": 128}, {"none": 2496, "s": 2064, "all": 0}),
        ({"layout": "RRII", "cut": "t", "vector": 128}, {"none": 3072, "s": 2064, "all": 0}),
        pytest.param(
            {"layout": "RIRI", "cut": "t", "vector": 128, "variant": "nt", "dtype": "float32"},
            {"none": 1440, "s": 936, "all": 96}, marks=NEEDS_STREAMED),
    ],
)  # fmt: skip
def test_the_traffic_is_that_of_the_layer_condition(way, site_B):
    case = mk.dw.case((8, 8, 8, 8), ls=8, threads=1, **way)
    model = family.model_of(case)
    assert isinstance(model, LayerConditions)
    limit = model.conditions()["s"]
    updates = case.spec.counts.width(case)
    for condition, size_B in (("none", limit / 2), ("s", limit * 1.01), ("all", 2**40)):
        assert model.holds(size_B) == condition
        cache = {"level": 2, "type": "unified", "size_B": int(size_B), "shared_by": 1}
        moved = case.transfers(("L2", "memory"), [cache])["memory"]
        assert sum(moved) == pytest.approx(updates * site_B[condition])


def test_the_traffic_is_that_with_blocks():
    plain = mk.dw.case((4, 4, 8, 8), order="tzyx", threads=1, layout="lexicographic")
    blocked = mk.dw.case((4, 4, 8, 8), block=(0, 0, 4, 0), threads=1, layout="lexicographic")
    model = family.model_of(blocked)
    assert model.blocks == (0, 0, 4, 0)
    cache = {"level": 2, "size_B": int(1.2 * model.conditions()["t"]), "shared_by": 1}
    assert plain.spec.model.conditions is not None
    assert plain.spec.model.conditions(plain, [cache]) == {"L2": "z"}
    assert plain.spec.model.conditions(blocked, [cache]) == {"L2": "t"}
    # Two more spinors are read at the ends of a block of four z, and at the ends of eight t.
    moved = blocked.transfers(("L2", "memory"), [cache])["memory"]
    assert moved.load_B == pytest.approx(8 * (9 + 12 * (1 + 2 / 4 + 2 / 8) + 12) * 16)
    # The model's blocks have the order of the loops, from the outermost on.
    turned = mk.dw.case((4, 8, 4, 8), order="tyzx", block=(0, 4, 0, 0), layout="lexicographic")
    assert family.model_of(turned).blocks == (0, 0, 4, 0)


@NEEDS_STREAMED
def test_a_record_has_the_roofline_of_its_traffic():
    record = mk.dw.measure((4, 4, 4, 4), ls=8, threads=1, variant="nt", runs=3).record
    moved_s = record["memory_load_B"] / 20e9 + record["memory_store_B"] / 10e9
    assert record["memory_store_B"] == 4**4 * 8 * 192
    assert record["roofline_s"] == pytest.approx(moved_s)
    assert_share_of_memory(record, moved_s)
    assert record["roofline_GFLOPs"] == pytest.approx(1320 * 4**4 * 8 / moved_s / 1e9)
    assert record["machine_file"] == "measured beside"
    # Nothing comes from memory.
    record = mk.dw.measure((4, 4, 4, 4), ls=8, threads=1, variant="simd", runs=3).record
    assert record["memory_load_B"] == 0
    assert math.isnan(record["roofline_s"])
    assert (record["bound"], record["machine_file"]) == ("", "")


def test_the_best_variant_is_tried_and_named():
    record = mk.dw.measure((4, 4, 4, 4), ls=8, threads=1, runs=3).record
    assert record["variant_requested"] == "best"
    assert record["variant"] in ("simd", "nt")
    record = mk.dw.measure((3, 3, 3, 3), ls=3, threads=1, runs=3).record
    assert record["layout"] == "lexicographic"
    assert record["variant"] == "scalar"
