"""A check of this machine: what makes measurements wrong, biased or unsteady, and what to do."""

from __future__ import annotations

import contextlib
import math
import os
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import _memkern, reference, small
from memkern.errors import InputError
from memkern.machine import gpu, health, smbios
from memkern.machine.caches import data_caches
from memkern.machine.environment import read_steal_s
from memkern.machine.gpu_health import card_findings
from memkern.machine.health import BAD, BASELINE, GOOD, NOTE, STATES, UNKNOWN, Finding, graded
from memkern.machine.limits import memory_left
from memkern.machine.topology import beyond_caches_B, machine_environment
from memkern.measuring import calibration, disturbance
from memkern.measuring import cores as core_state
from memkern.measuring.costs import copy_GBps, launch_cost_s
from memkern.measuring.disturbance import Activity
from memkern.measuring.prepared import DELAYS_UNKNOWN
from memkern.measuring.record import LARGE_B, CaseRun, Measurement, calibrated, to_result_set
from memkern.measuring.watching import CoreWatch
from memkern.results import ResultSet, load
from memkern.results.verdicts import FASTER, SAME, SLOWER
from memkern.spec.registry import case as kernel_case

_Floats = npt.NDArray[np.float64]
_ROOT = Path("/")


@dataclass(frozen=True)
class _Plan:
    """How long a check takes: it ends after `total_s`, and watches the cores for `watch_s`.

    Each of the `rounds` places every case once and samples it for `sample_s`. Building and
    validating cases of at most `most_B`, and chases of at most `most_chase_B`, leaves time for it.
    """

    total_s: float
    watch_s: float
    rounds: int
    sample_s: float
    most_B: int
    most_chase_B: int


_WHOLE = _Plan(26.0, 10.0, 5, 0.5, 2**31, 2**29)
_QUICK = _Plan(4.4, 2.0, 3, 0.06, 2**28, 2**27)

# Share of the time for the cores in the first round that is left to them if all is slow.
_LEAST_WATCH = 0.3

_LOAD, _TRIAD, _CHASE = "loops.load", "stream.triad", "latency.chase"
_LEAST_B = 2**20
_SUBJECTS = {_LOAD: "load", _TRIAD: "triad", _CHASE: "latency"}

_PEAK, _PER_CORE = "share of peak", "bandwidth of a core"
# Subjects whose text is printed even if there is no advice.
_MEASURED = {*_SUBJECTS.values(), _PEAK, _PER_CORE, BASELINE}

_AGAIN = "check again when nothing else runs, and without --quick"
_FREE_MEMORY = (
    "stop what needs the memory, or lift its limit (see free, top, ulimit -v), and try again"
)

# Limits of the states note and bad.
_AWAY = (0.01, 1 - disturbance.CPU_SHARE)  # share of the time without a processor
_STEAL = (0.01, disturbance.STEAL_SHARE)  # share of the time that the hypervisor gave to others
_OTHERS = (0.1, 0.5)  # processors that other programs use on average
# Share of the probes with a core_share below disturbance.CORE_SHARE.
_SHARED = (0.05, disturbance.SHARED_PROBES)
_CLOCK = (0.05, 0.15)  # 5th to 95th percentile of the clock, relative to its median
_SPREAD = (0.05, 0.15)  # standard deviation of the logarithms of the placements' medians
# Share of the probes with slow exchanges of lines; those that depend on them are marked, so that
# other numbers are good.
_EXCHANGES = (0.05, math.inf)
# Triads reach 70 to 90 % of the peak of all channels if enough cores run.
_LEAST_OF_PEAK = 0.5
# Processors with many cores have less bandwidth for each than those published in 2020.
_LEAST_OF_PUBLISHED = 0.5
# These ran so many threads on each core for their published bandwidths, the others one.
_THREADS_OF_A_CORE = {"KNL": 4, "TX2": 4}
# Memory of the same socket takes about 100 ns, without huge pages up to about 150 ns.
_MOST_LATENCY_NS = 200.0


