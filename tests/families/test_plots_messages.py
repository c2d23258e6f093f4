"""Figure, tables and section of messages between ranks, against the records that they show."""

import numpy as np
import pytest
from checking import refused
from messages_figure_records import FARTHER, LINES, SIZES, everything, record
from plotting import Results, curve_labels, frame, line

import memkern as mk
from memkern.families.messages.data import fits, messages
from memkern.families.messages.figures import findings
from memkern.plots import figures, sections, tables
from memkern.plots.frames import frame_of


def test_panels_without_records_leave_no_gap():
    windowed = [row for row in everything() if row["window"] > 1]
    fig = figures["messages"](Results(windowed))
    fig.draw_without_rendering()
    assert [ax.get_ylabel() for ax in fig.axes] == ["Messages per second", "Bandwidth (GB/s)"]
    assert fig.axes[0].get_position().x0 < 0.15 and fig.axes[1].get_position().x1 > 0.9


def test_curves_are_the_records(whole):
    latency, rate, bandwidth = figures["messages"](whole).axes
    assert curve_labels(latency)[0] == "put, same node"
    assert len(curve_labels(latency)) == 8
    sizes = np.array(SIZES)
    for distance, factor in FARTHER.items():
        for what, (t0, wmax) in LINES.items():
            # Rate and bandwidth with a window of 64, which is faster.
            rates = 1 / (factor * (t0 / 8 + sizes / wmax))
            for ax, wanted in (
                (latency, 1e6 * factor * (t0 + sizes / wmax)),
                (rate, rates),
                (bandwidth, rates * sizes / 1e9),
            ):
                np.testing.assert_allclose(line(ax, f"{what}, {distance}").get_ydata(), wanted)


def test_libraries_are_told_apart(whole):
    shmem = [row | {"backend": "shmem"} for row in everything() if row["kernel"] != "messages.send"]
    labels = curve_labels(figures["messages"](frame([*everything(), *shmem])).axes[0])
    assert {"put, same node, MPI", "put, same node, OpenSHMEM"} <= {*labels}


def test_the_number_of_origins_with_most_cases_is_drawn():
    few = [record("put", 8, 1, origins=4)]
    table = tables["messages"](frame([*everything(), *few]))
    assert set(table["origins"]) == {1}
    assert table[table["window"] == 1]["latency_us"].notna().all()
    assert table[table["window"] == 64]["latency_us"].isna().all()


def test_fits_have_the_lines_of_the_records(whole):
    found = fits(messages(whole, "")[0])
    assert len(found) == 6
    for (_, _, operation, distance), fit in found.items():
        t0, wmax = LINES[operation]
        factor = FARTHER[distance]
        assert fit.t0_s == pytest.approx(factor * t0, rel=1e-6)
        assert fit.wmax_GBps == pytest.approx(wmax / factor / 1e9, rel=1e-6)
    table = tables["messages-fit"](whole)
    assert len(table) == 6 and not table["far"].any()
    put = table[(table["operation"] == "put") & (table["distance"] == "same node")].iloc[0]
    assert put["T0_us"].startswith("0.5 [") and put["Wmax_GBps"].startswith("8 [")
    assert put["B0.8"] == pytest.approx(4 * 0.5e-6 * 8e9)
    few = frame([record("put", size, 1) for size in (8, 32)])
    assert fits(messages(few, "")[0]) == {} and len(tables["messages-fit"](few)) == 0


def test_findings_follow_from_the_records(whole):
    section = sections["messages"](frame_of(whole))
    text = " ".join(section.findings)
    assert "Messages by MPI on a node, 8 B, one at a time: put 0.501 µs" in text
    assert "fetch-add 0.601 µs" in text
    assert "Messages by MPI between nodes, 64 started together: put 3.94 million/s" in text
    assert "Highest bandwidth of messages by MPI on a node: put 7.99 GB/s" in text
    assert len(section.findings) == 6
    assert len(section.exhibits) == 3 and section.remarks == ()


def test_messages_of_a_node_without_shared_memory_are_apart():
    rows = [
        row | {"comm_transport": "OMPI_MCA_btl=tcp,self TCP"}
        for row in everything()
        if row["distance"] == "same node"
    ]
    others = [
        record("put", 8, 1, distance, comm_transport=transport)
        for distance, transport in [
            ("same node", "shared memory (vader), TCP"),
            ("same node", ""),
            ("other node", "shared memory (vader), TCP"),
        ]
    ]
    assert set(messages(frame(rows), "")[0]["distance"]) == {"same node by TCP"}
    found, notes = messages(frame(others), "")
    assert sorted(set(found["distance"])) == ["other node", "same node"] and notes == []
    by_tcp = frame_of(Results(rows))
    assert "Messages by MPI on a node, by TCP instead of shared memory, 8 B" in findings(by_tcp)[0]
    assert figures["messages"](by_tcp).axes


def test_other_records_have_no_messages():
    rows = frame([{**record("put", 8, 1), "kernel": "stream.copy"}])
    for one in (rows, rows.drop(columns=["distance"]), rows.assign(comm_transport="")):
        found, notes = messages(one, "")
        assert found.empty and notes == []


def test_times_that_shared_memory_does_not_explain_are_noted():
    slow = record("put", 8, 1) | {"messages_per_second": 1 / 10.8e-6}
    _, notes = messages(frame([slow, record("put", 2**20, 1)]), "")
    assert notes == [
        "10.8 us within a node are not explained by shared memory: another transport (column "
        "comm_transport), or ranks that share processing units"
    ]


def test_the_time_of_a_halo_is_that_of_its_messages():
    rows = frame(everything())
    t0, wmax = LINES["send"]
    near = 2 * t0 + 30_000 / wmax
    assert mk.halo_time({"same node": (2, 30_000)}, rows) == pytest.approx(near, rel=1e-3)
    far = FARTHER["other node"] * (1.5 * t0 + 10_000 / wmax)
    both = {"same node": (2, 30_000), "other node": (1.5, 10_000)}
    assert mk.halo_time(both, rows) == pytest.approx(near + far, rel=1e-3)
    # Halos without neighbours need no times of messages.
    only_near = rows[rows["distance"] == "same node"]
    alone = {"same node": (2, 30_000), "other node": (0, 0)}
    assert mk.halo_time(alone, only_near) == pytest.approx(near, rel=1e-3)
    assert mk.halo_time({}, only_near) == 0
    with refused("the time of a send to the other node is unknown: measure several sizes by"):
        mk.halo_time(both, only_near)
    with refused("there is no record of messages"):
        mk.halo_time(both, frame(everything()).assign(kernel="stream.copy"))


def test_the_time_of_a_halo_is_that_of_one_machine():
    rows = frame(everything())
    several = frame([*everything(), *everything("Other Machine")])
    halo = {"same node": (1, 1000)}
    with refused("the messages are of Own Machine 3000 and Other Machine: choose one as machine"):
        mk.halo_time(halo, several)
    assert mk.halo_time(halo, several, "Other Machine") == mk.halo_time(halo, rows)
    with refused("no record of messages is of 'Nowhere', only of Own Machine 3000"):
        mk.halo_time(halo, rows, "Nowhere")
