"""Bandwidths on a GPU by threads per block and unrolling."""

from __future__ import annotations

from collections.abc import Sequence

from memkern.backends import ACCELERATORS
from memkern.plots.kit import (
    BANDWIDTH,
    Axis,
    DataFrame,
    HeatMap,
    InputError,
    Records,
    Selection,
    best,
    frame_of,
    select,
    split,
    table,
    three_figures,
)

_MEASURE = (
    "memkern loops -k triad,dot --device cuda --block-threads 64,128,256,512,1024 "
    "--unroll 0,1,2,4,8 -o blocks.parquet"
)
_COLUMNS = ("block_threads", "unroll")


def _blocks(records: Records, kernels: str | Sequence[str] | None) -> tuple[DataFrame, list[str]]:
    """Return the fastest record of each kernel, block size and unrolling on a GPU, and notes."""
    names = split(kernels) if kernels is not None else []
    if not names:
        known = frame_of(records).get("kernel", ())
        names = list(dict.fromkeys(str(name) for name in known)) or ["stream"]
    frame, notes = select(records, names, numbers=_COLUMNS, texts=("backend",), measure=_MEASURE)
    frame = best(frame[frame["backend"].isin(ACCELERATORS)], ["machine", "kernel", *_COLUMNS])
    each = frame.groupby(["machine", "kernel"])
    several = (each["block_threads"].transform("nunique") > 1) | (
        each["unroll"].transform("nunique") > 1
    )
    if not several.any():
        raise InputError(
            "no kernel was measured on a GPU with several block sizes or unrollings: "
            f"`{_MEASURE}` does so"
        )
    return frame[several], notes


@HeatMap(
    name="gpu-blocks",
    rows=Axis("block_threads", "Threads of a block"),
    by=Axis("unroll", "Unrolling"),
    value=Axis(BANDWIDTH, "GB/s"),
    panels=("machine", "kernel"),
    height=1.1,
    row_height=0.22,
    remark="In parentheses: from a disturbed record.",
    returns="A panel for each machine and kernel, 6.9 in wide, 3.35 in with one panel. Unrolling 0 "
    "is the kernel's own.",
    records="Own records on a GPU, such as the trials of ``memkern tune``, of kernels with several "
    "sizes of blocks or unrollings",
)
def block_map(records: Records = None, *, kernels: str | Sequence[str] | None = None) -> Selection:
    """Bandwidth on a GPU by threads per block and unrolling, as a heat map of each kernel.

    Parameters
    ----------
    kernels : str or sequence of str, optional
        Names of kernels or families; by default all.
    """
    frame, notes = _blocks(records, kernels)
    values = frame[BANDWIDTH].map(three_figures)
    texts = values.mask(frame["disturbed"], "(" + values + ")")
    notes += ["Unrolling 0 is the kernel's own."] * (0 in set(frame["unroll"]))
    return frame.assign(text=texts, panel=frame["kernel"]).astype(
        dict.fromkeys(_COLUMNS, int)
    ), notes


@table(
    "gpu-blocks",
    "platform, kernel, block_threads, unroll, bandwidth_GBps, of_best (the bandwidth as a share of "
    "the kernel's highest), disturbed",
    integers=", ".join(_COLUMNS),
    records="kernels on a GPU with several sizes of blocks or unrollings",
)
def block_table(
    records: Records = None, *, kernels: str | Sequence[str] | None = None
) -> Selection:
    """Bandwidth on a GPU by threads per block and unrolling, and the best of each kernel.

    Parameters
    ----------
    kernels
        As for `block_map`.
    """
    frame, notes = _blocks(records, kernels)
    highest = frame.groupby(["machine", "kernel"])[BANDWIDTH].transform("max")
    frame = frame.assign(of_best=frame[BANDWIDTH] / highest)
    return frame.sort_values(["machine", "kernel", *_COLUMNS], kind="stable"), notes
