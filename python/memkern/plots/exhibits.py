"""Figures and tables as declarations.

A declaration is a decorator of the function that selects the records. It creates the exhibit's
function, its documentation, its entry in the lists, and the error for records without the needed
data.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeAlias

from memkern import reference
from memkern.plots.frames import Records
from memkern.plots.registry import Origin, origin, register, tables
from memkern.plots.style import FIGURE_OPTIONS, figure
from memkern.plots.typenames import DataFrame, Figure
from memkern.spec.docstrings import section, sections_of

P = ParamSpec("P")
PANELS = "A panel for each machine, 6.9 in wide, 3.35 in with one panel."
Selection: TypeAlias = "tuple[DataFrame, list[str]]"
"""Records to show, and sentences on those left out."""


# ------------------------------------------------------------------------------- documentation


def documented(
    function: Callable[..., object],
    result: str,
    returns: str,
    *,
    records: str,
    lack: str = "",
    optional: bool = False,
    of: Origin | None = None,
    options: str = "",
) -> str:
    """Return the documentation of an exhibit in numpydoc's sections.

    Parameters
    ----------
    function : callable
        Its docstring has a title, the options other than the records, and further sections.
    result, returns : str
        Type and description of the returned object.
    records : str
        Description of the records: ``"`amo` kernels"``, or a sentence.
    lack : str
        Condition of an InputError, as the beginning of a sentence.
    optional : bool
        Whether published data are shown without records.
    of : Origin, optional
        The paper's figures or tables that it shows.
    options : str
        Descriptions of further options.
    """
    sections = sections_of(function.__doc__)
    head, own = sections.pop(""), sections.pop("Parameters", "")
    rest = [section(title, content) for title, content in sections.items()]
    if of is not None:
        rest.append(section("References", str(of)))
    kind = "DataFrame, ResultSet or None" if optional else "DataFrame or ResultSet"
    lack = lack or "there is no such record"
    raised = f"{lack[0].upper()}{lack[1:]}, or the records lack a needed column."
    about = f"{records}." if records[:1].isupper() else f"Own records of {records}."
    given = filter(None, (f"records : {kind}", _indented(about), own, options))
    parts = [
        head,
        section("Parameters", "\n".join(given)),
        section("Returns", f"{result}\n{_indented(returns)}"),
        section("Raises", f"InputError\n{_indented(raised)}"),
        *rest,
    ]
    return "\n\n".join(parts) + "\n"


def _indented(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")


# -------------------------------------------------------------------------------------- tables


def table(
    name: str, columns: str, *, integers: str = "", **about: Any
) -> Callable[[Callable[P, Selection]], Callable[P, DataFrame]]:
    """Register a table of some columns of the records that a function selects.

    Parameters
    ----------
    name : str
    columns : str
        The columns, separated by commas, each optionally followed by its meaning in parentheses:
        ``"platform, time_us (the shortest)"``.
    integers : str
        The columns that are integers, separated by commas.
    **about
        As for `tabulated`.
    """
    shown = re.split(r", | and ", re.sub(r" \([^()]*\)", "", columns))
    whole = dict.fromkeys(filter(None, integers.split(", ")), int)

    def enter(select: Callable[P, Selection]) -> Callable[P, DataFrame]:
        @wraps(select)
        def build(*args: P.args, **options: P.kwargs) -> DataFrame:
            frame, _ = select(*args, **options)
            return frame[shown].astype(whole).reset_index(drop=True)

        return tabulated(name, f"Columns {columns}.", **about)(build)

    return enter


def published_table(
    name: str, source: str, columns: str, *, paper: str, number: str
) -> Callable[[Callable[[Records], None]], Callable[..., DataFrame]]:
    """Register a table of published data as they are, documented by an empty function.

    Parameters
    ----------
    name : str
    source : str
        Name of the data in `memkern.reference`.
    columns
        As for `table`.
    paper, number : str
        As for `tabulated`.
    """

    def enter(documented: Callable[[Records], None]) -> Callable[..., DataFrame]:
        @wraps(documented)
        def select(records: Records = None) -> Selection:
            return reference.load(source), []

        about: dict[str, Any] = {"records": "Not used", "optional": True}
        return table(name, columns, paper=paper, number=number, **about)(select)

    return enter


def tabulated(
    name: str, returns: str, *, paper: str = "", number: str = "", **about: Any
) -> Callable[[Callable[P, DataFrame]], Callable[P, DataFrame]]:
    """Register a table that a function builds, and complete its documentation.

    Parameters
    ----------
    name : str
    returns : str
        The columns of the table.
    paper, number : str
        The paper and its table that are shown, such as ``"lavin2020"`` and ``"table 4"``.
    **about
        As for `documented`.
    """
    of = origin(paper, number, about.get("optional", False))

    def enter(build: Callable[P, DataFrame]) -> Callable[P, DataFrame]:
        build.__doc__ = documented(build, "pandas.DataFrame", returns, of=of, **about)
        return register(tables, name, build, of)

    return enter


# ------------------------------------------------------------------------------------- figures


def drawn(
    name: str, returns: str = PANELS, *, paper: str = "", number: str = "", **about: Any
) -> Callable[[Callable[P, Figure]], Callable[..., Figure]]:
    """Register a figure that a function draws, and complete its documentation.

    Parameters
    ----------
    name : str
    returns : str
        The panels of the figure and their width.
    paper, number : str
        As for `tabulated`.
    **about
        As for `documented`.
    """
    of = origin(paper, number, about.get("optional", False))

    def enter(draw: Callable[P, Figure]) -> Callable[..., Figure]:
        kind = "matplotlib.figure.Figure, or `ax` if it is given"
        draw.__doc__ = documented(draw, kind, returns, of=of, options=FIGURE_OPTIONS, **about)
        return figure(name, of)(draw)

    return enter
