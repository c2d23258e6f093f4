"""Products and meshes distributed over ranks, and the exchanges of the ranks."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import refused
from launching import run, started
from scipy.sparse import csr_array
from sharing import once

import memkern as mk
from memkern import small
from memkern.families.bs import kernels as meshes
from memkern.families.spmv import distributed as products
from memkern.families.spmv.kernels import as_csr
from memkern.spec.case import Case
from memkern.spec.kernel import Exchange

pytestmark = pytest.mark.ranks

PROGRAM = str(Path(__file__).with_name("halo_program.py"))
MATRICES = ("hpcg:3:4:5", "rmat:5", "tsm:7:3:4", "arrow:9", "band:40:5:3")


def exchanged(values: list[Any], plans: list[Exchange]) -> None:
    """Carry out an exchange between the ranks' arrays."""
    sent = [dict((other, of) for other, of, _ in plan.neighbours) for plan in plans]
    before = [np.array(v) for v in values]
    for rank, plan in enumerate(plans):
        messages = [before[other][sent[other][rank]] for other, _, n in plan.neighbours if n]
        assert [len(m) for m in messages] == [n for _, _, n in plan.neighbours if n]
        received = np.concatenate([np.zeros(0), *messages])
        if plan.adds:
            np.add.at(values[rank], plan.to, received[plan.of])
        else:
            values[rank][plan.to] = received[plan.of]


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("ranks", (1, 2, 5, 13))
def test_products_of_all_ranks_are_the_whole_product(matrix, ranks):
    for halo, balance in itertools.product(("blocking", "overlap"), ("rows", "nnz")):
        case = mk.case("spmv.crs", matrix=matrix, halo=halo, balance=balance)
        a = as_csr(case)
        x = np.arange(1.0, a.shape[1] + 1)
        shares = [products.share_of(case, rank, ranks) for rank in range(ranks)]
        vectors = [np.full(s.case.integers["columns"], np.nan) for s in shares]
        for share, vector in zip(shares, vectors, strict=True):
            vector[: len(share.own)] = x[share.own.start : share.own.stop]
        exchanged(vectors, [share.exchange for share in shares])
        assert sorted(np.concatenate([s.rows for s in shares])) == list(range(a.shape[0]))
        assert sum(len(s.own) for s in shares) == a.shape[1]
        for share, vector in zip(shares, vectors, strict=True):
            n = share.case.integers
            parts = (share.case.data["values"], share.case.indices["columns"])
            local = csr_array(
                (*parts, share.case.indices["starts"]), shape=(n["rows"], n["columns"])
            )
            assert np.array_equal(vector[len(share.own) :][: len(share.halo)], x[share.halo])
            found = local @ np.nan_to_num(vector)
            assert np.array_equal(found[: len(share.rows)], (a @ x)[share.rows])
            inside = local[: n.get("split_at", 0)].indices
            assert (inside < max(len(share.own), 1)).all()


def test_ranks_get_equal_rows_or_nonzeros():
    lengths = np.array([0, 9, 1, 1, 1, 0, 0, 12, 1])
    starts = np.concatenate(([0], np.cumsum(lengths)))
    assert products.boundaries(starts, 4, "rows").tolist() == [0, 3, 5, 7, 9]
    found = products.boundaries(starts, 2, "nnz")
    assert found.tolist() == [0, 7, 9]
    # Up to more ranks than rows with nonzeros.
    for ranks in (1, 3, 20):
        bounds = products.boundaries(starts, ranks, "nnz")
        assert (bounds[0], bounds[-1], len(bounds)) == (0, 9, ranks + 1)
        assert (np.diff(bounds) >= 0).all()


def test_rows_that_need_no_halo_come_first():
    case = mk.case("spmv.crs", matrix="5pt:4:6", halo="overlap")
    share = products.share_of(case, 1, 3)
    # Both of the rank's two grid lines have a neighbour on another rank.
    assert (share.case.integers["split_at"], share.dependent) == (0, 1.0)
    case = mk.case("spmv.sell", matrix="5pt:4:12", halo="overlap", C=4)
    share = products.share_of(case, 1, 3)
    assert share.case.integers["split_at"] == 2
    assert share.rows[:8].tolist() == list(range(20, 28))
    assert share.rows[8:].tolist() == [*range(16, 20), *range(28, 32)]
    assert share.dependent == 0.5
    assert [(rank, n) for rank, _, n in share.exchange.neighbours] == [(0, 4), (2, 4)]


