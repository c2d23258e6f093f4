"""Traffic of the lattice-QCD hopping term and of a stencil by layer conditions.

The kernel of the hopping term visits the sites with t outermost, then z, y and x, and the fifth
dimension s innermost. A layer condition holds if a cache keeps the spinors of a site (LC_x), a row
(LC_y), a plane (LC_z) or a slice (LC_t) between their uses by two neighbours. Of the eight
neighbours that a site reads, 7, 5, 3 or 1 then come from further away. LC_s holds if the links stay
in the cache from one s to the next.

Source: Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
2021, section on lattice QCD.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from memkern.checks import integer
from memkern.errors import InputError
from memkern.inputs import lattice
from memkern.machine.caches import Share, shares
from memkern.models.ecm import positive
from memkern.spec.kernel import Transfer

FLOPS = 1320
"""Floating-point operations of one site update."""

Condition: TypeAlias = Literal["none", "s", "x", "y", "z", "t", "all"]
CONDITIONS: tuple[Condition, ...] = ("none", "s", "x", "y", "z", "t", "all")
"""From weakest to strongest: no reuse, the layer conditions, all data in the cache."""

# Complex numbers: eight links of a site, and the spinor of a site at one s.
_LINKS = 8 * 9
_SPINOR = 4 * 3
_DIRECTIONS = "xyzt"


def _four(values: Sequence[int], what: str, least: int = 1) -> tuple[int, int, int, int]:
    if len(values) != 4:
        raise InputError(f"{what} must be four integers, of x, y, z and t, not {len(values)}")
    x, y, z, t = (
        integer(n, f"{what} in {direction}", least)
        for n, direction in zip(values, _DIRECTIONS, strict=True)
    )
    return x, y, z, t


@dataclass(frozen=True)
class LayerConditions:
    """Traffic of one application of the hopping term, by cache level.

    A site update is one site n at one s.  It moves V = (72/Ls + 12 k + 12 w) complex numbers across
    the boundary below a cache, with k = 8 (LC_s), 7 (LC_x), 5 (LC_y), 3 (LC_z) or 1 (LC_t), and
    72 + 96 + 12 w without any reuse.

    Parameters
    ----------
    extents : tuple of int
        (Lx, Ly, Lz, Lt).
    ls : int
        Ls.
    cuts : tuple of int
        Virtual partitions of x, y, z and t whose sites share a vector; all 1 for scalar code.
        The extents must be multiples of them.
    s_cut : int
        Number of s of a site that share a vector and the site's links.  It affects LC_s and the
        traffic without reuse.
    layout : {"scalar", "RIRI", "RRII"}
        Layout for `paper_conditions`; the other results depend only on the cuts.
    value_B : int
        Size of a real number in bytes.
    write_factor : {2, 1}
        w: 2 if stores read their lines first, 1 for non-temporal stores.
    parity : {"full", "even", "odd"}
        Sites that get a result. One parity reads and writes fields of half the sites: links and
        results of that parity, and spinors of the other parity, each of which is also read by eight
        neighbours. V does not change. There are half as many site updates between two uses, which
        halves LC_x to LC_t. Extents must then be multiples of twice the cuts.
    threads : int
        Workers, each with a contiguous part of the sites in the order of t, z, y and x.
    blocks : tuple of int
        Sites of a block in x, y, z and t of a virtual partition, which is finished before the next
        block; 0 for all.

    Raises
    ------
    InputError
        If a number is wrong, or there are more threads than sites.

    Notes
    -----
    The argument ``sharing`` of the methods is the number of these threads, with consecutive parts,
    that share a cache.  The share of each core is the cache size over this number.  All threads
    are at corresponding sites of their parts at the same time and may read the same spinors, so k
    counts the different spinors that these threads read, per thread.  Without LC_t, one thread
    reads three slices, its own and the two adjacent ones. With parts of one slice, the adjacent
    slices belong to other threads: n threads read n + 2 slices, or n if they are all threads. With
    parts of two slices, the slice ahead of one thread is the slice behind the next: they read 2 n +
    1, or 2 n. With larger parts they read 3 n. Parts of one or two planes share planes in the same
    way. The count includes that neighbours coincide if an extent is 1 or 2.

    Under LC_t, n threads with parts of T slices read their n T slices and the two adjacent ones,
    k = 1 + 2/(n T), or no adjacent ones if they are all threads. Parts smaller than a slice have
    such ends in z. A single thread has no such ends: it immediately reads the spinors beyond the
    end of a layer again for the next layer.

    This assumes that threads progress at the same rate, within the capacity of the cache.  Threads
    that are a fraction of a layer apart are assumed to share nothing, although a cache between LC_z
    and LC_t may keep some of the data for them.

    The conditions require room for two layers. In y, z and t, an LRU cache needs little more than
    one layer, since the last use of a row, in x, is by its own sites. With at least half of the
    size of LC_y, LC_z or LC_t, its traffic may be as low as if the condition held.

    Layers inside a block of B sites in some dimension are thinner, so that a smaller cache fulfils
    LC_mu.  The spinors at both ends of a block are read once more, which adds 2/B to k for each
    dimension whose condition holds (in the outermost one also if B is its extent), even where the
    cache keeps some of them from block to block.  Threads are assumed to share nothing.  Blocks of
    the outermost dimension alone change nothing.
    """

    extents: tuple[int, int, int, int]
    ls: int = 8
    cuts: tuple[int, int, int, int] = (1, 1, 1, 1)
    s_cut: int = 1
    layout: Literal["scalar", "RIRI", "RRII"] = "scalar"
    value_B: int = 8
    write_factor: int = 2
    parity: Literal["full", "even", "odd"] = "full"
    threads: int = 1
    blocks: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        """Check every number."""
        _four(self.blocks, "blocks", 0)
        _ = self._extents
        for what in ("ls", "s_cut", "value_B", "threads"):
            integer(getattr(self, what), what, 1)
        if self.ls % self.s_cut:
            raise InputError(f"ls must be a multiple of s_cut = {self.s_cut}, not {self.ls}")
        if self.write_factor not in (1, 2):
            raise InputError(f"write_factor must be 2 or 1, not {self.write_factor!r}")
        if self.layout not in ("scalar", "RIRI", "RRII"):
            raise InputError(f"layout must be scalar, RIRI or RRII, not {self.layout!r}")
        if self.threads > self._sites:
            raise InputError(
                f"threads must be at most the {self._sites} computed sites, not {self.threads}"
            )

    @classmethod
    def of_record(cls, record: Mapping[Any, Any], lattice: str = "") -> LayerConditions:
        """Return the conditions of a measured case.

        Conditions are named after the default order of loops: LC_t always belongs to the outermost
        loop. Workers that share planes are modelled as one worker with the whole shared cache.

        Parameters
        ----------
        record : mapping
            With ``lattice``, ``Ls``, ``layout``, ``cut``, ``vector_bits``, ``dtype``, ``variant``,
            ``parity``, ``threads``, and optionally ``order``, ``block`` and ``share_planes``, as in
            records.
        lattice : str
            Lattice such as ``8x8x8x16``, in place of the record's lattice.
        """
        value_B = 4 if record["dtype"] == "float32" else 8
        of_s = record["cut"] == "s"
        # A vector of the layout RRII has real or imaginary parts only.
        number_B = value_B if record["layout"] == "RRII" else 2 * value_B
        parts = {part[0]: int(part[1:]) for part in record["cut"].split() if not of_s}
        whole = dict(zip("xyzt", map(int, (lattice or record["lattice"]).split("x")), strict=True))
        sizes = dict(zip("xyzt", (record.get("block") or "0x0x0x0").split("x"), strict=True))
        inner_first = (record.get("order") or "tzyx")[::-1]
        model = cls(
            extents=_four([whole[d] for d in inner_first], "lattice"),
            ls=int(record["Ls"]),
            cuts=_four([parts.get(d, 1) for d in inner_first], "cut"),
            s_cut=int(record["vector_bits"]) // 8 // number_B if of_s else 1,
            layout=record["layout"] if record["layout"] in ("RRII", "RIRI") else "scalar",
            value_B=value_B,
            write_factor=1 if record["variant"] == "nt" else 2,
            parity=record["parity"],
            blocks=_four([int(sizes[d]) for d in inner_first], "blocks", 0),
        )
        workers = 1 if record.get("share_planes") else int(record["threads"])
        return replace(model, threads=min(workers, model._sites))

    @property
    def partitions(self) -> int:
        """P, the number of virtual partitions, which are computed simultaneously."""
        return math.prod(self.cuts)

    @property
    def updates(self) -> int:
        """Site updates of one application."""
        return self._sites * self.partitions * self.ls

    @cached_property
    def _extents(self) -> tuple[int, int, int, int]:
        """Extents of one virtual partition."""
        whole, parts = _four(self.extents, "extents"), _four(self.cuts, "cuts")
        if self.parity not in ("full", "even", "odd"):
            raise InputError(f"parity must be full, even or odd, not {self.parity!r}")
        step = 1 if self.parity == "full" else 2
        for length, cut, direction in zip(whole, parts, _DIRECTIONS, strict=True):
            if length % (cut * step):
                raise InputError(
                    f"the extent in {direction} must be a multiple of {cut * step}, for {cut} "
                    f"partitions and {self.parity} parity, not {length}"
                )
        return _four([length // cut for length, cut in zip(whole, parts, strict=True)], "extents")

    @cached_property
    def _sites(self) -> int:
        """Sites of one virtual partition that get a result."""
        return math.prod(self._extents) // (1 if self.parity == "full" else 2)

    def _group(self, sharing: int) -> int:
        """Return the number of threads that share a cache, at most all threads."""
        return min(integer(sharing, "sharing", 1), self.threads)

    @cached_property
    def _block(self) -> tuple[int, int, int, int]:
        """Extents of a block, or of the partition if blocks do not change the order."""
        whole = self._extents
        block = _four([min(b or n, n) for b, n in zip(self.blocks, whole, strict=True)], "blocks")
        return whole if block[:3] == whole[:3] else block

    def _layer(self, inside: int) -> float:
        """Return the sites with a result in a layer of a block's innermost dimensions."""
        return math.prod(self._block[:inside]) / (1 if self.parity == "full" else 2)

    def _ends(self, inside: int) -> float:
        """Return the spinors at ends of blocks in the innermost dimensions, per site."""
        whole, block = self._extents, self._block
        if block == whole:
            return 0.0
        # In the outermost dimension, blocks end even if they are as long as the lattice.
        return sum(
            2 * math.ceil(whole[mu] / block[mu]) / whole[mu]
            for mu in range(inside)
            if block[mu] < whole[mu] or mu == 3
        )

    def _streams(self, condition: Condition, sharing: int) -> float:
        """Return the number of different spinors per thread that threads read simultaneously."""
        held = max(CONDITIONS.index(condition) - 1, 0)
        group, extents = self._group(sharing), self._extents
        if self._block != extents:
            group = 1
        sites = math.prod(extents)
        different: set[tuple[int, ...]] = set()
        for thread in range(group):
            at = thread * sites // self.threads
            here = [int(n) for n in np.unravel_index(at, extents[::-1])[::-1]]
            if held:
                different.add(tuple(here))
            for mu in range(held, 4):
                for way in (1, -1):
                    there = here.copy()
                    there[mu] = (there[mu] + way) % extents[mu]
                    different.add(tuple(there))
        return len(different) / group

    def spinors(self, condition: Condition, sharing: int = 1) -> float:
        """Return the number of spinors from beyond the cache per site update.

        Parameters
        ----------
        condition : str
            The strongest condition that holds, one of `CONDITIONS`.
        sharing : int
            Threads that share the cache.

        Returns
        -------
        float
            k: 8, 8, 7, 5, 3, 1 for ``"none"``, ``"s"``, ``"x"``, ``"y"``, ``"z"``, ``"t"``, except
            for several threads, blocks and extents below 3; 0 for ``"all"``.
        """
        if condition not in CONDITIONS:
            raise InputError(f"condition must be one of {', '.join(CONDITIONS)}, not {condition!r}")
        if condition == "all":
            return 0.0
        k = self._streams(condition, sharing)
        if condition in ("none", "s"):
            return k
        mu = _DIRECTIONS.index(condition)
        k += self._ends(mu + 1)
        part = self._sites / self.threads
        run = part * self._group(sharing) / self._layer(mu)
        if part <= self._layer(mu + 1) and run < self._block[mu]:
            k += 2 / run
        return min(k, self.spinors(CONDITIONS[CONDITIONS.index(condition) - 1], sharing))

    def footprint_B(self, sharing: int = 1) -> float:
        """Return the footprint of a thread in bytes, including its share of common data.

        Results of non-temporal stores are not included, since they do not stay in caches.

        Parameters
        ----------
        sharing : int
            Threads that share the cache.
        """
        site = _LINKS + _SPINOR * self.ls * (
            self.spinors("t", sharing) + (1 if self.write_factor == 2 else 0)
        )
        return self._sites / self.threads * site * 2 * self.value_B * self.partitions

    def conditions(self, sharing: int = 1) -> dict[str, float]:
        """Return the cache size in bytes above which each condition holds.

        LC_s requires the data of one site update, 180 complex numbers for each partition.  LC_mu
        requires P * 2 Ls * (the extents inside mu over their cuts, or those of a block) *
        (72/Ls + 12 k' + 12) complex numbers, with k' of the previous condition: 8, 7, 5, 3 for x,
        y, z, t.

        Parameters
        ----------
        sharing : int
            Threads that share the cache.

        Returns
        -------
        dict of str to float
            By ``"s"``, ``"x"``, ``"y"``, ``"z"`` and ``"t"``, for the cache share of one core.
        """
        number_B = 2 * self.value_B * self.partitions
        found: dict[str, float] = {"s": number_B * (_LINKS + 9 * _SPINOR * self.s_cut)}
        for mu, condition in enumerate(_DIRECTIONS):
            site = _LINKS + _SPINOR * self.ls * (self.spinors(CONDITIONS[mu + 1], sharing) + 1)
            found[condition] = 2 * number_B * site * self._layer(mu)
        return found

    def paper_conditions(self) -> dict[str, float]:
        """Return the conditions printed in the paper, for scalar code or vectors of 512 bits.

        They are for double precision, one thread and all sites, independent of this model's
        parameters.  For vectors, the paper has LC_s = 11520 B, and factors d * 8, d * 8, 8 and 4
        instead of the scalar 2 in LC_x, LC_y, LC_z and LC_t, with d = 1 for RIRI and 2 for RRII.
        `conditions` returns the same for four partitions, two each of z and t (RIRI), and for
        eight, two each of y, z and t (RRII), except for LC_s: the site update of a vector needs
        2880 B for each partition, 11520 B in RIRI and 23040 B in RRII.  The paper prints 11520 for
        both, but its factor d in the other conditions implies 23040.

        Returns
        -------
        dict of str to float
            By ``"s"``, ``"x"``, ``"y"``, ``"z"`` and ``"t"``, in bytes.
        """
        # Of LC_s to LC_t.
        least_B, *factors = {
            "scalar": (2880, 2, 2, 2, 2),
            "RIRI": (11520, 8, 8, 8, 4),
            "RRII": (11520, 16, 16, 8, 4),
        }[self.layout]
        found: dict[str, float] = {"s": least_B}
        layer = self.ls
        for mu, (factor, k) in enumerate(zip(factors, (8, 7, 5, 3), strict=True)):
            found[_DIRECTIONS[mu]] = factor * layer * (72 / self.ls + 12 * k + 12) * 16
            layer *= self.extents[mu]
        return found

    def shared_cache_B(self, cache_B: float, sharing: int = 1) -> float:
        """Return the share of a cache for one core: its size over the threads that share it.

        Data shared by threads do not enlarge this share but reduce `spinors`.

        Parameters
        ----------
        cache_B : float
            Size of the cache.
        sharing : int
            Threads that could share the cache; if there are fewer, these share it.
        """
        return positive(cache_B, "cache_B") / self._group(sharing)

    def holds(self, cache_B: float, sharing: int = 1) -> Condition:
        """Return the strongest condition that holds.

        Parameters
        ----------
        cache_B : float
            Size of the cache.
        sharing : int
            Threads that share the cache.

        Returns
        -------
        str
            One of `CONDITIONS`: ``"all"`` if the footprint of its threads fits in the cache.
        """
        seen_B = self.shared_cache_B(cache_B, sharing)
        if seen_B >= self.footprint_B(sharing):
            return "all"
        limits_B = self.conditions(sharing)
        return next((c for c in CONDITIONS[-2:0:-1] if seen_B > limits_B[c]), "none")

    def site_B(self, cache_B: float, sharing: int = 1) -> float:
        """Return the bytes of a site update that cross the boundary below a cache.

        Parameters
        ----------
        cache_B : float
            Size of the cache.
        sharing : int
            Threads that share the cache.

        Returns
        -------
        float
            V in bytes.  If all data fit in the cache, only non-temporal stores count.
        """
        condition = self.holds(cache_B, sharing)
        if condition == "all":
            return _SPINOR * 2.0 * self.value_B if self.write_factor == 1 else 0.0
        k = self.spinors(condition, sharing)
        links = _LINKS / (self.s_cut if condition == "none" else self.ls)
        return (links + _SPINOR * (k + self.write_factor)) * 2 * self.value_B

    def transfer(self, cache_B: float, sharing: int = 1) -> Transfer:
        """Return the loads and stores of `site_B`; loads include write-allocates.

        Parameters
        ----------
        cache_B : float
            Size of the cache.
        sharing : int
            Threads that share the cache.
        """
        moved_B = self.site_B(cache_B, sharing)
        stored_B = min(moved_B, _SPINOR * 2.0 * self.value_B)
        return Transfer(moved_B - stored_B, stored_B)

    def transfers(
        self, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
    ) -> dict[str, Transfer]:
        """Return the traffic of a site update across the boundary in front of each level.

        Parameters
        ----------
        levels : sequence of str
            Such as ``("L1", "L2", "memory")``. In front of L1, eight links and eight spinors are
            loaded into registers, and one spinor is stored. Non-temporal stores cross this boundary
            and the boundary of memory.
        caches : sequence of mapping
            As for the method `levels`.

        Raises
        ------
        InputError
            A cache of these levels is missing.
        """
        number_B = 2 * self.value_B
        load_B = (_LINKS / self.s_cut + 8 * _SPINOR) * number_B
        return _transfers(self, Transfer(load_B, float(_SPINOR * number_B)), levels, caches)

    def roofline_GFLOPs(self, bandwidth_GBps: float, cache_B: float, sharing: int = 1) -> float:
        """Return the performance limit by the bandwidth below a cache.

        Parameters
        ----------
        bandwidth_GBps : float
            Bandwidth of all threads together, in decimal GB/s.
        cache_B : float
            Size of the cache.
        sharing : int
            Threads that share the cache.

        Returns
        -------
        float
            GFLOP/s at 1320 flops per site update; infinite if no data cross the boundary.
        """
        moved_B = self.site_B(cache_B, sharing)
        rate = positive(bandwidth_GBps, "bandwidth_GBps")
        return FLOPS / moved_B * rate if moved_B else math.inf

    def levels(self, caches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the traffic across the boundary below each cache.

        Parameters
        ----------
        caches : sequence of mapping
            As for `memkern.machine.caches.shares`: with ``level``, ``size_B`` and optionally
            ``shared_by`` and ``instances``, as in the environment of results.

        Returns
        -------
        list of dict
            By level: ``cache`` (such as ``"L2"``), ``size_B``, ``sharing`` (threads), ``core_B``
            (share of one core), ``condition`` and ``site_B``.
        """
        return [
            {
                "cache": name,
                "size_B": size_B,
                "sharing": sharing,
                "core_B": self.shared_cache_B(size_B, sharing),
                "condition": self.holds(size_B, sharing),
                "site_B": self.site_B(size_B, sharing),
            }
            for name, size_B, sharing in shares(caches, self.threads)
        ]


def _share(name: str, caches: Sequence[Mapping[str, Any]], threads: int) -> Share:
    """Return the cache of a level and the workers that share it.

    Raises
    ------
    InputError
        The level is not among the caches.
    """
    known = {share.name: share for share in shares(caches, threads)}
    if name not in known:
        raise InputError(f"the size of {name} is not known, only of {', '.join(known)}")
    return known[name]


def held_by(
    layer_B: float, name: str, caches: Sequence[Mapping[str, Any]], threads: int = 1
) -> bool:
    """Return whether a layer fits in half of a thread's share of a cache.

    Parameters
    ----------
    layer_B : float
        Bytes of a thread's layer.
    name : str
        Of the cache, such as ``L2``.
    caches : sequence of mapping
        As for `LayerConditions.levels`.
    threads : int
        Workers, each on its own core if there are enough cores.

    Raises
    ------
    InputError
        The cache is not among them.
    """
    share = _share(name, caches, threads)
    return layer_B <= share.size_B / share.workers / 2


@dataclass(frozen=True)
class StencilConditions:
    """Traffic of a five-point stencil on rows of a grid.

    A point is read by three rows. A cache that holds three rows between their uses fetches a row
    once, a smaller cache three times. As in the paper, the rows may use half of a cache.

    Parameters
    ----------
    rows, columns : int
        Outer and inner dimension.
    value_B : int
        Size of a value in bytes.
    write_factor : {2, 1}
        2 if stores read their lines first, 1 for non-temporal stores.
    threads : int
        Workers, each with a contiguous part of the rows.

    Raises
    ------
    InputError
        A number is out of range.
    """

    rows: int
    columns: int
    value_B: int = 8
    write_factor: int = 2
    threads: int = 1

    def __post_init__(self) -> None:
        """Check every number."""
        for what in ("rows", "columns", "value_B", "threads"):
            integer(getattr(self, what), what, 1)
        if self.write_factor not in (1, 2):
            raise InputError(f"write_factor must be 2 or 1, not {self.write_factor!r}")

    @property
    def layer_B(self) -> int:
        """Bytes of three rows."""
        return 3 * self.columns * self.value_B

    def holds(self, cache_B: float, sharing: int = 1) -> bool:
        """Return whether a cache, shared by some threads, holds three rows for each of them."""
        share_B = positive(cache_B, "cache_B") / min(integer(sharing, "sharing", 1), self.threads)
        return self.layer_B <= share_B / 2

    def transfer(self, cache_B: float, sharing: int = 1) -> Transfer:
        """Return the bytes of a point that cross the boundary behind a cache.

        The ends of the threads' parts are read one more time.
        """
        held = self.holds(cache_B, sharing)
        reads = (1 + 2 / (self.rows / self.threads) if self.threads > 1 else 1.0) if held else 3.0
        return Transfer((reads + self.write_factor - 1) * self.value_B, float(self.value_B))

    def transfers(
        self, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
    ) -> dict[str, Transfer]:
        """Return the traffic of a point across the boundary in front of each level.

        Parameters
        ----------
        levels, caches
            As for `LayerConditions.transfers`. In front of L1, five values are loaded.

        Raises
        ------
        InputError
            A cache of these levels is missing.
        """
        value_B = float(self.value_B)
        return _transfers(self, Transfer(5 * value_B, value_B), levels, caches)


def _transfers(
    model: LayerConditions | StencilConditions,
    registers: Transfer,
    levels: Sequence[str],
    caches: Sequence[Mapping[str, Any]],
) -> dict[str, Transfer]:
    """Return the traffic in front of each level by a model; in front of L1 that of the registers.

    Non-temporal stores cross only this boundary and that of memory.
    """
    found = {levels[0]: registers}
    for cache, level in itertools.pairwise(levels):
        share = _share(cache, caches, model.threads)
        behind = model.transfer(share.size_B, share.workers)
        bypassed = model.write_factor == 1 and level != levels[-1]
        found[level] = Transfer(behind.load_B, 0.0 if bypassed else behind.store_B)
    return found


def _walk(model: LayerConditions, order: str, sharing: int) -> npt.NDArray[np.int64]:
    """Return sites, numbered with x fastest, in the order of accesses to a shared cache."""
    at = np.indices(model._extents[::-1]).reshape(4, -1)[::-1]
    walk = lattice.walk(at, order, model.blocks)
    if model.parity != "full":
        walk = walk[at.sum(axis=0)[walk] % 2 == (model.parity == "odd")]
    starts = np.arange(model.threads + 1) * len(walk) // model.threads
    parts = np.full((sharing, np.diff(starts).max()), -1)
    for row, first, last in zip(parts, starts[:-1], starts[1:], strict=False):
        row[: last - first] = walk[first:last]
    together: npt.NDArray[np.int64] = parts.T.ravel()
    return together[together >= 0]


def simulate(
    extents: Sequence[int],
    ls: int,
    cache_B: float,
    *,
    sharing: int | None = None,
    order: str = "tzyx",
    **conditions: Any,
) -> float:
    """Simulate the traffic below a fully associative LRU cache, site by site.

    The cache holds whole rows: the eight links of a site, its spinors of all s, its results.  A
    site update reads links and neighbours (x, y, z, t, each ahead, then behind) and writes its
    result.  Threads alternate after each site.  One application fills the cache, the next is
    counted.

    Parameters
    ----------
    extents : sequence of int
        (Lx, Ly, Lz, Lt).
    ls : int
        Ls.
    cache_B : float
        Size of the cache.
    sharing : int, optional
        Number of threads, from the first, that use this cache; all by default.
    order : str
        The loops from outermost to innermost, a permutation of ``"tzyx"``.
    **conditions
        ``cuts``, ``value_B``, ``write_factor``, ``parity``, ``threads`` and ``blocks`` of
        `LayerConditions`. With a `write_factor` of 2, results are read into the cache, and written
        when they are evicted; with 1 they bypass it. The parts of the threads are in the order of
        the loops.

    Returns
    -------
    float
        Bytes of a site update, read and written.

    Raises
    ------
    InputError
        If a number is wrong, or there are more threads than sites.

    Notes
    -----
    10**5 sites take about a second and 100 MB.
    """
    model = LayerConditions(_four(extents, "extents"), ls, **conditions)
    threads, allocates = model.threads, model.write_factor == 2
    sharing = threads if sharing is None else min(integer(sharing, "sharing", 1), threads)
    if sorted(order) != sorted("tzyx"):
        raise InputError(f"order must be a permutation of tzyx, not {order!r}")
    free_B = positive(cache_B, "cache_B")

    sites = np.arange(math.prod(model._extents)).reshape(model._extents[::-1])
    around = np.stack(
        [np.roll(sites, way, axis) for axis in (3, 2, 1, 0) for way in (-1, 1)], axis=-1
    ).reshape(-1, 8)
    walk = _walk(model, order, sharing)
    # Rows are numbered, spinors first, then links, then results.
    count = len(around)
    rows = [around[walk], walk[:, None] + count]
    if allocates:
        rows.append(walk[:, None] + 2 * count)
    trace = np.concatenate(rows, axis=1).ravel().tolist()
    number_B = 2 * model.value_B * model.partitions
    spinor_B, links_B = _SPINOR * ls * number_B, _LINKS * number_B

    cache: OrderedDict[int, int] = OrderedDict()
    for _ in range(2):
        moved_B = 0 if allocates else len(walk) * spinor_B
        for row in trace:
            if row in cache:
                cache.move_to_end(row)
                continue
            size_B = links_B if count <= row < 2 * count else spinor_B
            cache[row] = size_B
            free_B -= size_B
            moved_B += size_B
            while free_B < 0:
                old, size_B = cache.popitem(last=False)
                free_B += size_B
                if old >= 2 * count:
                    moved_B += size_B
    return moved_B / (len(walk) * ls * model.partitions)
