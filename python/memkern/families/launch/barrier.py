"""Cost of a team's barrier: work without memory accesses, with and without a barrier after it.

After figure 3 of Alappat et al. 2021. OpenMP's runtime reads its wait policy only at the start of a
process, so that each kind of barrier is measured in a separate process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memkern.checks import one_of
from memkern.engine.public import CaseRun, calibrated, environment_of_ranks
from memkern.errors import InputError
from memkern.formats import ResultSet, concat, load
from memkern.launcher import python_command
from memkern.spec import registry

KINDS = ("omp-passive", "omp-active", "spin")
_INVOCATIONS = 2000


def barrier_cost(
    threads: Sequence[int] | None = None,
    *,
    kinds: Sequence[str] = KINDS,
    runs: int = 10,
    pin: str = "auto",
) -> ResultSet:
    """Measure the team's barrier over team sizes.

    Parameters
    ----------
    threads : sequence of int, optional
        Team sizes; by default 1 to the number of processing units.
    kinds : sequence of str
        ``omp-passive`` and ``omp-active``, OpenMP's barrier with these wait policies, and ``spin``.
    runs : int
        Number of runs; the records contain the median and range over them.
    pin : str
        As in `memkern.Knobs`.

    Returns
    -------
    ResultSet
        One record for each kind and team size, kernel ``launch.barrier``: ``barrier_s``, the
        median time of a barrier over the runs, ``barrier_low_s`` and ``barrier_high_s``, the
        minimum and the maximum, and ``clock_GHz``. If the noise of the work exceeds the cost of the
        barrier, the difference may be negative. A record is disturbed, or not valid, if the
        measurement with or without the barrier is.

    Raises
    ------
    InputError
        A kind is unknown, or a team size is not available.
    """
    for kind in kinds:
        one_of(kind, "barrier", KINDS)
    if not kinds:
        raise InputError("kinds must name a barrier")
    return concat(_measure_in_new_process(kind, threads, runs, pin) for kind in kinds)


def _measure_in_new_process(
    kind: str, threads: Sequence[int] | None, runs: int, pin: str
) -> ResultSet:
    """Measure one kind in a new process, with its wait policy."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "barrier.json"
        words = ["memkern.families.launch.barrier", kind, str(target), str(runs), pin]
        done = subprocess.run(
            python_command(*words, *map(str, threads or ())),
            env={**os.environ, "OMP_WAIT_POLICY": "active" if kind == "omp-active" else "passive"},
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            raise InputError(
                (done.stderr.strip() or "the measuring process failed").split("\n")[-1]
            )
        return load(target)


def measure_here(kind: str, threads: Sequence[int], runs: int, pin: str) -> ResultSet:
    """Measure one kind under the wait policy of this process."""
    records, samples, environments = [], [], {}
    repetition = "spin" if kind == "spin" else "barrier"
    for team in threads:
        case = registry.case(
            "launch.compute", threads=team, pin=pin, runs=runs, invocations=_INVOCATIONS
        )
        runs_of_both = [CaseRun(case.with_(repetition=how)) for how in ("free", repetition)]
        disturbed = [run.place().samples.disturbed for run in runs_of_both]
        if any(disturbed):
            runs_of_both[1].disturb()
        machine = environment_of_ranks()
        without, with_it = (calibrated(run, machine) for run in runs_of_both)
        cost = with_it.samples - float(np.median(without.samples))
        columns: dict[str, Any] = {
            "kernel": "launch.barrier",
            "barrier": kind,
            "barrier_s": float(np.median(cost)),
            "barrier_low_s": float(cost.min()),
            "barrier_high_s": float(cost.max()),
            "valid": without.valid and with_it.valid,
        }
        records.append({**with_it.record, **columns})
        samples.append(cost)
        environments[with_it.record["environment_id"]] = with_it.environment
    return ResultSet(records, samples, environments)


def _main(words: Sequence[str]) -> int:
    kind, target, runs, pin, *teams = words
    from memkern.studies.describe import describe

    units = len(describe()["topology"]["units"])
    try:
        threads = [int(team) for team in teams] or list(range(1, units + 1))
        measure_here(kind, threads, int(runs), pin).save(target)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
