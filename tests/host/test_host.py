"""What is known of this host until the next boot: sizes of caches, bandwidths, throughputs."""

import json
import math
import subprocess
import sys

import pytest

from memkern import small
from memkern.host import Host, this_host
from memkern.host.file import File
from memkern.host.rates import RATES, CoreRates
from memkern.machine import caches
from memkern.machine.caches import data_caches, ends, level_of

CACHES = [
    {"level": 1, "type": "data", "size_B": 32768, "instances": 2},
    {"level": 1, "type": "instruction", "size_B": 65536, "instances": 2},
    {"level": 2, "type": "unified", "size_B": 2**20, "instances": 2},
    {"level": 3, "type": "unified", "size_B": 2**25, "instances": 1},
]
DATA_CACHES = data_caches({"machine": {"caches": CACHES}})


@pytest.mark.parametrize(
    "footprint_B, threads, level",
    [
        (32768, 1, "L1"), (32769, 1, "L2"), (65536, 2, "L1"), (65536, 8, "L1"), (2**21, 2, "L2"),
        (2**21, 1, "L3"), (2**25, 2, "L3"), (2**25 + 1, 2, "memory"),
    ],
)  # fmt: skip
def test_the_level_of_a_footprint(footprint_B, threads, level):
    assert level_of(footprint_B, ends(DATA_CACHES, threads)) == level


def test_measured_sizes_of_caches_take_the_place_of_the_systems():
    machine = {"machine": {"caches": CACHES}, "measured_caches": {"sizes_B": {"L3": 2**22}}}
    found = data_caches(machine)
    assert [(c["level"], c["size_B"], c["source"]) for c in found] == [
        (1, 32768, "system"), (2, 2**20, "system"), (3, 2**22, "measured"),
    ]  # fmt: skip
    assert level_of(2**22 + 1, ends(found, 1)) == "memory"
    assert found[-1]["system_B"] == 2**25
    assert caches.last_level_B(machine) == 2**22
    assert caches.last_level_B({}) == 0


def test_the_largest_bandwidths_are_kept_until_the_next_boot(monkeypatch):
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


def test_throughputs_of_cores_are_kept_until_the_next_boot():
    host = this_host()
    for counts in ({"1": {87: 2}}, {"1": {87: 1, 60: 5}, "2": {70: 1}}):
        host._file.put((RATES, counts))
    assert Host(host.path)._file.get(RATES) == {"1": {87: 3, 60: 5}, "2": {70: 1}}
    written = host.path.stat().st_mtime_ns
    host.cores.add([math.nan], "1")
    host.save()
    assert host.path.stat().st_mtime_ns == written


def test_a_process_stores_the_throughputs_of_its_cores():
    how = "elements=512, threads=1, budget_s=1, ci=1e-9, max_samples=10**7"
    measure = f"import memkern as mk; mk.stream('copy', {how}).measure()"
    subprocess.run([sys.executable, "-c", measure], check=True)
    (which,) = known = File(this_host().path).get(RATES)
    assert 0.5 < CoreRates(known).best(which) < 20
