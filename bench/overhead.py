"""Time that memkern takes beyond what it measures, by part.

``cases``: sweeps of small gathers, with the time per case and the additional memory; cases with a
size or own index arrays, with the time beyond three samples. With Spatter's program, both run the
same file of 1,000 configurations.

``calls``: the difference between the wall time of many calls of ``prepared.run(1)`` and the sum of
the seconds they returned, per call; the goal is below 5 us.

``launch``: BS0, the empty launch, beside an empty OpenMP parallel region, in turns. The region is
compiled by the system's compiler and runs in the same process, so that runtime, workers and wait
policy are the same.

``counters``: samples with and without counters, in turns. The ratio of a sample's own time with
counters to its own time without should be 1, because they are read outside of it. By default events
of the system are counted, which exist everywhere.

``verbs``: whole commands beside the time that they announce. Without an announcement a command is
expected to take less than three seconds. ``compare`` announces the remaining time after its first
pair, so the time until then is added to its announcement.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from peers import in_turns, must_be_valid
from records import Row, interval, program

import memkern as mk
from memkern.engine.recording.samples import CONDITIONS
from memkern.engine.sampling import counters as counting
from memkern.statistics import ratio_interval

RUNS = 3
CALLS = 5000
REGIONS = 2000
REGION = """
#include <omp.h>
extern "C" double regions(int threads, long count) {
  const double start = omp_get_wtime();
  for (long k = 0; k < count; ++k) {
#pragma omp parallel num_threads(threads)
    { asm volatile("" ::: "memory"); }
  }
  return omp_get_wtime() - start;
}
"""
_SAMPLES = 200
_SYSTEM = "page-faults,context-switches,cpu-migrations,task-clock"
SWEEP = '[[case]]\nkernel = "stream.copy"\nelements = [1000, 100000]\n'
COMMANDS = (
    "latency", "latency --quick", "latency loaded", "latency loaded --quick", "latency structure",
    "tune -k stream.copy", "machine",
    "tune -k stream.copy --quick", "spmv hpcg:32 --tune --budget 20", "corun", "corun --quick",
    "doctor", "doctor --quick", "compare --run SWEEP --self", "stream -k copy,triad", "raider",
    "report --quick -o REPORT --force",
)  # fmt: skip
GB = 1e9


def sweeps(numbers: list[int]) -> Iterator[Row]:
    """Yield the rows of sweeps of these numbers of small gathers, two runs each."""
    for threads in (1, 2):
        for number in numbers:
            code = (
                "import resource, time, memkern as mk\nfrom memkern.spec.sequences import product\n"
                "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
                f"def cases(n): return product(lambda count: mk.gather('UNIFORM:8:8', "
                f"count=count, runs=2, threads={threads}), {{'count': range(1024, 1024 + n)}})\n"
                "mk.sweep(cases(1000), output='first.db', force=True)\n"
                "before_MB, begin = peak(), time.perf_counter()\n"
                f"mk.sweep(cases({number}), output='sweep.db', force=True)\n"
                f"print((time.perf_counter() - begin) / {number}, peak() - before_MB)"
            )
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, "-c", code],
                    check=True, capture_output=True, text=True, cwd=folder,
                )  # fmt: skip
            each_s, more_MB = map(float, done.stdout.split())
            name = f"{number} gathers, {threads} thread{'s' * (threads > 1)}"
            yield {"what": name, "a case, ms": 1e3 * each_s, "more memory, MB": more_MB}


def sized(size_GB: float) -> dict[str, Callable[[], mk.Case]]:
    """Return functions that build a case of each family, with arrays and indices of this size."""
    size_B = size_GB * GB
    edge = max(round((size_B / (20 * 8**3)) ** (1 / 3)), 1)
    sites = max(round((size_B / 4500) ** 0.25), 4) // 2 * 2
    how: dict[str, Any] = {"runs": RUNS}
    return {
        "stream.copy": lambda: mk.stream("copy", footprint_B=size_B, **how),
        "stream.triad": lambda: mk.stream("triad", footprint_B=size_B, **how),
        "loops.load": lambda: mk.loops("load", footprint_B=size_B, **how),
        "loops.stencil": lambda: mk.loops("stencil", footprint_B=size_B, **how),
        "raider.gather_triad": lambda: mk.raider("gather_triad", round(size_B / 40), **how),
        "bs.bs2": lambda: mk.bs(2, footprint_B=size_B, **how),
        "bs.bs6": lambda: mk.bs(6, elements=edge, degree=7, **how),
        "spatter.gather": lambda: mk.gather("UNIFORM:8:8:NR", count=round(size_B / 512), **how),
        "spatter.scatter": lambda: mk.scatter("UNIFORM:8:8:NR", count=round(size_B / 512), **how),
        "spmv.crs": lambda: mk.spmv(
            f"hpcg:{max(round((size_B / 330) ** (1 / 3)), 4)}", "crs", **how
        ),
        "amo.rand": lambda: mk.amo("rand", memsize=int(size_B), **how),
        "latency.chase": lambda: mk.latency(size_B, **how),
        "dw.hop": lambda: mk.dw((sites,) * 4, **how),
    }


def own(number: int) -> dict[str, Callable[[], mk.Case]]:
    """Return functions that build gathers and scatters with this number of own indices."""
    rng = np.random.default_rng(1)
    kinds = {
        "random": lambda: rng.integers(0, number, number),
        "permutation": lambda: rng.permutation(number),
        "few distinct": lambda: rng.integers(0, 1000, number) * (number // 1000),
    }
    found: dict[str, Callable[[], mk.Case]] = {}
    for kind, make in kinds.items():
        index = make()
        for kernel in (mk.gather, mk.scatter):
            name = f"{kernel.__name__} of {number / 1e6:g} million indices, {kind}"
            found[name] = lambda kernel=kernel, index=index: kernel(index, count=1, runs=RUNS)
    return found


def beyond(name: str, make: Callable[[], mk.Case]) -> Row:
    """Return the row of a case: seconds from its inputs to its record, beyond the samples."""
    begin = time.perf_counter()
    case = make()
    measured = case.measure()
    took_s = time.perf_counter() - begin
    record = must_be_valid(measured.record, name)
    samples_s = float(np.sum(measured.samples)) * record["invocations"]
    indices_B = sum(array.nbytes for array in case.indices.values())
    size_GB = (record["footprint_B"] + indices_B) / GB
    rest_s = took_s - samples_s
    return {
        "what": name,
        "arrays and indices, GB": size_GB,
        "samples, s": samples_s,
        "beyond, s": rest_s,
        "beyond 0.1 s, s a GB": max(rest_s - 0.1, 0.0) / size_GB,
    }


def beside_spatter(spatter: str, turns: int) -> Iterator[Row]:
    """Yield the times of a file of 1,000 configurations by Spatter and by memkern."""
    configurations = [
        {"kernel": "Gather", "pattern": list(range(0, 64, 8)), "delta": 8, "count": count}
        for count in range(1024, 2024)
    ]
    own = [sys.executable, "-m", "memkern", "spatter", "--runs", "2", "-q"]
    commands = {"Spatter": [spatter, "-b", "openmp", "-r", "2"], "memkern": own}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thousand.json"
        path.write_text(json.dumps(configurations))
        took_s = in_turns(
            commands, turns, lambda name: timed([*commands[name], "-f", str(path)], folder)[0]
        )
    for name, seconds in took_s.items():
        # Seconds for a thousand cases are milliseconds per case.
        yield {"what": f"{name}, 1000 configurations", "a case, ms": median(seconds)}


def timed(words: list[str], folder: str | None = None) -> tuple[float, str]:
    """Return the seconds that a program takes, and what it prints as errors."""
    begin = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip().splitlines()[-1]}")
    return seconds, done.stderr


def of_cases(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each sweep and case."""
    yield from sweeps(args.cases)
    # The first cases of a process also examine the host and measure its memory bandwidth.
    mk.stream("copy", elements=1000, runs=1).measure()
    mk.spmv("hpcg:4", "crs", runs=1).measure()
    for size_GB in args.gigabytes:
        for name, make in sized(size_GB).items():
            if args.only in name:
                yield beyond(f"{name}, {size_GB:g} GB", make)
    for millions in args.millions:
        for name, make in own(round(millions * 1e6)).items():
            if args.only in name:
                yield beyond(name, make)
    if args.spatter:
        yield from beside_spatter(args.spatter, args.turns or 5)


