"""Rounds of trials, kept until the next boot so that equal commands choose equal variants."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern import host as choices
from memkern.engine.placing import preparing as variants
from memkern.engine.sampling import series as sampling
from memkern.host import this_host

# The baseline has a variant simd with newer releases of Highway only.
SECONDS = {"auto": 1e-3, "nt": 2e-3, "scalar": 3e-3, "simd": 3e-3}
CASE = mk.stream("copy", elements=4096, threads=1, isa="baseline")


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let candidates take 1 to 3 ms; return the number of trials of each."""
    found: Counter[str] = Counter()

    def sample(prepared: Any, judge: Any, rows: Any, *others: Any, **options: Any) -> None:
        names = [variant for variant, _ in options["candidates"]]
        found.update({*names})
        rows[:] = 0.0
        rows[:, 0] = [SECONDS[variant] for variant in names]

    monkeypatch.setattr(sampling, "sample", sample)
    return found


def test_a_choice_begins_with_earlier_rounds(tries):
    assert CASE.prepare().obtained["variant"] == "auto"
    name = variants.name_of(CASE)
    rounds = this_host().choices.known(name)
    assert [round(np.exp(x), 6) for x in rounds[0].values()] == pytest.approx(
        [SECONDS[key.split("/")[0]] for key in rounds[0]]
    )
    # All candidates are tried again, which can correct a wrong choice.
    before = tries["scalar"]
    CASE.prepare()
    assert tries["scalar"] > before
    for _ in range(10):
        CASE.prepare()
    assert len(this_host().choices.known(name)) == choices._MOST_ROUNDS


def test_earlier_rounds_count_as_much_as_new_ones(tries):
    case = CASE.with_(pin="compact")
    name = variants.name_of(case)
    tried = {"auto/baseline": 0.0, "nt/baseline": -1.0, "scalar/baseline": 2.0}
    rounds = [{key: tried.get(key, 2.0) for key in map("/".join, CASE.prepare().candidates)}] * 9
    for one in rounds:
        this_host().choices.add(name, one)
    assert case.prepare().obtained["variant"] == "nt"
    # New rounds correct a wrong choice.
    for _ in range(4):
        chosen = case.prepare().obtained["variant"]
    assert chosen == "auto"


def test_other_cases_and_parts_have_rounds_of_their_own():
    names = {
        variants.name_of(case, parts)
        for case in (CASE, mk.stream("copy", elements=8192), CASE.with_(pages="4k"))
        for parts in (0, 512)
    }
    assert len(names) == 6
    assert variants.name_of(CASE.with_(budget_s=9.0)) in names


def test_the_last_rounds_of_the_last_cases_are_kept():
    known = choices.Choices({"a": [{"simd/avx2": float(k)} for k in range(12)]})
    known.add("a", {"simd/avx2": 12.0})
    assert [one["simd/avx2"] for one in known.known("a")] == [float(k) for k in range(1, 13)]
    assert known.added == {"a": [{"simd/avx2": 12.0}]}
    for number in range(choices._MOST_CASES):
        known.add(f"b{number}", {})
    assert known.known("a") == [] and len(known.added) == choices._MOST_CASES


def test_trials_of_parts_use_the_rounds_of_parts():
    prepared = CASE.prepare()
    parts = variants._Parts(prepared, 8)
    assert variants._Trials(prepared)._name != variants._Trials(prepared, parts)._name
