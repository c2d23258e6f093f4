"""Bandwidths of all kernels as shares of the theoretical peak of their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memkern.errors import InputError
from memkern.formats.resultset import need_columns
from memkern.models.peak import check_peak, peak_columns
from memkern.plots.exhibits import Selection, table
from memkern.plots.frames import Records, best, frame_of, typed, usable

if TYPE_CHECKING:
    from pandas import DataFrame


def with_peaks(records: Records, peak_GBps: float | None = None) -> DataFrame:
    """Return records as `frame_of`, with the columns peak_GBps and peak_share.

    Those of older files are computed from the environments in a ResultSet.

    Parameters
    ----------
    records : DataFrame or ResultSet
    peak_GBps : float, optional
        The peak of the memory of a machine or GPU; by default that of the records.

    Raises
    ------
    InputError
        The records are of another type, or the peak is not positive.
    """
    check_peak(peak_GBps)
    environments: Any = getattr(records, "environments", {})
    frame = frame_of(records)
    if "peak_share" in frame and peak_GBps is None:
        return frame
    rows = [
        peak_columns(row, environments.get(row.get("environment_id"), {}), peak_GBps)
        for row in frame.to_dict("records")
    ]
    names = ("peak_GBps", "peak_share")
    return frame.assign(**{name: [row[name] for row in rows] for name in names})


@table(
    "peak",
    "platform, kernel, variant, threads, bandwidth_GBps, peak_GBps (theoretical bandwidth of the "
    "memory) and peak_share (of the bandwidth)",
    integers="threads",
    records="any kernels with data in memory; of several records of a kernel, the fastest",
    lack="no record with data in memory has a known peak, or `peak_GBps` is not positive",
)
def shares_of_peak(records: Records = None, peak_GBps: float | None = None) -> Selection:
    """Bandwidths as shares of the theoretical peak of the memory.

    Parameters
    ----------
    peak_GBps : float, optional
        The peak of the machine, or of the GPU; by default that of each record.
    """
    if records is None:
        raise InputError("there is no record: `memkern stream -o stream.parquet` measures some")
    frame = typed(with_peaks(records, peak_GBps), ["peak_GBps", "peak_share"])
    frame = frame[frame["peak_share"].notna()]
    if frame.empty:
        raise InputError(
            "the theoretical peak of the memory is unknown, or caches hold all data: give it as "
            "peak_GBps, or measure larger data"
        )
    need_columns(frame, "kernel")
    frame, notes = usable(frame, list(dict.fromkeys(frame["kernel"])), ("variant", "threads"))
    return best(frame, ("platform", "kernel")), notes
