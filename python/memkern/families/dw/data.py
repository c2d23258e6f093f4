"""Records of the domain-wall kernel that figures draw and findings compare.

If a case has several records (prefetch, order, blocks, pages, repeats), the one with the highest
performance is used. Each machine's most frequent type and parity are used; records with others
can't be compared and are left out.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memkern.models import LayerConditions
from memkern.models.layer_conditions import FLOPS
from memkern.models.machine_file import MachineFile
from memkern.models.records import data_caches
from memkern.plots.energy import changes
from memkern.plots.kit import (
    QUANTITY,
    DataFrame,
    InputError,
    Records,
    best,
    counted,
    environments_of,
    longest_scan,
    of_prefixes,
    of_workers,
    prevailing,
    quantities,
    select,
    typed,
)
from memkern.plots.traffic import traffic_B

VALUE = "performance_GFLOPs"
ROOFLINE = "roofline_GFLOPs"
LAYOUTS = ("RRII", "RIRI", "lexicographic")
# In the order of a legend.
OPTIONS = tuple(
    f"{stores} stores{prefetch}"
    for stores in ("ordinary", "non-temporal")
    for prefetch in ("", ", prefetch", ", prefetch into L1")
)
# Additional energy of RIRI against RRII on A64FX in percent, "almost 20 %" (Alappat et al. 2021).
PUBLISHED_ENERGY = 20.0
# Its speed: on the full chip RRII is "a 12 % improvement over RIRI".
PUBLISHED_SPEED = 100 * (1 / 1.12 - 1)


COUNTED = {"memory": "counted_memory_site_B", "L2": "counted_L2_site_B"}
"""Columns of the counted bytes of a site update, by level."""
MODELLED = "modelled_site_B"
"""Column of the modelled bytes of a site update at the level that was counted."""
CONDITIONS = {"all": "all", **{name: f"LC_{name}" for name in "tzyxs"}, "none": "none"}

_NUMBERS = (
    *("Ls", "vector_bits", "prefetch", "threads", "performance_median_GFLOPs", "triad_GBps"),
    *("memory_load_B", "memory_store_B", "time_min_s", ROOFLINE),
)
_WORDS = ("lattice", "layout", "cut", "parity", "prefetch_into", "variant", "dtype")
_EXTENTS = ["Lx", "Ly", "Lz", "Lt"]
# Instructions of a site and s, for values in separate vectors: in each of eight directions 12
# additions that project a spinor, and two products of a link with three complex numbers (36
# multiplications, into 30 of which additions are fused), then seven sums of spinors of 24 numbers.
# Unfused, these are FLOPS.
_INSTRUCTIONS = 8 * (12 + 2 * 36) + 7 * 24
# The same for interleaved complex numbers: products of two numbers; additions, and how many of
# them, in half of the directions, add a number times i or -i.
_PRODUCTS = 8 * 2 * 9
_ADDITIONS, _TURNED = 8 * 6 + 7 * 12, 4 * (6 + 6)
# Without instructions for complex numbers, each row of a product needs an addition of its two
# parts, the six numbers that a link is multiplied by are exchanged in pairs, and the parts of the
# nine numbers of a link are duplicated unless all lanes share them.
_JOINED = 8 * 2 * 3
_EXCHANGED, _DUPLICATED = 8 * 6, 8 * 9 * 2


def hops(records: Records, measure: str) -> tuple[DataFrame, list[str]]:
    """Return the valid records of the hopping term with one setting per machine, and notes.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    measure : str
        Command that measures such records. If it is empty, no record is no error.

    Returns
    -------
    frame : DataFrame
        The columns of the records and machine (the platform without its thread count), Lx to Lt,
        sites, others (all extents but Lx), lattice_label (with Ls), kind (layout and cut),
        form (kind and width of vectors), option (stores and prefetch), site_B (see `site_B`), the
        modelled and counted bytes of each level (NaN where they are unknown or none), held (whether
        the last cache holds all data that are read). The roofline is infinite if nothing comes
        from memory and there is no other limit.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        There is no such record, a column is missing, or a lattice does not have four extents.
    """
    import numpy as np

    frame, notes = select(
        records, ["dw"], ["backend"], numbers=_NUMBERS, texts=_WORDS, measure=measure, value=VALUE
    )
    frame, left = prevailing(
        frame,
        ("backend", "dtype", "parity"),
        per=("machine",),
        count=("lattice", "Ls", "layout", "cut", "vector_bits", "variant", "prefetch", "threads"),
    )
    extents = frame["lattice"].str.extract(r"^(\d+)x(\d+)x(\d+)x(\d+)$")
    wrong = frame.loc[extents[0].isna(), "lattice"]
    if len(wrong):
        raise InputError(f"the lattice {wrong.iloc[0]!r} is not four extents such as 8x8x8x8")
    frame[_EXTENTS] = extents.astype(float)
    kind = (frame["layout"] + " " + frame["cut"]).str.strip()
    bits = frame["vector_bits"].where(frame["layout"] != "lexicographic")
    # Non-temporal stores write the results to memory even if the caches hold all read data.
    result_B = np.where(frame["dtype"] == "float32", 96, 192)
    moved_B = site_B(frame)
    unlimited = frame[ROOFLINE].isna() & (moved_B == 0)
    return frame.assign(
        sites=frame[_EXTENTS].prod(axis=1),
        others=frame["lattice"].str.replace(r"^\d+x", "", regex=True),
        lattice_label=[f"{lattice}, Ls {ls:g}" for lattice, ls in
               zip(frame["lattice"], frame["Ls"], strict=True)],
        kind=kind,
        form=[name if math.isnan(width) else f"{name}, {width:g} bit" for name, width in
              zip(kind, bits, strict=True)],
        option=_options(frame),
        site_B=moved_B,
        held=moved_B <= 1.001 * result_B,
        **{
            f"{level}_site_B": traffic_B(frame, level, counted=False) / _updates(frame)
            for level in COUNTED
        },
        **{
            column: (traffic_B(frame, level, counted=True) / _updates(frame)).where(lambda B: B > 0)
            for level, column in COUNTED.items()
        },
        **{ROOFLINE: frame[ROOFLINE].mask(unlimited, math.inf)},
    ), notes + left  # fmt: skip


def extents_of(text: str, what: str) -> tuple[int, int, int, int]:
    """Parse four numbers such as 8x8x8x16.

    Raises
    ------
    InputError
        The text is not four numbers.
    """
    words = text.split("x")
    if len(words) != 4 or not all(
        re.fullmatch("[0-9]{1,10}", word) and 0 < int(word) < 2**31 for word in words
    ):
        raise InputError(f"{what} {text!r} must be four numbers such as 8x8x8x16")
    x, y, z, t = map(int, words)
    return x, y, z, t


def core_of(source: MachineFile, row: Mapping[Any, Any]) -> float:
    """Return T_core of a record, in cycles of an invocation by one core.

    If the machine file has the time of the record's loop body in a cache, T_core is this measured
    time. Otherwise it is the time of the arithmetic instructions, where additions are fused with
    the products of links and spinors and take as long as multiply-adds. Interleaved complex numbers
    (RIRI) use instructions for complex numbers if the file has them (``fcmla`` and ``fcadd``),
    otherwise permutations, which are issued in parallel with the arithmetic and are as slow as the
    file's ``permute``. NaN if the file lacks an instruction. Permutations between sites and the
    latency of dependent instructions are not counted.
    """
    measured = source.in_core_of(row)
    if measured is not None:
        return float(_updates(row) * measured.cycles)
    bits = int(row["vector_bits"])
    lanes = bits // (32 if row["dtype"] == "float32" else 64)
    try:
        if row["layout"] == "RIRI":
            each = _interleaved_cycles(source, bits, row["cut"] == "s") / (lanes // 2)
        else:
            each = _INSTRUCTIONS * _reciprocal(source, "fma", bits) / lanes
    except InputError:
        return math.nan
    return float(_updates(row) * each)


def _interleaved_cycles(source: MachineFile, bits: int, shared: bool) -> float:
    """Return the cycles of a vector of interleaved complex numbers.

    Parameters
    ----------
    source : MachineFile
    bits : int
        Bits of the vector.
    shared : bool
        Whether all its lanes have the same links.

    Raises
    ------
    InputError
        The file lacks an instruction.
    """
    each = _reciprocal(source, "fma", bits)
    try:
        product, turned = (_reciprocal(source, name, bits) for name in ("fcmla", "fcadd"))
    except InputError:
        permutations = _EXCHANGED + _TURNED + (0 if shared else _DUPLICATED)
        issued = _PRODUCTS * 2 + _JOINED + _ADDITIONS + permutations
        return max(issued * each, permutations * _reciprocal(source, "permute", bits))
    return _PRODUCTS * 2 * product + _TURNED * turned + (_ADDITIONS - _TURNED) * each


def _reciprocal(source: MachineFile, name: str, bits: int) -> float:
    return source.instruction(name, bits).reciprocal_cycles.value


def _updates(record: Any) -> Any:
    """Return the updates of a site and s in an invocation, of a record or of many."""
    return record[VALUE] * 1e9 * record["time_min_s"] / FLOPS


def site_B(record: Any) -> Any:
    """Return the bytes of a site and s from and to memory, of a record or of many."""
    return (record["memory_load_B"] + record["memory_store_B"]) / _updates(record)


def _options(frame: DataFrame) -> list[str]:
    """Return the kind of stores and the prefetch of each record."""
    return [
        ("non-temporal" if variant == "nt" else "ordinary")
        + " stores"
        + ", prefetch" * (prefetch > 0)
        + " into L1" * (prefetch > 0 and into == "L1")
        for variant, prefetch, into in frame[["variant", "prefetch", "prefetch_into"]].to_numpy()
    ]


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return kinds or forms in the order of a legend: by layout, cut (s first), then width.

    They may be followed by a compiler on a second line.
    """

    def order_of(kind: str) -> tuple[int, bool, str, int, str]:
        form, _, build = kind.partition("\n")
        name, _, bits = form.partition(", ")
        layout, _, cut = name.partition(" ")
        known = LAYOUTS.index(layout) if layout in LAYOUTS else len(LAYOUTS)
        return known, cut != "s", name, -int(bits.partition(" ")[0] or 0), build

    return sorted(set(kinds), key=order_of)


