"""Compare memkern's streaming kernels with STREAM, BabelStream and likwid-bench, in turns.

The peers are built elsewhere with their own release flags; this script only runs them::

    python bench/beside_stream.py --stream /path/to/stream --babelstream /path/to/omp-stream
    python bench/beside_stream.py --likwid-bench /path/to/likwid-bench --level L1

Every turn runs all contestants in rotating order, with the same lengths, threads and units and
in 4 KiB pages. The peer of a kernel is the best of all peers' forms, by the median over the
turns. Bandwidths are memkern's bytes over each side's time. A ratio is memkern's bandwidth over
the peer's; its interval comes from the turns. "At least as fast" means a geometric mean of at
least 1.0 and no kernel whose 95 % interval lies wholly below 0.97.

STREAM and BabelStream fork for every invocation and print the shortest and the mean of many
times; compared with them, memkern also forks and takes the same number of samples, and the shortest
times are compared. likwid-bench runs invocations back to back and prints one time for all of them:
a mean, which a short quiet period does not improve. Compared with it, memkern runs without barriers
on the same units, and its medians are compared with these means, with the median of several runs on
each side. ``--statistic`` overrides this choice; the ratio by the other statistic is also printed.

With ``--self`` memkern is its own peer, which shows the effect of noise.
"""

import argparse
import csv
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from subprocess import CalledProcessError
from typing import Any, NamedTuple

import numpy as np
from peers import judge, printed, rotated
from records import Row, add, interval, options, parsed, write

from memkern.statistics import Ratio, ratio_interval

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


class Found(NamedTuple):
    """Seconds of an invocation; memkern's also have bytes, elements and variant/isa."""

    shortest: float
    typical: float
    bytes_B: float = 0.0
    elements: int = 0
    how: str = ""


class Contestant(NamedTuple):
    """A program that measures kernels: its label and a function that runs it."""

    label: str
    run: Callable[[], dict[str, Found]]


class Round(NamedTuple):
    """Contestants that take turns: memkern, its peers and, if requested, memkern at its best."""

    level: str | None
    statistic: str
    ours: Contestant
    peers: list[Contestant]
    best: Contestant | None


def memkern(kernels: list[str], *options: str, pages: str, huge: bool = False) -> dict[str, Found]:
    """Measure kernels with memkern; return the shortest and the median time of all repeats."""
    records: list[dict[str, Any]] = []
    for family in dict.fromkeys(kernel.partition(".")[0] for kernel in kernels):
        names = [kernel.partition(".")[2] for kernel in kernels if kernel.startswith(f"{family}.")]
        command = [sys.executable, "-m", "memkern", family, "-k", ",".join(names), "--json", "-q"]
        records += json.loads(printed([*command, "--pages", pages, *options], {}, huge))
    found = {}
    for kernel in kernels:
        own = [record for record in records if record["kernel"] == kernel]
        found[kernel] = Found(
            min(float(record["time_min_s"]) for record in own),
            float(np.median([record["time_median_s"] for record in own])),
            float(own[0]["bytes_B"]),
            int(own[0]["elements"]),
            f"{own[0]['variant']}/{own[0]['isa']}",
        )
    return found


def stream_found(output: str) -> dict[str, Found]:
    """Return the times that STREAM prints."""
    rows = re.findall(r"^(?:Copy|Scale|Add|Triad): +\S+ +(\S+) +(\S+)", output, re.MULTILINE)
    return {k: Found(float(row[1]), float(row[0])) for k, row in zip(STREAM, rows, strict=True)}


def stream_size(output: str) -> tuple[int, int]:
    """Return the numbers of elements and of repetitions for which STREAM was built."""
    elements = re.search(r"Array size = (\d+)", output)
    times = re.search(r"executed (\d+) times", output)
    assert elements is not None and times is not None, output
    return int(elements[1]), int(times[1])


