"""Machines of four units with registers, as files, and processes that change them.

Registers are accessed at the offsets of their numbers, as in the kernel's /dev/cpu/N/msr.
"""

import os
import subprocess
import sys
from pathlib import Path

from checking import tree
from event_trees import CASCADE_LAKE, SAPPHIRE_RAPIDS, ZEN_4

CPU = "sys/devices/system/cpu"
UNITS = 4
# Value of the register of each unit as set by the firmware.
BEFORE = [0x0, 0x1_0000_0008, 0x10, 0x3]
REGISTERS = {"Cascade Lake": (CASCADE_LAKE, 0x1A4, 0x0F),
             "Sapphire Rapids": (SAPPHIRE_RAPIDS, 0x1A4, 0x2F),
             "Zen 4": (ZEN_4, 0xC0000108, 0x2F)}  # fmt: skip


def machine(root: Path, name: str = "Cascade Lake") -> Path:
    """Write the files of a machine of four units with registers, and return their folder."""
    files, register, _ = REGISTERS[name]
    tree(root, {**files, f"{CPU}/online": f"0-{UNITS - 1}\n"})
    for unit, value in enumerate(BEFORE):
        path = root / f"dev/cpu/{unit}/msr"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, register)
        with path.open("r+b") as file:
            file.seek(register)
            file.write(value.to_bytes(8, "little"))
    return root


def registers(root: Path, name: str = "Cascade Lake") -> list[int]:
    """Return the values of the registers of all units."""
    found = []
    for unit in range(UNITS):
        with (root / f"dev/cpu/{unit}/msr").open("rb") as file:
            file.seek(REGISTERS[name][1])
            found.append(int.from_bytes(file.read(8), "little"))
    return found


def started(root: Path, program: str) -> tuple[subprocess.Popen[str], int]:
    """Start a process that changes the registers; return it and the id of its guardian."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, int(process.stdout.readline())


CASE = ("loops", "-k", "copy", "--elements", "512", "--runs", "2", "-t", "1", "-q")
