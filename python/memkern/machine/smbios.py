"""Memory modules, channels and theoretical peak, from the firmware's table (SMBIOS) and EDAC.

The table is what ``dmidecode --type 17`` prints (DMTF DSP0134, structure type 17, "Memory Device");
only root may read it. EDAC, the kernel's subsystem for memory errors, shows the channels (not the
speed) to all users if it has a driver for the memory controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memkern.limits import read_number, read_text
from memkern.machine.environment import numbered

TABLE = "sys/firmware/dmi/tables/DMI"

_MEMORY_DEVICE, _END_OF_TABLE = 17, 127
# Kinds of modules with 64 data bits in a channel, by their number in the table.
_DDR = {0x12: "DDR", 0x13: "DDR2", 0x18: "DDR3", 0x1A: "DDR4", 0x22: "DDR5"}
_BYTES_PER_TRANSFER = 8


@dataclass(frozen=True)
class Module:
    """One slot of the firmware's table.

    Attributes
    ----------
    size_B : int
        0 for an empty slot.
    kind : str
        ``DDR4`` and the like; empty for kinds whose channels do not have 64 data bits.
    rated_MTs, configured_MTs : int
        Rated and actual speed in 10^6 transfers per second; 0 if unknown.
    locator, bank : str
        Names of the slot and its bank on the board.
    """

    size_B: int
    kind: str
    rated_MTs: int
    configured_MTs: int
    locator: str
    bank: str


@dataclass(frozen=True)
class Population:
    """The memory modules as the system reports them.

    Attributes
    ----------
    modules : tuple of Module
        The slots with a module; empty if the table can't be read.
    empty : tuple of str
        Locators of the slots without one.
    channels : int
        Populated channels; 0 if unknown.
    counted_by : str
        How the channels were counted.
    empty_channels : int
        Channels of the table that have no module.
    """

    modules: tuple[Module, ...]
    empty: tuple[str, ...]
    channels: int
    counted_by: str
    empty_channels: int = 0

    @property
    def speed_MTs(self) -> int:
        """The slowest module's 10^6 transfers per second; 0 if unknown."""
        return min((m.configured_MTs or m.rated_MTs for m in self.modules), default=0)

    @property
    def peak_GBps(self) -> float | None:
        """Channels, times transfers per second, times 8 bytes; None if unknown.

        It holds for modules with 64 data bits in each channel.
        """
        known = self.channels and self.speed_MTs and all(m.kind for m in self.modules)
        return self.channels * self.speed_MTs * _BYTES_PER_TRANSFER / 1e3 if known else None


def parse(table: bytes) -> list[Module]:
    """Return the slots in a table of SMBIOS structures, empty slots included.

    Parameters
    ----------
    table : bytes
        Contents of ``/sys/firmware/dmi/tables/DMI``.

    Raises
    ------
    ValueError
        The table is truncated or has another format.
    """
    return [
        _module(fields, texts)
        for kind, fields, texts in _structures(table)
        if kind == _MEMORY_DEVICE
    ]


def population(root: Path) -> Population | None:
    """Return the memory modules as far as they are known; None if the table is damaged.

    Parameters
    ----------
    root : Path
        Folder that contains ``sys``.
    """
    try:
        slots = parse((root / TABLE).read_bytes())
    except OSError:
        slots = []
    except ValueError:
        return None
    modules = tuple(slot for slot in slots if slot.size_B)
    empty = tuple(slot.locator for slot in slots if not slot.size_B)
    if channels := edac_channels(root):
        return Population(modules, empty, channels, "by EDAC")
    names, counted_by = _channels(slots)
    used = {name for name, slot in zip(names, slots, strict=True) if slot.size_B}
    return Population(modules, empty, len(used), counted_by, len(set(names) - used))


def columns(found: Population | None) -> dict[str, Any]:
    """Return the memory of an environment: channels, rate and peak; empty if all is unknown.

    Parameters
    ----------
    found : Population or None
    """
    if found is None or not found.channels:
        return {}
    return {
        "channels": found.channels,
        "counted_by": found.counted_by,
        "kind": "/".join(sorted({module.kind for module in found.modules if module.kind})) or None,
        "speed_MTs": found.speed_MTs or None,
        "peak_GBps": found.peak_GBps,
    }


def edac_channels(root: Path) -> int:
    """Return the number of populated channels that EDAC shows, 0 if it shows none."""
    found = set()
    for folder in numbered(root, "sys/devices/system/edac/mc/mc*/dimm*"):
        channel = re.search(r"channel\D*(\d+)", read_text(folder, "dimm_location") or "", re.I)
        if channel and (read_number(folder, "size") or 0) > 0:
            found.add((folder.parent.name, channel[1]))
    return len(found)


def _structures(table: bytes) -> Iterator[tuple[int, bytes, list[str]]]:
    """Yield type, formatted part and strings of each structure."""
    at = 0
    while at < len(table):
        if at + 4 > len(table) or table[at + 1] < 4:
            raise ValueError("a structure has no header")
        kind, length = table[at], table[at + 1]
        end = table.find(b"\0\0", at + length)
        if end < 0:
            raise ValueError("a structure does not end")
        texts = table[at + length : end].split(b"\0")
        yield kind, table[at : at + length], [t.decode("ascii", "replace").strip() for t in texts]
        if kind == _END_OF_TABLE:
            return
        at = end + 2


def _module(fields: bytes, texts: Sequence[str]) -> Module:
    """Return the slot of a structure; fields that an older version of SMBIOS lacks are 0."""

    def number(at: int, size: int) -> int:
        return int.from_bytes(fields[at : at + size], "little") if at + size <= len(fields) else 0

    def text(at: int) -> str:
        position = number(at, 1)
        return texts[position - 1] if 0 < position <= len(texts) else ""

    def speed(at: int, extended: int) -> int:
        value = number(at, 2)
        return number(extended, 4) & 0x7FFFFFFF if value == 0xFFFF else value

    size = number(0x0C, 2)
    # The highest bit selects KiB instead of MiB; 0xFFFF is an unknown size.
    usual_B = (size & 0x7FFF) << (10 if size & 0x8000 else 20)
    special_B = {0x7FFF: (number(0x1C, 4) & 0x7FFFFFFF) << 20, 0xFFFF: 0}
    return Module(
        special_B.get(size, usual_B),
        _DDR.get(number(0x12, 1), ""),
        speed(0x15, 0x54),
        speed(0x20, 0x58),
        text(0x10),
        text(0x11),
    )


# Names of slots or banks that contain a channel, as boards commonly write them.
_CHANNEL_NAMES = (
    # "ChannelA-DIMM0"; bank "P0 CHANNEL A"; "P0_Node0_Channel10_Dimm1"
    re.compile(r".*channel[ _]*(?:\d+|[a-z])(?![a-z0-9])", re.I),
    # "DIMM_A1", "P1-DIMMB2", "DIMM_P0_C1"
    re.compile(r".*dimm(?:.*[^a-z])?[a-z](?=\d$)", re.I),
)


def _channels(slots: Sequence[Module]) -> tuple[list[str], str]:
    """Return a name for the channel of each slot, and how the channels were counted."""
    names = [slot.locator for slot in slots], [slot.bank for slot in slots]
    for pattern in _CHANNEL_NAMES:
        for texts in names:
            found = [match[0] for text in texts if (match := pattern.match(text))]
            if slots and len(found) == len(slots):
                return found, "by the names of the slots"
    return [str(position) for position in range(len(slots))], "one for each slot"
