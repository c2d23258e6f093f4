"""Sweeps: many cases, whose placements are spread over the run."""

from __future__ import annotations

import itertools
import math
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memkern import _memkern, statistics
from memkern.checks import integer
from memkern.errors import InputError
from memkern.machine.topology import machine_environment
from memkern.measuring import calibration
from memkern.measuring.process import forked, refuse_forked
from memkern.measuring.record import LARGE_B, SPREAD_S, CaseRun, Measurement, to_result_set
from memkern.measuring.variants import TRIAL_S
from memkern.progress import bar as progress_bar
from memkern.results import ResultSet, open_output
from memkern.spec.case import Case
from memkern.spec.sequences import Cases, permuted, product

_BLOCK = 500  # cases of a sweep among which placements go round


def sweep(
    cases: Iterable[Case],
    *,
    repeats: int = 1,
    output: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool | None = None,
    on_result: Callable[[Measurement], None] | None = None,
    order: str = "random",
    order_seed: int | None = None,
    on_begin: Callable[[], None] | None = None,
    time_s: float = math.inf,
) -> ResultSet:
    """Measure cases, each of whose placements is spread over the run.

    Of up to 500 cases at a time, every one is placed and sampled once, then every one once more,
    until each has been placed as often as it asks for; each round has an order of its own. Memory
    goes from case to case within a round and back to the system after it. No more cases than that
    are held at a time, however many are to come.

    Parameters
    ----------
    cases : iterable of Case
        Taken as they are needed: of a sequence, such as `vary` returns, by a random permutation of
        its places, of any other iterable the next 500 at a time.
    repeats : int
        How often all of it is measured, one time after the other, for records of their own; of an
        iterable that is no sequence, as often as that the 500 cases at a time.
    output : path, optional
        Results file: .db, .parquet, .csv or .json. Until the end they stand in one SQLite file,
        each case after its first placement and after its last.
    resume : bool
        Go on with an earlier, unfinished run of the same cases on the same machine and build.
    force : bool
        Overwrite what stands at `output`, unless it is resumed.
    progress : bool, optional
        Show progress on standard error: a bar where that is a terminal or a notebook, else a line
        every ten seconds. By default only the bar.
    on_result : callable, optional
        Called with every `Measurement` when its last round is over; of those that go round
        together, in the order of the cases.
    order : str
        ``random``, or ``declared`` for the order of the cases in every round.
    order_seed : int, optional
        Seed of the random order, which the record holds; by default another one each time.
    on_begin : callable, optional
        Called when the first case has been placed: what was asked for can be had.
    time_s : float
        Seconds for all of it, of which each placement has its part of what is left. Where they are
        too few, cases are sampled more briefly and have fewer placements; what has not been placed
        when they are over is left out, and `ResultSet.left_out` says how many cases these are.

    Returns
    -------
    ResultSet
        All records, those reused from an earlier run included. After Ctrl-C those that were
        done, with a warning, and marked as `interrupted`; the results file can be resumed then.

    Raises
    ------
    InputError, MemoryError
        A case is wrong or the results file can't be used; what was done stands in the file.
    """
    refuse_forked()
    if order not in ("random", "declared"):
        raise InputError(f"order {order!r} is not random or declared")
    integer(repeats, "repeats", 1)
    if not time_s > 0:
        raise InputError(f"time_s must be a positive number of seconds, not {time_s}")
    end = time.perf_counter() + time_s
    seed = random.SystemRandom().randrange(2**31) if order_seed is None else order_seed
    generator = random.Random(seed) if order == "random" else None
    columns = {
        "case_order": order,
        "case_order_seed": seed if order == "random" else None,
    }
    machine = machine_environment()
    sink = open_output(output, resume, machine, force=force) if output is not None else None
    done: list[Measurement] = []
    interrupted = begun = False
    finished = planned = placements = gone = duplicates = left_out = 0

    def placed(run: CaseRun) -> None:
        nonlocal begun
        if not begun and on_begin is not None:
            on_begin()
        begun = True
        # One that is cut off later is measured again, but not without a trace.
        if sink is not None and len(run.placements) == 1 < run.case.placements:
            keep(run.measurement(machine), last=False)

    def keep(measurement: Measurement, *, last: bool) -> None:
        if sink is not None:
            for part in (*measurement.parts, measurement):
                record = part.record if last else {**part.record, "stop": "interrupted"}
                sink.store.add(record, part.samples, machine)
        elif last:
            done.append(measurement)

    def leave(error: BaseException) -> None:
        """Close the file after an error, and say what is in it and the error that it may go on."""
        if sink is None:
            return
        sink.store.close()
        if sink.store.is_kept:
            vars(error)["resumable"] = True
            warnings.warn(
                f"{finished} of {size or planned} measurements done, kept in {sink.store.path}",
                stacklevel=3,
            )

    size = len(cases) * repeats if isinstance(cases, Sequence) else None
    bar = progress_bar(progress, time_s=time_s)
    try:
        for block in _blocks(cases, repeats, seed if generator is not None else None, sink):
            runs = block.runs
            planned += len(runs)
            placements += sum(run.case.placements for run in runs)
            gone += block.asked
            duplicates += block.duplicates
            if size is not None:
                # Cases that are still to be built are taken to be placed as often as these.
                bar.total = placements + (size - gone) * placements // max(planned, 1)
            try:
                _go_round(runs, generator, placed, bar, end)
            except KeyboardInterrupt:
                interrupted = True
            interrupted = interrupted or any(run.interrupted for run in runs)
            priors = _priors(runs, machine)
            for run in runs:
                if not run.placements:
                    left_out += run.out_of_time
                    continue
                prior, drift = priors[run.class_of(machine)]
                short = run.spread_s < SPREAD_S
                measurement = run.measurement(
                    machine, prior=prior, drift=drift if short else None, extra=columns
                )
                whole = run.whole and not run.interrupted
                if not whole:
                    measurement = measurement.cut_off()
                keep(measurement, last=True)
                finished += whole
                if on_result is not None:
                    on_result(measurement)
            if interrupted:
                break
            if time.perf_counter() > end:
                left_out += 0 if size is None else size - gone
                break
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:
        leave(error)
        raise
    finally:
        bar.close()
        if not forked():
            _memkern.release_memory()
    if sink is None:
        results = to_result_set(done)
    elif interrupted:
        results = sink.store.result_set()
        sink.store.close()
    else:
        try:
            results = sink.finish()
        except BaseException as error:
            leave(error)
            raise
    if duplicates:
        warnings.warn(
            f"{duplicates} of the cases ask{'s' * (duplicates == 1)} for the same as an earlier "
            "one, whatever their names: what is asked for twice is measured once (--repeats gives "
            "several records of a case)",
            stacklevel=2,
        )
    results.interrupted = interrupted
    results.left_out = left_out
    if left_out:
        warnings.warn(
            f"{left_out} of {size or planned} measurements are left out: {time_s:.3g} s were too "
            "few for all of them here",
            stacklevel=2,
        )
    if interrupted:
        kept = f", kept in {sink.store.path}" if sink is not None and results else ""
        warnings.warn(
            f"interrupted: {finished} of {size or planned} measurements done{kept}", stacklevel=2
        )
    return results


