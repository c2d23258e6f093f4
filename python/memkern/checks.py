"""Checks of single values, and their quotation in messages."""

from __future__ import annotations

import argparse
import difflib
import math
import numbers
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from memkern.errors import InputError

T = TypeVar("T")

INT64_MAX = 2**63 - 1
"""The largest index."""

LEAST, MOST = 1e-30, 1e30
"""Allowed magnitudes of nonzero numbers, so that products of a few of them are finite."""


class _Shortener(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxlong = self.maxother = 60

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to print integers of thousands of digits.
        return "an integer of more than 128 bits" if x.bit_length() > 128 else repr(x)


_shortener = _Shortener()


def shown(value: object) -> str:
    """Return a value quoted for an error message: short, printable and on one line.

    Parameters
    ----------
    value : object
        Anything, however large.

    Returns
    -------
    str
        A shortened ``repr``.
    """
    return " ".join(_shortener.repr(value).split())


def plain(value: Any, what: str) -> Any:
    """Return Python's value of a member of an enumeration, or of a scalar of NumPy or pandas.

    Parameters
    ----------
    value : object
        Arrays without dimensions are scalars; lists and tuples are converted value by value.
    what : str
        The name that an error message uses for the value.

    Returns
    -------
    object
        Any other value unchanged.

    Raises
    ------
    InputError
        The value is missing: pandas' ``NA`` or ``NaT``, or masked.
    """
    if type(value) in (list, tuple):
        return type(value)(plain(each, what) for each in value)
    value = value.value if isinstance(value, Enum) else value
    if type(value).__name__ in ("NAType", "NaTType"):
        raise InputError(f"{what} is missing ({shown(value)}): give a value, or leave it out")
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        refuse_masked(value, what)
        value = value.item()
    # The widest type of NumPy has no other equal in Python.
    return float(value) if isinstance(value, np.floating) else value


def several(values: Any, what: str) -> Sequence[Any]:
    """Return the values of an option as a sequence; one number or text is the only value.

    Parameters
    ----------
    values : object
        A sequence is not copied, unless it is a list or a tuple.
    what : str
        The name that an error message uses for the values.
    """
    values = plain(values, what)
    single = isinstance(values, str) or not isinstance(values, Iterable)
    return [values] if single else values if isinstance(values, Sequence) else list(values)


def integer(value: object, what: str, low: int = 0, high: int = INT64_MAX) -> int:
    """Check an integer.

    Parameters
    ----------
    value : object
        Python's and NumPy's integers are accepted, booleans and floats are not.
    what : str
        The name that an error message uses for the value.
    low, high : int
        The range, both ends included.

    Returns
    -------
    int
        The value.

    Raises
    ------
    InputError
        If the value is not an integer or is outside the range.
    """
    number = plain(value, what)
    if isinstance(number, bool) or not isinstance(number, int):
        raise InputError(f"{what} must be an integer, not {shown(number)}")
    if number < low:
        raise InputError(f"{what} must be at least {low}, not {shown(number)}")
    if number > high:
        raise InputError(f"{what} must be at most {high}, not {shown(number)}")
    return int(number)


def number(value: object, what: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Check a real number.

    Parameters
    ----------
    value : object
        Python's and NumPy's integers and floats are accepted, booleans are not.
    what : str
        The name that an error message uses for the value.
    low, high : float
        The range, both ends included.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InputError
        If the value is not a number, larger than `MOST` or outside the range.
    """
    value = plain(value, what)
    real = value if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    try:
        checked = float(real)
    except OverflowError:  # an integer of hundreds of digits
        checked = math.inf
    if not (abs(checked) <= MOST and low <= checked <= high):
        right = "a finite number" + (f" of at least {low:g}" if math.isfinite(low) else "")
        if math.isfinite(high):
            right = f"a number from {low:g} to {high:g}"
        elif math.isfinite(checked) and abs(checked) > MOST:
            right = f"at most {MOST:g}"
        raise InputError(f"{what} must be {right}, not {shown(value)}")
    return checked


def one_of(value: object, what: str, allowed: Collection[str]) -> None:
    """Refuse a word that is not allowed.

    Parameters
    ----------
    value : object
    what : str
        The name that an error message uses for the value.
    allowed : collection of str
        An empty word, which means a default, is allowed but not listed in the message.

    Raises
    ------
    InputError
        If the value is none of the words.
    """
    if not isinstance(value, str) or value not in allowed:
        raise unknown(value, what, allowed)


_MOST_LISTED = 14


def meant(value: object, known: Iterable[str], cutoff: float = 0.7) -> str:
    """Return the end of a message: up to three known names that resemble or contain a value.

    It is empty if there are none. `cutoff` is the least similarity, from 0 to 1.
    """
    names = {name.lower(): name for name in known}
    text = str(value)[:100].lower()
    near = difflib.get_close_matches(text, names, n=3, cutoff=cutoff)
    within = [name for name in names if len(text) > 2 and text in name]
    found = [names[name] for name in dict.fromkeys([*near, *within[:3]])][:3]
    return f": did you mean {' or '.join(found)}?" if found else ""


def unknown(value: object, what: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that is not known.

    Parameters
    ----------
    value : object
    what : str
        Kind of the named object.
    known : iterable of str
        An empty name is not listed.

    Returns
    -------
    InputError
        With all known names if they are few, and with similar names.
    """
    names = [*dict.fromkeys(filter(None, known))]
    near = meant(value, names)
    some = "is unknown" if near and len(names) > _MOST_LISTED else f"is not one of {listed(names)}"
    return InputError(f"{what} {shown(value)} {some}{near}")


def listed(names: Iterable[str]) -> str:
    """Return names for a message, the first of many."""
    every = [*names]
    rest = len(every) - _MOST_LISTED
    return ", ".join(every[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return number and noun: '1 record', '3 records'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def joined(parts: Sequence[str]) -> str:
    """Return the parts as a list in a sentence: 'a', 'a and b', 'a, b and c'."""
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def converter(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a converter for argparse, which prints the sentences of its errors."""

    def convert(text: str) -> T:
        try:
            return read(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def read_integer(text: str, what: str) -> int:
    """Read an integer written in ASCII digits.

    Parameters
    ----------
    text : str
        Digits, perhaps with a minus sign before and spaces around them.
    what : str
        The name that an error message uses for the number.

    Returns
    -------
    int
        The number, not checked for a range.

    Raises
    ------
    InputError
        If the text is not an integer, or has more digits than an int64.
    """
    if not re.fullmatch(r" *-?[0-9]+ *", text):
        raise InputError(f"{what} must be an integer, not {shown(text)}")
    if len(text.strip(" ")) > 20:  # Python refuses to convert thousands of digits
        raise InputError(f"{what} must be an integer below 2**63, not {shown(text)}")
    return int(text)


def refuse_masked(values: object, what: str) -> None:
    """Refuse a masked array with masked elements, since the mask would be ignored.

    Raises
    ------
    InputError
        An element is masked.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{what} has masked values: fill them, or leave them out")


def printable(text: str) -> str:
    r"""Return text with escapes such as ``\x00`` for control characters."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def in_digits(text: str) -> str:
    """Return a whole number such as ``1e6`` in digits, and any other text unchanged."""
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]{1,2}", text):
        value = Decimal(text)
        if value == int(value):
            return str(int(value))
    return text


def read_number(text: str, what: str) -> float:
    """Read a number written in ASCII.

    Parameters
    ----------
    text : str
        Such as ``0.5``, ``-1e3`` or ``inf``, perhaps with spaces around.
    what : str
        The name that an error message uses for the number.

    Returns
    -------
    float
        The number, not checked for a range.

    Raises
    ------
    InputError
        If the text is anything else.
    """
    try:
        # float() also accepts digits of other scripts and underscores between digits.
        return float(text if text.isascii() and "_" not in text else "")
    except ValueError:
        raise InputError(f"{what} must be a number, not {shown(text)}") from None


@dataclass(frozen=True, eq=False, repr=False)
class FromFields:
    """A dataclass that is pickled and copied by its fields.

    The copy checks its fields again and rebuilds derived data, such as read-only arrays.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the class and its arguments."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))
