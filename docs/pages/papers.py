"""The tables of the papers' exhibits, which the page of the papers includes."""

from __future__ import annotations

from pathlib import Path

from memkern.plots import paper_table
from memkern.plots.registry import PAPERS
from pages.text import code, put, rows


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
    return ", ".join(code(command) for command in listed.split(", ") if command)
