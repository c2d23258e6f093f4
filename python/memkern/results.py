"""Records of measurements: kept safe while they are made, exported, loaded, shown.

A `ResultSet` holds one flat record a case and repeat, the raw samples of each, and the
environments they refer to. A running sweep writes into a `Store`, one SQLite file that has every
finished case even after a power cut. Parquet, CSV and JSON are exports of it. All four hold the
same: what is saved in one and loaded again is equal, bit by bit.

Missing values have one form, whatever the format: NaN in a column of floats, None in any other.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import html
import importlib
import io
import json
import math
import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memkern.environment import Environment, differences, identity
from memkern.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA_VERSION", "Record", "ResultSet", "Sink", "Store", "load", "open_output"]

SCHEMA_VERSION = 1

Record = dict[str, Any]
_Samples = npt.NDArray[np.float64]

_SUFFIXES = (".parquet", ".csv", ".json", ".db")
# From "says nothing" to "says most"; text mixes with the first two only.
_KINDS = ("null", "nan", "bool", "integer", "real")
_SQL_TYPES = {"bool": "INTEGER", "integer": "INTEGER", "real": "REAL", "text": "TEXT"}
_SAMPLE_KINDS = {
    "record": "integer",
    "case_id": "text",
    "repeat": "integer",
    "sample": "integer",
    "time_s": "real",
}
# Marks the file as ours to `file` and to us: "mkrn".
_APPLICATION_ID = 0x6D6B726E
_BUSY_S = 30.0


@dataclass(eq=False, repr=False)
class ResultSet:
    """Records with their samples and environments.

    Parameters
    ----------
    records : list of dict
        One flat record a case and repeat; values are bool, int, float, str or None. All get the
        same columns, in the order of their first appearance.
    samples : list of ndarray
        For each record its samples in seconds per invocation, float64, of any length.
    environments : dict
        Environments by ``environment_id``.

    Raises
    ------
    InputError
        If there are not as many series of samples as records, or a column mixes text and numbers.
    """

    records: list[Record] = field(default_factory=list)
    samples: list[_Samples] = field(default_factory=list)
    environments: dict[str, Environment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Bring the records into their one form."""
        if len(self.records) != len(self.samples):
            raise InputError(
                f"samples must be as many series as there are records, "
                f"not {len(self.samples)} for {len(self.records)}"
            )
        plain = [{name: _plain(name, v) for name, v in record.items()} for record in self.records]
        kinds = _kinds(plain)
        self.records = [_restored(record, kinds) for record in plain]
        self.samples = [_series(samples) for samples in self.samples]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records."""
        return iter(self.records)

    def __add__(self, other: ResultSet) -> ResultSet:
        """Return the records of both, those of `self` first."""
        if not isinstance(other, ResultSet):
            return NotImplemented
        return ResultSet(
            self.records + other.records,
            self.samples + other.samples,
            self.environments | other.environments,
        )

    def __repr__(self) -> str:
        """Say how many records there are, and of what."""
        kernels = sorted({str(record.get("kernel")) for record in self})
        return f"<ResultSet: {len(self)} records of {', '.join(kernels) or 'nothing'}>"

    @property
    def valid(self) -> bool:
        """Whether every record passed its validation."""
        return all(record.get("valid") is True for record in self)

    def filter(self, **columns: Any) -> ResultSet:
        """Return the records whose columns have the given values.

        Parameters
        ----------
        **columns
            A value, or a list, tuple or set of values any of which will do.

        Raises
        ------
        InputError
            If no record has such a column.
        """
        known = self.records[0].keys() if self.records else columns.keys()
        for name in columns:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise InputError(
                    f"no column is called {name}"
                    + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}")
                )
        allowed = {
            name: value if isinstance(value, (list, tuple, set, frozenset)) else (value,)
            for name, value in columns.items()
        }
        kept = [
            i
            for i, record in enumerate(self.records)
            if all(record[name] in values for name, values in allowed.items())
        ]
        used = {self.records[i].get("environment_id") for i in kept}
        return ResultSet(
            [self.records[i] for i in kept],
            [self.samples[i] for i in kept],
            {key: value for key, value in self.environments.items() if key in used},
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the records as a table, one row each.

        Returns
        -------
        pandas.DataFrame
            Integer and boolean columns in which values are missing have pandas' nullable types.
        """
        import pandas as pd

        nullable = {"integer": "Int64", "bool": "boolean"}
        plain = {"integer": "int64", "bool": "bool", "real": "float64", "nan": "float64"}
        columns = {}
        for name, kind in _kinds(self.records).items():
            values = [record[name] for record in self.records]
            missing = kind in nullable and None in values
            dtype = nullable[kind] if missing else plain.get(kind)
            columns[name] = pd.Series(values, dtype=dtype)
        frame: pd.DataFrame = pd.DataFrame(columns)
        return frame

    def samples_frame(self) -> pd.DataFrame:
        """Return all samples as a long table.

        Returns
        -------
        pandas.DataFrame
            Columns ``record`` (row of `to_frame`), ``case_id``, ``repeat``, ``sample`` (from 0)
            and ``time_s`` (seconds per invocation).
        """
        import pandas as pd

        frame: pd.DataFrame = pd.DataFrame(self._sample_columns())
        return frame

    def save(self, path: str | Path) -> None:
        """Write all to a file whose suffix says how: .parquet, .csv, .json or .db.

        See Also
        --------
        to_parquet, to_csv, to_json : what is written.

        Raises
        ------
        InputError
            If the suffix is another, or the file can't be written. Nothing is left behind then,
            and a file that was there before stays as it was.
        """
        target = _target(path)
        if target.suffix == ".db":
            self._to_db(target)
        else:
            _publish(_ENCODERS[target.suffix](self, target))

    def to_parquet(self, path: str | Path) -> None:
        """Write ``x.parquet`` and ``x.samples.parquet`` (needs pyarrow).

        The schema version and the environments are JSON in the first one's key-value metadata.

        Raises
        ------
        InputError
            If pyarrow is missing or a file can't be written.
        """
        _publish(_encode_parquet(self, _target(path, any_suffix=True)))

    def to_csv(self, path: str | Path) -> None:
        """Write ``x.csv``, ``x.samples.csv`` and ``x.environment.json``.

        Text is in double quotes, a missing value is an empty field, and floats have as many digits
        as it takes to read the same value back.

        Raises
        ------
        InputError
            If a file can't be written.
        """
        _publish(_encode_csv(self, _target(path, any_suffix=True)))

    def to_json(self, path: str | Path) -> None:
        """Write one document: schema_version, columns, environments, records and samples.

        Raises
        ------
        InputError
            If the file can't be written.
        """
        _publish(_encode_json(self, _target(path, any_suffix=True)))

    def to_json_text(self) -> str:
        """Return the records alone as a JSON array, missing values as null."""
        rows = ",\n ".join(_dumps(record) for record in self.records)
        return f"[{rows}]"

    @classmethod
    def load(cls, path: str | Path) -> ResultSet:
        """Load results from a file; see `memkern.results.load`."""
        return load(path)

    def _repr_html_(self) -> str:
        return _html_table(self)

    def _sample_columns(self) -> dict[str, Any]:
        lengths = [len(samples) for samples in self.samples]
        rows = np.repeat(np.arange(len(self), dtype=np.int64), lengths)
        return {
            "record": rows,
            "case_id": [self.records[i].get("case_id") for i in rows],
            "repeat": [self.records[i].get("repeat") for i in rows],
            "sample": np.concatenate([np.arange(n) for n in lengths] or [rows]),
            "time_s": np.concatenate([*self.samples, np.empty(0)]),
        }

    def _header(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "columns": _kinds(self.records),
            "environments": self.environments,
        }

    def _to_db(self, target: Path) -> None:
        temporary = _temporary(target)
        try:
            with Store._new(temporary) as store:
                store._insert(zip(self.records, self.samples, strict=True), self.environments)
            with _writing(target):
                # A journal that a crash left beside the old file would be played into the new one.
                target.with_name(target.name + "-journal").unlink(missing_ok=True)
                os.replace(temporary, target)
                _sync_folder(target)
        except InputError as error:
            # The file that was asked for is the culprit, not one that nobody knows of.
            raise InputError(str(error).replace(str(temporary), str(target))) from error
        finally:
            temporary.unlink(missing_ok=True)


