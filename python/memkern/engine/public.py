"""The engine: it prepares cases, chooses variants, samples, judges, records and sweeps.

Its packages, from below: `processes` (ranks, and one measurement at a time), `recording` (from
what was taken to a record, without measuring), `sampling`, `placing` and `sweeping`. Other packages
use the names exported here and those of the modules `sampling.counters` and
`recording.disturbance`. Models and comparisons of records are layers above it; a separate step adds
the columns of a model to a record.
"""

from memkern.engine.placing.costs import (
    copy_GBps,
    device_launch_cost_s,
    ensure,
    launch_cost_s,
)
from memkern.engine.placing.preparing import apply, prepare, ready
from memkern.engine.placing.run import (
    ALL_B,
    LARGE_B,
    CaseRun,
    calibrated,
    environment_of_ranks,
    measure,
)
from memkern.engine.processes.communication import connected, exclusive, ranks, refuse_forked, start
from memkern.engine.recording.samples import Samples
from memkern.engine.recording.taken import Choice, Measurement, to_result_set
from memkern.engine.sampling.activity import Activity, Neighbour, observe_activity
from memkern.engine.sampling.prepared import DELAYS_UNKNOWN, Prepared
from memkern.engine.sampling.series import take_samples
from memkern.engine.sweeping.planning import by_importance, expected_s, planned
from memkern.engine.sweeping.rounds import Collected, in_rounds, place_in_rounds
from memkern.engine.sweeping.sweep import sweep, vary

__all__ = [
    "ALL_B",
    "DELAYS_UNKNOWN",
    "LARGE_B",
    "Activity",
    "CaseRun",
    "Choice",
    "Collected",
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
    "ensure",
    "environment_of_ranks",
    "exclusive",
    "expected_s",
    "in_rounds",
    "launch_cost_s",
    "measure",
    "observe_activity",
    "place_in_rounds",
    "planned",
    "prepare",
    "ranks",
    "ready",
    "refuse_forked",
    "start",
    "sweep",
    "take_samples",
    "to_result_set",
    "vary",
]
