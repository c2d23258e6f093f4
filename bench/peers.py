"""What the comparisons with other programs share."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

import memkern as mk
from memkern.statistics import Ratio, geometric_mean, ratio_interval

FLOOR = 0.97
PR_SET_THP_DISABLE = 41
Item = TypeVar("Item")


def no_huge_pages() -> None:
    """Keep this process and its children on 4 KiB pages."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def printed(words: Sequence[object]) -> str:
    """Return what a program prints, run on 4 KiB pages with each of its threads on a core."""
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_PROC_BIND": "true", "OMP_PLACES": "cores"},
        preexec_fn=no_huge_pages,
    )
    return done.stdout


def printed_seconds(words: Sequence[object], prefix: str = "") -> dict[str, float]:
    """Return the last of the three columns that a program prints: name, shortest and median."""
    rows = (line.split() for line in printed(words).splitlines())
    return {row[0]: float(row[2]) for row in rows if len(row) >= 3 and row[0].startswith(prefix)}


def rotated(contestants: Sequence[Item], turn: int) -> list[Item]:
    """Return the contestants in the order of a turn."""
    first = turn % len(contestants)
    return [*contestants[first:], *contestants[:first]]


def valid_record(case: mk.Case, name: str) -> dict[str, Any]:
    """Measure a case once and return its record."""
    record = case.measure().record
    if not record["valid"]:
        raise SystemExit(f"{name} failed its validation")
    return record


def with_interval(ratio: Ratio) -> str:
    """Return a ratio and its interval as text."""
    return f"{ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def best_of_each(ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]]) -> Ratio:
    """Print and return the ratio of the forms that are fastest by their medians over all turns."""
    best, peer = (min(side, key=lambda name: np.median(side[name])) for side in (ours, theirs))
    ratio = ratio_interval(theirs[peer], ours[best], paired=True)
    print(f"  {best} over {peer}: {with_interval(ratio)}", flush=True)
    return ratio


def judge(ratios: Mapping[str, Ratio]) -> bool:
    """Print and return whether memkern is at least as fast in all cases together."""
    mean = geometric_mean([ratio.ratio for ratio in ratios.values()])
    below = [name for name, ratio in ratios.items() if ratio.high < FLOOR]
    good = mean >= 1.0 and not below
    print(f"\nall {len(ratios)} cases: geometric mean {mean:.3f}, wholly below {FLOOR}: {below}")
    print("at least as fast" if good else "NOT at least as fast")
    return good
