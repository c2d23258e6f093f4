"""Measure one GPU beside the driver's copy, bare launches, BabelStream and Spatter, in turns.

Everything is measured in a new random order in each turn and compared within the same turns. Rows
have the verdicts on all targets, and ``--records`` has memkern's records. What fails is left out
from then on. Energy is measured in the first turn only, since that takes more than a second per
case. With ``--every-kernel`` the script runs and checks a small case of each kernel instead, for a
tool of compute-sanitizer. It changes no setting of a card.
"""

import argparse
import contextlib
import dataclasses
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from peers import as_fast
from records import Row, interval, program

import memkern as mk
from memkern.engine.recording.taken import to_result_set
from memkern.machine import gpu
from memkern.spec.options import Knobs
from memkern.statistics import Ratio, geometric_mean, ratio_interval

TESTS = Path(__file__).parents[1] / "tests"
TOOLS = ("memcheck", "racecheck", "synccheck")
# Families with kernels that use shared memory, besides the variant `shared` of atomic operations.
SHARED = ("bs.", "loops.", "spatter.", "latency.banks")
BARE = """
#include <chrono>
#include <cstdio>
__global__ void empty() {}
double launch_s() {
  cudaDeviceSynchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int k = 0; k < 20; ++k) empty<<<1, 1>>>();
  cudaDeviceSynchronize();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(end - begin).count() / 20;
}
int main() {
  // As memkern's warm-up, so that the card has the clocks that it has under load.
  for (double spent_s = 0; spent_s < 0.2; spent_s += 20 * launch_s()) {}
  for (int turn = 0; turn < 200; ++turn) std::printf("%.9g\\n", launch_s());
}
"""
KERNELS = (
    "stream.copy", "stream.triad", "loops.load", "loops.sum", "bs.bs1", "bs.bs2", "bs.bs3",
    "bs.bs4", "bs.bs5",
)  # fmt: skip
SPATTER = ("gather", "scatter")
BABELSTREAM = {"Copy": "stream.copy", "Triad": "stream.triad", "Dot": "bs.bs4"}
PEERS = (*BABELSTREAM.values(), *(f"spatter.{kernel}" for kernel in SPATTER))
# Required shares of the faster of the driver's copy and our own read.
TARGETS = {
    "stream.copy": 0.92, "stream.triad": 0.92, "spatter.gather": 0.90, "spatter.scatter": 0.90,
    "bs.bs3": 0.90, "bs.bs4": 0.90,
}  # fmt: skip
# Largest accepted ratio of an empty launch to a bare one.
LAUNCH = 1.10
# Least number of alternations for a verdict on peers.
ALTERNATIONS = 7
NOT_MET, WRONG = "NOT MET", "WRONG"


def output_of(*words: object) -> str:
    """Return the output of a program."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise RuntimeError(f"exit code {done.returncode}: {''.join(last)}")
    return done.stdout


def small_case(entry: tuple[Any, ...], device: str) -> mk.Case:
    """Return a small case of an entry of the extension."""
    kernel, variant, dtype, index, _, template = entry
    own: dict[str, Any] = {}
    if kernel.startswith("amo."):
        # Workers of several warps, each with several iterations, may race.
        own = dict(zip(("primitive", "order", "returns"), template.split("/"), strict=True))
        own |= {"dtype": dtype, "threads": 100, "iters": 8}
    elif kernel == "latency.chase":
        own = {"size_B": 2**13, "steps": 100, "chains": int(template)}
    elif kernel == "latency.banks":
        own = {"steps": 100, "dtype": dtype}
    elif kernel.startswith("transfers."):
        own = {"size_B": 2**13, "memory": template}
    if own:
        return mk.case(kernel, device=device, variant=variant, **own)
    sys.path[:0] = [str(TESTS), str(TESTS / "families")]
    from samples import SAMPLES

    sample = SAMPLES[kernel][0]
    knobs = Knobs(device=device, variant=variant, seed=sample.knobs.seed)
    return dataclasses.replace(sample, knobs=knobs).with_(dtype=dtype, index_dtype=index)


def in_order(entries: list[Any], tool: str, seed: int) -> list[Any]:
    """Return entries in the order in which a tool of the sanitizer runs them.

    One of each variant of a kernel comes first, then the others, in a different random order for
    each tool. Racecheck checks only accesses to shared memory: families that use it come first.
    """
    mixed = random.Random(f"{seed} {tool}").sample(entries, len(entries))
    first = {entry[:2]: entry for entry in reversed(mixed)}
    ordered = sorted(mixed, key=lambda entry: first[entry[:2]] is not entry)
    if tool == "racecheck":
        ordered.sort(key=lambda entry: not (entry[0].startswith(SHARED) or entry[1] == "shared"))
    return ordered


def every_kernel(args: argparse.Namespace) -> Iterator[Row]:
    """Run and check one small case of every kernel, in random order."""
    # Kernels with their own unrolling; transfers between two cards need both.
    every = gpu._module(args.device.partition(":")[0]).entries()
    entries = [e for e in every if not e[4] and e[0] != "transfers.between"]
    end, done, wrong = time.monotonic() + 60 * args.minutes, 0, 0
    for entry in in_order(entries, args.every_kernel, args.seed):
        if time.monotonic() >= end:
            break
        try:
            found = small_case(entry, args.device).prepare().check()
            said = "right" if found.valid else WRONG
        except ValueError as error:
            said = str(error)  # some operations have no such variant
        wrong += said == WRONG
        done += 1
        kernel = " ".join(map(str, filter(None, entry)))
        yield {"number": f"{done} of {len(entries)}", "kernel": kernel, "found": said}
    print(f"{done} of {len(entries)} kernels, {wrong} wrong results")


def bare_launch_s(text: str) -> float:
    """Return the median seconds of a bare empty launch."""
    return statistics.median(float(line) for line in text.split())


def babelstream_GBps(text: str) -> dict[str, float]:
    """Return the bandwidths that BabelStream prints, of its shortest times, by memkern's names."""
    rows = (line.split() for line in text.splitlines())
    return {
        BABELSTREAM[row[0]]: float(row[1]) / 1e3
        for row in rows
        if len(row) > 1 and row[0] in BABELSTREAM
    }


