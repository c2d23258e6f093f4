"""Encoders and decoders of results as Parquet, CSV and JSON.

Every format stores the columns' kinds with the values, so that loading restores the saved values.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.files import parsing, read
from memkern.formats.values import (
    KINDS,
    RESULT,
    SCHEMA_VERSION,
    Contents,
    Record,
    Samples,
    check_version,
    column_kinds,
    dumps,
    json_rows,
    jsonable,
    restored,
    restored_record,
)
from memkern.inputs.parquet import need_pyarrow, read_parquet
from memkern.machine.environment import Environment
from memkern.spec.columns import COLUMNS

# Memory for one value: of a record in a dict, of a sample in an array.
_SAMPLE_VALUE_B = 16
_SAMPLE_KINDS = {
    "record": "integer",
    "case_id": "text",
    "repeat": "integer",
    "sample": "integer",
    "time_s": "real",
}


def sample_columns(contents: Contents) -> dict[str, Any]:
    """Return the columns of the long table of all samples."""
    lengths = [len(samples) for samples in contents.samples]
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    return {
        "record": rows,
        "case_id": [contents.records[i].get("case_id") for i in rows],
        "repeat": [contents.records[i].get("repeat") for i in rows],
        "sample": np.concatenate([np.arange(n) for n in lengths] or [rows]),
        "time_s": np.concatenate([*contents.samples, np.empty(0)]),
    }


def _header(contents: Contents) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "columns": column_kinds(contents.records),
        "environments": contents.environments,
    }


def encode_json(contents: Contents, path: Path) -> dict[Path, bytes]:
    """Return the document by its path."""
    rows = ",\n ".join(dumps(samples.tolist()) for samples in contents.samples)
    head = dumps(_header(contents))[1:-1]
    records = json_rows(contents.records)
    return {path: f'{{{head},\n"records":\n{records},\n"samples":\n[{rows}]}}\n'.encode()}


def _decode_json(path: Path) -> Contents:
    content = read(path)
    with parsing(path, RESULT):
        document = json.loads(content)
        kinds, environments = _parse_header(document)
        records = [_parse_record(record, kinds) for record in document["records"]]
        samples = [np.array([restored(t, "real") for t in row]) for row in document["samples"]]
        return Contents(records, samples, environments)


def encode_csv(contents: Contents, path: Path) -> dict[Path, bytes]:
    """Return the tables of the samples and of the records, and the header, by their paths."""
    records, samples, header = _csv_files(path)
    kinds = column_kinds(contents.records)
    return {
        samples: _csv_text(_SAMPLE_KINDS, _sample_lines(contents)),
        header: (json.dumps(jsonable(_header(contents)), indent=1) + "\n").encode(),
        records: _csv_text(
            kinds, (",".join(map(_csv_field, record.values())) for record in contents.records)
        ),
    }


def _sample_lines(contents: Contents) -> Iterator[str]:
    for i, (record, samples) in enumerate(zip(contents.records, contents.samples, strict=True)):
        case = ",".join(map(_csv_field, (i, record.get("case_id"), record.get("repeat"))))
        yield from (f"{case},{j},{time!r}" for j, time in enumerate(samples.tolist()))


def _decode_csv(path: Path) -> Contents:
    records, samples, header = _csv_files(path)
    content = read(records)
    if not header.exists():
        raise InputError(
            f"{records} can't be read as {RESULT}: {header.name} is missing in its folder"
        )
    head = read(header)
    with parsing(header, RESULT):
        kinds, environments = _parse_header(json.loads(head))
    with parsing(records, RESULT):
        rows = [_parse_record(row, kinds) for row in _csv_rows(content)]
    times = read(samples)
    with parsing(samples, RESULT):
        columns = _csv_rows(times)
        index = [int(row["record"] or "") for row in columns]
        series = _split([float(row["time_s"] or "nan") for row in columns], index, len(rows))
        return Contents(rows, series, environments)


def encode_parquet(contents: Contents, path: Path) -> dict[Path, bytes]:
    """Return the tables of the samples and of the records, which has the header as metadata."""
    pa, pq = need_pyarrow()
    types = {
        "bool": pa.bool_(),
        "integer": pa.int64(),
        "real": pa.float64(),
        "nan": pa.float64(),
        "text": pa.string(),
        "null": pa.null(),
    }

    metadata = {name: {"unit": c.unit, "meaning": c.meaning} for name, c in COLUMNS.items()}

    def encode(columns: Mapping[str, Any], kinds: Mapping[str, str], **header: str) -> bytes:
        arrays = [pa.array(columns[name], types[kind]) for name, kind in kinds.items()]
        fields = [
            pa.field(name, types[kind], metadata=metadata.get(name)) for name, kind in kinds.items()
        ]
        buffer = io.BytesIO()
        pq.write_table(pa.table(arrays, schema=pa.schema(fields, header)), buffer)
        return buffer.getvalue()

    kinds = column_kinds(contents.records)
    columns = {name: [record[name] for record in contents.records] for name in kinds}
    header = {f"memkern.{key}": dumps(value) for key, value in _header(contents).items()}
    return {
        path.with_suffix(".samples.parquet"): encode(sample_columns(contents), _SAMPLE_KINDS),
        path: encode(columns, kinds, **header),
    }


def _decode_parquet(path: Path) -> Contents:
    table = read_parquet(path, RESULT)
    with parsing(path, RESULT):
        prefix = b"memkern."
        header = {
            key[len(prefix) :].decode(): json.loads(value)
            for key, value in (table.schema.metadata or {}).items()
            if key.startswith(prefix)
        }
        kinds, environments = _parse_header(header)
        records = [restored_record(row, kinds) for row in table.to_pylist()]
    beside = path.with_suffix(".samples.parquet")
    samples = read_parquet(beside, RESULT, _SAMPLE_VALUE_B, ["record", "time_s"])
    with parsing(beside, RESULT):
        series = _split(samples["time_s"].to_numpy(), samples["record"].to_numpy(), len(records))
        return Contents(records, series, environments)


def _csv_files(path: Path) -> tuple[Path, Path, Path]:
    return path, path.with_suffix(".samples.csv"), path.with_suffix(".environment.json")


def files_of(path: Path) -> tuple[Path, ...]:
    """Return all files of an export to this path."""
    if path.suffix == ".parquet":
        return path, path.with_suffix(".samples.parquet")
    return _csv_files(path) if path.suffix == ".csv" else (path,)


def _parse_header(header: Any) -> tuple[dict[str, str], dict[str, Environment]]:
    check_version(header["schema_version"])
    kinds, environments = header["columns"], header["environments"]
    if not set(kinds.values()) <= KINDS:
        raise ValueError("a column has an unknown kind")
    if not all(isinstance(value, dict) for value in environments.values()):
        raise ValueError("an environment is not an object")
    return kinds, environments


def _parse_record(row: Mapping[str, Any], kinds: Mapping[str, str]) -> Record:
    """Restore a record from JSON values or CSV text."""
    if row.keys() != kinds.keys():
        raise ValueError(f"a record lacks or adds {min(row.keys() ^ kinds.keys())}")
    return {name: _parsed(name, row[name], kind) for name, kind in kinds.items()}


# How the text of a column is read; "null" and "nan" have none but NaN.
_READ: Mapping[str, Callable[[str], Any]] = {
    # Spreadsheets write capitals.
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "integer": int,
    "text": str,
}


def _parsed(name: str, given: Any, kind: str) -> Any:
    try:
        value = _READ.get(kind, float)(given) if isinstance(given, str) else given
        if column_kinds([{kind: value}], {kind: kind}) == {kind: kind}:
            return restored(value, kind)
    except (KeyError, ValueError):
        pass
    raise ValueError(f"{given!r} does not fit the column {name} of {kind}")


def _split(times: npt.ArrayLike, index: npt.ArrayLike, records: int) -> list[Samples]:
    rows = np.asarray(index, dtype=np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= records or (np.diff(rows) < 0).any()):
        raise ValueError("samples refer to records that are not there")
    ends = np.cumsum(np.bincount(rows, minlength=records))[:-1]
    return np.split(np.asarray(times, dtype=np.float64), ends) if records else []


# First characters of formulas in spreadsheets, and the apostrophe that marks text.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")


def escape_formula(text: str) -> str:
    """Return text with an apostrophe before it if a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """Return a table as CSV; text that a spreadsheet would run as a formula is escaped."""
    return _csv_text(columns, (",".join(map(_csv_field, row)) for row in rows))


