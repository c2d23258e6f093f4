"""Measuring: a case becomes samples, samples become a record.

This is the only module that reaches the compiled part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern import _memkern, environment, gpu, statistics
from memkern.errors import InputError
from memkern.kernels.launch import launch
from memkern.kernels.streaming import loops, stream
from memkern.results import ResultSet, open_output
from memkern.spec import Case, Ceilings, Check, Invoke, registry

# A sample this many clock ticks long is read to better than a tenth of a percent.
_TICKS_PER_SAMPLE = 1000
# Launches between two synchronisations with a GPU (Chalmers and Warburton 2020).
_LAUNCHES = 20
_TRIALS_ON_DEVICE = 5
# In fixed-count mode a sample is one invocation unless that is shorter than this.
_TICKS_PER_RUN = 100
_TRIAL_B = 2**18  # what a trial of a variant moves at least, if the case does
_TRIAL_S = 2e-5  # and how long one lasts of a case that moves less
# Trials of variants: which part of an invocation, how often in turns, how many go on.
_TRIALS = ((512, 4, 4), (128, 8, 2), (64, 12, 1))
_GOLDEN = (math.sqrt(5) - 1) / 2  # turns by so much of a circle meet no place twice
_SHORT_LAUNCHES = 10  # below so many launches an invocation is mostly launching
_NOISY_SPREAD = 0.10
_NOISY_INTERVAL = 0.10
_NOISY_STEAL = 0.01


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Turn the extension's ValueErrors into what they are: about what a person asked for."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(error)) from None


def machine_environment() -> dict[str, Any]:
    """Describe this machine and build, as stored beside every run's records."""
    found = environment.collect(_memkern.build())
    if gpu.devices():
        found["devices"] = {name: gpu.describe(name) for name in gpu.devices()}
    return found


