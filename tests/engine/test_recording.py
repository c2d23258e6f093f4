"""Records are made of plain data, without anything that measures."""

import subprocess
import sys

import pytest

import memkern as mk
from memkern.engine.placing.run import CaseRun
from memkern.engine.recording.record import LAUNCH, Need, measurement_of
from memkern.host import Host
from memkern.host.distances import packaged
from memkern.host.environment import machine_environment

SPREAD = packaged("L1, 1 thread, 10 placements")


@pytest.fixture
def run() -> CaseRun:
    run = CaseRun(mk.stream("copy", elements=64, threads=1, runs=5, placements=1))
    run.place()
    return run


def test_a_record_is_made_without_the_extension():
    program = """
import sys
for name in ("memkern.extension", "memkern.machine.gpu", "memkern.engine.sampling.series"):
    sys.modules[name] = None
from memkern.engine.recording import counting, record, taken
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_record_follows_from_what_was_taken_and_the_host(run):
    machine, (need,) = (
        machine_environment(),
        run.host.measured.keys() & {Need(LAUNCH, (1, "auto", "fork"))},
    )
    first, second = (
        measurement_of(run.taken, run.host, machine, spread=SPREAD).record for _ in range(2)
    )
    assert list(first) == list(second) and repr(first) == repr(second)
    # Another host changes only what is known of it.
    other = Host()
    launch_s = other.measured[need] = first["time_min_s"] / 3
    other.keep_health("fit")
    changed = measurement_of(run.taken, other, machine, spread=SPREAD).record
    differing = {name for name in first if repr(first[name]) != repr(changed[name])}
    assert differing == {"launch_s", "time_net_s", "doctor"}
    assert (changed["launch_s"], changed["doctor"][:4]) == (launch_s, "fit ")
    # What is unknown is no number.
    unknown = measurement_of(run.taken, Host(), machine, spread=SPREAD).record
    assert unknown["launch_s"] != unknown["launch_s"] and unknown["doctor"] == ""
