"""Records of two machines, and what tests of their files share."""

import os
import sys
import textwrap

import checking
import numpy as np

from memkern.formats import ResultSet
from memkern.machine.environment import identity

FORMATS = [".db", ".parquet", ".csv", ".json"]
HERE = {"machine": {"model": "one"}, "build": {"commit": "a1"}, "run": {"load": [0.5]}}
THERE = {"machine": {"model": "two"}, "build": {"commit": "a2"}, "run": {"load": [0.5]}}


def record(case="c0", repeat=0, **columns):
    return {
        "case_id": case,
        "repeat": repeat,
        "environment_id": identity(HERE),
        "platform": "AMD EPYC, 2 threads",
        "kernel": "spatter.gather",
        "pattern": "UNIFORM:8:4",
        "threads": 2,
        "valid": True,
        "disturbed": False,
        "time_min_s": 1e-3,
        "bandwidth_GBps": 12.5,
        **columns,
    }


def result_set(*records):
    rng = np.random.default_rng(len(records))
    return ResultSet(
        list(records),
        [rng.exponential(size=3 + i) for i in range(len(records))],
        {identity(HERE): HERE},
    )


def assert_same(a, b):
    # repr distinguishes 1, 1.0 and True, and is equal for two NaN.
    assert repr(a.records) == repr(b.records)
    assert [list(row) for row in a] == [list(row) for row in b]
    assert [x.tobytes() for x in a.samples] == [x.tobytes() for x in b.samples]
    assert all(x.dtype == np.float64 for x in b.samples)
    assert a.environments == b.environments


def python(script, folder, check=True):
    """Run a script in a new Python process."""
    path = os.pathsep.join(p for p in sys.path if p)
    how = {"env": {**os.environ, "PYTHONPATH": path}, "check": check, "timeout": 60}
    return checking.python("-c", textwrap.dedent(script), cwd=folder, **how)
