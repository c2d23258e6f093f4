"""Matrices from files, SciPy, NumPy and triplets, checked before they are used.

SciPy's reader of Matrix Market files is fast but does not check its input: it skips text after a
number (``1.5.2``, Fortran's ``1.0D+2``), writes past the end of a symmetric array that is not
square, and reads past the end of a text with a zero byte. Therefore every line is checked first.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from memkern import files
from memkern.checks import integer, refuse_masked, shown
from memkern.errors import InputError
from memkern.inputs.indices import whole_numbers
from memkern.inputs.matrices.assembly import CSR, Floats, check_size, index_dtype, wrap
from memkern.limits import check_memory

# The first line, and the lines without content before that of the sizes.
_BANNER = re.compile(
    rb"[ \t]*%%MatrixMarket[ \t]+(?i:matrix)((?:[ \t]+[A-Za-z-]+){3})[ \t]*\r?\n"
    rb"(?:[ \t]*%[^\n]*\n|[ \t\r]*\n)*"
)
_BLANK = re.compile(rb"\n[ \t\r]*(?=\n)")
_REAL = rb"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?"
_VALUES = {
    "real": [_REAL],
    "double": [_REAL],
    "integer": [rb"[-+]?[0-9]+"],
    "unsigned-integer": [rb"[0-9]+"],
    "complex": [_REAL, _REAL],
    "pattern": [],
}
_CHECKED_AT_ONCE_B = 2**16
# The first bytes of a text, which must contain the sizes.  A shorter text is checked as a whole.
_HEAD_B = 2**20
# The limit of the format.
_LONGEST_LINE_B = 1024
_TAR_B = 512  # of its header
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PLUS = re.compile(rb"(?<=[ \t\n])\+")
# Compressed files by their first bytes: module for reading, and the largest compression ratio.
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", 1032),
    b"BZh": ("bz2", 2**15),
    b"\xfd7zXZ\x00": ("lzma", 2**13),
}
# Beginnings of other formats, and functions that convert them. A Harwell-Boeing file has the type
# of matrix, and numbers of rows, columns, entries and others, on the third line.
_OTHERS = {
    rb"MATLAB 5\.0": (
        "a MATLAB file",
        "scipy.io.loadmat reads it, and scipy.io.mmwrite writes .mtx",
    ),
    rb"\x89HDF\r\n": ("an HDF5 or MATLAB 7.3 file", "h5py reads it, scipy.io.mmwrite writes .mtx"),
    rb"PK\x03\x04": ("a zip file", "unzip it, and name the .mtx within"),
    rb"(?i:[^\n]*\n[^\n]*\n[RCPIQ][SUHZR][AE][ \t]+[0-9]+[ \t]+[0-9]+)": (
        "a Harwell-Boeing or Rutherford-Boeing file",
        "scipy.io.hb_read reads real values, and scipy.io.mmwrite writes .mtx",
    ),
}


class _Header(NamedTuple):
    layout: str
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int
    end: int


def read(path: str | os.PathLike[str]) -> CSR:
    """Read a matrix from a Matrix Market file.

    Parameters
    ----------
    path : str or path-like
        A text, a text compressed by gzip, bzip2 or xz, or a tar archive with a text, as in the
        SuiteSparse collection, where the matrix has the name of its folder. Coordinates or an
        array; real, integer, complex or without values, which are then one; general, symmetric,
        skew-symmetric or Hermitian.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, columns)
        Values of the same entry are added up. Zeros among coordinates are kept, zeros of an array
        are dropped.

    Raises
    ------
    InputError
        If the file is missing, can't be read, does not agree with its header, or holds numbers
        that are complex or not finite.

    Notes
    -----
    The text and all triplets are in memory while a file is read.  Source of the format: Boisvert,
    Pozo and Remington, "The Matrix Market Exchange Formats: Initial Design", NISTIR 5935, 1996.
    """
    from scipy.io import mmread

    source = Path(path)
    content, header = _read_checked(source)
    # The file is not read again, since it may have changed after the check.
    stream = io.BytesIO(content)
    del content
    with files.parsing(source, "a Matrix Market file"), _available_threads():
        matrix: Any = mmread(stream)
    if header.layout == "array":
        return from_array(matrix, str(source))
    # mmread returns the entries of the file first, then entries added by symmetry.
    row, column = matrix.row[: header.entries], matrix.col[: header.entries]
    if header.symmetry != "general" and (row < column).any() and (row > column).any():
        raise InputError(
            f"{source} must have entries on one side of the diagonal only, because it is "
            f"{header.symmetry}, but it has some on both: write general in its first line"
        )
    if header.symmetry == "skew-symmetric" and matrix.data[: header.entries][row == column].any():
        raise InputError(f"{source} must have a diagonal of zeros, because it is skew-symmetric")
    del row, column
    return _from_coordinates(
        matrix.row, matrix.col, _real(matrix.data, str(source)), matrix.shape, str(source)
    )


def _read_checked(source: Path) -> tuple[bytes, _Header]:
    """Return the text of a file, after checking every line, and its header."""
    with files.opened(source) as file, _text(source, file) as (text, most_B):
        content = text.read(_HEAD_B).removeprefix(_BYTE_ORDER_MARK)
        whole = len(content) < _HEAD_B - len(_BYTE_ORDER_MARK)
        if not content.strip():
            raise InputError(f"{source} is empty, but must hold a matrix")
        if whole and not content.endswith(b"\n"):
            content += b"\n"
        header = _header(source, content)
        if whole:
            # Before the memory check: a short text must have as many entries as it declares.
            _check_body(source, content, header)
        elif most_B:
            _check_declared(source, header, most_B)
        _check_size(source, header)
        if not whole:
            content = _read_rest(source, text, content, header)
            _check_body(source, content, header)
    # SciPy's reader refuses the sign.
    return _PLUS.sub(b"", content) if b"+" in content else content, header


@contextlib.contextmanager
def _text(source: Path, file: BinaryIO) -> Iterator[tuple[BinaryIO, int]]:
    """Return the text of an open file, read on demand, and its largest size; 0 if unknown."""
    status = os.fstat(file.fileno())
    size_B = status.st_size if stat.S_ISREG(status.st_mode) else 0
    begin = _peeked(file)
    name, inflation = next(
        (found for first, found in _COMPRESSED.items() if begin.startswith(first)), ("", 1)
    )
    if not name and not _is_tar(begin):
        yield file, size_B
        return
    module: Any = importlib.import_module(name) if name else None
    try:
        with contextlib.nullcontext(file) if module is None else module.open(file) as content:
            if not _is_tar(_peeked(content)):
                yield content, size_B * inflation
                return
            with tarfile.open(fileobj=content, mode="r:") as archive:
                member = _matrix_within(source, archive)
                yield cast(BinaryIO, archive.extractfile(member)), member.size
    except (
        *(OSError, EOFError, zlib.error, tarfile.TarError),
        getattr(module, "LZMAError", OSError),
    ) as error:
        raise InputError(f"{source} can't be decompressed: {error}") from None


def _peeked(file: Any) -> bytes:
    """Return the first bytes of a file without reading them."""
    return bytes(file.peek(_TAR_B)[:_TAR_B])


def _is_tar(begin: bytes) -> bool:
    return begin[257:262] == b"ustar"


def _matrix_within(source: Path, archive: tarfile.TarFile) -> tarfile.TarInfo:
    """Return the only matrix of an archive, or the one with the name of its folder."""
    found = [one for one in archive if one.isfile() and one.name.lower().endswith(".mtx")]
    named = [one for one in found if Path(one.name).stem == Path(one.name).parent.name]
    if len(found) == 1 or len(named) == 1:
        return (named or found)[0]
    names = ", ".join(one.name for one in found[:5]) or "none"
    raise InputError(
        f"{source} must hold one .mtx file, or one with the name of its folder, but holds "
        f"{shown(names)}: unpack it, and name the file"
    )


def _check_declared(source: Path, header: _Header, text_B: int) -> None:
    """Refuse a header that declares more entries than a text of `text_B` bytes can hold."""
    most = text_B // (2 * (2 * (header.layout == "coordinate") + len(_VALUES[header.field])))
    if header.entries > most:
        raise InputError(
            f"{source} must have as many entries as its size line declares, {header.entries}, but "
            f"a file of its size has at most {most}"
        )


def _check_size(source: Path, header: _Header) -> None:
    """Refuse a matrix that does not fit in memory together with its unsorted entries."""
    value_B = 16 if header.field == "complex" else 8
    # Row, column and value of each entry, in addition to the matrix.
    more_B = header.entries * (value_B + 2 * 8)
    if header.layout == "array":
        more_B += header.rows * header.columns * 2 * value_B
    nonzeros = header.entries * (1 if header.symmetry == "general" else 2)
    try:
        check_size(header.rows, header.columns, nonzeros, more_B)
    except InputError as error:
        raise InputError(f"{source} can't be read: {error}") from None


def _read_rest(source: Path, text: BinaryIO, head: bytes, header: _Header) -> bytes:
    """Return a whole text after its head was read; refuse a text too long for its sizes."""
    parts, size, most = [head], len(head), len(head) + _LONGEST_LINE_B * header.entries
    while part := text.read(_HEAD_B):
        size += len(part)
        if size > most:
            raise InputError(
                f"{source} must have as many entries as its size line declares, {header.entries}, "
                f"but its text is longer than {most} bytes"
            )
        # Joining needs the same size again, in addition to the parts in memory.
        check_memory(size, str(source))
        parts.append(part)
    if not parts[-1].endswith(b"\n"):
        parts.append(b"\n")
    return b"".join(parts)


def _header(source: Path, content: bytes) -> _Header:
    """Parse the lines up to the sizes, or raise InputError."""
    banner = _BANNER.match(content)
    if not banner:
        _name_format(source, content)
        raise InputError(
            f"{source} must begin like %%MatrixMarket matrix coordinate real general, not with "
            f"{_quoted(content, 0)}"
        )
    layout, field, symmetry = banner[1].decode().lower().split()
    for word, known in (
        (layout, ("coordinate", "array")),
        (field, (*_VALUES,)),
        (symmetry, ("general", "symmetric", "skew-symmetric", "hermitian")),
    ):
        if word not in known:
            raise InputError(
                f"the first line of {source} must contain one of {', '.join(known)}, not "
                f"{shown(word)}"
            )
    if field == "pattern" and (layout == "array" or symmetry == "skew-symmetric"):
        raise InputError(f"{source} must have values, because it is {layout} {symmetry}")
    begin = banner.end()
    end = content.find(b"\n", begin)
    sizes = content[begin : max(end, begin)].split()
    names = ("rows", "columns", "entries")[: 3 if layout == "coordinate" else 2]
    if len(sizes) != len(names) or not all(re.fullmatch(rb"[0-9]{1,30}", size) for size in sizes):
        few = layout == "coordinate" and len(sizes) == 2
        cure = ": add the number of columns as the second one" if few else ""
        raise InputError(
            f"line {_line_number(content, begin)} of {source} must be the numbers of "
            f"{' and '.join((', '.join(names[:-1]), names[-1]))}, not {_quoted(content, begin)}"
            f"{cure}"
        )
    rows, columns, *given = map(int, sizes)
    if not rows or not columns:
        raise InputError(f"{source} must have at least one row and one column")
    if rows != columns and symmetry != "general":
        raise InputError(
            f"{source} must be square, because it is {symmetry}, not {shown(rows)} x "
            f"{shown(columns)}"
        )
    if layout == "coordinate":
        entries = given[0]
    elif symmetry == "general":
        entries = rows * columns
    else:
        entries = rows * (rows - 1) // 2 + (0 if symmetry == "skew-symmetric" else rows)
    return _Header(layout, field, symmetry, rows, columns, entries, end)


def _name_format(source: Path, content: bytes) -> None:
    """Raise InputError if a file has another known format, with advice for converting it."""
    for beginning, (what, converts) in _OTHERS.items():
        if re.match(beginning, content):
            raise InputError(f"{source} is {what}, not a Matrix Market file: {converts}")
    if re.match(rb"[ \t]*%[ \t]*MatrixMarket", content, re.I):
        raise InputError(f"the first line of {source} must begin with %%MatrixMarket, with two %")


def _check_body(source: Path, content: bytes, header: _Header) -> None:
    """Check that each line is one entry, and that the header declares their number."""
    words = [rb"0*[1-9][0-9]*"] * (2 if header.layout == "coordinate" else 0) + _VALUES[
        header.field
    ]
    lines = re.compile(
        rb"(?:[ \t]*(?:" + rb"[ \t]+".join(words) + rb"[ \t]*)?\r?\n)*", re.IGNORECASE
    )
    at = header.end + 1
    while at < len(content):
        end = content.rfind(b"\n", at, at + _CHECKED_AT_ONCE_B) + 1
        matched = lines.match(content, at, end)
        at = matched.end() if matched else at
        if at != end:
            weighted = (
                header.field == "pattern" and len(content[at:end].split(b"\n")[0].split()) == 3
            )
            cure = ": write real instead of pattern in the first line" if weighted else ""
            raise InputError(
                f"line {_line_number(content, at)} of {source} must be {_entry(header)}, not "
                f"{_quoted(content, at)}{cure}"
            )
    # A blank line is matched with the preceding newline; the first newline ends the line of sizes.
    found = content.count(b"\n", header.end + 1)
    found -= sum(1 for _ in _BLANK.finditer(content, header.end))
    if found != header.entries:
        raise InputError(
            f"{source} must have as many entries as its size line declares, {header.entries}, not "
            f"{found}"
        )


def _entry(header: _Header) -> str:
    value = {
        "pattern": "",
        "complex": "two numbers, the parts of a value",
        "integer": "an integer",
        "unsigned-integer": "an integer",
    }.get(header.field, "a number")
    if header.layout == "array":
        return value
    return "a row and a column, counted from 1" + (f", and {value}" if value else "")


def _line_number(content: bytes, at: int) -> int:
    """Return the number, counted from 1, of the line that begins at position `at`."""
    return content.count(b"\n", 0, at) + 1


def _quoted(content: bytes, at: int) -> str:
    return shown(content[at : at + 100].split(b"\n")[0].decode(errors="replace").strip())


@contextlib.contextmanager
def _available_threads() -> Iterator[None]:
    """Limit SciPy's reader to the processors that this process may use."""
    try:
        reader: Any = importlib.import_module("scipy.io._fast_matrix_market")
    except ImportError:  # private to SciPy, may be removed
        yield
        return
    before = reader.PARALLELISM
    reader.PARALLELISM = len(os.sched_getaffinity(0))
    try:
        yield
    finally:
        reader.PARALLELISM = before


