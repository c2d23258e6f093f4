"""The loop of all sweeps and studies: steps in rounds, until the time is over or Ctrl-C."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from memkern import progress as told
from memkern import small
from memkern.engine.placing.run import LARGE_B, CaseRun
from memkern.engine.processes.communication import forked
from memkern.engine.recording.taken import Measurement, to_result_set
from memkern.engine.sweeping.planning import expected_s
from memkern.errors import InputError, Interrupted, warn
from memkern.extension import _memkern
from memkern.formats import ResultSet
from memkern.spec.case import Case

if TYPE_CHECKING:
    from memkern.formats.store import Sink

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


class Collected:
    """Results of a loop, in memory or in a file.

    Parameters
    ----------
    finished : callable
        Returns what was finished, such as ``3 of 7 turns``.
    sink : Sink, optional

    Attributes
    ----------
    done : ResultSet
        The results, if they are not in a file.
    """

    def __init__(self, finished: Callable[[], str], sink: Sink | None = None) -> None:
        self.sink = sink
        self.done = ResultSet()
        self._finished = finished

    def add(self, found: Sequence[Measurement]) -> None:
        """Add results, to the file if there is one."""
        if self.sink is None:
            self.done += to_result_set(found)
        else:
            for one in found:
                self.sink.store.add(one.record, one.samples, one.environment)

    def close_after(self, error: BaseException) -> None:
        """Close the file after an error, warn of its contents, and make it known as resumable."""
        if self.sink is not None:
            self.sink.store.close()
            if self.sink.store.is_kept:
                error.__cause__ = Interrupted(self.sink.store.path)
                warn(f"{self._finished()} done, kept in {self.sink.store.path}")

    def end(self, interrupted: bool) -> ResultSet:
        """Export the file, and return the results, with a warning if the loop was interrupted."""
        results = self.done if self.sink is None else self.sink.finish(interrupted)
        results.interrupted = interrupted
        if interrupted:
            kept = f", kept in {self.sink.store.path}" if self.sink and results else ""
            warn(f"interrupted: {self._finished()} done{kept}")
        return results


def in_rounds(
    step: Callable[[Item], object],
    items: Sequence[Item] | Callable[[int], Sequence[Item]],
    *,
    kept: Callable[[], object] = lambda: True,
    results: Collected | None = None,
    **how: Any,
) -> bool:
    """Call a step with every item once in each round.

    Between rounds large buffers are returned to the system, and at the end all memory.

    Parameters
    ----------
    step : callable
        Gets an item; returns True if it was interrupted, but has results.
    items : sequence or callable
        The items, or a function from the number of a round to its items in their order; the loop
        ends with a round without any.
    kept : callable
        Returns whether there are results; if not, an interruption is raised.
    results : Collected, optional
        Results whose file is closed after an error.
    **how
        See `_all_rounds`.

    Returns
    -------
    bool
        Whether the loop was interrupted.

    Raises
    ------
    KeyboardInterrupt
        Interrupted before there were results.
    Exception
        Of a step; its cause is an `Interrupted` if the results are in a file.
    """
    try:
        _all_rounds(step, items if callable(items) else lambda _: items, **how)
    except KeyboardInterrupt:
        if not kept():
            raise
        return True
    except BaseException as error:
        if results is not None:
            results.close_after(error)
        raise
    finally:
        if not forked():
            _memkern.release_memory()
    return False


def _all_rounds(
    step: Callable[[Item], object],
    items: Callable[[int], Sequence[Item]],
    rounds: int | None = None,
    end_s: float = math.inf,
    least: int = 0,
    after: Callable[[int], object] | None = None,
) -> None:
    """Call a step with every item of each round.

    Parameters
    ----------
    step, items
        See `in_rounds`.
    rounds : int, optional
        Number of rounds; by default until there are no items or the time is over.
    end_s : float
        No step begins later, on the clock of `time.perf_counter`.
    least : int
        Rounds that do not end with the time.
    after : callable, optional
        Called with the number of each complete round.

    Raises
    ------
    KeyboardInterrupt
        A step was interrupted.
    """
    for number in itertools.count() if rounds is None else range(rounds):
        if number:
            _memkern.release_memory(LARGE_B)
        todo = items(number)
        if not len(todo):
            return
        for item in todo:
            if number >= least and time.perf_counter() > end_s:
                return
            if step(item) is True:
                raise KeyboardInterrupt
        if after is not None:
            after(number)


@dataclass(frozen=True)
class Placed(Generic[Key]):
    """Result of `place_in_rounds`.

    Attributes
    ----------
    runs : dict of CaseRun
        The cases that were placed, by key.
    refused : dict of str
        Reasons why the others could not be measured, by key.
    interrupted : bool
    """

    runs: dict[Key, CaseRun]
    refused: dict[Key, str]
    interrupted: bool


def place_in_rounds(
    cases: Mapping[Key, Case],
    *,
    rounds: int,
    seconds: float,
    progress: Callable[[float], object] | None = None,
) -> Placed[Key]:
    """Place each case once in every round, in random order, until it is interrupted.

    Parameters
    ----------
    cases : mapping
        Cases by any key.
    rounds : int
        Placements of each case; fewer where small measurements are wanted (see `memkern.small`).
    seconds : float
        Longest duration: a case that does not fit in the remaining time is left out of a round.
    progress : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    Placed

    Raises
    ------
    InputError
        No case could be placed.
    KeyboardInterrupt
        Interrupted before any case was placed.
    """
    rounds = small.cut(rounds, 1)
    begin = time.perf_counter()
    end = begin + seconds
    runs = {key: CaseRun(case.with_(placements=rounds)) for key, case in cases.items()}
    refused: dict[Key, str] = {}
    done = 0
    about_s = expected_s(run.case for run in runs.values())
    told.announce(f"measuring {len(runs)} cases", min(about_s, seconds))

    def place(key: Key) -> bool:
        nonlocal done
        done += 1
        run = runs[key]
        needed_s = run.placements[-1].wall_s if run.placements else 0.0
        if key in refused or end - time.perf_counter() <= needed_s:
            return False
        run.deadline = end
        try:
            run.place()
        except (InputError, MemoryError) as error:
            refused[key] = str(error) or "out of memory"
        _memkern.release_memory(LARGE_B)
        if progress is not None:
            of_time = (time.perf_counter() - begin) / seconds
            progress(min(max(done / (rounds * len(runs)), of_time), 1.0))
        return run.interrupted

    order = random.Random(0)
    interrupted = in_rounds(
        place,
        lambda _: order.sample([*runs], len(runs)),
        rounds=rounds,
        kept=lambda: any(run.placements for run in runs.values()),
    )
    for key, run in runs.items():
        if not run.placements:
            refused.setdefault(key, "interrupted" if interrupted else "the time was over")
    placed = {key: run for key, run in runs.items() if run.placements}
    if cases and not placed:
        raise InputError(f"nothing could be measured: {next(iter(refused.values()))}")
    return Placed(placed, refused, interrupted)
