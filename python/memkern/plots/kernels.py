"""Tables of all kernels, and the section of a report on what concerns any of them."""

from __future__ import annotations

import math
from typing import Any

from memkern.checks import one_of
from memkern.models.peak import with_peak
from memkern.plots.blocks import block_map, block_table
from memkern.plots.ecm import (
    ecm_table,
    predicted_against_measured,
    roofline_figure,
    roofline_table,
)
from memkern.plots.energy import by_setting, clock_table, z_plot
from memkern.plots.fleet import fleet_dots, fleet_table
from memkern.plots.kit import (
    DataFrame,
    InputError,
    Records,
    Section,
    Selection,
    best,
    frame_of,
    need_columns,
    need_rows,
    new_table,
    section,
    section_of,
    table,
    tabulated,
    typed,
    usable,
)
from memkern.plots.neighbours import slowdown_map, slowdown_table
from memkern.plots.ports import port_occupancy
from memkern.plots.scaling import efficiency_table, scaling_curves
from memkern.plots.traffic import counted_traffic, traffic_table


@tabulated(
    "kernels",
    "A row for each kernel. Bytes are those of the definition in float64, without indices and "
    "write-allocates; missing where they depend on the case's inputs. amos are atomic operations.",
    records="Not used",
    lack="the family is unknown",
    optional=True,
)
def kernel_table(records: Records = None, family: str = "") -> DataFrame:
    """All kernels: definitions, arrays, bytes, flops and atomics per iteration, and sources.

    Parameters
    ----------
    family : str
        Family of the kernels; by default all.
    """
    from memkern.spec.registry import case, registry

    one_of(family, "family", ["", *(name.partition(".")[0] for name in registry())])
    specs = {
        name: spec for name, spec in registry().items() if family in ("", name.partition(".")[0])
    }
    rows = []
    for name, spec in specs.items():
        shapes = {array.shape for array in spec.arrays} - {"(1,)"}
        smallest: dict[str, Any] = {}
        if shapes == {"(elements,)"}:
            smallest = {"elements": 1}
        elif name.startswith("amo."):
            smallest = {"iters": 1, "threads": 1}
        known = case(name, **smallest) if smallest else None
        rows.append(
            {
                "kernel": name,
                "definition": spec.summary,
                "arrays": " ".join(f"{a.name}:{a.role}" for a in spec.arrays),
                "bytes": math.nan if known is None else known.traffic.view(),
                "flops": spec.counts.flops,
                "amos": spec.counts.amos,
                "source": spec.source,
            }
        )
    return new_table(rows)


@table(
    "peak",
    "platform, kernel, variant, threads, bandwidth_GBps, peak_GBps (theoretical bandwidth of the "
    "memory) and peak_share (of the bandwidth)",
    integers="threads",
    records="any kernels with data in memory; of several records of a kernel, the fastest",
    lack="no record with data in memory has a known peak, or `peak_GBps` is not positive",
)
def shares_of_peak(records: Records = None, peak_GBps: float | None = None) -> Selection:
    """Bandwidths as shares of the theoretical peak of the memory.

    Parameters
    ----------
    peak_GBps : float, optional
        The peak of the machine, or of the GPU; by default that of each record.
    """
    if records is None:
        raise InputError("there is no record: `memkern stream -o stream.parquet` measures some")
    frame = typed(with_peak(frame_of(records), peak_GBps), ["peak_GBps", "peak_share"])
    frame = frame[frame["peak_share"].notna()]
    need_rows(
        frame,
        "the theoretical peak of the memory is unknown, or caches hold all data: give it as "
        "peak_GBps, or measure larger data",
    )
    need_columns(frame, "kernel")
    frame, notes = usable(frame, list(dict.fromkeys(frame["kernel"])), ("variant", "threads"))
    return best(frame, ("platform", "kernel")), notes


_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Shares of the theoretical bandwidth of memory",
        shares_of_peak,
        "Of several records of a kernel the fastest, with its data in memory.",
    ),
    (
        "Roofline of each level",
        roofline_figure,
        "Lines: measured bandwidths of loads and the peak of multiply-adds. The intensity is that "
        "across the boundary that is the limit.",
    ),
    ("Rooflines in numbers", roofline_table, "The bound is the level, or the core, that limits."),
    (
        "Loops by the ECM model",
        predicted_against_measured,
        "Cycles of a vector of every stream. On the line, prediction and measurement are equal.",
    ),
    ("Terms of the ECM model", ecm_table, "Cycles of loads and stores of each level."),
    (
        "Ports of the core",
        port_occupancy,
        "Share of the cycles for which each is busy, by static analysis of the main loops. A loop "
        "without a busy port waits for dependencies, or for instructions to be decoded.",
    ),
    (
        "Counted traffic over that of the model",
        counted_traffic,
        "At 1 the counters have the bytes that the model expects.",
    ),
    ("Counted traffic in numbers", traffic_table, "Bytes of an invocation."),
    (
        "Energy against bandwidth",
        z_plot,
        "Lines run from few to many threads; the lowest point moves most bytes for a joule.",
    ),
    (
        "Speed and energy by pages, prefetch and variant",
        by_setting,
        "Medians of the cases, over the first setting of each.",
    ),
    ("Changes by the clock", clock_table, "Against the highest clock, in percent."),
    (
        "Speed-up and efficiency over ranks",
        scaling_curves,
        "Ideal scaling is a thin line.",
    ),
    ("Speed-up and efficiency in numbers", efficiency_table, "With intervals of 95 %."),
    (
        "Threads of a block and unrolling on a GPU",
        block_map,
        "The brightest cell has the highest bandwidth.",
    ),
    ("Blocks and unrolling in numbers", block_table, "Shares are of the kernel's best."),
    (
        "Slowdown beside neighbours",
        slowdown_map,
        "Time of the measured case beside each neighbour over that alone.",
    ),
    ("Slowdown in numbers", slowdown_table, "With intervals of 95 %, and the neighbours' rates."),
    (
        "Nodes of a fleet",
        fleet_dots,
        "Shaded is the range outside of which a node is named.",
    ),
    ("Nodes of a fleet in numbers", fleet_table, "The values beside the range of the fleet."),
)


@section("across", 9)
def report_section(records: DataFrame) -> Section | None:
    """Return the section on what records of any kernels show; none if they show nothing of it."""
    rare = [exhibit for _, exhibit, _ in _EXHIBITS]
    found = section_of(records, "Across kernels", lambda _: (), _EXHIBITS, rare=rare)
    return found if found.exhibits else None
