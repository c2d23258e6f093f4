"""Fixtures of several tests of measurements."""

import pytest

import memkern as mk
from memkern.spec.case import Case


@pytest.fixture
def case() -> Case:
    return mk.gather("UNIFORM:8:4:NR", count=512, threads=1, variant="scalar", budget_s=0.2)
