"""The changed cases of the experiments on atomic operations."""

import numpy as np
import pytest
from changed_cases import CACHES, LEVELS, changed, footprint_B

import memkern as mk
from memkern.machine.caches import MEMORY

PADDED, PRIVATE = "words 128 bytes apart", "private words"
APART = f"{PRIVATE} 128 bytes apart"
ONE, PLAIN = "one thread", "loads and stores that are not atomic"
SORTED = "indices in ascending order"
OWN = {PADDED, PRIVATE, APART, ONE, PLAIN, SORTED}
INDICES = np.arange(2**13, -1, -1) % 2**13


def own(case, level="L2", **facts):
    """Return the changed cases of the family's own experiments and of the levels."""
    size_B = footprint_B(case)
    facts = {"variants": ("scalar",), "requested": False, "footprint_B": size_B} | facts
    found = changed(case, level=level, **facts)
    return {name: one for name, one in found.items() if name in OWN | LEVELS}


# By pattern, options and level of the data: the experiments that apply besides those of levels.
CASES = [
    ("central", {"threads": 2}, "L1", {APART, ONE}),
    ("central", {"threads": 2, "sharing": "private"}, "L1", {PADDED, APART, ONE}),
    ("central", {"threads": 2, "hot": 4}, "L1", {PADDED, APART, ONE}),
    ("central", {"threads": 2, "sharing": "private", "padding": 128}, "L1", {ONE, PLAIN}),
    ("central", {"threads": 1}, "L1", {PLAIN}),
    ("rand", {"threads": 2, "words": 2**4}, "L3", {PADDED, APART, ONE, SORTED}),
    ("rand", {"threads": 2}, "L3", {PRIVATE, ONE, SORTED}),
    ("rand", {"threads": 2}, MEMORY, {ONE, PLAIN, SORTED}),
    ("rand", {"threads": 1, "size_B": 2**19}, MEMORY, {PLAIN, SORTED}),
    ("rand", {"threads": 2, "indices": INDICES}, MEMORY, {PLAIN, SORTED}),
    ("ptrchase", {"threads": 2}, "L3", {PRIVATE, ONE}),
    ("ptrchase", {"threads": 1, "dtype": "uint32"}, MEMORY, {PLAIN}),
    ("sg", {"threads": 2, "primitive": "cas"}, "L3", {PRIVATE, ONE, SORTED}),
    ("scatter", {"threads": 1, "padding": 64}, MEMORY, {PLAIN, SORTED}),
    ("gather", {"threads": 2, "sharing": "private"}, "L3", {ONE, PLAIN, SORTED}),
    ("striden", {"threads": 2, "stride": 3, "sharing": "shared"}, "L3", {PRIVATE, ONE}),
    ("stride1", {"threads": 2}, "L3", {ONE, PLAIN}),
]


@pytest.mark.parametrize("pattern, options, level, names", CASES)
def test_changed_cases_are_valid(pattern, options, level, names):
    case = mk.amo(pattern, iters=2**12, **options)
    found = own(case, level)
    assert found.keys() - LEVELS == names
    for name, one in found.items():
        assert one.identity() != case.identity()
        assert mk.measure(one.with_(runs=3)).valid
        assert name in LEVELS or one.iterations == case.iterations
        plain = one.template_variant.startswith("plain/relaxed")
        assert plain if name == PLAIN else one.template_variant == case.template_variant


def test_data_fit_in_the_caches():
    for pattern in ("rand", "ptrchase", "scatter", "stride1"):
        found = own(mk.amo(pattern, iters=2**16, threads=1), MEMORY)
        for name, share in CACHES.items():
            size_B = footprint_B(found[f"data in {name}"])
            assert 0.25 * share.size_B < size_B <= 0.75 * share.size_B


def test_what_each_experiment_removes():
    case = mk.amo("central", iters=64, threads=2, hot=1)
    private = own(case)[APART].integers
    assert (private["shared"], private["hot"], private["stride"]) == (0, 2, 16)
    shared = mk.amo("central", iters=64, threads=2, hot=4)
    padded = own(shared)[PADDED].integers
    assert (padded["shared"], padded["hot"], padded["stride"]) == (1, 4, 16)
    assert own(shared)[ONE].integers["workers"] == own(shared)[ONE].knobs.threads == 1
    few = mk.amo("rand", iters=64, words=16, threads=2)
    assert {*own(few)[PADDED].indices["IDX"] % 16} == {0}
    alone = own(mk.amo("rand", primitive="cas", iters=64, threads=1))[PLAIN]
    assert alone.template_variant == "plain/relaxed/used"
    chase = mk.amo("ptrchase", iters=64, threads=2)
    assert own(chase)[ONE].indices["IDX"].tolist() == chase.indices["IDX"].tolist()
    # Each thread has its own indices in ascending order.
    case = mk.amo("rand", iters=64, threads=2)
    before, after = case.indices["IDX"], own(case)[SORTED].indices["IDX"]
    for part in (slice(0, 64), slice(64, 128), slice(128, 129)):
        assert after[part].tolist() == sorted(before[part])


def test_caches_may_be_unknown():
    assert own(mk.amo("central", iters=64, threads=2), caches={}).keys() == {PRIVATE, ONE}
