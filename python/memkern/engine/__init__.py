"""The engine: it prepares cases, chooses variants, samples, judges, records and sweeps.

Other packages use the names exported here and those of the modules `calibration`, `counting` and
`disturbance`. Models and comparisons of records are layers above it; a separate step adds the
columns of a model to a record.
"""

from memkern.engine.communication import connected, ranks, start
from memkern.engine.cores import Neighbour, observe_activity
from memkern.engine.costs import copy_GBps, device_launch_cost_s, launch_cost_s
from memkern.engine.disturbance import Activity
from memkern.engine.measurement import Measurement, to_result_set
from memkern.engine.planning import by_importance, expected_s, planned
from memkern.engine.prepared import DELAYS_UNKNOWN, Choice, Prepared
from memkern.engine.preparing import apply, prepare, ready
from memkern.engine.process import exclusive, refuse_forked
from memkern.engine.run import LARGE_B, CaseRun, calibrated, environment_of_ranks, measure, spread
from memkern.engine.sampling import Samples, take_samples
from memkern.engine.sweeping import sweep, vary
from memkern.engine.watching import CoreWatch, observe_machine

__all__ = [
    "DELAYS_UNKNOWN",
    "LARGE_B",
    "Activity",
    "CaseRun",
    "Choice",
    "CoreWatch",
    "Measurement",
    "Neighbour",
    "Prepared",
    "Samples",
    "apply",
    "by_importance",
    "calibrated",
    "connected",
    "copy_GBps",
    "device_launch_cost_s",
    "environment_of_ranks",
    "exclusive",
    "expected_s",
    "launch_cost_s",
    "measure",
    "observe_activity",
    "observe_machine",
    "planned",
    "prepare",
    "ranks",
    "ready",
    "refuse_forked",
    "spread",
    "start",
    "sweep",
    "take_samples",
    "to_result_set",
    "vary",
]
