"""Plateaus of curves over sizes, against curves whose levels are known."""

import numpy as np
import pytest
from checking import refused

from memkern.models.structure import plateaus

SIZES = 2.0 ** np.arange(12, 29, 0.25)
# Capacities and latencies of a hierarchy; the last level has no end.
LEVELS = [(48 * 2**10, 1.0), (2**20, 4.0), (2**25, 15.0), (np.inf, 120.0)]


def curve(noise=0.0, seed=0):
    """Return latencies that rise within a third of an octave around each capacity."""
    values = np.empty(len(SIZES))
    rng = np.random.default_rng(seed)
    for k, size in enumerate(SIZES):
        level = next(n for n, (end, _) in enumerate(LEVELS) if size <= end)
        values[k] = LEVELS[level][1]
        if level and size < 1.25 * LEVELS[level - 1][0]:
            values[k] = np.sqrt(values[k] * LEVELS[level - 1][1])
    return values * np.exp(noise * rng.standard_normal(len(SIZES)))


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("seed", range(5))
def test_levels_are_found_with_their_capacities(noise, seed):
    found = plateaus(SIZES, curve(noise, seed))
    assert [p.value for p in found] == pytest.approx([ns for _, ns in LEVELS], rel=0.1)
    for plateau, following, (capacity_B, _) in zip(found, found[1:], LEVELS, strict=False):
        assert plateau.end_B <= capacity_B < following.begin_B
        assert following.begin_B / plateau.end_B <= 2
    assert found[0].begin_B == SIZES[0] and found[-1].end_B == SIZES[-1]


def test_order_does_not_matter():
    shuffled = np.random.default_rng(1).permutation(len(SIZES))
    assert plateaus(SIZES[shuffled], curve()[shuffled]) == plateaus(SIZES, curve())


def test_a_slow_rise_is_one_plateau_and_a_steep_one_none():
    slow = plateaus(SIZES, 100 * (SIZES / SIZES[0]) ** 0.01)
    assert len(slow) == 1
    assert plateaus(SIZES, SIZES) == []
    assert plateaus([], []) == []


@pytest.mark.parametrize(
    "sizes, values, problem",
    [
        ([1.0, 2.0], [1.0], "as many"),
        ([1.0, 2.0], [1.0, -1.0], "positive"),
        ([0.0, 2.0], [1.0, 1.0], "positive"),
        ([1.0, 2.0], [1.0, np.nan], "positive"),
    ],
)
def test_wrong_curves_are_refused(sizes, values, problem):
    with refused(problem):
        plateaus(sizes, values)
