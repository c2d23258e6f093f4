"""Nodes of a fleet: those that are slower are named, and healthy ones are not."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import refusal, refused_words, run
from fleet_records import MACHINE, record, records, results

import memkern as mk
from memkern.host.distances import packaged
from memkern.results.fleet import LEAST_NODES, cases, of_files, p_value, reach

NAMED = ("slower", "faster")
CLASSES = (
    "L1, 1 thread, 10 placements", "L3, 2 threads, 10 placements, shared",
    "memory, 2 threads, 10 placements",
)  # fmt: skip
# Standard deviation of normal values over the mean distance of two of them.
OF_DISTANCE = math.sqrt(math.pi) / 2


def named(frame: Any) -> list[tuple[str, str]]:
    """Return the nodes and labels outside of the range."""
    rows = frame[frame["verdict"].isin(NAMED)]
    return list(zip(rows["node"], rows["label"], strict=True))


def healthy(random: np.random.Generator, nodes: int, between: float) -> mk.ResultSet:
    """Return a fleet with the distances between runs of the package; variances by node."""
    found = []
    for node in range(nodes):
        own = between * random.standard_normal()
        for name in CLASSES:
            known = packaged(name).floor
            sd = OF_DISTANCE * known.total / known.number
            spread = sd * math.sqrt(8 / random.chisquare(8))
            time_s = math.exp(own + spread * random.standard_normal())
            found.append(record(f"n{node}", "stream.copy", time_s, sd, name=name))
    return results(found)


@pytest.mark.parametrize(
    "nodes, fleets",
    [(12, 40), *(pytest.param(nodes, 600, marks=pytest.mark.release) for nodes in (9, 40))],
)
@pytest.mark.parametrize("between", [0.0, 0.1])
def test_fewer_than_one_healthy_fleet_in_a_hundred_has_a_named_node(nodes, fleets, between):
    randoms = (np.random.default_rng(seed) for seed in range(fleets))
    found = sum(bool(named(mk.fleet(healthy(random, nodes, between)))) for random in randoms)
    assert found <= 0.01 * fleets + 1


def test_a_slow_node_is_named_in_each_case_that_is_slow():
    fast = records(slow={"n05": 1.5}, kernels=["stream.copy", "stream.triad"])
    frame = mk.fleet(results([*fast, *records(kernels=["latency.chase"])]))
    assert named(frame) == [("n05", "stream.copy"), ("n05", "stream.triad")]
    (row,) = frame[(frame["node"] == "n05") & (frame["case"] == "stream.copy elements=10000000")
                   ].to_dict("records")  # fmt: skip
    assert row["verdict"] == "slower" and row["quantity"] == "GB/s" and row["p"] < 1e-3
    assert row["slowdown"] == pytest.approx(0.5, abs=0.05) and row["others"] == 15
    assert row["value"] < row["low"] < row["median"] < row["high"]
    of_cases = cases(frame).set_index("label")
    assert of_cases.loc["stream.copy", "median"] == pytest.approx(1.6, rel=0.02)
    # Of a time, the slower side is above.
    assert of_cases.loc["latency.chase", "quantity"] == "ns per access"
    assert of_cases["spread"].between(0.003, 0.03).all()
    assert named(mk.fleet(results(records(slow={"n05": 0.6}))))


def test_the_range_ends_where_nodes_are_named():
    others = np.random.default_rng(3).normal(0, 0.01, 20)
    for sd in (1e-6, 0.02):
        for p in (0.3, 1e-3, 1e-6):
            assert p_value(reach(others, sd, p), others, sd) == pytest.approx(p, rel=0.02)
    # Fewer nodes show less.
    assert reach(others[:8], 1e-6, 1e-4) / np.std(others[:8]) > 2 * (
        reach(others, 1e-6, 1e-4) / np.std(others)
    )


def test_what_runs_on_one_host_show_is_no_outlier():
    slow = {"n05": 1.3}
    assert named(mk.fleet(results(records(slow=slow, sd=0.01))))
    assert not named(mk.fleet(results(records(slow=slow, sd=0.1))))
    # Repeats in one state of the host show no more.
    repeated = [one | {"repeat": k} for one in records(slow=slow, sd=0.1) for k in range(9)]
    assert not named(mk.fleet(results(repeated)))


def test_different_processors_are_never_compared():
    fast, slow = records(), records(slow={f"n{k:02}": 3.0 for k in range(16)}, environment_id="e2")
    for changed in ("model_number", "stepping", "cores"):
        machines = {
            "e1": MACHINE | {"stepping": "0"},
            "e2": MACHINE | {"stepping": "0", changed: 2},
        }
        renamed = [one | {"node": f"b{one['node']}"} for one in slow]
        frame = mk.fleet(results([*fast, *renamed], machines))
        assert not named(frame)
        assert frame.groupby("machine")["node"].nunique().tolist() == [16, 16]
        words = changed.replace("_", " ")
        assert f"A Processor, {words} 2" in set(frame["machine"])
    # One of another processor is alone, and the others are judged.
    frame = mk.fleet(results([*fast, *renamed[:3]], machines))
    assert set(frame[frame["node"] == "bn00"]["verdict"]) == {"too few nodes"}
    assert set(frame[frame["node"] == "n00"]["verdict"]) == {"in the range"}
    (remark,) = frame.attrs["remarks"]
    assert remark.startswith("A Processor, cores 2: stream.copy on 1") and "at least 9" in remark


def test_too_few_nodes_are_refused():
    assert mk.fleet(results(records(LEAST_NODES))) is not None
    assert "on 8 nodes, and at least 9" in refusal(mk.fleet, results(records(LEAST_NODES - 1)))
    # A node without a value does not count.
    without = records(LEAST_NODES - 1) + records(LEAST_NODES, disturbed=True)[-3:]
    assert "on 8 nodes, and at least 9" in refusal(mk.fleet, results(without))
    assert "no record of a node" in refusal(mk.fleet, results([]))
    nameless = [one | {"node": None} for one in records()]
    assert "memkern compare fleet -o" in refusal(mk.fleet, results(nameless))


@pytest.mark.parametrize(
    "changes, verdict",
    [
        ({"valid": False}, "invalid"),
        ({"disturbed": True}, "disturbed"),
        ({"time_min_s": math.nan}, "no time"),
        ({"time_min_ci_low_s": math.nan}, "no interval"),
        ({"states": "[]", "exchange_ns": 20.0}, "other state"),
    ],
)
def test_what_says_nothing_about_a_node_is_not_judged(changes, verdict):
    of_fleet = records(kernels=["stream.copy"], states="[]", exchange_ns=80.0)
    # It would be named.
    slow = record("n16", "stream.copy", 0.5, states="[]", exchange_ns=80.0)
    assert named(mk.fleet(results([*of_fleet, slow]))) == [("n16", "stream.copy")]
    frame = mk.fleet(results([*of_fleet, slow | changes]))
    assert not named(frame)
    assert frame.set_index("node").loc["n16", "verdict"] == verdict
    # Nor does it count among the others.
    assert set(frame[frame["node"] != "n16"]["others"]) == {15}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Write a file for each of twelve nodes, in two formats; n03 is slow."""
    paths = []
    for number in range(12):
        node = f"n{number:02}"
        own = [one for one in records(12, {"n03": 1.6}) if one.pop("node") == node]
        target = tmp_path / f"{node}.{'db' if number % 2 else 'parquet'}"
        results(own).save(target)
        paths.append(str(target))
    return paths


