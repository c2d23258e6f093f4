"""Figures and the table of the domain-wall kernel, and its section of a report.

Performance counts 1320 operations per site and s, by the shortest time. The roofline is taken from
the record and uses the bytes predicted by layer conditions. It is limited by the memory bandwidth
measured with the same number of workers, or by all levels of a machine file. After Alappat et al.
2021.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from memkern.families.dw.data import (
    CONDITIONS,
    COUNTED,
    MODELLED,
    OPTIONS,
    ROOFLINE,
    VALUE,
    by_form,
    by_quantity,
    core_of,
    extents_of,
    first_kind,
    holding,
    hops,
    in_order,
    last_cache,
    of_lattices,
    over_extents,
    over_workers,
)
from memkern.families.dw.energy import by_clock as by_clock
from memkern.families.dw.energy import by_energy as by_energy
from memkern.families.dw.findings import findings
from memkern.families.dw.of_paper import terms_of_codes as terms_of_codes
from memkern.models import LayerConditions, simulate
from memkern.plots.kit import (
    ECM,
    GREY,
    NOTE_SIZE,
    QUANTITY,
    ROOFLINE_LABEL,
    TITLE,
    Axes,
    Axis,
    Curves,
    DataFrame,
    Dots,
    Limit,
    Look,
    Measured,
    OfEach,
    Panel,
    Predicted,
    Records,
    Selection,
    by_build,
    count_scale,
    counted_axis,
    family_section,
    frame_of,
    from_zero,
    in_bytes,
    look_beside_roofline,
    marked_look,
    new_table,
    ordered,
    split,
    table,
    three_figures,
    typed,
    with_ecm,
    with_workers,
)

_MEASURE = (
    "memkern dw --lattice 8 8 8 8 --lattice 16 16 16 16 --layout RRII,RIRI --cut s,tzyx "
    "-o dw.parquet"
)
_MEASURE_WORKERS = (
    "memkern dw --lattice 16 16 16 16 --layout RRII,RIRI --threads 1..4 -o dw.parquet"
)
_MEASURE_EXTENT = (
    "memkern dw --lattice 4 8 8 16 --lattice 16 8 8 16 --lattice 64 8 8 16 -o dw.parquet"
)
_CONDITIONS_LABEL = "by layer conditions"
# Maximum number of sites in all simulations of a line, which take about a third of a second.
_MOST_SITES = 31_000

_AXES = {
    VALUE: Axis(VALUE, "Performance (GFLOP/s)", from_zero(ROOFLINE, "ecm", most=2)),
    **{
        column: Axis(
            column, f"Traffic with {level} (B per site update)", from_zero(MODELLED, most=2)
        )
        for level, column in COUNTED.items()
    },
}


def _title(rows: DataFrame, several: bool) -> str:
    """Return the title of a panel's lattice, below machine and workers if there are several."""
    return f"{with_workers(rows, True)}\n" * several + str(rows[TITLE].iloc[0])


