"""Compare memkern's RaiderSTREAM kernels over ranks with RaiderSTREAM's own, in turns.

Both are started by the same launcher, with one thread per rank, in 4 KiB pages, with the same total
number of elements. For OpenSHMEM the launcher is ``oshrun --mca btl ^uct``, with
``SHMEM_SYMMETRIC_HEAP_SIZE=1G``. RaiderSTREAM runs every kernel once. Its sequential kernels come
first and are left out: copy, scale and triad include the page faults of c, b and a, and add reads a
before it is written. memkern's time of a turn is the median of its samples.
"""

import argparse
import re
import shlex
from collections.abc import Iterator

import numpy as np
from peers import as_fast, beside, in_turns, printed, records_of
from records import Row, program

# The peer's names of the kernels, in the order in which it runs and prints them.
KERNELS = {
    f"{name} {operation.capitalize()}": f"{short}_{operation}"
    for name, short in (("Gather", "gather"), ("Scatter", "scatter"), ("Scatter-Gather", "sg"))
    for operation in ("copy", "scale", "add", "triad")
}


def peer(words: list[str], elements: int, ranks: int) -> list[float]:
    """Return the seconds that RaiderSTREAM prints, in the order of the kernels."""
    text = printed([*words, "-k", "all", "-s", elements, "-np", ranks])
    rows = dict(re.findall(r"^([A-Z][A-Za-z -]+?)\s+([0-9.]+)\s", text, re.MULTILINE))
    return [float(rows[name]) for name in KERNELS]


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each kernel."""
    launch = [*shlex.split(args.launcher), "-n", str(args.ranks)]
    own = ["raider", "-k", ",".join(KERNELS.values()), "-n", args.elements // args.ranks]
    own += ["-t", 1, "--pages", "4k", "--budget", 0.5, "--definition", "release"]
    own += ["--comm", args.comm]
    bytes_B: dict[str, int] = {}

    def seconds(who: str) -> list[float]:
        if who == "peer":
            return peer([*launch, args.raiderstream], args.elements, args.ranks)
        records = {r["kernel"].partition(".")[2]: r for r in records_of(*own, launcher=launch)}
        bytes_B.update({name: records[name]["bytes_B"] for name in KERNELS.values()})
        return [records[name]["time_median_s"] for name in KERNELS.values()]

    found = in_turns(("memkern", "peer"), args.turns, seconds)
    sides = (np.transpose(found[who]) for who in ("memkern", "peer"))
    for name, ours, theirs in zip(KERNELS.values(), *sides, strict=True):
        work = bytes_B[name] / 1e9
        yield {"kernel": name} | beside("RaiderSTREAM", "GB/s", {"": ours}, {"": theirs}, work)


OPTIONS = {
    "--raiderstream": {"required": True, "help": "executable of the peer"},
    "--comm": {"choices": ("mpi", "shmem"), "default": "mpi"},
    "--launcher": ("mpirun", "with its options"),
    "--ranks": 2,
    "--elements": (20_000_000, "of all ranks together"),
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
