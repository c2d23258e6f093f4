"""Sweeps declared in a TOML file.

Every ``[[case]]`` holds arguments of `memkern.kernels.spatter.case`, knobs and stop rule among
them; a list stands for all its values, combined with every other list. A cyclic delta is a list
in a list. ``suite`` instead of ``kernel`` takes a published suite. ``[defaults]`` holds for every
case, ``repeats`` at the top for the sweep::

    repeats = 3

    [defaults]
    runs = 10

    [[case]]
    kernel = ["gather", "scatter"]
    pattern = ["UNIFORM:8:1:NR", "UNIFORM:8:16:NR"]
    count = 1048576
    pages = ["4k", "thp"]
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memkern import kernels, suites
from memkern.errors import InputError
from memkern.kernels import spatter
from memkern.patterns import integer, shown
from memkern.spec import Case

_SUITE_KEYS = ("count_rule", "footprint_B")


def read_sweep(path: str | Path, changes: Mapping[str, Any]) -> tuple[list[Case], int]:
    """Read a sweep file.

    Parameters
    ----------
    path : path
    changes : mapping
        Knobs that win over the file's.

    Returns
    -------
    cases : list of Case
    repeats : int

    Raises
    ------
    InputError
        The file can't be read or says something that is not understood.
    """
    document = _parse(Path(path))
    unknown = set(document) - {"repeats", "defaults", "case"}
    if unknown:
        raise InputError(f"{path} has the unknown key {sorted(unknown)[0]!r}")
    tables = document.get("case", [])
    defaults = document.get("defaults", {})
    if not isinstance(tables, list) or not tables or not isinstance(defaults, dict):
        raise InputError(f"{path} needs at least one [[case]] table, and [defaults] as a table")
    cases: list[Case] = []
    for number, table in enumerate(tables):
        if not isinstance(table, dict):
            raise InputError(f"case {number} of {path} is not a table")
        try:
            cases += _expand({**defaults, **table, **changes})
        except InputError as error:
            raise InputError(f"case {number} of {path}: {error}") from None
        except TypeError as error:
            # Python's own words on the arguments, without the function's name.
            reason = str(error).partition("() ")[2] or str(error)
            unexpected = re.search(r"unexpected keyword argument ('\w+')", reason)
            if unexpected is not None:
                reason = f"has the key {unexpected[1]}, which its kernel does not take"
            raise InputError(f"case {number} of {path} {reason}") from None
    return cases, integer(document.get("repeats", 1), "repeats", 1, 10**6)


def _parse(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {shown(str(error))}") from None


def _expand(table: dict[str, Any]) -> list[Case]:
    lists = {key: value if isinstance(value, list) else [value] for key, value in table.items()}
    for key, listed in lists.items():
        if not listed:
            raise InputError(f"{key} is an empty list")
    cases = []
    for values in itertools.product(*lists.values()):
        choice = dict(zip(lists, values, strict=True))
        if "suite" in choice and "kernel" not in choice:
            arguments = {k: choice.pop(k) for k in _SUITE_KEYS if k in choice}
            choice.setdefault("runs", None)
            configs = suites.load(choice.pop("suite"), **arguments)
            cases += [spatter.from_config(config, **choice) for config in configs]
            continue
        kernel = choice.pop("kernel", None)
        if not isinstance(kernel, str):
            raise InputError(f"kernel must be a name such as 'gather', not {shown(kernel)}")
        cases.append(kernels.case(kernel, **choice))
    return cases