def of_calls(_: argparse.Namespace) -> Iterator[Row]:
    """Yield the medians of a call for each way to bind the workers."""
    for pin in ("none", "compact"):
        for threads in (1, 2):
            case = mk.gather([0], count=1, variant="scalar", threads=threads, pin=pin)
            run, extra, inside = case.prepare().run, [], []
            for _ in range(CALLS):
                start = time.perf_counter()
                seconds = run(1)
                extra.append(time.perf_counter() - start - seconds)
                inside.append(seconds)
            row = {"workers": threads, "pin": pin, "overhead, us": 1e6 * median(extra)}
            yield row | {"in C++, us": 1e6 * median(inside)}


def of_launches(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the medians of an empty launch and an empty region, by the number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "regions.cpp", Path(folder) / "regions.so"
        source.write_text(REGION)
        flags = ["-O2", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["c++", *flags, str(source), "-o", str(library)], check=True)
        # memkern starts first, so that both use its OpenMP runtime.
        prepared = {t: mk.bs(0, threads=t).prepare() for t in range(1, (os.cpu_count() or 1) + 1)}
        regions = ctypes.CDLL(str(library)).regions
        regions.restype = ctypes.c_double
        regions.argtypes = [ctypes.c_int, ctypes.c_long]
    for threads, case in prepared.items():
        sides = {"BS0": case.run, "empty region": partial(regions, threads)}
        for run in sides.values():
            run(REGIONS)
        found = in_turns(sides, args.turns or 101, lambda side, of=sides: of[side](REGIONS))
        row = {"wait policy": os.environ.get("OMP_WAIT_POLICY", "not set"), "threads": threads}
        row |= {f"{side}, us": 1e6 * median(some) / REGIONS for side, some in found.items()}
        yield row | interval("ratio", ratio_interval(*found.values(), paired=True))


def block(native: Any, codes: list[Any]) -> tuple[float, float]:
    """Return the median seconds of samples of one invocation, and the wall seconds of each."""
    out = np.full((_SAMPLES, 1 + len(CONDITIONS)), np.nan)
    counts = np.zeros((_SAMPLES, len(codes), 3))
    counted: dict[str, Any] = {"events": codes, "counts": counts} if codes else {}
    begin = time.perf_counter()
    native.sample(out, 1, 60.0, **counted)
    wall_s = time.perf_counter() - begin
    return float(np.median(out[:, 0])), wall_s / _SAMPLES


def of_counters(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each way of repetition and size."""
    codes = {"without": [], "with": counting.requested(args.counters).codes}
    print(f"{len(codes['with'])} counters on each of {args.threads} threads")
    for repetition in ("fork", "barrier", "spin", "free"):
        for elements in (2**10, 2**16, 2**22):
            case = mk.loops("update", elements, threads=args.threads, repetition=repetition)
            native = case.prepare().native
            found = in_turns(
                codes, args.turns or 15, lambda which, native=native: block(native, codes[which])
            )
            off, on = (np.array(some) for some in found.values())
            ratio = ratio_interval(on[:, 0].tolist(), off[:, 0].tolist(), paired=True)
            row = {"repetition": repetition, "size, B": 8 * elements}
            row |= {"sample, us": 1e6 * np.median(off[:, 0])} | interval("with counters", ratio)
            yield row | {"longer between samples, us": 1e6 * np.median(on[:, 1] - off[:, 1])}


def announced(command: str, folder: Path) -> tuple[float, float]:
    """Return the seconds that a command announces, NaN if none, and the seconds that it takes."""
    files = {"SWEEP": str(folder / "short.toml"), "REPORT": str(folder / "report.html")}
    words = [files.get(word, word) for word in command.split()]
    seconds, said = timed([sys.executable, "-m", "memkern", *words])
    found = re.search(r"memkern: .*, about (\d+) (s|minutes)$", said, re.MULTILINE)
    if found is None:
        return float("nan"), seconds
    return float(found[1]) * (60 if found[2] == "minutes" else 1), seconds


def of_verbs(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each command."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "short.toml").write_text(SWEEP)
        for command in COMMANDS:
            every = [announced(command, Path(name)) for _ in range(args.turns or 1)]
            before, took = (median(values) for values in zip(*every, strict=True))
            row: Row = {"command": command, "announced, s": before, "took, s": took}
            yield row | {"took over announced": took / before}


PARTS = {
    "cases": of_cases,
    "calls": of_calls,
    "launch": of_launches,
    "counters": of_counters,
    "verbs": of_verbs,
}
OPTIONS = {
    "part": {"nargs": "?", "choices": tuple(PARTS), "default": "cases"},
    "--turns": (0, "by default 5 beside Spatter, 101 launches, 15 of counters, 1 of verbs"),
    "--cases": {"type": int, "nargs": "*", "default": [1000]},
    "--gigabytes": {"type": float, "nargs": "*", "default": [0.1]},
    "--millions": {"type": float, "nargs": "*", "default": [5]},
    "--only": ("", "cases whose name has this text"),
    "--spatter": {"metavar": "PROGRAM"},
    "--counters": (_SYSTEM, "that are read"),
    "--threads": (1, "with counters"),
}
main = program(__name__, __doc__, lambda args: PARTS[args.part](args), OPTIONS)
