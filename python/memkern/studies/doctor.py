"""A check of this machine for causes of wrong, biased or unsteady measurements, with remedies."""

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

from memkern import small
from memkern.engine.placing.watching import CoreWatch
from memkern.engine.public import (
    CaseRun,
    calibrated,
    copy_GBps,
    expected_s,
    in_rounds,
    launch_cost_s,
    observe_activity,
    to_result_set,
)
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.formats import ResultSet
from memkern.host import this_host
from memkern.host.capacity import beyond_caches_B
from memkern.host.environment import machine_environment
from memkern.limits import memory_left
from memkern.machine import gpu, health, smbios
from memkern.machine.environment import read_steal_s
from memkern.machine.gpu_health import card_findings
from memkern.machine.health import BAD, BASELINE, NOTE, STATES, UNKNOWN, Finding
from memkern.machine.kernel_counters import grown, read_counters
from memkern.models.records import processors
from memkern.progress import announce
from memkern.results.merging import load_all
from memkern.spec.registry import case as kernel_case
from memkern.studies.doctor_findings import (
    CHASE,
    LOAD,
    MEASURED,
    SUBJECTS,
    TOO_LARGE,
    TRIAD,
    against,
    cache_sizes,
    core_findings,
    loads_beside_triad,
    measured,
    other_programs,
    run_queue_delays,
    share_of_peak,
    steal_time,
)

_ROOT = Path("/")


@dataclass(frozen=True)
class _Plan:
    """Times of a check: it ends after `total_s`, and observes the cores for `watch_s`.

    Each of the `rounds` places every case once and samples it for `sample_s`. Building and
    validating cases of at most `most_B`, and chases of at most `most_chase_B`, leaves enough time.
    """

    total_s: float
    watch_s: float
    rounds: int
    sample_s: float
    most_B: int
    most_chase_B: int


_WHOLE = _Plan(23.5, 10.0, 5, 0.5, 2**31, 2**29)
_QUICK = _Plan(4.4, 2.0, 3, 0.06, 2**28, 2**27)

# Share of the time for the cores in the first round that remains if everything is slow.
_LEAST_WATCH = 0.3

_LEAST_B = 2**20


