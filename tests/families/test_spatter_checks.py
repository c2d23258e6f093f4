"""Checks of gathers and scatters of long patterns, compared with searches of all accesses."""

from typing import Any

import numpy as np
import pytest
from checking import Changed, checked, corrupted

import memkern as mk
from memkern.families.spatter import checks, sides
from memkern.spec.case import Case
from memkern.spec.kernel import fill_values

RNG = np.random.default_rng(7)
LONG = 70_000  # more than a block of the checks


@pytest.mark.parametrize(
    ("index", "delta", "count"),
    [
        (RNG.integers(0, 1000, 5000), 0, 1),
        (RNG.integers(0, 400, 150), -7, 40),
        (np.array([0, 2**40, 5, 5]), 8, 3),
        (np.array([0]), 8, 1),
        (RNG.integers(0, 10**9, 500), 1000, 2),
        (RNG.integers(0, LONG, LONG), 5, 2),
    ],
    ids=["dense", "backwards", "far apart", "one", "sparse", "blocks"],
)
@pytest.mark.parametrize("partial", [False, True])
def test_distinct_lines(index, delta, count, partial):
    case = mk.scatter(index, delta=delta, count=count)
    side = sides.scatter_side(case)
    assert side is not None
    per_line = case.line_B // 8
    elements = np.unique(side.positions(np.arange(count)))
    _, number = np.unique(elements // per_line, return_counts=True)
    expected = len(number) if not partial else np.count_nonzero(number < per_line)
    assert sides._lines(case, side, partial) == expected


@pytest.mark.parametrize("salt", [0, 12345, 2**32 - 1])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2 * 2**16 + 7,), (2, 2**16)])
def test_fill_values_are_those_of_the_formula(salt, shape):
    at = RNG.integers(0, 2**40, shape)
    found = fill_values(at, {"salt": salt})
    expected = [((int(n) * 2654435761 + salt) % 2**32) >> 9 for n in np.ravel(at)]
    assert found.shape == at.shape and np.ravel(found).tolist() == expected


def scatter(**changes: Any) -> Case:
    return mk.scatter(RNG.integers(0, 400, 150), **{"count": 40, "delta": 3, **changes})


@pytest.mark.parametrize("delta", [3, -5, 0, [1, 7], [4, -4], [2**20]])
@pytest.mark.parametrize("block", [64, 2**16])
def test_all_accesses_to_some_places_are_found(delta, block, monkeypatch):
    for module in (checks, sides):
        monkeypatch.setattr(module, "BLOCK", block)
    case = scatter(delta=delta)
    side = sides.scatter_side(case)
    assert side is not None
    n = np.arange(side.count)
    places = side.positions(n)
    chosen = np.unique(np.concatenate([RNG.choice(places.ravel(), 30), [0, side.size - 1]]))
    expected = {
        (which, int(instance), int(element))
        for which, place in enumerate(chosen)
        for instance, element in zip(*np.nonzero(places == place), strict=True)
    }
    found = {tuple(map(int, one)) for one in zip(*checks._accesses(side, chosen, n), strict=True)}
    assert found == expected
    # With too many accesses, the instances of moving bases are computed from the places instead.
    monkeypatch.setattr(checks, "_ACCESSES", 0)
    solved = zip(*checks._writers(case, side, chosen, 1), strict=True)
    assert {tuple(map(int, one)) for one in solved} == expected


@pytest.mark.parametrize("kernel", ["gather", "scatter"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", ["random", "permutation", "few distinct"])
@pytest.mark.parametrize("threads", [1, 2])
def test_long_patterns_are_checked(kernel, count, kind, threads):
    index = {
        "random": lambda: RNG.integers(0, LONG, LONG),
        "permutation": lambda: RNG.permutation(LONG),
        "few distinct": lambda: RNG.integers(0, 10, LONG) * 500,
    }[kind]()
    case = getattr(mk, kernel)(index, count=count, threads=threads, variant="scalar")
    native = case.prepare().native
    assert checked(case, native).valid
    # A value of the last instance, and a place that instances write.
    array, last = ("dense", LONG - 1) if kernel == "gather" else ("sparse", int(index[-1]))
    if kernel == "scatter":
        side = sides.scatter_side(case)
        assert side is not None
        last = int(side.positions(np.array([count - 1]))[0, -1])
    # The check reads every value of a gather, but few places of a scatter to many.
    if kernel == "gather" or kind == "few distinct":
        faulty = corrupted(native, array, last, lambda _: 12345.678, ("run",))
        assert not checked(case, faulty).valid
    else:
        assert not checked(case, Changed(native, run=lambda _: 0.0)).valid
    assert checked(case, native).valid


def test_lines_are_counted_once_for_all_variants(monkeypatch):
    counted = []
    lines = sides._lines

    def count(*given: Any, **named: Any) -> float:
        counted.append(given)
        return lines(*given, **named)

    monkeypatch.setattr(sides, "_lines", count)
    case = mk.scatter(RNG.permutation(1000), count=2, threads=1)
    for variant in ("nt", "scalar", "best"):
        other = case.with_(variant=variant)
        assert other.bytes_model_B > 0 and other.traffic
    assert len(counted) == 1
    # Another type has other lines.
    assert case.with_(dtype="float32").bytes_model_B > 0
    assert len(counted) > 1
