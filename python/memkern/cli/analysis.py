"""The verbs that analyse records: fit, figure and table."""

from __future__ import annotations

import argparse
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memkern.checks import shown
from memkern.cli.measuring import print_document, warn
from memkern.cli.options import (
    FORCE,
    GOOD,
    JSON,
    UNDERSTAND,
    WRONG_INPUT,
    Options,
    argument,
    named_values,
    positive,
    verb,
)
from memkern.errors import InputError
from memkern.files import publish, unused, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from memkern.formats import ResultSet
    from memkern.models import Side, T0WmaxFit
    from memkern.plots.registry import Registry

T = TypeVar("T")
_LEVEL = 95.0  # of the intervals of fits, in percent


def _leave_out(text: str) -> str | float:
    return text if text in ("none", "caches", "changepoint") else positive(text)


def _fit(args: argparse.Namespace) -> int:
    from memkern.models import read

    how = {"weighting": args.weighting, "level": args.level / 100}
    fits, code = _fits(read(args.file), args.by, args.leave_out, how)
    if not (fits or code):
        raise InputError(f"no record of {args.file} moves any bytes")
    if not fits:
        return WRONG_INPUT
    for remark in dict.fromkeys(side.fit.remark for _, side in fits if side.fit.remark):
        warn(remark)
    rows = [{"group": name, "side": side.name, **side.fit.summary()} for name, side in fits]
    print_document(rows, "\n".join(_fit_lines(fits, args.level)), args)
    return code


def fit_text(results: ResultSet) -> str:
    """Return the table of T0 and Wmax of the kernels that were measured at several sizes.

    The reason why a kernel has no fit is printed as a warning.
    """
    sizes: dict[Any, set[Any]] = {}
    for record in results:
        sizes.setdefault(record["kernel"], set()).add(record["bytes_B"])
    several = [kernel for kernel, its in sizes.items() if len(its) > 1]
    fits, _ = _fits(results.filter(kernel=several), None, None, {}) if several else ([], GOOD)
    return "\n".join(_fit_lines(fits, _LEVEL)) if fits else ""


def _fits(
    records: ResultSet, by: str | None, leave_out: Any, how: Mapping[str, Any]
) -> tuple[list[tuple[str, Side]], int]:
    """Return the fits of all groups of records, each with the group's name, and the exit code.

    Sizes within and beyond the caches are fitted separately, or all sizes not left out.
    """
    from memkern.models import Side, fit_both_sides, fit_t0_wmax, groups

    out = None if leave_out == "none" else leave_out
    fits: list[tuple[str, Side]] = []
    code = GOOD
    split = groups(records, by.split(",") if by else ())
    for name, group in split.items():
        empty = all(record.get("bytes_B") == 0 for record in group)
        if by is None and len(split) > 1 and empty:
            # Launches move no bytes, so their records are not points of the fit.
            continue
        try:
            sides = (
                fit_both_sides(group, **how)
                if leave_out is None
                else [Side("all", fit_t0_wmax(group, leave_out_B=out, **how))]
            )
        except InputError as error:
            warn(f"{name}: {error}" if len(split) > 1 else str(error))
            code = WRONG_INPUT
            continue
        fits += [(name, side) for side in sides]
        if [side.name for side in sides] == ["caches"]:
            warn(f"{name}: too few sizes beyond the caches for a separate fit")
    return fits, code


def _fit_lines(fits: Sequence[tuple[str, Side]], level: float) -> list[str]:
    """Return the table of fits with intervals of a level in percent."""
    width = max(24, *(len(name) for name, _ in fits))
    lines = [
        f"{'group':<{width}} {'sizes':<6} {'points':>6} {'T0 µs':>13} "
        f"{f'{level:g} % interval':<21} {'Wmax GB/s':>9} "
        f"{f'{level:g} % interval':<21} {'B0.8 bytes':>15} {'entries':>15} {'R2':>8}"
    ]
    for name, side in fits:
        fit = side.fit
        t0, interval, b80, entries = _t0(fit)
        wmax = [f"{x:.4g}" for x in (fit.wmax_GBps, *fit.wmax_ci_GBps)]
        lines.append(
            f"{name:<{width}} {side.name:<6} {len(fit.residuals):>6} {t0:>13} {interval:<21} "
            f"{wmax[0]:>9} {f'[{wmax[1]}, {wmax[2]}]':<21} {b80:>15} {entries:>15} "
            f"{fit.r2:>8.5f}"
        )
    return lines


