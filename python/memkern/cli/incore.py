"""The verb incore: cycles of compiled bodies in L1, measured and by static analysis."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from memkern.cli.measuring import (
    exit_code,
    line,
    own_machine,
    tell_host,
    warn,
    when_quiet,
)
from memkern.cli.options import (
    UNDERSTAND,
    Parser,
    each,
    force_option,
    grouped,
    numbers,
    seconds_option,
    verb,
    wait_option,
    words,
)
from memkern.errors import InputError


def _incore(args: argparse.Namespace) -> int:
    from memkern.formats.store import check_output
    from memkern.models.machine_reading import machine_of
    from memkern.models.records import processors
    from memkern.studies.ecm import measured_in_core
    from memkern.studies.static_analysis import llvm_mca, osaca

    if args.arch and osaca() is None:
        raise InputError("--arch needs OSACA: `pip install osaca`")
    machine = own_machine(args)
    if args.output:
        check_output(args.output, args.force)
    kernels = None
    if args.kernel is not None:
        kernels = [name if "." in name else f"loops.{name}" for name in each(args.kernel)]
    with when_quiet(args) as progress:
        found = measured_in_core(
            kernels,
            variants=each(args.variant),
            isas=each(args.isa),
            unrolls=each(args.unroll),
            machine=machine,
            seconds=args.seconds,
            progress=progress,
            processor=(args.cpu, args.arch),
        )
    if args.output:
        found.results.save(args.output)
    if machine is not None and not found.results.interrupted:
        machine_of(args.machine, processors(found.results))
        machine.with_in_core(found.bodies).save(args.machine, force=True)
    tell_host(found.results, args.quiet)
    if llvm_mca() is None:
        warn("llvm-mca is not installed: its prediction is left out")
    if not args.quiet:
        for text in found.missing:
            warn(text)
    if args.json:
        print(json.dumps([_finite(row) for row in found.rows], indent=1))
    elif not args.quiet:
        line(
            f"{'kernel':<17} {'variant':<15} {'unroll':>6} {'unit':<7} {'units':>5} "
            f"{'measured':>9} {'llvm-mca':>9} {'meas/mca':>8} {'OSACA':>9} {'meas/OSA':>8} "
            f"{'T_OL':>7} {'T_nOL':>7} {'loads':>7} {'stores':>7} {'spread':>7}"
        )
        for row in found.rows:
            line(_row(row))
    return exit_code(found.results)


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _row(row: dict[str, Any]) -> str:
    def text(value: float, form: str) -> str:
        return format(value, form) if math.isfinite(value) else ""

    measured = row["in_core_cycles"]
    predicted = " ".join(
        f"{text(row[name], '.3f'):>9} {text(measured / row[name], '.2f'):>8}"
        for name in ("llvm_mca_cycles", "osaca_cycles")
    )
    split = " ".join(
        f"{text(row[f'{name}_cycles'], '.3f'):>7}"
        for name in ("arithmetic", "transfer", "load", "store")
    )
    marks = [f"and {row['in_core_row_cycles']:.1f} a row"]
    if math.isnan(row["in_core_row_cycles"]):
        marks = []
    marks += [f"in {row['level']}"] * (row["level"] != "L1") + ["disturbed"] * row["disturbed"]
    if row["llvm_mca_port"]:
        marks.append(f"port {row['llvm_mca_port']} {row['llvm_mca_port_cycles']:.3f}")
    spilled = [row[f"surplus_{way}_B"] for way in ("load", "store")]
    if any(each_B >= 1 for each_B in spilled):
        marks.append("spills: loads {:.0f} B, stores {:.0f} B".format(*spilled))
    return (
        f"{row['kernel'] + (' ' + row['layout'])[:9]:<17} {row['variant'] + '/' + row['isa']:<15} "
        f"{row['unroll'] or '':>6} {row['in_core_unit']:<7} {text(row['units'], 'g'):>5} "
        f"{measured:>9.3f} {predicted} {split} {text(row['spread'], '.1%'):>7} {', '.join(marks)}"
    ).rstrip()


@grouped(
    UNDERSTAND,
    "memkern incore --quick",
    "memkern incore -k triad,stencil --variant auto,simd",
    "memkern incore --machine host.json -o bodies.parquet",
)
@verb("incore", _incore, "cycles of kernels in the core, measured in L1 and by static analysis")
def _incore_options(sub: Parser) -> None:
    add = sub.add_argument
    add(
        "-k",
        "--kernel",
        type=words,
        metavar="NAME,...",
        help="loops, or other kernels such as spmv.crs (all)",
    )
    add(
        "--variant",
        type=words,
        default="simd",
        metavar="NAME,...",
        help="scalar, auto, simd and pipelined (simd)",
    )
    add("--isa", type=words, default="best", metavar="NAME,...", help="instruction sets (best)")
    add(
        "--unroll",
        type=numbers(0, "unroll"),
        default=0,
        metavar="N,...",
        help="unrolling of loops (0: the default of each kernel)",
    )
    add(
        "--machine",
        metavar="FILE",
        help="machine file of this machine, by whose instructions arithmetic, loads and stores are "
        "separated, and to which the measured times are added",
    )
    add("--cpu", default="native", metavar="NAME", help="llvm-mca's name of the processor (native)")
    add(
        "--arch",
        default="",
        metavar="NAME",
        help="OSACA's name of the microarchitecture, such as ZEN4 or ICX: also predict by OSACA",
    )
    seconds_option(sub, 60.0)
    add("-o", "--output", metavar="PATH", help="records: .db, .parquet, .csv, .json")
    add("--json", action="store_true", help="the table as JSON on standard output")
    wait_option(sub)
    force_option(sub)
    add("-q", "--quiet", action="store_true", help="no table and no progress")
