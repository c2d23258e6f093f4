"""Verdicts on simulated measurements."""

from memkern.results import verdicts

FOUND = (verdicts.FASTER, verdicts.SLOWER)
