"""Small cases of every kernel, and what tests need to know of its family: one file a family.

A file has `SAMPLES`, the cases of every kernel that runs on processors. What else it has is listed
here; tests find it by its name.

MORE_CASES : dict
    Further cases by kernel, which are compared but not run.
PER_ELEMENT : dict
    By kernel, bytes and flops of an element in float64, from the papers' tables.
BOUND : bool
    Whether cases are for a number of threads and for one entry: tests of the family run its
    variants.
OWN_ENTRIES, SCALAR, BASELINE : tuple of str
    Kernels whose entries tests of the family compare; kernels without `auto`, as their accesses
    must not be merged into wider ones; those with instructions that are the same everywhere.
SECTORS : tuple of str
    Kernels of which a GPU transfers sectors, or which have layer conditions.
FORMULAS : tuple of str
    Kernels whose declared shapes are formulas of integers of the case, beside those over a length.
unrolls : callable
    Kernel and variant to the values of the option ``unroll``.
only_writes : callable
    Case to whether it stores elements that it does not read.
with_threads, for_entry : callable
    The case with another number of threads, or with the options of an entry, built again.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

FAMILIES = {
    path.stem: importlib.import_module(f"{__name__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("[!_]*.py"))
}


def by_kernel(name: str) -> dict[str, Any]:
    """Return what the files have by kernel under a name."""
    every = (getattr(module, name, {}) for module in FAMILIES.values())
    return {kernel: value for found in every for kernel, value in found.items()}


def own(kernel: str, name: str, default: Any) -> Any:
    """Return what the file of a kernel's family has under a name."""
    return getattr(FAMILIES[kernel.partition(".")[0]], name, default)


SAMPLES = by_kernel("SAMPLES")
MORE_CASES = by_kernel("MORE_CASES")
PER_ELEMENT = by_kernel("PER_ELEMENT")
