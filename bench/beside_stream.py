"""Compare memkern's streaming kernels with STREAM, BabelStream and likwid-bench, in turns.

All have the same lengths, threads and units, in 4 KiB pages. STREAM and BabelStream fork for every
invocation and print the shortest and the mean of many times; compared with them, memkern also forks
and takes the same number of samples, and the shortest times are compared. likwid-bench runs
invocations back to back and prints one time for all of them: a mean, which a short quiet period
does not improve. Compared with it, memkern runs without barriers on the same units, and its medians
are compared with these means, with the median of several runs on each side. ``--statistic``
overrides this choice.
"""

import argparse
import csv
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from subprocess import CalledProcessError
from typing import Any

import numpy as np
from peers import as_fast, beside, in_turns, printed, records_of
from records import Row, program

from memkern.host.capacity import data_caches, last_level_cache_B

STATISTICS = ("shortest", "typical")
STREAM = ("stream.copy", "stream.scale", "stream.add", "stream.triad")
BABELSTREAM = {
    "Copy": "stream.copy",
    "Mul": "stream.scale",
    "Add": "stream.add",
    "Triad": "stream.triad",
    "Dot": "loops.dot",
    "Nstream": "loops.nstream",
}
# memkern's kernels: likwid-bench's name and number of arrays.
LIKWID = {
    "loops.load": ("load", 1),
    "loops.sum": ("sum", 1),
    "loops.dot": ("ddot", 2),
    "loops.init": ("store", 1),
    "loops.copy": ("copy", 2),
    "loops.update": ("update", 1),
    "loops.daxpy": ("daxpy", 2),
    "loops.triad": ("stream", 3),
    "loops.schoenauer": ("triad", 4),
}
# The elements of a worker are a multiple of the elements per step of every loop of likwid-bench (24
# and powers of two up to 64), since its loops leave out a remainder.
STRIDE = 192
ELEMENT_B = 8
KEPT = 2  # number of fastest forms of a likwid-bench kernel that are compared
PROBE_B = 4e9  # moved by each form to find the fastest

Times = tuple[float, float]
"""Shortest and typical seconds of an invocation."""
Run = Callable[[], dict[str, Times]]
"""Runs a program, and returns the times of its kernels."""


def memkern(
    kernels: list[str], words: list[object], told: dict[str, dict[str, Any]]
) -> dict[str, Times]:
    """Return the shortest and the median time of all repeats; a record of each is added to told."""
    records: list[dict[str, Any]] = []
    for family in dict.fromkeys(kernel.partition(".")[0] for kernel in kernels):
        names = [kernel.partition(".")[2] for kernel in kernels if kernel.startswith(f"{family}.")]
        own = [family, "-k", ",".join(names), "--pages", "4k", *words]
        records += records_of(*own, variables={})
    found = {}
    for kernel in kernels:
        of_kernel = [record for record in records if record["kernel"] == kernel]
        told[kernel] = of_kernel[0]
        typical = np.median([record["time_median_s"] for record in of_kernel])
        found[kernel] = (min(record["time_min_s"] for record in of_kernel), float(typical))
    return found


def stream_found(output: str) -> dict[str, Times]:
    """Return the times that STREAM prints."""
    rows = re.findall(r"^(?:Copy|Scale|Add|Triad): +\S+ +(\S+) +(\S+)", output, re.MULTILINE)
    return {k: (float(row[1]), float(row[0])) for k, row in zip(STREAM, rows, strict=True)}


def stream_size(output: str) -> tuple[int, int]:
    """Return the numbers of elements and of repetitions for which STREAM was built."""
    elements = re.search(r"Array size = (\d+)", output)
    times = re.search(r"executed (\d+) times", output)
    assert elements is not None and times is not None, output
    return int(elements[1]), int(times[1])


