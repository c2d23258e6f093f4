"""Searching the options of a case."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memkern.errors import InputError
from memkern.machine.topology import machine_environment
from memkern.measuring.prepared import prepare
from memkern.measuring.record import Measurement, measure, to_result_set
from memkern.results import ResultSet
from memkern.spec.case import Case

TUNED_ON_DEVICE: dict[str, tuple[Any, ...]] = {
    "unroll": (0, 1, 2, 4, 8),
    "block_threads": (0, 64, 128, 256, 512, 1024),
}
TUNED: dict[str, tuple[Any, ...]] = {
    "pages": ("default", "4k", "thp", "hugetlb-2m"),
    "prefetch": (0, 1, 2, 4, 8, 16, 32, 64),
    "chunk": (0, 16, 256, 4096),
}


def tune(
    case: Case,
    *,
    budget_s: float = 30.0,
    knobs: Mapping[str, Sequence[Any]] | None = None,
    progress: Callable[[float], object] | None = None,
) -> tuple[Case, ResultSet]:
    """Search the knobs of a case, one after another, within a time budget.

    The variant and instruction set come first, then each knob in turn with the best so far kept.

    Parameters
    ----------
    case : Case
    budget_s : float
        Seconds for the search; what has not been tried by then is left as it is.
    knobs : mapping, optional
        Values to try by knob; the default is `TUNED`, on a GPU `TUNED_ON_DEVICE`.
    progress : callable, optional
        Called with the share of the trials that is over.

    Returns
    -------
    best : Case
        The case with the best knobs found.
    search : ResultSet
        Every trial, in order; column ``tune_step`` names what was varied. The last record is
        the best case, measured once more.
    """
    if not 0 < budget_s < math.inf:
        raise InputError(f"budget must be a positive number of seconds, not {budget_s}")
    usual = TUNED if case.knobs.device == "cpu" else TUNED_ON_DEVICE
    space = {"variant": _variants(case), **(knobs or usual)}
    trials = sum(len(values) for values in space.values())
    end = time.perf_counter() + budget_s
    machine = machine_environment()
    search: list[Measurement] = []
    best, best_s = case, math.inf
    for knob, values in space.items():
        base = best
        for value in values:
            if time.perf_counter() > end:
                break
            changes = dict(value) if knob == "variant" else {knob: value}
            trial = base.with_(
                **changes, budget_s=budget_s / trials / 2, max_samples=200, placements=1
            )
            try:
                result = measure(trial, extra={"tune_step": knob}, machine=machine)
            except (InputError, MemoryError):
                continue  # not to be had on this machine
            search.append(result)
            if progress is not None:
                progress(len(search) / trials)
            decides = result.valid and not result.disturbed
            if decides and result.record["time_median_s"] < best_s:
                best, best_s = base.with_(**changes), result.record["time_median_s"]
        if _trials_of(search, knob) and all(m.disturbed for m in _trials_of(search, knob)):
            warnings.warn(f"every trial of {knob} was disturbed: it stays as it was", stacklevel=2)
    search.append(measure(best, extra={"tune_step": "best"}, machine=machine))
    return best, to_result_set(search)


def _trials_of(search: Sequence[Measurement], knob: str) -> list[Measurement]:
    """Return the trials of one step of a search."""
    return [m for m in search if m.record["tune_step"] == knob]


def _variants(case: Case) -> list[dict[str, str]]:
    candidates = prepare(case).native.candidates()
    if case.knobs.device != "cpu":
        return [{"variant": variant} for variant, _ in candidates]
    return [{"variant": variant, "isa": isa} for variant, isa in candidates]