class Store:
    """Results in one SQLite file that is complete after every case.

    Use `Store.open`. Each `add` is one transaction, synced to the disk before it returns; no
    transaction is open at any other time, so others can read the file while a sweep writes it. The
    tables are ``meta``, ``environments``, ``records`` (one column each, added as they appear) and
    ``samples`` (little-endian float64).
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Hold an open database; see `open`."""
        self.path = path
        self._db = database
        self._drop_if_empty = False

    @classmethod
    def open(
        cls,
        path: str | Path,
        resume: bool = False,
        environment: Environment | None = None,
    ) -> Store:
        """Open a new file, or go on with one.

        Parameters
        ----------
        path : path
            The file; its folder must exist.
        resume : bool
            Whether an existing file may be continued.
        environment : dict, optional
            Where we are now. See `check`.

        Raises
        ------
        InputError
            If the file exists and `resume` is not set, is no store of this schema version, can't
            be written, or holds results of another machine or build.
        """
        target = _target(path, any_suffix=True)
        if not target.exists():
            store = cls._new(target)
            store._drop_if_empty = True
            return store
        if not resume:
            raise _exists(target)
        store = cls._existing(target, create=True)
        try:
            if environment is not None:
                store.check(environment)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def _new(cls, path: Path) -> Store:
        with _writing(path):
            # Not left to SQLite, which would follow a link that appeared in between.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            return cls._existing(path, create=True)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def _existing(cls, path: Path, *, create: bool) -> Store:
        # Not read-only even for reading: after a crash SQLite must first undo the unfinished write.
        uri = path.absolute().as_uri() + "?mode=rw"
        with _parsing(path):
            database = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None)
        store = cls(path, database)
        try:
            with _parsing(path):
                [(application,)] = database.execute("PRAGMA application_id").fetchall()
                database.execute("PRAGMA synchronous = FULL")
            if create and path.stat().st_size == 0:
                # New, or what is left of one whose making was cut off.
                store._create()
            else:
                with _parsing(path):
                    if application != _APPLICATION_ID:
                        raise ValueError("it is no database, or another program's")
                    [(version,)] = database.execute(
                        "SELECT value FROM meta WHERE key = 'schema_version'"
                    ).fetchall()
                    _check_version(int(version))
        except BaseException:
            database.close()
            raise
        return store

    def __enter__(self) -> Store:
        """Return the store."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; one that we made and that has no record yet is removed."""
        empty = False
        if self._drop_if_empty:
            with contextlib.suppress(sqlite3.Error):
                empty = not self._db.execute("SELECT 1 FROM records LIMIT 1").fetchall()
        self._db.close()
        if empty:
            self.path.unlink(missing_ok=True)
        self._drop_if_empty = False

    def check(self, environment: Environment) -> None:
        """Refuse to mix results of two machines or builds.

        Parameters
        ----------
        environment : dict
            Where we are now.

        Raises
        ------
        InputError
            If a stored environment differs in what bears on a measurement; it says in what.
        """
        _check_same(self.path, self._environments(), environment)

    def add(self, record: Mapping[str, Any], samples: npt.ArrayLike, environment: Any) -> None:
        """Write a finished case to the disk, in place of an earlier one of that name and repeat.

        Parameters
        ----------
        record : mapping
            Must have ``case_id`` and ``repeat``; ``environment_id`` is set if it is missing.
        samples : array_like of float, shape (n,)
            Seconds per invocation.
        environment : dict
            Where it was measured.

        Raises
        ------
        InputError
            If the disk is full or the file can't be written; the store is then as it was before.
        """
        row = dict(record)
        row.setdefault("environment_id", identity(environment))
        self._insert([(row, samples)], {row["environment_id"]: environment}, replace=True)

    def find(self, case_id: str, repeat: int) -> Record | None:
        """Return the latest record of a case's repeat, or None if it has not been measured."""
        found = self._select(
            "WHERE records.case_id = ? AND records.repeat = ? ORDER BY record DESC LIMIT 1",
            (str(case_id), int(repeat)),
        )
        return found[0][0] if found else None

    def result_set(self) -> ResultSet:
        """Return all that is in the file."""
        rows = self._select("ORDER BY record", ())
        return ResultSet(
            [record for record, _ in rows], [samples for _, samples in rows], self._environments()
        )

    def _create(self) -> None:
        with _writing(self.path):
            self._db.execute("PRAGMA journal_mode = DELETE")
        with self._transaction() as cursor:
            cursor.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            cursor.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            cursor.execute(
                "CREATE TABLE environments (environment_id TEXT PRIMARY KEY, json TEXT NOT NULL)"
            )
            cursor.execute(
                "CREATE TABLE records (record INTEGER PRIMARY KEY, case_id TEXT, repeat INTEGER)"
            )
            cursor.execute("CREATE INDEX records_case ON records (case_id, repeat)")
            cursor.execute(
                "CREATE TABLE samples (record INTEGER PRIMARY KEY REFERENCES records (record), "
                "time_s BLOB NOT NULL)"
            )
            cursor.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [("schema_version", str(SCHEMA_VERSION)), ("columns", "{}")],
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with _writing(self.path), contextlib.closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself where the disk was full.
                if self._db.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    def _insert(
        self,
        rows: Iterable[tuple[Mapping[str, Any], npt.ArrayLike]],
        environments: Mapping[str, Environment],
        *,
        replace: bool = False,
    ) -> None:
        plain = []
        for given, samples in rows:
            record = {name: _plain(name, value) for name, value in given.items()}
            if record.get("case_id") is None or record.get("repeat") is None:
                raise InputError("a record needs case_id and repeat to be found again")
            plain.append((record, _series(samples).astype("<f8").tobytes()))
        with self._transaction() as cursor:
            before = self._columns()
            kinds = _kinds((record for record, _ in plain), before)
            stored = {name for name, kind in before.items() if kind in _SQL_TYPES}
            for name, kind in kinds.items():
                if kind in _SQL_TYPES and name not in stored | {"case_id", "repeat"}:
                    cursor.execute(f"ALTER TABLE records ADD {_quoted(name)} {_SQL_TYPES[kind]}")
            if kinds != before:
                cursor.execute(
                    "UPDATE meta SET value = ? WHERE key = 'columns'", (json.dumps(kinds),)
                )
            cursor.executemany(
                "INSERT OR IGNORE INTO environments VALUES (?, ?)",
                [(key, _dumps(value)) for key, value in environments.items()],
            )
            for record, blob in plain:
                if replace:
                    key = (record["case_id"], record["repeat"])
                    same = "SELECT record FROM records WHERE case_id = ? AND repeat = ?"
                    cursor.execute(f"DELETE FROM samples WHERE record IN ({same})", key)
                    cursor.execute("DELETE FROM records WHERE case_id = ? AND repeat = ?", key)
                names = [name for name in record if kinds[name] in _SQL_TYPES]
                cursor.execute(
                    f"INSERT INTO records ({', '.join(map(_quoted, names))}) "
                    f"VALUES ({', '.join('?' * len(names))})",
                    [record[name] for name in names],
                )
                cursor.execute("INSERT INTO samples VALUES (?, ?)", (cursor.lastrowid, blob))

    def _columns(self) -> dict[str, str]:
        found = self._db.execute("SELECT value FROM meta WHERE key = 'columns'").fetchone()
        kinds: dict[str, str] = json.loads(found[0])
        return kinds

    def _environments(self) -> dict[str, Environment]:
        with _parsing(self.path):
            rows = self._db.execute("SELECT environment_id, json FROM environments ORDER BY rowid")
            return {key: json.loads(text) for key, text in rows.fetchall()}

    def _select(self, where: str, values: tuple[Any, ...]) -> list[tuple[Record, _Samples]]:
        with _parsing(self.path):
            kinds = self._columns()
            names = [name for name, kind in kinds.items() if kind in _SQL_TYPES]
            columns = ", ".join(["samples.time_s", *(f"records.{_quoted(n)}" for n in names)])
            rows = self._db.execute(
                f"SELECT {columns} FROM records JOIN samples USING (record) {where}", values
            ).fetchall()
            return [
                (
                    _restored(dict(zip(names, row, strict=True)), kinds),
                    np.frombuffer(blob, dtype="<f8").astype(np.float64),
                )
                for blob, *row in rows
            ]


