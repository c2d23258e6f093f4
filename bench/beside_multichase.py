"""Compare memkern's latencies with those of multichase, multiload and pingpong, in turns.

Cases are a chase through 64-byte lines in random order over the whole buffer (``-T`` of its size),
chains in parallel, and a line that two cores write in turn without pauses (``-u -r 0``), in 4 KiB
pages. The published method of core-to-core-latency, in which both cores compare and swap one flag,
is measured by ``pingpong -l -r 0``. During a chase in memory a second core makes as much traffic as
it can, only by loads (``multiload -l stream-sum``) or only by stores (``-l memset-libc``); the
traffic of both sides is printed, since it may differ.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from peers import as_fast, beside, in_turns, must_be_valid, printed
from records import Row, program

import memkern as mk

MEMORY_B = 2**28
# Sizes, and chains in parallel.
CHASES = (
    ("16 KiB (L1)", 2**14, 1),
    ("512 KiB (L2)", 2**19, 1),
    ("8 MiB (L3)", 2**23, 1),
    *(("256 MiB", MEMORY_B, chains) for chains in (1, 2, 4, 6)),
)
# Lines loaded of every 8, the variant with about the same traffic as multiload, and the name of
# this traffic in multiload.
TRAFFIC = {"loads": (8, "scalar", "stream-sum"), "stores": (0, "simd", "memset-libc")}
# Options of pingpong and of memkern for the same way to take a line.
LINES = (("-u", "load", "load and store"), ("-l", "swap", "compare-and-swap"))
Found = tuple[float, float]


def multichase(folder: Path, size_B: int, chains: int, samples: int) -> Found:
    """Return multichase's mean ns per dereference, without traffic."""
    kind = "simple" if chains == 1 else f"parallel{chains}"
    words = [folder / "multichase", "-a", "-c", kind, "-m", size_B, "-s", 64, "-T", size_B]
    return float(printed([*words, "-n", samples]).split()[-1]), np.nan


def multiload(folder: Path, kind: str, samples: int) -> Found:
    """Return multiload's mean ns per dereference with traffic, and the traffic in GB/s."""
    words = ["-a", "-c", "chaseload", "-l", kind, "-m", MEMORY_B, "-s", 64, "-T", MEMORY_B, "-t", 2]
    heads, values = printed([folder / "multiload", *words, "-n", samples]).splitlines()
    found = dict(zip(re.split(r"\s*,\s*", heads), re.split(r"\s*,\s*", values), strict=True))
    return float(found["ChaseNS"]), float(found["LdAvgMibs"]) * 2**20 / 1e9


def pingpong(folder: Path, kind: str) -> Found:
    """Return the ns from one core to the other of the first two units, without traffic."""
    output = printed([folder / "pingpong", kind, "-r", 0, "-c", 2])
    found = re.search(r"(?m)^ *0: +([0-9.]+)", output)
    if found is None:
        raise SystemExit(f"pingpong printed no time:\n{output}")
    return float(found[1]), np.nan


def cases(folder: Path, samples: int) -> Iterator[tuple[str, mk.Case, Callable[[], Found]]]:
    """Yield each case: its name, memkern's case, and a function that runs the peer."""
    how = {"pages": "4k", "pin": "compact", "line_B": 64, "budget_s": 0.5}
    for where, size_B, chains in CHASES:
        name = f"{chains} chains in {where}" if chains > 1 else f"chase in {where}"
        peer = partial(multichase, folder, size_B, chains, samples)
        yield name, mk.latency(size_B, chains=chains, **how), peer
    for what, (loads, variant, kind) in TRAFFIC.items():
        traffic = {"loads": loads, "variant": variant, "threads": 2}
        case = mk.case("latency.loaded", size_B=MEMORY_B, **traffic, **how)
        peer = partial(multiload, folder, kind, samples)
        yield f"chase in 256 MiB, beside {what}", case, peer
    for kind, take_by, name in LINES:
        case = mk.case("latency.ping_pong", take_by=take_by, pin="0,1", pages="4k", budget_s=0.5)
        yield f"a line, by {name}", case, partial(pingpong, folder, kind)


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each case."""
    every = {name: (case, peer) for name, case, peer in cases(args.folder, args.samples)}

    def both(name: str) -> tuple[float, ...]:
        case, peer = every[name]
        record = must_be_valid(case.measure().record, name)
        return record["ns_per_access"], record.get("traffic_GBps", np.nan), *peer()

    for name, found in in_turns(every, args.turns, both).items():
        ours_ns, ours_GBps, theirs_ns, theirs_GBps = np.transpose(found)
        row = {"case": name} | beside("multichase", "ns", {"": ours_ns}, {"": theirs_ns})
        row["memkern, GB/s"] = np.median(ours_GBps)
        yield row | {"multichase, GB/s": np.median(theirs_GBps)}


OPTIONS = {
    "--folder": {"required": True, "type": Path, "help": "of multichase and pingpong"},
    "--samples": (2, "half seconds of multichase a turn"),
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
