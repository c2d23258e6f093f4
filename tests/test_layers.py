"""Imports and includes follow the layers. (`make lint` checks all layers of the packages.)"""

import graphlib
import re
from pathlib import Path

import pytest
from checking import python

ROOT = Path(__file__).parent.parent
CPP = ROOT / "cpp"
SOURCES = [p for p in CPP.rglob("*") if p.suffix in (".cpp", ".hpp", ".cu", ".cuh", ".inc")]
# The layers that each layer may include besides itself.
LAYERS = {
    "core": (),
    "engine": ("core",),
    "simd": ("core", "engine"),
    "gpu": ("core", "engine"),
    "families": ("core", "engine", "simd", "gpu"),
    "backends": ("core", "engine", "gpu", "families"),
    "python": ("core", "engine", "gpu", "families", "backends"),
}


def included_by(source: Path) -> list[str]:
    return re.findall(r'#include "([^"]+)"', source.read_text())


def test_every_source_belongs_to_a_layer():
    assert len(SOURCES) > 50
    assert {source.relative_to(CPP).parts[0] for source in SOURCES} == {*LAYERS}


@pytest.mark.parametrize("layer", LAYERS)
def test_includes_point_one_way(layer):
    for source in (s for s in SOURCES if s.relative_to(CPP).parts[0] == layer):
        for included in included_by(source):
            first = included.partition("/")[0]
            assert first in (layer, *LAYERS[layer], "hwy"), f"{source} includes {included}"


def test_no_sources_include_each_other():
    # A header and the source with the same name are one unit.
    units: dict[str, set[str]] = {}
    for source in SOURCES:
        included = {i.rpartition(".")[0] for i in included_by(source)}
        units.setdefault(str(source.relative_to(CPP).with_suffix("")), set()).update(included)
    graph = {unit: included - {unit} for unit, included in units.items()}
    assert tuple(graphlib.TopologicalSorter(graph).static_order())


def test_families_include_only_themselves_and_what_is_shared():
    for source in (s for s in SOURCES if s.relative_to(CPP).parts[0] == "families"):
        shared = (source.parent.name, "streaming")
        for included in included_by(source):
            parts = included.split("/")
            assert parts[0] != "families" or parts[1] in shared, f"{source} includes {included}"


def test_only_the_bindings_include_python():
    for source in SOURCES:
        includes = "pybind11" in source.read_text() or "Python.h" in source.read_text()
        assert includes <= (source.parent.name == "python"), source


def test_bodies_use_neither_clocks_nor_threads():
    bodies = [p for p in SOURCES if re.match(r"(cpu|gpu)\w*[.-]", p.name)]
    assert len(bodies) > 10
    for source in bodies:
        text = source.read_text()
        assert not re.search(r"omp_|#pragma omp parallel|chrono|\bnow\(", text), source


HEAVY = (
    "pandas matplotlib pyarrow scipy jinja2 "
    "mpi4py memkern._memkern_mpi memkern._memkern_mpi_mpich memkern._memkern_shmem"
)


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        # Saved results can be analysed on systems that can't build the extension.
        (
            "results.comparison results.comparison_output machine.environment models "
            "inputs.matrices inputs.patterns plots reference report results statistics "
            "families.spatter.suites results.verdicts",
            f"memkern._memkern {HEAVY} tqdm",
        ),
        ("cli", f"{HEAVY} memkern.engine memkern.studies memkern.models memkern.formats"),
        # Only bodies in the core are disassembled, and only an executor submits tasks.
        (
            "cli studies.ecm studies.doctor studies.cluster engine.public plots report",
            "memkern.static submitit",
        ),
    ],
    ids=["analysis", "cli", "static"],
)
def test_large_libraries_are_imported_when_they_are_used(modules, unwanted):
    code = (
        "import importlib, sys\n"
        f"for name in {modules.split()}: importlib.import_module('memkern.' + name)\n"
        f"print(*[name for name in {unwanted.split()} if name in sys.modules])"
    )
    assert python("-c", code, check=True).stdout.split() == []
