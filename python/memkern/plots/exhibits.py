"""Figures and tables as declarations.

A declaration is a decorator of the function that selects the records. It creates the exhibit's
function, its documentation, its entry in the lists, and the error for records without the needed
data.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias

from memkern.formats.resultset import need_rows
from memkern.plots.drawing import (
    bytes_axis,
    cache_regions,
    counts_axis,
    curves,
    finish,
    machine_panels,
    named,
)
from memkern.plots.frames import HIGH, LOW, with_ends
from memkern.plots.registry import Origin, origin, register, tables
from memkern.plots.selection import cache_ends, device_cache_ends
from memkern.plots.style import FIGURE_OPTIONS, figure
from memkern.spec.docstrings import section, sections_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

P = ParamSpec("P")
_PANELS = "A panel for each machine, 6.9 in wide, 3.35 in with one panel."
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


# -------------------------------------------------------------------------------------- curves

# Sets the scale and ticks of the x or y axis of a panel, given all values of a figure.
Scale: TypeAlias = "Callable[[Axes, Any], None]"


@dataclass(frozen=True)
class Axis:
    """An axis of a panel: the column that is drawn, its label, and its scale."""

    column: str
    label: str
    scale: Scale


def byte_scale(ax: Axes, values: Any) -> None:
    """Make the x axis a logarithmic axis of sizes, with ticks at powers of two bytes."""
    bytes_axis(ax, 5)


def log_scale(ax: Axes, values: Any) -> None:
    """Make the y axis logarithmic, with margins and a range of at least a factor of five."""
    low = values.min() / 1.25
    ax.set(yscale="log", ylim=(low, max(values.max() * 1.25, 5 * low)))
    counts_axis(ax.yaxis, 12)


def _of_machine(rows: DataFrame, several: bool) -> str:
    """Return the name of the machine of a panel's records, if there are several machines."""
    return named(rows["machine"].iloc[0]) if several else ""


def curve_figure(  # noqa: PLR0913
    name: str,
    *,
    x: Axis,
    y: Axis,
    by: str,
    records: str,
    lack: str = "",
    measure: str = "",
    caches: bool = False,
    marks: Callable[[Axes, DataFrame], None] | None = None,
    title: Callable[[DataFrame, bool], str] = _of_machine,
    legend: int = 4,
    paper: str = "",
    number: str = "",
) -> Callable[[Callable[P, Selection]], Callable[..., Figure]]:
    """Register a figure of curves of the records that a function selects.

    There is a panel for each machine, and a curve for each value of a column, in the order of the
    records.

    Parameters
    ----------
    name : str
    x, y : Axis
    by : str
        The column with a curve for each of its values.
    paper, number : str
        As for `tabulated`.
    records, lack
        As for `documented`. If no record is selected, an error names the missing data.
    measure : str
        The command that measures the missing records.
    caches : bool
        Whether the sizes of the caches are marked along x.
    marks : callable
        Draws additional lines into a panel, given its records.
    title : callable
        Returns the title of a panel, given its records and whether there are several machines.
    legend : int
        Maximum number of columns of the legend.
    """
    returns = _PANELS + " The caches are marked if a ResultSet describes them." * caches

    def enter(select: Callable[P, Selection]) -> Callable[..., Figure]:
        @wraps(select)
        def draw(*args: P.args, **options: P.kwargs) -> Figure:
            frame, notes = select(*args, **options)
            need_rows(frame, f"{lack}: `{measure}` does so")
            names = list(dict.fromkeys(frame[by]))
            fig, cells = machine_panels(frame, 2.5)
            for ax, rows in cells:
                curves(ax, rows, by, names, x.column, y.column)
                if marks is not None:
                    marks(ax, rows)
                x.scale(ax, frame[x.column])
                y.scale(ax, with_ends(frame, y.column)[[y.column, LOW, HIGH]].stack())
                if caches:
                    cache_regions(ax, cache_ends(rows) or device_cache_ends(rows))
                ax.set(xlabel=x.label, ylabel=y.label)
                several = frame["machine"].nunique() > 1
                ax.set_title(title(rows, several), pad=11.0 if caches else 4.0)
            return finish(fig, legend, notes, frame)

        about = {"paper": paper, "number": number, "records": records, "lack": lack}
        return drawn(name, returns, **about)(draw)

    return enter


def drawn(
    name: str, returns: str = _PANELS, *, paper: str = "", number: str = "", **about: Any
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
