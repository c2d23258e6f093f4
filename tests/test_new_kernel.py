"""A new kernel needs only the diff in CONTRIBUTING."""

import os
import re
import shutil
import subprocess
import sys

from building import ROOT, copied, linked

USES = """
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
    record = mk.loops("xpay", 10**5, dtype=dtype, variant="scalar", runs=3).measure().record
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


def test_the_diff_makes_a_kernel(tmp_path):
    copied(tmp_path)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=diff(), text=True, check=True)
    module = linked(tmp_path, tmp_path, "loops", "scalar", like="loops")
    shutil.copy(module, tmp_path / "python" / "memkern")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "python")}
    subprocess.run([sys.executable, "-c", USES], cwd=tmp_path, env=environment, check=True)
