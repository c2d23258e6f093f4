"""Parts that figures share: panels, legends, axes, curves, dots in rows, sizes of caches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from memkern.machine.environment import machine_label
from memkern.plots.frames import HIGH, LOW, three_figures, with_ends
from memkern.plots.style import (
    BELOW,
    COLUMN_IN,
    DOUBLE_IN,
    GREY,
    INTERVAL,
    NOTE_SIZE,
    GivenAxes,
    Look,
    given,
    log2_axis,
    new_figure,
    note,
    other_look,
    own_look,
    plain,
    shifted,
)
from memkern.plots.typenames import Artist, Axes, Axis, DataFrame, Figure, Series

NT_DASHES: Any = (0, (3, 1.2))

_COLOURS = [look.color for look in (own_look(0), own_look(1), *map(other_look, range(6)))]
MOST_LINES = len(_COLOURS)
ROOFLINE_LABEL = "roofline"
_MARKERS = "os^DvPX*"
_DIAMOND = _MARKERS.index("D")
_LABEL_IN = 0.38  # height of the ticks and the label of x
_ROW_IN, _LINE_IN = 0.14, 0.1  # height of a row of a legend and of a line of small print
_ROOM = 2  # rows and lines for which the height of a figure has room
MOST_CELLS = 8  # in a row or column of a heat map with numbers
_LETTERS = 60  # of the names of its columns, if they are beside each other
SPREAD = "_spread"
"""Label of bars and bands that are something else than intervals for the next run."""
_MOST_BARS = 12  # of a line; more points have a band


def distinct(column: Series) -> list[Any]:
    """Return the values of a column once each, as `ordered` or in the order of the records."""
    found = dict.fromkeys(column)
    known = column.cat.categories if hasattr(column, "cat") else found
    return [name for name in known if name in found]


class Drawn(NamedTuple):
    """The records of the markers of a line, for a figure's tooltips and data."""

    label: str
    records: DataFrame
    x: str
    y: str


def mark(artist: Artist, drawn: Drawn) -> None:
    """Attach its records to a line; matplotlib has no attribute for them."""
    artist.memkern = drawn  # type: ignore[attr-defined]


def marked(fig: Figure) -> list[tuple[Artist, Drawn]]:
    """Return the lines of a figure that have records, and the intervals of series."""
    artists = [artist for ax in fig.axes for artist in ax.get_children()]
    return [(artist, artist.memkern) for artist in artists if hasattr(artist, "memkern")]


def marked_look(number: int) -> Look:
    """Return the look of one of several lines or series of a machine; 64 are different."""
    marker, zorder = shifted(_MARKERS, number), 5 - 0.1 * number
    return Look(_COLOURS[number % MOST_LINES], marker, "-", 1.2, 3.0, zorder)


def look_beside_roofline(number: int) -> Look:
    """Return the look of a series without the diamond, which marks the roofline."""
    return marked_look(number + (number >= _DIAMOND))


def named(platform: object, limit: int = 32) -> str:
    """Return a platform's name for a figure; only the part before the threads is shortened."""
    machine = machine_label(platform)
    return plain(machine, limit) + str(platform)[len(machine) :]


