"""Figures of merit: which records they are of, their intervals, and their limits."""

import math

import pytest
from merit_records import FOOTPRINT_B, record, records, results, streams

from memkern.models.merit import figures_of_merit
from memkern.plots.frames import with_samples


def figures(rows=None):
    return {f.name: f for f in figures_of_merit(with_samples(results(rows)))}


def test_each_is_of_the_record_that_shows_the_machine():
    found = figures()
    assert {name: (pytest.approx(f.value), f.unit) for name, f in found.items()} == {
        "copy": (100, "GB/s"), "triad": (105, "GB/s"), "load": (110, "GB/s"),
        "latency": (110, "ns"), "gather_stride_1": (95, "GB/s"), "gather_stride_8": (12, "GB/s"),
        "atomics_private": (1.5, "GAMS"), "atomics_shared": (0.05, "GAMS"), "launch": (2, "µs"),
    }  # fmt: skip
    assert found["copy"].how == "non-temporal stores" and found["load"].how == ""
    assert list(found) == list(figures(records()[::-1]))


def test_intervals_and_typical_values_are_those_of_the_record():
    found = figures()
    assert found["copy"].interval == pytest.approx((80, 100 / 0.9))
    assert found["copy"].typical == pytest.approx(100 / 1.1)
    # 5 and 95 % of samples that are spread evenly over 20 %.
    assert found["copy"].typical_range == pytest.approx((100 / 1.19, 100 / 1.01))
    assert found["launch"].interval == pytest.approx((1.8, 2.5))
    assert found["latency"].typical == pytest.approx(110) == found["latency"].value


def test_typical_ranges_end_at_the_95th_percentile_without_samples():
    rows = [record("bs.bs0", 2e-6, time_p95_s=3e-6)]
    frame = with_samples(results(rows)).drop(columns="samples_s")
    (launch,) = figures_of_merit(frame)
    assert launch.typical_range == pytest.approx((2, 3))


def test_limits_follow_from_loads_and_stores_and_the_bytes_of_memory():
    found = figures()
    # Loads with 110 GB/s leave the stores of the triad a third of its bytes in the rest.
    stores = (1 / 3) / (1 / 105 - (2 / 3) / 110)
    assert found["copy"].limit == pytest.approx(1 / (0.5 / 110 + 0.5 / stores))
    assert found["copy"].share == pytest.approx(100 / found["copy"].limit)
    assert found["gather_stride_1"].limit == pytest.approx(110)
    for name in ("load", "triad", "latency", "launch"):
        assert math.isnan(found[name].limit) and math.isnan(found[name].share)


def test_there_is_no_limit_without_its_bandwidths_or_below_the_value():
    assert math.isnan(figures(records()[:2])["copy"].limit)
    faster = streams("spatter.gather", 130.0, FOOTPRINT_B, 0, pattern="UNIFORM:8:1", delta="8")
    assert math.isnan(figures([*records(), faster])["gather_stride_1"].limit)


@pytest.mark.parametrize("column", ["valid", "disturbed"])
def test_wrong_records_do_not_count_and_disturbed_ones_only_alone(column):
    rows = records()
    best = {"valid": False} if column == "valid" else {"disturbed": True}
    rows += [streams("loops.load", 500.0, FOOTPRINT_B, 0, **best)]
    assert figures(rows)["load"].value == pytest.approx(110)
    only = figures(rows[-1:])
    assert ("load" in only) is (column == "disturbed") and all(f.disturbed for f in only.values())


def test_records_of_other_kernels_have_none():
    assert figures([record("dw.hop", 1.0)]) == {}


def test_records_of_older_versions_have_those_that_need_no_multiple_of_caches():
    older = [
        {name: value for name, value in row.items() if name != "caches_multiple"}
        for row in records()
    ]
    found = figures(older)
    assert found["copy"].value == pytest.approx(100) and "latency" not in found
