"""Parts of the verbs that measure kernels in turns: corun and scaling."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memkern.cli.options import Options, argument, named_values
from memkern.cli.refusing import refuse, taken
from memkern.errors import InputError

if TYPE_CHECKING:
    from memkern.spec.case import Case


def begin_turns(args: argparse.Namespace) -> None:
    """Refuse options without effect in turns; with ``--quick``, reduce them to two short ones."""
    refuse(args, "in turns, each of which is one placement", placements=None, repeats=1)
    refuse(args, "in turns, whose records are ratios", openmetrics=None)
    order = {"case_order": "random", "case_order_seed": None}
    refuse(args, "in turns, whose order is random, by --seed", **order)
    if args.quick:
        args.turns, args.budget = 2, 0.1  # seconds of a case in both


def case_of(
    kernel: str, words: Sequence[str], knobs: Mapping[str, Any], build: Callable[..., Case]
) -> Case:
    """Return the case of a kernel, named after its own options.

    Parameters
    ----------
    kernel : str
    words : sequence of str
        Its own options, each as NAME=VALUE.
    knobs : mapping
        Options of all kernels; those without effect on this one are left out.
    build : callable
        Returns the case of a kernel with options.

    Raises
    ------
    InputError
        An option is unknown or out of range; the error names the kernel.
    """
    named = {"name": " ".join(words)} if words else {}
    try:
        return build(kernel, **taken(kernel, knobs) | named | named_values(words))
    except InputError as error:
        raise InputError(f"{kernel}: {error}") from None


def kernels_argument(examples: str, option: str, default: str) -> Options:
    """Return the option for kernels, each with its own options.

    Parameters
    ----------
    examples, option, default : str
        Kernels and an option for the help, and what is measured without kernels.
    """
    return argument(
        "kernels",
        nargs="*",
        metavar="KERNEL",
        help=f"such as {examples}, each followed by its own options as NAME=VALUE, such as "
        f"{option} ({default})",
    )
