"""Measure cases with the options of the command line, and print a table of the results."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern import progress, statistics
from memkern.cli.options import (
    EXPLAIN_S,
    GOOD,
    INTERRUPTED,
    INVALID,
    QUICK_S,
    refuse,
    refuse_idle,
    taken,
)
from memkern.cli.tables import STREAMS, Table, marks, scope_of, varying
from memkern.errors import InputError
from memkern.isolating import refuse_isolated
from memkern.machine.caches import level_of
from memkern.machine.health import DISTURBED
from memkern.spec.options import Knobs, declared
from memkern.spec.sequences import Cases, joined, product, sample

if TYPE_CHECKING:
    from memkern.engine.public import Activity, Measurement
    from memkern.formats import ResultSet
    from memkern.models.machine_file import MachineFile
    from memkern.spec.case import Case

# Seconds of measuring in turns for each group of cases that are compared.
_TURNS_S, _QUICK_TURNS_S = 3.0, 0.5
# Ratio of the time of cases to their estimate if time is limited.
_LONGER = 1.2

# Up to _AT_ONCE cases are built before the first is measured, so that their errors are reported at
# once; of more cases, a sample of _LOOK determines which options the table shows.
_AT_ONCE = 500
_LOOK = 100


def requested(
    cases: Sequence[Case], args: argparse.Namespace
) -> tuple[Sequence[Case], Sequence[Case]]:
    """Return the cases with every combination of the knobs given as lists, and a sample of them.

    Cases on which a knob has no effect are measured without it.

    Raises
    ------
    InputError
        An option has no effect on any case of the sample.
    """
    values = {name: getattr(args, name) for name, _, option in declared(Knobs) if option.several}
    lists = {name: value for name, value in values.items() if isinstance(value, list)}

    def of_part(part: Sequence[Case]) -> Cases:
        # The combinations of a case follow each other.
        base = functools.lru_cache(maxsize=1)(part.__getitem__)

        def build(position: int, **knobs: Any) -> Case:
            case = base(position)
            return case.with_(**taken(case, knobs))

        # A part has cases of one kernel that take the same knobs, except in sweep files.
        varied = taken(part[0], lists) if len(part) else lists
        return product(build, {"position": range(len(part)), **varied})

    if lists:
        cases = joined(map(of_part, cases.parts if isinstance(cases, Cases) else [cases]))
    every = list(cases) if len(cases) <= _AT_ONCE else cases
    some = every if isinstance(every, list) else sample(every, _LOOK)
    refuse_idle(some, args)
    return every, some


def _stream_table(measurement: Measurement) -> None:
    """Print a rotation like STREAM: the best rate is from the shortest time except the first."""
    line(f"{'Function':<11} {'Best Rate MB/s':>14}  {'Avg time':>11}  {'Min time':>11}  Max time")
    for part in measurement.parts:
        record = part.record
        name = f"{record['kernel'].partition('.')[2].capitalize()}:"
        times = (record["time_mean_s"], record["time_min_s"], record["time_max_s"])
        words = "".join(f"  {word}" for word in marks(record))
        line(
            f"{name:<11} {record['bytes_B'] / record['time_min_s'] / 1e6:14.1f}  "
            + "  ".join(f"{seconds:11.6f}" for seconds in times)
            + words
        )
    record = measurement.record
    verdict = "validates" if record["valid"] else "FAILS its validation"
    line(
        f"Solution {verdict}: average error {record['error_max']:.2g} on all three arrays; "
        f"{record['elements']} elements, {record['threads']} threads, "
        f"{record['variant']}/{record['isa']}, pages {record['pages']}"
    )


def _summary(results: ResultSet) -> str:
    """Return the distribution of the bandwidths of several cases, as Spatter prints it.

    Each level of memory has a line of its own. Disturbed and invalid records are left out.
    """
    from memkern.models.records import cache_ends

    held_B = dict(cache_ends(results))
    levels: dict[str, list[dict[str, Any]]] = {}
    for record in results:
        if record["bytes_B"] > 0 and not record["rotation"]:
            level = f" in {level_of(record['footprint_B'], held_B)}" if held_B else ""
            levels.setdefault(level, []).append(record)
    return "\n".join(filter(None, itertools.starmap(_distribution, levels.items())))


def _distribution(level: str, records: Sequence[dict[str, Any]]) -> str:
    """Return the distribution of the bandwidths of a level; empty for less than two."""
    rates = [r["bandwidth_GBps"] for r in records if r["valid"] and not r["disturbed"]]
    if len(rates) < 2:
        return ""
    left_out = len(records) - len(rates)
    note = f" ({left_out} disturbed or invalid left out)" if left_out else ""
    low, middle, high = statistics.quartiles(rates)
    return (
        f"GB/s of {len(rates)} cases{level}{note}: min {min(rates):.2f}, quartiles {low:.2f} "
        f"{middle:.2f} {high:.2f}, max {max(rates):.2f}, harmonic mean "
        f"{statistics.harmonic_mean(rates):.2f} (standard error "
        f"{statistics.harmonic_mean_error(rates):.2f})"
    )


def _of_ranks(results: ResultSet) -> str:
    """Return the sentence on differences between ranks; empty for a single process."""
    of_several = [r for r in results if r["ranks"] > 1 and r["rank_spread"] >= 0]
    if not of_several:
        return ""
    worst = max(of_several, key=lambda record: record["rank_spread"])
    rows = json.loads(worst["rank_rows"])
    slow = max(rows, key=lambda row: row["time_median_s"])
    hosts = len({row["host"] for row in rows})
    return (
        f"{worst['ranks']} ranks on {hosts} host{'s' * (hosts > 1)}, totals over all of them; "
        f"their own times differ by up to {worst['rank_spread']:.1%}; rank {slow['rank']} on "
        f"{slow['host']} is the slowest"
    )


def announce(
    cases: Sequence[Case],
    most_s: float = math.inf,
    longer: float = _LONGER,
    drawing_s: float = 0.0,
) -> None:
    """Print the number of cases that will be measured in at most `most_s`, and the expected time.

    If time is limited, `longer` is the ratio of the time of cases to their estimate. The time
    includes `drawing_s` for drawing the records.
    """
    from memkern.engine.public import expected_s, planned

    if not progress.announced(most_s):
        return
    whole = len(cases) <= _AT_ONCE
    some = cases if whole else sample(cases, _LOOK)
    # With a limit, samples are shortened to meet it if the estimate was too low.
    about_s = expected_s(some) * len(cases) / max(len(some), 1)
    about_s *= 1.0 if most_s == math.inf else longer
    time_s = min(about_s, most_s)
    number = len(planned(cases, most_s)) if whole and about_s > most_s else len(cases)
    of = f"{number} of " if number < len(cases) else ""
    progress.announce(
        f"measuring {of}{len(cases)} case{'s' * (len(cases) > 1)}"
        + " and drawing them" * (drawing_s > 0),
        time_s + drawing_s,
    )


def measure(  # noqa: C901
    cases: Sequence[Case],
    args: argparse.Namespace,
    table: Table = STREAMS,
    rows: bool = True,
    select: Callable[[Sequence[Case]], Sequence[Case]] | None = None,
    most_s: float = math.inf,
    answers: Sequence[Callable[[ResultSet], str]] = (),
) -> ResultSet:
    """Measure with the options of the command line, and print a table of the results.

    Varying columns that `table` does not show precede its rows (see `varying`); with `rows` False
    only what is below them is printed. `select` returns the cases to measure. If `most_s` is too
    short for all cases, the least informative ones are left out first. Each of `answers` returns
    what is printed below the table, such as one sentence, from all records; cases whose ratios they
    have are also measured in turns, unless the number of runs is fixed.
    """
    from memkern.engine.public import ranks, sweep
    from memkern.results.exchange import metrics_file, write_openmetrics

    if args.case_order != "random":
        refuse(args, f"with --case-order {args.case_order}", case_order_seed=None)
    if args.openmetrics:
        metrics_file(args.openmetrics)
    number = itertools.count()
    cases, some = requested(cases, args)
    refuse_isolated(some)
    found = wait_until_quiet(args)
    # Other parts may be measured on other hosts.
    ranks().names_hosts = ranks().size > 1 or select is not None
    if select is not None:
        cases = select(cases)
    listed = [name for name, value in vars(args).items() if type(value) is list and value[1:]]
    cells = varying(some, table, listed) if table.cells else ()
    whole = table.after(*cells)
    time_s = QUICK_S if args.quick else most_s

    def begun() -> None:
        announce(cases, time_s)
        warn_if_not_quiet(found, args)

    def show(measurement: Measurement) -> None:
        if not rows or args.json or args.quiet:
            return
        record = measurement.record
        if measurement.parts:
            if cells:
                line(", ".join(f"{each.title} {each.value(record)}" for each in cells) + ":")
            _stream_table(measurement)
        else:
            k = next(number)
            if k == 0 and whole.cells:
                line(whole.header)
            line(whole.row(k, record))
        if counts := _counts(record):
            line(f"     counted in an invocation: {counts}")

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
        on_begin=begun,
        time_s=time_s,
    )
    if answers and args.runs is None and not results.interrupted:
        from memkern.results.ratios import asked

        if groups := asked(answers, results):
            from memkern.studies.turns import add_turns

            turns_s = len(groups) * (_QUICK_TURNS_S if args.quick else _TURNS_S)
            if add_turns(results, cases, groups, turns_s):
                save(results, args)
    if args.explain and not results.interrupted:
        known = {case.identity(): case for case in cases}
        explain_records(results, known, args, QUICK_S if args.quick else EXPLAIN_S)
        save(results, args)
    tell_host(results, args.quiet)
    if args.openmetrics and ranks().number == 0:
        from memkern.models.answers import is_healthy

        write_openmetrics(args.openmetrics, results, is_healthy(results, results.environments))
    if wants_table(results, args):
        scope = scope_of(results) if table.cells else ""
        summary = _summary(results) if table is STREAMS and len(results) > 1 else ""
        notes = dict.fromkeys(str(record.get("counters_note") or "") for record in results)
        lines(
            scope,
            summary,
            _of_ranks(results),
            *notes,
            *(answer(results) for answer in answers),
            *(explanations(results) if args.explain else ()),
        )
        tell_limit(results, args)
    return results


def explain_records(
    results: ResultSet,
    cases: Mapping[str, Case],
    args: argparse.Namespace,
    seconds: float,
    again: bool = False,
) -> None:
    """Explain the records of cases, and add the explanations to them.

    Records of cases without experiments are left out, with a warning. Ctrl-C ends it and marks the
    results as interrupted.

    Parameters
    ----------
    results : ResultSet
    cases : mapping
        Cases by their identity.
    args : Namespace
        Whether the verb is quiet.
    seconds : float
        Longest time of a case.
    again : bool
        Whether the cases are measured again before, which must be on the records' machine.
    """
    from memkern.engine import public
    from memkern.studies.explain import explain

    for record in results.records:
        case = cases.get(record["case_id"])
        if case is None or not record["valid"]:
            continue
        try:
            now = public.measure(case.with_(budget_s=seconds / 10)).record if again else record
            if now["platform"] != record["platform"]:
                raise InputError(f"{record['kernel']} was measured on {record['platform']}")
            with show_progress(args) as progress:
                found = explain(case, seconds=seconds, record=now, progress=progress)
            record.update(found.columns)
        except InputError as error:
            warn(f"not explained: {error}")
        except KeyboardInterrupt:
            results.interrupted = True
            return


def explanations(results: ResultSet) -> list[str]:
    """Return the explanation of each record that has one."""
    from memkern.results.explanation import Explanation

    found = {k: Explanation.of_record(record) for k, record in enumerate(results)}
    return [f"\ncase {k}, {one.what}\n{one}" for k, one in found.items() if one is not None]


def _counts(record: dict[str, Any]) -> str:
    """Return the counted events with their ratios to the model; empty if there are none."""

    def text(event: str, count: float | None, model: float | None = None, **_: Any) -> str:
        if count is None:
            return f"{event} unknown"
        ratio = f" ({count / model:.2f} of the model's)" if model else ""
        return f"{event} {count:.4g}{ratio}"

    return ", ".join(text(**row) for row in json.loads(record.get("counter_rows") or "[]"))


_TOLD_EVERY_S = 10.0  # while waiting


def wait_until_quiet(args: argparse.Namespace) -> Activity:
    """Return the activity of other processes, after waiting for its end if requested.

    While waiting, it prints the reason, unless the options have ``--quiet``.
    """
    from memkern.engine.public import observe_activity, ranks

    if not args.wait_quiet:
        return observe_activity()
    from memkern.engine.placing.watching import observe_machine

    found = observe_machine()
    begin = time.monotonic()
    told_s = -math.inf
    while not found.quiet and not ranks().gate(time.monotonic() - begin >= args.wait_quiet):
        waited_s = time.monotonic() - begin
        if waited_s - told_s >= _TOLD_EVERY_S and not args.quiet:
            told_s = waited_s
            warn(f"waiting for {found} to end, for {waited_s:.0f} of at most {args.wait_quiet:g} s")
        time.sleep(0.5)
        found = observe_machine()
    if told_s >= 0:
        end = "the machine is quiet" if found.quiet else f"{found} has not ended"
        warn(f"{end} after {time.monotonic() - begin:.0f} s")
    return found


def warn_if_not_quiet(found: Activity, args: argparse.Namespace) -> None:
    """Warn if other processes of this system, which the user can end, run all the time."""
    if found.others and not args.quiet:
        from memkern.engine.recording.samples import names_of

        warn(f"the machine is not quiet: it also runs {names_of(found.others)}")


@contextlib.contextmanager
def show_progress(args: argparse.Namespace) -> Iterator[Callable[[float], object]]:
    """Show a progress bar, and yield the function that sets it to a share of 0 to 1."""
    with contextlib.closing(progress.bar(not args.quiet, total=100, unit="%")) as bar:
        yield lambda share: bar.update(int(100 * share) - bar.n)


def tell_host(results: ResultSet, quiet: bool) -> None:
    """Warn of a shared or unhealthy host, disturbed records and grown caches, unless `quiet`."""
    from memkern.results.hosts import host_sentence, memory_notes

    if quiet:
        return
    verdicts = dict.fromkeys(str(record.get("doctor") or "") for record in results)
    if ailing := [verdict for verdict in verdicts if verdict.startswith(DISTURBED)]:
        warn(f"memkern doctor found this machine {ailing[-1]} (run it again for advice)")
    if told := host_sentence(results):
        warn(told)
    if disturbed := [record for record in results if record.get("disturbed") is True]:
        fewer = "fewer --threads, " * any((r.get("threads") or 0) > 1 for r in disturbed)
        warn(
            f"{len(disturbed)} of {len(results)} records are disturbed, without an interval, "
            f"as workers waited for processors in most samples: try {fewer}other processors "
            "(--pin) or an end of other programs"
        )
    notes = Counter(note for record in results for note in memory_notes(record).items())
    for (name, what), number in notes.items():
        warn(f"in {number} of {len(results)} records {what} (column {name})")
    if grown := sum(record.get("caches_grown") is True for record in results):
        warn(
            f"{grown} of {len(results)} records are not from memory alone: the last-level caches "
            "of this machine have grown since sizes were chosen, and hold more than half of the "
            "data: give a larger size"
        )


def health_of(results: ResultSet) -> str:
    """Return the sentence on whether what was measured is healthy."""
    from memkern.models.answers import health_sentence

    return health_sentence(results, results.environments)


def beside(peer: str, statistic: str) -> Callable[[ResultSet], str]:
    """Return the answer on why results differ from a peer's, and on its and our statistic."""

    def answer(results: ResultSet) -> str:
        from memkern.models.answers import peer_sentence

        return peer_sentence(peer, results, statistic)

    return answer


