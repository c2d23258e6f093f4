"""Plateaus, reaches of TLBs and line sizes, from curves with known levels."""

import numpy as np
import pytest
from checking import refused

from memkern.models.structure import line_size, plateaus, tlb_levels

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


CYCLE_NS = 0.25
PAGES = np.array([round(16 * 2 ** (k / 4)) for k in range(53)])


def translation(reaches, costs, noise=0.0, seed=0):
    """Return costs in ns that rise to the next level at the first page beyond each reach."""
    level = np.searchsorted(reaches, PAGES)
    rng = np.random.default_rng(seed)
    # Beyond the last level, more pages make walks of the page table slower.
    slower = np.where(level == len(reaches), np.sqrt(PAGES / PAGES[0]) / 8, 1.0)
    return np.asarray(costs)[level] * slower + noise * rng.standard_normal(len(PAGES))


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "reaches, costs",
    [((96, 4096), (0.0, 1.7, 20.0)), ((64, 1536), (0.0, 2.2, 9.0)), ((48, 1280), (0.0, 1.3, 30.0))],
)
def test_tlbs_are_found_with_their_reaches(reaches, costs, noise, seed):
    found = tlb_levels(4096 * PAGES, translation(reaches, costs, noise, seed), CYCLE_NS)
    assert [level.value for level in found] == pytest.approx(costs[:2], abs=0.1)
    assert [level.end_B / 4096 for level in found] == [PAGES[r >= PAGES].max() for r in reaches]


def test_without_a_level_there_is_no_tlb():
    # Page table walks from the start, as if all TLBs had fewer than 16 entries.
    assert tlb_levels(4096 * PAGES, np.full(len(PAGES), 30.0), CYCLE_NS) == []
    assert tlb_levels(4096 * PAGES, 0.5 * PAGES, CYCLE_NS) == []
    assert tlb_levels([], [], CYCLE_NS) == []


def test_costs_around_zero_are_one_level_that_does_not_end():
    rng = np.random.default_rng(0)
    (level,) = tlb_levels(4096 * PAGES, 0.05 * rng.standard_normal(len(PAGES)), CYCLE_NS)
    assert level.end_B == 4096 * PAGES[-1] and level.value == pytest.approx(0, abs=0.05)


def test_a_level_after_walks_is_a_cache():
    costs = translation((96,), (0.0, 1.0))
    costs[PAGES > 96] = 25.0
    (level,) = tlb_levels(4096 * PAGES, costs, CYCLE_NS)
    assert level.end_B == 4096 * 91


DISTANCES = 2.0 ** np.arange(3, 11)


def longer(line_B, far=10.0, fetched=None, noise=0.0, seed=0):
    """Return the extra time of a second access; `fetched` is its time in the adjacent line."""
    times = np.where(line_B > DISTANCES, 0.0, far)
    if fetched is not None:
        times[line_B == DISTANCES] = fetched
    times += noise * np.random.default_rng(seed).standard_normal(len(times))
    return times - times[0]


@pytest.mark.parametrize("line_B", [16, 64, 128, 256])
@pytest.mark.parametrize("far", [2.5, 20.0, 60.0])
@pytest.mark.parametrize("noise, seed", [(0.0, 0), (0.1, 1), (0.1, 2), (0.1, 3)])
def test_lines_are_found(line_B, far, noise, seed):
    assert line_size(DISTANCES, longer(line_B, far, None, noise, seed), CYCLE_NS) == line_B


@pytest.mark.parametrize("line_B", [64, 128])
@pytest.mark.parametrize("far", [10.0, 40.0])
def test_a_line_that_comes_with_its_neighbour_into_l2_is_no_larger_line(line_B, far):
    assert line_size(DISTANCES, longer(line_B, far, fetched=2.5), CYCLE_NS) == line_B


def test_without_a_rise_no_line_is_found():
    assert np.isnan(line_size(DISTANCES, np.zeros(len(DISTANCES)), CYCLE_NS))
    # A single slow pair is no line.
    assert np.isnan(line_size(DISTANCES, np.where(DISTANCES == 32, 20.0, 0.0), CYCLE_NS))
    assert np.isnan(line_size(DISTANCES, np.full(len(DISTANCES), 9.0), CYCLE_NS))


@pytest.mark.parametrize(
    "structure, arguments, problem",
    [
        (plateaus, ([1.0, 2.0], [1.0]), "same length"),
        (plateaus, ([1.0, 2.0], [1.0, -1.0]), "positive"),
        (tlb_levels, ([4096.0], [1.0, 2.0], CYCLE_NS), "same length"),
        (tlb_levels, ([4096.0], [np.nan], CYCLE_NS), "positive"),
        (tlb_levels, ([4096.0], [1.0], 0.0), "cycle must be positive, not 0"),
        (line_size, ([8, 16, 32], [0.0, 1.0], CYCLE_NS), "the same length, not 3 and 2"),
        (line_size, ([8, 16], [0.0, 1.0], CYCLE_NS), "at least 3 distances in ascending order"),
        (line_size, ([8, 16, 32], [0.0, np.nan, 1.0], CYCLE_NS), "times must be finite"),
        (line_size, ([8, 16, 32], [0.0] * 3, -1.0), "cycle positive"),
    ],
)
def test_wrong_curves_are_refused(structure, arguments, problem):
    with refused(problem):
        structure(*arguments)
