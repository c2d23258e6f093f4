"""Records as input of models: points of time against size, caches, groups of records."""

from __future__ import annotations

import io
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern import files
from memkern.backends import ACCELERATORS
from memkern.errors import InputError
from memkern.formats import ResultSet, load
from memkern.formats.resultset import environments_of
from memkern.inputs.parquet import need_pyarrow, read_parquet
from memkern.machine import caches
from memkern.spec.columns import CURRENT_NAMES

if TYPE_CHECKING:
    import pandas as pd

    from memkern.models.fit import Floats

Records: TypeAlias = "ResultSet | pd.DataFrame | Mapping[str, npt.ArrayLike]"

TIMES = ("time_s", "time_min_s")


class Points(NamedTuple):
    """Bytes moved, times, footprints and lengths of the arrays of n points, each of shape (n,).

    Unknown lengths are NaN. `disturbed` is the number of disturbed records that are left out.
    """

    bytes_B: Floats
    time_s: Floats
    footprint_B: Floats
    disturbed: int
    elements: Floats


def with_current_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the current names of columns from older files."""
    for old in CURRENT_NAMES.keys() & set(frame):
        new = CURRENT_NAMES[old]
        frame = frame.drop(columns=old).assign(
            **{new: frame[new].fillna(frame[old]) if new in frame else frame[old]}
        )
    return frame


def points(records: Records) -> Points:
    """Return the points of records, without those that failed validation or were disturbed.

    Raises
    ------
    InputError
        A column is missing, is not numeric or has another length, or a value is not positive and
        finite.
    """
    table: Any = records
    if isinstance(records, ResultSet):
        table = {name: [record[name] for record in records] for name in next(iter(records), ())}
    elif hasattr(records, "assign"):
        table = with_current_names(table)
    elif not hasattr(records, "keys"):
        raise InputError(
            "records must be a ResultSet, a data frame or a mapping of columns, "
            f"not {type(records).__name__}"
        )
    if len(table.keys()) == 0:
        raise InputError("there is no record to fit")
    time = next((name for name in TIMES if name in table), TIMES[0])
    for name, wanted in (("bytes_B", "bytes_B"), (time, " or ".join(TIMES))):
        if name not in table:
            there = ", ".join(map(str, table.keys()))
            raise InputError(f"the records have no column {wanted}, only {there}")
    sizes, times = _numbers(table["bytes_B"], "bytes_B"), _numbers(table[time], time)
    footprint = _numbers(table["footprint_B"], "footprint_B") if "footprint_B" in table else sizes
    valid, disturbed = (_texts(table, name, len(sizes)) for name in ("valid", "disturbed"))
    for name, length in (
        (time, len(times)),
        ("footprint_B", len(footprint)),
        ("valid", len(valid)),
        ("disturbed", len(disturbed)),
    ):
        if length != len(sizes):
            raise InputError(
                f"{name} must be as long as bytes_B, not {length} values for {len(sizes)}"
            )
    kept = np.array([value != "False" for value in valid], dtype=bool)
    quiet = np.array([value != "True" for value in disturbed], dtype=bool)
    left_out = int(np.count_nonzero(kept & ~quiet))
    kept &= quiet
    for name, values in (("bytes_B", sizes), (time, times)):
        bad = np.flatnonzero(kept & ~(np.isfinite(values) & (values > 0)))
        if len(bad):
            raise InputError(
                f"{name} must be positive and finite, not {values[bad[0]]:g} "
                f"(row {bad[0] + 1} of {len(values)})"
            )
    footprint = np.where(footprint > 0, footprint, sizes)
    return Points(sizes[kept], times[kept], footprint[kept], left_out, _elements(table, kept))


def _elements(table: Any, kept: npt.NDArray[np.bool_]) -> Floats:
    """Return the positive lengths of the arrays of some rows, NaN where a table has none."""
    unknown = np.full(len(kept), math.nan)
    try:
        found = _numbers(table["elements"], "elements") if "elements" in table else unknown
    except InputError:  # a column of another program
        found = unknown
    found = found if len(found) == len(kept) else unknown
    return np.where(found > 0, found, math.nan)[kept]


def _texts(table: Any, name: str, rows: int) -> list[str]:
    """Return a column as text; it may contain booleans, nullable booleans or text of a CSV file."""
    return [str(value) for value in table[name]] if name in table else [""] * rows


def _numbers(column: Any, name: str) -> Floats:
    try:
        values = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"column {name} must hold numbers only") from None
    if values.ndim != 1:
        raise InputError(f"column {name} must have one dimension, not shape {values.shape}")
    return values


def last_level_cache_B(records: Records) -> int | None:
    """Return the total size of the last-level caches, the largest over machines, or None."""
    environments = records.environments if isinstance(records, ResultSet) else {}
    return max(filter(None, map(caches.last_level_B, environments.values())), default=None)


def processors(records: Any) -> list[str]:
    """Return the models of the processors in the environments of records; none if unknown."""
    known = getattr(records, "attrs", {}).get("environments", {})
    environments = getattr(records, "environments", known).values()
    models = ((environment.get("machine") or {}).get("model") for environment in environments)
    return [str(model) for model in dict.fromkeys(models) if model]


def data_caches(environments: Mapping[str, Any]) -> dict[str, list[tuple[int, int, int]]]:
    """Return level, size in bytes and number of each kind of data cache, by environment."""
    return {
        key: sorted(
            (cache["level"], cache["size_B"], cache.get("instances") or 1)
            for cache in caches.data_caches(environment)
        )
        for key, environment in environments.items()
    }


def line_sizes(environments: Mapping[str, Any]) -> dict[str, int]:
    """Return the largest size of a cache line in bytes, by environment where it is known."""
    every = {
        key: [cache.get("line_B") or 0 for cache in environment["machine"].get("caches") or ()]
        for key, environment in environments.items()
        if environment.get("machine")
    }
    return {key: max(sizes) for key, sizes in every.items() if any(sizes)}


def tlb_entries(environments: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the entries for pages of 4 KiB of each level of TLBs, by environment where known."""
    known = {
        key: (environment.get("machine") or {}).get("tlbs")
        for key, environment in environments.items()
    }
    every = {
        key: [level.get("entries") or 0 for level in tlbs or ()] for key, tlbs in known.items()
    }
    return {key: entries for key, entries in every.items() if any(entries)}


