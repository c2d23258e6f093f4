"""Bandwidth against stride, gather and scatter, 4 KiB pages beside huge ones: a figure for a paper.

    python examples/strides.py [strides.parquet]

Measures (or resumes: the file has every finished case), prints a table, and draws
``strides.pdf`` beside the published platforms.
"""

from __future__ import annotations

import sys

import memkern as mk


def main() -> None:
    """Measure, tabulate, draw."""
    path = sys.argv[1] if len(sys.argv) > 1 else "strides.parquet"
    cases = [
        case
        for kernel in (mk.gather, mk.scatter)
        for stride in (1, 2, 4, 8, 16, 32, 64, 128)
        for case in mk.vary(
            kernel(f"UNIFORM:8:{stride}:NR", count=2**22 // stride, suite="ustride"),
            pages=["4k", "default"],
        )
    ]
    results = mk.sweep(cases, output=path, resume=True)
    frame = results.to_frame()
    table = frame.pivot_table(
        index="pattern", columns=["kernel", "pages"], values="bandwidth_GBps", sort=False
    )
    print(table.round(1))
    mk.plots.save(mk.plots.figures["spatter-fig3"](results), "strides.pdf")


if __name__ == "__main__":
    main()
