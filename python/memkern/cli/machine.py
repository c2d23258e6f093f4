"""The verbs info, columns, doctor and machine counters."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memkern.backends import BACKENDS
from memkern.checks import one_of
from memkern.cli.measuring import check_output, exit_code, print_document, save, show_progress, warn
from memkern.cli.options import (
    FAILED,
    FORCE,
    GOOD,
    JSON,
    MANAGE,
    METRICS,
    UNDECIDED,
    UNDERSTAND,
    argument,
    refuse,
    verb,
)
from memkern.cli.tables import Table, cell
from memkern.machine.health import DISTURBED
from memkern.spec import columns

if TYPE_CHECKING:
    from memkern.studies.doctor import Health


def _microseconds(seconds: float | None) -> str:
    """Return a time as text; it is unknown if its samples were disturbed."""
    return "an unknown time (disturbed)" if seconds is None else f"{seconds * 1e6:.2f} us"


def _devices(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of the GPUs, or one row with the reason why there are none."""
    rows = []
    for name, about in facts["devices"].items():
        if "unavailable" in about:
            rows.append(
                (name, f"{about.get('name', 'unknown')}, unavailable: {about['unavailable']}")
            )
            continue
        costs = (about[f"launch{way}_s"] for way in ("", "_single", "_graph"))
        row, alone, graph = map(_microseconds, costs)
        rows += [
            (
                name,
                f"{about['name']}, {about['isa']}, {about['units']} multiprocessors, "
                f"{about['memory_B'] / 1e9:.0f} GB, L2 {about['l2_B'] / 2**20:.0f} MiB; the "
                f"driver's copy moves {about['copy_GBps']:.0f} of {about['peak_GBps']:.0f} GB/s",
            ),
            ("", _card(about)),
            ("", f"an empty kernel takes {row} back to back, {alone} alone, {graph} in a graph"),
            ("", about["no_energy"] or "energy is measured by NVML"),
        ]
    return rows or [("devices", facts["no_devices"])]


def _of(found: float | None, most: float | None) -> str | None:
    """Return a value as text, with the largest possible value if that is known."""
    if found is None or most is None:
        return None if found is None else f"{found:.0f}"
    return f"{found:.0f} of {most:.0f}"


def _card(about: dict[str, Any]) -> str:
    """Return the settings and the state of a GPU, as far as they are known."""
    known, now = about["settings"], about["state"]
    parts = [
        ("at most {:.2f} GHz", known["max_clock_GHz"]),
        ("memory at most {:.2f} GHz", known["max_memory_clock_GHz"]),
        ("limit {:.0f} W", known["power_limit_W"]),
        ("PCI Express {}", _of(now["link_generation"], known["link_generation"])),
        ("{} lanes", _of(now["link_width"], known["link_width"])),
        ("throttled by {}", now["throttle"]),
    ]
    words = [text.format(value) for text, value in parts if value is not None and value != ""]
    ecc = "with" if about["ecc"] else "without"
    return ", ".join([*words, f"{ecc} error correction"])


def _info(args: argparse.Namespace) -> int:
    from memkern.studies.describe import describe

    facts = describe()
    machine, topology = facts["environment"]["machine"], facts["topology"]
    build, settings = facts["build"], facts["environment"]["settings"]
    caches = ", ".join(
        f"L{c['level']} {c['size_B'] // 1024} KiB x {c['instances']}" for c in topology["caches"]
    )
    sizes_B = facts["environment"].get("measured_caches", {}).get("sizes_B", {})
    measured = "; measured: " * bool(sizes_B) + ", ".join(
        f"{name} {size_B // 1024} KiB" for name, size_B in sizes_B.items()
    )
    rows = [
        ("processor", machine.get("model") or "unknown"),
        (
            "topology",
            f"{topology['packages']} packages, {topology['cores']} cores, "
            f"{len(topology['units'])} processing units usable, "
            f"{len(topology['numa_nodes'])} NUMA nodes",
        ),
        ("caches", caches + measured or "unknown"),
        (
            "memory",
            "unknown"
            if facts["memory_available_B"] is None
            else f"{facts['memory_available_B'] / 1e9:.1f} GB available ({facts['memory_limit']})",
        ),
        ("pages", _pages(settings)),
        (
            "pinning",
            "none, compact, spread, or a list of units out of " + _ranges(topology["units"]),
        ),
        ("instruction sets", ", ".join(build["isas"])),
        ("clock", f"smallest step {facts['clock_tick_s'] * 1e9:.0f} ns"),
        ("launch", f"an empty parallel region takes {_microseconds(facts['launch_s'])}"),
        ("backends", _backends(facts["backends"])),
        *_devices(facts),
        ("energy", facts["no_energy"] or f"measured by {', '.join(facts['energy_meters'])}"),
        ("prefetchers", facts["no_prefetchers"] or "can be switched off (--prefetchers off)"),
        ("clock limit", facts["no_clock_limit"] or "can be set (--clock-limit)"),
        ("cache ways", facts["no_cache_ways"] or "can be limited (--cache-ways)"),
        (
            "build",
            f"memkern {build['version']}, {build['compiler']}, Highway {build['highway']}, "
            f"commit {build['commit']}",
        ),
    ]
    print_document(facts, "\n".join(f"{name:<17} {text}" for name, text in rows), args)
    return GOOD


