"""Index arrays for irregular streaming: the order in which a kernel accesses array elements.

An index array has one index for each of n elements, each from 0 to n - 1.  Some access every
element once (`permutation`, `stride`, `chase`), others repeat some elements and omit others
(`central`, `zipf`, `hot`).  `build` makes one from a generator's name, a file or an array.

Source: Beebe et al., "RaiderSTREAM: Adapting the STREAM Benchmark to Modern HPC Systems", HPEC
2022; Williams et al., "CircusTent: A Benchmark Suite for Atomic Memory Operations", MEMSYS 2020.
"""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from memkern import files
from memkern.checks import (
    INT64_MAX,
    integer,
    number,
    read_integer,
    read_number,
    refuse_masked,
    shown,
)
from memkern.errors import InputError
from memkern.inputs.parquet import read_parquet
from memkern.limits import check_memory

MAX_LENGTH = 2**40
"""The largest number of indices (8 TiB of them)."""

WORDS = (
    "permutation",
    "stride1",
    "stride:STEP",
    "chase",
    "central",
    "zipf:EXPONENT",
    "hot:ACCESSES:ELEMENTS",
)
"""The generators that `build` accepts by name, with their parameters."""

IndicesLike: TypeAlias = "str | os.PathLike[str] | npt.ArrayLike"
"""Types that `build` accepts."""


def _length(n: int, arrays: int = 0) -> int:
    """Check the number of elements, and that `arrays` arrays of that length fit in memory."""
    length = integer(n, "n", 1, MAX_LENGTH)
    check_memory(8 * length * arrays, f"an index array of {length} elements")
    return length


def seeded(seed: int) -> np.random.Generator:
    """Return the generator of random numbers of a seed, which must be an integer of at least 0."""
    return np.random.default_rng(integer(seed, "seed"))


