"""The cases for which a limited time suffices, and the time of each of their placements.

The most informative cases come first (see `by_importance`).

The cost of a placement is estimated from the times of placing two cases on this machine, and known
once the case was placed. A case is begun only if the time suffices for `LEAST_PLACEMENTS`
placements of it and of all cases begun before: fewer placements do not show the variance between
them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from memkern import backends, small
from memkern.engine.placing.costs import EXPECTED_S
from memkern.engine.placing.preparing import trials_s
from memkern.engine.placing.run import CaseRun
from memkern.engine.processes.communication import exclusive, ranks
from memkern.engine.recording.record import Need, needs_of
from memkern.host import this_host
from memkern.spec import registry
from memkern.spec.case import Case

T = TypeVar("T")


LEAST_PLACEMENTS = 3
# A placement is sampled for at least this share of its part of the budget, or this many seconds.
_LEAST_SAMPLED, _LEAST_SAMPLED_S = 0.5, 0.05
_WARM_UP_S = 0.01  # before the samples of a placement
# Share of the time that is reserved for cases that take longer than estimated, and the share that a
# single one of many cases may take, since it could take several times as long.
_RESERVE, _MOST_SHARE = 0.05, 0.1
# Estimates from the rates are multiplied by the ratio of the previous placements' times to their
# estimates, within these limits.
_FACTORS = (0.5, 8.0)
# Footprints of the copies by which the rates are measured, and their variant.
_PROBES = {backends.PROCESSORS: ((2**12, 2**25), "auto"), backends.GPUS: ((2**12, 2**28), "simt")}


@dataclass(frozen=True)
class Rates:
    """Rates at which this machine places cases.

    Attributes
    ----------
    once_s : float
        Seconds of a placement of a case with little data, without samples.
    first_s : float
        Additional seconds of its first placement, for trials and checks.
    placed_Bps : float
        Bytes of a case divided by the additional seconds for allocating, touching and filling them.
    validated_Bps : float
        Bytes divided by the additional seconds of the first placement, for trials and checks.
    """

    once_s: float = 0.01
    first_s: float = 0.01
    placed_Bps: float = 2e9
    validated_Bps: float = 1e9


@dataclass(frozen=True)
class Cost:
    """Seconds of the first and of each further placement of a case with the fewest samples."""

    first_s: float
    again_s: float

    def least_s(self, placements: int) -> float:
        """Return the seconds of some placements."""
        return self.first_s + (placements - 1) * self.again_s


@functools.cache
def rates(device: str = "cpu") -> Rates:
    """Measure for a few tenths of a second how fast cases are placed on a device."""
    if small.wanted():
        return Rates()
    probes_B, variant = _PROBES[backends.of(device).kind]
    found = []
    with exclusive():
        # The first placement of a process initialises the device.
        for bytes_B in (probes_B[0], *probes_B):
            how: dict[str, Any] = {"footprint_B": bytes_B, "variant": variant, "device": device}
            case = registry.case("stream.copy", runs=1, **how)
            one = CaseRun(case).place()
            found.append((case.bytes_B, one.again_s - one.sampled_s, one.wall_s - one.again_s))
    (few_B, once_s, first_s), (many_B, more_s, more_first_s) = found[1:]
    further_B = many_B - few_B
    measured = Rates(
        once_s,
        first_s,
        further_B / max(more_s - once_s, 1e-3),
        further_B / max(more_first_s - first_s, 1e-3),
    )
    return ranks().first(measured)


def _rates_of(case: Case) -> Rates:
    return rates(case.knobs.device if case.knobs.backend.is_accelerator else backends.HOST.device)


def _sampled_s(case: Case, by: Rates) -> float:
    """Return the seconds of sampling of a placement if the time suffices."""
    if case.stop.runs is None:
        return case.stop.usual_s / case.placements
    invocations = case.stop.runs / case.placements * max(case.stop.invocations, 1)
    return invocations * case.bytes_B / by.placed_Bps


def _least_sampled_s(case: Case, by: Rates) -> float:
    """Return the least seconds of sampling of a placement."""
    sampled_s = _sampled_s(case, by)
    if case.stop.runs is not None:
        return sampled_s
    return min(_LEAST_SAMPLED * sampled_s, _LEAST_SAMPLED_S)


def cost(case: Case, by: Rates) -> Cost:
    """Estimate the times of placements of a case with the fewest samples."""
    again_s = by.once_s + _WARM_UP_S + case.bytes_B / by.placed_Bps + _least_sampled_s(case, by)
    first_s = again_s + by.first_s + case.bytes_B / by.validated_Bps
    if case.knobs.variant == "best":
        first_s += trials_s(case.stop.usual_s)
    return Cost(first_s, again_s)


def expected_s(cases: Iterable[Case]) -> float:
    """Estimate the seconds of all placements of cases with all of their samples.

    What their records need besides, such as launch costs, is measured once.
    """
    total_s, needs = 0.0, set[Need]()
    for case in cases:
        by = _rates_of(case)
        rest_s = _sampled_s(case, by) - _least_sampled_s(case, by)
        total_s += cost(case, by).least_s(case.placements) + rest_s * case.placements
        needs |= {*needs_of(case, case.knobs.threads, lambda: 0)}
    return total_s + sum(EXPECTED_S[need.kind] for need in needs - this_host().measured.keys())


def by_importance(items: Sequence[T], case_of: Callable[[T], Case]) -> list[T]:
    """Return items in an order of which every beginning covers all families and their ranges.

    Families alternate in proportion to their numbers of cases, and so do the kernels in a family.
    The first and last case of each kernel come first, then the cases halfway between others.
    """
    families: dict[str, dict[str, list[T]]] = {}
    for item in items:
        kernel = case_of(item).spec.kernel
        kernels = families.setdefault(kernel.partition(".")[0], {})
        kernels.setdefault(kernel, []).append(item)
    return _in_turns(
        _in_turns([own[position] for position in _halved(len(own))] for own in kernels.values())
        for kernels in families.values()
    )


def _in_turns(groups: Iterable[list[T]]) -> list[T]:
    """Merge lists so that every beginning has the same share of each list."""
    ranked = [(rank / len(group), one) for group in groups for rank, one in enumerate(group)]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def _halved(number: int) -> list[int]:
    """Return the positions in a sequence: both ends, the middle, the middles of both halves, ..."""
    found = dict.fromkeys((0, number - 1)) if number else {}
    gaps = [(0, number - 1)]
    for low, high in gaps:
        middle = (low + high) // 2
        if middle not in found:
            found[middle] = None
            gaps += [(low, middle), (middle, high)]
    return list(found)


def planned(cases: Sequence[Case], time_s: float) -> list[Case]:
    """Return the cases for which a time suffices by estimate, the most informative first."""
    cases = by_importance(cases, lambda case: case)
    most_s, left_s = _most_s(cases, time_s), (1 - _RESERVE) * time_s
    needed_s = [cost(case, _rates_of(case)).least_s(_least(case)) for case in cases]
    return [cases[position] for position in _fitting(needed_s, left_s, most_s)]


def _fitting(needed_s: Sequence[float], left_s: float, most_s: float) -> list[int]:
    """Return the positions of the items that fit into the remaining time, in their order.

    If none fits, return the position of the shortest.
    """
    found = []
    for position, seconds in enumerate(needed_s):
        if seconds <= min(left_s, most_s):
            found.append(position)
            left_s -= seconds
    if needed_s and not found:
        found.append(min(range(len(needed_s)), key=needed_s.__getitem__))
    return found


def _most_s(cases: Sequence[object], time_s: float) -> float:
    """Return the limit of the least seconds of a single case."""
    return max(_MOST_SHARE, 2 / max(len(cases), 1)) * time_s


def _least(case: Case) -> int:
    return min(LEAST_PLACEMENTS, case.placements)


class Plan:
    """The plan of a sweep for a limited time.

    Parameters
    ----------
    runs : sequence of CaseRun
        The cases, the most important ones first.
    end_s : float
        End of the time, on the clock of `time.perf_counter`; it is extended by the time for
        computing the traffic of the cases, which is part of building them.
    """

    def __init__(self, runs: Sequence[CaseRun], end_s: float) -> None:
        begin_s = time.perf_counter()
        self._costs = {id(run): cost(run.case, _rates_of(run.case)) for run in runs}
        self._end_s = end_s + time.perf_counter() - begin_s
        self._time_s = self._left_s
        self._most_s = _most_s(runs, self._time_s)
        self._weights = {id(run): _sampled_s(run.case, _rates_of(run.case)) for run in runs}
        # Weights of all remaining placements.
        self._weight = sum(self._weights[id(run)] * run.case.placements for run in runs)
        # Least seconds of begun cases, and estimated seconds of the cases for which the time
        # suffices.
        self._begun_s = 0.0
        needed_s = [self._costs[id(run)].least_s(_least(run.case)) for run in runs]
        fitting = _fitting(needed_s, self._left_s, self._most_s)
        self._ahead_s = {id(runs[position]): needed_s[position] for position in fitting}
        # At least one case is begun, unless the time is over.
        self._any = id(runs[fitting[0]]) if fitting else 0
        self._estimated_s = self._took_s = 0.0

    @property
    def _left_s(self) -> float:
        return self._end_s - time.perf_counter()

    @property
    def _factor(self) -> float:
        """Ratio of the first placements' times to their estimates."""
        if not self._estimated_s:
            return 1.0
        return min(max(self._took_s / self._estimated_s, _FACTORS[0]), _FACTORS[1])

    def _takes_s(self, run: CaseRun) -> float:
        """Return the seconds of the next placement with the fewest samples."""
        one = self._costs[id(run)]
        return one.again_s if run.placements else one.first_s * self._factor

    def _lacking_s(self, run: CaseRun) -> float:
        """Return the seconds that a case needs at least after its next placement."""
        again_s = self._costs[id(run)].again_s * (1.0 if run.placements else self._factor)
        return max(_least(run.case) - len(run.placements) - 1, 0) * again_s

    def suffices(self, run: CaseRun) -> bool:
        """Return whether the time suffices for the next placement of a case.

        It has to suffice for the least placements of this case and of all others that were begun.
        The least placements of a begun case are always made, even after the time if estimates were
        too low.
        """
        if 0 < len(run.placements) < _least(run.case):
            return True
        own_s = self._takes_s(run) + self._lacking_s(run)
        most_s = self._time_s if run.placements else self._most_s
        kept_s = 0.0 if run.placements else _RESERVE * self._time_s
        fits = own_s <= most_s and own_s + self._begun_s <= self._left_s - kept_s
        # The clocks of ranks differ, so they agree on the first case as well.
        first = id(run) == self._any and not run.placements and self._left_s > 0
        return ranks().agreed(fits or first)

    def begin(self, run: CaseRun) -> None:
        """Set the deadline of a case's next placement: its share of the time that is left."""
        self._ahead_s.pop(id(run), None)
        takes_s = self._takes_s(run)
        # The least placements of a begun case are already among those of the begun cases.
        begun = 0 < len(run.placements) < _least(run.case)
        own_s = 0.0 if begun else takes_s + self._lacking_s(run)
        free_s = self._left_s - own_s - self._begun_s - self._factor * sum(self._ahead_s.values())
        weight = self._weights[id(run)]
        share_s = max(free_s, 0.0) * weight / max(self._weight, weight, 1e-9)
        run.deadline = time.perf_counter() + takes_s + share_s

    def placed(self, run: CaseRun) -> None:
        """Update the estimates with the time of the last placement."""
        last, one = run.placements[-1], self._costs[id(run)]
        self._weight -= self._weights[id(run)]
        least = _least(run.case)
        if len(run.placements) > 1:
            self._begun_s -= one.again_s if len(run.placements) <= least else 0.0
            return
        sampled_s = last.sampled_s
        if run.case.stop.runs is None:
            sampled_s = min(sampled_s, _least_sampled_s(run.case, _rates_of(run.case)))
        again_s = last.again_s - last.sampled_s + sampled_s
        self._estimated_s += one.first_s
        self._took_s += last.wall_s - last.sampled_s + sampled_s
        self._costs[id(run)] = replace(one, again_s=again_s)
        self._begun_s += (least - 1) * again_s

    def leave_out(self, run: CaseRun) -> int:
        """Drop a case's placements beyond the least number, or all, and return how many."""
        left = run.case.placements - len(run.placements)
        self._weight -= left * self._weights[id(run)]
        self._ahead_s.pop(id(run), None)
        return left
