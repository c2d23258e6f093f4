"""A pattern: the elements that a gather or scatter accesses, relative to its base."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.checks import INT64_MAX, FromFields, integer, refuse_masked, shown
from memkern.errors import InputError
from memkern.limits import check_memory

MAX_LENGTH = 2**28
"""The largest number of indices in a pattern (2 GiB of them)."""

_BLOCK = 2**16


def check_length(length: int, arrays: int = 0) -> None:
    """Check the length of a pattern, and that `arrays` arrays of that length fit in memory."""
    if length < 1:
        raise InputError("a pattern needs at least one index, but this one is empty")
    if length > MAX_LENGTH:
        raise InputError(f"a pattern has at most {MAX_LENGTH} indices, not {shown(length)}")
    check_memory(8 * length * arrays, f"a pattern of {length} indices")


def check_largest(largest: int) -> None:
    """Raise InputError for an index that does not fit 64 bits."""
    if largest > INT64_MAX:
        raise InputError(
            f"indices must be at most {INT64_MAX}, but the largest here is {shown(largest)}"
        )


def as_indices(values: Any) -> npt.NDArray[np.int64]:
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
    check_length(length)
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
            check_largest(int(array.max()))
            return np.array(array, dtype=np.int64, order="C")
        if array.dtype != object:
            raise InputError(f"indices must be integers, not {array.dtype} values")
        values = array.tolist()
    # Check a list value by value: NumPy silently converts [0, True] to integers and
    # [-1, 2**63] to floats.
    for position, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise InputError(f"indices must be integers, but index {position} is {shown(value)}")
    check_largest(int(max(values)))
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
            indices = as_indices(indices)
            indices.setflags(write=False)
        check_length(len(indices))
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
        >>> from memkern import patterns
        >>> patterns.custom([0, 4, 8]).stride, patterns.custom([8, 4, 0]).stride
        (4, -4)
        >>> patterns.custom([0, 4, 9]).stride is patterns.custom([3]).stride is None
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
        >>> from memkern import patterns
        >>> patterns.uniform(4, 24).access_class, patterns.custom([0, 0, 1, 1]).access_class
        ('uniform', 'broadcast')
        >>> patterns.ms1(8, 4, 20).access_class, patterns.custom([4, 8, 12, 0]).access_class
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
        return owned(indices, f"{self.name}{suffix}" if self.name else "", self.delta)

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


def owned(indices: npt.NDArray[np.int64], name: str, delta: int | None = None) -> Pattern:
    """Make a pattern that takes ownership of an array instead of copying it."""
    indices.setflags(write=False)
    return Pattern(indices, name, delta)
