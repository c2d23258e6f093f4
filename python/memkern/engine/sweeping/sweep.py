"""Sweeps: measurements of many cases, whose placements are spread over the run."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memkern.checks import integer, several
from memkern.engine.placing.run import CaseRun, count, environment_of_ranks
from memkern.engine.processes.communication import ranks, refuse_forked, together
from memkern.engine.recording.record import with_intervals
from memkern.engine.recording.taken import Measurement, to_result_set
from memkern.engine.sweeping.planning import Plan, by_importance, rates
from memkern.engine.sweeping.rounds import Collected, in_rounds
from memkern.errors import InputError, warn
from memkern.formats import ResultSet
from memkern.host import this_host
from memkern.host.distances import Spread
from memkern.isolating import isolates
from memkern.progress import bar as progress_bar
from memkern.spec.case import Case
from memkern.spec.sequences import Cases, permuted, product

_BLOCK = 500  # cases of a sweep that are placed in the same rounds
_FIRST_LOOK_S = 10.0  # after which the results so far are told
# A limited time that is left is spent on cases with wider intervals, up to so many times the
# requested placements.
_NARROW, _MOST_TIMES = 0.02, 3
_APART = 16  # above the number of records of a case, which may be a rotation of kernels


@isolates
@together()
def sweep(  # noqa: PLR0913
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
    learned: Callable[[ResultSet], str] | None = None,
) -> ResultSet:
    """Measure cases, with the placements of each case spread over the run.

    Blocks of up to 500 cases are measured in rounds. Each round places and samples every case once,
    in a new random order, until all requested placements are done. Cases of a round reuse each
    other's memory, which is returned to the system after the round. Only one block of cases is in
    memory at a time.

    Parameters
    ----------
    cases : iterable of Case
        Cases are built on demand: from a sequence, such as `vary` returns, in random order; from
        any other iterable the next 500 at a time.
    repeats : int
        How often the whole sequence is measured, with separate records; of any other iterable, how
        often each block is measured.
    output : path, optional
        Results file: .db, .parquet, .csv or .json. During the run, results are in one SQLite file,
        to which each case is written after its last placement, or when the run is interrupted.
    resume : bool
        Continue an earlier, unfinished run of the same cases on the same machine and build.
    force : bool
        Overwrite an existing `output`, unless it is resumed.
    progress : bool, optional
        Show progress on standard error: a bar in a terminal or notebook, else a line every ten
        seconds. By default only the bar.
    on_result : callable, optional
        Called with every `Measurement` when the last round of its block is over, in the order of
        the cases in the block.
    order : str
        ``random``, or ``declared`` for the order of the cases in every round.
    order_seed : int, optional
        Seed of the random order, which is in the record; by default a new one each time.
    on_begin : callable, optional
        Called after the first placement of the first case, which shows that the options work.
    time_s : float
        Seconds for the whole sweep, once its first cases are built; each placement gets its share
        of what is left. If the time is too short, the most informative cases of a block come first
        (ends of ranges before their middles; with a declared order, the first ones), each with at
        least three placements (or all, if it has fewer) spread over the run. Others are left out,
        and `ResultSet.left_out` is their number.

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
    if math.isfinite(time_s):
        rates()  # measured once in a process
    end = math.inf
    if order_seed is None:
        order_seed = random.SystemRandom().randrange(2**31)
    seed = ranks().first(integer(order_seed, "order_seed")) if order == "random" else None
    machine = environment_of_ranks()
    results = _Results(
        machine,
        {"case_order": order, "case_order_seed": seed},
        len(cases) * repeats if isinstance(cases, Sequence) else None,
        on_result,
    )
    with ranks().waiting_for_first():
        if output is not None and ranks().number == 0:
            from memkern.formats.store import open_output

            results.sink = open_output(output, resume, machine, force=force)
    bar = progress_bar(progress if ranks().number == 0 else False, time_s=time_s)
    generator = None if seed is None else random.Random(seed)
    look = (begin := time.perf_counter()) + _FIRST_LOOK_S
    blocks = _blocks(cases, repeats, seed, results.kept)

    def measured(run: CaseRun, runs: Sequence[CaseRun]) -> None:
        """Tell about a placement, and store the case after its last one."""
        nonlocal on_begin, look
        if on_begin is not None:
            on_begin()
            on_begin = None
        results.placed(run)
        if learned is not None and progress and time.perf_counter() > look:
            look += look - begin
            bar.set_postfix_str(learned(results.so_far(runs)))

    def measure_block(block: _Block) -> bool:
        nonlocal end
        results.begin(block, bar)
        # The cases of the first block have been built, which may take long.
        end = min(end, time.perf_counter() + time_s)
        last = results.is_last

        def again(plan: Plan | None) -> list[CaseRun]:
            return _again(block.runs, machine, plan if last else None)

        interrupted = _in_rounds(block.runs, generator, bar, end, measured, again)
        results.end_block(block.runs)
        return interrupted

    with contextlib.closing(bar):
        interrupted = in_rounds(
            measure_block,
            lambda _: [] if results.is_over(end) else list(itertools.islice(blocks, 1)),
            results=results,
        )
    return results.finish(interrupted, time_s)


