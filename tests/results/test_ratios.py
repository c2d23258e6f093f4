"""Ratios of records, from samples in turns where there are any."""

import json
import math
from typing import Any

import numpy as np
import pytest

from memkern.errors import InputError
from memkern.results.ratios import Ratio, asked, in_turns, ratio

RATE = "bandwidth_GBps"


def record(name: str, GBps: float, time_s: float, **more: Any) -> dict[str, Any]:
    return {"case_id": name, RATE: GBps, "time_min_s": time_s, **more}


def turns(**times: list[list[float]]) -> str:
    return json.dumps(times)


def test_a_ratio_in_turns_is_of_rates_for_equal_work():
    """The second case moves half the bytes of the first one."""
    base = record("a", 20.0, 1e-3, turns_s=turns(x=[[2e-3] * 3] * 8))
    other = record("b", 10.0, 1e-3, turns_s=turns(x=[[1.6e-3] * 3] * 8))
    found = ratio(other, base, RATE)
    assert found.in_turns and found.value == pytest.approx(0.5 * 2 / 1.6)
    assert found.half_width == pytest.approx(math.log1p(0.01))  # the least effect
    assert ratio(base, other, RATE).value == pytest.approx(1 / found.value)


def test_the_latest_common_turns_count():
    first, later, alone = ([[time] * 3] * 8 for time in (1e-3, 2e-3, 5e-3))
    base = record("a", 10.0, 1e-3, turns_s=turns(**{"1": first, "2": first, "3": alone}))
    other = record("b", 10.0, 1e-3, turns_s=turns(**{"1": first, "2": later}))
    assert ratio(other, base, RATE).value == pytest.approx(0.5)


@pytest.mark.parametrize("without", [None, math.nan, ""])
def test_without_common_turns_the_ratio_is_that_of_the_values(without):
    width = {"time_min_ci_relative": 0.1}
    base = record("a", 10.0, 1e-3, turns_s=turns(x=[[1e-3]] * 8), **width)
    for GBps, decided in ((12.0, False), (12.2, True), (8.3, False), (8.2, True)):
        found = ratio(record("b", GBps, 1e-3, turns_s=without, **width), base, RATE)
        assert not found.in_turns and found.value == pytest.approx(GBps / 10)
        assert found.decided == decided  # whether the intervals of the records overlap
    # A case is not measured in turns with itself.
    again = record("a", 12.0, 1e-3, turns_s=base["turns_s"], **width)
    assert not ratio(again, base, RATE).in_turns


def test_changes_of_the_host_between_placements_and_turns_cancel():
    rng = np.random.default_rng(1)
    speed = rng.lognormal(0, 0.5, (12, 3))
    base = speed * rng.lognormal(0, 0.01, speed.shape)
    other = 0.8 * speed * rng.lognormal(0, 0.01, speed.shape)
    other[3] *= 5  # a placement in which others interrupted one case, and a turn of each
    other[range(12), rng.integers(0, 3, 12)] *= 5
    found = in_turns(other, base)
    assert found.effect == pytest.approx(math.log(1 / 0.8), abs=found.half_width)
    assert found.half_width < 0.03


@pytest.mark.parametrize(
    ("value", "half_width", "text", "percent"),
    [
        (1.214, 0.024, "1.21 ± 0.03", "121 ± 3 %"),
        (0.163, 0.06, "0.16 ± 0.01", "16.3 ± 1.0 %"),
        (0.163, 0.1, "0.16 ± 0.02", "16 ± 2 %"),
        (1.0, 0.001, "1.00 ± 0.01", "100.0 ± 0.1 %"),
        (1.5, math.log(3), "1.50 (0.50 to 4.50)", "150 (50 to 450) %"),
        (1.5, 0.0, "1.50", "150 %"),
    ],
)
def test_a_ratio_as_text(value, half_width, text, percent):
    assert Ratio(value, half_width).text() == text
    assert Ratio(value, half_width).percent() == percent


def test_an_interval_that_contains_1_decides_nothing():
    assert Ratio(1.1, 0.05).decided and Ratio(1 / 1.1, 0.05).decided
    assert not Ratio(1.04, 0.05).decided and not Ratio(1 / 1.04, 0.05).decided


def test_the_ratios_that_functions_ask_for_are_grouped_by_their_base():
    a, b, c, d = (record(name, 10.0, 1e-3) for name in "abcd")

    def first(records: list[dict[str, Any]]) -> None:
        for other in (*records, b):
            ratio(other, a, RATE)

    def refused(_: object) -> None:
        raise InputError("there is no record")

    def last(_: object) -> None:
        ratio(d, b, RATE)
        ratio(c, c, RATE)
        ratio(b, c, RATE)  # both are in the first group, if that was asked for

    assert asked([first, refused, last], [b, c]) == [[a, b, c], [b, d]]
    assert asked([], []) == []
    # Ratios are asked for only meanwhile.
    ratio(b, a, RATE)
    assert asked([last], []) == [[b, d], [c, b]]
