"""Expected values of figures of merit: what others published for the same processor.

The tables ``published-processors``, ``published-figures`` and ``published-generations`` of
`memkern.reference` hold values of whole sockets and of single cores, each with its source. They
are scaled to the cores and sockets that a figure used: a part of a socket is never compared with
a whole one. A range that spans more than a factor of two gives no verdict. Without a published
value only the theoretical peak by channels and transfer rate is known, which gives none either.

A processor is recognised by its name. If several have this name, as on Arm, the number of cores
of a socket decides if one of them has it; otherwise the range spans all. If the table has no
entry of a name, or a hypervisor hides it, the range spans the models of the generation by CPUID.

Ordinary stores first read the lines that they write. Non-temporal ones do not, and neither do
stores of the Arm processors in the table except the A64FX (a copy of the ThunderX2 is as fast as
its loads). Values are compared with those of the same kind of stores. If there are none, the
bytes of these reads limit the conversion: a copy moves two or three arrays, a triad three or four.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memkern import reference
from memkern.backends import ACCELERATORS
from memkern.models.memory import NONTEMPORAL, ORDINARY
from memkern.models.merit import FigureOfMerit

_UNITS = {
    **dict.fromkeys(("copy", "triad", "load", "gather_stride_1", "gather_stride_8"), "GB/s"),
    "latency": "ns",
}

# Least and largest share of a published bandwidth of the same processor: most sources that agree in
# memory and stores differ by up to 10 %, and memory that is a step slower costs 10 %.
_MARGINS = (0.85, 1.1)
# The same of other models of the generation, which differ by up to 25 % in the table.
_MARGINS_OF_OTHERS = (0.75, 1.25)
# Largest share of a published bandwidth of one core: cores of a generation differ by up to 40 % in
# the table, with their clocks.
LARGEST_OF_CORE = 1.4
# Most that small pages may add to a latency: no source has values for them.
_SMALL_PAGES = 1.5
# Largest ratio of the ends of a range that decides.
_MOST_SPAN = 2.0
# A source that used at least this share of the cores measured whole sockets.
_ALL_CORES = 0.9

# Bytes moved with reads of the written lines, relative to those without.
_WITH_READS = {"copy": 3 / 2, "triad": 4 / 3}
_READ_LINES = ("AMD", "Fujitsu", "Intel")
# Share of a line that is used.
_USED = {"gather_stride_8": 1 / 8}


@dataclass(frozen=True)
class Source:
    """A published figure or specification.

    Attributes
    ----------
    title, address, read : str
        Its source, and the date on which it was read.
    processor : str
    quantity, unit : str
        A name of a figure, or ``theoretical peak``.
    value : float
    sockets : float
        Sockets that were measured.
    cores : int or None
        Cores that were measured.
    cores_per_socket, channels : int or None
        Cores and memory channels of a socket.
    memory, stores, method, instance : str
        Memory, kind of stores, method, and instance of a cloud; empty if unknown.
    """

    title: str
    address: str
    read: str
    processor: str
    quantity: str
    unit: str
    value: float
    sockets: float
    cores: int | None
    cores_per_socket: int | None
    channels: int | None
    memory: str
    stores: str
    method: str
    instance: str

    @property
    def per_socket(self) -> float:
        """The value by sockets."""
        return self.value / self.sockets


@dataclass(frozen=True)
class Expected:
    """The range in which a figure of merit is expected.

    Attributes
    ----------
    low, high : float
        Ends of the range; from 0 to the theoretical peak if none is published.
    unit : str
    published : bool
        Whether it follows from published values; otherwise it is computed from channels and rate.
    peak : float
        Theoretical peak of the sockets that may have been used; NaN if unknown.
    shared : bool
        Whether others may use the same sockets: virtual machines, and parts of a socket.
    sources : tuple of Source
    sentence : str
        What the range is of, and how it was scaled.
    """

    low: float
    high: float
    unit: str
    published: bool
    peak: float
    shared: bool
    sources: tuple[Source, ...]
    sentence: str

    @property
    def decides(self) -> bool:
        """Whether a verdict follows: published values span at most a factor of two."""
        return self.published and self.high <= _MOST_SPAN * self.low

    @property
    def undecided(self) -> str:
        """Why no verdict follows from a range that does not decide."""
        if not self.published:
            return "no value of this processor is published"
        if self.shared and self.unit != _UNITS["latency"]:
            return "others may use the rest of the socket"
        return "published values leave more than a factor of two open"


class _Candidate(NamedTuple):
    """A processor that a machine may have.

    `models` are its rows in the table, `cores` and `peak` of a socket, 0 and NaN if unknown.
    """

    label: str
    models: tuple[str, ...]
    generation: str
    reads_lines: bool
    cores: int
    peak: float
    listed: bool


class _Bound(NamedTuple):
    """The range in which another measurement may be by a published value."""

    low: float
    high: float
    source: Source


def expected(
    name: str,
    environment: Mapping[str, Any],
    threads: int,
    *,
    stores: str = NONTEMPORAL,
    pages: str = "",
) -> Expected | None:
    """Return the expected range of a figure of merit.

    Parameters
    ----------
    name : str
        ``copy``, ``triad``, ``load``, ``latency``, ``gather_stride_1`` or ``gather_stride_8``.
    environment : mapping
        Of the machine, as stored with records.
    threads : int
        Threads of all ranks that measured. Those of a core count once.
    stores : str
        Kind of stores of a copy or triad, as of `memkern.models.memory.stores`.
    pages : str
        Page size of a latency, as in records; small pages if empty.

    Returns
    -------
    Expected or None
        None for other figures and for processors about which the tables have nothing.
    """
    machine = environment.get("machine") or {}
    candidates = _candidates(machine) or _by_modules(environment) if name in _UNITS else []
    if not candidates:
        return None
    ranges = [
        _latency(candidate, pages, machine)
        if name == "latency"
        else _bandwidth(candidate, name, threads, stores, machine)
        for candidate in candidates
    ]
    found = [each for each in ranges if each is not None]
    if len(found) < len(ranges):
        return None
    several = ["the name of the processor fits several"] * (len(found) > 1)
    return Expected(
        min(each.low for each in found),
        max(each.high for each in found),
        _UNITS[name],
        all(each.published for each in found),
        max(each.peak for each in found) if all(each.peak > 0 for each in found) else math.nan,
        any(each.shared for each in found),
        tuple(dict.fromkeys(source for each in found for source in each.sources)),
        "; ".join([*several, *(each.sentence for each in found)]),
    )


def expected_of(figure: FigureOfMerit, environment: Mapping[str, Any]) -> Expected | None:
    """Return the expected range of a figure of merit, as `expected_of_record`."""
    return expected_of_record(figure.name, figure.record, environment)


def expected_of_record(
    name: str, record: Mapping[str, Any], environment: Mapping[str, Any]
) -> Expected | None:
    """Return the expected range of a figure by the threads, stores and pages of its record.

    Parameters
    ----------
    name : str
        As for `expected`.
    record : mapping
    environment : mapping
        Of its machine.

    Returns
    -------
    Expected or None
        As of `expected`; None for records of GPUs and of several hosts.
    """
    ranks = _count(record.get("ranks")) or 1
    if record.get("backend") in ACCELERATORS or ranks > (
        _count(record.get("ranks_per_node")) or ranks
    ):
        return None
    return expected(
        name,
        environment,
        ranks * (_count(record.get("threads")) or 1),
        stores=NONTEMPORAL if record.get("variant") == "nt" else ORDINARY,
        pages=str(record.get("pages") or ""),
    )


def compared(figure: FigureOfMerit, expected: Expected | None) -> tuple[str, str]:
    """Compare a figure of merit with its expected range.

    Parameters
    ----------
    figure : FigureOfMerit
    expected : Expected or None

    Returns
    -------
    word : str
        ``as expected``; ``below`` or ``above`` the range; ``unknown``, always if the range does not
        decide, unless the value is above the theoretical peak.
    sentence : str
    """
    if expected is None:
        return "unknown", "No published value of this processor is known."
    value, unit = figure.value, expected.unit
    if not figure.is_time and value > expected.peak:
        return "above", (
            f"{value:.4g} {unit} are above the theoretical peak of {expected.peak:.4g} {unit}: "
            "implausible, check the size of the data and the modules of the memory."
        )
    if not expected.decides:
        return "unknown", f"No verdict: {expected.undecided}."
    between = f"{expected.low:.4g} to {expected.high:.4g} {unit}"
    if figure.disturbed:
        return "unknown", f"Expected are {between}; the record is disturbed and decides nothing."
    if expected.low <= value <= expected.high:
        return "as expected", f"{value:.4g} {unit} are in the expected range of {between}."
    word = "below" if value < expected.low else "above"
    worse = (word == "above") == figure.is_time
    cause = "; other users of the host can cause this, so that it is no sign of a fault"
    return word, (
        f"{value:.4g} {unit} are {word} the expected range of {between}"
        f"{cause * (worse and expected.shared)}."
    )


def _candidates(machine: Mapping[str, Any]) -> list[_Candidate]:
    """Return the processors that a machine may have."""
    model = str(machine.get("model") or "")
    named = [row for row in _processors() if row["match"] and re.search(row["match"], model, re.I)]
    cores, sockets = _count(machine.get("cores")), _count(machine.get("sockets")) or 1
    by = ""
    if len(named) > 1:
        alike = [row for row in named if row["cores"] == cores / sockets]
        named, by = alike or named, " (by its number of cores)" * bool(alike)
    if named:
        return [
            _candidate(f"{row['processor']}{by}", [row], row["generation"], listed=True)
            for row in named
        ]
    generation = _generation(machine, model)
    rows = [row for row in _processors() if row["generation"] == generation]
    if not rows:
        return []
    by = "the CPUID that the hypervisor shows" if machine.get("hypervisor") else "its CPUID"
    return [_candidate(f"{model} (generation {generation} by {by})", rows, generation)]


def _by_modules(environment: Mapping[str, Any]) -> list[_Candidate]:
    """Return the unknown processor whose memory modules the system reports, if it does."""
    machine, memory = environment.get("machine") or {}, environment.get("memory") or {}
    if not memory.get("peak_GBps"):
        return []
    sockets = _count(machine.get("sockets")) or 1
    cores = _count(machine.get("cores")) // sockets
    peak, reads = memory["peak_GBps"] / sockets, machine.get("architecture") == "x86_64"
    return [
        _Candidate(str(machine.get("model") or "this processor"), (), "", reads, cores, peak, True)
    ]


def _candidate(
    label: str, rows: Sequence[Mapping[str, Any]], generation: str, listed: bool = False
) -> _Candidate:
    peaks = [_peak(row) for row in rows]
    if not listed and any(peak > 0 for peak in peaks):  # an unlisted model may have the most of all
        known = [row for row in rows if row["channels"] and row["width_B"]]
        rate = max(row["rate_MTps"] or 0 for row in rows)
        peaks.append(max(row["channels"] * row["width_B"] for row in known) * rate / 1e3)
    models = tuple(row["processor"] for row in rows)
    peaks += [_memory_peak(source) for source in _published() if source.processor in models]
    return _Candidate(
        label,
        models,
        generation,
        rows[0]["vendor"] in _READ_LINES,
        max(row["cores"] or 0 for row in rows),
        max((peak for peak in peaks if peak > 0), default=math.nan),
        listed,
    )


def _generation(machine: Mapping[str, Any], model: str) -> str:
    """Return the generation by the CPUID, empty if unknown."""
    numbers = [_count(machine.get(name), -1) for name in ("family", "model_number", "stepping")]
    for row in reference.rows("published-generations"):
        first, _, last = row["steppings"].partition("-")
        if (
            machine.get("vendor") == row["vendor"]
            and numbers[:2] == [row["family"], row["model_number"]]
            and (not first or int(first) <= numbers[2] <= int(last or first))
            and re.search(row["match"], model, re.I)
        ):
            return str(row["generation"])
    return ""


def _used(machine: Mapping[str, Any], threads: int) -> tuple[int, int]:
    """Return the cores that threads use, and the most sockets that these may be on.

    Each socket has a NUMA node or more.
    """
    cores = min(threads, _count(machine.get("cores")) or threads)
    nodes = len(machine.get("numa_nodes") or ()) or 1
    return cores, max(1, min(_count(machine.get("sockets")) or 1, nodes, cores))


def _figures(candidate: _Candidate, name: str) -> tuple[list[Source], bool]:
    """Return the published figures of a candidate, else of its generation, and whether of it."""
    own = [source for source in _published() if source.quantity == name]
    mine = [source for source in own if source.processor in candidate.models]
    if any(source.cores != 1 or name == "latency" for source in mine):
        return mine, True
    models = [r["processor"] for r in _processors() if r["generation"] == candidate.generation]
    return [source for source in own if source.processor in models], False


def _bandwidth(
    candidate: _Candidate, name: str, threads: int, stores: str, machine: Mapping[str, Any]
) -> Expected | None:
    found, own = _figures(candidate, name)
    whole = _bounds(_whole_sockets(found), candidate, name, stores, own)
    single = _bounds([s for s in found if s.cores == 1], candidate, name, stores, own=True)
    used, most_sockets = _used(machine, threads)
    cores = candidate.cores or used
    share = used / cores
    sockets = max(math.ceil(share), most_sockets)
    peak = sockets * candidate.peak * _USED.get(name, 1)
    shared = bool(machine.get("hypervisor")) or share < sockets
    each = f"{'' if candidate.listed else 'up to '}{cores} cores"
    of = f"of {each} of a socket" if sockets == 1 else f"cores of {sockets} sockets with {each}"
    what = f"{used} {of} of {candidate.label}"
    if not whole:
        return _computed(candidate, name, peak, shared, what)
    least, most = min(whole, key=lambda b: b.low), max(whole, key=lambda b: b.high)
    smallest, largest = _margins(candidate, own)
    low, high = share * least.low * smallest, sockets * most.high * largest
    all_of = "all of it" if most.source is least.source else f"{_cited(most.source)} of a socket"
    end = f"{all_of} plus {largest - 1:.0%}"
    if single:
        best = max(single, key=lambda b: b.high)
        if used * best.high * LARGEST_OF_CORE < high:
            most, high = best, used * best.high * LARGEST_OF_CORE
            end = f"{used} times {_cited(best.source)} of a core plus {LARGEST_OF_CORE - 1:.0%}"
    converted = any(bound.low < bound.high for bound in (least, most))
    by = f", converted to {stores} stores by a factor of up to {_WITH_READS.get(name, 1):.3g}"
    others = ", values of other models of the generation, by channels and rate if known"
    sentence = (
        f"{what}: from {'an equal share of ' * (share < 1)}{_cited(least.source)} of a socket less "
        f"{1 - smallest:.0%} to {end}{by * converted}{others * (not own and candidate.listed)}"
    )
    return Expected(
        low,
        min(high, peak) if peak > 0 else high,
        "GB/s",
        True,
        peak,
        shared,
        tuple(dict.fromkeys([least.source, most.source])),
        sentence,
    )


def _computed(
    candidate: _Candidate,
    name: str,
    peak: float,
    shared: bool,
    what: str,
) -> Expected | None:
    """Return the range up to the peak by channels and rate; None if these are unknown."""
    if not peak > 0:
        return None
    per_socket = candidate.peak * _USED.get(name, 1)
    sources = tuple(
        _specification(row)
        for row in _processors()
        if row["processor"] in candidate.models and (row["channels"] or row["rate_MTps"])
    )
    source = sources[0].title if sources else "the memory modules that the system reports"
    sentence = (
        f"{what}: computed, not published, from the theoretical peak of a socket of "
        f"{per_socket:.4g} GB/s (channels x rate; {source})"
    )
    return Expected(0.0, peak, "GB/s", False, peak, shared, sources, sentence)


def _latency(candidate: _Candidate, pages: str, machine: Mapping[str, Any]) -> Expected | None:
    found, own = _figures(candidate, "latency")
    if not found:
        return None
    least, most = min(found, key=lambda s: s.value), max(found, key=lambda s: s.value)
    small = not re.search("thp|hugetlb", pages)
    smallest, largest = _margins(candidate, own)
    low, high = least.value / largest, most.value / smallest * (_SMALL_PAGES if small else 1)
    walks = f", and plus {_SMALL_PAGES - 1:.0%} for walks of the small pages measured here"
    sentence = (
        f"idle latency of {candidate.label}: from {_cited(least)} to "
        f"{_cited(most)}, with huge pages or without the time of page walks, less "
        f"{1 - 1 / largest:.0%} and plus {1 / smallest - 1:.0%}{walks * small}"
    )
    shared, sources = bool(machine.get("hypervisor")), tuple(dict.fromkeys([least, most]))
    return Expected(low, high, "ns", True, math.nan, shared, sources, sentence)


def _margins(candidate: _Candidate, own: bool) -> tuple[float, float]:
    return _MARGINS if own and candidate.listed else _MARGINS_OF_OTHERS


def _bounds(
    sources: Sequence[Source], candidate: _Candidate, name: str, stores: str, own: bool
) -> list[_Bound]:
    """Return the bandwidths of a socket or core with a kind of stores by published figures.

    Those of other models are scaled by channels and rate, if both are known.
    """
    alike = [s for s in sources if _factor(s, candidate, name, stores) == 1] or sources
    most = candidate.peak * _USED.get(name, 1)
    found = []
    for source in alike:
        factor = _factor(source, candidate, name, stores)
        value = source.per_socket
        peak = _memory_peak(source)
        if not own and peak > 0 and candidate.peak > 0:
            value *= candidate.peak / peak
        ends = (value, value * factor) if stores == NONTEMPORAL else (value / factor, value)
        found.append(_Bound(ends[0], min(ends[1], most) if most > 0 else ends[1], source))
    return found


def _factor(source: Source, candidate: _Candidate, name: str, stores: str) -> float:
    """Return by how much a value may change with the kind of stores; 1 if it is the same."""
    alike = source.stores == stores or not candidate.reads_lines
    return 1.0 if alike else _WITH_READS.get(name, 1.0)


def _whole_sockets(sources: Sequence[Source]) -> list[Source]:
    """Return the figures of whole sockets, and of fewer cores if these were the fastest."""
    # Of each processor and address, the last and fastest one stays.
    fastest = {
        (source.processor, source.address): source.per_socket
        for source in sorted(sources, key=lambda source: source.per_socket)
    }
    return [
        source
        for source in sources
        if source.cores != 1
        and (
            not source.cores
            or not source.cores_per_socket
            or source.cores >= _ALL_CORES * source.sockets * source.cores_per_socket
            or source.per_socket == fastest[source.processor, source.address]
        )
    ]


@functools.cache
def _processors() -> tuple[dict[str, Any], ...]:
    return tuple(reference.rows("published-processors"))


@functools.cache
def _published() -> tuple[Source, ...]:
    """Return all published figures."""
    return tuple(map(_figure, reference.rows("published-figures")))


def _figure(row: Mapping[str, Any]) -> Source:
    """Return a published figure, with the cores and channels of a socket if these are known."""
    spec = _row_of(row["processor"])
    known = {"channels": row["channels"] or spec["channels"], "cores_per_socket": spec["cores"]}
    return Source(**{k: row[k] for k in row if k != "source"} | known)


def _row_of(processor: str) -> dict[str, Any]:
    return next(row for row in _processors() if row["processor"] == processor)


def _peak(row: Mapping[str, Any]) -> float:
    """Return the theoretical peak of a socket by a row of the specifications; NaN if unknown."""
    factors = [row["channels"], row["rate_MTps"], row["width_B"]]
    return math.prod(factors) / 1e3 if all(factors) else math.nan


def _memory_peak(source: Source) -> float:
    """Return the theoretical peak of a socket with the memory of a published figure."""
    rate = re.search(r"(?:DIMM|DDR\d)-(\d+)$", source.memory)
    if rate and source.channels:
        return source.channels * int(rate[1]) * 8 / 1e3
    return _peak(_row_of(source.processor))


def _specification(row: Mapping[str, Any]) -> Source:
    return Source(
        **{name: row[name] for name in ("title", "address", "read", "processor", "channels")},
        cores=row["cores"],
        quantity="theoretical peak",
        unit="GB/s",
        value=_peak(row),
        sockets=1,
        cores_per_socket=row["cores"],
        memory=f"{row['rate_MTps']} MT/s",
        stores="",
        method=f"channels x rate x {row['width_B']} B",
        instance="",
    )


def _cited(source: Source) -> str:
    return f"{source.per_socket:.4g} {source.unit} ({source.title})"


def _count(value: Any, unknown: int = 0) -> int:
    """Return a whole number of a record or environment."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return unknown
