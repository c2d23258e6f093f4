"""Footprints at which kernels run from memory, and their bandwidths there.

The kernels of a machine run from memory if their footprint is on the last plateau of bandwidth over
size, independently of the reported sizes of caches. If no kernel has a plateau, the threshold is
four times the last-level caches; if these are unknown as well, only the largest size of each kernel
is used. A `FromMemory` holds the threshold and the rule.

A kernel has one bandwidth from memory for each kind of stores: the lower median over its sizes of
the best record of each size, which is the bandwidth of a record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.backends import ACCELERATORS
from memkern.machine.caches import MULTIPLE
from memkern.models.records import cache_ends
from memkern.results.ratios import Record, ratio
from memkern.statistics import meaningful

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# Largest relative deviation of bandwidths on a plateau from their median.
_FLAT = 0.1
# Least number of sizes of a plateau, least ratio of its largest to its smallest size, and least
# ratio of the bandwidth of smaller sizes to its own.
_LEAST_SIZES = 3
_LEAST_SPAN = 2.0
_FALL = 1.25
# A plateau that ends below this multiple of the last-level caches may belong to a cache.
_REACH = 2.0
# Largest relative difference of two consistent values of the same quantity.
_APART = 0.1

_BANDWIDTH = "bandwidth_GBps"
# Kernels with the same operation as a kernel of another family.
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
# Kernels with contiguous accesses, whose bandwidth falls with every cache that is exceeded.
_REGULAR = (
    *("stream.copy", "stream.scale", "stream.add", "stream.triad"),
    *("loops.init", "loops.update", "loops.daxpy", "loops.nstream", "loops.schoenauer"),
    *("bs.bs2", "bs.bs5", *_ONLY_LOAD, *_SAME),
)

NONTEMPORAL, ORDINARY = "non-temporal", "ordinary"
"""Kinds of stores."""


class FromMemory(NamedTuple):
    """Least footprint at which the kernels of a machine run from memory.

    Attributes
    ----------
    least_B : float
        Bytes; NaN for ``largest``.
    how : str
        ``plateau``: start of the last plateau of bandwidth; ``caches``: four times the last-level
        caches, if there is no plateau; ``largest``: the largest size of each kernel, if the caches
        are unknown.
    """

    least_B: float
    how: Literal["plateau", "caches", "largest"]


def plateau_B(footprint_B: npt.ArrayLike, bandwidth_GBps: npt.ArrayLike, caches_B: float) -> float:
    """Return the smallest footprint on the last plateau of a kernel's bandwidth.

    Parameters
    ----------
    footprint_B, bandwidth_GBps : array_like of float, shape (n,)
        Memory and bandwidth of a kernel's records; of several records of a size, the one with the
        highest bandwidth is used.
    caches_B : float
        Total size of the last-level caches, which distinguishes a plateau of memory from one of a
        cache.

    Returns
    -------
    float
        Least size at and beyond which all bandwidths are within 10 % of their median. NaN if there
        are fewer than three such sizes, if they span less than a factor of two or end before twice
        the caches, or if no smaller size is faster by a quarter.
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


