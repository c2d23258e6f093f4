"""The sources of the GPU kernels also compile for AMD's GPUs, with the header in cpp/gpu/hip.

The compiled kernels were never run.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
SOURCES = sorted((TREE / "cpp").rglob("*.cu"))
# Wavefronts of 64 lanes and of 32.
ARCHITECTURES = ("gfx90a", "gfx1030")


def compiled(
    source: Path, target: Path, architecture: str, *output: str
) -> subprocess.CompletedProcess[str]:
    """Compile a source with HIP's compiler."""
    if shutil.which("hipcc") is None:
        pytest.fail("there is no hipcc: tools/install-system-packages.sh --all installs it")
    words = [
        "hipcc", "-x", "hip", "-std=c++17", "-O1", f"--offload-arch={architecture}",
        "-Wall", "-Wextra", "-Wno-unused-result", "-Wno-cuda-compat", "-Werror",
        # hipcc adds libraries, which are unused because nothing is linked.
        "-Wno-unused-command-line-argument",
        "-I", str(TREE / "cpp" / "gpu" / "hip"), "-I", str(TREE / "cpp"),
        *(output or ["-c"]), str(source), "-o", str(target),
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.release
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_kernels_compile_for_amd(source, architecture, tmp_path):
    done = compiled(source, tmp_path / "kernels.o", architecture)
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "kernels.o").stat().st_size > 1000


@pytest.mark.release
def test_only_the_chase_through_l2_bypasses_the_first_cache(tmp_path):
    source = TREE / "cpp" / "families" / "latency" / "gpu.cu"
    done = compiled(source, tmp_path / "code.s", "gfx90a", "--cuda-device-only", "-S")
    assert done.returncode == 0, done.stderr[-4000:]
    # The last argument of a chase is the caches that its loads use.
    functions = re.findall(
        r"^_\S*5ChaseI\S*7ThroughE(\d)\S*:(.*?)s_endpgm",
        (tmp_path / "code.s").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert len(functions) == 10
    for through, code in functions:
        assert bool(re.search(r"_load_dwordx2 .* glc", code)) == (through == "1")
