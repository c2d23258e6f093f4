"""Functions shared by the comparisons with other programs.

Peers are built elsewhere, with their own release flags. Every turn runs all contestants in rotating
order, and the peer of a row is the form with the smallest median over the turns. A ratio is the
peer's time over memkern's; its interval comes from the turns.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from records import Row, interval

import memkern as mk
from memkern.statistics import geometric_mean, ratio_interval

LAUNCHERS = {
    "mpi": ["mpirun", "--bind-to", "core"],
    # Open MPI's OpenSHMEM ends with a segmentation fault in this transport.
    "shmem": ["oshrun", "--bind-to", "core", "--mca", "btl", "^uct"],
}
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PR_SET_THP_DISABLE = 41
# Each thread of OpenMP on a core.
ON_CORES = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
Item = TypeVar("Item")
Found = TypeVar("Found")


def printed(
    words: Sequence[object], variables: Mapping[str, str] = ON_CORES, huge: bool = False
) -> str:
    """Return the output of a program, which has transparent huge pages only if `huge`."""
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 0 if huge else 1, 0, 0, 0),
    )
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
    done.check_returncode()
    return done.stdout


def printed_seconds(words: Sequence[object], column: int = 2, **how: Any) -> dict[str, float]:
    """Return the shortest (1) or median (2) seconds that a program prints after each name."""
    rows = (line.split() for line in printed(words, **how).splitlines())
    return {row[0]: float(row[column]) for row in rows if len(row) >= 3}


def launcher(device: str, ranks: int) -> list[str]:
    """Return the words that start ranks of a library, which root may do as well."""
    os.environ |= ROOT_MAY
    return [*LAUNCHERS[device], "-n", str(ranks)]


def records_of(
    *words: object, launcher: Sequence[str] = (), valid: bool = True, **how: Any
) -> list[dict[str, Any]]:
    """Return the records that a command of memkern prints, which must be valid unless told."""
    command = [*launcher, sys.executable, "-m", "memkern", *words, "--json", "-q"]
    found: list[dict[str, Any]] = json.loads(printed(command, **how))
    for record in found if valid else ():
        must_be_valid(record, " ".join(map(str, words)))
    return found


def must_be_valid(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a record; end with an error if its results are wrong."""
    if not record["valid"]:
        raise SystemExit(f"{name} failed its validation")
    return record


def seconds_of(case: mk.Case, name: str, column: str = "time_median_s") -> dict[str, float]:
    """Measure a case once, and return a column of its record by its name."""
    return {name: float(must_be_valid(case.measure().record, name)[column])}


def in_turns(
    names: Iterable[Item], turns: int, measure: Callable[[Item], Found]
) -> dict[Item, list[Found]]:
    """Return the results of `measure` for each name in each turn, in rotating order."""
    found: dict[Item, list[Found]] = {name: [] for name in names}
    for turn in range(turns):
        first = turn % len(found)
        for name in [*list(found)[first:], *list(found)[:first]]:
            found[name].append(measure(name))
        print(f"  turn {turn + 1} of {turns} done", file=sys.stderr)
    return found


def forms_in_turns(
    cases: Mapping[str, mk.Case],
    peers: Mapping[str, Callable[[], Mapping[str, float]]],
    turns: int,
    column: str = "time_median_s",
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the seconds of memkern's forms and of the peers' in the turns.

    A peer may have several forms, whose seconds it returns by their names.
    """
    runs = {name: partial(seconds_of, case, name, column) for name, case in cases.items()}
    runs |= peers
    found = in_turns(runs, turns, lambda name: runs[name]())
    ours = _by_form(one for name in cases for one in found.pop(name))
    return ours, _by_form(one for some in found.values() for one in some)


def _by_form(seconds: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the seconds of all turns by form; a turn may have several forms."""
    found: dict[str, list[float]] = {}
    for one in seconds:
        for form, time_s in one.items():
            found.setdefault(form, []).append(time_s)
    return found


def beside(
    peer: str,
    unit: str,
    ours: Mapping[str, Sequence[float]],
    theirs: Mapping[str, Sequence[float]],
    work: float = 0.0,
) -> Row:
    """Return the entries of a row for the fastest form of both sides by the medians of the turns.

    Parameters
    ----------
    peer, unit : str
        Name of the other side, and unit of what is compared, in headings.
    ours, theirs : mapping of sequence
        Times of each form in the turns. A form's name is an entry if it has one.
    work : float, optional
        What is done in a time, in the unit times its seconds; by default times are compared.
    """
    best, other = (min(side, key=lambda form: np.median(side[form])) for side in (ours, theirs))
    row: Row = {"form": best} if best else {}
    medians = [float(np.median(times)) for times in (ours[best], theirs[other])]
    own, their = [work / median if work else median for median in medians]
    row |= {f"memkern, {unit}": own} | ({"peer": other} if other else {})
    row |= {f"{peer}, {unit}": their}
    return row | interval("ratio", ratio_interval(theirs[other], ours[best], paired=True))


def as_fast(rows: Sequence[Row], floor: float = 0.97, least_mean: float = 1.0) -> bool:
    """Print and return whether memkern is at least as fast by the ratios of all rows together."""
    judged = [row for row in rows if "ratio high" in row]
    mean = geometric_mean([row["ratio"] for row in judged])
    names = [
        ", ".join(str(value) for value in row.values() if not isinstance(value, float | None))
        for row in judged
        if row["ratio high"] < floor
    ]
    good = mean >= least_mean and not names
    print(f"\nall {len(judged)} cases: geometric mean {mean:.3f}, wholly below {floor}: {names}")
    print("at least as fast" if good else "NOT at least as fast")
    return good
