"""Where a kernel family's figures, tables and report section are found by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from memkern.errors import InputError
from memkern.plots.frames import families, frame_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Exhibit:
    """A figure or a table of a report, with the words that stand below it."""

    title: str
    content: Figure | DataFrame
    caption: str


@dataclass(frozen=True)
class Section:
    """What one kernel family says in a report.

    Attributes
    ----------
    title : str
        Heading.
    findings : tuple of str
        Plain sentences computed from the data, the most important first.
    exhibits : tuple of Exhibit
        Figures and tables in reading order.
    remarks : tuple of str
        What could not be shown, and why.
    citation : str
        Source of the published data that are drawn beside the own.
    """

    title: str
    findings: tuple[str, ...]
    exhibits: tuple[Exhibit, ...]
    remarks: tuple[str, ...] = ()
    citation: str = ""


class Registry(dict[str, Callable[..., R]]):
    """What can be had by name; another name is an `InputError` that lists them."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def __missing__(self, name: object) -> Callable[..., R]:
        """Refuse a name that is not there."""
        raise InputError(f"{self.what} {name!r} is not one of {', '.join(self)}")


figures: Registry[Figure] = Registry("figure")
tables: Registry[DataFrame] = Registry("table")
sections: Registry[Section | None] = Registry("section")
_places: dict[str, int] = {}


def register(
    where: dict[str, Callable[..., R]], name: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enter a function under a name in `figures`, `tables` or `sections`."""

    def enter(function: Callable[P, R]) -> Callable[P, R]:
        if name in where:
            raise KeyError(f"{name!r} is registered already")
        where[name] = function
        return function

    return enter


def section(
    name: str, place: int
) -> Callable[[Callable[[DataFrame], Section | None]], Callable[[DataFrame], Section | None]]:
    """Enter a function in `sections`, which a report goes through by their places."""

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
    exhibits: Sequence[tuple[str, Any, str]],
    citation: str = "",
) -> Section:
    """Return the section of some records, with remarks on what can't be said or drawn of them.

    Parameters
    ----------
    records : DataFrame
        All records of a report.
    title : str
        Heading.
    findings : callable
        Makes the findings of the records.
    exhibits : sequence of (str, callable, str)
        Title, what makes the figure or table of the records, and caption.
    citation : str
        As of `Section`.

    Returns
    -------
    Section
    """
    said: Sequence[str] = ()
    shown, remarks = [], []
    try:
        said = findings(records)
    except InputError as error:
        remarks.append(f"Findings: {error}.")
    for name, function, caption in exhibits:
        try:
            shown.append(Exhibit(name, function(records), caption))
        except InputError as error:
            remarks.append(f"{name}: {error}.")
    return Section(title, tuple(said), tuple(shown), tuple(remarks), citation)


def family_section(
    name: str,
    place: int,
    family: str,
    title: str,
    findings: Callable[[DataFrame], Sequence[str]],
    exhibits: Sequence[tuple[str, Any, str]],
    cited: str = "",
) -> None:
    """Enter the section of one family of kernels; there is none without records of it.

    Parameters
    ----------
    name, place
        As of `section`.
    family : str
        Of whose kernels records must be.
    title, findings, exhibits
        As of `section_of`.
    cited : str
        Published data that are drawn beside the own.
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
    """First line of a function's docstring: its description in a list of names."""
    return (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
