"""The common style of all figures, the caller's axes for them, and writing a figure to a file."""

from __future__ import annotations

import atexit
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

from memkern.checks import shown
from memkern.errors import InputError
from memkern.files import publish
from memkern.plots.frames import Records, of_platforms
from memkern.plots.registry import Origin, figures, register
from memkern.plots.typenames import Axes, Figure, Legend

COLUMN_IN = 3.35
DOUBLE_IN = 6.9
SUFFIXES = (".pdf", ".png", ".svg")
GREY = "#5f5f5f"
NOTE_SIZE = 6.0

# Okabe and Ito's palette. Black and vermilion are reserved for the own machine; yellow is left out,
# since it is too pale on white.
_OWN_COLOURS = ("#000000", "#d55e00")
_OTHER_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c8c8c")
_OTHER_MARKERS = ("s", "^", "D", "v", "P", "X")
_OTHER_DASHES: tuple[Any, ...] = (
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (5, 1.5, 1.2, 1.5)),
    (0, (3, 1)),
    (0, (7, 2)),
    (0, (4, 1.2, 1.2, 1.2, 1.2, 1.2)),
)
_OWN_DASHES: tuple[Any, ...] = ("-", (0, (4, 1)), (0, (1.5, 1)))
_OWN_MARKERS = ("o", "s", "D", "^")

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 7.0,
    "axes.labelsize": 7.5,
    "axes.titlesize": 8.0,
    "axes.titleweight": "bold",
    "axes.titlepad": 4.0,
    "axes.labelpad": 2.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.35,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "svg.fonttype": "path",
    "svg.hashsalt": "memkern",  # the same figure gives the same file
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    """Line and marker properties of a series, as keywords of ``Axes.plot``."""

    color: str
    marker: str
    linestyle: Any
    linewidth: float
    markersize: float
    zorder: float