@Dots(
    name="dw-layouts",
    value=_AXES,
    by="option",
    look=look_beside_roofline,
    marks=(
        (ROOFLINE_LABEL, ROOFLINE, "D"),
        (_CONDITIONS_LABEL, MODELLED, "*"),
        (ECM, "ecm", "*"),
    ),
    panels=("machine", QUANTITY, "lattice_label"),
    height=0.15,
    least=2,
    title=_title,
    returns="A panel for each machine and lattice, 6.9 in wide, 3.35 in with one panel.",
    paper="alappat2021",
    number="figure 18, 22",
    records="`dw.hop`",
    lack="no such record, a number of workers that no record has",
)
def by_layouts(
    records: Records = None,
    lattices: str | Sequence[str] = "",
    threads: float = 0,
    machine: str = "",
) -> Selection:
    """Domain-wall kernel by layout, cut and width of vectors, stores and prefetch.

    Of several prefetch distances, orders and blocks, the fastest is drawn. Traffic that was counted
    (``--counters``) has panels as well. Builds by several compilers or flags have their own rows.
    Roofline and predictions are those of each bar, at its height.

    Parameters
    ----------
    lattices : str or sequence of str
        Prefixes of lattices such as ``8x8x8x8``, with commas between; by default
        those with at least half as many layouts and options as the lattice with most.
    threads : int
        Number of workers; by default the most of each machine.
    machine : str
        Machine file, by which the ECM model is drawn.
    """
    frame, notes = hops(records, _MEASURE)
    frame, left = of_lattices(frame, split(lattices))
    frame = by_build(frame.assign(row=frame["form"]), "row", "\n")
    frame, model = with_ecm(by_form(frame, threads), records, machine, VALUE, core_of)
    where = frame["held"].map({True: "in cache", False: "beyond caches"})
    # Names of compilers leave less width.
    between = "\n" if frame["row"].str.contains("\n").any() else ": "
    frame = ordered(frame, "option", OPTIONS).assign(panel=frame["lattice_label"] + between + where)
    frame = by_quantity(ordered(frame, "row", in_order(frame["row"])))
    return frame.assign(text=[_with_distance(row) for row in frame.to_dict("records")]), [
        *notes,
        *left,
        *model,
    ]


def _with_distance(row: Mapping[Any, Any]) -> str:
    """Return a record's value, with the fastest prefetch distance if there are several."""
    value = three_figures(row[row[QUANTITY]])
    return f"{value} ({row['prefetch']:g} ahead)" if row["distances"] else value


_scan = partial(
    Curves,
    y=_AXES,
    layers=(
        Measured("kind"),
        Predicted("kind"),
        Limit("kind", ROOFLINE, ROOFLINE_LABEL),
        Limit("kind", MODELLED, _CONDITIONS_LABEL),
    ),
    panels=("machine", QUANTITY),
    legend=5,
    paper="alappat2021",
)


@_scan(
    name="dw-scaling",
    x=Axis("threads", "Workers", count_scale),
    number="figure 23",
    records="two numbers of workers or more",
    lack="no lattice was measured with two numbers of workers",
    measure=_MEASURE_WORKERS,
)
def against_workers(records: Records = None, lattice: str = "", machine: str = "") -> Selection:
    """Domain-wall kernel on one lattice against the number of workers, by layout.

    Of several kinds of stores and prefetch, the fastest is drawn. Traffic that was counted
    (``--counters``) has panels as well.

    Parameters
    ----------
    lattice : str
        Prefix of the lattice; by default the largest of those with most numbers of workers.
    machine : str
        Machine file, by which the ECM model is drawn.
    """
    frame, notes = hops(records, _MEASURE_WORKERS)
    frame, model = with_ecm(
        over_workers(frame, lattice), records, machine, VALUE, core_of, saturation=True
    )
    frame = ordered(frame, "kind", in_order(frame["kind"])).assign(panel=frame["lattice_label"])
    return by_quantity(frame), notes + model


def _conditions(rows: DataFrame) -> tuple[Sequence[tuple[str, float]], str]:
    """Return the conditions that the last cache fulfils up to some Lx, and the one beyond."""
    *ends, beyond = [(CONDITIONS[name], lx) for name, lx in holding(rows)] or [("", 0)]
    return ends, beyond[0]


@_scan(
    name="dw-extent",
    x=Axis("Lx", "Lx", count_scale),
    caches=True,
    regions=_conditions,
    title=_title,
    number="figure 25",
    records="two Lx or more. The layer conditions that the last cache fulfils are named if a "
    "ResultSet describes the caches",
    lack="no lattices that differ in Lx alone were measured",
    measure=_MEASURE_EXTENT,
)
def against_extent(
    records: Records = None, others: str = "", threads: float = 0, machine: str = ""
) -> Selection:
    """Domain-wall kernel against Lx with the other extents fixed, by layout.

    Of several kinds of stores and prefetch, the fastest is drawn. Traffic that was counted
    (``--counters``) has panels as well.

    Parameters
    ----------
    others : str
        Ly, Lz and Lt, such as ``8x8x16``; by default the largest of those with most Lx.
    threads : int
        Number of workers; by default the most of each machine with two Lx.
    machine : str
        Machine file, by which the ECM model is drawn.
    """
    frame, notes = hops(records, _MEASURE_EXTENT)
    frame, model = with_ecm(over_extents(frame, others, threads), records, machine, VALUE, core_of)
    above = [
        f"Above: conditions that {in_bytes(cache[0])} of cache fulfil for "
        f"{first_kind(rows)[0]['kind']}."
        for _, rows in frame.groupby("machine", sort=False)
        if (cache := last_cache(rows))
    ]
    frame = ordered(frame, "kind", in_order(frame["kind"])).assign(
        panel="Lx x " + frame["rest"].str.replace("x", " x ")
    )
    return by_quantity(frame), [*notes, *dict.fromkeys(above), *model]


