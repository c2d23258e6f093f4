"""Experiments that explain the time of a case (see `memkern.spec.experiments`)."""

from __future__ import annotations

from memkern.shared.experiments import usual, with_elements

EXPERIMENTS = usual(with_elements)
