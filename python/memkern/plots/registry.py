"""Registries of figures, tables and sections of a report by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

from memkern.checks import unknown
from memkern.errors import InputError
from memkern.plots.frames import families, frame_of
from memkern.plots.typenames import DataFrame, Figure

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
    """Functions by name; an unknown name raises an `InputError` with the nearest names.

    Attributes
    ----------
    what : str
        What the functions make.
    origins : dict of str to Origin
        Origins of those that show figures or tables of papers, by name.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.origins: dict[str, Origin] = {}

    def __missing__(self, name: object) -> Callable[..., R]:
        """Refuse an unknown name."""
        raise unknown(name, self.what, self)


@dataclass(frozen=True)
class Paper:
    """A paper whose figures and tables are drawn.

    Attributes
    ----------
    source : str
        Authors and year.
    title : str
    exhibits : tuple of str
        Its figures and tables, in the order of `memkern table papers`.
    """

    source: str
    title: str
    exhibits: tuple[str, ...]


def _numbered(figures: int, *tables: str) -> tuple[str, ...]:
    return (*(f"figure {n}" for n in range(1, figures + 1)), *(f"table {n}" for n in tables))


PAPERS = {
    "alappat2021": Paper(
        "Alappat et al. 2021",
        "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
        _numbered(25, *"123456"),
    ),
    "beebe2022-circustent": Paper(
        "Beebe et al. 2022, slides",
        "CircusTent: A Tool for Understanding the Performance of Atomic Memory Operations",
        (
            "chart of atomics in GAPBS",
            "chart of remote atomics",
            "table of atomics per iteration",
            "runs of RAND_ADD",
        ),
    ),
    "beebe2022-raiderstream": Paper(
        "Beebe et al. 2022",
        "RaiderSTREAM: Adapting the STREAM Benchmark to Modern HPC Systems",
        _numbered(8, "I", "II"),
    ),
    "chalmers2020": Paper(
        "Chalmers and Warburton 2020",
        "Portable high-order finite element kernels I: Streaming Operations",
        _numbered(7, *"123"),
    ),
    "lavin2020": Paper(
        "Lavin et al., MEMSYS 2020",
        "Evaluating Gather and Scatter Performance on CPUs and GPUs",
        (*_numbered(9, *"12345"), "insight 5 of section 5.4.2"),
    ),
}
"""Papers by name. Where a text has no numbers, its figures are counted by their captions."""


@dataclass(frozen=True)
class Origin:
    """The figures or tables of a paper that a figure or table of this package shows.

    Attributes
    ----------
    paper : str
        Name in `PAPERS`.
    numbers : tuple of str
        Figures and tables as in `Paper.exhibits`.
    published : bool
        Whether published values are shown without own records.
    """

    paper: str
    numbers: tuple[str, ...]
    published: bool

    def __str__(self) -> str:
        """Return the citation."""
        return f"{PAPERS[self.paper].source}, {', '.join(self.numbers)}."


def origin(paper: str, number: str, published: bool) -> Origin | None:
    """Return the origin for the name of a paper and a text such as ``"figure 1, 2"``.

    Without a paper there is none.
    """
    if not paper:
        return None
    kind, _, rest = number.partition(" ")
    numbers = [f"{kind} {each}" for each in rest.split(", ")]
    if wrong := [each for each in numbers if each not in PAPERS[paper].exhibits]:
        raise KeyError(f"{paper} has no {wrong[0]}")
    return Origin(paper, tuple(numbers), published)


figures: Registry[Figure] = Registry("figure")
tables: Registry[DataFrame] = Registry("table")
sections: Registry[Section | None] = Registry("section")
_positions: dict[str, int] = {}


def register(
    where: Registry[R], name: str, function: Callable[P, R], of: Origin | None = None
) -> Callable[P, R]:
    """Register a function under a name in `figures`, `tables` or `sections`, and return it."""
    if name in where:
        raise KeyError(f"{name!r} is registered already")
    where[name] = function
    if of is not None:
        where.origins[name] = of
    return function


def of_paper(where: Registry[R], paper: str) -> dict[str, Callable[..., R]]:
    """Return the figures or tables that show those of a paper, by name in the paper's order.

    Raises
    ------
    InputError
        The paper is unknown.
    """
    if paper not in PAPERS:
        raise unknown(paper, "paper", PAPERS)
    order = PAPERS[paper].exhibits
    mine = {name: origin for name, origin in where.origins.items() if origin.paper == paper}
    names = sorted(mine, key=lambda name: (order.index(mine[name].numbers[0]), name))
    return {name: where[name] for name in names}


def section(
    name: str, order: int
) -> Callable[[Callable[[DataFrame], Section | None]], Callable[[DataFrame], Section | None]]:
    """Register a function in `sections`; a report shows sections in the order of `order`."""

    def enter(
        function: Callable[[DataFrame], Section | None],
    ) -> Callable[[DataFrame], Section | None]:
        register(sections, name, function)
        _positions[name] = order
        ordered = sorted(sections.items(), key=lambda item: _positions[item[0]])
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
    rare: Collection[Callable[..., object]] = (),
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
    rare : collection of callable
        Those of `exhibits` that need records which reports seldom have, such as of counters or of
        several ranks: without them there is no remark.

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
            if function not in rare:
                remarks.append(f"{heading}: {error}.")
    return Section(title, tuple(found), tuple(shown), tuple(remarks), citation)


def family_section(
    name: str,
    order: int,
    family: str,
    title: str,
    findings: Callable[[DataFrame], Sequence[str]],
    exhibits: Sequence[tuple[str, Any, Caption]],
    cited: str = "",
    rare: Collection[Callable[..., object]] = (),
) -> None:
    """Register the section of one family of kernels, for reports with its records.

    Parameters
    ----------
    name, place
        As for `section`.
    family : str
        Name of the family.
    title, findings, exhibits, rare
        As for `section_of`.
    cited : str
        Name of the published data in figures and tables.
    """

    @section(name, order)
    def report_section(records: DataFrame) -> Section | None:
        frame = frame_of(records)
        if family not in families(frame):
            return None
        from memkern import reference

        citation = reference.cite(cited) if cited else ""
        return section_of(frame, title, findings, exhibits, citation, rare)


def describe(function: Callable[..., object]) -> str:
    """Return the first line of a function's docstring, its description in a list."""
    return (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
