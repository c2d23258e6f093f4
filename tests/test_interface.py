"""The public interface is unchanged.

Identities of cases, columns of records, names and options of figures, tables and verbs, and the
public functions are compared with the files of ``interface``: one for each family, and one for
common entries. An intended change is listed in the CHANGELOG and written to these files by::

    PYTHONPATH=tests:tests/families:tests/spec python tests/test_interface.py
"""

import inspect
import json
import re
import types
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from interfaces import INTERFACE, stored
from samples import MORE_CASES, SAMPLES

import memkern as mk
from memkern import cli
from memkern.plots import figures, tables
from memkern.plots.registry import Registry


def identities() -> dict[str, Any]:
    """Return the identity of every sample case by its kernel.

    Cases of dw.hop are left out: they are laid out for the machine's vectors and threads.
    """
    every = {k: SAMPLES[k] + MORE_CASES.get(k, []) for k in SAMPLES if k != "dw.hop"}
    return {kernel: [case.identity() for case in cases] for kernel, cases in every.items()}


def columns() -> dict[str, Any]:
    """Return the columns of records with their types: common columns, then other columns by kernel.

    Columns of single caches are left out, since machines have different caches.
    """
    found = {}
    for kernel, cases in SAMPLES.items():
        record = cases[0].with_(runs=2, threads=cases[0].knobs.threads or 1).measure().record
        found[kernel] = {
            name: type(value).__name__
            for name, value in record.items()
            if not re.match(r"(site_)?L\d_", name)
        }
    common = set.intersection(*(set(record.items()) for record in found.values()))
    return {
        "every kernel": dict(sorted(common)),
        **{
            kernel: {name: kind for name, kind in record.items() if (name, kind) not in common}
            for kernel, record in found.items()
        },
    }


def options_of(exhibits: Registry[Any]) -> dict[str, Any]:
    """Return the options of figures or tables with their defaults."""
    return {
        name: {
            option: str(parameter.default)
            for option, parameter in list(inspect.signature(make).parameters.items())[1:]
        }
        for name, make in exhibits.items()
    }


def verbs() -> dict[str, Any]:
    """Return the arguments of every verb: spelling, default, choices and number."""
    (parsers,) = (a.choices for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    return {
        verb: {
            " ".join(action.option_strings) or action.dest: [
                str(action.default),
                [str(choice) for choice in action.choices or ()],
                str(action.nargs),
            ]
            for action in parser._actions
        }
        for verb, parser in parsers.items()
    }


def functions() -> dict[str, Any]:
    """Return the parameters of all public functions and classes."""
    found = {}
    for name in mk.__all__:
        thing = getattr(mk, name)
        if callable(thing) and thing not in (mk.InputError, mk.DeviceError):
            found[name] = [
                f"{parameter}".partition(":")[0].partition("=")[0]
                for parameter in inspect.signature(thing).parameters.values()
            ]
    return found


def kernel_home(kernel: str) -> str:
    """Return the package of a kernel; empty for entries of every kernel."""
    return f"memkern.families.{kernel}" if "." in kernel else ""


def verb_home(name: str) -> str:
    """Return the module of a verb, whose options may all be the inputs of a family."""
    own = f"memkern.families.{name.replace(' ', '_')}"
    return own if find_spec(own) else cli._verbs()[name].run.__module__


# For each part of the interface, its entries, and a function from an entry's name to its module.
PARTS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[str], str]]] = {
    "identities": (identities, kernel_home),
    "columns": (columns, kernel_home),
    "figures": (lambda: options_of(figures), lambda name: figures[name].__module__),
    "tables": (lambda: options_of(tables), lambda name: tables[name].__module__),
    "verbs": (verbs, verb_home),
    "functions": (functions, lambda name: f"memkern.{mk._all_homes()[name]}"),
}


def by_family(part: str) -> dict[str, dict[str, Any]]:
    """Return a part of the interface by family; entries without a family are in ``common``."""
    make, home = PARTS[part]
    found: dict[str, dict[str, Any]] = {}
    for name, entry in make().items():
        family = re.match(r"memkern\.families\.(\w+)", home(name))
        found.setdefault(family[1] if family else "common", {})[name] = entry
    return found


@pytest.mark.parametrize("part", PARTS)
def test_the_interface_is_unchanged(part):
    known = {family: parts[part] for family, parts in stored().items() if part in parts}
    assert json.loads(json.dumps(by_family(part))) == known


PUBLIC_MODULES = [name for name, home in mk._all_homes().items() if ":" not in home]


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_show_public_names_only(name):
    module = getattr(mk, name)
    assert dir(module) == sorted(module.__all__)
    for shown in dir(module):
        found = getattr(module, shown)
        assert not shown.startswith("_") and not inspect.ismodule(found)
        # Python 3.10 takes types such as tuple[int, int] for classes.
        of_kind = inspect.isfunction(found) or inspect.isclass(found)
        if of_kind and not isinstance(found, types.GenericAlias):
            assert found.__module__.startswith("memkern.")


def to_text(interface: dict[str, Any]) -> str:
    """Return the interface of a family as JSON with an entry on each line."""
    parts = [
        f"{json.dumps(part)}: {{\n "
        + ",\n ".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in found.items())
        + "\n}"
        for part, found in interface.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    families: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        for family, entries in by_family(part).items():
            families.setdefault(family, {})[part] = entries
    for family, interface in families.items():
        (INTERFACE / f"{family}.json").write_text(to_text(interface))
