"""Slow set-ups, shared by all processes of a test run."""

import fcntl
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[], Any]) -> Any:
    """Return the result of `make` in the first process of the test run that requests `name`."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    file = folder / f"once-{name}"
    with file.open("a+b") as stored:
        fcntl.flock(stored, fcntl.LOCK_EX)
        if not file.stat().st_size:
            pickle.dump(make(), stored)
            stored.flush()
        stored.seek(0)
        return pickle.load(stored)
