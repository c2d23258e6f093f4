"""How far something long has come, on standard error: a bar on a screen, else a line at times."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

_SILENCE_S = 10.0  # between two lines


class Lines:
    """Counts as tqdm does, in a plain line now and then and one at the end.

    Parameters
    ----------
    total : int, optional
        How many there are, for the time left.
    unit : str
        What is counted, in the plural.
    time_s : float
        Seconds after which it will be over, if not earlier.
    """

    def __init__(
        self, total: int | None = None, unit: str = "placements", time_s: float = math.inf
    ) -> None:
        self.total = total
        self.n = 0
        self._unit, self._time_s, self._said = unit, time_s, False
        self._start = self._last = time.monotonic()

    def update(self, n: int = 1) -> None:
        """Count more of them; say so after a while without a line."""
        self.n += n
        now = time.monotonic()
        if now - self._last >= _SILENCE_S:
            self._last, self._said = now, True
            passed = now - self._start
            left = ""
            if passed >= self._time_s:
                # How many are left out for it is not known.
                left = ", longer than expected"
            elif self.total is not None and self.n:
                left_s = passed / self.n * (self.total - self.n)
                left = f", about {min(left_s, self._time_s - passed):.0f} s left"
            self._say(f"after {passed:.0f} s{left}")

    def close(self) -> None:
        """Say how long all of it took, if it was long enough for a line."""
        if self._said:
            self._say(f"measured in {time.monotonic() - self._start:.0f} s")

    def _say(self, text: str) -> None:
        of = "" if self.total is None else f" of {self.total}"
        print(f"memkern: {self.n}{of} {self._unit} {text}", file=sys.stderr, flush=True)


def bar(
    wanted: bool | None,
    *,
    total: int | None = None,
    unit: str = "placements",
    time_s: float = math.inf,
) -> Any:
    """Return what counts, and with a `total` shows the time left.

    Parameters
    ----------
    wanted : bool, optional
        Whether anything is shown; by default only on a screen or in a notebook.
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
