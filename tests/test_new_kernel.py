"""A new kernel needs only the diff in CONTRIBUTING."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from building import MODULE, ROOT, copied, linked
from checking import BUILD

USES = """
import sys

import numpy as np
import memkern as mk

spec = mk.registry()["loops.xpay"]
assert [(a.name, a.role) for a in spec.arrays] == [("a", "update"), ("b", "read")]
assert (spec.counts.flops, dict(spec.numbers)) == (2, {"alpha": 3.0})
case = mk.loops("xpay", 1000, threads=1, variant="scalar")
assert case.bytes_B == 24 * 1000
a, b = np.arange(1000.0), np.ones(1000)
np.testing.assert_array_equal(case.apply(a=a, b=b)["a"], 1 + 3 * a)
for dtype in ("float64", "float32"):
    for variant in sys.argv[1:]:
        record = mk.loops("xpay", 10**5, dtype=dtype, variant=variant, runs=3).measure().record
        assert record["valid"] and record["kernel"] == "loops.xpay"
"""


def diff() -> str:
    (found,) = re.findall(r"(?s)```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text())
    return str(found)


def test_the_diff_is_short():
    files = re.findall(r"(?m)^\+\+\+ b/(.*)$", diff())
    assert len(files) == 2
    assert len(re.findall(r"(?m)^\+(?!\+\+)", diff())) <= 12
    assert not re.findall(r"(?m)^-(?!--)", diff())


def patched(folder: Path) -> Path:
    """Return a copy of the tree in a folder, with the diff applied."""
    copied(folder)
    subprocess.run(["git", "apply"], cwd=folder, input=diff(), text=True, check=True)
    return folder


def use(module: Path, tree: Path, *variants: str) -> None:
    """Run and measure the kernel with an extension module and the Python files of a tree."""
    shutil.copy(module, tree / "python" / "memkern")
    subprocess.run(
        [sys.executable, "-c", USES, *variants],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "python")},
        check=True,
    )


def test_the_diff_makes_a_kernel(tmp_path):
    tree = patched(tmp_path)
    use(linked(tree, tmp_path, "loops", "scalar", like="loops"), tree, "scalar")


@pytest.mark.release
def test_a_tree_with_the_diff_is_built(tmp_path):
    cmake = shutil.which("cmake")
    if cmake is None or not (ROOT / "cpp").exists():
        pytest.fail("cmake and the sources are needed: make test has them")
    patched(tmp_path)
    build = tmp_path / "build" / "release"
    import pybind11

    # The compiler cache has paths relative to the tree, so the copy needs the tree's packages.
    headers = Path(pybind11.get_cmake_dir())
    if headers.is_relative_to(ROOT):
        inside = headers.relative_to(ROOT)
        (tmp_path / inside.parts[0]).symlink_to(ROOT / inside.parts[0])
        headers = tmp_path / inside
    environment = {**os.environ, "CCACHE_BASEDIR": str(tmp_path), "CCACHE_NOHASHDIR": "1"}
    # With the package's compiler and flags, a compiler cache has all other objects.
    package = BUILD / "CMakeCache.txt"
    text = package.read_text() if package.exists() else ""
    same = dict(re.findall(r"(?m)^(CMAKE_CXX_COMPILER|MEMKERN_WERROR):\w+=(.*)$", text))
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "MEMKERN_CUDA": "OFF",
        "MEMKERN_FAMILIES": "loops;launch",
        "MEMKERN_TARGETS": "baseline",
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": headers,
        **same,
    }
    words = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(
        [cmake, "-G", "Ninja", "-S", tmp_path, "-B", build, *words], env=environment, check=True
    )
    subprocess.run(
        [cmake, "--build", build, "--target", "_memkern", "--parallel", "2"],
        env=environment,
        check=True,
    )
    use(build / MODULE, tmp_path, "scalar", "auto")
