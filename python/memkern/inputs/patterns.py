"""Index patterns: the elements that a gather or scatter accesses, relative to its base.

A pattern is a short list of offsets in values (not bytes).  A kernel applies it at bases that
advance by a delta.  Patterns come from generators such as `uniform`, `stencil`, `reuse` and
`model`, from indices (`custom`), or from strings in Spatter's notation (`parse`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.checks import INT64_MAX, integer, one_of, read_integer, several, shown
from memkern.errors import InputError
from memkern.inputs.indices import read
from memkern.inputs.locality import model, model_error, reuse, reuse_distances
from memkern.inputs.pattern import (
    MAX_LENGTH,
    Pattern,
    as_indices,
    check_largest,
    check_length,
    owned,
)

__all__ = [
    "MAX_LENGTH",
    "Pattern",
    "PatternLike",
    "as_pattern",
    "bases",
    "custom",
    "laplacian",
    "model",
    "model_error",
    "ms1",
    "parse",
    "random",
    "reuse",
    "reuse_distances",
    "stencil",
    "uniform",
]
__dir__ = __all__.copy  # public names only

_COUNT = 1024  # Spatter's

PatternLike: TypeAlias = "Pattern | str | npt.ArrayLike"
"""Types that `as_pattern` accepts."""


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
    check_length(n, 2)
    check_largest((n - 1) * stride)
    if isinstance(delta, str):
        if delta.upper() != "NR":
            raise InputError(f"delta must be an integer or NR, not {shown(delta)}")
        delta = n * stride
    return owned(np.arange(n, dtype=np.int64) * np.int64(stride), f"UNIFORM:{n}:{stride}", delta)


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
    check_length(n, 2)
    at = _check_integers(breaks, "break")
    by = _check_integers(gaps, "gap")
    name = f"MS1:{n}:{','.join(map(str, at))}:{','.join(map(str, by))}"
    if len(by) not in (1, len(at)):
        raise InputError(
            f"gaps must be one for all breaks or one for each of {len(at)}, not {len(by)}"
        )
    by = by * len(at) if len(by) == 1 else by
    check_largest(n + sum(by))
    steps = np.ones(n, dtype=np.int64)
    previous = -1
    for position, gap in zip(at, by, strict=True):
        if not previous < position < n:
            break
        steps[position] = gap
        previous = position
    if steps[0] == 0:
        raise InputError("a gap of 0 at break 0 would make the first index -1")
    return owned(np.cumsum(steps) - 1, name)


def _check_integers(values: object, what: str) -> list[int]:
    numbers = [integer(value, f"{what} {k}") for k, value in enumerate(several(values, what))]
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
    check_length(2 * dim * order + 1, 3)
    if size > 1 and dim > 64:  # the power below would have millions of digits
        raise InputError(f"indices must be at most {INT64_MAX}, but {dim} dimensions exceed that")
    centre = order * size ** (dim - 1)
    check_largest(2 * centre)
    axes = np.array([size**axis for axis in range(dim)], dtype=np.int64)
    reach = np.outer(axes, np.arange(1, order + 1, dtype=np.int64)).ravel()
    indices = np.concatenate([centre - reach[::-1], [centre], centre + reach])
    return owned(indices, f"LAPLACIAN:{dim}:{order}:{size}", 1)


SHAPES = ("star", "planes", "box")


def stencil(shape: str, order: int, sizes: int | Iterable[int]) -> Pattern:
    """Make a stencil on a grid of any sizes, such as those of full-waveform inversion.

    Parameters
    ----------
    shape : {"star", "planes", "box"}
        ``star`` has the neighbours along every axis, as second derivatives need; ``planes`` also
        those with steps along two axes, as mixed derivatives of anisotropic media do; ``box`` all.
    order : int
        Neighbours on each side along each axis: half of the order of the differences.
    sizes : int or iterable of int
        Points along each axis, the one that is contiguous in memory first.

    Returns
    -------
    Pattern
        Shifted to begin at 0; delta 1, named ``STENCIL:shape:order:sizes``.

    Raises
    ------
    InputError
        If the shape is another one, a number is not positive, or an index would not fit.

    Examples
    --------
    >>> stencil("star", 1, [100, 50]).indices.tolist()
    [0, 99, 100, 101, 200]
    >>> len(stencil("planes", 2, [100, 50, 20])), len(stencil("box", 1, [100, 50, 20]))
    (61, 27)
    """
    one_of(shape, "shape", SHAPES)
    order = integer(order, "order", 1)
    points = [integer(one, f"size {k}", 1) for k, one in enumerate(several(sizes, "size"))]
    check_length((2 * order + 1) ** len(points), 3 + len(points))
    strides = np.cumprod([1, *points[:-1]], dtype=object)
    check_largest(2 * order * sum(strides))
    steps = np.indices((2 * order + 1,) * len(points)).reshape(len(points), -1) - order
    most = {"star": 1, "planes": 2}.get(shape, len(points))
    places = np.sort(strides.astype(np.int64) @ steps[:, np.count_nonzero(steps, axis=0) <= most])
    return owned(places - places[0], f"STENCIL:{shape}:{order}:{','.join(map(str, points))}", 1)


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
    check_length(n, 1)
    indices = np.random.default_rng(seed).integers(0, high, n, dtype=np.int64)
    return owned(indices, f"RANDOM:{n}:{high}:{seed}")


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
    check_length(n * count, 3)
    check_largest(n * count * stride - 1)
    order = np.arange(count, dtype=np.int64)
    name = f"BASES:{n}:{stride}:{count}"
    if seed is not None:
        order = np.random.default_rng(integer(seed, "seed")).permutation(order)
        name += f":{seed}"
    instance = np.arange(n, dtype=np.int64) * np.int64(stride)
    indices = (order[:, np.newaxis] * np.int64(n * stride) + instance).ravel()
    return owned(indices, name, n * stride * count)


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
    return owned(as_indices(indices), name)


def _read_argument(text: str, name: str) -> Any:
    """Read an argument of a generator by its name, or indices: an integer, integers or NR."""
    if name in ("shape", "file"):
        return text.strip(" ")
    if name in ("break", "gap", "index", "sizes", "distances"):
        return [read_integer(part, f"{name} {k}") for k, part in enumerate(text.split(","))]
    return "NR" if name == "delta" and text.strip(" ").upper() == "NR" else read_integer(text, name)


def _model_of_file(length: int, file: str, seed: int = 0) -> Pattern:
    """Make a `model` of the indices in a file."""
    return model(length, read(file), seed, Path(file).name)


_OF_VERSION_0 = ("HYDRO", "XKP")


# The function, the names of its arguments, how many may be given, and the notation.
_GENERATORS: dict[str, tuple[Callable[..., Pattern], tuple[str, ...], tuple[int, ...], str]] = {
    "UNIFORM": (uniform, ("length", "stride", "delta"), (2, 3), "UNIFORM:length:stride[:delta|NR]"),
    "MS1": (ms1, ("length", "break", "gap"), (3,), "MS1:length:breaks:gaps"),
    "LAPLACIAN": (
        laplacian,
        ("dimension", "order", "size"),
        (3,),
        "LAPLACIAN:dimension:order:size",
    ),
    "RANDOM": (random, ("length", "high", "seed"), (3,), "RANDOM:length:high:seed"),
    "BASES": (
        bases,
        ("length", "stride", "count", "seed"),
        (3, 4),
        "BASES:length:stride:count[:seed]",
    ),
    "STENCIL": (stencil, ("shape", "order", "sizes"), (3,), "STENCIL:shape:order:sizes"),
    "REUSE": (
        reuse,
        ("length", "distances", "stride", "seed"),
        (2, 3, 4),
        "REUSE:length:distances[:stride[:seed]]",
    ),
    "MODEL": (_model_of_file, ("length", "file", "seed"), (2, 3), "MODEL:length:file[:seed]"),
}
NOTATION = (
    ", ".join(form for _, _, _, form in _GENERATORS.values())
    + ", indices such as 0,4,8, or a file of indices"
)
"""What `parse` accepts, in words."""


def parse(text: str) -> Pattern:
    """Parse the notation of a pattern.

    Parameters
    ----------
    text : str
        ``UNIFORM:length:stride[:delta|NR]``, ``MS1:length:breaks:gaps``,
        ``LAPLACIAN:dimension:order:size``, ``RANDOM:length:high:seed``,
        ``BASES:length:stride:count[:seed]``, ``STENCIL:shape:order:sizes``,
        ``REUSE:length:distances[:stride[:seed]]``, ``MODEL:length:file[:seed]``, indices such as
        ``0,4,8``, or a file of indices (see `memkern.indices.read`), which has a ``.`` or ``/`` in
        it.  The case of a generator's name does not matter; breaks, gaps, sizes and distances are
        separated by commas.  Spatter's are the first three and indices.

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
    kind, *parts = text.split(":")
    name = kind.strip(" ").upper()
    try:
        of_file = text.isprintable() and re.search("[A-Za-z]", text) and re.search("[./]", text)
        if of_file and name not in _GENERATORS:
            return custom(read(text), f"file {Path(text).name}")
        if not text.isascii():
            raise InputError("it must be written in ASCII")
        if not parts and not re.search("[A-Za-z]", kind):
            return custom(_read_argument(kind, "index"))
        if name not in _GENERATORS:
            old = f"{name} is a generator of Spatter 0 alone, and " * (name in _OF_VERSION_0)
            raise InputError(f"{old}a pattern is one of {NOTATION}")
        make, arguments, counts, form = _GENERATORS[name]
        if len(parts) not in counts:
            raise InputError(f"its form must be {form}")
        return make(*map(_read_argument, parts, arguments))
    except InputError as error:
        raise InputError(f"pattern {shown(text)}: {error}") from None


def usual_count(pattern: Pattern) -> int:
    """Return the instances of a pattern if none are given: one if it has many indices."""
    return _COUNT if len(pattern) <= _COUNT else 1


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
