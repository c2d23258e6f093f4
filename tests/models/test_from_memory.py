"""Sizes that count as "from memory", the value of each kernel there, and contradictions."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from plotting import KIB, MIB, Results, frame
from streaming_figure_records import OWN, raider, record, stream

from memkern.models.memory import (
    NONTEMPORAL,
    ORDINARY,
    contradictions,
    from_memory,
    memory_values,
    plateau_B,
    stores,
)
from memkern.plots import sections
from memkern.plots.frames import frame_of

LAST = 16 * MIB
SIZES = 16 * KIB * 2 ** np.arange(16)


def curve(size, cache_B=LAST, cached=150.0, memory=30.0):
    """Return the bandwidth of a machine whose last cache serves the part of the data that fits."""
    if size <= cache_B:
        return cached
    return size / ((size - cache_B) / memory + cache_B / cached)


def sweep(kernel="stream.copy", cache_B=LAST, sizes=SIZES, **other):
    return [record(kernel, int(size), curve(size, cache_B), **other) for size in sizes]


def known(rows):
    return frame_of(Results(rows))


def test_a_plateau_begins_where_the_caches_no_longer_help():
    bandwidths = [curve(size) for size in SIZES]
    begin = plateau_B(SIZES, bandwidths, LAST)
    beyond = begin <= SIZES
    level = np.median(np.array(bandwidths)[beyond])
    assert 4 * LAST <= begin <= 8 * LAST and level == pytest.approx(31, rel=0.05)
    # If a size was measured twice, the better value counts, in any order.
    twice = [*SIZES, *SIZES[::-1]], [*bandwidths, *(0.1 * np.array(bandwidths[::-1]))]
    assert plateau_B(*twice, LAST) == begin


@pytest.mark.parametrize(
    ("sizes", "cached"),
    [
        (SIZES[:-3], 150.0),  # still falls at the end of the sweep
        (SIZES[SIZES <= LAST], 150.0),  # ends within the caches
        (SIZES, 30.0),  # no cache is faster
        (SIZES[-2:], 150.0),
        (SIZES[-1:] * np.array([1.0, 1.1, 1.2, 1.3]), 150.0),  # range too small
    ],
)
def test_sweeps_without_a_plateau(sizes, cached):
    bandwidths = [curve(size, cached=cached) for size in sizes]
    assert math.isnan(plateau_B(sizes, bandwidths, LAST))


def test_a_plateau_of_the_last_cache_is_none_of_memory():
    sizes = SIZES[SIZES <= LAST]
    bandwidths = np.where(sizes > MIB, 60.0, 150.0)
    assert math.isnan(plateau_B(sizes, bandwidths, LAST))
    assert plateau_B(sizes, bandwidths, MIB) == 2 * MIB


def test_the_plateau_follows_the_caches_as_measured():
    # The system reports 16 MiB; the hypervisor provides 2 MiB or 64 MiB.
    for cache_B in (2 * MIB, 64 * MIB):
        sizes = 16 * KIB * 2 ** np.arange(18)
        since = from_memory(known(sweep(cache_B=cache_B, sizes=sizes)))[OWN]
        assert since.how == "plateau" and 4 * cache_B <= since.least_B <= 16 * cache_B


def test_without_a_sweep_it_is_four_times_the_caches_or_the_largest_size():
    rows = [record("stream.copy", size, 30.0) for size in (MIB, 32 * MIB, 64 * MIB)]
    assert from_memory(known(rows))[OWN] == (4 * LAST, "caches")
    assert from_memory(frame(rows))[OWN].how == "largest"
    first = {how: sections["streaming"](how(rows)).findings[0] for how in (known, frame)}
    assert first[known].startswith("From memory (64 MiB or more, 4 times the last-level caches")
    assert first[frame].startswith("At the largest size (64 MiB): copy 30 GB/s with ordinary")


def test_disturbed_records_and_non_temporal_stores_show_no_plateau():
    rows = known(sweep())
    disturbed = rows.assign(disturbed=rows["footprint_B"] > 64 * MIB)
    disturbed.attrs = rows.attrs
    assert from_memory(disturbed)[OWN].how == "caches"
    assert from_memory(known(sweep(variant="nt")))[OWN].how == "caches"


def test_names_of_kinds_of_stores():
    rows = [
        record("stream.copy", MIB, 1.0),
        record("stream.copy", MIB, 1.0, variant="nt"),
        record("loops.load", MIB, 1.0),
        record("stream.copy", MIB, 1.0, variant="simt", backend="cuda"),
    ]
    assert stores(frame(rows)).tolist() == [ORDINARY, NONTEMPORAL, "", ""]


def test_all_findings_have_the_same_value():
    rows = [
        *(row for kernel in ("stream.copy", "stream.triad") for row in sweep(kernel)),
        *(record("stream.triad", int(size), 43.0, variant="nt") for size in SIZES[-3:]),
        *raider(),
    ]
    text = " ".join(sections["streaming"](known(rows)).findings)
    assert "From memory (128 MiB or more, beyond which bandwidth no longer drops" in text
    assert "triad 43 GB/s with non-temporal stores and 31.6 GB/s with ordinary stores" in text
    assert "31.6 GB/s in memory" in text
    # Arrays of ten million elements are from memory, where the regular triad has one value.
    assert "(from memory)" in text and "the regular triad with ordinary stores (31.6 GB/s)" in text
    held = [
        row for row in rows if row.get("elements") != 10_000_000 or "raider" not in row["kernel"]
    ]
    text = " ".join(sections["streaming"](known(held)).findings)
    assert "(22.9 MiB, which the caches hold partly or entirely)" in text


def test_values_are_those_of_the_first_family_and_of_undisturbed_records():
    rows = [
        *sweep("stream.triad"),
        record("raider.triad", 256 * MIB, 20.0),
        record("raider.copy", 256 * MIB, 25.0),
        record("stream.triad", 512 * MIB, 99.0, disturbed=True),
    ]
    rows = known(rows)
    values = memory_values(rows, from_memory(rows)).set_index("operation")
    assert values.loc["stream.triad", "kernel"] == "stream.triad"
    assert values.loc["stream.triad", "bandwidth_GBps"] == pytest.approx(31.6, abs=0.1)
    assert values.loc["stream.copy", "kernel"] == "raider.copy"
    assert not values["disturbed"].any()


def test_contradictions_are_found():
    agree = [*sweep("stream.triad"), record("raider.triad", 256 * MIB, 33.0)]
    assert contradictions(known(agree)) == {}
    (one,) = contradictions(known([*agree, record("loops.triad", 256 * MIB, 43.0)]))
    assert one == (
        f"triad from memory with ordinary stores on {OWN}: 31.6 GB/s as stream.triad and 43 GB/s "
        "as loops.triad are 36 % apart, though definition and size are the same."
    )
    for other in (
        {"variant": "nt"},
        {"dtype": "float32"},
        {"pages_requested": "4k"},
        {"disturbed": True},
    ):
        rows = known([*agree, record("loops.triad", 256 * MIB, 43.0, **other)])
        assert contradictions(rows) == {}, other
    # Values whose intervals overlap do not contradict each other.
    for width, found in ((0.10, 1), (0.20, 0)):
        wide = [row | {"time_min_ci_relative": width} for row in agree]
        other = record("loops.triad", 256 * MIB, 43.0, time_min_ci_relative=width)
        assert len(contradictions(known([*wide, other]))) == found
    # In the caches, values at different sizes may differ.
    assert contradictions(known([*agree, record("loops.triad", 20 * MIB, 300.0)])) == {}


def test_repeats_and_ceilings_contradict_too():
    rows = [row | {"case_id": str(i)} for i, row in enumerate(stream(sizes=[MIB, 2 * MIB]))]
    assert contradictions(known(rows)) == {}
    (one,) = contradictions(known([*rows, rows[0] | {"bandwidth_GBps": 100.0}]))
    assert "100 GB/s as repeat 2 and 200 GB/s as repeat 1 are 100 % apart" in one
    # On another machine the same case is no repeat.
    other = rows[0] | {"platform": "Another, 4 threads", "bandwidth_GBps": 100.0}
    assert contradictions(known([*rows, other])) == {}
    rows = [row | {"bandwidth_median_GBps": row["bandwidth_GBps"]} for row in sweep("loops.load")]
    product = record("spmv.crs", 256 * MIB, 20.0, load_GBps=20.0)
    (one,) = contradictions(known([*rows, product]))
    assert "load from memory" in one and "20 GB/s as ceiling of a roofline" in one
    # A ceiling is the best since the boot, which later records need not reach.
    assert contradictions(known([*rows, product | {"load_GBps": 50.0}])) == {}


def test_cases_that_contradict_each_other_are_judged_in_turns():
    def both(triad_s: float) -> pd.DataFrame:
        """Return records that are 36 % apart, with times in turns of cases of equal work."""
        times = {"stream.triad": 1e-3, "loops.triad": triad_s}
        rows = [*sweep("stream.triad"), record("loops.triad", 256 * MIB, 43.0)]
        work_B = 1e6  # of an invocation
        return known(
            [
                row
                | {"case_id": f"{row['kernel']} {row['footprint_B']}"}
                | {"time_min_s": work_B / row["bandwidth_GBps"] / 1e9}
                | {"turns_s": json.dumps({"now 0": [[times[row["kernel"]]] * 3] * 10})}
                for row in rows
            ]
        )

    assert contradictions(both(1e-3)) == {}
    ((one, pair),) = contradictions(both(0.8e-3)).items()
    assert "36 % apart (1.25 ± 0.01 times as fast in turns), though" in one
    assert [row["kernel"] for row in pair] == ["stream.triad", "loops.triad"]
