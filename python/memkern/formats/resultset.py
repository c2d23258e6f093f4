"""The central type: records with their samples and environments."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from memkern.checks import plain, several, shown, unknown
from memkern.errors import InputError
from memkern.files import parsing, publish, writable
from memkern.formats.values import (
    RESULT,
    Contents,
    Record,
    Samples,
    check_contents,
    column_kinds,
    json_rows,
    jsonable,
    plain_record,
    restored_record,
    series,
)
from memkern.machine.environment import Environment

if TYPE_CHECKING:
    import pandas as pd

    from memkern.formats.database import Database

Mask: TypeAlias = "Sequence[bool] | npt.NDArray[np.bool_] | pd.Series"

MANY = 1000
"""Number of records above which results stay in the file until they are used."""


@dataclass(eq=False, repr=False)
class ResultSet:
    """Records with their samples and environments.

    Parameters
    ----------
    records : list of dict
        One flat record per case and repeat; values are bool, int, float, str or None. All get the
        same columns, in the order of their first appearance.
    samples : list of ndarray
        For each record its samples in seconds per invocation, float64, of any length.
    environments : dict
        Environments by ``environment_id``.
    interrupted : bool
        Whether the run was interrupted before its end.
    left_out : int
        Number of measurements that were left out for lack of time.

    Raises
    ------
    InputError
        If the numbers of arrays of samples and of records differ, or a column mixes text and
        numbers.
    """

    records: list[Record] = field(default_factory=list)
    samples: list[Samples] = field(default_factory=list)
    environments: dict[str, Environment] = field(default_factory=dict)
    interrupted: bool = False
    left_out: int = 0
    _source: tuple[Database, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Convert all values to the kinds of their columns."""
        if len(self.records) != len(self.samples):
            raise InputError(
                f"samples must be one array for each record, "
                f"not {len(self.samples)} for {len(self.records)} records"
            )
        plain = [plain_record(record) for record in self.records]
        kinds = column_kinds(plain)
        self.records = [restored_record(record, kinds) for record in plain]
        self.samples = [series(samples) for samples in self.samples]

    @classmethod
    def of_file(cls, path: Path) -> ResultSet:
        """Return the contents of a .db file, which are read into memory on demand.

        Until then the file stays open, so it may be removed or overwritten.

        Parameters
        ----------
        path : Path

        Raises
        ------
        InputError
            The file can't be read. If it is extended before its contents are read, reading raises
            this error.
        """
        from memkern.formats.database import Database

        source = Database.existing(path)
        results = cls(environments=source.environments())
        del results.records, results.samples
        results._source = source, source.version
        return results

    def _unread(self) -> Database | None:
        """Return the file whose contents are not in memory, if there is one."""
        if self._source is None:
            return None
        source, version = self._source
        if source.version != version:
            raise InputError(f"{source.path} was written to by another run: load it again")
        return source

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Read the contents of the file when they are first used."""
            source = self._unread() if name in ("records", "samples") else None
            if source is None:
                raise AttributeError(f"a ResultSet has no attribute {name!r}")
            with source:
                self.records, self.samples, _ = source.contents()
            self._source = None
            return vars(self)[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling and copying: all contents, in memory."""
        _ = self.records
        return vars(self)

    def __len__(self) -> int:
        """Return the number of records."""
        source = self._unread()
        return len(self.records) if source is None else source.count

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records."""
        source = self._unread()
        return iter(self.records) if source is None else source.records(MANY)

    def __eq__(self, other: object) -> bool:
        """Compare records, samples and environments; NaN is equal to NaN."""
        if not isinstance(other, ResultSet):
            return NotImplemented
        return (
            jsonable(self.records) == jsonable(other.records)
            and [x.tobytes() for x in self.samples] == [x.tobytes() for x in other.samples]
            and jsonable(self.environments) == jsonable(other.environments)
        )

    def __add__(self, other: ResultSet) -> ResultSet:
        """Return the records of both, starting with `self`."""
        if not isinstance(other, ResultSet):
            return NotImplemented
        return concat([self, other])

    @overload
    def __getitem__(self, key: str) -> pd.Series: ...

    @overload
    def __getitem__(self, key: int) -> Record: ...

    @overload
    def __getitem__(self, key: slice | Mask) -> ResultSet: ...

    def __getitem__(self, key: str | int | slice | Mask) -> pd.Series | Record | ResultSet:
        """Return a column, a record, or the results of a slice or of a mask.

        Parameters
        ----------
        key : str, int, slice or array_like of bool, shape (records,)
            A number, from 0 or negative from the end, returns one record, as iteration does. A
            slice or a mask returns results, with their samples and environments. A Series is
            aligned by its index, which is that of `to_frame`; missing values are false.

        Raises
        ------
        InputError
            If there is no such column, or the mask has not one boolean for each record.
        IndexError
            If there is no record of that number.
        """
        key = plain(key, "a number of a record")
        if isinstance(key, str):
            self._need([key])
            return self.to_frame()[key]
        if type(key) is int:
            return self.records[key]
        if isinstance(key, slice):
            return self._rows(range(len(self))[key])
        return self._rows(np.flatnonzero(_mask(key, len(self))))

    def __repr__(self) -> str:
        """Return the number of records and their kernels."""
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
            A value, or several allowed ones: a list, a set, an array or a Series.

        Raises
        ------
        InputError
            If there is no such column.
        """
        self._need(columns)
        allowed = {name: several(value, name) for name, value in columns.items()}
        return self._rows(
            i
            for i, record in enumerate(self.records)
            if all(record[name] in values for name, values in allowed.items())
        )

    def query(self, expression: str) -> ResultSet:
        """Return the records for which an expression is true.

        Parameters
        ----------
        expression : str
            As for `pandas.DataFrame.query`: ``"threads == 2 and bandwidth_GBps > @least"``, where
            ``@`` precedes the caller's variables.

        Raises
        ------
        InputError
            If the expression can't be evaluated, as with an unknown column, or is not a boolean
            for each record.
        """
        if not len(self):
            return self
        try:
            mask: Any = self.to_frame().eval(expression, level=1)
        except Exception as error:  # pandas passes on those of the expression's operators
            raise InputError(f"query {shown(expression)}: {error}") from None
        return self._rows(np.flatnonzero(_mask(mask, len(self))))

    def _need(self, columns: Iterable[str]) -> None:
        """Raise InputError for a column that the records lack; no records lack none."""
        known = self.records[0].keys() if self.records else columns
        for name in columns:
            if name not in known:
                raise unknown(name, "column", known)

    def _rows(self, kept: Iterable[int]) -> ResultSet:
        """Return some records, by their positions, with their samples and environments."""
        kept = list(kept)
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
        for name, kind in column_kinds(self.records).items():
            values = [record[name] for record in self.records]
            dtype = nullable[kind] if kind in nullable and None in values else plain.get(kind)
            columns[name] = pd.Series(values, dtype=dtype)
        return pd.DataFrame(columns)

    def samples_frame(self) -> pd.DataFrame:
        """Return all samples as a long table.

        Returns
        -------
        pandas.DataFrame
            Columns ``record`` (row of `to_frame`), ``case_id``, ``repeat``, ``sample`` (from 0)
            and ``time_s`` (seconds per invocation).
        """
        import pandas as pd

        from memkern.formats.encoding import sample_columns

        return pd.DataFrame(sample_columns(self._contents()))

    def save(self, path: str | Path) -> None:
        """Write the results to a file in the format of its suffix: .parquet, .csv, .json or .db.

        See Also
        --------
        to_parquet, to_csv, to_json : the contents of the files.

        Raises
        ------
        InputError
            If the suffix is another, or the file can't be written; an existing file is then
            unchanged.
        """
        from memkern.formats import database, encoding

        target = writable(encoding.known_suffix(path))
        if target.suffix == ".db":
            database.save(self._contents(), target)
        else:
            self._export(target, target.suffix)

    def to_parquet(self, path: str | Path) -> None:
        """Write ``x.parquet`` and ``x.samples.parquet`` (needs pyarrow).

        The schema version and the environments are JSON in the first one's key-value metadata.

        Raises
        ------
        InputError
            If pyarrow is missing or a file can't be written.
        """
        self._export(path, ".parquet")

    def to_csv(self, path: str | Path) -> None:
        """Write ``x.csv``, ``x.samples.csv`` and ``x.environment.json``.

        Text is in double quotes, a missing value is an empty field, and floats have enough digits
        to be read back exactly.

        Raises
        ------
        InputError
            If a file can't be written.
        """
        self._export(path, ".csv")

    def to_json(self, path: str | Path) -> None:
        """Write one document: schema_version, columns, environments, records and samples.

        Raises
        ------
        InputError
            If the file can't be written.
        """
        self._export(path, ".json")

    def _export(self, path: str | Path, suffix: str) -> None:
        """Write files in the format with this suffix."""
        from memkern.formats.encoding import ENCODERS

        publish(ENCODERS[suffix](self._contents(), writable(path)))

    def to_json_text(self) -> str:
        """Return the records alone as a JSON array, missing values as null."""
        return json_rows(self.records)

    @classmethod
    def load(cls, path: str | Path) -> ResultSet:
        """Load results from a file; see `memkern.results.load`."""
        return load(path)

    def _repr_html_(self) -> str:
        from memkern.formats.table import records_table

        return records_table(self.records)

    def _contents(self) -> Contents:
        return Contents(self.records, self.samples, self.environments)