def _csv_field(value: Any) -> str:
    if isinstance(value, str):
        # Quotes distinguish empty text from a missing value.
        return '"' + escape_formula(value).replace('"', '""') + '"'
    return "" if value is None or value != value else repr(value)


def _csv_text(columns: Iterable[str], lines: Iterable[str]) -> bytes:
    names = (name if re.fullmatch(r"\w+", name) else _csv_field(name) for name in columns)
    return "\n".join((",".join(names), *lines, "")).encode()


_CSV_FIELD = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",\n\r]*))(,|\r?\n|\Z)')


def _csv_rows(content: bytes) -> list[dict[str, str | None]]:
    """Parse comma-separated text; an empty field is None, one in quotes is text.

    A byte-order mark and the index that pandas writes as the first column are left out.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("it is UTF-16, as some spreadsheets save it: save it as UTF-8")
    text = content.decode("utf-8-sig")
    if re.match(r'[\w"]+[;\t]', text):
        raise ValueError(
            "semicolons or tabs separate its fields, as some spreadsheets save it: save it with "
            "commas between fields and points in numbers"
        )
    lines: list[list[str | None]] = []
    fields: list[str | None] = []
    position = 0
    while position < len(text):
        found = _CSV_FIELD.match(text, position)
        if not found:
            raise ValueError(f"character {position} is not part of a table")
        quoted, bare, end = found.groups()
        # Without the apostrophe of `escape_formula`.
        cell = None if quoted is None else quoted.replace('""', '"').removeprefix("'")
        fields.append(bare or None if cell is None else cell)
        position = found.end()
        if end != ",":
            lines.append(fields)
            fields = []
    if fields:
        raise ValueError("the last line is cut off")
    index = text.startswith((",", '"",', "Unnamed: 0,", '"Unnamed: 0",'))
    head, *rows = [line[index:] for line in lines] or [[]]
    names = [name or "" for name in head]
    return [dict(zip(names, row, strict=True)) for row in rows]


ENCODERS = {".parquet": encode_parquet, ".csv": encode_csv, ".json": encode_json}
DECODERS = {".parquet": _decode_parquet, ".csv": _decode_csv, ".json": _decode_json}
_SUFFIXES = (*ENCODERS, ".db")


def known_suffix(path: str | Path) -> Path:
    """Return the path of a results file, if its suffix is known.

    Raises
    ------
    InputError
        If the suffix is unknown.
    """
    named = Path(path)
    if named.suffix not in _SUFFIXES:
        raise InputError(f"{named} must end in one of {', '.join(_SUFFIXES)}")
    return named
