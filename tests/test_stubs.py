"""Stubs of packages whose names are imported at first use, for type checkers.

That of memkern also has every option of its functions, from their signatures.

To update them: PYTHONPATH=tests python tests/test_stubs.py
"""

import ast
import builtins
import inspect
import re
import sys
from pathlib import Path

import pytest

import memkern as mk
from memkern import models
from memkern.discovery import family_names
from memkern.spec.docstrings import entries_of, sections_of

PACKAGE = Path(str(mk.__file__)).parent
HEAD = '''"""What is public, with the options of every kernel, as tests/test_stubs.py makes it."""

from memkern.errors import DeviceError as DeviceError
from memkern.errors import InputError as InputError
from typing import TypeAlias
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
    """Return the imports of public names, except those that `function` defines."""
    own = shows_options()
    lines = []
    for name, home in mk._all_homes().items():
        module, _, attribute = f"memkern.{home}".partition(":")
        if attributes(name):
            lines.append(f"import {module} as _{name}")
        if not attribute:
            module, _, attribute = module.rpartition(".")
        if name not in own:
            lines.append(f"from {module} import {attribute} as {name}")
    return sorted(lines)


def attributes(name: str) -> list[str]:
    """Return the public attributes of a function."""
    found = getattr(mk, name)
    return [one for one in vars(found) if one[0] != "_"] if inspect.isfunction(found) else []


def types() -> list[str]:
    """Return the imports of the types in the definitions of `function`."""
    lines = set()
    for function in (getattr(mk, name) for name in shows_options()):
        for p in inspect.signature(function).parameters.values():
            names = {n.id for n in ast.walk(ast.parse(p.annotation)) if isinstance(n, ast.Name)}
            for name in names - {*vars(builtins)}:
                found = vars(sys.modules[function.__module__])[name]
                if inspect.ismodule(found):
                    lines.add(f"import {found.__name__} as {name}")
                else:
                    home = found if inspect.isclass(found) else function
                    lines.add(f"from {home.__module__} import {name}")
    return sorted(lines)


def function(name: str) -> str:
    """Return the definition of a function in the stub."""
    signature = inspect.signature(getattr(mk, name))
    words, keyword = [], False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not keyword:
            words.append("*")
            keyword = True
        default = "" if p.default is p.empty else f" = {p.default!r}"
        words.append(f"{p.name}: {p.annotation}{default}")
    own = attributes(name)
    if not own:
        return f"def {name}(\n    " + ",\n    ".join(words) + ",\n) -> Case: ...\n"
    # Type checkers know no functions with attributes, some of which are classes.
    lines = [
        f"class {name}:",
        *(f"    {attribute(name, one)}" for one in own),
        "    def __new__(  # type: ignore[misc]  # it returns a case",
    ]
    lines += [f"        {word}," for word in ("cls", *words)]
    return "\n".join([*lines, "    ) -> Case: ...\n"])


def attribute(name: str, own: str) -> str:
    """Return the definition of a function's attribute in the stub."""
    found = getattr(getattr(mk, name), own)
    if inspect.isclass(found):
        return f"{own}: TypeAlias = _{name}.{own}"
    return f"{own} = staticmethod(_{name}.{own})" if callable(found) else f"{own} = _{name}.{own}"


def stub() -> str:
    names = ",\n    ".join(f'"{name}"' for name in mk.__all__)
    functions = "\n".join(map(function, shows_options()))
    public = "\n".join([*types(), *imports()])
    return f"{HEAD}{public}\n\n__version__: str\n__all__ = [\n    {names},\n]\n\n{functions}"


def models_stub() -> str:
    """Return the stub of memkern.models."""
    lines = [
        f"from memkern.models.{home} import {name} as {name}\n"
        for name, home in models._HOMES.items()
    ]
    return '"""What is public, as tests/test_stubs.py makes it."""\n\n' + "".join(lines)


STUBS = {"__init__.pyi": stub, "models/__init__.pyi": models_stub}


@pytest.mark.parametrize("name", STUBS)
def test_the_stubs_match_the_packages(name):
    assert (PACKAGE / name).read_text() == STUBS[name]()


def test_every_family_shows_its_options() -> None:
    makers = {name for name, home in family_names().items() if re.search(r"kernels:|:case", home)}
    makers.remove("kernel")  # makes a kernel, not a case
    assert set(shows_options()) == makers
    for name in shows_options():
        parameters = inspect.signature(getattr(mk, name)).parameters
        assert {"threads", "pages", "budget_s", "dtype"} <= set(parameters)
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    assert "rows" in inspect.signature(mk.loops).parameters
    assert "degree" in inspect.signature(mk.bs).parameters
    assert inspect.signature(mk.gather).parameters["wrap"].default == 1


def test_functions_with_attributes_are_called_as_others_are() -> None:
    own = {"threads": 1, "runs": 1}
    product = mk.spmv("hpcg:3", format="crs", **own)
    assert product == mk.case("spmv.crs", matrix="hpcg:3", **own)
    assert product == mk.spmv.case("hpcg:3", "crs", **own)
    lattice = (4, 4, 4, 4)
    hops = mk.dw(lattice, layout="lexicographic", **own)
    assert hops == mk.case("dw.hop", lattice=lattice, layout="lexicographic", **own)
    assert hops == mk.dw.case(lattice, layout="lexicographic", **own)
    assert product.measure().valid and hops.measure().valid


def test_every_parameter_is_described() -> None:
    for name in shows_options():
        function = getattr(mk, name)
        entries = entries_of(function.__doc__)
        assert list(entries) == list(inspect.signature(function).parameters), name
        assert all(entry.text.strip() and entry.type for entry in entries.values()), name
        titles = list(sections_of(function.__doc__))
        assert titles[:3] == ["", "Parameters", "Returns"] and "Raises" in titles, name


def test_descriptions_have_defaults() -> None:
    text = inspect.getdoc(mk.gather) or ""
    assert text.startswith(
        "Case of ``A[:] = B[i[:]]``.\n\nParameters\n----------\npattern : PatternLike\n"
    )
    assert "\nwrap : int, default 1\n    Rows of the dense buffer" in text
    assert "\nruns : int, optional\n    Exact number of samples" in text
    assert "\nschedule, chunk : str, int, default 'static', 0\n" in text
    assert "\n\nReturns\n-------\nCase\n" in text and "Lavin et al., Evaluating Gather" in text
    # The function's own description precedes that of a builder.
    assert "Of BS1 to BS5 the length of each array" in entries_of(mk.bs.__doc__)["elements"].text


if __name__ == "__main__":
    for name, content in STUBS.items():
        (Path(__file__).parents[1] / "python" / "memkern" / name).write_text(content())