class Prepared:
    """A case with everything resolved: memory placed and filled, variant chosen.

    Attributes
    ----------
    run : callable
        ``run(k)`` invokes the kernel `k` times and returns the seconds that took, as one sample
        in the case's way to repeat. Nothing is allocated, parsed or checked on the way.
    obtained : dict
        Threads, pinning, pages, variant and instruction set as they came to be.
    """

    def __init__(self, case: Case) -> None:
        knobs = case.knobs
        self.case = case
        self.device = None if knobs.device == "cpu" else knobs.device
        if self.device and knobs.threads and "workers" not in case.integers:
            raise InputError(
                f"{case.spec.name} on {self.device} has as many threads as it has work: leave "
                "threads out"
            )
        with _said_plainly():
            self.native = _memkern.Prepared(
                kernel=case.spec.name,
                dtype=case.dtype,
                index_dtype=case.index_dtype,
                form=case.form,
                integers={**case.integers, "prefetch": knobs.prefetch},
                numbers=dict(case.numbers),
                arrays=[(array.name, array.role != "read") for array in case.spec.arrays],
                indices=dict(case.indices),
                data={
                    name: np.ascontiguousarray(values, dtype=case.dtype)
                    for name, values in case.data.items()
                },
                threads=knobs.threads,
                pin=knobs.pin,
                pages=knobs.pages,
                numa=knobs.numa,
                offset=knobs.offset,
                schedule=knobs.schedule,
                chunk=knobs.chunk,
                repetition=knobs.repetition,
                unroll=knobs.unroll,
                flush=knobs.flush,
                seed=knobs.seed,
                device=gpu.handle(knobs.device),
                timer=knobs.timer,
                block_threads=knobs.block_threads,
            )
            self.run: Callable[[int], float] = self.native.run
            self._choose()
        self.stages: list[str] = self.native.obtained()["stages"]
        self._clocks_Hz: list[float] = []

    @property
    def obtained(self) -> dict[str, Any]:
        """What was obtained of what was asked."""
        return {**self.native.obtained(), "pages": self.native.pages()}

    def _choose(self) -> None:
        """Select the variant and instruction set asked for, by trial where it is `best`."""
        variant, isa = self.case.knobs.variant, self.case.knobs.isa
        every: list[tuple[str, str]] = self.native.candidates()
        fitting = [(v, i) for v, i in every if variant in ("best", v) and isa in ("best", i)]
        if not fitting:
            choices = ", ".join(f"{v} on {i}" for v, i in every)
            raise InputError(
                f"kernel {self.case.spec.name!r} has no variant {variant!r} for instruction set "
                f"{isa!r} here: there are {choices}"
            )
        # A named variant runs on the widest instruction set; candidates come widest first.
        chosen = fitting[0] if variant != "best" else self._fastest(fitting)
        self.native.select(*chosen)

    def _fastest(self, candidates: list[tuple[str, str]]) -> tuple[str, str]:
        """Try each briefly, the better ones longer, in turns."""
        if self.device:
            # A part would say more about launching it.
            shortest = dict.fromkeys(candidates, math.inf)
            for _, candidate in itertools.product(range(_TRIALS_ON_DEVICE), candidates):
                self.native.select(*candidate)
                shortest[candidate] = min(shortest[candidate], self.run(1))
            return min(shortest, key=shortest.__getitem__)
        count = self.case.iterations
        # A part much shorter than this says more about launching it than about the kernel.
        least = math.ceil(_TRIAL_B * count / max(1, self.case.bytes_B))
        begin = 0
        work = self.case.spec.work
        before = None if work is None else work(self.case, self.native)

        def part_s(size: int) -> float:
            """Seconds for its share of the work of a part far from the last: in no cache."""
            nonlocal begin
            if size == count:
                return self.run(repeats) / repeats
            begin = (begin + round(count * _GOLDEN)) % (count - size + 1)
            seconds = self.native.run_range(begin, begin + size)
            done = size if before is None else int(before[begin + size] - before[begin])
            return seconds / max(done, 1)

        repeats = 1
        if count <= least:
            once_s = min(self.run(1) for _ in range(3))
            repeats = max(1, math.ceil(_TRIAL_S / max(once_s, _TRIAL_S / 1000)))
        for divisor, rounds, finalists in _TRIALS:
            if len(candidates) == 1:
                break
            size = min(count, max(count // divisor, least))
            times: dict[tuple[str, str], list[float]] = {c: [] for c in candidates}
            for _, candidate in itertools.product(range(rounds), candidates):
                self.native.select(*candidate)
                times[candidate].append(part_s(size))
            # The first pays for pages and branch history, and any may be disturbed.
            speed = {c: float(np.quantile(t, 0.25)) for c, t in times.items()}
            candidates = sorted(candidates, key=speed.__getitem__)[:finalists]
        return candidates[0]

    def check(self, invoke: Invoke | None = None) -> Check:
        """Validate what the kernel makes of freshly filled buffers against the reference.

        Parameters
        ----------
        invoke : callable, optional
            Invokes the kernel and returns how often; once by default.
        """

        def once() -> int:
            self.native.run(1)
            return 1

        return self.case.spec.check(self.case, self.native, invoke or once)

    @property
    def clock_GHz(self) -> float:
        """Clock of the workers' cores beside the samples taken so far; NaN if unknown."""
        known = [clock for clock in self._clocks_Hz if clock > 0]
        return float(np.median(known)) / 1e9 if known else math.nan

    def sample(self) -> tuple[npt.NDArray[np.float64], int, str]:
        """Take samples until the case's stop rule is met.

        Returns
        -------
        samples : ndarray of float64, shape (n, 1 + k)
            Seconds per invocation; beside them those of the k kernels that it runs in turn, if it
            is more than one.
        invocations : int
            Invocations in one sample.
        stop : str
            Why sampling ended: ``runs``, ``ci``, ``samples``, ``budget`` or ``interrupted``.
        """
        stop = self.case.stop
        invocations = self.invocations
        rule = statistics.StopRule(
            target=stop.ci, max_samples=stop.max_samples, budget_s=stop.budget_s
        )
        samples = np.full((stop.runs or stop.max_samples, 1 + len(self.stages)), np.nan)
        start = time.perf_counter()
        done = 0
        try:
            while True:
                wanted = stop.runs or rule.next_count(done)
                left = math.inf if stop.runs else stop.budget_s - (time.perf_counter() - start)
                done += self.native.sample(samples[done:wanted], invocations, left)
                self._clocks_Hz.append(self.native.clock_Hz())
                if stop.runs:
                    return samples, invocations, "runs"
                reason = rule.done(samples[:done, 0], time.perf_counter() - start)
                if reason is not None:
                    return samples[:done], invocations, reason
        except KeyboardInterrupt:
            taken = samples[~np.isnan(samples[:, 0])]
            if taken.size == 0:
                raise
            return taken, invocations, "interrupted"

    @functools.cached_property
    def invocations(self) -> int:
        """How many invocations make a sample: those asked for, or what the clock needs."""
        if self.case.stop.invocations:
            return self.case.stop.invocations
        if self.case.knobs.flush or self.stages:
            return 1
        if self.device:
            return _LAUNCHES
        ticks = _TICKS_PER_SAMPLE if self.case.stop.runs is None else _TICKS_PER_RUN
        goal = ticks * _memkern.clock_tick()
        invocations = 1
        # Where a small part is long enough, the whole need not be tried.
        if self.native.run_range(0, -(-self.case.iterations // 128)) >= 20 * goal:
            return invocations
        while True:
            seconds = self.run(invocations)
            if seconds < 20 * goal:
                # So short a time may be mostly disturbance.
                seconds = min(seconds, self.run(invocations), self.run(invocations))
            if seconds >= goal:
                return invocations
            # What is itself too short to be read is no basis for a large step.
            grow = goal / seconds if seconds > goal / 100 else 10.0
            invocations = math.ceil(invocations * min(max(grow * 1.1, 1.5), 10.0))


@dataclass(frozen=True)
class Measurement:
    """One case, measured.

    Attributes
    ----------
    record : dict
        The flat row of the results table.
    samples : ndarray of float64, shape (n,)
        Seconds per invocation, in the order in which they were taken.
    environment : dict
        The machine and build.
    parts : tuple of Measurement
        Where an invocation runs several kernels in turn, these on their own.
    """

    record: dict[str, Any]
    samples: npt.NDArray[np.float64]
    environment: dict[str, Any]
    parts: tuple[Measurement, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the kernel's results were right."""
        return bool(self.record["valid"])

    @property
    def bandwidth_GBps(self) -> float:
        """By the paper's formula on the shortest time."""
        return float(self.record["bandwidth_GBps"])

    @property
    def results(self) -> ResultSet:
        """The measurement as a result set, its parts first."""
        return together([self])

    def _repr_html_(self) -> str:
        return self.results._repr_html_()


def prepare(case: Case) -> Prepared:
    """Allocate, place and fill what a case needs, and choose its variant.

    Raises
    ------
    InputError, MemoryError
        Something asked for is wrong or can't be had; nothing was touched then.
    """
    return Prepared(case)


def apply(case: Case, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Run a case's kernel once on the caller's values, exactly as a measurement would.

    Parameters
    ----------
    case : Case
    **arrays : ndarray
        Values for arrays of the kernel (see its spec) in the case's dtype; the others keep what
        a measurement fills them with. An array that every worker has to itself has shape
        (workers, n), or (n,) with one worker.

    Returns
    -------
    dict of ndarray
        All arrays of the kernel afterwards.

    Raises
    ------
    InputError
        An array is unknown or of the wrong shape or type.
    """
    prepared = prepare(case)
    with _said_plainly():
        prepared.native.fill(outputs=True)
        for name, values in arrays.items():
            prepared.native.copy_in(name, np.asarray(values))
        prepared.native.run(1)
        return {name: prepared.native.copy_out(name) for name in prepared.native.arrays()}


def forms(kernel: str, isa: str = "best") -> set[str]:
    """Return the forms that a kernel is built with for what this machine, or one `isa`, runs."""
    isas = [name for name in _memkern.supported_isas() if isa in ("best", name)]
    return {entry[6] for entry in _memkern.entries() if entry[0] == kernel and entry[2] in isas}


def last_level_cache_B() -> int:
    """Return the size of the last-level caches together."""
    return int(_memkern.topology()["last_level_cache_B"])


@functools.cache
def launch_cost_s(threads: int, pin: str, repetition: str) -> float:
    """Shortest time of an empty invocation, in seconds (see `memkern.kernels.launch`)."""
    prepared = prepare(launch(threads=threads, pin=pin, repetition=repetition, runs=300))
    samples, _, _ = prepared.sample()
    return float(samples.min())


@functools.cache
def device_launch_cost_s(device: str, timer: str, invocations: int = 0) -> float:
    """Shortest time of an empty kernel on a device, in seconds; by default of 20 in a row."""
    case = launch(runs=50, device=device, timer=timer, invocations=invocations)
    samples, _, _ = prepare(case).sample()
    return float(samples.min())


@functools.cache
def ceilings_GBps(threads: int, pin: str, pages: str) -> dict[str, float]:
    """Return what memory gives to loads alone and to a triad: medians of their best variants."""
    cache_B = last_level_cache_B()
    knobs: dict[str, Any] = {"threads": threads, "pin": pin, "pages": pages, "budget_s": 0.5}
    cases = {
        "load": loops("load", footprint_B=4 * cache_B, **knobs),
        "triad": stream("triad", footprint_B=6 * cache_B, **knobs),
    }
    return {
        name: float(measure(case).record["bandwidth_median_GBps"]) for name, case in cases.items()
    }


def measure(
    case: Case,
    *,
    repeat: int = 0,
    extra: Mapping[str, Any] | None = None,
    machine: dict[str, Any] | None = None,
) -> Measurement:
    """Measure one case: prepare, sample, validate.

    Parameters
    ----------
    case : Case
    repeat : int
        Number of this repeat, for the record.
    extra : mapping, optional
        Further columns of the record.
    machine : dict, optional
        The environment, where the caller has it already.

    Returns
    -------
    Measurement

    Raises
    ------
    InputError, MemoryError
        See `prepare`.
    """
    start = time.perf_counter()
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    # Before the case takes the device's memory.
    known = {} if case.knobs.device == "cpu" else {"gpu_copy_GBps": _copy_GBps(case.knobs.device)}
    prepared = prepare(case)
    spec, knobs = case.spec, case.knobs
    taken: list[tuple[npt.NDArray[np.float64], int, str, dict[str, Any]]] = []
    if spec.counts_runs:
        # Found by trying, which must be over before anything counts.
        _ = prepared.invocations

    def sample() -> int:
        noise = environment.read_noise()
        energy_J = gpu.read(knobs.device) if prepared.device else math.nan
        found = prepared.sample()
        about = gpu.since(knobs.device, energy_J) if prepared.device else {}
        taken.append((*found, {**environment.noise_since(noise), **about}))
        return len(taken[0][0]) * taken[0][1]

    if spec.idempotent or spec.counts_runs:
        # What is timed is what is validated, and all that has an effect is counted.
        check = prepared.check(sample)
    else:
        check = prepared.check()
        for name, value in spec.calm.items():
            array = prepared.native.arrays()[name]
            values = np.full(array["columns"], value, dtype=array["dtype"])
            prepared.native.copy_in(name, values)
        sample()
    samples, invocations, stop, noise_columns = taken[0]
    if prepared.stages and len(samples) > 1:
        samples = samples[1:]  # STREAM's rule: the first turn does not count
    machine = machine_environment() if machine is None else machine
    obtained = prepared.obtained
    launch_s = math.nan
    if case.bytes_B and prepared.device:
        launch_s = device_launch_cost_s(prepared.device, knobs.timer)
    elif case.bytes_B:
        launch_s = launch_cost_s(obtained["threads"], knobs.pin, knobs.repetition)
    limits: dict[str, float] = {}
    if spec.limits is not None:
        rates = ceilings_GBps(obtained["threads"], knobs.pin, knobs.pages)
        ceilings = Ceilings(rates["load"], rates["triad"], machine["machine"]["caches"] or ())
        as_run = case.with_(variant=obtained["variant"])
        limits = spec.limits(as_run, check.columns, ceilings, float(np.median(samples[:, 0])))
    wall_s = time.perf_counter() - start

    def record(case: Case, column: int, case_id: str) -> dict[str, Any]:
        summary = statistics.summarise(samples[:, column])
        shortest = summary["time_min_s"]
        elements = case.iterations * case.spec.width(case)
        vectors = elements * np.dtype(case.dtype).itemsize / (obtained["vector_B"] or math.nan)
        cycles = shortest * prepared.clock_GHz * 1e9 * obtained["threads"]
        as_run = case.with_(variant=obtained["variant"])
        which = {**case.columns, **dict(zip(case.spec.form, case.form.split("/"), strict=False))}
        amos = case.spec.amos * check.columns.get("attempts_per_amo", 1.0)
        return {
            "case_id": case_id,
            "repeat": repeat,
            "environment_id": environment.identity(machine),
            "platform": gpu.describe(prepared.device)["name"]
            if prepared.device
            else environment.platform_label(machine, obtained["threads"]),
            "started": started,
            "kernel": case.spec.kernel,
            "definition": case.spec.definition,
            "name": case.labels.get("name", ""),
            "suite": case.labels.get("suite", ""),
            **which,
            "case_columns": " ".join(which),
            **check.columns,
            **limits,
            "backend": "cuda" if prepared.device else "openmp",
            "device": knobs.device,
            "timer": knobs.timer,
            "block_threads_asked": knobs.block_threads,
            "block_threads": obtained["block_threads"],
            "variant": obtained["variant"],
            "variant_asked": knobs.variant,
            "isa": obtained["isa"],
            "isa_asked": knobs.isa,
            "dtype": case.dtype,
            "index_dtype": case.index_dtype,
            "threads": obtained["threads"],
            "ranks": 1,
            "pin_asked": knobs.pin,
            "pin": obtained["pin"],
            "pages_asked": knobs.pages,
            "pages": obtained["pages"],
            "numa_asked": knobs.numa,
            "offset": knobs.offset,
            "schedule": knobs.schedule,
            "chunk": knobs.chunk,
            "prefetch": knobs.prefetch,
            "unroll": knobs.unroll,
            "repetition": knobs.repetition,
            "rotation": bool(prepared.stages),
            "flush": knobs.flush,
            "seed": knobs.seed,
            "samples": len(samples),
            "invocations": invocations,
            "stop": stop,
            **summary,
            "launch_s": launch_s,
            "time_net_s": shortest - launch_s
            if shortest < _SHORT_LAUNCHES * launch_s
            else math.nan,
            "bytes_B": case.bytes_B,
            "bytes_index_B": case.bytes_index_B,
            "bytes_model_B": as_run.spec.model_bytes(as_run),
            "footprint_B": obtained["footprint_B"],
            "bandwidth_GBps": case.bytes_B / shortest / 1e9,
            "bandwidth_median_GBps": case.bytes_B / summary["time_median_s"] / 1e9,
            "rate_GAMS": case.iterations / shortest / 1e9 * amos or math.nan,
            "performance_GFLOPs": elements / shortest / 1e9 * case.spec.flops or math.nan,
            "clock_GHz": prepared.clock_GHz,
            "cycles_per_vector": cycles / vectors if case.spec.elementwise else math.nan,
            **noise_columns,
            **known,
            "disturbed": summary["noise_spread"] > _NOISY_SPREAD
            or summary["ci_relative"] > _NOISY_INTERVAL
            or noise_columns["noise_steal_s"] > _NOISY_STEAL * wall_s,
            "valid": check.valid,
            "error_max": check.error_max,
            "validation": check.how,
            "wall_s": wall_s,
            **(extra or {}),
        }

    whole = record(case, 0, case.identity())
    parts = []
    for column, kernel in enumerate(prepared.stages, start=1):
        part = dataclasses.replace(case, spec=registry()[kernel])
        row = record(part, column, f"{case.identity()}-{kernel}")
        parts.append(Measurement(row, samples[:, column], machine))
    return Measurement(whole, samples[:, 0], machine, tuple(parts))


def sweep(
    cases: Iterable[Case],
    *,
    repeats: int = 1,
    output: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    on_result: Callable[[Measurement], None] | None = None,
) -> ResultSet:
    """Measure cases one after another, each on disk as soon as it ends.

    Memory goes from case to case and back to the system at the end.

    Parameters
    ----------
    cases : iterable of Case
    repeats : int
        How often all of it is measured, each time on memory allocated anew.
    output : path, optional
        Results file: .db, .parquet, .csv or .json. Until the end they stand in one SQLite file.
    resume : bool
        Go on with an earlier, unfinished run of the same cases on the same machine and build.
    progress : bool, optional
        Show a progress bar on standard error; by default where that is a terminal or notebook.
    on_result : callable, optional
        Called with every `Measurement` as it ends.

    Returns
    -------
    ResultSet
        All records, those reused from an earlier run included. After Ctrl-C those that were
        done, with a warning; the results file can be resumed then.

    Raises
    ------
    InputError, MemoryError
        A case is wrong or the results file can't be used; what was done stands in the file.
    """
    todo = [(case, r) for r in range(repeats) for case in cases]
    machine = machine_environment()
    sink = open_output(output, resume, machine) if output is not None else None
    done: list[Measurement] = []
    interrupted = False
    previous = 0
    try:
        for case, repeat in _progress(todo, progress):
            if sink is not None:
                kept = sink.store.find(case.identity(), repeat)
                if kept is not None and kept["stop"] != "interrupted":
                    continue
            if repeat != previous:
                _memkern.release_memory()
                previous = repeat
            measurement = measure(case, repeat=repeat, machine=machine)
            if sink is None:
                done.append(measurement)
            else:
                for part in (*measurement.parts, measurement):
                    sink.store.add(part.record, part.samples, machine)
            if on_result is not None:
                on_result(measurement)
            if measurement.record["stop"] == "interrupted":
                interrupted = True
                break
    except KeyboardInterrupt:
        interrupted = True
    except BaseException:
        if sink is not None:
            sink.store.close()
        raise
    finally:
        _memkern.release_memory()
    if sink is None:
        results = together(done)
    elif interrupted:
        results = sink.store.result_set()
        sink.store.close()
    else:
        results = sink.finish()
    if interrupted:
        kept_where = f", kept for --resume beside {output}" if output is not None else ""
        warnings.warn(
            f"interrupted: {len(results)} of {len(todo)} measurements done{kept_where}",
            stacklevel=2,
        )
    return results


def together(done: Sequence[Measurement]) -> ResultSet:
    """Return measurements as one result set, the parts of each before it."""
    rows = [row for m in done for row in (*m.parts, m)]
    return ResultSet(
        [row.record for row in rows],
        [row.samples for row in rows],
        {row.record["environment_id"]: row.environment for row in rows},
    )


def _progress(todo: Sequence[tuple[Case, int]], wanted: bool | None) -> Iterable[tuple[Case, int]]:
    if wanted is None:
        wanted = sys.stderr.isatty() or "ipykernel" in sys.modules
    if not wanted:
        return todo
    from tqdm import tqdm

    return tqdm(todo, unit="case", file=sys.stderr, dynamic_ncols=True, leave=False)


def vary(case: Case, **knobs: Sequence[Any]) -> list[Case]:
    """All combinations of knob values, as cases.

    Parameters
    ----------
    case : Case
    **knobs : sequence
        Values by the name of a knob, such as ``pages=["4k", "thp"], threads=[1, 2]``.

    Returns
    -------
    list of Case
        The last knob varies fastest.
    """
    names = list(knobs)
    return [
        case.with_(**dict(zip(names, values, strict=True)))
        for values in itertools.product(*knobs.values())
    ]


TUNED_ON_DEVICE: dict[str, tuple[Any, ...]] = {
    "unroll": (0, 1, 2, 4, 8),
    "block_threads": (0, 64, 128, 256, 512, 1024),
}
TUNED: dict[str, tuple[Any, ...]] = {
    "pages": ("default", "4k", "thp", "hugetlb-2m"),
    "prefetch": (0, 1, 2, 4, 8, 16, 32, 64),
    "chunk": (0, 16, 256, 4096),
}


def tune(
    case: Case, *, budget_s: float = 30.0, knobs: Mapping[str, Sequence[Any]] | None = None
) -> tuple[Case, ResultSet]:
    """Search the knobs of a case, one after another, within a time budget.

    The variant and instruction set come first, then each knob in turn with the best so far kept.

    Parameters
    ----------
    case : Case
    budget_s : float
        Seconds for the search; what has not been tried by then is left as it is.
    knobs : mapping, optional
        Values to try by knob; the default is `TUNED`, on a GPU `TUNED_ON_DEVICE`.

    Returns
    -------
    best : Case
        The case with the best knobs found.
    search : ResultSet
        Every trial, in order; column ``tune_step`` names what was varied. The last record is
        the best case, measured once more.
    """
    if not 0 < budget_s < math.inf:
        raise InputError(f"budget must be a positive number of seconds, not {budget_s}")
    usual = TUNED if case.knobs.device == "cpu" else TUNED_ON_DEVICE
    space = {"variant": _variants(case), **(knobs or usual)}
    trials = sum(len(values) for values in space.values())
    end = time.perf_counter() + budget_s
    machine = machine_environment()
    search: list[Measurement] = []
    best, best_s = case, math.inf
    for knob, values in space.items():
        base = best
        for value in values:
            if time.perf_counter() > end:
                break
            changes = dict(value) if knob == "variant" else {knob: value}
            trial = base.with_(**changes, budget_s=budget_s / trials / 2, max_samples=200)
            try:
                result = measure(trial, extra={"tune_step": knob}, machine=machine)
            except (InputError, MemoryError):
                continue  # not to be had on this machine
            search.append(result)
            if result.valid and result.record["time_min_s"] < best_s:
                best, best_s = base.with_(**changes), result.record["time_min_s"]
    search.append(measure(best, extra={"tune_step": "best"}, machine=machine))
    return best, together(search)


def _variants(case: Case) -> list[dict[str, str]]:
    candidates = prepare(case).native.candidates()
    if case.knobs.device != "cpu":
        return [{"variant": variant} for variant, _ in candidates]
    return [{"variant": variant, "isa": isa} for variant, isa in candidates]


def _copy_GBps(device: str) -> float:
    """Return what the driver's copy moves, NaN where the device has no room for it."""
    try:
        return gpu.copy_GBps(device)
    except MemoryError:
        return math.nan


def workers_of(device: str) -> int:
    """Return how many threads keep a device busy: 1024 on each multiprocessor of a GPU."""
    if device == "cpu":
        return len(os.sched_getaffinity(0))
    return 1024 * int(gpu.describe(device)["units"])


def _device(name: str) -> dict[str, Any]:
    """Return what `memkern info` says of a device."""
    return {
        **gpu.describe(name),
        "copy_GBps": _copy_GBps(name),
        "launch_s": device_launch_cost_s(name, "host"),
        "launch_single_s": device_launch_cost_s(name, "host", 1),
        "launch_graph_s": device_launch_cost_s(name, "graph"),
    }


def describe() -> dict[str, Any]:
    """Return what `memkern info` shows: machine, caches, instruction sets, launch cost."""
    available, limit = _memkern.memory_limit()
    return {
        "topology": _memkern.topology(),
        "build": _memkern.build(),
        "clock_tick_s": _memkern.clock_tick(),
        "memory_available_B": available,
        "memory_limit": limit,
        "launch_s": launch_cost_s(0, "none", "fork"),
        "devices": {name: _device(name) for name in gpu.devices()},
        "no_devices": gpu.why_none(),
        "environment": machine_environment(),
    }
