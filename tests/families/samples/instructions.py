"""Cases of single instructions."""

from __future__ import annotations

from shapes import built

from memkern.spec.case import Case

SAMPLES = {
    "instructions.repeat": [
        built("instructions.repeat", instruction="add", count=48),
        built("instructions.repeat", instruction="permute"),
    ],
}
BOUND = True
# Those that a processor has: test_instructions.py.
OWN_ENTRIES = ("instructions.repeat",)


def only_writes(case: Case) -> bool:
    """Return False: what they store is not part of their bytes."""
    return False
