"""Experiments that explain the time of the hopping term (see `memkern.spec.experiments`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import ceil, log2

from memkern.families.dw.kernels import model_of
from memkern.families.dw.layout import layout_of
from memkern.machine.caches import Share
from memkern.shared.experiments import reuse, usual
from memkern.spec.case import Case
from memkern.spec.experiments import Setting, knob
from memkern.spec.registry import rebuilt

# Least extent, except of lattices in caches: a site's neighbours are different ones.
_LEAST = 4


def _lattice(case: Case, extents: Sequence[int]) -> Case | None:
    """Return the case of another lattice; None of a lattice in blocks."""
    found, columns = layout_of(case), case.columns
    if columns["block"] or columns["share_planes"]:
        return None
    parts = zip("xyzt", found.cuts, strict=True)
    cut = "s" if found.shared else "".join(d * (n.bit_length() - 1) for d, n in parts)
    built = rebuilt(
        case,
        lattice=extents,
        layout=case.template_variant.partition("/")[0],
        cut="auto" if found.reals == 1 else cut,
        vector=0 if found.reals == 1 else columns["vector_bits"],
    )
    return dataclasses.replace(built, knobs=case.knobs, stop=case.stop)


def _resize(case: Case, size_B: float) -> Case | None:
    halvings = ceil(log2(case.bytes_B / size_B))
    return _lattice(case, [n >> (halvings + d) // 4 for d, n in enumerate(layout_of(case).extents)])


def _reused(case: Case, setting: Setting, cache: Share) -> Case | None:
    """Return the lattice of as many sites with the largest slices that the cache holds."""
    model = model_of(case)
    for halvings in range(max(model.extents)):
        x, y, z = (n >> (halvings + d) // 3 for d, n in enumerate(model.extents[:3]))
        if min(x, y, z) < _LEAST:
            break
        longer = dataclasses.replace(model, extents=(x, y, z, model.extents[3] << halvings))
        if longer.holds(cache.size_B, cache.workers) in ("t", "all"):
            return _lattice(case, longer.extents)
    return None


EXPERIMENTS = usual(
    _resize,
    *reuse(_reused),
    knob("prefetch", 3),
    knob("prefetch", 0),
)