def own_look(number: int) -> Look:
    """Return the emphasised look of the own machine with this number; eight are different."""
    return Look(
        _OWN_COLOURS[number % len(_OWN_COLOURS)],
        shifted(_OWN_MARKERS, number),
        _OWN_DASHES[number // 2 % len(_OWN_DASHES)],
        2.0,
        5.0,
        10.0 - 0.1 * number,
    )


def other_look(number: int) -> Look:
    """Return the subdued look of the platform or pattern of this number; 36 are different."""
    i = number % len(_OTHER_COLOURS)
    return Look(_OTHER_COLOURS[i], shifted(_OTHER_MARKERS, number), _OTHER_DASHES[i], 0.9, 3.2, 3.0)


def shifted(each: Sequence[Any], number: int) -> Any:
    """Return one of several in turns that begin one later each, unlike those of colours."""
    return each[(number + number // len(each)) % len(each)]


def context() -> AbstractContextManager[None]:
    """Return a context with the common style, independent of the caller's."""
    found: AbstractContextManager[None] = _matplotlib_style().context(["default", _RC])
    return found


@cache
def _matplotlib_style() -> Any:
    """Import matplotlib; without a home, it keeps its files in a temporary folder."""
    try:
        Path.home()
    except RuntimeError:
        if not os.environ.get("MPLCONFIGDIR"):
            folder = tempfile.TemporaryDirectory(prefix="memkern-")
            atexit.register(folder.cleanup)
            os.environ["MPLCONFIGDIR"] = folder.name
    try:
        from matplotlib import style
    except ValueError as error:
        backend = os.environ.get("MPLBACKEND")
        raise InputError(f"matplotlib refuses MPLBACKEND={backend}: {error}") from None
    return style


BELOW = "below"  # mark of a legend below its axes

# Name of the figure that is drawn in the caller's axes, and the axes; empty for a new figure.
_GIVEN: ContextVar[tuple[str, Sequence[Axes]]] = ContextVar("given", default=("", ()))


@contextmanager
def drawing_in(ax: Any, name: str) -> Iterator[None]:
    """Draw the figure of a name in the caller's axes: one, a sequence of them, or None for its own.

    Raises
    ------
    InputError
        Something else is among them.
    """
    if ax is None:
        yield
        return
    token = _GIVEN.set((name, _listed(ax)))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def _listed(ax: Any) -> list[Axes]:
    import numpy as np
    from matplotlib.axes import Axes

    axes = [*np.ravel(np.asarray(ax, dtype=object))]
    for one in axes:
        if not isinstance(one, Axes):
            raise InputError(
                f"ax must be axes of matplotlib or a sequence of them, not {shown(one)}"
            )
    return axes


def given(number: int) -> Figure | None:
    """Return the caller's axes for this number of panels, None to make a figure.

    Raises
    ------
    InputError
        Their number is another.
    """
    name, axes = _GIVEN.get()
    if not name:
        return None
    if len(axes) != number:
        raise InputError(
            f"figure {name} has {number} panel{'s' * (number != 1)} of these records: ax must be "
            f"as many axes, not {len(axes)}"
        )
    return cast("Figure", GivenAxes(axes))


class GivenAxes:
    """The caller's axes, with the methods of a figure that figures use."""

    def __init__(self, axes: Sequence[Axes]) -> None:
        self.axes = list(axes)

    def get_figwidth(self) -> float:
        """Return the width of the last axes in inches."""
        last = self.axes[-1]
        return float(last.get_window_extent().width / last.figure.dpi)

    def legend(self, handles: Any, labels: Any, **_: Any) -> Legend:
        """Put the legend of all panels into the first axes."""
        return self.axes[0].legend([*handles], [*labels])

    def supxlabel(self, text: str, **how: Any) -> None:
        """Write the small print below the last axes, and below their legend if it is there."""
        last = self.axes[-1]
        legend = last.get_legend()
        lowest = legend if legend is not None and legend.get_label() == BELOW else last.xaxis.label
        below = ("axes fraction", lowest)
        del how["x"]
        last.annotate(
            text,
            (0, 0),
            xycoords=below,
            xytext=(0, -2),
            textcoords="offset points",
            va="top",
            **how,
        )


FIGURE_OPTIONS = """\
ax : matplotlib.axes.Axes or sequence of them, optional
    Axes to draw in, one for each panel, instead of in a new figure. The legend of all panels is in
    the first one, and the small print below the last one.
platforms : str or sequence of str, optional
    Draw only own records whose platform contains one of these texts, in upper or lower case."""
"""Documentation of the keywords that every figure has."""


def figure(
    name: str, of: Origin | None = None
) -> Callable[[Callable[..., Figure]], Callable[..., Figure]]:
    """Register a function that draws a figure, and run it in the common style.

    The registered function also has the keywords `ax` and `platforms` (see `FIGURE_OPTIONS`).
    """

    def enter(function: Callable[..., Figure]) -> Callable[..., Figure]:
        @wraps(function)
        def draw(
            records: Records = None, *args: Any, ax: Any = None, platforms: Any = None, **more: Any
        ) -> Any:
            with context(), drawing_in(ax, name):
                fig = function(of_platforms(records, platforms), *args, **more)
            return fig if ax is None else ax

        own, common = inspect.signature(function), inspect.signature(draw, follow_wrapped=False)
        added = (common.parameters[name] for name in ("ax", "platforms"))
        parameters = [*own.parameters.values(), *added]
        vars(draw)["__signature__"] = own.replace(parameters=parameters)
        return register(figures, name, draw, of)

    return enter


@cache
def _figure_class() -> type[Figure]:
    from matplotlib.figure import Figure

    class StyledFigure(Figure):
        # Ticks, layout and fonts are created while drawing, after the function that built the
        # figure has returned.
        def draw(self, renderer: Any) -> None:
            with context():
                super().draw(renderer)

        def savefig(self, *args: Any, **kwargs: Any) -> None:
            with context():
                super().savefig(*args, **kwargs)

        def _repr_png_(self) -> bytes:
            return encoded(self, ".png", 160)

    return StyledFigure


def new_figure(
    width: float, height: float, layout: Literal["constrained"] | None = "constrained"
) -> Figure:
    """Return an empty figure of this size in inches, not managed by pyplot.

    Raises
    ------
    InputError
        The caller gave axes, which only `memkern.plots.drawing.panels` uses.
    """
    name, _ = _GIVEN.get()
    if name:
        raise InputError(f"figure {name} places its panels itself: leave ax out")
    return _figure_class()(figsize=(width, height), layout=layout)


def plain(text: object, limit: int = 40) -> str:
    """Return text that matplotlib draws as one short line, without mathematical notation."""
    line = " ".join(str(text).split()).replace("$", r"\$")
    if len(line) > limit:
        tail = limit // 3
        line = f"{line[: limit - tail - 1].rstrip()}…{line[-tail:].lstrip()}"
    return f"\N{NO-BREAK SPACE}{line}" if line.startswith("_") else line


def two_lines(platform: object) -> str:
    """Return the label of a platform with the machine and its threads on two lines."""
    machine, _, threads = str(platform).rpartition(", ")
    return "\n".join(plain(part, 22) for part in (machine, threads) if part)


def fraction(value: float) -> str:
    """Return a power of two as an integer or a fraction: 4, 1, 1/8."""
    return f"{value:g}" if value >= 1 else f"1/{1 / value:g}"


def log2_axis(axis: Any) -> None:
    """Put ticks at powers of two; at powers of four in a wide range; at more in a narrow range."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    between = [1, 1.2, 1.4, 1.6, 1.8] if high < 4 * low else [1]
    base = 2 if high < 2**9 * low else 4
    axis.set_major_locator(LogLocator(base=base, subs=between, numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.9g}" if x >= 0.1 else f"{x:.2g}"))


def note_lines(width_in: float, sentences: Iterable[str]) -> list[str]:
    """Return the lines of small print, wrapped to the width of a figure in inches."""
    from textwrap import wrap

    return wrap(" ".join(sentences), int(width_in * 72 / (0.58 * NOTE_SIZE)))


INTERVAL = "_interval"
"""Label of bars and bands that are 95 % intervals for the next run."""


def note(fig: Figure, sentences: Iterable[str]) -> int:
    """Write small print below the figure, wrapped to its width, and return its lines.

    Intervals are explained if the figure has any.
    """
    shown = any(one.get_label() == INTERVAL for ax in fig.axes for one in ax.collections)
    about = ["Bars and bands: 95 % intervals for the next run."] * shown
    if lines := note_lines(fig.get_figwidth(), [*sentences, *about]):
        fig.supxlabel(
            "\n".join(lines),
            x=0.01,
            ha="left",
            multialignment="left",
            fontsize=NOTE_SIZE,
            color=GREY,
            gid="note",
        )
    return len(lines)


_LACKING: WeakKeyDictionary[Figure, list[str]] = WeakKeyDictionary()


def tell_lacking(fig: Figure, sentences: Iterable[str]) -> None:
    """Add sentences on records that a figure lacks, which the command line prints."""
    _LACKING.setdefault(fig, []).extend(sentences)


def lacking(fig: Figure) -> list[str]:
    """Return the sentences on records that a figure lacks, each with the remedy."""
    return [*_LACKING.get(fig, ())]


def save(fig: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure to a file atomically.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Figure of this package.
    path : path-like
        Target; the suffix (.pdf, .png, .svg) is the format. PNG has 300 dots per inch.

    Returns
    -------
    pathlib.Path
        The path written.

    Raises
    ------
    InputError
        The suffix is unknown, or the file can't be written.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{str(target)!r}: a figure's file ends in {', '.join(SUFFIXES)}")
    publish({target: encoded(fig, suffix)})
    return target


def encoded(fig: Figure, suffix: str, dpi: float | Literal["figure"] = 300) -> bytes:
    """Return a figure in the format of a suffix, with `dpi` dots per inch in a bitmap."""
    out = BytesIO()
    fig.savefig(out, format=suffix[1:], dpi=dpi, metadata=_UNDATED[suffix])
    content = out.getvalue()
    return _NOT_IN_XML.sub(b"", content) if suffix == ".svg" else content


# Control characters in names, which make an XML document unreadable.
_NOT_IN_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UNDATED: dict[str, dict[str, Any]] = {
    ".pdf": {"CreationDate": None, "ModDate": None},
    ".png": {},
    ".svg": {"Date": None},
}
