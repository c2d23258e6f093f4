"""Sweeps: measurements of many cases, whose placements are spread over the run."""

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
from memkern.machine import gpu
from memkern.measuring.process import forked, refuse_forked
from memkern.measuring.ranks import ranks, together
from memkern.measuring.record import (
    LARGE_B,
    SPREAD_S,
    CaseRun,
    Measurement,
    calibrated,
    count,
    environment_of_ranks,
    spread,
    to_result_set,
)
from memkern.measuring.variants import TRIAL_S
from memkern.progress import bar as progress_bar
from memkern.results import ResultSet, open_output
from memkern.spec.case import Case
from memkern.spec.options import GPUS
from memkern.spec.sequences import Cases, permuted, product

_BLOCK = 500  # cases of a sweep that are placed in the same rounds


@together()
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
    """Measure cases, with the placements of each case spread over the run.

    Blocks of up to 500 cases are measured in rounds. Each round places and samples every case once,
    in a new random order, until each has been placed as often as requested. Cases of a round reuse
    each other's memory, which is returned to the system after it. Only one block of cases is in
    memory at a time.

    Parameters
    ----------
    cases : iterable of Case
        Built as they are needed: of a sequence, such as `vary` returns, in the order of a random
        permutation, of any other iterable the next 500 at a time.
    repeats : int
        How often the sequence is measured, one time after the other, with separate records; of any
        other iterable, how often each block is.
    output : path, optional
        Results file: .db, .parquet, .csv or .json. During the run, results are in one SQLite file,
        to which each case is written after its first placement and after its last.
    resume : bool
        Continue an earlier, unfinished run of the same cases on the same machine and build.
    force : bool
        Overwrite an existing `output`, unless it is resumed.
    progress : bool, optional
        Show progress on standard error: a bar where that is a terminal or a notebook, else a line
        every ten seconds. By default only the bar.
    on_result : callable, optional
        Called with every `Measurement` when the last round of its block is over, in the order of
        the cases in the block.
    order : str
        ``random``, or ``declared`` for the order of the cases in every round.
    order_seed : int, optional
        Seed of the random order, which is in the record; by default a new one each time.
    on_begin : callable, optional
        Called after the first placement of the first case, when the options are known to work.
    time_s : float
        Seconds for the whole sweep; each placement gets its share of what is left. Where they are
        too few, cases have fewer samples and placements. Cases that have not been placed at the end
        are left out, and `ResultSet.left_out` is their number.

    Returns
    -------
    ResultSet
        All records, including those reused from an earlier run. After Ctrl-C, the records so far,
        with a warning and marked as `interrupted`; the results file can then be resumed.

    Raises
    ------
    InputError, MemoryError, DeviceError
        A case is wrong, a GPU does not work, or the results file can't be used; finished cases are
        in the file.
    """
    refuse_forked()
    if order not in ("random", "declared"):
        raise InputError(f"order {order!r} is not random or declared")
    integer(repeats, "repeats", 1)
    if not time_s > 0:
        raise InputError(f"time_s must be a positive number of seconds, not {time_s}")
    end = time.perf_counter() + time_s
    if order_seed is None:
        order_seed = random.SystemRandom().randrange(2**31)
    seed = ranks().first(order_seed)
    generator = random.Random(seed) if order == "random" else None
    columns = {
        "case_order": order,
        "case_order_seed": seed if order == "random" else None,
    }
    machine = environment_of_ranks()
    sink = None
    with ranks().waiting_for_first():
        if output is not None and ranks().number == 0:
            sink = open_output(output, resume, machine, force=force)
    done: list[Measurement] = []
    interrupted = begun = False
    finished = planned = placements = drawn = duplicates = left_out = 0

    def on_placed(run: CaseRun) -> None:
        nonlocal begun, finished
        if not begun and on_begin is not None:
            on_begin()
        begun = True
        # If the run ends early, the file has the case's first placement, marked as interrupted, or
        # all of them, whose interval knows nothing yet of those of other cases.
        if output is not None and (run.complete or len(run.placements) == 1):
            measurement = calibrated(run, machine, columns)
            store(measurement if run.complete else measurement.cut_off())
        finished += run.complete and not run.interrupted

    def store(measurement: Measurement) -> None:
        refuse_forked()
        if sink is not None:
            for part in (*measurement.parts, measurement):
                sink.store.add(part.record, part.samples, machine)

    def close_after(error: BaseException) -> None:
        """Close the file after an error, warn of what it has, and mark the error as resumable."""
        if sink is None:
            return
        sink.store.close()
        if sink.store.is_kept:
            vars(error)["resumable"] = True
            warnings.warn(
                f"{finished} of {size or planned} measurements done, kept in {sink.store.path}",
                stacklevel=4,
            )

    size = len(cases) * repeats if isinstance(cases, Sequence) else None
    bar = progress_bar(progress if ranks().number == 0 else False, time_s=time_s)
    try:
        for block in _blocks(cases, repeats, seed if generator is not None else None, sink):
            runs = block.runs
            planned += len(runs)
            placements += sum(run.case.placements for run in runs)
            drawn += block.drawn
            duplicates += block.duplicates
            if size is not None:
                # The remaining cases are assumed to have as many placements on average.
                bar.total = placements + (size - drawn) * placements // max(planned, 1)
            try:
                _measure_rounds(runs, generator, on_placed, bar, end)
            except KeyboardInterrupt:
                interrupted = True
            interrupted = interrupted or any(run.interrupted for run in runs)
            priors = _priors(runs, machine)
            for run in runs:
                if not run.placements:
                    left_out += run.out_of_time
                    continue
                prior, between_runs = priors[run.class_of(machine)]
                measurement = run.measurement(
                    machine,
                    prior=prior,
                    drift=between_runs if run.spread_s < SPREAD_S else None,
                    extra=columns,
                )
                complete = run.complete and not run.interrupted
                if complete:
                    count(run, measurement)
                else:
                    measurement = measurement.cut_off()
                store(measurement)
                if sink is None:
                    done.append(measurement)
                finished += complete and run.out_of_time
                if on_result is not None:
                    on_result(measurement)
            if interrupted:
                break
            if math.isfinite(end) and ranks().gate(time.perf_counter() > end):
                left_out += 0 if size is None else size - drawn
                break
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:
        close_after(error)
        raise
    finally:
        bar.close()
        if not forked():
            _memkern.release_memory()
    with ranks().waiting_for_first():
        if sink is None:
            results = to_result_set(done)
        elif interrupted:
            results = sink.store.result_set()
            sink.store.close()
        else:
            try:
                results = sink.finish()
            except BaseException as error:
                close_after(error)
                raise
    if duplicates:
        warnings.warn(
            f"{duplicates} of the cases repeat{'s' * (duplicates == 1)} an earlier one, apart from "
            "its name: equal cases are measured once (--repeats gives several records of a case)",
            stacklevel=3,
        )
    results.interrupted = interrupted
    results.left_out = left_out
    if left_out:
        warnings.warn(
            f"{left_out} of {size or planned} measurements are left out: {time_s:.3g} s were too "
            "few for all of them here",
            stacklevel=3,
        )
    if interrupted:
        kept = f", kept in {sink.store.path}" if sink is not None and results else ""
        warnings.warn(
            f"interrupted: {finished} of {size or planned} measurements done{kept}", stacklevel=3
        )
    return results


