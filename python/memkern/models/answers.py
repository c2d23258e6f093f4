"""Sentences that answer whether what was measured is healthy, and what bounds it.

Where published values do not decide, a machine's own records take their place: channels times
transfer rate, the best of copy, load and triad of the same run, and the loads in flight that a core
sustains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from memkern import reference
from memkern.backends import HOST
from memkern.machine.caches import FROM_MEMORY, LEAST_MEMORY_S, PUBLISHED_LATENCIES
from memkern.machine.health import DISTURBED
from memkern.results.explanation import has_experiments
from memkern.statistics import meaningful

# Its parts have records of their own.
_ROTATION = "stream.rotation"

Record = Mapping[Any, Any]

CHASE = "latency.chase"
_STREAMS = ("stream.copy", "stream.triad", "loops.load")


class OwnRate(NamedTuple):
    """A bandwidth of the same machine that another one is set against.

    Attributes
    ----------
    name : str
        ``channels``, ``best`` or ``in flight``.
    GBps : float
    what : str
        What it is of, after its value.
    """

    name: str
    GBps: float
    what: str

    def beside(self, GBps: float) -> str:
        """Return the phrase that sets another bandwidth in GB/s against it."""
        return f"{100 * GBps / self.GBps:.0f} % of the {meaningful(self.GBps)} GB/s of {self.what}"


def own_rates(
    record: Record, records: Iterable[Record], environment: Mapping[str, Any], peak_GBps: float
) -> list[OwnRate]:
    """Return the bandwidths that one from memory is set against.

    Parameters
    ----------
    record : mapping
        Of the bandwidth, with kernel and threads.
    records : iterable of mapping
        All records of the same run.
    environment : mapping
        Of the machine.
    peak_GBps : float
        Theoretical peak of the sockets that may have been used, in GB/s; NaN if unknown.

    Returns
    -------
    list of OwnRate
        The peak; the best of copy, load and triad with as many threads, if another kernel than that
        of the record is the best; and by Little's law the lines in flight over the latency, unless
        the record has more. Only valid and undisturbed records from memory count.
    """
    sure = [
        one
        for one in records
        if one.get("valid") is True
        and one.get("disturbed") is not True
        and (one.get("caches_multiple") or 0) >= FROM_MEMORY
    ]
    found = [OwnRate("channels", peak_GBps, "channels x rate")] if peak_GBps > 0 else []
    streams = [
        one
        for one in sure
        if one["kernel"] in _STREAMS and one.get("threads") == record.get("threads")
    ]
    best = max(streams, key=lambda one: float(one["bandwidth_GBps"]), default=record)
    if best["kernel"] != record["kernel"]:
        what = f"the best of copy, load and triad ({best['kernel'].partition('.')[2]})"
        found += [OwnRate("best", best["bandwidth_GBps"], what)]
    in_flight = _in_flight(sure, cores_of(record, environment))
    # Streams with prefetchers have more loads in flight than these chases.
    return found + [one for one in in_flight if one.GBps >= record["bandwidth_GBps"]]


def cores_of(record: Record, environment: Mapping[str, Any]) -> int:
    """Return the number of cores that the threads of a record use."""
    threads = int(record.get("threads") or 1)
    return min(threads, int((environment.get("machine") or {}).get("cores") or threads))


def _in_flight(records: Iterable[Record], cores: int) -> list[OwnRate]:
    """Return the bandwidth of the loads that cores have in flight, by chases of several chains."""
    chases = [
        one
        for one in records
        if one["kernel"] == CHASE and (one["order"], one["threads"]) == ("random", 1)
    ]
    alone = max(
        (one for one in chases if one["chains"] == 1), key=lambda one: one["size_B"], default={}
    )
    several = [one for one in chases if one["size_B"] == alone.get("size_B") and one["chains"] > 1]
    if not several:
        return []
    fastest = min(several, key=lambda one: one["ns_per_access"])
    line_B, ns, alone_ns = fastest["line_B"], fastest["ns_per_access"], alone["ns_per_access"]
    what = (
        f"the loads in flight that {cores} core{'s' * (cores > 1)} can sustain "
        f"({alone_ns / ns:.2g} lines of {line_B:.0f} B)"
    )
    return [OwnRate("in flight", cores * line_B / ns, what)]


class Compared(NamedTuple):
    """What a record from memory is compared with.

    Attributes
    ----------
    value : float
        Value of the record, in the unit of the range.
    low, high : float
        Range of healthy values if it decides, else what no memory is beyond.
    what : str
        The value with its unit.
    against : str
        The range and its source, or what else is known where no range decides.
    most : str
        What no memory is beyond, and its source.
    decides : bool
        Whether a verdict follows from the range.
    is_time : bool
        Whether smaller values are better.
    shared : bool
        Whether a value may be worse because others use the same host.
    """

    value: float
    low: float
    high: float
    what: str
    against: str
    most: str
    decides: bool
    is_time: bool = False
    shared: bool = False

    @property
    def healthy(self) -> bool:
        """Whether the value is neither worse nor better than what is known."""
        return self.low <= self.value <= self.high

    @property
    def better(self) -> bool:
        """Whether the value is better than those from memory."""
        return self.value < self.low if self.is_time else self.value > self.high


def most_of_a_core_GBps() -> float:
    """Return the largest bandwidth from memory that a core may have, by the published values."""
    from memkern.models.expected import LARGEST_OF_CORE

    return LARGEST_OF_CORE * max(
        float(row["value"])
        for row in reference.rows("published-figures")
        if row["cores"] == 1 and row["unit"] == "GB/s"
    )


# Figures of which there are published values, by kernel.
_FIGURES = {
    "stream.copy": "copy",
    "stream.triad": "triad",
    "loops.load": "load",
    CHASE: "latency",
}


def _comparable(record: Record) -> bool:
    """Return whether there are published values of a record's kernel, if its data are in memory."""
    kernel = str(record.get("kernel"))
    if record.get("backend") != HOST.name or kernel == _ROTATION:
        return False
    if kernel == CHASE:  # other orders, and several chains, hide a part of the latency
        return (record["order"], record["chains"]) == ("random", 1)
    return kernel in _FIGURES or kernel.startswith("stream.")


