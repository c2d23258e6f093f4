"""Records of sparse matrix-vector products that figures draw and findings compare.

If a case has several records (accumulators, balance, prefetch, pages, repeats), the one with the
highest performance is used. Each machine's most frequent type and result (y = A x or y = y + A x)
are used; records with others can't be compared and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memkern.families.spmv.model import (
    FORMATS,
    crs_row_cycles,
    format_words,
    sell_column_cycles,
)
from memkern.models.machine_file import SCALAR_BITS, MachineFile
from memkern.plots.kit import (
    DataFrame,
    InputError,
    Records,
    Series,
    best,
    cache_ends,
    counted,
    joined,
    longest_scan,
    need_rows,
    of_prefixes,
    of_workers,
    prevailing,
    select,
)
from memkern.results.ratios import ratio, turns_of

VALUE = "performance_GFLOPs"
ROOFLINE = "roofline_GFLOPs"
CRS = "spmv.crs"

_NUMBERS = (
    *("rows", "nonzeros", "nonzeros_per_row", "C", "sigma", "unroll", "threads", "footprint_B"),
    *("time_min_s", "bandwidth_GBps", ROOFLINE),
    *("load_GBps", "alpha", "alpha_implied", "beta", "convert_s"),
)
_WORDS = ("name", "matrix", "result", "dtype", "index_dtype")


def products(records: Records, measure: str) -> tuple[DataFrame, list[str]]:
    """Return the valid records of sparse products with one setting per machine, and notes.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    measure : str
        Command that measures such records. If it is empty, no record is no error.

    Returns
    -------
    frame : DataFrame
        The columns of the records and machine (the platform without its thread count), label (of
        the matrix), format, kind (format and C), variety (kind and accumulators or sigma) and
        conversion (time of the conversion over time of a product). Numbers are floats.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        There is no such record, or a column is missing.
    """
    frame, notes = select(
        records, ["spmv"], ["backend"], numbers=_NUMBERS, texts=_WORDS, measure=measure, value=VALUE
    )
    frame, left = prevailing(
        frame,
        ("backend", "dtype", "index_dtype", "result"),
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
            f"{name}-{'all' if sigma >= rows > 1 else f'{sigma:g}'}"
            if name.startswith("SELL")
            else name + f", {counted(int(unroll), 'accumulator')}" * (name == "CRS" and unroll > 0)
            for name, sigma, rows, unroll in zip(
                kind, frame["sigma"], frame["rows"], frame["unroll"], strict=True
            )
        ],
        conversion=frame["convert_s"] / frame["time_min_s"],
    ), notes + left


_COMPARED = 4  # formats of a matrix whose ratios are told
# Columns of a format, and those that formats of one matrix have in common where they are compared.
_FORMAT = ("kernel", "C", "sigma")
_SAME = ("name", "matrix", "nonzeros", "dtype", "index_dtype", "result", "threads", "ranks", "halo")


def fastest_sentences(records: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence on the fastest format of each matrix that was measured in several formats.

    It has the ratio of its performance to that of CRS, and the number of products after which the
    conversion has paid. Compared are the best records of CRS and of the fastest other formats, in
    all `_COMPARED`. Matrices are in the order of their shortest times.
    """
    matrices: dict[tuple[Any, ...], dict[tuple[Any, ...], Mapping[str, Any]]] = {}
    for record in sorted(records, key=lambda one: (one["disturbed"], one["time_min_s"])):
        of_matrix = matrices.setdefault(tuple(record.get(name) for name in _SAME), {})
        of_matrix.setdefault(tuple(record.get(name) for name in _FORMAT), record)
    return "\n".join(_fastest(of.values()) for of in matrices.values() if len(of) > 1)


def _fastest(formats: Iterable[Mapping[str, Any]]) -> str:
    """Return the sentence on the fastest format of a matrix, given in the order of their times."""
    formats = sorted(formats, key=lambda one: one["kernel"] != CRS)[:_COMPARED]
    crs = formats[0]
    label = f"{crs['name'] or crs['matrix']}, {counted(int(crs['threads']), 'thread')}"
    formats.sort(key=lambda one: -ratio(one, crs, VALUE).value)
    told = [one for one in formats if one["valid"] and (turns_of(one) or not one["disturbed"])]
    if len(told) < 2 or crs not in told:
        return f"{label}: which format is fastest can't be told, since records are disturbed"
    fastest, second = told[:2]
    other = crs if crs["kernel"] == CRS and crs is not fastest else second
    faster = ratio(fastest, other, VALUE)
    names = [format_words(record) for record in (fastest, other)]
    if not faster.decided:
        return (
            f"{label}: {names[0]} and {names[1]} do not differ by more than their intervals: "
            f"{names[0]} is {faster.text()} times as fast"
        )
    text = f"{label}: {names[0]} is fastest, {faster.text()} times as fast as {names[1]}"
    if fastest["kernel"] == CRS:
        return f"{text}, and needs no conversion"
    if crs["kernel"] != CRS:
        return f"{text}; with --format crs it is told when its conversion has paid"
    products = math.ceil(fastest["convert_s"] / (fastest["time_min_s"] * (faster.value - 1)))
    return (
        f"{text}; its conversion ({fastest['convert_s']:.3g} s) has paid after {products} products"
    )


