"""The SQLite file of results.

Each insertion is one transaction, synced to the disk before it returns; no transaction is open at
any other time, so that other processes can read the file while a sweep writes it. The tables are
``meta``, ``environments``, ``records`` (its columns are added when they first appear) and
``samples`` (little-endian float64).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.files import parsing, read, rename, temporary, writing
from memkern.formats.values import (
    RESULT,
    SCHEMA_VERSION,
    Contents,
    Record,
    Samples,
    check_version,
    column_kinds,
    dumps,
    plain_record,
    restored_record,
    series,
)
from memkern.machine.environment import Environment

if TYPE_CHECKING:
    import sqlite3

# "mkrn"; identifies the format for this module and for `file`.
APPLICATION_ID = 0x6D6B726E
BUSY_S = 30.0

_SQL_TYPES = {"bool": "INTEGER", "integer": "INTEGER", "real": "REAL", "text": "TEXT"}


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at a path, None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Database(contextlib.AbstractContextManager["Database"]):
    """An open file of results; use `Database.new` or `Database.existing`.

    Attributes
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Hold an open file."""
        self.path = path
        self._connection = connection
        self._process = os.getpid()
        self._file = _file_at(path)
        self._written: set[str] = set()  # environments in the file
        self._kinds: dict[str, str] = {}  # of the columns, for the current version of the file
        self._version = -1

    @property
    def is_inherited(self) -> bool:
        """Whether it was opened before this process was forked; SQLite can't use it then."""
        return os.getpid() != self._process

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to the file, without automatic transactions.

        Raises
        ------
        InputError
            It was opened before this process was forked.
        """
        if self.is_inherited:
            raise InputError(
                f"{self.path} was opened before this process was forked: open it again here"
            )
        return self._connection

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError(f"{self.path} is open and can't be pickled or copied: pickle its path")

    @classmethod
    def new(cls, path: Path) -> Database:
        """Create a file.

        Raises
        ------
        InputError
            If it exists or can't be written.
        """
        with writing(path):
            # SQLite would follow a link that appeared in between.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            return cls.existing(path, begin=True)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def existing(cls, path: Path, *, begin: bool = False) -> Database:
        """Open an existing file.

        Parameters
        ----------
        path : Path
            The file.
        begin : bool
            Whether to create the tables in an empty file, which is new or whose creation was
            interrupted.

        Raises
        ------
        InputError
            If it is not a database of results of this schema version.
        """
        import sqlite3

        # Not read-only even for reading: after a crash SQLite must first undo the unfinished write.
        uri = path.absolute().as_uri() + "?mode=rw"
        with parsing(path, RESULT):
            # SQLite itself lets only one thread at a time use a connection.
            connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
        database = cls(path, connection)
        try:
            with parsing(path, RESULT):
                [(application,)] = connection.execute("PRAGMA application_id").fetchall()
                connection.execute("PRAGMA synchronous = FULL")
                size = path.stat().st_size
            if begin and size == 0:
                database._begin()
            else:
                with parsing(path, RESULT):
                    if application != APPLICATION_ID:
                        raise ValueError("it is not a database, or one of another program")
                    [(version,)] = connection.execute(
                        "SELECT value FROM meta WHERE key = 'schema_version'"
                    ).fetchall()
                    check_version(int(version))
        except BaseException:
            connection.close()
            raise
        return database

    def __exit__(self, *_: object) -> None:
        """Close the file, unless it was opened before this process was forked."""
        if not self.is_inherited:
            self.connection.close()

    @property
    def is_in_place(self) -> bool:
        """Whether the open file is still the one at its path."""
        return self._file is not None and _file_at(self.path) == self._file

    def insert(
        self,
        rows: Iterable[tuple[Mapping[str, Any], npt.ArrayLike]],
        environments: Mapping[str, Environment],
        *,
        replace: bool = False,
        positions: Sequence[int] = (),
    ) -> None:
        """Write records and their samples in one transaction.

        Parameters
        ----------
        rows : iterable of (mapping, array_like)
            Each record, which must have ``case_id`` and ``repeat``, and its samples.
        environments : mapping
            Environments by ``environment_id``; existing ones are not changed.
        replace : bool
            Whether a record replaces earlier ones with the same ``case_id`` and ``repeat``.
        positions : sequence of int
            Numbers that define the order of records; by default they are appended.

        Raises
        ------
        InputError
            If a record has values of a wrong type, the disk is full or the file can't be written;
            the file is then unchanged.
        """
        plain = []
        for given, samples in rows:
            record = plain_record(given)
            if record.get("case_id") is None or record.get("repeat") is None:
                raise InputError("a record needs case_id and repeat to be found again")
            plain.append((record, series(samples).astype("<f8").tobytes()))
        with self.transaction() as cursor:
            before = self._columns()
            kinds = column_kinds((record for record, _ in plain), before)
            if kinds != before:
                stored = {name for name, kind in before.items() if kind in _SQL_TYPES}
                for name, kind in kinds.items():
                    if kind in _SQL_TYPES and name not in stored | {"case_id", "repeat"}:
                        added = f"{_quoted(name)} {_SQL_TYPES[kind]}"
                        cursor.execute(f"ALTER TABLE records ADD {added}")
                cursor.execute(
                    "UPDATE meta SET value = ? WHERE key = 'columns'", (json.dumps(kinds),)
                )
            cursor.executemany(
                "INSERT OR IGNORE INTO environments VALUES (?, ?)",
                [(key, dumps(environments[key])) for key in environments.keys() - self._written],
            )
            for (record, blob), position in zip_longest(plain, positions):
                if replace:
                    key = (record["case_id"], record["repeat"])
                    same = "SELECT record FROM records WHERE case_id = ? AND repeat = ?"
                    cursor.execute(f"DELETE FROM samples WHERE record IN ({same})", key)
                    cursor.execute("DELETE FROM records WHERE case_id = ? AND repeat = ?", key)
                names = tuple(name for name in record if kinds[name] in _SQL_TYPES)
                cursor.execute(_insertion(names), [position, *map(record.__getitem__, names)])
                cursor.execute("INSERT INTO samples VALUES (?, ?)", (cursor.lastrowid, blob))
        self._written |= environments.keys()
        self._kinds = kinds

    @property
    def count(self) -> int:
        """The number of records."""
        [(number,)] = self.connection.execute("SELECT count(*) FROM records")
        return int(number)

    @property
    def version(self) -> int:
        """A number that changes when another connection writes to the file."""
        [(version,)] = self.connection.execute("PRAGMA data_version").fetchall()
        return int(version)

    @property
    def end(self) -> int:
        """The place after the last record."""
        [(last,)] = self.connection.execute("SELECT max(record) FROM records")
        return (last or 0) + 1

    @property
    def positions(self) -> list[int]:
        """The numbers by which the records are ordered."""
        return [n for (n,) in self.connection.execute("SELECT record FROM records ORDER BY record")]

    def contents(self) -> Contents:
        """Return the contents of the file."""
        rows = self._select("ORDER BY record", ())
        return Contents(
            [record for record, _ in rows], [samples for _, samples in rows], self.environments()
        )

    def records(self, number: int) -> Iterator[Record]:
        """Yield all records, reading a `number` of them at a time."""
        after = -1
        while positions := self.connection.execute(
            "SELECT record FROM records WHERE record > ? ORDER BY record LIMIT ?", (after, number)
        ).fetchall():
            [(first,), (after,)] = positions[0], positions[-1]
            rows = self._select("WHERE record BETWEEN ? AND ? ORDER BY record", (first, after))
            yield from (record for record, _ in rows)

    def find(self, case_id: str, repeat: int) -> Record | None:
        """Return the latest record of a case's repeat, or None."""
        found = self._select(
            "WHERE records.case_id = ? AND records.repeat = ? ORDER BY record DESC LIMIT 1",
            (case_id, repeat),
        )
        return found[0][0] if found else None

    def first_time(self, case_id: str, repeat: int) -> bool:
        """Return whether this is the first call with a case's repeat on this connection."""
        # A temporary table is stored in a separate file, so that millions of rows fit.
        with writing(self.path), contextlib.closing(self.connection.cursor()) as cursor:
            cursor.execute(
                "CREATE TEMP TABLE IF NOT EXISTS seen "
                "(case_id TEXT, repeat INTEGER, PRIMARY KEY (case_id, repeat)) WITHOUT ROWID"
            )
            cursor.execute("INSERT OR IGNORE INTO temp.seen VALUES (?, ?)", (case_id, repeat))
            return cursor.rowcount == 1

    def finished(self) -> set[tuple[str, int]]:
        """Return ``case_id`` and ``repeat`` of the records that were not interrupted."""
        with parsing(self.path, RESULT):
            stop = "stop" if "stop" in self._columns() else "NULL"
            rows = self.connection.execute(
                f"SELECT case_id, repeat FROM records WHERE {stop} IS NOT 'interrupted'"
            )
            return set(rows.fetchall())

    def environments(self) -> dict[str, Environment]:
        """Return the environments by ``environment_id``."""
        with parsing(self.path, RESULT):
            rows = self.connection.execute(
                "SELECT environment_id, json FROM environments ORDER BY rowid"
            )
            return {key: json.loads(text) for key, text in rows.fetchall()}

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Provide a cursor whose statements are one transaction: all are on the disk, or none."""
        with writing(self.path), contextlib.closing(self.connection.cursor()) as cursor:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back if the disk was full.
                if self.connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    def _begin(self) -> None:
        with writing(self.path):
            self.connection.execute("PRAGMA journal_mode = DELETE")
        with self.transaction() as cursor:
            cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
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

    def _columns(self) -> dict[str, str]:
        # Another connection may have changed the file.
        version = self.version
        if version != self._version or not self._kinds:
            query = "SELECT value FROM meta WHERE key = 'columns'"
            [(text,)] = self.connection.execute(query).fetchall()
            self._kinds, self._version = json.loads(text), version
        return self._kinds

    def _select(self, where: str, values: tuple[Any, ...]) -> list[tuple[Record, Samples]]:
        with parsing(self.path, RESULT):
            kinds = self._columns()
            names = [name for name, kind in kinds.items() if kind in _SQL_TYPES]
            columns = ", ".join(["samples.time_s", *(f"records.{_quoted(n)}" for n in names)])
            rows = self.connection.execute(
                f"SELECT {columns} FROM records JOIN samples USING (record) {where}", values
            ).fetchall()
            return [
                (
                    restored_record(dict(zip(names, row, strict=True)), kinds),
                    np.frombuffer(blob, dtype="<f8").astype(np.float64),
                )
                for blob, *row in rows
            ]


def save(contents: Contents, path: Path) -> None:
    """Write a file atomically.

    Raises
    ------
    InputError
        If a record has values of a wrong type or the file can't be written.
    """
    written = temporary(path)
    try:
        with Database.new(written) as database:
            database.insert(
                zip(contents.records, contents.samples, strict=True), contents.environments
            )
        with writing(path):
            # SQLite would apply the journal of a crash of the old file to the new file.
            path.with_name(path.name + "-journal").unlink(missing_ok=True)
            rename(written, path)
    except InputError as error:
        # Name the requested file instead of the temporary one.
        raise InputError(str(error).replace(str(written), str(path))) from error
    finally:
        written.unlink(missing_ok=True)


def load(path: Path) -> Contents:
    """Return the contents of a file, which another process may be writing.

    Raises
    ------
    InputError
        If it is missing or not a database of results of this schema version.
    """
    read(path, size=1)
    with Database.existing(path) as database:
        return database.contents()


@functools.lru_cache(maxsize=16)
def _insertion(names: tuple[str, ...]) -> str:
    """Return the statement that inserts a record with some columns, its place first."""
    columns = ", ".join(map(_quoted, names))
    return f"INSERT INTO records (record, {columns}) VALUES (?, {', '.join('?' * len(names))})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
