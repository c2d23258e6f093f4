"""Defaults of Spatter's options."""

from memkern.inputs.patterns import custom

DEFAULTS = {
    "kernel": "gather",
    "pattern": custom([0, 1]),
    "pattern_gather": None,
    "pattern_scatter": None,
    "delta": 8,
    "delta_gather": 8,
    "delta_scatter": 8,
    "count": 1024,
    "wrap": 1,
    "runs": 10,
    "seed": None,
    "name": "",
    "local_work_size": None,
}
