"""Measure cases with the options of the command line, and print a table of the results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memkern import progress, statistics
from memkern.cli.options import GOOD, INTERRUPTED, INVALID
from memkern.cli.refusing import refuse, refuse_idle, taken
from memkern.machine.health import DISTURBED
from memkern.spec.options import Knobs, declared
from memkern.spec.sequences import Cases, joined, product, sample

if TYPE_CHECKING:
    from memkern.measuring.disturbance import Activity
    from memkern.measuring.record import Measurement
    from memkern.results import ResultSet
    from memkern.spec.case import Case

# Options of which the command line takes lists; every combination is measured.
_LISTED = [name for name, _, option in declared(Knobs) if option.several]

# Up to _AT_ONCE cases are built before the first is measured, so that their errors are reported at
# once; of more, a sample of _LOOK decides which options the table shows.
_AT_ONCE = 500
_LOOK = 100


def _varied(cases: Sequence[Case], args: argparse.Namespace) -> Sequence[Case]:
    """Return every case with every combination of the knobs that were given as lists.

    Kernels without effect of a knob are measured without it.
    """
    values = {name: getattr(args, name) for name in _LISTED}
    lists = {name: value for name, value in values.items() if isinstance(value, list)}

    def of_part(part: Sequence[Case]) -> Cases:
        # The combinations of a case follow each other.
        base = functools.lru_cache(maxsize=1)(part.__getitem__)

        def build(place: int, **knobs: Any) -> Case:
            case = base(place)
            return case.with_(**taken(case.spec.name, knobs))

        # A part has cases of one kernel, but those of sweep files may have several.
        varied = taken(part[0].spec.name, lists) if len(part) else lists
        return product(build, {"place": range(len(part)), **varied})

    if lists:
        cases = joined(map(of_part, cases.parts if isinstance(cases, Cases) else [cases]))
    return list(cases) if len(cases) <= _AT_ONCE else cases


def requested(
    cases: Sequence[Case], args: argparse.Namespace
) -> tuple[Sequence[Case], Sequence[Case]]:
    """Return the cases with every combination of the options given, and some of them to look at.

    Raises
    ------
    InputError
        An option has no effect on any of the latter.
    """
    every = _varied(cases, args)
    some = every if isinstance(every, list) else sample(every, _LOOK)
    refuse_idle(some, args)
    return every, some


HEADER = (
    f"{'case':<4} {'kernel':<13} {'pattern':<22} {'variant':<15} {'thr':>3} {'pages':<9} "
    f"{'bytes':>13} {'time_min_s':>11} {'GB/s':>8} {'±%':>5}"
)


def _input_of(record: dict[str, Any]) -> str:
    """Describe the input of a record of a streaming kernel."""
    if "degree" in record:
        return f"K {record['mesh_elements']}, N {record['degree']}"
    if "elements" not in record:
        return ""
    pattern = record.get("index_pattern")
    return f"{record['elements']} {pattern or 'elements'}"


def _stream_table(measurement: Measurement) -> None:
    """Print a rotation as STREAM does: best rate from the shortest time, without the first."""
    line(f"{'Function':<11} {'Best Rate MB/s':>14}  {'Avg time':>11}  {'Min time':>11}  Max time")
    for part in measurement.parts:
        record = part.record
        name = f"{record['kernel'].partition('.')[2].capitalize()}:"
        times = (record["time_mean_s"], record["time_min_s"], record["time_max_s"])
        line(
            f"{name:<11} {record['bytes_B'] / record['time_min_s'] / 1e6:14.1f}  "
            + "  ".join(f"{seconds:11.6f}" for seconds in times)
        )
    record = measurement.record
    verdict = "validates" if record["valid"] else "FAILS its validation"
    line(
        f"Solution {verdict}: average error {record['error_max']:.2g} on all three arrays; "
        f"{record['elements']} elements, {record['threads']} threads, "
        f"{record['variant']}/{record['isa']}, pages {record['pages']}"
    )
    if words := marks(record):
        line(f"Marked as {', '.join(words)}")


def marks(record: dict[str, Any]) -> list[str]:
    """Return the words that mark the row of a record whose times or results are doubtful."""
    words: list[str] = [] if record["valid"] else ["INVALID"]
    doubts = ("disturbed", "oversubscribed", "skewed")
    return words + [name for name in doubts if record.get(name)]


def row_of(number: int, record: dict[str, Any]) -> str:
    """Return the row of a record under `HEADER`."""
    label = record["name"] or record.get("pattern") or _input_of(record)
    label = label if len(label) <= 22 else label[:21] + "…"
    words = marks(record)
    if record["stop"] == "runs" and record["invocations"] > 1:
        words.append(f"x{record['invocations']}")
    return (
        f"{number:<4} {record['kernel'].partition('.')[2]:<13} {label:<22} "
        f"{record['variant'] + '/' + record['isa']:<15} {record['threads']:>3} "
        f"{record['pages']:<9} {record['bytes_B']:>13} {record['time_min_s']:>11.4g} "
        f"{record['bandwidth_GBps']:>8.2f} {plus_minus(record):>5} {' '.join(words)}"
    ).rstrip()


def _summary(results: ResultSet) -> str:
    """Return the distribution of the bandwidths of several cases, as Spatter prints it."""
    rates = [r["bandwidth_GBps"] for r in results if r["bytes_B"] > 0 and not r["rotation"]]
    if len(rates) < 2:
        return ""
    low, middle, high = statistics.quartiles(rates)
    return (
        f"GB/s of {len(rates)} cases: min {min(rates):.2f}, quartiles {low:.2f} {middle:.2f} "
        f"{high:.2f}, max {max(rates):.2f}, harmonic mean {statistics.harmonic_mean(rates):.2f} "
        f"± {statistics.harmonic_mean_error(rates):.2f}"
    )


def _of_ranks(results: ResultSet) -> str:
    """Return how the ranks differ; empty for a single process."""
    of_several = [r for r in results if r["ranks"] > 1 and r["rank_spread"] >= 0]
    if not of_several:
        return ""
    worst = max(of_several, key=lambda record: record["rank_spread"])
    rows = json.loads(worst["rank_rows"])
    slow = max(rows, key=lambda row: row["time_median_s"])
    hosts = len({row["host"] for row in rows})
    return (
        f"{worst['ranks']} ranks on {hosts} host{'s' * (hosts > 1)}, totals over all of them; "
        f"their own times differ by up to {worst['rank_spread']:.1%}, where rank {slow['rank']} on "
        f"{slow['host']} is the slowest"
    )


# Options that get a column of the table if they vary among the cases.
_VARIABLE = (
    "dtype", "index_dtype", "pin", "numa", "pages", "offset", "schedule", "chunk", "prefetch",
    "unroll", "repetition", "flush", "seed", "device", "timer", "block_threads", "block_shared",
    "delta", "count",
    "wrap", "alpha", "beta", "layer_condition", "index_pattern", "masked", "numbering", "iters",
    "stride", "padding_B", "hot", "result", "order", "block", "share_planes", "prefetch_into",
    "distance_B", "targets", "remote_share", "flush_every", "contexts",
)  # fmt: skip


def _varying(cases: Sequence[Case], shown: Collection[str]) -> dict[str, int]:
    """Return the options, except those `shown`, that vary among a kernel's cases, with widths."""
    requested = [
        {
            "kernel": case.spec.name,
            **dataclasses.asdict(case.knobs),
            "dtype": case.dtype,
            "index_dtype": case.index_dtype,
            **case.columns,
            **dict(zip(case.spec.template_columns, case.template_variant.split("/"), strict=False)),
        }
        for case in cases
    ]
    widths = {}
    for name in _VARIABLE:
        pairs = {(one["kernel"], str(one[name])) for one in requested if name in one}
        if len(pairs) > len({kernel for kernel, _ in pairs}) and name not in shown:
            widths[name] = min(max(len(name), *(len(value) for _, value in pairs)), _WIDEST)
    return widths


