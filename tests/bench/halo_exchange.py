"""Compare products and meshes that are distributed over ranks with copies on each rank, in turns.

With one rank nothing is exchanged, and the ratios should be 1; with several they are what the
exchange leaves of the rate of independent copies::

    python tests/bench/halo_exchange.py
    mpirun -n 2 python tests/bench/halo_exchange.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import with_interval

import memkern as mk
from memkern.measuring.ranks import ranks
from memkern.spec.case import Case
from memkern.statistics import ratio_interval


def main() -> None:
    """Print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--matrix", default="hpcg:64")
    parser.add_argument("--elements", type=int, default=16, help="K of the mesh")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    knobs: dict[str, Any] = {"threads": args.threads, "budget_s": 0.5, "placements": 1}
    kernels: dict[str, Callable[..., Case]] = {
        f"spmv.{format}": lambda format=format, **how: mk.spmv.case(
            args.matrix, format, **how, **knobs
        )
        for format in ("crs", "sell")
    }
    for number in (6, 7, 8):
        kernels[f"bs.bs{number}"] = lambda number=number, **how: mk.bs(
            number, elements=args.elements, **how, **knobs
        )
    for name, case in kernels.items():
        cases = {"copies": case(), **{when: case(halo=when) for when in ("blocking", "overlap")}}
        rates: dict[str, list[float]] = {how: [] for how in cases}
        exchanged = {}
        for _ in range(args.turns):
            for how, one in cases.items():
                found = one.measure()
                rates[how].append(found.bandwidth_GBps)
                exchanged[how] = found.record
        if ranks().number:
            continue
        record = exchanged["blocking"]
        print(
            f"{name}: copies {np.median(rates['copies']):.2f} GB/s; "
            + ", ".join(
                f"{how} {with_interval(ratio_interval(rates[how], rates['copies'], paired=True))}"
                for how in ("blocking", "overlap")
            )
            + f"; {record['halo_sent_B']:.0f} B sent, {100 * record['halo_rows']:.1f} % of rows, "
            f"{100 * record['halo_share']:.0f} % of the time of blocking"
        )


if __name__ == "__main__":
    main()
