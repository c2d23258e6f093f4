"""Suites: the cases of the paper in its order, with both rules for the count."""

import re

import numpy as np
import pytest
from checking import PROPERTY, refused
from hypothesis import given
from hypothesis import strategies as st

from memkern import reference
from memkern.families.spatter import suites
from memkern.inputs.patterns import custom, uniform


def span(case):
    """Return the length of a case's sparse array, from its first and last base."""
    bases = [case["delta"] * n for n in (0, case["count"] - 1)]
    return max(case["pattern"].indices) + max(bases) - min(bases) + 1


def test_ustride_cpu_has_the_strides_of_the_paper():
    cases = suites.ustride("cpu", count_rule="paper")
    assert [case["kernel"] for case in cases] == ["gather"] * 8 + ["scatter"] * 8
    assert [case["name"] for case in cases[:8]] == [f"UNIFORM:8:{2**i}" for i in range(8)]
    for case in cases:
        stride = int(case["name"].split(":")[2])
        assert case["pattern"].indices.tolist() == [stride * i for i in range(8)]
        assert case["delta"] == 8 * stride
        assert case["count"] == 250_000_000 // stride
        assert case["count_rule"] == "paper"
        assert case["suite"] == "ustride"
        assert (case["wrap"], case["runs"], case["seed"]) == (1, None, None)


def test_ustride_gpu_has_256_indices():
    cases = suites.load("USTRIDE-GPU", count_rule="paper")
    assert [case["count"] for case in cases] == [3_906_250 // 2**i for i in range(8)] * 2
    assert {len(case["pattern"]) for case in cases} == {256}
    assert cases[3]["delta"] == 2048


def test_footprint_gives_the_counts_of_spatters_own_cpu_suite():
    counts = [case["count"] for case in suites.ustride("cpu")]
    assert counts == [31_250_000 // 2**i for i in range(8)] * 2


def test_apps_for_gpus_are_the_published_runs():
    published = {
        (row["pattern"], row["kernel"].removeprefix("spatter.")): row
        for row in reference.rows("lavin2020")
        if row["kind"] == "gpu" and row["suite"] != "ustride"
    }
    cases = suites.load("apps-gpu", count_rule="paper")
    assert [case["name"] for case in cases] == [case["name"] for case in suites.apps()]
    assert len(published) == len(cases)
    ran_otherwise = {}
    for case, of_cpu in zip(cases, suites.apps(), strict=True):
        row = published[case["name"], case["kernel"]]
        assert len(case["pattern"]) == row["pattern_length"] == 256
        assert (case["delta"], case["count"]) == (row["delta"], row["count"])
        # Sixteen instances in one, with the published distance.
        own, delta = of_cpu["pattern"], of_cpu["delta"]
        if row["note"]:
            told = re.fullmatch(r"ran with delta (\d+) per instance, table 5 says 8", row["note"])
            assert told is not None and delta == 8
            delta = ran_otherwise[case["name"]] = int(told[1])
        assert case["delta"] == 16 * delta
        merged = [k * delta + index for k in range(16) for index in own.indices]
        assert list(case["pattern"].indices) == merged
    assert ran_otherwise == {
        "LULESH-G1": 1, "LULESH-G3": 4, "LULESH-G6": 1, "NEKBONE-G1": 1, "NEKBONE-G2": 5
    }  # fmt: skip
    # With counts by footprint, all deltas are from table 5.
    for case, of_cpu in zip(suites.load("APPS-GPU"), suites.apps(), strict=True):
        assert case["delta"] == 16 * of_cpu["delta"]
    assert suites.load("APPS-GPU") == suites.apps(kind="gpu")
    with refused("must be cpu or gpu, not 'fpga'"):
        suites.apps(kind="fpga")


def test_apps_are_table_5_in_its_order():
    cases = suites.apps(count_rule="paper")
    names = [case["name"] for case in cases]
    assert names == [
        *(f"PENNANT-G{i}" for i in range(16)),
        *(f"LULESH-G{i}" for i in range(8)),
        *(f"NEKBONE-G{i}" for i in range(3)),
        *(f"AMG-G{i}" for i in range(2)),
        "PENNANT-S0",
        *(f"LULESH-S{i}" for i in range(4)),
    ]
    by_name = dict(zip(names, cases, strict=True))
    assert {len(case["pattern"]) for case in cases} == {16}
    assert by_name["PENNANT-G8"]["pattern"].indices.tolist() == [2, 0, 0, 0] * 4
    assert by_name["PENNANT-G8"]["delta"] == 129608
    assert by_name["AMG-G0"]["pattern"].maximum == 2629
    assert by_name["LULESH-S3"]["kernel"] == "scatter"
    assert by_name["LULESH-S3"]["delta"] == 0
    assert by_name["NEKBONE-G2"]["suite"] == "nekbone"
    assert str(by_name["NEKBONE-G2"]["pattern"]) == "NEKBONE-G2"


def test_paper_counts_and_deltas_agree_on_all_platforms_of_a_kind():
    found: dict[tuple[str, str, str], set[tuple[int, int]]] = {}
    for row in reference.rows("lavin2020"):
        key = (row["kind"], row["pattern"], row["kernel"])
        found.setdefault(key, set()).add((row["delta"], row["count"]))
    assert all(len(pairs) == 1 for pairs in found.values())
    for case in suites.apps(count_rule="paper") + suites.ustride(count_rule="paper"):
        key = ("cpu", case["name"], f"spatter.{case['kernel']}")
        assert found[key] == {(case["delta"], case["count"])}


def test_paper_counts_of_pennant_are_sized_by_the_delta():
    for case in suites.apps("pennant", count_rule="paper"):
        assert case["count"] == 250_000_000 // (case["delta"] + 1)


@pytest.mark.parametrize("footprint_B", [2e9, 1e8, 20_000_001])
def test_the_footprint_has_room_for_no_further_base(footprint_B):
    for case in suites.apps(footprint_B=footprint_B) + suites.ustride(footprint_B=footprint_B):
        assert case["count_rule"] == "footprint"
        if case["delta"]:
            assert span(case) <= footprint_B / 8 < span({**case, "count": case["count"] + 1})
        else:
            assert case["count"] == footprint_B // 8 // 16


@PROPERTY
@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=20),
    st.integers(-5000, 5000).filter(bool),
    st.integers(8008, 10**13),
)
def test_footprint_count_is_the_largest_that_fits(indices, delta, footprint_B):
    case = {"pattern": custom(indices), "delta": delta}
    count = suites.footprint_count(case["pattern"], delta, footprint_B)
    assert count >= 1
    assert span({**case, "count": count}) * 8 <= footprint_B
    assert span({**case, "count": count + 1}) * 8 > footprint_B


