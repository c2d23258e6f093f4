"""The changed cases of the experiments on chases."""

import numpy as np
import pytest
from changed_cases import LEVELS, changed, footprint_B

import memkern as mk

BY_PAGE, WALKS = "a few lines of a page at a time", "the same without page walks"
CHAINS, QUIET = "32 chains", "hardly any traffic"
OWN = {BY_PAGE, WALKS, CHAINS, QUIET}
SIZE_B = 2**20


def own(case):
    """Return the changed cases of the family's own experiments and of the levels."""
    found = changed(case, footprint_B=footprint_B(case), requested=False)
    known = {name: one for name, one in found.items() if name in OWN | LEVELS}
    return {name: one for name, one in known.items() if one.identity() != case.identity()}


@pytest.mark.parametrize(
    "case, names",
    [
        (mk.latency(SIZE_B), {BY_PAGE, WALKS, CHAINS}),
        (mk.latency(SIZE_B, threads=2, chains=4), {BY_PAGE, WALKS, CHAINS}),
        (mk.latency(SIZE_B, order="sequential"), {CHAINS}),
        (mk.latency(SIZE_B, order=np.arange(2**12)[::-1]), {CHAINS}),
        (
            mk.case("latency.loaded", size_B=SIZE_B, traffic_B=2**16, threads=2),
            {BY_PAGE, WALKS, QUIET},
        ),
    ],
)
def test_changed_cases_are_valid(case, names):
    found = own(case)
    assert found.keys() == names | LEVELS
    for one in found.values():
        assert mk.measure(one.with_(runs=3, pages="default")).valid


def test_a_pair_of_cores_has_no_changed_case():
    assert not own(mk.case("latency.ping_pong"))


def test_lines_in_a_cache_keep_their_order():
    case = mk.latency(SIZE_B)
    one = own(case)["data in L2"]
    lines = 2**14 // case.integers["line_B"]
    order = case.indices["order"]
    assert one.indices["order"].tolist() == order[order < lines].tolist()
    assert (one.columns["size_B"], one.columns["lines"]) == (2**14, lines)
    assert one.integers["steps"] == case.integers["steps"]


def test_a_few_lines_of_a_page_follow_each_other():
    case = mk.latency(SIZE_B)
    found = own(case)
    order = found[BY_PAGE].indices["order"]
    assert sorted(order) == sorted(case.indices["order"])
    pages = (order * case.integers["line_B"] // 4096).reshape(-1, 8)
    assert (pages == pages[:, :1]).all()
    assert (pages[1:, 0] != pages[:-1, 0]).all()
    assert found[WALKS].knobs.pages == "thp"
    assert found[WALKS].indices["order"].tolist() == order.tolist()


def test_more_chains_make_as_many_loads_each():
    case = mk.latency(SIZE_B)
    one = own(case)[CHAINS]
    assert (one.integers["chains"], one.template_variant) == (32, "32")
    assert one.bytes_model_B == 32 * case.bytes_model_B