@dataclass(frozen=True, eq=False)
class Health:
    """Result of `memkern.doctor`.

    Attributes
    ----------
    verdict : str
        ``disturbed`` if a finding is bad, but for the comparison with a baseline; else ``fit with
        reservations`` if a finding is bad or a note; else ``fit``.
    findings : tuple of Finding
        Bad ones first, then notes, what is unknown, and what is good. Each has ``subject``,
        ``state``, ``text`` and ``advice``.
    results : ResultSet
        Records of loads, a triad and dependent loads from memory.
    seconds : float
        Time that it took.
    """

    verdict: str
    findings: tuple[Finding, ...]
    results: ResultSet
    seconds: float

    @property
    def summary(self) -> str:
        """The verdict with the subjects of the bad findings, as later records have it."""
        return health.summary(self.findings)

    @property
    def worse(self) -> bool:
        """Whether a case is slower than in the baseline."""
        return any(f.subject == BASELINE and f.state == BAD for f in self.findings)

    @property
    def judged(self) -> bool:
        """Whether a case was compared with the baseline, and the difference is known."""
        return any(f.subject == BASELINE and f.state != UNKNOWN for f in self.findings)

    def __str__(self) -> str:
        """Return the verdict, then the findings, with their advice: reasons and measurements."""
        lines = [self.verdict]
        width = max((len(finding.subject) for finding in self.findings), default=0)
        for state in STATES:
            # Subjects whose text tells nothing more, by what to do about them.
            names: dict[str, list[str]] = {}
            for finding in (finding for finding in self.findings if finding.state == state):
                if finding.state in (BAD, NOTE) or finding.subject in _MEASURED:
                    head = f"{state:<8} {finding.subject:<{width}}  "
                    lines += _wrapped(head, finding.text)
                    lines += _wrapped(" " * len(head), finding.advice and f"-> {finding.advice}")
                else:
                    names.setdefault(finding.advice, []).append(finding.subject)
            for advice, subjects in names.items():
                lines += _wrapped(f"{state:<8} ", ", ".join(subjects))
                lines += _wrapped(" " * 9, advice and f"-> {advice}")
        return "\n".join(lines)