_WIDEST = 16


def _value(record: dict[str, Any], name: str, width: int) -> str:
    """Return the requested value of an option in `width` characters; blank if it has none."""
    value = record.get(f"{name}_asked", record.get(name))
    text = "" if value is None or value != value else str(value)
    return f"{text if len(text) <= width else text[: width - 1] + '…':>{width}}"


def measure(
    cases: Sequence[Case],
    args: argparse.Namespace,
    header: str = HEADER,
    row: Callable[[int, dict[str, Any]], str] = row_of,
    shown: Collection[str] = ("pages", "index_pattern"),
    select: Callable[[Sequence[Case]], Sequence[Case]] | None = None,
) -> ResultSet:
    """Measure with the options of the command line, and print a table of the results.

    `row` makes a line of the table from the number and the record of a case. Options that vary
    and are not among those `shown` in the line are put before it. `select` returns those of the
    cases that are measured.
    """
    from memkern.measuring.ranks import ranks
    from memkern.measuring.sweep import sweep

    if args.case_order != "random":
        refuse(args, f"with --case-order {args.case_order}", case_order_seed=None)
    found = wait_until_quiet(args)
    table = not (args.json or args.quiet)
    number = itertools.count()
    cases, some = requested(cases, args)
    # Other parts may be measured on other hosts.
    ranks().names_hosts = ranks().size > 1 or select is not None
    if select is not None:
        cases = select(cases)
    widths = _varying(some, shown) if header else {}
    before = "".join(f"{name:>{width}} " for name, width in widths.items())

    def show(measurement: Measurement) -> None:
        if not table:
            return
        values = {name: _value(measurement.record, name, w) for name, w in widths.items()}
        if measurement.parts:
            if values:
                line(", ".join(f"{name} {value.strip()}" for name, value in values.items()) + ":")
            _stream_table(measurement)
            return
        k = next(number)
        if k == 0 and header:
            line(before + header)
        line("".join(f"{value} " for value in values.values()) + row(k, measurement.record))

    results = sweep(
        cases,
        repeats=args.repeats,
        output=args.output,
        resume=args.resume,
        force=args.force,
        progress=not args.quiet,
        on_result=show,
        order=args.case_order,
        order_seed=args.case_order_seed,
        on_begin=lambda: warn_if_not_quiet(found, args),
    )
    warn_if_disturbed(results)
    if args.json:
        print(results.to_json_text())
    elif table:
        for text in (_summary(results) if row is row_of else "", _of_ranks(results)):
            if text:
                line(text)
    return results


