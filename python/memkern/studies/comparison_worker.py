"""The process that measures one side of an interleaved comparison.

It reads requests from its standard input and answers on its standard output, each in one line of
JSON. Its first line describes its build and the number of cases. ``{"measure": 3}`` requests the
record of case 3 and ``{"sample": 3}`` one value, ``{"seconds": 1.2e-6}``, or null if it was
disturbed. The answer ``{"error": "..."}`` has the reason why a case can't be measured.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memkern import small
from memkern.engine.public import ALL_B, measure, prepare, take_samples
from memkern.errors import DeviceError, InputError
from memkern.extension import _memkern
from memkern.formats.values import plain_record
from memkern.isolating import enter, limit
from memkern.spec.case import Case
from memkern.spec.sweepfile import read_sweep
from memkern.statistics import median
from memkern.studies.workers import Answer, run_worker

# Stop rule of one placement: many pairs and placements are more informative than many samples.
_STOP: dict[str, Any] = {"runs": None, "ci": 0.005, "budget_s": 0.01, "max_samples": 100}
_RUNS = 5
_PLACEMENTS = 5  # per value, unless _VALUE_S end earlier
_VALUE_S = 0.04


def short(case: Case) -> Case:
    """Return the case with the few samples of one value."""
    if case.spec.limits.most_runs.get(case.dtype) is not None:
        # Values of its arrays grow with every invocation.
        return case.with_(runs=min(case.stop.runs or 1, _RUNS))
    return case.with_(**_STOP)


def seconds_of(case: Case) -> tuple[float, bool]:
    """Return the median time of one invocation in a new placement, and whether it is disturbed."""
    prepared = prepare(case)
    prepared.set_steady_inputs()
    samples = take_samples(prepared)
    return median(samples.seconds[:, 0]), samples.disturbed


def value_of(case: Case) -> dict[str, float | None]:
    """Return the median of a case's times in a few placements.

    ``seconds`` is the median of undisturbed placements, None without any, ``observed`` of all.
    """
    start = time.perf_counter()
    found = []
    for _ in range(small.cut(_PLACEMENTS, 1)):
        found.append(seconds_of(case))
        # Otherwise the next placement would get the same memory.
        _memkern.release_memory(ALL_B)
        if time.perf_counter() - start > _VALUE_S:
            break
    quiet = [seconds for seconds, disturbed in found if not disturbed]
    return {
        "seconds": median(quiet) if quiet else None,
        "observed": median([seconds for seconds, _ in found]),
    }


def serve(
    sweep: str, changes: Mapping[str, Any], requests: Iterable[bytes], answer: Answer
) -> None:
    """Answer requests until there are no more."""
    cases = [short(case) for case in read_sweep(sweep, changes)[0]]
    answer(cases=len(cases), build=_memkern.build(), package=os.path.dirname(_memkern.__file__))
    for line in requests:
        ((verb, number),) = json.loads(line).items()
        try:
            if verb == "measure":
                answer(record=plain_record(measure(cases[number]).record))
            else:
                answer(**value_of(cases[number]))
        except (InputError, MemoryError, DeviceError) as error:
            answer(error=str(error) or "out of memory")
        finally:
            limit(0)  # while the other side measures
            _memkern.release_memory(ALL_B)


def main(words: Sequence[str]) -> int:
    """Serve a sweep file with changes (JSON) on standard input and output."""
    enter()
    sweep, changes = words
    return run_worker(functools.partial(serve, sweep, json.loads(changes)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