def compared(
    record: Record, environment: Mapping[str, Any], records: Iterable[Record] = ()
) -> Compared:
    """Return what a record from memory is compared with.

    Without a range that decides, these are other values of the same machine.

    Parameters
    ----------
    record : mapping
        Of a kernel for which there are published values (see `_comparable`).
    environment : mapping
        Of the record; empty if unknown.
    records : iterable of mapping
        All records of the same run.
    """
    from memkern.models.expected import expected_of_record

    kernel = str(record["kernel"])
    is_time = kernel == CHASE
    name, unit, column, width = (
        ("latency of memory", "ns", "ns_per_access", "ci_relative")
        if is_time
        else (kernel.partition(".")[2], "GB/s", "bandwidth_GBps", "time_min_ci_relative")
    )
    value = float(record[column])
    what = f"{name} {meaningful(value, record.get(width) or 0.0)} {unit}"
    known = expected_of_record(_FIGURES.get(kernel, ""), record, environment)
    if known is not None and known.decides:
        titles = "; ".join(dict.fromkeys(source.title for source in known.sources))
        against = (
            f"{meaningful(known.low)} to {meaningful(known.high)} {unit} of this processor by "
            f"published values ({titles})"
        )
        return Compared(
            value, known.low, known.high, what, against, against, True, is_time, known.shared
        )
    why = known.undecided if known else "no value of this processor is published"
    if is_time:
        return Compared(
            value,
            LEAST_MEMORY_S * 1e9,
            math.inf,
            what,
            why,
            f"{LEAST_MEMORY_S * 1e9:.0f} ns: {PUBLISHED_LATENCIES}",
            False,
            is_time,
        )
    peak = known.peak if known else math.nan
    against = "; ".join(
        [why, *(rate.beside(value) for rate in own_rates(record, records, environment, peak))]
    )
    of_cores = cores_of(record, environment) * most_of_a_core_GBps()
    most, source = min(
        (of_cores, "the largest published bandwidth of a core"),
        (peak if peak > 0 else math.inf, "channels x rate"),
    )
    return Compared(value, 0.0, most, what, against, f"{meaningful(most)} GB/s by {source}", False)


def health_sentence(
    records: Iterable[Record], environments: Mapping[str, Any] | None = None
) -> str:
    """Return the sentence on whether what was measured is healthy, and against what.

    Of several records the best one from memory counts that is neither invalid nor disturbed, of
    latencies over several sizes the median one.

    Parameters
    ----------
    records : iterable of mapping
    environments : mapping, optional
        Environments of the records, by their identity.
    """
    records = list(records)
    possible = [record for record in records if _comparable(record)]
    if possible and not any(map(_is_from_memory, possible)):
        return (
            "whether this is healthy can't be told: no data come from memory alone, and no values "
            "of the caches are known: give a larger size"
        )
    known = _known(records, environments)
    sure, best = _best(known)
    if best is None:
        return (
            "whether this is healthy can't be told: no value is known to compare it with; keep it "
            "(-o), and compare a later run with it (memkern compare)"
        )
    if not sure:
        return f"{best.what}: whether this is healthy can't be told, since samples are disturbed"
    doctor = next((str(r["doctor"]) for r, _ in reversed(known) if r.get("doctor")), "")
    verdict = f"; memkern doctor found this machine {doctor}" if doctor else ""
    disturbed = doctor.startswith(DISTURBED) or any(r.get("disturbed") for r, _ in known)
    word = "as is usual" if disturbed else "healthy"
    if best.better:
        return (
            f"{best.what}: better than is known from memory, against {best.most}; caches may "
            "hold the data: give a larger size, and see memkern latency structure "
            "for their sizes"
        )
    if not best.decides:
        return f"{best.what}: no verdict, since {best.against}{verdict}"
    if best.healthy:
        return f"{best.what}: {word}, against {best.against}{verdict}"
    if best.shared:
        return (
            f"{best.what}: worse than is usual, against {best.against}; others may use the same "
            f"host, so that it is no sign of a fault{verdict}"
        )
    verdict = verdict or "; memkern doctor looks for the reason"
    return f"{best.what}: not healthy, against {best.against}{verdict}"


