"""The command line: one contract for every verb.

A table for people goes to standard output, progress and warnings to standard error. Exit codes:
0 good, 1 a result failed its validation, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from memkern import spatter_input, statistics
from memkern.errors import InputError
from memkern.kernels import DEFINITIONS, spatter
from memkern.patterns import shown
from memkern.spec import DTYPES, INDEX_DTYPES, ISAS, PAGES, REPETITIONS, SCHEDULES, Case

if TYPE_CHECKING:
    from memkern.models import T0WmaxFit
    from memkern.results import ResultSet
    from memkern.run import Measurement

GOOD, INVALID, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one sentence; the usage is a --help away."""
        self.exit(WRONG_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a positive number")
    return value


def _count(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
            raise argparse.ArgumentTypeError(
                f"{shown(text)} is not a whole number of at least {least}"
            )
        return int(text)

    return convert


def _output_options(parser: argparse.ArgumentParser, short: bool) -> None:
    group = parser.add_argument_group("results")
    group.add_argument(
        *(["-o"] if short else []),
        "--output",
        metavar="PATH",
        help="results file: .db, .parquet, .csv or .json",
    )
    group.add_argument("--json", action="store_true", help="records as JSON on standard output")
    group.add_argument(
        "--resume", action="store_true", help="go on with an unfinished results file"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="no table, progress or warnings")


def _measuring_options(parser: argparse.ArgumentParser, *, short: bool = True) -> None:
    """Add our options; `short` is off where a peer's short options win."""
    _output_options(parser, short)
    group = parser.add_argument_group("how to measure")
    add = group.add_argument
    add(
        *(["-t"] if short else []),
        "--threads",
        type=_numbers(1, "threads"),
        metavar="N,...",
        help="workers (default: every processing unit)",
    )
    add("--pin", default="none", metavar="HOW", help="none, compact, spread or a list: 0,2,4-7")
    add("--pages", default="default", metavar="NAME,...", type=_words, help=", ".join(PAGES))
    add("--numa", default="first-touch", metavar="HOW", help="first-touch, interleave or node:N")
    add("--isa", default="best", choices=ISAS, help="instruction set")
    add(
        "--variant",
        default="best",
        type=_words,
        metavar="NAME,...",
        help="scalar, auto, simd, nt or best: try all, measure the fastest",
    )
    add("--dtype", default="float64", choices=DTYPES, help="type of the values")
    add("--index-dtype", choices=INDEX_DTYPES, help="type of the indices, where there are any")
    add("--device", default="cpu", choices=("cpu",), help="where to run")
    add("--schedule", default="static", choices=SCHEDULES, help="how iterations are dealt")
    add("--chunk", type=_count(0), default=0, metavar="N", help="iterations dealt at a time")
    add(
        "--prefetch",
        type=_numbers(0, "prefetch"),
        metavar="N,...",
        help="software prefetch distance (none, but for BS6 to BS8)",
    )
    add(
        "--unroll",
        type=_numbers(0, "unroll"),
        default=0,
        metavar="N,...",
        help="vectors or accumulators per step of the loop kernels",
    )
    add(
        "--offset",
        type=_numbers(0, "offset"),
        default=0,
        metavar="BYTES,...",
        help="array k starts (k + 1) times so far past a page",
    )
    add(
        "--repetition",
        default="fork",
        type=_words,
        metavar="HOW,...",
        help="how invocations follow: " + ", ".join(REPETITIONS),
    )
    add("--flush", action="store_true", help="evict the caches before each sample")
    add("--seed", type=_count(0), metavar="N", help="seed of the values in the arrays (0)")
    if short:
        add("--runs", type=_count(1), metavar="N", help="exactly N samples")
    add("--ci", type=_positive, metavar="PERCENT", help="target interval of the median (2)")
    add("--budget", type=_positive, metavar="SECONDS", help="most seconds a case (2)")
    add("--repeats", type=_count(1), default=1, metavar="N", help="re-allocate and re-measure")


_CASE_KNOBS = (
    *("pin", "pages", "numa", "isa", "variant", "dtype"),
    *("schedule", "chunk", "unroll", "offset", "repetition", "flush"),
)
# Of these the command line takes lists, of which every combination is measured.
_LISTED = ("threads", "pages", "variant", "prefetch", "unroll", "offset", "repetition")


def _words(text: str) -> str | list[str]:
    words = [word.strip() for word in text.split(",")]
    return words if len(words) > 1 else words[0]


def _numbers(least: int, name: str) -> Callable[[str], int | list[int]]:
    from memkern.sizes import whole_numbers

    parse = whole_numbers(least, name)

    def convert(text: str) -> int | list[int]:
        try:
            numbers = parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return numbers if len(numbers) > 1 else numbers[0]

    return convert


def _varied(cases: Sequence[Case], args: argparse.Namespace) -> list[Case]:
    """Return every case with every combination of the knobs of which there is a list."""
    from memkern.run import vary

    values = {name: getattr(args, name, None) for name in _LISTED}
    lists = {name: value for name, value in values.items() if isinstance(value, list)}
    return [varied for case in cases for varied in vary(case, **lists)]


def _knobs(args: argparse.Namespace) -> dict[str, Any]:
    """Everything of `_measuring_options` that belongs to a case; of lists, the first."""
    knobs = {name: getattr(args, name) for name in _CASE_KNOBS}
    for name in ("index_dtype", "threads", "prefetch"):
        if getattr(args, name) is not None:
            knobs[name] = getattr(args, name)
    knobs = {k: v[0] if isinstance(v, list) else v for k, v in knobs.items()}
    if args.seed is not None:
        knobs["seed"] = args.seed
    if args.ci is not None or args.budget is not None:
        knobs["runs"] = None
    if args.ci is not None:
        knobs["ci"] = args.ci / 100
    if args.budget is not None:
        knobs["budget_s"] = args.budget
    return knobs


_HEADER = (
    f"{'case':<4} {'kernel':<13} {'pattern':<22} {'variant':<15} {'thr':>3} {'pages':<9} "
    f"{'bytes':>13} {'time_min_s':>11} {'GB/s':>8} {'±%':>5}"
)


def _what(record: dict[str, Any]) -> str:
    """Say what a record of a streaming kernel is about."""
    if "degree" in record:
        return f"K {record['mesh_elements']}, N {record['degree']}"
    if "elements" not in record:
        return ""
    pattern = record.get("index_pattern")
    return f"{record['elements']} {pattern or 'elements'}"


def _stream_table(measurement: Measurement) -> None:
    """Print a rotation as STREAM does: best rate from the shortest time, without the first."""
    _line(f"{'Function':<11} {'Best Rate MB/s':>14}  {'Avg time':>11}  {'Min time':>11}  Max time")
    for part in measurement.parts:
        record = part.record
        name = f"{record['kernel'].partition('.')[2].capitalize()}:"
        times = (record["time_mean_s"], record["time_min_s"], record["time_max_s"])
        _line(
            f"{name:<11} {record['bytes_B'] / record['time_min_s'] / 1e6:14.1f}  "
            + "  ".join(f"{seconds:11.6f}" for seconds in times)
        )
    record = measurement.record
    verdict = "validates" if record["valid"] else "FAILS its validation"
    _line(
        f"Solution {verdict}: average error {record['error_max']:.2g} on all three arrays; "
        f"{record['elements']} elements, {record['threads']} threads, "
        f"{record['variant']}/{record['isa']}, pages {record['pages']}"
    )


def _row(number: int, record: dict[str, Any]) -> str:
    label = record["name"] or record.get("pattern") or _what(record)
    label = label if len(label) <= 22 else label[:21] + "…"
    marks = [
        text
        for text, present in (
            ("INVALID", not record["valid"]),
            ("noisy", record["noisy"]),
            (f"x{record['invocations']}", record["stop"] == "runs" and record["invocations"] > 1),
        )
        if present
    ]
    return (
        f"{number:<4} {record['kernel'].partition('.')[2]:<13} {label:<22} "
        f"{record['variant'] + '/' + record['isa']:<15} {record['threads']:>3} "
        f"{record['pages']:<9} {record['bytes_B']:>13} {record['time_min_s']:>11.4g} "
        f"{record['bandwidth_GBps']:>8.2f} {100 * record['ci_relative']:>5.1f} {' '.join(marks)}"
    ).rstrip()


def _summary(results: ResultSet) -> str:
    """Distribution of the bandwidths of a list of cases, as Spatter's users expect it."""
    rates = [r["bandwidth_GBps"] for r in results if r["bytes_B"] > 0 and not r["rotation"]]
    if len(rates) < 2:
        return ""
    low, middle, high = statistics.quartiles(rates)
    return (
        f"GB/s of {len(rates)} cases: min {min(rates):.2f}, quartiles {low:.2f} {middle:.2f} "
        f"{high:.2f}, max {max(rates):.2f}, harmonic mean {statistics.harmonic_mean(rates):.2f} "
        f"± {statistics.harmonic_mean_error(rates):.2f}"
    )


def _measure(cases: Sequence[Case], args: argparse.Namespace) -> ResultSet:
    """Measure with the options of the command line, and print what people want to see."""
    from memkern.run import sweep

    table = not (args.json or args.quiet)
    number = itertools.count()

    def show(measurement: Measurement) -> None:
        if not table:
            return
        if measurement.parts:
            _stream_table(measurement)
            return
        row = next(number)
        if row == 0:
            _line(_HEADER)
        _line(_row(row, measurement.record))

    results = sweep(
        _varied(cases, args),
        repeats=args.repeats,
        output=args.output,
        resume=args.resume,
        progress=False if args.quiet else None,
        on_result=show,
    )
    if args.json:
        print(results.to_json_text())
    elif table and (summary := _summary(results)):
        _line(summary)
    return results


def _line(text: str) -> None:
    """Print above the progress bar, if there is one."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        tqdm.write(text, file=sys.stdout)
    else:
        print(text, flush=True)


def _code(results: ResultSet) -> int:
    if any(record["stop"] == "interrupted" for record in results):
        return INTERRUPTED
    return GOOD if results.valid else INVALID


def _warn(message: str) -> None:
    print(f"memkern: {message}", file=sys.stderr)


def _spatter(args: argparse.Namespace) -> int:
    asked = spatter_input.options_to_configs(args)
    if args.verbosity == 0:
        args.quiet = True
    if not args.quiet:
        for warning in asked.warnings:
            _warn(warning)
    knobs = _knobs(args)
    if asked.threads is not None:
        knobs.setdefault("threads", asked.threads)
    cases = []
    for number, config in enumerate(asked.configs):
        try:
            cases.append(spatter.from_config(config, **knobs))
        except InputError as error:
            raise InputError(f"config {number}: {error}") from None
    return _code(_measure(cases, args))


def _memory_sized(dtype: str) -> int:
    """Elements by STREAM's rule: each array four times the last-level caches, or a million."""
    from memkern.run import describe

    cache_B: int = describe()["topology"]["last_level_cache_B"]
    return max(4 * cache_B // (int(dtype.removeprefix("float")) // 8), 10**6)


def _streaming(args: argparse.Namespace) -> int:
    from memkern import kernels
    from memkern.sizes import parse_sizes

    names = _streaming_kernels(args)
    knobs = {"runs": args.runs, **_knobs(args)}
    given = ("alpha", "beta", "pattern", "repeats_allowed", "definition", "rows", "columns")
    for option in given:
        if getattr(args, option, None) is not None:
            knobs["repeats" if option == "repeats_allowed" else option] = getattr(args, option)
    if args.sizes is not None and args.elements is not None:
        raise InputError("--sizes and a number of elements exclude each other")
    if args.sizes is not None:
        shapes: list[dict[str, Any]] = [{"footprint_B": size} for size in parse_sizes(args.sizes)]
    elif getattr(args, "layer_condition", None) is not None:
        names, shapes = ["loops.stencil"], _layer_conditions(args)
    elif "rows" in knobs:
        shapes = [{}]
    else:
        shapes = [{"elements": args.elements or _memory_sized(args.dtype)}]
    return _code(
        _measure([kernels.case(name, **shape, **knobs) for name in names for shape in shapes], args)
    )


def _layer_conditions(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Shapes of the stencil, memory-sized, whose rows are held where it is asked for."""
    from memkern.kernels.planes import rows_held
    from memkern.run import describe

    if args.kernel not in (None, "stencil"):
        raise InputError("--layer-condition is the stencil's: use it with --kernel stencil")
    points = args.elements or _memory_sized(args.dtype)
    topology = describe()["topology"]
    # A worker's share of a cache that several have in common.
    share = max(1, max(_all(args.threads or len(topology["units"]))))
    caches_B = {
        f"L{cache['level']}": cache["size_B"] // min(share, max(1, cache["shared_by"]))
        for cache in topology["caches"]
    }
    shapes = []
    for holder in args.layer_condition.split(","):
        columns = rows_held(holder, caches_B, args.dtype)
        rows = max(3, points // columns)
        shapes.append({"rows": rows, "columns": columns, "layer_condition": holder})
    return shapes


def _streaming_kernels(args: argparse.Namespace) -> list[str]:
    from memkern.spec import registry

    if args.kernel is not None:
        return [f"{args.verb}.{word.strip()}" for word in args.kernel.split(",")]
    names = [name for name in registry() if name.startswith(f"{args.verb}.") and "@" not in name]
    # On its own, STREAM means its four kernels in turn, unless sizes would make it a sweep.
    return (
        ["stream.rotation"]
        if args.verb == "stream" and args.sizes is None
        else [name for name in names if name != "stream.rotation"]
    )


def _finite_elements(args: argparse.Namespace) -> int:
    from memkern import kernels
    from memkern.sizes import parse_sizes

    if args.sizes is not None and args.entries is not None:
        raise InputError("--sizes and --entries exclude each other")
    knobs = {"runs": args.runs, **_knobs(args)}
    index_dtype = knobs.pop("index_dtype", None)
    if args.sizes is not None:
        lengths: list[dict[str, Any]] = [{"footprint_B": size} for size in parse_sizes(args.sizes)]
    else:
        lengths = [{"elements": args.entries or _memory_sized(args.dtype)}]
    mesh = {
        "masked": args.masked,
        "numbering": args.numbering,
        **({"index_dtype": index_dtype} if index_dtype else {}),
    }
    cases = []
    for number in args.tests or range(9):
        name = f"bs.bs{number}"
        if number == 0:
            # An empty launch has no values of any type.
            cases.append(kernels.case(name, **{**knobs, "dtype": "float64", "variant": "auto"}))
        elif number < 6:
            scalars = {k: v for k in ("alpha", "beta") if (v := getattr(args, k)) is not None}
            options = {**knobs, **scalars, "definition": args.definition}
            cases += [kernels.case(name, **shape, **options) for shape in lengths]
        else:
            cases += [
                kernels.case(name, elements=k, degree=n, **mesh, **knobs)
                for n in _all(args.degree)
                for k in _all(args.elements)
            ]
    return _code(_measure(cases, args))


def _all(values: int | list[int]) -> list[int]:
    return values if isinstance(values, list) else [values]


def _barrier(args: argparse.Namespace) -> int:
    from memkern.barrier import barrier_cost

    threads = None if args.threads is None else _all(args.threads)
    results = barrier_cost(threads, kinds=args.kinds.split(","), runs=args.runs, pin=args.pin)
    if args.output:
        results.save(args.output)
    if args.json:
        print(results.to_json_text())
    elif not args.quiet:
        print(
            f"{'barrier':<12} {'threads':>7} {'ns':>9} {'least':>9} {'greatest':>9} {'cycles':>9}"
        )
        for r in results:
            times = [1e9 * r[f"barrier_{end}s"] for end in ("", "low_", "high_")]
            print(
                f"{r['barrier']:<12} {r['threads']:>7} {times[0]:>9.1f} {times[1]:>9.1f} "
                f"{times[2]:>9.1f} {times[0] * r['clock_GHz']:>9.0f}"
            )
    return GOOD


def _suite(args: argparse.Namespace) -> int:
    from memkern import suites

    configs = suites.load(args.suite, count_rule=args.counts, footprint_B=args.footprint)
    knobs = {"runs": args.runs, **_knobs(args)}
    return _code(_measure([spatter.from_config(c, **knobs) for c in configs], args))


def _tuned(args: argparse.Namespace) -> int:
    from memkern.run import tune

    case = spatter.case(
        args.kernel,
        pattern=args.pattern,
        delta=args.delta,
        count=args.count,
        **_knobs(argparse.Namespace(**{**vars(args), "budget": None})),
    )
    best, search = tune(case, budget_s=args.budget or 30.0)
    if args.output:
        search.save(args.output)
    if args.json:
        print(search.to_json_text())
    elif not args.quiet:
        _line(f"{'step':<9} {'pages asked':<11} {'prefetch':>8} {'chunk':>6}  {_HEADER}")
        for number, record in enumerate(search):
            _line(
                f"{record['tune_step']:<9} {record['pages_asked']:<11} {record['prefetch']:>8} "
                f"{record['chunk']:>6}  {_row(number, record)}"
            )
        knobs = best.knobs
        _line(
            f"best: --variant {knobs.variant} --isa {knobs.isa} --pages {knobs.pages} "
            f"--prefetch {knobs.prefetch} --chunk {knobs.chunk}"
        )
    return _code(search)


def _swept(args: argparse.Namespace) -> int:
    from memkern.sweepfile import read_sweep

    cases, repeats = read_sweep(args.file, _changed(args))
    if args.repeats == 1:
        args.repeats = repeats
    return _code(_measure(cases, args))


def _changed(args: argparse.Namespace) -> dict[str, Any]:
    """Return the knobs given on the command line, which win over those of a file."""
    parser = argparse.ArgumentParser()
    _measuring_options(parser)
    defaults = _knobs(parser.parse_args([]))
    knobs = {k: v for k, v in _knobs(args).items() if k not in defaults or defaults[k] != v}
    if args.runs is not None:
        knobs["runs"] = args.runs
    return knobs


def _info(args: argparse.Namespace) -> int:
    from memkern.run import describe

    facts = describe()
    if args.json:
        import json

        print(json.dumps(facts, indent=1))
        return GOOD
    machine, topology = facts["environment"]["machine"], facts["topology"]
    build, settings = facts["build"], facts["environment"]["settings"]
    caches = ", ".join(
        f"L{c['level']} {c['size_B'] // 1024} KiB x {c['instances']}" for c in topology["caches"]
    )
    rows = [
        ("processor", machine.get("cpu_model") or machine.get("model") or "unknown"),
        (
            "topology",
            f"{topology['packages']} packages, {topology['cores']} cores, "
            f"{len(topology['units'])} processing units usable, "
            f"{len(topology['numa_nodes'])} NUMA nodes",
        ),
        ("caches", caches or "unknown"),
        (
            "memory",
            f"{facts['memory_available_B'] / 1e9:.1f} GB to be had ({facts['memory_limit']})",
        ),
        ("pages", _pages(settings)),
        (
            "pinning",
            "none, compact, spread, or a list of units out of " + _ranges(topology["units"]),
        ),
        ("instruction sets", ", ".join(build["isas"])),
        ("clock", f"smallest step {facts['clock_tick_s'] * 1e9:.0f} ns"),
        ("launch", f"an empty parallel region takes {facts['launch_s'] * 1e6:.2f} us"),
        ("backends", "openmp; cuda, mpi and shmem are not part of this version"),
        (
            "build",
            f"memkern {build['version']}, {build['compiler']}, Highway {build['highway']}, "
            f"commit {build['commit']}",
        ),
    ]
    for name, text in rows:
        print(f"{name:<17} {text}")
    return GOOD


def _pages(settings: dict[str, Any]) -> str:
    thp = (settings.get("thp") or {}).get("enabled") or "not in this kernel"
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


def _loaded(paths: Sequence[str]) -> ResultSet | None:
    from memkern.results import load

    results = None
    for path in paths:
        results = load(path) if results is None else results + load(path)
    return results


def _options(exhibit: Callable[..., Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Options of a figure or table from NAME=VALUE; numbers become numbers."""
    known = list(inspect.signature(exhibit).parameters)[1:]
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            choices = ", ".join(f"{option}=..." for option in known) or "none here"
            raise InputError(f"--option {shown(pair)} is not one of those there are: {choices}")
        try:
            options[name] = float(value)
        except ValueError:
            options[name] = value
    return options


def _figure(args: argparse.Namespace) -> int:
    from memkern.plots import describe, figures, save

    if args.list or args.name is None:
        for name, function in figures.items():
            print(f"{name:<16} {describe(function)}")
        return GOOD
    if args.name not in figures:
        raise InputError(f"figure {args.name!r} is not one of {', '.join(figures)}")
    draw, target = figures[args.name], args.output or f"{args.name}.pdf"
    save(draw(_loaded(args.files), **_options(draw, args.option)), target)
    print(target)
    return GOOD


def _table(args: argparse.Namespace) -> int:
    from memkern.plots import describe, tables

    if args.list or args.name is None:
        for name, function in tables.items():
            print(f"{name:<16} {describe(function)}")
        return GOOD
    if args.name not in tables:
        raise InputError(f"table {args.name!r} is not one of {', '.join(tables)}")
    make = tables[args.name]
    frame = make(_loaded(args.files), **_options(make, args.option))
    if args.output:
        if Path(args.output).suffix != ".csv":
            raise InputError(f"a table is written as .csv, not as {shown(args.output)}")
        frame.to_csv(args.output, index=False)
    elif args.json:
        print(frame.to_json(orient="records"))
    else:
        print(frame.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.3g}"))
    return GOOD


def _compare(args: argparse.Namespace) -> int:
    from memkern.comparison import compare
    from memkern.results import load

    frame = compare(load(args.a), load(args.b), level=args.level / 100)
    if args.json:
        print(frame.to_json(orient="records"))
        return GOOD
    if frame.attrs["compared"]:
        print(f"compared: {', '.join(frame.attrs['compared'])}; ratio is A over B")
    print(frame.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.3f}"))
    return GOOD


# What differs between records of one kernel and makes them points of different lines.
_APART = ("backend", "threads", "dtype", "pages", "repetition")


def _leave_out(text: str) -> str | float:
    return text if text in ("caches", "changepoint") else _positive(text)


def _fit(args: argparse.Namespace) -> int:
    from memkern.models import fit_t0_wmax, groups, read

    fits, code = {}, GOOD
    split = groups(read(args.file), args.by.split(",") if args.by else ())
    for name, group in split.items():
        empty = all(record.get("bytes_B") == 0 for record in group)
        if args.by is None and len(split) > 1 and empty:
            # Launches among our records that move nothing are no points of a line.
            continue
        mixed = [c for c in _APART if len({record.get(c) for record in group}) > 1]
        if args.by is None and mixed:
            _warn(f"{name} mixes records that differ in {', '.join(mixed)}: --by tells them apart")
        try:
            fits[name] = fit_t0_wmax(
                group,
                weighting=args.weighting,
                level=args.level / 100,
                leave_out_B=args.leave_out,
            )
        except InputError as error:
            _warn(f"{name}: {error}" if len(split) > 1 else str(error))
            code = WRONG_INPUT
    if not (fits or code):
        raise InputError(f"no record of {args.file} moves any bytes")
    if not fits:
        return WRONG_INPUT
    for remark in {fit.remark for fit in fits.values()} - {""}:
        _warn(remark)
    if args.json:
        import json

        rows = [{"group": name, **fit.summary()} for name, fit in fits.items()]
        print(json.dumps(_finite(rows), indent=1, allow_nan=False))
        return code
    print(
        f"{'group':<24} {'points':>6} {'T0 µs':>9} {f'{args.level:g} % interval':<21} "
        f"{'Wmax GB/s':>9} {f'{args.level:g} % interval':<21} {'B0.8 bytes':>11} {'R2':>8}"
    )
    for name, fit in fits.items():
        t0, wmax = ([f"{x:.4g}" for x in ends] for ends in _ends(fit))
        print(
            f"{name:<24} {len(fit.residuals):>6} {t0[0]:>9} {f'[{t0[1]}, {t0[2]}]':<21} "
            f"{wmax[0]:>9} {f'[{wmax[1]}, {wmax[2]}]':<21} {fit.b80_B:>11.4g} {fit.r2:>8.5f}"
        )
    return code


def _ends(fit: T0WmaxFit) -> tuple[list[float], list[float]]:
    """T0 in microseconds and Wmax in GB/s, each with the ends of its interval."""
    t0 = [1e6 * x for x in (fit.t0_s, *fit.t0_ci_s)]
    return t0, [fit.wmax_GBps, *fit.wmax_ci_GBps]


def _finite(value: Any) -> Any:
    """Replace infinities and NaN, which JSON has no word for, by null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _report(args: argparse.Namespace) -> int:
    from memkern import report
    from memkern.kernels import report_cases
    from memkern.run import describe, machine_environment, sweep

    target = Path(args.output)
    if target.suffix != ".html":
        raise InputError(f"the report is an .html file, not {shown(args.output)}")
    data = target.with_suffix(".parquet")
    machine = describe()
    cases = report_cases(
        args.quick, machine["topology"]["last_level_cache_B"], machine["memory_available_B"]
    )
    cases = [case.with_(threads=args.threads or 0, pin=args.pin) for case in cases]
    if not args.resume:
        # Only what an earlier report of this very name has left.
        for suffix in (".parquet", ".samples.parquet", ".parquet.db"):
            target.with_suffix(suffix).unlink(missing_ok=True)
    if not args.quiet:
        _warn(f"measuring {len(cases)} cases, about {30 if args.quick else 120} s")
    results = sweep(cases, output=data, resume=args.resume, progress=False if args.quiet else None)
    if len(results) < len(cases):
        return INTERRUPTED
    words = ["memkern report"] + (["--quick"] if args.quick else [])
    report.write(
        results,
        target,
        title="Data movement on this machine",
        environment=machine_environment(),
        command=" ".join(words),
        data=data,
    )
    print(f"report: {target.resolve()}\ndata:   {data.resolve()}")
    return _code(results)


def _list(least: int, name: str) -> Callable[[str], list[int]]:
    convert = _numbers(least, name)
    return lambda text: _all(convert(text))


def _stream_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes",
        metavar="LOW:HIGH:COUNT",
        help="bytes of all arrays together, log-spaced, such as 16KiB:1GiB:400; or a list",
    )
    parser.add_argument("--alpha", type=float, metavar="X", help="the kernel's scalar")
    parser.add_argument("--beta", type=float, metavar="X", help="its second scalar")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(prog="memkern", description="How fast this machine really moves data.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)

    def verb(name: str, run: Callable[[argparse.Namespace], int], help: str) -> _Parser:
        sub: _Parser = verbs.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        return sub

    sub = verb("info", _info, "what this machine and this build have, and what is missing")
    sub.add_argument("--json", action="store_true", help="as JSON")

    sub = verb("spatter", _spatter, "gather/scatter with Spatter's own options and JSON files")
    spatter_input.add_options(sub)
    _measuring_options(sub, short=False)

    sub = verb("suite", _suite, "a published suite of gather/scatter cases")
    sub.add_argument("suite", help="ustride-cpu, ustride-gpu, apps, pennant, lulesh, nekbone, amg")
    sub.add_argument(
        "--counts",
        default="footprint",
        choices=("footprint", "paper"),
        help="the published counts, or such that the source fills --footprint bytes",
    )
    sub.add_argument("--footprint", type=_positive, default=2e9, metavar="BYTES", help="(2e9)")
    _measuring_options(sub)

    for family, what in (
        ("stream", "STREAM: its four kernels in turn, or some of them on their own"),
        ("raider", "RaiderSTREAM: STREAM's kernels regular, gathered, scattered and central"),
        ("loops", "the loop kernels of the ECM studies"),
    ):
        sub = verb(family, _streaming, what)
        sub.add_argument("-k", "--kernel", metavar="NAME,...", help="(all of them)")
        sub.add_argument(
            "-n",
            "--elements",
            type=_count(1),
            metavar="N",
            help="length of each array (four times the last-level caches, at least a million)",
        )
        _stream_options(sub)
        if family == "raider":
            sub.add_argument(
                "--pattern",
                metavar="PATTERN",
                help="order of the indices: permutation, stride1, stride:N, chase, central, "
                "zipf:EXPONENT, hot:ACCESSES:ELEMENTS, or a file",
            )
            sub.add_argument(
                "--allow-repeats",
                dest="repeats_allowed",
                action="store_true",
                default=None,
                help="the indices of a file need not be a permutation",
            )
            sub.add_argument("--definition", choices=DEFINITIONS, help="(paper)")
        if family == "loops":
            sub.add_argument(
                "--layer-condition",
                metavar="WHERE,...",
                help="stencil whose three rows are held in L1, L2, L3 or memory",
            )
            for side in ("rows", "columns"):
                help = f"{side} of stencil and matvec"
                sub.add_argument(f"--{side}", type=_count(1), metavar="N", help=help)
        _measuring_options(sub)

    sub = verb("bs", _finite_elements, "the finite-element streaming tests BS0 to BS8")
    sub.add_argument(
        "tests", nargs="?", type=_list(0, "tests"), metavar="NUMBERS", help="0..8, or 1,2,6 (all)"
    )
    sub.add_argument(
        "-n",
        "--entries",
        type=_count(1),
        metavar="N",
        help="length of each array of BS1 to BS5 (four times the last-level caches)",
    )
    sub.add_argument(
        "--elements",
        type=_numbers(1, "elements"),
        default=20,
        metavar="K,...",
        help="mesh of K x K x K elements for BS6 to BS8 (20)",
    )
    sub.add_argument(
        "--degree",
        type=_numbers(1, "degree"),
        default=7,
        metavar="N,...",
        help="polynomial degree for BS6 to BS8 (7)",
    )
    sub.add_argument(
        "--masked",
        default="none",
        choices=("none", "boundary"),
        help="nodes that take no part in BS6 to BS8",
    )
    sub.add_argument(
        "--numbering",
        default="elements",
        choices=("elements", "lexicographic"),
        help="order of the mesh's unique nodes (elements)",
    )
    sub.add_argument("--definition", choices=DEFINITIONS, default="paper", help="of BS5 (paper)")
    _stream_options(sub)
    _measuring_options(sub)

    sub = verb("barrier", _barrier, "what the team's barrier costs, over team sizes")
    sub.add_argument("-t", "--threads", type=_numbers(1, "threads"), metavar="N,...")
    sub.add_argument("--kinds", default="omp-passive,omp-active,spin", metavar="NAME,...")
    sub.add_argument("--runs", type=_count(1), default=10, metavar="N", help="(10)")
    sub.add_argument("--pin", default="none", metavar="HOW")
    sub.add_argument("-o", "--output", metavar="PATH", help=".db, .parquet, .csv or .json")
    sub.add_argument("--json", action="store_true", help="records as JSON on standard output")
    sub.add_argument("-q", "--quiet", action="store_true", help="no table")

    sub = verb("sweep", _swept, "a sweep declared in a TOML file")
    sub.add_argument("file", metavar="FILE.toml")
    _measuring_options(sub)

    sub = verb("tune", _tuned, "search variant, pages, prefetch distance and chunk in a budget")
    sub.add_argument("-k", "--kernel", default="gather", choices=("gather", "scatter"))
    sub.add_argument("-p", "--pattern", required=True, metavar="PATTERN")
    sub.add_argument("-d", "--delta", type=int, metavar="N")
    sub.add_argument("-l", "--count", type=_count(1), default=2**20, metavar="N")
    _measuring_options(sub)

    sub = verb("compare", _compare, "two record files, case by case, with intervals")
    sub.add_argument("a", metavar="A")
    sub.add_argument("b", metavar="B")
    sub.add_argument("--level", type=_positive, default=95.0, metavar="PERCENT")
    sub.add_argument("--json", action="store_true", help="as JSON")

    sub = verb("fit", _fit, "T0 and Wmax from records: ours, or columns bytes_B and time_s")
    sub.add_argument("file", metavar="FILE")
    sub.add_argument(
        "--by",
        metavar="COLUMN",
        help="fit groups apart; several columns as A,B (our records: kernel, and platform)",
    )
    sub.add_argument(
        "--weighting",
        default="fitted",
        choices=("fitted", "none"),
        help="weights from the fitted times, or none as Chalmers and Warburton",
    )
    sub.add_argument(
        "--leave-out",
        type=_leave_out,
        metavar="WHAT",
        help="sizes up to so many bytes, what fits the caches, or what is before the changepoint",
    )
    sub.add_argument("--level", type=_positive, default=95.0, metavar="PERCENT")
    sub.add_argument("--json", action="store_true", help="as JSON")

    for name, run, what in (("figure", _figure, "figure"), ("table", _table, "table")):
        sub = verb(name, run, f"a named {what} from published and own records")
        sub.add_argument("name", nargs="?", metavar="NAME")
        sub.add_argument("files", nargs="*", metavar="FILE")
        sub.add_argument("--list", action="store_true", help="list the names")
        sub.add_argument("-o", "--output", metavar="PATH")
        sub.add_argument(
            "--option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="an option of the named one, such as patterns=AMG-G0,LULESH-G2",
        )
        if name == "table":
            sub.add_argument("--json", action="store_true", help="as JSON")

    sub = verb("report", _report, "measure this machine and write one HTML file")
    sub.add_argument("--quick", action="store_true", help="within 30 s")
    sub.add_argument("-o", "--output", default="memkern-report.html", metavar="PATH.html")
    sub.add_argument("-t", "--threads", type=_count(1), metavar="N")
    sub.add_argument("--pin", default="none", metavar="HOW")
    sub.add_argument("--resume", action="store_true")
    sub.add_argument("-q", "--quiet", action="store_true")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = build_parser()
    args, extra = parser.parse_known_args(argv)
    if extra and hasattr(args, "files") and not any(word.startswith("-") for word in extra):
        # argparse takes files only in one place; people put them after options as well.
        args.files += extra
    elif extra:
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    if args.version:
        import memkern

        print(f"memkern {memkern.__version__}")
        return GOOD
    if args.verb is None:
        parser.print_help()
        return WRONG_INPUT
    warnings.showwarning = lambda message, *rest, **more: _warn(str(message))
    try:
        return int(args.run(args))
    except (InputError, MemoryError) as error:
        _warn(str(error) or "out of memory")
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        _warn(f"the operating system refused{where}: {error.strerror or error}")
    except KeyboardInterrupt:
        _warn("interrupted")
        return INTERRUPTED
    return WRONG_INPUT


if __name__ == "__main__":
    raise SystemExit(main())
