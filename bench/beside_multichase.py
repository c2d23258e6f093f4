"""Compare memkern's latencies with those of multichase, multiload and pingpong, in turns.

They are built elsewhere with their own flags; this script only runs them::

    python bench/beside_multichase.py --folder /path/to/multichase

Each turn measures every case on both sides in rotating order: a chase through 64-byte lines in
random order over the whole buffer (``-T`` of its size), chains in parallel, and a line that two
cores write in turn without pauses (``-u -r 0``), in 4 KiB pages. A ratio is the other program's
time over memkern's; equal latencies have ratio 1. The published method of core-to-core-latency, in
which both cores compare and swap one flag, is measured by ``pingpong -l -r 0``. Beside a chase in
memory a second core makes as much traffic as it can, by loads alone (``multiload -l stream-sum``)
or by stores alone (``-l memset-libc``); the traffic of both sides is printed, since it may differ.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers import judge, printed, rotated, valid_record, with_interval

import memkern as mk
from memkern.statistics import Ratio, ratio_interval

SIZES = {"L1": 2**14, "L2": 2**19, "L3": 2**23, "memory": 2**28}
CHAINS = (2, 4, 6)
# Lines loaded of every 8, the variant that makes about as much traffic as multiload, and the name
# of that traffic in multiload.
TRAFFIC = {"loads": (8, "scalar", "stream-sum"), "stores": (0, "simd", "memset-libc")}


def multichase(folder: Path, size_B: int, chains: int, samples: int) -> tuple[float, float]:
    """Return the mean ns of a dereference of multichase, without traffic."""
    kind = "simple" if chains == 1 else f"parallel{chains}"
    words = [folder / "multichase", "-a", "-c", kind, "-m", size_B, "-s", 64, "-T", size_B]
    return float(printed([*words, "-n", samples]).split()[-1]), 0.0


def multiload(folder: Path, kind: str, samples: int) -> tuple[float, float]:
    """Return multiload's mean ns of a dereference beside traffic, and the traffic in GB/s."""
    size_B = SIZES["memory"]
    words = ["-a", "-c", "chaseload", "-l", kind, "-m", size_B, "-s", 64, "-T", size_B, "-t", 2]
    heads, values = printed([folder / "multiload", *words, "-n", samples]).splitlines()
    found = dict(zip(re.split(r"\s*,\s*", heads), re.split(r"\s*,\s*", values), strict=True))
    return float(found["ChaseNS"]), float(found["LdAvgMibs"]) * 2**20 / 1e9


def pingpong(folder: Path, kind: str) -> tuple[float, float]:
    """Return the ns from one core to the other of the first two units, without traffic."""
    output = printed([folder / "pingpong", kind, "-r", 0, "-c", 2])
    found = re.search(r"(?m)^ *0: +([0-9.]+)", output)
    if found is None:
        raise SystemExit(f"pingpong printed no time:\n{output}")
    return float(found[1]), 0.0


def main() -> None:
    """Print latencies and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", required=True, type=Path, help="of multichase and pingpong")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--samples", type=int, default=2, help="half seconds of multichase a turn")
    args = parser.parse_args()
    how = {"pages": "4k", "pin": "compact", "line_B": 64, "budget_s": 0.5}
    cases: dict[str, tuple[mk.Case, Callable[[], tuple[float, float]]]] = {}
    for where, size_B in SIZES.items():
        cases[f"chase, {where}"] = (
            mk.latency(size_B, **how),
            lambda size_B=size_B: multichase(args.folder, size_B, 1, args.samples),
        )
    for chains in CHAINS:
        cases[f"{chains} chains, memory"] = (
            mk.latency(SIZES["memory"], chains=chains, **how),
            lambda chains=chains: multichase(args.folder, SIZES["memory"], chains, args.samples),
        )
    for what, (loads, variant, kind) in TRAFFIC.items():
        traffic = {"loads": loads, "variant": variant, "threads": 2}
        cases[f"beside {what}"] = (
            mk.case("latency.loaded", size_B=SIZES["memory"], **traffic, **how),
            lambda kind=kind: multiload(args.folder, kind, args.samples),
        )
    for kind, take_by in (("-u", "load"), ("-l", "swap")):
        cases[f"a line by {take_by}"] = (
            mk.case("latency.ping_pong", take_by=take_by, pin="0,1", pages="4k", budget_s=0.5),
            lambda kind=kind: pingpong(args.folder, kind),
        )
    ours: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    theirs: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for turn in range(args.turns):
        for name in rotated(list(cases), turn):
            case, peer = cases[name]
            record = valid_record(case, name)
            ours[name].append((record["ns_per_access"], record.get("traffic_GBps", 0.0)))
            theirs[name].append(peer())
    ratios: dict[str, Ratio] = {}
    for name in cases:
        (own_ns, own_GBps), (ns, GBps) = (np.transpose(side[name]) for side in (ours, theirs))
        ratios[name] = ratio_interval(ns, own_ns, paired=True)
        moved = ""
        if own_GBps.any():
            moved = f", traffic {np.median(own_GBps):.1f} and {np.median(GBps):.1f} GB/s"
        print(
            f"{name:<18} {np.median(own_ns):8.2f} ns, multichase {np.median(ns):8.2f} ns, ratio "
            f"{with_interval(ratios[name])}{moved}"
        )
    judge(ratios)


if __name__ == "__main__":
    main()
