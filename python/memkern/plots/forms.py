"""The three forms of figures: curves, dots in rows and heat maps, with their layers as data.

A form is a decorator of the function that selects the records. It has a panel for each value of
some columns, and draws what the columns of the selected records are: measured values, limits,
predictions, ideal lines, regions of caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeAlias

from memkern.formats.resultset import need_rows
from memkern.plots.drawing import (
    HOLLOW,
    MOST_CELLS,
    ROOFLINE_LABEL,
    bytes_axis,
    cache_regions,
    counted_axis,
    counts_axis,
    curve,
    distinct,
    dots,
    finish,
    heat_map,
    label_outside,
    marked_look,
    named,
    panels,
    row_in,
)
from memkern.plots.exhibits import PANELS, drawn
from memkern.plots.frames import HIGH, LOW, concat, extent, with_ends
from memkern.plots.predictions import ECM, ecm_look
from memkern.plots.selection import cache_ends, device_cache_ends
from memkern.plots.style import GREY, Look, log2_axis, tell_lacking
from memkern.plots.typenames import Axes, DataFrame, Figure, Series

P = ParamSpec("P")
HATCHED = "Hatched: from a disturbed record."
LOOK = "look"
"""Column of the looks of curves; without it, they are by the number of the curve."""
LABEL = "curve_label"
"""Column of the labels of curves; without it, they are the values by which curves are distinct."""
QUANTITY = "quantity"
"""Column of the names of quantities, where each has panels and an axis of its own."""
TITLE = "panel"
"""Column of the titles of panels, below the name of the machine if there are several."""
TEXT = "text"
"""Column of the texts beside dots or in cells; without it, they are the values."""


class Shown(NamedTuple):
    """What a figure shows: records, sentences on others, and those on what to measure.

    Attributes
    ----------
    frame : DataFrame
        With columns of the panels, curves and values, and `disturbed`.
    notes : list of str
        Small print.
    lacking : list of str
        Sentences on records that are lacking, each with the remedy (see `tell_lacking`).
    """

    frame: DataFrame
    notes: list[str]
    lacking: Sequence[str] = ()


def ordered(frame: DataFrame, column: str, names: Iterable[Any]) -> DataFrame:
    """Return records with an order of the values of a column: that of curves, series or rows."""
    from pandas import Categorical

    return frame.assign(**{column: Categorical(frame[column], [*names])})


def objects(frame: DataFrame, values: Iterable[object]) -> Series:
    """Return a column of objects such as looks, one for each record."""
    from pandas import Series

    return Series([*values], frame.index, dtype=object)


def quantities(frame: DataFrame, *columns: str) -> DataFrame:
    """Return the rows that have a value of a column, for each column, named in `QUANTITY`."""
    parts = [frame.dropna(subset=c).assign(**{QUANTITY: c}) for c in columns]
    return concat(parts, ignore_index=True)


# ---------------------------------------------------------------------------------------- axes

# Sets the scale, range and ticks of an axis of a panel, given the records of the panel and of the
# figure, and the column.
Scale: TypeAlias = "Callable[[Axes, DataFrame, DataFrame, str], object]"


def byte_ticks(most: int) -> Scale:
    """Return the scale of a logarithmic axis x of sizes, with `most` ticks at powers of two."""
    return lambda ax, *_: bytes_axis(ax, most)


byte_scale = byte_ticks(5)


def count_scale(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Make x a logarithmic axis of counts, such as of workers."""
    counted_axis(ax, rows[column])