@dataclass(frozen=True)
class _Block:
    """Cases that go round together, and how many were asked for to find them.

    `duplicates` of these ask for the same as an earlier one.
    """

    runs: list[CaseRun]
    asked: int
    duplicates: int


def _blocks(cases: Iterable[Case], repeats: int, seed: int | None, sink: Any) -> Iterator[_Block]:
    """Yield the cases that are still to be measured, as many at a time as go round together.

    They are taken from all over a sequence by `seed`, and in their order without one.
    """
    runs: list[CaseRun] = []
    asked = duplicates = 0
    seen: set[tuple[str, int]] = set()
    for some in [cases] if isinstance(cases, Sequence) else _portions(cases):
        places = _places(len(some), repeats, seed)
        while chosen := sorted(itertools.islice(places, _BLOCK - len(runs))):
            asked += len(chosen)
            for place, times in itertools.groupby(chosen, key=lambda pair: pair[0]):
                case = some[place]
                for _, repeat in times:
                    key = case.identity(), repeat
                    if sink is None:
                        new = key not in seen
                        seen.add(key)
                    else:
                        new = sink.store.first_time(*key)
                    if not new:
                        duplicates += 1
                        continue
                    kept = sink.store.find(*key) if sink is not None else None
                    if kept is None or kept["stop"] == "interrupted":
                        runs.append(CaseRun(case, repeat))
            if len(runs) == _BLOCK:
                yield _Block(runs, asked, duplicates)
                runs, asked, duplicates = [], 0, 0
    yield _Block(runs, asked, duplicates)


