"""The tables of the papers' exhibits, which the page of the papers includes."""

from __future__ import annotations

from pathlib import Path

from memkern.plots import figures, paper_table, tables
from memkern.plots.registry import PAPERS
from pages.text import code, put, rows

GALLERY = {"figure": figures, "table": tables}


def write(folder: Path) -> list[Path]:
    """Write a section for each paper."""
    parts = []
    for name, paper in PAPERS.items():
        body = [
            [row.exhibit, _commands(row.shown_by), row.status, row.remark]
            for row in paper_table(paper=name).itertuples()
        ]
        table = rows(["exhibit", "shown by `memkern`", "status", "remark"], body)
        parts.append(f"## `{name}`: {paper.source}, {paper.title}\n\n{table}\n")
    return [put(folder / "papers.inc", "".join(parts))]


def _commands(listed: str) -> str:
    """Return the commands, with links to the figures and tables in the gallery."""
    commands = [command for command in listed.split(", ") if command]
    links = {f"{kind} {name}" for kind, known in GALLERY.items() for name in known}
    return ", ".join(
        f"[{code(command)}](#{command.replace(' ', '-')})" if command in links else code(command)
        for command in commands
    )
