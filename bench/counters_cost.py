"""Measure the cost of counters: samples with and without them, in turns.

    python bench/counters_cost.py
    python bench/counters_cost.py --counters page-faults,task-clock --threads 2

Two numbers for each way of repetition and size: the ratio of a sample's own time with counters to
its own time without, which should be 1, because they are read outside of it; and the increase of a
sample's wall time. By default events of the system are counted, which exist everywhere.
"""

import time
from typing import Any

import numpy as np
from records import Row, add, interval, options, parsed, write

import memkern as mk
from memkern.engine.recording.samples import CONDITIONS
from memkern.engine.sampling import counters as counting
from memkern.statistics import ratio_interval

_SAMPLES = 200
_SYSTEM = "page-faults,context-switches,cpu-migrations,task-clock"


def block(native: Any, codes: list[Any]) -> tuple[float, float]:
    """Return the median seconds of samples of one invocation, and the wall seconds of each."""
    out = np.full((_SAMPLES, 1 + len(CONDITIONS)), np.nan)
    counts = np.zeros((_SAMPLES, len(codes), 3))
    counted: dict[str, Any] = {"events": codes, "counts": counts} if codes else {}
    begin = time.perf_counter()
    native.sample(out, 1, 60.0, **counted)
    wall_s = time.perf_counter() - begin
    return float(np.median(out[:, 0])), wall_s / _SAMPLES


def main() -> None:
    """Print and write a row for each way of repetition and size."""
    parser = options(__doc__, turns=15)
    parser.add_argument("--counters", default=_SYSTEM)
    parser.add_argument("--threads", type=int, default=1)
    args = parsed(parser)
    codes = counting.requested(args.counters).codes
    print(f"{len(codes)} counters on each of {args.threads} threads")
    rows: list[Row] = []
    for repetition in ("fork", "barrier", "spin", "free"):
        for elements in (2**10, 2**16, 2**22):
            case = mk.loops("update", elements, threads=args.threads, repetition=repetition)
            native = case.prepare().native
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for turn in range(args.turns):
                for counted in (turn % 2 == 0, turn % 2 == 1):
                    found[counted].append(block(native, codes if counted else []))
            off, on = (np.array(found[counted]) for counted in (False, True))
            ratio = ratio_interval(on[:, 0].tolist(), off[:, 0].tolist(), paired=True)
            row = {"repetition": repetition, "size, B": 8 * elements}
            row |= {"sample, us": 1e6 * np.median(off[:, 0])} | interval("with counters", ratio)
            row |= {"longer between samples, us": 1e6 * np.median(on[:, 1] - off[:, 1])}
            add(rows, row)
    write(args, rows)


if __name__ == "__main__":
    main()
