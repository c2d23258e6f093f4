"""The options of all cases in the reference of Python: described once, not with each function."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from memkern.spec.docstrings import section, sections_of
from memkern.spec.options import Knobs, Stop

SHARED = {field.name for options in (Knobs, Stop) for field in dataclasses.fields(options)}

_REST = """**options
    Those of all cases: how it is run, as in :py:class:`memkern.Knobs`, and when sampling stops, as
    in :py:class:`memkern.Stop`."""


def shorten_docstring(_app: Any, _what: str, _name: str, found: Any, *rest: Any) -> None:
    """Replace the options of all cases by one entry, in the lines of a docstring of numpydoc."""
    if _shares(found):
        lines = rest[-1]
        lines[:] = without_shared("\n".join(lines)).split("\n")


def shorten_signature(_app: Any, _what: str, _name: str, found: Any, *rest: Any) -> Any:
    """Return a signature with ``**options`` for the options of all cases; None for another one."""
    if not _shares(found):
        return None
    signature = inspect.signature(found)
    kept = [p for p in signature.parameters.values() if p.name not in SHARED]
    named = inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in (*kept, named)]
    short = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return str(short), rest[-1]


def without_shared(docstring: str | None) -> str:
    """Return a docstring without the entries of options that all cases have."""
    sections = sections_of(docstring)
    head = sections.pop("")
    entries = re.split(r"\n+(?=\S)", sections["Parameters"])
    kept = [entry for entry in entries if not set(_names(entry)) <= SHARED]
    sections["Parameters"] = "\n".join([*kept, _REST])
    return "\n\n".join([head, *(section(*each) for each in sections.items())]) + "\n"


def _names(entry: str) -> list[str]:
    return entry.partition("\n")[0].partition(" : ")[0].split(", ")


def _shares(found: Any) -> bool:
    """Return whether an object is a function that has all of these options."""
    return inspect.isfunction(found) and set(inspect.signature(found).parameters) >= SHARED
