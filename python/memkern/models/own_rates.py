"""What a machine's own records say about its bandwidth from memory.

They take the place of published values where these do not decide: channels times transfer rate,
the best of copy, load and triad of the same run, and the loads in flight that a core sustains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from memkern.machine.caches import FROM_MEMORY

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
        return f"{100 * GBps / self.GBps:.0f} % of the {self.GBps:.3g} GB/s of {self.what}"


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
        found.append(OwnRate("best", best["bandwidth_GBps"], what))
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
