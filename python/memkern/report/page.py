"""The page of a report: one self-contained HTML file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memkern.files import publish
from memkern.formats import concat
from memkern.formats.resultset import need_rows
from memkern.models.merit import figures_of_merit
from memkern.models.records import processors
from memkern.plots import Exhibit, Section
from memkern.plots import sections as registered
from memkern.plots import tables as known_tables
from memkern.plots.frames import Records, joined, with_samples
from memkern.plots.predictions import MACHINE
from memkern.report.first import fitness, machine_facts, next_sentence, side_by_side, tiles
from memkern.report.quality import (
    cautions,
    disagreements,
    distinct,
    failed,
    machine_files,
    quality,
    shortened,
)
from memkern.report.sides import Side, comparison, named_apart
from memkern.report.svg import inline
from memkern.report.tables import breakable, leaves, table_of

# Columns of the table of all results; the data file also has those of the families.
_COLUMNS = (
    "platform", "kernel", "pattern", "delta", "primitive", "variant", "isa", "threads", "pages",
    "bandwidth_GBps", "bandwidth_median_GBps", "rate_GAMS", "time_min_s", "ci_relative", "samples",
    "disturbed", "valid",
)  # fmt: skip


def write(  # noqa: PLR0913
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
    first: Sequence[Section] = (),
    machines: Sequence[tuple[str, Records, Mapping[str, Any]]] = (),
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
    first : sequence of Section
        Sections before those of kernels.
    machines : sequence of (str, records, mapping)
        Name, records and environment of each machine of the first page; by default one.

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
    target = Path(path)
    frame = with_samples(records)
    need_rows(frame, "a report needs records, not None")
    frame = frame.assign()  # a copy with its own attributes
    frame.attrs[MACHINE] = machine
    wanted = [registered[name] for name in (registered if sections is None else sections)]
    contents = [*first, *(section(frame) for section in wanted)]
    source = "RECORDS.parquet" if data is None else Path(data).name
    shown = [
        _section(content, number, source)
        for number, content in enumerate(content for content in contents if content is not None)
    ]
    columns = [column for column in _COLUMNS if column in frame]
    if len(distinct(frame, "platform")) == 1:
        columns.remove("platform")  # it is in the heading
    results, wrong = table_of(frame[columns]), failed(frame)
    tables = [exhibit["table"] for part in shown for exhibit in part["exhibits"]]
    shown_machines, sentence = _first_page(machines or [("", frame, environment)])
    against = [sentence for machine in shown_machines for sentence in machine["against"]]
    entries = [one for machine in shown_machines for tile in machine["tiles"] for one in tile]
    verdict = fitness(frame, worse=any(one.word and not one.good for one in entries))
    html = template("report.html.j2").render(
        title=title,
        verdict=verdict,
        host_is_bad=any(kind == "bad" for _, kind in verdict),
        started=min(distinct(frame, "started"), default=""),
        machines=shown_machines,
        side_by_side=side_by_side([machine["tiles"] for machine in shown_machines]),
        next=sentence,
        sections=shown,
        cautions=cautions(frame, left_out, beside),
        quality=[*quality(frame), *machine_files(frame, machine, processors(records))],
        contradictions=shortened(against),
        failed=wrong,
        environment=[(name, list(leaves(part))) for name, part in environment.items() if part],
        results=results,
        widths=sorted({table.width_em for table in (*tables, results, wrong) if table}),
        version=(environment.get("python") or {}).get("memkern") or "",
        command=command or "",
        data=None if data is None else _link(Path(data), target),
    )
    publish({target: html.encode()})
    return target


def write_sides(
    every: Sequence[Side], path: str | os.PathLike[str], *, data: Path, machine: str = ""
) -> Path:
    """Write a report of recorded results, side by side.

    Parameters
    ----------
    every : sequence of Side
        At least one.
    path : path-like
        Target.
    data : Path
        File of the first side's records.
    machine : str
        As for `write`.

    Returns
    -------
    Path
        The path written.

    Raises
    ------
    InputError
        As `write`.
    """
    apart = named_apart(every)
    compared = comparison(every)
    several = len(every) > 1
    name = (every[0].environment.get("machine") or {}).get("model") or every[0].name
    return write(
        concat([side.results for side in apart]),
        path,
        title=joined([side.name for side in every]) if several else f"Data movement on {name}",
        environment={
            f"{side.name}: {part}" if several else part: facts
            for side in every
            for part, facts in side.environment.items()
        },
        data=data,
        machine=machine,
        first=[compared] if compared is not None else [],
        machines=apart,
    )


def template(name: str) -> Any:
    """Return a template of this package by its name."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    surroundings = Environment(
        loader=PackageLoader("memkern.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    surroundings.filters["breakable"] = breakable
    return surroundings.get_template(name)


def _first_page(
    machines: Sequence[tuple[str, Records, Mapping[str, Any]]],
) -> tuple[list[dict[str, Any]], str]:
    """Return the machines of the first page, and the sentence on what to look at next.

    Each has its name, facts, tiles, and the contradictions between its records.
    """
    found, sentences = [], []
    for name, records, environment in machines:
        frame = with_samples(records)
        figures = figures_of_merit(frame)
        rows, against = frame.to_dict("records"), disagreements(frame)
        mine, facts = tiles(figures, environment, rows), machine_facts(rows, environment)
        found.append({"name": name, "facts": facts, "tiles": mine, "against": against})
        sentence = next_sentence(frame, figures, [entry for tile in mine for entry in tile])
        sentences.append(f"{name}: {sentence}" if len(machines) > 1 else sentence)
    return found, " ".join(sentences)


def _section(section: Section, number: int, source: str) -> dict[str, Any]:
    exhibits = [
        _shown(exhibit, f"exhibit-{number}-{position}", source)
        for position, exhibit in enumerate(section.exhibits)
    ]
    links = {exhibit["name"]: exhibit["id"] for exhibit in reversed(exhibits)}
    return {
        "title": section.title,
        "findings": [(text, links.get(getattr(text, "exhibit", ""))) for text in section.findings],
        "remarks": section.remarks,
        "citation": section.citation,
        "sources": _sources(section.citation),
        "exhibits": exhibits,
    }


def _shown(exhibit: Exhibit, name: str, source: str) -> dict[str, Any]:
    """Return what the template needs of an exhibit: a figure as SVG, or else a table."""
    from pandas import DataFrame

    shown: dict[str, Any] = {
        "id": name,
        "name": exhibit.name,
        "title": exhibit.title,
        "caption": exhibit.caption,
        "series": [],  # labels of those that can be hidden
        "table": None,
    }
    if isinstance(exhibit.content, DataFrame):
        table = table_of(exhibit.content)
        # A comparison is not a table of one file's records.
        command = f"memkern table {exhibit.name} {source}" if exhibit.name in known_tables else ""
        return {**shown, "table": table, "data": table.data, "command": command}
    svg, series, data = inline(exhibit.content, name, exhibit.title)
    return {
        **shown,
        "svg": svg,
        "width_in": exhibit.content.get_figwidth(),
        "series": series,
        "data": data,
        "command": f"memkern figure {exhibit.name} {source} -o {exhibit.name}.pdf",
    }


def _sources(citation: str) -> list[tuple[str, str]]:
    """Return the DOI and arXiv identifiers in a citation, with their links."""
    return [
        (found[0], f"https://doi.org/{quote(found['doi'])}")
        if found["doi"]
        else (found[0], f"https://arxiv.org/abs/{found['arxiv']}")
        for found in re.finditer(
            r"doi:(?P<doi>10\.[^\s;,]+)|arXiv:(?P<arxiv>[0-9.]+[0-9])", citation
        )
    ]


def _link(data: Path, report: Path) -> tuple[str, str]:
    """Return the relative address and the name of the data file."""
    relative = os.path.relpath(data.absolute(), report.absolute().parent)
    return quote(Path(relative).as_posix()), data.name
