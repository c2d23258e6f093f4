"""Figures and the table of the domain-wall kernel, and its section of a report.

Performance counts 1320 operations per site and s, by the shortest time. The roofline is taken from
the record and uses the bytes predicted by layer conditions. It is limited by the memory bandwidth
measured with the same number of workers, or by all levels of a machine file. After Alappat et al.
2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memkern.families.dw.data import (
    CONDITIONS,
    OPTIONS,
    QUANTITIES,
    ROOFLINE,
    VALUE,
    by_form,
    by_quantity,
    core_of,
    counts_by_model,
    extents_of,
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
    Axes,
    DataFrame,
    Figure,
    Look,
    Records,
    by_build,
    cache_regions,
    core_note,
    counted_axis,
    curves,
    dot_series,
    dots,
    drawn,
    ecm_curves,
    extent,
    family_section,
    finish,
    frame_of,
    in_bytes,
    legend_above,
    limit_curves,
    look_beside_roofline,
    machine_for,
    machine_note,
    machine_panels,
    marked_look,
    need_rows,
    note,
    panels,
    plain,
    row_in,
    split,
    tabulated,
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
# Maximum number of sites in all simulations of a line, which take about a third of a second.
_MOST_SITES = 31_000


@drawn(
    "dw-layouts",
    "A panel for each machine and lattice, 6.9 in wide, 3.35 in with one panel.",
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
) -> Figure:
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
    source = machine_for(machine, records)
    frame, notes = hops(records, _MEASURE)
    frame, left = of_lattices(frame, split(lattices))
    frame = by_build(frame.assign(row=frame["form"]), "row", "\n")
    frame = with_ecm(by_form(frame, threads), source, VALUE, core_of)
    drawn = [name for name in OPTIONS if name in set(frame["option"])]
    most = frame.groupby(["machine", "lattice_label"])["row"].nunique().max()
    frame = by_quantity(frame)
    frame = frame.assign(panel=frame["quantity"] + frame["lattice_label"])
    fig, cells = machine_panels(frame, row_in(most, max(len(drawn), 2)) + 0.15, "panel")
    for ax, rows in cells:
        quantity = rows["quantity"].iloc[0]
        _dots(ax, rows, frame[frame["quantity"] == quantity], drawn)
        ax.set(
            title=_on_lattice(rows, frame["machine"].nunique() > 1),
            xlabel=QUANTITIES[quantity].label,
        )
    return finish(
        fig, 5, [*notes, *left, *machine_note(source, records), *core_note(source, frame)], frame
    )


def _dots(ax: Axes, rows: DataFrame, alike: DataFrame, options: Sequence[str]) -> None:
    """Draw a quantity of each form by option, on an axis with all records of this quantity."""
    what = QUANTITIES[rows["quantity"].iloc[0]]
    text = _with_distance(what.column)
    rows = rows.assign(text=[text(row) for row in rows.to_dict("records")])
    series = dot_series(rows, "option", options, what.column, look_beside_roofline)
    ends = extent(alike, what.column, what.limit, "ecm")
    limit = what.limit_label, what.limit, "D" if what.limit == ROOFLINE else "*"
    dots(ax, in_order(rows["row"]), series, ends, (limit, (ECM, "ecm", "*")))


def _with_distance(column: str) -> Callable[[Mapping[Any, Any]], str]:
    """Return the text of a record's value, with the fastest prefetch distance if several."""

    def text(row: Mapping[Any, Any]) -> str:
        value = three_figures(row[column])
        return f"{value} ({row['prefetch']:g} ahead)" if row["distances"] else value

    return text


def _on_lattice(rows: DataFrame, several: bool) -> str:
    """Return the title of a panel: machine, lattice, and whether it fits in the caches."""
    where = "in cache" if rows["held"].iloc[0] else "beyond caches"
    # Names of compilers leave less width.
    wide = not rows["row"].str.contains("\n").any()
    title = f"{rows['lattice_label'].iloc[0]}{': ' if wide else chr(10)}{where}"
    return f"{with_workers(rows, True)}\n{title}" if several else title


