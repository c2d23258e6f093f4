"""Events that the processor and the operating system can count, by name.

A name is one of the kernel's own (``page-faults``, ``cycles``, ``dTLB-load-misses``), a raw code
of the processor (``r0151``), an event of a counting unit of the kernel with terms or a name of the
unit (``cpu/event=0x51,umask=0x1/``, ``uncore_imc/cas_count_read/``), or one of libpfm4, which is
loaded where it is installed (``L1D:REPLACEMENT``). The suffix ``:u`` or ``:k`` restricts the count
to user code or the kernel. The table events.csv contains the events that count lines moved between
caches on some processors.
"""

from __future__ import annotations

import csv
import ctypes
import functools
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from memkern.checks import shown
from memkern.errors import InputError
from memkern.limits import read_number, read_text
from memkern.machine.environment import cpu_list, fields_of

# Quantities of the table: lines loaded and stored across the boundary in front of a level (see
# Case.transfers), and page walks.
BOUNDARIES, WAYS = ("L2", "L3", "memory"), ("load", "store")
TLB_MISSES = "tlb_misses"
_DEVICES = "sys/bus/event_source/devices"
# Words of an event's code; the formats of counting units refer to their bits.
_CONFIGS = ("config", "config1", "config2")
_TYPE_HARDWARE, _TYPE_SOFTWARE, _TYPE_CACHE, _TYPE_RAW = 0, 1, 3, 4

# Software events of the kernel: name, config, meaning (linux/perf_event.h).
SOFTWARE = {
    "page-faults": (2, "page faults"),
    "minor-faults": (5, "page faults without access to a disk"),
    "major-faults": (6, "page faults with access to a disk"),
    "context-switches": (3, "switches to another thread"),
    "cpu-migrations": (4, "moves of a worker to another processing unit"),
    "task-clock": (1, "nanoseconds of processor time"),
    "cpu-clock": (0, "nanoseconds of processor time, by a timer"),
    "alignment-faults": (7, "unaligned accesses that the kernel handles"),
    "emulation-faults": (8, "instructions that the kernel emulates"),
}
# Events that only the kernel causes: the count of user code is always 0.
_OF_THE_KERNEL = ("context-switches", "cpu-migrations")
_CLOCKS = ("task-clock", "cpu-clock")
# Events of the processor, by the kernel's generic names.
HARDWARE = {
    "cycles": (0, "cycles of the core"),
    "instructions": (1, "instructions"),
    "cache-references": (2, "accesses to the last cache, as far as the processor counts them"),
    "cache-misses": (3, "misses of the last cache, as far as the processor counts them"),
    "branches": (4, "branches"),
    "branch-misses": (5, "mispredicted branches"),
    "bus-cycles": (6, "cycles of the bus"),
    "stalled-cycles-frontend": (7, "cycles without an instruction to start"),
    "stalled-cycles-backend": (8, "cycles that wait for a result"),
    "ref-cycles": (9, "cycles at the nominal clock"),
}
_CACHES = {"L1-dcache": 0, "L1-icache": 1, "LLC": 2, "dTLB": 3, "iTLB": 4, "node": 6}
_OPERATIONS = {"load": 0, "store": 1, "prefetch": 2, "prefetche": 2}


class Code(NamedTuple):
    """An event in the form of the extension; `unit` is -1 if each worker is counted."""

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    unit: int = -1
    user: bool = True
    kernel: bool = False


@dataclass(frozen=True)
class Event:
    """An event by its name.

    Attributes
    ----------
    name : str
    codes : tuple of Code
        Its counters, whose sum is the count: one, or one for each counting unit and socket.
    meaning : str
    scale, unit : float, str
        Each count is `scale` of `unit`, as the kernel gives it for its counting units.
    user_only : bool
        Whether it counts only user code although its name does not request this (see
        `of_user_code`).
    """

    name: str
    codes: tuple[Code, ...]
    meaning: str = ""
    scale: float = 1.0
    unit: str = ""
    user_only: bool = False


