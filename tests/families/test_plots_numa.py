"""Latencies and bandwidths between NUMA nodes, measured on fake nodes, printed and drawn."""

import re

import numpy as np
import pytest
from checking import output_of
from latency_records import SIZES, nodes, record, sizes
from plotting import Results, footnotes, line

from memkern.families.latency import verb
from memkern.formats import ResultSet
from memkern.host import environment as host_environment
from memkern.machine import topology
from memkern.plots import figures, tables

NODES = [
    {"node": 0, "cpus": "0-1", "memory_B": 2**34},
    {"node": 1, "cpus": "2-3", "memory_B": 2**34},
    {"node": 2, "cpus": "4-5", "memory_B": 2**34},
    {"node": 3, "cpus": "", "memory_B": 2**34},  # memory only
]


def numa(monkeypatch, capsys, nodes, memories, *words):
    """Return the output of ``memkern latency numa`` on a machine with these nodes, and its records.

    Loads take 100 ns, and 50 ns more for each step between the numbers of the two nodes.
    """
    measured = []

    def measure(cases, *_):
        for case in cases:
            near, far = map(int, re.findall(r"\d+", case.labels["name"]))
            how = {"name": case.labels["name"], "numa": case.knobs.numa, "pin": case.knobs.pin}
            how |= {"size_B": 2**14, "order": "random", "chains": 1, "time_min_s": 1e-3}
            ns = 100.0 + 50.0 * abs(near - far)
            row = record(
                "chase", ns, oversubscribed=False, stop="runs", bandwidth_GBps=5e3 / ns, **how
            )
            measured.append({**row, "kernel": case.spec.name})
        return ResultSet(measured, [np.ones(3)] * len(measured), {})

    environment = {"machine": {"numa_nodes": nodes}}
    monkeypatch.setattr(host_environment, "machine_environment", lambda: environment)
    monkeypatch.setattr(topology, "numa_nodes", lambda: memories)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(verb, "measure", measure)
    out, error = output_of(capsys, "latency", "numa", "--sizes", "16KiB", *words)
    return out.splitlines(), error, measured


def test_four_nodes_are_measured_and_printed(monkeypatch, capsys):
    out, error, rows = numa(monkeypatch, capsys, NODES, [0, 1, 2, 3])
    assert error == "" and len(rows) == 2 * 3 * 4
    assert out == [
        "ns from a load to the next, by the node of the units (rows) and of the memory (columns):",
        "node        0       1       2       3",
        "   0    100.0   150.0   200.0   250.0",
        "   1    150.0   100.0   150.0   200.0",
        "   2    200.0   150.0   100.0   150.0",
        "GB/s of a triad, by the node of the units (rows) and of the memory (columns):",
        "node        0       1       2       3",
        "   0     50.0    33.3    25.0    20.0",
        "   1     33.3    50.0    33.3    25.0",
        "   2     25.0    33.3    50.0    33.3",
    ]
    shown = tables["latency-numa"](Results(rows)).set_index(["units", "memory"])
    assert len(shown) == 12
    assert shown.loc[(1, 3), ["ns_per_access", "bandwidth_GBps"]].tolist() == [200.0, 25.0]


def test_memory_that_may_not_be_used_is_left_out(monkeypatch, capsys):
    out, error, rows = numa(monkeypatch, capsys, NODES, [0, 2])
    assert [row["numa"] for row in rows[::2]] == ["node:0", "node:2"] * 3
    assert [text.split() for text in out[1:3]] == [["node", "0", "2"], ["0", "100.0", "200.0"]]
    assert error.splitlines() == [
        f"memkern: memory of node {node} is left out: this process may not use it"
        for node in (1, 3)
    ]


@pytest.mark.parametrize("memories", [[0, 1, 2, 3], [0, 2, 3]])
def test_a_node_without_memory_has_a_row_and_no_column(monkeypatch, capsys, memories):
    bare = [{**node, "memory_B": 0 if node["node"] == 1 else node["memory_B"]} for node in NODES]
    out, error, rows = numa(monkeypatch, capsys, bare, memories)
    assert error == "memkern: node 1 has no memory: only its units are measured\n"
    assert [row["numa"] for row in rows[::2]] == ["node:0", "node:2", "node:3"] * 3
    assert [text.split() for text in out[1:4]] == [
        ["node", "0", "2", "3"],
        ["0", "100.0", "200.0", "250.0"],
        ["1", "150.0", "150.0", "200.0"],
    ]
    latencies = figures["latency-numa"](Results(rows)).axes[0].images[0].get_array()
    assert latencies.shape == (3, 3)


def test_unknown_nodes_are_one(monkeypatch, capsys):
    out, error, rows = numa(monkeypatch, capsys, None, [0])
    assert error == "" and out[-1] == "this machine has one NUMA node: no memory is remote"
    assert [(row["pin"], row["numa"]) for row in rows] == [
        ("0", "first-touch"),
        ("0,1,2,3,4,5", "first-touch"),
    ]
    assert out[1:3] == ["node        0", "   0    100.0"]
    assert numa(monkeypatch, capsys, None, [0], "-q")[0] == []


def test_the_best_record_of_a_pair_of_nodes_counts():
    rows = nodes(units=1, memories=1)
    worse = {**rows[0], "ns_per_access": 900.0, "disturbed": True}
    slower = {**rows[1], "bandwidth_GBps": 1.0}
    records = Results([*rows, worse, slower])
    (row,) = tables["latency-numa"](records).to_dict("records")
    assert (row["ns_per_access"], row["bandwidth_GBps"]) == (100.0, 50.0)
    assert not row["disturbed"]
    (row,) = tables["latency-numa"](Results([worse, slower])).to_dict("records")
    assert row["disturbed"]


def test_nodes_have_a_map_of_latency_and_one_of_bandwidth():
    fig = figures["latency-numa"](Results([*nodes(units=2, memories=3), *sizes()]))
    latencies, bandwidths = (ax.images[0].get_array() for ax in fig.axes[:2])
    assert latencies.tolist() == [[100, 200, 200], [200, 100, 200]]
    assert bandwidths.tolist() == [[50, 25, 25], [25, 50, 25]]
    assert "no memory is remote" in footnotes(figures["latency-numa"](Results(nodes(1, 1))))
    # Remote memory adds no point to the curve over sizes.
    fig = figures["latency-sizes"](Results([*nodes(), *sizes()]))
    assert len(line(fig.axes[0], "random order").get_xdata()) == len(SIZES)
