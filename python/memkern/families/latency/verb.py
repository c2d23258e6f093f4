"""The verb latency: chases over sizes and under load, and words exchanged by pairs of cores."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern import small
from memkern.cli.measuring import exit_code, health_of, line, measure, warn
from memkern.cli.options import (
    MEASURE,
    argument,
    argument_group,
    each,
    given,
    knobs_of,
    measuring_options,
    verb,
)
from memkern.cli.tables import CASE, MEDIAN, THREADS, Record, Table, cell, marks, plus_minus
from memkern.cli.verbs import input_cases, input_options, kernels_of, rows_of
from memkern.errors import InputError
from memkern.families.latency import kernels as latency
from memkern.limits import memory_left
from memkern.spec import registry
from memkern.spec.options import Knobs, Stop
from memkern.spec.sequences import joined

if TYPE_CHECKING:
    from memkern.formats import ResultSet

LOADS = (8, 7, 6, 5, 4, 0)
STRIDES = tuple(range(1, 33))
PAUSES = (0, 8, 16, 32, 64, 128, 256, 512)
_SMALLEST_B = 2**12
# Approximate time for all pairs of units together, and minimum time for each pair.
_ALL_PAIRS_S, _LEAST_PAIR_S = 600.0, 0.05
_PER_OCTAVE = 4

_FOUND = ("what", "found", "system", "agrees", "ns", "cycles")


_TIMES = (
    cell("ns_per_access", ">9.2f", "ns"),
    cell("cycles_per_access", ">8.1f", "cycles"),
    MEDIAN,
)
_TABLES = {
    "chase": Table(
        (
            CASE,
            cell("size_B", ">11", "size"),
            cell("lines", ">9"),
            cell("order", "<12"),
            cell("chains", ">6"),
            THREADS,
            cell("pages", "<10"),
            *_TIMES,
        )
    ),
    "loaded": Table(
        (
            CASE,
            cell("loads", ">5"),
            cell("stores", ">6", value=lambda r: latency.GROUP - r.get("loads", math.nan)),
            cell("pause", ">6"),
            THREADS,
            cell("traffic_GBps", ">12.2f", "traffic GB/s"),
            *_TIMES,
        ),
        lambda record: [*marks(record), *["no traffic"] * (record["kernel"] == "latency.chase")],
    ),
    "ping_pong": Table((CASE, cell("pin", "<9", "units"), cell("lines", ">5"), *_TIMES)),
    "banks": Table(
        (
            CASE,
            cell("stride", ">6"),
            cell("dtype", "<7"),
            cell("block_threads", ">5", "block"),
            THREADS,
            cell("ns_per_access", ">9.3f", "ns"),
            MEDIAN,
        )
    ),
}
_NUMA_TABLE = Table(
    (
        CASE,
        cell("name", "<36", "from", shows=("name", "numa", "pin")),
        cell("kernel", "<13"),
        THREADS,
        cell("ns_per_access", ">9.2f", "ns"),
        cell("bandwidth_GBps", ">8.2f", "GB/s"),
        cell(
            "±%",
            ">5",
            value=lambda record: plus_minus(
                record, "median" if record["kernel"] == "latency.chase" else "floor"
            ),
        ),
    )
)


def _sizes(device: str) -> list[int]:
    """Return four sizes per octave from 4 KiB to four times the caches of the device."""
    from memkern.host.capacity import beyond_caches_B
    from memkern.machine import gpu

    knobs = Knobs(device=device)
    on_gpu = knobs.backend.is_accelerator
    largest_B = 4 * int(gpu.facts(knobs.device)["l2_B"]) if on_gpu else beyond_caches_B()
    return latency.octaves(_SMALLEST_B, largest_B, _PER_OCTAVE)


def _pairs() -> list[str]:
    """Return all pairs of processing units in both orders, or one pair if cases should be small."""
    units = sorted(os.sched_getaffinity(0))
    if len(units) < 2:
        raise InputError("latency cores needs two processing units, and this process may use one")
    # Both orders, since the first unit touches the line first.
    pairs = [f"{a},{b}" for a, b in itertools.permutations(units, 2)]
    return pairs[: small.cut(len(pairs), 1)]


# Kernel of each study, and the values of options that were not given, by device.
_STUDIES: dict[str, tuple[str, Callable[[str], dict[str, Sequence[Any]]]]] = {
    "sizes": ("chase", lambda device: {"size_B": _sizes(device)}),
    "loaded": ("loaded", lambda _: {"loads": LOADS, "pause": PAUSES}),
    "cores": ("ping_pong", lambda _: {"pin": _pairs(), "lines": (1, 2)}),
    "banks": ("banks", lambda _: {"stride": STRIDES}),
}
# Studies that choose many cases themselves, and their maximum time in seconds.
_LIMITED, _MOST_S = ("sizes", "loaded"), 40.0
# Seconds of samples of each size; most values are precise much earlier.
_SIZE_S = 0.2


def _latency(args: argparse.Namespace) -> int:
    if args.study is not None and args.kernel is not None:
        raise InputError(f"latency {args.study} chooses the kernel: leave out --kernel")
    study = args.study or "sizes"
    if study in _OWN_CASES and args.kernel is None:
        return _OWN_CASES[study](args)
    kernel, defaults = (args.kernel, lambda _: {}) if args.kernel else _STUDIES[study]
    name = f"latency.{kernel}"
    knobs = knobs_of(args)
    flags = {row.name: row.flag for row in registry.find(name).inputs}
    missing = {
        option: values
        for option, values in defaults(knobs.get("device", Knobs.device)).items()
        if option not in knobs and getattr(args, flags.get(option, option)) is None
    }
    axes = dict(missing)
    if args.threads is not None:
        # A case is built for its workers.
        axes["threads"], args.threads = each(args.threads), None
    options: dict[str, Any] = {"device": "cuda"} if kernel == "banks" else {}
    limited = bool(missing) and study in _LIMITED and not _chosen(knobs)
    if limited and study == "sizes":
        options["budget_s"] = _SIZE_S

    (cases,) = input_cases(args, [name], parts=lambda _: [axes], **options)
    if "pin" in missing:
        options |= _shortened(knobs, len(cases), args.quiet)
        (cases,) = input_cases(args, [name], parts=lambda _: [axes], **options)
    answers: list[Callable[[ResultSet], str]] = [health_of]
    rows = "size_B" not in missing or args.every_row
    if args.kernel is None and study == "loaded":
        (chain,) = input_cases(args, ["latency.chase"], but=("traffic", "loads", "pause"))
        cases, answers = joined([chain[:1], cases]), [_loaded, health_of]
    if not rows:
        answers = [_levels, health_of]
    most_s = _MOST_S if limited else math.inf
    results = measure(cases, args, _TABLES[kernel], rows, most_s=most_s, answers=answers)
    if kernel == "ping_pong" and "pin" in missing and not (args.json or args.quiet):
        for lines, take_by in dict.fromkeys((r["lines"], r["take_by"]) for r in results):
            line(_matrix(results, lines, take_by))
    return exit_code(results)


def _levels(results: ResultSet) -> str:
    """Return the table of latencies by level."""
    from memkern.families.latency.data import level_lines

    return "\n".join(level_lines(results))


def _loaded(results: ResultSet) -> str:
    """Return the sentence on idle and loaded latency."""
    from memkern.families.latency.data import loaded_sentence

    return loaded_sentence(results)


def _chosen(knobs: Mapping[str, Any]) -> bool:
    """Return whether the time of a case or the number of its samples was requested."""
    return bool({"budget_s", "runs"} & knobs.keys())


def _shortened(knobs: Mapping[str, Any], cases: int, quiet: bool) -> dict[str, Any]:
    """Return a shorter time of each case if there are many, unless a time was requested."""
    usual_s = Stop().usual_s
    budget_s = min(usual_s, max(_ALL_PAIRS_S / cases, _LEAST_PAIR_S))
    if budget_s == usual_s or _chosen(knobs):
        return {}
    if not quiet:
        warn(
            f"{cases} cases of pairs have {budget_s:.2g} s each instead of {usual_s:g} s, together "
            f"{cases * budget_s / 60:.0f} minutes: --budget sets another time"
        )
    return {"budget_s": budget_s}


def _refuse_options(args: argparse.Namespace, *more: str, but: Collection[str] = ()) -> None:
    """Refuse options of kernels, and those in `more`, in a study that chooses them."""
    every = given(args, *rows_of(kernels_of("latency")), "threads", *more)
    for name in every.keys() - {*but}:
        raise InputError(f"latency {args.study} chooses {name}: leave it out")


def _structure(args: argparse.Namespace) -> int:
    """Measure caches, TLBs and lines, and print them next to the values reported by the system."""
    from memkern.cli.analysis import table_text
    from memkern.families.latency.structure_data import measured_caches
    from memkern.host import capacity
    from memkern.machine import caches
    from memkern.plots import tables
    from memkern.plots.drawing import in_bytes

    _refuse_options(args, "pages")
    # Short because of the many cases; no early stop, since the shortest of many samples counts.
    knobs = knobs_of(args)
    options = {"budget_s": 0.25, "ci": 1e-3, **knobs}
    cases = latency.structure_cases(
        max(capacity.capacity()), caches.line_B(), memory_left()[0], **options
    )
    most_s = math.inf if _chosen(knobs) else _MOST_S
    levels = [] if args.every_row else [lambda found: _levels(found.filter(order="random"))]
    results = measure(cases, args, _TABLES["chase"], args.every_row, most_s=most_s, answers=levels)
    shown = not (args.json or args.quiet)
    try:
        if shown:
            line(table_text(tables["latency-structure"](results)[list(_FOUND)]))
        sizes_B = measured_caches(results)
    except InputError as error:
        warn(str(error))
    else:
        if capacity.save(sizes_B) and not args.quiet:
            found = ", ".join(f"{name} {in_bytes(size_B)}" for name, size_B in sizes_B.items())
            warn(f"sizes of caches for later records, until the next boot: {found}")
    if shown:
        line(health_of(results))
    return exit_code(results)


def _numa(args: argparse.Namespace) -> int:
    """Measure latency and bandwidth between the units and the memory of all NUMA nodes."""
    from memkern.host.environment import machine_environment
    from memkern.machine import topology

    _refuse_options(args, "pin", "numa", but={"sizes"})
    options = knobs_of(args) | ({"size_B": args.sizes} if args.sizes is not None else {})
    nodes = machine_environment()["machine"]["numa_nodes"] or []
    memories = topology.numa_nodes()
    for node in nodes:
        if node["memory_B"] == 0:
            warn(f"node {node['node']} has no memory: only its units are measured")
        elif node["node"] not in memories:
            warn(f"memory of node {node['node']} is left out: this process may not use it")
    cases = latency.numa_cases(nodes, os.sched_getaffinity(0), memories, **options)
    results = measure(cases, args, _NUMA_TABLE)
    if not (args.json or args.quiet):
        line(_node_matrix(results, "latency.chase", "ns_per_access", "ns from a load to the next"))
        line(_node_matrix(results, "stream.triad", "bandwidth_GBps", "GB/s of a triad"))
        if len(nodes) < 2:
            line("this machine has one NUMA node: no memory is remote")
    return exit_code(results)


def _node_matrix(results: ResultSet, kernel: str, column: str, what: str) -> str:
    """Return the matrix of a result by the node of the units and the node of the memory."""
    from memkern.families.latency.data import NODES

    found = [
        (tuple(map(int, re.findall(NODES, record["name"])[0])), record)
        for record in results
        if record["kernel"] == kernel
    ]
    rows, columns = (sorted({pair[side] for pair, _ in found}) for side in (0, 1))
    title = f"{what}, by the node of the units (rows) and of the memory (columns):"
    return "\n".join([title, *_square("node", found, column, rows, columns)])


def _matrix(results: ResultSet, lines: int, take_by: str) -> str:
    """Return the times from a write of one unit to the answer of another, by both units."""
    from memkern.models.records import by_topology, units_by_topology

    found = [
        (tuple(map(int, record["pin"].split(","))), record)
        for record in results
        if (record["lines"], record["take_by"]) == (lines, take_by)
    ]
    orders = units_by_topology(results.environments).values()
    units = by_topology({unit for pair, _ in found for unit in pair}, next(iter(orders), ()))
    title = "one line" if lines == 1 else "a line in each direction"
    heading = (
        f"ns from a core's write to another core's answer, {title} taken by {take_by}; the row's "
        "unit touched it first:"
    )
    return "\n".join([heading, *_square("unit", found, "ns_per_access", units, units)])


def _square(
    name: str,
    found: Sequence[tuple[tuple[int, ...], Record]],
    value: str,
    rows: Sequence[int],
    columns: Sequence[int],
) -> list[str]:
    """Return the lines of a table of a value by row and column, in parentheses if unreliable."""
    why = dict.fromkeys(word for _, record in found for word in marks(record))
    cells = {
        pair: f"({record[value]:.1f})" if marks(record) else f"{record[value]:.1f}"
        for pair, record in found
    }
    return [
        f"{name} " + "".join(f"{column:>8}" for column in columns),
        *(
            f"{row:>4} " + "".join(f"{cells.get((row, column), ''):>8}" for column in columns)
            for row in rows
        ),
        *[f"in parentheses: {', '.join(why)}"] * bool(why),
    ]


# Studies whose cases are not a product of options.
_OWN_CASES: dict[str, Callable[[argparse.Namespace], int]] = {
    "structure": _structure,
    "numa": _numa,
}


LATENCY_VERB = verb(
    "latency",
    MEASURE,
    "latency of loads, alone and beside traffic, and between cores",
    _latency,
    (
        "memkern latency",
        "memkern latency loaded -o loaded.parquet",
        "memkern latency --sizes 1GiB --chains 1,2,4,8,16,32",
    ),
    argument(
        "study",
        nargs="?",
        choices=(*_STUDIES, *_OWN_CASES),
        help="sizes: dependent loads from L1 to memory; loaded: from memory, beside traffic of "
        "the other workers; cores: lines that two cores write in turn, for every pair; structure: "
        "caches, TLBs and lines, and values reported by the system; numa: latency and bandwidth "
        "from each node's units to each node's memory; banks: loads from a GPU's shared memory, "
        "by their stride (sizes)",
    ),
    argument_group(
        "latency",
        argument(
            "-k", "--kernel", choices=_TABLES, help="only this kernel, with the given options"
        ),
        *input_options("latency"),
        argument(
            "--rows",
            dest="every_row",
            action="store_true",
            help="a row for each size, not a summary by level",
        ),
    ),
    measuring_options(dtypes=("uint64",)),
)
