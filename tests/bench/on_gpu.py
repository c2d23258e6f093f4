"""Compare kernels on a GPU with the driver's copy, and launches with bare ones, in turns.

The ceiling of a turn is a copy by the driver within the device's memory, read and written. A bare
launch is an empty kernel's, compiled here by nvcc into a program of its own::

    python tests/bench/on_gpu.py --device cuda:0 --gigabytes 4 --turns 7

Peers are programs, built elsewhere with their own flags. BabelStream's CUDA build prints MB/s for
each of its functions, Spatter's CUDA build seconds and MB/s for each pattern::

    python tests/bench/on_gpu.py --babelstream /path/to/cuda-stream --spatter /path/to/spatter
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from peers import valid_record, with_interval

import memkern as mk
from memkern.machine import gpu
from memkern.statistics import ratio_interval

BARE = """
#include <chrono>
#include <cstdio>
__global__ void empty() {}
int main() {
  for (int turn = 0; turn < 200; ++turn) {
    cudaDeviceSynchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < 20; ++k) empty<<<1, 1>>>();
    cudaDeviceSynchronize();
    const auto end = std::chrono::steady_clock::now();
    std::printf("%.9g\\n", std::chrono::duration<double>(end - begin).count() / 20);
  }
}
"""
KERNELS = ("stream.copy", "stream.triad", "bs.bs1", "bs.bs2", "bs.bs3", "bs.bs4", "bs.bs5")
BABELSTREAM = {"Copy": "stream.copy", "Triad": "stream.triad", "Dot": "bs.bs4"}


def bare_launch_s(program: Path) -> float:
    """Return the median seconds of a bare empty launch."""
    lines = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return float(np.median([float(line) for line in lines.split()]))


def babelstream_GBps(program: str, elements: int) -> dict[str, float]:
    """Return the bandwidths that BabelStream prints, by memkern's names."""
    command = [program, "-s", str(elements), "-n", "50"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in text.splitlines())
    return {
        BABELSTREAM[row[0]]: float(row[1]) / 1e3
        for row in rows
        if len(row) > 1 and row[0] in BABELSTREAM
    }


def spatter_GBps(program: str, kernel: str, count: int) -> float:
    """Return the bandwidth that Spatter prints for UNIFORM:256:1."""
    options = ["-pUNIFORM:256:1", "-d256", f"-l{count}", f"-k{kernel}", "-r20"]
    text = subprocess.run([program, *options], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s", line)]
    return float(rows[-1][-1]) / 1e3


def main() -> None:
    """Print bandwidths, shares of the ceiling and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of all arrays together")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--babelstream", metavar="PROGRAM")
    parser.add_argument("--spatter", metavar="PROGRAM")
    parser.add_argument("--timer", default="host", choices=("host", "events", "graph"))
    args = parser.parse_args()
    how = {"device": args.device, "timer": args.timer, "runs": 20}
    footprint_B = args.gigabytes * 1e9
    cases = {name: mk.case(name, footprint_B=footprint_B, **how) for name in KERNELS}
    count = int(footprint_B / 8 / 256)
    for kernel in ("gather", "scatter"):
        shape = {"pattern": "UNIFORM:256:1", "delta": 256, "count": count, "index_dtype": "int32"}
        cases[f"spatter.{kernel}"] = mk.case(f"spatter.{kernel}", **shape, **how)

    ours: dict[str, list[float]] = {name: [] for name in cases}
    theirs: dict[str, list[float]] = {}
    ceilings: list[float] = []
    launches: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "bare.cu"), Path(folder, "bare")
        source.write_text(BARE)
        subprocess.run(["nvcc", "-O3", str(source), "-o", str(program)], check=True)
        for _ in range(args.turns):
            gpu.copy_GBps.cache_clear()
            ceilings.append(gpu.copy_GBps(args.device))
            for name, case in cases.items():
                ours[name].append(valid_record(case, name)["bandwidth_median_GBps"])
            empty = mk.case("bs.bs0", device=args.device, runs=200)
            launches.append(empty.measure().record["time_median_s"])
            bare.append(bare_launch_s(program))
            if args.babelstream:
                elements = int(footprint_B / 8 / 3)
                for name, rate in babelstream_GBps(args.babelstream, elements).items():
                    theirs.setdefault(name, []).append(rate)
            if args.spatter:
                for kernel in ("gather", "scatter"):
                    rate = spatter_GBps(args.spatter, kernel, count)
                    theirs.setdefault(f"spatter.{kernel}", []).append(rate)

    name = gpu.describe(args.device)["name"]
    print(f"{name}; copy by the driver {np.median(ceilings):.0f} GB/s")
    for name, rates in ours.items():
        share = ratio_interval(rates, ceilings, paired=True)
        text = f"{name:<16} {np.median(rates):8.0f} GB/s  {share.ratio:.3f} of the copy"
        if name in theirs:
            ratio = ratio_interval(rates, theirs[name], paired=True)
            text += f"  {with_interval(ratio)} of the peer"
        print(text)
    cost = ratio_interval(launches, bare, paired=True)
    print(f"empty launch {np.median(launches) * 1e6:.2f} us, {cost.ratio:.3f} of a bare one")


if __name__ == "__main__":
    main()
