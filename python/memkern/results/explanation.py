"""Explanations of a case's time by experiments, and the sentences that tell them.

The experiments are cases with one thing changed that were measured in turns with the case (see
`memkern.studies.explain`). An explanation is stored in its record.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from memkern.backends import HOST
from memkern.checks import joined
from memkern.discovery import family_module
from memkern.spec.experiments import LEFT, LEVEL, LIMIT, WITHOUT

EXPLAINED = "explained_by"
"""Column with the experiments, as JSON."""
UNEXPLAINED = "not explained"
MOVING = "moving the data"
"""What only `LEFT` experiments remove."""
# Least share of the time of a cause that is named; of the first one, and of the first one near a
# limit; and least share of a limit that is near.
_LEAST, _FIRST, _NEAR_LIMIT, _NEAR = 0.05, 0.3, 0.1, 0.75
# Least gain of an option that is suggested, and end of its interval: half of it is certain.
_GAIN, _SURE = 1.05, 1 / 1.025
_CAUSES = 3
_UNITS = (("ns", 1e9), ("µs", 1e6), ("ms", 1e3), ("s", 1.0))


class Tried(NamedTuple):
    """An experiment's outcome.

    Attributes
    ----------
    name, role, cause, within, option : str
        See `memkern.spec.experiments.Experiment`.
    ratio : float
        Time of the changed case over the time of the case, for the same bytes.
    half_width : float
        Half the width of the interval of its logarithm; 0 if it follows from the sizes.
    rounds : int
        Placements that were compared.
    """

    name: str
    role: str
    cause: str
    within: str
    option: str
    ratio: float
    half_width: float
    rounds: int

    @property
    def low(self) -> float:
        """Lower end of the interval of the ratio."""
        return self.ratio * math.exp(-self.half_width)

    @property
    def high(self) -> float:
        """Upper end of the interval of the ratio."""
        return self.ratio * math.exp(self.half_width)

    @property
    def share(self) -> float:
        """Share of the time: that which falls, or of `LEFT` and `LIMIT` that which remains."""
        return min(self.ratio, 1.0) if self.role in (LEFT, LIMIT) else 1 - self.ratio

    @property
    def decided(self) -> bool:
        """Whether its share is certainly not zero, and large enough to be named."""
        certain = self.low if self.role in (LEFT, LIMIT) else 1 - self.high
        return self.share >= _LEAST and certain > 0

    @property
    def helps(self) -> bool:
        """Whether its option certainly makes the case faster, and by enough to be suggested."""
        return bool(self.option) and self.high < _SURE and self.ratio <= 1 / _GAIN


@dataclass(frozen=True)
class Explanation:
    """What explains the time of a case.

    Parameters
    ----------
    what : str
        The kernel.
    unit : str
        What the time is divided by, such as ``access``.
    unit_s : float
        Seconds of a unit.
    tried : tuple of Tried
    left_out : tuple of str
        Names of the experiments for which the time did not suffice.
    """

    what: str
    unit: str
    unit_s: float
    tried: tuple[Tried, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def of_record(cls, record: Mapping[Any, Any]) -> Explanation | None:
        """Return the explanation of a record; None without one."""
        text = record.get(EXPLAINED)
        if not (isinstance(text, str) and text):
            return None
        known = json.loads(text)
        rows = tuple(Tried(*row) for row in known.pop("tried"))
        return cls(**{**known, "tried": rows, "left_out": tuple(known["left_out"])})

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the record: the first cause, its share and everything that was tried."""
        cause, share = self.first
        own = dataclasses.asdict(self)
        return {"cause": cause, "cause_share": share, EXPLAINED: json.dumps(own)}

    @property
    def levels(self) -> list[Tried]:
        """The experiments with data in the caches, from the innermost one."""
        return [one for one in self.tried if one.role == LEVEL]

    @property
    def causes(self) -> list[Tried]:
        """The causes by what they add to those that they contain, the largest first."""
        every = [one for one in self.tried if one.role in (WITHOUT, LEFT)]
        # What moves the data is removed where only work is left.
        every += [one._replace(role=WITHOUT, cause=MOVING) for one in every if one.role == LEFT]
        # One experiment for each cause: the one that removes most of it.
        known = {one.cause: one for one in sorted(every, key=lambda o: o.share) if one.decided}

        def adds(one: Tried) -> float:
            return one.share - max(
                (each.share for each in known.values() if each.within == one.cause), default=0.0
            )

        return sorted((one for one in known.values() if adds(one) >= _LEAST), key=adds)[::-1]

    @property
    def limit(self) -> Tried | None:
        """The nearest limit: of the levels the core alone, and all others; None without any."""
        limits = [one for one in self.tried if one.role == LIMIT]
        # If data are in L1, the core takes at most what is left without any of the causes.
        least = min((one.ratio for one in self.tried if one.role == WITHOUT), default=1.0)
        for one in self.levels:
            if one.cause == "L1":
                ratio = one.ratio if one.rounds else least
                limits.append(one._replace(role=LIMIT, cause="the core and L1", ratio=ratio))
            elif one.rounds:
                limits.append(one._replace(role=LIMIT))
        return max(limits, key=lambda one: one.share, default=None)

    @property
    def first(self) -> tuple[str, float]:
        """The first cause and its share, else the limit if it is near, else `UNEXPLAINED`."""
        causes, limit = self.causes, self.limit
        near = limit is not None and limit.share >= _NEAR
        if causes and causes[0].share >= (_NEAR_LIMIT if near else _FIRST):
            return causes[0].cause, causes[0].share
        if limit is not None and near:
            return limit.cause, limit.share
        return UNEXPLAINED, causes[0].share if causes else 0.0

    @property
    def advice(self) -> list[Tried]:
        """The options that make the case faster, by their gain."""
        found = sorted((one for one in self.tried if one.helps), key=lambda one: one.ratio)
        options = [one.option for one in found]
        return [one for k, one in enumerate(found) if one.option not in options[:k]]

    @property
    def sentences(self) -> list[str]:
        """The sentences of the explanation: levels, causes, limit, and what to try."""
        return [
            *filter(None, (self._frame(), self._why(), self._limit(), self._try(), self._out()))
        ]

    def __str__(self) -> str:
        """Return the sentences and the table of the experiments."""
        return "\n".join([*self.sentences, *self.rows()])

    def rows(self, width: int = 40) -> list[str]:
        """Return a bar for each experiment, as long as its time relative to the case's."""
        rows = [("as it is", 1.0, "")]
        rows += [(one.name, one.ratio, _interval(one)) for one in self.tried]
        names = max(len(name) for name, *_ in rows)
        longest = max(1.0, *(ratio for _, ratio, _ in rows))
        scale = width / min(longest, 2.0)
        return [
            f"{name:<{names}} {ratio:6.3f} {interval:<16} {_bar(ratio * scale, width)}".rstrip()
            for name, ratio, interval in rows
        ]

    def _frame(self) -> str:
        """Return where the time is, by level."""
        unit, scale = next(one for one in _UNITS if self.unit_s * one[1] < 1000 or one[0] == "s")
        behind, parts = 1.0, list[str]()
        for one in reversed(self.levels):
            part = behind - one.ratio
            if part >= _LEAST:
                parts.append(f"{part * self.unit_s * scale:.3g} are behind {one.cause}")
            behind = min(behind, one.ratio)
        where = parts or [f"none are behind {one.cause}" for one in self.levels[:1]]
        return f"of {self.unit_s * scale:.3g} {unit} {self.unit}, {joined(where)}" if where else ""

    def _why(self) -> str:
        cause, _ = self.first
        texts = []
        for one in self.causes[:_CAUSES]:
            texts.append(
                f"{_share(one)} of the time is {one.cause}"
                if one.role == LEFT
                else f"without {one.cause} it takes {_share(one)} less"
            )
        if cause == UNEXPLAINED:
            least = f"nothing that was tried explains more than {100 * _FIRST:.0f} % of the time"
            return "; ".join([f"{UNEXPLAINED}: {least}", *texts])
        return "; ".join(texts)

    def _limit(self) -> str:
        limit = self.limit
        return (
            f"nearest limit: {limit.cause}, {100 * limit.share:.0f} % of it reached"
            if limit
            else ""
        )

    def _try(self) -> str:
        known = [
            f"{one.option}: {1 / one.ratio:.2f} [{1 / one.high:.2f}, {1 / one.low:.2f}] times as "
            "fast"
            for one in self.advice
        ]
        return f"try {'; '.join(known)} (measured)" if known else "nothing that was tried is faster"

    def _out(self) -> str:
        return (self.left_out and f"not tried for lack of time: {', '.join(self.left_out)}") or ""


def _share(one: Tried) -> str:
    """Return the share of an experiment in percent, with its interval."""
    ends = sorted(end if one.role in (LEFT, LIMIT) else 1 - end for end in (one.low, one.high))
    return f"{100 * one.share:.0f} % [{100 * ends[0]:.0f}, {100 * ends[1]:.0f}]"


def _interval(one: Tried) -> str:
    return f"[{one.low:.3f}, {one.high:.3f}]" if one.rounds else ""


def _bar(length: float, width: int) -> str:
    return "█" * min(round(length), width) + ">" * (round(length) > width)


def has_experiments(record: Mapping[Any, Any]) -> bool:
    """Return whether ``--explain`` can explain the time of a record, which has no explanation."""
    family = str(record.get("kernel")).partition(".")[0]
    here = record.get("backend") == HOST.name and (record.get("ranks") or 1) == 1
    return here and not record.get(EXPLAINED) and bool(family_module(family, "experiments"))
