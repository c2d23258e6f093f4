"""The caller's axes in the place of a new figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from memkern.checks import shown
from memkern.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

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


def refuse_given() -> None:
    """Raise InputError for axes that a figure can't be drawn in, since it places its own."""
    name, _ = _GIVEN.get()
    if name:
        raise InputError(f"figure {name} places its panels itself: leave ax out")


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
