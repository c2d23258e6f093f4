"""Nodes of a fleet: those that are slower are named with their parts, and healthy ones are not."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import refusal, refused_words, run
from fleet_records import MACHINE, record, records, results

import memkern as mk
from memkern.results.fleet import of_files

NAMED = ("slower", "faster")
ROUNDS = 5


def named(frame: Any) -> list[tuple[str, str]]:
    """Return the nodes and parts that are off."""
    rows = frame[frame["verdict"].isin(NAMED)]
    return list(zip(rows["node"], rows["part"], strict=True))


def healthy(random: np.random.Generator, nodes: int, between: float) -> mk.ResultSet:
    """Return a fleet whose nodes, cases on a node and rounds differ; tails are heavy."""
    found = []
    for node in range(nodes):
        own = between * random.standard_normal()
        for kernel in ("stream.copy", "stream.triad", "latency.chase"):
            of_case = own + 0.01 * random.standard_t(4)
            for k in range(ROUNDS):
                time_s = math.exp(of_case + 0.04 * random.standard_t(4))
                found.append(record(f"n{node}", kernel, time_s, repeat=k))
    return results(found)


@pytest.mark.parametrize(
    "nodes, fleets",
    [(12, 30), *(pytest.param(nodes, 400, marks=pytest.mark.release) for nodes in (3, 9, 40))],
)
@pytest.mark.parametrize("between", [0.0, 0.1])
def test_few_healthy_fleets_have_a_named_node(nodes, fleets, between):
    randoms = (np.random.default_rng(seed) for seed in range(fleets))
    found = sum(bool(named(mk.fleet(healthy(random, nodes, between)))) for random in randoms)
    assert found <= 0.015 * fleets + 1


def test_a_slow_node_is_named_with_the_parts_that_are_slow():
    fast = records(slow={"n05": 1.2}, kernels=["stream.copy", "stream.triad"], rounds=ROUNDS)
    frame = mk.fleet(results([*fast, *records(kernels=["latency.chase"], rounds=ROUNDS)]))
    assert named(frame) == [("n05", "all cases"), ("n05", "memory")]
    row = frame.set_index(["part", "node"]).loc["memory", "n05"]
    assert row["slowdown"] == pytest.approx(0.2, abs=0.03)
    assert row["low"] < row["slowdown"] < row["high"]
    assert (row["cases"], row["rounds"], row["others"]) == (2, ROUNDS, 15)
    assert row["against"] == "other nodes" and row["evidence"] > 3
    # It could have been less slow.
    assert frame["spread"].between(0.005, 0.03).all()
    assert (frame["half"] < frame["least_slowdown"]).all()
    assert frame["least_slowdown"].between(0.05, 0.2).all()
    assert named(mk.fleet(results(records(slow={"n05": 0.7}, rounds=ROUNDS))))[0][0] == "n05"
    assert not named(mk.fleet(results(records(slow={"n05": 1.02}, rounds=ROUNDS))))


def test_what_would_have_been_found_is_told():
    (remark,) = mk.fleet(results(records(rounds=ROUNDS))).attrs["remarks"]
    assert remark.startswith(
        "A Processor: 16 nodes, 5 rounds: a node 20% slow is named with 0.99; "
    )
    (remark,) = mk.fleet(results(records(rounds=2, spread=0.06))).attrs["remarks"]
    assert "rounds are needed to name 20% with 0.9" in remark


def test_two_nodes_and_a_slow_one():
    frame = mk.fleet(results(records(2, {"n01": 1.5}, rounds=ROUNDS)))
    assert set(named(frame)) >= {("n01", "all cases"), ("n00", "all cases")}
    assert set(frame[frame["node"] == "n01"]["verdict"]) == {"slower"}


def looks(number: int, slow: float, nodes: int = 1) -> list[dict[str, Any]]:
    """Return daily looks at nodes, of which the last one at n00 is slow."""
    return [
        row
        for day in range(1, number + 1)
        for row in records(
            nodes, {"n00": slow if day == number else 1.0}, seed=day, rounds=2,
            started=f"2026-01-{day:02}T00:00:00+00:00",
        )
    ]  # fmt: skip


def test_a_node_is_compared_with_its_own_history():
    frame = mk.fleet(results(looks(11, 1.3)))
    assert set(frame["against"]) == {"earlier looks"} and set(frame["others"]) == {10}
    assert set(frame["verdict"]) == {"slower"} and set(frame["rounds"]) == {2}
    assert frame.attrs["remarks"][0].startswith("A Processor: 10 earlier looks, 2 rounds: a node")
    assert set(mk.fleet(results(looks(11, 1.0)))["verdict"]) == {"in the range"}
    # A slow look among the earlier ones does not hide, or make, another one.
    several = results(looks(11, 1.3)[:-12] + looks(11, 1.3)[-6:])
    assert set(mk.fleet(several)["verdict"]) == {"slower"}
    # Both references count; of a baseline, even if it is as old as the results.
    frame = mk.fleet(results(looks(11, 1.3, 3)))
    assert {"other nodes", "earlier looks"} == set(frame["against"])
    assert {node for node, _ in named(frame)} == {"n00"}
    now = records(1, {"n00": 1.5}, rounds=2)
    frame = mk.fleet(results(now), results(records(4, rounds=2)))
    assert set(frame["node"]) == {"n00"} and set(frame["others"]) == {1, 3}
    assert "n00" in {node for node, _ in named(frame)}


def test_a_state_of_the_host_is_not_a_slow_node():
    def shared(core_share: float) -> mk.ResultSet:
        rows = records(slow={"n05": 1.2}, rounds=ROUNDS)
        return results(
            [row | {"core_share": core_share if row["node"] == "n05" else 1.0} for row in rows]
        )

    assert named(mk.fleet(shared(1.0)))
    frame = mk.fleet(shared(0.64))
    assert not named(frame)
    assert set(frame[frame["node"] == "n05"]["differs"]) == {"core_share: 0.64 (most: 1)"}


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
    assert set(frame[frame["node"] == "bn00"]["verdict"]) == {"nothing to compare with"}
    assert set(frame[frame["node"] == "n00"]["verdict"]) == {"in the range"}
    refused = refusal(mk.fleet, results(renamed[:3], machines))
    assert refused.startswith("bn00 has no other node of its processor")
    # Nor are different cases.
    one, other = records(1, kernels=["stream.copy"]), records(2, kernels=["stream.triad"])[1:]
    assert "no other node" in refusal(mk.fleet, results([*one, *other]))


def test_what_is_no_fleet_is_refused():
    assert "no record of a node" in refusal(mk.fleet, results([]))
    nameless = [one | {"node": None} for one in records()]
    assert "memkern compare fleet -o" in refusal(mk.fleet, results(nameless))


@pytest.mark.parametrize(
    "changes, verdict",
    [
        ({"valid": False}, "invalid"),
        ({"disturbed": True}, "disturbed"),
        ({"time_min_s": math.nan}, "no time"),
    ],
)
def test_what_says_nothing_about_a_node_is_not_judged(changes, verdict):
    of_fleet = records(kernels=["stream.copy"], rounds=ROUNDS)
    # It would be named.
    slow = [record("n16", "stream.copy", 0.5, repeat=k) for k in range(ROUNDS)]
    assert named(mk.fleet(results([*of_fleet, *slow]))) == [("n16", "all cases")]
    frame = mk.fleet(results([*of_fleet, *(one | changes for one in slow)]))
    assert not named(frame)
    assert frame.set_index("node").loc["n16", "verdict"] == verdict
    # Nor does it count among the others.
    assert set(frame[frame["node"] != "n16"]["others"]) == {15}
    # A round less is no reason.
    frame = mk.fleet(results([*of_fleet, slow[0] | changes, *slow[1:]]))
    assert named(frame) == [("n16", "all cases")]


def test_settings_and_errors_in_which_nodes_differ_are_told():
    machines = {
        "e1": {"machine": MACHINE, "memory": {"channels": 8}, "settings": {"governor": "a"}},
        "e2": {"machine": MACHINE, "memory": {"channels": 7}, "settings": {"governor": "b"}},
    }
    slow = records(slow={"n05": 8 / 7}, rounds=8, kernels=["stream.copy", "stream.triad"])
    changed = {"environment_id": "e2", "memory_errors": 3, "doctor": "disturbed: swap"}
    rows = [row | changed if row["node"] == "n05" else row for row in slow]
    frame = mk.fleet(mk.ResultSet(rows, [np.ones(1)] * len(rows), machines))
    assert set(frame[frame["node"] != "n05"]["differs"]) == {""}
    (text,) = set(frame[frame["node"] == "n05"]["differs"])
    assert text.split("; ") == [
        "the memory corrected errors, which delay accesses",
        "doctor: disturbed: swap",
        "memory.channels: 7 (most: 8)",
        "settings.governor: b (most: a)",
        "as with 7 of 8 channels of the memory",
    ]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Write a file for each of twelve nodes, in two formats; n03 is slow."""
    paths = []
    for number in range(12):
        node = f"n{number:02}"
        own = [one for one in records(12, {"n03": 1.6}, rounds=3) if one.pop("node") == node]
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
    assert sum("n03 +" in line for line in lines) == 3
    assert "a node 20% slow is named with 0.99" in lines[-1]
    assert run(capsys, "compare", "fleet", target, "--fail-on", "slower:150")[0] == 0
    # A shell pattern matches the files of samples as well.
    every = [str(path) for path in tmp_path.glob("n*")]
    assert len(every) > len(files) and run(capsys, "compare", "fleet", *every)[:2] == (0, out)
    assert run(capsys, "compare", "fleet", target)[:2] == (0, out)
    rows = json.loads(run(capsys, "compare", "fleet", target, "--json")[1])
    assert {row["node"] for row in rows if row["verdict"] == "slower"} == {"n03"}
    # A new node beside those of the baseline.
    new = tmp_path / "new.json"
    results([one | {"node": ""} for one in records(1, {"n00": 1.6}, rounds=3)]).save(new)
    code, out, _ = run(
        capsys, "compare", "fleet", str(new), "--baseline", target, "--json", "--fail-on", "slower"
    )
    rows = json.loads(out)
    assert code == 3 and {row["node"] for row in rows} == {"new"}
    assert {row["others"] for row in rows} == {12}
    same = ("compare", "fleet", files[4], "--baseline", *files, "--fail-on", "slower")
    assert run(capsys, *same)[0] == 0


def test_gates_on_what_is_not_judged(files, tmp_path, capsys):
    gate = ("--fail-on", "slower:150")
    assert run(capsys, "compare", "fleet", *files, *gate)[0] == 0
    for name, change, codes in (
        ("disturbed", {"disturbed": True}, (0, 4)), ("wrong", {"valid": False}, (1, 1)),
    ):  # fmt: skip
        more = tmp_path / f"{name}.parquet"
        results([one | change | {"node": name} for one in records(1)]).save(more)
        found = run(capsys, "compare", "fleet", *files, str(more))
        assert re.search(rf"^{name} +not judged", found[1], re.MULTILINE)
        assert (found[0], run(capsys, "compare", "fleet", *files, str(more), *gate)[0]) == codes
        more.unlink()


def test_files_that_are_no_fleet_are_refused(files, tmp_path, capsys):
    assert "does not exist" in refused_words(capsys, "compare", "fleet", str(tmp_path / "none.db"))
    target = tmp_path / "fleet.parquet"
    words = refused_words(capsys, "compare", "fleet", files[0], "-o", str(target))
    assert "n00 has no other node" in words
    assert not target.exists()
    assert len(of_files(files)) == 108
