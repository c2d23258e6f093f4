"""The verbs that write what others read: report, report gallery and export."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memkern.backends import ACCELERATORS, HOST
from memkern.checks import shown
from memkern.cli.measuring import (
    announce,
    exit_code,
    explain_records,
    line,
    tell_host,
    wait_until_quiet,
    warn,
    warn_if_not_quiet,
)
from memkern.cli.options import (
    FORCE,
    GOOD,
    INTERRUPTED,
    MANAGE,
    UNDERSTAND,
    WAIT,
    argument,
    count,
    verb,
)
from memkern.discovery import family_modules
from memkern.errors import InputError
from memkern.files import publish, unused
from memkern.limits import memory_left
from memkern.spec.options import Knobs

if TYPE_CHECKING:
    from memkern.formats import ResultSet
    from memkern.spec.case import Case


# Time limits in seconds for the measurements of a report.
_QUICK_S, _WHOLE_S = 40.0, 165.0
# Ratio of the time of its cases to their estimate; most of the time of short cases is overhead.
_LONGER = 1.5
# Share of the time for measuring cases in turns: those whose ratios are told, and contradictions.
_TURNS_SHARE = 0.15
# Share of the time for the experiments that explain cases, and the time of each case.
_WHY_SHARE, _WHY_S = 0.2, 4.0
_DRAWING_S = 30.0  # of the figures: 20 s and 39 s on two shared hosts
# Options that measure, with their defaults.
_MEASURING: dict[str, Any] = {
    "quick": False, "threads": None, "pin": None, "device": "cpu", "wait_quiet": None,
    "resume": False,
}  # fmt: skip


def _of_records(args: argparse.Namespace) -> int:
    """Write a report of recorded results, side by side."""
    from memkern import report
    from memkern.formats import load

    for option, default in _MEASURING.items():
        if getattr(args, option) != default:
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"{name} is for measuring: leave it out with files of records")
    target = _target(args)
    paths = [Path(file) for file in args.files]
    results = [load(path) for path in paths]
    for path, found in zip(paths, results, strict=True):
        if not len(found):
            raise InputError(f"{path} has no record")
    sides = report.sides(results, [path.stem for path in paths])
    report.write_sides(sides, target, data=paths[0], machine=args.machine or "")
    print(f"report: {target.resolve()}")
    return GOOD


def _target(args: argparse.Namespace) -> Path:
    target = Path(args.output)
    if target.suffix != ".html":
        raise InputError(f"the report is an .html file, not {shown(args.output)}")
    return unused(target, args.force or args.resume)


def _of_this_machine(args: argparse.Namespace) -> int:
    """Measure this machine, and write its report."""
    from memkern import report
    from memkern.engine.public import sweep
    from memkern.engine.recording.samples import names_of
    from memkern.formats.store import check_output
    from memkern.host import this_host
    from memkern.host.environment import machine_environment
    from memkern.models import load_machine
    from memkern.studies.describe import describe
    from memkern.studies.doctor import doctor

    target = _target(args)
    data = target.with_suffix(".parquet")
    if not args.resume:
        check_output(data, args.force)
    device = _report_device(args)
    if args.machine:
        load_machine(args.machine)
    machine = describe()
    if not args.quiet:
        warn("building the cases")
    cases = _report_cases(args, device, machine)
    if args.quick:
        cases = [case.with_(placements=min(case.placements, 3)) for case in cases]
    time_s = _QUICK_S if args.quick else _WHOLE_S
    announce(cases, time_s, _LONGER, _DRAWING_S)
    found = wait_until_quiet(args)
    warn_if_not_quiet(found, args)
    if device == HOST.device and not this_host().health:
        doctor(quick=True)  # its verdict is in the records
    begin = time.monotonic()
    results = sweep(
        cases,
        output=data,
        resume=args.resume,
        force=args.force,
        progress=not args.quiet,
        time_s=(1 - _TURNS_SHARE - _WHY_SHARE) * time_s,
        learned=_learned,
    )
    if not results.interrupted:
        _add_ratios(results, cases, time_s, data)
        _explain(results, cases, args, _WHY_SHARE * time_s)
        results.save(data)
    if not args.quiet:
        warn(f"measured {len(results)} records in {time.monotonic() - begin:.0f} s")
    tell_host(results, args.quiet)
    if results.interrupted:
        return INTERRUPTED
    if not args.quiet:
        warn("drawing the figures")
    words = [
        "memkern report",
        *(["--quick"] if args.quick else []),
        *(["--device", device] if device != HOST.device else []),
        *(["--machine", args.machine] if args.machine else []),
    ]
    about = machine["devices"].get(device)
    environment = machine_environment()
    if not {*ACCELERATORS} & {*machine["backends"]}:
        environment = {"left out": {"GPUs": machine["no_devices"]}, **environment}
    processor = environment["machine"]["model"] or "this machine"
    report.write(
        results,
        target,
        title=f"Data movement on {about['name'] if about else processor}",
        environment=environment,
        command=" ".join(words),
        data=data,
        left_out=results.left_out,
        machine=args.machine or "",
        beside=names_of(found.others),
    )
    print(f"report: {target.resolve()}\ndata:   {data.resolve()}")
    return exit_code(results)


def _add_ratios(results: ResultSet, cases: list[Case], time_s: float, data: Path) -> None:
    """Measure in turns the cases whose ratios findings have, and those that contradict."""
    from memkern.models.memory import contradictions
    from memkern.plots.frames import with_samples
    from memkern.results.ratios import asked
    from memkern.studies.turns import add_turns

    frame = with_samples(results)
    groups = asked([one.findings for one in family_modules("findings")], frame)
    groups += contradictions(frame).values()
    if add_turns(results, cases, groups, _TURNS_SHARE * time_s):
        results.save(data)


def _explain(
    results: ResultSet, cases: list[Case], args: argparse.Namespace, time_s: float
) -> None:
    """Explain the figures of merit, and the record of each family that is farthest from its limit.

    As many as the time suffices for.
    """
    from memkern.models.merit import figures_of_merit
    from memkern.plots.frames import with_samples

    first = [figure.record for figure in figures_of_merit(with_samples(results))]
    far = {str(record["kernel"]).partition(".")[0]: record for record in _by_fraction(results)}
    known = {case.identity(): case for case in cases}
    wanted = dict.fromkeys(str(record["case_id"]) for record in [*first, *far.values()])
    end_s = time.monotonic() + time_s
    for name in filter(known.__contains__, wanted):
        if time.monotonic() < end_s and not results.interrupted:
            explain_records(results, {name: known[name]}, args, _WHY_S)


def _by_fraction(results: ResultSet) -> list[dict[str, Any]]:
    """Return the undisturbed records with a roofline, the farthest from it last."""
    sure = [record for record in results if record["valid"] and not record["disturbed"]]
    known = [record for record in sure if (record.get("roofline_min_fraction") or 0.0) > 0]
    return sorted(known, key=lambda record: -record["roofline_min_fraction"])


def _learned(results: ResultSet) -> str:
    """Return the figures of merit so far as text."""
    from memkern.models.merit import figures_of_merit
    from memkern.plots.frames import three_figures, with_samples

    return ", ".join(
        f"{figure.title.lower()} {three_figures(figure.value)} {figure.unit}"
        for figure in figures_of_merit(with_samples(results))
    )


def _report_device(args: argparse.Namespace) -> str:
    """Return the device that the report measures: the processor, or an available GPU."""
    from memkern.machine import gpu

    knobs = Knobs(device=args.device)
    if knobs.backend.on_processors:
        return knobs.device
    if not knobs.backend.is_accelerator:
        raise InputError(f"a report is for cpu or a GPU such as cuda:0, not for {args.device}")
    for option, given in (
        ("--threads", args.threads), ("--pin", args.pin), ("--machine", args.machine),
    ):  # fmt: skip
        if given is not None:
            raise InputError(f"{option} is for processors: leave it out on {knobs.device}")
    gpu.facts(knobs.device)
    return knobs.device


def _report_cases(args: argparse.Namespace, device: str, machine: dict[str, Any]) -> list[Case]:
    """Return the cases of a report of a device."""
    from memkern.host.capacity import last_level_cache_B
    from memkern.report.cases import gpu_report_cases, report_cases

    memory_B, _ = memory_left()
    if device != HOST.device:
        about = machine["devices"][device]
        memory_B = min(memory_B, about["memory_B"])
        return gpu_report_cases(device, args.quick, about["l2_B"], memory_B)
    cases = report_cases(args.quick, last_level_cache_B(), memory_B)
    # Cases that are built for a number of workers keep it.
    knobs = {"pin": args.pin or "auto", "machine_file": args.machine or ""}
    threads = args.threads or 0
    return [case.with_(threads=case.knobs.threads or threads, **knobs) for case in cases]


def _gallery(args: argparse.Namespace) -> int:
    from memkern.report import gallery

    folder = Path(args.folder)
    for file in args.add or ():
        print(f"added: {gallery.add(file, folder)}")
    print(f"gallery: {gallery.write(folder, progress=not args.quiet).resolve()}")
    return GOOD


REPORT_VERB = verb(
    "report",
    UNDERSTAND,
    "measure this machine, or take records, and write one HTML file",
    lambda args: _of_records(args) if args.files else _of_this_machine(args),
    (
        "memkern report",
        "memkern report --quick -o host.html",
        "memkern report this-week.parquet last-week.parquet -o weeks.html",
    ),
    argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="results of machines, weeks or builds, which are shown side by side instead of "
        "measuring",
    ),
    argument("--quick", action="store_true", help="fewer cases, three placements"),
    argument(
        *("-o", "--output"),
        default="memkern-report.html",
        metavar="PATH.html",
        help="the report (memkern-report.html)",
    ),
    argument(
        *("-t", "--threads"),
        type=count(1),
        metavar="N",
        help="workers (every processing unit)",
    ),
    argument("--pin", metavar="HOW", help="auto, none, compact, spread or a list (auto)"),
    argument("--device", default="cpu", metavar="NAME", help="cpu, or a GPU such as cuda:0 (cpu)"),
    argument(
        "--machine",
        metavar="FILE",
        help="machine file of `memkern machine -o`, by which rooflines and the ECM model are drawn",
    ),
    WAIT,
    argument("--resume", action="store_true", help="resume an interrupted report"),
    FORCE,
    argument("-q", "--quiet", action="store_true", help="no progress or warnings"),
)


GALLERY_VERB = verb(
    "report gallery",
    UNDERSTAND,
    "write a static site of many machines' reports",
    _gallery,
    (
        "memkern report gallery site",
        "memkern report gallery site --add host.parquet",
        "memkern report gallery site --add one.parquet --add other.parquet",
    ),
    argument("folder", metavar="DIR", help="folder of bundles (.parquet) and of the site"),
    argument(
        "--add",
        action="append",
        metavar="FILE",
        help="results to add as a bundle, without the names of hosts, users and programs",
    ),
    argument("-q", "--quiet", action="store_true", help="no progress or warnings"),
)


_FORMATS = ("openmetrics", "google-benchmark", "babelstream", "figures")


def _text(results: ResultSet, format: str) -> str:
    """Return results in one of `_FORMATS`."""
    from memkern.models.answers import is_healthy
    from memkern.models.merit import figure_line, figures_of_merit
    from memkern.plots.frames import with_samples
    from memkern.results import exchange

    if format == "openmetrics":
        return exchange.openmetrics(results, is_healthy(results, results.environments))
    if format == "google-benchmark":
        return exchange.google_benchmark(results) + "\n"
    if format == "babelstream":
        return exchange.babelstream(results)
    return figure_line(figures_of_merit(with_samples(results))) + "\n"


def _export(args: argparse.Namespace) -> int:
    from memkern.formats import load
    from memkern.formats.store import check_output
    from memkern.results.merging import merge

    if args.format is None:
        if args.output is None:
            raise InputError("export needs --to, or -o with the file of all records")
        target: Path | None = check_output(args.output, args.force)
        results = merge(args.files)
        results.save(args.output)
        counts = {"record": len(results), "environment": len(results.environments)}
        words = (f"{number} {name}{'s' * (number != 1)}" for name, number in counts.items())
        line(f"{target}: {' of '.join(words)}")
        return GOOD
    target = None if args.output is None else unused(args.output, args.force)
    several = len(args.files) > 1
    text = _text(merge(args.files) if several else load(args.files[0]), args.format)
    if target is None:
        line(text.removesuffix("\n"))
    else:
        publish({target: text.encode()})
    return GOOD


EXPORT_VERB = verb(
    "export",
    MANAGE,
    "join results files, or write them in the format of another program",
    _export,
    (
        "memkern export results.parquet --to figures",
        "memkern export results.parquet --to babelstream -o babelstream.csv",
        "memkern export part-1.db part-2.db -o all.parquet",
    ),
    argument("files", nargs="+", metavar="FILE", help="results: .db, .parquet, .csv or .json"),
    argument(
        "--to",
        dest="format",
        choices=_FORMATS,
        help="openmetrics: gauges for Prometheus; google-benchmark: JSON, each sample a "
        "repetition; babelstream: CSV as of its --csv; figures: the figures of merit in one line, "
        "as NAME=VALUE UNIT, for ReFrame and Ramble; default: results of memkern",
    ),
    argument("-o", "--output", metavar="PATH", help="file (standard output with --to)"),
    FORCE,
)
