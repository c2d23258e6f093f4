"""Conditions of the cores of all workers, observed while nothing but them is measured."""

from __future__ import annotations

import dataclasses
import importlib
import math
import threading
import time

import numpy as np
import numpy.typing as npt

from memkern import small
from memkern.engine import cores, disturbance, sampling
from memkern.engine.communication import ranks
from memkern.engine.preparing import prepare
from memkern.engine.process import exclusive
from memkern.spec.registry import case

__all__ = ["CoreWatch", "observe_machine", "shared_probes"]

_COLUMNS = 5  # of rows, whose workers are bound and do not move
_PROBED_S = 0.2


class CoreWatch:
    """Conditions of the cores of all workers, observed while they compute.

    Attributes
    ----------
    watched_s : float
        Seconds in which they were observed.
    """

    _INVOCATIONS = 1000  # of a sample: about a millisecond
    _SAMPLES = 256  # that are taken at once

    def __init__(self) -> None:
        self.watched_s = 0.0
        self._rows: list[npt.NDArray[np.float64]] = []
        self._cores = ""
        self._exchanges = ""
        self._case = case("launch.compute", invocations=self._INVOCATIONS)

    def observe(self, seconds: float) -> None:
        """Take samples for some seconds."""
        self.watched_s += max(seconds, 0.0)
        end = time.perf_counter() + seconds
        with exclusive():
            prepared = prepare(self._case)
            self._cores = cores.cores_at_work(prepared.obtained)
            self._exchanges = cores.exchanging_units(prepared.obtained)
            judge = sampling.Judge(prepared)
            while (left_s := end - time.perf_counter()) > 0:
                block = np.full((self._SAMPLES, 1 + sampling.CONDITIONS), np.nan)
                prepared.native.sample(block, prepared.invocations, left_s, 0.0)
                block = block[~np.isnan(block[:, 0])]
                judge.disturbed(block[:, 0], block[:, 1:])
                self._rows.append(block[:, :_COLUMNS])

    @property
    def rows(self) -> npt.NDArray[np.float64]:
        """Seconds and conditions of each sample (see `doctor.core_findings`), shape (n, 5)."""
        return np.concatenate(self._rows) if self._rows else np.empty((0, _COLUMNS))

    @property
    def best(self) -> float:
        """The best throughput of these cores since the system was booted; NaN if unknown."""
        return cores.cores().best(self._cores)

    @property
    def best_exchange_s(self) -> float:
        """The shortest exchange of a line between them since then; NaN if unknown."""
        return 1 / cores.cores().best(self._exchanges)


def shared_probes(seconds: float = _PROBED_S) -> float:
    """Return the share of the probes in which the cores did less than `disturbance.CORE_SHARE`.

    NaN for several ranks, which would disturb each other on the cores of their host.
    """
    if small.wanted() or ranks().size > 1:
        return math.nan
    watch = CoreWatch()
    watch.observe(seconds)
    share = watch.rows[:, 2] / watch.best
    share = share[~np.isnan(share)]
    return float((share < disturbance.CORE_SHARE).mean()) if len(share) else math.nan


def observe_machine() -> disturbance.Activity:
    """Observe for half a second what else runs on this machine, and what its cores do."""
    # Intervals need this module, whose import takes as long as the activity is observed.
    loading = threading.Thread(target=importlib.import_module, args=("scipy.special",))
    loading.start()
    activity = cores.observe_activity()
    loading.join()
    return dataclasses.replace(activity, shared_probes=shared_probes())
