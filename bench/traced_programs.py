"""Patterns of ten small programs, beside what is known of them by construction.

Each program of ``tests/studies/programs`` prints the bytes of its indirect accesses and the time
of its loop. It is traced, its patterns are found, and the time of the loop is compared with that of
its accesses alone, twice.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from records import Row, interval, program

from memkern.results.verdicts import LEVEL
from memkern.statistics import Ratio
from memkern.studies.extraction import extract
from memkern.studies.replaying import check
from memkern.studies.tracing import trace

PROGRAMS = Path(__file__).parents[1] / "tests" / "studies" / "programs"
# Adjacency lists of the search in a graph are not counted by construction.
_UNCOUNTED = ("bfs.c:22",)


def build_of(source: Path) -> str:
    """Return the command that builds a program."""
    compiler = "gfortran" if source.suffix == ".f90" else "gcc -std=gnu11"
    return f"{compiler} -O2 -fopenmp {source.name} -o app -lm"


def row_of(source: Path) -> Row:
    """Return the row of a program, in its folder."""
    build = build_of(source)
    subprocess.run(shlex.split(build), check=True)
    native = json.loads(subprocess.run(["./app"], capture_output=True, check=True).stdout)
    # The traced program prints to this process's standard output.
    with tempfile.TemporaryFile("w+") as told, _standard_output(told.fileno()):
        traced = trace(["./app"], "app.trace", build=build)
        told.seek(0)
        slow = json.loads(told.read())
    begin = time.perf_counter()
    found = extract(traced.files)
    read_s = time.perf_counter() - begin
    own = [one for one in found.patterns if "kernel" in one.function]
    indirect_B = sum(one.bytes_B for one in own if one.place not in _UNCOUNTED)
    first, second = (
        next(one for name, one in check(found).items() if "kernel" in name) for _ in range(2)
    )
    return {
        "program": source.stem,
        "accesses": found.accesses,
        "indirect bytes found": indirect_B / native["indirect_B"],
        "file B an access": traced.files[0].stat().st_size / found.accesses,
        "slowdown": slow["seconds"] / native["seconds"],
        "accesses read in M/s": found.accesses / read_s / 1e6,
        **interval("accesses alone over loop", Ratio(*first.interval, LEVEL)),
        **interval("in a second run", Ratio(*second.interval, LEVEL)),
    }


@contextlib.contextmanager
def _standard_output(number: int) -> Iterator[None]:
    kept = os.dup(1)
    os.dup2(number, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def measured(_: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each program."""
    here = os.getcwd()
    for source in sorted(p for p in PROGRAMS.iterdir() if p.suffix in (".c", ".f90")):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            yield row_of(Path(shutil.copy(source, folder)))
            os.chdir(here)


main = program(__name__, __doc__, measured)