def _against(ax: Axes, rows: DataFrame, x: str, xlabel: str, kinds: Sequence[str]) -> None:
    """Draw a quantity over `x`, a line for each kind with its limit and prediction."""
    what = QUANTITIES[rows["quantity"].iloc[0]]
    curves(ax, rows, "kind", kinds, x, what.column)
    ecm_curves(ax, rows, "kind", kinds, x, marked_look)
    finite = limit_curves(ax, rows, "kind", kinds, x, what.limit, what.limit_label, marked_look)
    counted_axis(ax, rows[x])
    top = extent(rows, what.column, "ecm")[1]
    ax.set_ylim(0, 1.08 * max(top, min(finite[what.limit].max(), 2 * top) if len(finite) else 0))
    ax.set(xlabel=xlabel, ylabel=what.label)


@drawn(
    "dw-scaling",
    paper="alappat2021",
    number="figure 23",
    records="two numbers of workers or more",
    lack="no lattice with two numbers of workers",
)
def against_workers(records: Records = None, lattice: str = "", machine: str = "") -> Figure:
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
    source = machine_for(machine, records)
    frame, notes = hops(records, _MEASURE_WORKERS)
    frame = over_workers(frame, lattice)
    which = f"no lattice {lattice!r}" if lattice else "no lattice"
    need_rows(
        frame, f"{which} was measured with two numbers of workers: `{_MEASURE_WORKERS}` does so"
    )
    frame = by_quantity(with_ecm(frame, source, VALUE, core_of))
    kinds = in_order(frame["kind"])
    fig, cells = machine_panels(frame, 2.5, "quantity")
    for ax, rows in cells:
        _against(ax, rows, "threads", "Workers", kinds)
        first = rows.iloc[0]
        name = f"{plain(first['machine'], 24)}\n" if frame["machine"].nunique() > 1 else ""
        ax.set_title(name + first["lattice_label"])
    return finish(
        fig, 5, [*notes, *machine_note(source, records, frame), *core_note(source, frame)], frame
    )


@drawn(
    "dw-extent",
    paper="alappat2021",
    number="figure 25",
    records="two Lx or more. The layer conditions that the last cache fulfils are named if a "
    "ResultSet describes the caches",
    lack="no lattices that differ in Lx alone, a number of workers that no record has",
)
def against_extent(
    records: Records = None, others: str = "", threads: float = 0, machine: str = ""
) -> Figure:
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
    source = machine_for(machine, records)
    frame, notes = hops(records, _MEASURE_EXTENT)
    frame = over_extents(frame, others, threads)
    which = f"no lattices of {others!r}" if others else "no lattices"
    need_rows(frame, f"{which} that differ in Lx alone were measured: `{_MEASURE_EXTENT}` does")
    frame = by_quantity(with_ecm(frame, source, VALUE, core_of))
    kinds = in_order(frame["kind"])
    fig, cells = machine_panels(frame, 2.5, "quantity")
    for ax, rows in cells:
        _against(ax, rows, "Lx", "Lx", kinds)
        last = last_cache(rows)
        if last:
            kind = in_order(rows["kind"])[0]
            _conditions(ax, rows[rows["kind"] == kind], last)
            notes.append(f"Above: conditions that {in_bytes(last[0])} of cache fulfil for {kind}.")
        first = rows.iloc[0]
        name = f"{with_workers(rows, True)}\n" if frame["machine"].nunique() > 1 else ""
        others = first["others"].replace("x", " x ")
        ax.set_title(f"{name}Lx x {others}, Ls {first['Ls']:g}", pad=11)
    notes = [*dict.fromkeys(notes), *machine_note(source, records), *core_note(source, frame)]
    return finish(fig, 5, notes, frame)


