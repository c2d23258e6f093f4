"""Figures and tables of RaiderSTREAM, on one machine and over ranks and nodes."""

import numpy as np
import pytest
from plotting import Results, curve_labels, footnotes, frame, line
from streaming_figure_records import (
    OWN,
    bs,
    everything,  # noqa: F401 (for the fixture `whole`)
    raider,
    record,
    stream,
)

from memkern import reference
from memkern.plots import figures, tables

# How much slower than the first each triad is, in the order of the panels.
SLOWER = {"triad": 1, "gather_triad": 8, "scatter_triad": 10}


def published(number, kernels):
    """Return the bandwidths of a figure of the paper."""
    rows = reference.load("raider2022")
    rows = rows[(rows["figure"] == number) & rows["kernel"].str.match(f"raider.{kernels}")]
    return rows["bandwidth_GBps"].tolist()


def bars(fig, panel):
    """Return the heights of the bars of a panel by platform."""
    groups = fig.axes[panel].containers
    return {group.get_label(): [bar.get_height() for bar in group] for group in groups}


def test_raider_bars_are_own_and_published_values(whole):
    fig = figures["raider-kernels"](whole, definition="release", index_pattern="stride:8")
    titles = ["Regular", "Gather", "Scatter", "Scatter-gather", "Central"]
    assert [ax.get_title() for ax in fig.axes if ax.get_title()] == titles
    heights = bars(fig, 1)
    np.testing.assert_allclose(heights[OWN], [30 / 8 * 2 * 1.5] * 4)
    assert heights["nocona"] == published(3, "gather_") and heights["thor"] == published(
        4, "gather_"
    )
    limits = [ax.get_ylim()[1] for ax in fig.axes[:4]]
    assert len(set(limits)) == 1 and fig.axes[4].get_ylim()[1] > 500
    assert "10 000 000" in footnotes(fig).replace("\N{NO-BREAK SPACE}", " ")


def scaled(ranks=(1, 2, 4), size=8_700_000, **other):
    """Return the triads of strong scaling at 20 GB/s of each rank, with two turns."""
    about = {"scaling": "strong", "scaling_size": size}
    return [
        record(
            f"raider.{kernel}",
            size // n * 8,
            20.0 * n / slower * (1 + 0.01 * turn),
            definition="" if slower == 1 else "paper",
            index_pattern=None if slower == 1 else "permutation",
            **about
            | {"platform": OWN + f" a rank, {n} ranks" * (n > 1), "oversubscribed": n > 2}
            | {"ranks": n, "repeat": turn}
            | other,
        )
        for kernel, slower in SLOWER.items()
        for n in ranks
        for turn in range(2)
    ]


def test_raider_scaling_draws_clusters_over_nodes_and_own_records_over_ranks():
    rows = [*scaled(), *scaled(size=22_000_000, ranks=(1, 2)), *scaled(scaling="weak"), *raider()]
    fig = figures["raider-scaling"](frame(rows))
    assert [ax.get_title() for ax in fig.axes] == ["Triad", "Gather triad", "Scatter triad"]
    for ax, (kernel, slower) in zip(fig.axes, SLOWER.items(), strict=True):
        drawn = {c.get_label().replace("\N{NO-BREAK SPACE}", " "): c.get_data() for c in ax.lines}
        for cluster, number, size in (("nocona", 7, "8 700 000"), ("thor", 8, "22 000 000")):
            # The best case, without oversubscribed ranks.
            mine = drawn[f"{OWN} per rank, {size} elements"]
            np.testing.assert_allclose(mine, [[1, 2], 20.2 * np.array([1, 2]) / slower])
            nodes, bandwidths = drawn[f"{cluster}, {size} elements"]
            assert list(nodes) == [2, 4, 6, 8, 10]
            assert list(bandwidths) == published(number, kernel)
    note = footnotes(fig)
    assert "6 records with more workers than processing units on a host left out." in note
    assert "128 cores of each node of nocona and 32 cores of each node of thor were used." in note


# Names of the paper's models and bandwidths, each on the same machine.
MODELS = {"none": ("", 1.0), "mpi": ("MPI, ", 0.5), "shmem": ("OpenSHMEM, ", 0.25)}


def of_models(rows, models=tuple(MODELS)):
    """Return records with OpenMP alone, over MPI and over OpenSHMEM."""
    return [
        row | {"comm": comm, "bandwidth_GBps": MODELS[comm][1] * row["bandwidth_GBps"]}
        for comm in models
        for row in rows
    ]


