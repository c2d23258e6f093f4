"""The verb machine: measure a machine file, print one, or compare two; how verbs run a study."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from memkern.cli.measuring import (
    check_output,
    exit_code,
    save,
    show_progress,
    tell_host,
    wait_until_quiet,
    warn,
    warn_if_not_quiet,
)
from memkern.cli.options import (
    FORCE,
    GOOD,
    UNDERSTAND,
    WAIT,
    argument,
    seconds_options,
    verb,
)
from memkern.errors import InputError
from memkern.machine.environment import processor_model

if TYPE_CHECKING:
    from memkern.models.machine_file import Level, MachineFile, Quantity, Tlb
    from memkern.studies.machine_file import Measured

S = TypeVar("S", bound="Measured")


def _machine(args: argparse.Namespace) -> int:
    from memkern.models.machine_reading import load_machine

    if len(args.files) > 2:
        raise InputError(f"machine compares two files, not {len(args.files)}")
    if args.files and (args.records or args.wait_quiet):
        raise InputError("machine measures nothing if it is given a file: leave out its options")
    if len(args.files) == 2:
        if args.output or args.json:
            raise InputError("the comparison of two machines is a table: leave out -o and --json")
        return _compare(*map(load_machine, args.files))
    if args.files:
        machine, code = load_machine(args.files[0]), GOOD
    else:
        machine, code = _measure(args)
    if args.output and args.files:
        machine.save(args.output, args.force)
    if args.json:
        print(machine.to_json(), end="")
    elif not args.quiet:
        model = processor_model()
        of_another = bool(model) and not machine.describes(model)
        note = [f"this file is of another machine than this one ({model}):"] * of_another
        parts = filter(None, _paragraphs(machine))
        print("\n".join([*note, "\n\n".join(map("\n".join, parts))]))
    return code


def run_study(args: argparse.Namespace, study: Callable[..., S], option: str = "", **how: Any) -> S:
    """Return what a study measures within ``--seconds``, with the warnings of measuring verbs.

    Its records are saved in the file of an option, if there is one and it is given.
    """
    check_output(args, option)
    warn_if_not_quiet(wait_until_quiet(args), args)
    with show_progress(args) as progress:
        found = study(seconds=args.seconds, progress=progress, **how)
    tell_host(found.results, args.quiet)
    save(found.results, args, option)
    return found


def _measure(args: argparse.Namespace) -> tuple[MachineFile, int]:
    from memkern import files
    from memkern.studies.machine_file import measure_machine

    if args.output:
        files.unused(args.output, args.force)
    check_output(args, "records")
    found = run_study(args, measure_machine)
    try:
        save(found.results, args, "records")
    finally:
        # The machine file is saved even if the records can't be saved.
        if args.output and found.results.interrupted:
            warn(f"interrupted: {args.output} is not written")
        elif args.output:
            found.machine.save(args.output, args.force)
    for text in found.missing:
        warn(f"not measured: {text}")
    return found.machine, exit_code(found.results)


def _paragraphs(machine: MachineFile) -> list[list[str]]:
    """Return the lines of a machine's description by paragraph; some are empty."""
    instructions = [
        f"{one.name:<38} {one.vector_bits:>4} {_known(one.reciprocal_cycles):>22} "
        f"{_known(one.latency_cycles):>22} {one.note}".rstrip()
        for one in machine.instructions
    ]
    return [
        [
            f"{machine.name}, {machine.source}"
            + (f" on {machine.created}" if machine.created else ""),
            f"clock {machine.clock_GHz} GHz, vectors of {machine.vector_bits} bit, lines of "
            f"{machine.line_B} B, {machine.domains} x {machine.cores} cores",
        ],
        [
            f"{'level':<7} {'size':>10} {'shared':>6} {'ns':>22} {'in flight':>22} "
            f"{'saturated by':>12}",
            *map(_level, machine.levels),
        ],
        [
            f"{'level':<7} {'operation':<9} {'stores':<12} {'cores':>5} {'B/cycle':>29} "
            f"{'GB/s':>29}",
            *(
                f"{row.level:<7} {row.operation:<9} {row.stores:<12} {row.cores:>5} "
                f"{row.B_per_cycle!s:>29} {row.GBps!s:>29}" + " disturbed" * row.disturbed
                for row in machine.bandwidths
            ),
        ]
        if machine.bandwidths
        else [],
        [
            *(f"TLB {n} reaches {_reach(tlb)}" for n, tlb in enumerate(machine.tlbs, start=1)),
            *(
                f"{cost.name} of {cost.threads} threads: "
                + (
                    f"{cost.ns} ns"
                    if cost.ns.known
                    else "not measurable beside the work between two"
                )
                for cost in machine.costs
            ),
        ],
        [f"{'instruction':<38} {'bits':>4} {'cycles each':>22} {'latency':>22} note", *instructions]
        if instructions
        else [],
        _ecm_lines(machine),
    ]