def shade(share: float) -> str:
    """Return a colour of a sequential map: blue for 0, yellowish green for 1."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return to_hex(colormaps["viridis"](0.15 + 0.7 * share))


def curve(
    ax: Axes, rows: DataFrame, x: str, y: str, look: Look, label: str, along: str = ""
) -> None:
    """Draw column y over column x, sorted by `along`, or by x if it is empty.

    Disturbed records have hollow markers, and others their `intervals`, of the next run unless the
    records have the columns `LOW` and `HIGH`.
    """
    rows = rows.sort_values(along or x)
    # Along another column, a band would cross itself.
    bars = look._replace(linestyle="none") if along else look
    kind = SPREAD if LOW in rows else INTERVAL
    intervals(ax, rows if LOW in rows else with_ends(rows, y), x, y, bars, kind, label)
    disturbed = rows[rows["disturbed"]]
    hollow = look._replace(linestyle="none", zorder=look.zorder + 0.05)._asdict()
    (line,) = ax.plot(rows[x], rows[y], label=label, **look._asdict())
    (rings,) = ax.plot(
        disturbed[x], disturbed[y], label="_disturbed", markerfacecolor="white", **hollow
    )
    for artist, records in ((line, rows), (rings, disturbed)):
        mark(artist, Drawn(label, records, x, y))


def intervals(
    ax: Axes,
    rows: DataFrame,
    x: str,
    y: str,
    look: Look,
    label: str = INTERVAL,
    series: str = INTERVAL,
    flat: bool = False,
) -> None:
    """Draw the intervals of a series between the columns `LOW` and `HIGH`, `flat` ones along x.

    A line of many points has a band; few points, and those without a line, have bars. Markers cover
    a bar that is shorter than they are.
    """
    rows = rows[rows[LOW] < rows[HIGH]]
    band = len(rows) > _MOST_BARS and look.linestyle != "none"
    draw: Any = ax.fill_between if band else ax.hlines if flat else ax.vlines
    if len(rows):
        shown = {"alpha": 0.15, "linewidth": 0} if band else {"alpha": 0.5, "linewidth": 0.9}
        how = {"color": look.color, "zorder": look.zorder - 0.05, "label": label} | shown
        mark(draw(rows[x], rows[LOW], rows[HIGH], **how), Drawn(series, rows.iloc[:0], x, y))


def curves(
    ax: Axes,
    rows: DataFrame,
    by: str,
    names: Iterable[str],
    x: str,
    y: str,
    look: Callable[[int], Look] = marked_look,
) -> None:
    """Draw a curve for each value of the column `by` that has rows, labelled with the value."""
    for number, name in enumerate(names):
        mine = rows[rows[by] == name]
        if len(mine):
            curve(ax, mine, x, y, look(number), name)


HOLLOW = "Hollow: from a disturbed record."
AMONG = "Some values are from a disturbed record."


def disturbed_note(rows: DataFrame, remark: str = HOLLOW) -> list[str]:
    """Return the small print that explains the look of disturbed records, if there are any."""
    return [remark] * bool(rows["disturbed"].any())


def finish(
    fig: Figure, columns: int, notes: Iterable[str], rows: DataFrame, remark: str = HOLLOW
) -> Figure:
    """Write the legend and the small print, and return the figure.

    The legend has at most some columns, and is left out for none; `remark` is about the markers of
    disturbed records. With a long legend or small print the figure is higher, so that panels keep
    their height.
    """
    legend_rows = legend_above(fig, columns) if columns else 0
    lines = note(fig, [*notes, *disturbed_note(rows, remark)])
    if not isinstance(fig, GivenAxes):
        more = _ROW_IN * max(0, legend_rows - _ROOM) + _LINE_IN * max(0, lines - _ROOM)
        fig.set_figheight(fig.get_figheight() + more)
    return fig


def panels(number: int, columns: int, row_in: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with rows of panels, or the caller's axes.

    A single panel has the width of a text column if `columns` is more than one, else of the page.
    Rows with fewer panels than others have wider ones. They share axes as by
    ``Figure.subplot_mosaic``.

    Raises
    ------
    InputError
        The caller gave another number of axes.
    """
    if (mine := given(number)) is not None:
        return mine, mine.axes
    alone = number == 1 and columns > 1
    rows = np.array_split(np.arange(number), math.ceil(number / columns))
    cells = math.lcm(*map(len, rows))
    fig = new_figure(COLUMN_IN if alone else DOUBLE_IN, row_in * len(rows) + 0.5)
    mosaic: Any = [np.repeat(row, cells // len(row)).tolist() for row in rows]
    return fig, [*fig.subplot_mosaic(mosaic, **shared).values()]


def label_outside(axes: Sequence[Axes], xlabel: str, ylabel: str) -> None:
    """Label x below the last row of panels, and y at the left of each row."""
    for ax in axes:
        place = ax.get_subplotspec()
        if place is None or place.is_last_row():
            ax.set_xlabel(xlabel)
        if place is None or place.is_first_col():
            ax.set_ylabel(ylabel)


def legend_above(fig: Figure, most: int) -> int:
    """Put one legend of all panels above them, and return the number of its rows.

    Each label is in it once; it has at most `most` columns.
    """
    entries: dict[str, Any] = {}
    for ax in fig.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    columns = _columns(list(entries), most, fig.get_figwidth())
    fig.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=columns)
    return -(-len(entries) // columns)


def panel_width(ax: Axes) -> float:
    """Return the width in inches of a panel with its labels."""
    place, fig = ax.get_subplotspec(), ax.figure
    share = len(place.colspan) / place.get_gridspec().ncols if place else ax.get_position().width
    return float(share * fig.bbox.width / fig.dpi)


def legend_below(ax: Axes, width_in: float) -> None:
    """Put the legend of a panel of this width below it, filled row by row."""
    from matplotlib.transforms import ScaledTranslation

    # In inches from the axes, which have any height: below the label of x.
    down = ScaledTranslation(0, -_LABEL_IN, ax.figure.dpi_scale_trans)
    handles, labels = ax.get_legend_handles_labels()
    columns = _columns(labels, 8, width_in)
    order = [i for column in range(columns) for i in range(column, len(labels), columns)]
    legend = ax.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=ax.transAxes + down,
        ncols=columns,
        handletextpad=0.5,
        columnspacing=1.0,
        handlelength=2.0,
    )
    legend.set_label(BELOW)


def _columns(labels: Sequence[str], most: int, width_in: float) -> int:
    """Return the number of columns of a legend of this width, with its rows as full as possible."""
    for columns in range(min(most, len(labels)), 1, -1):
        columns = math.ceil(len(labels) / math.ceil(len(labels) / columns))
        parts = np.array_split(labels, columns)
        # A letter of 7 points is about 0.055 in wide, a line with its gaps 0.55 in.
        if sum(0.055 * max(map(len, part)) + 0.55 for part in parts) < width_in:
            return columns
    return 1


def bytes_axis(ax: Axes, most: int) -> None:
    """Make the x axis logarithmic, with at most `most` ticks at powers of two bytes."""
    ax.set_xscale("log", base=2)
    low, high = (math.log2(end) for end in ax.xaxis.get_view_interval())
    step = max(1, math.ceil((high - low) / most))
    first = math.ceil(low / step)
    ticks = [2.0**power for power in range(first * step, math.floor(high) + 1, step)]
    ticks_at(ax.xaxis, ticks, in_bytes)


def counts_axis(axis: Axis, most: int = 7) -> None:
    """Put ticks at 1, 2 and 5 times powers of ten, or only at powers of ten: 200 k, 500 k, 1 M.

    An axis with fewer than two of these ticks has evenly spaced ticks.
    """
    low, high = axis.get_view_interval()
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for leading in ((1, 2, 5), (1,)):
        ticks = [digit * 10.0**power for power in powers for digit in leading]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            break
    if len(ticks) < 2:
        from matplotlib.ticker import MaxNLocator

        ticks = [tick for tick in MaxNLocator(3).tick_values(low, high) if low <= tick <= high]
    ticks_at(axis, ticks, in_thousands)


def ticks_at(axis: Axis, ticks: Sequence[float], name: Callable[[float], str]) -> None:
    """Put ticks only at these positions, with their names."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: name(x)))


def in_bytes(size: float, figures: int = 3) -> str:
    """Return a size in bytes with a binary prefix: 32 KiB."""
    return _with_prefix(size, 1024, (" B", " KiB", " MiB", " GiB", " TiB"), figures)


def spaced(number: float) -> str:
    """Return an integer in groups of three digits: 8 700 000."""
    return f"{number:,.0f}".replace(",", "\N{NO-BREAK SPACE}")


def in_thousands(number: float) -> str:
    """Return a number with a decimal prefix: 200 k."""
    return _with_prefix(number, 1000, ("", " k", " M", " G"))


def _with_prefix(number: float, step: int, units: Sequence[str], figures: int = 3) -> str:
    """Return a number in the first unit in which it is below the step to the next, or the last."""
    for unit in units[:-1]:
        if number < step:
            return f"{number:.{figures}g}{unit}"
        number /= step
    return f"{number:.{figures}g}{units[-1]}"


def cache_regions(
    ax: Axes, ends: Sequence[tuple[str, float]], beyond: str = "memory", line: int = 0
) -> None:
    """Draw a line at the size of each cache, and name the caches and `beyond` above the axes.

    The names have this number of empty lines below them.
    """
    left, right = ax.get_xlim()
    inside = [(name, end) for name, end in ends if end > left]
    edges = [left, *(min(end, right) for _, end in inside), right]
    names = [*(name for name, _ in inside), beyond] if inside else []
    for name, low, high in zip(names, edges[:-1], edges[1:], strict=False):
        if high < right:
            ax.axvline(
                high,
                color="#9a9a9a",
                linewidth=0.7,
                linestyle=(0, (1, 1.6) if line else (4, 2)),
                zorder=1.5,
            )
        # The name of a region narrower than itself would run into the next one.
        if math.log(high / low) > 0.06 * math.log(right / left):
            ax.text(
                math.sqrt(low * high),
                1.01,
                name + line * "\n ",
                transform=ax.get_xaxis_transform(),
                fontsize=NOTE_SIZE,
                color=GREY,
                ha="center",
                va="bottom",
            )
    ax.set_xlim(left, right)


def dots(
    ax: Axes,
    rows: DataFrame,
    by: str,
    looks: Mapping[Any, Look],
    value: str,
    ends: tuple[float, float],
    marks: Sequence[tuple[str, str, str]] = (),
) -> None:
    """Draw values in the rows named in a column row, over a logarithmic axis between `ends`.

    There is a series for each of `looks`, by the values of the column `by`. The column text has the
    texts beside the values, by default their three figures. Each of `marks` is a label, a column
    and a marker: a record's finite values, such as its roofline, are drawn at the height of its
    dot, where any has a label in the legend.
    """
    wider = 1.4 * min(ends[1] / ends[0], 100.0) ** (0.3 if marks else 0.0)
    ax.set(xscale="log", xlim=(ends[0] / wider, ends[1] * wider))
    names = distinct(rows["row"])
    height = rows["row"].map({name: number for number, name in enumerate(names)}).astype(float)
    number = rows[by].map({name: number for number, name in enumerate(looks)}).astype(float)
    position = height + (number + 0.5) / len(looks) - 0.5
    rows = (
        with_ends(rows, value)
        .assign(number=number, position=position)
        .sort_values("number", kind="stable")
    )
    for name, look in looks.items():
        mine = rows[rows[by] == name]
        _markers(ax, mine, value, look._replace(linestyle="none", markersize=4.0), {"label": name})
        higher = look._replace(linestyle="none", markersize=4.0, zorder=look.zorder + 0.05)
        if mine["disturbed"].any():
            _markers(ax, mine[mine["disturbed"]], value, higher, _RINGS)
    columns = [column for _, column, _ in marks if column in rows]
    for row in rows.to_dict("records"):
        limits = [row[column] for column in columns if 0 < row[column] < math.inf]
        # An end that is unknown, NaN, is neither lower nor higher.
        low, high = min(row[value], row[LOW]), max(row[value], row[HIGH])
        # Not between the marks and the dot.
        right = row[value] >= max(limits) if limits else low * high <= ends[0] * ends[1]
        ax.annotate(
            row.get("text") or three_figures(row[value]),
            (high if right else low, row["position"]),
            xytext=(5 if right else -5, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=NOTE_SIZE,
            color=GREY,
        )
    for label, column, marker in marks:
        limit = rows[column] if column in rows else rows["position"] * math.nan
        known = rows[limit.between(0, math.inf, inclusive="neither")]
        look = Look(GREY, marker, "none", 1.0, 4.5 if marker == "D" else 6.5, 2.5)
        label = label if len(known) else f"_{label}"
        ax.plot(limit[known.index], known["position"], label=label, **look._asdict())
    for i in range(0, len(names), 2):
        ax.axhspan(i - 0.5, i + 0.5, color="#f3f3f3", linewidth=0, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    counts_axis(ax.xaxis, 6)


_RINGS = {"label": "_disturbed", "markerfacecolor": "white"}


def _markers(ax: Axes, rows: DataFrame, value: str, look: Look, how: Mapping[str, Any]) -> None:
    """Draw a marker for each record at its height, and the intervals of their values."""
    (line,) = ax.plot(rows[value], rows["position"], **look._asdict(), **how)
    label = str(how["label"])
    mark(line, Drawn(label, rows, "row", value))
    intervals(ax, rows, "position", value, look, series=label, flat=True)


def row_in(rows: int, series: int) -> float:
    """Return the height in inches of a panel with rows of several series."""
    # A single value has the height of two, beside which the legend leaves a panel no room.
    return 0.35 + max(rows * (0.125 * series + 0.04), 0.29)


def heat_map(
    ax: Axes,
    values: Mapping[tuple[Any, Any], float],
    unit: str,
    names: Sequence[list[Any]],
    *,
    texts: Mapping[tuple[Any, Any], str] | None = None,
    ends: tuple[float, float] = (0.0, 0.0),
    hatched: Iterable[tuple[Any, Any]] = (),
) -> None:
    """Draw a heat map; cells have numbers or `texts` if rows and columns are at most `MOST_CELLS`.

    `names` are those of the rows and of the columns. The colours range from the first of `ends` to
    the second, or to the largest value if it is larger; NaN has no colour. The cells in `hatched`
    are hatched.
    """
    from matplotlib.patches import Rectangle

    rows, columns = names
    grid = np.array([[values.get((i, j), np.nan) for j in columns] for i in rows])
    low, high = ends[0], float(np.nanmax([*grid.flat, ends[1]]))
    image = ax.imshow(grid, cmap="viridis", vmin=low, vmax=high, aspect="auto")
    ax.grid(visible=False)
    ax.figure.colorbar(image, ax=ax, label=unit)
    for axis, names in ((ax.yaxis, rows), (ax.xaxis, columns)):
        # Of numbers, the others follow.
        step = 1 if isinstance(names[0], str) else max(1, len(names) // 8)
        axis.set_ticks(range(0, len(names), step), [str(name) for name in names[::step]])
    if isinstance(columns[0], str) and sum(map(len, columns)) > _LETTERS:
        ax.tick_params(axis="x", rotation=90, labelsize=NOTE_SIZE)
    for row, column in hatched:
        corner = columns.index(column) - 0.5, rows.index(row) - 0.5
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor=GREY, linewidth=0))
    if max(grid.shape) > MOST_CELLS:
        return
    for (i, j), value in np.ndenumerate(grid):
        text = three_figures(value) if texts is None else texts.get((rows[i], columns[j]), "")
        if value == value or texts is not None:
            light = value - low < 0.6 * (high - low)
            words = ax.text(
                j, i, text, ha="center", va="center", color="white" if light else "black"
            )
            # A background, so that no hatch crosses the number.
            words.set_bbox({"facecolor": image.to_rgba(value), "edgecolor": "none", "pad": 1})


def counted_axis(ax: Axes, counts: Iterable[float]) -> None:
    """Make the x axis logarithmic, with ticks at counts such as numbers of workers."""
    ax.set_xscale("log", base=2)
    each = sorted(set(counts))
    apart = (each[-1] / each[0]) ** 0.07
    ticks = each[:1]
    for count in each[1:]:
        if count >= apart * ticks[-1]:
            ticks.append(count)
    ticks_at(ax.xaxis, ticks, "{:g}".format)


def threads_axis(ax: Axes, most: float) -> None:
    """Put ticks at integer numbers of threads, or at powers of two if `most` is above 16."""
    from matplotlib.ticker import MaxNLocator

    if most > 16:
        ax.set_xscale("log", base=2)
        log2_axis(ax.xaxis)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
