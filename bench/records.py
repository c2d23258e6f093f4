"""Programs of benchmarks and their records: results, how, when and where, in a file and as a table.

A program declares its question, its options and a function that yields rows (`program`).

A record has ``command``, ``commit`` (of memkern), ``date``, ``host``, ``conditions`` and ``rows``.
Each row maps the headings of a table, with units, to text or numbers; unknown values are null. The
interval of a value ``x`` is in ``x low`` and ``x high``. Some records also have rows of finer
tables.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from memkern import files
from memkern.errors import InputError
from memkern.statistics import Ratio

FOLDER = Path(__file__).parent / "records"

Row = dict[str, Any]


def parser_of(doc: str | None, options: Mapping[str, Any], turns: int) -> argparse.ArgumentParser:
    """Return a parser with the options of a program and those that all programs have."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("-o", "--output", metavar="FILE", help="write the record there, as JSON")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument("--conditions", metavar="TEXT", help="for the record: versions, load, ...")
    if turns:
        parser.add_argument("--turns", type=int, default=turns)
    for name, given in options.items():
        default, text = given if isinstance(given, tuple) else (given, None)
        if isinstance(given, dict):
            parser.add_argument(name, **given)
        elif default is False:
            parser.add_argument(name, action="store_true", help=text)
        else:
            parser.add_argument(name, type=type(default), default=default, help=text)
    return parser


def program(
    module: str,
    doc: str | None,
    measured: Callable[[argparse.Namespace], Iterable[Row | tuple[str, Row]]],
    options: Mapping[str, Any] | None = None,
    turns: int = 0,
    judge: Callable[[list[Row]], bool] | None = None,
) -> Callable[[], int]:
    """Return the main function of a program, which prints rows as they come and writes the record.

    Parameters
    ----------
    module : str
        ``__name__`` of the program, which runs at once as a script.
    doc : str
        Docstring of the program, whose first line describes it.
    measured : callable
        Yields the rows for the options: a row of the table, or the name of a finer table and a row
        of it. A process that yields none, as all ranks but the first, writes no record.
    options : mapping, optional
        Options of the program by name: a default (a switch if it is False), a default and a help
        text, or the keywords of `argparse.ArgumentParser.add_argument`.
    turns : int, optional
        Default of ``--turns`` if the program measures in turns.
    judge : callable, optional
        Prints what all rows together say, and returns whether it is as it should be: otherwise the
        exit code is 1.
    """

    def main() -> int:
        parser = parser_of(doc, options or {}, turns)
        args = parser.parse_args()
        try:  # before anything is measured
            if args.output is not None:
                files.unused(args.output, args.force)
        except InputError as error:
            parser.error(str(error))
        tables: dict[str, list[Row]] = {"rows": []}
        for found in measured(args):
            name, row = found if isinstance(found, tuple) else ("rows", found)
            tables.setdefault(name, []).append(row)
            print(
                "; ".join(f"{key} {text}" for key, text in cells(row).items() if text), flush=True
            )
        every = [row for rows in tables.values() for row in rows]
        if every and args.output is not None:
            write(args, tables)
        return int(judge is not None and bool(every) and not judge(every))

    if module == "__main__":
        raise SystemExit(main())
    return main


def interval(name: str, ratio: Ratio) -> Row:
    """Return the entries of a row for a ratio and its interval."""
    return {name: ratio.ratio, f"{name} low": ratio.low, f"{name} high": ratio.high}


def write(args: argparse.Namespace, tables: Mapping[str, list[Row]]) -> None:
    """Write the record of a measurement, with its tables, to the file named by the options."""
    from memkern.host.environment import machine_environment

    found = machine_environment()
    head = {
        "command": shlex.join(["python", *sys.argv]),
        "commit": found["build"]["commit"],
        "date": found["run"]["time"],
        "host": host(found),
        "conditions": args.conditions,
    }
    parts = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    for name, rows in tables.items():
        parts.append(f" {json.dumps(name)}: [\n  " + ",\n  ".join(map(line, rows)) + "\n ]")
    files.publish({Path(args.output): ("{\n" + ",\n".join(parts) + "\n}\n").encode()})


def line(row: Row) -> str:
    """Return a row as JSON, which has no NaN and no numbers of NumPy."""
    known = {name: value if value == value else None for name, value in row.items()}
    return json.dumps(known, default=lambda number: number.item())


def host(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's data on the machine, from memkern's description of it."""
    machine = environment["machine"]
    caches = {
        f"L{cache['level']} {cache['type']}, B": cache["size_B"]
        for cache in machine["caches"] or ()
    }
    return {
        "processor": machine["model"],
        "cores": machine["cores"],
        "caches": caches or None,
        "kernel": environment["os"]["kernel"],
        "compiler": environment["build"]["compiler"],
    }


def read(name: str) -> dict[str, Any]:
    """Return a record of the folder, with its fractions as the text that tables have."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text(), parse_float=fraction))


def fraction(text: str) -> str:
    """Return a number as it is written, or with four digits if it has more of them."""
    digits = text.replace(".", "").strip("-0")
    return text if len(digits) <= 4 else four_digits(float(text))


def four_digits(value: float) -> str:
    """Return a number with four digits, or more of them before its decimal point."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def cells(row: Row) -> dict[str, str]:
    """Return the texts of a row by heading; a value and its interval are one text."""

    def text(value: object) -> str:
        # NaN is unknown as well.
        if value is None or value != value:
            return ""
        return four_digits(value) if isinstance(value, float) else str(value)

    limits = {f"{name} {end}" for name in row for end in ("low", "high")}
    found = {name: text(value) for name, value in row.items() if name not in limits}
    for name in found:
        if low := text(row.get(f"{name} low")):
            found[name] += f" [{low}, {text(row[f'{name} high'])}]"
    return found


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of a table in Markdown, without columns that have no known value."""
    every = [cells(row) for row in rows]
    names = dict.fromkeys(name for row in every for name, text in row.items() if text)
    lines = [list(names), ["---"] * len(names)]
    lines += [[row.get(name, "") for name in names] for row in every]
    return [f"| {' | '.join(line)} |" for line in lines]
