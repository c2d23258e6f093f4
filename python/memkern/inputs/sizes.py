"""Parsers of sizes in bytes, and of lists of sizes and integers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from memkern import small
from memkern.checks import in_digits, integer, shown
from memkern.errors import InputError

_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_MAX_SIZES = 10**6
_SMALL_B = 2**18  # the largest size where MEMKERN_SMALL is set


def parse_bytes(size: str | float) -> float:
    """Return a number of bytes.

    Parameters
    ----------
    size : str or float
        Such as ``64KiB``, ``1.5GB``, ``1e6`` or a number.

    Raises
    ------
    InputError
        If it is none of these, or not positive.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([a-zA-Z]*)\s*", str(size))
    try:
        value = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    except (KeyError, ValueError):
        value = 0.0
    if not 0 < value < 2**62:
        raise InputError(f"{shown(size)} is not a size in bytes, such as 64KiB, 1.5GB or 1e6")
    return value


def bytes_of_words(size: str | float, name: str, most: int) -> int:
    """Return a number of bytes of whole words of 8 bytes.

    Parameters
    ----------
    size : str or float
        As for `parse_bytes`.
    name : str
        The name that an error message uses for the size.
    most : int
        Most bytes.

    Raises
    ------
    InputError
        If it is no size, no multiple of 8, or larger.
    """
    value = parse_bytes(size)
    if value > most or value % 8:
        known = f"a multiple of 8 up to {most}" if most > 8 else "8"
        raise InputError(f"{name} must be {known}, not {shown(size)}")
    return int(value)


def sizes(low: str | float, high: str | float, count: int) -> list[int]:
    """Return distinct sizes in bytes, evenly spaced on a logarithmic scale.

    Parameters
    ----------
    low, high : str or float
        The smallest and the largest size, as `parse_bytes` reads them.
    count : int
        Number of sizes before those that round to the same byte are merged.

    Returns
    -------
    list of int

    Raises
    ------
    InputError
        If an end is no size, they are in the wrong order, or `count` is out of range.
    """
    first, last = parse_bytes(low), parse_bytes(high)
    count = integer(count, "the number of sizes", 1, _MAX_SIZES)
    if first > last:
        raise InputError(f"sizes must ascend, not go from {shown(low)} to {shown(high)}")
    if small.wanted():
        last = min(last, _SMALL_B)
        first, count = min(first, last / 16), min(count, 5)
    steps = np.geomspace(first, last, count)
    return [int(size) for size in np.unique(np.round(steps).astype(np.int64))]


def parse_sizes(text: str, multiple: int = 1) -> list[int]:
    """Parse sizes given as ``LOW:HIGH:COUNT`` or as a list such as ``64KiB,1MiB``.

    Sizes between two ends are rounded up to multiples of `multiple`.

    Raises
    ------
    InputError
        If the text is none of these.
    """
    if ":" not in text:
        return [int(parse_bytes(part)) for part in text.split(",")]
    parts = text.split(":")
    if len(parts) != 3 or not re.fullmatch("[0-9]{1,18}", parts[2]):
        raise InputError(f"sizes must be LOW:HIGH:COUNT, such as 16KiB:1GiB:100, not {shown(text)}")
    found = sizes(parts[0], parts[1], int(parts[2]))
    return list(dict.fromkeys(-(-size // multiple) * multiple for size in found))


def integer_list_parser(least: int, name: str) -> Callable[[str], list[int]]:
    """Return a parser of lists of integers such as ``1,2,4`` or ``0..8``, each at least `least`."""

    def parse(text: str) -> list[int]:
        numbers: list[int] = []
        for part in text.split(","):
            match = re.fullmatch(
                r"\s*([0-9]{1,18})\s*(?:\.\.\s*([0-9]{1,18})\s*)?", in_digits(part)
            )
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
            if last < first or first < least or last - first >= _MAX_SIZES:
                raise InputError(
                    f"{name} must be a list of whole numbers of at least {least}, such as "
                    f"{least + 1},{least + 3} or {least + 1}..{least + 8}, not {shown(text)}"
                )
            numbers += range(first, last + 1)
        return list(dict.fromkeys(numbers))

    return parse
