"""Cases of single instructions."""

from shapes import built

from memkern.spec.case import Case

SAMPLES = {
    "instructions.repeat": [
        built("instructions.repeat", instruction="add", count=48),
        built("instructions.repeat", instruction="permute"),
    ],
}
BOUND = True
# test_instructions.py tests the entries that a processor has.
OWN_ENTRIES = ("instructions.repeat",)


def only_writes(case: Case) -> bool:
    """Return False: the kernels' stores are not part of their bytes."""
    return False
