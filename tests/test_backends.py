"""A backend is one row: cases on its devices are built, planned and refused by its features."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from checking import refused

import memkern as mk
from memkern import backends
from memkern.backends import BACKENDS, RANKS, Backend
from memkern.engine.processes import transports
from memkern.engine.public import planned
from memkern.machine.topology import workers_of
from memkern.spec.options import Knobs
from memkern.studies.scaling import find_launcher

PACKAGE = Path(backends.__file__).parent
# Modules that contain such names for other reasons.
OTHERS = {
    "inputs/spatter_files.py": "values of Spatter's option -b",
    "families/raider/figures.py": "columns of the paper's table",
    **{
        f"families/spatter/{name}.py": "kinds of platforms in the paper"
        for name in ("data", "of_paper", "radars", "suites")
    },
}
GASNET = Backend(
    "gasnet",
    "GASNet",
    RANKS,
    "gasnet",
    compiler="gascxx",
    launchers=("gasnetrun",),
    atomics={"u": ("add",), "f": ()},
    moves=("single",),
)
GATHER = {"pattern": "UNIFORM:8:1:NR", "count": 64, "device": "gasnet"}


@pytest.fixture
def gasnet(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Add a row for a library over ranks, and return its module, which has one rank."""
    monkeypatch.setattr(backends, "BACKENDS", (*BACKENDS, GASNET))
    module = SimpleNamespace(
        start=lambda threads: None,
        finish=lambda: None,
        version=lambda: "GASNet 1, of today",
        nodes=lambda: [0],
        rank=lambda: 0,
        ranks=lambda: 1,
        threads=lambda: False,
        private_contexts=lambda: False,
    )
    monkeypatch.setitem(sys.modules, "memkern._memkern_gasnet", module)
    return module


def test_cases_over_another_library_are_built_and_planned(gasnet):
    case = mk.gather(**GATHER)
    assert (case.knobs.backend, case.knobs.device) == (GASNET, "gasnet")
    assert case.allocates is False and workers_of("gasnet") == 1
    assert case.identity() != mk.gather(**{**GATHER, "device": "cpu"}).identity()
    assert planned([case], 1.0) == [case]
    assert mk.amo("rand", device="gasnet", iters=8).knobs.device == "gasnet"


def test_what_another_library_lacks_is_refused(gasnet):
    with refused("pages is for processors: leave it out on gasnet"):
        Knobs(device="gasnet", pages="4k")
    with refused("flush_every is for MPI and OpenSHMEM and GASNet: leave it out on cpu"):
        Knobs(flush_every=2)
    with refused("contexts are for shmem: leave them out on gasnet"):
        Knobs(device="gasnet", contexts="private")
    with refused("GASNet has no variant packed: choose from single"):
        mk.gather(**GATHER, variant="packed")
    with refused("GASNet has no atomic min of uint64: it has add"):
        mk.amo("rand", primitive="min", device="gasnet")
    with refused("GASNet has no atomic add of float64: it has none"):
        mk.amo("rand", dtype="float64", device="gasnet")
    with refused("GASNet has no send and receive"):
        mk.messages("send", device="gasnet")
    with refused("GASNet was initialised for one thread of each rank"):
        mk.amo("rand", device="gasnet", iters=8, threads=2).prepare()
    with refused("device must be cpu, cuda, cuda:N, mpi, shmem or gasnet, not 'gasnet:0'"):
        Knobs(device="gasnet:0")
    with refused("there is no gasnetrun here that starts ranks: name a launcher"):
        find_launcher(comm="gasnet")


def test_ranks_communicate_by_another_library(gasnet, monkeypatch):
    monkeypatch.setattr(transports.launcher, "size", lambda: 2)
    with refused("2 ranks were started, but GASNet sees 1: start them with its gasnetrun"):
        transports.connect("gasnet")


def test_a_library_without_its_module_is_refused(gasnet, monkeypatch):
    absent = Backend("absent", "Absent", RANKS, "absent", compiler="abcxx", moves=("single",))
    monkeypatch.setattr(backends, "BACKENDS", (*BACKENDS, absent))
    with refused("memkern was built without Absent: install it, so that abcxx is on PATH"):
        mk.gather(**{**GATHER, "device": "absent"})


def names_compared(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield comparisons, keys and arguments of methods that contain the name of a device."""
    names = {name for row in BACKENDS for name in (row.name, row.device)}

    def named(node: ast.AST | None) -> bool:
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return any(map(named, node.elts))
        text = node.value if isinstance(node, ast.Constant) else None
        return isinstance(text, str) and text.partition(":")[0] in names

    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            parts = [*node.keys]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = [*node.args] * (node.func.attr in ("eq", "ne", "isin", "startswith", "match"))
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        if any(map(named, parts)):
            yield node


def test_no_module_compares_names_of_devices() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): [ast.unparse(node) for node in nodes]
        for path in sorted(PACKAGE.rglob("*.py"))
        if (nodes := [*names_compared(ast.parse(path.read_text("utf-8")))])
    }
    assert found.keys() == OTHERS.keys(), found
