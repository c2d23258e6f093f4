"""Compare memkern's latencies with those of multichase, multiload and pingpong, in turns.

They are built elsewhere with their own flags; this script only runs them::

    python bench/beside_multichase.py --folder /path/to/multichase

Each turn measures every case on both sides in rotating order: a chase through 64-byte lines in
random order over the whole buffer (``-T`` of its size), chains in parallel, and a line that two
cores write in turn without pauses (``-u -r 0``), in 4 KiB pages. A ratio is the other program's
time over memkern's; equal latencies have ratio 1. The published method of core-to-core-latency, in
which both cores compare and swap one flag, is measured by ``pingpong -l -r 0``. During a chase in
memory a second core makes as much traffic as it can, only by loads (``multiload -l stream-sum``) or
only by stores (``-l memset-libc``); the traffic of both sides is printed, since it may differ.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers import in_turns, judge, printed, valid_record
from records import Row, add, interval, options, parsed, write

import memkern as mk
from memkern.statistics import Ratio, ratio_interval

MEMORY_B = 2**28
SIZES = {
    "16 KiB (L1)": 2**14,
    "512 KiB (L2)": 2**19,
    "8 MiB (L3)": 2**23,
    "256 MiB": MEMORY_B,
}
CHAINS = (2, 4, 6)
# Lines loaded of every 8, the variant with about the same traffic as multiload, and the name of
# this traffic in multiload.
TRAFFIC = {"loads": (8, "scalar", "stream-sum"), "stores": (0, "simd", "memset-libc")}


def multichase(folder: Path, size_B: int, chains: int, samples: int) -> tuple[float, float]:
    """Return multichase's mean ns per dereference, without traffic."""
    kind = "simple" if chains == 1 else f"parallel{chains}"
    words = [folder / "multichase", "-a", "-c", kind, "-m", size_B, "-s", 64, "-T", size_B]
    return float(printed([*words, "-n", samples]).split()[-1]), np.nan


def multiload(folder: Path, kind: str, samples: int) -> tuple[float, float]:
    """Return multiload's mean ns per dereference with traffic, and the traffic in GB/s."""
    words = ["-a", "-c", "chaseload", "-l", kind, "-m", MEMORY_B, "-s", 64, "-T", MEMORY_B, "-t", 2]
    heads, values = printed([folder / "multiload", *words, "-n", samples]).splitlines()
    found = dict(zip(re.split(r"\s*,\s*", heads), re.split(r"\s*,\s*", values), strict=True))
    return float(found["ChaseNS"]), float(found["LdAvgMibs"]) * 2**20 / 1e9


def pingpong(folder: Path, kind: str) -> tuple[float, float]:
    """Return the ns from one core to the other of the first two units, without traffic."""
    output = printed([folder / "pingpong", kind, "-r", 0, "-c", 2])
    found = re.search(r"(?m)^ *0: +([0-9.]+)", output)
    if found is None:
        raise SystemExit(f"pingpong printed no time:\n{output}")
    return float(found[1]), np.nan


def main() -> None:
    """Print and write latencies and ratios."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--folder", required=True, type=Path, help="of multichase and pingpong")
    parser.add_argument("--samples", type=int, default=2, help="half seconds of multichase a turn")
    args = parsed(parser)
    how = {"pages": "4k", "pin": "compact", "line_B": 64, "budget_s": 0.5}
    cases: dict[str, tuple[mk.Case, Callable[[], tuple[float, float]]]] = {}
    for where, size_B in SIZES.items():
        cases[f"chase in {where}"] = (
            mk.latency(size_B, **how),
            lambda size_B=size_B: multichase(args.folder, size_B, 1, args.samples),
        )
    for chains in CHAINS:
        cases[f"{chains} chains in 256 MiB"] = (
            mk.latency(MEMORY_B, chains=chains, **how),
            lambda chains=chains: multichase(args.folder, MEMORY_B, chains, args.samples),
        )
    for what, (loads, variant, kind) in TRAFFIC.items():
        traffic = {"loads": loads, "variant": variant, "threads": 2}
        cases[f"chase in 256 MiB, beside {what}"] = (
            mk.case("latency.loaded", size_B=MEMORY_B, **traffic, **how),
            lambda kind=kind: multiload(args.folder, kind, args.samples),
        )
    for kind, take_by, name in (
        ("-u", "load", "load and store"),
        ("-l", "swap", "compare-and-swap"),
    ):
        cases[f"a line, by {name}"] = (
            mk.case("latency.ping_pong", take_by=take_by, pin="0,1", pages="4k", budget_s=0.5),
            lambda kind=kind: pingpong(args.folder, kind),
        )

    def both(name: str, _: int) -> tuple[float, ...]:
        case, peer = cases[name]
        record = valid_record(case, name)
        return record["ns_per_access"], record.get("traffic_GBps", np.nan), *peer()

    rows: list[Row] = []
    ratios: dict[str, Ratio] = {}
    for name, found in in_turns(cases, args.turns, both).items():
        ratios[name] = ratio_interval(*np.transpose(found)[[2, 0]], paired=True)
        own_ns, own_GBps, ns, GBps = np.median(found, axis=0)
        row = {"case": name, "memkern, ns": own_ns, "multichase, ns": ns}
        row |= interval("ratio", ratios[name])
        add(rows, row | {"memkern, GB/s": own_GBps, "multichase, GB/s": GBps})
    write(args, rows)
    judge(ratios)


if __name__ == "__main__":
    main()
