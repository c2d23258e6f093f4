"""Time that measuring takes beyond the samples, by kernel, size and kind of input.

    python bench/overhead.py --gigabytes 0.1 1 --cases 1000 4000 --spatter build/spatter

Rows of sweeps of small gathers have the time per case and the additional memory; rows of cases with
a size or own index arrays have the time beyond three samples. With Spatter's program, both run the
same file of 1,000 configurations.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from records import Row, add, options, parsed, write

import memkern as mk

RUNS = 3
TURNS = 5  # of both programs
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
    record = measured.record
    if not record["valid"]:
        raise SystemExit(f"{name} is invalid")
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


def beside_spatter(program: str) -> Iterator[Row]:
    """Yield the times of a file of 1,000 configurations by Spatter and by memkern."""
    configurations = [
        {"kernel": "Gather", "pattern": list(range(0, 64, 8)), "delta": 8, "count": count}
        for count in range(1024, 2024)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thousand.json"
        path.write_text(json.dumps(configurations))
        commands = {
            "Spatter, 1000 configurations": [program, "-b", "openmp", "-f", str(path), "-r", "2"],
            "memkern, 1000 configurations": [
                *(sys.executable, "-m", "memkern", "spatter", "-f", str(path), "--runs", "2", "-q"),
            ],
        }
        took_s: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(TURNS):
            for name, words in commands.items():
                begin = time.perf_counter()
                subprocess.run(words, check=True, capture_output=True, cwd=folder)
                took_s[name].append(time.perf_counter() - begin)
        for name, seconds in took_s.items():
            # Seconds for a thousand cases are milliseconds per case.
            yield {"what": name, "a case, ms": median(seconds)}


def main() -> None:
    """Print and write a row for each sweep and case."""
    parser = options(__doc__)
    parser.add_argument("--cases", type=int, nargs="*", default=[1000])
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[0.1])
    parser.add_argument("--millions", type=float, nargs="*", default=[5])
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--spatter", metavar="PROGRAM")
    args = parsed(parser)
    rows: list[Row] = []
    for row in sweeps(args.cases):
        add(rows, row)
    # The first cases of a process also examine the host and measure its memory bandwidth.
    mk.stream("copy", elements=1000, runs=1).measure()
    mk.spmv("hpcg:4", "crs", runs=1).measure()
    for size_GB in args.gigabytes:
        for name, make in sized(size_GB).items():
            if args.only in name:
                add(rows, beyond(f"{name}, {size_GB:g} GB", make))
    for millions in args.millions:
        for name, make in own(round(millions * 1e6)).items():
            if args.only in name:
                add(rows, beyond(name, make))
    if args.spatter:
        for row in beside_spatter(args.spatter):
            add(rows, row)
    write(args, rows)


if __name__ == "__main__":
    main()
