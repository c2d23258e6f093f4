"""The sentences and columns of explanations, from scripted outcomes of experiments."""

import json
import math

import pytest
from explanation_records import (
    CASES,
    FAR,
    LINE,
    MEMORY,
    NEAR,
    NOTHING,
    ORDER,
    PAGES,
    explained,
    level,
    tried,
)

from memkern.results.explanation import MOVING, UNEXPLAINED, Explanation
from memkern.spec.experiments import TRIED


@pytest.mark.parametrize("name", CASES)
def test_the_first_cause_is_the_one_by_construction(name):
    rows, cause = CASES[name]
    found = explained(*rows)
    assert found.first[0] == cause
    assert found.columns["cause"] == cause
    assert (UNEXPLAINED in str(found)) == (cause == UNEXPLAINED)


def test_causes_that_contain_others_are_ranked_by_what_they_add():
    # Order 0.55 with page walks 0.4, so that it adds 0.15; what only one line removes adds 0.35.
    causes = explained(ORDER, PAGES, LINE).causes
    assert [one.cause for one in causes] == ["page walks", MOVING, "order", "work"]


def test_a_record_has_the_whole_explanation():
    found = explained(*MEMORY, ORDER, PAGES, FAR)
    record = found.columns
    assert Explanation.of_record(record) == found
    assert json.loads(record["explained_by"])["unit"] == "an access"
    assert record["cause"] == found.causes[0].cause
    assert record["cause_share"] == found.causes[0].share
    for without in ({}, {"explained_by": ""}, {"explained_by": math.nan}):
        assert Explanation.of_record(without) is None


def test_levels_say_where_the_time_is():
    frame = explained(*MEMORY).sentences[0]
    assert frame == "of 33 ns an access, 26.4 are behind L3 and 5.61 are behind L2"
    assert explained(level("L1", 1.0)).sentences[0].endswith("none are behind L1")
    assert "33 µs" in explained(*MEMORY, unit_s=33e-6).sentences[0]
    assert "2 s" in explained(*MEMORY, unit_s=2.0).sentences[0]


def test_only_options_that_are_faster_for_certain_are_advised():
    every = {
        "--pages thp": 0.6,
        "--variant nt": 0.97,  # less than 1.05 times as fast
        "--threads 1": 1.4,
    }
    rows = [tried(option, ratio, role=TRIED, option=option) for option, ratio in every.items()]
    found = explained(*rows, tried("unsure", 0.9, role=TRIED, option="--x", half=0.2), ORDER)
    assert [one.option for one in found.advice] == ["--pages thp"]
    assert "try --pages thp: 1.67 [1.65, 1.68] times as fast" in str(found)
    assert "nothing that was tried is faster" in str(explained(*rows[1:]))


def test_a_limit_is_at_most_reached():
    found = explained(*MEMORY, NEAR._replace(ratio=1.1))
    assert found.first == ("bandwidth of memory", 1.0)
    assert "nearest limit: bandwidth of memory, 100 % of it reached" in str(found)
    # Data in L2 are in L2 by definition, which is no limit.
    held = level("L2", 1.0)._replace(rounds=0)
    limit = explained(level("L1", 0.4), held).limit
    assert limit is not None and limit.cause == "the core and L1"
    assert explained(level("L3", 1.0)._replace(rounds=0)).limit is None
    # The core does what an option makes possible.
    held = level("L1", 1.0)._replace(rounds=0)
    padded = tried("padded", 0.2, "lines", option="--padding 128")
    limit = explained(held, padded).limit
    assert limit is not None and (limit.cause, limit.share) == ("the core and L1", 0.2)


def test_each_experiment_has_a_bar():
    lines = explained(*MEMORY, NOTHING._replace(ratio=9.0), PAGES).rows(width=20)
    assert [line.split("  ")[0] for line in lines[:2]] == ["as it is", "data in L1"]
    bars = [line.count("█") for line in lines]
    assert bars == [10, 0, 0, 2, 20, 6]
    assert lines[4].endswith(">")
