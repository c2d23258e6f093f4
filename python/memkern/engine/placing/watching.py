"""Conditions of the cores of all workers, observed without any other measurement."""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.engine.placing.preparing import ready
from memkern.engine.processes.communication import exclusive, ranks
from memkern.engine.recording.samples import CONDITIONS, CORE_SHARE
from memkern.engine.sampling import activity
from memkern.engine.sampling.series import Judge
from memkern.host import Host, this_host
from memkern.host.rates import labels_of
from memkern.spec.registry import case


@dataclass(frozen=True)
class ExchangeState:
    """A state of the host: median time of an exchange in it, and its share of the time."""

    exchange_s: float
    share: float


class CoreWatch:
    """Conditions of the cores of all workers, observed while they compute.

    Parameters
    ----------
    host : Host, optional
        By default `memkern.host.this_host`.

    Attributes
    ----------
    watched_s : float
        Seconds in which they were observed.
    """

    _INVOCATIONS = 1000  # per sample: about a millisecond
    _SAMPLES = 256  # per block

    def __init__(self, host: Host | None = None) -> None:
        self.watched_s = 0.0
        self._host = host or this_host()
        self._rows: list[npt.NDArray[np.float64]] = []
        self._judge: Judge | None = None
        self._case = case("launch.compute", invocations=self._INVOCATIONS)

    def observe(self, seconds: float) -> None:
        """Take samples for some seconds."""
        self.watched_s += max(seconds, 0.0)
        end = time.perf_counter() + seconds
        with exclusive():
            prepared = ready(self._case, host=self._host)
            self._judge = Judge(prepared)
            while (left_s := end - time.perf_counter()) > 0:
                block = np.full((self._SAMPLES, 1 + len(CONDITIONS)), np.nan)
                prepared.native.sample(block, prepared.invocations, left_s)
                block = block[~np.isnan(block[:, 0])]
                self._judge.disturbed(block[:, 1:])
                self._rows.append(block)

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return a condition of each sample (see `CONDITIONS`), or its ``seconds``."""
        position = ("seconds", *CONDITIONS).index(name)
        return np.concatenate([np.empty(0), *(rows[:, position] for rows in self._rows)])

    @property
    def best(self) -> float:
        """The best throughput of these cores since the system was booted; NaN if unknown."""
        return self._host.cores.best(self._judge.cores) if self._judge else math.nan

    @property
    def _labels(self) -> npt.NDArray[np.int64]:
        ends = [self.column(name) for name in ("exchange_s", "exchange_least_s")]
        modes = self._host.cores.modes(self._judge.exchanging) if self._judge else []
        return labels_of(1 / np.column_stack(ends), modes)

    @property
    def states(self) -> list[ExchangeState]:
        """The states of the host during the observation, the most frequent one first."""
        exchange_s, labels = self.column("exchange_s"), self._labels
        found = [
            ExchangeState(float(np.median(exchange_s[own])), float(own.mean()))
            for number in range(labels.max(initial=-1) + 1)
            if (own := labels == number).any()
        ]
        return sorted(found, key=lambda state: -state.share)

    @property
    def dwell_s(self) -> float:
        """Mean duration of a state; NaN if it has not changed."""
        changes = int((np.diff(self._labels[self._labels >= 0]) != 0).sum())
        return self.watched_s / changes if changes else math.nan


def shared_probes(seconds: float = 0.2) -> float:
    """Return the share of the probes with a throughput below `CORE_SHARE`.

    NaN for several ranks, which would disturb each other on their host.
    """
    if small.wanted() or ranks().size > 1:
        return math.nan
    watch = CoreWatch()
    watch.observe(seconds)
    share = watch.column("throughput") / watch.best
    share = share[~np.isnan(share)]
    return float((share < CORE_SHARE).mean()) if len(share) else math.nan


def observe_machine() -> activity.Activity:
    """Observe for 0.5 s the other activity on this machine, and the state of its cores."""
    # Intervals need this module; its import takes as long as the observation.
    loading = threading.Thread(target=importlib.import_module, args=("scipy.special",))
    with contextlib.suppress(RuntimeError):  # a limit refuses the thread
        loading.start()
    found = activity.observe_activity()
    if loading.ident:
        loading.join()
    return replace(found, shared_probes=shared_probes())