class Sink:
    """Where a run's results go: a store while it runs, the file that was asked for at its end.

    As a context manager it finishes when the block ends well; otherwise the working file stays.

    Attributes
    ----------
    path : Path
        The file that was asked for.
    store : Store
        The working file: `path` itself if that is a ``.db``, else ``x.parquet.db`` and the like.
    """

    def __init__(self, path: Path, store: Store) -> None:
        """Hold both; see `open_output`."""
        self.path = path
        self.store = store

    def finish(self) -> ResultSet:
        """Export, then remove the working file; a run without any record leaves nothing.

        Returns
        -------
        ResultSet
            All that was written.

        Raises
        ------
        InputError
            If the export can't be written; the working file is kept then.
        """
        results = self.store.result_set()
        exports = self.store.path != self.path
        if exports and results:
            results.save(self.path)
        self.store.close()
        if exports:
            self.store.path.unlink(missing_ok=True)
        return results

    def __enter__(self) -> Sink:
        """Return the sink."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish, or keep the working file after an error."""
        if kind is None:
            self.finish()
        else:
            self.store.close()


def open_output(
    path: str | Path, resume: bool = False, environment: Environment | None = None
) -> Sink:
    """Open the place for a run's results, and find out now what would fail at its end.

    Parameters
    ----------
    path : path
        Ends in .parquet, .csv, .json or .db.
    resume : bool
        Whether to go on with what is there: the working file of a run that was cut off, or a
        finished export.
    environment : dict, optional
        Where we are now. See `Store.check`.

    Raises
    ------
    InputError
        If the suffix is another, a file is there already and `resume` is not set, it can't be
        written, or it holds results of another machine or build.
    """
    target = _target(path)
    if target.suffix == ".db":
        return Sink(target, Store.open(target, resume, environment))
    if target.suffix == ".parquet":
        _pyarrow()
    working = target.with_name(target.name + ".db")
    files = [_target(file, any_suffix=True) for file in (working, *_files(target))]
    present = next((file for file in files if file.exists()), None)
    if present is not None and not resume:
        raise _exists(present)
    earlier = None if working.exists() or not target.exists() else load(target)
    if earlier is not None and environment is not None:
        _check_same(target, earlier.environments, environment)
    sink = Sink(target, Store.open(working, resume, environment))
    if earlier is not None:
        try:
            sink.store._insert(
                zip(earlier.records, earlier.samples, strict=True), earlier.environments
            )
        except BaseException:
            sink.store.close()
            raise
    return sink