def test_files_of_nodes_make_a_baseline_for_other_nodes(files, tmp_path, capsys):
    target = str(tmp_path / "fleet.parquet")
    code, out, err = run(capsys, "compare", "fleet", *files, "-o", target, "--fail-on", "slower:20")
    assert code == 3
    assert "slower by more than 20 %: 3 of 36 values of nodes; not slower: 33; undecided: 0" in err
    lines = out.splitlines()
    assert lines[0] == "A Processor"
    assert sum("n03 " in line and "(slower)" in line for line in lines) == 3
    # Whether n03, with a time 1.6 times the median, takes 1.8 times as long is not known so well.
    assert [
        run(capsys, "compare", "fleet", target, "--fail-on", f"slower:{by}")[0] for by in (80, 150)
    ] == [
        4,
        0,
    ]
    # A shell pattern matches the files of samples as well.
    every = [str(path) for path in tmp_path.glob("n*")]
    assert len(every) > len(files) and run(capsys, "compare", "fleet", *every)[:2] == (0, out)
    assert run(capsys, "compare", "fleet", target)[:2] == (0, out)
    rows = json.loads(run(capsys, "compare", "fleet", target, "--json")[1])
    assert len(rows) == 36 and {row["node"] for row in rows if row["verdict"] == "slower"} == {
        "n03"
    }
    # A new node, and one of the baseline, which is not compared with itself.
    new = tmp_path / "new.json"
    results([one | {"node": ""} for one in records(1, {"n00": 1.6})]).save(new)
    for file, others in ((str(new), 12), (files[3], 11)):
        code, out, _ = run(capsys, "compare", "fleet", file, "--baseline", target, "--json",
                           "--fail-on", "slower")  # fmt: skip
        rows = json.loads(out)
        assert code == 3 and len(rows) == 3
        assert {row["verdict"] for row in rows} == {"slower"}
        assert {row["others"] for row in rows} == {others}
    assert (
        run(capsys, "compare", "fleet", files[4], "--baseline", target, "--fail-on", "slower")[0]
        == 0
    )


def test_gates_on_what_is_not_judged(files, tmp_path, capsys):
    gate = ("--fail-on", "slower:150")
    assert run(capsys, "compare", "fleet", *files, *gate)[0] == 0
    for name, change, codes in (
        ("disturbed", {"disturbed": True}, (0, 4)), ("wrong", {"valid": False}, (1, 1)),
    ):  # fmt: skip
        more = tmp_path / f"{name}.parquet"
        results([one | change | {"node": name} for one in records(1)]).save(more)
        found = run(capsys, "compare", "fleet", *files, str(more))
        assert f"{name}: 3 cases not judged" in found[1]
        assert (found[0], run(capsys, "compare", "fleet", *files, str(more), *gate)[0]) == codes
        more.unlink()


def test_files_that_are_no_fleet_are_refused(files, tmp_path, capsys):
    other = tmp_path / "again" / "n00.json"
    other.parent.mkdir()
    results([{k: v for k, v in one.items() if k != "node"} for one in records(1)]).save(other)
    assert "both of n00: rename" in refused_words(capsys, "compare", "fleet", *files, str(other))
    assert "does not exist" in refused_words(capsys, "compare", "fleet", str(tmp_path / "none.db"))
    assert "at least 9 nodes" in refused_words(capsys, "compare", "fleet", *files[:4])
    target = tmp_path / "fleet.parquet"
    assert "at least 9" in refused_words(capsys, "compare", "fleet", *files[:4], "-o", str(target))
    assert not target.exists()
    # The record of one node is no baseline of several.
    assert "at least 9" in refused_words(
        capsys, "compare", "fleet", files[0], "--baseline", files[1]
    )
    assert len(of_files(files)) == 36
