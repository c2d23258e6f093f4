"""Figures and tables of RaiderSTREAM, on one machine and over ranks and nodes."""

import numpy as np
import pytest
from checking import once_a_kind
from plotting import Results, assert_legible, curve_labels, footnotes, frame, line
from streaming_figure_records import (
    LONG_PLATFORM,
    OWN,
    bs,
    everything,  # noqa: F401 (for the fixture `whole`)
    held,
    raider,
    record,
    stream,
)

from memkern import reference
from memkern.errors import InputError
from memkern.plots import figures, tables


def test_raider_bars_are_own_and_published_values(whole):
    fig = figures["raider-kernels"](whole, definition="release", index_pattern="stride:8")
    titles = ["Regular", "Gather", "Scatter", "Scatter-gather", "Central"]
    assert [ax.get_title() for ax in fig.axes if ax.get_title()] == titles
    heights = {
        container.get_label(): [bar.get_height() for bar in container]
        for container in fig.axes[1].containers
    }
    np.testing.assert_allclose(heights[OWN], [30 / 8 * 2 * 1.5] * 4)
    for platform, number in (("nocona", 3), ("thor", 4)):
        rows = reference.load("raider2022")
        rows = rows[(rows["figure"] == number) & rows["kernel"].str.contains("gather_")]
        assert heights[platform] == rows["bandwidth_GBps"].tolist()
    limits = [ax.get_ylim()[1] for ax in fig.axes[:4]]
    assert len(set(limits)) == 1 and fig.axes[4].get_ylim()[1] > 500
    assert "10 000 000" in footnotes(fig).replace("\N{NO-BREAK SPACE}", " ")


def test_raider_notes_missing_records():
    fig = figures["raider-kernels"](frame(raider()), definition="other")
    assert "No own record with definition other" not in footnotes(fig)  # central kernels stay
    none = [row for row in raider() if "central" not in row["kernel"]]
    note = footnotes(figures["raider-kernels"](frame(none), definition="other"))
    assert "No own record with definition other and pattern permutation." in note
    assert "`memkern raider" in footnotes(figures["raider-sizes"](frame(stream())))


def test_raider_sizes_draw_three_triads(whole):
    fig = figures["raider-sizes"](whole)
    for ax, slower in zip(fig.axes, (1, 8, 10), strict=True):
        mine = line(ax, OWN)
        assert list(mine.get_xdata()) == [100_000, 1_000_000, 10_000_000]
        wanted = [held(24 * n) / slower for n in (100_000, 1_000_000, 10_000_000)]
        np.testing.assert_allclose(mine.get_ydata(), wanted)
        assert len(line(ax, "thor, MPI").get_xdata()) == 5
        assert mine.get_linewidth() > line(ax, "nocona, OpenMP").get_linewidth()


def scaled(ranks=(1, 2, 4), size=8_700_000, **other):
    """Return the triads of strong scaling at 20 GB/s of each rank, with two turns."""
    return [
        record(
            f"raider.{access}triad",
            size // n * 8,
            20.0 * n / slower * (1 + 0.01 * turn),
            definition="paper" if access else "",
            index_pattern="permutation" if access else None,
            **{
                "scaling": "strong",
                "scaling_size": size,
                "ranks": n,
                "platform": OWN + f" a rank, {n} ranks" * (n > 1),
                "oversubscribed": n > 2,
                "repeat": turn,
                **other,
            },
        )
        for access, slower in {"": 1, "gather_": 8, "scatter_": 10}.items()
        for n in ranks
        for turn in range(2)
    ]


SCALED = {
    "several": lambda: [
        *scaled(range(1, 65)),
        *scaled(platform=LONG_PLATFORM, oversubscribed=False),
    ],
    "own": lambda: scaled(),
    "sizes": lambda: [*scaled(), *scaled(size=22_000_000), *raider()],
    "disturbed": lambda: scaled(disturbed=True),
}


@pytest.mark.parametrize("records", once_a_kind(SCALED))
def test_scaling_beside_clusters_is_legible(records):
    assert_legible(figures["raider-scaling"](frame(SCALED[records]())))


def test_raider_scaling_draws_clusters_over_nodes_and_own_records_over_ranks():
    rows = [*scaled(), *scaled(size=22_000_000, ranks=(1, 2)), *scaled(scaling="weak"), *raider()]
    fig = figures["raider-scaling"](frame(rows))
    assert [ax.get_title() for ax in fig.axes] == ["Triad", "Gather triad", "Scatter triad"]
    published = reference.load("raider2022")
    for ax, access, slower in zip(fig.axes, ("", "gather_", "scatter_"), (1, 8, 10), strict=True):
        drawn = {c.get_label().replace("\N{NO-BREAK SPACE}", " "): c for c in ax.lines}
        for size in ("8 700 000", "22 000 000"):
            mine = drawn[f"{OWN} per rank, {size} elements"]
            # The best case, without oversubscribed ranks.
            assert list(mine.get_xdata()) == [1, 2]
            np.testing.assert_allclose(mine.get_ydata(), 20.2 * np.array([1, 2]) / slower)
        for cluster, number, size in (("nocona", 7, "8 700 000"), ("thor", 8, "22 000 000")):
            wanted = published[
                (published["figure"] == number) & (published["kernel"] == f"raider.{access}triad")
            ]
            line_of = drawn[f"{cluster}, {size} elements"]
            assert list(line_of.get_xdata()) == [2, 4, 6, 8, 10]
            assert list(line_of.get_ydata()) == wanted["bandwidth_GBps"].tolist()
    note = footnotes(fig)
    assert "6 records with more workers than processing units on a host left out." in note
    assert "128 cores of each node of nocona and 32 cores of each node of thor were used." in note


