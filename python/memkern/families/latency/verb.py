"""The verb latency: chases over sizes and under load, and words exchanged by pairs of cores."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from memkern import small
from memkern.cli.measuring import exit_code, health_of, line, marks, measure, plus_minus, warn
from memkern.cli.options import (
    MEASURE,
    argument,
    argument_group,
    count,
    each,
    given,
    knobs_of,
    measuring_options,
    numbers,
    options_by_kernel,
    verb,
    words,
)
from memkern.errors import InputError
from memkern.families.latency import kernels as latency
from memkern.inputs.sizes import parse_sizes
from memkern.limits import memory_left
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.options import Knobs, Stop
from memkern.spec.sequences import joined, product

if TYPE_CHECKING:
    from memkern.formats import ResultSet

LOADS = (8, 7, 6, 5, 4, 0)
STRIDES = tuple(range(1, 33))
PAUSES = (0, 8, 16, 32, 64, 128, 256, 512)
_SMALLEST_B = 2**12
# Approximate time for all pairs of units together, and minimum time for each pair.
_ALL_PAIRS_S, _LEAST_PAIR_S = 600.0, 0.05
_PER_OCTAVE = 4

_HEADER = (
    f"{'case':<4} {'size':>11} {'lines':>9} {'order':<12} {'chains':>6} {'thr':>3} {'pages':<10} "
    f"{'ns':>9} {'cycles':>8} {'±%':>5}"
)
_LOADED_HEADER = (
    f"{'case':<4} {'loads':>5} {'stores':>6} {'pause':>6} {'thr':>3} {'traffic GB/s':>12} "
    f"{'ns':>9} {'cycles':>8} {'±%':>5}"
)
_NUMA_HEADER = f"{'case':<4} {'from':<36} {'kernel':<13} {'thr':>3} {'ns':>9} {'GB/s':>8} {'±%':>5}"
_FOUND = ("what", "found", "system", "agrees", "ns", "cycles")
_BANKS_HEADER = (
    f"{'case':<4} {'stride':>6} {'dtype':<7} {'block':>5} {'thr':>3} {'ns':>9} {'±%':>5}"
)
_CORES_HEADER = f"{'case':<4} {'units':<9} {'lines':>5} {'ns':>9} {'cycles':>8} {'±%':>5}"


def _common(record: dict[str, Any]) -> str:
    return (
        f"{record['ns_per_access']:>9.2f} {record['cycles_per_access']:>8.1f} "
        f"{plus_minus(record, 'median'):>5} {' '.join(marks(record))}"
    ).rstrip()


def _row(number: int, record: dict[str, Any]) -> str:
    return (
        f"{number:<4} {record['size_B']:>11} {record['lines']:>9} {record['order']:<12} "
        f"{record['chains']:>6} {record['threads']:>3} {record['pages']:<10} {_common(record)}"
    )


def _loaded_row(number: int, record: dict[str, Any]) -> str:
    if record["kernel"] != "latency.loaded":
        return f"{number:<4} {'no traffic':<23} {'1':>3} {'':>5} {_common(record)}"
    return (
        f"{number:<4} {record['loads']:>5} {latency.GROUP - record['loads']:>6} "
        f"{record['pause']:>6} {record['threads']:>3} {record['traffic_GBps']:>12.2f} "
        f"{_common(record)}"
    )


def _cores_row(number: int, record: dict[str, Any]) -> str:
    return f"{number:<4} {record['pin']:<9} {record['lines']:>5} {_common(record)}"


def _banks_row(number: int, record: dict[str, Any]) -> str:
    return (
        f"{number:<4} {record['stride']:>6} {record['dtype']:<7} {record['block_threads']:>5} "
        f"{record['threads']:>3} {record['ns_per_access']:>9.3f} "
        f"{plus_minus(record, 'median'):>5} "
        f"{' '.join(marks(record))}"
    ).rstrip()


def _numa_row(number: int, record: dict[str, Any]) -> str:
    found, quantity = f"{record['ns_per_access']:>9.2f} {'':>8}", "median"
    if record["kernel"] != "latency.chase":
        found, quantity = f"{'':>9} {record['bandwidth_GBps']:>8.2f}", "floor"
    return (
        f"{number:<4} {record['name']:<36} {record['kernel']:<13} {record['threads']:>3} {found} "
        f"{plus_minus(record, quantity):>5} {' '.join(marks(record))}"
    ).rstrip()


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


_Table = tuple[str, Callable[[int, dict[str, Any]], str] | None, tuple[str, ...]]
# Header, row function and shown columns of each kernel's table.
_TABLES: dict[str, _Table] = {
    "chase": (_HEADER, _row, ("size_B", "lines", "order", "chains", "threads", "pages")),
    "loaded": (_LOADED_HEADER, _loaded_row, ("loads", "pause", "threads")),
    "ping_pong": (_CORES_HEADER, _cores_row, ("pin", "lines")),
    "banks": (_BANKS_HEADER, _banks_row, ("stride", "dtype", "block_threads", "threads")),
}
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
# Options of these kernels, by their names in Python.
_OPTIONS = {
    "chase": ("size_B", "order", "chains", "line_B", "steps", "distance_B", "threads"),
    "loaded": ("size_B", "order", "loads", "pause", "traffic_B", "line_B", "steps", "threads"),
    "ping_pong": ("lines", "take_by", "line_B", "turns"),
    "banks": ("stride", "steps", "threads"),
}


def _latency(args: argparse.Namespace) -> int:
    if args.study is not None and args.kernel is not None:
        raise InputError(f"latency {args.study} chooses the kernel: leave out --kernel")
    study = args.study or "sizes"
    if study in _OWN_CASES and args.kernel is None:
        return _OWN_CASES[study](args)
    kernel, defaults = (args.kernel, lambda _: {}) if args.kernel else _STUDIES[study]
    owners = {
        option: [f"latency.{name}" for name, its in _OPTIONS.items() if option in its]
        for option in itertools.chain(*_OPTIONS.values())
    }
    if args.size_B is not None:
        args.size_B = parse_sizes(args.size_B)
    own = options_by_kernel(given(args, *owners), owners, [f"latency.{kernel}"])
    # The words of the other kernels have 64 bits anyway.
    left = ("threads",) if kernel == "banks" else ("threads", "dtype")
    knobs = {k: v for k, v in knobs_of(args).items() if k not in left}
    if kernel == "banks":
        knobs.setdefault("device", "cuda")
    given_axes = {name: each(v) for name, v in own[f"latency.{kernel}"].items()}
    unset = defaults(knobs.get("device", "cpu"))
    missing = {name: values for name, values in unset.items() if name not in knobs}
    axes = {**missing, **given_axes}
    limited = bool(missing) and study in _LIMITED and not _chosen(knobs)
    if limited and study == "sizes":
        knobs["budget_s"] = _SIZE_S
    if "pin" in missing:
        _shorten(knobs, math.prod(map(len, axes.values())), args.quiet)
    args.threads = None  # a case is built for its workers
    cases: Sequence[Case] = product(partial(registry.case, f"latency.{kernel}", **knobs), axes)
    if args.kernel is None and study == "loaded":
        chain = {k: v[0] for k, v in axes.items() if k in ("size_B", "order", "line_B", "steps")}
        cases = joined([[registry.case("latency.chase", **knobs, **chain)], cases])
    most_s = _MOST_S if limited else math.inf
    answers = [health_of]
    if args.kernel is None and study == "loaded":
        answers = [_loaded, health_of]
    header, row, shown = _TABLES[kernel]
    if "size_B" in missing and args.size_B is None and not args.every_row:
        row, answers = None, [_levels, health_of]
    results = measure(cases, args, header, row, shown, most_s=most_s, answers=answers)
    if "pin" in axes and not (args.json or args.quiet):
        for lines, take_by in itertools.product(axes["lines"], axes.get("take_by", ["load"])):
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


def _shorten(knobs: dict[str, Any], cases: int, quiet: bool) -> None:
    """Reduce the time of each case if there are many, unless a time was requested."""
    usual_s = Stop().usual_s
    budget_s = min(usual_s, max(_ALL_PAIRS_S / cases, _LEAST_PAIR_S))
    if budget_s < usual_s and not _chosen(knobs):
        knobs["budget_s"] = budget_s
        if quiet:
            return
        warn(
            f"{cases} cases of pairs have {budget_s:.2g} s each instead of {usual_s:g} s, together "
            f"{cases * budget_s / 60:.0f} minutes: --budget sets another time"
        )


def _refuse_options(args: argparse.Namespace, *more: str, but: Collection[str] = ()) -> None:
    """Refuse options of kernels, and those in `more`, in a study that chooses them."""
    every = given(args, *(name for names in _OPTIONS.values() for name in names), *more)
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
    header, row, columns = _TABLES["chase"]
    answers: list[Callable[[ResultSet], str]] = []
    if not args.every_row:
        row, answers = None, [lambda found: _levels(found.filter(order="random"))]
    results = measure(cases, args, header, row, columns, most_s=most_s, answers=answers)
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

    _refuse_options(args, "pin", "numa", but={"size_B"})
    options = knobs_of(args) | ({"size_B": args.size_B} if args.size_B is not None else {})
    nodes = machine_environment()["machine"]["numa_nodes"] or []
    memories = topology.numa_nodes()
    for node in nodes:
        if node["memory_B"] == 0:
            warn(f"node {node['node']} has no memory: only its units are measured")
        elif node["node"] not in memories:
            warn(f"memory of node {node['node']} is left out: this process may not use it")
    cases = latency.numa_cases(nodes, os.sched_getaffinity(0), memories, **options)
    results = measure(cases, args, _NUMA_HEADER, _numa_row, ("name", "threads", "numa", "pin"))
    if not (args.json or args.quiet):
        line(_node_matrix(results, "latency.chase", "ns_per_access", "ns from a load to the next"))
        line(_node_matrix(results, "stream.triad", "bandwidth_GBps", "GB/s of a triad"))
        if len(nodes) < 2:
            line("this machine has one NUMA node: no memory is remote")
    return exit_code(results)


def _node_matrix(results: ResultSet, kernel: str, column: str, what: str) -> str:
    """Return the matrix of a result by the node of the units and the node of the memory."""
    from memkern.families.latency.data import NODES

    shown = [record for record in results if record["kernel"] == kernel]
    found = {
        tuple(map(int, re.findall(NODES, record["name"])[0])): _cell(record, column)
        for record in shown
    }
    rows, columns = (sorted({pair[side] for pair in found}) for side in (0, 1))
    title = f"{what}, by the node of the units (rows) and of the memory (columns):"
    return "\n".join([title, *_square("node", found, rows, columns), *_explained(shown)])


def _matrix(results: ResultSet, lines: int, take_by: str) -> str:
    """Return the times from a write of one unit to the answer of another, by both units."""
    from memkern.models.records import by_topology, units_by_topology

    shown = [r for r in results if (r["lines"], r["take_by"]) == (lines, take_by)]
    found = {
        tuple(map(int, record["pin"].split(","))): _cell(record, "ns_per_access")
        for record in shown
    }
    orders = units_by_topology(results.environments).values()
    units = by_topology({unit for pair in found for unit in pair}, next(iter(orders), ()))
    title = "one line" if lines == 1 else "a line in each direction"
    heading = (
        f"ns from a core's write to another core's answer, {title} taken by {take_by}; the row's "
        "unit touched it first:"
    )
    return "\n".join([heading, *_square("unit", found, units, units), *_explained(shown)])


def _cell(record: dict[str, Any], column: str) -> str:
    """Return a result for a table, in parentheses if it is unreliable."""
    text = f"{record[column]:.1f}"
    return f"({text})" if marks(record) else text


def _explained(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return the line on results in parentheses, if there are any."""
    words = dict.fromkeys(word for record in records for word in marks(record))
    return [f"in parentheses: {', '.join(words)}"] if words else []