def of_lattices(frame: DataFrame, prefixes: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return the lattices on which layouts and options are compared, and notes on the others.

    Parameters
    ----------
    frame : DataFrame
        As of `hops`.
    prefixes : sequence of str
        Prefixes of lattices such as ``8x8x8x8``; by default those with at least half
        as many layouts and options as the lattice with most.

    Raises
    ------
    InputError
        No record has any of these lattices.
    """
    if prefixes:
        known = ", ".join(dict.fromkeys(frame["lattice"]))
        return of_prefixes(frame, "lattice", prefixes, f", only of {known}"), []
    here = [frame["machine"], frame["lattice_label"]]
    cases = (frame["form"] + frame["option"]).groupby(here).transform("nunique")
    few = cases < cases.groupby(frame["machine"]).transform("max") / 2
    left = len(frame[few].drop_duplicates(["machine", "lattice_label"]))
    return frame[~few], [f"{counted(left, 'lattice')} with fewer cases left out."] * (left > 0)


def by_form(frame: DataFrame, threads: float = 0) -> DataFrame:
    """Return the fastest record of each machine, lattice, form and option.

    Parameters
    ----------
    frame : DataFrame
        As of `hops`. If it has a column row, the fastest of each row instead of each form.
    threads : int
        Number of workers; by default the most of each machine.

    Returns
    -------
    DataFrame
        The smallest lattices first. The column held is true if the caches hold the lattice in at
        least one of the forms; distances is true if several prefetch distances were measured.

    Raises
    ------
    InputError
        No record has this number of workers.
    """
    frame = of_workers(frame, threads)
    cases = ["machine", "lattice_label", "row" if "row" in frame else "form", "option"]
    frame = frame.assign(
        held=frame.groupby(["machine", "lattice_label"])["held"].transform("any"),
        distances=frame.groupby(cases)["prefetch"].transform("nunique") > 1,
    )
    frame = best(frame, cases, value=VALUE)
    return frame.sort_values(["sites", "Ls", "lattice_label"], kind="stable")


def over_workers(frame: DataFrame, lattice: str = "") -> DataFrame:
    """Return for each machine one lattice with two or more numbers of workers.

    Parameters
    ----------
    frame : DataFrame
        As of `hops`.
    lattice : str
        Prefix of the lattice; by default the largest of those with most numbers of workers.
    """
    frame = frame[frame["lattice"].str.startswith(lattice)]
    return longest_scan(frame, "lattice_label", "threads", "sites", value=VALUE)


def over_extents(frame: DataFrame, others: str = "", threads: float = 0) -> DataFrame:
    """Return for each machine two or more lattices that differ only in Lx.

    Parameters
    ----------
    frame : DataFrame
        As of `hops`.
    others : str
        Ly, Lz and Lt, such as ``8x8x16``; by default the largest of those with most Lx.
    threads : int
        Number of workers; by default the most of each machine with two Lx.

    Raises
    ------
    InputError
        No record has this number of workers.
    """
    frame = frame.assign(rest=frame["others"] + [f", Ls {ls:g}" for ls in frame["Ls"]])
    frame = of_workers(frame, threads) if threads else frame
    frame = frame[frame["others"].eq(others)] if others else frame
    frame = frame[
        frame.groupby(["machine", "rest", "kind", "threads"])["Lx"].transform("nunique") > 1
    ]
    return longest_scan(of_workers(frame), "rest", "Lx", "sites", value=VALUE)


def by_quantity(frame: DataFrame) -> DataFrame:
    """Return records once for their performance and once for the traffic counted at each level.

    Each has the limits of its quantity, NaN for the others: roofline and ecm are of performance,
    `MODELLED` is of traffic.
    """
    frame = quantities(frame, VALUE, *COUNTED.values())
    what = frame[QUANTITY]
    modelled = frame["L2_site_B"].where(what == COUNTED["L2"], frame["memory_site_B"])
    speeds = {name: frame[name].where(what == VALUE) for name in (ROOFLINE, "ecm")}
    return frame.assign(**speeds, **{MODELLED: modelled.mask(what == VALUE)})


def energies(frame: DataFrame) -> DataFrame:
    """Return the `changes` from RRII to RIRI, by the fastest record of each with energy.

    They are of the frame of `hops`; there are none if no lattice has both layouts with energy.
    """
    rows = typed(frame, ("energy_J", "time_median_s", "clock_limit"))
    rows = rows[rows["energy_J"] > 0].fillna({"clock_limit": 0.0})
    case = ["machine", "lattice_label", "threads", "clock_limit"]
    rows = best(rows, (*case, "layout"), value=VALUE)
    riri, rrii = (rows[rows["layout"] == layout] for layout in ("RIRI", "RRII"))
    return changes(riri, rrii, case)


def last_cache(rows: DataFrame) -> tuple[int, int] | None:
    """Return size in bytes and number of the last-level cache, None if it is unknown."""
    known = data_caches(environments_of(rows))
    keys = rows["environment_id"].unique() if "environment_id" in rows else ()
    caches = next((known[key] for key in keys if known.get(key)), [])
    return caches[-1][1:] if caches else None


def first_kind(rows: DataFrame) -> list[dict[Any, Any]]:
    """Return the records of the first kind in the order of a legend, over Lx."""
    return rows[rows["kind"] == in_order(rows["kind"])[0]].sort_values("Lx").to_dict("records")


def holding(rows: DataFrame) -> list[tuple[str, int]]:
    """Return each layer condition that the last cache fulfils for `first_kind`, and its largest Lx.

    There are none if the cache is unknown.
    """
    line, cache = first_kind(rows), last_cache(rows)
    if cache is None:
        return []
    row = line[-1]
    sharing = math.ceil(row["threads"] / cache[1])

    def condition(lx: int) -> str:
        return LayerConditions.of_record(row, f"{lx}x{row['others']}").holds(cache[0], sharing)

    unit = LayerConditions.of_record(row).cuts[0] * (1 if row["parity"] == "full" else 2)
    extents = range(math.ceil(line[0]["Lx"] / unit) * unit, int(row["Lx"]) + 1, unit)
    return [(name, max(each)) for name, each in itertools.groupby(extents, condition)]
