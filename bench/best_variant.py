"""Compare the variant that `best` chooses with every named variant, in turns, from L1 to memory."""

import argparse
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from peers import as_fast, in_turns
from records import Row, interval, program

import memkern as mk
from memkern import _memkern
from memkern.statistics import ratio_interval


def cases() -> dict[str, mk.Case]:
    """Return cases of all families over sizes."""
    how: dict[str, Any] = {"budget_s": 0.1, "runs": None, "placements": 1}
    last = _memkern.topology()["last_level_cache_B"]
    made: dict[str, mk.Case] = {}
    for kernel in ("copy", "triad"):
        for mebibytes in (1 / 64, 1 / 4, 2, 8, 16, 64, 2.5 * last / 2**20):
            size = f"{mebibytes:.3g} MiB"
            case = mk.stream(kernel, footprint_B=mebibytes * 2**20, **how)
            made[f"stream.{kernel} {size}"] = case
    for count in (256, 2**13, 2**17, 2**20):
        made[f"gather stride 4 x {count}"] = mk.gather("UNIFORM:8:4:NR", count=count, **how)
        made[f"scatter stride 1 x {count}"] = mk.scatter("UNIFORM:8:1:NR", count=count, **how)
    for elements in (2048, 2**16, 2**21):
        made[f"loops.dot {elements}"] = mk.loops("dot", elements=elements, **how)
        made[f"bs2 {elements}"] = mk.bs(2, elements=elements, **how)
    made["raider.gather_triad"] = mk.raider("gather_triad", 2**18, **how)
    for elements in (4, 12):
        made[f"bs6 {elements}"] = mk.bs(6, elements=elements, degree=7, **how)
    for side in (64, 512, 4096):
        made[f"loops.matvec {side}"] = mk.loops("matvec", rows=side, columns=side, **how)
    for matrix in ("hpcg:16", "hpcg:64"):
        for format in ("crs", "sell"):
            made[f"spmv.{format} {matrix}"] = mk.case(f"spmv.{format}", matrix=matrix, **how)
    for side in (4, 8, 16):
        made[f"dw.hop {side}^4 x 8"] = mk.case("dw.hop", lattice=[side] * 4, ls=8, **how)
    made["amo.stride1"] = mk.amo("stride1", iters=2**14, **how)
    return made


def undisturbed(case: mk.Case) -> dict[str, Any]:
    """Return the first record of a few that is not disturbed, or the last."""
    for _ in range(5):
        record = case.measure().record
        if not record["disturbed"]:
            break
    return record


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the ratio of every case."""
    for name, case in cases().items():
        variants = sorted({variant for variant, _ in case.prepare().native.candidates()})
        found = in_turns(
            ("best", *variants),
            args.turns,
            lambda variant, case=case: undisturbed(case.with_(variant=variant)),
        )
        times = {v: [record["time_median_s"] for record in some] for v, some in found.items()}
        fastest = min(variants, key=lambda v, times=times: statistics.median(times[v]))
        row = {"case": name, "fastest": fastest}
        row |= interval("ratio", ratio_interval(times[fastest], times["best"], paired=True))
        chosen = Counter(f"{record['variant']}/{record['isa']}" for record in found["best"])
        yield row | {"chosen": ", ".join(f"{word} {n}" for word, n in chosen.items())}


judge = partial(as_fast, floor=0.9, least_mean=0.97)
main = program(__name__, __doc__, measured, turns=7, judge=judge)
