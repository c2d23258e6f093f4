"""The verb counters."""

from __future__ import annotations

import argparse
import json
import math

from memkern.cli.measuring import warn
from memkern.cli.options import GOOD, JSON, UNDERSTAND, argument, verb


def _counters(args: argparse.Namespace) -> int:
    return _list(args) if args.check is None else _check(args)


def _list(args: argparse.Namespace) -> int:
    """Print the events that can be counted here, and why others can't."""
    from memkern.engine.sampling import counters as counting
    from memkern.machine import events

    named = (f"{unit}/{name}/" for unit, name, _ in events.by_units(counting.ROOT))
    rows = []
    for name in (*events.quantities(counting.ROOT), *events.SOFTWARE, *events.HARDWARE, *named):
        event, why = counting.event_here(name)
        rows.append({"event": name, "meaning": event.meaning if event else "", "why_not": why})
    remarks = [remark for remark in (counting.requested(counting.AUTO).note,) if remark]
    remarks += filter(None, [events.why_no_libpfm()])
    if args.json:
        print(json.dumps({"events": rows, "remarks": remarks}, indent=1))
        return GOOD
    width = max(len(row["event"]) for row in rows)
    print(f"{'event':<{width}} meaning")
    for row in rows:
        if not row["why_not"]:
            print(f"{row['event']:<{width}} {row['meaning']}".rstrip())
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["why_not"]:
            reasons.setdefault(row["why_not"], []).append(row["event"])
    for reason, names in reasons.items():
        print(f"not counted: {', '.join(names)}: {reason}")
    for remark in remarks:
        print(remark)
    return GOOD


def _check(args: argparse.Namespace) -> int:
    """Print the measured and the true counts of known work."""
    from memkern.formats.values import jsonable
    from memkern.studies.known_counts import check

    found = check(args.check)
    if args.json:
        rows = [
            {"event": k.event, "work": k.work, "true": k.true, "count": k.count, "ratio": k.ratio}
            for k in found
        ]
        print(json.dumps(jsonable(rows), indent=1, allow_nan=False))
        return GOOD
    width = max(len(known.event) for known in found)
    print(f"{'event':<{width}} {'true':>12} {'counted':>12} {'ratio':>7}  work")
    for known in found:
        unknown = math.isnan(known.ratio)
        mark = "" if known.agrees else "  not counted" if unknown else "  differs"
        print(
            f"{known.event:<{width}} {known.true:>12.6g} {known.count:>12.6g} "
            f"{known.ratio:>7.3f}  {known.work}{mark}"
        )
    wrong = (k.event for k in found if not (k.agrees or math.isnan(k.ratio)))
    if differing := dict.fromkeys(wrong):
        warn(f"{', '.join(differing)} differ from the true count by more than a tenth")
    return GOOD


COUNTERS_VERB = verb(
    "counters",
    UNDERSTAND,
    "list the events that --counters can count here",
    _counters,
    (
        "memkern counters",
        "memkern counters --check",
        "memkern counters --json",
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
