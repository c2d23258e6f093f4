"""The gallery of figures, and the tables, by the family whose records they show."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib

from memkern.plots import describe, figures, tables
from memkern.plots.style import COLUMN_IN, FIGURE_OPTIONS
from memkern.spec.docstrings import section
from pages.drawn import drawn
from pages.text import cell, code, docstring, put, rows, title, tree

SEVERAL = "several"
"""Name of the page of what shows several families, or belongs to none."""

_HEAD = """# Figures and tables

`memkern figure NAME FILE... -o NAME.pdf` draws a figure from recorded results, `memkern table NAME
FILE...` prints a table, and `--list` lists both. From Python, `mk.plots.figures["NAME"](results)`
returns the figure of matplotlib, and `mk.plots.save` writes it.

In all figures, a hollow marker is a record that was `disturbed`, and the sentences below a figure
name what was left out, and why. Besides its own options, each function of a figure has these:

{options}

"""

Item: TypeAlias = "tuple[str, str, Callable[..., Any]]"
"""``figure`` or ``table``, its name and its function."""


def write(folder: Path) -> list[Path]:
    """Write the gallery: an overview, a page for each family, and the pictures."""
    matplotlib.use("agg")
    place = folder / "figures"
    place.mkdir(parents=True, exist_ok=True)
    pages: dict[str, list[Item]] = {}
    for kind, registry in (("figure", figures), ("table", tables)):
        for name, function in registry.items():
            pages.setdefault(_family(function), []).append((kind, name, function))
    head = _HEAD.format(options=docstring(section("Parameters", FIGURE_OPTIONS)))
    overview = [head, tree(*sorted(pages))]
    overview += [_listing(page, pages[page]) for page in sorted(pages)]
    made = [put(place / "index.md", "".join(overview))]
    # Most of the time of a build is that of drawing.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
        pictures = dict(zip(figures, pool.map(partial(_picture, place), figures), strict=True))
    for page, items in pages.items():
        text = f"# {_title(page)}\n\n" + "".join(_section(item, pictures) for item in items)
        made.append(put(place / f"{page}.md", text))
    return [*made, *place.glob("*.png")]


def _title(page: str) -> str:
    return "Several families" if page == SEVERAL else title(page)


def _listing(page: str, items: list[Item]) -> str:
    body = [
        [f"[{code(name)}](#{kind}-{name})", kind, cell(describe(function))]
        for kind, name, function in items
    ]
    return f"\n## {_title(page)}\n\n{rows(['name', 'kind', 'what it shows'], body)}"


def _family(function: Callable[..., Any]) -> str:
    words = function.__module__.split(".")
    return words[2] if words[1] == "families" and words[2] != "streaming" else SEVERAL


def _section(item: Item, pictures: Mapping[str, str]) -> str:
    """Return the section of a figure or table: command, picture and documentation."""
    kind, name, function = item
    target = f" -o {name}.pdf" if kind == "figure" else ""
    command = f"```text\nmemkern {kind} {name} FILE...{target}\n```\n\n"
    picture = pictures[name] if kind == "figure" else ""
    text = docstring((inspect.getdoc(function) or "").replace(f"\n{FIGURE_OPTIONS}", ""))
    return f"({kind}-{name})=\n## {kind.capitalize()} {code(name)}\n\n{command}{picture}{text}\n"


def _picture(place: Path, name: str) -> str:
    """Write the picture of a figure, and return the lines that show it."""
    figure, about = drawn(name)
    figure.savefig(place / f"{name}.png", dpi=160, metadata={"Software": None})
    kind = "figure wide" if figure.get_figwidth() > COLUMN_IN else "figure"
    image = f"```{{image}} {name}.png\n:alt: figure {name}\n:class: {kind}\n```"
    return f":::{{container}} picture\n{image}\n:::\n\n*{about}*\n\n"
