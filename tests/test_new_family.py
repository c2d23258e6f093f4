"""A new family needs only its own files, such as `tests/new_family`, and no edits of others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from building import ROOT, copied, linked

USES = """
import memkern as mk
from memkern.cli import main
from memkern.plots import figures, sections

assert "boxes.square" in mk.registry() and "boxes" in dir(mk)
results = mk.sweep(mk.boxes(n, threads=1, variant="scalar", runs=3) for n in (10**4, 10**5))
assert results.valid
assert len(figures["boxes-sizes"](results).axes[0].lines) == 2
assert sections["boxes"](results.to_frame()).findings
assert main(["boxes", "-n", "1000", "-t", "1", "--variant", "scalar", "--runs", "3"]) == 0
"""


@pytest.mark.release
def test_a_new_family_is_its_files(tmp_path):
    tree = copied(tmp_path, "tests", "tools", "bench")
    tool = [sys.executable, str(ROOT / "tools" / "new_family.py"), "boxes", str(tree)]
    made = subprocess.run(tool, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = {path: len((tree / path).read_text().splitlines()) for path in made}
    assert [path for path in made if path.startswith("cpp")] == ["cpp/families/boxes/entries.inc"]
    assert len(made) == 6 and sum(n for path, n in lines.items() if "memkern" in path) <= 61
    assert subprocess.run(tool, capture_output=True).returncode == 1
    # As CMake makes them from the same templates.
    for template in (tree / "cpp" / "families" / "streaming").glob("*.in"):
        text = template.read_text().replace("@family@", "boxes")
        (tree / "cpp" / "families" / "boxes" / template.stem).write_text(text)
    module = linked(tree, tmp_path, "boxes", "scalar|auto|simd", like="stream")
    shutil.copy(module, tree / "python" / "memkern")

    def run(*words: str) -> None:
        folders = ("python", "tests", "tests/families", "tests/spec")
        path = os.pathsep.join(str(tree / folder) for folder in folders)
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run([sys.executable, *words], cwd=tree, env=environment, check=True)

    run("-c", USES)
    run("-c", "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])")
    # These programs write the package's stub and the family's interface file.
    run("tests/test_stubs.py")
    run("tests/test_interface.py")
    shutil.copytree(ROOT / "tests" / "interface", tree / "tests" / "interface", dirs_exist_ok=True)
    names = ("layers", "stubs", "interface", "kernels", "plots_families", "every_exhibit")
    tests = [str(path) for name in names for path in tree.glob(f"tests/**/test_{name}.py")]
    run("-m", "pytest", "-q", "-k", "boxes or layers or stubs or interface or order", *tests)
