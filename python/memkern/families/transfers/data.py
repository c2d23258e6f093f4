"""Records of transfers that figures draw and findings compare.

If a case has several records, the one with the highest bandwidth is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memkern.errors import InputError
from memkern.plots.frames import Records, best, counted, typed
from memkern.plots.selection import select

if TYPE_CHECKING:
    from pandas import DataFrame

    from memkern.models import T0WmaxFit

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


class Fitted(NamedTuple):
    """The fit of the transfers of one series in one direction on one machine."""

    machine: str
    way: str
    series: str
    fit: T0WmaxFit


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


def fits(frame: DataFrame) -> tuple[list[Fitted], list[str]]:
    """Fit the time of a transfer of each direction and memory as ``T0 + B / Wmax``.

    Parameters
    ----------
    frame : DataFrame
        As of `transfers`.

    Returns
    -------
    fits : list of Fitted
    notes : list of str
        Sentences on what could not be fitted.
    """
    from memkern.models import fit_t0_wmax

    found, notes = [], []
    for (machine, way, series), mine in frame.groupby(["machine", "way", "series"], sort=False):
        try:
            fit = fit_t0_wmax(mine[["bytes_B", "time_min_s", "valid", "disturbed"]])
        except InputError as error:
            notes.append(f"{WAYS[str(way)]}, {series}, not fitted: {error}.")
            continue
        found.append(Fitted(str(machine), str(way), str(series), fit))
    far = sum(one.fit.far for one in found)
    if far:
        notes.append(f"Most points are more than 10 % off {counted(far, 'line')}.")
    return found, notes
