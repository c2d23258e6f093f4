"""The ranks' program of test_halo.py: python halo_program.py mpi PART....

The first rank prints a JSON object.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from checking import Changed, message_of

import memkern as mk
from memkern.engine.processes.communication import ranks
from memkern.families.spmv.distributed import share_of
from memkern.machine import remote
from memkern.spec.case import Case
from memkern.spec.kernel import finish

# Band, scattered columns, rows without nonzeros, different numbers of rows and columns, and a halo
# for no rank, for one rank and for all ranks.
_DIAGONAL = (range(9), range(9), [2.0] * 9, (9, 9))
_LAST_ROW = ([6] * 7, range(7), [1.0] * 7, (7, 7))
_FEW_ROWS = ([0, 0, 2], [1, 4, 0], [1.0, 2.0, 3.0], (3, 5))
MATRICES: tuple[Any, ...] = ("hpcg:5:4:7", "rmat:6", "tsm:9:3:5", _DIAGONAL, _LAST_ROW, _FEW_ROWS)
FORMATS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("crs", {}),
    ("crs", {"balance": "nnz", "threads": 2, "accumulate": False}),
    ("sell", {"C": 4, "sigma": 8}),
    ("sell", {"C": 2, "sigma": 10**6, "threads": 2, "balance": "nnz", "repetition": "spin"}),
    ("ell", {"dtype": "float32", "threads": 2, "schedule": "dynamic", "chunk": 3}),
)
HALOS = ("blocking", "overlap")
MESHES: tuple[dict[str, Any], ...] = (
    {"elements": 2, "degree": 3},
    {"elements": 3, "degree": 1, "masked": "boundary", "threads": 2, "dtype": "float32"},
    {"elements": 1, "degree": 2, "numbering": "lexicographic"},
)


def products() -> Iterator[tuple[Any, str, dict[str, Any]]]:
    """Yield matrix, format and options of every product."""
    for matrix, (format, how), halo in itertools.product(MATRICES, FORMATS, HALOS):
        yield matrix, format, {"variant": "simd", "seed": 3, "halo": halo, **how}


def meshes() -> Iterator[Case]:
    for number, shape, halo in itertools.product((6, 7, 8), MESHES, HALOS):
        yield mk.bs(number, halo=halo, variant="simd", **shape)


def equal() -> dict[str, Any]:
    """Return the products that differ in any bit from the undistributed one of the same variant."""
    wrong = []
    for matrix, format, how in products():
        case = mk.spmv.case(matrix, format, **how)
        size, number = ranks().size, ranks().number
        # Values whose sums are rounded.
        rng = np.random.default_rng(1)
        x, y = (rng.random(case.integers[n]).astype(case.dtype) for n in ("columns", "rows"))
        share = share_of(case, number, size)
        prepared = case.prepare()
        native = prepared.native
        own, halo = slice(share.own.start, share.own.stop), len(share.halo)
        arrays = native.arrays()
        to_x = np.ones(arrays["x"]["columns"], case.dtype)
        to_x[: len(share.own) + halo] = np.concatenate((x[own], np.full(halo, np.nan)))
        to_y = np.zeros(arrays["y"]["columns"], case.dtype)
        order = np.arange(len(share.rows)) if format == "crs" else native.copy_out("order")
        kept = order < len(share.rows)
        to_y[: len(order)][kept] = y[share.rows[order[kept]]]
        native.copy_in("x", to_x)
        native.copy_in("y", to_y)
        ranks().gate()
        native.run(1)
        found = native.copy_out("y")[: len(order)][kept]
        del how["halo"]
        whole = mk.spmv.multiply(matrix, x, y if case.template_variant == "add" else None, **{
            **{k: v for k, v in how.items() if k != "accumulate"}, "format": format})  # fmt: skip
        if not np.array_equal(found, whole[share.rows[order[kept]]]):
            wrong.append((str(matrix), format, case.halo, number))
    return {"wrong": list(itertools.chain(*ranks().every(wrong)))}


def valid() -> dict[str, Any]:
    """Return the cases whose check fails, and their number."""
    cases = [mk.spmv.case(m, f, **how) for m, f, how in products()]
    cases += meshes()
    failed = []
    for case in cases:
        prepared = case.prepare()
        for _ in range(2):
            if not prepared.check().valid:
                failed.append((case.spec.name, case.columns))
    return {"cases": len(cases), "failed": list(itertools.chain(*ranks().every(failed)))}


def faults() -> dict[str, Any]:
    """Return which faults of an exchange the check misses.

    Lost: nothing is received. Stale: values of a previous invocation are received.
    """
    missed = []
    how: dict[str, Any] = {"threads": 1, "variant": "simd"}
    cases = [mk.spmv.case("hpcg:4", f, halo="blocking", **how) for f in ("crs", "sell")]
    cases += [mk.bs(n, elements=2, degree=2, halo=halo, **how) for n in (6, 7, 8) for halo in HALOS]
    for case in cases:
        prepared = case.prepare()
        native, part = prepared.native, prepared.part
        assert part is not None
        name, (count, to) = part.exchange.array, (prepared.own.iterations, part.exchange.to)
        native.fill(outputs=True)
        ranks().gate()
        native.run(1)
        before = native.peek(name, to).astype(float)

        def lost(_: int, native: Any = native, count: int = count) -> float:
            return float(native.run_range(0, count))

        def stale(
            _: int, native: Any = native, count: int = count, name: str = name,
            to: Any = to, before: Any = before,
        ) -> float:  # fmt: skip
            native.poke(name, to, before)
            return float(native.run_range(0, count))

        for fault in (lost, stale):
            wrong = Changed(native, run=fault)
            validation = part.check(wrong)
            next(validation)
            wrong.run(1)
            found = finish(validation, 1)
            if all(ranks().every(found.valid)):
                missed.append((case.spec.name, fault.__name__))
        if not prepared.check().valid:
            missed.append((case.spec.name, "none"))
    return {"missed": missed}


def refusals() -> dict[str, Any]:
    """Return the error messages: of each rank for wrong plans, otherwise of the first rank."""
    none = np.zeros(0, dtype=np.int64)
    number, size = ranks().number, ranks().size
    other = (number + 1) % size
    one = np.zeros(1, dtype=np.int64)
    plan_of = partial(remote.exchange, adds=False, rank=number, ranks=size, timeout_s=9)
    plans: dict[str, Any] = {
        "more": ([(other, one, 2)], one, one),
        "unexpected": ([(other, one, 0)] if number == 0 else [], none, none),
        "rank": ([(size, one, 1)] if number else [], none, none),
        "twice": ([(other, one, 1)] * 2, none, none),
        "negative": ([(other, one - 1, 1)], one, one),
        "target": ([(other, one, 1)], one - 1, one),
        "element": ([(other, one, 1)], one, one + 1),
        "lengths": ([(other, one, 1)], none, one),
        "length": ([(other, one, -1)], none, none),
    }
    messages: dict[str, Any] = {}
    for name, (neighbours, to, of) in plans.items():
        messages[name] = ranks().every(message_of(plan_of, neighbours, to, of))
    case = mk.spmv.case("hpcg:3", "crs")
    kind = type(case.prepare().native)
    for name, (sent, to) in {"sent": (one + 10**6, one), "stored": (one, one + 27)}.items():
        plan = plan_of([(other, sent, 1)], to, one)
        messages[name] = message_of(kind, **_arguments(case, exchange=(plan, "x")))
    plan = plan_of([(other, one, 1)], one, one, adds=True)
    for name, changes in {
        "capsule": {"exchange": (3, "x")},
        "split_at": {
            "exchange": (plan, "x"),
            "integers": {**case.integers, "prefetch": 0, "split_at": 28},
        },
    }.items():
        messages[name] = message_of(kind, **_arguments(case, **changes))
    return messages


def _arguments(case: Case, **changes: Any) -> dict[str, Any]:
    return {
        "kernel": case.spec.name, "dtype": case.dtype, "index_dtype": case.index_dtype,
        "template_variant": case.template_variant, "numbers": {},
        "integers": {**case.integers, "prefetch": 0}, "indices": dict(case.indices),
        "data": dict(case.data), **case.knobs.going_to("request"), "caches_B": 0, "device": None,
        **changes,
    }  # fmt: skip


def record() -> dict[str, Any]:
    """Return records of a distributed product, distributed meshes and a product of each rank."""
    of = {"runs": 3, "budget_s": 0.05, "threads": 1, "variant": "auto"}
    return {
        "each": mk.spmv.case("hpcg:4", "crs", **of).measure().record,
        "product": mk.spmv.case("hpcg:4", "crs", halo="overlap", **of).measure().record,
        "mesh": mk.bs(8, elements=2, degree=3, halo="overlap", **of).measure().record,
        "gather": mk.bs(6, elements=2, degree=3, halo="blocking", budget_s=0.05).measure().record,
    }


def hang() -> dict[str, Any]:
    """Keep the second rank from taking part in an exchange."""
    native = mk.spmv.case("hpcg:3", "crs", halo="blocking").prepare().native
    if ranks().number == 1:
        time.sleep(60)
    native.run(1)
    return {}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    f.__name__: f for f in (equal, valid, faults, refusals, record, hang)
}

if __name__ == "__main__":
    results = {name: PARTS[name]() for name in sys.argv[2:]}
    if ranks().number == 0:
        print(json.dumps(results, default=str))