def test_names_load_and_select():
    for name in suites.names():
        assert suites.load(name)
    assert [case["name"] for case in suites.apps("amg")] == ["AMG-G0", "AMG-G1"]
    assert [case["name"] for case in suites.load("Lulesh")][-1] == "LULESH-S3"
    assert [case["name"] for case in suites.apps("pennant-g3")] == ["PENNANT-G3"]
    assert suites.load("apps") == suites.apps()
    assert suites.ustride(footprint_B=np.int64(2 * 10**9)) == suites.ustride()
    assert suites.load("ustride-cpu", footprint_B=1e6) == suites.ustride(footprint_B=1e6)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: suites.load("stream"), "ustride-cpu"),
        (lambda: suites.load(None), "None"),
        (lambda: suites.apps("hpcg"), "PENNANT-G3"),
        (lambda: suites.apps(5), "PENNANT-G3"),
        (lambda: suites.ustride("tpu"), "'tpu'"),
        (lambda: suites.ustride(count_rule="half"), "paper or footprint"),
        (lambda: suites.ustride(footprint_B=0), "footprint_B"),
        (lambda: suites.ustride(footprint_B=float("inf")), "footprint_B"),
        (lambda: suites.apps("amg", footprint_B=1000), "at least 21040"),
        (lambda: suites.footprint_count(uniform(8, 1), 0, 63), "at least 64"),
    ],
)
def test_wrong_arguments_are_refused(call, says):
    with refused(says):
        call()