def from_triplets(
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    values: npt.ArrayLike | None = None,
    shape: tuple[int, int] | None = None,
) -> CSR:
    """Make a matrix from entries in any order.

    Parameters
    ----------
    rows, columns : array_like of int, shape (n,)
        Positions of the entries, counted from 0.
    values : array_like of float, shape (n,), optional
        Their values; 1 by default.
    shape : tuple of two int, optional
        Rows and columns of the matrix; by default the smallest that hold all entries.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape `shape`
        Values of the same entry are added up, zeros are kept.

    Raises
    ------
    InputError
        If the arrays do not have one dimension and the same length, an index is no whole number,
        negative or outside the shape, a value is complex or not finite, or there is neither an
        entry nor a shape.

    Examples
    --------
    >>> from_triplets([0, 1, 1], [2, 0, 0], [1.0, 2.0, 3.0]).toarray().tolist()
    [[0.0, 0.0, 1.0], [5.0, 0.0, 0.0]]
    """
    positions = {"rows": whole_numbers(rows, "rows"), "columns": whole_numbers(columns, "columns")}
    entries = len(positions["rows"])
    for name, where in positions.items():
        if len(where) != entries:
            raise InputError(
                f"{name} must have as many numbers as rows, {entries}, not {len(where)}"
            )
    if shape is None and not entries:
        raise InputError("a matrix without entries needs a shape")
    sizes = (
        [int(where.max()) + 1 for where in positions.values()] if shape is None else _shape(shape)
    )
    for size, (name, where) in zip(sizes, positions.items(), strict=True):
        outside = (where < 0) | (where >= size)
        if outside.any():
            at = int(outside.argmax())
            right = "at least 0" if shape is None else f"from 0 to {size - 1}"
            raise InputError(f"{name}[{at}] must be {right}, not {where[at]}")
    check_size(sizes[0], sizes[1], entries)
    numbers = np.ones(entries) if values is None else _real(_asarray(values, "values"), "values")
    if numbers.shape != (entries,):
        raise InputError(
            f"values must be one for each of {entries} entries, not an array of shape "
            f"{numbers.shape}"
        )
    return _from_coordinates(
        positions["rows"], positions["columns"], numbers, (sizes[0], sizes[1]), "values"
    )