def _backends(built: Sequence[str]) -> str:
    """Return the backends of this build, and what those for ranks that it lacks would need."""
    lacking = [
        f"{backend.name} (needs {backend.compiler} on PATH when memkern is built)"
        for backend in BACKENDS
        if backend.over_ranks and backend.name not in built
    ]
    return ", ".join(built) + f"; built without {' and '.join(lacking)}" * bool(lacking)


def _pages(settings: dict[str, Any]) -> str:
    from memkern.machine.environment import IN_USE, folios

    sizes = folios(settings)
    thp = sizes.popitem()[1] if sizes else "not in this kernel"
    thp += "".join(f", {size} {word}" for size, word in sizes.items() if word in IN_USE)
    pools = [
        f"{size} pool of {pool['reserved']}"
        for size, pool in (settings.get("hugepages") or {}).items()
    ]
    return f"transparent huge pages: {thp}; " + (", ".join(pools) or "no hugetlb pools")


def _ranges(units: Sequence[int]) -> str:
    parts = []
    for _, run in itertools.groupby(enumerate(sorted(units)), lambda pair: pair[1] - pair[0]):
        group = [unit for _, unit in run]
        parts.append(f"{group[0]}-{group[-1]}" if len(group) > 1 else f"{group[0]}")
    return ",".join(parts)


# Columns by their headings in printed tables.
_HEADINGS = {
    "GB/s": "bandwidth_GBps", "GAMS": "rate_GAMS", "GFLOP/s": "performance_GFLOPs",
    "ns/AMO": "ns_per_access", "±%": "time_min_ci_relative", "thr": "threads", "bytes": "bytes_B",
    "xN": "invocations",
}  # fmt: skip


def _columns(args: argparse.Namespace) -> int:
    known = columns.COLUMNS
    if args.schema:
        from memkern.formats.json_schema import json_schema

        refuse(args, "with --schema, which is of all columns", names=[], json=False)
        print(json.dumps(json_schema(), indent=1))
        return GOOD
    now = {**_HEADINGS, **columns.CURRENT_NAMES}
    args.names = [now.get(name, name) for name in args.names]
    for name in args.names:
        one_of(name, "column", known)
    listed = [known[name] for name in args.names or known]
    rows = [dataclasses.asdict(column) for column in listed]
    width = max(len(column.name) for column in listed)
    others = (cell("kind", "<9"), cell("type", "<8"), cell("unit", "<8"), cell("meaning", ""))
    table = Table((cell("name", f"<{width}", "column"), *others), lambda row: [])
    print_document(rows, "\n".join(table.lines(rows)), args)
    return GOOD


INFO_VERB = verb(
    "info",
    MANAGE,
    "list features of this machine and build, and missing ones",
    _info,
    (
        "memkern info",
        "memkern info --json",
        "memkern info --json > host-info.json",
    ),
    JSON,
)


COLUMNS_VERB = verb(
    "columns",
    MANAGE,
    "list the columns of records with their meanings and units",
    _columns,
    (
        "memkern columns",
        "memkern columns bandwidth_GBps time_min_s",
        "memkern columns --schema > memkern.schema.json",
    ),
    argument("names", nargs="*", metavar="NAME", help="these columns only"),
    JSON,
    argument(
        "--schema",
        action="store_true",
        help="the JSON Schema of records and of doctor --json; later versions only add columns",
    ),
)


