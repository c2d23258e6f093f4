"""From L1 to memory: copy and triad over 100 sizes, ordinary and non-temporal stores, and T0, Wmax.

    python examples/sizes.py [sizes.parquet]

Measures (or resumes: the file has every finished case), draws ``sizes.pdf``, and fits launch cost
and bandwidth to the copies of BS1, which launch a parallel region for every invocation.
"""

from __future__ import annotations

import sys

import memkern as mk


def main() -> None:
    """Measure, draw, fit."""
    path = sys.argv[1] if len(sys.argv) > 1 else "sizes.parquet"
    footprints = mk.sizes("16KiB", "256MiB", 100)
    cases = [
        case
        for kernel in ("copy", "triad")
        for size in footprints
        for case in mk.vary(
            mk.stream(kernel, footprint_B=size, repetition="free", budget_s=0.1),
            variant=["simd", "nt"],
        )
    ]
    cases += [mk.bs(1, footprint_B=size, budget_s=0.1) for size in footprints]
    results = mk.sweep(cases, output=path, resume=True)
    mk.plots.save(mk.plots.figures["sizes"](results), "sizes.pdf")
    # No line fits caches and memory at once: T0 follows from small sizes, Wmax from large ones.
    sides = mk.models.fit_both_sides(results.filter(kernel="bs.bs1"))
    low, high = (1e6 * end for end in sides[0].fit.t0_ci_s)
    print(f"T0 {sides[0].fit.t0_s * 1e6:.2f} us [{low:.2f}, {high:.2f}], from {sides[0].name}")
    low, high = sides[-1].fit.wmax_ci_GBps
    print(f"Wmax {sides[-1].fit.wmax_GBps:.1f} GB/s [{low:.1f}, {high:.1f}], from {sides[-1].name}")


if __name__ == "__main__":
    main()
