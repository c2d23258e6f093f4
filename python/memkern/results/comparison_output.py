"""Output of a comparison as text, Markdown, JUnit XML and lines of a history."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from memkern.errors import InputError
from memkern.files import read, writable, writing
from memkern.formats.encoding import escape_formula
from memkern.machine.environment import now
from memkern.results.comparison import INVALID, NOT_MEASURED
from memkern.results.verdicts import (
    FASTER,
    NOT_ENOUGH,
    PASSED,
    SAME,
    SLOWER,
    UNDECIDED,
)

if TYPE_CHECKING:
    from pandas import DataFrame

# The order of a summary.
_VERDICTS = (FASTER, SLOWER, SAME, NOT_ENOUGH)
HISTORY = (
    *("time", "label", "a_version", "b_version", "case", "quantity"),
    *("a", "b", "ratio", "low", "high", "verdict"),
)
# Outcomes of tests in JUnit XML.
_ERRORS = (INVALID, NOT_MEASURED)
_OUTCOMES = {PASSED: "", SLOWER: "failure", UNDECIDED: "skipped"}
_UNITS = {"GAMS": "GAMS", "ns": "ns", "GBps": "GB/s", "GFLOPs": "GFLOP/s"}


def false_verdicts(frame: DataFrame) -> tuple[int, int]:
    """Return the numbers of cases with verdict faster or slower, and with any verdict.

    In a comparison of a side with itself, the first number counts false verdicts.
    """
    verdicts = frame["verdict"]
    return int(verdicts.isin((FASTER, SLOWER)).sum()), int(verdicts.isin(_VERDICTS).sum())


def summary(frame: DataFrame) -> str:
    """Return a line with the number of cases of each verdict and the geometric mean of speeds."""
    verdicts = list(frame["verdict"])
    kinds = [*_VERDICTS, *sorted(set(verdicts) - set(_VERDICTS))]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in kinds if kind in verdicts)
    cases = f"{len(frame)} case{'s' if len(frame) > 1 else ''}: {counts}"
    decided, speed = frame.attrs["speeds"], frame.attrs["speed"]
    if decided < 2:
        return cases
    return (
        f"{cases}; geometric mean of the {decided} with a verdict: B has {speed:.3f} times the "
        "speed of A"
    )


def heading(frame: DataFrame) -> list[str]:
    """Return lines with the options in which the sides differ, and their versions if known."""
    options, versions = frame.attrs["compared"], frame.attrs["versions"]
    lines = [f"compared: {', '.join(options)}"] if options else []
    return lines + ([f"memkern: A {versions[0]}, B {versions[1]}"] if all(versions) else [])


def text(frame: DataFrame, *, gates: bool = False) -> str:
    """Return a comparison as a text table, with summary and remarks below.

    `gates` is whether it has the column gate.
    """
    header, rows = _cells(frame, gates)
    lines = aligned([header, *rows], left=[0, *range(header.index("verdict"), len(header))])
    return "\n".join([*lines, summary(frame), *frame.attrs["remarks"]])


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Return rows of cells as lines with columns, those numbered in `left` flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if k in left else f"{cell:>{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def markdown(frame: DataFrame, *, gates: bool = False) -> str:
    """Return a comparison as a table in Markdown, as `text`."""
    header, rows = _cells(frame, gates)
    rule = ["---", *["---:"] * (len(header) - 2), "---"]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (header, rule, *rows))
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    sentences = [summary(frame), *frame.attrs["remarks"]]
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in sentences)])


def junit(frame: DataFrame) -> bytes:
    """Return a comparison as JUnit XML with one test for each case.

    Invalid and unmeasured cases are errors; of the others, those that are slower by their gate
    are failures, and undecided ones are skipped.
    """
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        suites, "testsuite", name="memkern compare", tests=str(len(frame))
    )
    header, cells = _cells(frame)
    rows = zip(frame["case"], frame["verdict"], frame["gate"], strict=True)
    for row, (case, verdict, found) in enumerate(rows):
        kernel = case.split()[0]
        test = ElementTree.SubElement(suite, "testcase", classname=kernel, name=case)
        details = ", ".join(f"{name} {cell}" for name, cell in zip(header, cells[row], strict=True))
        outcome = "error" if verdict in _ERRORS else _OUTCOMES[found]
        if outcome:
            ElementTree.SubElement(test, outcome, message=verdict).text = details
        else:
            ElementTree.SubElement(test, "system-out").text = details
    counts = Counter(outcome.tag for test in suite for outcome in test)
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.attrib |= {name: str(counts[outcome]) for name, outcome in names.items()}
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"


def append_history(frame: DataFrame, path: str | Path, label: str = "") -> None:
    """Append a comparison to a history: CSV with one line for each case that has values.

    Parameters
    ----------
    frame : DataFrame
        As `memkern.compare` returns it.
    path : path
        Created with a header if it does not exist. ``time`` is when the line was written (UTC),
        ``label`` to ``quantity`` are attributes, ``a`` to ``high`` are numbers.
    label : str
        Attribute of the lines, such as a commit.

    Raises
    ------
    InputError
        The file can't be written, or has other columns.
    """
    target = writable(path)
    has_header = target.exists() and target.stat().st_size > 0
    if has_header:
        first = read(target, 1000).decode(errors="replace").splitlines()[0]
        if first != ",".join(HISTORY):
            raise InputError(
                f"{target} is not a history of comparisons: its first line is {first!r}"
            )
    a_version, b_version = frame.attrs["versions"]
    of_all = {"time": now(), "label": label, "a_version": a_version, "b_version": b_version}
    lines = frame[frame["ratio"].notna()].assign(**of_all)[[*HISTORY]]
    for name in lines.select_dtypes(exclude="number"):
        lines[name] = lines[name].map(escape_formula)
    with writing(target), open(target, "a", encoding="utf-8", newline="") as file:
        file.write(lines.to_csv(index=False, header=not has_header, lineterminator="\n"))
        file.flush()
        os.fsync(file.fileno())


def _cells(frame: DataFrame, gates: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the text table."""
    counted = frame.columns[list(frame.columns).index("least_effect") + 1]
    told = ["verdict", "gate"] if gates else ["verdict"]
    # Rates other than the compared quantity.
    others = [
        (suffix, unit)
        for suffix, unit in _UNITS.items()
        if f"a_{suffix}" in frame
        and f"b_{suffix}" in frame
        and (frame[f"a_{suffix}"].notna() & (frame["quantity"] != unit)).any()
    ]
    header = [
        *("case", "quantity", "A", "B"),
        *(f"{side} {unit}" for _, unit in others for side in "AB"),
        *("B/A", "99 % interval", counted, *told),
    ]
    rows = []
    for _, row in frame.iterrows():
        rates = [
            "" if unit == row["quantity"] else _number(row[f"{side}_{suffix}"])
            for suffix, unit in others
            for side in "ab"
        ]
        found = [str(row[name]) for name in told]
        if needed := row["needed"]:
            found[-1] += f": a verdict needs about {needed} {counted}"
        elif found[-1] not in (FASTER, SLOWER, SAME, PASSED) and row["ratio"] == row["ratio"]:
            found[-1] += ": not judged"
        rows.append(
            [
                *(row["label"], row["quantity"], _number(row["a"]), _number(row["b"])),
                *rates,
                _number(row["ratio"], ".3f"),
                f"[{row['low']:.3f}, {row['high']:.3f}]" if row["low"] == row["low"] else "",
                *(str(row[counted]), *found),
            ]
        )
    return header, rows


def _number(value: float, form: str = ".4g") -> str:
    return "" if value != value else f"{value:{form}}"
