"""Records of transfers that figures draw and findings compare.

If a case has several records, the one with the highest bandwidth is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.plots.frames import Fits, Records, best, line_fits, typed
from memkern.plots.selection import select

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURE = "memkern transfers -o transfers.parquet"
WAYS = {
    "to_device": "To the device",
    "from_device": "From the device",
    "both": "Both ways at once",
    "between": "Between two devices",
}
_SERIES = (
    *("pinned", "pageable", "managed, prefetched", "managed, read at the other end"),
    *("direct", "staged"),
)
_NAMES = {
    ("managed", "prefetch"): "managed, prefetched",
    ("managed", "touch"): "managed, read at the other end",
}


FITTED = ("machine", "way", "series")


def transfers(records: Records, measure: str) -> tuple[DataFrame, list[str]]:
    """Return the valid records of transfers, and notes on the others.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    measure : str
        Command that measures such records. If it is empty, no record is no error.

    Returns
    -------
    frame : DataFrame
        The columns of the records and machine, way (such as to_device) and series (the name of a
        curve); the fastest record of each size, sorted by way and series.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        There is no such record, or a column is missing.
    """
    numbers, texts = ("size_B", "bytes_B", "time_min_s"), ("memory", "variant")
    frame, notes = select(records, ["transfers"], [*numbers, *texts], measure=measure)
    frame = typed(frame, numbers, texts)
    pairs = zip(frame["memory"], frame["variant"], strict=True)
    frame = frame.assign(
        way=frame["kernel"].str.removeprefix("transfers."),
        series=[
            _NAMES.get((memory, variant), variant if memory == "device" else memory)
            for memory, variant in pairs
        ],
    )
    frame = best(frame, ["machine", "way", "series", "size_B"])
    order = [*WAYS, *_SERIES]
    return frame.sort_values(
        ["way", "series"], key=lambda column: column.map(order.index), kind="stable"
    ), notes


def fits(frame: DataFrame) -> tuple[Fits, list[str]]:
    """Fit the time of a transfer of each direction and memory; `frame` is as of `transfers`."""
    points = frame[[*FITTED, "bytes_B", "time_min_s", "valid", "disturbed"]]
    return line_fits(points, FITTED, lambda of: f"{WAYS[of[1]]}, {of[2]},")
