"""What is installed is what stands in the tree, and the stub says what the extension is."""

import ast
import re
from pathlib import Path

from checking import ASKED

import memkern
from memkern import _memkern

TREE = Path(__file__).parent.parent / "python" / "memkern"
INSTALLED = Path(memkern.__file__).parent


def files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def arguments(docstring: str) -> list[str]:
    """Names in the signature that pybind11 writes, without `self`."""
    inside = docstring.partition("(")[2].partition(") ->")[0]
    return [name for name in re.findall(r"(\w+): ", inside) if name != "self"]


def test_every_file_of_the_package_is_installed() -> None:
    assert files(INSTALLED) == files(TREE)
    assert {"py.typed", "_memkern.pyi"} <= files(INSTALLED)


def test_the_stub_matches_the_extension() -> None:
    stub = ast.parse((TREE / "_memkern.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    (prepared,) = (node for node in stub.body if isinstance(node, ast.ClassDef))
    methods = {node.name: node for node in prepared.body if isinstance(node, ast.FunctionDef)}
    assert functions.keys() | {"Prepared"} == public(dir(_memkern))
    assert methods.keys() - {"__init__"} == public(dir(_memkern.Prepared))
    for owner, declared in ((_memkern, functions), (_memkern.Prepared, methods)):
        for name, node in declared.items():
            given = [a.arg for a in node.args.args + node.args.kwonlyargs if a.arg != "self"]
            if name == "__init__":
                # Takes keywords, and refuses one that is missing or that it does not know.
                assert given == list(ASKED)
                _memkern.Prepared(**ASKED)
            else:
                assert given == arguments(getattr(owner, name).__doc__ or ""), name
