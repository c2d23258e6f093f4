"""The best rates and the modes of this machine's cores, from all measurements since the boot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from memkern.host.file import Section
from memkern.host.states import Mode, modes_of

__all__ = ["RATES", "CoreRates", "cores_at_work"]

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
        self._earlier = {which: Counter(counts) for which, counts in (earlier or {}).items()}
        self._best: dict[str, float] = {}
        self.added: dict[str, Counter[int]] = {}
        """Histograms of this process's measurements, by cores in use: bin to count."""
        self._changed = {*self._earlier}

    def add(self, rates: Iterable[float], which: str) -> None:
        """Add measurements; NaN and repeated values are left out.

        Parameters
        ----------
        rates : iterable of float
            Loads with additions per cycle of the slowest core in use, or lines per second.
        which : str
            The cores in use (see `cores_at_work`), or the units that exchange lines.
        """
        last = math.nan
        counts = self.added.setdefault(which, Counter())
        for value in rates:
            if value > 0 and value != last:
                counts[math.floor(math.log(value) / self._WIDTH)] += 1
                last = value
        self._changed.add(which)

    def _all(self, which: str) -> Counter[int]:
        """Return the counts of earlier processes and of this one."""
        return self._earlier.get(which, Counter()) + self.added.get(which, Counter())

    def _update(self, which: str) -> None:
        counts = self._all(which)
        above = counts.total() / 100
        for number in sorted(counts, reverse=True):
            above -= counts[number]
            if above < 0:
                self._best[which] = math.exp((number + 0.5) * self._WIDTH)
                break

    def best(self, which: str) -> float:
        """Return the best rate of these cores; NaN before any is known."""
        if which in self._changed:
            self._update(which)
            self._changed.discard(which)
        return self._best.get(which, math.nan)

    def modes(self, which: str) -> list[Mode]:
        """Return the modes of these rates, in ascending order; none before any is known."""
        return modes_of(self._all(which), self._WIDTH)


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


def _sum(known: Counts, new: Counts) -> Counts:
    names = {**known, **new}
    return {name: Counter(known.get(name, {})) + Counter(new.get(name, {})) for name in names}


RATES: Section[Counts] = Section("cores", {}, _read, _sum)
