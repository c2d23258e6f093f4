"""Numbers that a paper's text tells of figures whose curves were not published as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.plots.exhibits import Selection, table
from memkern.plots.frames import Records
from memkern.plots.style import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOLD = "a64fx-told"
"""Name of the table."""

_FIGURES = "2, 3, 4, 5, 8, 9, 11, 15, 16, 18, 21, 22, 23, 24, 25"


@table(
    TOLD,
    "exhibit, section (of the paper), quantity, case, cores (of the 12 of a group or the 48 of the "
    "chip; missing where they are the quantity or do not matter), value, unit",
    paper="alappat2021",
    number=f"figure {_FIGURES}",
    records="Not used",
    optional=True,
)
def told_table(records: Records = None) -> Selection:
    """Numbers of the A64FX in the text of Alappat et al. 2021, on figures without values."""
    from memkern import reference

    frame = reference.load("alappat2021-text")
    return frame.astype({"cores": "Int64"}), []


def told_points(ax: Axes, exhibit: str, quantity: str) -> list[int]:
    """Draw the told numbers of a figure over the cores, and return the cores.

    Parameters
    ----------
    ax : Axes
    exhibit : str
        Such as ``"figure 3"``.
    quantity : str
        As in the table.
    """
    from memkern import reference

    rows = [
        row
        for row in reference.rows("alappat2021-text")
        if (row["exhibit"], row["quantity"]) == (exhibit, quantity)
    ]
    cores = [row["cores"] for row in rows]
    ax.plot(
        cores, [row["value"] for row in rows], marker="D", color=GREY, linestyle="none",
        markersize=4, label=f"A64FX, {rows[0]['case']}",
    )  # fmt: skip
    return cores