def _portions(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield as many of the cases at a time as go round together."""
    rest = iter(cases)
    while portion := list(itertools.islice(rest, _BLOCK)):
        yield portion


def _places(size: int, repeats: int, seed: int | None) -> Iterator[tuple[int, int]]:
    """Yield the place of every case with every repeat, one repeat after the other."""
    for repeat in range(repeats if size else 0):
        for place in range(size):
            yield (place if seed is None else permuted(place, size, f"{seed}/{repeat}")), repeat


def _go_round(
    runs: Sequence[CaseRun],
    generator: random.Random | None,
    placed: Callable[[CaseRun], None],
    bar: Any,
    end: float = math.inf,
) -> None:
    """Place every case once in each round, until each was placed as often as it asks for.

    Each placement may take its part of the time that is left until `end`, on the clock of
    `time.perf_counter`; one that would take longer than all of it is left out. A quarter of the
    time is kept for placements that take no more than an equal part of it: those of small cases,
    which cost little and differ most. Of these the first one is only left out where there is no
    time at all.
    """
    part_s = {id(run): expected_s([run.case]) / run.case.placements for run in runs}
    remaining_s = sum(part_s[id(run)] * run.case.placements for run in runs)
    every = sum(run.case.placements for run in runs)
    kept_s = max(end - time.perf_counter(), 0.0) / 4
    for number in range(max((run.case.placements for run in runs), default=0)):
        if number:
            _memkern.release_memory(LARGE_B)
        todo = [run for run in runs if number < run.case.placements and not run.out_of_time]
        equal_s = kept_s / max(every if number else len(runs), 1)
        takes_s = {
            id(run): run.placements[-1].again_s if number else least_s(run.case) for run in todo
        }
        small = {place for place, seconds in takes_s.items() if seconds <= equal_s}
        if generator is not None:
            generator.shuffle(todo)
        for run in todo:
            left_s, part = end - time.perf_counter(), part_s[id(run)]
            if id(run) in small:
                small.remove(id(run))
                fits = number == 0 or takes_s[id(run)] <= left_s
            else:
                fits = takes_s[id(run)] <= left_s - equal_s * len(small)
            if fits:
                share_s = left_s * part / max(remaining_s, part)
                run.deadline = time.perf_counter() + max(share_s, min(part, equal_s))
                run.place()
                placed(run)
                bar.update()
            else:
                run.out_of_time = True
                remaining_s -= part * (run.case.placements - number - 1)
                if bar.total is not None:
                    bar.total -= run.case.placements - number
            remaining_s -= part
            if run.interrupted:
                return


def _priors(
    runs: Sequence[CaseRun], machine: dict[str, Any]
) -> dict[str, tuple[statistics.Prior | None, statistics.Prior | None]]:
    """Return what the cases of each class have in common, and what calibration knows of it."""
    known = calibration.load()
    classes: dict[str, list[list[float]]] = {}
    for run in runs:
        if run.placements:
            classes.setdefault(run.class_of(machine), []).append(run.medians)
    found = {}
    for name, all_medians in classes.items():
        several = [np.log(medians) for medians in all_medians if len(medians) > 1]
        prior = statistics.moderate(
            [float(np.var(x, ddof=1)) for x in several], [len(x) - 1 for x in several]
        )
        calibrated, drift = known.of(name) if known is not None else (None, None)
        found[name] = (prior or calibrated, drift)
    return found


def vary(case: Case, **knobs: Iterable[Any]) -> Cases:
    """All combinations of knob values, as cases.

    Parameters
    ----------
    case : Case
    **knobs : iterable
        Values by the name of a knob, such as ``pages=["4k", "thp"], threads=[1, 2]``; a sequence,
        such as a range, is not copied.

    Returns
    -------
    Cases
        A sequence whose cases are built when they are asked for. The last knob varies fastest.
    """
    axes = {
        name: values if isinstance(values, Sequence) else list(values)
        for name, values in knobs.items()
    }
    return product(case.with_, axes)


# What fills and bodies from memory move at least in a second, of how much a case takes a second to
# be placed for the first time and validated (1.3 in the median over a report's cases beyond the
# caches), and what a placement costs besides.
_MOVED_B_PER_S = 1e10
_VALIDATED_B_PER_S = 1e9
_PLACEMENT_S = 0.01


def expected_s(cases: Iterable[Case]) -> float:
    """Return about how many seconds cases take: trials, fills, samples and checks."""
    total_s = 0.0
    for case in cases:
        stop, once_s = case.stop, case.bytes_B / _MOVED_B_PER_S
        sampled_s = (stop.runs or case.placements) * max(stop.invocations, 1) * once_s
        sampled_s = max(sampled_s, 0.0 if stop.runs else stop.budget_s)
        again_s = (case.placements - 1) * (_PLACEMENT_S + 2 * once_s)
        total_s += least_s(case) + again_s + sampled_s
    return total_s


def least_s(case: Case) -> float:
    """Return about how many seconds one placement takes, however briefly it is sampled."""
    trials_s = TRIAL_S / 8 if case.knobs.variant == "best" else 0.0
    return trials_s + _PLACEMENT_S + case.bytes_B / _VALIDATED_B_PER_S