def load(path: str | Path) -> ResultSet:
    """Load results from a .parquet, .csv, .json or .db file.

    Parameters
    ----------
    path : path
        The file with the records. The samples beside it are read too. A ``.db`` may be read while
        a run writes it.

    Returns
    -------
    ResultSet
        Equal to what was saved.

    Raises
    ------
    InputError
        If the file is missing, damaged, no result of memkern, or of another schema version.
    """
    source = Path(path)
    if source.suffix not in _SUFFIXES:
        raise _wrong_suffix(source)
    if source.suffix == ".db":
        _read(source, size=1)
        with Store._existing(source, create=False) as store:
            return store.result_set()
    return _DECODERS[source.suffix](source)


# Values and columns


def _plain(name: str, value: Any) -> Any:
    """Return a value as the plain Python it stands for."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        # SQLite knows no negative zero, so there is none anywhere.
        return value + 0.0
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InputError(f"column {name} must fit into 64 bits, not {value}")
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"column {name} must be Unicode text, not {value!r}") from None
        return value
    raise InputError(
        f"column {name} must be a bool, a number, text or None, not {type(value).__name__}"
    )


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, str):
        return "text"
    return "nan" if math.isnan(value) else "real"


def _kinds(records: Iterable[Mapping[str, Any]], known: Mapping[str, str] = {}) -> dict[str, str]:
    """Return each column's kind: the narrowest that holds all its values."""
    kinds = dict(known)
    for record in records:
        for name, value in record.items():
            new, old = _kind(value), kinds.get(name, "null")
            if new == old:
                kinds[name] = new
            elif "text" in (new, old):
                if not {new, old} <= {"text", "null", "nan"}:
                    raise InputError(f"column {name} must not mix text and numbers ({value!r})")
                kinds[name] = "text"
            else:
                kinds[name] = max(new, old, key=_KINDS.index)
    return kinds


