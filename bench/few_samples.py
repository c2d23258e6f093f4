"""Compare the medians of ten samples with those of a thousand, in turns.

Few samples show what many do only if the first of them already finds its data in the caches::

    python bench/few_samples.py --turns 12
"""

from __future__ import annotations

import argparse
from typing import Any

import memkern as mk
from memkern.results.turns import compare_turns

FEW, MANY = 10, 1000


def cases(threads: int) -> list[mk.Case]:
    """Return cases from L1 to the last cache."""
    how: dict[str, Any] = {"threads": threads, "variant": "simd", "runs": FEW}
    return [
        mk.stream("triad", elements=4096, **how),
        mk.bs(2, elements=8192, **how),
        mk.stream("copy", elements=2**16, **how),
        mk.gather("UNIFORM:8:8:NR", count=4096, **how),
        mk.loops("dot", elements=2**19, **how),
        mk.stream("triad", elements=2**21, **how),
    ]


def main() -> None:
    """Measure and print the ratios of the times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=12)
    turns = parser.parse_args().turns
    print(f"{'kernel':<15} {'threads':>7} {'bytes':>10} {'us':>8}  few over many")
    for threads in (1, 2):
        every = cases(threads)
        pairs: list[list[Any]] = [[] for _ in every]
        for _ in range(turns):
            for case, found in zip(every, pairs, strict=True):
                many, few = (case.with_(runs=runs).measure().record for runs in (MANY, FEW))
                found.append((many, few))
        for found in pairs:
            ratio, record = compare_turns(found, 0.95), found[-1][0]
            print(
                f"{record['kernel']:<15} {threads:>7} {record['footprint_B']:>10} "
                f"{1e6 * record['time_median_s']:>8.2f}  "
                f"{ratio.ratio:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
            )


if __name__ == "__main__":
    main()
