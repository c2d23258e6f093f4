"""A fixture of the tests of figures."""

import pytest
from plotting import Results


@pytest.fixture(scope="module")
def whole(request):
    """Return a machine's records for all figures of the family that the test file is about."""
    return Results(request.module.everything())