def processor(root: Path = Path("/")) -> tuple[str, int, int]:
    """Return vendor, family and model of the processor; '' and -1 if unknown."""
    found = fields_of(read_text(root, "proc/cpuinfo"))
    texts = (found.get(name, "") for name in ("cpu family", "model"))
    family, model = (int(text) if text.isdecimal() else -1 for text in texts)
    return found.get("vendor_id", ""), family, model


@functools.cache
def _table() -> tuple[dict[str, str], ...]:
    text = (files("memkern.machine") / "events.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def quantities(root: Path = Path("/")) -> dict[str, list[dict[str, str]]]:
    """Return the rows of the table for each quantity of this processor; empty if it is unknown.

    Quantities are ``L2_load``, ``L2_store`` (lines that L1 loads from L2 and writes to L2),
    ``L3_load``, ``L3_store``, ``memory_load``, ``memory_store`` and ``tlb_misses``.
    """
    vendor, family, model = processor(root)
    rows = [
        row
        for row in _table()
        if (row["vendor"], row["family"]) == (vendor, str(family))
        and model in {n for part in row["models"].split() for n in cpu_list(part)}
    ]
    return {
        name: [row for row in rows if row["quantity"] == name]
        for name in dict.fromkeys(row["quantity"] for row in rows)
    }


def of_quantity(name: str, rows: Sequence[Mapping[str, str]], root: Path) -> Event:
    """Return the event of a quantity by its rows: the sum of their events.

    Raises
    ------
    InputError
        One of them is unknown to the kernel.
    """
    parts = [find(row["event"], root) for row in rows]
    codes = tuple(code._replace(name=name) for part in parts for code in part.codes)
    return Event(name, codes, " and ".join(row["meaning"] for row in rows))


def names_of(text: str) -> list[str]:
    """Return the names in a list; commas within a counting unit's terms do not separate names.

    Raises
    ------
    InputError
        A name is empty, or the terms of a counting unit do not end.
    """
    if text.count("/") % 2:
        raise InputError(f"counters {shown(text)} need a second '/' after the terms")
    # Every second part contains the terms of a unit.
    parts = text.split("/")
    parts[1::2] = [part.replace(",", "\0") for part in parts[1::2]]
    names = [name.strip().replace("\0", ",") for name in "/".join(parts).split(",")]
    if not all(names):
        raise InputError(f"counters {shown(text)} lack a name: give names with commas in between")
    if len(set(names)) < len(names):
        raise InputError(f"counters {shown(text)} name an event twice")
    return names


def find(name: str, root: Path = Path("/")) -> Event:
    """Return an event by its name, whether it can be counted or not.

    Parameters
    ----------
    name : str
        See the module.
    root : Path
        Folder that contains ``sys``.

    Raises
    ------
    InputError
        There is no event of this name.
    """
    plain, levels = _levels(name)
    # The kernel switches threads on behalf of a worker. Clocks also run during kernel code,
    # without any permission.
    user, kernel = levels or (True, plain in SOFTWARE and plain not in _CLOCKS)
    if known := _of_kernel(plain):
        kind, config, meaning = known
        return Event(name, (Code(name, kind, config, user=user, kernel=kernel),), meaning)
    if terms := re.fullmatch(r"([\w.-]+)/([^/]*)/", plain):
        event = _of_device(name, terms[1], terms[2], root)
        # Only counters of cores distinguish user code from the kernel.
        if levels is None and not re.match("cpu|armv8", terms[1]):
            user, kernel = True, True
        codes = (code._replace(user=user, kernel=kernel) for code in event.codes)
        return replace(event, codes=tuple(codes))
    found = _by_libpfm(name, root)
    if found is None:
        missing = f" ({why_no_libpfm()})" if _libpfm() is None else ""
        raise InputError(
            f"event {shown(name)} is unknown{missing}: `memkern machine counters` lists events"
        )
    return found


def of_user_code(event: Event) -> Event | None:
    """Return an event restricted to user code, which any user may count on most systems.

    None if the name already has a restriction, if only the kernel causes such events, or if kernel
    code is never counted.
    """
    plain, levels = _levels(event.name)
    per_worker = all(code.unit < 0 for code in event.codes)
    in_kernel = plain not in _OF_THE_KERNEL and any(code.kernel for code in event.codes)
    if levels or not per_worker or not in_kernel:
        return None
    codes = tuple(code._replace(kernel=False) for code in event.codes)
    meaning = f"{event.meaning}, of user code only".removeprefix(", ")
    return replace(event, codes=codes, meaning=meaning, user_only=True)


def _levels(name: str) -> tuple[str, tuple[bool, bool] | None]:
    """Return a name without ``:u``, ``:k`` or ``:uk``, and whether user and kernel count."""
    found = re.fullmatch(r"(.+):(u|k|uk|ku)", name)
    return (found[1], ("u" in found[2], "k" in found[2])) if found else (name, None)


def _of_kernel(name: str) -> tuple[int, int, str] | None:
    """Return type, code and meaning of one of the kernel's own names, or of a raw code."""
    if name in SOFTWARE:
        return _TYPE_SOFTWARE, *SOFTWARE[name]
    if name in HARDWARE:
        return _TYPE_HARDWARE, *HARDWARE[name]
    cache = re.fullmatch(r"(.+?)-(load|store|prefetche?)(s|-misses)", name)
    if cache and cache[1] in _CACHES:
        missed = cache[3] == "-misses"
        return _TYPE_CACHE, _CACHES[cache[1]] | _OPERATIONS[cache[2]] << 8 | missed << 16, ""
    raw = re.fullmatch(r"r([0-9a-fA-F]{1,16})", name)
    return (_TYPE_RAW, int(raw[1], 16), "raw code of the processor") if raw else None


# Counting units of the kernel


def _devices(root: Path) -> list[Path]:
    """Return the folders of the kernel's counting units, in the order of their numbers."""

    def order_of(folder: Path) -> tuple[str, int]:
        name = folder.name.rstrip("0123456789")
        return name, int(folder.name[len(name) :] or -1)

    return sorted((root / _DEVICES).glob("*"), key=order_of)


def _units(folder: Path) -> list[int]:
    """Return the processing units on which a counting unit is read; none for counters of cores."""
    return sorted(cpu_list(read_text(folder, "cpumask")))


def by_units(root: Path = Path("/")) -> Iterator[tuple[str, str, str]]:
    """Return unit, name and terms of all events that the kernel's counting units name."""
    return (
        (folder.name, path.name, read_text(folder, f"events/{path.name}") or "")
        for folder in _devices(root)
        for path in sorted((folder / "events").glob("*"))
        if path.suffix not in (".scale", ".unit", ".snapshot")
    )


def _of_device(name: str, device: str, terms: str, root: Path) -> Event:
    """Return an event of a counting unit, or of all units with its name and a number."""
    like = re.compile(rf"{re.escape(device)}(_?\d+)?")
    folders = [folder for folder in _devices(root) if like.fullmatch(folder.name)]
    exact = [folder for folder in folders if folder.name == device]
    if not folders:
        raise InputError(f"event {shown(name)} is of {shown(device)}, which does not exist here")
    codes: list[Code] = []
    scale, unit = 1.0, ""
    for folder in exact or folders:
        kind = read_number(folder, "type")
        if kind is None:
            raise InputError(f"event {shown(name)} can't be counted: {folder} has no type")
        code = Code(name, kind, *_configs(name, terms, folder))
        codes += [code._replace(unit=unit) for unit in _units(folder)] or [code]
        if (text := read_text(folder, f"events/{terms}.scale")) is not None:
            scale = _number(text)
            unit = read_text(folder, f"events/{terms}.unit") or ""
    return Event(name, tuple(codes), "", scale, unit)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def _configs(name: str, terms: str, folder: Path) -> tuple[int, int, int]:
    """Return the configurations of terms such as ``event=0x51,umask=0x1``."""
    configs = [0, 0, 0]
    for term in filter(None, map(str.strip, terms.split(","))):
        key, equals, text = term.partition("=")
        named = read_text(folder, f"events/{key}") if re.fullmatch(r"[\w.-]+", key) else None
        if not equals and named is not None:
            given = _configs(name, named, folder) if named != terms else (0, 0, 0)
            configs = [a | b for a, b in zip(configs, given, strict=True)]
            continue
        layout = read_text(folder, f"format/{key}") if re.fullmatch(r"[\w.-]+", key) else None
        # Every unit has these terms, even without a description of its format.
        layout = layout or (f"{key}:0-63" if key in _CONFIGS else None)
        if layout is None:
            raise InputError(f"event {shown(name)} has {shown(key)}, which {folder.name} lacks")
        try:
            value = int(text, 0) if equals else 1
        except ValueError:
            raise InputError(f"event {shown(name)}: {shown(term)} is not a number") from None
        where, _, ranges = layout.partition(":")
        if where not in _CONFIGS:
            raise InputError(
                f"event {shown(name)} can't be counted: {shown(key)} of {folder.name} is a part of "
                f"{where}, where only {', '.join(_CONFIGS)} can be set"
            )
        configs[_CONFIGS.index(where)] |= _placed(value, ranges, name, term)
    return configs[0], configs[1], configs[2]


def _placed(value: int, ranges: str, name: str, term: str) -> int:
    """Return a value with its bits moved to the positions of ranges such as ``0-7,32-35``."""
    placed = taken = 0
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        first = int(low)
        width = int(high or low) - first + 1
        placed |= (value >> taken & (1 << width) - 1) << first
        taken += width
    if not 0 <= value < 1 << taken:
        raise InputError(f"event {shown(name)}: {shown(term)} has more than {taken} bits")
    return placed


# libpfm4

_LIBRARY = "libpfm.so.4"
_ATTR_B = 136
_EXCLUDE_USER, _EXCLUDE_KERNEL = 1 << 4, 1 << 5
_USER, _OS_PERF = 0x8, 1


class _Encoding(ctypes.Structure):
    _fields_ = (
        ("attr", ctypes.c_void_p),
        ("fstr", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("idx", ctypes.c_int),
        ("cpu", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("pad", ctypes.c_int),
    )


@functools.cache
def _libpfm() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(_LIBRARY)
        return library if library.pfm_initialize() == 0 else None
    except (OSError, AttributeError):
        return None


def why_no_libpfm() -> str:
    """Return why names of libpfm4 are unknown; empty if it is installed."""
    return (
        f"{_LIBRARY} is missing: install libpfm4 for the processor's names of events"
        if _libpfm() is None
        else ""
    )


def _by_libpfm(name: str, root: Path) -> Event | None:
    """Return an event by libpfm4's name; None if the name is unknown or the library is missing."""
    library = _libpfm()
    if library is None or not name.isascii():
        return None
    attr = ctypes.create_string_buffer(_ATTR_B)
    struct.pack_into("=I", attr, 4, _ATTR_B)
    encoding = _Encoding(attr=ctypes.addressof(attr), size=ctypes.sizeof(_Encoding))
    if library.pfm_get_os_event_encoding(name.encode(), _USER, _OS_PERF, ctypes.byref(encoding)):
        return None
    kind, _, config = struct.unpack_from("=IIQ", attr, 0)
    (flags,) = struct.unpack_from("=Q", attr, 40)
    config1, config2 = struct.unpack_from("=QQ", attr, 56)
    code = Code(
        name,
        kind,
        config,
        config1,
        config2,
        user=not flags & _EXCLUDE_USER,
        kernel=not flags & _EXCLUDE_KERNEL,
    )
    of_type = [folder for folder in _devices(root) if read_number(folder, "type") == kind]
    units = [unit for folder in of_type for unit in _units(folder)]
    return Event(name, tuple(code._replace(unit=u) for u in units) or (code,), "by libpfm4")
