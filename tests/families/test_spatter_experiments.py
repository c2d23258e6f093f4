"""The changed cases of the experiments on gathers and scatters."""

import numpy as np
import pytest
from changed_cases import CACHES, changed, footprint_B

import memkern as mk
from memkern.families.spatter.experiments import unit

RANDOM = np.random.default_rng(0).integers(0, 2**16, 2**13)
CASES = {
    "gather": lambda **how: mk.gather(RANDOM, count=1, **how),
    "strided gather": lambda **how: mk.gather("UNIFORM:8:8", delta=64, count=2**13, **how),
    "scatter": lambda **how: mk.scatter("UNIFORM:8:4", delta=[32, 8], count=2**12, wrap=4, **how),
    "gs": lambda **how: mk.gs("UNIFORM:8:2", "UNIFORM:8:1", count=2**13, **how),
    "multigather": lambda **how: mk.case(
        "multigather", pattern=RANDOM.tolist(), pattern_gather=[5, 3, 1, 0], count=2**13, **how
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_changed_cases_are_measured(name):
    case = CASES[name](threads=1)
    found = changed(case)
    assert {"all indices in one line", "data in L1"} <= found.keys()
    # The other patterns ascend.
    assert ("indices in ascending order" in found) == (name in ("gather", "multigather"))
    for one in found.values():
        if not one.spec.name.startswith("spatter"):
            continue
        result = mk.measure(one.with_(runs=2, pages="default"))
        assert result.valid, one
        assert one.columns["pattern_length"] * one.columns["count"] == unit(one)[1]


@pytest.mark.parametrize("name", CASES)
def test_data_fit_in_the_caches(name):
    found = changed(CASES[name](threads=1))
    for cache, share in CACHES.items():
        assert footprint_B(found[f"data in {cache}"]) <= 0.75 * share.size_B


def test_order_line_and_neighbours_have_the_same_number_of_elements():
    case = CASES["gather"](threads=1)
    found = changed(case)
    ascending = found["indices in ascending order"].indices["pattern_gather"]
    assert ascending.tolist() == sorted(RANDOM.tolist())
    line = found["all indices in one line"]
    assert line.indices["pattern_gather"].tolist() == (RANDOM % 8).tolist()
    assert line.indices["delta_gather"].tolist() == [0]
    neighbours = found["neighbouring elements"].indices["pattern_gather"]
    assert neighbours.tolist() == list(range(len(RANDOM)))
    assert {one.bytes_B for one in (case, line, found["neighbouring elements"])} == {case.bytes_B}


def test_an_inner_list_becomes_part_of_the_outer_one():
    found = changed(CASES["multigather"](threads=1))
    ascending = found["indices in ascending order"].indices
    assert ascending["pattern"].tolist() == sorted(RANDOM[[5, 3, 1, 0]].tolist())
    assert ascending["pattern_gather"].tolist() == [0, 1, 2, 3]


def test_threads_do_not_store_to_one_line():
    assert "all indices in one line" not in changed(CASES["scatter"](threads=2))
    assert "all indices in one line" in changed(CASES["gather"](threads=2))
