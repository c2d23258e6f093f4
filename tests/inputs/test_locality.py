"""Patterns by distance of reuse, models of indices, and stencils."""

import itertools

import numpy as np
import pytest
from checking import refused
from hypothesis import given
from hypothesis import strategies as st

from memkern.inputs.patterns import (
    laplacian,
    model,
    model_error,
    parse,
    reuse,
    reuse_distances,
    stencil,
)

RNG = np.random.default_rng(1)
# Different kinds of locality, of about 20,000 accesses.
KINDS = {
    "random": RNG.integers(0, 1000, 20000),
    "cyclic": np.arange(20000) % 512,
    "with gaps": np.cumsum(RNG.choice([1, 1, 1, 1, 17], 20000)),
    "stencil": (np.arange(5000)[:, np.newaxis] + [0, 1, 2, 100]).ravel(),
    "skewed": RNG.zipf(1.5, 20000) % 5000,
}


def by_stack(elements):
    """Return distances of reuse by their definition: places in a stack."""
    stack, found = [], []
    for element in elements:
        found.append(stack.index(element) if element in stack else -1)
        if element in stack:
            stack.remove(element)
        stack.insert(0, element)
    return found


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80))
def test_distances_of_reuse_are_places_in_a_stack(elements):
    assert reuse_distances(elements).tolist() == by_stack(elements)


@pytest.mark.parametrize("text", ["REUSE:300:0", "reuse:300:7,7,63:8:5", "REUSE:4096:1,500:2"])
def test_accesses_have_the_given_distances(text):
    pattern = parse(text)
    distances = [int(one) for one in text.split(":")[2].split(",")]
    stride = int([*text.split(":"), "1"][3])
    assert set(reuse_distances(pattern.indices)) <= {-1, *distances}
    assert pattern.delta == 0 and not np.any(pattern.indices % stride)
    assert pattern.indices.max() <= max(distances) * stride
    assert pattern == parse(pattern.name)


def test_a_distance_is_as_frequent_as_it_is_named():
    found = reuse_distances(reuse(40000, [3, 3, 3, 60], seed=2).indices)
    assert np.mean(found == 3) == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_has_the_reuse_and_the_elements_of_what_it_resembles(kind):
    indices = KINDS[kind]
    found = model(len(indices), indices, seed=3)
    assert model_error(indices, found) < 0.02
    assert len(np.unique(found)) == len(np.unique(indices))
    lines = [len(np.unique(one // 8)) for one in (indices - indices.min(), found.indices)]
    assert lines[1] == pytest.approx(lines[0], rel=0.4)
    assert not np.array_equal(found, model(len(indices), indices, seed=4)) or kind == "cyclic"


def test_a_model_may_be_longer_than_what_it_resembles():
    # Steps of both directions.
    found = model(3000, KINDS["random"][:1000], seed=1)
    assert len(found) == 3000 and found.indices.min() == 0
    given = np.unique(KINDS["random"][:1000])
    assert len(np.unique(found)) == pytest.approx(3 * len(given), rel=0.01)


def test_errors_of_models_are_differences_of_hits():
    # Half of the accesses are hits in a cache of one element, none and all beside them.
    half = [0, 0, 1, 1, 2, 2]
    assert model_error(half, half) == 0.0
    assert model_error(half, [0, 1, 2, 3]) == 0.5
    assert model_error([0] * 1000, [*range(1000)]) == pytest.approx(0.999)
    # Both have hits, but of other distances.
    assert model_error([0, 0], [0, 1, 0, 1]) == 0.5


def test_a_file_is_imitated(tmp_path):
    file = tmp_path / "indices.npy"
    np.save(file, KINDS["stencil"])
    pattern = parse(f"MODEL:3000:{file}:7")
    assert pattern.name == "MODEL:3000:indices.npy:7" and len(pattern) == 3000
    assert pattern == model(3000, KINDS["stencil"], 7, "indices.npy")


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("sizes", [[40], [40, 30], [40, 30, 20]])
def test_stencils_are_the_neighbours_of_a_point(order, sizes):
    strides = np.cumprod([1, *sizes[:-1]])
    for shape, most in {"star": 1, "planes": 2, "box": 3}.items():
        wanted = [
            int(strides @ steps)
            for steps in itertools.product(range(-order, order + 1), repeat=len(sizes))
            if np.count_nonzero(steps) <= most
        ]
        found = stencil(shape, order, sizes)
        assert found.indices.tolist() == sorted(np.subtract(wanted, min(wanted)).tolist())
        assert parse(found.name) == found and found.delta == 1
    cube = stencil("star", order, [20] * len(sizes))
    assert np.array_equal(cube.indices, laplacian(len(sizes), order, 20).indices)


@pytest.mark.parametrize(
    "text, culprit",
    [
        ("REUSE:8", "its form must be REUSE:length:distances"),
        ("REUSE:0:4", "length"),
        ("REUSE:8:-1", "distance 0"),
        ("REUSE:8:4:0", "stride"),
        ("REUSE:8:4:1:-1", "seed"),
        ("REUSE:8:1000000000000", "at most"),
        ("MODEL:8:none.npy", "none.npy"),
        ("STENCIL:ring:1:8,8", "shape"),
        ("STENCIL:star:0:8", "order"),
        ("STENCIL:box:9:8,8,8,8,8,8,8,8", "at most"),
        ("STENCIL:star:1:8,0", "size 1"),
        ("STENCIL:star:4:9223372036854775807,2", "at most"),
    ],
)
def test_wrong_parameters_are_named(text, culprit):
    with refused(culprit):
        parse(text)


def test_a_model_needs_two_indices():
    with refused("at least two indices"):
        model(8, [3])
