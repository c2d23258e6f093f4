"""Experiments that explain the time of a finite-element test (see `memkern.spec.experiments`)."""

from __future__ import annotations

from memkern.machine.caches import MEMORY
from memkern.shared.experiments import ASCENDING, usual, with_elements
from memkern.spec.case import Case
from memkern.spec.experiments import Experiment, Setting, knob
from memkern.spec.registry import case as case_of
from memkern.spec.registry import rebuilt


def _resize(case: Case, size_B: float) -> Case | None:
    if "mesh_elements" not in case.columns:
        return with_elements(case, size_B)
    return rebuilt(
        case, elements=int(case.columns["mesh_elements"] * (size_B / case.bytes_B) ** (1 / 3))
    )


def _bytes_alone(case: Case, setting: Setting) -> Case | None:
    """Return a copy, or of a reduction a load, whose stores read as many lines first."""
    if not case.bytes_B or case.spec.kernel == "bs.bs1":
        return None
    stores, updates = case.traffic.write > 0, any(a.role == "update" for a in case.spec.arrays)
    bypass = setting.level == MEMORY if updates else case.knobs.variant == "nt"
    return case_of(
        "bs.bs1" if stores else "loops.load",
        footprint_B=setting.footprint_B,
        dtype=case.dtype,
        threads=setting.threads,
        pin=case.knobs.pin,
        isa=case.knobs.isa,
        repetition=case.knobs.repetition,
        variant="nt" if stores and bypass else "simd",
    )


EXPERIMENTS = usual(
    _resize,
    Experiment("the bytes alone", _bytes_alone, "arithmetic and gathering"),
    ASCENDING,
    knob("prefetch", 0),
)
