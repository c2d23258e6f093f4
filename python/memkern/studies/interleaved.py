"""Comparison of two sides that are measured in turns, so that drift affects both equally.

All cases are measured in rounds, one pair of each case per round, so that the pairs of a case are
spread over the whole run. Each side of each round is a new process, and every value has new
placements in memory, so that the comparison includes the variance between runs. A fixed pair of
placements may differ by several percent even if the sides do not.

The order within a pair is random, in blocks of two pairs: each side is first in one of them.
"""

from __future__ import annotations

import functools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memkern import small
from memkern.checks import integer, number, plain
from memkern.engine.public import in_rounds
from memkern.errors import InputError
from memkern.progress import announce
from memkern.progress import bar as progress_bar
from memkern.results.comparison import (
    DISTURBED,
    INVALID,
    NOT_MEASURED,
    Compared,
    differing,
    named_case,
    table,
    varying,
    version_of,
    work_of,
)
from memkern.results.verdicts import FURTHER, NOT_ENOUGH, PAIRS, UNDECIDED, Family, holm
from memkern.studies.workers import WorkerProcess

if TYPE_CHECKING:
    from pandas import DataFrame

_SIDES = ("A", "B")


class Worker(WorkerProcess):
    """A process that measures one side; see `memkern.studies.comparison_worker`."""

    def __init__(
        self, side: str, python: str, sweep: str | Path, changes: Mapping[str, Any]
    ) -> None:
        self._side = side
        super().__init__(
            f"measures side {side}",
            "memkern.studies.comparison_worker",
            str(sweep),
            json.dumps(dict(changes)),
            python=python,
        )

    @functools.cached_property
    def about(self) -> dict[str, Any]:
        """Description by the worker, once it is ready: ``cases``, ``build``, ``package``."""
        about = self.answer()
        if "error" in about:
            raise InputError(f"side {self._side}: {about['error']}")
        return about


