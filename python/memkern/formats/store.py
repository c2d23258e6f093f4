"""The file of results during a run, and its export at the end."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from memkern.errors import InputError
from memkern.files import sqlite_errors, unused, writable, writing
from memkern.formats.database import Database
from memkern.formats.encoding import files_of, known_suffix
from memkern.formats.resultset import MANY, ResultSet, load, working_file
from memkern.formats.values import Record
from memkern.inputs.parquet import need_pyarrow
from memkern.machine.environment import Environment, differences, identity


class Store(contextlib.AbstractContextManager["Store"]):
    """Results in one SQLite file that is complete after every case.

    Use `Store.open`. Each `add` is one transaction, synced to the disk before it returns; no
    transaction is open at any other time, so others can read the file while a sweep writes it.

    Attributes
    ----------
    path : Path
        The file.
    database : Database
        The open file.
    """

    def __init__(self, database: Database, *, drop_if_empty: bool = False) -> None:
        """Hold an open file; see `open`."""
        self.path = database.path
        self.database = database
        self._drop_if_empty = drop_if_empty

    @classmethod
    def open(
        cls,
        path: str | Path,
        resume: bool = False,
        environment: Environment | None = None,
    ) -> Store:
        """Create a file, or continue an existing one.

        Parameters
        ----------
        path : path
            The file; its folder must exist.
        resume : bool
            Whether an existing file may be continued.
        environment : dict, optional
            The current environment (see `check`).

        Raises
        ------
        InputError
            If the file exists and `resume` is not set, is not a store of this schema version, can't
            be written, or has results of another machine or build.
        """
        target = writable(path)
        if not target.exists():
            return cls(Database.new(target), drop_if_empty=True)
        if not resume:
            raise _exists(target)
        with writing(target):  # otherwise writing would fail after the first case
            os.close(os.open(target, os.O_WRONLY))
        store = cls(Database.existing(target, begin=True))
        try:
            if environment is not None:
                store.check(environment)
        except BaseException:
            store.close()
            raise
        return store

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file, and remove it if it was created here and has no record.

        A file that was opened before this process was forked is not closed.
        """
        if self.database.is_inherited:
            return
        drop = False
        with self.database, contextlib.suppress(*sqlite_errors()):
            drop = (self._drop_if_empty and self.database.is_in_place) and not self.database.count
        if drop:
            self.database.path.unlink(missing_ok=True)
        self._drop_if_empty = False

    @property
    def is_kept(self) -> bool:
        """Whether there is a file that can be resumed, after it was closed."""
        return self.database.path == self.path and self.path.exists()

    def check(self, environment: Environment) -> None:
        """Refuse to mix results of two machines or builds.

        Parameters
        ----------
        environment : dict
            The current environment.

        Raises
        ------
        InputError
            If a stored environment has `differences` that may affect a measurement.
        """
        _check_same(self.path, self.database.environments(), environment)

    def add(self, record: Mapping[str, Any], samples: npt.ArrayLike, environment: Any) -> None:
        """Write a finished case; see `add_all`."""
        self.add_all([(record, samples)], environment)

    def add_all(
        self,
        rows: Sequence[tuple[Mapping[str, Any], npt.ArrayLike]],
        environment: Any,
        positions: Sequence[int] = (),
    ) -> None:
        """Write finished cases to the disk, in place of earlier ones with their case_id and repeat.

        Parameters
        ----------
        rows : sequence of (mapping, array_like of float, shape (n,))
            Records, which must have ``case_id`` and ``repeat`` (``environment_id`` is set if it is
            missing), and their samples in seconds per invocation.
        environment : dict
            Environment in which they were measured.
        positions : sequence of int
            Numbers by which the file's records are ordered; by default they come at its end.

        Raises
        ------
        InputError
            If the disk is full or the file can't be written; the store is then unchanged.
        """
        self.write_anew_if_deleted()
        own = identity(environment)
        whole = [
            ({**record, "environment_id": record.get("environment_id", own)}, samples)
            for record, samples in rows
        ]
        environments = dict.fromkeys((row["environment_id"] for row, _ in whole), environment)
        self.database.insert(whole, environments, replace=True, positions=positions)

    def write_anew_if_deleted(self) -> None:
        """Write all records to a new file if the one in use was deleted or replaced.

        Raises
        ------
        InputError
            If another file replaced it; the records are then in a new file in the same folder.
        """
        lost = self.database
        if lost.is_in_place:
            return
        contents, positions = lost.contents(), lost.positions
        replaced = self.path.exists()
        target = self.path.with_name(f"{self.path.name}.rescued.db") if replaced else self.path
        self.database = Database.new(target)
        lost.connection.close()
        self.database.insert(
            zip(contents.records, contents.samples, strict=True),
            contents.environments,
            positions=positions,
        )
        if replaced:
            raise InputError(
                f"{self.path} was replaced by another file while results were written to it: "
                f"the results are in {target}"
            )
        warnings.warn(
            f"{self.path} was deleted while results were written to it: all results are written "
            "to a new file",
            stacklevel=2,
        )

    def find(self, case_id: str, repeat: int) -> Record | None:
        """Return the latest record of a case's repeat, or None if it has not been measured."""
        return self.database.find(str(case_id), int(repeat))

    def result_set(self) -> ResultSet:
        """Return the contents of the file; if there are many, they are read on demand."""
        if self.database.count > MANY:
            return ResultSet.of_file(self.database.path)
        return ResultSet(*self.database.contents())


