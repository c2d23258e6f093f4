"""Machines whose published parameters are part of the package."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from memkern import reference
from memkern.checks import shown
from memkern.errors import InputError
from memkern.models.ecm import MEMORY, EcmLevel, store_GBps
from memkern.models.machine_file import (
    Bandwidth,
    EcmParameters,
    Instruction,
    Level,
    MachineFile,
    Quantity,
    Tlb,
)
from memkern.models.overlap import paper_hypotheses

# Names of instructions in the table of Alappat et al. 2021.
_SVE = {
    "ld1d (standard)": "load",
    "ld1d (gather, simple stride)": "gather, simple stride",
    "ld1d (gather, complex stride)": "gather, complex stride",
    "simple gather + standard load": "gather with index load, simple stride",
    "complex gather + standard load": "gather with index load, complex stride",
    "st1d (standard)": "store",
    "fadd": "add",
    "fmul": "mul",
    "fmla": "fma",
    "faddv (512 bit)": "horizontal add",
    "fadda (512 bit)": "ordered add",
}
_A64FX_LEVELS = {"L1": ("l1_load", "l1_store"), "L2": ("l1l2_load", "l1l2_store")}
# Pages of the paper's measurements. Its TLBs have entries of any size of pages.
_A64FX_PAGE_B = 2 * 2**20


def _a64fx() -> MachineFile:
    """Return the A64FX of Alappat et al. 2021."""
    facts = {row["quantity"]: row["value"] for row in reference.rows("alappat2021-machine")}
    clock, cores = facts["clock"], int(facts["cores_per_cmg"])
    domains = int(facts["cores"]) // cores
    load, triad = facts["mem_read_cmg"], facts["mem_triad_cmg"]
    store = store_GBps(load, triad)
    per_core = {
        name: (facts[read], facts[written]) for name, (read, written) in _A64FX_LEVELS.items()
    }
    ecm = (
        EcmLevel("L1", *per_core["L1"]),
        EcmLevel("L2", *per_core["L2"], facts["l2_load_cmg_cap"], facts["l2_store_cmg_cap"]),
        EcmLevel(MEMORY, load / clock, store / clock, load / clock, store / clock),
    )

    def bandwidth(level: str, operation: str, cores: int, B_per_cycle: float) -> Bandwidth:
        return Bandwidth(
            level,
            operation,
            "" if operation == "load" else "ordinary",
            cores,
            Quantity(B_per_cycle),
            Quantity(B_per_cycle * clock),
        )

    bits = int(facts["simd_width"])
    return MachineFile(
        name="A64FX",
        model="",
        source=reference.cite("alappat2021-machine"),
        created="",
        clock_GHz=Quantity(clock),
        vector_bits=bits,
        line_B=int(facts["cache_line"]),
        cores=cores,
        domains=domains,
        levels=(
            Level("L1", int(facts["l1_per_core"] * 2**10), 1),
            Level("L2", int(facts["l2_per_cmg"] * 2**20), cores),
            Level(MEMORY, None, cores),
        ),
        bandwidths=(
            *(
                bandwidth(name, operation, 1, value)
                for name, pair in per_core.items()
                for operation, value in zip(("load", "store"), pair, strict=True)
            ),
            bandwidth("L2", "load", cores, facts["l2_load_cmg_cap"]),
            bandwidth("L2", "store", cores, facts["l2_store_cmg_cap"]),
            bandwidth(MEMORY, "load", cores, load / clock),
            bandwidth(MEMORY, "triad", cores, triad / clock),
            bandwidth(MEMORY, "load", cores * domains, facts["mem_read_chip"] / clock),
            bandwidth(MEMORY, "triad", cores * domains, facts["mem_triad_chip"] / clock),
        ),
        tlbs=tuple(
            Tlb(_A64FX_PAGE_B, Quantity(facts[f"{level}_tlb"] * _A64FX_PAGE_B), math.nan)
            for level in ("l1", "l2")
        ),
        instructions=tuple(
            Instruction(
                _SVE.get(row["instruction"], row["instruction"]),
                bits,
                Quantity(row["reciprocal_cycles"]),
                Quantity(row["latency_cycles"]),
                "; ".join(filter(None, (row["instruction"], row["note"]))),
            )
            for row in reference.rows("alappat2021-instructions")
        ),
        ecm=EcmParameters(
            ecm,
            str(paper_hypotheses([level.name for level in ecm])["d"]),
            reference.cite("alappat2021-machine"),
            memory_rate="common",
        ),
    )


# Overlap in the models of these two processors.
_RRZE_OVERLAP = "max(L1 load, L1 store) + L2 + max(L3 load, L3 store) + memory"


def _rrze(name: str) -> MachineFile:
    """Return a processor of the ECM models of RRZE."""
    facts = {
        row["quantity"]: row["value"]
        for row in reference.rows("rrze-machines")
        if row["machine"] == name
    }
    clock, cores = facts["clock"], int(facts["cores_per_domain"])
    sharing = {"L1": 1, "L2": 1, "L3": int(facts["l3_cores"]), MEMORY: cores}
    rates = {
        level: (facts[f"{level.lower()}_load"], facts[f"{level.lower()}_store"])
        for level in sharing
    }
    source = reference.cite("rrze-machines")
    return MachineFile(
        name=name,
        model="",
        source=source,
        created="",
        clock_GHz=Quantity(clock),
        vector_bits=int(facts["simd_width"]),
        line_B=int(facts["cache_line"]),
        cores=cores,
        domains=int(facts["cores"]) // cores,
        levels=tuple(
            Level(
                level,
                None if level == MEMORY else int(facts[f"{level.lower()}_size"] * 2**10),
                shared_by,
            )
            for level, shared_by in sharing.items()
        ),
        bandwidths=tuple(
            Bandwidth(
                level,
                operation,
                "" if operation == "load" else "ordinary",
                cores if level == MEMORY else 1,
                Quantity(value),
                Quantity(value * clock),
            )
            for level, pair in rates.items()
            for operation, value in zip(("load", "store"), pair, strict=True)
        ),
        instructions=(
            Instruction("fma", int(facts["simd_width"]), Quantity(1 / facts["fma_per_cycle"])),
        ),
        ecm=EcmParameters(
            tuple(
                EcmLevel(level, *pair, *(pair if level == MEMORY else ()))
                for level, pair in rates.items()
            ),
            _RRZE_OVERLAP,
            source,
        ),
    )


_PUBLISHED: dict[str, Callable[[], MachineFile]] = {
    "A64FX": _a64fx,
    **{name: functools.partial(_rrze, name) for name in ("Xeon Gold 6148", "Xeon Platinum 8360Y")},
}
PUBLISHED = tuple(_PUBLISHED)
"""Names of the machines that are part of the package."""


def published(name: str) -> MachineFile:
    """Return a machine whose data are part of the package.

    Raises
    ------
    InputError
        There is no machine of this name.
    """
    if name not in _PUBLISHED:
        raise InputError(
            f"machine {shown(name)} is not published: choose from {', '.join(PUBLISHED)}"
        )
    return _PUBLISHED[name]()