def _shape(shape: Any) -> list[int]:
    try:
        sizes = [*shape]
    except TypeError:
        sizes = []
    if len(sizes) != 2:
        raise InputError(f"shape must be two numbers, of rows and of columns, not {shown(shape)}")
    return [integer(size, f"shape[{axis}]", 1) for axis, size in enumerate(sizes)]


def from_array(array: npt.ArrayLike, name: str = "the matrix") -> CSR:
    """Make a matrix from the nonzeros of a dense one.

    Parameters
    ----------
    array : array_like of float, shape (rows, columns)
        At least one row and one column.
    name : str
        The name that an error message uses for the matrix.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, columns)

    Raises
    ------
    InputError
        If the array does not have two dimensions, or holds anything but finite real numbers.
    """
    full = _real(_asarray(array, name), name)
    if full.ndim != 2 or not full.size:
        raise InputError(f"{name} must be an array of rows and columns, not of shape {full.shape}")
    row, column = np.nonzero(full)
    return _from_coordinates(row, column, full[row, column], full.shape, name)


def from_sparse(matrix: Any, name: str = "the matrix") -> CSR:
    """Copy a SciPy matrix or array of any format.

    Parameters
    ----------
    matrix : scipy.sparse.sparray or scipy.sparse.spmatrix, shape (rows, columns)
        At least one row and one column.
    name : str
        The name that an error message uses for the matrix.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (rows, columns)
        Values of the same entry are added up, zeros are kept.

    Raises
    ------
    InputError
        If the matrix does not have two dimensions, an index is outside of it, or a value is
        complex or not finite.
    """
    from scipy.sparse import csr_array

    shape = matrix.shape
    if len(shape) != 2 or not min(shape):
        raise InputError(f"{name} must have rows and columns, not the shape {shape}")
    # With wrong indices, conversions without a check write out of bounds.
    try:
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)
            rows = matrix.tocsr()
            own = (_real(rows.data, name), rows.indices.copy(), rows.indptr.copy())
            return _finished(csr_array(own, shape=shape), name)
        entries = matrix.tocoo()
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is damaged: {' '.join(str(error).split())}") from None
    for where, size, what in zip((entries.row, entries.col), shape, ("row", "column"), strict=True):
        if len(where) != len(entries.data) or (
            len(where) and not 0 <= where.min() <= where.max() < size
        ):
            raise InputError(f"{name} is damaged: a {what} index is not from 0 to {size - 1}")
    return _from_coordinates(entries.row, entries.col, _real(entries.data, name), shape, name)


