"""Cases measured alone and with neighbours, which other processes run on other units."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from memkern import small
from memkern.checks import integer, shown
from memkern.engine.public import (
    LARGE_B,
    CaseRun,
    Choice,
    Collected,
    Measurement,
    Neighbour,
    Prepared,
    calibrated,
    ensure,
    expected_s,
    in_rounds,
    prepare,
    ready,
    refuse_forked,
)
from memkern.engine.recording.samples import WAITED_SHARE
from memkern.errors import InputError
from memkern.extension import _memkern
from memkern.formats import ResultSet
from memkern.formats.store import open_output
from memkern.host.capacity import beyond_caches_B
from memkern.host.environment import machine_environment
from memkern.machine.caches import line_B
from memkern.machine.environment import cpu_list
from memkern.machine.topology import physical_cores
from memkern.progress import announce
from memkern.progress import bar as progress_bar
from memkern.results.comparison import label_of
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.studies.workers import WorkerProcess

Sides: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""Processing units of the measured case, and of its neighbour."""

# Default cases: contiguous loads and triad, loads from every line, atomic operations in random
# order, dependent loads.
KERNELS = ("loops.load", "stream.triad", "spatter.gather", "amo.rand", "latency.chase")
QUICK_KERNELS = ("loops.load", "stream.triad", "latency.chase")
TURNS = 7
_SIZES = {"elements", "footprint_B", "pattern", "count", "iters", "words", "memsize"}


def halves(cores: Sequence[Sequence[int]]) -> Sides:
    """Divide cores into two sides that share every cache and node.

    Parameters
    ----------
    cores : sequence of sequence of int
        Processing units by physical core; cores that share a cache or node are adjacent.

    Returns
    -------
    Sides
        The units of every second core, and of the others; the last of an odd number of cores is
        left out. One unit of each core comes first, so that few workers do not share cores.

    Raises
    ------
    InputError
        There is only one core.
    """
    if len(cores) < 2:
        units = [unit for core in cores for unit in core]
        if len(units) < 2:
            raise InputError("corun needs two processing units, and this process may use one")
        raise InputError(
            "corun needs two cores, and this process may use one: --units "
            f"{units[0]}:{units[1]} measures how much its hardware threads slow each other down"
        )
    pairs = len(cores) // 2

    def units_of(own: Sequence[Sequence[int]]) -> list[int]:
        return [unit for units in itertools.zip_longest(*own) for unit in units if unit is not None]

    return units_of(cores[: 2 * pairs : 2]), units_of(cores[1 : 2 * pairs : 2])


def read_units(text: str) -> Sides:
    """Read the units of both sides, such as ``0-3:4-7`` or ``0,2:1``.

    Raises
    ------
    InputError
        The text is malformed.
    """
    part = "[0-9]{1,5}(-[0-9]{1,5})?"
    if not re.fullmatch(f"{part}(,{part})*:{part}(,{part})*", text):
        raise InputError(f"units are two lists of processing units, such as 0-3:4-7, not {text!r}")
    first, second = text.split(":")
    return cpu_list(first), cpu_list(second)


def sides(units: Sides | None = None) -> Sides:
    """Return the units of both sides, by default `halves` of those that this process may use.

    Raises
    ------
    InputError
        A side has no unit, or a unit is not usable here or occurs twice.
    """
    if units is None:
        return halves(physical_cores())
    both = [*units[0], *units[1]]
    usable = _memkern.topology()["units"]
    for unit in both:
        if unit not in usable:
            raise InputError(
                f"units has the processing unit {shown(unit)}, which this process may not use or "
                "the machine does not have"
            )
        if both.count(unit) > 1:
            raise InputError(f"units has the processing unit {unit} twice: give it to one side")
    if not (units[0] and units[1]):
        raise InputError("units must have at least one processing unit on each side")
    return units


def build(kernel: str, units: int, **options: Any) -> Case:
    """Build a case of any kernel for one side.

    Parameters
    ----------
    kernel : str
        See `memkern.case`.
    units : int
        Processing units of the side: the default number of workers.
    **options
        Options of the kernel. Without options of sizes, the kernels in `KERNELS` have data in
        memory.

    Raises
    ------
    InputError
        See `memkern.case`.
    """
    spec = registry.spec_of(kernel, options.get("definition", "paper"))
    options = {"threads": registry.options_of(spec)["threads"] or units, **options}
    if not options.keys() & _SIZES:
        options |= _from_memory(spec.name, options)
    return registry.case(kernel, **options)


