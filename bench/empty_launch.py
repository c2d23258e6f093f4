"""Compare BS0, the empty launch, with an empty OpenMP parallel region, in turns.

The region is compiled by the system's compiler and runs in the same process, so that runtime,
workers and wait policy are the same. Set OMP_WAIT_POLICY to choose the policy::

    OMP_WAIT_POLICY=active python bench/empty_launch.py
"""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from records import Row, add, interval, options, parsed, write

import memkern as mk
from memkern.statistics import ratio_interval

SOURCE = """
#include <omp.h>
extern "C" double regions(int threads, long count) {
  const double start = omp_get_wtime();
  for (long k = 0; k < count; ++k) {
#pragma omp parallel num_threads(threads)
    { asm volatile("" ::: "memory"); }
  }
  return omp_get_wtime() - start;
}
"""
REGIONS = 2000


def main() -> None:
    """Print and write medians and the ratio for every number of threads."""
    parser = options(__doc__, turns=101)
    args = parsed(parser)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "regions.cpp", Path(folder) / "regions.so"
        source.write_text(SOURCE)
        flags = ["-O2", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["c++", *flags, str(source), "-o", str(library)], check=True)
        # memkern starts first, so that both use its OpenMP runtime.
        prepared = {t: mk.bs(0, threads=t).prepare() for t in range(1, (os.cpu_count() or 1) + 1)}
        regions = ctypes.CDLL(str(library)).regions
        regions.restype = ctypes.c_double
        regions.argtypes = [ctypes.c_int, ctypes.c_long]
    policy = os.environ.get("OMP_WAIT_POLICY", "not set")
    rows: list[Row] = []
    for threads, case in prepared.items():
        case.run(REGIONS)
        regions(threads, REGIONS)
        times = np.array(
            [(case.run(REGIONS), regions(threads, REGIONS)) for _ in range(args.turns)]
        )
        ours, theirs = times.T / REGIONS
        ratio = ratio_interval(ours, theirs, paired=True)
        row = {"wait policy": policy, "threads": threads, "BS0, us": 1e6 * np.median(ours)}
        row |= {"empty region, us": 1e6 * np.median(theirs)}
        add(rows, row | interval("ratio", ratio))
    write(args, rows)


if __name__ == "__main__":
    main()