def _conditions(ax: Axes, rows: DataFrame, last: tuple[int, int]) -> None:
    """Mark the ranges of Lx in which the last cache fulfils each condition for one kind."""
    row = max(rows.to_dict("records"), key=lambda row: row["Lx"])
    regions = list(holding(row, last, (int(rows["Lx"].min()), int(row["Lx"]))))
    *ends, (beyond, _) = [(CONDITIONS[name], float(end)) for name, end in regions]
    cache_regions(ax, ends, beyond)


# --------------------------------------------------------------------------------------- traffic


@drawn(
    "dw-traffic",
    "Two panels, 6.9 in wide.",
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
) -> Figure:
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
    known = last_cache(frame)
    cache_B = cache_MiB * 2**20 or (known[0] if known else 32.0 * 2**20)
    counts = _counts(frame)
    partitions = [extents_of(text, "cuts") for text in split(cuts)]
    shape = extents_of(lattice, "lattice") if lattice else _counted_lattice(counts, ls, partitions)
    x, y, z, t = shape or _around(cache_B, ls)
    fig, (scan, cores) = panels(2, 2, 2.5)
    complete, crosses = True, False
    for number, parts in enumerate(partitions):
        name = " ".join(f"{d}{c}" for d, c in zip("xyzt", parts, strict=True) if c > 1)
        whole = LayerConditions((x, y, z, t), ls, parts)
        # In a large lattice, the first condition is broken at a small Lx; with one site, both
        # neighbours are the site itself.
        extents = range(2 * parts[0], 8 * x + 1, parts[0])
        wide = {n: replace(whole, extents=(n, y, z, t)) for n in extents}
        shared = {n: replace(whole, threads=n) for n in range(1, min(t, _sites(whole)) + 1)}
        label = f"cut {name}" if name else "not cut"
        # Larger markers below smaller ones keep equal points visible.
        look = marked_look(number)._replace(markersize=3.0 + 2 * number)
        for ax, models, most in ((scan, wide, 1), (cores, shared, 3)):
            complete &= _compared(ax, models, cache_B, most * _MOST_SITES, look, label)
            found = {n: counts[model] for n, model in models.items() if model in counts}
            crosses |= bool(found)
            cross = look._replace(marker="x", markersize=6.0, linestyle="none", zorder=20.0)
            ax.plot(list(found), list(found.values()), label="_counted", **cross._asdict())
    counted_axis(scan, _doublings(2, 8 * x))
    counted_axis(cores, _doublings(1, t))
    scan.set(xlabel="Lx", title=f"Lx x {y} x {z} x {t}, Ls {ls}, one worker")
    cores.set(xlabel="Workers", title=f"{x} x {y} x {z} x {t}, Ls {ls}")
    top = 1.06 * max(scan.dataLim.y1, cores.dataLim.y1, 1)
    scan.set(ylim=(0, top), ylabel="Traffic (B per site update)")
    cores.set(ylim=(0, top))
    _levels(cores, ls)
    legend_above(fig, 5)
    notes = [
        f"Beyond {in_bytes(cache_B)} of cache, which all workers share. Lines: by layer "
        "conditions. Markers: by an LRU cache, simulated site by site.",
        *["Crosses: by counters."] * crosses,
        *["Cases that take long to simulate have no marker."] * (not complete),
    ]
    note(fig, notes)
    return fig


def _counts(frame: DataFrame) -> dict[LayerConditions, float]:
    """Return `counts_by_model` of the first machine, nothing without counts."""
    counts = typed(frame, ["counted_memory_load_B"])["counted_memory_load_B"]
    if not counts.notna().any():
        return {}
    rows, _ = hops(frame, "")
    return counts_by_model(rows[rows["machine"].isin(rows["machine"].head(1))])


