"""Traces of other tools, and arrays of addresses, as traces of memkern.

Known are the output of Valgrind's lackey (``--trace-mem=yes``), the view of DynamoRIO's memory
traces (``drrun -t drcachesim -simulator_type view``), and files of addresses as ``.npy``.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from memkern.errors import InputError
from memkern.files import opened
from memkern.inputs.indices import read

FORMAT = b"memkern trace 1\n"
READ, WRITE, ATOMIC = 1, 2, 4
_HEAD_B, _PART_B = 2**16, 2**18
_LONGEST_B = 64
_EVENT, _DEFINED = 0x80 | 1 | 2 | 16, 8  # with its site, address and length
_LACKEY = re.compile(rb"(?:I  | ([LSM]) )([0-9a-f]+),(\d+)\s*")
_LACKEY_HOW = {b"L": READ, b"S": WRITE, b"M": READ | WRITE}
_DYNAMORIO = re.compile(
    rb"\s*\d+\s+\d+:\s+(?:W\d+\.T)?(\d+) (read|write) +(\d+) byte\(s\) "
    rb"@ 0x([0-9a-f]+) by PC 0x([0-9a-f]+)"
)


class Event(NamedTuple):
    """An access: thread, address of the instruction, address and bytes, READ or WRITE or both."""

    thread: int
    caller: int
    at: int
    size: int
    how: int


def is_own(path: Path) -> bool:
    """Return whether a file begins as a trace of memkern."""
    with opened(path) as stream:
        return stream.read(len(FORMAT)) == FORMAT


def events(path: Path) -> Iterator[Event]:
    """Yield the accesses of a file.

    Raises
    ------
    InputError
        If it can't be read, or is none of the known kinds.
    """
    if path.suffix == ".npy":
        yield from (Event(0, 0, address, 8, READ) for address in read(path).tolist())
        return
    some = False
    with opened(path) as stream:
        instruction = 0
        for line in stream:
            if found := _DYNAMORIO.match(line):
                thread, verb, size, at, caller = found.groups()
                how = READ if verb == b"read" else WRITE
                yield Event(int(thread), int(caller, 16), int(at, 16), int(size), how)
            elif (found := _LACKEY.fullmatch(line)) and not found[1]:
                instruction = int(found[2], 16)
            elif found:
                how = _LACKEY_HOW[found[1]]
                yield Event(0, instruction, int(found[2], 16), int(found[3]), how)
            some = some or found is not None
    if not some:
        raise InputError(
            f"{path} is no trace: neither of `memkern trace`, lackey or DynamoRIO's view, nor "
            "addresses as .npy"
        )


def write(path: Path, accesses: Iterable[Event]) -> None:
    """Write accesses as a trace of memkern, whose format ``cpp/core/trace.hpp`` describes."""
    threads: dict[int, _Thread] = {}
    with path.open("wb") as stream:
        stream.write(FORMAT.ljust(_HEAD_B, b"\0"))
        for access in accesses:
            if access.thread not in threads:
                threads[access.thread] = _Thread(len(threads))
            threads[access.thread].add(access, stream)
        places: dict[int, tuple[str, str]] = {}
        for thread in threads.values():
            thread.flush(stream)
            places |= {_unique(*key): (hex(key[0]), "") for key in thread.sites}
        stream.write(text_part({"lines": places}))


def text_part(about: Mapping[str, Any]) -> bytes:
    """Return the last part of a trace, which has text about it: ``lines`` by caller, and more."""
    return struct.pack("<QQ", 2**64 - 1, 0) + json.dumps(about).encode()


class _Thread:
    """The sites of a thread, and its part of the file."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sites: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.part = bytearray()

    def add(self, access: Event, stream: BinaryIO) -> None:
        key = access.caller, access.how
        defined = key not in self.sites
        site, at, step = self.sites.get(key, (len(self.sites), 0, 0))
        self.part.append(_EVENT | _DEFINED * defined)
        self.part += _number(site)
        if defined:
            self.part += _number(_unique(*key)) + _number(access.how | access.size << 3)
        apart = access.at - at - step
        self.part += _number(access.size) + _number(apart * 2 if apart >= 0 else -apart * 2 - 1)
        self.sites[key] = site, access.at, access.at - at
        if len(self.part) > _PART_B - 16 - _LONGEST_B:
            self.flush(stream)

    def flush(self, stream: BinaryIO) -> None:
        stream.write((struct.pack("<QQ", self.number, 0) + self.part).ljust(_PART_B, b"\0"))
        self.part.clear()


def _unique(caller: int, how: int) -> int:
    """Return a number of an instruction's loads or stores."""
    return caller * 4 + how


def _number(value: int) -> bytes:
    """Return a number in LEB128."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