def _from_memory(kernel: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that give one of `KERNELS` data in memory."""
    # All neighbours are prepared at the same time.
    size_B = beyond_caches_B(parts=1 + len(KERNELS))
    lines = size_B // line_B()
    stride = line_B() // (4 if options.get("dtype") == "float32" else 8)
    sized: dict[str, dict[str, Any]] = {
        "loops.load": {"footprint_B": size_B},
        "stream.triad": {"footprint_B": size_B},
        "spatter.gather": {"pattern": f"UNIFORM:8:{stride}:NR", "count": lines // 8},
        # One access for each line.
        "amo.rand": {"memsize": size_B, "iters": -(-lines // int(options["threads"]))},
    }
    return sized.get(kernel, {})


class _Process(WorkerProcess):
    """The process of a neighbour; see `memkern.studies.neighbour`."""

    def __init__(self, case: Case) -> None:
        self.label = _label(case)
        super().__init__(f"runs the neighbour {self.label}", "memkern.studies.neighbour")
        self.neighbour = Neighbour(self.label, case.identity(), self.process.pid)

    def wait(self) -> None:
        """Wait until the case is prepared."""
        answer = self.answer()
        if "error" in answer:
            raise InputError(f"the neighbour {self.label}: {answer['error']}")

    def place(self, run: CaseRun, prepared: Prepared) -> None:
        """Measure a case while the neighbour runs.

        Raises
        ------
        InputError
            The neighbour ended, or made no invocation.
        """
        self.request("run", True)
        run.place(prepared)
        found = self.request("run", False)
        if not found["invocations"]:
            raise InputError(
                f"the neighbour {self.label} made no invocation beside {_label(run.case)}"
            )
        if found["waited_share"] > WAITED_SHARE and not small.wanted():
            run.disturb()


def corun(  # noqa: PLR0913
    cases: Sequence[Case] | None = None,
    neighbours: Sequence[Case] | None = None,
    *,
    units: Sides | None = None,
    turns: int = TURNS,
    seed: int = 0,
    output: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool | None = None,
    on_turn: Callable[[Sequence[Measurement]], None] | None = None,
) -> ResultSet:
    """Measure cases alone and with neighbours, which other processes run on other units.

    In each turn, every case gets a new placement in memory and is measured in it alone and with
    each neighbour, all in random order. `memkern.slowdowns` returns the slowdown of a case by each
    neighbour.

    Parameters
    ----------
    cases : sequence of Case, optional
        Their kernels or names must differ. By default contiguous loads and triad, loads from every
        line, atomic operations in random order and dependent loads, all from memory. The turns
        share the budget of a case, and use the variant that is fastest without neighbours.
    neighbours : sequence of Case, optional
        By default `cases`.
    units : pair of sequences of int, optional
        Processing units of the measured case and of the neighbour; by default the units of every
        second core, and of the others. A case without a number of threads has one on each unit of
        its side.
    turns : int
        At least 2.
    seed : int
        Of the random order.
    output, resume, force, progress
        As of `memkern.sweep`; each turn is written to the file at its end.
    on_turn : callable, optional
        Called with the measurements of each turn: of every case alone, then with each neighbour.

    Returns
    -------
    ResultSet
        In its records, ``repeat`` is the turn and ``beside`` the neighbour, empty for none. After
        Ctrl-C, the records of the turns so far, with a warning and marked as `interrupted`.

    Raises
    ------
    InputError, MemoryError
        Cases or units are wrong, the results file can't be used, or a neighbour ended.
    """
    refuse_forked()
    turns = small.cut(integer(turns, "turns", 2), 2)
    first, second = sides(units)
    if cases is None:
        cases = [build(kernel, min(len(first), len(second))) for kernel in KERNELS]
    measured = _on_side(cases, first, turns)
    others = _on_side(cases if neighbours is None else neighbours, second, turns)
    order = {"case_order": "random", "case_order_seed": integer(seed, "seed")}
    machine = machine_environment()
    sink = open_output(output, resume, machine, force=force) if output is not None else None
    finished: list[int] = []
    results = Collected(lambda: f"{len(finished)} of {turns} turns", sink)
    total = turns * len(measured) * (1 + len(others))
    about_s = turns * (1 + len(others)) * expected_s(measured)
    announce(f"measuring {len(measured)} cases beside {len(others)} neighbours", about_s)
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(
            contextlib.closing(progress_bar(progress, total=total, unit="measurements"))
        )

        @functools.cache
        def started() -> tuple[list[Choice], list[_Process]]:
            choices = [prepare(case).choice for case in measured]
            theirs = choices if neighbours is None else [prepare(case).choice for case in others]
            processes = [stack.enter_context(contextlib.closing(_Process(one))) for one in others]
            # They start at the same time.
            for process, *prepared in zip(processes, others, theirs, strict=True):
                process.send(pickle.dumps(prepared))
            for process in processes:
                process.wait()
            return choices, processes

        def one_turn(turn: int) -> None:
            choices, processes = started()
            runs = [
                [CaseRun(case, turn), *(CaseRun(case, turn, p.neighbour) for p in processes)]
                for case in measured
            ]
            every = [run for row in runs for run in row]
            if sink is not None and all(sink.store.find(r.case_id, turn) for r in every):
                bar.update(len(every))
                finished.append(turn)
                return
            generator = random.Random(f"{seed}/{turn}")
            for k in generator.sample(range(len(runs)), len(runs)):
                _measure(runs[k], choices[k], processes, generator, bar.update)
            found = [
                calibrated(run, machine, {"beside": run.beside.label if run.beside else ""} | order)
                for run in every
            ]
            results.add(found)
            finished.append(turn)
            if on_turn is not None:
                on_turn(found)

        interrupted = in_rounds(one_turn, range(turns), rounds=1, results=results)
    return results.end(interrupted)


def _label(case: Case) -> str:
    return label_of(case.spec.kernel, registry.definition_of(case.spec), case.labels.get("name"))


def _on_side(cases: Sequence[Case], units: Sequence[int], turns: int) -> list[Case]:
    """Return cases with the units of a side and the budget of one turn, after checking them."""
    if not cases:
        raise InputError("corun needs at least one case and one neighbour")
    placed: dict[str, Case] = {}
    for case in cases:
        label, knobs = _label(case), case.knobs
        workers = knobs.threads or len(units)
        if label in placed:
            raise InputError(f"two cases are called {label}: give one of them another name")
        if not knobs.backend.on_processors:
            raise InputError(f"{label} runs on {knobs.device}, where it has no neighbour: use cpu")
        if knobs.pin != "auto":
            raise InputError(f"{label} has pin {shown(knobs.pin)}: leave it out, and give units")
        if case.spec.limits.most_runs.get(case.dtype):
            raise InputError(
                f"{label} can't be a neighbour, since its values grow with every invocation: use "
                "another kernel"
            )
        if workers > len(units):
            raise InputError(
                f"{label} has {workers} threads, and its side {len(units)} processing "
                f"unit{'s' * (len(units) > 1)}: build it with threads={len(units)}"
            )
        placed[label] = case.with_(
            threads=workers,
            pin=",".join(map(str, units[:workers])),
            placements=1,
            budget_s=case.stop.usual_s / turns,
        )
    return list(placed.values())


def _measure(
    runs: Sequence[CaseRun],
    choice: Choice,
    processes: Sequence[_Process],
    generator: random.Random,
    progress: Callable[[], object],
) -> None:
    """Measure a case alone and with each neighbour, in one placement and in random order."""
    prepared = ready(runs[0].case, choice)
    ensure(prepared)  # without neighbours
    pairs = list(zip(runs, (None, *processes), strict=True))
    for run, process in generator.sample(pairs, len(pairs)):
        if process is None:
            run.place(prepared)
        else:
            process.place(run, prepared)
        if run.interrupted:
            raise KeyboardInterrupt
        progress()
    del prepared
    _memkern.release_memory(LARGE_B)
