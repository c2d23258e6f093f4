"""Results of the placements of a case, and the measurement with the record that is made of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memkern import small, statistics
from memkern.engine.recording.samples import (
    CORE_SHARE,
    EXCHANGE_SHARE,
    QUIET_SHARE,
    Floats,
    Labels,
    RunningThread,
    Samples,
    median,
)
from memkern.formats import ResultSet
from memkern.host import Capacity
from memkern.host.distances import Spread, observed
from memkern.host.rates import Mode, main_mode, shares_of
from memkern.spec.case import Case
from memkern.spec.kernel import Check

if TYPE_CHECKING:
    from memkern.engine.recording.counting import Counting

# A record counts as of a single state if at least this share of its samples is.
_ONLY_SHARE = 0.95


@dataclass(frozen=True)
class Choice:
    """A variant and instruction set, and how they were chosen (see `Prepared`).

    `threads` is the number of threads for which they were chosen, 0 if it is not known.
    """

    variant: str
    isa: str
    how: str = field(compare=False)
    loss: float = field(default=math.nan, compare=False)
    threads: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Group:
    """The ranks that measured together (see `memkern.engine.processes.communication.Ranks`)."""

    comm: str = "none"
    size: int = 1
    per_node: int = 1
    hosts: Sequence[str] = ("",)
    names_hosts: bool = False
    library: str = ""
    thread_level: str = ""
    transport: str = ""
    barrier_s: float = 0.0


@dataclass(frozen=True)
class Energy:
    """Power of the machine or GPU while a case runs.

    Attributes
    ----------
    power_W : float
        The total; NaN if it is unknown.
    idle_W : float
        Power while this process sleeps; NaN if unknown.
    powers_W : mapping of str to float
        By meter; NaN if the meter could not be read.
    note : str
        Why the total is unknown; empty if it is known.
    """

    power_W: float = math.nan
    idle_W: float = math.nan
    powers_W: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class RankPlacement:
    """Processing units, page size and memory of a rank, and whether it has too few units."""

    units: str
    pages: str
    oversubscribed: bool
    footprint_B: int


@dataclass(frozen=True)
class Placement:
    """Results of one placement of a case.

    It took `wall_s` seconds, and `again_s` without the choice of the variant and the validation,
    which another placement would not repeat; of these, samples took `sampled_s`. `obtained` is this
    rank's, and so is `memory`: the columns on what happened to its pages.
    """

    samples: Samples
    check: Check
    obtained: dict[str, Any]
    choice: Choice
    others: tuple[RunningThread, ...]
    wall_s: float
    again_s: float
    sampled_s: float
    rank_placements: tuple[RankPlacement, ...]
    counting: Counting | None
    memory: Mapping[str, float]


@dataclass(frozen=True)
class Taken:
    """Results of the placements of a case, from which its record is made.

    Parameters
    ----------
    case : Case
    case_id : str
        The identity of the case, including the ranks and the neighbour.
    repeat : int
        Number of this repeat.
    started : str
        Date and time in UTC.
    placements : sequence of Placement
        At least one.
    energy : Energy
    ranks : Group
    device : mapping
        The columns of a GPU's bandwidths and its name ``platform``; empty for other devices.
    capacity : Capacity
        Of the last-level caches.
    best_throughput, best_exchange : float
        Best rates of the workers' cores and of their exchanges since the boot; NaN if unknown.
    modes : sequence of Mode
        Known modes of the workers' exchange rate in lines per second.
    """

    case: Case
    case_id: str
    repeat: int
    started: str
    placements: Sequence[Placement]
    energy: Energy
    ranks: Group
    device: Mapping[str, Any]
    capacity: Capacity
    best_throughput: float = math.nan
    best_exchange: float = math.nan
    modes: Sequence[Mode] = ()

    @functools.cached_property
    def _clean(self) -> list[Placement]:
        return [p for p in self.placements if not p.samples.disturbed]

    @functools.cached_property
    def _labels(self) -> list[Labels]:
        """The mode of each sample, for each undisturbed placement."""
        return [p.samples.labels(self.modes) for p in self._clean]

    @property
    def _all_labels(self) -> Labels:
        return np.concatenate([np.empty(0, dtype=np.int64), *self._labels])

    @functools.cached_property
    def _shares(self) -> Floats:
        """Share of the samples that were taken in each mode."""
        return shares_of(self._all_labels, self.modes)

    @functools.cached_property
    def _state(self) -> int | None:
        """The mode of the samples that count; None if all do."""
        # If the number of samples is fixed, all of them count.
        if self.case.stop.runs is not None or self.disturbed:
            return None
        return main_mode(self._shares, sum(map(len, self._labels)))

    @property
    def mixed(self) -> bool:
        """Whether samples of several states of the host count."""
        return self._state is None and len(self.modes) > 1 and self._shares.max() < _ONLY_SHARE

    @property
    def state_name(self) -> str:
        """A name for the state of the samples that count, which distinguishes records of a case.

        It is the power of two nearest to the nanoseconds of an exchange; empty for all states.
        """
        return "" if self._state is None else f"{round(math.log2(1e9 * self.exchange_s))}"

    @property
    def states(self) -> list[dict[str, Any]]:
        """The states of the host during the samples, with the times in each state."""
        every = [p.samples for p in self._clean]
        seconds = np.concatenate([np.empty(0), *(one.seconds[:, 0] for one in every)])
        exchange_s = np.concatenate([np.empty(0), *(one.exchange_s[:, 1] for one in every)])
        labels = self._all_labels
        return [
            {
                "exchange_ns": round(1e9 * float(np.median(exchange_s[own])), 1),
                "share": round(float(own.mean()), 3),
                "samples": int(own.sum()),
                "time_min_s": float(seconds[own].min()),
                "time_median_s": float(np.median(seconds[own])),
                "counts": self._state in (None, number),
            }
            for number in range(len(self.modes))
            if (own := labels == number).any()
        ]

    @property
    def others(self) -> tuple[RunningThread, ...]:
        """Threads of other processes that ran all the time."""
        return tuple(dict.fromkeys(thread for p in self.placements for thread in p.others))

    @functools.cached_property
    def quiet(self) -> bool:
        """Whether the host was in its best state, without other activity."""
        if small.wanted():
            return True
        samples = [p.samples for p in self.placements]
        lost = [share for one in samples for share in (one.waited_share, one.absent_share)]
        away = any(share >= QUIET_SHARE for share in lost)
        if away or self.others or self.core_share < CORE_SHARE:
            return False
        if not self.modes:
            return True
        slow = self.exchange_s * EXCHANGE_SHARE * self.best_exchange > 1
        return bool(self._shares.max() >= _ONLY_SHARE and not slow)

    @property
    def core_share(self) -> float:
        """Throughput of the cores over their best since the boot; NaN if unknown."""
        throughput = median(np.array([p.samples.throughput for p in self.counted]))
        return min(throughput / self.best_throughput, 1.0)

    @property
    def cases(self) -> int:
        """Number of ranks with their own case; 1 if all ranks share one case."""
        return 1 if self.case.halo or self.case.knobs.backend.over_ranks else self.ranks.size

    @property
    def footprint_B(self) -> int:
        """Bytes of memory that an invocation touches on all ranks."""
        last = self.placements[-1]
        if self.case.knobs.backend.over_ranks:
            return int(last.obtained["footprint_B"])
        return sum(rank.footprint_B for rank in last.rank_placements)

    @property
    def exchange_s(self) -> float:
        """Median time for passing a line from one worker to the next; NaN if unknown."""
        return median(np.concatenate([p.samples.exchange_s[:, 1] for p in self.counted]))

    def medians(self, column: int = 0) -> list[float]:
        """Return the median of each placement that counts (see `Samples.seconds`)."""
        return [statistics.median(seconds[:, column]) for seconds in self.series]

    @property
    def distances(self) -> Spread:
        """What the placements tell of the distance to the next ones."""
        if self.disturbed:
            return Spread()
        return observed([float(one[:, 0].min()) for one in self.series], self.medians())

    @property
    def disturbed(self) -> bool:
        """Whether fewer than half of the placements count."""
        return 2 * len(self._clean) < len(self.placements)

    @functools.cached_property
    def counted(self) -> list[Placement]:
        """The placements that count, with the samples of one state of the host if possible."""
        if self.disturbed:
            return list(self.placements)
        if self._state is None:
            return self._clean
        return [
            replace(p, samples=p.samples.only(labels == self._state))
            for p, labels in zip(self._clean, self._labels, strict=True)
            if (labels == self._state).any()
        ]

    @functools.cached_property
    def series(self) -> list[Floats]:
        """The samples of each placement that counts (see `Samples.seconds`)."""
        # As in STREAM, the first sample is left out if kernels run in turn.
        every = [p.samples.seconds for p in self.counted]
        return [s[1:] if s.shape[1] > 1 and len(s) > 1 else s for s in every]


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """One measured case; measurements with equal results are equal.

    Attributes
    ----------
    record : dict
        The row of the results table.
    samples : ndarray of float64, shape (n,)
        Seconds per invocation, in the order in which they were taken.
    environment : dict
        The machine and build.
    parts : tuple of Measurement
        The single kernels, where an invocation runs several in turn.
    """

    record: dict[str, Any]
    samples: Floats
    environment: dict[str, Any]
    parts: tuple[Measurement, ...] = ()

    def __repr__(self) -> str:
        """Return the case, the main value with its interval, and the state, in one line."""
        from memkern.formats.table import record_line

        return f"<Measurement: {record_line(self.record)}>"

    def __eq__(self, other: object) -> bool:
        """Compare the results."""
        if not isinstance(other, Measurement):
            return NotImplemented
        return self.results == other.results

    @property
    def valid(self) -> bool:
        """Whether the kernel's results were right."""
        return bool(self.record["valid"])

    @property
    def disturbed(self) -> bool:
        """Whether too few samples were undisturbed for reliable times."""
        return bool(self.record["disturbed"])

    @property
    def bandwidth_GBps(self) -> float:
        """Bytes by the paper's formula divided by the shortest time, in 1e9 B/s."""
        return float(self.record["bandwidth_GBps"])

    def cut_off(self) -> Measurement:
        """Return a copy marked as interrupted, which is measured again when the run is resumed."""
        return replace(
            self,
            record={**self.record, "stop": "interrupted"},
            parts=tuple(part.cut_off() for part in self.parts),
        )

    @property
    def results(self) -> ResultSet:
        """The measurement as a result set, its parts first."""
        return to_result_set([self])

    def _repr_html_(self) -> str:
        return self.results._repr_html_()


def to_result_set(done: Sequence[Measurement], interrupted: bool = False) -> ResultSet:
    """Return measurements as one result set, each after its parts."""
    rows = [row for m in done for row in (*m.parts, m)]
    return ResultSet(
        [row.record for row in rows],
        [row.samples for row in rows],
        {row.record["environment_id"]: row.environment for row in rows},
        interrupted,
    )
