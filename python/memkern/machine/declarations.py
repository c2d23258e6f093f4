"""The kernels, as the extension declares them. Only the functions load it, not this module."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from memkern.errors import InputError


def template_variants(kernel: str, isa: str = "best", variant: str = "best") -> set[str]:
    """Return a kernel's template variants for this machine's instruction sets, or for `isa`.

    Template variants of all variants are returned, or of one.
    """
    from memkern.extension import _memkern

    isas = [name for name in _memkern.supported_isas() if isa in ("best", name)]
    return {
        entry[6]
        for entry in _memkern.entries()
        if entry[0] == kernel and entry[2] in isas and variant in ("best", entry[1])
    }


@dataclass(frozen=True)
class ArrayRole:
    """One array of a kernel.

    `shape` is text that uses the kernel's parameters; `role` is ``read``, ``write`` or ``update``
    (read and written).
    """

    name: str
    shape: str
    role: str


@dataclass(frozen=True)
class Declaration:
    """The extension's declaration of a kernel.

    `arrays` are in the order of the body's arguments; `flops` are per element, `amos` (atomic
    operations) per iteration; `scalars` have their defaults, and `integers`, which every case has,
    their least and largest values.
    """

    arrays: tuple[ArrayRole, ...]
    flops: float
    scalars: Mapping[str, float]
    amos: float
    integers: Mapping[str, tuple[int, int]]


_ROLES = {"r": "read", "w": "write", "u": "update"}


@functools.cache
def _declarations() -> dict[str, Declaration]:
    from memkern.extension import _memkern

    found = {}
    for kernel, arrays, flops, scalars, amos, integers in _memkern.declarations():
        roles = tuple(
            ArrayRole(name, f"({shape})" if "," in shape else f"({shape},)", _ROLES[role])
            for name, role, shape in arrays
        )
        numbers = {name: float(v) for name, v in (word.split("=") for word in scalars.split())}
        ranges = {name: (least, most) for name, least, most in integers}
        found[kernel] = Declaration(roles, flops, numbers, amos, ranges)
    return found


def declared(kernel: str) -> Declaration:
    """Return the extension's declaration of a kernel.

    Raises
    ------
    InputError
        The kernel is unknown.
    """
    known = _declarations()
    if kernel not in known:
        raise InputError(
            f"kernel {kernel!r} is not declared in the extension: its family's entries.inc or "
            "case.cpp lacks it"
        )
    return known[kernel]