def _t0(fit: T0WmaxFit) -> tuple[str, str, str, str]:
    """Return T0 in microseconds, its interval, and B0.8 in bytes and in entries of the arrays.

    They are upper bounds if T0 is not resolved, and empty if unknown.
    """
    low, high = (f"{1e6 * x:.4g}" for x in fit.t0_ci_s)
    if not (fit.t0_resolved or fit.t0_ci_s[1] > 0):
        return "not resolved", "", "", ""
    below, b80 = ("", fit.b80_B) if fit.t0_resolved else ("below ", fit.b80_ci_B[1])
    both = [f"{below}{x:.4g}" if math.isfinite(x) else "" for x in (b80, b80 / fit.entry_B)]
    if fit.t0_resolved:
        return f"{1e6 * fit.t0_s:.4g}", f"[{low}, {high}]", both[0], both[1]
    return f"below {high}", "", both[0], both[1]


def _loaded(paths: Sequence[str]) -> ResultSet | None:
    from memkern.formats import concat, load

    return concat(map(load, paths)) if paths else None


def _options(exhibit: Callable[..., Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a figure or table; of a paper's, those that it takes."""
    known = [name for name in list(inspect.signature(exhibit).parameters)[1:] if name != "ax"]
    options = named_values(args.option)
    if args.machine and (not args.paper or "machine" in known):
        options["machine"] = args.machine
    for name in options:
        if name not in known:
            choices = ", ".join(f"{option}=..." for option in known)
            known_ones = f"choose from {choices}" if known else "there are no options"
            raise InputError(f"--option {shown(name)} is unknown: {known_ones}")
    return options


def _exhibits(
    args: argparse.Namespace,
    which: str,
    suffix: str,
    show: Callable[[Mapping[Path, Any], argparse.Namespace], None],
) -> int:
    """List figures or tables, or make the requested ones and show them by their files."""
    from memkern import plots
    from memkern.plots.registry import of_paper

    available: Registry[Any] = getattr(plots, which)
    makers = of_paper(available, args.paper) if args.paper else available
    if args.list or (args.name is None and not args.paper):
        for name, function in makers.items():
            numbers = f" ({', '.join(available.origins[name].numbers)})" if args.paper else ""
            print(f"{name:<16} {plots.describe(function)}{numbers}")
    else:
        show(_made(args, makers, available.what, suffix), args)
    return GOOD


def _made(
    args: argparse.Namespace, makers: Mapping[str, Callable[..., T]], what: str, suffix: str
) -> dict[Path, T]:
    """Return the requested figure or table, or those of a paper, by their files.

    The reason why one of a paper can't be made from the given records is printed as a warning.
    """
    written, files = args.output or what == "figure", args.files
    targets = {args.name: Path(args.output or f"{args.name}{suffix}")}
    if args.paper:
        if args.option:
            raise InputError(
                f"--option is for one {what}, and --paper makes several: name the {what}"
            )
        # The first positional argument is a file, since the paper names the exhibits.
        files = [args.name, *files] if args.name else []
        folder = Path(args.output or "")
        targets = {name: folder / f"{args.paper}-{name}{suffix}" for name in makers}
        if written:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
    for target in targets.values() if written else ():
        unused(target, args.force)
    records = _loaded(files)
    made = {}
    for name, target in targets.items():
        try:
            make = makers[name]
            made[target] = make(records, **_options(make, args))
        except InputError as error:
            if not args.paper:
                raise
            warn(f"{what} {name} is left out: {error}")
    if not made:
        raise InputError(f"no {what} of {args.paper} can be made from these records")
    return made


def _draw(made: Mapping[Path, Figure], args: argparse.Namespace) -> None:
    """Draw figures into their files, and print these."""
    from memkern.plots import save
    from memkern.plots.style import lacking

    for path, figure in made.items():
        save(figure, path)
        for sentence in lacking(figure):
            warn(sentence)
        print(path)


def _show_tables(made: Mapping[Path, DataFrame], args: argparse.Namespace) -> None:
    """Write tables into their files, or print them; those of a paper below their names."""
    for remark in (note for frame in made.values() for note in frame.attrs.get("notes", ())):
        warn(remark)
    if args.output:
        if {path.suffix for path in made} != {".csv"}:
            raise InputError(f"a table is written as .csv, not as {shown(args.output)}")
        publish({path: frame.to_csv(index=False).encode() for path, frame in made.items()})
        if args.paper:
            print("\n".join(map(str, made)))
    elif args.json:
        texts = {path.stem: frame.to_json(orient="records") for path, frame in made.items()}
        whole = "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"
        print(whole if args.paper else next(iter(texts.values())))
    else:
        heading = "{}\n" if args.paper else ""
        print("\n\n".join(heading.format(p.stem) + table_text(made[p]) for p in made))


def table_text(frame: DataFrame) -> str:
    """Return a table as text, in three figures."""
    from memkern.plots.frames import three_figures

    return frame.to_string(index=False, na_rep="", float_format=three_figures)


def _exhibit_options(what: str) -> tuple[Options, ...]:
    return (
        argument("name", nargs="?", metavar="NAME", help=f"name of the {what} (see --list)"),
        argument("files", nargs="*", metavar="FILE", help="own records; none: published data only"),
        argument("--list", action="store_true", help="list the names"),
        argument(
            "-o", "--output", metavar="PATH", help=f"file of the {what}, or folder with --paper"
        ),
        argument(
            "--option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"an option of the {what}, such as patterns=AMG-G0,LULESH-G2",
        ),
        argument(
            "--machine",
            metavar="FILE",
            help="machine file by which rooflines and the ECM model are drawn: option machine",
        ),
        argument(
            "--paper",
            metavar="PAPER",
            help=f"make every {what} of a paper instead, such as lavin2020, in the folder of -o",
        ),
        FORCE,
    )


FIT_VERB = verb(
    "fit",
    UNDERSTAND,
    "fit T0 and Wmax to records, or to a table with columns bytes_B and time_s",
    _fit,
    (
        "memkern fit bs.parquet",
        "memkern fit bs.parquet --by kernel,threads",
        "memkern fit times.csv --leave-out caches",
    ),
    argument("file", metavar="FILE", help="records, or a table as .csv"),
    argument(
        "--by",
        metavar="COLUMN",
        help="columns by which groups are fitted separately, as A,B (for records: kernel and "
        "varying columns)",
    ),
    argument(
        "--weighting",
        default="fitted",
        choices=("fitted", "none"),
        help="weights from the fitted times, or none as in Chalmers and Warburton",
    ),
    argument(
        "--leave-out",
        type=_leave_out,
        metavar="WHAT",
        help="one fit without the sizes up to a number of bytes, within the caches, or before the "
        "changepoint, or of all sizes (none); default: two fits, within the caches and beyond",
    ),
    argument(
        "--level",
        type=positive,
        default=_LEVEL,
        metavar="PERCENT",
        help=f"confidence level of the intervals ({_LEVEL:g})",
    ),
    JSON,
)


FIGURE_VERB = verb(
    "figure",
    UNDERSTAND,
    "draw a named figure from own records and published data",
    lambda args: _exhibits(args, "figures", ".pdf", _draw),
    (
        "memkern figure --list",
        "memkern figure spatter-fig3 strides.parquet -o strides.pdf",
        "memkern figure --paper lavin2020 -o figures",
    ),
    *_exhibit_options("figure"),
)


TABLE_VERB = verb(
    "table",
    UNDERSTAND,
    "print a named table from own records and published data",
    lambda args: _exhibits(args, "tables", ".csv", _show_tables),
    (
        "memkern table --list",
        "memkern table spatter-table4 apps.db",
        "memkern table --paper lavin2020",
    ),
    *_exhibit_options("table"),
    JSON,
)
