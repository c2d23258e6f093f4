"""The page of the columns of a record."""

from __future__ import annotations

from pathlib import Path

from memkern.spec.columns import COLUMNS, KINDS
from pages.text import cell, code, put, rows

_HEAD = """# Columns of a record

A record is one row for each case and repeat. `memkern columns` prints this list, and `memkern
columns NAME` one column. The name of a column ends with its unit. A missing value means that the
column does not apply to the case, or that the system does not provide the value.

"""


def write(folder: Path) -> list[Path]:
    """Write the page, with a table for each kind of column."""
    parts = [_HEAD]
    for kind, about in KINDS.items():
        parts.append(f"## {kind.capitalize()}\n\n{about[0].upper()}{about[1:]}.\n\n")
        body = [
            [code(c.name), c.type, code(c.unit), cell(c.meaning)]
            for c in COLUMNS.values()
            if c.kind == kind
        ]
        parts.append(rows(["column", "type", "unit", "meaning"], body) + "\n")
    return [put(folder / "columns.md", "".join(parts))]
