"""Files on this machine that are valid for this user until the system is booted again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["boot_id", "folder", "heading", "stored"]

_VERSION = 1


def boot_id() -> str:
    """Return the identity of this boot of the system, empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def folder() -> Path:
    """Return the folder of these files."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "memkern"


def heading() -> dict[str, Any]:
    """Return the entries that each of these files has."""
    return {"version": _VERSION, "boot": boot_id()}


def stored(target: Path) -> dict[str, Any]:
    """Return a document that was stored since the system was booted.

    Raises
    ------
    KeyError, TypeError, ValueError
        There is none, or it can't be read.
    """
    try:
        document: dict[str, Any] = json.loads(target.read_bytes())
    except OSError as error:
        raise ValueError(f"{target} can't be read: {error.strerror}") from None
    if {name: document[name] for name in heading()} != heading():
        raise ValueError("it is of another version or boot")
    return document
