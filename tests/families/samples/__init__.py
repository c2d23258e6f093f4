"""Small cases of every kernel and properties of its family for the tests, one file per family.

A file has `SAMPLES`, the cases of every kernel that runs on processors, and these optional names:

MORE_CASES : dict
    Further cases by kernel, which are compared but not run.
PER_ELEMENT : dict
    By kernel, bytes and flops of an element in float64, from the papers' tables.
BOUND : bool
    Whether cases have a fixed number of threads and entry, so that the family's own tests run its
    variants.
OWN_ENTRIES, SCALAR, BASELINE : tuple of str
    Kernels whose entries the family's own tests compare; kernels without `auto`, because accesses
    must not be merged into wider ones; kernels whose instructions are the same in every set.
SECTORS : tuple of str
    Kernels for which a GPU transfers sectors, or which have layer conditions.
FORMULAS : tuple of str
    Kernels, besides those over a length, whose declared shapes are formulas of a case's integers.
unrolls : callable
    Kernel and variant to the values of the option ``unroll``.
only_writes : callable
    Case to whether it stores elements that it does not read.
with_threads, for_entry : callable
    Case and number of threads, or case and options of an entry, to the rebuilt case.
"""

import importlib
from pathlib import Path
from typing import Any

FAMILIES = {
    path.stem: importlib.import_module(f"{__name__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("[!_]*.py"))
}


def by_kernel(name: str) -> dict[str, Any]:
    """Return the entries of all files' dicts with this name."""
    every = (getattr(module, name, {}) for module in FAMILIES.values())
    return {kernel: value for found in every for kernel, value in found.items()}


def own(kernel: str, name: str, default: Any) -> Any:
    """Return the value with this name in the file of a kernel's family."""
    return getattr(FAMILIES[kernel.partition(".")[0]], name, default)


SAMPLES = by_kernel("SAMPLES")
MORE_CASES = by_kernel("MORE_CASES")
PER_ELEMENT = by_kernel("PER_ELEMENT")