def environments_of(records: Any) -> dict[str, Any]:
    """Return the environments of a ResultSet, or of a table in its ``attrs["environments"]``."""
    if isinstance(records, ResultSet):
        return records.environments
    return cast("dict[str, Any]", getattr(records, "attrs", {}).get("environments", {}))


def need_columns(known: Container[str], *names: str) -> None:
    """Refuse a record or a table without some columns, such as one of an older version.

    Raises
    ------
    InputError
        A column is missing.
    """
    if missing := [repr(name) for name in names if name not in known]:
        several = "s" * (len(missing) > 1)
        raise InputError(f"the records lack the column{several} {', '.join(missing)}")


def need_rows(rows: Sized, lack: str) -> None:
    """Refuse records or a table without any row, with a sentence on what is lacking.

    Raises
    ------
    InputError
        There is no row.
    """
    if len(rows) == 0:
        raise InputError(lack)


def table_of(rows: Sequence[Mapping[str, Any]], lack: str) -> pd.DataFrame:
    """Return a table of these rows, which `need_rows` refuses if there are none."""
    import pandas as pd

    need_rows(rows, lack)
    return pd.DataFrame(rows)


def _mask(given: Any, length: int) -> npt.NDArray[np.bool_]:
    """Return a mask of records as an array (see `ResultSet.__getitem__`)."""
    if hasattr(given, "reindex") and len(given) == length:
        given = given.reindex(range(length))
        if given.dtype.name == "boolean":
            given = given.fillna(False).astype(bool)
    mask = np.asarray(given)
    if mask.shape != (length,) or (length and mask.dtype != np.bool_):
        raise InputError(
            f"a mask must have a boolean for each of {length} records, not {shown(given)}"
        )
    return mask.astype(np.bool_)


