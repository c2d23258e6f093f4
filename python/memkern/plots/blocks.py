"""Bandwidths on a GPU by threads per block and unrolling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memkern.backends import ACCELERATORS
from memkern.errors import InputError
from memkern.plots.drawing import MOST_CELLS, disturbed_note, heat_map, named, panels
from memkern.plots.exhibits import Selection, drawn, table
from memkern.plots.frames import Records, best, frame_of, three_figures
from memkern.plots.selection import BANDWIDTH, select, split
from memkern.plots.style import note

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_MEASURE = (
    "memkern loops -k triad,dot --device cuda --block-threads 64,128,256,512,1024 "
    "--unroll 0,1,2,4,8 -o blocks.parquet"
)
_COLUMNS = ("block_threads", "unroll")


def _blocks(records: Records, kernels: str | Sequence[str] | None) -> tuple[DataFrame, list[str]]:
    """Return the fastest record of each kernel, block size and unrolling on a GPU, and notes."""
    names = split(kernels) if kernels is not None else []
    if not names:
        frame = frame_of(records)
        known = frame.get("kernel", ())
        names = list(dict.fromkeys(str(name) for name in known)) or ["stream"]
    frame, notes = select(records, names, numbers=_COLUMNS, texts=("backend",), measure=_MEASURE)
    frame = frame[frame["backend"].isin(ACCELERATORS)]
    frame = best(frame, ["machine", "kernel", *_COLUMNS])
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


@drawn(
    "gpu-blocks",
    "A panel for each machine and kernel, 6.9 in wide, 3.35 in with one panel. Unrolling 0 is the "
    "kernel's own.",
    records="Own records on a GPU, such as the trials of ``memkern tune``, of kernels with "
    "several sizes of blocks or unrollings",
)
def block_map(records: Records = None, *, kernels: str | Sequence[str] | None = None) -> Figure:
    """Bandwidth on a GPU by threads per block and unrolling, as a heat map of each kernel.

    Parameters
    ----------
    kernels : str or sequence of str, optional
        Names of kernels or families; by default all.
    """
    frame, notes = _blocks(records, kernels)
    cells = list(frame.groupby(["machine", "kernel"], sort=False))
    rows = frame["block_threads"].nunique()
    fig, axes = panels(len(cells), 2, 1.1 + 0.22 * min(rows, MOST_CELLS))
    for ax, ((machine, kernel), mine) in zip(axes, cells, strict=True):
        found = {
            (int(row["block_threads"]), int(row["unroll"])): row for row in mine.to_dict("records")
        }
        values = {key: row[BANDWIDTH] for key, row in found.items()}
        texts = {
            key: ("({})" if row["disturbed"] else "{}").format(three_figures(row[BANDWIDTH]))
            for key, row in found.items()
        }
        heat_map(ax, values, "GB/s", texts=texts)
        several = frame["machine"].nunique() > 1
        ax.set(
            title="\n".join([named(machine, 24)] * several + [str(kernel)]),
            xlabel="Unrolling",
            ylabel="Threads of a block",
        )
    notes = [*notes, *disturbed_note(frame, "In parentheses")]
    note(fig, [*notes, "Unrolling 0 is the kernel's own."] if 0 in set(frame["unroll"]) else notes)
    return fig


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