# --------------------------------------------------------------------------------------- traffic


def _doublings(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Make x a logarithmic axis with ticks at the first value and its doublings."""
    first, last = rows[column].min(), rows[column].max()
    counted_axis(ax, [first * 2**k for k in range(round(math.log2(last / first)) + 1)])


def _with_levels(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Begin y at zero, and write each layer condition to the right at the height of its traffic."""
    top = 1.06 * max(frame[["predicted", "simulated", "counted"]].max().max(), 1)
    ax.set_ylim(0, top)
    model = rows["model"].iloc[0]
    for name, k in (("t", 1), ("z", 3), ("y", 5), ("x", 7)):
        site_B = 16 * (72 / model.ls + 12 * (k + 2))
        if site_B <= top and rows[QUANTITY].iloc[0] == "Workers":
            ax.annotate(
                CONDITIONS[name],
                (1.01, site_B),
                xycoords=("axes fraction", "data"),
                ha="left",
                va="center",
                fontsize=NOTE_SIZE,
                color=GREY,
            )


class _ThreeWays(OfEach):
    """Predictions as a line, simulations as markers and counts as crosses."""

    def draw(self, panel: Panel, rows: DataFrame, look: Look, name: str) -> None:
        """Draw those of one partition."""
        dotted = look._replace(linestyle="none", zorder=look.zorder + 1)
        for column, how in (
            ("predicted", look._replace(marker="")),
            ("simulated", dotted),
            ("counted", dotted._replace(marker="x", markersize=6.0, zorder=20.0)),
        ):
            known = rows.dropna(subset=column)
            panel.ax.plot(known["n"], known[column], label=f"_{column}", **how._asdict())
        panel.ax.plot([], [], label=name, **look._asdict())


@Curves(
    name="dw-traffic",
    x={what: Axis("n", what, _doublings) for what in ("Lx", "Workers")},
    y={
        "Lx": Axis("predicted", "Traffic (B per site update)", _with_levels),
        "Workers": Axis("predicted", "", _with_levels),
    },
    # Markers are larger below smaller ones, so that equal points show.
    layers=(_ThreeWays("cut", lambda n: marked_look(n)._replace(markersize=3.0 + 2 * n)),),
    panels=(QUANTITY,),
    legend=5,
    returns="Two panels, 6.9 in wide.",
    paper="alappat2021",
    number="figure 21",
    records="The last cache of the machine, if a ResultSet describes it, and counted traffic of "
    "`dw.hop` in double precision on these lattices, which ``--counters`` measures",
    lack="a number is wrong, or the extents are not multiples of the cuts",
)
def traffic(
    records: Records = None,
    lattice: str = "",
    ls: int = 8,
    cuts: str | Sequence[str] = "1x1x1x1,1x2x2x2",
    cache_MiB: float = 0.0,
) -> Selection:
    """Domain-wall kernel's traffic by layer conditions, by a simulated cache, and counted.

    Double precision and ordinary stores. All workers share the cache. Counts are of the first
    machine.

    Parameters
    ----------
    lattice : str
        Lattice whose Lx varies in one panel, and which workers share in the other; by default the
        largest one with counted traffic, or else one slightly larger than the cache.
    ls : int
        Ls.
    cuts : str or sequence of str
        Parts of x, y, z and t whose sites share a vector, with commas between: ``1x1x1x1`` where
        vectors hold several s, ``1x2x2x2`` for RRII and 512 bits.
    cache_MiB : float
        Size of the cache; by default the machine's last-level cache, or 32 MiB if unknown.
    """
    frame = frame_of(records)
    cache_B = cache_MiB * 2**20 or (last_cache(frame) or [32.0 * 2**20])[0]
    counts = _counts(frame)
    partitions = [extents_of(text, "cuts") for text in split(cuts)]
    x, y, z, t = (
        extents_of(lattice, "lattice")
        if lattice
        else _largest(counts, ls, partitions) or _around(cache_B, ls)
    )
    cases: list[dict[str, Any]] = []
    for parts in partitions:
        name = " ".join(f"{d}{c}" for d, c in zip("xyzt", parts, strict=True) if c > 1)
        whole = LayerConditions((x, y, z, t), ls, parts)
        # In a large lattice, the first condition is broken at a small Lx; with one site, both
        # neighbours are the site itself.
        extents = range(2 * parts[0], 8 * x + 1, parts[0])
        wide = {n: replace(whole, extents=(n, y, z, t)) for n in extents}
        shared = {n: replace(whole, threads=n) for n in range(1, min(t, _sites(whole)) + 1)}
        for quantity, models, most in (("Lx", wide, 1), ("Workers", shared, 3)):
            simulated = _simulated(models, cache_B, most * _MOST_SITES)
            cases += [
                {
                    "quantity": quantity, "cut": f"cut {name}" if name else "not cut", "n": n,
                    "model": model, "predicted": model.site_B(cache_B, model.threads),
                    "simulated": simulated.get(n, math.nan), "counted": counts.get(model, math.nan),
                    "left": math.isnan(simulated.get(n, 0.0)),
                }
                for n, model in models.items()
            ]  # fmt: skip
    found = new_table(cases)
    titles = {
        "Lx": f"Lx x {y} x {z} x {t}, Ls {ls}, one worker",
        "Workers": f"{x} x {y} x {z} x {t}, Ls {ls}",
    }
    notes = [
        f"Beyond {in_bytes(cache_B)} of cache, which all workers share. Lines: by layer "
        "conditions. Markers: by an LRU cache, simulated site by site.",
        *["Crosses: by counters."] * bool(found["counted"].notna().any()),
        *["Cases that take long to simulate have no marker."] * bool(found["left"].any()),
    ]
    return found.assign(disturbed=False, panel=found["quantity"].map(titles)), notes


def _counts(frame: DataFrame) -> dict[LayerConditions, float]:
    """Return the counted bytes of a site update with memory on the first machine, by model.

    They are the fewest of each model. Models have the layout and the cut of s that
    `LayerConditions` has by default, on which the bytes beyond a cache that fulfils a condition do
    not depend.
    """
    if not typed(frame, ["counted_memory_load_B"])["counted_memory_load_B"].notna().any():
        return {}
    rows, _ = hops(frame, "")
    rows = rows[rows["machine"].isin(rows["machine"].head(1))].dropna(subset=COUNTED["memory"])
    rows = rows.sort_values(COUNTED["memory"], ascending=False)
    return {
        replace(LayerConditions.of_record(row), layout="scalar", s_cut=1): row[COUNTED["memory"]]
        for row in rows.to_dict("records")
    }


def _largest(
    counts: Iterable[LayerConditions], ls: int, partitions: Sequence[Sequence[int]]
) -> tuple[int, int, int, int] | None:
    """Return the largest counted lattice with this Ls whose extents all cuts divide, if any."""
    fitting = [
        model.extents
        for model in counts
        if model.ls == ls
        and not any(
            n % part for cut in partitions for n, part in zip(model.extents, cut, strict=True)
        )
    ]
    return max(fitting, key=math.prod, default=None)


def _around(cache_B: float, ls: int) -> tuple[int, int, int, int]:
    """Return a lattice 2 L x L x L x 2 L that is more than twice as large as a cache."""
    site_B = 16 * (72 + 24 * max(ls, 1))
    edge = next(n for n in range(4, 2**12, 4) if 2 * n**4 * site_B > cache_B)
    return 2 * edge, edge, edge, 2 * edge


def _sites(model: LayerConditions) -> int:
    """Return the sites of one virtual partition."""
    return model.updates // model.ls // model.partitions


def _simulated(
    models: Mapping[int, LayerConditions], cache_B: float, most: int
) -> dict[int, float]:
    """Return the simulated traffic of the first number and its doublings, and of 1.5 times these.

    It is NaN once all have more than `most` sites, in this order.
    """
    first = min(models)
    halved = {n: n // first / 2 ** ((n // first).bit_length() - 1) for n in models}
    chosen = [
        (n, model)
        for part in (1, 1.5)
        for n, model in models.items()
        if n % first == 0 and halved[n] == part
    ]
    sites = itertools.accumulate(_sites(model) for _, model in chosen)
    return {
        n: simulate(
            model.extents,
            model.ls,
            cache_B,
            cuts=model.cuts,
            blocks=model.blocks,
            threads=model.threads,
        )
        if every <= most
        else math.nan
        for (n, model), every in zip(chosen, sites, strict=True)
    }


# ----------------------------------------------------------------------------------------- table


@table(
    "dw-table",
    "platform, lattice, Ls, layout, cut, vector_bits, option (stores and prefetch), "
    "performance_GFLOPs (by the shortest time), performance_median_GFLOPs, site_B, "
    "roofline_GFLOPs (missing where nothing comes from memory), roofline_min_fraction, disturbed",
    integers="Ls, vector_bits",
    records="`dw.hop`; of several prefetch distances, orders and blocks, the fastest counts",
    lack="no such record, a number of workers that no record has",
)
def layouts_table(records: Records = None, threads: float = 0) -> Selection:
    """Domain-wall kernel by lattice, layout and option: performance, roofline and bytes.

    Parameters
    ----------
    threads : int
        Number of workers; by default the most of each machine.
    """
    frame, notes = hops(records, _MEASURE)
    frame = by_form(frame, threads)
    frame = frame.assign(
        position=frame["form"].map(in_order(frame["form"]).index),
        which=frame["option"].map(OPTIONS.index),
        roofline_min_fraction=frame.get("roofline_min_fraction"),
        roofline_GFLOPs=frame[ROOFLINE].replace(math.inf, math.nan),
    )
    return frame.sort_values(["platform", "sites", "Ls", "lattice", "position", "which"]), notes


# ---------------------------------------------------------------------------------------- report

_EXHIBITS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "Performance by layout and option", by_layouts,
        "By all workers together, on a logarithmic axis. RRII has real and imaginary parts in "
        "separate vectors, RIRI interleaves them. A vector holds several s of one site, or sites "
        "of the parts into which the named dimensions are cut. The roofline follows from the bytes "
        "that layer conditions predict for this kind of stores, and the bandwidths of loads and "
        "stores. Without a machine file it is that of memory: where the cache "
        "holds the lattice, only non-temporal stores have one.",
    ),
    (
        "Performance against the workers", against_workers,
        "With the fastest stores and prefetch. The roofline is measured with as many workers; each "
        "has its part of the sites and of the shared cache.",
    ),
    (
        "Performance against Lx", against_extent,
        "The other extents are constant. Layers grow with Lx until the last cache no longer holds "
        "two of them: first those between neighbours in t, then in z and in y. With each of "
        "these, two more spinors of a site update come from memory, and the roofline drops.",
    ),
    (
        "Traffic by layer conditions and simulated", traffic,
        "Traffic between the last cache and memory. A condition requires room for two layers; an "
        "LRU cache needs little more than one, so that the simulated traffic rises at about twice "
        "the extent. Workers with parts of one or two slices share slices.",
    ),
    (
        "Layouts and options in numbers", layouts_table,
        "site_B: predicted bytes from memory per site and s.",
    ),
)  # fmt: skip

family_section("dw", 5, "dw", "Domain-wall kernel", findings, _EXHIBITS)
