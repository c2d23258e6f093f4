"""The reference of the Python interface: the public names of the package, by their homes."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import memkern
from pages.text import code, put, restructured, rows, tree

_HEAD = """# Python

`import memkern as mk` has these names. Modules have pages of their own.

"""


def write(folder: Path) -> list[Path]:
    """Write the page of the package, and one for each of its public modules."""
    public = {name: getattr(memkern, name) for name in memkern.__all__}
    modules = {name: found for name, found in public.items() if inspect.ismodule(found)}
    others = {name: found for name, found in public.items() if name not in modules}
    listed = rows(
        ["module", "what"],
        [[f"[{code('mk.' + name)}]({name}.md)", _title(found)] for name, found in modules.items()],
    )
    text = [_HEAD, tree(*modules), "\n", listed, "\n## Functions and classes\n\n"]
    text += [_entry(f"memkern.{name}", found) for name, found in others.items()]
    made = [put(folder / "python" / "index.md", "".join(text))]
    for name, module in modules.items():
        made.append(put(folder / "python" / f"{name}.md", _module(name, module)))
    return made


def _title(found: Any) -> str:
    return (inspect.getdoc(found) or "").partition("\n")[0]


def _module(name: str, module: ModuleType) -> str:
    """Return the page of a module: its docstring and its public functions, classes and data."""
    names = getattr(module, "__all__", None) or [
        each
        for each, found in vars(module).items()
        if not each.startswith("_") and getattr(found, "__module__", None) == module.__name__
    ]
    head = f"(python-{name})=\n# `memkern.{name}`\n\n"
    home = module.__name__
    about = restructured(f".. automodule:: {home}\n   :no-members:\n   :no-index:\n")
    found = {each: getattr(module, each) for each in names}
    return head + about + "".join(_entry(f"{home}.{n}", v) for n, v in found.items())


def _entry(path: str, found: Any) -> str:
    """Return the documentation of a public object by its path."""
    if inspect.isclass(found):
        return restructured(f".. autoclass:: {path}\n   :members:\n")
    if callable(found):
        return restructured(f".. autofunction:: {path}\n")
    return restructured(f".. autodata:: {path}\n   :no-value:\n")
