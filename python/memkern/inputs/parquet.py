"""Parquet files, by pyarrow."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from memkern.errors import InputError
from memkern.files import parsing, read
from memkern.limits import check_memory

_VALUE_B = 100


def need_pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet; raise InputError if they are missing."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(
            "Parquet files need pyarrow: install it, or use .csv, .json or .db"
        ) from None


def read_parquet(
    path: Path, what: str, value_B: int = _VALUE_B, columns: list[str] | None = None
) -> Any:
    """Return the table of a Parquet file, if there is memory for its values.

    Parameters
    ----------
    path : Path
    what : str
        Expected content of the file, for errors.
    value_B : int
        Bytes of memory per value.
    columns : list of str, optional
        Columns to read; by default all.

    Raises
    ------
    InputError
        The file is missing, has another format or needs too much memory.
    """
    pa, pq = need_pyarrow()
    content = read(path)
    with parsing(path, what):
        file = pq.ParquetFile(pa.BufferReader(content))
    # The size of the file is no bound: repeated values are compressed.
    check_memory(value_B * (file.metadata.num_rows * len(columns or file.schema.names)), str(path))
    with parsing(path, what):
        return file.read(columns=columns)
