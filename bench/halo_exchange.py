"""Compare products and meshes that are distributed over ranks with copies on each rank, in turns.

With one rank nothing is exchanged, and the ratios should be 1; with several ranks they are the rate
with exchange over the rate of independent copies. The table has the measured time of the exchange,
and the time that `memkern.halo_time` predicts from messages, which are measured first.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from peers import in_turns
from records import Row, interval, program

import memkern as mk
from memkern.engine.processes.communication import ranks
from memkern.families.messages import pairs
from memkern.formats import ResultSet
from memkern.machine import remote
from memkern.spec.case import Case
from memkern.statistics import ratio_interval

_SIZES_B = [8 * 4**power for power in range(10)]


def messages() -> ResultSet:
    """Return single sends of many sizes, over each distance between the ranks."""
    nodes = remote.description("mpi").nodes
    words = [word for word in pairs.NEIGHBOURS if pairs.neighbours(word, nodes)]
    return mk.sweep(
        [
            mk.messages("send", device="mpi", pairs=word, size_B=size_B, window=1, budget_s=0.2)
            for word in words
            for size_B in _SIZES_B
        ],
        progress=False,
    )


def halo_of(case: Case) -> dict[str, tuple[float, float]]:
    """Return neighbours and received bytes by distance, means over the ranks."""
    assert case.spec.part is not None
    nodes, number = remote.description("mpi").nodes, ranks().number
    size_B = np.dtype(case.dtype).itemsize
    own = dict.fromkeys(pairs.DISTANCES[1:], (0.0, 0.0))
    for other, _, received in case.spec.part(case, number, ranks().size).exchange.neighbours:
        distance = pairs.distance([(number, other)], nodes)
        count, bytes_B = own[distance]
        own[distance] = count + 1, bytes_B + received * size_B
    every = ranks().every(own)
    return {
        distance: (
            float(np.mean([one[distance][0] for one in every])),
            float(np.mean([one[distance][1] for one in every])),
        )
        for distance in own
    }


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield rates and ratios, on the first rank."""
    how: dict[str, Any] = {"threads": args.threads, "budget_s": 0.5, "placements": 1}
    kernels = {f"spmv.{f}": partial(mk.spmv, args.matrix, f, **how) for f in ("crs", "sell")}
    kernels |= {
        f"bs.bs{number}": partial(mk.bs, number, elements=args.elements, **how)
        for number in (6, 7, 8)
    }
    sends = messages() if ranks().size > 1 else None
    for name, case in kernels.items():
        cases = {"copies": case(), **{when: case(halo=when) for when in ("blocking", "overlap")}}
        found = in_turns(cases, args.turns, lambda how, cases=cases: cases[how].measure())
        halo = halo_of(cases["blocking"])
        if ranks().number:
            continue
        rates = {how: [one.bandwidth_GBps for one in some] for how, some in found.items()}
        row = {"kernel": name, "ranks": ranks().size, "copies, GB/s": np.median(rates["copies"])}
        for when in ("blocking", "overlap"):
            row |= interval(when, ratio_interval(rates[when], rates["copies"], paired=True))
        if sends is not None:
            record = found["blocking"][-1].record
            row |= {"sent, B": record["halo_sent_B"], "exchange, %": 100 * record["halo_share"]}
            row |= {"exchange, us": 1e6 * record["halo_share"] * record["time_median_s"]}
            row |= {"by messages, us": 1e6 * mk.halo_time(halo, sends)}
        yield row


OPTIONS = {"--matrix": "hpcg:64", "--elements": (16, "K of the mesh"), "--threads": 1}
main = program(__name__, __doc__, measured, OPTIONS, turns=7)
