"""Rates of this machine's cores since the boot: the best ones, and the states of the host.

States are modes of the time for passing a line from one worker to the next. A hypervisor moves the
processors of a virtual machine every few seconds: to one core, one cluster or two clusters.
Exchange times differ several times between these states, and so do bandwidths of caches and memory.
Samples of one state agree with the next run in the same state; a mixture does not.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.host.file import Section

# The value of a record is from one state if it has at least this number and share of the samples.
LEAST_SAMPLES = 10
_LEAST_SHARE_OF_SAMPLES = 0.2
# A mode has at least this share of the measurements. Two modes are separate if the density between
# them is at most half that of the lower one. In the recordings (bench/hosts) modes are a factor of
# 1.4 to 12 apart, and 4 to 15 % wide.
_LEAST_SHARE, _DEPTH = 0.05, 0.5
_SMOOTHED = 0.08  # half width of the average over logarithms


@dataclass(frozen=True)
class Mode:
    """A range of values.

    Attributes
    ----------
    low, high : float
        Its ends.
    share : float
        Share of the measurements in it.
    """

    low: float
    high: float
    share: float


def modes_of(counts: Mapping[int, int], width: float) -> list[Mode]:
    """Return the modes of positive values, in ascending order.

    Parameters
    ----------
    counts : mapping of int to int
        Histogram of their logarithms: bin to count.
    width : float
        Width of a bin.
    """
    if not counts:
        return []
    reach = round(_SMOOTHED / width)
    first = min(counts) - reach
    density = np.zeros(max(counts) + reach + 1 - first)
    density[np.array([*counts]) - first] = [*counts.values()]
    # Cumulated before each bin, to which ends of modes refer.
    before, total = np.concatenate(([0.0], np.cumsum(density))), density.sum()
    density = np.convolve(density, reach + 1 - np.abs(np.arange(-reach, reach + 1)), "same")
    peaks: list[int] = []
    for position in np.flatnonzero(
        (np.diff(density, prepend=0) > 0) & (np.diff(density, append=0) <= 0)
    ):
        peak = int(position)
        while peaks and density[peaks[-1] : peak].min() > _DEPTH * min(density[[peaks[-1], peak]]):
            peak = max(peaks.pop(), peak, key=density.__getitem__)
        peaks.append(peak)
    cuts = [a + int(density[a:b].argmin()) for a, b in itertools.pairwise(peaks)]
    found = []
    for low, high in itertools.pairwise([0, *cuts, len(density)]):
        share = float((before[high] - before[low]) / total)
        if share >= _LEAST_SHARE:
            ends = np.exp((first + np.array([low, high])) * width)
            found.append(Mode(float(ends[0]), float(ends[1]), share))
    return found


def labels_of(ranges: npt.NDArray[np.float64], modes: Sequence[Mode]) -> npt.NDArray[np.int64]:
    """Return the number of the mode in which each sample was taken, -1 between modes.

    Parameters
    ----------
    ranges : ndarray of float64, shape (n, 2)
        The smallest and largest value measured before and after each sample; NaN if unknown.
    modes : sequence of Mode
    """
    labels = np.full(len(ranges), -1)
    for number, mode in enumerate(modes):
        labels[(ranges[:, 0] >= mode.low) & (ranges[:, 1] < mode.high)] = number
    return labels


def shares_of(labels: npt.NDArray[np.int64], modes: Sequence[Mode]) -> npt.NDArray[np.float64]:
    """Return the share of the samples that were taken in each mode (see `labels_of`)."""
    return np.bincount(labels + 1, minlength=len(modes) + 1)[1:] / max(len(labels), 1)


def main_mode(shares: npt.NDArray[np.float64], samples: int) -> int | None:
    """Return the mode in which most samples were taken, by the shares of the modes.

    It is None if there is a single mode, or if too few samples were taken in each.
    """
    if len(shares) < 2:
        return None
    most = int(shares.argmax())
    least = max(_LEAST_SHARE_OF_SAMPLES, LEAST_SAMPLES / max(samples, 1))
    return most if shares[most] >= least else None


# Far above the number of bins of the logarithms of rates, and of measurements in one boot.
_MOST_BIN, _MOST_COUNT = 10**6, 10**15

Counts = Mapping[str, Mapping[int, int]]


class CoreRates:
    """The best rates of this machine's cores, by the cores in use.

    Rates are throughputs, by number and kinds of the cores, and lines exchanged per second, by the
    units. The best rate is the 99th percentile of all measurements since the system was booted,
    because a clock that is measured too low makes a throughput too high.

    Parameters
    ----------
    earlier : mapping of str to mapping of int to int, optional
        The counts of earlier processes (see `added`): this process may never reach the best rate
        if other threads share its cores from the start.
    """

    _WIDTH = 0.01  # of the histogram's bins, in logarithms of the throughput

    def __init__(self, earlier: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._counts = {which: Counter(counts) for which, counts in (earlier or {}).items()}
        self.added: dict[str, Counter[int]] = {}
        """Histograms of this process's measurements, by cores in use: bin to count."""

    def add(self, rates: Iterable[float], which: str) -> None:
        """Add measurements; NaN and repeated values are left out.

        Parameters
        ----------
        rates : iterable of float
            Loads with additions per cycle of the slowest core in use, or lines per second.
        which : str
            The cores in use (see `cores_at_work`), or the units that exchange lines.
        """
        last, new = math.nan, Counter[int]()
        for value in rates:
            if value > 0 and value != last:
                new[math.floor(math.log(value) / self._WIDTH)] += 1
                last = value
        for counts in (self._counts, self.added):
            counts.setdefault(which, Counter()).update(new)

    def best(self, which: str) -> float:
        """Return the best rate of these cores; NaN before any is known."""
        counts = self._counts.get(which, Counter())
        above = counts.total() / 100
        for number in sorted(counts, reverse=True):
            above -= counts[number]
            if above < 0:
                return math.exp((number + 0.5) * self._WIDTH)
        return math.nan

    def modes(self, which: str) -> list[Mode]:
        """Return the modes of these rates, in ascending order; none before any is known."""
        return modes_of(self._counts.get(which, Counter()), self._WIDTH)


def cores_at_work(workers: int, kinds: Collection[int]) -> str:
    """Return a name for the number and kinds of cores in use, by which throughputs are compared.

    Parameters
    ----------
    workers : int
    kinds : collection of int
        Kinds of cores that the workers may run on (efficiency and performance cores).

    Returns
    -------
    str
        Such as ``2``, or ``2 of kinds 0 and 1`` on a hybrid processor.
    """
    if len(kinds) == 0 or set(kinds) == {0}:
        return str(workers)
    return f"{workers} of kinds {' and '.join(map(str, sorted(set(kinds))))}"


def _read(content: Mapping[str, Any]) -> Counts:
    found = {
        str(which): {int(number): int(times) for number, times in counts.items()}
        for which, counts in content.items()
    }
    if not all(
        abs(number) < _MOST_BIN and 0 < times < _MOST_COUNT
        for counts in found.values()
        for number, times in counts.items()
    ):
        raise ValueError("a bin or a count is out of range")
    return found


RATES: Section[Counts] = Section(
    "cores",
    {},
    _read,
    lambda known, new: {
        name: Counter(known.get(name, {})) + Counter(new.get(name, {})) for name in {**known, **new}
    },
)
