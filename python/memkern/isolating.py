"""Whether code of users may run in this process (see `memkern.studies.isolated`).

Compiled code can end or block its process, so that it is only called in processes for it.
"""

from __future__ import annotations

import functools
import math
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from memkern import launcher
from memkern.discovery import above
from memkern.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

# Environment variable of processes for code of users, and of those that they start.
VARIABLE = "MEMKERN_ISOLATED"
_called = False
_REFUSED = "own kernels run in a process of their own: use measure, sweep or the command line"


class NotIsolated(InputError):
    """Code of a user would run in this process."""


def enter() -> None:
    """Allow code of users in this process."""
    os.environ[VARIABLE] = "1"


def inside() -> bool:
    """Return whether code of users may run in this process."""
    return os.environ.get(VARIABLE) == "1"


def require() -> None:
    """Begin to call code of users in this process.

    Raises
    ------
    NotIsolated
        It is no process for it.
    """
    global _called
    if not inside():
        raise NotIsolated(_REFUSED)
    _called = True


def limit(seconds: float) -> None:
    """End this process after some seconds, instead of those of the last call; never after 0.

    Without effect in processes that do not call code of users.
    """
    if _called:
        signal.alarm(math.ceil(seconds))


def isolated(cases: Any) -> bool:
    """Return whether a case, or one of a list, needs a process for code of users.

    Of other sequences, whose cases are built on access, the first one counts.
    """
    lazy = isinstance(cases, Sequence) and not isinstance(cases, list)
    every = cases if isinstance(cases, list) else cases[:1] if lazy else [cases]
    return not inside() and any(
        getattr(getattr(case, "spec", None), "made_by", None) for case in every
    )


def refuse_isolated(cases: Any) -> None:
    """Raise `NotIsolated` if cases need another process."""
    if isolated(cases):
        raise NotIsolated(_REFUSED)


def run_again(words: Sequence[str]) -> int:
    """Run a command in a process for code of users.

    Its exit code is returned, or the number of the signal that ended it, times -1.
    """
    started = subprocess.Popen(
        launcher.python_command("memkern", *words), env={**os.environ, VARIABLE: "1"}
    )
    while True:
        try:
            return started.wait()
        except KeyboardInterrupt:
            started.send_signal(signal.SIGINT)


def ended_by(number: int) -> str:
    """Return the sentence on a process that was ended by a signal."""
    if number == signal.SIGALRM:
        return "the process that runs own kernels did not end in time: does the kernel end?"
    return (
        f"the process that runs own kernels was ended by {signal.Signals(number).name}: the kernel "
        "crashed"
    )


def isolates(function: F) -> F:
    """Make a function of cases run in a process for code of users where they need it."""

    @functools.wraps(function)
    def call(cases: Any, *args: Any, **options: Any) -> Any:
        if isolated(cases):
            return above("isolated").call(function, cases, *args, **options)
        return function(cases, *args, **options)

    return cast(F, call)