def check_output(args: argparse.Namespace, option: str = "output") -> None:
    """Refuse the results file of an option if it is given and can't be written."""
    from memkern.formats import store

    if path := getattr(args, option, None):
        store.check_output(path, args.force)


def save(results: ResultSet, args: argparse.Namespace, option: str = "output") -> None:
    """Save records in the file of an option, if it is given."""
    if path := getattr(args, option, None):
        results.save(path)


def wants_table(results: ResultSet, args: argparse.Namespace) -> bool:
    """Print the records as JSON if requested; return whether a table is printed instead."""
    if args.json:
        print(results.to_json_text())
    return not (args.json or args.quiet)


def print_document(document: Any, text: str, args: argparse.Namespace) -> None:
    """Print a document as JSON if requested, else its text unless the verb is quiet."""
    from memkern.formats.values import jsonable

    if args.json:
        print(json.dumps(jsonable(document), indent=1, allow_nan=False))
    elif not getattr(args, "quiet", False):
        print(text)


def save_and_show(results: ResultSet, args: argparse.Namespace) -> bool:
    """Save the records of a study if requested, after `tell_host`, and return `wants_table`."""
    tell_host(results, args.quiet)
    save(results, args)
    return wants_table(results, args)


def own_machine(args: argparse.Namespace) -> MachineFile | None:
    """Return the machine file to which a verb adds what it finds; None without ``--machine``.

    Raises
    ------
    InputError
        It is the name of a published machine, or can't be read.
    """
    from memkern.models.machine_reading import load_machine
    from memkern.models.published_machines import PUBLISHED

    if args.machine in PUBLISHED:
        raise InputError(f"--machine must be a file, not the published machine {args.machine}")
    return None if args.machine is None else load_machine(args.machine)


def tell_limit(results: ResultSet, args: argparse.Namespace) -> None:
    """Print what bounds the records, if a machine file was given."""
    if args.machine:
        from memkern.models.answers import limit_sentence

        line(limit_sentence(results))


def line(text: str) -> None:
    """Print above the progress bar, if there is one."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        tqdm.write(text, file=sys.stdout)
    else:
        print(text, flush=True)


def lines(*texts: str) -> None:
    """Print the texts that are not empty, each as `line` does."""
    for text in filter(None, texts):
        line(text)


def exit_code(results: ResultSet) -> int:
    """Return the exit code: interrupted, invalid or good."""
    if results.interrupted or any(record["stop"] == "interrupted" for record in results):
        return INTERRUPTED
    return GOOD if results.valid else INVALID


def warn(message: str) -> None:
    """Print a message on standard error, after the command's name."""
    print(f"memkern: {message}", file=sys.stderr)
