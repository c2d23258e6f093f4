"""Options that may be tried with records, unless the records have them already."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memkern.machine.environment import cpu_list
from memkern.spec.registry import registry

Record = Mapping[Any, Any]

# Most placements that are advised.
_PLACEMENTS = 20
# The default of --variant and of --isa tries all.
_BEST = "best"

ADVICE: dict[str, tuple[str, str, Callable[[Record, float], bool]]] = {
    "more threads": (
        "threads",
        "more --threads",
        lambda r, units: (r.get("threads") or 0) >= units,
    ),
    "fewer threads": ("threads", "fewer --threads", lambda r, _: r.get("threads") == 1),
    "other processors": (
        "pin",
        "other processors (--pin)",
        lambda r, _: r.get("pin_requested") not in (None, "auto", "none"),
    ),
    "huge pages": (
        "pages",
        "--pages thp",
        lambda r, _: bool(re.search("thp|hugetlb", str(r.get("pages")))),
    ),
    "node": ("numa", "--numa node:N", lambda r, _: str(r.get("numa_requested")).startswith("node")),
    "placements": (
        "placements",
        f"--placements {_PLACEMENTS}",
        lambda r, _: (r.get("placements") or 0) >= _PLACEMENTS,
    ),
    "prefetch": ("prefetch", "--prefetch", lambda r, _: (r.get("prefetch") or 0) > 0),
    "smaller type": (
        "dtype",
        "a smaller --dtype",
        lambda r, _: not str(r.get("dtype")).endswith("64"),
    ),
    "non-temporal stores": (
        "variant",
        "--variant nt",
        lambda r, _: r.get("variant_requested") == _BEST or str(r.get("variant")).startswith("nt"),
    ),
    "vectors": (
        "variant",
        "--variant simd",
        lambda r, _: (
            r.get("variant_requested") == _BEST or r.get("variant") not in ("scalar", "auto")
        ),
    ),
    "wider vectors": ("isa", "wider vectors (--isa)", lambda r, _: r.get("isa_requested") == _BEST),
    "unrolling": ("unroll", "--unroll 4", lambda r, _: (r.get("unroll") or 0) > 1),
    "no barrier": ("repetition", "--repetition free", lambda r, _: r.get("repetition") == "free"),
    "search": (
        "",
        "`memkern tune`, which searches options",
        lambda r, _: r.get("tune_step") is not None,
    ),
}
"""By name, the knob that the advice is about, what to try, and whether a record already has it, on
a machine with a number of processing units."""


def advised(
    start: str,
    names: Iterable[str],
    records: Sequence[Record],
    always: Iterable[str] = (),
    units: float = math.inf,
) -> str:
    """Return the advice to try some options; empty if nothing is left to try.

    Parameters
    ----------
    start : str
        Beginning of the phrase.
    names : iterable of str
        Of `ADVICE`. What every record has, or what has no effect on any of their kernels, is left
        out.
    records : sequence of mapping
    always : iterable of str
        What else may be tried with any record, without options.
    units : float
        Processing units of their machine.
    """
    rows = [ADVICE[name] for name in names]
    texts = [
        text
        for knob, text, has in rows
        if any(knob not in _idle(record) and not has(record, units) for record in records)
    ]
    texts += always
    return f"{start}{' or '.join(filter(None, [', '.join(texts[:-1]), *texts[-1:]]))}" * bool(texts)


def units_of(environment: Mapping[str, Any]) -> float:
    """Return the number of processing units that a process may use; infinity if it is unknown."""
    run, machine = (environment.get(name) or {} for name in ("run", "machine"))
    return len(cpu_list(run.get("cpus_allowed"))) or machine.get("threads") or math.inf


def _idle(record: Record) -> Sequence[str]:
    """Return the knobs without effect on the kernel of a record."""
    spec = registry().get(str(record.get("kernel")))
    return spec.limits.all_idle_knobs if spec else ()
