"""Gather and scatter of a distributed sparse array, and RaiderSTREAM with indices over ranks."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from checking import once_a_kind, refused
from launching import started
from sharing import once

import memkern as mk
from memkern import backends
from memkern.families.spatter import over_ranks

pytestmark = pytest.mark.ranks

PROGRAM = str(Path(__file__).with_name("gather_program.py"))


class Over(NamedTuple):
    """A device, its number of ranks, the step through the cases, and the program's results."""

    device: str
    ranks: int
    step: int
    found: dict[str, Any]


PARTS = "validates applied faults records"
# Launchers, numbers of ranks and steps: every third case still covers every shape and method.
LAUNCHES = [
    (kind, ranks, step)
    for ranks, step in ((2, 3), (1, 1), (2, 1), (4, 3))
    for kind in ("openmpi", "oshmem")
]


@pytest.fixture(
    params=once_a_kind(
        [*LAUNCHES, ("mpich", 2, 1)],
        kind=lambda launch: launch[0] == "oshmem",
        name=lambda launch: "-".join(map(str, launch)),
    )
)
def over(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Over:
    """Run all parts of the program on these ranks, with every third case or with all cases."""
    kind, ranks, step = request.param
    device = "shmem" if kind == "oshmem" else "mpi"

    def start() -> Any:
        folder = tmp_path_factory.mktemp("x")
        return started(PROGRAM, device, ranks, f"{step} {PARTS}", folder, kind=kind)

    found = once(tmp_path_factory, f"gather-{kind}-{ranks}-{step}", start)
    return Over(device, ranks, step, found)


def test_every_method_validates(over):
    cases = -(-15 * len(backends.of(over.device).moves) // over.step)
    assert over.found["validates"] == {"cases": cases, "failed": []}


def test_every_method_moves_what_numpy_moves(over):
    assert over.found["applied"]["failed"] == []


def test_a_lost_element_is_caught(over):
    assert over.found["faults"]["missed"] == []


def test_records_name_the_method_and_the_share_of_remote_elements(over):
    for variant, record in over.found["records"].items():
        assert record["valid"] and record["validation"] == "whole"
        assert record["variant"] == variant or variant == "best"
        assert record["variant"] in backends.of(over.device).moves
        # Both the elements and the instances of a rank are consecutive.
        assert record["remote_share"] == 0.0
        assert record["ranks"] == over.ranks and record["wrap"] == 64 // over.ranks + 1
        assert record["bytes_B"] == 64 * 4 * 8


@pytest.mark.usefixtures("three_ranks")
@pytest.mark.parametrize(
    "options, match",
    [
        ({"variant": "simd"}, "variant 'simd' is not one of single, indexed, packed, neighbor"),
        ({"device": "shmem", "variant": "packed"}, "OpenSHMEM has no variant packed"),
        ({"wrap": 4}, "must have 35 rows, one more than a rank"),
        ({"flush_every": 4, "variant": "packed"}, "flush_every is for variant single"),
        ({"flush_every": 4, "variant": "neighbor"}, "flush_every is for variant single"),
        ({"flush_every": 4}, "give variant single, not best"),
        ({"threads": 4}, "one thread of each rank"),
        ({"count": 2**40}, "memory"),
    ],
)
def test_wrong_options_are_refused(options, match):
    with refused(match):
        mk.gather(**{"pattern": [0, 1], "count": 100, "device": "mpi", **options}).prepare()


@pytest.mark.usefixtures("three_ranks")
def test_two_sparse_arrays_are_too_many():
    with refused("gs has one sparse array too many"):
        mk.gs([0], [0], device="mpi")


@pytest.mark.usefixtures("three_ranks")
def test_batches_are_refused_however_a_case_gets_them() -> None:
    case = mk.gather([0, 1], count=100, device="mpi", variant="single", flush_every=4)
    with refused("flush_every is for variant single"):
        case.with_(variant="packed")
    # OpenSHMEM has no other variant.
    assert mk.gather([0, 1], count=100, device="shmem", flush_every=4).knobs.flush_every == 4


@pytest.mark.usefixtures("three_ranks")
def test_scatters_write_each_element_once() -> None:
    assert mk.scatter([0, 1], delta=2, count=100, device="mpi").integers["workers"] == 3
    for shape in ({"pattern": [0, 2]}, {"pattern": [0, 1], "delta": 0}, {"pattern": [3, 3]}):
        with refused("scatters over ranks write each element once"):
            mk.scatter(**{"delta": 2, "count": 100, "device": "mpi", **shape})


@pytest.mark.usefixtures("three_ranks")
def test_raider_over_ranks_needs_indices_and_stores_each_element_once() -> None:
    case = mk.raider("sg_triad", 100, device="mpi")
    assert case.integers["workers"] == 3
    assert case.columns["remote_share"] == pytest.approx(2 / 3, abs=0.1)
    assert mk.raider("gather_copy", 100, device="mpi", pattern="central").columns[
        "remote_share"
    ] == pytest.approx(0.67)
    with refused("raider.central_triad has no indices"):
        mk.raider("central_triad", 100, device="mpi")
    with refused("scatters over ranks write each element once"):
        mk.raider("scatter_copy", 100, device="mpi", pattern="zipf:1")
    with refused("give variant single, not best"):
        mk.raider("scatter_copy", 100, device="mpi", flush_every=4)
    with refused("one thread of each rank"):
        mk.raider("gather_copy", 100, device="mpi", threads=2)


def test_rows_differ_between_ranks() -> None:
    for count, ranks in ((100, 3), (64, 2), (7, 7), (2, 4)):
        for row_B in (8, 12):
            rows = over_ranks.rows(1, count, ranks, row_B)
            assert rows * row_B % 8 == 0
            share = -(-count // ranks)
            assert share < rows <= share + 2
            # If all ranks have the same number of instances, their first rows differ.
            if count % ranks == 0 and share >= ranks:
                assert len({rank * share % rows for rank in range(ranks)}) == ranks


def test_the_share_of_remote_elements() -> None:
    # Ranks with 10, 10 and 12 elements of 8 bytes, and with 4, 3 and 3 instances.
    places = np.array([[0], [9], [10], [30], [31], [11], [19], [2], [31], [25]])
    assert over_ranks.remote_share(places, 32, 3, 8) == pytest.approx(4 / 10)
    assert over_ranks.remote_share(places, 32, 1, 8) == 0.0
    # With elements of 4 bytes, parts are still whole words of 8 bytes.
    odd = np.array([[0], [1], [2], [3], [4], [5], [6]])
    assert over_ranks.remote_share(odd, 7, 3, 4) == pytest.approx(2 / 7)