def spatter_GBps(text: str) -> float:
    """Return the bandwidth that Spatter prints, of its shortest time."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s", line)]
    if not rows:
        raise ValueError("Spatter printed no bandwidth")
    return float(rows[-1][-1]) / 1e3


def peers(
    args: argparse.Namespace, count: int, folder: Path
) -> dict[str, Callable[[], dict[str, float]]]:
    """Return functions that run each peer once; the bare launches are built in a folder."""
    runs: dict[str, Callable[[], dict[str, float]]] = {}
    bare = folder / "bare"
    (folder / "bare.cu").write_text(BARE)
    try:
        output_of("nvcc", "-O3", "-arch=native", folder / "bare.cu", "-o", bare)
        runs["a bare launch"] = lambda: {"launch": bare_launch_s(output_of(bare))}
    except (RuntimeError, OSError) as error:
        print(f"bare launches are left out: {error}")
    if args.babelstream:
        # Its arrays are multiples of its blocks of 1024 elements.
        elements = max(int(args.gigabytes * 1e9 / 8 / 3) // 1024, 1) * 1024
        words = (args.babelstream, "-s", elements, "-n", "50")
        runs["BabelStream"] = lambda: babelstream_GBps(output_of(*words))
    for kernel in SPATTER if args.spatter else ():
        how = ("-bcuda", "-pUNIFORM:256:1", "-d256", f"-l{count}", f"-k{kernel}", "-r20")
        runs[f"Spatter's {kernel}"] = lambda k=kernel, how=how: {
            f"spatter.{k}": spatter_GBps(output_of(args.spatter, *how))
        }
    return runs


@dataclasses.dataclass
class Turn:
    """Measurements of one turn, by name.

    Shares of the ceiling are of medians, since the driver's copy is a median. Peers print the
    bandwidth of their shortest time, so ours compared with theirs is also of the shortest time.
    """

    medians: dict[str, float] = dataclasses.field(default_factory=dict)
    fastest: dict[str, float] = dataclasses.field(default_factory=dict)
    peers: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def ceiling(self) -> float:
        """The larger of the driver's copy and our own loads."""
        return max(self.medians["driver"], self.medians["loops.load"])


def of_pairs(
    turns: list[Turn], ours: Callable[[Turn], float], theirs: Callable[[Turn], float]
) -> tuple[Ratio | None, int]:
    """Return the ratio of two values over the turns that have both, and their number."""
    pairs = []
    for turn in turns:
        # One of them may have failed in this turn.
        with contextlib.suppress(KeyError):
            pairs.append((ours(turn), theirs(turn)))
    found = ratio_interval(*zip(*pairs, strict=True), paired=True) if pairs else None
    return found, len(pairs)