def _restored(values: Mapping[str, Any], kinds: Mapping[str, str]) -> Record:
    return {name: _value(values.get(name), kind) for name, kind in kinds.items()}


def _value(value: Any, kind: str) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return math.nan if kind in ("real", "nan") else None
    if kind == "real":
        return float(value)
    if kind == "integer":
        return int(value)
    return bool(value) if kind == "bool" else value


def _series(samples: npt.ArrayLike) -> _Samples:
    x = np.array(samples, dtype=np.float64)
    if x.ndim != 1:
        raise InputError(f"samples must have one dimension, not shape {x.shape}")
    return x


def _jsonable(value: Any) -> Any:
    """Replace what JSON has no word for: NaN by null, infinities by text that float() reads."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _dumps(value: Any) -> str:
    return json.dumps(_jsonable(value), allow_nan=False, default=str)


# Formats: each encoder returns the bytes of every file, each decoder reads them


def _encode_json(results: ResultSet, path: Path) -> dict[Path, bytes]:
    rows = ",\n ".join(_dumps([float(t) for t in samples]) for samples in results.samples)
    head = _dumps(results._header())[1:-1]
    text = f'{{{head},\n"records":\n{results.to_json_text()},\n"samples":\n[{rows}]}}\n'
    return {path: text.encode()}


def _decode_json(path: Path) -> ResultSet:
    content = _read(path)
    with _parsing(path):
        document = json.loads(content)
        kinds, environments = _parse_header(document)
        records = [_parse_record(record, kinds) for record in document["records"]]
        samples = [np.array([_value(t, "real") for t in row]) for row in document["samples"]]
        return ResultSet(records, samples, environments)


def _encode_csv(results: ResultSet, path: Path) -> dict[Path, bytes]:
    records, samples, header = _csv_files(path)
    kinds = _kinds(results.records)
    columns = results._sample_columns()
    times = [repr(float(t)) for t in columns["time_s"]]
    keys = zip(*(columns[name] for name in ("record", "case_id", "repeat", "sample")), strict=True)
    lines = [
        ",".join((*map(_csv_field, map(_native, key)), t))
        for key, t in zip(keys, times, strict=True)
    ]
    return {
        samples: _csv_text(_SAMPLE_KINDS, lines),
        header: (json.dumps(_jsonable(results._header()), indent=1) + "\n").encode(),
        records: _csv_text(
            kinds, (",".join(map(_csv_field, record.values())) for record in results.records)
        ),
    }


def _decode_csv(path: Path) -> ResultSet:
    records, samples, header = _csv_files(path)
    content = _read(records)
    head = _read(header)
    with _parsing(header):
        kinds, environments = _parse_header(json.loads(head))
    with _parsing(records):
        rows = [_parse_record(row, kinds) for row in _csv_rows(content.decode())]
    times = _read(samples)
    with _parsing(samples):
        columns = _csv_rows(times.decode())
        index = [int(row["record"] or "") for row in columns]
        series = _split([float(row["time_s"] or "nan") for row in columns], index, len(rows))
        return ResultSet(rows, series, environments)


def _encode_parquet(results: ResultSet, path: Path) -> dict[Path, bytes]:
    pa, pq = _pyarrow()
    types = {
        "bool": pa.bool_(),
        "integer": pa.int64(),
        "real": pa.float64(),
        "nan": pa.float64(),
        "text": pa.string(),
        "null": pa.null(),
    }

    def encode(columns: Mapping[str, Any], kinds: Mapping[str, str], **header: str) -> bytes:
        arrays = {name: pa.array(columns[name], types[kind]) for name, kind in kinds.items()}
        table = pa.table(arrays).replace_schema_metadata(header)
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        return buffer.getvalue()

    kinds = _kinds(results.records)
    columns = {name: [record[name] for record in results] for name in kinds}
    header = {f"memkern.{key}": _dumps(value) for key, value in results._header().items()}
    return {
        path.with_suffix(".samples.parquet"): encode(results._sample_columns(), _SAMPLE_KINDS),
        path: encode(columns, kinds, **header),
    }


def _decode_parquet(path: Path) -> ResultSet:
    _, pq = _pyarrow()
    content = _read(path)
    with _parsing(path):
        table = pq.read_table(io.BytesIO(content))
        prefix = b"memkern."
        header = {
            key[len(prefix) :].decode(): json.loads(value)
            for key, value in (table.schema.metadata or {}).items()
            if key.startswith(prefix)
        }
        kinds, environments = _parse_header(header)
        records = [_restored(row, kinds) for row in table.to_pylist()]
    beside = path.with_suffix(".samples.parquet")
    times = _read(beside)
    with _parsing(beside):
        samples = pq.read_table(io.BytesIO(times), columns=["record", "time_s"])
        series = _split(samples["time_s"].to_numpy(), samples["record"].to_numpy(), len(records))
        return ResultSet(records, series, environments)


def _csv_files(path: Path) -> tuple[Path, Path, Path]:
    return path, path.with_suffix(".samples.csv"), path.with_suffix(".environment.json")


_ENCODERS = {".parquet": _encode_parquet, ".csv": _encode_csv, ".json": _encode_json}
_DECODERS = {".parquet": _decode_parquet, ".csv": _decode_csv, ".json": _decode_json}


def _files(path: Path) -> tuple[Path, ...]:
    """Return all files that an export to this one consists of."""
    if path.suffix == ".parquet":
        return path, path.with_suffix(".samples.parquet")
    return _csv_files(path) if path.suffix == ".csv" else (path,)


def _parse_header(header: Any) -> tuple[dict[str, str], dict[str, Environment]]:
    _check_version(header["schema_version"])
    kinds, environments = header["columns"], header["environments"]
    if not set(kinds.values()) <= {*_KINDS, "text"}:
        raise ValueError("a column is of an unknown kind")
    if not all(isinstance(value, dict) for value in environments.values()):
        raise ValueError("an environment is not an object")
    return kinds, environments


def _check_same(path: Path, stored: Mapping[str, Environment], environment: Environment) -> None:
    for other in stored.values():
        found = differences(other, environment)
        if found:
            more = f" and {len(found) - 4} more" if len(found) > 4 else ""
            raise InputError(
                f"{path} holds results of another machine or build "
                f"({'; '.join(found[:4])}{more}): name another file"
            )


def _check_version(version: Any) -> None:
    if version != SCHEMA_VERSION:
        raise ValueError(f"its schema version is {version}, not {SCHEMA_VERSION}")


def _parse_record(row: Mapping[str, Any], kinds: Mapping[str, str]) -> Record:
    """Restore a record from JSON values or CSV text."""
    if row.keys() != kinds.keys():
        raise ValueError(f"a record lacks or adds {min(row.keys() ^ kinds.keys())}")
    return {name: _parsed(row[name], kind) for name, kind in kinds.items()}


def _parsed(value: Any, kind: str) -> Any:
    if isinstance(value, str) and kind != "text":
        if kind == "bool":
            value = {"True": True, "False": False}[value]
        else:
            value = int(value) if kind == "integer" else float(value)
    if _kinds([{kind: value}], {kind: kind}) != {kind: kind}:
        raise ValueError(f"{value!r} does not fit a column of {kind}")
    return _value(value, kind)


def _split(times: npt.ArrayLike, index: npt.ArrayLike, records: int) -> list[_Samples]:
    rows = np.asarray(index, dtype=np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= records or (np.diff(rows) < 0).any()):
        raise ValueError("samples refer to records that are not there")
    ends = np.cumsum(np.bincount(rows, minlength=records))[:-1]
    return np.split(np.asarray(times, dtype=np.float64), ends) if records else []


def _native(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _csv_field(value: Any) -> str:
    if isinstance(value, str):
        # Quotes tell an empty text from a missing one.
        return '"' + value.replace('"', '""') + '"'
    return "" if value is None or value != value else repr(value)


def _csv_text(kinds: Mapping[str, str], lines: Iterable[str]) -> bytes:
    return "\n".join((",".join(map(_csv_name, kinds)), *lines, "")).encode()


def _csv_name(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else _csv_field(name)


_CSV_FIELD = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",\n\r]*))(,|\r?\n|\Z)')


def _csv_rows(text: str) -> list[dict[str, str | None]]:
    """Parse comma-separated text; an empty field is None, one in quotes is text."""
    names: list[str] | None = None
    rows: list[dict[str, str | None]] = []
    fields: list[str | None] = []
    position = 0
    while position < len(text):
        found = _CSV_FIELD.match(text, position)
        if not found:
            raise ValueError(f"character {position} is not part of a table")
        quoted, bare, end = found.groups()
        fields.append(bare or None if quoted is None else quoted.replace('""', '"'))
        position = found.end()
        if end != ",":
            if names is None:
                names = [name or "" for name in fields]
            else:
                rows.append(dict(zip(names, fields, strict=True)))
            fields = []
    if fields:
        raise ValueError("the last line is cut off")
    return rows


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(
            "Parquet files need pyarrow: install it, or use .csv, .json or .db"
        ) from None


# Files


def _target(path: str | Path, *, any_suffix: bool = False) -> Path:
    """Return a path that may be written, or say in one sentence why not."""
    target = Path(path)
    if not any_suffix and target.suffix not in _SUFFIXES:
        raise _wrong_suffix(target)
    try:
        folder = target.parent.stat()
        try:
            mode = target.lstat().st_mode
        except FileNotFoundError:
            mode = None
    except (OSError, ValueError) as error:
        raise InputError(f"{target} can't be written: {_reason(error)}") from None
    if not stat.S_ISDIR(folder.st_mode):
        raise InputError(f"{target} can't be written: {target.parent} is not a folder")
    if mode is not None and stat.S_ISLNK(mode):
        raise InputError(f"{target} is a symbolic link: name the file itself")
    if mode is not None and not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise InputError(f"{target} is {what}: name a file")
    return target


def _wrong_suffix(path: Path) -> InputError:
    return InputError(f"{path} must end in one of {', '.join(_SUFFIXES)}")


def _exists(path: Path) -> InputError:
    return InputError(f"{path} exists already: go on with it by --resume, or name another file")


def _temporary(target: Path) -> Path:
    return target.with_name(f".memkern-{secrets.token_hex(8)}.tmp")


def _publish(files: Mapping[Path, bytes]) -> None:
    """Write files so that each is there in full or as it was; the last one comes last."""
    for path in files:
        _target(path, any_suffix=True)
    temporaries = {path: _temporary(path) for path in files}
    try:
        for path, content in files.items():
            with _writing(path), open(temporaries[path], "xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        for path, temporary in temporaries.items():
            with _writing(path):
                os.replace(temporary, path)
                _sync_folder(path)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    """Make a renaming survive a power cut."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"{path} can't be written: {_reason(error)}") from error