def _wrapped(head: str, text: str) -> list[str]:
    """Return the lines of a text, of at most 100 characters and indented; none without one."""
    return textwrap.wrap(
        text,
        100,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def doctor(
    *,
    quick: bool = False,
    baseline: str | Path | None = None,
    progress: Callable[[float], object] | None = None,
) -> Health:
    """Check this machine: settings of the system, other activity, cores, and memory.

    Loads, a triad and dependent loads are placed in memory several times, and in between the cores
    of all workers are watched. Neither root nor hardware counters are needed; what the system does
    not tell is ``unknown``. The verdict is stored until the system is booted again, and later
    records have it in their column ``doctor``.

    Parameters
    ----------
    quick : bool
        Take about 4 s instead of at most 26 s; caches above 64 MiB are then not exceeded by far.
    baseline : path, optional
        Results of an earlier check of this machine, to compare with as `memkern.compare` does.
    progress : callable, optional
        Called with the share of the time that is over, from 0 to 1.

    Returns
    -------
    Health

    Raises
    ------
    InputError
        If the baseline can't be read, or has no case of this check.
    """
    plan = _QUICK if quick else _WHOLE
    begin = time.perf_counter()
    end = begin + plan.total_s

    def tell() -> None:
        if progress is not None:
            progress(min((time.perf_counter() - begin) / (end - begin), 1.0))

    machine = machine_environment()
    earlier = None if baseline is None else load(baseline)
    if earlier is not None:
        _check_machine(baseline, earlier, machine)
    runs, refused, too_large = _build(plan, earlier)
    if earlier is not None and not too_large:
        _check_cases(baseline, earlier, runs)
    cards = _cards()
    system, watch = _System(), CoreWatch()
    _measure(plan, end, runs, refused, watch, tell)
    done = {kernel: calibrated(run, machine) for kernel, run in runs.items() if run.placements}
    results = to_result_set(list(done.values()))
    found = [
        *system.findings(machine),
        *core_findings(watch.rows, watch.watched_s, watch.best, watch.best_exchange_s),
        *(_measured(kernel, done.get(kernel), refused.get(kernel, "")) for kernel in _SUBJECTS),
        share_of_peak(list(results), machine, smbios.population(_ROOT)),
        *bandwidth_of_a_core(list(results), machine),
        cache_sizes(machine),
        *cards,
    ]
    if earlier is not None:
        found.append(_TOO_LARGE if too_large else against(earlier, results))
    found.sort(key=lambda finding: STATES.index(finding.state))
    summary = health.summary(found)
    for record in results:
        record["doctor"] = summary
    calibration.save_health(summary)
    if progress is not None:
        progress(1.0)
    seconds = time.perf_counter() - begin
    return Health(health.verdict(found), tuple(found), results, seconds)


def _cards() -> list[Finding]:
    """Return the findings about the GPUs, each after a copy within its memory."""
    found = []
    for name in gpu.devices():
        try:
            GBps = copy_GBps(name)
        except (InputError, RuntimeError):
            GBps = math.nan
        found += card_findings(name, GBps)
    return found


def _check_machine(path: Any, earlier: ResultSet, machine: Mapping[str, Any]) -> None:
    """Raise InputError if records were measured on another processor."""
    here = machine["machine"]["model"]
    for there in earlier.environments.values():
        model = (there.get("machine") or {}).get("model")
        if model and here and model != here:
            raise InputError(
                f"{path} was measured on another machine ({model}, this is {here}): a baseline is "
                "a file that memkern doctor -o wrote on this one"
            )


def _known(earlier: ResultSet, runs: Mapping[str, CaseRun]) -> int:
    """Return how many cases of this check are among the records."""
    wanted = [{"kernel": run.case.spec.kernel, **run.case.columns} for run in runs.values()]
    return sum(
        any(all(record.get(name) == value for name, value in case.items()) for record in earlier)
        for case in wanted
    )


def _check_cases(path: Any, earlier: ResultSet, runs: Mapping[str, CaseRun]) -> None:
    """Raise InputError if no case of this check is among the records."""
    if not _known(earlier, runs):
        raise InputError(
            f"{path} has no case of this check: a baseline is a file that memkern doctor -o wrote "
            "on this machine, with --quick if this check has it"
        )


# Cases


def _build(
    plan: _Plan, earlier: ResultSet | None
) -> tuple[dict[str, CaseRun], dict[str, str], bool]:
    """Return the cases by kernel, and why those that can't be built are missing.

    Sizes are those of the earlier records, if there are any, or the largest for which there is
    memory. The last value is whether there is too little memory for the earlier ones.
    """
    left_B, _ = memory_left()
    beyond_B = beyond_caches_B()
    size_B, chase_B = (min(beyond_B, most) for most in (plan.most_B, plan.most_chase_B))
    # By halves, so that a baseline has the same sizes.
    too_large = most = 0
    found = None
    while found is None or (earlier is not None and size_B >= _LEAST_B):
        cases = _cases(plan, size_B, chase_B)
        fits = size_B <= max(left_B / 4, _LEAST_B)
        known = 0 if earlier is None else _known(earlier, cases[0])
        if fits and (found is None or known > most):
            found, most = cases, known
        elif not fits:
            too_large = max(too_large, known)
        size_B, chase_B = size_B // 2, min(size_B // 2, chase_B)
    return *found, too_large > most


def _cases(plan: _Plan, size_B: int, chase_B: int) -> tuple[dict[str, CaseRun], dict[str, str]]:
    """Return the cases of these sizes by kernel, and why those that can't be built are missing."""
    how: dict[str, Any] = {"placements": plan.rounds, "budget_s": plan.sample_s * plan.rounds}
    inputs: dict[str, dict[str, Any]] = {
        _LOAD: {"footprint_B": size_B},
        _TRIAD: {"footprint_B": size_B},
        _CHASE: {"size_B": chase_B},
    }
    runs: dict[str, CaseRun] = {}
    refused: dict[str, str] = {}
    for kernel, values in inputs.items():
        with _refusal(refused, kernel):
            runs[kernel] = CaseRun(kernel_case(kernel, **values, **how))
    return runs, refused


@contextlib.contextmanager
def _refusal(refused: dict[str, str], kernel: str) -> Iterator[None]:
    """Keep the message of a case that this machine can't measure."""
    try:
        yield
    except (InputError, MemoryError) as error:
        refused[kernel] = str(error) or "out of memory"


def _measure(
    plan: _Plan,
    end: float,
    runs: Mapping[str, CaseRun],
    refused: dict[str, str],
    watch: CoreWatch,
    tell: Callable[[], None],
) -> None:
    """Place all cases and watch the cores in turns, until `end` at the latest."""
    watch_s = small.cut(plan.watch_s, 0.05)
    each_s, longest_s = watch_s / plan.rounds, 0.0
    try:
        for number in range(plan.rounds):
            if number:
                _memkern.release_memory(LARGE_B)
            # That every case is placed once is worth more than to watch the cores for long.
            left_to_watch_s = each_s * (plan.rounds - number) if number else _LEAST_WATCH * each_s
            for place, (kernel, run) in enumerate(runs.items()):
                with _refusal(refused, kernel):
                    # One part more is for filling and checks, which no deadline ends.
                    parts = 1 if run.placements else len(runs) - place + 1
                    _place(run, end - left_to_watch_s, longest_s, parts)
                longest_s = max([longest_s, *(placed.wall_s for placed in run.placements[:1])])
                tell()
            watch.observe(min(each_s, end - time.perf_counter()))
            tell()
    finally:
        _memkern.release_memory()


def _place(run: CaseRun, deadline: float, first_s: float, parts: int) -> None:
    """Place and sample a case, unless that would take longer than until the deadline.

    `first_s` is what the first placements of other cases took. Trials and samples of this one end
    after the first of so many equal parts of the time until the deadline.
    """
    needed_s = first_s
    if run.placements:
        # The last placement is validated like the first.
        last = len(run.placements) == run.case.placements - 1
        needed_s = run.placements[0].wall_s if last else run.placements[-1].again_s
    now = time.perf_counter()
    if deadline - now <= needed_s:
        return
    run.deadline = now + (deadline - now) / parts
    run.place()
    if run.interrupted:
        raise KeyboardInterrupt


# Findings


class _System:
    """Settings and counters of the system, and other programs, from now on."""

    def __init__(self) -> None:
        self._launch_s = launch_cost_s(0, "none", "fork")
        self._activity = core_state.observe_activity()
        self._before, self._stolen_s = health.read_counters(_ROOT), read_steal_s()
        self._begin, self._own_s = time.perf_counter(), time.process_time()

    def findings(self, machine: dict[str, Any]) -> list[Finding]:
        """Return the findings on the time since then."""
        elapsed_s = time.perf_counter() - self._begin
        own_s, stolen_s = time.process_time() - self._own_s, read_steal_s() - self._stolen_s
        after = health.read_counters(_ROOT)
        busy = health.grown(self._before, after, ["busy_ticks"])
        busy_s = math.nan if busy is None else busy / os.sysconf("SC_CLK_TCK")
        units = machine["machine"]["threads"] or len(os.sched_getaffinity(0))
        return [
            *health.findings(machine, self._before, after),
            health.timer(_memkern.clock_tick(), self._launch_s),
            run_queue_delays(_memkern.run_queue_delays_known()),
            other_programs(self._activity, (busy_s - own_s) / elapsed_s),
            steal_time(stolen_s / (elapsed_s * units)),
        ]


def core_findings(
    rows: _Floats, watched_s: float, best: float, best_exchange_s: float
) -> list[Finding]:
    """Return the findings on processor time, throughput, clock and exchanges of the cores.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, 5)
        For each sample its seconds, the share of them in which all workers had a processor,
        throughput and clock of the slowest core, and the seconds in which a line goes from one
        worker to the next; NaN where unknown.
    watched_s : float
        Seconds in which they were taken.
    best : float
        The best throughput since the system was booted; NaN if unknown.
    best_exchange_s : float
        The shortest exchange since then; NaN if unknown.
    """
    seconds, cpu_share, throughput, clock_Hz, exchange_s = rows.T
    return [
        _processor_time(seconds, cpu_share),
        _core_share(throughput / best, watched_s),
        _clock(clock_Hz[clock_Hz > 0] / 1e9),
        _exchange(exchange_s, best_exchange_s),
    ]


def _processor_time(seconds: _Floats, cpu_share: _Floats) -> Finding:
    subject, known = "processor time", ~np.isnan(cpu_share)
    total_s = float(seconds[known].sum())
    if not total_s:
        text = "the system does not tell how long threads wait"
        return Finding(subject, UNKNOWN, text, health.SHOW_FILES)
    away = 1 - float(seconds[known] @ cpu_share[known]) / total_s
    state = graded(away, *_AWAY)
    text = f"all workers had their processors {1 - away:.1%} of the time"
    advice = (
        "see in top what runs beside it (in a container, on the host), and stop it, or use fewer "
        "--threads; --wait-quiet 600 waits for it to end"
    )
    return Finding(subject, state, text, "" if state == GOOD else advice)


def _core_share(share: _Floats, watched_s: float) -> Finding:
    subject, share = "core share", share[~np.isnan(share)]
    if not len(share):
        return Finding(subject, UNKNOWN, "the best throughput of the cores is not known", _AGAIN)
    low = float((share < disturbance.CORE_SHARE).mean())
    least, middle = (float(min(x, 1.0)) for x in np.quantile(share, (0.01, 0.5)))
    state = graded(low, *_SHARED)
    text = (
        f"in {watched_s:.3g} s the cores had {middle:.0%} of their best throughput since "
        f"the boot, in the worst hundredth of the probes {least:.0%}; {low:.0%} of them were below "
        f"{disturbance.CORE_SHARE:.0%}"
    )
    advice = (
        "others compute on the same cores: stop them, use one thread of a core (--threads, --pin), "
        "or move to a host without neighbours"
    )
    return Finding(subject, state, text, "" if state == GOOD else advice)


def _clock(GHz: _Floats) -> Finding:
    if not len(GHz):
        text = "it can't be measured on this processor"
        return Finding("clock", UNKNOWN, text, "compare times, not cycles")
    low, middle, high = (float(x) for x in np.quantile(GHz, (0.05, 0.5, 0.95)))
    state = graded((high - low) / middle, *_CLOCK)
    text = f"{middle:.2f} GHz, nine of ten probes between {low:.2f} and {high:.2f} GHz"
    advice = (
        "fix it: as root, cpupower frequency-set -g performance, and switch turbo off; otherwise "
        "compare cycles (cycles_per_vector, cycles_per_access), not times"
    )
    return Finding("clock", state, text, "" if state == GOOD else advice)


def _exchange(exchange_s: _Floats, best_s: float) -> Finding:
    subject, exchange_s = "exchanges", exchange_s[exchange_s > 0]
    if not len(exchange_s):
        text = "there are not two processing units between which lines could be exchanged"
        return Finding(subject, UNKNOWN, text, "let this process use at least two units (taskset)")
    slow = math.nan
    text = f"a line takes {np.median(exchange_s) * 1e9:.0f} ns from one worker to the next"
    if best_s > 0:
        slow = float((exchange_s * disturbance.EXCHANGE_SHARE > best_s).mean())
        text += (
            f", at best since the boot {best_s * 1e9:.0f} ns; it took twice the best or longer in "
            f"{slow:.0%} of the probes"
        )
    state = graded(slow, *_EXCHANGES)
    advice = (
        "the hypervisor moves processors apart: give the virtual machine fixed ones; until then "
        "trust atomics, barriers and short parallel regions less than streams"
    )
    if state == UNKNOWN:
        advice = _AGAIN
    return Finding(subject, state, text, "" if state == GOOD else advice)


def run_queue_delays(known: bool) -> Finding:
    """Return the finding on whether the system tells how long threads wait for a processor."""
    subject = "run-queue delay"
    if known:
        return Finding(subject, GOOD, "the system tells how long threads wait for a processor")
    advice = "use a kernel with CONFIG_SCHED_INFO, and in a container its own /proc"
    return Finding(subject, UNKNOWN, DELAYS_UNKNOWN, advice)


def other_programs(activity: Activity, processors: float) -> Finding:
    """Return the finding on other programs.

    Parameters
    ----------
    activity : Activity
        What ran when the check began.
    processors : float
        Processors that other programs used on average; NaN if unknown.
    """
    state = graded(processors, *_OTHERS)
    if activity.others:
        # What ended soon is no reason to call all numbers wrong.
        state = NOTE if state == GOOD else BAD
    words = []
    if activity.others:
        words.append(f"{disturbance.describe(activity.others)} ran when doctor began")
    if processors == processors:
        words.append(f"other programs used {max(processors, 0.0):.2f} processors on average")
    text = "; ".join(words) or "nothing else was seen, but the system does not tell its load"
    advice = "stop them (top shows them), or wait until they end with --wait-quiet 600"
    if state == UNKNOWN:
        advice = health.SHOW_FILES
    return Finding("other programs", state, text, "" if state == GOOD else advice)


def steal_time(share: float) -> Finding:
    """Return the finding on the share of the time that a hypervisor gave to others."""
    state = graded(share, *_STEAL)
    if state == UNKNOWN:
        text = "the system does not tell the stolen time"
        return Finding("steal time", UNKNOWN, text, health.SHOW_FILES)
    text = f"the hypervisor gave {max(share, 0.0):.1%} of the processors' time to others"
    advice = "move to a host without neighbours, or to a virtual machine with dedicated processors"
    return Finding("steal time", state, text, "" if state == GOOD else advice)


def _value(record: Mapping[str, Any]) -> str:
    """Return bandwidth or latency of a record."""
    if record["kernel"] == _CHASE:
        return f"{record['ns_per_access']:.0f} ns"
    return f"{record['bandwidth_median_GBps']:.1f} GB/s"


def _measured(kernel: str, measurement: Measurement | None, refusal: str) -> Finding:
    """Return the finding on a case: right, undisturbed, and how much placements differ."""
    subject = _SUBJECTS[kernel]
    if measurement is None:
        if not refusal:
            return Finding(subject, UNKNOWN, "not measured: the time was over", _AGAIN)
        return Finding(subject, UNKNOWN, f"not measured: {refusal}", _FREE_MEMORY)
    record = measurement.record
    workers = f"{record['threads']} thread{'s' * (record['threads'] > 1)}"
    text = f"{_value(record)} with {workers} in {record['footprint_B'] / 2**20:.0f} MiB"
    if not measurement.valid:
        advice = "test memory and processor (memtest86+, mcelog): other numbers are wrong as well"
        return Finding(subject, BAD, f"{text}, but its results are wrong", advice)
    if measurement.disturbed:
        by = record["disturbed_by"]
        text += f", but its samples were disturbed{f' by {by}' if by else ''}"
        return Finding(subject, BAD, text, "check again when nothing else runs")
    sd = record["placement_sd"]
    if sd != sd:
        text += ", placed once, so that its spread is unknown"
        return Finding(subject, UNKNOWN, text, _AGAIN)
    state = graded(sd, *_SPREAD)
    text += f", {sd:.1%} standard deviation over {record['placements']} placements in memory"
    advice = (
        "look for what comes and goes beside it, and measure with more placements (--placements "
        "20) or fixed pages (--pages thp)"
    )
    if kernel == _CHASE and state == GOOD and record["ns_per_access"] > _MOST_LATENCY_NS:
        state = NOTE
        text += f"; memory of the same socket takes less than {_MOST_LATENCY_NS:.0f} ns"
        advice = (
            "see whether the memory is that of another node (memkern latency numa), and the "
            "clock of the memory and saving of power in the firmware's setup; use huge pages "
            "(--pages thp)"
        )
    return Finding(subject, state, text, "" if state == GOOD else advice)


def share_of_peak(
    records: Sequence[Mapping[str, Any]],
    machine: Mapping[str, Any],
    memory: smbios.Population | None,
) -> Finding:
    """Return the finding on the share of the memory's theoretical peak that was reached.

    Parameters
    ----------
    records : sequence of mapping
        Those of load and triad count, with reads of written lines.
    machine : mapping
        The environment.
    memory : Population, optional
        The memory's modules.
    """
    subject = _PEAK
    both = [record for record in records if record["kernel"] in (_LOAD, _TRIAD)]
    shown = [record for record in both if not record["disturbed"]] or both
    rates = [record["bytes_model_B"] / record["time_median_s"] / 1e9 for record in shown]
    peak = memory.peak_GBps if memory is not None else None
    if not rates or peak is None or machine["machine"]["hypervisor"]:
        text = "the theoretical peak of the memory is unknown"
        return Finding(subject, UNKNOWN, text, health.ASK_HOST)
    share = max(rates) / peak
    text = f"{max(rates):.1f} GB/s are {share:.0%} of the theoretical peak of {peak:.1f} GB/s"
    if shown[0]["disturbed"]:
        return Finding(subject, UNKNOWN, f"{text}, but their samples were disturbed", _AGAIN)
    if share > 1:
        text += ": the channels are miscounted, or caches helped"
        return Finding(subject, UNKNOWN, text, "compare with what the board's maker says")
    if share >= _LEAST_OF_PEAK:
        return Finding(subject, GOOD, text)
    return Finding(
        subject,
        NOTE,
        text,
        "see whether modules are in all channels (board's manual, dmidecode -t 17), whether all "
        "cores ran, and the clock of the memory in the firmware's setup",
    )


def bandwidth_of_a_core(
    records: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]
) -> list[Finding]:
    """Return the finding on the triad's bandwidth of a core beside the published platforms.

    Parameters
    ----------
    records : sequence of mapping
        That of the triad counts.
    machine : mapping
        The environment.

    Returns
    -------
    list of Finding
        Empty without a triad.
    """
    published = [
        row["table3_stream_MBps"]
        / (row["table3_threads"] / _THREADS_OF_A_CORE.get(row["abbreviation"], 1))
        / 1e3
        for row in reference.rows("lavin2020-platforms")
        if row["table3_threads"] and row["table3_stream_MBps"]
    ]
    record = next((record for record in records if record["kernel"] == _TRIAD), None)
    if record is None:
        return []
    cores = min(record["threads"], machine["machine"]["cores"] or record["threads"])
    GBps = record["bandwidth_median_GBps"] / cores
    text = (
        f"the triad moves {GBps:.1f} GB/s by each of {cores} core{'s' * (cores > 1)}; processors "
        f"published in 2020 {min(published):.1f} to {max(published):.1f} GB/s (Lavin et al., table "
        "3)"
    )
    if record["disturbed"]:
        return [Finding(_PER_CORE, UNKNOWN, f"{text}, but its samples were disturbed", _AGAIN)]
    if GBps >= _LEAST_OF_PUBLISHED * min(published):
        return [Finding(_PER_CORE, GOOD, text)]
    advice = (
        "see whether modules are in all channels, what else uses the memory, and whether the clock "
        "is limited; machines with many cores for each channel have less, and need fewer --threads"
    )
    return [Finding(_PER_CORE, NOTE, f"{text}: this is less than half of the least", advice)]


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
        text = "nobody measured since the boot whether caches have the sizes that the system says"
        return Finding(subject, UNKNOWN, text, "measure them with memkern latency structure")
    # Hybrid processors have two kinds of caches of a level, of which one size is measured.
    confirmed = {cache["level"] for cache in found if cache["size_B"] == cache["system_B"]}
    wrong = [cache for cache in found if cache["level"] not in confirmed]
    if not wrong:
        names = ", ".join(f"L{level}" for level in sorted(confirmed))
        return Finding(subject, GOOD, f"as the system says, by measured latencies of {names}")
    text = "; ".join(
        f"loads slow down from {cache['size_B'] // 1024} KiB on, where the system says "
        f"{cache['system_B'] // 1024} KiB of L{cache['level']}"
        for cache in wrong
    )
    return Finding(
        subject,
        NOTE,
        text,
        "choose --sizes by the measured ones, as records do for their levels; others may use the "
        "rest of a cache, so measure again (memkern latency structure) when neighbours change",
    )