class _Results(Collected):
    """The results of a sweep, in memory or in its file.

    `size` is the number of measurements, if it is known, `columns` are further ones of records.
    """

    def __init__(
        self,
        machine: dict[str, Any],
        columns: Mapping[str, Any],
        size: int | None,
        on_result: Callable[[Measurement], None] | None,
    ) -> None:
        self._machine, self._columns = machine, columns
        self._size, self._on_result = size, on_result
        super().__init__(lambda: f"{self._measured} of {self._total} measurements")
        # Complete measurements of this block and the number of their placements, by run.
        self._complete: dict[CaseRun, tuple[Measurement, Spread, int]] = {}
        # Positions of this block's records in the file, by run.
        self._positions: dict[CaseRun, int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._planned = self._placements = self._drawn = 0
        self._duplicates = self._measured = self._left_out = 0
        # Reused results of a smaller budget, and results less precise than requested.
        self._briefer = self._imprecise = 0

    @property
    def _total(self) -> int:
        return self._size or self._planned

    def kept(self, run: CaseRun) -> tuple[bool, bool]:
        """Return whether a case has not occurred before, and whether the file has its results."""
        key = run.case_id, run.repeat
        if self.sink is None:
            new = key not in self._seen
            self._seen.add(key)
            return new, False
        kept = self.sink.store.find(*key)
        done = kept is not None and kept["stop"] != "interrupted"
        if kept is not None and done:
            self._briefer += float(kept.get("budget_s", math.inf)) < run.case.stop.most_s
        return self.sink.store.database.first_time(*key), done

    def begin(self, block: _Block, bar: Any) -> None:
        """Count the cases of a block."""
        self._planned += len(block.runs)
        self._placements += sum(run.case.placements for run in block.runs)
        self._drawn += block.drawn
        self._duplicates += block.duplicates
        first = self.sink.store.database.end if self.sink is not None else 0
        self._positions = {run: first + k * _APART for k, run in enumerate(block.runs)}
        if self._size is not None:
            # The remaining cases are assumed to have as many placements on average.
            more = (self._size - self._drawn) * self._placements // max(self._planned, 1)
            bar.total = self._placements + more

    def placed(self, run: CaseRun) -> None:
        """Store a case after its last requested placement, in case the rest of the block is lost.

        Its interval does not yet use the placements of other cases.
        """
        if run.complete and not run.interrupted and run not in self._complete:
            known = run.spread(self._machine)
            done = run.measurement(self._machine, spread=known, extra=self._columns)
            self._complete[run] = done, known, len(run.placements)
            self._store({run: done})
            self._measured += 1

    def end_block(self, runs: Sequence[CaseRun]) -> None:
        """Keep the results of a block, with intervals by the placements of all its cases."""
        spreads = _spreads(runs, self._machine)
        done, changed = [], {}
        for run in runs:
            if not run.placements:
                self._left_out += run.out_of_time
                continue
            known = spreads[run.class_of(self._machine)]
            measurement, before, placed = self._complete.pop(run, (None, None, 0))
            self._measured += measurement is None and run.out_of_time and not run.interrupted
            stored = known == before and placed == len(run.placements)
            if measurement is None or placed < len(run.placements):
                measurement = run.measurement(self._machine, spread=known, extra=self._columns)
            elif not stored:
                measurement = with_intervals(measurement, run.taken, known)
            if run.complete and not run.interrupted:
                count(run, measurement)
                asked = run.case.stop.precision is not None
                self._imprecise += asked and measurement.record["stop"] == "budget"
            else:
                measurement, stored = measurement.cut_off(), False
            done.append(measurement)
            if not stored:
                changed[run] = measurement
        self._store(changed)
        if self.sink is None:
            self.done += to_result_set(done)
        if self._on_result is not None:
            for measurement in done:
                self._on_result(measurement)

    def so_far(self, runs: Sequence[CaseRun]) -> ResultSet:
        """Return the results of the placements so far."""
        machine = self._machine
        return to_result_set(
            [run.measurement(machine, spread=run.spread(machine)) for run in runs if run.placements]
        )

    @property
    def is_last(self) -> bool:
        """Whether no case follows those of the blocks so far."""
        return self._size == self._drawn

    def is_over(self, end: float) -> bool:
        """Return whether the time is over; if so, count the cases that are left out."""
        over = math.isfinite(end) and ranks().gate(time.perf_counter() > end)
        if over and self._size is not None:
            self._left_out += self._size - self._drawn
        return over

    def _store(self, done: Mapping[CaseRun, Measurement]) -> None:
        refuse_forked()
        if self.sink is not None and done:
            rows = {
                self._positions[run] + k: (row.record, row.samples)
                for run, measurement in done.items()
                for k, row in enumerate((*measurement.parts, measurement))
            }
            self.sink.store.add_all(list(rows.values()), self._machine, list(rows))

    def finish(self, interrupted: bool, time_s: float) -> ResultSet:
        """Export the file, and return the results, with warnings about missing cases."""
        with ranks().waiting_for_first():
            try:
                results = self.end(interrupted)
            except Exception as error:
                self.close_after(error)
                raise
        results.left_out = self._left_out
        for number, found in (
            (
                self._duplicates,
                f"of the cases equal{'s' * (self._duplicates == 1)} an earlier one except for the "
                "name: equal cases are measured once (--repeats gives several records of a case)",
            ),
            (
                self._briefer,
                f"kept measurement{'s' * (self._briefer > 1)} had a smaller budget (column "
                "budget_s): without --resume, all are measured with this one",
            ),
            (
                self._imprecise,
                f"of {self._total} measurements are less precise than requested, since their time "
                "was over (--budget, column stop)",
            ),
            (
                self._left_out,
                f"of {self._total} measurements are left out: {time_s:.3g} s did not suffice for "
                "all",
            ),
        ):
            if number:
                warn(f"{number} {found}")
        return results


@dataclass(frozen=True)
class _Block:
    """Cases that are measured in the same rounds.

    They come from `drawn` pairs of case and repeat, of which `duplicates` equal an earlier one and
    others have been measured already.
    """

    runs: list[CaseRun]
    drawn: int
    duplicates: int


def _blocks(
    cases: Iterable[Case],
    repeats: int,
    seed: int | None,
    kept: Callable[[CaseRun], tuple[bool, bool]],
) -> Iterator[_Block]:
    """Yield the remaining cases in blocks.

    Cases of a sequence are drawn in a random order by `seed`, or in their order without one. `kept`
    returns whether a case is new, and whether it has results.
    """
    runs: list[CaseRun] = []
    drawn = duplicates = 0
    rest = iter(cases)
    portions = iter(lambda: list(itertools.islice(rest, _BLOCK)), [])
    for some in [cases] if isinstance(cases, Sequence) else portions:
        positions = _positions(len(some), repeats, seed)
        while chosen := sorted(itertools.islice(positions, _BLOCK - len(runs))):
            drawn += len(chosen)
            for position, times in itertools.groupby(chosen, key=lambda pair: pair[0]):
                case = some[position]
                for _, repeat in times:
                    run = CaseRun(case, repeat)
                    new, done = ranks().first(kept(run))
                    duplicates += not new
                    if new and not done:
                        runs.append(run)
            if len(runs) == _BLOCK:
                yield _Block(runs, drawn, duplicates)
                runs, drawn, duplicates = [], 0, 0
    yield _Block(runs, drawn, duplicates)


def _positions(size: int, repeats: int, seed: int | None) -> Iterator[tuple[int, int]]:
    """Return (place, repeat) of every case, one repeat after the other."""
    return (
        (position if seed is None else permuted(position, size, f"{seed}/{repeat}"), repeat)
        for repeat in range(repeats)
        for position in range(size)
    )


def _in_rounds(
    runs: Sequence[CaseRun],
    generator: random.Random | None,
    bar: Any,
    end: float,
    measured: Callable[[CaseRun, Sequence[CaseRun]], None],
    again: Callable[[Plan | None], list[CaseRun]] = lambda plan: [],
) -> bool:
    """Place every case once in each round, as often as requested; return whether interrupted.

    If time is limited, the most informative cases come first in the first round, unless the order
    is declared; cases for which it does not suffice are left out (see `planning.Plan`). Further
    rounds have the cases that `again` returns.
    """
    plan = None
    if math.isfinite(end):
        runs = runs if generator is None else by_importance(runs, lambda run: run.case)
        plan = Plan(runs, end)

    def of_round(number: int) -> list[CaseRun]:
        todo = [run for run in runs if number < run.case.placements and not run.out_of_time]
        if not todo:
            todo = again(plan)
            if bar.total is not None:
                bar.total += len(todo)
        if generator is not None and (number or plan is None):
            generator.shuffle(todo)
        return todo

    def place(run: CaseRun) -> bool:
        if plan is not None and not plan.suffices(run):
            run.out_of_time = True
            left = plan.leave_out(run)
            if bar.total is not None:
                bar.total -= left
            return False
        if plan is not None:
            plan.begin(run)
        run.place()
        if plan is not None:
            plan.placed(run)
        measured(run, runs)
        bar.update()
        return run.interrupted

    return in_rounds(place, of_round)


def _again(runs: Sequence[CaseRun], machine: dict[str, Any], plan: Plan | None) -> list[CaseRun]:
    """Return the cases that are placed more often than requested.

    They are those that are less precise than requested and, if there is a plan for a limited time,
    which must not be over, the one whose interval is the widest.
    """
    spreads = functools.cache(lambda: _spreads(runs, machine))

    def known(run: CaseRun) -> Spread:
        return spreads()[run.class_of(machine)]

    placed = [run for run in runs if run.placements]
    found = [run for run in placed if run.imprecise(functools.partial(known, run))]
    if found or plan is None:
        return found
    often = [run for run in placed if len(run.placements) < _MOST_TIMES * run.case.placements]
    widths = {run: known(run).floor.within() for run in often if plan.suffices(run)}
    wide = [run for run, width in widths.items() if width > _NARROW]
    return sorted(wide, key=lambda run: (-widths[run], len(run.placements)))[:1]


def _spreads(runs: Sequence[CaseRun], machine: dict[str, Any]) -> dict[str, Spread]:
    """Return what is known of the distances between runs of each class, also from these runs."""
    found: dict[str, Spread] = {}
    for run in runs:
        if run.placements:
            name = run.class_of(machine)
            found[name] = found.get(name, Spread()) + run.taken.distances
    return {name: this_host().spread(name) + own.to_next_command() for name, own in found.items()}


def vary(case: Case, **knobs: Iterable[Any]) -> Cases:
    """Return the cases of all combinations of knob values.

    Parameters
    ----------
    case : Case
    **knobs : iterable
        Values by the name of a knob, such as ``pages=["4k", "thp"], threads=np.arange(1, 9)``; a
        range is not copied.

    Returns
    -------
    Cases
        A sequence whose cases are built on access. The last knob varies fastest.
    """
    return product(case.with_, {name: several(values, name) for name, values in knobs.items()})