def compare_runs(  # noqa: PLR0913
    sweep: str | Path,
    a: Mapping[str, Any] | None = None,
    b: Mapping[str, Any] | None = None,
    *,
    a_python: str | None = None,
    b_python: str | None = None,
    pairs: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    time_s: float = math.inf,
    slowdown: float | None = None,
) -> DataFrame:
    """Measure the cases of a sweep file on two sides, in turns, and compare them.

    Parameters
    ----------
    sweep : path
        See `memkern.spec.sweepfile`; its numbers of samples and repeats are ignored.
    a, b : mapping, optional
        Knobs of each side, which replace the file's, such as ``{"variant": "simd"}``.
    a_python, b_python : str, optional
        Interpreters, if the sides are different builds of memkern; by default this one.
    pairs : int, optional
        Most pairs of a case, at least 30; by default 30, and with `slowdown` and `time_s` as many
        as the time suffices for. A case is tested after half, two thirds and all of them, then at
        half as many again; measuring stops once it has a verdict.
    seed : int
        Of the random order.
    progress : bool, optional
        Whether to show progress on standard error; by default where that is a terminal.
    time_s : float
        Seconds after which no pair begins.
    slowdown : float, optional
        Relative increase of the time, such as 0.05: measuring of a case stops once its interval
        excludes it or lies wholly beyond it, instead of once it has a verdict; 0 for any slowdown,
        about which the verdict decides.

    Returns
    -------
    DataFrame
        As `memkern.compare` returns it, with ``pairs`` instead of ``placements``: pairs in which
        neither side was disturbed. ``ratio`` is from the 20 % trimmed means of the logarithms,
        ``p`` by Yuen's test of pairs, corrected for the number of tests and cases. A case that
        can't be measured on a side has the verdict ``not measured``, and a sentence in
        ``attrs["remarks"]``.

    Raises
    ------
    InputError
        The file, a knob or an interpreter is wrong, or the sides have different cases.
    """
    until_time = pairs is None and slowdown is not None and time_s < math.inf
    pairs = PAIRS if pairs is None else integer(pairs, "pairs", PAIRS)
    if not time_s > 0:
        raise InputError(f"time_s must be a positive number of seconds, not {time_s}")
    end_s = time.perf_counter() + time_s
    changes = [{k: plain(value, k) for k, value in (side or {}).items()} for side in (a, b)]
    pythons = (a_python or sys.executable, b_python or sys.executable)
    rng = random.Random(integer(seed, "seed"))

    @contextmanager
    def workers() -> Iterator[tuple[Worker, Worker]]:
        with ExitStack() as stack:
            started = {
                k: stack.enter_context(closing(Worker(_SIDES[k], pythons[k], sweep, changes[k])))
                for k in rng.sample((0, 1), 2)
            }
            # Both start at the same time; wait until they are ready.
            for worker in started.values():
                _ = worker.about
            yield started[0], started[1]

    with workers() as sides:
        about = [side.about for side in sides]
        if about[0]["cases"] != about[1]["cases"]:
            raise InputError(
                f"{sweep} has {about[0]['cases']} cases on side A and {about[1]['cases']} on side "
                "B: an option that the file has a list of must be given on both sides or neither"
            )
        cases, remarks = _describe_cases(sides, about[0]["cases"], progress)
    if all(case.verdict == NOT_MEASURED for case in cases):
        raise InputError(remarks[0])
    family = Family(
        len(cases),
        small.cut(pairs, 6),
        number(slowdown or 0.0, "slowdown", 0.0),
        FURTHER * until_time,
    )
    for k, case in enumerate(cases):
        if case.verdict != NOT_ENOUGH:
            family.drop(k)
    with closing(progress_bar(progress, unit="pairs", time_s=time_s)) as bar:

        def show(measured: int) -> None:
            left = sum(family.looks[-1] - family.count(k) for k in family.undecided())
            bar.total = measured + left
            bar.update(measured - bar.n)

        tried, errors = measure_pairs(family, cases, workers, rng, show, end_s)
    remarks += _assign_verdicts(family, cases, tried, errors)
    compared = sorted(
        k for k in {*changes[0], *changes[1]} if changes[0].get(k) != changes[1].get(k)
    )
    if about[0]["package"] == about[1]["package"] and not compared:
        remarks.append(
            f"both sides are the build in {about[0]['package']} with the same options: A against "
            "itself"
        )
    if family.interrupted:
        remarks.append("interrupted: cases without a verdict have fewer pairs than requested")
    elif time.perf_counter() > end_s:
        remarks.append(f"cases without a verdict have the pairs that {time_s:g} s sufficed for")
    versions = (version_of(about[0]["build"]), version_of(about[1]["build"]))
    found = table(cases, "pairs", compared, remarks, versions)
    found.attrs["interrupted"] = family.interrupted
    return found


def measure_pairs(
    family: Family,
    cases: Sequence[Compared],
    sides: Callable[[], Any],
    rng: random.Random,
    progress: Callable[[int], None],
    end_s: float = math.inf,
) -> tuple[list[int], dict[int, str]]:
    """Measure pairs in rounds until every case is decided or has all its pairs.

    The `Family` tells which are decided.

    Parameters
    ----------
    family : Family
        The pairs are added to it.
    cases : sequence of Compared
        Their `work` on both sides is used.
    sides : callable
        Returns a context manager that provides both `Worker` of a round.
    rng : random.Random
    progress : callable
        Called with the number of pairs, disturbed ones included, after each.
    end_s : float
        On the clock of `time.perf_counter`; no pair begins later.

    Returns
    -------
    tried : list of int
        Pairs of each case, disturbed ones included; at most twice as many as a case may have.
    errors : dict
        By case, the reason why it could not be measured further.
    """
    tried = [0] * len(cases)
    leads = [0] * len(cases)
    errors: dict[int, str] = {}

    def pair(case: int, two: tuple[Worker, Worker]) -> None:
        """Measure one pair; the order of the sides alternates within each block of two."""
        leads[case] = 1 - leads[case] if tried[case] % 2 else rng.randrange(2)
        tried[case] += 1
        values, disturbed = [math.nan, math.nan], False
        for k in (leads[case], 1 - leads[case]):
            answer = two[k].request("sample", case)
            if "error" in answer:
                errors[case] = f"not measured on side {_SIDES[k]}: {answer['error']}"
                family.drop(case)
                return
            disturbed |= answer["seconds"] is None
            seconds = answer["seconds"] or answer.get("observed")
            if seconds is None:
                return
            values[k] = math.log(seconds / cases[case].work[k][cases[case].quantity.suffix])
        family.observed[case].append((values[0], values[1]))
        if not disturbed:
            family.add(case, *values)

    def one_round(todo: Sequence[int]) -> None:
        begin_s, first = time.perf_counter(), not any(tried)
        with sides() as two:
            for case in todo:
                # The test of another case may have decided it.
                if time.perf_counter() > end_s:
                    return
                if case in family.undecided():
                    pair(case, two)
                progress(sum(tried))
        if first:
            seconds = min((family.looks[-1] - 1) * (time.perf_counter() - begin_s), end_s - begin_s)
            announce(
                f"measuring at most {family.looks[-1]} pairs of each case, {len(todo)} in all",
                seconds,
            )

    def next_round(_: int) -> Sequence[Sequence[int]]:
        """Return a round of the cases that need more pairs, in random order."""
        todo = [k for k in family.undecided() if tried[k] < 2 * family.looks[-1]]
        return [rng.sample(todo, len(todo))] if todo else []

    family.interrupted = in_rounds(
        one_round, next_round, end_s=end_s, kept=lambda: any(family.observed)
    )
    return tried, errors