@contextlib.contextmanager
def _parsing(path: Path) -> Iterator[None]:
    try:
        yield
    except (
        *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
        *(NotImplementedError, RecursionError, sqlite3.Error),
    ) as error:
        raise InputError(f"{path} can't be read as a memkern result: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or (isinstance(error, sqlite3.Error) and "is full" in str(error)):
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing or unknown"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _read(path: Path, size: int = -1) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(size)
    except FileNotFoundError:
        working = path.with_name(path.name + ".db")
        hint = f"; {working} has what an unfinished run left" if os.path.exists(working) else ""
        raise InputError(f"{path} does not exist{hint}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read: {_reason(error)}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# For people

_SHOWN_ROWS = 60
_COLUMNS: Sequence[tuple[str, str]] = (
    ("kernel", "kernel"),
    ("name", "name"),
    ("pattern", "pattern"),
    ("delta", "delta"),
    ("count", "count"),
    ("variant", "variant"),
    ("isa", "ISA"),
    ("threads", "threads"),
    ("bandwidth_GBps", "GB/s"),
    ("performance_GFLOPs", "GFLOP/s"),
    ("rate_GAMS", "GAMS"),
    ("time_min_s", "min. time"),
    ("ci_relative", "± median"),
)


def _html_table(results: ResultSet) -> str:
    """Return the table a notebook shows; styles stand at the cells so that they stay there."""
    shown = results.records[:_SHOWN_ROWS]
    columns = [
        (name, title)
        for name, title in _COLUMNS
        if any(_shown(name, record.get(name)) for record in shown)
    ]
    cell = "padding:.2em .7em;text-align:"
    head = "".join(
        f'<th style="{cell}{_align(name, shown)}">{html.escape(title)}</th>'
        for name, title in columns
    )
    body = []
    for record in shown:
        mark, colour = _mark(record)
        cells = "".join(
            f'<td style="{cell}{_align(name, shown)}">'
            f"{html.escape(_shown(name, record.get(name)))}</td>"
            for name, _ in columns
        )
        style = f' style="background:{colour};color:#222"' if colour else ""
        body.append(f'<tr{style}>{cells}<td style="{cell}left">{mark}</td></tr>')
    platforms = sorted({str(record["platform"]) for record in results if record.get("platform")})
    rest = len(results) - len(shown)
    caption = f"{len(results)} record{'' if len(results) == 1 else 's'}"
    caption += f" on {', '.join(platforms)}" if platforms else ""
    caption += f"; the first {len(shown)} are shown" if rest else ""
    return (
        '<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">'
        f'<caption style="text-align:left;padding:.3em 0">{html.escape(caption)}</caption>'
        f'<thead style="border-bottom:1px solid">'
        f"<tr>{head}<th></th></tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def _mark(record: Mapping[str, Any]) -> tuple[str, str]:
    if record.get("valid") is False:
        return "✗ invalid", "#f6c6bd"
    return ("~ noisy", "#fbe6b0") if record.get("noisy") else ("", "")


def _align(name: str, records: Sequence[Mapping[str, Any]]) -> str:
    text = any(isinstance(record.get(name), str) for record in records)
    return "left" if text and name != "delta" else "right"


def _shown(name: str, value: Any) -> str:
    if value is None or value != value:
        return ""
    if not isinstance(value, float):
        return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else str(value)
    if name == "ci_relative":
        return f"{value:.1%}"
    if name.endswith("_s"):
        exponent = min(max(math.floor(math.log10(value) / 3), -3), 0) if value > 0 else 0
        unit = {0: "s", -1: "ms", -2: "µs", -3: "ns"}[exponent]
        return f"{value / 1000.0**exponent:.4g} {unit}"
    return f"{value:.4g}"