def _counted_lattice(
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


def _sites(model: LayerConditions) -> int:
    """Return the sites of one virtual partition."""
    return model.updates // model.ls // model.partitions


def _doublings(first: float, last: float) -> list[float]:
    """Return `first`, doubled up to `last`."""
    return [first * 2**k for k in range(round(math.log2(last / first)) + 1)]


def _around(cache_B: float, ls: int) -> tuple[int, int, int, int]:
    """Return a lattice 2 L x L x L x 2 L that is more than twice as large as a cache."""
    site_B = 16 * (72 + 24 * max(ls, 1))
    edge = next(n for n in range(4, 2**12, 4) if 2 * n**4 * site_B > cache_B)
    return 2 * edge, edge, edge, 2 * edge


def _compared(
    ax: Axes,
    models: Mapping[int, LayerConditions],
    cache_B: float,
    most: int,
    look: Look,
    label: str,
) -> bool:
    """Draw the traffic that models predict as a line, and simulated traffic as markers.

    Returns
    -------
    bool
        Whether all markers are drawn: at most `most` sites are simulated.
    """
    predicted = [model.site_B(cache_B, model.threads) for model in models.values()]
    ax.plot(list(models), predicted, **look._replace(marker="")._asdict())
    # The first number and its doublings are simulated first, then 1.5 times these.
    first = min(models)
    halved = {n: n // first / 2 ** ((n // first).bit_length() - 1) for n in models}
    positions = [n for part in (1, 1.5) for n in models if n % first == 0 and halved[n] == part]
    counted = {}
    for n in positions:
        model = models[n]
        most -= _sites(model)
        if most < 0:
            break
        counted[n] = simulate(
            model.extents,
            model.ls,
            cache_B,
            cuts=model.cuts,
            blocks=model.blocks,
            threads=model.threads,
        )
    dotted = look._replace(linestyle="none", zorder=look.zorder + 1)
    ax.plot(list(counted), list(counted.values()), label="_simulated", **dotted._asdict())
    ax.plot([], [], label=label, **look._asdict())
    return len(counted) == len(positions)


def _levels(ax: Axes, ls: int) -> None:
    """Write each layer condition to the right of the panel, at the height of its traffic."""
    for name, k in (("t", 1), ("z", 3), ("y", 5), ("x", 7)):
        site_B = 16 * (72 / ls + 12 * (k + 2))
        if site_B <= ax.get_ylim()[1]:
            ax.annotate(
                CONDITIONS[name],
                (1.01, site_B),
                xycoords=("axes fraction", "data"),
                ha="left",
                va="center",
                fontsize=NOTE_SIZE,
                color=GREY,
            )


# ----------------------------------------------------------------------------------------- table


@tabulated(
    "dw-table",
    "Columns platform, lattice, Ls, layout, cut, vector_bits, option (stores and prefetch), "
    "performance_GFLOPs (by the shortest time), performance_median_GFLOPs, site_B, "
    "roofline_GFLOPs (missing where nothing comes from memory), roofline_min_fraction and "
    "disturbed. Of several prefetch distances, orders and blocks, the fastest.",
    records="`dw.hop`",
    lack="no such record, a number of workers that no record has",
)
def layouts_table(records: Records = None, threads: float = 0) -> DataFrame:
    """Domain-wall kernel by lattice, layout and option: performance, roofline and bytes.

    Parameters
    ----------
    threads : int
        Number of workers; by default the most of each machine.
    """
    frame, _ = hops(records, _MEASURE)
    frame = by_form(frame, threads)
    forms = in_order(frame["form"])
    frame = frame.assign(
        position=frame["form"].map(forms.index),
        which=frame["option"].map(OPTIONS.index),
        roofline_min_fraction=frame.get("roofline_min_fraction"),
    )
    frame = frame.sort_values(["platform", "sites", "Ls", "lattice", "position", "which"])
    columns = [
        *("platform", "lattice", "Ls", "layout", "cut", "vector_bits", "option", VALUE),
        *("performance_median_GFLOPs", "site_B", ROOFLINE, "roofline_min_fraction", "disturbed"),
    ]
    frame = frame[columns].astype({"Ls": int, "vector_bits": int})
    return frame.replace({ROOFLINE: {math.inf: math.nan}}).reset_index(drop=True)


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