def _asarray(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    refuse_masked(values, name)
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be an array of numbers, not {shown(values)}") from None


def _real(values: npt.NDArray[Any], name: str) -> Floats:
    """Convert real numbers to float64, and refuse other values."""
    if values.dtype.kind == "c":
        if np.any(values.imag):
            raise InputError(f"{name} must be real, but some of its imaginary parts are not zero")
        values = values.real
    if values.dtype.kind not in "buif":
        raise InputError(f"{name} must hold real numbers, not {values.dtype} values")
    with np.errstate(over="ignore"):  # _finished refuses infinite values and names the entry
        return values.astype(np.float64)


def _from_coordinates(
    rows: npt.NDArray[Any],
    columns: npt.NDArray[Any],
    values: Floats,
    shape: tuple[int, ...],
    name: str,
) -> CSR:
    """Make a matrix from entries that are known to lie within its shape."""
    from scipy.sparse import coo_array

    return _finished(coo_array((values, (rows, columns)), shape=shape).tocsr(), name)


def _finished(matrix: CSR, name: str) -> CSR:
    """Bring compressed rows into canonical form, in place, and check that all values are finite."""
    matrix.sum_duplicates()
    finite = np.isfinite(matrix.data)
    if not finite.all():
        at = int(finite.argmin())
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise InputError(
            f"{name} must hold finite numbers, but the value in row {row} and column "
            f"{matrix.indices[at]}, counted from 0, is {matrix.data[at]}"
        )
    dtype = index_dtype(matrix.shape[0], matrix.shape[1], matrix.nnz)
    starts, indices = (a.astype(dtype, copy=False) for a in (matrix.indptr, matrix.indices))
    return wrap(matrix.shape[0], matrix.shape[1], starts, indices, matrix.data)
