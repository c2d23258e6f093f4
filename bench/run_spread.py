"""Find the causes of the spread between runs: time, placement in memory, and kind of pages.

Each case of ``intervals_hold.py`` is sampled in turns in four ways: in the memory of its first
placement and in new memory, both in 4 KiB pages and in transparent huge pages. Differences in the
same memory are due to time only; new memory adds the differences between placements.
"""

import argparse
import math
from collections.abc import Iterator

import numpy as np
from intervals_hold import cases
from peers import in_turns
from records import Row, program

import memkern as mk
from memkern import _memkern
from memkern.engine.public import ALL_B, Prepared, take_samples

WAYS = ("same memory, 4k", "new memory, 4k", "same memory, thp", "new memory, thp")


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the spread of each case in each way."""
    for name, case in cases(budget_s=0.05, variant="simd").items():
        kept: dict[str, Prepared] = {}

        def median(way: str, case: mk.Case = case, kept: dict[str, Prepared] = kept) -> float:
            prepared = kept.get(way)
            if prepared is None:
                _memkern.release_memory(ALL_B)
                prepared = case.with_(pages=way.rsplit(" ", 1)[1]).prepare()
                prepared.native.fill(outputs=True)
                if way.startswith("same"):
                    kept[way] = prepared
            samples = take_samples(prepared)
            return math.nan if samples.disturbed else float(np.median(samples.seconds[:, 0]))

        found = in_turns(WAYS, args.turns, median)
        medians = {way: np.log([s for s in some if s == s]) for way, some in found.items()}
        row = {"case": name, "undisturbed": sum(map(len, medians.values()))}
        for way, logarithms in medians.items():
            row[f"{way}, %"] = 100 * np.std(logarithms, ddof=1) if len(logarithms) > 2 else None
        yield row


main = program(__name__, __doc__, measured, turns=40)
