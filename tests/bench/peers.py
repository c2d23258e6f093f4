"""What the comparisons with other programs share."""

from __future__ import annotations

import ctypes

from memkern.statistics import Ratio

FLOOR = 0.97
PR_SET_THP_DISABLE = 41


def no_huge_pages() -> None:
    """Keep this process and its children on 4 KiB pages."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def with_interval(ratio: Ratio) -> str:
    """Return a ratio and its interval as text."""
    return f"{ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
