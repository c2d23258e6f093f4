"""Options that mean nothing for what is measured are refused, not ignored.

An option may be given where at least one of the kernels takes it; the others are measured without
it.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from memkern.cli.options import each
from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern.spec.case import Case

# Knobs that do nothing to some kernels, by kernel or family, and why.
_FORK = ("bs.bs0", "launch")
_IDLE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "prefetch": ((*_FORK, "loops.peakflops", "amo"), "which ask for no data ahead"),
    "offset": ((*_FORK, "loops.peakflops"), "which have no arrays"),
    "schedule": (_FORK, "which have no iterations"),
    "chunk": (_FORK, "which have no iterations"),
}


def refuse_idle(cases: Iterable[Case], args: argparse.Namespace) -> None:
    """Refuse knobs of the command line that do nothing to any of the cases.

    Raises
    ------
    InputError
        There is such a knob.
    """
    kernels = list(dict.fromkeys(case.spec.kernel for case in cases))
    for option, (idle, why) in _IDLE.items():
        given = set(each(getattr(args, option, None))) - {None, 0, "static"}
        if given and kernels and all({name, name.partition(".")[0]} & {*idle} for name in kernels):
            raise InputError(f"--{option} does nothing for {', '.join(kernels)}, {why}")


def taken(
    options: Mapping[str, Any], takers: Mapping[str, Collection[str]], kernels: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return which options each of the kernels takes.

    Parameters
    ----------
    options : mapping
        Options that were given, by their names in Python.
    takers : mapping
        By option, the kernels (or formats, layouts) that take it.
    kernels : collection of str
        Those that are to be measured.

    Returns
    -------
    dict of str to dict
        By kernel, the options that it takes.

    Raises
    ------
    InputError
        An option is taken by none of the kernels.
    """
    for option in options:
        if not {*takers[option]} & {*kernels}:
            owners = ", ".join(takers[option]) or "other kernels"
            raise InputError(
                f"--{option.replace('_', '-')} is for {owners}, not for {', '.join(kernels)}"
            )
    return {
        kernel: {name: value for name, value in options.items() if kernel in takers[name]}
        for kernel in kernels
    }


def refuse(args: argparse.Namespace, beside: str, **defaults: Any) -> None:
    """Refuse options that mean nothing beside another one.

    Parameters
    ----------
    args : Namespace
    beside : str
        Why, as a sentence goes on: ``with --tune, which searches by itself``.
    **defaults
        The options and what each is where it was not given.

    Raises
    ------
    InputError
        One of them was given.
    """
    for option, default in defaults.items():
        if getattr(args, option) != default:
            raise InputError(f"--{option.replace('_', '-')} means nothing {beside}: leave it out")
