"""Compare memkern's messages between ranks with the OSU micro-benchmarks, in turns.

Two ranks of the same library are each bound to a core, on 4 KiB pages. Both sides complete each
message before the next one starts: OSU's one-sided tests of MPI by a flush in a window that the
library allocates (``-w allocate -s flush``), its tests of OpenSHMEM by shmem_quiet. OSU prints the
mean of its iterations with two decimals of a microsecond, which is compared with memkern's median.
Its fetch-and-add has 4 bytes, memkern's has 8: OSU's OpenSHMEM program runs the fetch-and-add of 4
bytes first, and with Open MPI 4.1 it ends at the compare-and-swap, before the fetch-and-add of 8
bytes.
"""

import argparse
import os
import re
import subprocess
from collections.abc import Iterator

from peers import as_fast, beside, in_turns, launcher, printed, records_of
from records import Row, program

_FLUSHED = ["-w", "allocate", "-s", "flush"]
# Programs of the peer, with their options, by device and operation.
PROGRAMS = {
    "mpi": {
        "put": ["mpi/one-sided/osu_put_latency", *_FLUSHED],
        "get": ["mpi/one-sided/osu_get_latency", *_FLUSHED],
        "fetch_add": ["mpi/one-sided/osu_fop_latency", *_FLUSHED, "-T", "mpi_int"],
        "send": ["mpi/pt2pt/standard/osu_latency"],
    },
    "shmem": {
        "put": ["openshmem/osu_oshm_put", "heap"],
        "get": ["openshmem/osu_oshm_get", "heap"],
        "fetch_add": ["openshmem/osu_oshm_atomics", "heap"],
    },
}
# Its fetch-and-add of OpenSHMEM in a table of atomics: operation, million operations per second,
# microseconds.
_ATOMIC = r"^shmem_int_fadd\s+\S+\s+(\S+)"


def osu_us(args: argparse.Namespace, what: str, size_B: int) -> float:
    """Return the microseconds of a message by OSU."""
    program, *how = PROGRAMS[args.device][what]
    words = [*launcher(args.device, 2), os.path.join(args.osu, program)]
    if args.device == "mpi" and what != "fetch_add":
        words += ["-m", f"{size_B}:{size_B}"]
    atomic = (args.device, what) == ("shmem", "fetch_add")
    try:
        text = printed([*words, *how])
    except subprocess.CalledProcessError as ended:
        if not atomic:
            raise
        text = ended.stdout
    row = _ATOMIC if atomic else rf"^{4 if what == 'fetch_add' else size_B}\s+(\S+)"
    found = re.search(row, text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{' '.join(words)} printed no latency for {size_B} bytes")
    return float(found[1])


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each operation and size."""
    cases = [
        (what, size_B)
        for what in args.operations.split(",")
        if what in PROGRAMS[args.device]
        for size_B in ([8] if what == "fetch_add" else map(int, args.sizes.split(",")))
    ]

    def both_us(case: tuple[str, int]) -> tuple[float, float]:
        what, size_B = case
        words = ["messages", "--device", args.device, "--kernel", what, "--sizes", size_B]
        words += ["--window", 1, "--pairs", "0-1", "--budget", 0.5]
        (record,) = records_of(*words, launcher=launcher(args.device, 2))
        return record["ns_per_access"] / 1e3, osu_us(args, *case)

    for (what, size_B), found in in_turns(cases, args.turns, both_us).items():
        ours, theirs = zip(*found, strict=True)
        row = {"operation": what, "size, B": size_B}
        yield row | beside("OSU", "us", {"": ours}, {"": theirs})


OPTIONS = {
    "--osu": {"metavar": "PATH", "required": True, "help": "folder with mpi/one-sided"},
    "--device": {"choices": tuple(PROGRAMS), "default": "mpi"},
    "--operations": "put,get,fetch_add,send",
    "--sizes": "8,512,8192,131072,1048576",
}
main = program(__name__, __doc__, measured, OPTIONS, turns=7, judge=as_fast)
