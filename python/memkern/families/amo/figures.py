"""Figures and tables of atomic memory operations, and their section of a report.

Rates are the totals of all workers in 1e9 operations per second (GAMS), by the shortest time. After
CircusTent, whose published results are listed next to own ones in a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memkern.families.amo.data import (
    PATTERNS,
    RATE,
    atomics,
    chases,
    in_models,
    in_rows,
    limits,
    one_setting,
    prices,
    remote_shares,
    setting_of_each,
    shared_lines,
)
from memkern.families.amo.findings import findings
from memkern.plots.kit import (
    GREY,
    NOTE_SIZE,
    QUANTITY,
    Axis,
    Curves,
    Dots,
    Ideal,
    Level,
    Measured,
    Panel,
    Records,
    Selection,
    best,
    byte_scale,
    concat,
    count_scale,
    distinct,
    family_section,
    log_counts,
    log_scale,
    of_workers,
    ordered,
    percent,
    prevailing,
    quantities,
    split,
    table,
    three_figures,
    with_workers,
)

_MEASURE = "memkern amo --primitive add,cas,plain --threads 1..4 -o amo.parquet"
_MEASURE_SHARING = (
    "memkern amo --kernel central --sharing private,shared --padding 0,64 --threads 1..4 "
    "-o sharing.parquet"
)
_MEASURE_LATENCY = "memkern report"
_MEASURE_REMOTE = "memkern amo --device mpi -o remote.parquet"
_RATE_LABEL = "Rate (GAMS)"


@Dots(
    name="amo-rates",
    value=Axis(RATE, _RATE_LABEL),
    by="series",
    title=with_workers,
    records="`amo` kernels, with words shared in CircusTent's way",
    returns="A panel for each machine, 6.9 in wide, 3.35 in with one panel.",
    lack="no record of the primitives or of the number of workers",
)
def rates(
    records: Records = None, primitives: str | Sequence[str] = "add,cas", threads: float = 0
) -> Selection:
    """Rate of atomic operations by pattern, side by side for some primitives.

    Where a pattern was measured at several sizes of its array, the smallest and the largest are
    drawn. Several programming models (OpenMP, MPI, OpenSHMEM) are side by side, each at its
    smallest size.

    Parameters
    ----------
    primitives : str or sequence of str
        Names of primitives, with commas between.
    threads : int
        Number of workers; by default the most of each machine, with several models of those that
        most models have.
    """
    frame, notes = atomics(records, _MEASURE, primitives)
    frame, left = in_models(frame, threads)
    names = split(primitives)
    by_primitive = frame.sort_values("primitive", key=lambda column: column.map(names.index))
    frame = ordered(frame, "series", by_primitive["series"].unique())
    return frame.assign(text=[_with_outcome(row) for row in frame.to_dict("records")]), notes + left


def _with_outcome(row: Mapping[Any, Any]) -> str:
    """Return a rate, followed by the share of failed or lost operations if any."""
    text = three_figures(row[RATE])
    if row["success_fraction"] < 0.995:
        text += f" ({percent(row['success_fraction'])} succeed)"
    if row["lost_fraction"] >= 0.005:
        text += f" ({percent(row['lost_fraction'])} lost)"
    return text


def _losses(panel: Panel) -> None:
    """Write the share of lost plain updates next to each row."""
    lost = panel.rows.drop_duplicates("row").set_index("row")["lost_fraction"]
    lost = lost[lost > 0]
    how: dict[str, Any] = {"fontsize": NOTE_SIZE, "color": GREY, "annotation_clip": False}
    ax, names = panel.ax, distinct(panel.rows["row"])
    if len(lost):
        ax.annotate("lost", (1.01, 1), xycoords="axes fraction", ha="left", va="bottom", **how)
    for name, share in lost.items():
        ax.annotate(
            percent(share),
            (1.01, names.index(str(name))),
            xycoords=("axes fraction", "data"),
            ha="left",
            va="center",
            **how,
        )


@Dots(
    name="amo-price",
    value=Axis("price", "Plain load-store pairs per atomic operation"),
    by="series",
    panels=("machine", "threads"),
    sort=True,
    title=with_workers,
    around=(1.0,),
    layers=(Level(1.0, upright=True), _losses),
    records="`amo` kernels, of the primitive ``plain`` and of others",
    returns="A panel for each machine and number of workers, 6.9 in wide, 3.35 in with one panel.",
    lack="no pattern was measured both as plain and as one of the primitives with as many workers",
    measure=_MEASURE,
)
def price(
    records: Records = None, primitives: str | Sequence[str] = "add,cas", threads: float = 0
) -> Selection:
    """Price of atomicity: the rate of plain loads and stores over the rate of atomic operations.

    The share of lost plain updates, if any, is written next to each pattern.

    Parameters
    ----------
    primitives : str or sequence of str
        Names of the others, with commas between; those without records are left out.
    threads : int
        Number of workers; by default the fewest and the most of each machine.
    """
    frame, notes = atomics(records, _MEASURE)
    frame, left = one_setting(frame)
    frame = prices(in_rows(frame), split(primitives))
    if threads and len(frame):
        frame = of_workers(frame, threads)
    count = frame.groupby("machine")["threads"].transform
    frame = frame[(frame["threads"] == count("min")) | (frame["threads"] == count("max"))]
    frame = frame.assign(series="over " + frame["primitive"])
    lost = ["Lost: share of the plain updates."] * bool((frame["lost_fraction"] > 0).any())
    names = [f"over {name}" for name in split(primitives)]
    return ordered(frame, "series", names), [*notes, *left, *lost]


# ---------------------------------------------------------------------------- against the workers


@Curves(
    name="amo-workers",
    x=Axis("threads", "Workers", count_scale),
    y={
        RATE: Axis(RATE, _RATE_LABEL, log_counts(10)),
        "scaled": Axis("scaled", "Rate over that of one worker", log_counts(10)),
    },
    layers=(Measured("series"), Ideal("ideal")),
    panels=("machine", QUANTITY),
    height=2.7,
    legend=9,
    records="two numbers of workers or more, with words shared in CircusTent's way",
    returns="For each machine a panel of rates and one of rates over that of one worker, beside "
    "ideal scaling, 6.9 in wide.",
    lack="no pattern was measured with two numbers of workers",
    measure=_MEASURE,
)
def against_workers(records: Records = None, primitive: str = "add") -> Selection:
    """Rate of atomic operations against the number of workers, a line for each pattern.

    Where a pattern was measured at several sizes of its array, the smallest is drawn.

    Parameters
    ----------
    primitive : str
        Name of the primitive.
    """
    frame, notes = atomics(records, _MEASURE, primitive)
    frame, left = one_setting(frame)
    here = ["machine", "pattern"]
    frame, _ = prevailing(frame, ("iters",), per=here, count=("threads",))
    smallest = frame.groupby([*here, "threads"])["size_B"].transform("min")
    frame = best(frame[frame["size_B"] == smallest], (*here, "threads"), value=RATE)
    frame = frame[frame.groupby(here)["threads"].transform("nunique") > 1]
    one = frame[frame["threads"] == 1].set_index(here)[RATE].rename("one")
    frame = frame.assign(
        scaled=frame[RATE] / frame.join(one, on=here)["one"], series=frame["pattern"].str.upper()
    )
    frame = quantities(ordered(frame, "series", map(str.upper, PATTERNS)), RATE, "scaled")
    return frame.assign(ideal=frame["threads"].where(frame[QUANTITY] == "scaled")), notes + left


@Curves(
    name="amo-sharing",
    x=Axis("threads", "Workers", count_scale),
    y=Axis(RATE, _RATE_LABEL, log_scale),
    layers=(Measured("line"), Ideal("ideal")),
    records="`amo.central` with two numbers of workers or more, with private words and different "
    "paddings, and with one shared word",
    lack="no machine has central with private words and two numbers of workers",
    measure=_MEASURE_SHARING,
    legend=5,
)
def sharing(records: Records = None, primitive: str = "add") -> Selection:
    """Cost of false sharing: workers on private words, adjacent or padded, and on one shared word.

    Parameters
    ----------
    primitive : str
        Name of the primitive.
    """
    frame, notes = atomics(records, _MEASURE_SHARING, primitive)
    frame = shared_lines(frame)
    private = frame[frame["sharing"] == "private"]
    several = private.groupby("machine")["threads"].nunique() > 1
    alone = private[private["threads"] == 1].groupby("machine")[RATE].first()
    frame = frame.assign(ideal=frame["machine"].map(alone).astype(float) * frame["threads"])
    return frame[frame["machine"].map(several).eq(True)], notes


@Curves(
    name="amo-remote",
    x=Axis("ranks", "Ranks", count_scale),
    y=Axis("percent", "Remote atomic operations (%)", lambda ax, *_: ax.set_ylim(0, 105)),
    layers=(Measured("line"),),
    paper="beebe2022-circustent",
    number="chart of remote atomics",
    records="`amo` kernels on ``mpi`` or ``shmem`` with two numbers of ranks or more",
    lack="no pattern was measured over two numbers of ranks",
    measure=_MEASURE_REMOTE,
)
def remote(records: Records = None) -> Selection:
    """Share of atomic operations on words of other ranks by pattern and targets, over the ranks."""
    frame, notes = atomics(records, _MEASURE_REMOTE)
    return remote_shares(frame), notes


# --------------------------------------------------------------------------------------- latency


@Curves(
    name="amo-latency",
    x=Axis("size_B", "Size of IDX", byte_scale),
    y=Axis("ns", "Time of an operation (ns)", log_scale),
    layers=(Measured("primitive"),),
    records="`amo.ptrchase` over two sizes of IDX or more",
    lack="no pointer chase was measured over two sizes",
    measure=_MEASURE_LATENCY,
    caches=True,
    title=with_workers,
    legend=5,
)
def latency(
    records: Records = None, primitives: str | Sequence[str] = "", threads: float = 0
) -> Selection:
    """Time of an operation in a chain of dependent operations against the size of the index array.

    Parameters
    ----------
    primitives : str or sequence of str
        Names of primitives, with commas between; by default all.
    threads : int
        Number of workers; by default the fewest of each machine with two sizes.
    """
    frame, notes = atomics(records, _MEASURE_LATENCY, primitives)
    return chases(frame, threads), notes


# ---------------------------------------------------------------------------------------- tables


@table(
    "amo-rates",
    "platform, backend, pattern, primitive, threads (of all ranks), array_B (size of VAL, in the "
    "pointer chase of IDX), rate_GAMS (of all workers), ns_per_amo (of each worker), "
    "success_fraction (of compare-and-swaps), lost_fraction (of plain updates), disturbed",
    records="`amo` kernels, with words shared in CircusTent's way; of several sizes the smallest "
    "and the largest",
    integers="threads, array_B",
)
def rates_table(records: Records = None, primitives: str | Sequence[str] = "") -> Selection:
    """Rates of atomic operations by backend, pattern, primitive and number of workers.

    Parameters
    ----------
    primitives : str or sequence of str
        Names of primitives, with commas between; by default all.
    """
    frame, _ = atomics(records, _MEASURE, primitives)
    frame = in_rows(setting_of_each(frame)[0])
    frame = frame.assign(
        pattern=frame["pattern"].str.upper(), array_B=frame["size_B"], ns_per_amo=frame["ns"]
    )
    # A stable sort keeps the rows in the order of the patterns.
    return frame.sort_values(["machine", "model", "threads"], kind="stable"), []


@table(
    "amo-circustent",
    "platform, row (own or published), threads, memory_B (size of VAL), iters (of each worker), "
    "time_s, rate_GAMS, ns_per_amo (of each worker), disturbed",
    paper="beebe2022-circustent",
    number="runs of RAND_ADD",
    records="`amo.rand` with the primitive ``add``; the fastest of each case counts",
    optional=True,
    integers="threads, memory_B, iters",
)
def circustent_table(records: Records = None) -> Selection:
    """Atomic adds at random places: own runs and five published runs of CircusTent."""
    from memkern import reference

    frame, _ = atomics(records, "")
    own = frame[(frame["kernel"] == "amo.rand") & (frame["primitive"] == "add")]
    own = own[own["sharing"] == "original"]
    case = ("platform", "threads", "words", "iters", "dtype", "order", "index_pattern")
    own = best(own, case, value=RATE).sort_values(["threads", "size_B", "iters"], kind="stable")
    own = own.rename(columns={"size_B": "memory_B", "time_min_s": "time_s", "ns": "ns_per_amo"})
    published = reference.load("beebe2022-circustent").rename(columns={"time_min_s": "time_s"})
    published = published.assign(ns_per_amo=published["threads"] / published[RATE], disturbed=False)
    parts = [own.assign(row="own")] * bool(len(own)) + [published.assign(row="published")]
    return concat(parts, ignore_index=True), []


@table(
    "amo-limits",
    "platform, backend, pattern, primitive, returns, targets, remote_share, flush_every, threads, "
    "rate_GAMS, limit_GAMS (workers over the mean time of a fetch-and-add), share (of the limit; "
    "an update without a result may take less time than a fetch-and-add), disturbed",
    records="`amo` kernels on ``mpi`` or ``shmem``, and of ``messages.fetch_add`` with windows of "
    "as many as these complete together",
    integers="flush_every, threads",
    lack="no record has a limit",
)
def limits_table(records: Records = None) -> Selection:
    """Rates of atomic operations over ranks and their upper limits from fetch-and-adds."""
    return limits(
        records, "memkern messages --device mpi --kernel fetch_add --window 1,64 -o adds.parquet"
    ), []


# ---------------------------------------------------------------------------------------- report

_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Rate of atomic operations by pattern", rates,
        "By all workers together, on a logarithmic axis. One GAMS is 1e9 atomic operations "
        "per second; SG has four per iteration, SCATTER and GATHER have three, the others "
        "one. A compare-and-swap is one attempt, which fails where another worker came "
        "first. Where a case was measured several times, its highest rate is drawn. Patterns "
        "after Williams et al. 2020.",
    ),
    (
        "Rate of atomic operations against the workers", against_workers,
        "Both axes are logarithmic. In CENTRAL all workers update one word: the rate falls "
        "with their number, since its line moves from core to core. The number of iterations "
        "of each worker is fixed.",
    ),
    (
        "What atomicity costs", price,
        "Number of plain pairs of a load and a store in the time of one atomic operation, by "
        "all workers together, and beside it the share of these plain updates that got lost.",
    ),
    (
        "What sharing of cache lines costs", sharing,
        "Each worker adds to a private word: adjacent to the words of the others, in the "
        "same cache line (false sharing), or a number of bytes apart. For comparison, all "
        "add to one word. Some processors fetch lines in pairs, so that 64 B may not be "
        "enough.",
    ),
    (
        "Latency of dependent operations", latency,
        "PTRCHASE: each operation returns the index of the next one, so that its time is the "
        "latency of the memory level, of the address translation and of the operation.",
    ),
    (
        "Operations on words of other ranks", remote,
        "Share of the operations on words that another rank owns. With random targets it is "
        "that of the other ranks; in a ring all words are the next rank's. After Beebe et "
        "al. 2022.",
    ),
    (
        "Rates over ranks and their limits", limits_table,
        "The limit is the rate at which the workers could complete fetch-and-adds.",
    ),
    (
        "Rates by pattern, primitive and number of workers", rates_table,
        "rate_GAMS is the rate of all workers, ns_per_amo the time of one operation of a "
        "worker.",
    ),
    (
        "RAND_ADD beside published runs", circustent_table,
        "Rates depend on the size of VAL. Published runs after Beebe et al. 2022, with 24 "
        "workers on 12 hardware threads.",
    ),
)  # fmt: skip

family_section(
    *("atomics", 3, "amo", "Atomics", findings, _EXHIBITS, "beebe2022-circustent"),
    rare=(remote, limits_table),
)
