"""TLBs as the processor describes them: entries for pages of 4 KiB, by the instruction cpuid.

References
----------
AMD64 Architecture Programmer's Manual, volume 3, functions 8000_0005h and 8000_0006h; Intel 64 and
IA-32 Architectures Software Developer's Manual, volume 2A, cpuid, leaf 18h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

# Leaf and subleaf to the registers eax, ebx, ecx and edx; None if there is no such leaf.
Cpuid: TypeAlias = Callable[[int, int], "tuple[int, int, int, int] | None"]

_VENDORS_OF_AMD = ("AuthenticAMD", "HygonGenuine")
# Types of Intel's TLBs that serve loads.
_FOR_LOADS = (1, 3, 4)
_MOST_SUBLEAVES = 32


def read(cpuid: Cpuid) -> list[dict[str, int]]:
    """Return level and entries of the TLBs of loads from pages of 4 KiB, from the first level.

    Empty if the processor does not describe its TLBs.
    """
    head = cpuid(0, 0)
    if head is None:
        return []
    vendor = struct.pack("<3I", head[1], head[3], head[2]).decode("latin-1")
    entries = _of_amd(cpuid) if vendor in _VENDORS_OF_AMD else _of_intel(cpuid)
    return [{"level": level, "entries": entries[level]} for level in sorted(entries)]


def _of_amd(cpuid: Cpuid) -> dict[int, int]:
    first, second = cpuid(0x80000005, 0), cpuid(0x80000006, 0)
    found = {1: first[1] >> 16 & 0xFF if first else 0, 2: second[1] >> 16 & 0xFFF if second else 0}
    return {level: entries for level, entries in found.items() if entries}


def _of_intel(cpuid: Cpuid) -> dict[int, int]:
    found: dict[int, int] = {}
    head = cpuid(0x18, 0)
    for subleaf in range(min(head[0] + 1, _MOST_SUBLEAVES) if head else 0):
        _, ebx, sets, edx = cpuid(0x18, subleaf) or (0, 0, 0, 0)
        if edx & 0x1F in _FOR_LOADS and ebx & 1:
            level = edx >> 5 & 0x7
            found[level] = found.get(level, 0) + (ebx >> 16) * sets
    return found