def is_healthy(records: Iterable[Record], environments: Mapping[str, Any] | None = None) -> bool:
    """Return whether all records are valid, and the best one from memory is as is known.

    Parameters
    ----------
    records, environments
        As for `health_sentence`.
    """
    records = list(records)
    sure, best = _best(_known(records, environments))
    valid = all(record.get("valid") is True for record in records)
    return valid and (best is None or not sure or best.healthy)


def _known(
    records: Sequence[Record], environments: Mapping[str, Any] | None
) -> list[tuple[Record, Compared]]:
    """Return the records from memory that can be compared, with what they are compared with."""
    return [
        (
            record,
            compared(
                record, (environments or {}).get(str(record.get("environment_id")), {}), records
            ),
        )
        for record in records
        if _comparable(record) and _is_from_memory(record)
    ]


def _best(known: list[tuple[Record, Compared]]) -> tuple[bool, Compared | None]:
    """Return whether a record is neither invalid nor disturbed, and the best of these or of all.

    Those of which a range decides are preferred; None is the best of none. Of the latencies over
    several sizes the median one counts, as in their table.
    """
    sure = [one for record, one in known if record.get("valid") and not record.get("disturbed")]
    every = sure or [one for _, one in known]
    times = sorted(one.value for one in every if one.is_time)
    best = max(
        (one for one in every if not (one.is_time and one.value < times[(len(times) - 1) // 2])),
        key=lambda one: (one.decides, -one.value if one.is_time else one.value),
        default=None,
    )
    return bool(sure), best


def _is_from_memory(record: Record) -> bool:
    return float(record.get("caches_multiple") or 0) >= FROM_MEMORY


def limit_sentence(records: Iterable[Record]) -> str:
    """Return the sentence on what bounds the records, their share of it, and how to know why.

    Parameters
    ----------
    records : iterable of mapping
        With the columns of the roofline of a machine file.
    """
    sure = [record for record in records if record.get("valid") and not record.get("disturbed")]
    bounded = [record for record in sure if record.get("bound")]
    if not bounded:
        why = "no record has a roofline" if sure else "all records are disturbed"
        return f"what bounds this can't be told: {why}"
    counts = Counter(str(record["bound"]) for record in bounded)
    bound, number = counts.most_common(1)[0]
    of = f" ({number} of {len(bounded)} records)" if len(counts) > 1 else ""
    own = [record for record in bounded if record["bound"] == bound]
    source = own[0]["machine_file"]
    known = {float(record["roofline_min_fraction"]) for record in own}
    shares = sorted(share for share in known if share == share)
    if not shares:
        return (
            f"bound by {bound}{of}, which was faster than in {source}: measure that file again "
            "(memkern machine)"
        )
    share = f"{shares[0]:.0%}" + (f" to {shares[-1]:.0%}" if len(shares) > 1 else "")
    more = "; add --explain to see why and what helps" * any(map(has_experiments, own))
    return f"bound by {bound}{of}: {share} of the roofline by {source}{more}"


def peer_sentence(peer: str, records: Iterable[Record], statistic: str) -> str:
    """Return the sentence on why results differ from those of another program.

    It is empty for records of devices and of ranks.

    Parameters
    ----------
    peer : str
        Name of the program.
    records : iterable of mapping
    statistic : str
        How the statistics of the two programs differ.
    """
    own = [record for record in records if record.get("backend") == HOST.name]
    if not own:
        return ""
    variants = _named(f"{record['variant']}/{record['isa']}" for record in own)
    pages = _named(str(record["pages"]) for record in own)
    pinned = {record.get("pin") for record in own} != {"none"}
    stores = " with non-temporal stores" * any(str(r["variant"]).startswith("nt") for r in own)
    return (
        f"differences from {peer}: {statistic}; the code is variant {variants}{stores}, that of "
        f"{peer} as its compiler makes it; pages are {pages} and workers "
        f"{'pinned' if pinned else 'not pinned'}, with {peer} as the system chooses"
    )


def _named(values: Iterable[str]) -> str:
    """Return the different values, at most three."""
    names = [*dict.fromkeys(values)]
    return ", ".join([*names[:3], *["..."] * (len(names) > 3)])
