"""Fixtures of the tests of families."""

import pytest
from plotting import Results

from memkern.families.amo import kernels as atomics
from memkern.machine.remote import Description
from memkern.shared import over_ranks


@pytest.fixture(scope="module")
def whole(request):
    """Return a machine's records for all figures of the test file's family."""
    return Results(request.module.everything())


@pytest.fixture
def three_ranks(monkeypatch):
    """Let this single process build cases for three ranks."""
    found = Description("a library", 0, (0, 1, 2), True)
    for kernels in (atomics, over_ranks):
        monkeypatch.setattr(kernels, "description", lambda *_: found)
