"""The sources of the GPU kernels also compile for AMD's GPUs, with the header in cpp/gpu/hip.

Atomics of the family amo do not: their memory orders are written in PTX. Nothing of this was run.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
SOURCES = [source for source in sorted((TREE / "cpp").rglob("*.cu")) if source.parent.name != "amo"]
# Wavefronts of 64 lanes and of 32.
ARCHITECTURES = ("gfx90a", "gfx1030")

pytestmark = pytest.mark.skipif(
    shutil.which("hipcc") is None,
    reason="there is no hipcc: install it with apt-get install hipcc (350 MB)",
)


def compiled(source: Path, target: Path, architecture: str) -> subprocess.CompletedProcess[str]:
    """Compile a source with HIP's compiler."""
    words = [
        "hipcc", "-x", "hip", "-std=c++17", "-O1", f"--offload-arch={architecture}",
        "-Wall", "-Wextra", "-Wno-unused-result", "-Wno-cuda-compat", "-Werror",
        "-I", str(TREE / "cpp" / "gpu" / "hip"), "-I", str(TREE / "cpp"),
        "-c", str(source), "-o", str(target),
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.every_entry
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_kernels_compile_for_amd(source: Path, architecture: str, tmp_path: Path) -> None:
    done = compiled(source, tmp_path / "kernels.o", architecture)
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "kernels.o").stat().st_size > 1000


@pytest.mark.every_entry
def test_ptx_is_refused_for_amd(tmp_path: Path) -> None:
    source = TREE / "cpp" / "families" / "amo" / "gpu.cu"
    done = compiled(source, tmp_path / "amo.o", ARCHITECTURES[0])
    assert done.returncode != 0 and "are written in PTX" in done.stderr