@dataclass(frozen=True, eq=False)
class Health:
    """Result of `memkern.doctor`.

    Attributes
    ----------
    verdict : str
        ``disturbed`` if a finding is bad, except the comparison with a baseline; else ``fit with
        reservations`` if a finding is bad or a note; else ``fit``.
    findings : tuple of Finding
        First bad ones, then notes, unknown and good ones. Each has ``subject``, ``state``, ``text``
        and ``advice``.
    results : ResultSet
        Records of loads, a triad and dependent loads from memory.
    seconds : float
        Duration of the check.
    """

    verdict: str
    findings: tuple[Finding, ...]
    results: ResultSet
    seconds: float

    @property
    def summary(self) -> str:
        """The verdict with the subjects of the bad findings, as in later records."""
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
            # Subjects of findings whose text has no further information, by advice.
            names: dict[str, list[str]] = {}
            for finding in (finding for finding in self.findings if finding.state == state):
                if finding.state in (BAD, NOTE) or finding.subject in MEASURED:
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
    baseline: str | Path | Sequence[str | Path] = (),
    progress: Callable[[float], object] | None = None,
) -> Health:
    """Check this machine: settings of the system, other activity, cores, and memory.

    Loads, a triad and dependent loads are placed in memory several times, and in between the cores
    of all workers are observed. Neither root nor hardware counters are needed; values that the
    system does not report are ``unknown``. The verdict is stored until the next boot, and later
    records have it in their column ``doctor``.

    Parameters
    ----------
    quick : bool
        Take about 4 s instead of at most 24 s; data are then not much larger than caches above 64
        MiB.
    baseline : path or sequence of path
        Results of earlier checks of this machine, which are its history, or of checks of several
        nodes with this processor, for a comparison by `memkern.fleet`.
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
    share = progress or (lambda _: None)

    def tell() -> None:
        share(min((time.perf_counter() - begin) / (plan.total_s or 1.0), 1.0))

    machine = machine_environment()
    files = [baseline] if isinstance(baseline, (str, Path)) else [*baseline]
    earlier = load_all(files) if files else None
    here, others = machine["machine"]["model"], processors(earlier)
    if here and others and here not in others:
        raise InputError(
            f"{files[0]} was measured on another machine ({others[0]}, this is {here}): a baseline "
            "is a file that memkern doctor -o wrote on this one, or memkern compare fleet -o of "
            "such machines"
        )
    runs, refused, too_large = _build(plan, earlier)
    if earlier is not None and not too_large and not _known(earlier, runs):
        raise InputError(
            f"{files[0]} has no case of this check: a baseline is a file that memkern doctor -o "
            "wrote on this machine, with --quick if this check has it"
        )
    cards = _cards()
    system, watch = _System(), CoreWatch()
    cases = [run.case for run in runs.values()]
    about_s = plan.watch_s + expected_s(cases)
    announce("checking this machine", min(about_s, plan.total_s))
    interrupted = _measure(plan, end, runs, refused, watch, tell)
    done = {kernel: calibrated(run, machine) for kernel, run in runs.items() if run.placements}
    results = to_result_set(list(done.values()), interrupted)
    found = [
        *system.findings(machine),
        *core_findings(watch, machine),
        *(measured(kernel, done.get(kernel), refused.get(kernel, "")) for kernel in SUBJECTS),
        *loads_beside_triad(results, cases),
        share_of_peak(list(results), machine, smbios.population(_ROOT)),
        cache_sizes(machine),
        *cards,
    ]
    if earlier is not None:
        found.append(TOO_LARGE if too_large else against(earlier, results))
    found.sort(key=lambda finding: STATES.index(finding.state))
    summary = health.summary(found)
    for record in results:
        record["doctor"] = summary
    if not interrupted:
        this_host().keep_health(summary)
    share(1.0)
    return Health(
        health.judgement(found), tuple(found), results, seconds=time.perf_counter() - begin
    )


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


def _known(earlier: ResultSet, runs: Mapping[str, CaseRun]) -> int:
    """Return the number of cases of this check in the records."""
    wanted = [{"kernel": run.case.spec.kernel, **run.case.columns} for run in runs.values()]
    return sum(
        any(all(record.get(name) == value for name, value in case.items()) for record in earlier)
        for case in wanted
    )


# Cases


def _build(
    plan: _Plan, earlier: ResultSet | None
) -> tuple[dict[str, CaseRun], dict[str, str], bool]:
    """Return the cases by kernel, and the reasons for cases that can't be built.

    Sizes are from the earlier records, if there are any, or the largest that fit in memory. The
    last value is whether the earlier sizes do not fit in memory.
    """
    left_B, _ = memory_left()
    beyond_B = beyond_caches_B()
    # Sizes are halved, so that a baseline has the same sizes. In its boot, the capacity of caches
    # may have been larger.
    size_B = min(beyond_B, plan.most_B) if earlier is None else plan.most_B
    too_large = most = 0
    found = None
    while found is None or (earlier is not None and size_B >= _LEAST_B):
        cases = _cases(plan, size_B, min(size_B, plan.most_chase_B))
        fits = size_B <= max(left_B / 4, _LEAST_B)
        known = 0 if earlier is None else _known(earlier, cases[0])
        if fits and (known > most or (found is None and size_B <= beyond_B)):
            found, most = cases, known
        elif not fits:
            too_large = max(too_large, known)
        size_B //= 2
    return *found, too_large > most


def _cases(plan: _Plan, size_B: int, chase_B: int) -> tuple[dict[str, CaseRun], dict[str, str]]:
    """Return the cases of these sizes by kernel, and the reasons for cases that can't be built."""
    how: dict[str, Any] = {"placements": plan.rounds, "budget_s": plan.sample_s * plan.rounds}
    inputs: dict[str, dict[str, Any]] = {
        LOAD: {"footprint_B": size_B},
        TRIAD: {"footprint_B": size_B},
        CHASE: {"size_B": chase_B},
    }
    runs: dict[str, CaseRun] = {}
    refused: dict[str, str] = {}
    for kernel, values in inputs.items():
        with _refusal(refused, kernel):
            runs[kernel] = CaseRun(kernel_case(kernel, **values, **how))
    return runs, refused


