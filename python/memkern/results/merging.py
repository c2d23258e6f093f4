"""Join the results of several files, such as from the nodes of a cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from memkern.errors import InputError
from memkern.formats.database import Database
from memkern.formats.encoding import files_of
from memkern.formats.resultset import ResultSet, concat, load
from memkern.formats.values import Record, Samples, dumps


def merge(files: Iterable[str | Path]) -> ResultSet:
    """Join results files with their samples and environments.

    Parameters
    ----------
    files : iterable of path
        Results files: .db, .parquet, .csv or .json. Files that belong to another of them, such as
        ``x.samples.parquet``, are read with it.

    Returns
    -------
    ResultSet
        The records in the order of the files. Equal records with equal samples and the same
        environment occur once. The record of an interrupted case is left out if any file has the
        finished one, from any machine.

    Raises
    ------
    InputError
        There is no file or no record, a file can't be read as results, or a column has text in one
        file and numbers in another.
    """
    # All get the same columns.
    joined = load_all(files)
    if not len(joined):
        raise InputError("the files to merge have no records")
    finished = set(map(_key, filter(_is_finished, joined)))
    kept: dict[bytes, tuple[Record, Samples]] = {}
    for record, times in zip(joined.records, joined.samples, strict=True):
        if _is_finished(record) or _key(record) not in finished:
            content = dumps(record).encode() + times.tobytes()
            kept.setdefault(hashlib.sha256(content).digest(), (record, times))
    pairs = kept.values()
    return ResultSet(
        [record for record, _ in pairs], [times for _, times in pairs], joined.environments
    )


def load_all(files: Iterable[str | Path]) -> ResultSet:
    """Return all records of files, without those that belong to another file."""
    return concat(map(load, sources([Path(file) for file in files])))


def finished_cases(path: Path) -> set[tuple[str, int]]:
    """Return case_id and repeat of the finished records of a file that may still grow.

    Raises
    ------
    InputError
        It can't be read as results.
    """
    if path.suffix != ".db":
        return set(map(_key, filter(_is_finished, load(path))))
    with Database.existing(path) as database:
        return database.finished()


def _is_finished(record: Record) -> bool:
    return record.get("stop") != "interrupted"


def _key(record: Record) -> tuple[str, int]:
    return str(record.get("case_id")), int(record.get("repeat") or 0)


def sources(files: Sequence[Path]) -> list[Path]:
    """Return the files without those that belong to another; a shell pattern may match both."""
    parts = {part for file in files for part in files_of(file)[1:]}
    return [file for file in files if file not in parts]
