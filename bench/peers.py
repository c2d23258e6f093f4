"""Functions shared by the comparisons with other programs."""

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from records import Row, add, write

import memkern as mk
from memkern.statistics import Ratio, geometric_mean, ratio_interval

FLOOR = 0.97
LAUNCHERS = {
    "mpi": ["mpirun", "--bind-to", "core"],
    # Open MPI's OpenSHMEM ends with a segmentation fault in this transport.
    "shmem": ["oshrun", "--bind-to", "core", "--mca", "btl", "^uct"],
}
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


def printed_by(site: str, program: str, *words: str) -> dict[str, Any]:
    """Return the JSON that a Python program prints with the package in a folder ('' for this)."""
    env = {**os.environ, **({"PYTHONPATH": site} if site else {})}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout))


def printed_seconds(words: Sequence[object], prefix: str = "") -> dict[str, float]:
    """Return the last of the three columns that a program prints: name, shortest and median."""
    rows = (line.split() for line in printed(words).splitlines())
    return {row[0]: float(row[2]) for row in rows if len(row) >= 3 and row[0].startswith(prefix)}


def launcher(device: str, ranks: int) -> list[str]:
    """Return the words that start ranks of a library, which root may do as well."""
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        os.environ.setdefault(name, "1")
    return [*LAUNCHERS[device], "-n", str(ranks)]


def printed_record(launcher: Sequence[str], words: Sequence[object]) -> dict[str, Any]:
    """Return the valid record that a command of memkern prints."""
    command = [*launcher, sys.executable, "-m", "memkern", *words, "--json"]
    (record,) = json.loads(printed(command))
    return _valid(record, " ".join(map(str, words)))


def rotated(contestants: Sequence[Item], turn: int) -> list[Item]:
    """Return the contestants in the order of a turn."""
    first = turn % len(contestants)
    return [*contestants[first:], *contestants[:first]]


def in_turns(
    names: Iterable[Item], turns: int, measure: Callable[[Item, int], Found]
) -> dict[Item, list[Found]]:
    """Return the results of `measure` for each name in each turn, in rotating order."""
    found: dict[Item, list[Found]] = {name: [] for name in names}
    for turn in range(turns):
        for name in rotated(list(found), turn):
            found[name].append(measure(name, turn))
        print(f"  turn {turn + 1} of {turns} done", file=sys.stderr)
    return found


def by_form(seconds: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the seconds of all turns by form; a turn may have several forms."""
    found: dict[str, list[float]] = {}
    for one in seconds:
        for form, time_s in one.items():
            found.setdefault(form, []).append(time_s)
    return found


def valid_record(case: mk.Case, name: str) -> dict[str, Any]:
    """Measure a case once and return its record."""
    return _valid(case.measure().record, name)


def _valid(record: dict[str, Any], name: str) -> dict[str, Any]:
    if not record["valid"]:
        raise SystemExit(f"{name} failed its validation")
    return record


def best_of_each(
    ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]]
) -> tuple[str, str, Ratio]:
    """Return the forms that are fastest by their medians over all turns, and their ratio."""
    best, peer = (min(side, key=lambda name: np.median(side[name])) for side in (ours, theirs))
    return best, peer, ratio_interval(theirs[peer], ours[best], paired=True)


def judge(ratios: Mapping[str, Ratio]) -> bool:
    """Print and return whether memkern is at least as fast in all cases together."""
    mean = geometric_mean([ratio.ratio for ratio in ratios.values()])
    below = [name for name, ratio in ratios.items() if ratio.high < FLOOR]
    good = mean >= 1.0 and not below
    print(f"\nall {len(ratios)} cases: geometric mean {mean:.3f}, wholly below {FLOOR}: {below}")
    print("at least as fast" if good else "NOT at least as fast")
    return good


def compare_all(
    args: argparse.Namespace, cases: Mapping[str, Callable[[], tuple[Row, list[Row], Ratio]]]
) -> None:
    """Compare, print, write and judge cases.

    Parameters
    ----------
    args : argparse.Namespace
        As `records.parsed` returns it.
    cases : mapping of callable
        By title: returns a case's row, the rows of its forms and its ratio.
    """
    rows: list[Row] = []
    every: list[Row] = []
    ratios: dict[str, Ratio] = {}
    for title, compared in cases.items():
        row, forms, ratios[title] = compared()
        add(rows, row)
        every += forms
    write(args, rows, forms=every)
    judge(ratios)
