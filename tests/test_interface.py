"""The public interface is unchanged.

Identities of cases, columns of records, names and options of figures, tables and verbs, and the
public functions are compared with ``interface.json``. An intended change is listed in the CHANGELOG
and written to this file by::

    PYTHONPATH=tests:tests/families:tests/spec python tests/test_interface.py
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_kernels import SAMPLES
from test_pickling import MORE_CASES

import memkern as mk
from memkern import cli
from memkern.plots import figures, tables

INTERFACE = Path(__file__).parent / "interface.json"


def identities() -> dict[str, Any]:
    """Return the identity of every sample case by its kernel.

    Cases of dw.hop are left out: they are laid out for the machine's vectors and threads.
    """
    every = {k: SAMPLES[k] + MORE_CASES.get(k, []) for k in SAMPLES if k != "dw.hop"}
    return {kernel: [case.identity() for case in cases] for kernel, cases in every.items()}


def columns() -> dict[str, Any]:
    """Return the columns of records with their types: the common ones, then those of each kernel.

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


def exhibits() -> dict[str, Any]:
    """Return the options of figures and tables with their defaults."""
    return {
        kind: {
            name: {
                option: str(parameter.default)
                for option, parameter in list(inspect.signature(make).parameters.items())[1:]
            }
            for name, make in there.items()
        }
        for kind, there in (("figures", figures), ("tables", tables))
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


PARTS = {f.__name__: f for f in (identities, columns, exhibits, verbs, functions)}


@functools.cache
def stored() -> dict[str, Any]:
    return json.loads(INTERFACE.read_text())


@pytest.mark.parametrize("part", PARTS)
def test_the_interface_is_unchanged(part: str) -> None:
    assert json.loads(json.dumps(PARTS[part]())) == stored()[part]


def to_text(interface: dict[str, Any]) -> str:
    """Return the interface as JSON with an entry on each line."""
    parts = [
        f"{json.dumps(part)}: {{\n "
        + ",\n ".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in found.items())
        + "\n}"
        for part, found in interface.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    INTERFACE.write_text(to_text({name: make() for name, make in PARTS.items()}))
