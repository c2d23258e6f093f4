"""Experiments that explain the time of a transfer (see `memkern.spec.experiments`)."""

from __future__ import annotations

from memkern.spec.case import Case
from memkern.spec.experiments import Experiment, Setting
from memkern.spec.registry import rebuilt


def _pinned(case: Case, setting: Setting) -> Case | None:
    pageable = case.template_variant == "pageable"
    return rebuilt(case, variant="best", memory="pinned") if pageable else None


EXPERIMENTS = (
    Experiment("pinned memory of the host", _pinned, "pageable memory", option="--memory pinned"),
)
