"""States of the host: modes of the time for passing a line from one worker to the next.

A hypervisor moves the processors of a virtual machine every few seconds: to one core, one cluster
or two clusters. Exchange times differ several times between these states, and so do bandwidths of
caches and memory. Samples of one state agree with the next run in the same state; a mixture does
not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_SAMPLES", "Mode", "labels_of", "main_mode", "modes_of", "shares_of"]

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
    for number, times in counts.items():
        density[number - first] = times
    # Cumulated before each bin, to which ends of modes refer.
    before, total = np.concatenate(([0.0], np.cumsum(density))), density.sum()
    kernel = reach + 1 - np.abs(np.arange(-reach, reach + 1))
    density = np.convolve(density, kernel, "same")
    peaks: list[int] = []
    for place in np.flatnonzero(
        (np.diff(density, prepend=0) > 0) & (np.diff(density, append=0) <= 0)
    ):
        peak = int(place)
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
    counts = np.bincount(labels + 1, minlength=len(modes) + 1)[1:]
    return counts / max(len(labels), 1)


def main_mode(shares: npt.NDArray[np.float64], samples: int) -> int | None:
    """Return the mode in which most samples were taken, by the shares of the modes.

    It is None if there is a single mode, or if too few samples were taken in each.
    """
    if len(shares) < 2:
        return None
    most = int(shares.argmax())
    least = max(_LEAST_SHARE_OF_SAMPLES, LEAST_SAMPLES / max(samples, 1))
    return most if shares[most] >= least else None
