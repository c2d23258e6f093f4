"""The reference of the Python interface: the public names of the package, by their homes.

The pages are reStructuredText, since docstrings with footnotes are.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import memkern
from pages.text import put

_HEAD = """Python
======

``import memkern as mk`` has these names. Modules and the attributes of functions have
pages of their own.

.. toctree::
   :maxdepth: 1

"""


def write(folder: Path) -> list[Path]:
    """Write the page of the package, and one for each of its public modules."""
    public = {name: getattr(memkern, name) for name in memkern.__all__}
    homes = memkern._all_homes()
    # Modules, and those whose names are attributes of a function.
    modules = {
        name: import_module(f"memkern.{homes[name].partition(':')[0]}")
        for name, found in public.items()
        if inspect.ismodule(found) or (inspect.isfunction(found) and "case" in vars(found))
    }
    described: dict[int, str] = {}
    own = {name: found for name, found in public.items() if not inspect.ismodule(found)}
    text = [_HEAD, *(f"   {name}\n" for name in modules), "\n", _summaries(own)]
    text += ["\nFunctions and classes\n", "-" * 21, "\n"]
    text += [_entry("memkern", name, found, described) for name, found in own.items()]
    made = [put(folder / "python" / "index.rst", "".join(text))]
    for name, module in modules.items():
        made.append(put(folder / "python" / f"{name}.rst", _module(name, module, described)))
    return made


def _summaries(public: dict[str, Any]) -> str:
    """Return a table of names with the first sentence of their docstrings."""
    lines = [".. list-table::", "   :class: sentences", ""]
    for name, found in public.items():
        summary = (inspect.getdoc(found) or "").partition("\n\n")[0].replace("\n", " ")
        lines += [f"   * - :py:obj:`{name} <memkern.{name}>`", f"     - {summary}"]
    return "\n".join(lines) + "\n"


def _module(name: str, module: ModuleType, described: dict[int, str]) -> str:
    """Return the page of a module: its docstring, and its public functions, classes and data."""
    title = f"memkern.{name}"
    head = f"{title}\n{'=' * len(title)}\n\n{inspect.getdoc(module)}\n\n"
    home = module.__name__
    entries = [_entry(home, each, getattr(module, each), described) for each in _names(module)]
    return head + "".join(entries)


def _names(module: ModuleType) -> list[str]:
    """Return the public names of a module: those in ``__all__``, or else those that it defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    defined = vars(module).items()
    return [
        name
        for name, found in defined
        if not name.startswith("_") and getattr(found, "__module__", None) == module.__name__
    ]


def _entry(home: str, name: str, found: Any, described: dict[int, str]) -> str:
    """Return the documentation of a public object, or where it is if another page has it."""
    path = f"{home}.{name}"
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        return f"\n.. py:data:: {path}\n   :type: {type(found).__name__}\n"
    if id(found) in described:
        return f"\n``{name}`` is :py:obj:`{described[id(found)]}`.\n"
    described[id(found)] = path
    if inspect.isclass(found):
        return f"\n.. autoclass:: {path}\n   :members:\n"
    return f"\n.. autofunction:: {path}\n"
