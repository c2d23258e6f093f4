"""Findings of the doctor from its samples and records, with advice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.engine.placing.watching import CoreWatch
from memkern.engine.public import DELAYS_UNKNOWN, Activity, Measurement
from memkern.engine.recording.samples import CORE_SHARE, WAITED_SHARE, names_of
from memkern.formats import ResultSet
from memkern.host import this_host
from memkern.host.distances import SHARED, class_at
from memkern.machine import health, smbios
from memkern.machine.caches import LEAST_MEMORY_S, MEMORY, PUBLISHED_LATENCIES, data_caches
from memkern.machine.health import BAD, BASELINE, GOOD, NOTE, UNKNOWN, Finding, graded
from memkern.models.peak import peak_of_processors
from memkern.results.explanation import has_experiments
from memkern.results.hosts import memory_notes
from memkern.results.ratios import ratio
from memkern.results.verdicts import FASTER, SLOWER
from memkern.spec.case import Case
from memkern.spec.options import PLACEMENTS
from memkern.statistics import half_width
from memkern.studies.turns import add_turns

_Floats = npt.NDArray[np.float64]

LOAD, TRIAD, CHASE = "loops.load", "stream.triad", "latency.chase"
SUBJECTS = {LOAD: "load", TRIAD: "triad", CHASE: "latency"}

_PEAK, _NEXT_RUNS = "share of peak", "next runs"
# Subjects whose text is printed even if there is no advice.
MEASURED = {*SUBJECTS.values(), _PEAK, _NEXT_RUNS, "exchanges", BASELINE}

_AGAIN = "check again when nothing else runs, and without --quick"
_FREE_MEMORY = (
    "stop programs that need the memory, or lift its limit (see free, top, ulimit -v), and try "
    "again"
)

_FIND_CACHES = (
    "caches hold the data: find the caches with memkern latency structure, and check again without "
    "--quick"
)

# Limits of the states note and bad.
_AWAY = 0.01  # share of the time without a processor
_STEAL = 0.01  # share of the time that the hypervisor gave to others
_OTHERS = (0.1, 0.5)  # processors that other programs use on average
# Share of the probes with a core_share below CORE_SHARE.
_SHARED = 0.05
_CLOCK = (0.05, 0.15)  # 5th to 95th percentile of the clock, relative to its median
_SPREAD = 0.05  # standard deviation of the logarithms of the placements' medians
# Memory of the same socket takes about 100 ns, without huge pages up to about 150 ns.
_MOST_LATENCY_NS = 200.0
# Triads reach 70 to 90 % of the peak of all channels if enough cores run.
_LEAST_OF_PEAK = 0.5


def core_findings(watch: CoreWatch, machine: Mapping[str, Any]) -> list[Finding]:
    """Return the findings on processor time, throughput, clock and exchanges of the cores.

    Parameters
    ----------
    watch : CoreWatch
    machine : mapping
        The environment.
    """
    share = watch.column("throughput") / watch.best
    share = share[~np.isnan(share)]
    shared = len(share) > 0 and float(np.median(share)) < CORE_SHARE
    return [
        _processor_time(watch),
        _core_share(share, watch.watched_s),
        _clock(watch.column("clock_Hz") / 1e9, bool(machine["machine"]["hypervisor"])),
        _exchange(watch),
        next_runs(machine, shared),
    ]


def _processor_time(watch: CoreWatch) -> Finding:
    subject, cpu_share = "processor time", watch.column("cpu_share")
    seconds, waited = watch.column("seconds"), watch.column("waited_share")
    known = ~np.isnan(cpu_share)
    total_s = float(seconds[known].sum())
    if not total_s:
        return Finding(
            subject,
            UNKNOWN,
            "the system does not report how long threads wait",
            health.SHOW_FILES,
        )
    away = 1 - float(seconds[known] @ cpu_share[known]) / total_s
    waited_s = float(np.nansum(np.where(np.isnan(waited), 1 - cpu_share, waited) * seconds))
    state = graded(away, _AWAY, WAITED_SHARE if waited_s > away * total_s / 2 else 1.0)
    text = f"all workers had their processors {1 - away:.1%} of the time"
    advice = (
        "find other programs with top (in a container, on the host), and stop them, or use fewer "
        "--threads; --wait-quiet 600 waits for them to end"
    )
    return _graded(subject, state, text, advice)


def _graded(subject: str, state: str, text: str, advice: str) -> Finding:
    """Return a finding, whose advice is left out if it is good."""
    return Finding(subject, state, text, "" if state == GOOD else advice)


def _core_share(share: _Floats, watched_s: float) -> Finding:
    subject = "core share"
    if not len(share):
        return Finding(subject, UNKNOWN, "the best throughput of the cores is not known", _AGAIN)
    low = float((share < CORE_SHARE).mean())
    least, middle = (float(min(x, 1.0)) for x in np.quantile(share, (0.01, 0.5)))
    state = graded(low, _SHARED, math.inf)
    text = (
        f"in {watched_s:.3g} s the cores had {middle:.0%} of their best throughput since "
        f"the boot, in the worst hundredth of the probes {least:.0%}; {low:.0%} of them were below "
        f"{CORE_SHARE:.0%}"
    )
    advice = (
        "others compute on the same cores: where they are yours, stop them; else trust shortest "
        "times and ratios more than medians, give cases longer --budget, or choose a type of "
        "instance with one thread a core"
    )
    return _graded(subject, state, text, advice)


def _clock(GHz: _Floats, virtual: bool) -> Finding:
    GHz = GHz[GHz > 0]
    if not len(GHz):
        return Finding(
            "clock", UNKNOWN, "it can't be measured on this processor", "compare times, not cycles"
        )
    low, middle, high = (float(x) for x in np.quantile(GHz, (0.05, 0.5, 0.95)))
    state = graded((high - low) / middle, *_CLOCK)
    text = f"{middle:.2f} GHz, nine of ten probes between {low:.2f} and {high:.2f} GHz"
    advice = "compare cycles (cycles_per_vector, cycles_per_access), not times"
    if not virtual:
        advice = (
            "fix it: as root, cpupower frequency-set -g performance, and switch turbo off; "
            f"otherwise {advice}"
        )
    elif state == BAD:
        # The host controls the clock of a virtual machine.
        state = NOTE
    return _graded("clock", state, text, advice)


def _exchange(watch: CoreWatch) -> Finding:
    subject = "exchanges"
    if not len(watch.states):
        return Finding(
            subject,
            UNKNOWN,
            "there are no two processing units that could exchange lines",
            "let this process use at least two units (taskset)",
        )
    told = [
        f"{state.exchange_s * 1e9:.0f} ns {state.share:.0%} of the time" for state in watch.states
    ]
    text = f"a line goes from one worker to the next in {', in '.join(told)}"
    if len(told) == 1:
        return Finding(subject, GOOD, text)
    if watch.dwell_s == watch.dwell_s:
        text += f", each for {watch.dwell_s:.2g} s on average"
    advice = (
        "the hypervisor moves virtual processors: a record uses samples of its most frequent state "
        "(column states), and is comparable with records of the same state; the hypervisor should "
        "pin the virtual processors"
    )
    return Finding(subject, NOTE, text, advice)


def next_runs(machine: Mapping[str, Any], shared: bool) -> Finding:
    """Return the finding on the expected agreement of the shortest times of next runs.

    Parameters
    ----------
    machine : mapping
        The environment.
    shared : bool
        Whether the cores of the host are shared.
    """
    levels = [*dict.fromkeys(f"L{cache['level']}" for cache in data_caches(machine)), MEMORY]
    host = SHARED * shared
    told = []
    for threads, workers in ((1, "one thread"), (2, "several")):
        known = {
            level: this_host().spread(class_at(level, threads, PLACEMENTS, host)).floor
            for level in levels
        }
        parts = [
            f"{level} {half_width(math.sinh(distances.within()), '±{}%')}"
            for level, distances in known.items()
        ]
        told.append(f"{', '.join(parts)} by {workers}")
    text = f"shortest times of the next runs will be within {' and '.join(told)}"
    advice = "trust ratios within a command (tune, compare --self) further than single values"
    return _graded(_NEXT_RUNS, NOTE if shared else GOOD, text, advice)


def run_queue_delays(known: bool) -> Finding:
    """Return the finding on whether the system reports how long threads wait for processors."""
    subject = "run-queue delay"
    if known:
        return Finding(subject, GOOD, "the system reports how long threads wait for a processor")
    advice = "use a kernel with CONFIG_SCHED_INFO, and in a container its own /proc"
    return Finding(subject, UNKNOWN, DELAYS_UNKNOWN, advice)


def other_programs(activity: Activity, processors: float) -> Finding:
    """Return the finding on other programs.

    Parameters
    ----------
    activity : Activity
        Other activity at the beginning of the check.
    processors : float
        Processors that other programs used on average; NaN if unknown.
    """
    state, words = graded(processors, *_OTHERS), []
    if activity.others:
        # A program that ended soon does not make all numbers wrong.
        state = NOTE if state == GOOD else BAD
        words.append(f"{names_of(activity.others)} ran when doctor began")
    if processors == processors:
        words.append(f"other programs used {max(processors, 0.0):.2f} processors on average")
    text = "; ".join(words) or "nothing else was seen, but the system does not report its load"
    stop = "stop them (top shows them), or wait until they end with --wait-quiet 600"
    advice = health.SHOW_FILES if state == UNKNOWN else stop
    return _graded("other programs", state, text, advice)


def steal_time(share: float) -> Finding:
    """Return the finding on the share of the time that a hypervisor gave to others."""
    state = graded(share, _STEAL, math.inf)
    if state == UNKNOWN:
        return Finding(
            "steal time", UNKNOWN, "the system does not report the stolen time", health.SHOW_FILES
        )
    text = f"the hypervisor gave {max(share, 0.0):.1%} of the processors' time to others"
    advice = "move to a host without neighbours, or to a virtual machine with dedicated processors"
    return _graded("steal time", state, text, advice)


def measured(kernel: str, measurement: Measurement | None, refusal: str) -> Finding:
    """Return the finding on a case: validity, disturbances and the spread of placements."""
    subject = SUBJECTS[kernel]
    if measurement is None:
        if not refusal:
            return Finding(subject, UNKNOWN, "not measured: the time was over", _AGAIN)
        return Finding(subject, UNKNOWN, f"not measured: {refusal}", _FREE_MEMORY)
    record = measurement.record
    value = (
        f"{record['ns_per_access']:.0f} ns"
        if kernel == CHASE
        else f"{record['bandwidth_median_GBps']:.1f} GB/s"
    )
    workers = f"{record['threads']} thread{'s' * (record['threads'] > 1)}"
    text = f"{value} with {workers} in {record['footprint_B'] / 2**20:.0f} MiB"
    if not measurement.valid:
        advice = "test memory and processor (memtest86+, mcelog): other numbers are wrong as well"
        return Finding(subject, BAD, f"{text}, but its results are wrong", advice)
    if measurement.disturbed:
        by = record["shared_with"]
        text += f", but its workers waited for processors{f' beside {by}' if by else ''}"
        return Finding(subject, BAD, text, "check again when nothing else runs")
    sd = record["placement_sd"]
    if sd != sd:
        text += ", placed once, so that its spread is unknown"
        return Finding(subject, UNKNOWN, text, _AGAIN)
    state = graded(sd, _SPREAD, math.inf)
    text += f", {sd:.1%} standard deviation over {record['placements']} placements in memory"
    advice = "look for programs that come and go, and measure with more --placements"
    if record["state"] == "shared":
        advice = "see core share and exchanges: medians vary with them, shortest times vary less"
    if kernel == CHASE and state == GOOD and record["ns_per_access"] > _MOST_LATENCY_NS:
        state = NOTE
        text += (
            f"; memory of the same socket takes less than {_MOST_LATENCY_NS:.0f} ns: "
            f"{PUBLISHED_LATENCIES}"
        )
        advice = (
            "check whether the memory is on another node (memkern latency numa), and the memory "
            "clock and power saving in the firmware's setup"
        ) + "; memkern latency --explain tells what helps" * has_experiments(record)
    if kernel == CHASE and record["ns_per_access"] < LEAST_MEMORY_S * 1e9:
        state, advice = NOTE, _FIND_CACHES
        text += f"; no memory takes less than {LEAST_MEMORY_S * 1e9:.0f} ns: {PUBLISHED_LATENCIES}"
    for note in memory_notes(record).values():
        state = NOTE if state == GOOD else state
        text, advice = f"{text}; {note.partition(': ')[0]}", note.partition(": ")[2]
    return _graded(subject, state, text, advice)


def loads_beside_triad(results: ResultSet, cases: Iterable[Case]) -> list[Finding]:
    """Return the finding on loads with less than half of a triad's bandwidth; empty if more.

    In a common state of the host loads have more: then both are measured again, in turns.

    Parameters
    ----------
    results : ResultSet
        Records of load and triad, which get their times in turns.
    cases : iterable of Case
        Those of the records.
    """
    pair = [r for kernel in (TRIAD, LOAD) for r in results if r["kernel"] == kernel]
    if len(pair) < 2 or 2 * pair[1]["bandwidth_median_GBps"] >= pair[0]["bandwidth_median_GBps"]:
        return []
    add_turns(results, cases, [pair], time_s=2.0)
    found = ratio(pair[1], pair[0], "bandwidth_GBps")
    text = f"{'in turns, ' * found.in_turns}loads have {found.text()} times a triad's bandwidth"
    return [Finding("load and triad", NOTE, text, "trust this ratio: the host has changed between")]


def share_of_peak(
    records: Sequence[Mapping[str, Any]],
    machine: Mapping[str, Any],
    memory: smbios.Population | None,
) -> Finding:
    """Return the finding on the share of the memory's theoretical peak that was reached.

    Parameters
    ----------
    records : sequence of mapping
        Records of load and triad count, including reads of written lines.
    machine : mapping
        The environment.
    memory : Population, optional
        The memory's modules.
    """
    both = [record for record in records if record["kernel"] in (LOAD, TRIAD)]
    shown = [record for record in both if not record["disturbed"]] or both
    rates = [record["bytes_model_B"] / record["time_median_s"] / 1e9 for record in shown]
    peak = peak_of_processors({**machine, "memory": smbios.columns(memory)})
    if not rates or math.isnan(peak):
        return Finding(
            _PEAK, UNKNOWN, "the theoretical peak of the memory is unknown", health.ASK_HOST
        )
    share = max(rates) / peak
    text = (
        f"{max(rates):.1f} GB/s are {share:.0%} of the theoretical peak of {peak:.1f} GB/s by the "
        "channels and rate of the modules"
    )
    if shown[0]["disturbed"]:
        return Finding(_PEAK, UNKNOWN, f"{text}, but their samples were disturbed", _AGAIN)
    if share > 1:
        text += ": the channels are miscounted, or caches hold data"
        return Finding(_PEAK, UNKNOWN, text, "compare with the specification of the board")
    if share >= _LEAST_OF_PEAK:
        return Finding(_PEAK, GOOD, text)
    return Finding(
        _PEAK,
        NOTE,
        text,
        "check whether modules are in all channels (board's manual, dmidecode -t 17), whether all "
        "cores ran, and the memory clock in the firmware's setup",
    )


def cache_sizes(machine: Mapping[str, Any]) -> Finding:
    """Return the finding on the sizes of caches that were measured since the system was booted.

    Parameters
    ----------
    machine : mapping
        The environment.
    """
    subject = "cache sizes"
    found = [cache for cache in data_caches(machine) if cache["source"] == "measured"]
    if not found:
        return Finding(
            subject,
            UNKNOWN,
            "the times of loads do not show where memory begins, so that sizes of data follow the "
            "caches that the system reports",
            "measure them with memkern latency structure",
        )
    # Hybrid processors have two kinds of caches of a level; only one size is measured.
    confirmed = {cache["level"] for cache in found if cache["size_B"] == cache["system_B"]}
    wrong = [cache for cache in found if cache["level"] not in confirmed]
    if not wrong:
        names = ", ".join(f"L{level}" for level in sorted(confirmed))
        return Finding(subject, GOOD, f"as the system reports, by measured latencies of {names}")
    text = "; ".join(
        f"loads slow down from {cache['size_B'] // 1024} KiB on, while the system reports "
        f"{cache['system_B'] // 1024 or 'no'} KiB of L{cache['level']}"
        for cache in wrong
    )
    return Finding(
        subject,
        NOTE,
        text,
        "choose --sizes by the measured sizes, which determine the levels of records; others may "
        "use the rest of a cache, so measure again (memkern latency structure) when neighbours "
        "change",
    )


TOO_LARGE = Finding(
    BASELINE,
    UNKNOWN,
    "too little memory is free for the cases of the earlier records",
    _FREE_MEMORY,
)


def against(earlier: ResultSet, results: ResultSet) -> Finding:
    """Return the finding on the comparison with earlier records of this machine, or of a fleet.

    Raises
    ------
    InputError
        If kernels are the same but no case is, as in files of other versions.
    """
    from memkern.results.fleet import INSIDE, NODE, fleet, node_name

    if not {record["kernel"] for record in results} & {r.get("kernel") for r in earlier}:
        return Finding(
            BASELINE, UNKNOWN, "no case of the earlier records was measured in time", _AGAIN
        )
    here = node_name()
    mine, before = (
        ResultSet([{NODE: here, **r} for r in each], each.samples, each.environments)
        for each in (results, earlier)
    )
    frame = fleet(mine, before)
    words = [
        f"{row['part']} {row['verdict']}"
        + f" ({row['slowdown']:+.1%} time)" * (row["verdict"] in (SLOWER, FASTER))
        for row in frame.to_dict("records")
    ]
    of_fleet = any(record[NODE] != here for record in before)
    beside = "the fleet" if of_fleet else "the earlier records"
    more = filter(None, [*dict.fromkeys(frame["differs"]), *frame.attrs["remarks"]])
    text = "; ".join([f"compared with {beside}: {', '.join(words)}", *more])
    if frame["verdict"].eq(SLOWER).any():
        return Finding(
            BASELINE,
            BAD,
            text,
            "check again; if it remains slower, compare settings, clock, temperature and memory "
            "errors (ras-mc-ctl, mcelog) with a host that is as fast as before",
        )
    if frame["verdict"].isin((FASTER, INSIDE)).any():
        return Finding(BASELINE, GOOD, text)
    return Finding(BASELINE, UNKNOWN, text, _AGAIN)
