"""Bandwidths of all kernels as shares of the theoretical peak of their memory."""

from __future__ import annotations

from memkern.errors import InputError
from memkern.formats.resultset import need_columns, need_rows
from memkern.models.peak import with_peak
from memkern.plots.exhibits import Selection, table
from memkern.plots.frames import Records, best, frame_of, typed, usable


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
    frame = typed(with_peak(frame_of(records), peak_GBps), ["peak_GBps", "peak_share"])
    frame = frame[frame["peak_share"].notna()]
    need_rows(
        frame,
        "the theoretical peak of the memory is unknown, or caches hold all data: give it as "
        "peak_GBps, or measure larger data",
    )
    need_columns(frame, "kernel")
    frame, notes = usable(frame, list(dict.fromkeys(frame["kernel"])), ("variant", "threads"))
    return best(frame, ("platform", "kernel")), notes
