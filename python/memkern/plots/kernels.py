"""The table of all kernels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memkern.checks import one_of
from memkern.plots.exhibits import tabulated
from memkern.plots.frames import Records

if TYPE_CHECKING:
    from pandas import DataFrame


@tabulated(
    "kernels",
    "A row for each kernel. Bytes are those of the definition in float64, without indices and "
    "write-allocates; missing where they depend on the case's inputs. amos are atomic operations.",
    records="Not used",
    lack="the family is unknown",
    optional=True,
)
def kernel_table(records: Records = None, family: str = "") -> DataFrame:
    """All kernels: definitions, arrays, bytes, flops and atomics per iteration, and sources.

    Parameters
    ----------
    family : str
        Family of the kernels; by default all.
    """
    from pandas import DataFrame

    from memkern.spec.registry import case, definition_of, registry

    one_of(family, "family", ["", *(name.partition(".")[0] for name in registry())])
    specs = {
        name: spec for name, spec in registry().items() if family in ("", name.partition(".")[0])
    }
    rows = []
    for name, spec in specs.items():
        shapes = {array.shape for array in spec.arrays} - {"(1,)"}
        smallest: dict[str, Any] = {}
        if shapes == {"(elements,)"}:
            smallest = {"elements": 1}
        elif spec.counts.amos:
            smallest = {"iters": 1, "threads": 1}
        definition = definition_of(spec) or "paper"
        known = case(spec.kernel, definition=definition, **smallest) if smallest else None
        rows.append(
            {
                "kernel": name,
                "definition": spec.summary,
                "arrays": " ".join(f"{a.name}:{a.role}" for a in spec.arrays),
                "bytes": math.nan if known is None else known.traffic.view(),
                "flops": spec.counts.flops,
                "amos": spec.counts.amos,
                "source": spec.source,
            }
        )
    return DataFrame(rows)
