"""Slowdowns caused by neighbours, from synthetic records."""

import math
from typing import Any

import numpy as np
import pytest
from checking import refused
from in_turns import beside_one, results

import memkern as mk
from memkern.results.comparison import label_of
from memkern.results.slowdowns import ENTRIES, entry, with_half_width
from memkern.statistics import ratio_interval


def turns(beside: float = 1.5, number: int = 7, **more: Any) -> list[dict[str, Any]]:
    """Return records of a triad alone and with a load, in `beside` times the time; times drift."""
    rng = np.random.default_rng(1)
    found = []
    for turn in range(number):
        time_s = 0.1 * 1.3**turn
        noise = math.exp(0.01 * rng.standard_normal())
        found.append(beside_one("stream.triad", "", turn, time_s))
        found.append(
            beside_one("stream.triad", "loops.load", turn, beside * time_s * noise, **more)
        )
    return found


def test_the_slowdown_and_its_interval_are_those_of_the_pairs():
    rows = turns()
    (row,) = mk.slowdowns(results(rows)).to_dict("records")
    times = np.array([r["time_median_s"] for r in rows]).reshape(-1, 2)
    expected = ratio_interval(times[:, 1], times[:, 0], paired=True)
    assert (row["ratio"], row["low"], row["high"]) == (expected.ratio, expected.low, expected.high)
    # The drift over the turns, a factor of 4.8, cancels.
    assert row["low"] < 1.5 < row["high"]
    assert row["high"] - row["low"] < 0.05
    assert (row["platform"], row["threads"]) == ("Machine, 2 threads", 2)
    assert (row["kernel"], row["beside"], row["turns"]) == ("stream.triad", "loops.load", 7)
    assert row["quantity"] == "GB/s" and not row["disturbed"]
    assert row["alone"] == pytest.approx(1 / (0.1 * 1.3**3))
    assert row["together"] == pytest.approx(row["alone"] / row["ratio"])
    wide = mk.slowdowns(results(rows), level=0.99)
    assert wide["low"].item() < row["low"] < row["high"] < wide["high"].item()
    # The pairs do not depend on the order of the records.
    again = mk.slowdowns(results(rows[::-1]))
    assert again["ratio"].item() == pytest.approx(row["ratio"])


def test_disturbed_turns_do_not_count():
    rows = turns()
    rows[3] |= {"time_median_s": 10.0, "disturbed": True}
    rows[4] |= {"disturbed": True}
    (row,) = mk.slowdowns(results(rows)).to_dict("records")
    assert (row["turns"], row["disturbed"]) == (5, False)
    assert row["ratio"] == pytest.approx(1.5, rel=0.02)
    # With fewer than half of the turns there is no interval.
    for k in (6, 8):
        rows[k] |= {"disturbed": True}
    (row,) = mk.slowdowns(results(rows)).to_dict("records")
    assert (row["turns"], row["disturbed"]) == (3, True)
    assert math.isnan(row["low"]) and math.isnan(row["high"])
    assert row["ratio"] == pytest.approx(1.5, rel=0.02)
    # If all turns are disturbed, the ratio is taken from all of them.
    (row,) = mk.slowdowns(results([r | {"disturbed": True} for r in rows])).to_dict("records")
    assert (row["turns"], row["disturbed"]) == (0, True)
    assert row["ratio"] > 1.6
    # One turn is too few.
    (row,) = mk.slowdowns(results(turns(number=1))).to_dict("records")
    assert (row["turns"], row["disturbed"]) == (1, True)


def test_every_neighbour_has_a_row_in_the_order_of_the_records():
    rows = turns()
    for turn in range(7):
        rows.append(beside_one("latency.chase", "", turn, 1e-3, name="far", ns_per_access=100.0))
        for beside in ("stream.triad", "loops.load"):
            more = {"name": "far", "ns_per_access": 120.0}
            rows.append(beside_one("latency.chase", beside, turn, 1.2e-3, **more))
        # Neither measured together with a neighbour, nor valid.
        rows.append(beside_one("loops.sum", "", turn, 1.0))
        rows.append(beside_one("stream.triad", "loops.dot", turn, 1.0, valid=False))
    rows.append({k: v for k, v in rows[0].items() if k != "beside"})
    found = mk.slowdowns(results(rows))
    assert list(zip(found["kernel"], found["beside"], strict=True)) == [
        ("stream.triad", "loops.load"),
        ("latency.chase far", "stream.triad"),
        ("latency.chase far", "loops.load"),
    ]
    assert list(found["quantity"]) == ["GB/s", "ns per access", "ns per access"]
    assert found["alone"].iloc[1] == pytest.approx(100.0)
    assert found["together"].iloc[1] == pytest.approx(120.0)


def test_files_of_one_case_add_their_turns_and_machines_differ():
    twice = mk.slowdowns(results(turns()) + results(turns()))
    assert twice["turns"].tolist() == [14]
    other = [r | {"environment_id": "f", "platform": "Other, 2 threads"} for r in turns(2.0)]
    both = mk.slowdowns(results(turns()) + results(other))
    assert both["turns"].tolist() == [7, 7]
    assert both["ratio"].tolist() == pytest.approx([1.5, 2.0], rel=0.02)


def test_records_without_pairs_are_refused():
    for rows in ([], turns()[::2], turns()[1::2], turns(valid=False)):
        with refused("there is no case that was measured alone and beside a neighbour"):
            mk.slowdowns(results(rows))
    with refused("level must lie between 0 and 1"):
        mk.slowdowns(results(turns()), level=1.0)


def test_half_of_an_interval_is_neither_0_nor_more_than_the_value():
    assert with_half_width(98.6, 97.0, 100.3, 0) == "99 ±2"
    assert with_half_width(98.6, 97.0, 101.0, 0) == "99 (97 to 101)"
    assert with_half_width(98.6, 98.59, 98.61, 0) == "99 ±1"
    assert with_half_width(1.99, 0.5, 4.4, 2) == "1.99 (0.50 to 4.40)"
    assert with_half_width(1.9, math.nan, math.nan, 2) == "1.90 ±?"


def test_entries_tell_what_is_known():
    row = {"ratio": 1.432, "low": 1.40, "high": 1.46, "disturbed": False}
    assert entry(row) == "1.43 ±0.03"
    assert entry(row | {"low": 0.98}) == "(1.43 (0.98 to 1.46))"
    assert entry(row | {"low": 1.431, "high": 1.433}) == "1.43 ±0.01"
    assert entry(row | {"low": 1.432 / 129, "high": 1.432 * 129}) == "(1.43 (0.01 to 184.73))"
    assert entry(row | {"low": math.nan, "high": math.nan, "disturbed": True}) == "1.43 *"
    assert "parentheses" in ENTRIES and "*" in ENTRIES


def test_labels():
    assert label_of("stream.triad") == "stream.triad"
    assert label_of("bs.bs5", "release", "x") == "bs.bs5@release x"
    assert label_of("stream.triad", None, math.nan) == "stream.triad"


def test_comparisons_distinguish_a_case_from_the_same_beside_a_neighbour():
    a, b = results(turns(1.5)), results(turns(3.0))
    frame = mk.compare(a, b)
    assert dict(zip(frame["beside"], frame["ratio"], strict=True)) == pytest.approx(
        {"": 1.0, "loops.load": 0.5}, rel=0.02
    )
    # If the neighbours differ, they are compared.
    other = [r | {"beside": "loops.dot"} for r in turns(3.0)[1::2]]
    assert mk.compare(results(turns(1.5)[1::2]), results(other)).attrs["compared"] == ["beside"]
