"""Detection of disturbed samples, for given conditions and next to a competing process."""

import math
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from machines import MACHINES, described

import memkern as mk
from memkern import _memkern
from memkern.engine.placing import watching
from memkern.engine.recording import samples as disturbance
from memkern.engine.recording.samples import disturbed_samples, names_of, too_few
from memkern.engine.sampling import activity, prepared
from memkern.engine.sampling.activity import Activity, names_of_cores
from memkern.host.rates import CoreRates, cores_at_work

pytestmark = pytest.mark.usefixtures("disturbances")

SHARED_PROBES = watching.shared_probes  # replaced by a fixture


def test_disturbed_samples_by_hand():
    waited = np.array([0.0, 0.04, 0.06, 0.03, 0.5, 0.0, 0.0, math.nan, math.nan, math.nan])
    share = np.array([1.0, 0.5, 0.94, 0.97, 0.5, 1.0, 1.0, 0.96, 0.94, math.nan])
    still = np.zeros(10, dtype=np.bool_)
    # Absence of the processor alone is no disturbance (second sample). If the time that a worker
    # waited is unknown, all time without a processor counts as waiting.
    expected = [False, False, True, False, True, True, False, False, True, False]
    assert disturbed_samples(waited, share, still).tolist() == expected
    assert disturbed_samples(np.empty(0), np.empty(0), still[:0]).tolist() == []
    # A worker that moved has its data in the caches of another core.
    moved = np.array([False, True, False, False])
    found = disturbed_samples(np.zeros(4), np.ones(4), moved)
    assert found.tolist() == [False, True, True, False]


def test_records_tell_how_fast_workers_exchange_lines():
    record = mk.stream("copy", elements=1024, threads=2, runs=3).measure().record
    several = len(_memkern.topology()["units"]) > 1
    assert (record["exchange_ns"] > 1) == several
    alone = mk.stream("copy", elements=1024, threads=1, runs=3).measure().record
    assert math.isnan(alone["exchange_ns"])


def test_the_best_of_cores_is_found_in_bounded_memory():
    cores = CoreRates()
    assert math.isnan(cores.best("1"))
    cores.add([math.nan], "1")
    assert math.isnan(cores.best("1"))
    rng = np.random.default_rng(1)
    for part in np.split(rng.uniform(1, 2, 50_000), 50):
        cores.add(part, "1")
    assert cores.best("1") == pytest.approx(1.99, rel=0.01)
    assert len(cores.added["1"]) < 100
    # An outlier does not count: the best is a percentile.
    cores.add([3.0], "1")
    assert cores.best("1") < 2


def test_the_best_does_not_rise_with_the_number_of_processes():
    rng = np.random.default_rng(2)
    known: dict[str, dict[int, int]] = {}
    for _ in range(300):
        cores = CoreRates(known)
        # Two in a thousand values are a tenth too high, and the best of some short processes.
        values = 2.4 * (1 - np.abs(rng.normal(0, 0.01, 60)))
        cores.add(np.where(rng.random(60) < 0.002, 1.1 * values, values), "1")
        known = {"1": dict(cores.added["1"] + Counter(known.get("1", {})))}
    assert CoreRates(known).best("1") == pytest.approx(2.4, rel=0.01)


def test_the_best_includes_earlier_processes():
    first = CoreRates()
    first.add(np.linspace(1.9, 2.0, 500), "1")
    cores = CoreRates({"1": first.added["1"]})
    assert cores.best("1") == pytest.approx(2.0, rel=0.01)
    # This process has always shared its core.
    cores.add(np.linspace(1.0, 1.1, 500), "1")
    assert cores.best("1") == pytest.approx(2.0, rel=0.01)
    # Its counts do not include counts of earlier processes.
    assert sum(cores.added["1"].values()) == 500


@pytest.mark.parametrize(
    "kept, taken, few",
    [(0, 1, True), (1, 1, False), (4, 8, True), (5, 10, False), (5, 11, True), (50, 100, False)],
)
def test_too_few_samples(kept, taken, few):
    assert too_few(kept, taken) is few


def test_processes_that_run_all_the_time_are_observed(monkeypatch):
    observations = iter([[(7, "busy", 1), (8, "brief", 0)], *[[(7, "busy", 1)]] * 4])
    monkeypatch.setattr(activity, "_running", lambda: next(observations))
    assert activity._observed().others == ((7, "busy", 1),)


SHARED = "other load on the same physical cores (in 40% of the probes)"


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        (Activity(((7, "busy", 1),), 0.0), "busy (process 7)"),
        (Activity((), 0.25), "other virtual machines, for 25% of the time"),
        (Activity((), 0.01), "nothing else"),
        (Activity((), math.nan), "nothing else"),
        (Activity((), 0.0, 0.4), SHARED),
        (Activity((), 0.0, 0.2), "nothing else"),
        (Activity((), 0.0, math.nan), "nothing else"),
    ],
)
def test_a_host_without_much_activity_is_quiet(observed, text):
    assert (str(observed), observed.quiet) == (text, text == "nothing else")


