"""What the figures of sparse products draw: which records count and which stand side by side.

Where the records hold one case several times (accumulators, balance, prefetch, pages, repeats), the
highest performance counts. Records of another type or of y = A x in place of y = y + A x than most
of their machine are left out, since a comparison through both would show neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memkern.errors import InputError
from memkern.plots.frames import Records, best, counted, listed, typed
from memkern.plots.selection import cache_ends, machine, of_workers, prevailing, select

if TYPE_CHECKING:
    from pandas import DataFrame, Series

VALUE = "performance_GFLOPs"
ROOFLINE = "roofline_load_GFLOPs"
# In the order of a legend and a table.
FORMATS = ("crs", "sell", "ell", "csc")

_NUMBERS = (
    *("rows", "nonzeros", "nonzeros_per_row", "C", "sigma", "unroll", "threads", "footprint_B"),
    *("time_min_s", "bandwidth_GBps", "roofline_load_GFLOPs", "roofline_fraction"),
    *("load_GBps", "alpha", "alpha_implied", "beta", "convert_s"),
)
_WORDS = ("name", "matrix", "result", "dtype", "index_dtype")
_SETTING = ("backend", "dtype", "index_dtype", "result")


def products(records: Records, measure: str) -> tuple[DataFrame, list[str]]:
    """Return the valid records of sparse products of one setting a machine, and notes.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    measure : str
        Command that measures such records. Without one, having none is no error.

    Returns
    -------
    frame : DataFrame
        Beside the columns of the records: machine (the platform without its workers), label (of
        the matrix), format, kind (format and C), variety (kind and accumulators or sigma) and
        conversion (seconds to convert over those of a product). Columns of numbers are floats.
    notes : list of str
        What was left out.

    Raises
    ------
    InputError
        No such record, or a column is missing.
    """
    frame, notes = select(
        records, ["spmv"], [*_NUMBERS, *_WORDS, "backend"], measure=measure, value=VALUE
    )
    frame = typed(frame, (*_NUMBERS, VALUE), _WORDS)
    frame = frame.assign(machine=[machine(platform) for platform in frame["platform"]])
    frame, left = prevailing(
        frame,
        _SETTING,
        per=("machine",),
        count=("kernel", "name", "matrix", "C", "sigma", "unroll", "threads"),
    )
    form = frame["kernel"].str.removeprefix("spmv.")
    kind = [
        each.upper() + f"-{chunk:g}" * (each == "sell")
        for each, chunk in zip(form, frame["C"], strict=True)
    ]
    return frame.assign(
        label=_labels(frame),
        format=form,
        kind=kind,
        variety=[
            f"{name}-{_block(sigma, rows)}"
            if name.startswith("SELL")
            else name + f", {accumulators(unroll)}" * (name == "CRS" and unroll > 0)
            for name, sigma, rows, unroll in zip(
                kind, frame["sigma"], frame["rows"], frame["unroll"], strict=True
            )
        ],
        conversion=frame["convert_s"] / frame["time_min_s"],
    ), notes + left


def accumulators(number: float) -> str:
    """Return '1 accumulator' or '2 accumulators'."""
    return counted(int(number), "accumulator")


def _block(sigma: float, rows: float) -> str:
    return "all" if sigma >= rows > 1 else f"{sigma:g}"


def _labels(frame: DataFrame) -> Series:
    """Return what each matrix is called, apart from all others.

    What SciPy and NumPy hand over has no name of its own.
    """
    label = frame["name"].where(frame["name"] != "", frame["matrix"])
    shapes = frame.assign(label=label).groupby("label")["nonzeros"].transform("nunique")
    numbered = [
        f"{name}, {nonzeros:.0f} nonzeros"
        for name, nonzeros in zip(label, frame["nonzeros"], strict=True)
    ]
    return label.where(shapes == 1, numbered)


def in_order(kinds: Sequence[str]) -> list[str]:
    """Return kinds of formats in the order of a legend: CRS, SELL-8, SELL-16, ELL, CSC."""

    def place(kind: str) -> tuple[int, float]:
        form, _, chunk = kind.partition("-")
        return FORMATS.index(form.lower()), float(chunk or 0)

    return sorted(set(kinds), key=place)


def of_formats(frame: DataFrame, formats: Sequence[str], measure: str) -> DataFrame:
    """Return the records of some formats.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    formats : sequence of str
        In any case, ``sell`` for all C and ``sell-8`` for one.
    measure : str
        Command that measures other formats.

    Raises
    ------
    InputError
        A format that there is not, or no record is of any of these.
    """
    wanted = [each.lower() for each in formats]
    known = {*FORMATS, *(f"sell-{chunk}" for chunk in range(1, 129))}
    wrong = [each for each in wanted if each not in known]
    if wrong:
        raise InputError(f"format {wrong[0]!r} is not one of crs, sell, sell-C, ell, csc")
    kind = frame["kind"].str.lower()
    kept = frame[kind.isin(wanted) | frame["format"].isin(wanted)]
    if kept.empty:
        raise InputError(
            f"no record is in the format {' or '.join(wanted)}, only in "
            f"{listed(in_order(frame['kind'].tolist()))}: `{measure}` measures others"
        )
    return kept


def of_matrices(
    frame: DataFrame, begins: Sequence[str], measure: str
) -> tuple[DataFrame, list[str]]:
    """Return the records of some matrices, and notes on the others.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    begins : sequence of str
        Begins of their labels; by default all, tall and skinny ones only where there are no others.
    measure : str
        Command that measures other matrices.

    Raises
    ------
    InputError
        No record is of any of these.
    """
    if not begins:
        narrow = tall_and_skinny(frame)
        some = narrow.any() and not narrow.all()
        return (frame[~narrow], ["Tall and skinny matrices left out."]) if some else (frame, [])
    kept = frame[frame["label"].str.startswith(tuple(begins))]
    if kept.empty:
        raise InputError(
            f"no record is of a matrix {' or '.join(map(repr, begins))}: `{measure}` measures "
            "others"
        )
    return kept, []


def tall_and_skinny(frame: DataFrame) -> Series:
    """Say of each record whether its matrix is there for the length of its rows."""
    return frame["label"].str.startswith("tsm:")


def held(frame: DataFrame) -> Series:
    """Say of each record whether matrix and vectors fit the caches that its workers have.

    The largest level counts. False where the caches are unknown.
    """
    from pandas import Series

    fits = Series(False, index=frame.index)
    for _, rows in frame.groupby("platform", sort=False):
        ends = cache_ends(rows)
        if ends:
            fits[rows.index] = rows["footprint_B"] <= max(size for _, size in ends)
    return fits


def row_lengths(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return tall and skinny matrices of two row lengths or more, the largest of each.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    threads : int
        Number of workers; by default the most of each machine.

    Raises
    ------
    InputError
        No record has so many workers.
    """
    frame = frame[tall_and_skinny(frame)]
    frame = of_workers(frame, threads) if len(frame) else frame
    here = ["machine", "nonzeros_per_row"]
    frame = frame[frame["nonzeros"] == frame.groupby(here)["nonzeros"].transform("max")]
    lines = [
        f"CRS, {accumulators(unroll)}" if kind == "CRS" and unroll else kind
        for kind, unroll in zip(frame["kind"], frame["unroll"], strict=True)
    ]
    frame = best(frame.assign(line=lines), (*here, "line"), value=VALUE)
    return frame[frame.groupby("machine")["nonzeros_per_row"].transform("nunique") > 1]


