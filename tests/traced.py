"""Programs that tests build, run and trace."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharing import once

from memkern.studies import tracing

# Bytes of the head of a trace, and of its parts.
HEAD_B, PART_B = 2**16, 2**18

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]

# A program with irregular and regular loads of an array of 2**16 elements, as many as its first two
# arguments say. It prints a line, and kills itself if there is a third argument.
LOADS = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  const long irregular = atol(argv[1]), regular = atol(argv[2]);
  const double *array = calloc(1 << 16, 8);
  double sum = 0;
  for (long k = 0; k < irregular; ++k) sum += array[k * k * 37 % 65521];
  for (long k = 0; k < regular; ++k) sum += array[k & 1023];
  printf("%g\\n", sum);
  fflush(NULL);
  if (argc > 3) raise(SIGKILL);
}
"""

# Index arrays of studies/traced/kernels.c, in its order.
_STARTS = np.concatenate(([0], np.cumsum(1 + np.arange(300) ** 2 % 7)))
ARRAYS: dict[str, list[int]] = {
    "gathered": [2, 5, 3, 5, 26, 9],
    "uniform": [0, 4, 8, 12, 16, 20, 24, 28],
    "mostly": [0, 1, 2, 3, 23, 24, 25, 26],
    "scattered": [2, 0, 1, 8],
    "in": [0, 2, 4, 9],
    "out": [5, 1, 0, 3],
    "outer": [6, 2, 4, 11, 20],
    "inner": [3, 1, 4, 0, 2, 4],
    "cyclic": [2, 5, 3],
    "deltas": [4, 9, 1],
    "starts": _STARTS.tolist(),
    "columns": (np.arange(_STARTS[-1]) ** 2 * 37 % 10007 % 1000 + 3).tolist(),
}


def traced(folder: Path, command: str, output: str = "app.trace", **options: Any) -> tracing.Traced:
    """Trace a command of the shell in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return tracing.trace(["sh", "-c", command], output, **options)


def kernels(factory: pytest.TempPathFactory, compiler: str) -> Path:
    """Return the trace of studies/traced/kernels.c, which the test run makes once."""

    def make() -> Path:
        folder = factory.mktemp("kernels")
        source = Path(__file__).parent / "studies" / "traced" / "kernels.c"
        shutil.copy(source, folder)
        lines = (" ".join(map(str, [len(array), *array])) for array in ARRAYS.values())
        (folder / "arrays.txt").write_text("\n".join(lines))
        build = f"{compiler} -O2 kernels.c -o kernels"
        return traced(folder, "./kernels >/dev/null", build=build).files[0]

    return Path(once(factory, f"kernels-{compiler}", make))
