"""The choice of a variant: trials, the loss by a wrong choice, and rounds kept until the boot."""

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conditions_of_samples import conditions

import memkern as mk
from memkern import host as choices
from memkern.engine.placing import preparing as variants
from memkern.engine.placing.run import CaseRun
from memkern.engine.sampling import series as sampling
from memkern.engine.sampling.prepared import Prepared
from memkern.engine.sampling.series import Judge
from memkern.host import this_host


def test_variant_best_selects_a_candidate_and_records_it(case):
    record = case.with_(variant="best", runs=3).measure().record
    assert record["variant_requested"] == "best"
    assert (record["variant"], record["isa"]) in case.prepare().native.candidates()
    narrow = case.with_(variant="best", isa="baseline", runs=3).measure().record
    assert narrow["isa"] == "baseline"


def test_the_time_of_a_placement_excludes_the_choice_of_a_variant(monkeypatch, case):
    def slow(prepared: Any, candidates: list[Any]) -> tuple[Any, str]:
        time.sleep(0.3)
        return candidates[0], "trial"

    monkeypatch.setattr(variants, "fastest", slow)
    several = CaseRun(case.with_(variant="best", runs=None, budget_s=0.01, placements=2))
    first, second = several.place(), several.place()
    assert 0 < first.again_s < first.wall_s - 0.3
    assert 0 < second.again_s < second.wall_s


def scripted_trials(
    monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str, int], tuple[float, float]]
) -> Counter[str]:
    """Let samples have the time and the processor share given for a variant's n-th round."""
    calls: Counter[str] = Counter()

    def sample(
        prepared: Prepared, judge: Judge, out: np.ndarray, *others: Any, **options: Any
    ) -> None:
        candidates = options.get("candidates") or [(prepared.obtained["variant"],)] * len(out)
        names = [variant for variant, *_ in candidates]
        found = {variant: seconds(variant, calls[variant]) for variant in dict.fromkeys(names)}
        calls.update(found.keys())
        for row, variant in zip(out, names, strict=True):
            time_s, share = found[variant]
            row[-len(sampling.CONDITIONS) :] = conditions(share)
            row[: -len(sampling.CONDITIONS)] = time_s

    monkeypatch.setattr(sampling, "sample", sample)
    return calls


# Trials of whole invocations, of parts and then whole invocations, and of parts only.
@pytest.mark.parametrize("trial_s", [100.0, 1e-4, 1e-9])
@pytest.mark.usefixtures("disturbances", "machine")
def test_trials_of_all_lengths_are_judged_within_rounds(monkeypatch, trial_s):
    monkeypatch.setattr(variants, "_TRIAL_S", trial_s)
    case = mk.stream("copy", elements=2**21, threads=1)

    # All variants take 250 times as long from the second round on: no ratio changes.
    scripted_trials(
        monkeypatch, lambda variant, n: ((2 - (variant == "scalar")) * 4e-3 ** (n < 1), 1.0)
    )
    prepared = case.prepare()
    assert (prepared.obtained["variant"], prepared.how) == ("scalar", "trial")

    # Samples count if all of them are disturbed.
    scripted_trials(monkeypatch, lambda variant, _: (2e-3 - 1e-3 * (variant == "scalar"), 0.1))
    prepared = case.prepare()
    assert (prepared.obtained["variant"], prepared.how) == ("scalar", "trial")