def saturation(frame: DataFrame, matrix: str = "") -> DataFrame:
    """Return one matrix of each machine by numbers of workers, two or more.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    matrix : str
        Begin of its label; by default HPCG's where there is one. Of several, the one with most
        numbers of workers, and of these the largest.
    """
    here = ["machine", "label"]
    frame = frame.assign(counts=frame.groupby(here)["threads"].transform("nunique"))
    frame = frame[frame["counts"] > 1]
    if matrix:
        frame = frame[frame["label"].str.startswith(matrix)]
    order = frame.assign(hpcg=frame["label"].str.startswith("hpcg")).sort_values(
        ["hpcg", "counts", "nonzeros"], ascending=False, kind="stable"
    )
    chosen = order.drop_duplicates("machine")[here]
    frame = frame.merge(chosen, on=here) if len(frame) else frame
    frame = best(frame, ("machine", "kind", "threads"), value=VALUE)
    several = frame.groupby(["machine", "kind"])["threads"].transform("nunique") > 1
    return frame[several]


def by_matrix(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return of each machine and matrix the fastest record of each kind of format.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    threads : int
        Number of workers; by default the most of each machine.

    Returns
    -------
    DataFrame
        The smallest matrices first. Column held says whether a matrix fits the caches in one of
        the formats at least, blocks whether it was measured with several sigma.

    Raises
    ------
    InputError
        No record has so many workers.
    """
    frame = of_workers(frame, threads)
    frame = frame.assign(held=held(frame))
    matrix = frame.groupby(["machine", "label"])
    sell = frame["sigma"].where(frame["format"] == "sell")
    frame = frame.assign(
        held=matrix["held"].transform("any"),
        blocks=sell.groupby([frame["machine"], frame["label"]]).transform("nunique") > 1,
    )
    frame = best(frame, ("machine", "label", "kind"), value=VALUE)
    return frame.sort_values(["nonzeros", "label"], kind="stable")


def fill_in(frame: DataFrame) -> DataFrame:
    """Return beta of each matrix, C and sigma, where a matrix has two values of sigma or more.

    Beta is a property of the matrix, so that of several machines one is taken. Sigma is no more
    than the number of rows.
    """
    frame = frame[frame["format"] == "sell"].dropna(subset=["beta"])
    frame = frame.drop_duplicates(["label", "C", "sigma"])
    frame = frame[frame.groupby(["label", "C"])["sigma"].transform("nunique") > 1]
    return frame.sort_values("sigma", kind="stable")


def implied(rows: DataFrame) -> Series:
    """Return the implied alpha, none where memory was not what the product waited for."""
    alpha = rows["alpha_implied"]
    return alpha.where((alpha >= 0) & ~held(rows), math.nan)