def test_models_have_a_series_each():
    rows = frame(of_models(raider()))
    labels = {f"Own Machine 3000, {name}4 threads": share for name, share in MODELS.values()}
    sizes, kernels = figures["raider-sizes"](rows), figures["raider-kernels"](rows)
    for label, share in labels.items():
        for ax, slower in zip(sizes.axes, SLOWER.values(), strict=True):
            wanted = share * np.array([200.0, 30.0, 30.0]) / slower
            np.testing.assert_allclose(line(ax, label).get_ydata(), wanted)
        assert bars(kernels, 0)[label] == pytest.approx([30 * share] * 4)
    assert set(tables["raider-table"](rows)["platform"]) == set(labels)


def test_models_scale_in_lines_of_their_own():
    fig = figures["raider-scaling"](frame(of_models(scaled(), ("mpi", "shmem"))))
    own = [name for name in curve_labels(fig.axes[0]) if ", 4 threads" in name]
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
    wanted = 1.3 * np.array([200.0, 30.0, 30.0])
    np.testing.assert_allclose(line(fig.axes[0], OWN).get_ydata(), wanted)
    assert "means of five runs, own ones of 3." in footnotes(fig)
    # Disturbed repeats do not count, and a slower variant is another case.
    rows += [*repeated(9.0, disturbed=True), *raider(case_id="another")]
    assert bars(figures["raider-kernels"](frame(rows)), 0)[OWN][3] == pytest.approx(39)
    faster = [row for row in repeated(2.0, case_id="b") if row["kernel"] == "raider.gather_triad"]
    assert "own ones of 1 to 3." in footnotes(figures["raider-sizes"](frame([*rows, *faster])))
    single = footnotes(figures["raider-sizes"](frame(raider())))
    assert "own ones are the best of single runs (`--repeats 5` measures" in single


@pytest.mark.parametrize(
    ("name", "rows", "options", "note"),
    [
        ("raider-kernels", None, {}, "Published clusters only."),
        ("raider-sizes", stream(), {}, "No own record: `memkern raider"),
        (
            "raider-kernels",
            [row for row in raider() if "central" not in row["kernel"]],
            {"definition": "other"},
            "No own record with definition other and pattern permutation.",
        ),
        *(
            ("raider-scaling", rows, {}, "`memkern scaling -o")
            for rows in (raider(), scaled(scaling="weak"), bs())
        ),
    ],
)
def test_missing_own_records_are_noted(name, rows, options, note):
    fig = figures[name](rows and frame(rows), **options)
    assert note in footnotes(fig) and "means of five" not in footnotes(fig)


def test_systems_are_those_of_table_2_and_of_own_records():
    published = tables["raider-systems"](None)
    assert published["platform"].tolist() == ["nocona", "thor"]
    assert published["cores_per_socket"].tolist() == [64, 16]
    assert published["l3_MiB"].tolist() == [16, 40]
    results = Results(of_models(raider(comm_transport="vader")))
    for row in results.rows:
        row["comm_library"] = {"mpi": "Open MPI 5", "shmem": "Sandia"}.get(row["comm"], "")
    machine = {"architecture": "riscv64", "model": "Own", "sockets": 2, "cores": 8, "threads": 16}
    results.environments["e1"]["machine"] |= {**machine, "memory_B": 3 * 2**30}
    table = tables["raider-systems"](results)
    own = table[table["row"] == "own"].iloc[0]
    assert len(table) == 3 and own["platform"] == own["processor"] == "Own"
    numbers = ["sockets", "cores_per_socket", "threads_per_core"]
    numbers += ["memory_GiB", "l1_KiB", "l2_KiB", "l3_MiB"]
    assert own[numbers].tolist() == [2, 4, 2, 3, 32, 1024, 16]
    assert own[["mpi", "openshmem", "interconnect"]].tolist() == ["Open MPI 5", "Sandia", "vader"]
    # A table of records has no description of the machine.
    assert len(tables["raider-systems"](frame(results.rows))) == 2


def test_raider_table_has_definitions_and_patterns(whole):
    table = tables["raider-table"](whole)
    assert len(table) == 4 * 2 + 12 * 4 + 4
    assert set(table["elements"]) == {10_000_000}
    case = table.set_index(["kernel", "definition", "index_pattern"])["bandwidth_GBps"]
    assert case["raider.gather_add", "release", "stride:8"] == pytest.approx(30 / 8 * 3)