def _assign_verdicts(
    family: Family, cases: Sequence[Compared], tried: Sequence[int], errors: Mapping[int, str]
) -> list[str]:
    """Set the cases' estimates and verdicts, and return remarks on those without a verdict."""
    corrected = holm(family.p)
    members = int(np.count_nonzero(~np.isnan(corrected)))
    remarks = []
    for k, case in enumerate(cases):
        estimate = family.estimates[k]
        if case.verdict != NOT_ENOUGH:
            continue
        if k in errors:
            case.verdict = NOT_MEASURED
            remarks.append(f"{case.label}: {errors[k]}")
        elif estimate is None:
            if family.observed[k]:
                a, b = np.median(family.observed[k], axis=0).tolist()
                case.times = a, b
            if 2 * family.count(k) < tried[k]:
                case.verdict = DISTURBED
            remarks.append(f"{case.label}: {family.count(k)} of {tried[k]} pairs were undisturbed")
        else:
            case.estimate, case.times = estimate, (estimate.a, estimate.b)
            case.verdict, case.p = family.verdicts[k], float(corrected[k])
            case.gate = family.gates[k]
            if case.gate == UNDECIDED:
                case.needed = estimate.needed(members, family.slowdown)
    return remarks


def _describe_cases(
    sides: tuple[Worker, Worker], count: int, progress: bool | None
) -> tuple[list[Compared], list[str]]:
    """Measure each case once on both sides, to identify it and to validate its results."""
    answers: list[list[dict[str, Any]]] = []
    with closing(progress_bar(progress, total=2 * count, unit="first measurements")) as bar:
        for k in range(count):
            answers.append([])
            for worker in sides:
                answers[-1].append(worker.request("measure", k))
                bar.update()
    records = [[answer.get("record", {}) for answer in two] for two in answers]
    compared = {column for a, b in records if a and b for column in differing(a, b)}
    several = varying([two[0] or two[1] for two in records], compared)
    cases, remarks = [], []
    for k, two in enumerate(records):
        first = two[0] or two[1]
        case = Compared(
            named_case(first, several) if first else f"case-{k}",
            {"kernel": first.get("kernel"), **{column: first.get(column) for column in several}},
            (work_of(two[0]), work_of(two[1])),
        )
        cases.append(case)
        names = [named_case(record) for record in two if record]
        if len(set(names)) > 1:
            raise InputError(f"case {k} is {names[0]} on side A and {names[1]} on side B")
        for side, answer in zip(_SIDES, answers[k], strict=True):
            if "error" in answer:
                case.verdict = NOT_MEASURED
                remarks.append(f"{case.label}: not measured on side {side}: {answer['error']}")
            elif answer["record"].get("valid") is False:
                case.verdict = INVALID
                remarks.append(f"{case.label}: the results of side {side} are invalid")
    return cases, remarks