@dataclass(eq=False, repr=False)
class Sink(contextlib.AbstractContextManager["Sink"]):
    """The output of a run: a store while it runs, an export to the requested file at its end.

    As a context manager it finishes at the end of the block; after an error the working file stays.

    Attributes
    ----------
    path : Path
        The requested file.
    store : Store
        The working file: `path` itself if that is a ``.db``, else ``x.parquet.db`` and the like.
    """

    path: Path
    store: Store

    def finish(self, interrupted: bool = False) -> ResultSet:
        """Export, then remove the working file; a run without records leaves no file.

        If the run was interrupted, only close the working file.

        Returns
        -------
        ResultSet
            All records that were written.

        Raises
        ------
        InputError
            If the export can't be written; the working file is kept then.
        """
        if not interrupted:
            self.store.write_anew_if_deleted()
        results = self.store.result_set()
        exports = self.store.path != self.path and not interrupted
        if exports and results:
            results.save(self.path)
        self.store.close()
        if exports:
            self.store.path.unlink(missing_ok=True)
        return results

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish, or keep the working file after an error."""
        if kind is None:
            self.finish()
        else:
            self.store.close()


def check_output(path: str | Path, force: bool = False) -> Path:
    """Return the path of a new results file, after checking that it can be written.

    Parameters
    ----------
    path : path
        Ends in .parquet, .csv, .json or .db.
    force : bool
        Whether existing files may be overwritten.

    Raises
    ------
    InputError
        If the suffix is unknown, the file or one that belongs to it exists and `force` is not set,
        or it can't be written.
    """
    target = writable(known_suffix(path))
    if target.suffix == ".parquet":
        need_pyarrow()
    for file in _files_of(target):
        unused(file, force)
    return target


def _files_of(target: Path) -> tuple[Path, ...]:
    """Return all files of a run's results, the working file first."""
    return (target,) if target.suffix == ".db" else (working_file(target), *files_of(target))


def open_output(
    path: str | Path,
    resume: bool = False,
    environment: Environment | None = None,
    *,
    force: bool = False,
) -> Sink:
    """Open the output of a run, after checking that it can be written at the end.

    Parameters
    ----------
    path : path
        Ends in .parquet, .csv, .json or .db.
    resume : bool
        Whether to continue existing results: the working file of an interrupted run, or a finished
        export.
    environment : dict, optional
        The current environment (see `Store.check`).
    force : bool
        Whether existing files may be overwritten, unless they are resumed.

    Raises
    ------
    InputError
        If the suffix is unknown, a file exists and neither `resume` nor `force` is set, it can't be
        written, or it has results of another machine or build.
    """
    target = check_output(path, force=True)
    files = _files_of(target)
    present = next((file for file in files if file.exists()), None)
    if present is not None and not (resume or force):
        raise _exists(present)
    working = files[0]
    if force and not resume:
        for file in (working, working.with_name(working.name + "-journal")):
            file.unlink(missing_ok=True)
    if target == working:
        return Sink(target, Store.open(target, resume, environment))
    earlier = load(target) if resume and target.exists() and not working.exists() else None
    if earlier is not None and environment is not None:
        _check_same(target, earlier.environments, environment)
    store = Store.open(working, resume, environment)
    if earlier is not None:
        try:
            store.database.insert(
                zip(earlier.records, earlier.samples, strict=True), earlier.environments
            )
        except BaseException:
            store.close()
            raise
    return Sink(target, store)


def _check_same(path: Path, stored: Mapping[str, Environment], environment: Environment) -> None:
    for other in stored.values():
        found = differences(other, environment)
        if found:
            more = f" and {len(found) - 4} more" if len(found) > 4 else ""
            raise InputError(
                f"{path} holds results of another machine or build "
                f"({'; '.join(found[:4])}{more}): name another file"
            )


def _exists(path: Path) -> InputError:
    return InputError(
        f"{path} exists already: continue it with --resume, name another file, or overwrite it "
        "with --force"
    )