def _doctor(args: argparse.Namespace) -> int:
    from memkern.results.exchange import metrics_file, write_openmetrics
    from memkern.studies.doctor import doctor

    check_output(args)
    if args.openmetrics:
        metrics_file(args.openmetrics)
    with show_progress(args) as progress:
        found = doctor(quick=args.quick, baseline=args.baseline, progress=progress)
    save(found.results, args)
    if args.openmetrics:
        healthy = found.verdict != DISTURBED and found.results.valid and not found.worse
        write_openmetrics(args.openmetrics, found.results, healthy, found.verdict)
    document = {
        "verdict": found.verdict,
        "findings": [dataclasses.asdict(finding) for finding in found.findings],
        "records": found.results.records,
    }
    answer = f"\n{_answer(found, args.baseline[0])}" if args.baseline else ""
    print_document(document, f"{found}\ntook {found.seconds:.1f} s{answer}", args)
    if args.quiet and not args.json:
        print(found.summary)
    if found.results.interrupted or not found.results.valid:
        return exit_code(found.results)
    undecided = args.baseline and not found.judged
    return FAILED if found.worse else UNDECIDED if undecided else GOOD


def _answer(found: Health, baseline: str) -> str:
    """Return the sentence on whether the machine is slower than in the baseline."""
    if found.judged:
        why = ": see the finding on the baseline" * found.worse
        return f"this machine is {'' if found.worse else 'not '}slower than in {baseline}{why}"
    return f"whether this machine is slower than in {baseline} can't be told: no case was judged"


DOCTOR_VERB = verb(
    "doctor",
    MANAGE,
    "check whether this machine is fit for measuring, and give advice",
    _doctor,
    (
        "memkern doctor",
        "memkern doctor --quick -o week.db",
        "memkern doctor --baseline week.db",
    ),
    argument("--quick", action="store_true", help="within 5 s instead of 24 s"),
    argument(
        "--baseline",
        nargs="+",
        default=[],
        metavar="FILE",
        help="compare with what earlier checks of this machine wrote with -o, its history; exit "
        "code 3 if it is slower, 4 if that could not be judged",
    ),
    argument("-o", "--output", metavar="PATH", help=".db, .parquet, .csv or .json"),
    METRICS,
    argument("--json", action="store_true", help="verdict, findings and records as JSON"),
    FORCE,
    argument("-q", "--quiet", action="store_true", help="verdict in one line, no progress"),
)


def _list(args: argparse.Namespace) -> int:
    """Print the events that can be counted here, and why others can't."""
    from memkern.engine.sampling import counters as counting
    from memkern.machine import events

    named = (f"{unit}/{name}/" for unit, name, _ in events.by_units(counting.ROOT))
    names = (*events.quantities(counting.ROOT), *events.SOFTWARE, *events.HARDWARE, *named)
    found = ((name, *counting.event_here(name)) for name in names)
    rows = [
        {"event": name, "meaning": event.meaning if event else "", "why_not": why}
        for name, event, why in found
    ]
    notes = counting.requested(counting.AUTO).note, events.why_no_libpfm()
    remarks = [note for note in notes if note]
    width = max(len(row["event"]) for row in rows)
    table = Table((cell("event", f"<{width}"), cell("meaning", "")), lambda row: [])
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row["why_not"], []).append(row["event"])
    known = table.lines(row for row in rows if not row["why_not"])
    others = (f"not counted: {', '.join(some)}: {why}" for why, some in reasons.items() if why)
    text = "\n".join([*known, *others, *remarks])
    print_document({"events": rows, "remarks": remarks}, text, args)
    return GOOD


def _check(args: argparse.Namespace) -> int:
    """Print the measured and the true counts of known work."""
    from memkern.studies.known_counts import check

    found = check(args.check)
    rows = [
        {"event": k.event, "work": k.work, "true": k.true, "count": k.count, "ratio": k.ratio}
        for k in found
    ]
    width = max(len(known.event) for known in found)
    lines = [f"{'event':<{width}} {'true':>12} {'counted':>12} {'ratio':>7}  work"]
    for known in found:
        unknown = math.isnan(known.ratio)
        mark = "" if known.agrees else "  not counted" if unknown else "  differs"
        lines.append(
            f"{known.event:<{width}} {known.true:>12.6g} {known.count:>12.6g} "
            f"{known.ratio:>7.3f}  {known.work}{mark}"
        )
    print_document(rows, "\n".join(lines), args)
    wrong = (k.event for k in found if not (args.json or k.agrees or math.isnan(k.ratio)))
    if differing := dict.fromkeys(wrong):
        warn(f"{', '.join(differing)} differ from the true count by more than a tenth")
    return GOOD


COUNTERS_VERB = verb(
    "machine counters",
    UNDERSTAND,
    "list the events that --counters can count here",
    lambda args: _list(args) if args.check is None else _check(args),
    (
        "memkern machine counters",
        "memkern machine counters --check",
        "memkern machine counters --json",
    ),
    argument(
        "--check",
        nargs="?",
        const="",
        metavar="QUANTITY=EVENT,...",
        help="count work with known true counts, and store the ratios for later records (default: "
        "all known events)",
    ),
    JSON,
)