def _labels(frame: DataFrame) -> Series:
    """Return a unique label of each matrix.

    Arrays from SciPy and NumPy have no name: their label includes the number of nonzeros.
    """
    label = frame["name"].where(frame["name"] != "", frame["matrix"])
    shapes = frame.assign(label=label).groupby("label")["nonzeros"].transform("nunique")
    numbered = [
        f"{name}, {nonzeros:.0f} nonzeros"
        for name, nonzeros in zip(label, frame["nonzeros"], strict=True)
    ]
    return label.where(shapes == 1, numbered)


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return kinds of formats in the order of a legend: CRS, SELL-8, SELL-16, ELL, CSC.

    A kind may be followed by a variant and a compiler, after commas.
    """

    def order_of(kind: str) -> tuple[int, float, str]:
        name, _, rest = kind.partition(", ")
        form, _, chunk = name.partition("-")
        return FORMATS.index(form.lower()), float(chunk or 0), rest

    return sorted(set(kinds), key=order_of)


def of_formats(frame: DataFrame, formats: Sequence[str], measure: str) -> DataFrame:
    """Return the records of some formats.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    formats : sequence of str
        Names in upper or lower case; ``sell`` selects all C and ``sell-8`` only C = 8.
    measure : str
        Command that measures other formats.

    Raises
    ------
    InputError
        A format is unknown, or no record has any of these formats.
    """
    wanted = [each.lower() for each in formats]
    known = {*FORMATS, *(f"sell-{chunk}" for chunk in range(1, 129))}
    wrong = [each for each in wanted if each not in known]
    if wrong:
        raise InputError(f"format {wrong[0]!r} is not one of crs, sell, sell-C, ell, csc")
    kept = frame[frame["kind"].str.lower().isin(wanted) | frame["format"].isin(wanted)]
    need_rows(
        kept,
        f"no record is in the format {' or '.join(wanted)}, only in "
        f"{joined(in_order(frame['kind']))}: `{measure}` measures others",
    )
    return kept


def by_variant(frame: DataFrame) -> DataFrame:
    """Return records whose kind is followed by their variant, if several were requested for it."""
    if not {"variant", "variant_choice"} <= set(frame):
        return frame
    variants = frame["variant"].where(frame["variant_choice"] == "requested")
    several = variants.groupby([frame["machine"], frame["kind"]]).transform("nunique") > 1
    named = frame["kind"] + ", " + variants
    return frame.assign(kind=frame["kind"].mask(several & variants.notna(), named))


def of_matrices(
    frame: DataFrame, prefixes: Sequence[str], measure: str
) -> tuple[DataFrame, list[str]]:
    """Return the records of some matrices, and notes on the others.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    prefixes : sequence of str
        Prefixes of their labels; by default all, tall and skinny ones only if there are no others.
    measure : str
        Command that measures other matrices.

    Raises
    ------
    InputError
        No record has any of these matrices.
    """
    if not prefixes:
        narrow = tall_and_skinny(frame)
        some = narrow.any() and not narrow.all()
        return (frame[~narrow], ["Tall and skinny matrices left out."]) if some else (frame, [])
    remedy = f": `{measure}` measures others"
    return of_prefixes(frame, "label", prefixes, remedy, noun="matrix"), []


def tall_and_skinny(frame: DataFrame) -> Series:
    """Return whether each record has a tall and skinny matrix, for figures over row length."""
    return frame["label"].str.startswith("tsm:")


def held(frame: DataFrame) -> Series:
    """Return whether matrix and vectors of each record fit in the last-level caches.

    False if the caches are unknown.
    """
    each = frame.groupby("platform", sort=False)
    largest_B = {name: max((B for _, B in cache_ends(rows)), default=0) for name, rows in each}
    return frame["footprint_B"] <= frame["platform"].map(largest_B).astype(float)


def row_lengths(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return tall and skinny matrices of two or more row lengths, the largest for each length.

    The kind of CRS is followed by its accumulators.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    threads : int
        Number of workers; by default the most of each machine.

    Raises
    ------
    InputError
        No record has this number of workers.
    """
    frame = frame[tall_and_skinny(frame)]
    frame = of_workers(frame, threads) if len(frame) else frame
    here = ["machine", "nonzeros_per_row"]
    frame = frame[frame["nonzeros"] == frame.groupby(here)["nonzeros"].transform("max")]
    line = frame["variety"].where(frame["kind"] == "CRS", frame["kind"])
    frame = best(frame.assign(kind=line), (*here, "kind"), value=VALUE)
    return frame[frame.groupby("machine")["nonzeros_per_row"].transform("nunique") > 1]