# The models of the paper, each on the same machine at another bandwidth.
MODELS = {"none": 1.0, "mpi": 0.5, "shmem": 0.25}


def of_models(**other):
    """Return RaiderSTREAM with OpenMP alone, over MPI and over OpenSHMEM, one rank each."""
    return [
        row | {"comm": comm, "bandwidth_GBps": share * row["bandwidth_GBps"]}
        for comm, share in MODELS.items()
        for row in raider(**other)
    ]


def test_models_have_a_series_each():
    rows = frame(of_models())
    labels = {"Own Machine 3000, 4 threads": 1.0, "Own Machine 3000, MPI, 4 threads": 0.5}
    labels["Own Machine 3000, OpenSHMEM, 4 threads"] = 0.25
    sizes = figures["raider-sizes"](rows)
    for ax, slower in zip(sizes.axes, (1, 8, 10), strict=True):
        for label, share in labels.items():
            np.testing.assert_allclose(
                line(ax, label).get_ydata(), share * np.array([200.0, 30.0, 30.0]) / slower
            )
    kernels = figures["raider-kernels"](rows)
    bars = {group.get_label(): group for group in kernels.axes[0].containers}
    for label, share in labels.items():
        assert bars[label][0].get_height() == pytest.approx(30 * share)
    table = tables["raider-table"](rows)
    assert set(table["platform"]) == set(labels)
    for fig in (sizes, kernels):
        assert_legible(fig)


def test_models_scale_in_lines_of_their_own():
    rows = [
        row | {"comm": comm, "bandwidth_GBps": MODELS[comm] * row["bandwidth_GBps"]}
        for comm in ("mpi", "shmem")
        for row in scaled()
    ]
    fig = figures["raider-scaling"](frame(rows))
    own = {name: line for name in curve_labels(fig.axes[0]) if ", 4 threads" in name}
    assert [name.split(", ")[1] for name in own] == ["MPI", "OpenSHMEM"]
    mpi, shmem = (line(fig.axes[0], name).get_ydata() for name in own)
    np.testing.assert_allclose(mpi, 2 * shmem)
    assert "of single runs (`--turns 5` measures means)" in footnotes(fig)


def test_own_points_beside_published_ones_are_means_of_repeats():

    def repeated(factor, **other):
        return [
            row | {"bandwidth_GBps": factor * row["bandwidth_GBps"], "case_id": str(case)} | other
            for case, row in enumerate(raider())
        ]

    rows = [*repeated(1.0), *repeated(1.2), *repeated(1.7)]
    fig = figures["raider-sizes"](frame(rows))
    mine = line(fig.axes[0], "Own Machine 3000, 4 threads")
    np.testing.assert_allclose(mine.get_ydata(), 1.3 * np.array([200.0, 30.0, 30.0]))
    assert "means of five runs, own ones of 3." in footnotes(fig)
    # Disturbed repeats do not count, and a slower variant is another case.
    rows += [*repeated(9.0, disturbed=True), *raider(case_id="another")]
    fig = figures["raider-kernels"](frame(rows))
    regular = {group.get_label(): group for group in fig.axes[0].containers}
    assert regular["Own Machine 3000, 4 threads"][3].get_height() == pytest.approx(39)
    faster = [row for row in repeated(2.0, case_id="b") if row["kernel"] == "raider.gather_triad"]
    assert "own ones of 1 to 3." in footnotes(figures["raider-sizes"](frame([*rows, *faster])))
    single = figures["raider-sizes"](frame(raider()))
    assert "own ones are the best of single runs (`--repeats 5` measures" in footnotes(single)
    assert "means of five" not in footnotes(figures["raider-sizes"](None))


def test_systems_are_those_of_table_2_and_of_own_records():
    published = tables["raider-systems"](None)
    assert published["platform"].tolist() == ["nocona", "thor"]
    assert published["cores_per_socket"].tolist() == [64, 16]
    assert published["l3_MiB"].tolist() == [16, 40]
    results = Results(of_models(comm_library="", comm_transport="vader"))
    for row in results.rows:
        row["comm_library"] = {"mpi": "Open MPI 5", "shmem": "Sandia"}.get(row["comm"], "")
    machine = results.environments["e1"]["machine"]
    machine |= {"architecture": "riscv64", "model": "Own", "sockets": 2, "cores": 8, "threads": 16}
    machine["memory_B"] = 3 * 2**30
    table = tables["raider-systems"](results)
    own = table[table["row"] == "own"].iloc[0]
    assert len(table) == 3 and own["platform"] == own["processor"] == "Own"
    assert (own["sockets"], own["cores_per_socket"], own["threads_per_core"]) == (2, 4, 2)
    assert own[["memory_GiB", "l1_KiB", "l2_KiB", "l3_MiB"]].tolist() == [3, 32, 1024, 16]
    assert own[["mpi", "openshmem", "interconnect"]].tolist() == ["Open MPI 5", "Sandia", "vader"]
    # A table of records has no description of the machine.
    assert len(tables["raider-systems"](frame(of_models()))) == 2


def test_raider_scaling_notes_missing_records():
    for rows in (raider(), scaled(scaling="weak"), bs()):
        assert "`memkern scaling -o" in footnotes(figures["raider-scaling"](frame(rows)))


def test_raider_table_has_definitions_and_patterns(whole):
    table = tables["raider-table"](whole)
    assert len(table) == 4 * 2 + 12 * 4 + 4
    assert set(table["elements"]) == {10_000_000}
    case = table.set_index(["kernel", "definition", "index_pattern"])["bandwidth_GBps"]
    assert case["raider.gather_add", "release", "stride:8"] == pytest.approx(30 / 8 * 3)
    with pytest.raises(InputError, match="memkern raider"):
        tables["raider-table"](None)
