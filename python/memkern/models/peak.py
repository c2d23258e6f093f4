"""The theoretical bandwidth of the memory that a record used, and the share that was reached.

Both are columns of every record. Records of older files get them by `with_peak`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from memkern.backends import HOST, LIBRARIES
from memkern.checks import LEAST, MOST
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.formats.resultset import environments_of

if TYPE_CHECKING:
    from pandas import DataFrame

Table = TypeVar("Table", ResultSet, "DataFrame")


def peak_of_processors(environment: Mapping[str, Any]) -> float:
    """Return the theoretical bandwidth of all memory channels of a machine, in GB/s.

    It is NaN if the firmware does not describe the modules, or in a virtual machine, whose firmware
    does not describe those of its host.

    Parameters
    ----------
    environment : mapping
        The environment of a record, with the firmware's description as ``memory``.
    """
    machine, memory = environment.get("machine") or {}, environment.get("memory") or {}
    return math.nan if machine.get("hypervisor") else float(memory.get("peak_GBps") or math.nan)


def peak_GBps(record: Mapping[Any, Any], environment: Mapping[str, Any]) -> float:
    """Return the theoretical bandwidth of the memory that a record used, in GB/s.

    That is the memory of its GPU, or that of all sockets of its machine; NaN if it is unknown.

    Parameters
    ----------
    record : mapping
        With the column device; without it, the record is of processors.
    environment : mapping
        Its environment.
    """
    device = str(record.get("device") or HOST.device)
    if device == HOST.device:
        return peak_of_processors(environment)
    about = (environment.get("devices") or {}).get(device) or {}
    return float(about.get("peak_GBps") or record.get("gpu_peak_GBps") or math.nan)


def peak_columns(
    record: Mapping[Any, Any], environment: Mapping[str, Any], given: float | None = None
) -> dict[str, float]:
    """Return the columns ``peak_GBps`` and ``peak_share`` of a record; NaN where unknown.

    The share has the bytes of the paper's formula, as Lavin et al. 2020 (section 4) and Chalmers
    and Warburton 2020 (section 6.2) compare bandwidths with a peak. It is NaN where data were not
    from this memory: in caches, in memory of other ranks, or in that of the host of a GPU.

    Parameters
    ----------
    record, environment
        As for `peak_GBps`, with ``bandwidth_GBps`` and ``footprint_B``.
    given : float, optional
        The peak of a machine, or of a GPU, in GB/s; by default that of `peak_GBps`.
    """
    peak = (given or peak_GBps(record, environment)) * _machines(record)
    bandwidth = _number(record.get("bandwidth_GBps"))
    from_memory = record.get("device") not in LIBRARIES and not record.get("memory")
    known = bandwidth > 0 and from_memory and not _held(record, environment)
    return {"peak_GBps": peak, "peak_share": bandwidth / peak if known else math.nan}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def _machines(record: Mapping[Any, Any]) -> int:
    """Return the number of machines of all ranks; 1 if unknown, as in older records."""
    ranks, each = (_number(record.get(name)) for name in ("ranks", "ranks_per_node"))
    return max(1, int(ranks // each)) if ranks > 0 and each > 0 else 1


def _held(record: Mapping[Any, Any], environment: Mapping[str, Any]) -> bool:
    """Return whether the last-level caches hold all data of a record."""
    about = (environment.get("devices") or {}).get(record.get("device")) or {}
    if about.get("l2_B"):
        return _number(record.get("footprint_B")) <= float(about["l2_B"])
    multiples = [
        _number(record.get(name)) for name in ("caches_multiple", "system_caches_multiple")
    ]
    return next((multiple <= 1 for multiple in multiples if multiple == multiple), False)


def step(
    environment: Mapping[str, Any], given: float | None = None
) -> Callable[[Mapping[str, Any]], dict[str, float]]:
    """Return the function that adds these columns to a measured record (see `peak_columns`)."""
    return functools.partial(peak_columns, environment=environment, given=given)


def with_peak(records: Table, given: float | None = None) -> Table:
    """Return records with the columns ``peak_GBps`` and ``peak_share`` (see `peak_columns`).

    Parameters
    ----------
    records : ResultSet or DataFrame
        Records of any version. A DataFrame has its environments in ``attrs["environments"]``.
    given : float, optional
        The peak of the memory of a machine, or of a GPU, in GB/s. By default that of the record,
        or the one that its environment describes.

    Raises
    ------
    InputError
        `given` is not a positive number.
    """
    if given is not None and not (isinstance(given, (int, float)) and LEAST <= given <= MOST):
        raise InputError(f"peak_GBps must be a positive number, not {given!r}")

    def columns(record: Mapping[Any, Any], environments: Mapping[str, Any]) -> dict[str, Any]:
        if "peak_share" in record and given is None:
            return {}
        return peak_columns(record, environments.get(str(record.get("environment_id")), {}), given)

    known = environments_of(records)
    if isinstance(records, ResultSet):
        return ResultSet(
            [{**record, **columns(record, known)} for record in records],
            records.samples,
            known,
            records.interrupted,
        )
    found = [columns(row, known) for row in records.to_dict("records")]
    names = dict.fromkeys(name for row in found for name in row)
    return records.assign(**{name: [row[name] for row in found] for name in names})
