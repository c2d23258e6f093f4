"""The stub of memkern, which is generated from signatures and shows type checkers every option.

PYTHONPATH=tests python tests/test_stubs.py      writes it again
"""

from __future__ import annotations

import inspect
from pathlib import Path

import memkern as mk

PACKAGE = Path(str(mk.__file__)).parent
STUB = "__init__.pyi"
HEAD = '''"""What is public, with the options of every kernel, as tests/test_stubs.py makes it."""

from collections.abc import Sequence

import numpy.typing as npt

from memkern.errors import DeviceError as DeviceError
from memkern.errors import InputError as InputError
from memkern.families.spatter.kernels import PatternLike
from memkern.inputs import indices
'''


def shows_options() -> list[str]:
    """Return the functions whose signature lists more options than their definition."""
    found = []
    for name in mk.__all__:
        value = getattr(mk, name)
        if inspect.isfunction(value) and "__signature__" in vars(value):
            found.append(name)
    return found


def imports() -> list[str]:
    """Return the imports of public names, but for those that `function` defines."""
    own = shows_options()
    lines = []
    for name, module in mk._MODULES.items():
        package, _, last = f"memkern.{module}".rpartition(".")
        lines.append(f"from {package} import {last} as {name}")
    for module, names in mk._NAMES.items():
        lines += [
            f"from memkern.{module} import {name} as {name}" for name in names if name not in own
        ]
    return sorted(lines)


def function(name: str) -> str:
    """Return the definition of a function in the stub."""
    signature = inspect.signature(getattr(mk, name))
    words, keyword = [], False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not keyword:
            words.append("*")
            keyword = True
        default = "" if p.default is p.empty else " = ..."
        words.append(f"{p.name}: {p.annotation}{default}")
    return f"def {name}(\n    " + ",\n    ".join(words) + ",\n) -> Case: ...\n"


def stub() -> str:
    names = ",\n    ".join(f'"{name}"' for name in mk.__all__)
    functions = "\n".join(map(function, shows_options()))
    public = "\n".join(imports())
    return f"{HEAD}{public}\n\n__version__: str\n__all__ = [\n    {names},\n]\n\n{functions}"


def test_the_stub_matches_the_signatures() -> None:
    assert (PACKAGE / STUB).read_text() == stub()


def test_every_family_shows_its_options() -> None:
    names = {"amo", "bs", "gather", "gs", "instructions", "latency", "launch", "loops"}
    assert set(shows_options()) == names | {
        "messages",
        "multigather",
        "multiscatter",
        "raider",
        "scatter",
        "stream",
        "transfers",
    }
    for name in shows_options():
        parameters = inspect.signature(getattr(mk, name)).parameters
        assert {"threads", "pages", "budget_s", "dtype"} <= set(parameters)
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    assert "rows" in inspect.signature(mk.loops).parameters
    assert "degree" in inspect.signature(mk.bs).parameters
    assert inspect.signature(mk.gather).parameters["count"].default == 1024


if __name__ == "__main__":
    (PACKAGE / STUB).write_text(stub())
