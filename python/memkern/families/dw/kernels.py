"""The hopping term of the domain-wall operator on a four-dimensional lattice.

``dw.hop`` applies `memkern.lattice.hop` to fields in a layout for SIMD vectors.  A vector holds the
same component for several sites, one from each of the equal parts into which a lattice is cut, or
for several s, which share their links.  The real and imaginary parts of its complex numbers are
interleaved (RIRI) or in separate vectors (RRII); ``lexicographic`` has no vectors.

Links are stored for both directions: U_mu(n), then U_mu(n - mu) conjugated and transposed.  A site
has 8 x 9 complex numbers of links and Ls x 12 of spinors.  For one parity (half the sites), results
on its sites are computed from spinors on the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memkern import small
from memkern.checks import integer, several, shown
from memkern.errors import InputError
from memkern.inputs.lattice import GAMMA, PARITIES, check_extents, check_parity, walk
from memkern.limits import check_memory
from memkern.machine.declarations import declared
from memkern.shared.checking import Values, compared, fresh
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Model
from memkern.spec.inputs import REQUIRED, Given, row
from memkern.spec.kernel import IndexArray, Native, Traffic, Transfer, Validation
from memkern.spec.registry import case, register, shows_options_of

if TYPE_CHECKING:
    from memkern.models.layer_conditions import LayerConditions

from memkern.families.dw.layout import (
    CUTS,
    LAYOUTS,
    LINKS,
    SPINOR,
    Layout,
    choose_layout,
    layout_of,
    of_parity,
    sites_of,
    widths,
)

ALAPPAT = (
    "Alappat, Meyer, Laukemann, Gruber, Hager, Wellein and Wettig, ECM modeling and performance "
    "tuning of SpMV and Lattice QCD on A64FX, Concurrency and Computation 34, 2022"
)
_WHOLE_SITES = 2**12
_SAMPLES = 400
_HELD_B = 2**18  # fits in the L2 of most processors


def _prefetched(layout: Layout, visits: IndexArray, real_B: int) -> int:
    """Return the directions whose neighbours L2 no longer holds, as bits of a number.

    In these directions, for most sites, no other reader of the neighbour was visited within the
    last `_HELD_B` of spinors, results and links.
    """
    position = np.empty(len(visits), dtype=np.int64)
    position[visits] = np.arange(len(visits))
    now = np.random.default_rng(0).integers(0, len(visits), _SAMPLES)
    sites = sites_of(layout.local, layout.parity)[visits[now]]
    steps = np.concatenate([np.eye(4, dtype=np.int64), -np.eye(4, dtype=np.int64)])
    # For each site and direction, all sites that read the neighbour in this direction.
    readers = (sites[:, None, None] + steps[:, None] - steps) % np.array(layout.local)
    ago = now[:, None, None] - position[layout.positions(readers)[0]]
    ago = np.where(ago > 0, ago, len(visits)).min(axis=2)
    distant = np.median(ago, axis=0) * _visit_B(layout, real_B) > _HELD_B
    return int((distant << np.arange(8)).sum())


def _visit_B(layout: Layout, real_B: int) -> int:
    """Return the bytes of the links, spinor and result of a site in all lanes."""
    return prod(layout.cuts) * (LINKS + 2 * layout.ls * SPINOR) * 2 * real_B


def _extents(value: Any, name: str) -> tuple[int, ...]:
    """Return the extents of a lattice after a check."""
    return tuple(small.cut(n, 4) for n in check_extents(value))


def _block(value: Any, name: str) -> list[int]:
    """Return the extents of a block after a check."""
    sites = several(value, name)
    if len(sites) != 4:
        raise InputError(f"{name} must be four numbers of sites, of x, y, z and t, not {value!r}")
    return [integer(n, name, 0, 2**31 - 1) for n in sites]


_XYZT = {"nargs": 4, "metavar": ("X", "Y", "Z", "T")}

_INPUTS = (
    row(
        "lattice",
        REQUIRED,
        "extents; once for each lattice",
        read=_extents,
        type="Sequence[int]",
        several=True,
        arguments={**_XYZT, "action": "append", "required": True},
        meaning="(Lx, Ly, Lz, Lt).",
    ),
    row(
        "ls",
        8,
        "extent of the fifth dimension (8)",
        least=1,
        most=2**20,
        several=True,
        metavar="N,...",
        column="Ls",
        meaning="Extent of the fifth dimension.",
    ),
    row(
        "parity",
        "full",
        "sites that are computed: {choices} (full)",
        choices=PARITIES,
        several=True,
        metavar="NAME,...",
        meaning="``full``, or ``even`` or ``odd``: the sites that get a result, from spinors on "
        "the others.",
    ),
    row(
        "layout",
        "RRII",
        "{choices} (RRII)",
        choices=LAYOUTS,
        several=True,
        metavar="NAME,...",
        column="-",
        meaning="``RRII``, ``RIRI`` or ``lexicographic``.",
    ),
    row(
        "cut",
        "auto",
        f"dimensions of vectors: {'; '.join(CUTS)} (auto)",
        several=True,
        metavar="WORD,...",
        meaning="Source of the complex numbers of a vector: several s (``s``), or one site from "
        "each part that results from halving the dimensions in a word such as ``tz`` or ``x`` in "
        "turn. ``auto`` is ``s`` if the numbers per vector divide Ls, else ``tzyx`` as in Grid, or "
        "the lexicographic layout if the extents can't be halved so often.",
    ),
    row(
        "vector",
        0,
        "bits of a vector: 128, 256 or 512 (the widest here)",
        least=0,
        several=True,
        metavar="BITS,...",
        column="-",
        meaning="Bits of a vector: 128, 256 or 512; 0 for the widest here.",
    ),
    row(
        "order",
        "tzyx",
        "loops from the outermost to the innermost (tzyx)",
        arguments={"metavar": "TZYX"},
        meaning="Dimensions from the outermost loop to the innermost one.",
    ),
    row(
        "block",
        (0, 0, 0, 0),
        "sites of a block, which is finished before the next one; 0 for all",
        read=_block,
        type="Sequence[int]",
        arguments=_XYZT,
        meaning="Block size in x, y, z and t, in sites; 0 for the whole extent. Blocks are "
        "processed in turn.",
    ),
    row(
        "share_planes",
        False,
        "all workers share each slice of the outermost loop",
        meaning="Whether all workers share each slice of the outermost loop instead of processing "
        "separate slices. If a slice can't be divided evenly, they share its number of sites, "
        "rounded up, regardless of the ends of slices.",
    ),
    row(
        "prefetch_into",
        "L2",
        "cache to prefetch into, --prefetch sites ahead (L2)",
        choices=("L1", "L2"),
        meaning="``L2`` or ``L1``; the knob `prefetch` is the number of sites ahead, by default 3 "
        "if the fields are larger than the last-level caches, else 0, since prefetching then costs "
        "more than it gains. Spinors that were read within the last 256 KiB are in L2 and not "
        "prefetched.",
    ),
)


def _hop(given: Given) -> Case:
    from memkern.host.capacity import last_level_cache_B

    layout, cut, vector, order = given.layout, given.cut, given.vector, given.order
    if cut not in ("auto", "s") and not (cut and set(cut) <= set("tzyx")):
        raise InputError(f"cut {shown(cut)} is not one of {', '.join(CUTS)}")
    if sorted(order) != sorted("tzyx"):
        raise InputError(f"order must name t, z, y and x once each, not {shown(order)}")
    if layout != "lexicographic":
        known_widths = widths(given.option("isa"))
        vector = vector or max(known_widths, default=0)
        if vector and not known_widths:
            raise InputError(f"instruction set {given.option('isa')!r} has no vectors here")
        if vector and vector not in known_widths:
            raise InputError(
                f"vector of {vector} bits is not one of {', '.join(map(str, known_widths))} here"
            )
        if not vector:
            if cut != "auto":
                raise InputError("this machine has no vectors: leave out cut")
            layout = "lexicographic"
    real_B = np.dtype(given.dtype).itemsize
    parity = check_parity(given.parity, given.lattice)
    found = choose_layout(given.lattice, given.ls, layout, cut, vector, real_B, parity)
    # Building the tables takes about 320 bytes per site.
    check_memory(320 * found.sites, f"a lattice of {found.sites} sites")
    neighbours, permutations = found.neighbours()
    visits = walk(sites_of(found.local, found.parity).T, order, given.block)
    in_caches = found.sites * _visit_B(found, real_B) <= last_level_cache_B()
    options = {"prefetch": 0 if in_caches else 3}
    if given.share_planes:
        if given.option("chunk"):
            raise InputError("share_planes sets chunk: leave out chunk")
        workers = given.option("threads") or len(os.sched_getaffinity(0))
        slices = found.local["xyzt".index(order[0])]
        options["chunk"] = -(-found.sites // slices // workers)
    plain = found.reals == 1
    bits = 8 * real_B * found.reals
    lanes = "s" if found.shared else "sites"
    cut_text = " ".join(f"{d}{c}" for d, c in zip("xyzt", found.cuts, strict=True) if c > 1)
    return given.case(
        integers={
            **dict(zip(("Lx", "Ly", "Lz", "Lt"), found.extents, strict=True)),
            **dict(zip(("cut_x", "cut_y", "cut_z", "cut_t"), found.cuts, strict=True)),
            "Ls": found.ls,
            "sites": found.sites,
            "inner": found.inner,
            "reals": found.reals,
            "split": int(found.split),
            "shared": int(found.shared),
            "into_l1": int(given.prefetch_into == "L1"),
            "prefetched": _prefetched(found, visits, real_B),
        },
        indices={
            "order": visits,
            "neighbours": neighbours[visits].ravel(),
            "permutations": permutations.ravel(),
        },
        template_variant="lexicographic" if plain else f"{layout}/{lanes}/{bits}",
        columns={
            "lattice": "x".join(map(str, found.extents)),
            "cut": "" if plain else "s" if found.shared else cut_text,
            "partitions": 1 if found.shared else found.numbers,
            "vector_bits": bits,
            "block": "x".join(map(str, given.block)) if any(given.block) else "",
        },
        options=options,
    )


def _expected(
    layout: Layout,
    sites: IndexArray,
    links: Callable[[IndexArray], Values],
    psi: Callable[[IndexArray], Values],
) -> Values:
    """Return the results at some sites by the formula, shape (sites, Ls, 4, 3, 2)."""
    u = links(layout.links_at(sites)).astype(np.float64).view(np.complex128)[..., 0]
    result = np.zeros((len(sites), layout.ls, 4, 3), dtype=np.complex128)
    for direction in range(8):
        mu, sign = direction % 4, 1 if direction < 4 else -1
        there = sites.copy()
        there[:, mu] = (there[:, mu] + sign) % layout.extents[mu]
        spinors = psi(layout.spinors_at(there)).astype(np.float64).view(np.complex128)[..., 0]
        turned = np.einsum("ij,nsjb->nsib", np.eye(4) + sign * GAMMA[mu], spinors)
        result += np.einsum("nab,nsjb->nsja", u[:, direction], turned)
    return result.view(np.float64).reshape(*result.shape, 2)


def _check(case: Case, native: Native) -> Validation:
    layout = layout_of(case)
    total = prod(layout.extents)
    if total <= _WHOLE_SITES:
        sites = sites_of(layout.extents, layout.parity)
    else:
        # Random sites, and sites at the ends of parts and of the lattice.
        rng = np.random.default_rng(0)
        sites = rng.integers(0, layout.extents, (_SAMPLES, 4))
        ends = rng.integers(0, 2, sites.shape) * (np.array(layout.local) - 1)
        ends += rng.integers(0, layout.cuts, sites.shape) * np.array(layout.local)
        sites[::2] = np.where(rng.random(sites[::2].shape) < 0.5, ends[::2], sites[::2])
        sites = of_parity(layout.parity, sites)
    wanted = _expected(
        layout,
        sites,
        lambda at: fresh(native, "links", at),
        lambda at: fresh(native, "psi", at),
    )
    how = "whole" if total <= _WHOLE_SITES else "sampled"
    at = layout.spinors_at(sites).ravel()
    return (yield from compared(case, native, "result", at, wanted.ravel(), how))


def _reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    layout = layout_of(case)
    sites = sites_of(layout.extents, layout.parity)
    result = np.array(arrays["result"], copy=True)
    result[layout.spinors_at(sites)] = _expected(
        layout, sites, lambda at: arrays["links"][at], lambda at: arrays["psi"][at]
    )
    return {**arrays, "result": result}


def model_of(case: Case) -> LayerConditions:
    """Return the layer conditions of a case with the variant that it runs."""
    from memkern.models.layer_conditions import LayerConditions

    return LayerConditions.of_record(
        {
            **case.columns,
            "layout": case.template_variant.partition("/")[0],
            "dtype": case.dtype,
            "variant": case.knobs.variant,
            "threads": case.knobs.threads or len(os.sched_getaffinity(0)),
        }
    )


def _transfers(
    case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
) -> dict[str, Transfer]:
    """Return the data that a site and the others in its vectors move across each boundary."""
    updates = case.spec.counts.width(case)
    return {
        level: Transfer(updates * load_B, updates * store_B)
        for level, (load_B, store_B) in model_of(case).transfers(levels, caches).items()
    }


def _traffic(case: Case) -> Traffic:
    """Count links, spinors and results of a site and the others in its vectors once."""
    size = float(case.value_B)
    layout = layout_of(case)
    parts = prod(layout.cuts)
    spinors = 2 * SPINOR * layout.ls * size * parts
    return Traffic(
        read=2 * LINKS * size * parts + spinors,
        write=spinors,
        index=4.0 * 9,
        write_allocate=spinors if case.allocates else 0.0,
    )


register(
    KernelSpec(
        name="dw.hop",
        summary="psi'(n) = sum of U(n) (1 +- gamma) psi(n +- mu), for every s",
        source=ALAPPAT,
        arrays=declared("dw.hop").arrays,
        indices=("order", "neighbours", "permutations"),
        traffic=_traffic,
        iterations=lambda case: case.integers["sites"],
        checks=Checks(check=_check, reference=_reference, ulps=64.0),
        model=Model(
            bytes_B=lambda case: _traffic(case).view(write_allocate=True) * case.integers["sites"],
            transfers=_transfers,
            conditions=lambda case, caches: {
                str(row["cache"]): str(row["condition"]) for row in model_of(case).levels(caches)
            },
            measures_ceilings=True,
        ),
        inputs=_INPUTS,
        build=_hop,
        counts=Counts(
            flops=declared("dw.hop").flops,
            width=lambda case: prod(layout_of(case).cuts) * case.integers["Ls"],
            loop_width=lambda case: max(layout_of(case).numbers, 1),
        ),
        template_columns=("layout",),
    )
)


@shows_options_of("dw.hop")
def dw(lattice: Sequence[int], **options: Any) -> Case:
    """Case of the hopping term of the domain-wall operator.

    Its attributes apply the term to your own fields (`hop`, and `lay_out` and `take_back` for the
    layout of a case) and measure (`measure`).
    """
    return case("dw.hop", lattice=lattice, **options)


# Bytes of a site with Ls = 8 in double precision: links, spinors and result.
_SITE_B = 16 * (LINKS + 2 * 8 * SPINOR)


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return lattices within and beyond the caches, in both layouts, and a scan of Lx."""
    brief = {"budget_s": 0.05}
    if not widths():
        return [dw((8,) * 4, layout="lexicographic", **brief)]
    if quick:
        return [dw((8,) * 4, layout=layout, **brief) for layout in LAYOUTS[:2]]
    unit = min(cache_B, memory_B // 64)
    large = next(edge for edge in range(12, 2**10, 4) if edge**4 * _SITE_B > 4 * unit)
    plain, nt, plain_ahead, nt_ahead = (
        {"variant": variant, "prefetch": ahead, **brief}
        for ahead in (0, 3)
        for variant in ("simd", "nt")
    )
    workers = len(os.sched_getaffinity(0))
    counts = [2**k for k in range(workers.bit_length()) if 2**k < workers]
    # At most three more: for each number of workers the bandwidth is measured first.
    fewer = [{"threads": n, **nt_ahead} for n in counts[:: max(-(-len(counts) // 3), 1)]]
    # Lx from half the size that fits in the caches to eight times as much.
    edge = max(4 * round((unit / 2 / _SITE_B) ** 0.25 / 4), 8)
    scan = [(edge * 2**k // 2, edge, edge, 2 * edge) for k in range(5)]
    little, whole = (8,) * 4, (large,) * 4
    chosen: list[tuple[tuple[int, ...], str, str, Sequence[Mapping[str, Any]]]] = [
        (little, "RRII", "s", (plain, plain_ahead, nt, nt_ahead)),
        (little, "RIRI", "s", (plain, plain_ahead)),
        (whole, "RRII", "s", (plain, plain_ahead, nt, nt_ahead)),
        (whole, "RIRI", "s", (nt, nt_ahead)),
        *((little, layout, "tzyx", (plain,)) for layout in LAYOUTS[:2]),
        *((whole, layout, "tzyx", (nt, nt_ahead)) for layout in LAYOUTS[:2]),
        *((whole, layout, "s", fewer) for layout in LAYOUTS[:2]),
        *((shape, "RRII", "s", ({"variant": "simd", **brief},)) for shape in scan),
        *((shape, "RIRI", "tzyx", ({"variant": "simd", **brief},)) for shape in scan),
    ]
    return [
        dw(extents, layout=layout, cut=cut, **how)
        for extents, layout, cut, ways in chosen
        if extents == little or prod(extents) * _SITE_B < memory_B / 4
        for how in ways
    ]