def _square(
    name: str,
    cells: Mapping[tuple[int, ...], str],
    rows: Sequence[int],
    columns: Sequence[int],
) -> list[str]:
    """Return the lines of a table of cells by row and column."""
    return [
        f"{name} " + "".join(f"{column:>8}" for column in columns),
        *(
            f"{row:>4} " + "".join(f"{cells.get((row, column), ''):>8}" for column in columns)
            for row in rows
        ),
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
        argument(
            "--sizes",
            dest="size_B",
            metavar="LOW:HIGH:COUNT",
            help="bytes of the buffer, or a list",
        ),
        argument(
            "--order",
            type=words,
            metavar="NAME,...",
            help=", ".join(latency.ORDERS) + " (random): order in which lines are accessed",
        ),
        argument(
            "--chains",
            type=numbers(1, "chains"),
            metavar="N,...",
            help="independent chains at the same time, 1 to 32 (1)",
        ),
        argument(
            "--line",
            dest="line_B",
            type=count(8),
            metavar="BYTES",
            help="distance between loaded addresses in the buffer (a cache line); larger "
            "distances, such as 4096, leave out lines",
        ),
        argument(
            "--distance",
            dest="distance_B",
            type=numbers(8, "distance"),
            metavar="BYTES,...",
            help="of the orders pairs and pairs-across: bytes between the two lines of a pair",
        ),
        argument(
            "--steps", type=count(1), metavar="N", help="loads of each chain in an invocation"
        ),
        argument(
            "--traffic", dest="traffic_B", metavar="BYTES", help="of loaded: buffers of the traffic"
        ),
        argument(
            "--loads",
            type=numbers(0, "loads"),
            metavar="N,...",
            help="of loaded: lines loaded of every 8, the others stored (8,7,6,5,4,0)",
        ),
        argument(
            "--pause",
            type=numbers(0, "pause"),
            metavar="N,...",
            help="of loaded: multiplications after every 8 lines (0 to 512)",
        ),
        argument(
            "--lines",
            type=numbers(1, "lines"),
            metavar="N,...",
            help="of cores: 1: one line that both write, 2: one in each direction (1,2)",
        ),
        argument(
            "--take-by",
            type=words,
            metavar="NAME,...",
            help="of cores: load (then a store), swap (compare-and-swap, of one line) (load)",
        ),
        argument(
            "--stride",
            type=numbers(0, "stride"),
            metavar="N,...",
            help="of banks: words between neighbouring lanes of a warp (1..32)",
        ),
        argument(
            "--rows",
            dest="every_row",
            action="store_true",
            help="a row for each size, not a summary by level",
        ),
        argument(
            "--turns", type=count(1), metavar="N", help="of cores: turns in an invocation (4096)"
        ),
    ),
    measuring_options(dtypes=("uint64",)),
)