def verdicts(turns: list[Turn]) -> Iterator[Row]:
    """Yield a row for every target: the value found, the target, whether it is met."""

    def judged(name: str, found: Ratio | None, wanted: str, met: bool | None) -> Row:
        verdict = "not judged" if found is None or met is None else "met" if met else NOT_MET
        row = {"target": name} | (interval("found", found) if found else {"found": None})
        return row | {"wanted": wanted, "verdict": verdict}

    for name, least in TARGETS.items():
        found, _ = of_pairs(turns, lambda turn, n=name: turn.medians[n], lambda turn: turn.ceiling)
        yield judged(name, found, f">= {least} of the ceiling", found and found.ratio >= least)
    found, _ = of_pairs(
        turns, lambda turn: turn.medians["launch"], lambda turn: turn.peers["launch"]
    )
    yield judged("launch", found, f"<= {LAUNCH} of a bare one", found and found.ratio <= LAUNCH)
    ratios: list[Row] = []
    for name in PEERS:
        found, number = of_pairs(
            turns, lambda turn, n=name: turn.fastest[n], lambda turn, n=name: turn.peers[n]
        )
        if found:
            yield judged(f"{name} / peer", found, f"{number} alternations", None)
        if found and number >= ALTERNATIONS:
            ratios.append({"peer": name} | interval("ratio", found))
    row = {"target": f"{len(ratios)} of {len(PEERS)} / peers, geometric mean", "found": None}
    row |= {"wanted": f">= 1, {ALTERNATIONS} alternations", "verdict": "not judged"}
    if ratios:
        row["found"] = geometric_mean([ratio["ratio"] for ratio in ratios])
        row["verdict"] = "met" if as_fast(ratios) else NOT_MET
    yield row


def measure(args: argparse.Namespace, folder: Path) -> list[Turn]:
    """Measure everything in turns of different order, and store records after each."""
    how = {"device": args.device, "timer": args.timer, "runs": 20}
    footprint_B = args.gigabytes * 1e9
    count = max(int(footprint_B / 8 / 256), 1)
    shape = {"pattern": "UNIFORM:256:1", "delta": 256, "count": count, "index_dtype": "int32"}
    cases = {name: mk.case(name, footprint_B=footprint_B, **how) for name in KERNELS}
    cases |= {f"spatter.{k}": mk.case(f"spatter.{k}", **shape, **how) for k in SPATTER}
    # The same number of launches between two synchronisations as in the bare program.
    cases["launch"] = mk.case("bs.bs0", device=args.device, runs=200, invocations=20)
    done: list[mk.Measurement] = []
    turns: list[Turn] = []

    def own(name: str) -> None:
        note = "energy is not measured: this script measures it in its first turn"
        spared = mock.patch("memkern.engine.sampling.metering.why_not", lambda prepared: note)
        with contextlib.nullcontext() if len(turns) == 1 else spared:
            found = cases[name].measure()
        done.append(found)
        if not found.valid:
            raise RuntimeError("the result is wrong")
        column = "time_median_s" if name == "launch" else "bandwidth_median_GBps"
        turns[-1].medians[name] = found.record[column]
        if name != "launch":
            turns[-1].fastest[name] = found.record["bandwidth_GBps"]

    def driver() -> None:
        gpu.copy_GBps.cache_clear()
        # A copy of as many bytes as the kernels' arrays have.
        turns[-1].medians["driver"] = gpu.copy_GBps(args.device, int(footprint_B / 2))

    work: dict[str, Callable[[], object]] = {
        **{name: lambda n=name: own(n) for name in cases},
        "driver": driver,
        **{
            name: lambda run=run: turns[-1].peers.update(run())
            for name, run in peers(args, count, folder).items()
        },
    }
    order, took_s, end = random.Random(args.seed), 0.0, time.monotonic() + 60 * args.minutes
    while len(turns) < args.turns and (not turns or time.monotonic() + 1.5 * took_s < end):
        begin = time.monotonic()
        turns.append(Turn())
        for name in order.sample(sorted(work), len(work)):
            try:
                work[name]()
            except Exception as error:  # The others are still measured.
                print(f"{name}: {error}; it is left out from now on", flush=True)
                del work[name]
        if args.records:
            to_result_set(done).save(args.records)
        took_s = time.monotonic() - begin
    return turns


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the verdicts, or a row for every kernel."""
    if args.every_kernel:
        yield from every_kernel(args)
        return
    with TemporaryDirectory() as folder:
        turns = measure(args, Path(folder))
    rows = list(verdicts(turns))
    yield from rows
    missed = sum(row["verdict"] == NOT_MET for row in rows)
    print(f"{gpu.facts(args.device)['name']}, {len(turns)} turns, {missed} targets not met")


# A name without a folder would be searched on PATH.
PROGRAM = {"type": lambda text: Path(text).resolve(), "metavar": "PROGRAM"}
OPTIONS = {
    "--device": "cuda:0",
    "--records": {"metavar": "FILE", "help": "write memkern's records there"},
    "--minutes": (9.5, "for everything together"),
    "--gigabytes": (2.0, "of all arrays together"),
    "--seed": (0, "of the order in each turn"),
    "--timer": {"default": "host", "choices": ("host", "events", "graph")},
    "--babelstream": PROGRAM,
    "--spatter": PROGRAM,
    "--every-kernel": {
        "choices": TOOLS, "metavar": "TOOL",
        "help": "run each kernel once, in the order for a tool of the sanitizer, and end",
    },
}  # fmt: skip
main = program(
    __name__,
    __doc__,
    measured,
    OPTIONS,
    turns=7,
    judge=lambda rows: all(row.get("found") != WRONG for row in rows),
)
