"""Points from anyone's records: which columns they are, what makes them unfit, how they group."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern import files
from memkern.errors import InputError
from memkern.models.fit import Floats
from memkern.results import ResultSet, load
from memkern.results.formats import need_pyarrow

if TYPE_CHECKING:
    import pandas as pd

Records: TypeAlias = "ResultSet | pd.DataFrame | Mapping[str, npt.ArrayLike]"

TIMES = ("time_s", "time_min_s")


class Points(NamedTuple):
    """Sizes and times, the memory behind them where it is known, and what does not count."""

    bytes_B: Floats
    time_s: Floats
    footprint_B: Floats
    disturbed: int


def points(records: Records) -> Points:
    """Return the points of records, without those that failed validation or were disturbed.

    `disturbed` of what is returned is how many valid records were left out as disturbed.

    Raises
    ------
    InputError
        If a column is missing, holds no numbers or has another length, or a value is not
        positive and finite.
    """
    table: Any = records
    if isinstance(records, ResultSet):
        names = list(records.records[0]) if records.records else []
        table = {name: [record[name] for record in records] for name in names}
    elif not hasattr(records, "keys"):
        raise InputError(
            "records must be a ResultSet, a data frame or a mapping of columns, "
            f"not {type(records).__name__}"
        )
    if len(table.keys()) == 0:
        raise InputError("there is no record to fit")
    time = next((name for name in TIMES if name in table), TIMES[0])
    for name in ("bytes_B", time):
        if name not in table:
            wanted = name if name == "bytes_B" else " or ".join(TIMES)
            there = ", ".join(map(str, table.keys()))
            raise InputError(f"the records have no column {wanted}, only {there}")
    sizes, times = _numbers(table["bytes_B"], "bytes_B"), _numbers(table[time], time)
    footprint = _numbers(table["footprint_B"], "footprint_B") if "footprint_B" in table else sizes
    valid = _texts(table, "valid", len(sizes))
    # Older files say `noisy`.
    disturbed = [_texts(table, name, len(sizes)) for name in ("disturbed", "noisy")]
    for name, length in (
        (time, len(times)),
        ("footprint_B", len(footprint)),
        ("valid", len(valid)),
        ("disturbed", len(disturbed[0])),
        ("noisy", len(disturbed[1])),
    ):
        if length != len(sizes):
            raise InputError(
                f"{name} must be as long as bytes_B, not {length} values for {len(sizes)}"
            )
    kept = np.array([value != "False" for value in valid], dtype=bool)
    quiet = np.array(["True" not in pair for pair in zip(*disturbed, strict=True)], dtype=bool)
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
    return Points(sizes[kept], times[kept], footprint[kept], left_out)


def _texts(table: Any, name: str, rows: int) -> list[str]:
    """Return a column as text: it may be of booleans, nullable ones or what a CSV file says."""
    return [str(value) for value in table[name]] if name in table else [""] * rows


def _numbers(column: Any, name: str) -> Floats:
    try:
        values = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"column {name} must hold numbers and nothing else") from None
    if values.ndim != 1:
        raise InputError(f"column {name} must have one dimension, not shape {values.shape}")
    return values


def last_level_cache_B(records: Records) -> int | None:
    """Return the size of all last-level caches together, of the machine that has most, or None."""
    environments = records.environments if isinstance(records, ResultSet) else {}
    most = None
    for environment in environments.values():
        caches = [
            cache
            for cache in (environment.get("machine") or {}).get("caches") or ()
            if cache.get("level") and cache.get("size_B")
        ]
        last = max((cache["level"] for cache in caches), default=0)
        total = sum(
            cache["size_B"] * (cache.get("instances") or 1)
            for cache in caches
            if cache["level"] == last
        )
        most = max(total, most or 0) or None
    return most


def on_both_sides_of_caches(records: Records) -> bool:
    """Whether there are sizes that the last-level caches hold and sizes that they don't.

    False where the records don't know their machine's caches, or hold nothing that could be
    fitted.
    """
    caches_B = last_level_cache_B(records)
    if caches_B is None:
        return False
    try:
        footprint = points(records).footprint_B
    except InputError:
        return False
    return bool((footprint <= caches_B).any() and (footprint > caches_B).any())


def read(path: str | Path) -> ResultSet:
    """Read our results, or anyone's table.

    Parameters
    ----------
    path : path
        What `memkern.results.load` reads, or a .csv or .parquet file of any origin.

    Returns
    -------
    ResultSet
        Of another's table, the rows, without samples or environments.

    Raises
    ------
    InputError
        If the file is missing or can't be read as either.
    """
    source = Path(path)
    if source.suffix not in (".csv", ".parquet") or not source.exists() or _ours(source):
        return load(source)
    content = io.BytesIO(files.read(source))
    rows: list[dict[Any, Any]]
    if source.suffix == ".csv":
        import pandas as pd

        with files.parsing(source, "a table"):
            rows = pd.read_csv(content, skipinitialspace=True, low_memory=False).to_dict("records")
    else:
        _, pq = need_pyarrow()
        with files.parsing(source, "a table"):
            rows = pq.read_table(content).to_pylist()
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


def groups(results: ResultSet, by: Sequence[str] = ()) -> dict[str, ResultSet]:
    """Split records into those to be fitted together.

    Parameters
    ----------
    results : ResultSet
        Our records, or what `read` made of a table.
    by : sequence of str
        Columns whose values tell the groups apart. Without any, ours are told apart by kernel,
        and by platform if there are several; another's table is one group.

    Returns
    -------
    dict of str to ResultSet
        By the columns' values, in the order of their first appearance; ``"all"`` if there is
        nothing to tell apart.

    Raises
    ------
    InputError
        If there is no such column.
    """
    if not results.records:
        return {"all": results}
    first = results.records[0]
    if not by and "kernel" in first and TIMES[0] not in first:
        platforms = {record.get("platform") for record in results}
        by = ("kernel", "platform")[: 2 if len(platforms) > 1 else 1]
    if not by:
        return {"all": results}
    # Before its values are asked for, so that a column that is not there is named.
    results.filter(**dict.fromkeys(by))
    keys = dict.fromkeys(tuple(record[name] for name in by) for record in results)
    return {
        ", ".join(map(str, key)): results.filter(**dict(zip(by, key, strict=True))) for key in keys
    }
