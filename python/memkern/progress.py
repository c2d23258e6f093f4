"""Progress on standard error: a bar on a terminal or in a notebook, else a line every ten seconds.

Commands also announce how long they will take.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

from memkern import small

_SILENCE_S = 10.0  # between two lines
# Shorter times are not announced; longer times are announced in minutes.
_TOLD_FROM_S, _IN_MINUTES_FROM_S = 3.0, 300.0
_announces = False


@contextlib.contextmanager
def announcing(wanted: bool) -> Iterator[None]:
    """Enable `announce` until the end of the context, if `wanted`."""
    global _announces
    before, _announces = _announces, wanted and not small.wanted()
    try:
        yield
    finally:
        _announces = before


def announced(seconds: float) -> bool:
    """Return whether a time is long enough to be announced."""
    return _announces and seconds >= _TOLD_FROM_S


def announce(what: str, seconds: float) -> None:
    """Print the next action and its approximate time, in a command that is not quiet."""
    if announced(seconds):
        time = f"{seconds:.0f} s" if seconds < _IN_MINUTES_FROM_S else f"{seconds / 60:.0f} minutes"
        print(f"memkern: {what}, about {time}", file=sys.stderr, flush=True)


class Lines:
    """Counter like tqdm that prints plain lines: one every ten seconds and one at the end.

    Parameters
    ----------
    total : int, optional
        Final count, for the time left.
    unit : str
        Counted items, in the plural.
    time_s : float
        Longest duration.
    """

    def __init__(
        self, total: int | None = None, unit: str = "placements", time_s: float = math.inf
    ) -> None:
        self.total = total
        self.n = 0
        self._unit, self._time_s, self._printed = unit, time_s, False
        self._start = self._last = time.monotonic()

    def update(self, n: int = 1) -> None:
        """Add `n` to the count; print a line if the last one is ten seconds old."""
        self.n += n
        now = time.monotonic()
        if now - self._last >= _SILENCE_S:
            self._last, self._printed = now, True
            passed = now - self._start
            left = ""
            if passed >= self._time_s:
                # The number of items that will be left out is unknown.
                left = ", longer than expected"
            elif self.total is not None and self.n:
                left_s = passed / self.n * (self.total - self.n)
                left = f", about {min(left_s, self._time_s - passed):.0f} s left"
            self._print(f"after {passed:.0f} s{left}")

    def set_postfix_str(self, text: str) -> None:
        """Print what is known so far."""
        if text:
            print(f"memkern: so far {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Print the total time, if a line was printed before."""
        if self._printed:
            self._print(f"measured in {time.monotonic() - self._start:.0f} s")

    def _print(self, text: str) -> None:
        of = "" if self.total is None else f" of {self.total}"
        print(f"memkern: {self.n}{of} {self._unit} {text}", file=sys.stderr, flush=True)


def bar(
    wanted: bool | None,
    *,
    total: int | None = None,
    unit: str = "placements",
    time_s: float = math.inf,
) -> Any:
    """Return a counter that shows progress and, with a `total`, the time left.

    Parameters
    ----------
    wanted : bool, optional
        Whether anything is shown; by default only on a terminal or in a notebook.
    total, unit, time_s
        See `Lines`.

    Returns
    -------
    tqdm or Lines
    """
    screen = sys.stderr.isatty() or "ipykernel" in sys.modules
    if wanted and not screen:
        return Lines(total, unit, time_s)
    from tqdm import tqdm

    return tqdm(
        total=total,
        unit=unit,
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
        disable=not (screen if wanted is None else wanted),
    )