@pytest.mark.usefixtures("disturbances")
def test_more_rounds_are_tried_while_two_candidates_are_not_told_apart(monkeypatch):
    monkeypatch.setattr(variants, "_TRIAL_S", 0.25)
    case = mk.stream("copy", elements=2**14, threads=1, isa="baseline")
    # The baseline has a variant simd with newer releases of Highway only.
    every = {"scalar": 2e-3, "simd": 2e-3, "auto": 1.02e-3, "nt": 1e-3}
    noise = {variant: np.random.default_rng([1, k]) for k, variant in enumerate(every)}

    def noisy(variant: str, _: int) -> tuple[float, float]:
        return every[variant] * noise[variant].lognormal(0, 0.05), 1.0

    calls = scripted_trials(monkeypatch, noisy)
    prepared = case.prepare()
    assert prepared.obtained["variant"] in ("auto", "nt")
    # A difference of 2 % needs more rounds than excluding the third candidate.
    assert calls["scalar"] <= 3 < min(calls["auto"], calls["nt"])
    assert 0 <= prepared.loss <= 0.05

    case = mk.stream("copy", elements=2**13, threads=1, isa="baseline")  # without earlier rounds
    calls = scripted_trials(monkeypatch, lambda variant, _: (every[variant], 1.0))
    prepared = case.prepare()
    assert (prepared.obtained["variant"], prepared.loss) == ("nt", 0.0)
    assert calls["nt"] == 3
    record = case.with_(runs=3).measure().record
    assert (record["variant"], record["variant_choice"]) == ("nt", "trial")
    assert record["variant_loss"] == 0.0


@pytest.mark.usefixtures("disturbances")
def test_each_candidate_has_a_sample_after_the_deadline():
    case = mk.stream("copy", elements=64, threads=1, isa="baseline")
    prepared = case.prepare()
    trials = variants._Trials(prepared)
    prepared.deadline = 0.0
    candidates = prepared.candidates
    assert len(candidates) > 1
    found = trials._round(candidates, 2)
    assert [*found] == ["/".join(one) for one in candidates]
    assert all(map(math.isfinite, found.values()))


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([(9.0, 0), (1.0, 0), (2.0, 0), (3.0, 0), (4.0, 0)], 1.75),
        ([(9.0, 0), (2.0, 1), (4.0, 0), (3.0, 0)], 3.25),  # disturbed samples do not count
        ([(9.0, 0), (2.0, 1), (4.0, 1)], 2.5),  # unless all are disturbed
        ([(9.0, 0), (math.inf, 0), (math.inf, 0)], 9.0),  # only the first sample was taken
        ([(9.0, 0), (5.0, 0), (5.0, 0)], 5.0),
    ],
)
def test_candidates_are_judged_by_the_lower_quartile(taken, expected):
    assert variants._lower_quartile(taken) == expected


def test_a_single_candidate_loses_nothing(case):
    record = case.measure().record
    assert record["variant_choice"] == "requested" and math.isnan(record["variant_loss"])
    assert variants.fastest(case.prepare(), [("scalar", "baseline")])[1] == 0.0


@pytest.mark.usefixtures("disturbances")
def test_the_loss_by_a_wrong_choice_follows_from_the_rounds(case):
    trials = variants._Trials(case.prepare())
    first, second = ("simd", "avx2"), ("auto", "avx2")
    assert math.isnan(trials.loss([first, second]))
    names = ["/".join(one) for one in (first, second)]
    trials._rounds = [dict(zip(names, (0.0, gain), strict=True)) for gain in (0.01, 0.03, 0.02)]
    trials._rounds.append({names[0]: 0.0})  # the second candidate was not tried
    # The one-sided 95 % quantile of Student's t with two degrees of freedom is 2.92.
    expected = -math.expm1(0.02 - 2.92 * 0.01 / math.sqrt(3))
    assert trials.loss([first, second]) == pytest.approx(max(expected, 0.0), abs=1e-4)
    assert trials.loss([second, first]) == pytest.approx(
        -math.expm1(-0.02 - 2.92 * 0.01 / math.sqrt(3)), abs=1e-4
    )


# The baseline has a variant simd with newer releases of Highway only.
SECONDS = {"auto": 1e-3, "nt": 2e-3, "scalar": 3e-3, "simd": 3e-3}
CASE = mk.stream("copy", elements=4096, threads=1, isa="baseline")


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let candidates take 1 to 3 ms; return the number of trials of each."""
    return scripted_trials(monkeypatch, lambda variant, _: (SECONDS[variant], 1.0))


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