def saturation(frame: DataFrame, matrix: str = "") -> DataFrame:
    """Return for each machine one matrix with two or more numbers of workers.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    matrix : str
        Prefix of its label; by default HPCG's if there is one. Of several matrices, the largest of
        those with most numbers of workers is returned.
    """
    frame = frame[frame["label"].str.startswith(matrix)]
    frame = frame.assign(hpcg=frame["label"].str.startswith("hpcg"))
    return longest_scan(frame, "label", "threads", "nonzeros", value=VALUE, prefer=("hpcg",))


def by_matrix(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return the fastest record of each machine, matrix and kind of format.

    Parameters
    ----------
    frame : DataFrame
        As of `products`.
    threads : int
        Number of workers; by default the most of each machine.

    Returns
    -------
    DataFrame
        The smallest matrices first. The column held is true if the matrix fits in the caches in at
        least one of the formats; blocks is true if it was measured with several sigma.

    Raises
    ------
    InputError
        No record has this number of workers.
    """
    frame = of_workers(frame, threads)
    here = [frame["machine"], frame["label"]]
    sigmas = frame["sigma"].where(frame["format"] == "sell").groupby(here).transform("nunique")
    frame = frame.assign(held=held(frame).groupby(here).transform("any"), blocks=sigmas > 1)
    frame = best(frame, ("machine", "label", "kind"), value=VALUE)
    return frame.sort_values(["nonzeros", "label"], kind="stable")


def fill_in(frame: DataFrame) -> DataFrame:
    """Return beta by matrix, C and sigma, for matrices with two or more values of sigma.

    Beta is a property of the matrix, so that the records of one machine suffice.
    """
    frame = (
        frame[frame["format"] == "sell"]
        .dropna(subset=["beta"])
        .drop_duplicates(["label", "C", "sigma"])
    )
    frame = frame[frame.groupby(["label", "C"])["sigma"].transform("nunique") > 1]
    return frame.sort_values("sigma", kind="stable")


def core_of(source: MachineFile, row: Mapping[Any, Any]) -> float:
    """Return T_core of a record, in cycles of a product by one core.

    If the machine file has the time of the record's loop body in a cache, T_core is this measured
    time. Otherwise it is the time of all rows in CRS, or all columns of chunks in SELL, with mean
    length (see `memkern.families.spmv.model`), from the file's instructions for the record's vector
    width; NaN for other formats and missing instructions.
    """
    measured = source.in_core_of(row)
    if measured is not None:
        stored = row["nonzeros"] / (row["beta"] if row["format"] == "sell" else 1.0)
        return float(stored * measured.cycles + row["rows"] * measured.row_cycles)
    scalar = row["variant"] == "scalar"
    bits = SCALAR_BITS if scalar else source.bits_of(row["isa"])
    lanes = 1 if scalar else bits // (32 if row["dtype"] == "float32" else 64)
    summed = row["format"] == "crs" and not scalar
    try:
        step = source.instruction("load", bits).reciprocal_cycles.value
        step += _indirect_load(source, bits)
        latency = source.instruction("fma", bits).latency_cycles.value
        reduction = source.instruction("horizontal add", bits).latency_cycles.value if summed else 0
    except InputError:
        return math.nan
    if math.isnan(step + latency + reduction) or row["format"] not in ("crs", "sell"):
        return math.nan
    if row["format"] == "crs":
        length = max(round(row["nonzeros_per_row"]), 1)
        # As in cpp/families/spmv/cpu.cpp; compilers vectorise a row with one accumulator.
        count = int(row["unroll"]) or (2 if scalar else 1)
        return float(row["rows"] * crs_row_cycles(length, lanes, latency, reduction, step, count))
    columns = row["nonzeros"] / row["beta"] / row["C"]
    return float(columns * sell_column_cycles(int(row["C"]), lanes, latency, step))


def _indirect_load(source: MachineFile, bits: int) -> float:
    """Return the cycles to load indices and the indexed values; NaN if they are unknown."""
    if bits == SCALAR_BITS:
        return 2 * source.instruction("load", bits).reciprocal_cycles.value
    gathers = [
        one.reciprocal_cycles.value
        for one in source.instructions
        if one.name.startswith("gather with index load")
        and one.vector_bits == bits
        and one.reciprocal_cycles.known
    ]
    return max(gathers, default=math.nan)


def implied(rows: DataFrame) -> Series:
    """Return the implied alpha, NaN if memory bandwidth was not the limit."""
    alpha = rows["alpha_implied"]
    return alpha.where((alpha >= 0) & ~held(rows), math.nan)
