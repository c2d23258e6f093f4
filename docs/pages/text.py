"""Text in Markdown: tables, code and files."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

# Letters of the longest text that is no sentence.
_PHRASE = 40


def put(path: Path, text: str) -> Path:
    """Write a page, unless it is there already: Sphinx reads only pages that have changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def code(text: str) -> str:
    """Return a text as code in a cell of a table; nothing for an empty text."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def cell(text: str) -> str:
    """Return plain text as Markdown: signs such as ``*`` and ``<`` escaped, options as code."""
    words = re.split(r"(--[a-z][\w-]*)", text)
    escaped = [re.sub(r"([*_<>\[\]|`$\\])", r"\\\1", word) for word in words[::2]]
    words[::2], words[1::2] = escaped, map(code, words[1::2])
    return "".join(words)


def rows(headings: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table; one whose last column has sentences is of the class ``sentences``."""
    body = list(body)
    lines = [headings, ["---"] * len(headings), *body]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
    sentences = any(len(line[-1]) > _PHRASE for line in body)
    return ":::{rst-class} sentences\n:::\n\n" * sentences + table


def title(family: str) -> str:
    """Return the heading of a family: its name and the line that describes its package."""
    package = importlib.import_module(f"memkern.families.{family}")
    return f"{family}: {(package.__doc__ or '').strip().rstrip('.')}"


def tree(*pages: str, depth: int = 1) -> str:
    """Return the list of the pages below a page."""
    return f":::{{toctree}}\n:maxdepth: {depth}\n\n" + "\n".join(pages) + "\n:::\n"


def restructured(text: str) -> str:
    """Return reStructuredText as a block in Markdown."""
    return f"````{{eval-rst}}\n{text.strip()}\n````\n"


def docstring(text: str) -> str:
    """Return a docstring with numpydoc's sections as a block in Markdown."""
    from sphinx.ext.napoleon import Config, NumpyDocstring  # the tests do without it

    config = Config(napoleon_use_param=False, napoleon_use_rtype=False)
    found = str(NumpyDocstring(text, config)).replace(":returns:", ":Returns:")
    return restructured(
        re.sub(r"^:raises (\w+):", r":Raises: **\1** --", found, flags=re.MULTILINE)
    )
