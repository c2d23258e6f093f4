"""Cycles of loops in the core: measured in L1, and predicted by static analysis.

The main loop of a compiled body is found in the machine code of the extension, and given to
llvm-mca and OSACA, which are separate programs and optional. Predictors differ from measurements by
tens of percent, so that the measured time is what models use.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memkern import _memkern
from memkern.errors import InputError
from memkern.machine.disassembly import Instruction, function_at, main_loop
from memkern.measuring.ecm import measure_loops
from memkern.models.ecm_fit import loop_times
from memkern.spec.case import Case
from memkern.spec.registry import case as kernel_case

__all__ = [
    "Body",
    "assembly",
    "body_of",
    "llvm_mca",
    "mca_cycles",
    "measured_in_core",
    "osaca",
    "osaca_cycles",
]

_ITERATIONS = 1000
_VERSIONS = range(30, 13, -1)


@dataclass(frozen=True)
class Body:
    """The main loop of a compiled body.

    Attributes
    ----------
    name : str
        Of the function.
    loop : tuple of Instruction
    vectors : float
        Vectors of every stream that an iteration processes, by its accesses to memory.
    """

    name: str
    loop: tuple[Instruction, ...]
    vectors: float


def body_of(case: Case, obtained: Mapping[str, Any]) -> Body:
    """Return the main loop of what a case runs.

    Parameters
    ----------
    case : Case
        Of an elementwise kernel.
    obtained : mapping
        Variant and instruction set that run (``variant`` and ``isa``).

    Raises
    ------
    InputError
        There is no objdump, or no loop that accesses vectors.
    """
    wanted = (
        case.spec.name,
        obtained["variant"],
        obtained["isa"],
        case.dtype,
        case.index_dtype,
        case.knobs.unroll,
        case.template_variant,
    )
    offsets = dict(zip(_memkern.entries(), _memkern.body_offsets(), strict=True))
    name, code = function_at(_memkern.__file__, offsets.get(wanted, 0))
    loop = main_loop(code)
    accessed_B = [instruction.accessed_B for instruction in loop]
    if not any(accessed_B):
        raise InputError(
            f"the machine code of {case.spec.name}, {obtained['variant']}/{obtained['isa']}, has "
            "no loop that accesses vectors"
        )
    # A vector of every stream has as many accesses as an element has loads and stores.
    moved = case.transfers(("L1", "memory"), [{"level": 1, "size_B": 2**40}])["L1"]
    size = 4 if case.dtype == "float32" else 8
    each = sum(moved) / case.spec.width(case) / size
    return Body(name, tuple(loop), sum(accessed_B) / max(accessed_B) / each)


def llvm_mca() -> str | None:
    """Return the path of llvm-mca, the newest one, or None if it is not installed."""
    names = ["llvm-mca", *(f"llvm-mca-{version}" for version in _VERSIONS)]
    found = [path for name in names if (path := shutil.which(name))]
    return max(found, key=_version, default=None)


def _version(program: str) -> tuple[int, ...]:
    text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0,)


def assembly(loop: Sequence[Instruction]) -> str:
    """Return a loop as text for an assembler, with jumps to a label at its begin."""
    lines = ["begin:"]
    for instruction in loop:
        operands = instruction.operands.strip()
        if instruction.target is not None:
            operands = re.sub(r"(0x)?[0-9a-f]+ <.*", "begin", operands)
        lines.append(f"\t{instruction.mnemonic} {operands}".rstrip())
    return "\n".join(lines) + "\n"


def mca_cycles(body: Body, cpu: str = "native") -> float:
    """Return the cycles of a vector of every stream as llvm-mca predicts them.

    Parameters
    ----------
    body : Body
    cpu : str
        Processor's name as the program knows it.

    Returns
    -------
    float
        NaN if the program is not installed, or does not know an instruction.
    """
    program = llvm_mca()
    if program is None:
        return math.nan
    done = subprocess.run(
        [program, f"-mcpu={cpu}", f"-iterations={_ITERATIONS}"],
        input=assembly(body.loop),
        capture_output=True,
        text=True,
    )
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode or found is None:
        return math.nan
    return int(found[1]) / _ITERATIONS / body.vectors


def osaca() -> str | None:
    """Return the path of OSACA, or None if it is not installed."""
    return shutil.which("osaca")


def osaca_cycles(body: Body, arch: str) -> float:
    """Return the cycles of a vector of every stream as OSACA predicts them.

    They are the longer ones of the throughput, the busiest port of the iteration, and of the
    dependencies from one iteration to the next.

    Parameters
    ----------
    body : Body
    arch : str
        Microarchitecture as the program names it, such as ``ZEN4`` or ``ICX``; empty for none.

    Returns
    -------
    float
        NaN if the program is not installed or no microarchitecture is given, or if it does not know
        an instruction.
    """
    program = osaca()
    if program is None or not arch:
        return math.nan
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "loop.s"
        source.write_text(assembly(body.loop))
        done = subprocess.run(
            [program, "--arch", arch, str(source)], capture_output=True, text=True, cwd=folder
        )
    cycles = _of_osaca(done.stdout)
    return math.nan if done.returncode or cycles is None else cycles / body.vectors


def _of_osaca(text: str) -> float | None:
    """Return the cycles of an iteration in a report of OSACA, None if it has no final analysis.

    The last line of the combined analysis has the cycles of each port, of the critical path, and of
    the longest dependency from one iteration to the next.
    """
    combined = text.partition("Combined Analysis Report")[2].partition("Loop-Carried")[0]
    try:
        *ports, _, carried = map(float, combined.rstrip().rpartition("\n")[2].split())
    except ValueError:
        return None
    return max(*ports, carried) if ports else None


def measured_in_core(
    kernels: Sequence[str] | None = None,
    *,
    seconds: float = 60.0,
    cpu: str = "native",
    arch: str = "",
    progress: Callable[[float], object] | None = None,
) -> list[dict[str, Any]]:
    """Measure loops in L1 on one core, and predict them by llvm-mca and OSACA.

    Parameters
    ----------
    kernels : sequence of str, optional
        Names such as ``loops.daxpy``; by default all loops that move data.
    seconds : float
        Most seconds that it takes.
    cpu : str
        Processor's name as llvm-mca knows it.
    arch : str
        Microarchitecture as OSACA knows it; empty for no prediction by it.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    list of dict
        By kernel: ``kernel``, ``variant``, ``isa``, ``unroll`` (0 for the kernel's own),
        ``vectors`` (of every stream in an iteration of the main loop), ``measured_cycles``,
        ``llvm_mca_cycles`` and ``osaca_cycles`` of a vector of every stream (NaN where there is no
        prediction),
        ``spread`` and ``disturbed``.

    Raises
    ------
    InputError
        There is no such loop, nothing could be measured, or there is no objdump.
    """
    found = measure_loops(kernels=kernels, levels=1, seconds=seconds, progress=progress)
    loops, _ = loop_times(found.results)
    records = {str(record["kernel"]): record for record in found.results}
    rows = []
    for loop in sorted(loops, key=lambda one: one.kernel):
        record = records[loop.kernel]
        case = kernel_case(loop.kernel, threads=1, variant=record["variant"], elements=2**10)
        body = body_of(case, record)
        rows.append(
            {
                **{name: record[name] for name in ("kernel", "variant", "isa", "unroll")},
                "vectors": body.vectors,
                "measured_cycles": loop.cycles,
                "llvm_mca_cycles": mca_cycles(body, cpu),
                "osaca_cycles": osaca_cycles(body, arch),
                "spread": loop.spread,
                "disturbed": loop.disturbed,
            }
        )
    return rows