@dataclass(frozen=True)
class _Block:
    """Cases that are measured in the same rounds.

    They were found among `drawn` pairs of case and repeat, `duplicates` of which equal an earlier
    one; others have been measured already.
    """

    runs: list[CaseRun]
    drawn: int
    duplicates: int


def _blocks(cases: Iterable[Case], repeats: int, seed: int | None, sink: Any) -> Iterator[_Block]:
    """Yield the cases that are still to be measured, in blocks.

    Cases of a sequence are drawn in a random order by `seed`, or in their order without one.
    """
    runs: list[CaseRun] = []
    drawn = duplicates = 0
    seen: set[tuple[str, int]] = set()
    for some in [cases] if isinstance(cases, Sequence) else _portions(cases):
        places = _places(len(some), repeats, seed)
        while chosen := sorted(itertools.islice(places, _BLOCK - len(runs))):
            drawn += len(chosen)
            for place, times in itertools.groupby(chosen, key=lambda pair: pair[0]):
                case = some[place]
                for _, repeat in times:
                    run = CaseRun(case, repeat)
                    new, kept = ranks().first(_state(run, seen, sink))
                    duplicates += not new
                    if new and not kept:
                        runs.append(run)
            if len(runs) == _BLOCK:
                yield _Block(runs, drawn, duplicates)
                runs, drawn, duplicates = [], 0, 0
    yield _Block(runs, drawn, duplicates)


