"""Registries of figures, tables and sections of a report by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from memkern.checks import unknown
from memkern.errors import InputError
from memkern.plots.frames import families, frame_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Exhibit:
    """A figure or a table of a report.

    Attributes
    ----------
    name : str
        Its name in `figures` or `tables`.
    title : str
    content : Figure or DataFrame
    caption : str
        What it shows, and how to read it on this machine.
    """

    name: str
    title: str
    content: Figure | DataFrame
    caption: str


Caption: TypeAlias = "str | Callable[[DataFrame], str]"
"""A caption, or a function that returns it for the records of a report."""


@dataclass(frozen=True)
class Section:
    """The section of a report on one kernel family.

    Attributes
    ----------
    title : str
        Heading.
    findings : tuple of str
        Sentences computed from the data, the most important first.
    exhibits : tuple of Exhibit
        Figures and tables in reading order.
    remarks : tuple of str
        Reasons for missing findings, figures and tables.
    citation : str
        Source of the published data in figures and tables.
    """

    title: str
    findings: tuple[str, ...]
    exhibits: tuple[Exhibit, ...]
    remarks: tuple[str, ...] = ()
    citation: str = ""


class Registry(dict[str, Callable[..., R]]):
    """Functions by name; an unknown name raises an `InputError` with the nearest names."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def __missing__(self, name: object) -> Callable[..., R]:
        """Refuse an unknown name."""
        raise unknown(name, self.what, self)


figures: Registry[Figure] = Registry("figure")
tables: Registry[DataFrame] = Registry("table")
sections: Registry[Section | None] = Registry("section")
_places: dict[str, int] = {}


def register(
    where: dict[str, Callable[..., R]], name: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function under a name in `figures`, `tables` or `sections`."""

    def enter(function: Callable[P, R]) -> Callable[P, R]:
        if name in where:
            raise KeyError(f"{name!r} is registered already")
        where[name] = function
        return function

    return enter


def section(
    name: str, place: int
) -> Callable[[Callable[[DataFrame], Section | None]], Callable[[DataFrame], Section | None]]:
    """Register a function in `sections`; a report shows sections in the order of `place`."""

    def enter(
        function: Callable[[DataFrame], Section | None],
    ) -> Callable[[DataFrame], Section | None]:
        register(sections, name)(function)
        _places[name] = place
        ordered = sorted(sections.items(), key=lambda item: _places[item[0]])
        sections.clear()
        sections.update(ordered)
        return function

    return enter


def section_of(
    records: DataFrame,
    title: str,
    findings: Callable[[DataFrame], Sequence[str]],
    exhibits: Sequence[tuple[str, Any, Caption]],
    citation: str = "",
) -> Section:
    """Return the section on some records.

    An `InputError` of a finding, figure or table becomes a remark.

    Parameters
    ----------
    records : DataFrame
        All records of a report.
    title : str
        Heading.
    findings : callable
        Returns the findings of the records.
    exhibits : sequence of (str, callable, str or callable)
        Title, function that returns the figure or table of the records, and caption, or a function
        that returns it for the records.
    citation : str
        As for `Section`.

    Returns
    -------
    Section
    """
    found: Sequence[str] = ()
    shown, remarks = [], []
    try:
        found = findings(records)
    except InputError as error:
        remarks.append(f"Findings: {error}.")
    names = {function: name for where in (figures, tables) for name, function in where.items()}
    for heading, function, caption in exhibits:
        try:
            content = function(records)
            text = caption if isinstance(caption, str) else caption(records)
            shown.append(Exhibit(names[function], heading, content, text))
        except InputError as error:
            remarks.append(f"{heading}: {error}.")
    return Section(title, tuple(found), tuple(shown), tuple(remarks), citation)


def family_section(
    name: str,
    place: int,
    family: str,
    title: str,
    findings: Callable[[DataFrame], Sequence[str]],
    exhibits: Sequence[tuple[str, Any, Caption]],
    cited: str = "",
) -> None:
    """Register the section of one family of kernels, for reports with its records.

    Parameters
    ----------
    name, place
        As for `section`.
    family : str
        Name of the family.
    title, findings, exhibits
        As for `section_of`.
    cited : str
        Name of the published data in figures and tables.
    """

    @section(name, place)
    def report_section(records: DataFrame) -> Section | None:
        frame = frame_of(records)
        if family not in families(frame):
            return None
        from memkern import reference

        citation = reference.cite(cited) if cited else ""
        return section_of(frame, title, findings, exhibits, citation)


def describe(function: Callable[..., object]) -> str:
    """Return the first line of a function's docstring, its description in a list."""
    return (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
