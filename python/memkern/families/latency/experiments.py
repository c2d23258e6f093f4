"""Experiments on chases (see `memkern.spec.experiments`)."""

from __future__ import annotations

import dataclasses
import mmap

from memkern.families.latency.kernels import CHAINS, line_order
from memkern.shared.experiments import (
    MORE_THREADS,
    NON_TEMPORAL,
    ONE_REGION,
    ONE_THREAD,
    PAGES,
    resized,
    usual,
)
from memkern.spec.case import Case
from memkern.spec.experiments import LIMIT, Experiment, Setting
from memkern.spec.kernel import IndexArray

# Lines of a page that are accessed one after the other: enough for few page walks, and few enough
# for the hardware not to fetch the other lines of the page in advance.
_OF_PAGE = 8
# Multiplications after which so few lines of traffic follow that they have no effect.
_PAUSE = 2**12


def _ordered(case: Case, lines: int, order: IndexArray) -> Case:
    """Return the chase through lines in an order, in a buffer of `lines` lines."""
    return dataclasses.replace(
        case,
        integers={**case.integers, "lines": lines},
        columns={
            **case.columns,
            "size_B": lines * case.integers["line_B"],
            "lines": len(order),
        },
        indices={"order": order},
        request=None,
    )


def _resize(case: Case, size_B: float) -> Case | None:
    """Return the case with the first lines of the buffer in the same order."""
    n, order = case.integers, case.indices.get("order")
    if order is None:
        return None
    # All workers read the same lines.
    lines = min(int(size_B / n["workers"] / n["line_B"]), n["lines"])
    return _ordered(case, lines, order[order < lines])


def _by_page(case: Case, setting: Setting) -> Case | None:
    """Return the chase with a few lines of every page at a time, until all lines are accessed."""
    if case.columns.get("order") != "random":
        return None
    lines, line_B = case.integers["lines"], case.integers["line_B"]
    order = line_order("in-page", lines * line_B, line_B, case.knobs.seed)
    visits = order.reshape(-1, mmap.PAGESIZE // line_B // _OF_PAGE, _OF_PAGE)
    return _ordered(case, lines, visits.swapaxes(0, 1).ravel())


EXPERIMENTS = usual(
    _resize,
    Experiment("a few lines of a page at a time", _by_page, PAGES),
    Experiment(
        "hardly any traffic",
        lambda case, setting: resized(case, pause=_PAUSE) if "pause" in case.columns else None,
        "traffic of the other threads",
    ),
    Experiment(
        f"{CHAINS[-1]} chains",
        lambda case, setting: (
            resized(case, chains=CHAINS[-1]).with_(template_variant=str(CHAINS[-1]))
            if "chains" in case.columns
            else None
        ),
        "loads in flight",
        LIMIT,
    ),
    Experiment(
        "the same without page walks",
        lambda case, setting: _by_page(case.with_(pages="thp"), setting),
        "latency",
        LIMIT,
    ),
    but=[NON_TEMPORAL, ONE_THREAD, ONE_REGION, MORE_THREADS],
)