@contextlib.contextmanager
def _refusal(refused: dict[str, str], kernel: str) -> Iterator[None]:
    """Store the message of a case that this machine can't measure."""
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
) -> bool:
    """Alternate between placing all cases and observing the cores, until `end` at the latest.

    Return whether it was interrupted.
    """
    each_s = small.cut(plan.watch_s, 0.05) / plan.rounds

    def place(number_and_kernel: tuple[int, str]) -> bool:
        number, kernel = number_and_kernel
        # One placement of every case is more important than a long observation of the cores.
        left_to_watch_s = each_s * (plan.rounds - number) if number else _LEAST_WATCH * each_s
        run = runs[kernel]
        firsts_s = [one.placements[0].wall_s for one in runs.values() if one.placements]
        with _refusal(refused, kernel):
            # One additional part is for filling and checks, which the deadline does not limit.
            parts = 1 if run.placements else len(runs) - list(runs).index(kernel) + 1
            _place(run, end - left_to_watch_s, max(firsts_s, default=0.0), parts)
        tell()
        return run.interrupted

    def observe(number: int) -> None:
        watch.observe(min(each_s, end - time.perf_counter()))
        tell()

    return in_rounds(
        place,
        lambda number: [(number, kernel) for kernel in runs],
        rounds=plan.rounds,
        after=observe,
        kept=lambda: any(run.placements for run in runs.values()),
    )


def _place(run: CaseRun, deadline: float, first_s: float, parts: int) -> None:
    """Place and sample a case, unless that would take longer than until the deadline.

    `first_s` is the time of the first placements of other cases. Trials and samples of this case
    end after the first of `parts` equal parts of the time until the deadline.
    """
    needed_s = first_s
    if run.placements:
        # The last placement is validated like the first.
        last = len(run.placements) == run.case.placements - 1
        needed_s = run.placements[0].wall_s if last else run.placements[-1].again_s
    now = time.perf_counter()
    if deadline - now > needed_s:
        run.deadline = now + (deadline - now) / parts
        run.place()


class _System:
    """Settings and counters of the system, and other programs, since the creation of the object."""

    def __init__(self) -> None:
        self._launch_s = launch_cost_s(0, "none", "fork")
        self._activity = observe_activity()
        self._before, self._stolen_s = read_counters(_ROOT), read_steal_s()
        self._begin, self._own_s = time.perf_counter(), time.process_time()

    def findings(self, machine: dict[str, Any]) -> list[Finding]:
        """Return the findings on this time."""
        elapsed_s = time.perf_counter() - self._begin
        own_s, stolen_s = time.process_time() - self._own_s, read_steal_s() - self._stolen_s
        after = read_counters(_ROOT)
        busy = grown(self._before, after, ["busy_ticks"])
        busy_s = math.nan if busy is None else busy / os.sysconf("SC_CLK_TCK")
        units = machine["machine"]["threads"] or len(os.sched_getaffinity(0))
        return [
            *health.findings(machine, self._before, after),
            health.timer(_memkern.clock_tick(), self._launch_s),
            run_queue_delays(_memkern.run_queue_delays_known()),
            other_programs(self._activity, (busy_s - own_s) / elapsed_s),
            steal_time(stolen_s / (elapsed_s * units)),
        ]
