"""Cases: identity, refused inputs, and kernels applied to values of the caller."""

from typing import Any

import numpy as np
import pytest
from checking import refused

import memkern as mk
from memkern.errors import InputError
from memkern.families.spatter import kernels as spatter
from memkern.spec.case import Case


@pytest.fixture
def case() -> Case:
    return mk.gather("UNIFORM:8:4:NR", count=512, threads=1, variant="scalar", budget_s=0.2)


def test_apply_runs_the_measured_kernel_on_the_callers_values() -> None:
    case = mk.gather([3, 1, 2, 2], delta=4, count=3, wrap=3, threads=1)
    source = np.arange(12, dtype=np.float64) * 1.5
    out = case.apply(sparse=source)
    np.testing.assert_array_equal(
        out["dense"], [4.5, 1.5, 3, 3, 10.5, 7.5, 9, 9, 16.5, 13.5, 15, 15]
    )
    np.testing.assert_array_equal(out["sparse"], source)


def test_the_identity_depends_on_inputs_and_options_alone(case):
    assert case.identity() == case.with_(name="other").identity()
    changes: list[dict[str, Any]] = [
        {"threads": 2}, {"pages": "4k"}, {"variant": "auto"}, {"dtype": "float32"},
        {"index_dtype": "int32"}, {"runs": 3}, {"prefetch": 1}, {"chunk": 8}, {"invocations": 7},
        {"repetition": "free"}, {"flush": True}, {"schedule": "dynamic"}, {"pin": "compact"},
    ]  # fmt: skip
    seen = {case.identity()} | {case.with_(**change).identity() for change in changes}
    assert len(seen) == len(changes) + 1
    for longer in ({"ci": 0.5}, {"budget_s": 9.0}, {"placements": 7}, {"max_samples": 9}):
        assert case.with_(**longer).identity() == case.identity()
    other = mk.gather([0, 4, 8, 12, 16, 20, 24, 29], delta=32, count=512)
    same = mk.gather([0, 4, 8, 12, 16, 20, 24, 28], delta=32, count=512)
    assert other.identity() != same.identity()
    with pytest.raises(InputError, match="no knob 'colour'"):
        case.with_(colour="red")


GATHER = mk.gather([3, 1, 2, 2], delta=4, count=3, threads=1)
COPY = mk.stream("copy", elements=3, threads=1)
MASKED = np.ma.masked_array([0, 1, 2], mask=[False, True, False])


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: mk.gather([0, 1], dtype="float16"), "dtype"),
        (lambda: mk.gather([0, 1], index_dtype="int16"), "index_dtype"),
        (lambda: mk.gather([0, 1], delta=2**59, count=2**40), r"2\*\*60"),
        (lambda: mk.gather([0, 1], delta=[]), "delta"),
        (lambda: mk.gather([0, 1], delta=[1.5]), "delta"),
        (lambda: mk.gather(MASKED), "has masked values"),
        (lambda: spatter.case("gs", pattern_gather=[0, 1]), "needs pattern_scatter"),
        (lambda: spatter.case("scan", pattern=[0]), "'scan'"),
        (lambda: mk.gs([0, 1], [0, 1, 2]).prepare(), "as many of both"),
        (lambda: mk.multigather([0, 1], [2]).measure(), "outside"),
        (lambda: GATHER.apply(sparse=np.zeros(11)), "shape"),
        (lambda: GATHER.apply(sparse=np.zeros(12, dtype=np.float32)), "float64"),
        (lambda: GATHER.apply(sparse=np.zeros(24)[::2]), "contiguous"),
        (lambda: GATHER.apply(nothing=np.zeros(12)), "nothing"),
        (lambda: mk.apply(COPY, a=MASKED.astype(np.float64)), "array 'a' has masked values"),
        (lambda: COPY.prepare().run(1.5), r"invocations must be an integer, not 1\.5"),
    ],
)
def test_wrong_values_are_refused(call, match):
    with refused(match):
        call()