def summed(case: Case, ids: Any, values: Any) -> Any:
    kept = ids >= 0
    return np.bincount(ids[kept], values[kept], case.integers["global_nodes"])


@pytest.mark.parametrize("masked", ("none", "boundary"))
@pytest.mark.parametrize("ranks", (1, 2, 3, 9))
def test_meshes_of_all_ranks_are_the_whole_mesh(masked, ranks):
    for halo, numbering in itertools.product(
        ("blocking", "overlap"), ("elements", "lexicographic")
    ):
        shape = {"elements": 2, "degree": 2, "masked": masked, "numbering": numbering}
        cases = {n: mk.bs(n, halo=halo, **shape) for n in (6, 7, 8)}
        ids = mk.bs(7, **shape).indices["ids"]
        values = np.arange(1.0, len(ids) + 1)
        sums = summed(cases[6], ids, values)
        whole = [meshes.distributed(cases[6], rank, ranks) for rank in range(ranks)]
        for number, case in cases.items():
            parts = [case.spec.part(case, rank, ranks) for rank in range(ranks)]
            plans = [part.exchange for part in parts]
            for part, mesh in zip(parts, whole, strict=True):
                assert 0 <= part.case.integers.get("split_at", 0) <= part.case.iterations
                assert part.columns["halo_neighbours"] <= ranks - 1
                assert (mesh.owner[mesh.mine] <= mesh.rank).all()
            its = [np.resize(values[mesh.own], p.case.integers["local_nodes"])
                   for p, mesh in zip(parts, whole, strict=True)]  # fmt: skip
            if number == 6:
                gathered = [row_sums(p.case, v) for p, v in zip(parts, its, strict=True)]
                exchanged(gathered, plans)
                found = {}
                for mesh, sums_of_rank, part in zip(whole, gathered, parts, strict=True):
                    owned = mesh.mine[mesh.owner[mesh.mine] == mesh.rank]
                    first = len(mesh.mine) - len(owned)
                    found.update(zip(owned, sums_of_rank[first:], strict=False))
                    assert part.case.integers.get("split_at", first) == first
                assert found == {g: sums[g] for g in np.unique(ids[ids >= 0])}
            elif number == 8:
                both = [np.array(v) for v in its]
                for part, v in zip(parts, both, strict=True):
                    starts, columns = (part.case.indices[k] for k in ("row_starts", "columns"))
                    v[columns] = np.repeat(row_sums(part.case, v), np.diff(starts))
                exchanged(both, plans)
                for mesh, v in zip(whole, both, strict=True):
                    own = mesh.ids[mesh.own]
                    wanted = np.where(own < 0, values[mesh.own], sums[np.maximum(own, 0)])
                    assert np.array_equal(v[: len(own)], wanted)


def row_sums(case: Case, values: Any) -> Any:
    starts, columns = case.indices["row_starts"], case.indices["columns"]
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return np.bincount(rows, values[columns], len(starts) - 1)


