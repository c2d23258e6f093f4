# It has more than 600 lines because patterns, their generators and their notation are one public
# module, `memkern.patterns`.
"""Index patterns: the elements that a gather or scatter accesses, relative to its base.

A pattern is a short list of offsets in values (not bytes).  A kernel applies it at bases that
advance by a delta.  Patterns come from the generators `uniform`, `ms1`, `laplacian` and `random`,
from indices (`custom`), or from strings in Spatter's notation (`parse`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.checks import (
    INT64_MAX,
    FromFields,
    integer,
    read_integer,
    refuse_masked,
    several,
    shown,
)
from memkern.errors import InputError
from memkern.limits import check_memory

__all__ = [
    "MAX_LENGTH",
    "Pattern",
    "PatternLike",
    "as_pattern",
    "bases",
    "custom",
    "laplacian",
    "ms1",
    "parse",
    "random",
    "uniform",
]
__dir__ = __all__.copy  # public names only

MAX_LENGTH = 2**28
"""The largest number of indices in a pattern (2 GiB of them)."""

_BLOCK = 2**16


def _check_length(length: int, arrays: int = 0) -> None:
    """Check the length of a pattern, and that `arrays` arrays of that length fit in memory."""
    if length < 1:
        raise InputError("a pattern needs at least one index, but this one is empty")
    if length > MAX_LENGTH:
        raise InputError(f"a pattern has at most {MAX_LENGTH} indices, not {shown(length)}")
    check_memory(8 * length * arrays, f"a pattern of {length} indices")


def _check_largest(largest: int) -> None:
    if largest > INT64_MAX:
        raise InputError(
            f"indices must be at most {INT64_MAX}, but the largest here is {shown(largest)}"
        )


def _as_indices(values: Any) -> npt.NDArray[np.int64]:
    """Copy indices into an int64 array, and refuse anything but integers in one dimension."""
    refuse_masked(values, "a pattern")
    try:
        length = len(values)
    except TypeError:
        raise InputError(
            f"a pattern must be a text or a sequence of integers, not {shown(values)}"
        ) from None
    except OverflowError:  # range(10**30) has no len()
        length = MAX_LENGTH + 1
    _check_length(length)
    if not isinstance(values, (list, tuple)):
        try:
            array = np.asarray(values)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"indices must be integers, not {shown(values)}") from None
        if array.ndim != 1:
            raise InputError(
                f"a pattern must be a one-dimensional sequence of integers, not {shown(values)}"
            )
        if array.dtype.kind in "iu":
            _check_largest(int(array.max()))
            return np.array(array, dtype=np.int64, order="C")
        if array.dtype != object:
            raise InputError(f"indices must be integers, not {array.dtype} values")
        values = array.tolist()
    # Check a list value by value: NumPy silently converts [0, True] to integers and
    # [-1, 2**63] to floats.
    for position, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise InputError(f"indices must be integers, but index {position} is {shown(value)}")
    _check_largest(int(max(values)))
    if min(values) < 0:
        raise InputError(f"indices must not be negative, but one is {shown(int(min(values)))}")
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Pattern(FromFields):
    """The indices that one gather or scatter accesses, relative to its base.

    Parameters
    ----------
    indices : array_like of int, shape (length,)
        Offsets in values, each from 0 to 2**63 - 1, at most 2**28 of them.  Copied.
    name : str, optional
        The name of the pattern in records, such as ``"UNIFORM:8:4"``.
    delta : int, optional
        The distance between consecutive bases that the generator implies, in values.

    Attributes
    ----------
    indices : numpy.ndarray of int64, shape (length,)
        Read-only.

    Raises
    ------
    InputError
        If the indices are empty, too many, negative, not integers or not one-dimensional.
    """

    indices: npt.NDArray[np.int64]
    name: str = ""
    delta: int | None = None

    def __post_init__(self) -> None:
        """Validate the fields and copy the indices."""
        indices = self.indices
        owned = (
            type(indices) is np.ndarray
            and indices.dtype == np.int64
            and indices.ndim == 1
            and indices.base is None
            and not indices.flags.writeable
        )
        if not owned:
            indices = _as_indices(indices)
            indices.setflags(write=False)
        _check_length(len(indices))
        if indices.min() < 0:
            raise InputError(f"indices must not be negative, but one is {int(indices.min())}")
        object.__setattr__(self, "indices", indices)
        if not isinstance(self.name, str):
            raise InputError(f"the name of a pattern must be a text, not {shown(self.name)}")
        if self.delta is not None:
            object.__setattr__(self, "delta", integer(self.delta, "delta", -INT64_MAX))

    def __len__(self) -> int:
        """Return the number of indices."""
        return len(self.indices)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Convert the indices to an array for NumPy."""
        if copy is None:  # which numpy.array takes from NumPy 2.0 on
            return np.asarray(self.indices, dtype=dtype)
        return np.array(self.indices, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        """Compare indices, name and delta."""
        if not isinstance(other, Pattern):
            return NotImplemented
        return (
            self.name == other.name
            and self.delta == other.delta
            and np.array_equal(self.indices, other.indices)
        )

    def __hash__(self) -> int:
        """Hash indices, name and delta."""
        return hash((self.name, self.delta, self.indices.tobytes()))

    def __str__(self) -> str:
        """Return the text that records use.

        The name; without one, the indices, shortened with a digest when they are many.
        """
        if self.name:
            return self.name
        text = ",".join(map(str, self.indices[:16]))
        if len(self) <= 16 and len(text) <= 80:
            return text
        digest = hashlib.sha256(np.ascontiguousarray(self.indices, "<i8").data).hexdigest()[:8]
        head = ",".join(map(str, self.indices[:4]))
        return f"{head},...({len(self)} indices, {digest})"

    def __repr__(self) -> str:
        """Return name, length, largest index and delta."""
        delta = "" if self.delta is None else f", delta={self.delta}"
        return f"Pattern({str(self)!r}, length={len(self)}, maximum={self.maximum}{delta})"

    @property
    def maximum(self) -> int:
        """The largest index."""
        return int(self.indices.max())

    @property
    def stride(self) -> int | None:
        """The step between neighbouring indices if all steps are equal and not 0, else None.

        Examples
        --------
        >>> custom([0, 4, 8]).stride, custom([8, 4, 0]).stride
        (4, -4)
        >>> custom([0, 4, 9]).stride is custom([3]).stride is None
        True
        """
        step = int(self.indices[1] - self.indices[0]) if len(self) > 1 else 0
        # In blocks: most others end in the first one, and the steps take little memory.
        blocks = (self.indices[i : i + _BLOCK + 1] for i in range(0, len(self) - 1, _BLOCK))
        return step if step and all((np.diff(b) == step).all() for b in blocks) else None

    @property
    def access_class(self) -> str:
        """The class of the pattern after Lavin et al., MEMSYS 2020, section 2.

        ``uniform`` (all steps are equal and not 0), ``broadcast`` (some neighbours are equal, and
        no index is below the one before), ``mostly stride-1`` (a third of the steps or more are 1)
        or ``complex``. Where the words of the paper leave a choice, all patterns of its table 5
        have the type that is printed there.

        Examples
        --------
        >>> uniform(4, 24).access_class, custom([0, 0, 1, 1]).access_class
        ('uniform', 'broadcast')
        >>> ms1(8, 4, 20).access_class, custom([4, 8, 12, 0]).access_class
        ('mostly stride-1', 'complex')
        """
        if len(self) == 1 or self.stride is not None:
            return "uniform"
        steps = np.diff(self.indices)
        if steps.min() == 0:
            return "broadcast"
        return "mostly stride-1" if 3 * (steps == 1).sum() >= len(steps) else "complex"

    def _derived(self, indices: npt.NDArray[np.int64], suffix: str) -> Pattern:
        if np.array_equal(indices, self.indices):
            return self
        return _owned(indices, f"{self.name}{suffix}" if self.name else "", self.delta)

    def truncated(self, n: int) -> Pattern:
        """Return the pattern of the first `n` indices.

        Parameters
        ----------
        n : int
            From 1 to the pattern's length.

        Returns
        -------
        Pattern
            With the same delta.

        Raises
        ------
        InputError
            If `n` is not positive or the pattern is shorter than that.
        """
        n = integer(n, "the size to truncate a pattern to", 1)
        if n > len(self):
            raise InputError(f"a pattern of {len(self)} indices cannot be truncated to {n}")
        return self._derived(self.indices[:n].copy(), f"[:{n}]")

    def remapped(self, boundary: int) -> Pattern:
        """Take the indices modulo a boundary.

        Parameters
        ----------
        boundary : int
            At least 1; every index of the result is smaller.

        Returns
        -------
        Pattern
            With the same delta.

        Raises
        ------
        InputError
            If the boundary is not a positive integer.
        """
        boundary = integer(boundary, "boundary", 1)
        return self._derived(self.indices % np.int64(boundary), f"%{boundary}")

    def compressed(self, value_size: int = 8, page: int = 4096) -> Pattern:
        """Renumber the accessed pages consecutively.

        Pages are renumbered 0, 1, 2, ... in the order in which the pattern first accesses them;
        the offset within a page is unchanged.  This is what Spatter's ``--compress`` does.

        Parameters
        ----------
        value_size : int
            Bytes of a value.
        page : int
            Bytes of a page, a multiple of `value_size`.

        Returns
        -------
        Pattern
            With the same delta.

        Raises
        ------
        InputError
            If a page does not hold a whole number of values.
        """
        value_size = integer(value_size, "value_size", 1)
        page = integer(page, "page", 1)
        if page % value_size:
            raise InputError(f"page must be a multiple of value_size={value_size}, not {page}")
        pages, offsets = np.divmod(self.indices, np.int64(page // value_size))
        _, first, member = np.unique(pages, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first), dtype=np.int64)
        return self._derived(rank[member] * (page // value_size) + offsets, " compressed")


PatternLike: TypeAlias = "Pattern | str | npt.ArrayLike"
"""Types that `as_pattern` accepts."""


def _owned(indices: npt.NDArray[np.int64], name: str, delta: int | None = None) -> Pattern:
    """Make a pattern that takes ownership of an array instead of copying it."""
    indices.setflags(write=False)
    return Pattern(indices, name, delta)


def uniform(n: int, stride: int, delta: int | Literal["NR"] | None = None) -> Pattern:
    """Make a pattern of equal strides: 0, stride, 2 stride, ...

    Parameters
    ----------
    n : int
        Number of indices.
    stride : int
        Distance between neighbours in values, at least 1.
    delta : int or "NR", optional
        Distance between consecutive bases; ``"NR"`` (no reuse) means ``n * stride``.

    Returns
    -------
    Pattern
        Named ``UNIFORM:n:stride``.

    Raises
    ------
    InputError
        If a number is not positive, or an index would not fit.

    Examples
    --------
    >>> uniform(8, 4).indices.tolist()
    [0, 4, 8, 12, 16, 20, 24, 28]
    """
    n, stride = integer(n, "length", 1), integer(stride, "stride", 1)
    _check_length(n, 2)
    _check_largest((n - 1) * stride)
    if isinstance(delta, str):
        if delta.upper() != "NR":
            raise InputError(f"delta must be an integer or NR, not {shown(delta)}")
        delta = n * stride
    indices = np.arange(n, dtype=np.int64) * np.int64(stride)
    return _owned(indices, f"UNIFORM:{n}:{stride}", delta)


def ms1(n: int, breaks: int | Iterable[int], gaps: int | Iterable[int]) -> Pattern:
    """Make a mostly stride-1 pattern: steps of 1, except for gaps at the breaks.

    Parameters
    ----------
    n : int
        Number of indices.
    breaks : int or iterable of int
        Positions whose step is a gap instead of 1, in ascending order.  As in Spatter, a break
        that is not greater than the one before it, or lies beyond the pattern, is ignored
        together with all later ones.
    gaps : int or iterable of int
        The step at each break in values; a single gap applies to all breaks.

    Returns
    -------
    Pattern
        Named ``MS1:n:breaks:gaps``.

    Raises
    ------
    InputError
        If a number is negative, gaps and breaks do not match, or an index would not fit.

    Examples
    --------
    >>> ms1(8, [2, 3], 20).indices.tolist()
    [0, 1, 21, 41, 42, 43, 44, 45]
    """
    n = integer(n, "length", 1)
    _check_length(n, 2)
    at = _check_integers(breaks, "break")
    by = _check_integers(gaps, "gap")
    name = f"MS1:{n}:{','.join(map(str, at))}:{','.join(map(str, by))}"
    if len(by) not in (1, len(at)):
        raise InputError(
            f"gaps must be one for all breaks or one for each of {len(at)}, not {len(by)}"
        )
    by = by * len(at) if len(by) == 1 else by
    _check_largest(n + sum(by))
    steps = np.ones(n, dtype=np.int64)
    previous = -1
    for position, gap in zip(at, by, strict=True):
        if not previous < position < n:
            break
        steps[position] = gap
        previous = position
    if steps[0] == 0:
        raise InputError("a gap of 0 at break 0 would make the first index -1")
    return _owned(np.cumsum(steps) - 1, name)


def _check_integers(values: object, what: str) -> list[int]:
    given = enumerate(several(values, what))
    numbers = [integer(value, f"{what} {position}") for position, value in given]
    if not numbers:
        raise InputError(f"there must be at least one {what}")
    return numbers


def laplacian(dim: int, order: int, size: int) -> Pattern:
    """Make the stencil of a Laplacian on a cube: its neighbours along every axis.

    Parameters
    ----------
    dim : int
        Dimensions of the cube.
    order : int
        Neighbours on each side along each axis.
    size : int
        Points along an axis.

    Returns
    -------
    Pattern
        ``2 * dim * order + 1`` indices, shifted to begin at 0; delta 1, named
        ``LAPLACIAN:dim:order:size``.

    Raises
    ------
    InputError
        If a number is not positive, or an index would not fit.

    Examples
    --------
    >>> laplacian(2, 1, 100).indices.tolist()
    [0, 99, 100, 101, 200]
    """
    dim, order, size = (
        integer(dim, "dimension", 1),
        integer(order, "order", 1),
        integer(size, "size", 1),
    )
    _check_length(2 * dim * order + 1, 3)
    if size > 1 and dim > 64:  # the power below would have millions of digits
        raise InputError(f"indices must be at most {INT64_MAX}, but {dim} dimensions exceed that")
    centre = order * size ** (dim - 1)
    _check_largest(2 * centre)
    axes = np.array([size**axis for axis in range(dim)], dtype=np.int64)
    reach = np.outer(axes, np.arange(1, order + 1, dtype=np.int64)).ravel()
    indices = np.concatenate([centre - reach[::-1], [centre], centre + reach])
    return _owned(indices, f"LAPLACIAN:{dim}:{order}:{size}", 1)


def random(n: int, high: int, seed: int) -> Pattern:
    """Make a pattern of independent, uniformly distributed indices.

    Parameters
    ----------
    n : int
        Number of indices.
    high : int
        Indices lie in ``[0, high)``.
    seed : int
        Seed of NumPy's default generator, not negative.

    Returns
    -------
    Pattern
        Named ``RANDOM:n:high:seed``.

    Raises
    ------
    InputError
        If `n` or `high` is not positive, or `seed` is negative.
    """
    n, high, seed = integer(n, "length", 1), integer(high, "high", 1), integer(seed, "seed")
    _check_length(n, 1)
    indices = np.random.default_rng(seed).integers(0, high, n, dtype=np.int64)
    return _owned(indices, f"RANDOM:{n}:{high}:{seed}")


def bases(n: int, stride: int, count: int, seed: int | None = None) -> Pattern:
    """Make a pattern of consecutive instances of a uniform one, in order or at random.

    The lines accessed are the same in both orders, so that the ratio of the bandwidths shows what
    prefetchers gain by the order.

    Parameters
    ----------
    n, stride : int
        Of each instance (see `uniform`).
    count : int
        Number of instances, none of which overlap.
    seed : int, optional
        Seed of NumPy's default generator for a random order; by default in ascending order.

    Returns
    -------
    Pattern
        Named ``BASES:n:stride:count`` or ``BASES:n:stride:count:seed``, with a delta of no reuse.

    Raises
    ------
    InputError
        If a number is not positive, `seed` is negative, or an index would not fit.

    Examples
    --------
    >>> bases(2, 4, 3).indices.tolist()
    [0, 4, 8, 12, 16, 20]
    """
    n, stride = integer(n, "length", 1), integer(stride, "stride", 1)
    count = integer(count, "count", 1)
    _check_length(n * count, 3)
    _check_largest(n * count * stride - 1)
    order = np.arange(count, dtype=np.int64)
    name = f"BASES:{n}:{stride}:{count}"
    if seed is not None:
        order = np.random.default_rng(integer(seed, "seed")).permutation(order)
        name += f":{seed}"
    instance = np.arange(n, dtype=np.int64) * np.int64(stride)
    indices = (order[:, np.newaxis] * np.int64(n * stride) + instance).ravel()
    return _owned(indices, name, n * stride * count)


def custom(indices: npt.ArrayLike, name: str = "") -> Pattern:
    """Make a pattern of given indices.

    Parameters
    ----------
    indices : array_like of int, shape (length,)
        Offsets in values.  Copied.
    name : str, optional
        The name of the pattern in records.

    Returns
    -------
    Pattern
        Without a delta.

    Raises
    ------
    InputError
        If the indices are empty, too many, negative, not integers or not one-dimensional.
    """
    return _owned(_as_indices(indices), name)


def _read_integers(text: str, what: str) -> list[int]:
    return [
        read_integer(part, f"{what} {position}") for position, part in enumerate(text.split(","))
    ]


def _parse_uniform(n: str, stride: str, delta: str | None = None) -> Pattern:
    given: int | Literal["NR"] | None = None
    if delta is not None:
        given = "NR" if delta.strip(" ").upper() == "NR" else read_integer(delta, "delta")
    return uniform(read_integer(n, "length"), read_integer(stride, "stride"), given)


def _parse_ms1(n: str, breaks: str, gaps: str) -> Pattern:
    return ms1(
        read_integer(n, "length"), _read_integers(breaks, "break"), _read_integers(gaps, "gap")
    )


def _parse_laplacian(dim: str, order: str, size: str) -> Pattern:
    return laplacian(
        read_integer(dim, "dimension"), read_integer(order, "order"), read_integer(size, "size")
    )


def _parse_random(n: str, high: str, seed: str) -> Pattern:
    return random(read_integer(n, "length"), read_integer(high, "high"), read_integer(seed, "seed"))


def _parse_bases(n: str, stride: str, count: str, seed: str | None = None) -> Pattern:
    return bases(
        read_integer(n, "length"),
        read_integer(stride, "stride"),
        read_integer(count, "count"),
        None if seed is None else read_integer(seed, "seed"),
    )


_OF_VERSION_0 = ("HYDRO", "XKP")
_GENERATORS: dict[str, tuple[Callable[..., Pattern], tuple[int, ...], str]] = {
    "UNIFORM": (_parse_uniform, (2, 3), "UNIFORM:length:stride[:delta|NR]"),
    "MS1": (_parse_ms1, (3,), "MS1:length:breaks:gaps"),
    "LAPLACIAN": (_parse_laplacian, (3,), "LAPLACIAN:dimension:order:size"),
    "RANDOM": (_parse_random, (3,), "RANDOM:length:high:seed"),
    "BASES": (_parse_bases, (3, 4), "BASES:length:stride:count[:seed]"),
}


def parse(text: str) -> Pattern:
    """Parse the notation of a pattern.

    Parameters
    ----------
    text : str
        ``UNIFORM:length:stride[:delta|NR]``, ``MS1:length:breaks:gaps``,
        ``LAPLACIAN:dimension:order:size``, ``RANDOM:length:high:seed``,
        ``BASES:length:stride:count[:seed]`` or indices such as ``0,4,8``.  The case of letters does
        not matter; breaks and gaps are separated by commas.  All but ``RANDOM`` and ``BASES`` are
        Spatter's.

    Returns
    -------
    Pattern
        As the generator of that name makes it.

    Raises
    ------
    InputError
        If the text is none of these.
    """
    if not isinstance(text, str):
        raise InputError(f"a pattern's text must be a string, not {shown(text)}")
    if not text.strip(" "):
        raise InputError(f"pattern {shown(text)} must not be empty")
    if not text.isascii():
        raise InputError(f"pattern {shown(text)} must be written in ASCII")
    kind, *parts = text.split(":")
    try:
        if not parts and not re.search("[A-Za-z]", kind):
            return custom(_read_integers(kind, "index"))
        name = kind.strip(" ").upper()
        if name not in _GENERATORS:
            known = ", ".join(form for _, _, form in _GENERATORS.values())
            old = f"{name} is a generator of Spatter 0 alone, and " * (name in _OF_VERSION_0)
            raise InputError(f"{old}a pattern is one of {known} or indices such as 0,4,8")
        read, sizes, form = _GENERATORS[name]
        if len(parts) not in sizes:
            raise InputError(f"its form must be {form}")
        return read(*parts)
    except InputError as error:
        raise InputError(f"pattern {shown(text)}: {error}") from None


def as_pattern(obj: PatternLike) -> Pattern:
    """Convert a pattern, its notation or indices to a pattern.

    Parameters
    ----------
    obj : Pattern, str or array_like of int
        A pattern, a string for `parse`, or indices for `custom`.

    Returns
    -------
    Pattern
        The object itself if it is one.

    Raises
    ------
    InputError
        If the object does not describe a pattern.
    """
    if isinstance(obj, Pattern):
        return obj
    return parse(obj) if isinstance(obj, str) else custom(obj)
