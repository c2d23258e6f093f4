"""From where on a kernel runs from memory, and how fast it is there: one definition for all.

A machine's kernels run from memory from the footprint on at which bandwidth has reached its last
plateau: records of a kernel over sizes show where the caches no longer help, whatever their sizes
are said to be. Where no kernel shows a plateau, it is from four times the last-level caches on, and
where these are unknown too, only the largest size of a kernel is looked at; which of the three it
was goes along with the number.

A kernel has one value there for each kind of stores: the median of its sizes, of each the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.models.records import cache_ends

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# STREAM's rule for what counts as memory: so many times the last-level caches.
MULTIPLE = 4
# Bandwidths on a plateau are no further than this from their median.
_FLAT = 0.1
# A plateau has so many sizes, over such a factor, and lies so far below what smaller sizes reach.
_LEAST_SIZES = 3
_LEAST_SPAN = 2.0
_FALL = 1.25
# A plateau that is seen only within so many times the last-level caches may be that of a cache.
_REACH = 2.0
# Two values of one definition that are further apart contradict each other.
_APART = 0.1

_BANDWIDTH = "bandwidth_GBps"
# Kernels whose operation has another name elsewhere.
_SAME = {
    "raider.copy": "stream.copy",
    "raider.scale": "stream.scale",
    "raider.add": "stream.add",
    "raider.triad": "stream.triad",
    "loops.copy": "stream.copy",
    "loops.triad": "stream.triad",
    "bs.bs1": "stream.copy",
    "bs.bs4": "loops.dot",
}
_ONLY_LOAD = ("loops.load", "loops.load4", "loops.sum", "loops.dot", "bs.bs3", "bs.bs4")
# Kernels that go through their arrays in order, so that bandwidth falls with every cache.
_REGULAR = (
    *("stream.copy", "stream.scale", "stream.add", "stream.triad"),
    *("loops.init", "loops.update", "loops.daxpy", "loops.nstream", "loops.schoenauer"),
    *("bs.bs2", "bs.bs5", *_ONLY_LOAD, *_SAME),
)

NONTEMPORAL, ORDINARY = "non-temporal", "ordinary"


class FromMemory(NamedTuple):
    """From which footprint on the kernels of a machine run from memory.

    Attributes
    ----------
    least_B : float
        Bytes; NaN for ``largest``.
    how : str
        ``plateau``: records over sizes show it; ``caches``: four times the last-level caches,
        where no record shows it; ``largest``: of each kernel the largest size, since the caches
        are unknown.
    """

    least_B: float
    how: Literal["plateau", "caches", "largest"]


def plateau_B(footprint_B: npt.ArrayLike, bandwidth_GBps: npt.ArrayLike, caches_B: float) -> float:
    """Return the smallest footprint from which on a kernel's bandwidth is on its last plateau.

    Parameters
    ----------
    footprint_B, bandwidth_GBps : array_like of float, shape (n,)
        Memory and bandwidth of a kernel's records; of a size that stands there several times the
        highest bandwidth counts.
    caches_B : float
        Size of the last-level caches, by which a plateau of memory is told from one of a cache.

    Returns
    -------
    float
        From there on all bandwidths are within 10 % of their median. NaN if there are fewer than
        three such sizes, if they span less than a factor of two or end before twice the caches,
        or if no smaller size is faster by a quarter.
    """
    sizes, of_size = np.unique(np.asarray(footprint_B, dtype=np.float64), return_inverse=True)
    highest = np.zeros(len(sizes))
    np.maximum.at(highest, of_size, np.asarray(bandwidth_GBps, dtype=np.float64))
    for start in range(1, len(sizes) - _LEAST_SIZES + 1):
        rest = highest[start:]
        level = float(np.median(rest))
        if np.abs(rest / level - 1).max() <= _FLAT:
            seen = sizes[-1] >= max(_LEAST_SPAN * sizes[start], _REACH * caches_B)
            falls = highest[:start].max() >= _FALL * level
            return float(sizes[start]) if seen and falls else math.nan
    return math.nan


def stores(frame: DataFrame) -> Series:
    """Return what kind of stores each record has: '' for none, and for those of a GPU."""
    from pandas import Series

    kinds = np.where(frame["variant"].eq("nt"), NONTEMPORAL, ORDINARY)
    none = frame["kernel"].isin(_ONLY_LOAD)
    if "backend" in frame:
        none |= frame["backend"].eq("cuda")
    return Series(np.where(none, "", kinds), index=frame.index)


def from_memory(frame: DataFrame) -> dict[str, FromMemory]:
    """Return of each platform from where on its kernels run from memory.

    Parameters
    ----------
    frame : DataFrame
        Valid records of streaming kernels with columns platform, kernel, variant, footprint_B,
        bandwidth_GBps and disturbed; it knows its caches as `cache_ends` says.

    Returns
    -------
    dict of str to FromMemory
        By platform. Of several kernels with a plateau, the last one to reach it counts.
    """
    found = {}
    for platform, rows in frame.groupby("platform", sort=False):
        ends = cache_ends(rows)
        last = ends[-1][1] if ends else 0.0
        if not last:
            found[str(platform)] = FromMemory(math.nan, "largest")
            continue
        # Non-temporal stores are as slow in every cache, so that they show none.
        swept = rows[
            rows["kernel"].isin(_REGULAR) & ~rows["disturbed"] & stores(rows).ne(NONTEMPORAL)
        ]
        begins = [
            plateau_B(of_kernel["footprint_B"], of_kernel[_BANDWIDTH], last)
            for _, of_kernel in swept.groupby("kernel")
        ]
        begins = [begin for begin in begins if begin == begin]
        found[str(platform)] = (
            FromMemory(max(begins), "plateau") if begins else FromMemory(MULTIPLE * last, "caches")
        )
    return found


def in_memory(frame: DataFrame, since: Mapping[str, FromMemory]) -> Series:
    """Return which records run from memory.

    Parameters
    ----------
    frame : DataFrame
        Records with columns platform, kernel and footprint_B.
    since : mapping
        As of `from_memory`.
    """
    least = frame["platform"].map({name: one.least_B for name, one in since.items()})
    largest = frame.groupby(["platform", "kernel"])["footprint_B"].transform("max")
    least = least.astype(float).fillna(largest)
    return frame["footprint_B"] >= least


def memory_values(frame: DataFrame, since: Mapping[str, FromMemory]) -> DataFrame:
    """Return the one bandwidth from memory of each operation and kind of stores.

    Parameters
    ----------
    frame : DataFrame
        As for `from_memory`.
    since : mapping
        What `from_memory` returns.

    Returns
    -------
    DataFrame
        A row for each platform, operation and kind of stores, with columns platform, operation
        (the kernel's name in the first family that has it), stores, kernel (which one it was
        measured as), bandwidth_GBps (median over sizes, of each the best undisturbed record),
        least_B (the smallest of these sizes) and disturbed.
    """
    each = _by_kernel(frame, since, ["platform", "operation", "stores"])
    own = each.assign(other=each["kernel"] != each["operation"]).sort_values("other", kind="stable")
    values = own.drop_duplicates(["platform", "operation", "stores"]).sort_index()
    return values.drop(columns="other").reset_index(drop=True)


def _by_kernel(
    frame: DataFrame, since: Mapping[str, FromMemory], here: list[str], value: str = _BANDWIDTH
) -> DataFrame:
    """Return the value of each kernel in memory, apart for the columns of `here`."""
    frame = frame[frame["kernel"].isin(_REGULAR) & in_memory(frame, since)]
    operation = frame["kernel"].map(lambda name: _SAME.get(name, name))
    frame = frame.assign(operation=operation, stores=stores(frame))
    order = frame.sort_values(["disturbed", value], ascending=[True, False], kind="stable")
    sizes = order.drop_duplicates([*here, "kernel", "footprint_B"]).sort_index()
    # Disturbed records count only where there are no undisturbed ones.
    least = sizes.groupby([*here, "kernel"], dropna=False)["disturbed"].transform("min")
    sizes = sizes[sizes["disturbed"] == least]
    return (
        sizes.groupby([*here, "kernel"], sort=False, dropna=False)
        .agg(
            **{
                value: (value, "median"),
                "least_B": ("footprint_B", "min"),
                "disturbed": ("disturbed", "any"),
            }
        )
        .reset_index()
    )


def contradictions(frame: DataFrame) -> list[str]:
    """Return sentences on values that should be one and are more than 10 % apart.

    Compared are the bandwidths from memory of one operation with one kind of stores, type and
    pages, measured as different kernels or as a roofline's ceiling, and the repeats of a case.

    Parameters
    ----------
    frame : DataFrame
        Valid records; those of other kernels or without the columns of `from_memory` do not count.
    """
    needed = ("platform", "kernel", "variant", "footprint_B", _BANDWIDTH, "disturbed")
    if not set(needed) <= set(frame):
        return []
    frame = frame[~frame["disturbed"].eq(True) & frame[_BANDWIDTH].gt(0)]
    frame = frame.assign(disturbed=False)
    regular = frame[frame["kernel"].isin(_REGULAR) & frame["footprint_B"].gt(0)]
    found = []
    if len(regular):
        since = from_memory(regular)
        here = ["platform", "operation", "stores"]
        here += [name for name in ("dtype", "pages_asked") if name in regular]
        each = _by_kernel(regular, since, here)
        for key, rows in each.groupby(here, sort=False, dropna=False):
            place, operation, kind = (str(part) for part in key[:3])
            values = dict(zip(rows["kernel"], rows[_BANDWIDTH], strict=True))
            what = operation.partition(".")[2] + " from memory"
            found += _disagree(what + f" with {kind} stores" * bool(kind) + f" on {place}", values)
        found += _against_ceilings(frame, regular, since)
    if "case_id" in frame:
        for _, rows in frame.groupby("case_id", sort=False):
            times = {f"repeat {number + 1}": value for number, value in enumerate(rows[_BANDWIDTH])}
            first = rows.iloc[0]
            what = f"{first['kernel']} in {first['footprint_B']:.4g} B on {first['platform']}"
            found += _disagree(what, times)
    return found


# What rooflines are measured by, medians of the best variant, and of which kernel.
_CEILINGS = {"load_GBps": "loops.load", "triad_GBps": "stream.triad"}
_MEDIAN = "bandwidth_median_GBps"


def _against_ceilings(
    frame: DataFrame, regular: DataFrame, since: Mapping[str, FromMemory]
) -> list[str]:
    """Return sentences on ceilings of rooflines that are not what their kernel gets from memory."""
    if _MEDIAN not in regular or "dtype" not in regular:
        return []
    double = regular[regular["dtype"].eq("float64")]
    each = _by_kernel(double, since, ["platform", "operation"], _MEDIAN)
    found = []
    for column, operation in _CEILINGS.items():
        if column not in frame:
            continue
        ceilings = frame.groupby("platform")[column].median().dropna()
        for row in each[each["kernel"].eq(operation)].to_dict("records"):
            place = row["platform"]
            if place in ceilings:
                values = {operation: row[_MEDIAN], "ceiling of a roofline": ceilings[place]}
                found += _disagree(f"{operation.partition('.')[2]} from memory on {place}", values)
    return found


def _disagree(what: str, values: Mapping[str, Any]) -> list[str]:
    ordered = sorted(values, key=lambda name: values[name])
    low, high = ordered[0], ordered[-1]
    if values[high] <= (1 + _APART) * values[low]:
        return []
    return [
        f"{what}: {values[low]:.3g} GB/s as {low} and {values[high]:.3g} GB/s as {high} are "
        f"{100 * (values[high] / values[low] - 1):.0f} % apart, though definition and size are "
        "the same."
    ]
