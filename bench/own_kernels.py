"""Expressions and functions of users beside the package's kernels, and honest ones that must pass.

Each expression is measured in turns with the kernel of the same operation in variant ``auto``, by
one thread, with data in each level. Then fifty honest kernels are measured, each as often as
``--honest`` says: none may be refused.
"""

import argparse
import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from records import Row, program

import memkern as mk
from memkern import isolating
from memkern.host.capacity import data_caches, last_level_cache_B
from memkern.statistics import geometric_mean
from memkern.studies.turns import Trial, take_turns

# Others use a shared cache as well.
LEVELS_B = {f"L{c['level']}": c["size_B"] // (2 if c["level"] < 3 else 4) for c in data_caches()}
LEVELS_B["memory"] = 4 * last_level_cache_B()
Pair = tuple[mk.Case, mk.Case]
"""The kernel of the package and the user's of the same operation."""


def of_expression(text: str, base: Any, each_B: int) -> Any:
    """Return a function that builds the pair of an expression with so many bytes an iteration."""

    def pair(bytes_B: int, **how: Any) -> Pair:
        n = bytes_B // each_B
        return base(n, variant="auto", **how), mk.kernel(text).case(n, **how)

    return pair


_C = """#include <stdint.h>
void stencil(double *restrict a, const double *restrict b, int64_t begin, int64_t end, int64_t m,
             double s) {
  for (int64_t r = begin + 1; r < end + 1; ++r)
#pragma omp simd
    for (int64_t i = r * m + 1; i < r * m + m - 1; ++i)
      a[i] = s * (b[i] + b[i - m] + b[i + m] + b[i - 1] + b[i + 1]);
}
"""
_FUNCTIONS: list[Any] = []  # whose addresses are in use
_ONE = ["+", "-", "*"]
HONEST = [
    *(f"a[i] = b[i] {x} c[i]" for x in _ONE),
    *(f"a[i] = b[i] {x} s" for x in _ONE),
    *(f"a[i] += s {x} b[i]" for x in _ONE),
    *(f"a[i] = b[i] {x} s * c[i]" for x in _ONE),
    *(f"a[i] = b[idx[i]] {x} c[i]" for x in _ONE),
    *(f"a[idx[i]] = b[i] {x} c[i]" for x in _ONE),
    *(f"a[i] = b[i {x} 1]" for x in ("+", "-")),
    *(f"sum += a[i] {x} b[i]" for x in _ONE),
    *(f"a[i] = {f}(b[i], c[i])" for f in ("min", "max")),
    *(f"a[i] = {f}(b[i])" for f in ("sqrt", "abs")),
    *("a[i] = b[i]", "a[i] = s", "a[i] = b[i] / c[i]", "a[i] = -b[i]", "a[i] = a[i] * s"),
    *("a[i] = b[i] + c[i] * d[i]", "a[i] = s * b[i] + t * c[i]", "a[i] += b[i] + s * c[i]"),
    *("a[i] = b[i]; c[i] = d[i]", "sum += a[i]", "sum += a[i] * a[i]", "sum += abs(a[i])"),
    *("a[i] = b[2 * i]", "a[2 * i] = b[i]", "a[i] = b[m * i]", "a[i] = b[idx[i]]"),
    *("a[idx[i]] = b[i]", "a[idx[i]] += b[i]", "a[idx[i]] = b[jdx[i]]"),
    *("a[i] = b[i-1] + b[i] + b[i+1]", "a[i] = (b[i-2] + b[i-1] + b[i+1] + b[i+2]) / 4"),
    *("a[i] = s * (b[i-m] + b[i-1] + b[i] + b[i+1] + b[i+m])", "a[i] = b[i] * b[i] * b[i]"),
]


def stencil_reference(a: Any, b: Any, m: int, s: float) -> Any:
    """Return what the stencil in C writes."""
    x, after = b.reshape(-1, m), a.reshape(-1, m).copy()
    inner = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[1:-1, 1:-1]
    after[1:-1, 1:-1] = s * inner
    return after.ravel()


def stencil_pair(bytes_B: int, **how: Any) -> Pair:
    """Return the stencil of the package, and the same in C."""
    columns = min(2048, int((bytes_B / 16) ** 0.5))
    rows = bytes_B // 16 // columns
    with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
        file.write(_C)
        file.flush()
        own = mk.kernel(
            **{"file": file.name, "function": "stencil", "reference": stencil_reference},
            arrays={"a": "write[(n + 2) * m, n * (m - 2)]", "b": "read[(n + 2) * m]"},
            parameters={"m": columns, "s": 0.25},
        )
    base = mk.loops("stencil", rows=rows, columns=columns, variant="auto", **how)
    return base, own.case(rows - 2, **how)


def numba_pair(bytes_B: int, **how: Any) -> Pair:
    """Return the triad of the package, and that of a function of Numba."""
    import numba

    values, size = numba.types.CPointer(numba.types.float64), numba.types.int64
    kind = numba.types.void(values, values, values, size, size, numba.types.float64)

    @numba.cfunc(kind)
    def triad(a, b, c, begin, end, s):
        for i in range(begin, end):
            a[i] = b[i] + s * c[i]

    roles = {"a": "write", "b": "read", "c": "read"}
    own = mk.kernel(
        **{"address": triad.address, "function": "triad", "arrays": roles},
        **{"parameters": {"s": 3.0}, "reference": "a[i] = b[i] + s * c[i]"},
    )
    _FUNCTIONS.append(triad)
    return mk.stream("triad", bytes_B // 24, variant="auto", **how), own.case(bytes_B // 24, **how)


PAIRS: dict[str, Callable[..., Pair]] = {
    "triad": of_expression("a[i] = b[i] + s * c[i]", partial(mk.stream, "triad"), 24),
    "gather": of_expression("a[i] = b[idx[i]]", partial(mk.raider, "gather_copy"), 24),
    "dot": of_expression("s += a[i] * b[i]", partial(mk.loops, "dot"), 16),
    "stencil": stencil_pair,
}
if importlib.util.find_spec("numba"):
    PAIRS["numba"] = numba_pair


def turns(name: str, level: str, seconds: float) -> Row:
    """Return a row with the time of a user's kernel over that of the package's."""
    pages = "thp" if level == "memory" else "default"
    base, own = PAIRS[name](LEVELS_B[level], threads=1, pages=pages)
    trial = Trial(own, name, own.bytes_B / base.bytes_B)
    take_turns(base, [trial], time.perf_counter() + seconds, own.bytes_B)
    effect, half = trial.estimate()
    row: Row = {"kernel": name, "level": level, "time over the package's": math.exp(effect)}
    row |= {"low": math.exp(effect - half), "high": math.exp(effect + half)}
    return row | {"bytes": own.bytes_B}


def honest(times: int) -> tuple[int, list[str]]:
    """Return how many honest kernels were measured, and what was said of those refused."""
    refused = []
    for text in HONEST:
        for k in range(times):
            n = int(np.random.default_rng(k).choice([1000, 30_000, 1_000_000]))
            made = mk.kernel(text).case(n, budget_s=0.02, placements=1, threads=1 + k % 2)
            found = made.measure()
            if not found.valid:
                refused.append(f"{text} ({n}): {found.record['validation']}")
    return times * len(HONEST), refused


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the ratios, and what was refused."""
    isolating.enter()
    for name in PAIRS:
        rows = [turns(name, level, args.seconds) for level in LEVELS_B]
        yield from rows
        mean = geometric_mean([row["time over the package's"] for row in rows])
        print(f"{name}: geometric mean {mean:.3f}")
    number, refused = honest(args.honest)
    name = f"{len(HONEST)} honest kernels"
    yield {"kernel": name, "measured": number, "refused": len(refused)}
    print("\n".join(refused))


OPTIONS = {
    "--seconds": (5.0, "of a pair (5)"),
    "--honest": (10, "measurements of a kernel (10)"),
}
main = program(__name__, __doc__, measured, OPTIONS)
