"""Variances between placements and runs: estimated, stored until reboot, used by records."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import memkern as mk
from memkern import _memkern, small
from memkern.host import Host, this_host, variances
from memkern.host.environment import machine_environment
from memkern.host.file import File, boot_id
from memkern.host.rates import RATES, CoreRates
from memkern.host.variances import Calibration, class_name, estimate, packaged
from memkern.machine import caches
from memkern.machine.caches import data_caches, ends, level_of
from memkern.statistics import Prior
from memkern.studies import calibrate as calibrating

CACHES = [
    {"level": 1, "type": "data", "size_B": 32768, "instances": 2},
    {"level": 1, "type": "instruction", "size_B": 65536, "instances": 2},
    {"level": 2, "type": "unified", "size_B": 2**20, "instances": 2},
    {"level": 3, "type": "unified", "size_B": 2**25, "instances": 1},
]
DATA_CACHES = data_caches({"machine": {"caches": CACHES}})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def stored(**changes: object) -> Calibration:
    priors = {"L1, 1 thread": Prior(1e-4, 12.5), "memory, 2 threads": Prior(4e-4, math.inf)}
    runs = {"L1, 1 thread": Prior(2e-4, 30.0), "memory, 2 threads": Prior(0.0, 30.0)}
    values = {"boot": boot_id(), "created": "2026-11-22T12:00:00+00:00"}
    return Calibration(**{**values, "placements": priors, "runs": runs, **changes})


@pytest.mark.parametrize(
    "footprint_B, threads, level",
    [
        (32768, 1, "L1"), (32769, 1, "L2"), (65536, 2, "L1"), (65536, 8, "L1"), (2**21, 2, "L2"),
        (2**21, 1, "L3"), (2**25, 2, "L3"), (2**25 + 1, 2, "memory"),
    ],
)  # fmt: skip
def test_the_level_of_a_footprint(footprint_B: int, threads: int, level: str) -> None:
    assert level_of(footprint_B, ends(DATA_CACHES, threads)) == level


def test_measured_sizes_of_caches_take_the_place_of_the_systems() -> None:
    machine = {"machine": {"caches": CACHES}, "measured_caches": {"sizes_B": {"L3": 2**22}}}
    found = data_caches(machine)
    assert [(c["level"], c["size_B"], c["source"]) for c in found] == [
        (1, 32768, "system"), (2, 2**20, "system"), (3, 2**22, "measured"),
    ]  # fmt: skip
    assert level_of(2**22 + 1, ends(found, 1)) == "memory"
    assert found[-1]["system_B"] == 2**25
    assert caches.last_level_B(machine) == 2**22
    assert caches.last_level_B({}) == 0


def test_class_names() -> None:
    assert class_name(1000, 1, DATA_CACHES) == "L1, 1 thread"
    assert class_name(2**30, 2, DATA_CACHES) == "memory, 2 threads"
    assert class_name(1000, 2, []) == "memory, 2 threads"
    assert class_name(1000, 1, DATA_CACHES, variances.SHARED) == "L1, 1 thread, shared"
    assert class_name(1000, 2, [], variances.MIXED) == "memory, 2 threads, mixed states"
    assert class_name(1000, 1, [], variances.BESIDE) == "memory, 1 thread, beside programs"


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4", "memory"])
@pytest.mark.parametrize("threads", ["1 thread", "2 threads", "64 threads"])
def test_every_class_has_variances_of_other_hosts(level: str, threads: str) -> None:
    quiet = packaged(f"{level}, {threads}")
    shared = packaged(f"{level}, {threads}, {variances.SHARED}")
    # Some classes of shared hosts vary less than classes of quiet hosts: the hosts differ.
    for found in (quiet, shared):
        assert 0.005**2 < found.floor.variance < 0.3**2
        assert 0.005**2 < found.median.variance < 0.3**2
    assert quiet.floor.variance < 0.15**2 and quiet.median.variance < 0.2**2
    assert quiet.placements is None and quiet.floor.freedom > 2
    if level == "L4":  # has the variances of memory
        assert quiet == packaged(f"memory, {threads}")


def test_mixed_states_vary_more_than_one() -> None:
    for level in ("L1", "L2", "memory"):
        mixed = packaged(f"{level}, 2 threads, {variances.MIXED}")
        assert mixed.floor.variance > packaged(f"{level}, 2 threads").floor.variance
        assert mixed == packaged(f"{level}, 1 thread, {variances.BESIDE}")


def test_estimate_finds_both_variances() -> None:
    rng = np.random.default_rng(2)
    cases, runs, placements = 6, 200, 4
    levels = rng.normal(0, 1, (cases, 1, 1))
    drift = rng.normal(0, 0.03, (cases, runs, 1))
    x = levels + drift + rng.normal(0, 0.02, (cases, runs, placements))
    between_placements, between_runs = estimate({"L1, 1 thread": np.exp(x)})
    assert between_placements["L1, 1 thread"].variance == pytest.approx(0.02**2, rel=0.1)
    assert between_runs["L1, 1 thread"].variance == pytest.approx(0.03**2, rel=0.15)
    assert between_runs["L1, 1 thread"].freedom == cases * (runs - 1)


def test_a_calibration_is_stored_and_loaded(cache: Path) -> None:
    host = this_host()
    assert host.calibration is None
    assert host.calibrate(stored()) and host.path == cache / "memkern" / "host-1.json"
    assert host.calibration == Host(host.path).calibration == stored()
    loaded = host.calibration
    assert host.calibration is loaded
    other = Host(host.path)
    other.calibrate(stored(created="later"))
    assert host.calibration == stored(created="later")


def test_intervals_follow_the_calibration(cache: Path) -> None:
    case = mk.stream("copy", elements=512, threads=1, variant="scalar", budget_s=0.05)
    before = case.measure().record
    assert before["ci_scope"] == "next run"
    name = class_name(before["footprint_B"], 1, data_caches(mk.measure(case).environment))
    widths = []
    for variance in (0.3**2, 1e-6):
        between = Prior(variance, 100.0)
        calibrated = stored(placements={name: Prior(1e-6, 100.0)}, runs={name: between})
        this_host().calibrate(calibrated)
        after = case.measure().record
        assert after["ci_scope"] == "next run" and after["ci_level"] == 0.95
        widths.append(math.log(after["time_ci_high_s"] / after["time_ci_low_s"]) / 2)
        # Shortest times have the variance of other hosts and of this process's records.
        assert after["time_min_ci_relative"] < 0.3
    # Student's t for 8 degrees of freedom; both this run and the next one vary.
    assert widths[0] == pytest.approx(2.306 * math.sqrt(2) * 0.3, rel=0.02)
    assert widths[1] < 0.1 * widths[0]


def test_calibrating_measures_every_class(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Caches of a few KiB, so that footprints from memory are small as well.
    small = [{**c, "size_B": c["size_B"] // 256} for c in CACHES]
    environment = machine_environment()
    environment["machine"]["caches"] = small
    monkeypatch.setattr(calibrating, "machine_environment", lambda: environment)
    monkeypatch.setattr(calibrating, "_BUDGET_S", 0.01)
    monkeypatch.setattr(calibrating, "_fitting", lambda cases, seconds: cases)
    shares: list[float] = []
    found = mk.calibrate(seconds=0.1, progress=shares.append)
    assert this_host().calibration == found
    assert found.boot == boot_id()
    assert set(found.placements) <= set(found.runs)
    levels, threads = ("L1", "L2", "L3", "memory"), (1, len(_memkern.topology()["units"]))
    classes = itertools.product(levels, threads)
    assert set(found.runs) == {f"{level}, {n} thread{'s' * (n > 1)}" for level, n in classes}
    assert all(p.variance >= 0 for p in found.runs.values())
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_a_calibration_that_can_not_be_stored_is_an_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "calibrate", lambda self, calibration: False)
    monkeypatch.setattr(
        calibrating, "_complete", lambda medians: {"L1, 1 thread": [[[1.0, 1.0]] * 2]}
    )
    monkeypatch.setattr(calibrating, "_cases", lambda caches: [])
    monkeypatch.setattr(calibrating, "_fitting", lambda cases, seconds: cases)
    with pytest.raises(mk.InputError, match=r"host-1.json can't be written"):
        mk.calibrate(seconds=0.01)


def test_the_largest_bandwidths_are_kept_until_the_next_boot(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(small.VARIABLE, raising=False)
    host = this_host()
    assert host.best_rates("2 auto", {"load": 20.0, "triad": 18.0}) == {
        "load": 20.0,
        "triad": 18.0,
    }
    best = {"load": 35.0, "triad": 18.0}
    assert host.best_rates("2 auto", {"load": 35.0, "triad": 9.0}) == best
    assert host.best_rates("2 auto", {"load": 15.0, "triad": 9.0}) == best
    assert host.best_rates("1 auto", {"load": 9.0}) == {"load": 9.0}
    document = json.loads(host.path.read_text())
    assert document["ceilings"] == {"2 auto": best, "1 auto": {"load": 9.0}}
    host.path.write_text(json.dumps({**document, "boot": "another"}))
    assert host.best_rates("2 auto", {"load": 15.0, "triad": 9.0})["load"] == 15.0


def test_throughputs_of_cores_are_kept_until_the_next_boot(cache: Path) -> None:
    host = this_host()
    for counts in ({"1": {87: 2}}, {"1": {87: 1, 60: 5}, "2": {70: 1}}):
        host._file.put((RATES, counts))
    assert Host(host.path)._file.get(RATES) == {"1": {87: 3, 60: 5}, "2": {70: 1}}
    written = host.path.stat().st_mtime_ns
    host.cores.add([math.nan], "1")
    host.save()
    assert host.path.stat().st_mtime_ns == written


def test_a_process_stores_the_throughputs_of_its_cores(cache: Path) -> None:
    how = "elements=512, threads=1, budget_s=1, ci=1e-9, max_samples=10**7"
    measure = f"import memkern as mk; mk.stream('copy', {how}).measure()"
    subprocess.run([sys.executable, "-c", measure], check=True)
    (which,) = known = File(this_host().path).get(RATES)
    assert 0.5 < CoreRates(known).best(which) < 20
