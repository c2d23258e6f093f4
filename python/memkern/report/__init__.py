"""Report: one self-contained HTML file with results, machine and published data to compare."""

from __future__ import annotations

import math
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from memkern.errors import InputError
from memkern.files import publish
from memkern.machine.health import DISTURBED
from memkern.models.machine_file import machine_of
from memkern.models.memory import contradictions
from memkern.models.records import processors
from memkern.models.roofline import BESIDE
from memkern.plots import Exhibit, Section
from memkern.plots import sections as registered
from memkern.plots.drawing import in_bytes
from memkern.plots.frames import Records, counted, frame_of, listed
from memkern.plots.predictions import MACHINE
from memkern.plots.style import DOUBLE_IN, encoded
from memkern.results.hosts import host_sentence
from memkern.spec.options import PLACEMENTS

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

__all__ = ["write"]

_MOST_CONTRADICTIONS = 12
# Largest share of disturbed records on a quiet machine.
_QUIET = 0.05
# Widths of a letter and of the gap between two columns in the style sheet.
_LETTER_EM, _GAP_EM = 0.64, 0.8

# Columns of the table of all results; the data file also has those of the families.
_COLUMNS = (
    "platform", "kernel", "pattern", "delta", "primitive", "variant", "isa", "threads", "pages",
    "bandwidth_GBps", "bandwidth_median_GBps", "rate_GAMS", "time_min_s", "ci_relative", "samples",
    "disturbed", "valid",
)  # fmt: skip


class _Table(NamedTuple):
    """Text of a table, its numeric columns, and its minimum width."""

    head: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    width_em: int


class _Shown(NamedTuple):
    """An exhibit, ready for the template: either an image or a table.

    `part` is the part of the page's width that an image fills.
    """

    title: str
    caption: str
    image: str
    part: float
    table: _Table | None


