"""The ranks' program of test_gather_over_ranks.py: python gather_program.py DEVICE STEP PART....

The first rank prints a JSON object with the results of the parts.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from checking import Changed, checked, corrupted, everywhere

import memkern as mk
from memkern import backends
from memkern.engine.processes.communication import ranks
from memkern.machine import remote
from memkern.spec.case import Case

# Kernels and inputs: instances that are a multiple of the ranks or not, fewer instances than ranks,
# descending bases, several deltas, elements of a single rank.
SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("raider.gather_copy", {"elements": 31, "pattern": "zipf:1"}),
    ("raider.gather_triad", {"elements": 64, "pattern": "central"}),
    ("raider.scatter_scale", {"elements": 3, "pattern": "permutation"}),
    ("raider.gather_add", {"elements": 47, "pattern": "stride:3", "definition": "release"}),
    ("raider.sg_triad", {"elements": 50, "pattern": "permutation", "alpha": 5.0}),
    ("spatter.gather", {"pattern": [0, 3, 1, 3], "delta": 2, "count": 24}),
    ("spatter.gather", {"pattern": [5, 0, 2], "delta": [4, 9], "count": 31}),
    ("spatter.gather", {"pattern": "UNIFORM:8:4", "delta": -3, "count": 9}),
    ("spatter.gather", {"pattern": [7], "delta": 0, "count": 3}),
    (
        "spatter.gather",
        {"pattern": [0, 90, 45, 60, 30, 15, 75], "delta": 1, "count": 10, "seed": 3},
    ),
    ("spatter.scatter", {"pattern": [2, 0, 1], "delta": 3, "count": 29}),
    ("spatter.scatter", {"pattern": [0, 24, 48, 72], "delta": 1, "count": 24}),
    ("spatter.scatter", {"pattern": [0, 5], "delta": [20, 10], "count": 3}),
    ("spatter.multigather", {"pattern": [9, 2, 4, 0], "pattern_gather": [3, 1, 1], "count": 20}),
    ("spatter.multiscatter", {"pattern": [6, 2, 4, 0], "pattern_scatter": [3, 1, 0], "count": 20}),
]


# Every STEP-th of all cases is tried.
STEP = 1


def cases(device: str) -> Iterator[Case]:
    """Yield the cases that are tried."""
    return itertools.islice(every_case(device), 0, None, STEP)


def every_case(device: str) -> Iterator[Case]:
    """Yield every shape with every method, with alternating types and numbers of operations."""
    types = itertools.cycle(itertools.product(("float64", "float32"), ("int64", "int32")))
    for (kernel, shape), variant in itertools.product(SHAPES, backends.of(device).moves):
        dtype, index_dtype = next(types)
        flush_every = (1, 3, 1000)[len(shape["pattern"]) % 3] if variant == "single" else 1
        how = {"dtype": dtype, "index_dtype": index_dtype, "flush_every": flush_every, "runs": 2}
        yield mk.case(kernel, device=device, variant=variant, **how, **shape)


def label(case: Case) -> tuple[Any, ...]:
    """Return the values that identify a case."""
    knobs = case.knobs
    shape = [case.columns.get(name) for name in ("pattern", "delta", "count", "elements")]
    return (case.spec.name, *shape, knobs.variant, case.dtype, knobs.flush_every)


def validates(device: str) -> dict[str, Any]:
    """Return the cases whose check fails."""
    failed, number = [], 0
    for case in cases(device):
        native = case.prepare().native
        number += 1
        if not all(everywhere(checked(case, native, runs).valid) for runs in (1, 2)):
            failed.append(label(case))
    return {"cases": number, "failed": failed}


def moved(case: Case, sparse: Any, dense: Any) -> tuple[Any, Any]:
    """Return both arrays after an invocation, by loops over instances and indices."""
    sparse, dense = sparse.copy(), dense.copy()
    side = case.spec.name.removeprefix("spatter.").removeprefix("multi")
    index = case.indices[f"pattern_{side}"]
    if "pattern" in case.indices:
        index = case.indices["pattern"][index]
    deltas, count, wrap = case.indices[f"delta_{side}"], *map(case.integers.get, ("count", "wrap"))
    bases = np.concatenate([[0], np.cumsum(np.resize(deltas, count))[: count - 1]])
    bases -= min(bases.min(), 0)
    parts = np.array_split(np.arange(count), ranks().size)
    for rank, instances in enumerate(parts):
        rows = dense.reshape(ranks().size, wrap, len(index))[rank]
        for n in instances:
            for j, i in enumerate(index):
                if side == "gather":
                    rows[n % wrap, j] = sparse[bases[n] + i]
                else:
                    sparse[bases[n] + i] = rows[n % wrap, j]
    return sparse, dense


def computed(case: Case, before: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays after an invocation of RaiderSTREAM's operations, by loops."""
    access, operation = case.spec.name.removeprefix("raider.").split("@")[0].split("_")
    direct = range(case.integers["elements"])
    indices = iter(case.indices[name] for name in sorted(case.indices))
    written, *read = (array.name for array in case.spec.arrays)
    after = {name: values.copy() for name, values in before.items()}
    by = {written: next(indices) if access.startswith("s") else direct}
    # Direct operands come first.
    left = len(case.indices) - access.startswith("s")
    by |= {name: next(indices) if k >= len(read) - left else direct for k, name in enumerate(read)}
    alpha = case.numbers.get("alpha", 1.0)
    for i in direct:
        x = [before[name][by[name][i]] for name in read]
        values = {"copy": x[0], "scale": alpha * x[0], "add": sum(x), "triad": x[0] + alpha * x[-1]}
        after[written][by[written][i]] = values[operation]
    return after


