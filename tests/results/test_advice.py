"""Advice leaves out what records already have."""

import inspect
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern import reference
from memkern.cli.measuring import tell_host
from memkern.machine.caches import PUBLISHED_LATENCIES
from memkern.models import answers
from memkern.results import hosts
from memkern.results.advice import ADVICE, advised
from memkern.spec import registry
from memkern.studies import doctor_findings

# A record without anything that is advised.
NOTHING: dict[str, Any] = {
    "kernel": "stream.triad", "backend": "openmp", "threads": 2, "pages": "4k", "variant": "auto",
    "variant_requested": "auto", "isa": "avx2", "isa_requested": "avx2", "prefetch": 0,
    "unroll": 0, "repetition": "fork", "dtype": "float64", "placements": 5, "numa_requested":
    "first-touch", "pin_requested": "auto", "tune_step": "", "environment_id": "e1",
    "machine_file": "here", "valid": True, "disturbed": False, "misplaced_share": 0.5,
    "doctor": "", "state": "quiet", "shared_with": "", "placement_sd": 0.3, "footprint_B": 2**26,
    "bandwidth_median_GBps": 10.0, "ns_per_access": 300.0,
}  # fmt: skip
MACHINE = {"e1": {"run": {"cpus_allowed": "0-3"}, "machine": {"threads": 8}}}
# Columns of records that already have it.
HAS: dict[str, list[dict[str, Any]]] = {
    "more threads": [{"threads": 4}],
    "fewer threads": [{"threads": 1}],
    "other processors": [{"pin_requested": "0,1"}],
    "huge pages": [{"pages": "thp"}, {"pages": "hugetlb-2m"}],
    "node": [{"numa_requested": "node:0"}],
    "placements": [{"placements": 20}],
    "prefetch": [{"prefetch": 16}],
    "smaller type": [{"dtype": "float32"}],
    "non-temporal stores": [{"variant": "nt"}, {"variant_requested": "best"}],
    "vectors": [{"variant": "simd"}, {"variant": "nt"}, {"variant_requested": "best"}],
    "wider vectors": [{"isa_requested": "best"}],
    "unrolling": [{"unroll": 4}],
    "no barrier": [{"repetition": "free"}],
    "search": [{"tune_step": "start"}],
}


def sentences(record: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Return all that is advised about a record."""
    bounds = [
        {**record, "bound": bound, "roofline_min_fraction": share}
        for bound in ("memory", "core", "L2")
        for share in (0.3, 0.95)
    ]
    told = [answers.limit_sentence([one], MACHINE) for one in bounds]
    told += hosts.memory_notes(record).values()
    for kernel, sd in (("stream.triad", 0.3), ("latency.chase", 0.001)):
        of_doctor = {**record, "kernel": kernel, "placement_sd": sd, "misplaced_share": 0.0}
        measurement: Any = SimpleNamespace(record=of_doctor, valid=True, disturbed=False)
        told.append(doctor_findings.measured(kernel, measurement, "").advice)
    tell_host(mk.ResultSet([{**record, "disturbed": True}], [np.ones(1)], MACHINE), quiet=False)
    return "\n".join([*told, capsys.readouterr().err])


@pytest.mark.parametrize("name", ADVICE)
def test_what_a_record_has_is_not_advised(name, capsys):
    text = ADVICE[name][1]
    assert text in sentences(NOTHING, capsys)
    for columns in HAS[name]:
        assert text not in sentences(NOTHING | columns, capsys)


def test_no_other_advice_names_options():
    for module in (answers, hosts, doctor_findings.measured):
        assert not re.findall(r" --[a-z]+", inspect.getsource(module))


def test_advice_that_nothing_follows_is_left_out(monkeypatch):
    every = NOTHING | {column: value for one in HAS.values() for column, value in one[0].items()}
    every |= {"threads": 4, "bound": "memory", "roofline_min_fraction": 0.3}
    assert answers.limit_sentence([every], MACHINE).endswith("30% of the roofline by here")
    assert advised("; try ", [*ADVICE][:1], [every], (), MACHINE["e1"]) == ""
    # Software prefetches have no effect on chains of loads.
    chase = {**NOTHING, "kernel": "latency.chase"}
    assert advised("try ", ["prefetch", "huge pages"], [chase]) == "try --pages thp"
    # It imports the kernels of no other family, which would take long in each busy run.
    monkeypatch.setattr(registry, "family_modules", None)
    # One of several records lacks it.
    assert (
        advised("try ", ["huge pages"], [NOTHING, every], ["a", "b"]) == "try --pages thp, a or b"
    )


def test_the_limits_of_a_latency_are_outside_of_the_published_ones():
    found = [row["value"] for row in reference.rows("published-figures") if row["unit"] == "ns"]
    assert f"{min(found):g} to {max(found):.0f} ns" in PUBLISHED_LATENCIES
    assert min(found) > answers.LEAST_MEMORY_S * 1e9
    assert max(found) < doctor_findings._MOST_LATENCY_NS
