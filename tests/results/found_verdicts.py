"""Verdicts on simulated measurements."""

from __future__ import annotations

from memkern.results import verdicts

FOUND = (verdicts.FASTER, verdicts.SLOWER)
