"""The verbs ecm and machine incore: loops by the ECM model, and compiled bodies in L1."""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.cli.machine_file import run_study
from memkern.cli.measuring import (
    exit_code,
    own_machine,
    print_document,
    warn,
)
from memkern.cli.options import (
    FORCE,
    UNDERSTAND,
    WAIT,
    argument,
    each,
    numbers,
    seconds_options,
    verb,
    words,
)
from memkern.cli.tables import Cell, Record, Table, cell
from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern.formats import ResultSet
    from memkern.models.ecm_fit import EcmFit, JudgedCores


# Goal: the median error, and the largest error of 90 % of the loops.
_MEDIAN, _MOST = 0.10, 0.25
_BEST = 5


def _ecm(args: argparse.Namespace) -> int:
    from memkern.formats import load
    from memkern.models.ecm_fit import fit_ecm, judge_cores, loop_times
    from memkern.models.machine_reading import machine_of
    from memkern.models.overlap import overlap_of
    from memkern.models.records import processors
    from memkern.studies.ecm import measure_loops

    if args.results and (args.output or args.wait_quiet):
        raise InputError("ecm measures nothing if it is given results: leave out its options")
    machine = own_machine(args)
    if args.results is None:
        measured = run_study(args, measure_loops, "output")
        results = measured.results
        for text in measured.missing:
            warn(f"not measured: {text}")
    else:
        results = load(args.results)
    if machine is not None:
        machine_of(args.machine, processors(results))
    loops, clock_GHz = loop_times(results)
    overlaps = None
    if args.overlap is not None:
        overlaps = {args.overlap: overlap_of(args.overlap, list(loops[0].transfers))}
    instructions = None if machine is None else machine.loads_and_stores
    found = fit_ecm(loops, clock_GHz, overlaps, instructions, args.memory_rate)
    if machine is not None:
        parameters = _parameters(found, results, machine)
        dataclasses.replace(machine, ecm=parameters).save(args.machine, force=True)
    on_cores: Sequence[JudgedCores] = ()
    try:
        on_cores = judge_cores(found, results)
        if not on_cores and any(record["threads"] > 1 for record in results):
            warn("loops on several cores are not judged: loads or the triad were disturbed there")
    except InputError as error:
        warn(f"loops on several cores are not judged: {error}")
    document = _document(found, on_cores)
    print_document(document, "\n\n".join(map("\n".join, _paragraphs(found, document))), args)
    return exit_code(results)


def _parameters(found: EcmFit, results: ResultSet, machine: Any) -> Any:
    """Return the fitted parameters, with the limits of a domain if several cores reach them."""
    from memkern.models.ecm_fit import FITTED, domain_rates, with_domain
    from memkern.models.machine_file import EcmParameters

    model, how = found.model, f"fitted to {', '.join(FITTED)}"
    rates = domain_rates(results, machine.cores)
    if rates is not None:
        _, load, triad = rates
        try:
            model = with_domain(model, load, triad, machine.cores, machine.domains)
        except InputError as error:
            warn(f"the limit of memory is left out: {error}")
    return EcmParameters(model.levels, str(model.overlap), how, model.memory_rate)


def _finite(value: float) -> float | None:
    """Return a bandwidth for JSON, which has only finite numbers."""
    return value if math.isfinite(value) else None


def _document(found: EcmFit, on_cores: Sequence[JudgedCores]) -> dict[str, Any]:
    return {
        "hypothesis": found.name,
        "overlap": str(found.model.overlap),
        "errors": found.errors,
        "levels": [
            {"level": one.name, "load_B": _finite(one.load_B), "store_B": _finite(one.store_B)}
            for one in found.model.levels
        ],
        "loops": [
            {
                "kernel": row.loop.kernel,
                "level": row.loop.level,
                "measured_cycles": row.loop.cycles,
                "predicted_cycles": row.predicted.cycles,
                "measured_over_predicted": row.ratio,
                "reason": row.reason,
                "spread": row.loop.spread,
                "bound": row.predicted.bound,
                "memory_rate": row.predicted.memory_rate,
                "fitted": row.fitted,
                "disturbed": row.loop.disturbed,
            }
            for row in found.rows
        ],
        "several_cores": [
            {
                "kernel": row.kernel,
                "cores": row.cores,
                "measured_cycles": row.cycles,
                "predicted_cycles": row.predicted.cycles_of(row.cores),
                "measured_over_predicted": row.ratio(),
                "measured_over_linear": row.ratio("linear"),
                "reason": row.reason,
                "spread": row.spread,
                "saturating_cores": row.predicted.saturating_cores,
                "fitted": row.fitted,
                "disturbed": row.disturbed,
            }
            for row in on_cores
        ],
        "median_error": found.median_error,
        "share_within_25_percent": found.share_within(_MOST),
    }


