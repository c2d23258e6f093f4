"""Tables of all kernels: definitions, and bandwidths as shares of the peak of their memory."""

from __future__ import annotations

import math
from typing import Any

from memkern.checks import one_of
from memkern.models.peak import with_peak
from memkern.plots.kit import (
    DataFrame,
    InputError,
    Records,
    Selection,
    best,
    frame_of,
    need_columns,
    need_rows,
    table,
    tabulated,
    typed,
    usable,
)


@tabulated(
    "kernels",
    "A row for each kernel. Bytes are those of the definition in float64, without indices and "
    "write-allocates; missing where they depend on the case's inputs. amos are atomic operations.",
    records="Not used",
    lack="the family is unknown",
    optional=True,
)
def kernel_table(records: Records = None, family: str = "") -> DataFrame:
    """All kernels: definitions, arrays, bytes, flops and atomics per iteration, and sources.

    Parameters
    ----------
    family : str
        Family of the kernels; by default all.
    """
    from pandas import DataFrame

    from memkern.spec.registry import case, registry

    one_of(family, "family", ["", *(name.partition(".")[0] for name in registry())])
    specs = {
        name: spec for name, spec in registry().items() if family in ("", name.partition(".")[0])
    }
    rows = []
    for name, spec in specs.items():
        shapes = {array.shape for array in spec.arrays} - {"(1,)"}
        smallest: dict[str, Any] = {}
        if shapes == {"(elements,)"}:
            smallest = {"elements": 1}
        elif spec.counts.amos:
            smallest = {"iters": 1, "threads": 1}
        known = case(name, **smallest) if smallest else None
        rows.append(
            {
                "kernel": name,
                "definition": spec.summary,
                "arrays": " ".join(f"{a.name}:{a.role}" for a in spec.arrays),
                "bytes": math.nan if known is None else known.traffic.view(),
                "flops": spec.counts.flops,
                "amos": spec.counts.amos,
                "source": spec.source,
            }
        )
    return DataFrame(rows)


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
