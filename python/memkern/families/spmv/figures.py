"""Figures and tables of sparse matrix-vector products, and their section of a report.

Performance counts two operations per nonzero, by the shortest time. The roofline is taken from the
record and assumes that each element of x is loaded once. It is limited by the memory bandwidth
measured with the same number of workers, or by all levels of a machine file. After Alappat et al.
2021, who print no numbers for comparison.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from memkern.families.spmv.data import (
    ROOFLINE,
    VALUE,
    by_matrix,
    by_variant,
    core_of,
    fill_in,
    implied,
    in_order,
    of_formats,
    of_matrices,
    products,
    row_lengths,
    saturation,
)
from memkern.families.spmv.findings import findings
from memkern.files import parsing
from memkern.plots.energy import by_limit, no_energy
from memkern.plots.kit import (
    MOST_LINES,
    QUANTITY,
    ROOFLINE_LABEL,
    Axes,
    Axis,
    Curves,
    DataFrame,
    Dots,
    Limit,
    Measured,
    Predicted,
    Records,
    Selection,
    best,
    by_build,
    cache_ends,
    concat,
    count_scale,
    counts_axis,
    family_section,
    from_zero,
    in_bytes,
    look_beside_roofline,
    need_rows,
    of_workers,
    ordered,
    plain,
    split,
    spread,
    table,
    three_figures,
    typed,
    with_ecm,
    with_workers,
)

_MEASURE = "memkern spmv hpcg:64 rmat:18 -f crs,sell -C 8,16 --sigma 1,1024 -o spmv.parquet"
_MEASURE_LENGTHS = (
    "memkern spmv tsm:1000000:4 tsm:250000:16 tsm:62500:64 -f crs,sell -C 8,16 --mve 1,2,3 "
    "-o lengths.parquet"
)
_MEASURE_SATURATION = "memkern spmv hpcg:64 -f crs,sell --threads 1..4 -o saturation.parquet"
_MEASURE_FILL_IN = "memkern spmv rmat:18 -f sell -C 8,16 --sigma 1,32,1024 -o fill-in.parquet"
_MEASURE_CLOCKS = _MEASURE.replace(" -o", " --clock-limit 1500,2000 -o")
_ENERGY = "energy_per_flop_pJ"
_LETTERS = 24

_speeds = partial(
    Curves,
    y=Axis(VALUE, "Performance (GFLOP/s)", from_zero(ROOFLINE, "ecm")),
    layers=(
        Limit("kind", ROOFLINE, ROOFLINE_LABEL, look_beside_roofline),
        Measured("kind", look_beside_roofline),
        Predicted("kind", look_beside_roofline),
    ),
    paper="alappat2021",
    number="figure 8, 9, 11",
)


def _in_order(frame: DataFrame) -> DataFrame:
    return ordered(frame, "kind", in_order(frame["kind"]))


@_speeds(
    name="spmv-row-length",
    x=Axis("nonzeros_per_row", "Nonzeros per row", count_scale),
    title=with_workers,
    records="`spmv` kernels with matrices ``tsm``",
    lack="no tall and skinny matrices (tsm) were measured with rows of two lengths",
    measure=_MEASURE_LENGTHS,
)
def against_row_length(
    records: Records = None,
    accumulators: str | Sequence[str] = "0,1,2,3",
    formats: str | Sequence[str] = "crs,sell-8,sell-16",
    threads: float = 0,
    machine: str = "",
) -> Selection:
    """Sparse products against the number of nonzeros per row, by format and accumulators.

    Of several tall and skinny matrices with rows of one length, the largest is drawn.

    Parameters
    ----------
    accumulators : str or sequence of str
        Numbers of accumulators of CRS, with commas between; 0 is the kernel's default.
    formats : str or sequence of str
        Formats, with commas between.
    threads : int
        Number of workers; by default the most of each machine.
    machine : str
        Machine file, by which the ECM model of each format is drawn.
    """
    frame, notes = products(records, _MEASURE_LENGTHS)
    frame = of_formats(frame, split(formats), _MEASURE_LENGTHS)
    drawn = frame["unroll"].map("{:g}".format).isin(split(accumulators))
    frame = row_lengths(frame[(frame["format"] != "crs") | drawn], threads)
    frame, model = with_ecm(frame, records, machine, VALUE, core_of)
    return _in_order(frame), notes + model


@_speeds(
    name="spmv-saturation",
    x=Axis("threads", "Workers", count_scale),
    legend=5,
    records="two numbers of workers or more",
    lack="no matrix was measured with two numbers of workers",
    measure=_MEASURE_SATURATION,
)
def against_workers(records: Records = None, matrix: str = "", machine: str = "") -> Selection:
    """Sparse products of one matrix against the number of workers, by format.

    Parameters
    ----------
    matrix : str
        Prefix of the matrix's label; by default ``hpcg`` if there is one. Of several matrices, the
        largest of those with most numbers of workers is drawn.
    machine : str
        Machine file, by which the ECM model of each format is drawn.
    """
    frame, notes = products(records, _MEASURE_SATURATION)
    frame, model = with_ecm(
        saturation(frame, matrix), records, machine, VALUE, core_of, saturation=True
    )
    titles = [plain(label, _LETTERS) for label in frame["label"]]
    return _in_order(frame).assign(panel=titles), notes + model


def _beside_caches(rows: DataFrame, several: bool) -> str:
    """Return the title of a panel: workers, and whether its matrices fit in the caches."""
    size_B = max((size for _, size in cache_ends(rows)), default=0)
    where = "within" if rows["held"].iloc[0] else "beyond"
    beside = f"{chr(10) if several else ', '}{where} {in_bytes(size_B)} of cache"
    return with_workers(rows, several) + beside * bool(size_B)


@Dots(
    name="spmv-matrices",
    value=Axis(VALUE, "Performance (GFLOP/s)"),
    by="kind",
    look=look_beside_roofline,
    marks=((ROOFLINE_LABEL, ROOFLINE, "D"), ("other library", "library", "x")),
    panels=("machine", "held"),
    title=_beside_caches,
    returns="For each machine a panel of the matrices that fit in the caches and one of the larger "
    "ones, 6.9 in wide, 3.35 in with one panel.",
    paper="alappat2021",
    number="figure 12, 13, 14, 16",
    records="`spmv` kernels. Matrices that fit in the caches have a panel if a ResultSet "
    "describes the caches",
    lack="no such record, a number of workers that no record has",
)
def by_matrices(
    records: Records = None,
    formats: str | Sequence[str] = "crs,sell-8,sell-16",
    threads: float = 0,
    matrices: str | Sequence[str] = "",
    libraries: str = "",
) -> Selection:
    """Sparse products by matrix and format, with the roofline.

    Of several sigma, accumulators and methods of balancing, the fastest is drawn. Variants that
    were requested (``--variant simd,nta``) and builds by several compilers or flags have series of
    their own.

    Parameters
    ----------
    formats : str or sequence of str
        Formats, with commas between: ``crs``, ``sell`` for all C, ``sell-8`` and so on, ``ell``,
        ``csc``.
    threads : int
        Number of workers; by default the most of each machine.
    matrices : str or sequence of str
        Prefixes of labels, with commas between; by default all, tall and skinny ones
        (``tsm``) only if there are no others.
    libraries : str
        JSON file of the performance of another library for each matrix on the same machine, as
        ``bench/beside_spmv.py`` writes it: ``rows`` with ``matrix``, ``peer`` and
        ``peer, GFLOP/s``.
    """
    frame, notes = products(records, _MEASURE)
    frame, left = of_matrices(frame, split(matrices), _MEASURE)
    frame = by_build(by_variant(of_formats(frame, split(formats), _MEASURE)), "kind")
    frame = by_matrix(frame, threads)
    others: dict[str, float] = {}
    if libraries:
        with parsing(Path(libraries), "the performance of other libraries"):
            rows = json.loads(Path(libraries).read_bytes())["rows"]
            others = {row["matrix"]: float(row["peer, GFLOP/s"]) for row in rows}
            each = [f"{row['peer']} for {row['matrix']}" for row in rows]
        left.append(f"Other libraries: {', '.join(each)}.")
    return _in_order(frame).assign(
        row=frame["label"].map(_shortened(frame["label"])),
        text=[_with_block(row) for row in frame.to_dict("records")],
        # A generator's label has its defaults as well.
        library=[
            next(
                (speed for name, speed in others.items() if f"{label}:".startswith(f"{name}:")),
                math.nan,
            )
            for label in frame["label"]
        ],
    ), notes + left


def _shortened(labels: Iterable[Any]) -> dict[str, str]:
    """Return a unique short name for each label."""
    labels = [*dict.fromkeys(labels)]
    names = [plain(label, _LETTERS) for label in labels]
    alike = [names[:k].count(name) for k, name in enumerate(names)]
    return {
        label: f"{name} ({earlier + 1})" if earlier else name
        for label, name, earlier in zip(labels, names, alike, strict=True)
    }


def _with_block(row: Mapping[Any, Any]) -> str:
    """Return performance and, if several sigma were measured, the fastest sigma."""
    sigma = "all" if row["sigma"] >= row["rows"] else three_figures(row["sigma"])
    block = f" (σ {sigma})" * (row["format"] == "sell" and row["blocks"])
    return f"{three_figures(row[VALUE])}{block}"


def _sorted_rows(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    ax.set(xscale="log", xlim=(frame[column].min() / 1.5, frame[column].max() * 1.5))
    counts_axis(ax.xaxis, 7)


@Curves(
    name="spmv-fill-in",
    x=Axis("sigma", "σ (rows sorted together)", _sorted_rows),
    y=Axis("beta", "Nonzeros / stored entries (β)", from_zero(room=1.04, least=1)),
    layers=(Measured("line"),),
    panels=("C",),
    height=2.2,
    title=lambda rows, _: f"C = {rows['C'].iloc[0]:g}",
    returns="A panel for each C, 6.9 in wide, 3.35 in with one panel.",
    records="`spmv.sell` with several sigma",
    lack="no matrix was measured in SELL with two values of sigma",
    measure=_MEASURE_FILL_IN,
)
def against_sigma(records: Records = None, matrices: str | Sequence[str] = "") -> Selection:
    """Fill-in of SELL-C-sigma: nonzeros over stored entries against sigma.

    Parameters
    ----------
    matrices : str or sequence of str
        Prefixes of labels, with commas between; by default the matrices whose fill-in
        depends on sigma most.
    """
    frame, notes = products(records, _MEASURE_FILL_IN)
    frame = fill_in(frame[frame["label"].str.startswith(tuple(split(matrices)) or "")])
    beta = frame.groupby("label")["beta"]
    gain = (beta.max() - beta.min()).sort_values(ascending=False, kind="stable")
    if len(gain) > MOST_LINES:
        notes.append(f"Left out where sigma changes least: {len(gain) - MOST_LINES} matrices.")
    names = _shortened(gain.index[:MOST_LINES])
    frame = frame[frame["label"].isin(list(names))].sort_values(["C", "sigma"], kind="stable")
    # Beta does not depend on the time.
    frame = frame.assign(line=frame["label"].map(names), disturbed=False)
    return ordered(frame, "line", names.values()), notes


@Dots(
    name="spmv-clocks",
    value={
        VALUE: Axis(VALUE, "Performance (GFLOP/s)"),
        _ENERGY: Axis(_ENERGY, "Energy (pJ/flop)"),
    },
    by="kind",
    marks=(("least and most of the matrices", "least", "|"), ("_most", "most", "|")),
    panels=("machine", QUANTITY),
    height=0.25,
    title=with_workers,
    returns="For each machine a panel of the performance and one of the energy, 6.9 in wide.",
    paper="alappat2021",
    number="figure 15",
    records="`spmv` kernels at several clock limits, with energy",
    lack="no matrix was measured at two clock limits",
    measure=_MEASURE_CLOCKS,
)
def by_clock(records: Records = None, threads: float = 0) -> Selection:
    """Sparse products by clock limit and format: performance and energy of the median matrix.

    Drawn is the fastest record of each matrix and format at each clock, of the matrices that were
    measured at all clocks of their machine.

    Parameters
    ----------
    threads : int
        Number of workers; by default the most of each machine.
    """
    frame, notes = products(records, _MEASURE_CLOCKS)
    why = no_energy(frame)
    frame = typed(frame, ("energy_J", _ENERGY, "clock_limit"))
    frame = frame[frame["energy_J"] > 0].fillna({"clock_limit": 0.0})
    need_rows(frame, f"no sparse product has energy: {why}")
    frame = best(
        of_workers(frame, threads), ("machine", "label", "kind", "clock_limit"), value=VALUE
    )
    clocks = frame.groupby("machine")["clock_limit"].transform("nunique")
    every = frame.groupby(["machine", "label", "kind"])["clock_limit"].transform("count") == clocks
    frame = frame[every & (clocks > 1)]
    by = ["machine", "kind", "clock_limit"]
    frame = concat([spread(frame, by, c).assign(**{QUANTITY: c}) for c in (VALUE, _ENERGY)])
    frame = by_limit(_in_order(frame), "row", "no limit")
    return frame, [*notes, "Dots: the median of the matrices. Energy includes the idle power."]


# ---------------------------------------------------------------------------------------- tables


@table(
    "spmv-matrices",
    "platform, matrix, rows, nonzeros_per_row, format (SELL with C and sigma), performance_GFLOPs "
    "(by the shortest time), roofline_GFLOPs, roofline_min_fraction, bandwidth_GBps, alpha (the "
    "lower bound), alpha_implied (missing where the caches of a ResultSet's machine hold the "
    "matrix, or some of it), beta, convert_s, conversion (in products), disturbed",
    paper="alappat2021",
    number="table 4",
    integers="rows",
    records="`spmv` kernels; the fastest of several accumulators and ways to balance is shown",
    lack="a number of workers that no record has",
)
def matrices_table(records: Records = None, threads: float = 0) -> Selection:
    """Sparse products by matrix and format: performance, roofline, alpha, beta and conversion.

    Parameters
    ----------
    threads : int
        Number of workers; by default the most of each machine.
    """
    frame, notes = products(records, _MEASURE)
    frame = best(of_workers(frame, threads), ("machine", "label", "kind", "sigma"), value=VALUE)
    frame = frame.assign(
        matrix=frame["label"],
        format=frame["variety"],
        alpha_implied=implied(frame),
        roofline_min_fraction=frame.get("roofline_min_fraction"),
        position=frame["kind"].map(in_order(frame["kind"]).index),
    )
    return frame.sort_values(
        ["platform", "nonzeros", "nonzeros_per_row", "label", "position", "sigma"], kind="stable"
    ), notes


# ---------------------------------------------------------------------------------------- report

_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Performance by matrix and format", by_matrices,
        "By all workers together, on a logarithmic axis. The roofline follows from the bandwidths "
        "of loads and stores and the bytes of a product of this format that loads each element of "
        "x once. Without a machine file it is that of memory, which does not bound "
        "matrices that fit in the caches, and which matrices slightly larger than the caches can "
        "exceed. With several σ the fastest is drawn.",
    ),
    (
        "Performance against the length of rows", against_row_length,
        "Tall and skinny matrices with about the same number of nonzeros, all rows of a matrix of "
        "the same length, and an x that fits in the caches; above the roofline where the caches "
        "hold part of the matrix as well. In CRS every row ends in a sum over its accumulators: "
        "more accumulators hide latency in long rows and cost time in short ones. After Alappat "
        "et al. 2021.",
    ),
    (
        "Performance against the workers", against_workers,
        "HPCG's matrix, or else the largest one. The roofline is measured with as many workers, "
        "and bends where memory is saturated.",
    ),
    (
        "Performance and energy by clock", by_clock,
        "The median, the least and the most of the matrices at each limit of the clock, after "
        "figure 15 of Alappat et al. 2021.",
    ),
    (
        "What sorting of rows saves", against_sigma,
        "Rows are sorted by length within blocks of σ rows and padded to the longest of each C. "
        "β is the number of nonzeros over that of stored entries, padding included.",
    ),
    (
        "Matrices and formats in numbers", matrices_table,
        "alpha: elements of x loaded from memory per nonzero, at least; alpha_implied: the number "
        "that explains the time at the load bandwidth, missing where the caches held data. "
        "beta: nonzeros over stored entries. conversion: the time to convert over that of one "
        "product.",
    ),
)  # fmt: skip

family_section(
    "spmv", 4, "spmv", "Sparse matrix-vector products", findings, _EXHIBITS, rare=[by_clock]
)
