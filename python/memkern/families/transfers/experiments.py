"""Experiments that explain the time of a transfer (see `memkern.spec.experiments`)."""

from __future__ import annotations

from memkern.spec.experiments import Experiment
from memkern.spec.registry import rebuilt

EXPERIMENTS = (
    Experiment(
        "pinned memory of the host",
        lambda case, setting: (
            rebuilt(case, variant="best", memory="pinned")
            if case.template_variant == "pageable"
            else None
        ),
        "pageable memory",
        option="--memory pinned",
    ),
)