def write(
    records: Records,
    path: str | os.PathLike[str],
    *,
    title: str,
    environment: Mapping[str, Any],
    sections: Sequence[str] | None = None,
    command: str | None = None,
    data: str | os.PathLike[str] | None = None,
    left_out: int = 0,
    machine: str = "",
    beside: str = "",
) -> Path:
    """Write a report of the records.

    Parameters
    ----------
    records : DataFrame or ResultSet
        Own records, of any kernels.
    path : path-like
        Target, which is written atomically.
    title : str
        Heading of the report.
    environment : mapping
        Nested mapping with sections such as machine, os, settings, build and python.
    sections : sequence of str, optional
        Names of `memkern.plots.sections`, in order; by default all that have records.
    command : str, optional
        Command line that repeats the measurement.
    data : path-like, optional
        File of the records, linked relative to the report.
    left_out : int
        Number of cases that were not measured for lack of time, which the report mentions.
    machine : str
        Machine file for the predictions of the ECM model in figures.
    beside : str
        Other activity on the machine at the start of the measurement, for a warning in the report;
        empty if there was none.

    Returns
    -------
    pathlib.Path
        The path written.

    Raises
    ------
    InputError
        There are no records, a section is unknown, records lack a column, the machine file is of
        another machine, or the file can't be written.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    target = Path(path)
    frame = frame_of(records)
    if frame.empty:
        raise InputError("a report needs records, not None")
    frame = frame.assign()  # a copy with its own attributes
    frame.attrs[MACHINE] = machine
    wanted = [registered[name] for name in (registered if sections is None else sections)]
    contents = [section(frame) for section in wanted]
    surroundings = Environment(
        loader=PackageLoader("memkern.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    surroundings.filters["breakable"] = _breakable
    template = surroundings.get_template("report.html.j2")
    version = (environment.get("python") or {}).get("memkern")
    columns = [column for column in _COLUMNS if column in frame]
    if len(_distinct(frame, "platform")) == 1:
        columns.remove("platform")  # it is in the heading
    against = _contradictions(frame)
    shown_sections = [_section(content) for content in contents if content is not None]
    results, failed = _table(frame[columns]), _failed(frame)
    tables = [shown.table for part in shown_sections for shown in part["exhibits"]]
    html = template.render(
        title=title,
        platforms=_distinct(frame, "platform"),
        started=min(_distinct(frame, "started"), default=""),
        sections=shown_sections,
        host=host_sentence(frame.to_dict("records")),
        banners=_banners(frame, against, left_out, beside),
        quality=[*_quality(frame), *_machine_files(frame, machine, processors(records))],
        contradictions=against,
        failed=failed,
        environment=[(name, list(_leaves(part))) for name, part in environment.items() if part],
        results=results,
        widths=sorted({table.width_em for table in (*tables, results, failed) if table}),
        version=version or "",
        command=command or "",
        data=None if data is None else _link(Path(data), target),
    )
    publish({target: html.encode()})
    return target


def _section(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "findings": section.findings,
        "remarks": section.remarks,
        "citation": section.citation,
        "sources": _sources(section.citation),
        "exhibits": [_shown(exhibit) for exhibit in section.exhibits],
    }


def _sources(citation: str) -> list[tuple[str, str]]:
    """Return the DOI and arXiv identifiers in a citation, with their links."""
    doi = r"doi:(?P<doi>10\.[^\s;,]+)"
    return [
        (found[0], f"https://doi.org/{quote(found['doi'])}")
        if found["doi"]
        else (found[0], f"https://arxiv.org/abs/{found['arxiv']}")
        for found in re.finditer(rf"{doi}|arXiv:(?P<arxiv>[0-9.]+[0-9])", citation)
    ]


def _shown(exhibit: Exhibit) -> _Shown:
    from pandas import DataFrame

    if isinstance(exhibit.content, DataFrame):
        return _Shown(exhibit.title, exhibit.caption, "", 0.0, _table(exhibit.content))
    part = exhibit.content.get_figwidth() / DOUBLE_IN
    return _Shown(exhibit.title, exhibit.caption, _image(exhibit.content), part, None)


def _image(fig: Figure) -> str:
    """Return a figure as a data URI, so that the SVG identifiers of two figures do not clash."""
    return f"data:image/svg+xml;base64,{b64encode(encoded(fig, '.svg', 'figure')).decode()}"


def _table(frame: DataFrame) -> _Table:
    """Return a table, transposed if it is numeric and has more columns than rows."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    numeric = [is_numeric_dtype(t) and not is_bool_dtype(t) for t in frame.dtypes]
    head = [str(column) for column in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    if len(head) > len(rows) + 1 > 2 and numeric == [False, *[True] * (len(head) - 1)]:
        head, *rows = map(list, zip(head, *rows, strict=True))
        numeric = [False, *[True] * (len(head) - 1)]
    width_em = 0.0
    for column in zip(head, *rows, strict=True):
        letters = max((len(part) for text in column for part in _parts(text)), default=0)
        width_em += letters * _LETTER_EM + _GAP_EM
    return _Table(head, rows, numeric, math.ceil(width_em))


def _parts(text: str) -> list[str]:
    """Return the parts of a text between which a line may break."""
    words = text.split()
    return [part for word in words for part in re.split(r"(?<=[_:,/])(?=.)|(?<=[a-z]\.)", word)]


def _breakable(text: str) -> Markup:
    """Return text in which lines may also break within names."""
    from markupsafe import Markup

    words = text.split()
    return Markup(" ").join(Markup("<wbr>").join(_parts(word)) for word in words)


def _cell(value: Any) -> str:
    """Return a value as text, '' if it is missing."""
    from pandas import isna

    if isna(value):
        return ""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:#.4g}".rstrip(".")


def _distinct(frame: DataFrame, column: str) -> list[str]:
    return [str(value) for value in frame[column].dropna().unique()] if column in frame else []


def _quality(frame: DataFrame) -> list[str]:
    """Return sentences on validity, disturbance and intervals."""
    sentences = []
    if "valid" in frame:
        failed = int((~frame["valid"].eq(True)).sum())
        sentences.append(
            f"{failed} of {counted(len(frame), 'record')} failed validation; "
            "they are in no figure and in no finding."
            if failed
            else f"All {counted(len(frame), 'record')} passed validation."
        )
    if "validation" in frame:
        kinds = frame["validation"].dropna().value_counts()
        if len(kinds):
            parts = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
            sentences.append(f"Methods of validation: {parts}.")
    if "disturbed" in frame:
        disturbed = int(frame["disturbed"].eq(True).sum())
        sentences.append(
            f"{counted(disturbed, 'record')} {'is' if disturbed == 1 else 'are'} disturbed"
            f"{', drawn with hollow markers and left out of fits' if disturbed else ''}."
        )
    return [*sentences, *_placements(frame), *_samples(frame), *_intervals(frame)]


def _machine_files(frame: DataFrame, machine: str, models: Sequence[str]) -> list[str]:
    """Return the sentences on the machine files of rooflines and of predictions in figures."""
    sources = [name for name in _distinct(frame, "machine_file") if name]
    texts = [f"bandwidths {name} them" if name == BESIDE else name for name in sources]
    found = [f"The rooflines of records are by {listed(texts)}."] if texts else []
    if machine:
        file = machine_of(machine, models)
        found.append(f"Predictions in figures are by the machine file {file.label}.")
    return found


def _contradictions(frame: DataFrame) -> list[str]:
    """Return the contradictions between numbers of this report, at most `_MOST_CONTRADICTIONS`."""
    found = contradictions(frame[frame["valid"].eq(True)] if "valid" in frame else frame)
    more = len(found) - _MOST_CONTRADICTIONS
    return [*found[:_MOST_CONTRADICTIONS], *[f"And {more} more."] * (more > 0)]


def _numbers(frame: DataFrame, column: str) -> Series:
    """Return the numbers in a column; empty if the column is missing."""
    from pandas import Series, to_numeric

    if column not in frame:
        return Series(dtype=float)
    return to_numeric(frame[column], errors="coerce").dropna().astype(float)


def _samples(frame: DataFrame) -> list[str]:
    """Return sentences on disturbed samples, and on the smallest share of a processor or core."""
    sentences = []
    retaken = _numbers(frame, "samples_disturbed")
    if len(retaken):
        sentences.append(
            f"{counted(int(retaken.sum()), 'sample')} {'was' if retaken.sum() == 1 else 'were'} "
            f"disturbed and retaken, beside {_numbers(frame, 'samples').sum():.0f} that count."
        )
    shares = {
        "its processor (cpu_share)": _numbers(frame, "cpu_share"),
        "its core (core_share)": _numbers(frame, "core_share"),
    }
    least = [f"{values.min():.1%} of {of}" for of, values in shares.items() if len(values)]
    if least:
        sentences.append(f"In the worst record a worker had {listed(least)}.")
    return sentences


def _placements(frame: DataFrame) -> list[str]:
    """Return the sentence on records with few placements, and the reasons."""
    placed = _numbers(frame, "placements")
    few = placed[placed < PLACEMENTS]
    if few.empty:
        return []
    wanted = _numbers(frame, "placements_requested").reindex(few.index)
    fewer, lost = int((wanted < PLACEMENTS).sum()), int((wanted >= PLACEMENTS).sum())
    reasons = []
    if fewer:
        reasons.append(f"{fewer} since no more were requested (--quick, --runs or a GPU)")
    if lost:
        reasons.append(f"{lost} since time was short or placements were disturbed")
    return [
        f"{len(few)} of {counted(len(frame), 'record')} "
        f"{'has' if len(few) == 1 else 'have'} fewer than {PLACEMENTS} placements"
        f"{''.join(f', {text}' for text in reasons)}: "
        f"{'its interval is' if len(few) == 1 else 'their intervals are'} less certain."
    ]


# Meaning of the interval of a record, by its column ci_scope.
_SCOPES = {
    "next run": "for the next run",
    "within this run": "within this run only",
    "none": "for nothing: these records print none",
}


def _intervals(frame: DataFrame) -> list[str]:
    """Return sentences on the meaning and the width of the intervals."""
    sentences = []
    if "ci_scope" in frame:
        scopes = frame["ci_scope"].dropna().value_counts()
        parts = [
            f"of {counted(number, 'record')} {_SCOPES.get(str(scope), str(scope))}"
            for scope, number in scopes.items()
        ]
        sentences += [f"The intervals hold, {listed(parts)}."] if parts else []
    widths = {
        "the interval of the shortest time": _numbers(frame, "time_min_ci_relative"),
        "that of the median": _numbers(frame, "ci_relative"),
        "that within the run": _numbers(frame, "within_ci_relative"),
    }
    parts = [
        f"of {what} is {half.median():.2%} of it in the middle record and {half.max():.2%} in the "
        "widest"
        for what, half in widths.items()
        if len(half)
    ]
    return [*sentences, f"Half the width {listed(parts)}."] if parts else sentences


def _banners(frame: DataFrame, against: Sequence[str], left_out: int, beside: str) -> list[str]:
    """Return the warnings at the top of a report."""
    banners = []
    if beside:
        banners.append(f"When measuring began, {beside} ran on this machine, too.")
    disturbed = int(frame["disturbed"].eq(True).sum()) if "disturbed" in frame else 0
    if disturbed > _QUIET * len(frame):
        banners.append(
            f"{disturbed} of {counted(len(frame), 'record')} "
            f"{'is' if disturbed == 1 else 'are'} disturbed, since workers waited for processors: "
            "such a record has no interval, is drawn with hollow markers and counts only where "
            "there is no undisturbed one. Measure again when nothing else runs."
        )
    verdicts = [text for text in _distinct(frame, "doctor") if text.startswith(DISTURBED)]
    if verdicts:
        banners.append(
            f"Before measuring, memkern doctor found this machine {' and '.join(verdicts)}: run it "
            "again, and see what to do."
        )
    if left_out:
        banners.append(
            f"{counted(left_out, 'case')} {'was' if left_out == 1 else 'were'} not measured: the "
            "time of the report did not suffice for three placements."
        )
    if against:
        banners.append("Some numbers contradict each other: see the section on validity.")
    return banners


def _failed(frame: DataFrame) -> _Table | None:
    """Return the table of the records that failed validation, if there are any."""
    if "valid" not in frame or frame["valid"].eq(True).all():
        return None
    columns = ("kernel", "pattern", "variant", "isa", "threads", "validation", "error_max")
    rows = frame[~frame["valid"].eq(True)]
    return _table(rows[[column for column in columns if column in rows]])


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the known values of a nested mapping as dotted name and text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        for item in value:
            yield name, ", ".join(f"{key} {text}" for key, text in _leaves(item))
    elif value is not None:
        yield name, _readable(name, value)


def _readable(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    if name.endswith("_B") and isinstance(value, int) and not isinstance(value, bool):
        return in_bytes(value, 4)
    return _cell(value)


def _link(data: Path, report: Path) -> tuple[str, str]:
    """Return the relative address and the name of the data file."""
    relative = os.path.relpath(data.absolute(), report.absolute().parent)
    return quote(Path(relative).as_posix()), data.name
