"""Options that may be tried with records, unless the records have them already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memkern.machine.environment import cpu_list
from memkern.spec.registry import of_family

ADVICE: dict[str, tuple[str, str, Callable[[Mapping[Any, Any]], bool]]] = {
    "more threads": (
        "threads",
        "more --threads",
        lambda r: (r.get("threads") or 0) >= (r.get("units") or float("inf")),
    ),
    "fewer threads": ("threads", "fewer --threads", lambda r: r.get("threads") == 1),
    "other processors": (
        "pin",
        "other processors (--pin)",
        lambda r: r.get("pin_requested") not in (None, "auto", "none"),
    ),
    "huge pages": (
        "pages",
        "--pages thp",
        lambda r: str(r.get("pages")).startswith(("thp", "hugetlb")),
    ),
    "node": ("numa", "--numa node:N", lambda r: str(r.get("numa_requested")).startswith("node")),
    "placements": ("placements", "--placements 20", lambda r: (r.get("placements") or 0) >= 20),
    "prefetch": ("prefetch", "--prefetch", lambda r: (r.get("prefetch") or 0) > 0),
    "smaller type": ("dtype", "a smaller --dtype", lambda r: r.get("dtype") in (None, "float32")),
    # The variant and instruction set best have tried all.
    "non-temporal stores": (
        "variant",
        "--variant nt",
        lambda r: r.get("variant_requested") == "best" or str(r.get("variant")).startswith("nt"),
    ),
    "vectors": (
        "variant",
        "--variant simd",
        lambda r: (
            r.get("variant_requested") == "best" or r.get("variant") not in ("scalar", "auto")
        ),
    ),
    "wider vectors": (
        "isa",
        "wider vectors (--isa)",
        lambda r: r.get("isa_requested") == "best",
    ),
    "unrolling": ("unroll", "--unroll 4", lambda r: (r.get("unroll") or 0) > 1),
    "no barrier": ("repetition", "--repetition free", lambda r: r.get("repetition") == "free"),
    "search": (
        "",
        "`memkern tune`, which searches options",
        lambda r: bool(r.get("tune_step")),
    ),
}
"""By name, the knob that the advice is about, what to try, and whether a record already has it."""


def advised(
    start: str,
    names: Iterable[str],
    records: Iterable[Mapping[Any, Any]],
    always: Sequence[str] = (),
    environment: Mapping[str, Any] | None = None,
) -> str:
    """Return the advice to try some options; empty if nothing is left to try.

    Parameters
    ----------
    start : str
        Beginning of the phrase.
    names : iterable of str
        Of `ADVICE`. What all records have, or what has no effect on their kernels, is left out.
    records : iterable of mapping
    always : sequence of str
        What else may be tried with any record, without options.
    environment : mapping, optional
        Of the records' machine.
    """
    run, machine = ((environment or {}).get(name) or {} for name in ("run", "machine"))
    units = len(cpu_list(run.get("cpus_allowed"))) or machine.get("threads")
    idle = [
        (record, spec.limits.all_idle_knobs if spec else ())
        for record in records
        for kernel in [str(record.get("kernel"))]
        for spec in [of_family(kernel.partition(".")[0]).get(kernel)]
    ]
    texts = [
        text
        for knob, text, has in (ADVICE[name] for name in names)
        if any(knob not in knobs and not has({**record, "units": units}) for record, knobs in idle)
    ]
    *first, last = [*texts, *always] or [""]
    return f"{start}{', '.join(first)}{' or ' * bool(first)}{last}" * bool(last)
