"""Arrays of a user's kernel, and what it does with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from memkern.checks import shown
from memkern.errors import InputError

READ, WRITE, UPDATE, SUM, INDEX = "read", "write", "update", "sum", "index"
"""Roles of arrays; workers add to the single element of a sum, indices are elements of another."""
ROLES = (READ, WRITE, UPDATE, SUM, INDEX)
LENGTH = "n"
"""Name of the number of iterations in shapes."""


class Array(NamedTuple):
    """An array.

    Attributes
    ----------
    name, role : str
    shape : str
        Its number of elements, as a sum or product of ``n``, whole numbers and parameters.
    of : str
        Of an index array, the array whose elements the indices are.
    used : str
        The number of its elements that are accessed; empty if these are all.
    """

    name: str
    role: str
    shape: str = LENGTH
    of: str = ""
    used: str = ""


def arrays_of(given: Mapping[str, str] | str) -> tuple[Array, ...]:
    """Return arrays from their roles by name, or from a list such as ``a=write,b=read[n + 2]``.

    Raises
    ------
    InputError
        A part of the list has no name, or see `array_of`.
    """
    if isinstance(given, str):
        words = [word.split("=", 1) for word in re.split(r",(?![^\[]*\])", given)]
        if any(len(word) != 2 for word in words):
            raise InputError(f"arrays are a list such as a=write,b=read, not {shown(given)}")
        given = {name.strip(): role for name, role in words}
    return tuple(array_of(name, role) for name, role in given.items())


def array_of(name: str, text: object) -> Array:
    """Return an array from its role, such as ``read``, ``write[n + 2, n]`` or ``index[x]``.

    Raises
    ------
    InputError
        It is no role.
    """
    found = re.fullmatch(r"\s*(\w+)\s*(?:\[(.*)\])?\s*", text if isinstance(text, str) else "")
    if found is None or found[1] not in ROLES or not name.isidentifier():
        raise InputError(
            f"array {shown(name)} must be {', '.join(ROLES[:-1])} or {INDEX}[array], with a size "
            f"unless it is {LENGTH}, as in read[{LENGTH} + 2], not {shown(text)}"
        )
    role, inside = found[1], found[2]
    if role == INDEX:
        of, _, shape = (inside or "").partition(",")
        if not of.strip().isidentifier():
            raise InputError(f"index array {name} needs the array of its elements: {INDEX}[array]")
        return Array(name, role, shape.strip() or LENGTH, of.strip())
    shape, _, used = (inside or LENGTH).partition(",")
    return Array(name, role, "1" if role == SUM else shape, used=used.strip())


def number_of(array: Array, text: str, sizes: Mapping[str, int]) -> int:
    """Return a number of elements of an array.

    Raises
    ------
    InputError
        The text is no sum or product of whole numbers and names of `sizes`, or not positive.
    """
    # Neither calls nor attributes can be written with these characters.
    plain = re.fullmatch(r"[\w +*/()-]+", text) and "**" not in text
    try:
        found = int(eval(text.strip(), {"__builtins__": {}}, {**sizes})) if plain else 0
    except (SyntaxError, NameError, TypeError, ArithmeticError):
        plain = None
    if not plain:
        names = ", ".join(sizes)
        raise InputError(
            f"the size of {array.name}, {shown(text)}, must be a sum or product of whole "
            f"numbers and {names}"
        )
    if found < 1:
        raise InputError(f"{array.name} has {found} elements: give a larger {LENGTH}")
    return found
