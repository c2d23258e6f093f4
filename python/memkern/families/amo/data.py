"""Records of atomic operations that figures draw and findings compare.

If a case has several records (pages, pinning, repeats), the one with the highest rate is used.
Each machine's most frequent type, memory order and index pattern are used; records with others
can't be compared and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from memkern.backends import BACKENDS, LIBRARIES
from memkern.plots.kit import (
    DataFrame,
    InputError,
    Records,
    best,
    concat,
    in_bytes,
    joined,
    of_workers,
    prevailing,
    select,
    split,
    typed,
    words,
)

RATE = "rate_GAMS"
# In CircusTent's order.
PATTERNS = ("rand", "stride1", "striden", "ptrchase", "central", "sg", "scatter", "gather")

_NUMBERS = ("iters", "words", "stride", "padding_B", "hot", "threads", "time_min_s")
_WORDS = ("primitive", "order", "returns", "sharing", "index_pattern", "dtype")
# The paper's names of the models, by backend.
MODELS = {b.name: b.library for b in sorted(BACKENDS, key=lambda b: b.is_accelerator)}
# Labels of a legend for the ways in which workers of `central` share a line.
NEIGHBOURS = "private words, adjacent"
ONE_WORD = "one word for all"


def atomics(
    records: Records, measure: str, primitives: str | Sequence[str] = ""
) -> tuple[DataFrame, list[str]]:
    """Return the valid records of atomic operations, and notes on the others.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    measure : str
        Command that measures such records. If it is empty, no record is no error.
    primitives : str or sequence of str
        Names of primitives, with commas between; by default all.

    Returns
    -------
    frame : DataFrame
        The columns of the records and machine (the platform without its thread count), pattern,
        size_B (of VAL or, in the pointer chase, of IDX), workers (threads of all ranks) and ns
        (each worker's time for an operation, in nanoseconds). Numbers are floats.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        There is no such record, a column is missing, or no record is of any of the primitives.
    """
    import numpy as np

    frame, notes = select(
        records, ["amo"], ["backend"], numbers=_NUMBERS, texts=_WORDS, measure=measure, value=RATE
    )
    # Only records of some primitives, or over ranks, have these.
    frame = typed(frame, ("success_fraction", "lost_fraction", "ranks", RATE))
    wanted, present = split(primitives), list(dict.fromkeys(frame["primitive"]))
    missing = [name for name in wanted if name not in present]
    if missing == wanted and wanted and measure:
        raise InputError(
            f"no record is of the primitive {' or '.join(map(repr, missing))}, only of "
            f"{joined(present)}: `{measure}` measures others"
        )
    if missing:
        notes.append(f"No record of the primitive{'s' * (len(missing) > 1)} {joined(missing)}.")
    frame = frame[frame["primitive"].isin(wanted)] if wanted else frame
    workers = frame["threads"] * frame["ranks"].fillna(1)
    return frame.assign(
        pattern=frame["kernel"].str.removeprefix("amo."),
        size_B=frame["words"] * [float(np.dtype(name).itemsize) for name in frame["dtype"]],
        workers=workers,
        ns=workers / frame[RATE],
    ), notes


def one_setting(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """Return for each machine the records that can be compared with each other.

    Parameters
    ----------
    frame : DataFrame
        As of `atomics`.

    Returns
    -------
    frame : DataFrame
        Records that share words as CircusTent does, with one type and memory order, one stride and
        index pattern for each pattern, and, for each primitive, either with or without use of the
        returned value.
    notes : list of str
        The number of records left out.

    Raises
    ------
    InputError
        No record shares words in CircusTent's way.
    """
    here = frame[frame["sharing"] == "original"]
    if here.empty and len(frame):
        raise InputError(
            "no record has the sharing 'original', only "
            f"{joined(sorted(map(repr, set(frame['sharing']))))}"
        )
    cases = ("pattern", "primitive", "threads")
    here, notes = prevailing(
        here, ("backend", "dtype", "order", "padding_B"), per=("machine",), count=cases
    )
    here, _ = prevailing(
        here, ("stride", "index_pattern"), per=("machine", "pattern"), count=cases[1:]
    )
    here, _ = prevailing(
        here, ("returns",), per=("machine", "pattern", "primitive"), count=cases[2:]
    )
    return here, notes


def setting_of_each(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """Return the records of `one_setting` for each backend; threads are those of all ranks."""
    frame = frame.assign(threads=frame["workers"])
    original = frame[frame["sharing"] == "original"]
    parts, notes = [], []
    for _, rows in (original if len(original) else frame).groupby("backend", sort=False):
        part, left = one_setting(rows)
        parts.append(part)
        notes += left
    return concat(parts), notes


def in_models(frame: DataFrame, workers: float = 0) -> tuple[DataFrame, list[str]]:
    """Return the records of `in_rows` with the programming models of a machine side by side.

    Parameters
    ----------
    frame : DataFrame
        As of `atomics`.
    workers : int
        Number of workers; by default the most of those of a machine that most models have.

    Returns
    -------
    frame : DataFrame
        As of `in_rows`, with the column series: the primitive, on a machine with several models
        with the model. There each model has its smallest size. The column threads has the workers
        of all ranks.
    notes : list of str
        The number of records left out.
    """
    frame, notes = setting_of_each(frame)
    frame = frame.assign(series=frame["primitive"])
    models = frame.groupby(["machine", "threads"])["backend"].transform("nunique")
    frame = of_workers(frame[models == models.groupby(frame["machine"]).transform("max")], workers)
    several = frame.groupby("machine")["backend"].transform("nunique") > 1
    smallest = frame.groupby(["machine", "backend", "pattern"])["size_B"].transform("min")
    frame = frame[~several | (frame["size_B"] == smallest)]
    if several.any():
        models_of = frame["backend"].map(MODELS).fillna(frame["backend"])
        frame = frame.assign(series=frame["series"] + (", " + models_of).where(several, ""))
        notes.append("Of each model its smallest array.")
    return in_rows(frame), notes


def remote_shares(frame: DataFrame) -> DataFrame:
    """Return records over two numbers of ranks or more, with their share of remote operations.

    The column line has pattern and targets, the column percent the share of the operations that
    access words of other ranks. Patterns whose shares are equal to 0.1 % are one line.
    """
    frame = typed(frame, ("remote_share",)).dropna(subset="remote_share")
    frame = frame.assign(
        targets=words(frame.get("targets", frame["pattern"])),
        percent=100 * frame["remote_share"],
    )
    here = ["machine", "pattern", "targets"]
    frame = best(frame, (*here, "ranks"), value=RATE)
    frame = frame[frame.groupby(here)["ranks"].transform("nunique") > 1]
    alike: dict[tuple[Any, ...], list[str]] = {}
    for (machine, pattern, targets), rows in frame.groupby(here, sort=False):
        shares = tuple(zip(rows["ranks"], rows["percent"].round(1), strict=True))
        alike.setdefault((machine, targets, shares), []).append(str(pattern))
    lines = {
        (machine, pattern, targets): f"{_of_patterns(patterns)}, {targets}"
        for (machine, targets, _), patterns in alike.items()
        for pattern in patterns
    }
    frame = frame.assign(
        line=[lines[key] for key in zip(*(frame[name] for name in here), strict=True)]
    )
    return frame.drop_duplicates(["machine", "line", "ranks"])


def _of_patterns(patterns: Sequence[str]) -> str:
    """Return the names of the patterns of a line, or the first and the number of others."""
    names = [name for name in PATTERNS if name in patterns]
    if len(names) > 3:
        return f"{names[0].upper()} and {len(names) - 1} others"
    return ", ".join(names).upper()


def in_rows(frame: DataFrame) -> DataFrame:
    """Return one record for each machine, backend, workers, pattern, size and primitive.

    If a pattern was measured at several sizes, the smallest size is returned and, if it is at least
    four times as large, the largest. The column row is the name of the pattern, with the size if
    there are two, and model the place of the backend in `MODELS`. Rows are in the order of these
    and CircusTent's, the smaller size first.
    """
    here = ["machine", "backend", "threads", "pattern"]
    sizes = frame.groupby(here)["size_B"]
    least, most = sizes.transform("min"), sizes.transform("max")
    two = most >= 4 * least
    frame = frame.assign(
        row=[
            pattern.upper() + f", {in_bytes(size)}" * of_two
            for pattern, size, of_two in zip(frame["pattern"], frame["size_B"], two, strict=True)
        ],
        position=frame["pattern"].map({name: number for number, name in enumerate(PATTERNS)}),
        model=frame["backend"].map({name: number for number, name in enumerate(MODELS)}),
    ).fillna({"model": len(MODELS)})
    frame = frame[(frame["size_B"] == least) | (two & (frame["size_B"] == most))]
    frame = best(frame, (*here, "row", "primitive"), value=RATE)
    return frame.sort_values(["model", "position", "size_B"], kind="stable").drop(
        columns="position"
    )


def prices(frame: DataFrame, primitives: Sequence[str]) -> DataFrame:
    """Return the number of plain updates (a load and a store) in the time of an atomic operation.

    Parameters
    ----------
    frame : DataFrame
        As of `in_rows`.
    primitives : sequence of str
        Names of the primitives to compare with `plain`.

    Returns
    -------
    DataFrame
        The rows of these primitives that have a plain counterpart, with the columns price and
        lost_fraction (of the counterpart); disturbed if either record is.
    """
    here = ["machine", "threads", "row"]
    unguarded = frame[frame["primitive"] == "plain"][[*here, RATE, "disturbed", "lost_fraction"]]
    atomic = frame[frame["primitive"].isin(list(primitives))].drop(columns="lost_fraction")
    both = atomic.merge(unguarded, on=here, suffixes=("", "_plain"))
    return both.assign(
        price=both[f"{RATE}_plain"] / both[RATE],
        disturbed=both["disturbed"] | both["disturbed_plain"],
    )


def shared_lines(frame: DataFrame) -> DataFrame:
    """Return the records of `central` that show the cost of sharing cache lines.

    The column line is the label in a legend. Rows are in the order of the legend: private words
    from the widest to the narrowest gap, then one word for all workers.
    """
    frame = frame[frame["pattern"] == "central"]
    frame, _ = prevailing(
        frame,
        ("backend", "dtype", "order", "iters", "returns"),
        per=("machine", "primitive"),
        count=("sharing", "padding_B", "threads"),
    )
    apart = frame["padding_B"].where(frame["padding_B"] > frame["size_B"] / frame["words"], 0)
    own = frame["sharing"].eq("private") & frame["hot"].eq(frame["threads"])
    one = ~frame["sharing"].eq("private") & frame["hot"].eq(1)
    names = [
        ONE_WORD if of_all else f"private words, {gap:g} B apart" if gap else NEIGHBOURS
        for of_all, gap in zip(one, apart, strict=True)
    ]
    frame = frame.assign(line=names, gap=apart.where(~one, -1.0))[own | one]
    frame = best(frame, ("machine", "primitive", "line", "threads"), value=RATE)
    return frame.sort_values(["gap", "threads"], ascending=[False, True], kind="stable")


def chases(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return the pointer chases of each machine over two sizes or more.

    Parameters
    ----------
    frame : DataFrame
        As of `atomics`.
    threads : int
        Number of workers; by default the fewest with two sizes.
    """
    frame = frame[frame["pattern"] == "ptrchase"]
    frame = of_workers(frame, threads) if threads and len(frame) else frame
    here = ["machine", "threads"]
    frame, _ = prevailing(
        frame,
        ("backend", "dtype", "order", "sharing", "index_pattern"),
        per=here,
        count=("primitive", "size_B"),
    )
    frame = best(frame, (*here, "primitive", "size_B"), value=RATE)
    frame = frame[frame.groupby([*here, "primitive"])["size_B"].transform("nunique") > 1]
    fewest = frame.groupby("machine")["threads"].transform("min")
    return frame[frame["threads"] == fewest].sort_values("size_B", kind="stable")


def limits(records: Records, measure: str = "") -> DataFrame:
    """Return the records of atomics over ranks with the upper limit from fetch-and-adds.

    A worker's time for an operation is at least the mean time of a fetch-and-add, measured by
    `messages.fetch_add` with a window equal to the number of operations completed together. The
    mean over the own rank, the same node and another node is weighted by their shares of the
    operations. Without a fetch-and-add to the own rank, operations on own words take no time.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records of `amo` kernels on ``mpi`` or ``shmem``, and of ``messages.fetch_add``.
    measure : str
        Command that measures the latter. If it is empty, missing records are no error.

    Returns
    -------
    DataFrame
        As of `atomics`, with the columns limit_GAMS (of all workers) and share (rate over limit).
        Records without a limit are left out: those without fetch-and-adds over all of their
        distances, and patterns in which only some of several operations are completed together.

    Raises
    ------
    InputError
        No record has a limit, or a required column is missing.
    """
    frame, _ = atomics(records, "")
    frame = typed(
        frame[frame["backend"].isin(LIBRARIES)],
        ("ranks", "remote_share", "node_share", "flush_every"),
    )
    added, _ = select(
        records,
        ["messages.fetch_add"] if len(frame) else [],
        numbers=("window", "origins", "messages_per_second"),
        texts=("distance", "backend"),
        value="messages_per_second",
    )
    added = added.assign(seconds=added["origins"] / added["messages_per_second"])
    found = added.groupby(["machine", "backend", "window", "distance"])["seconds"].min().to_dict()

    def limit(row: Mapping[Any, Any]) -> float:
        window = row["flush_every"]
        if window > 1 and row["pattern"] in ("sg", "scatter", "gather"):  # several in an iteration
            return math.nan
        remote, node = row["remote_share"], row["node_share"]
        shares = {"same rank": 1 - remote, "same node": node, "other node": remote - node}
        here = (row["machine"], row["backend"], window)
        operation_s = sum(
            share * found.get((*here, distance), 0.0 if distance == "same rank" else math.nan)
            for distance, share in shares.items()
            if share > 0
        )
        return float(row["workers"] / operation_s / 1e9) if operation_s > 0 else math.nan

    frame = frame.assign(limit_GAMS=[limit(row) for row in frame.to_dict("records")]).dropna(
        subset="limit_GAMS"
    )
    if frame.empty and measure:
        raise InputError(
            "no record of atomics over ranks has a fetch-and-add of messages beside it, with a "
            f"window of as many as it completes together: `{measure}` measures them"
        )
    return frame.assign(share=frame[RATE] / frame["limit_GAMS"])
