"""The exceptions for wrong input and for devices that do not work, and warnings."""

from __future__ import annotations

import sys
import traceback
import warnings


class InputError(ValueError):
    """Wrong input: the message is one sentence with the culprit and the correct form."""


class DeviceError(RuntimeError):
    """An operation of a device failed: the message names it and the reason."""


class Interrupted(Exception):
    """The cause of an error that ended measuring: its argument is the file that can be resumed."""


def interrupted_by(error: BaseException) -> Interrupted | None:
    """Return the file that can be resumed after an error; None without one."""
    return error.__cause__ if isinstance(error.__cause__, Interrupted) else None


def warn(text: str) -> None:
    """Warn at the line outside of memkern that led here, which Python prints with the text."""
    # The standard library's decorators have frames between those of memkern.
    ours = (
        level
        for level, (frame, _) in enumerate(traceback.walk_stack(sys._getframe()), start=1)
        if frame.f_globals.get("__name__", "").partition(".")[0] == "memkern"
    )
    warnings.warn(text, stacklevel=max(ours) + 1)