def _level(level: Level) -> str:
    size = f"{level.size_B // 1024} KiB" if level.size_B else ""
    cores = f"{level.saturating_cores} cores" if level.saturating_cores else ""
    return (
        f"{level.name:<7} {size:>10} {level.shared_by:>6} {level.latency_ns!s:>22} "
        f"{level.in_flight!s:>22} {cores:>12}"
    ).rstrip()


def _known(quantity: Quantity) -> str:
    """Return a quantity as text, empty if it is unknown."""
    return str(quantity) if quantity.known else ""


def _ecm_lines(machine: MachineFile) -> list[str]:
    """Return the lines of the parameters of the ECM model, if there are any."""
    if machine.ecm is None:
        return []
    lines = [
        f"ECM: {machine.ecm.overlap} ({machine.ecm.how})",
        *(
            f"{term.name:<7} {term.load_B:>8.4g} B/cycle of loads, {term.store_B:.4g} of "
            f"stores; of a domain {term.domain_load_B:.4g} and {term.domain_store_B:.4g}"
            for term in machine.ecm.levels
        ),
    ]
    if machine.ecm.memory_rate == "common":
        alone, domain = machine.ecm.levels[-1].triad
        lines.append(
            "all bytes of memory have the bandwidth of loads where they dominate, else that of "
            f"a triad: {alone:.4g} B/cycle; of a domain {domain:.4g}"
        )
    return lines


def _reach(tlb: Tlb) -> str:
    """Return the pages of a TLB and, if they were measured, their range and the cost of a hit."""
    reach = tlb.reach_B.scaled(1 / tlb.page_B)
    measured = reach.low == reach.low
    more = f" to {reach.high:.0f}" if reach.high == reach.high else " or more" * measured
    cost = f": {tlb.cost_ns:.2f} ns" if measured else ""
    return f"{reach.value:.0f}{more} pages of {tlb.page_B // 1024} KiB{cost}"


def _compare(first: MachineFile, second: MachineFile) -> int:
    from memkern.models.machine_file import differences
    from memkern.results.comparison_output import aligned

    rows = [["", first.name, second.name, "ratio", ""]]
    for row in differences(first, second):
        ratio = f"{row.ratio:.3f}" if row.ratio == row.ratio else ""
        rows.append([row.what, _known(row.first), _known(row.second), ratio, "*" * row.differs])
    print("\n".join(aligned(rows, left=[0, 4])))
    print("* intervals do not overlap, or values without intervals differ by more than 1 %")
    if not first.is_of(second.model):
        print(f"the files are of different processors: {first.model} and {second.model}")
    return GOOD


def _files_argument(parser: argparse.ArgumentParser) -> None:
    from memkern.models.published_machines import PUBLISHED

    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="print a machine file instead of measuring this machine, or compare two; also "
        + ", ".join(PUBLISHED),
    )


MACHINE_VERB = verb(
    "machine",
    UNDERSTAND,
    "measure the parameters that models need, as a machine file",
    _machine,
    (
        "memkern machine -o host.json",
        "memkern machine host.json",
        "memkern machine host.json a64fx",
    ),
    _files_argument,
    argument("-o", "--output", metavar="PATH", help="machine file (JSON)"),
    argument("--records", metavar="PATH", help="also write the records: .db, .parquet, ..."),
    *seconds_options(150.0),
    argument("--json", action="store_true", help="the file on standard output"),
    WAIT,
    FORCE,
    argument("-q", "--quiet", action="store_true", help="no table and no progress"),
)