def babelstream_found(output: str) -> dict[str, Times]:
    """Return the times that BabelStream prints."""
    return {
        BABELSTREAM[row["function"]]: (float(row["min_runtime"]), float(row["avg_runtime"]))
        for row in csv.DictReader(output.splitlines())
    }


def likwid_seconds(output: str, bytes_B: int) -> float:
    """Return the mean time of an invocation that likwid-bench prints."""
    fields = dict(re.findall(r"^([A-Za-z ()]+):\s+(\S+)", output, re.MULTILINE))
    seconds = float(fields["Time"])
    if not 0 < seconds < math.inf:
        raise SystemExit("likwid-bench does not find the frequency of its clock: use release 5.2")
    if int(fields["Size (Byte)"]) != bytes_B:
        raise SystemExit(f"likwid-bench ran {fields['Size (Byte)']} bytes instead of {bytes_B}")
    return seconds / int(fields["Iterations per thread"])


def forking(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of the kernels of STREAM and BabelStream."""
    variables = {"OMP_NUM_THREADS": str(args.threads)}
    if args.pin != "none":
        places = ",".join(f"{{{unit}}}" for unit in args.pin.split(","))
        variables |= {"OMP_PROC_BIND": "true", "OMP_PLACES": places}
    elements, times = args.elements or 4 * last_level_cache_B() // ELEMENT_B, args.times
    if args.stream:
        sizes = {stream_size(printed([path], variables)) for path in args.stream}
        if len(sizes) > 1 or (args.elements and sizes != {(elements, times)}):
            raise SystemExit(f"STREAM was built for these elements and times: {sorted(sizes)}")
        ((elements, times),) = sizes

    def peer(command: list[str], read: Callable[[str], dict[str, Times]]) -> dict[str, Run]:
        return {os.path.basename(command[0]): lambda: read(printed(command, variables))}

    peers: dict[str, Run] = {}
    for path in args.stream:
        peers |= peer([path], stream_found)
    if args.babelstream:
        command = [args.babelstream, "-s", str(elements), "-n", str(times), "-o", "All", "--csv"]
        peers |= peer(command, babelstream_found)
    # The peers ignore the first of their times.
    words = ["-n", elements, "--runs", times - 1, "--repetition", "fork"]
    words += ["-t", args.threads, "--pin", args.pin]
    kernels = list(BABELSTREAM.values() if args.babelstream else STREAM)
    yield from compared(args, "shortest", kernels, words, peers)


def likwid_elements(args: argparse.Namespace, arrays: int) -> int:
    """Return the length of an array: all fill half of a cache, or each is 4 times the caches."""
    if args.level == "memory":
        share = 4 * last_level_cache_B() // ELEMENT_B // int(args.threads)
    else:
        (cache,) = (c for c in data_caches() if f"L{c['level']}" == args.level)
        share = int(cache["size_B"]) // cache["shared_by"] // 2 // (ELEMENT_B * arrays)
    return int(args.threads) * max(share // STRIDE, 1) * STRIDE


def likwid_forms(args: argparse.Namespace, kernel: str, bytes_B: int) -> tuple[dict[str, Run], str]:
    """Return the best forms of a likwid-bench kernel and the units that it runs on.

    Each run takes an additional second, in which likwid-bench sleeps to find the clock frequency.
    """
    name, group = LIKWID[kernel][0], f"N:{bytes_B}B:{args.threads}"

    def bench(form: str, iterations: float) -> str:
        count = str(max(int(iterations), 10))
        return printed([args.likwid_bench, "-t", form, "-i", count, "-W", group], {})

    def repeat(form: str, iterations: float) -> dict[str, Times]:
        output = [bench(form, iterations) for _ in range(args.repeats)]
        times = [likwid_seconds(o, bytes_B) for o in output]
        return {kernel: (min(times), float(np.median(times)))}

    listed = re.findall(r"^(\w+) - ", printed([args.likwid_bench, "-a"], {}), re.MULTILINE)
    forms = [form for form in listed if re.fullmatch(rf"{name}(_(?!sp)\w+)?", form)]
    seconds: dict[str, float] = {}
    units: list[str] = []
    for _ in range(args.repeats):
        for form in list(forms):
            if seconds.get(form, 0.0) > 2 * min(seconds.values(), default=0.0):
                continue
            try:
                output = bench(form, PROBE_B / bytes_B)
            except CalledProcessError as reason:  # an instruction that this processor lacks
                print(f"  {reason}", file=sys.stderr)
                forms.remove(form)
                continue
            seconds[form] = min(likwid_seconds(output, bytes_B), seconds.get(form, math.inf))
            units = re.findall(r"Global Thread \d+ running on hwthread (\d+)", output)
    if not seconds:
        raise SystemExit(f"likwid-bench runs no form of {name} here")
    tried = ", ".join(f"{form} {1e6 * s:.4g}" for form, s in seconds.items())
    print(f"  {bytes_B} bytes, microseconds: {tried}", file=sys.stderr)
    kept = sorted(seconds, key=seconds.__getitem__)[:KEPT]
    return {form: partial(repeat, form, args.seconds / seconds[form]) for form in kept}, ",".join(
        units
    )


def compared(
    args: argparse.Namespace,
    statistic: str,
    kernels: list[str],
    words: list[object],
    peers: Mapping[str, Run],
) -> Iterator[Row]:
    """Yield a row for each kernel, by the times of memkern and its peers in the same turns."""
    at, told = STATISTICS.index(args.statistic or statistic), {}
    runs: dict[str, Run] = {"memkern": partial(memkern, kernels, words, told), **peers}
    found = in_turns(runs, args.turns, lambda who: runs[who]())
    for kernel in kernels:
        times = {
            who: [turn[kernel][at] for turn in some]
            for who, some in found.items()
            if kernel in some[0]
        }
        ours, work = times.pop("memkern"), told[kernel]["bytes_B"]
        row: Row = {"kernel": kernel, "data in": None if len(kernels) > 1 else args.level}
        row |= {"elements": told[kernel]["elements"], "by": f"the {STATISTICS[at]} time"}
        row |= {"variant": f"{told[kernel]['variant']}/{told[kernel]['isa']}"}
        yield row | beside("peer", "GB/s", {"": ours}, times, work / 1e9)


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of all kernels."""
    if not (args.stream or args.babelstream or args.likwid_bench):
        raise SystemExit("name at least one peer")
    if args.stream or args.babelstream:
        yield from forking(args)
    for kernel, (_, arrays) in LIKWID.items() if args.likwid_bench else ():
        elements = likwid_elements(args, arrays)
        peers, units = likwid_forms(args, kernel, elements * ELEMENT_B * arrays)
        words = ["-n", elements, "--repetition", "free", "--repeats", args.repeats]
        words += ["--budget", args.seconds, "-t", args.threads, "--pin", units]
        yield from compared(args, "typical", [kernel], words, peers)


OPTIONS = {
    "--stream": {"action": "append", "default": [], "help": "executable; repeatable"},
    "--babelstream": {"help": "executable of the OpenMP model"},
    "--likwid-bench": {"help": "executable"},
    "--threads": os.cpu_count() or 1,
    "--statistic": {"choices": STATISTICS, "help": "of the times in a turn"},
    "--pin": ("none", "beside STREAM and BabelStream: 'none' or units for both: 0,1"),
    "--elements": {"type": int, "help": "beside them, by default STREAM's, or 4 x the caches"},
    "--times": (100, "beside them; STREAM's NTIMES wins"),
    "--level": {
        "choices": ("L1", "L2", "L3", "memory"), "default": "memory", "help": "of likwid-bench",
    },
    "--seconds": (0.3, "a run of likwid-bench"),
    "--repeats": (3, "runs of likwid-bench in a turn, each allocates anew"),
}  # fmt: skip
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