def babelstream_found(output: str) -> dict[str, Found]:
    """Return the times that BabelStream prints."""
    return {
        BABELSTREAM[row["function"]]: Found(float(row["min_runtime"]), float(row["avg_runtime"]))
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


@cache
def topology() -> dict[str, Any]:
    """Return memkern's description of the caches."""
    info = json.loads(printed([sys.executable, "-m", "memkern", "info", "--json"], {}))
    return dict(info["topology"])


def forking_round(args: argparse.Namespace) -> Round:
    """Return the round of the kernels of STREAM and BabelStream."""
    variables = {"OMP_NUM_THREADS": str(args.threads)}
    if args.pin != "none":
        places = ",".join(f"{{{unit}}}" for unit in args.pin.split(","))
        variables |= {"OMP_PROC_BIND": "true", "OMP_PLACES": places}
    elements = args.elements or 4 * topology()["last_level_cache_B"] // ELEMENT_B
    times = args.times
    if args.stream:
        sizes = {stream_size(printed([path], variables)) for path in args.stream}
        if len(sizes) > 1 or (args.elements and sizes != {(elements, times)}):
            raise SystemExit(f"STREAM was built for these elements and times: {sorted(sizes)}")
        ((elements, times),) = sizes

    def peer(command: list[str], read: Callable[[str], dict[str, Found]]) -> Contestant:
        label = os.path.basename(command[0])
        return Contestant(label, lambda: read(printed(command, variables)))

    peers = [peer([path], stream_found) for path in args.stream]
    kernels = list(STREAM)
    if args.babelstream:
        command = [args.babelstream, "-s", str(elements), "-n", str(times), "-o", "All", "--csv"]
        peers.append(peer(command, babelstream_found))
        kernels = list(BABELSTREAM.values())
    # The peers ignore the first of their times.
    options = ["-n", str(elements), "--runs", str(times - 1), "--repetition", "fork"]
    options += ["-t", str(args.threads), "--pin", args.pin]
    return make_round(args, None, "shortest", kernels, options, peers)


def likwid_elements(args: argparse.Namespace, arrays: int) -> int:
    """Return the length of an array: all fill half of a cache, or each is 4 times the caches."""
    found = topology()
    if args.level == "memory":
        share = 4 * int(found["last_level_cache_B"]) // ELEMENT_B // int(args.threads)
    else:
        (cache,) = (c for c in found["caches"] if f"L{c['level']}" == args.level)
        share = int(cache["size_B"]) // cache["shared_by"] // 2 // (ELEMENT_B * arrays)
    return int(args.threads) * max(share // STRIDE, 1) * STRIDE


def likwid_forms(args: argparse.Namespace, name: str, bytes_B: int) -> tuple[list[Contestant], str]:
    """Return the best forms of a likwid-bench kernel and the units that it runs on.

    Each run takes an additional second, in which likwid-bench sleeps to find the clock frequency.
    """
    group = f"N:{bytes_B}B:{args.threads}"

    def bench(form: str, iterations: float) -> str:
        count = str(max(int(iterations), 10))
        return printed([args.likwid_bench, "-t", form, "-i", count, "-W", group], {})

    def repeat(form: str, iterations: float, kernel: str) -> dict[str, Found]:
        output = [bench(form, iterations) for _ in range(args.repeats)]
        times = [likwid_seconds(o, bytes_B) for o in output]
        return {kernel: Found(min(times), float(np.median(times)))}

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
    kernel = next(k for k, (theirs, _) in LIKWID.items() if theirs == name)
    kept = sorted(seconds, key=seconds.__getitem__)[:KEPT]
    peers = [
        Contestant(form, partial(repeat, form, args.seconds / seconds[form], kernel))
        for form in kept
    ]
    return peers, ",".join(units)


def likwid_rounds(args: argparse.Namespace) -> list[Round]:
    """Return a round for each kernel of likwid-bench, with its own length."""
    rounds = []
    for kernel, (name, arrays) in LIKWID.items():
        elements = likwid_elements(args, arrays)
        peers, units = likwid_forms(args, name, elements * ELEMENT_B * arrays)
        options = ["-n", str(elements), "--repetition", "free", "--repeats", str(args.repeats)]
        options += ["--budget", str(args.seconds), "-t", str(args.threads), "--pin", units]
        rounds.append(make_round(args, args.level, "typical", [kernel], options, peers))
    return rounds


def make_round(
    args: argparse.Namespace,
    level: str | None,
    statistic: str,
    kernels: list[str],
    options: list[str],
    peers: list[Contestant],
) -> Round:
    """Return a round of memkern and its peers."""
    ours = Contestant("memkern", lambda: memkern(kernels, *options, pages="4k"))
    best = Contestant(
        f"pages {args.best_pages}",
        lambda: memkern(kernels, *options, pages=args.best_pages, huge=True),
    )
    return Round(
        level,
        args.statistic or statistic,
        ours,
        [ours] if args.self else peers,
        best if args.best_pages else None,
    )


def play(rounds: list[Round], turns: int) -> list[list[list[dict[str, Found]]]]:
    """Return the times of each contestant of each round in each turn."""
    contestants = [[r.ours, *r.peers, *([r.best] if r.best else [])] for r in rounds]
    found: list[list[list[dict[str, Found]]]] = [[[] for _ in group] for group in contestants]
    for turn in range(turns):
        for group, into in zip(contestants, found, strict=True):
            for who in rotated(range(len(group)), turn):
                into[who].append(group[who].run())
        print(f"  turn {turn + 1} of {turns} done", file=sys.stderr)
    return found


def kernel_rows(
    played: Round, found: list[list[dict[str, Found]]]
) -> Iterator[tuple[Row, Row, Ratio]]:
    """Yield a row of the table, a row of further values, and the ratio of each kernel."""

    def times(who: int, kernel: str, statistic: str) -> np.ndarray:
        return np.array([getattr(turn[kernel], statistic) for turn in found[who]])

    def versus(kernel: str, statistic: str) -> tuple[int, Ratio]:
        rivals = [w for w in range(1, len(played.peers) + 1) if kernel in found[w][0]]
        peer = min(rivals, key=lambda who: float(np.median(times(who, kernel, statistic))))
        ours = times(0, kernel, statistic)
        return peer, ratio_interval(times(peer, kernel, statistic), ours, paired=True)

    chosen = played.statistic
    other = STATISTICS[1 - STATISTICS.index(chosen)]
    for kernel, first in found[0][0].items():
        peer, ratio = versus(kernel, chosen)
        speeds = [
            first.bytes_B / np.median(times(who, kernel, chosen)) / 1e9
            for who in (0, peer, *((-1,) if played.best else ()))
        ]
        row = {"kernel": kernel, "data in": played.level}
        more = {**row, "elements": first.elements, "by": f"the {chosen} time"}
        row |= {"variant": first.how, "memkern, GB/s": speeds[0]}
        row |= {"peer": played.peers[peer - 1].label, "peer, GB/s": speeds[1]}
        row |= interval("ratio", ratio)
        more |= {f"ratio of the {other} times": versus(kernel, other)[1].ratio}
        if played.best:
            more |= {f"{played.best.label}, GB/s": speeds[2]}
        yield row, more, ratio


def main() -> int:
    """Run the comparison, and print and write a row for each kernel."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--stream", action="append", default=[], help="executable; repeatable")
    parser.add_argument("--babelstream", help="executable of the OpenMP model")
    parser.add_argument("--likwid-bench", help="executable")
    parser.add_argument("--self", action="store_true", help="memkern against itself")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--statistic", choices=STATISTICS, help="of the times in a turn")
    parser.add_argument(
        "--best-pages", nargs="?", const="default", help="memkern's best pages, quoted beside"
    )
    forking = parser.add_argument_group("beside STREAM and BabelStream")
    forking.add_argument("--pin", default="none", help="'none' or units for both: 0,1")
    forking.add_argument("--elements", type=int, help="by default STREAM's, or 4 x the caches")
    forking.add_argument("--times", type=int, default=100, help="STREAM's NTIMES wins")
    free = parser.add_argument_group("beside likwid-bench")
    free.add_argument("--level", choices=("L1", "L2", "L3", "memory"), default="memory")
    free.add_argument("--seconds", type=float, default=0.3, help="a run")
    free.add_argument("--repeats", type=int, default=3, help="runs in a turn, each allocates anew")
    args = parsed(parser)
    rounds = [forking_round(args)] if args.stream or args.babelstream else []
    if args.likwid_bench:
        rounds += likwid_rounds(args)
    if not rounds:
        parser.error("name at least one peer")
    rows: list[Row] = []
    others: list[Row] = []
    ratios: dict[str, Ratio] = {}
    for played, found in zip(rounds, play(rounds, args.turns), strict=True):
        for row, more, ratio in kernel_rows(played, found):
            add(rows, row)
            add(others, more)
            ratios[f"{row['kernel']}, {played.level or 'forking'}"] = ratio
    write(args, rows, others=others)
    return 0 if judge(ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