def log_scale(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Make y logarithmic, with margins and a range of at least a factor of five in all panels."""
    ends = with_ends(frame, column)[[column, LOW, HIGH]].stack()
    low = ends.min() / 1.25
    ax.set(yscale="log", ylim=(low, max(ends.max() * 1.25, 5 * low)))
    counts_axis(ax.yaxis, 12)


def log_counts(most: int) -> Scale:
    """Return the logarithmic scale of y with its usual range, and at most some ticks at counts."""

    def scale(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
        ax.set_yscale("log")
        counts_axis(ax.yaxis, most)

    return scale


def log_range(room: float, ticks: int = 0, *, alike: bool = True) -> Scale:
    """Return the logarithmic scale of y with room around the values of the figure or of a panel.

    Ticks are at powers of two, or at most `ticks` counts. Panels are `alike` or each of its values.
    """

    def scale(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
        low, high = extent(frame if alike else rows, column)
        ax.set_yscale("log", base=10 if ticks else 2)
        ax.set_ylim(low / room, high * room)
        if ticks:
            counts_axis(ax.yaxis, ticks)
        else:
            log2_axis(ax.yaxis)

    return scale


def from_zero(
    *limits: str, room: float = 1.08, least: float = 0.0, most: float = math.inf
) -> Scale:
    """Return the scale of y from zero to the highest value of a panel or of some of its columns.

    Its end is at least `least`, and limits are shown up to `most` times the highest value.
    """

    def scale(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
        top = extent(rows, column)[1]
        shown = extent(rows, column, *(name for name in limits if name in rows))[1]
        ax.set_ylim(0, room * max(min(shown, most * top), least))

    return scale


def log2_scales(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Make both axes logarithmic, with ticks at powers of two."""
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    log2_axis(ax.xaxis)
    log2_axis(ax.yaxis)


def as_drawn(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Leave an axis as it is."""


@dataclass(frozen=True)
class Axis:
    """An axis of a panel: the column that is drawn, its label, and its scale."""

    column: str
    label: str
    scale: Scale = as_drawn


# -------------------------------------------------------------------------------------- layers


@dataclass(frozen=True)
class Panel:
    """A panel to draw in: its axes, its records, those of the figure, and its columns x and y."""

    ax: Axes
    rows: DataFrame
    frame: DataFrame
    x: str
    y: str


Layer: TypeAlias = "Callable[[Panel], None]"


@dataclass(frozen=True)
class OfEach:
    """What is drawn of each curve or series of a panel.

    Attributes
    ----------
    by : str
        The column whose values are curves and, without a column `LABEL`, their labels.
    look : callable
        Returns the look of a curve by its number, unless the records have a column `LOOK`.
    """

    by: str
    look: Callable[[int], Look] = marked_look

    def __call__(self, panel: Panel) -> None:
        """Draw it for all that have records in the panel."""
        for number, name in enumerate(distinct(panel.frame[self.by])):
            mine = panel.rows[panel.rows[self.by] == name]
            if len(mine):
                look = mine[LOOK].iloc[0] if LOOK in mine else self.look(number)
                self.draw(panel, mine, look, mine[LABEL].iloc[0] if LABEL in mine else str(name))

    def draw(self, panel: Panel, rows: DataFrame, look: Look, name: str) -> None:
        """Draw it for one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Measured(OfEach):
    """A curve for each value of a column, with intervals; disturbed records are hollow.

    Attributes
    ----------
    by, look
        As for `OfEach`.
    along : str
        The column along which a curve goes, by default that of x.
    """

    along: str = ""

    def draw(self, panel: Panel, rows: DataFrame, look: Look, name: str) -> None:
        """Draw a curve."""
        curve(panel.ax, rows, panel.x, panel.y, look, name, self.along)


@dataclass(frozen=True)
class Limit:
    """A dashed line of the finite limits of each curve, such as rooflines.

    Attributes
    ----------
    by, look
        As for `OfEach`.
    column, label : str
    """

    by: str
    column: str
    label: str
    look: Callable[[int], Look] = marked_look

    def __call__(self, panel: Panel) -> None:
        """Draw the lines."""
        rows, names = panel.rows, distinct(panel.frame[self.by])
        finite = rows[rows[self.column] < math.inf].sort_values(panel.x)
        on = 3.0 if self.label == ROOFLINE_LABEL else 1.2
        for number, name in enumerate(names):
            mine = finite[finite[self.by] == name]
            # Shifted dashes keep equal limits of several names visible.
            dashes = (on * number, (on, on * max(1, len(names) - 1)))
            how = self.look(number)._replace(marker="", linestyle=dashes, linewidth=0.8, zorder=2.0)
            panel.ax.plot(mine[panel.x], mine[self.column], label=f"_{self.label}", **how._asdict())
        if len(finite):
            panel.ax.plot(
                [], [], label=self.label, color=GREY, linestyle=(0, (on, on)), linewidth=0.8
            )


@dataclass(frozen=True)
class Predicted(OfEach):
    """A line of the predictions of each curve, in the column `ecm`."""

    def draw(self, panel: Panel, rows: DataFrame, look: Look, name: str) -> None:
        """Draw a line, and its entry of the legend."""
        known = rows.dropna(subset=["ecm"]).sort_values(panel.x)
        if len(known):
            panel.ax.plot(known[panel.x], known["ecm"], label="_ecm", **ecm_look(look)._asdict())
            panel.ax.plot([], [], label=ECM, **ecm_look(look)._replace(color=GREY)._asdict())


@dataclass(frozen=True)
class Ideal:
    """A thin line of values that all curves of a panel have in common."""

    column: str
    label: str = "ideal"

    def __call__(self, panel: Panel) -> None:
        """Draw the line."""
        rows = panel.rows.dropna(subset=[self.column]).drop_duplicates(panel.x).sort_values(panel.x)
        if len(rows):
            panel.ax.plot(
                rows[panel.x],
                rows[self.column],
                label=self.label,
                color=GREY,
                linewidth=0.7,
                zorder=2,
            )


@dataclass(frozen=True)
class Level:
    """A line across the panel at a number or at the highest value of a column, or `upright`."""

    at: str | float
    label: str = "_level"
    dashes: Any = "-"
    colour: str = GREY
    upright: bool = False

    def __call__(self, panel: Panel) -> None:
        """Draw the line."""
        value = panel.rows[self.at].max() if isinstance(self.at, str) else self.at
        if value == value:
            draw = panel.ax.axvline if self.upright else panel.ax.axhline
            how: dict[str, Any] = {"color": self.colour, "linewidth": 0.9, "zorder": 1.5}
            draw(value, linestyle=self.dashes, label=self.label, **how)


# --------------------------------------------------------------------------------------- forms


def machine_title(rows: DataFrame, several: bool) -> str:
    """Return the machine of a panel's records, if there are several, and their `TITLE`."""
    own = [str(rows[TITLE].iloc[0])] if TITLE in rows else []
    names = [named(rows["machine"].iloc[0], 20 if own else 32)] if several else []
    return "\n".join(names + own)


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the forms have in common.

    Attributes
    ----------
    name : str
    records, lack, optional, paper, number
        As for `memkern.plots.exhibits.drawn`. If no record is selected, an error has `lack`.
    measure : str
        The command that measures the missing records.
    returns : str
        The panels of the figure, and their width.
    panels : tuple of str
        Columns with a panel for each of their values, the first one first.
    sort : bool
        Whether panels are in the order of the values, after those of the first column.
    columns : int or callable
        Most panels in a row, or what returns them, given the records of each panel.
    shared : bool
        Whether all panels have the same ends of their axes, with the label of y on the left.
    height : float
        Height of a panel in inches, or what is added to the height of its rows.
    title : callable
        Returns the title of a panel, given its records and whether there are several machines.
    legend : int
        Most columns of the legend; 0 for none.
    remark : str
        Small print if there are disturbed records.
    beside : {"center", "left"}
        Where titles are.
    """

    name: str
    records: str
    lack: str = ""
    measure: str = ""
    optional: bool = False
    paper: str = ""
    number: str = ""
    returns: str = PANELS
    panels: tuple[str, ...] = ("machine",)
    sort: bool = False
    columns: int | Callable[[Sequence[DataFrame]], int] = 2
    shared: bool = False
    height: float = 2.5
    title: Callable[[DataFrame, bool], str] = machine_title
    legend: int = 4
    remark: str = HOLLOW
    beside: Literal["center", "left"] = "center"
    caches = False  # an attribute of `Curves`

    def __call__(
        self, select: Callable[P, tuple[DataFrame, list[str]] | Shown]
    ) -> Callable[..., Figure]:
        """Register the figure of the records that a function selects."""

        @wraps(select)
        def draw(*args: P.args, **options: P.kwargs) -> Figure:
            shown = Shown(*select(*args, **options))
            does_so = f"{self.lack}: `{self.measure}` does so"
            need_rows(shown.frame, does_so if self.measure else "no record is left to draw")
            return self.drawn(shown)

        about = {"records": self.records, "lack": self.lack, "optional": self.optional}
        return drawn(self.name, self.returns, paper=self.paper, number=self.number, **about)(draw)

    def drawn(self, shown: Shown) -> Figure:
        """Return the figure."""
        frame, parts = shown.frame, [shown.frame]
        for number, column in enumerate(self.panels):
            how: dict[str, Any] = {"sort": self.sort and number > 0, "dropna": False}
            parts = [rows for part in parts for _, rows in part.groupby(column, **how)]
        columns = self.columns if isinstance(self.columns, int) else self.columns(parts)
        fig, axes = panels(
            len(parts),
            columns,
            self.height_of(frame, parts),
            sharex=self.shared,
            sharey=self.shared,
        )
        several = "machine" in self.panels and frame["machine"].nunique() > 1
        for ax, rows in zip(axes, parts, strict=True):
            pad = 11.0 if self.caches else 4.0
            ax.set_title(self.title(rows, several), loc=self.beside, pad=pad)
            self.panel(ax, rows, frame)
        tell_lacking(fig, shown.lacking)
        return finish(fig, self.legend, shown.notes, frame, self.remark)

    def height_of(self, frame: DataFrame, parts: Sequence[DataFrame]) -> float:
        """Return the height of a panel in inches."""
        return self.height

    def panel(self, ax: Axes, rows: DataFrame, frame: DataFrame) -> None:
        """Draw a panel."""
        raise NotImplementedError


def _of_quantity(axis: Axis | Mapping[str, Axis], rows: DataFrame) -> Axis:
    return axis if isinstance(axis, Axis) else axis[rows[QUANTITY].iloc[0]]


def known_caches(rows: DataFrame) -> tuple[Sequence[tuple[str, float]], str]:
    """Return names and sizes of the caches of a machine or a GPU, and what is beyond."""
    return cache_ends(rows) or device_cache_ends(rows), "memory"


@dataclass(frozen=True, kw_only=True)
class Curves(Form):
    """Curves over x.

    Attributes
    ----------
    x, y : Axis, or mapping of str to Axis
        By the quantity of a panel, if there are several.
    layers : tuple of callable
        What is drawn, in this order, each given the `Panel`.
    marks : tuple of callable
        What is drawn when the axes have their scales.
    caches : bool
        Whether the sizes of the caches are marked along x.
    regions : callable
        Returns names and ends of what is marked in their place, and what is beyond.
    outside : bool
        Whether x is labelled below the last row of panels alone, and y at the left of each row.
    """

    x: Axis | Mapping[str, Axis]
    y: Axis | Mapping[str, Axis]
    layers: tuple[Layer, ...]
    marks: tuple[Layer, ...] = ()
    caches: bool = False
    regions: Callable[[DataFrame], tuple[Sequence[tuple[str, float]], str]] = known_caches
    outside: bool = False

    def panel(self, ax: Axes, rows: DataFrame, frame: DataFrame) -> None:
        """Draw the layers."""
        x, y = (_of_quantity(axis, rows) for axis in (self.x, self.y))
        panel = Panel(ax, rows, frame, x.column, y.column)
        for layer in self.layers:
            layer(panel)
        for axis in (x, y):
            axis.scale(ax, rows, frame, axis.column)
        if self.caches:
            cache_regions(ax, *self.regions(rows))
        for mark in self.marks:
            mark(panel)
        if self.shared or self.outside:
            label_outside([ax], x.label, y.label)
        else:
            ax.set(xlabel=x.label, ylabel=y.label)


@dataclass(frozen=True, kw_only=True)
class Dots(Form):
    """Values in the rows of a panel, named in the column ``row``.

    Attributes
    ----------
    value : Axis, or mapping of str to Axis
        By the quantity of a panel, if there are several.
    by : str
        The column with a series for each of its values.
    look : callable
        Returns the look of a series by its number.
    marks : tuple of (str, str, str)
        Labels, columns and markers of further values of a row, such as limits.
    around : tuple of float
        Values that the axis shows.
    layers : tuple of callable
        What else is drawn, each given the `Panel`, whose y are rows.
    least : int
        Number of series for which rows have room at least.
    """

    value: Axis | Mapping[str, Axis]
    by: str
    look: Callable[[int], Look] = marked_look
    marks: tuple[tuple[str, str, str], ...] = ()
    around: tuple[float, ...] = ()
    layers: tuple[Layer, ...] = ()
    height: float = 0.0
    least: int = 1
    legend: int = 5

    def height_of(self, frame: DataFrame, parts: Sequence[DataFrame]) -> float:
        """Return the height of the rows of the panel with the most."""
        series = max(self.least, len({name for rows in parts for name in rows[self.by]}))
        return row_in(max(rows["row"].nunique() for rows in parts), series) + self.height

    def panel(self, ax: Axes, rows: DataFrame, frame: DataFrame) -> None:
        """Draw the rows."""
        value = _of_quantity(self.value, rows)
        alike = frame[frame[QUANTITY] == rows[QUANTITY].iloc[0]] if QUANTITY in frame else frame
        limits = [column for _, column, _ in self.marks if column in alike]
        low, high = extent(alike, value.column, *limits)
        looks = {name: self.look(n) for n, name in enumerate(distinct(frame[self.by]))}
        ends = min([low, *self.around]), max([high, *self.around])
        dots(ax, rows, self.by, looks, value.column, ends, self.marks)
        for layer in self.layers:
            layer(Panel(ax, rows, frame, value.column, "row"))
        ax.set_xlabel(value.label)


@dataclass(frozen=True, kw_only=True)
class HeatMap(Form):
    """Values of pairs by colour, with the numbers where there are few.

    Attributes
    ----------
    rows, by : Axis
        Of the rows and of the columns, which are in the order of their values, or of the column
        with ``_place`` behind its name.
    value : Axis, or mapping of str to Axis
        By the quantity of a panel, if there are several.
    ends : (float, float)
        Values that the colours comprise.
    row_height : float
        What each row of cells adds to the height of a panel, up to `MOST_CELLS` rows of numbers.
    """

    rows: Axis
    by: Axis
    value: Axis | Mapping[str, Axis]
    ends: tuple[float, float] = (0.0, 0.0)
    row_height: float = 0.0
    remark: str = HATCHED

    def height_of(self, frame: DataFrame, parts: Sequence[DataFrame]) -> float:
        """Return the height of a panel in inches."""
        rows = frame[self.rows.column]
        shown = rows.nunique() if isinstance(rows.iloc[0], str) else min(rows.nunique(), MOST_CELLS)
        return self.height + self.row_height * shown

    def panel(self, ax: Axes, rows: DataFrame, frame: DataFrame) -> None:
        """Draw the cells."""
        value = _of_quantity(self.value, rows)
        cells = rows.set_index([self.rows.column, self.by.column])
        hatched = cells.index[cells["disturbed"]] if self.remark == HATCHED else ()
        texts: Any = cells[TEXT].to_dict() if TEXT in cells else None
        values: Any = cells[value.column].to_dict()
        names = [_sorted_names(rows, axis.column) for axis in (self.rows, self.by)]
        heat_map(ax, values, value.label, names, texts=texts, ends=self.ends, hatched=hatched)
        ax.set(xlabel=self.by.label, ylabel=self.rows.label)


def _sorted_names(rows: DataFrame, column: str) -> list[Any]:
    """Return the values of a column in order, that of their places if these have a column."""
    place = f"{column}_place"
    return rows.sort_values(place if place in rows else column)[column].unique().tolist()