def concat(results: Iterable[Any]) -> ResultSet:
    """Join several results, one after the other.

    Parameters
    ----------
    results : iterable of ResultSet or Measurement

    Returns
    -------
    ResultSet
        All records, with the columns of all; see `memkern.merge` for files that have the same
        records.

    Raises
    ------
    InputError
        Something else is among them, or a column is text in one and a number in another.
    """
    parts = [getattr(one, "results", one) for one in results]
    for part in parts:
        if not isinstance(part, ResultSet):
            raise InputError(f"concat joins result sets and measurements, not {shown(part)}")
    return ResultSet(
        [record for part in parts for record in part.records],
        [samples for part in parts for samples in part.samples],
        {key: environment for part in parts for key, environment in part.environments.items()},
        any(part.interrupted for part in parts),
        sum(part.left_out for part in parts),
    )


def load(path: str | Path) -> ResultSet:
    """Load results from a .parquet, .csv, .json or .db file.

    Parameters
    ----------
    path : path
        The file with the records. Its file of samples is read as well. A ``.db`` may be read while
        a run writes it.

    Returns
    -------
    ResultSet
        Equal to the saved results.

    Raises
    ------
    InputError
        If the file is missing, damaged, not a result of memkern, or of another schema version.
    """
    # Only here, because most commands read no files.
    from memkern.formats import database
    from memkern.formats.encoding import DECODERS, known_suffix

    source = known_suffix(path)
    working = working_file(source)
    if os.path.exists(working) and not os.path.exists(source):
        raise InputError(f"{source} does not exist; {working} has the results of an unfinished run")
    decode = database.load if source.suffix == ".db" else DECODERS[source.suffix]
    contents = decode(source)
    with parsing(source, RESULT):
        check_contents(contents)
        return ResultSet(*contents)


def working_file(path: Path) -> Path:
    """Return the file that contains the results until they are exported to this path."""
    return path.with_name(path.name + ".db")
