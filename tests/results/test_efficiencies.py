"""Speed-up and efficiency over ranks, from synthetic records."""

import math
from typing import Any

import numpy as np
import pytest
from checking import refused
from in_turns import over_ranks, results

import memkern as mk
from memkern.statistics import ratio_interval


def turns(counts: tuple[int, ...] = (1, 2, 4), **more: Any) -> list[dict[str, Any]]:
    """Return five turns of strong scaling with a loss of 10 % per doubling; times drift."""
    rng = np.random.default_rng(1)
    return [
        over_ranks(
            "raider.triad",
            ranks,
            turn,
            0.1 * 1.3**turn / 1.8 ** math.log2(ranks) * math.exp(0.005 * rng.standard_normal()),
            **more,
        )
        for turn in range(5)
        for ranks in counts
    ]


def test_speed_ups_are_those_of_the_turns():
    rows = turns()
    found = mk.efficiencies(results(rows))
    assert found["ranks"].tolist() == found["ranks_per_node"].tolist() == [1, 2, 4]
    assert found["speed_up"].tolist() == pytest.approx([1.0, 1.8, 3.24], rel=0.02)
    assert found["efficiency"].tolist() == pytest.approx([100, 90, 81], rel=0.02)
    assert found[["low", "speed_up", "high"]].iloc[0].tolist() == [1.0, 1.0, 1.0]
    row = found.iloc[1]
    one, two = ([r["time_median_s"] for r in rows if r["ranks"] == n] for n in (1, 2))
    expected = ratio_interval(one, two, paired=True)
    assert [row["low"], row["speed_up"], row["high"]] == pytest.approx(
        [expected.low, expected.ratio, expected.high]
    )
    # The drift over the turns, a factor of 2.9, cancels.
    assert row["high"] - row["low"] < 0.05
    assert (row["efficiency_low"], row["efficiency_high"]) == pytest.approx(
        (50 * row["low"], 50 * row["high"])
    )
    assert (row["quantity"], row["turns"], row["disturbed"]) == ("GB/s", 5, False)
    assert row["value"] == pytest.approx(1.8 / (0.1 * 1.3**2), rel=0.02)
    wide = mk.efficiencies(results(rows), level=0.99).iloc[1]
    assert wide["low"] < row["low"] < row["high"] < wide["high"]


def test_weak_scaling_counts_the_work_of_all_ranks():
    rows = [
        over_ranks(
            "raider.triad",
            ranks,
            turn,
            0.1 * 1.1 ** math.log2(ranks / 2),
            scaling="weak",
            bytes_B=ranks * 10**9,
        )
        for turn in range(3)
        for ranks in (2, 4, 8)
    ]
    found = mk.efficiencies(results(rows))
    # The smallest number of ranks is the baseline.
    assert found["speed_up"].tolist() == pytest.approx([1.0, 2 / 1.1, 4 / 1.21])
    assert found["efficiency"].tolist() == pytest.approx([100, 100 / 1.1, 100 / 1.21])
    assert found["value"].tolist() == pytest.approx([20, 40 / 1.1, 80 / 1.21])


def test_cases_modes_bindings_and_threads_have_rows_of_their_own():
    variants: list[dict[str, Any]] = [
        {},
        {"scaling": "weak"},
        {"bind": "core"},
        {"comm": "shmem"},
        {"threads": 2},
        {"case_id": "def-strong-1", "name": "large", "scaling_size": 10**8},
        {"kernel": "raider.copy"},
    ]
    rows = [row for more in variants for row in turns((1, 2), **more)]
    found = mk.efficiencies(results(rows))
    assert len(found) == 2 * len(variants)
    assert found["ranks"].tolist() == [1, 2] * len(variants)
    size = 8_700_000
    columns = ["scaling", "bind", "comm", "threads", "size", "kernel"]
    assert found[columns].iloc[::2].to_numpy().tolist() == [
        ["strong", "", "mpi", 1, size, "raider.triad"],
        ["weak", "", "mpi", 1, size, "raider.triad"],
        ["strong", "core", "mpi", 1, size, "raider.triad"],
        ["strong", "", "shmem", 1, size, "raider.triad"],
        ["strong", "", "mpi", 2, size, "raider.triad"],
        ["strong", "", "mpi", 1, 10**8, "raider.triad large"],
        ["strong", "", "mpi", 1, size, "raider.copy"],
    ]


def test_disturbed_turns_do_not_count():
    rows = turns((1, 2))
    rows[3] |= {"time_median_s": 10.0, "disturbed": True}
    found = mk.efficiencies(results(rows))
    assert found["turns"].tolist() == [5, 4]
    assert found["speed_up"].tolist() == pytest.approx([1.0, 1.8], rel=0.02)
    for k in (5, 7):
        rows[k] |= {"disturbed": True}
    row = mk.efficiencies(results(rows)).iloc[1]
    assert row["disturbed"] and row["turns"] == 2
    assert np.isnan([row["low"], row["high"], row["efficiency_low"]]).all()


def test_oversubscribed_ranks_are_marked_and_nothing_is_compared_with_them():
    rows = turns()
    for row in rows:
        row["oversubscribed"] = row["ranks"] != 2
    found = mk.efficiencies(results(rows))
    assert found["oversubscribed"].tolist() == [True, False, True]
    assert found["speed_up"].tolist() == pytest.approx([1 / 1.8, 1.0, 1.8], rel=0.02)
    assert found["efficiency"].iloc[0] == pytest.approx(100 / 0.9, rel=0.02)


def test_files_add_their_turns_and_turns_without_a_counterpart_do_not_count():
    twice = mk.efficiencies(results(turns()) + results(turns()))
    assert twice["turns"].tolist() == [10, 10, 10]
    # Incomplete turns, as after an interruption.
    assert mk.efficiencies(results(turns()[:5]))["turns"].tolist() == [2, 2, 1]
    assert mk.efficiencies(results(turns()[1:3]))["ranks"].tolist() == [2, 4]


def test_other_records_are_refused():
    none = [{k: v for k, v in row.items() if k != "scaling"} for row in turns()]
    for rows in ([], none, turns(valid=False)):
        with refused("no valid record over ranks: `memkern scaling`"):
            mk.efficiencies(results(rows))
    with refused("level must lie between 0 and 1"):
        mk.efficiencies(results(turns()), level=0.0)