@pytest.mark.parametrize(("throughput", "share"), [(2.0, 0.0), (1.4, 1.0)])
def test_probes_of_shared_cores_are_counted(monkeypatch, throughput, share):
    monkeypatch.setattr(watching.CoreWatch, "observe", lambda self, seconds: None)
    monkeypatch.setattr(watching.CoreWatch, "column", lambda self, name: np.full(8, throughput))
    monkeypatch.setattr(watching.CoreWatch, "best", 2.0)
    assert SHARED_PROBES() == share


def test_cores_are_watched_before_measuring():
    # If other programs run, there may be no probe in a short time.
    shares = (SHARED_PROBES(0.02) for _ in range(200))
    assert 0 <= next(share for share in shares if not math.isnan(share)) <= 1


def test_description_of_many_threads_is_short():
    threads = [(number, "stress", 0) for number in range(9)] + [(50, "sh", 1)]
    assert names_of(threads) == "stress (processes 0, 1, 2, 3, ...), sh (process 50)"
    assert names_of([(k, f"p{k}", 0) for k in range(7)]).endswith("and others")


def test_unknown_run_queue_delays_give_one_warning(monkeypatch):
    assert not _memkern.run_queue_delays_known("/nowhere")
    monkeypatch.setattr(_memkern, "run_queue_delays_known", lambda: False)
    prepared._warn_once.cache_clear()
    case = mk.stream("copy", elements=64, threads=1, pin="none")
    with pytest.warns(UserWarning, match="does not report how long threads wait") as caught:
        case.prepare()
        case.prepare()
    assert len(caught) == 1
    prepared._warn_once.cache_clear()


@pytest.fixture
def all_units_reserved() -> Iterator[None]:
    """Let another memkern process reserve every free processing unit."""
    # Until then, tests beside it may hold some of them.
    code = """
import memkern as mk
case = mk.stream("copy", elements=64, variant="scalar")
while (prepared := case.prepare()).native.obtained()["shared_units"]:
    del prepared
print(flush=True)
input()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield
    process.communicate("\n")


@pytest.mark.usefixtures("all_units_reserved")
def test_sharing_units_with_another_memkern_process_gives_a_warning():
    prepared._warn_once.cache_clear()
    case = mk.stream("copy", elements=64, variant="scalar")
    with pytest.warns(UserWarning, match="another memkern process measures on the same"):
        shared = case.prepare().native.obtained()["shared_units"]
    assert shared and {*shared} <= {*_memkern.topology()["units"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.with_(pin="compact").prepare()


@pytest.fixture
def competitor() -> Iterator[int]:
    """Yield the unit on which another process computes all the time."""
    unit = _memkern.topology()["units"][0]
    code = f"import os; os.sched_setaffinity(0, {{{unit}}})\nprint(flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield unit
    process.kill()
    process.wait()
    process.stdout.close()


def test_samples_beside_a_competitor_on_the_unit_are_disturbed(competitor):
    # Each sample is longer than several time slices of the scheduler.
    case = mk.stream("copy", elements=2**23, threads=1, pin=str(competitor), pages="4k")
    measurement = case.with_(variant="scalar", runs=5, invocations=8, budget_s=0.2).measure()
    record = measurement.record
    assert record["samples_disturbed"] > 0
    assert record["waited_share"] > disturbance.WAITED_SHARE
    assert record["state"] == ("disturbed" if record["disturbed"] else "shared")
    # The first processes of a command are listed by number, others as "...".
    named = re.findall("[0-9]+", record["shared_with"])
    assert str(subprocess_of(competitor)) in named or "..." in record["shared_with"]
    if record["disturbed"]:
        assert measurement.disturbed
        assert math.isnan(record["ci_relative"]) and math.isnan(record["time_ci_low_s"])
        assert record["ci_scope"] == "none"
    assert record["samples"] <= 5


def subprocess_of(unit: int) -> int:
    """Return the child of this process that runs on a unit."""
    for process, _, where in _memkern.running_threads():
        try:
            with open(f"/proc/{process}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == os.getpid() and where == unit:
            return process
    raise AssertionError("the competitor does not run")


def test_workers_avoid_the_unit_of_a_competitor(competitor):
    # Other tests do not reserve all of 256 units.
    with described(MACHINES["256 units"]):
        chosen = mk.stream("copy", elements=4096, threads=1).prepare().obtained["pin"]
    assert int(chosen) != competitor


def test_kinds_of_cores_are_distinguished(machine):
    topology = _memkern.topology()
    every = machine.kinds or (0,) * topology["cores"]
    kinds = [every[core] for core in topology["core_of_unit"]]
    assert topology["core_kinds"] == kinds
    obtained = mk.stream("copy", elements=512, threads=1, pin="compact").prepare().obtained
    assert names_of_cores(obtained)[0] == ("1 of kinds 1" if machine.kinds else "1")


def test_cores_at_work_are_labelled_by_number_and_kind():
    assert cores_at_work(2, [0, 0]) == "2" == cores_at_work(2, [])
    assert cores_at_work(2, [1, 1]) == "2 of kinds 1"
    assert cores_at_work(3, [1, 0, 1]) == "3 of kinds 0 and 1"
