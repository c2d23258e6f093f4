"""Conjugate gradients and a Chebyshev filter: predicted and measured time of an iteration.

    python examples/krylov.py [matrix]

The matrix is a generator (7pt:100:100:100) or a Matrix Market file; it must be symmetric positive
definite and should be larger than the caches. An iteration consists of a few of memkern's kernels.
Streaming kernels are predicted by T(B) = T0 + B/Wmax, fitted at sizes around this one, the product
by its roofline. The predictions are compared with the same kernels run one after the other, each on
its own arrays.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import memkern as mk

# Kernels of an iteration except the product: numbers of the finite-element tests.
CG = {"p . Ap": 4, "x, r and r . r": 5, "p = r + beta p": 2}
CHEBYSHEV = {"w = 2/e (A v - c v) - u": 2, "sum of the filter": 2}


def solve(product: mk.spmv.Product, b: np.ndarray, tolerance: float) -> tuple[np.ndarray, int]:
    """Solve by the textbook method of conjugate gradients; return solution and iterations."""
    x = np.zeros_like(b)
    r, p = b.copy(), b.copy()
    rr = first = float(r @ r)
    for iteration in range(1, 10 * len(b)):
        ap = product.multiply(p)
        alpha = rr / float(p @ ap)
        x += alpha * p
        r -= alpha * ap
        rr, before = float(r @ r), rr
        if rr <= tolerance**2 * first:
            return x, iteration
        p = r + rr / before * p
    raise SystemExit("no convergence: is the matrix symmetric positive definite?")


def fitted(number: int, entries: int) -> mk.models.T0WmaxFit:
    """Fit a streaming test at sizes around a number of entries."""
    cases = [
        mk.bs(number, elements=int(n), budget_s=0.1)
        for n in mk.sizes(str(max(entries // 4, 64)), str(2 * entries), 7)
    ]
    return mk.fit_t0_wmax(mk.sweep(cases, progress=False))


def sequence_s(cases: list[mk.Case], repeats: int = 20) -> float:
    """Median time of the kernels run one after the other."""
    prepared = [case.prepare() for case in cases]
    rounds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for kernel in prepared:
            kernel.run(1)
        rounds.append(time.perf_counter() - begin)
    return float(np.median(rounds))


def main() -> None:
    """Solve, predict, measure, print."""
    text = sys.argv[1] if len(sys.argv) > 1 else "7pt:100:100:100"
    label, matrix = mk.matrices.build(text)
    n = matrix.shape[0]
    product = mk.spmv.convert(matrix, format="crs")
    exact = np.sin(np.arange(n))
    x, iterations = solve(product, matrix @ exact, 1e-8)
    error = float(np.linalg.norm(x - exact) / np.linalg.norm(exact))
    print(f"{label}: {n} rows, {matrix.nnz} nonzeros")
    print(f"CG took {iterations} iterations, relative error {error:.1e}")

    spmv = mk.spmv(matrix, "crs", accumulate=False, budget_s=0.5)
    record = spmv.measure().record
    roofline_s = record["roofline_s"]
    fits = {number: fitted(number, n) for number in {*CG.values(), *CHEBYSHEV.values()}}
    cases = {number: mk.bs(number, elements=n) for number in fits}
    for name, parts in (("CG", CG), ("Chebyshev", CHEBYSHEV)):
        predicted_s = roofline_s
        print(
            f"{name}, an iteration\n  {'product, by its roofline':<28} {roofline_s * 1e3:8.3f} ms"
        )
        for part, number in parts.items():
            seconds = float(fits[number].predict(cases[number].bytes_B).time_s)
            predicted_s += seconds
            print(f"  {part + f' (BS{number})':<28} {seconds * 1e3:8.3f} ms")
        measured_s = sequence_s([spmv, *(cases[number] for number in parts.values())])
        print(
            f"  {'sum, predicted':<28} {predicted_s * 1e3:8.3f} ms\n"
            f"  {'measured':<28} {measured_s * 1e3:8.3f} ms, "
            f"{measured_s / predicted_s:.2f} times the prediction"
        )


if __name__ == "__main__":
    main()
