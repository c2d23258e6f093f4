"""Docstrings in numpydoc's sections: taken apart, and completed with passed on parameters."""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """Type and description of a parameter."""

    type: str
    text: str


def sections_of(docstring: str | None) -> dict[str, str]:
    """Return the contents of sections by title; what precedes them has an empty title."""
    head, *sections = re.split(r"(?:^|\n\n)(?=\w[\w ]*\n-+\n)", inspect.cleandoc(docstring or ""))
    parted = (section.split("\n", 2) for section in sections)
    return {"": head, **{title: content for title, _, content in parted}}


def section(title: str, content: str) -> str:
    """Return a section with its heading."""
    return f"{title}\n{'-' * len(title)}\n{content}"


def entries_of(docstring: str | None) -> dict[str, Entry]:
    """Return the entries of the section Parameters by name; several names may share one."""
    found = {}
    for entry in re.split(r"\n+(?=\S)", sections_of(docstring).get("Parameters", "")):
        first, _, text = entry.partition("\n")
        names, _, kind = first.partition(" : ")
        for name in names.split(", "):
            found[name] = Entry(kind.removesuffix("optional").rstrip(", "), textwrap.dedent(text))
    return found


def with_parameters(
    docstring: str | None,
    parameters: Iterable[inspect.Parameter],
    entries: Mapping[str, Entry],
    sources: Iterable[str | None],
    reference: str,
) -> str:
    """Return a docstring in which all parameters of a function are described.

    Parameters
    ----------
    docstring : str, optional
        That of the function, with descriptions of some parameters.
    parameters : iterable of inspect.Parameter
        Those of its signature; neighbours with the same description are listed together.
    entries : mapping
        Descriptions of others, by name.
    sources : iterable of str
        Docstrings of the functions and classes that get the rest. A parameter has the first
        description that is found.
    reference : str
        The paper.
    """
    known = {**entries, **entries_of(docstring)}
    for source in sources:
        known = {**entries_of(source), **known}
    lines = []
    for entry, group in itertools.groupby(
        parameters, lambda p: known.get(p.name, Entry(str(p.annotation), ""))
    ):
        some = list(group)
        names = ", ".join(p.name for p in some)
        lines.append(f"{names} : {entry.type or some[0].annotation}{_default(some)}")
        lines += [textwrap.indent(entry.text, "    ")] if entry.text else []
    own = sections_of(docstring)
    rest = {"Returns": "Case", "Raises": _RAISES, "References": reference, **own}
    parts = [section(title, content) for title, content in rest.items() if title not in _MADE]
    return "\n\n".join([own[""], section("Parameters", "\n".join(lines)), *parts]) + "\n"


_MADE = ("", "Parameters")
_RAISES = "InputError\n    An input or option is unknown, out of range or without effect."


def _default(parameters: list[inspect.Parameter]) -> str:
    """Return the words on the defaults of parameters that share a description."""
    defaults = [p.default for p in parameters]
    if inspect.Parameter.empty in defaults:
        return ""
    if all(default is None for default in defaults):
        return ", optional"
    return f", default {', '.join(dict.fromkeys(map(repr, defaults)))}"
