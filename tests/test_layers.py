"""Imports and includes point one way. (`make lint` checks the packages' layers in full.)"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A layer may include itself and those before it.
LAYERS = ("core", "kernels", "backends", "bindings")


def test_only_measuring_and_the_machine_reach_the_compiled_part() -> None:
    package = ROOT / "python" / "memkern"
    sources = sorted(package.rglob("*.py"))
    assert len(sources) > 20
    imports = [p.name for p in sources if re.search(r"import .*\b_memkern\b", p.read_text())]
    assert imports == ["machine.py", "run.py"]


@pytest.mark.parametrize("layer", LAYERS)
def test_includes_point_one_way(layer: str) -> None:
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    sources = [*(ROOT / "cpp" / layer).glob("*.[ch]pp")]
    assert sources or layer == "backends"
    for source in sources:
        for included in re.findall(r'#include "(\w+)/', source.read_text()):
            assert included in (*allowed, "hwy"), f"{source.name} includes {included}"


def test_core_and_kernels_know_no_python() -> None:
    for layer in ("core", "kernels"):
        for source in (ROOT / "cpp" / layer).glob("*.[ch]pp"):
            assert "pybind11" not in source.read_text(), source.name
    for source in (ROOT / "cpp" / "kernels").glob("*.[ch]pp"):
        text = source.read_text()
        assert not re.search(r"omp_|#pragma omp parallel|chrono|\bnow\(", text), source.name


def test_analysis_needs_numpy_alone_to_be_imported() -> None:
    # Saved results can be read where memkern cannot be built, and heavy libraries come when used.
    modules = (
        "comparison comparison_output environment models patterns plots reference report results "
        "statistics suites verdicts"
    )
    unwanted = "memkern._memkern pandas matplotlib pyarrow scipy jinja2 tqdm"
    code = (
        "import importlib, sys\n"
        f"for name in {modules.split()}: importlib.import_module('memkern.' + name)\n"
        f"print(*[name for name in {unwanted.split()} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