def builds(environments: Mapping[str, Any]) -> dict[str, str]:
    """Return the compiler of each environment's build, with its flags if these differ."""
    known = {key: environment.get("build") or {} for key, environment in environments.items()}
    flags: dict[str, set[str]] = {}
    for build in known.values():
        flags.setdefault(build.get("compiler", ""), set()).add(build.get("flags", ""))
    names = {}
    for key, build in known.items():
        if compiler := build.get("compiler"):
            options = build.get("flags", "") if len(flags[compiler]) > 1 else ""
            names[key] = f"{compiler} {options}".strip()
    return names


def units_by_topology(environments: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the processing units in topological order, by environment if known."""
    texts = {
        key: (environment.get("machine") or {}).get("units")
        for key, environment in environments.items()
    }
    return {key: [*map(int, text.split(","))] for key, text in texts.items() if text}


def by_topology(units: Iterable[int], order: Sequence[int]) -> list[int]:
    """Return processing units in the order of an environment, with others at the end."""
    positions = {unit: number for number, unit in enumerate(order)}
    return sorted(units, key=lambda unit: (positions.get(unit, len(positions)), unit))


def cache_ends(records: Records, system: bool = False) -> list[tuple[str, float]]:
    """Return name and total size in bytes of the caches that the workers of these records use.

    Workers are assumed to be spread over the cores, so that they use as many caches of a level as
    possible. The list is empty if the machine is unknown, or if the records ran on a device and
    describe its host (see `device_cache_ends`).

    Parameters
    ----------
    records : ResultSet or DataFrame
        A DataFrame has its environments in ``attrs["environments"]``.
    system : bool
        Whether to use the sizes of the system even if measured sizes exist.
    """
    size = "system_B" if system else "size_B"
    known = {
        key: [
            {**cache, "size_B": cache[size]}
            for cache in caches.data_caches(environment)
            if cache[size]
        ]
        for key, environment in environments_of(records).items()
    }
    columns: Any = records
    if isinstance(records, ResultSet):
        columns = {
            name: [record.get(name) for record in records]
            for name in ("environment_id", "backend", "threads")
        }
    if not known or "environment_id" not in columns:
        return []
    if "backend" in columns and {*ACCELERATORS} & {*columns["backend"]}:
        return []
    here = dict.fromkeys(columns["environment_id"])
    # Of several environments the last one, whose caches are those of the first page of a report.
    mine = next((known[key] for key in reversed(here) if known.get(key)), [])
    counts = columns.get("threads", [])
    threads = max(
        [1, *(int(n) for n in counts if isinstance(n, (int, float, np.number)) and n > 0)]
    )
    return list(caches.ends(mine, threads).items())


def device_cache_ends(frame: pd.DataFrame) -> list[tuple[str, float]]:
    """Return name and size in bytes of the L2 cache of the device on which these records ran.

    The list is empty if they did not run on a device, or if its cache is unknown.

    Parameters
    ----------
    frame : DataFrame
        With its environments in ``attrs["environments"]``.
    """
    if not {"environment_id", "device"} <= set(frame):
        return []
    known = {
        key: environment.get("devices") or {} for key, environment in environments_of(frame).items()
    }
    devices = [
        known.get(key, {}).get(device) or {}
        for key, device in zip(frame["environment_id"], frame["device"], strict=True)
    ]
    return next(([("L2", float(one["l2_B"]))] for one in devices if one.get("l2_B")), [])


def read(path: str | Path) -> ResultSet:
    """Read results of memkern or another program's table.

    Parameters
    ----------
    path : path
        File that `memkern.results.load` reads, or a .csv or .parquet file of another program.

    Returns
    -------
    ResultSet
        Another program's table has rows without samples and environments.

    Raises
    ------
    InputError
        The file is missing or can't be read.
    """
    source = Path(path)
    if source.suffix not in (".csv", ".parquet") or not source.exists() or _ours(source):
        return load(source)
    rows: list[dict[Any, Any]]
    if source.suffix == ".csv":
        import pandas as pd

        content = io.BytesIO(files.read(source))
        with files.parsing(source, "a table"):
            rows = pd.read_csv(content, skipinitialspace=True, low_memory=False).to_dict("records")
    else:
        rows = read_parquet(source, "a table").to_pylist()
    if not rows:
        raise InputError(f"{source} has no rows")
    plain = [{str(name): _plain(value) for name, value in row.items()} for row in rows]
    return ResultSet(plain, [np.empty(0)] * len(plain))


def _ours(path: Path) -> bool:
    if path.suffix == ".csv":
        return path.with_suffix(".environment.json").exists()
    _, pq = need_pyarrow()
    content = io.BytesIO(files.read(path))
    with files.parsing(path, "a table"):
        return b"memkern.schema_version" in (pq.read_schema(content).metadata or {})


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# Columns that are constant, like the kernel, in the records of one fitted line.
APART = (
    "platform", "definition", "backend", "device", "timer", "block_threads_requested",
    "block_shared_B", "nodes_per_block", "memory", "peer", "dtype",
    "index_dtype", "threads", "pin_requested", "pages_requested", "numa_requested",
    "variant_requested", "isa_requested", "offset", "schedule", "chunk", "prefetch", "unroll",
    "repetition", "flush",
    "degree", "masked", "numbering", "index_pattern", "window", "pairs", "distance",
)  # fmt: skip
# Columns that replace some of these in records without the requested options.
_OBTAINED = {"pages_requested": "pages", "variant_requested": "variant"}


def apart(columns: Container[str]) -> list[str]:
    """Return the columns of `APART` that some records have."""
    names = [name if name in columns else _OBTAINED.get(name, name) for name in APART]
    return [name for name in names if name in columns]


def groups(results: ResultSet, by: Sequence[str] = ()) -> dict[str, ResultSet]:
    """Split records into groups that are fitted together.

    Parameters
    ----------
    results : ResultSet
        Records of memkern, or another table that `read` returned.
    by : sequence of str
        Columns whose values define the groups; by default the kernel and the columns of `APART`
        (pages, variants, workers and so on). Another program's table is one group.

    Returns
    -------
    dict of str to ResultSet
        By the columns' values, in the order of their first appearance; ``"all"`` without columns to
        group by.

    Raises
    ------
    InputError
        There is no such column.
    """
    if not results.records:
        return {"all": results}
    first = results.records[0]
    ours = not by and "kernel" in first and TIMES[0] not in first
    if ours:
        by = ("kernel", *apart(first))
    if not by:
        return {"all": results}
    # Raises an error that names a missing column.
    results.filter(**dict.fromkeys(by))
    # None instead of NaN, which is not equal to itself.
    keys = [
        tuple(record[name] if record[name] == record[name] else None for name in by)
        for record in results
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    group = np.array([numbers[key] for key in keys])
    split = {}
    for key, number in numbers.items():
        of_kernel = [other for other in numbers if other[0] == key[0]]
        name = _name(by, key, of_kernel) if ours else ", ".join(map(str, key))
        split[name] = results[group == number]
    return split


def _name(columns: Sequence[str], values: Sequence[Any], of_kernel: Sequence[Sequence[Any]]) -> str:
    """Return the kernel of a group and the values that distinguish it from others `of_kernel`.

    Numbers follow the name of their column.
    """
    parts: list[str] = [str(values[0])]
    for column, value, all_values in zip(
        columns, values, zip(*of_kernel, strict=True), strict=True
    ):
        if len(set(all_values)) == 1 or value is None or value == "":
            continue
        if isinstance(value, str):
            parts.append(value)
        elif not (column == "threads" and any(f" {value} thread" in part for part in parts)):
            parts.append(f"{column.removesuffix('_requested')} {value:g}")
    return ", ".join(parts)
