"""Refuse options without effect on the measurements, instead of ignoring them.

An option is accepted if at least one kernel takes it; the others are measured without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from memkern.cli.options import each
from memkern.errors import InputError
from memkern.spec.case import Case, does_nothing
from memkern.spec.options import Knobs
from memkern.spec.registry import spec_of


def taken(by: str | Case, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options without the knobs that have no effect on a kernel or a case."""
    idle = spec_of(by).limits.all_idle_knobs if isinstance(by, str) else by.idle_knobs
    return {name: value for name, value in options.items() if name not in idle}


def refuse_idle(cases: Iterable[Case], args: argparse.Namespace) -> None:
    """Refuse knobs of the command line that have no effect on any of the cases.

    Raises
    ------
    InputError
        A knob has no effect on any of the cases.
    """
    cases = list(cases)
    kernels = ", ".join(dict.fromkeys(case.spec.kernel for case in cases))
    idle = [case.idle_knobs for case in cases]
    for name in dict.fromkeys(name for one in idle for name in one):
        given = {*each(getattr(args, name, None))} - {None, getattr(Knobs, name)}
        if given and all(name in one for one in idle):
            reasons = [one[name] for one in idle]
            raise does_nothing(f"--{name.replace('_', '-')}", kernels, reasons)


def options_by_kernel(
    options: Mapping[str, Any], owners: Mapping[str, Collection[str]], kernels: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the options that each kernel takes.

    Parameters
    ----------
    options : mapping
        Options that were given, by their names in Python.
    owners : mapping
        By option, the kernels that take it.
    kernels : collection of str
        The kernels to be measured.

    Returns
    -------
    dict of str to dict
        By kernel, the options that it takes.

    Raises
    ------
    InputError
        None of the kernels takes an option.
    """
    for option in options:
        if not {*owners[option]} & {*kernels}:
            known = ", ".join(owners[option]) or "other kernels"
            raise InputError(
                f"--{option.replace('_', '-')} is for {known}, not for {', '.join(kernels)}"
            )
    return {
        kernel: {name: value for name, value in options.items() if kernel in owners[name]}
        for kernel in kernels
    }


def refuse_lists(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse options with several values; errors name the place `where`, such as `` of --a``.

    Raises
    ------
    InputError
        An option has several values.
    """
    for name, value in given.items():
        if isinstance(value, list):
            raise InputError(f"--{name.replace('_', '-')}{where} takes one value, not a list")


def refuse(args: argparse.Namespace, reason: str, **defaults: Any) -> None:
    """Refuse options that are meaningless together with another option.

    Parameters
    ----------
    args : Namespace
    reason : str
        End of the sentence: ``in a search, which stops by --budget``.
    **defaults
        The options, each with its value if it is not given.

    Raises
    ------
    InputError
        One of the options was given.
    """
    for option, default in defaults.items():
        if getattr(args, option) != default:
            raise InputError(f"--{option.replace('_', '-')} has no effect {reason}: leave it out")