_TOO_LARGE = Finding(
    BASELINE,
    UNKNOWN,
    "too little memory is free for the cases of the earlier records",
    _FREE_MEMORY,
)


def against(earlier: ResultSet, results: ResultSet) -> Finding:
    """Return the finding on the comparison with earlier records of this machine.

    Raises
    ------
    InputError
        If kernels are the same but no case is, as in files of other versions.
    """
    from memkern.results.comparison import compare, slowdowns

    if not {record["kernel"] for record in results} & {r.get("kernel") for r in earlier}:
        text = "no case of the earlier records was measured in time"
        return Finding(BASELINE, UNKNOWN, text, _AGAIN)
    frame = compare(earlier, results)
    words, slower = [], False
    rows = zip(frame["case"], frame["verdict"], slowdowns(frame), strict=True)
    for name, verdict, by in rows:
        words.append(f"{_SUBJECTS[name.split()[0]]} {verdict}")
        if verdict in (SLOWER, FASTER):
            words[-1] += f" ({by:+.1%} time)"
        slower = slower or verdict == SLOWER
    text = f"compared with the earlier records: {', '.join(words)}"
    differ = [remark for remark in frame.attrs["remarks"] if "environments differ" in remark]
    text = "; ".join([text, *differ])
    if slower:
        return Finding(
            BASELINE,
            BAD,
            text,
            "check again; if it stays so, compare settings, clock, temperature and memory errors "
            "(ras-mc-ctl, mcelog) with a host that is as fast as before",
        )
    judged = frame["verdict"].isin((FASTER, SAME)).any()
    return Finding(BASELINE, GOOD, text) if judged else Finding(BASELINE, UNKNOWN, text, _AGAIN)