def permutation(n: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Access every element once, in random order.

    Parameters
    ----------
    n : int
        Number of elements.
    seed : int
        At least 0.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        A permutation of 0 to n - 1.

    Raises
    ------
    InputError
        If `n` is not positive or too large for memory, or `seed` is negative.
    """
    return seeded(seed).permutation(_length(n, 1))


def stride(n: int, step: int) -> npt.NDArray[np.int64]:
    """Access every element once, in rounds of equal steps.

    Parameters
    ----------
    n : int
        Number of elements.
    step : int
        Distance between neighbours, at least 1.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        0, step, 2 step, ..., then 1, 1 + step, ..., and so on to the round of step - 1.

    Raises
    ------
    InputError
        If a number is not positive, or `n` is too large for memory.

    Examples
    --------
    >>> stride(8, 3).tolist()
    [0, 3, 6, 1, 4, 7, 2, 5]
    """
    n = _length(n, 3)
    step = min(integer(step, "step", 1), n)
    rounds = np.arange(-(-n // step) * step, dtype=np.int64).reshape(-1, step).T.ravel()
    return rounds[rounds < n]


def chase(n: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Access every element once, in the order of a pointer chase from element 0.

    Parameters
    ----------
    n : int
        Number of elements.
    seed : int
        At least 0.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        The elements in the order of a random single cycle, distributed as Sattolo's.

    Raises
    ------
    InputError
        If `n` is not positive or too large for memory, or `seed` is negative.
    """
    order = np.arange(_length(n, 1), dtype=np.int64)
    # Single cycles correspond one to one to orders that begin with 0, so a uniformly random order
    # gives a uniformly random cycle.
    seeded(seed).shuffle(order[1:])
    return order


def central(n: int) -> npt.NDArray[np.int64]:
    """Access only element 0, n times.

    Parameters
    ----------
    n : int
        Number of elements.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        Zeros.

    Raises
    ------
    InputError
        If `n` is not positive or too large for memory.
    """
    return np.zeros(_length(n, 1), dtype=np.int64)


def zipf(n: int, exponent: float, seed: int = 0) -> npt.NDArray[np.int64]:
    """Draw elements by Zipf's law: rank r has a probability proportional to r**-exponent.

    Parameters
    ----------
    n : int
        Number of elements, and of draws.
    exponent : float
        At least 0; with 0 all elements are equally likely.
    seed : int
        At least 0.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        Independent draws.  Ranks are assigned to elements at random, so that the most accessed
        ones are not neighbours.

    Raises
    ------
    InputError
        If `n` is not positive or too large for memory, `exponent` negative or not finite, or `seed`
        negative.
    """
    n, exponent, generator = _length(n, 5), number(exponent, "exponent", 0), seeded(seed)
    elements = generator.permutation(n)
    cumulative = np.cumsum(np.arange(1, n + 1, dtype=np.float64) ** -exponent)
    cumulative /= cumulative[-1]
    # With sorted uniform variates the binary searches access the array in order and rarely miss
    # the cache. Partial sums of exponential variates, divided by their total, are sorted uniform
    # variates.
    sums = np.cumsum(generator.standard_exponential(n + 1))
    draws: npt.NDArray[np.int64] = elements[np.searchsorted(cumulative, sums[:-1] / sums[-1])]
    generator.shuffle(draws)
    return draws


def hot(n: int, accesses: float, elements: float, seed: int = 0) -> npt.NDArray[np.int64]:
    """Draw some elements more often than the others.

    Parameters
    ----------
    n : int
        Number of elements, and of draws.
    accesses : float
        Fraction of the draws that go to hot elements, rounded to a whole number of draws.
    elements : float
        Fraction of the elements that are hot, rounded to a whole number of at least one.
    seed : int
        At least 0.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        In random order; uniform among the hot elements, which are chosen at random, and uniform
        among the others.  If all elements are hot, all draws go to them.

    Raises
    ------
    InputError
        If `n` is not positive or too large for memory, a fraction not from 0 to 1, or `seed`
        negative.
    """
    n, generator = _length(n, 3), seeded(seed)
    among_hot = round(number(accesses, "accesses", 0, 1) * n)
    hot_elements = max(1, round(number(elements, "elements", 0, 1) * n))
    ranks = generator.integers(hot_elements, size=n)
    if hot_elements < n:
        ranks[among_hot:] = generator.integers(hot_elements, n, size=n - among_hot)
    draws: npt.NDArray[np.int64] = generator.permutation(n)[ranks]
    generator.shuffle(draws)
    return draws


def whole_numbers(values: npt.ArrayLike, name: str) -> npt.NDArray[np.int64]:
    """Copy integers into an int64 array, and refuse other values.

    Parameters
    ----------
    values : array_like of int, shape (n,)
        NumPy's and Python's integers pass; booleans, floats and objects do not.
    name : str
        The name that an error message uses for the array.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        A contiguous copy.

    Raises
    ------
    InputError
        If the values are not one-dimensional, not integers or do not fit int64.
    """
    refuse_masked(values, name)
    if isinstance(values, (list, tuple)):
        # Check a list value by value: NumPy silently converts [0, True] to integers.
        checked = [
            integer(value, f"{name}[{position}]", -INT64_MAX - 1)
            for position, value in enumerate(values)
        ]
        return np.array(checked, dtype=np.int64)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must hold whole numbers, not {shown(values)}") from None
    if array.ndim != 1:
        raise InputError(
            f"{name} must be a one-dimensional array of whole numbers, not {shown(values)}"
        )
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must hold whole numbers, not {array.dtype} values")
    if array.size and array.max() > INT64_MAX:
        position = int(array.argmax())
        raise InputError(f"{name}[{position}] must be at most {INT64_MAX}, not {array[position]}")
    return np.array(array, dtype=np.int64, order="C")


def check(
    values: npt.ArrayLike, n: int, repeats: bool = False, name: str = "IDX"
) -> npt.NDArray[np.int64]:
    """Copy an index array, and refuse one that is not valid.

    Parameters
    ----------
    values : array_like of int, shape (n,)
        Indices from 0 to n - 1.
    n : int
        Number of elements.
    repeats : bool
        Whether an index may occur more than once.
    name : str
        The name that an error message uses for the array.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        A contiguous copy.

    Raises
    ------
    InputError
        If the values are not n whole numbers in one dimension, one is out of range or, unless
        `repeats`, one occurs twice (and another therefore not at all).
    """
    n = _length(n)
    indices = whole_numbers(values, name)
    if len(indices) != n:
        raise InputError(f"{name} must have one index for each of {n} elements, not {len(indices)}")
    if indices.min() < 0 or indices.max() >= n:
        position = int(np.argmax((indices < 0) | (indices >= n)))
        raise InputError(f"{name}[{position}] must be from 0 to {n - 1}, not {indices[position]}")
    if not repeats and not distinct(indices):
        again = np.ones(n, dtype=bool)
        again[np.unique(indices, return_index=True)[1]] = False
        position = int(np.argmax(again))
        raise InputError(
            f"{name}[{position}] repeats {indices[position]}: a permutation of 0 to {n - 1} has "
            "every index once; set repeats=True to allow it"
        )
    return indices


def distinct(values: npt.NDArray[np.int64]) -> bool:
    """Return whether an index array accesses every element once.

    Parameters
    ----------
    values : numpy.ndarray of int64, shape (n,)
        Indices from 0 to n - 1, as `check` and the generators return them.

    Returns
    -------
    bool
        Whether no index occurs twice, and so none is left out.
    """
    visited = np.zeros(len(values), dtype=bool)
    visited[values] = True
    return bool(visited.all())


def read(path: str | os.PathLike[str]) -> npt.NDArray[np.int64]:
    """Read whole numbers from a file.

    Parameters
    ----------
    path : str or path-like
        A ``.npy`` file of integers, a column of a Parquet file (``FILE.parquet:COLUMN``), or else
        a text with one whole number a line.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        Not checked for a range; `check` does that.

    Raises
    ------
    InputError
        If the file is missing, can't be read or holds anything else.
    """
    source = Path(path)
    name, _, column = str(path).rpartition(":")
    if name.lower().endswith(".parquet"):
        table = read_parquet(Path(name), "a table", 16, [column])
        if not table.num_columns:
            raise InputError(f"{name} has no column {shown(column)}")
        return whole_numbers(table.column(0).to_numpy(), f"column {column} of {name}")
    if source.suffix.lower() == ".npy":
        return whole_numbers(_read_npy(source), source.name)
    try:
        return np.fromiter(_read_lines(source, files.read(source)), dtype=np.int64)
    except OverflowError:
        raise InputError(f"{source} must hold whole numbers that fit 64 bits") from None


def _read_npy(path: Path) -> npt.NDArray[np.generic]:
    files.read(path, 1)
    with files.parsing(path, "a NumPy array"):
        try:
            # Mapped, since np.load otherwise allocates the array before it detects that the file is
            # too short.
            array = np.lib.format.open_memmap(path, mode="r")
        except (tokenize.TokenError, MemoryError):  # NumPy's errors for some damaged headers
            raise ValueError("its header is damaged") from None
    check_memory(8 * array.size, str(path))
    return array


def _read_lines(path: Path, content: bytes) -> Iterator[int]:
    for position, line in enumerate(io.BytesIO(content.rstrip()), 1):
        try:
            yield int(line)
        except ValueError:
            text = line.decode(errors="replace").strip()
            raise InputError(
                f"line {position} of {path} must be one whole number, not {shown(text)}"
            ) from None


def _text(number: float) -> str:
    return repr(number).removesuffix(".0")


def _from_words(text: str, n: int, seed: int) -> tuple[str, npt.NDArray[np.int64]] | None:
    """Return label and indices if a text is one of `WORDS`."""
    match text.strip().lower().split(":"):
        case ["permutation" | "random"]:
            return "permutation", permutation(n, seed)
        case ["stride1"]:
            return "stride1", stride(n, 1)
        case ["stride", given]:
            step = read_integer(given, "step")
            return ("stride1" if step == 1 else f"stride:{step}"), stride(n, step)
        case ["chase"]:
            return "chase", chase(n, seed)
        case ["central"]:
            return "central", central(n)
        case ["zipf", given]:
            exponent = read_number(given, "exponent")
            return f"zipf:{_text(exponent)}", zipf(n, exponent, seed)
        case ["hot", some, few]:
            accesses, elements = read_number(some, "accesses"), read_number(few, "elements")
            return f"hot:{_text(accesses)}:{_text(elements)}", hot(n, accesses, elements, seed)
    return None


def build(
    pattern: IndicesLike, n: int, seed: int = 0, repeats: bool = False
) -> tuple[str, npt.NDArray[np.int64]]:
    """Make an index array from a generator's name, a file or an array.

    Parameters
    ----------
    pattern : str, path-like or array_like of int
        ``permutation`` (or ``random``), ``stride1``, ``stride:STEP``, ``chase``, ``central``,
        ``zipf:EXPONENT`` or ``hot:ACCESSES:ELEMENTS``, in any case; the path of a file for
        `read`, which has a ``.`` or ``/`` in it if it is a string; or the indices.
    n : int
        Number of elements.
    seed : int
        At least 0.  Different arrays of one kernel need different seeds.
    repeats : bool
        Whether an index may occur more than once in a file or an array.  Ignored for generators.

    Returns
    -------
    label : str
        The name of the pattern in records: the generator with its numbers, ``file NAME`` or
        ``array``.
    indices : numpy.ndarray of int64, shape (n,)
        Owned by the caller.

    Raises
    ------
    InputError
        If the pattern is none of these, or its numbers or indices are wrong.

    Examples
    --------
    >>> build("stride:2", 5)
    ('stride:2', array([0, 2, 4, 1, 3]))
    """
    if isinstance(pattern, str):
        made = _from_words(pattern, n, seed)
        if made is not None:
            return made
        if not ({".", "/"} & set(pattern) and os.path.exists(pattern)):
            raise InputError(
                f"an index pattern is one of {', '.join(WORDS)} or the path of a file that "
                f"exists, not {shown(pattern)}"
            )
    if isinstance(pattern, (str, os.PathLike)):
        name = Path(pattern).name
        return f"file {name}", check(read(pattern), n, repeats, name)
    return "array", check(pattern, n, repeats)