@pytest.fixture
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the parts that need two ranks, with small cases."""

    def start() -> Any:
        parts, folder = "valid equal faults refusals record", tmp_path_factory.mktemp("x")
        return started(PROGRAM, "mpi", 2, parts, folder, {small.VARIABLE: "1"})

    return once(tmp_path_factory, "halo", start)


def check_cases(found: Any) -> None:
    assert found["valid"]["cases"] == 78
    assert found["valid"]["failed"] == found["equal"]["wrong"] == []


@pytest.mark.release
@pytest.mark.parametrize(("kind", "ranks"), [("openmpi", 1), ("openmpi", 4), ("mpich", 2)])
def test_every_distributed_case_is_valid_and_equal(kind, ranks, tmp_path):
    check_cases(started(PROGRAM, "mpi", ranks, "valid equal", tmp_path, kind=kind))


def test_every_distributed_case_is_valid_and_equal_on_two_ranks(two_ranks):
    check_cases(two_ranks)


def test_lost_and_stale_values_are_caught(two_ranks):
    assert two_ranks["faults"]["missed"] == []


def test_wrong_plans_are_refused_on_all_ranks(two_ranks):
    found = two_ranks["refusals"]
    sends = "rank {} sends 1 elements to rank {}, which receives {}"
    assert found["more"] == [sends.format(1, 0, 2), sends.format(0, 1, 2)]
    elsewhere = "the plan of an exchange is wrong on another rank"
    assert found["unexpected"] == [elsewhere, sends.format(0, 1, "none")]
    assert found["rank"] == [elsewhere, "an exchange has the neighbour 2, outside 0 to 1"]
    assert found["twice"][0] == "an exchange has the neighbour 1 twice"
    assert found["negative"][0] == found["target"][0]
    assert found["target"][0] == "an exchange has the negative position -1"
    assert found["element"][0] == "an exchange has the received element 1, outside 0 to 0"
    assert found["lengths"][0] == "an exchange has 0 targets for 1 received elements"
    assert found["length"][0].startswith("an exchange has a message of length -1, outside")
    assert found["sent"] == "an exchange has the position 1000000, outside 0 to 26"
    assert found["stored"] == "an exchange has the position 27, outside 0 to 26"
    assert found["capsule"] == "the argument exchange has the wrong type"
    assert "split_at must be at most the 27 iterations, not 28" in found["split_at"]


def test_records_count_the_whole_once(two_ranks):
    found = two_ranks["record"]
    each, product = found["each"], found["product"]
    for record in found.values():
        assert record["valid"] and record["ranks"] == 2
    assert each["bytes_B"] == 2 * product["bytes_B"]
    assert product["nonzeros"] == each["nonzeros"]
    rate = 2 * product["nonzeros"] / product["time_min_s"] / 1e9
    assert product["performance_GFLOPs"] == pytest.approx(rate)
    assert product["halo"] == "overlap" and "halo" in product["case_columns"]
    assert "halo" not in each
    # One of each rank's two planes needs a plane of the other rank.
    assert product["halo_rows"] == 0.5
    assert product["halo_sent_B"] == 16 * 8
    assert product["halo_neighbours"] == 1
    # The share of the time is unknown if the exchange overlaps with the product.
    assert np.isnan(product["halo_share"])
    # The difference is the halo, and row pointers of both ranks.
    assert 0 < product["footprint_B"] - each["footprint_B"] / 2 < 2 * 16 * 8 + 1000
    mesh, gather = found["mesh"], found["gather"]
    # The nodes between two layers of elements: both ranks send them, or only the rank that does
    # not own them.
    assert mesh["halo_sent_B"] == 7 * 7 * 8
    assert gather["halo_sent_B"] == 7 * 7 * 8 / 2
    assert 0 < gather["halo_share"] < 1
    assert mesh["bytes_B"] == gather["bytes_B"] + 8 * 8**3 - 8 * 7**3


def test_a_rank_that_stays_away_is_named(tmp_path):
    done = run("openmpi", 2, [PROGRAM, "mpi", "hang"], tmp_path, {"MEMKERN_RANK_TIMEOUT_S": "1"})
    assert done.returncode != 0
    assert (
        "memkern: rank 0 has waited 1 s for an exchange with rank 1: all ranks end" in done.stderr
    )


@pytest.mark.parametrize(
    "kernel, options, match",
    [
        ("spmv.csc", {}, "spmv.csc on cpu is not distributed over ranks"),
        ("spmv.crs", {"device": "cuda"}, "spmv.crs on cuda:0 is not distributed"),
        ("spmv.sell", {"move_columns": True}, "without halo"),
        ("bs.bs3", {"elements": 10}, "halo"),
    ],
)
def test_what_is_not_distributed_is_refused(kernel, options, match):
    inputs = {"matrix": "hpcg:3"} if kernel.startswith("spmv.") else {}
    with refused(match):
        mk.case(kernel, **{"halo": "overlap", **inputs, **options})


def test_a_halo_is_part_of_the_identity():
    known = {
        mk.spmv.case("hpcg:3", "crs", **halo).identity()
        for halo in ({}, {"halo": "blocking"}, {"halo": "overlap"})
    }
    assert len(known) == 3