def middle(records: Iterable[Record], value: str) -> Record:
    """Return the record of the lower median in a column, of undisturbed ones if there are any.

    It is the record whose value is that of a level of memory, over the sizes in it.
    """
    order = sorted(records, key=lambda record: float(record[value]))
    sure = [record for record in order if not record["disturbed"]] or order
    return sure[(len(sure) - 1) // 2]


def stores(frame: DataFrame) -> Series:
    """Return the kind of stores of each record: '' for kernels without stores, and for GPUs."""
    from pandas import Series

    kinds = np.where(frame["variant"].eq("nt"), NONTEMPORAL, ORDINARY)
    none = frame["kernel"].isin(_ONLY_LOAD)
    if "backend" in frame:
        none |= frame["backend"].isin(ACCELERATORS)
    return Series(np.where(none, "", kinds), index=frame.index)


def from_memory(frame: DataFrame) -> dict[str, FromMemory]:
    """Return the footprint at which the kernels of each platform run from memory.

    Parameters
    ----------
    frame : DataFrame
        Valid records of streaming kernels with columns platform, kernel, variant, footprint_B,
        bandwidth_GBps and disturbed, and the caches as for `cache_ends`.

    Returns
    -------
    dict of str to FromMemory
        By platform. Of several kernels with a plateau, the largest start is used.
    """
    found = {}
    for platform, rows in frame.groupby("platform", sort=False):
        ends = cache_ends(rows)
        last = ends[-1][1] if ends else 0.0
        if not last:
            found[str(platform)] = FromMemory(math.nan, "largest")
            continue
        # The bandwidth of non-temporal stores does not depend on the caches.
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


def in_memory(frame: DataFrame, thresholds: Mapping[str, FromMemory]) -> Series:
    """Return whether each record runs from memory.

    Parameters
    ----------
    frame : DataFrame
        Records with columns platform, kernel and footprint_B.
    thresholds : mapping
        As of `from_memory`.
    """
    least = frame["platform"].map({name: one.least_B for name, one in thresholds.items()})
    largest = frame.groupby(["platform", "kernel"])["footprint_B"].transform("max")
    least = least.astype(float).fillna(largest)
    large = frame["footprint_B"] >= least
    return large & ~frame["caches_grown"].eq(True) if "caches_grown" in frame else large


def memory_values(frame: DataFrame, thresholds: Mapping[str, FromMemory]) -> DataFrame:
    """Return the bandwidth from memory of each operation and kind of stores.

    Parameters
    ----------
    frame : DataFrame
        As for `from_memory`.
    thresholds : mapping
        As of `from_memory`.

    Returns
    -------
    DataFrame
        A record for each platform, operation and kind of stores: of the best undisturbed records of
        each size, the one with the lower median of the bandwidths. Additional columns are operation
        (the kernel's name in one of its families), stores and least_B (the smallest of these
        sizes).
    """
    each = _by_kernel(frame, thresholds, ["platform", "operation", "stores"])
    own = each.assign(other=each["kernel"] != each["operation"]).sort_values("other", kind="stable")
    values = own.drop_duplicates(["platform", "operation", "stores"]).sort_index()
    return values.drop(columns="other").reset_index(drop=True)


def _by_kernel(
    frame: DataFrame, thresholds: Mapping[str, FromMemory], here: list[str], value: str = _BANDWIDTH
) -> DataFrame:
    """Return each kernel's value from memory in each group by the columns of `here`."""
    frame = frame[frame["kernel"].isin(_REGULAR) & in_memory(frame, thresholds)]
    operation = frame["kernel"].map(lambda name: _SAME.get(name, name))
    frame = frame.assign(operation=operation, stores=stores(frame))
    order = frame.sort_values(["disturbed", value], ascending=[True, False], kind="stable")
    sizes = order.drop_duplicates([*here, "kernel", "footprint_B"]).sort_index()
    # Disturbed records are used only if there are no undisturbed ones.
    least = sizes.groupby([*here, "kernel"], dropna=False)["disturbed"].transform("min")
    sizes = sizes[sizes["disturbed"] == least]
    groups = sizes.sort_values(value, kind="stable").groupby(
        [*here, "kernel"], sort=False, dropna=False
    )
    middle = groups.cumcount() == (groups["kernel"].transform("size") - 1) // 2
    chosen = sizes.assign(
        least_B=groups["footprint_B"].transform("min"),
        disturbed=groups["disturbed"].transform("any"),
    )
    return chosen[middle.reindex(sizes.index)].reset_index(drop=True)


def contradictions(frame: DataFrame) -> dict[str, list[Record]]:
    """Return sentences on values that should be equal, but differ by more than their intervals.

    Compared are bandwidths from memory of the same operation, kind of stores, type and pages,
    measured by different kernels, those above the ceiling of a roofline, and the repeats of a case.
    Values within 10 % of each other never contradict each other, nor do cases that were measured
    in turns and whose ratio does not show the difference.

    Parameters
    ----------
    frame : DataFrame
        Valid records; there is no sentence if columns of `from_memory` are missing.

    Returns
    -------
    dict of str to list of dict
        By sentence, the two records that contradict each other.
    """
    needed = ("platform", "kernel", "variant", "footprint_B", _BANDWIDTH, "disturbed")
    if not set(needed) <= set(frame):
        return {}
    frame = frame[~frame["disturbed"].eq(True) & frame[_BANDWIDTH].gt(0)]
    frame = frame.assign(disturbed=False)
    regular = frame[frame["kernel"].isin(_REGULAR) & frame["footprint_B"].gt(0)]
    found: dict[str, list[Record]] = {}
    if len(regular):
        thresholds = from_memory(regular)
        here = ["platform", "operation", "stores"]
        here += [name for name in ("dtype", "pages_requested") if name in regular]
        each = _by_kernel(regular, thresholds, here)
        for key, rows in each.groupby(here, sort=False, dropna=False):
            platform, operation, kind = (str(part) for part in key[:3])
            with_stores = f" with {kind} stores" * bool(kind)
            found |= _disagree(
                f"{operation.partition('.')[2]} from memory{with_stores} on {platform}",
                dict(zip(rows["kernel"], rows.to_dict("records"), strict=True)),
            )
        found |= _against_ceilings(frame, regular, thresholds)
    if "case_id" in frame:
        case = ["platform", "case_id"]
        for _, rows in frame[frame.duplicated(case, keep=False)].groupby(case, sort=False):
            values = {f"repeat {n}": row for n, row in enumerate(rows.to_dict("records"), 1)}
            first = rows.iloc[0]
            what = f"{first['kernel']} in {first['footprint_B']:.4g} B on {first['platform']}"
            found |= _disagree(what, values)
    return found


# Columns of the bandwidths of rooflines, and their kernels.
_CEILINGS = {"load_GBps": "loops.load", "triad_GBps": "stream.triad"}


def _against_ceilings(
    frame: DataFrame, regular: DataFrame, thresholds: Mapping[str, FromMemory]
) -> dict[str, list[Record]]:
    """Return sentences on ceilings of rooflines that their kernel's bandwidth exceeds.

    A ceiling is the best since the boot, so that a lower bandwidth is no contradiction.
    """
    if "dtype" not in regular:
        return {}
    double = regular[regular["dtype"].eq("float64")]
    each = _by_kernel(double, thresholds, ["platform", "operation"], _BANDWIDTH)
    found: dict[str, list[Record]] = {}
    for column, operation in _CEILINGS.items():
        ceilings = frame.groupby("platform")[column].median().dropna() if column in frame else ()
        for row in each[each["kernel"].eq(operation)].to_dict("records"):
            platform = row["platform"]
            if platform in ceilings and row[_BANDWIDTH] > ceilings[platform]:
                ceiling = {_BANDWIDTH: ceilings[platform], "case_id": row.get("case_id")}
                what = f"{operation.partition('.')[2]} from memory on {platform}"
                found |= _disagree(what, {operation: row, "ceiling of a roofline": ceiling})
    return found


def _disagree(what: str, values: Mapping[str, Record]) -> dict[str, list[Record]]:
    """Return the sentence on the smallest and the largest value if they contradict each other."""
    ordered = sorted(values, key=lambda name: float(values[name][_BANDWIDTH]))
    pair = [values[ordered[0]], values[ordered[-1]]]
    low, high = (one[_BANDWIDTH] for one in pair)
    apart = ratio(pair[1], pair[0], _BANDWIDTH)
    if abs(math.log(apart.value)) <= math.log1p(_APART) or not apart.decided:
        return {}
    again = f" ({apart.text()} times as fast in turns)" if apart.in_turns else ""
    sentence = (
        f"{what}: {meaningful(low)} GB/s as {ordered[0]} and {meaningful(high)} GB/s as "
        f"{ordered[-1]} are "
        f"{100 * (high / low - 1):.0f} % apart{again}, though definition and size are the same."
    )
    return {sentence: pair}