_TOLD_EVERY_S = 10.0  # while waiting


def wait_until_quiet(args: argparse.Namespace) -> Activity:
    """Return the activity of others, after waiting for it to end if requested.

    While it waits, it tells for what, unless the options have ``--quiet``.
    """
    from memkern.measuring.ranks import ranks
    from memkern.measuring.watching import observe_machine

    found = observe_machine()
    begin = time.monotonic()
    most_s = args.wait_quiet or 0.0
    told_s = -math.inf
    while not found.quiet and not ranks().gate(time.monotonic() - begin >= most_s):
        waited_s = time.monotonic() - begin
        if waited_s - told_s >= _TOLD_EVERY_S and not args.quiet:
            told_s = waited_s
            warn(f"waiting for {found} to end, for {waited_s:.0f} of at most {most_s:.0f} s")
        time.sleep(0.5)
        found = observe_machine()
    if found.quiet and told_s >= 0:
        warn(f"the machine is quiet after {time.monotonic() - begin:.0f} s")
    return found


def warn_if_not_quiet(found: Activity, args: argparse.Namespace) -> None:
    """Warn if other processes run on the machine."""
    if not (found.quiet or args.quiet):
        warn(f"the machine is not quiet: {found} runs on it too")


@contextlib.contextmanager
def show_progress(args: argparse.Namespace) -> Iterator[Callable[[float], object]]:
    """Show a progress bar, and yield the function that sets it to a share of 0 to 1."""
    bar = progress.bar(not args.quiet, total=100, unit="%")
    try:
        yield lambda share: bar.update(int(100 * share) - bar.n)
    finally:
        bar.close()


def warn_if_disturbed(results: ResultSet) -> None:
    """Warn of disturbed records and choices, or of a machine that the doctor found disturbed."""
    verdicts = dict.fromkeys(str(record.get("doctor") or "") for record in results)
    if ailing := [verdict for verdict in verdicts if verdict.startswith(DISTURBED)]:
        warn(f"memkern doctor found this machine {ailing[-1]} (run it again to see what to do)")
    defaults = sum(record.get("variant_choice") == "default" for record in results)
    if defaults:
        warn(
            f"{defaults} of {len(results)} records have the default variant, since all trials of "
            "another one were disturbed: measure again on a quiet machine (--wait-quiet)"
        )
    disturbed = [record for record in results if record.get("disturbed")]
    if not disturbed:
        return
    by = dict.fromkeys(record.get("disturbed_by") or "" for record in disturbed)
    named = "; ".join(text for text in list(by)[:3] if text)
    what = named or "something unknown, such as another virtual machine on these cores"
    warn(
        f"{len(disturbed)} of {len(results)} records are disturbed by {what}; they have no "
        "interval and are left out of verdicts: measure again on a quiet machine (--wait-quiet) "
        "or with shorter cases"
    )


def plus_minus(record: dict[str, Any]) -> str:
    """Return the half width of the record's interval in percent; empty if it has none."""
    width = record["ci_relative"]
    return f"{100 * width:.1f}" if width == width else ""


def line(text: str) -> None:
    """Print above the progress bar, if there is one."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        tqdm.write(text, file=sys.stdout)
    else:
        print(text, flush=True)


def exit_code(results: ResultSet) -> int:
    """Return the exit code: interrupted, invalid or good."""
    if results.interrupted or any(record["stop"] == "interrupted" for record in results):
        return INTERRUPTED
    return GOOD if results.valid else INVALID


def warn(message: str) -> None:
    """Print a message on standard error, after the command's name."""
    print(f"memkern: {message}", file=sys.stderr)