def applied(device: str) -> dict[str, Any]:
    """Return the cases in which an invocation and NumPy move different elements."""
    failed = []
    for case in cases(device):
        rng = np.random.default_rng(0)
        before = {
            name: rng.random((array["rows"], array["columns"])[array["rows"] == 1 :]).astype(
                case.dtype
            )
            for name, array in case.prepare().native.arrays().items()
        }
        after = case.apply(**before)
        if "sparse" in before:
            wanted = dict(zip(("sparse", "dense"), moved(case, **before), strict=True))
        else:
            wanted = computed(case, before)
        same = all(np.allclose(after[name], values) for name, values in wanted.items())
        if not everywhere(same):
            failed.append(label(case))
    return {"failed": failed}


def faults(device: str) -> dict[str, Any]:
    """Return which faults the check of a case misses.

    The last element that the last rank moves is lost; nothing is moved; the last instance is left
    out.
    """
    missed = []
    for case in cases(device):
        native = case.prepare().native
        gathers = "gather" in case.spec.name
        if case.columns.get("delta") == "0" or case.iterations < ranks().size:
            continue
        spatter = "sparse" in native.arrays()
        name = ("dense" if gathers else "sparse") if spatter else case.spec.arrays[0].name
        array = native.arrays()[name]
        last = array["columns"] - 1
        if gathers and spatter:
            count, wrap = map(case.integers.get, ("count", "wrap"))
            length = case.columns["pattern_length"]
            last = ((array["rows"] - 1) * wrap + (count - 1) % wrap) * length + length - 1
        wrong = {
            "lost": corrupted(native, name, last, lambda value: 2 * value + 1),
            "idle": Changed(native, run=lambda k: 0.0, run_range=lambda a, b: 0.0),
        }
        missed += [
            (*label(case), fault)
            for fault, other in wrong.items()
            if everywhere(checked(case, other).valid)
        ]
    return {"missed": missed}


def records(device: str) -> dict[str, Any]:
    """Return the records of each method and of the variant `best`."""
    shape: dict[str, Any] = {"pattern": "UNIFORM:4:1:NR", "count": 64}
    # The budget limits repeated samples if other programs disturb them.
    shape |= {"runs": 3, "budget_s": 0.05}
    return {
        variant: mk.gather(device=device, variant=variant, **shape).measure().record
        for variant in (*backends.of(device).moves, "best")
    }


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    f.__name__: f for f in (validates, applied, faults, records)
}

if __name__ == "__main__":
    device, step, *parts = sys.argv[1:]
    STEP = int(step)
    result = {part: PARTS[part](device) for part in parts}
    if remote.description(device).rank == 0:
        print(json.dumps(result, default=str))