def _marks(row: Record) -> list[str]:
    words = [word for word in ("fitted", "disturbed") if row[word]]
    off = abs(row["measured_over_predicted"] - 1) > _MOST and not words
    return [f"off: {row['reason'] or 'not explained'}"] if off else words


_CYCLES = (
    cell("measured_cycles", ">9.3f", "measured"),
    cell("predicted_cycles", ">9.3f", "predicted"),
    cell("measured_over_predicted", ">9.2f", "meas/pred"),
    cell("spread", ">7.1%"),
)
_LOOPS = Table(
    (cell("kernel", "<17"), cell("level", "<7"), *_CYCLES, cell("bound", "<7")),
    _marks,
)
_ON_CORES = Table(
    (
        cell("N_s", ">7", value=lambda row: row["saturating_cores"] or "none"),
        *_CYCLES,
        cell("measured_over_linear", ">7.2f", "linear"),
    ),
    _marks,
)


def _paragraphs(found: EcmFit, document: Mapping[str, Any]) -> list[list[str]]:
    """Return the lines of the tables of all loops by paragraph."""
    model, on_cores = found.model, document["several_cores"]
    paragraphs = [
        [
            f"{'hypothesis':<54} {'error on load, copy, triad':>27}",
            *(
                f"{name:<54} {error:>26.1%}" + "  chosen" * (name == found.name)
                for name, error in list(found.errors.items())[:_BEST]
            ),
        ],
        [
            f"{model.overlap} at {model.clock_GHz:.2f} GHz",
            *(
                f"{level.name:<7} {level.load_B:>7.3g} B/cycle of loads, {level.store_B:>7.3g} of "
                "stores"
                for level in model.levels
            ),
        ],
        _LOOPS.lines(document["loops"]),
        [
            f"cycles of a vector of every stream; {len(found.judged)} loops are judged: median "
            f"error {found.median_error:.1%} (goal {_MEDIAN:.0%}), {found.share_within(_MOST):.0%} "
            f"within {_MOST:.0%} (goal 90%)"
        ],
    ]
    if on_cores:
        title = f"memory, {on_cores[0]['cores']} cores"
        paragraphs.append(_ON_CORES.after(cell("kernel", "<17", title)).lines(on_cores))
    ratios = (r["measured_over_predicted"] for r in on_cores if not (r["fitted"] or r["disturbed"]))
    if judged := [abs(ratio - 1) for ratio in ratios]:
        note = (
            f"{len(judged)} loops are judged: median error {statistics.median(judged):.1%}; N_s is "
            "the number of cores that saturate memory, linear the ratio without its limit below N_s"
        )
        paragraphs.append([note])
    return paragraphs


ECM_VERB = verb(
    "ecm",
    UNDERSTAND,
    "compare measured loops with predictions of the ECM model",
    _ecm,
    (
        "memkern ecm --quick",
        "memkern ecm -o loops.parquet",
        "memkern ecm --machine host.json",
    ),
    argument(
        "results",
        nargs="?",
        metavar="RESULTS",
        help="records of loops on one core; by default they are measured",
    ),
    argument(
        "--machine",
        metavar="FILE",
        help="machine file of this machine, to which the fitted bandwidths are added",
    ),
    argument(
        "--overlap",
        metavar="TEXT",
        help='this hypothesis instead of the best one, such as "L1 load + max(L1 store, L2, '
        'memory)"; or one of the paper: a, b, c, d',
    ),
    argument(
        "--memory-rate",
        choices=("apart", "common"),
        default="apart",
        help="predict the time of memory by the bandwidths of loads and of stores (apart), or, as "
        "the paper does, by that of loads or of a triad for all bytes (common)",
    ),
    *seconds_options(240.0),
    argument("-o", "--output", metavar="PATH", help="records: .db, .parquet, .csv, .json"),
    argument("--json", action="store_true", help="the table as JSON on standard output"),
    WAIT,
    FORCE,
    argument("-q", "--quiet", action="store_true", help="no table and no progress"),
)