def _state(run: CaseRun, seen: set[tuple[str, int]], sink: Any) -> tuple[bool, bool]:
    """Return whether the case has not occurred before, and whether the file has its results."""
    key = run.case_id, run.repeat
    if sink is None:
        new = key not in seen
        seen.add(key)
        return new, False
    kept = sink.store.find(*key)
    return sink.store.first_time(*key), kept is not None and kept["stop"] != "interrupted"


def _portions(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield lists of as many cases as a block has."""
    rest = iter(cases)
    while portion := list(itertools.islice(rest, _BLOCK)):
        yield portion


def _places(size: int, repeats: int, seed: int | None) -> Iterator[tuple[int, int]]:
    """Yield (place, repeat) of every case, one repeat after the other."""
    for repeat in range(repeats if size else 0):
        for place in range(size):
            yield (place if seed is None else permuted(place, size, f"{seed}/{repeat}")), repeat


def _measure_rounds(
    runs: Sequence[CaseRun],
    generator: random.Random | None,
    on_placed: Callable[[CaseRun], None],
    bar: Any,
    end: float,
) -> None:
    """Place every case once in each round, until each was placed as often as requested.

    Each placement gets its share of the time that is left until `end`, on the clock of
    `time.perf_counter`; one that would take longer than all of it is left out. A quarter of the
    time is reserved for placements that need at most an equal share of that quarter: those of small
    cases, which cost little and vary most. The first placement of a small case is left out only if
    the time is over before the first round.
    """
    part_s = {id(run): expected_s([run.case]) / run.case.placements for run in runs}
    remaining_s = sum(part_s[id(run)] * run.case.placements for run in runs)
    every = sum(run.case.placements for run in runs)
    reserved_s = max(end - time.perf_counter(), 0.0) / 4
    for number in range(max((run.case.placements for run in runs), default=0)):
        if number:
            _memkern.release_memory(LARGE_B)
        todo = [run for run in runs if number < run.case.placements and not run.out_of_time]
        equal_s = reserved_s / max(every if number else len(runs), 1)
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
            if math.isinf(end) or ranks().agreed(fits):
                share_s = left_s * part / max(remaining_s, part)
                run.deadline = time.perf_counter() + max(share_s, min(part, equal_s))
                run.place()
                on_placed(run)
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
    """Return for each class of cases the variances between placements and between runs.

    The former is estimated from these cases where possible.
    """
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
        known, between_runs = spread(name)
        found[name] = (prior or known, between_runs)
    return found


def vary(case: Case, **knobs: Iterable[Any]) -> Cases:
    """Return the cases of all combinations of knob values.

    Parameters
    ----------
    case : Case
    **knobs : iterable
        Values by the name of a knob, such as ``pages=["4k", "thp"], threads=[1, 2]``; a sequence,
        such as a range, is not copied.

    Returns
    -------
    Cases
        A sequence whose cases are built on access. The last knob varies fastest.
    """
    axes = {
        name: values if isinstance(values, Sequence) else list(values)
        for name, values in knobs.items()
    }
    return product(case.with_, axes)


# Assumptions for estimates of the time of a case.
_MOVED_B_PER_S = 1e10  # least bandwidth of fills and kernels from memory
# Bytes of a case by the seconds of its first placement with validation; the median over a report's
# cases in memory is 1.3e9.
_VALIDATED_B_PER_S = 1e9
_PLACEMENT_S = 0.01  # of a placement besides these


def expected_s(cases: Iterable[Case]) -> float:
    """Estimate the seconds that cases take, including trials, fills and checks."""
    total_s = 0.0
    for case in cases:
        stop, once_s = case.stop, case.bytes_B / _MOVED_B_PER_S
        sampled_s = (stop.runs or case.placements) * max(stop.invocations, 1) * once_s
        sampled_s = max(sampled_s, 0.0 if stop.runs else stop.budget_s)
        again_s = (case.placements - 1) * (_placement_s(case) + 2 * once_s)
        total_s += least_s(case) + again_s + sampled_s
    return total_s


def least_s(case: Case) -> float:
    """Estimate the seconds that the first placement takes with the fewest samples."""
    trials_s = TRIAL_S / 8 if case.knobs.variant == "best" else 0.0
    return trials_s + _placement_s(case) + case.bytes_B / _VALIDATED_B_PER_S


def _placement_s(case: Case) -> float:
    """Estimate the seconds of a placement besides trials, fills, samples and the check."""
    return _PLACEMENT_S + (gpu.WARM_S if case.knobs.place == GPUS else 0.0)