def _incore(args: argparse.Namespace) -> int:
    from memkern.models.machine_reading import machine_of
    from memkern.models.records import processors
    from memkern.static.analysis import llvm_mca, osaca
    from memkern.studies.ecm import measured_in_core

    if args.arch and osaca() is None:
        raise InputError("--arch needs OSACA: `pip install osaca`")
    machine = own_machine(args)
    kernels = None
    if args.kernel is not None:
        kernels = [name if "." in name else f"loops.{name}" for name in each(args.kernel)]
    found = run_study(
        args,
        measured_in_core,
        "output",
        kernels=kernels,
        variants=each(args.variant),
        isas=each(args.isa),
        unrolls=each(args.unroll),
        machine=machine,
        processor=(args.cpu, args.arch),
    )
    if machine is not None and not found.results.interrupted:
        machine_of(args.machine, processors(found.results))
        machine.with_in_core(found.bodies).save(args.machine, force=True)
    if llvm_mca() is None:
        warn("llvm-mca is not installed: its prediction is left out")
    if not args.quiet:
        for text in found.missing:
            warn(text)
    print_document(found.rows, "\n".join(_IN_CORE.lines(found.rows)), args)
    return exit_code(found.results)


def _over(column: str, title: str) -> Cell:
    """Return the column of the ratio of the measured cycles to predicted ones."""
    return cell(title, ">8.2f", value=lambda row: row["in_core_cycles"] / row[column])


def _notes(row: Record) -> list[str]:
    whole_row = row["in_core_row_cycles"]
    notes = [] if math.isnan(whole_row) else [f"and {whole_row:.1f} a row"]
    notes += [f"in {row['level']}"] * (row["level"] != "L1") + ["disturbed"] * row["disturbed"]
    if row["llvm_mca_port"]:
        notes.append(f"port {row['llvm_mca_port']} {row['llvm_mca_port_cycles']:.3f}")
    spilled = [row[f"surplus_{way}_B"] for way in ("load", "store")]
    if any(each_B >= 1 for each_B in spilled):
        notes.append("spills: loads {:.0f} B, stores {:.0f} B".format(*spilled))
    return [", ".join(notes)]


_IN_CORE = Table(
    (
        cell("kernel", "<17", value=lambda row: row["kernel"] + (" " + row["layout"])[:9]),
        cell("variant", "<15", value=lambda row: f"{row['variant']}/{row['isa']}"),
        cell("unroll", ">6", value=lambda row: row["unroll"] or ""),
        cell("in_core_unit", "<7", "unit"),
        cell("units", ">5.6g"),
        cell("in_core_cycles", ">9.3f", "measured"),
        cell("llvm_mca_cycles", ">9.3f", "llvm-mca"),
        _over("llvm_mca_cycles", "meas/mca"),
        cell("osaca_cycles", ">9.3f", "OSACA"),
        _over("osaca_cycles", "meas/OSA"),
        cell("arithmetic_cycles", ">7.3f", "T_OL"),
        cell("transfer_cycles", ">7.3f", "T_nOL"),
        cell("load_cycles", ">7.3f", "loads"),
        cell("store_cycles", ">7.3f", "stores"),
        cell("spread", ">7.1%"),
    ),
    _notes,
)


INCORE_VERB = verb(
    "machine incore",
    UNDERSTAND,
    "cycles of kernels in the core, measured in L1 and by static analysis",
    _incore,
    (
        "memkern machine incore --quick",
        "memkern machine incore -k triad,stencil --variant auto,simd",
        "memkern machine incore --machine host.json -o bodies.parquet",
    ),
    argument(
        "-k",
        "--kernel",
        type=words,
        metavar="NAME,...",
        help="loops, or other kernels such as spmv.crs (all)",
    ),
    argument(
        "--variant",
        type=words,
        default="simd",
        metavar="NAME,...",
        help="scalar, auto, simd and pipelined (simd)",
    ),
    argument(
        "--isa", type=words, default="best", metavar="NAME,...", help="instruction sets (best)"
    ),
    argument(
        "--unroll",
        type=numbers(0, "unroll"),
        default=0,
        metavar="N,...",
        help="unrolling of loops (0: the default of each kernel)",
    ),
    argument(
        "--machine",
        metavar="FILE",
        help="machine file of this machine, by whose instructions arithmetic, loads and stores are "
        "separated, and to which the measured times are added",
    ),
    argument(
        "--cpu", default="native", metavar="NAME", help="llvm-mca's name of the processor (native)"
    ),
    argument(
        "--arch",
        default="",
        metavar="NAME",
        help="OSACA's name of the microarchitecture, such as ZEN4 or ICX: also predict by OSACA",
    ),
    *seconds_options(60.0),
    argument("-o", "--output", metavar="PATH", help="records: .db, .parquet, .csv, .json"),
    argument("--json", action="store_true", help="the table as JSON on standard output"),
    WAIT,
    FORCE,
    argument("-q", "--quiet", action="store_true", help="no table and no progress"),
)
