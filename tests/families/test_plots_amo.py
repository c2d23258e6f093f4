"""Figures, tables and section of atomic operations, against the records that they show."""

import math

import numpy as np
import pytest
from amo_figure_records import chases, everything, large, patterns, record, remote, scaled, sharing
from checking import refused
from plotting import (
    KIB,
    MIB,
    common_columns,
    curve_labels,
    dot_values,
    footnotes,
    frame,
    line,
    panel_texts,
)

from memkern.families.amo.data import PATTERNS, atomics, in_rows, one_setting
from memkern.families.amo.findings import findings
from memkern.plots import figures, sections, tables
from memkern.plots.frames import frame_of, percent


@pytest.mark.parametrize("name", ["amo-rates", "amo-price"])
def test_any_primitives_can_be_compared(name):
    rows = frame(patterns(primitives=("add", "cas", "plain", "xor")))
    fig = figures[name](rows, primitives="xor, cas,add")
    words = ("xor", "cas", "add") if name == "amo-rates" else ("over xor", "over cas", "over add")
    assert [text.get_text() for text in fig.legends[0].texts] == list(words)


def test_the_fastest_of_several_counts():
    rows = [*patterns(), *patterns(counts=(4,), pages="thp")]
    rows[-1]["rate_GAMS"] = 100.0
    table = tables["amo-rates"](frame(rows))
    assert len(table) == 8 * 3 * 3
    assert table["rate_GAMS"].max() == 100


def test_small_and_large_arrays_have_rows_of_their_own():
    rows = [*patterns(counts=(4,)), *large(), *large(words=2 * MIB)]
    table = in_rows(one_setting(atomics(frame(rows), "")[0])[0])
    names = list(dict.fromkeys(table["row"]))
    assert names[:3] == ["RAND, 2 MiB", "RAND, 64 MiB", "STRIDE1"]
    assert names[3:] == ["STRIDEN", "PTRCHASE", "CENTRAL", "SG", "SCATTER", "GATHER"]
    close = [*patterns(counts=(4,)), *large(words=2**19)]
    table = in_rows(one_setting(atomics(frame(close), "")[0])[0])
    assert set(table["row"]) == {name.upper() for name in PATTERNS}


def test_models_are_side_by_side():
    """The models with two workers, each at its smallest size, and not OpenMP with four."""
    rows = patterns(counts=(2, 4))
    for backend, slower in (("mpi", 10), ("shmem", 40)):
        how = {"ranks": 2, "backend": backend, "iters": 2**12}
        rows += [
            row | {"rate_GAMS": row["rate_GAMS"] / slower} for row in patterns(counts=(1,), **how)
        ]
    fig = figures["amo-rates"](frame([*rows, *large(threads=2)]))
    (ax,) = fig.axes
    assert ax.get_title() == "2 workers"
    series = {model: dot_values(ax, f"add, {model}") for model in ("OpenMP", "MPI", "OpenSHMEM")}
    for pattern in PATTERNS:
        name = pattern.upper()
        assert series["OpenMP"][name] == pytest.approx(scaled(pattern, 2))
        assert series["MPI"][name] == pytest.approx(scaled(pattern, 1) / 10)
        assert series["OpenSHMEM"][name] == pytest.approx(scaled(pattern, 1) / 40)
    labels = [text.get_text() for text in fig.legends[0].texts]
    models = ("OpenMP", "MPI", "OpenSHMEM")
    assert labels == [f"{name}, {model}" for name in ("add", "cas") for model in models]
    assert "Of each model its smallest array." in footnotes(fig)
    # Each worker of two ranks with a thread has half of the rate.
    (of_rank,) = atomics(frame(remote(ranks=(2,))[:1]), "")[0]["ns"]
    assert of_rank == pytest.approx(2 / 0.002)


def test_the_share_of_remote_operations_grows_with_the_ranks():
    (ax,) = figures["amo-remote"](frame(everything())).axes
    assert curve_labels(ax) == ["RAND, SCATTER, random", "RAND, SCATTER, ring"]
    drawn = line(ax, "RAND, SCATTER, random")
    assert list(drawn.get_xdata()) == [2, 4, 8]
    np.testing.assert_allclose(drawn.get_ydata(), [50, 75, 87.5])
    assert list(line(ax, "RAND, SCATTER, ring").get_ydata()) == [100, 100, 100]
    assert ax.get_ylim() == (0, 105)


def test_patterns_share_a_line_where_their_remote_shares_are_equal():
    rows = remote(patterns=PATTERNS)
    for row in rows:
        if row["kernel"] == "amo.gather" and row["targets"] == "ring":
            row["remote_share"] = 0.25
    (ax,) = figures["amo-remote"](frame(rows)).axes
    labels = ["RAND and 7 others, random", "RAND and 6 others, ring", "GATHER, ring"]
    assert sorted(curve_labels(ax)) == sorted(labels)
    assert list(line(ax, "GATHER, ring").get_ydata()) == [25, 25, 25]


def test_fractions_are_written_in_percent():
    shares = (1.0, 0.4836, 0.0123, 3.7e-5, 1e-9)
    assert list(map(percent, shares)) == ["100 %", "48 %", "1.2 %", "0.0037 %", "< 0.001 %"]


def test_rates_are_drawn_by_pattern_with_their_outcomes(whole):
    (ax,) = figures["amo-rates"](whole).axes
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[:2] == ["RAND, 2 MiB", "RAND, 64 MiB"] and names[-1] == "GATHER"
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # from top to bottom
    assert "0.12 (25 % succeed)" in panel_texts(ax)
    assert ax.get_title() == "4 workers" and ax.get_xscale() == "log"
    lost = figures["amo-rates"](whole, primitives="plain", threads=2)
    assert "1.5 (50 % lost)" in panel_texts(lost.axes[0])
    assert lost.axes[0].get_title() == "2 workers"


def test_the_price_is_relative_to_plain_loads_and_stores(whole):
    fig = figures["amo-price"](whole)
    assert [ax.get_title() for ax in fig.axes] == ["1 worker", "4 workers"]
    for ax in fig.axes:
        assert dot_values(ax, "over add")["SCATTER"] == pytest.approx(5.0)
        assert dot_values(ax, "over cas")["SCATTER"] == pytest.approx(6.25)
        assert line(ax, "_level").get_xdata()[0] == 1
    one, four = fig.axes
    assert "lost" not in panel_texts(one) and {"lost", "50 %"} <= set(panel_texts(four))
    assert dot_values(four, "over add")["RAND, 64 MiB"] == 1.0
    rows = [*everything(), *patterns(counts=(1, 8), machine="Other")]
    titles = [ax.get_title() for ax in figures["amo-price"](frame(rows)).axes]
    assert titles == [
        *("Own Machine 3000, 1 worker", "Own Machine 3000, 4 workers"),
        *("Other, 1 worker", "Other, 8 workers"),
    ]
    only = figures["amo-price"](whole, primitives="cas", threads=2)
    assert [ax.get_title() for ax in only.axes] == ["2 workers"]


def test_rates_against_workers_beside_ideal_scaling(whole):
    fig = figures["amo-workers"](whole)
    rate, scaling = fig.axes
    for pattern in PATTERNS:
        mine, times = line(rate, pattern.upper()), line(scaling, pattern.upper())
        assert list(mine.get_xdata()) == [1, 2, 4]
        np.testing.assert_allclose(mine.get_ydata(), [scaled(pattern, n) for n in (1, 2, 4)])
        wanted = [1, 0.5, 0.25] if pattern == "central" else [1, 2, 4]
        np.testing.assert_allclose(times.get_ydata(), wanted)
    ideal = line(scaling, "ideal")
    assert list(ideal.get_xdata()) == list(ideal.get_ydata()) == [1, 2, 4]
    assert {ax.get_yscale() for ax in fig.axes} == {"log"}
    swaps = figures["amo-workers"](whole, primitive="cas")
    assert line(swaps.axes[0], "SG").get_ydata()[0] == pytest.approx(0.3 / 1.25)


def test_without_one_worker_there_is_no_scaling():
    fig = figures["amo-workers"](frame(patterns(counts=(2, 4))))
    assert len(fig.axes) == 1


def test_false_sharing_is_drawn_by_distance_of_words(whole):
    (ax,) = figures["amo-sharing"](whole).axes
    near = line(ax, "private words, adjacent")
    np.testing.assert_allclose(near.get_ydata(), [0.6, 0.15, 0.3])
    # The original CENTRAL also has one word for all workers, and was faster.
    np.testing.assert_allclose(line(ax, "one word for all").get_ydata(), [0.6, 0.3, 0.15])
    np.testing.assert_allclose(line(ax, "ideal").get_ydata(), [0.6, 1.2, 2.4])
    several = sharing(counts=(2, 4), hot=2)  # pairs of workers share a word: left out
    (ax,) = figures["amo-sharing"](frame([*sharing(), *several])).axes
    assert list(line(ax, "private words, adjacent").get_ydata()) == list(near.get_ydata())


def test_latency_is_each_workers_time_for_an_operation(whole):
    (ax,) = figures["amo-latency"](whole).axes
    drawn = [16 * KIB * 4 ** np.arange(7), 2.0 * (np.arange(7) + 2)]
    np.testing.assert_allclose(line(ax, "cas").get_data(), drawn)
    assert ax.get_title() == "1 worker"
    many = [row | {"threads": 2, "platform": "Own Machine 3000, 2 threads"} for row in chases()]
    fig = figures["amo-latency"](frame([*chases(), *many]), primitives="add", threads=2)
    assert line(fig.axes[0], "add").get_ydata()[0] == pytest.approx(4.0)
    words = [row | {"dtype": "uint32"} for row in chases()]
    assert line(figures["amo-latency"](frame(words)).axes[0], "add").get_xdata()[0] == 8 * KIB


def test_table_of_rates_has_times_and_outcomes(whole):
    table = tables["amo-rates"](whole)
    table = table[table["backend"] == "openmp"]
    one, four = table[table["threads"] == 1], table[table["threads"] == 4]
    assert len(one) == 8 * 3 and len(four) == 9 * 3
    assert list(dict.fromkeys(one["pattern"])) == [name.upper() for name in PATTERNS]
    case = four.set_index(["pattern", "primitive", "array_B"])
    swap = case.loc[("CENTRAL", "cas", 8)]
    assert swap["success_fraction"] == 0.25 and math.isnan(swap["lost_fraction"])
    assert swap["ns_per_amo"] == pytest.approx(4 / (0.6 / 4 / 1.25))
    assert case.loc[("CENTRAL", "plain", 8)]["lost_fraction"] == 0.5
    assert case.loc[("RAND", "add", 64 * MIB)]["rate_GAMS"] == 0.4
    assert set(tables["amo-rates"](whole, primitives="cas")["primitive"]) == {"cas"}
    # Ranks have rows of their own, with the workers of all of them.
    ranks = tables["amo-rates"](frame([*remote(), *patterns()]), primitives="add,or")
    assert list(dict.fromkeys(ranks["backend"])) == ["openmp", "mpi"]
    ranks = ranks[ranks["backend"] == "mpi"]
    assert ranks["threads"].tolist() == [2, 2, 4, 4, 8, 8]
    assert ranks["rate_GAMS"].tolist() == pytest.approx([0.002] * 2 + [0.004] * 2 + [0.008] * 2)


def test_published_runs_are_listed_below_own_ones(whole):
    table = tables["amo-circustent"](whole)
    assert table["row"].tolist() == ["own"] * 4 + ["published"] * 5
    own, published = table[table["row"] == "own"], table[table["row"] == "published"]
    assert own["threads"].tolist() == [1, 2, 4, 4]
    assert own["memory_B"].iloc[-1] == 64 * MIB and own["rate_GAMS"].iloc[-1] == 0.4
    assert set(published["threads"]) == {24}
    np.testing.assert_allclose(
        published["rate_GAMS"],
        published["threads"] * published["iters"] / published["time_s"] / 1e9,
        rtol=1e-4,
    )
    np.testing.assert_allclose(table["ns_per_amo"], table["threads"] / table["rate_GAMS"])
    alone = tables["amo-circustent"](None)
    assert len(alone) == 5 and alone.notna().all(axis=None)
    other = frame(patterns(primitives=("cas",)))
    assert len(tables["amo-circustent"](other)) == 5


def over_ranks(pattern="rand", rate=0.001, share=1.0, node=None, flush_every=1, **other):
    """Return a record of two ranks, on one node unless `node` is another share."""
    how = {"backend": "mpi", "ranks": 2, "ranks_per_node": 2, "targets": "ring"}
    how |= {"remote_share": share, "flush_every": flush_every}
    how |= {"node_share": share if node is None else node}
    return record(pattern, "add", 1, rate, **how) | other


def fetch_add(message_s, window=1, distance="same node", **other):
    """Return a record of fetch-and-adds of one origin."""
    return {
        **common_columns("messages.fetch_add", 1, "Own Machine 3000"),
        "backend": "mpi",
        "window": window,
        "origins": 1,
        "distance": distance,
        "messages_per_second": 1 / message_s,
    } | other


@pytest.mark.parametrize(
    ("row", "limit"),
    [
        (over_ranks(), 2 / 500),
        (over_ranks(share=0.25), 2 / (0.25 * 500 + 0.75 * 100)),
        (over_ranks(share=0.0), 2 / 100),
        (over_ranks(flush_every=64), 2 / 80),
        # Without records of batches to the own rank, which count as no time.
        (over_ranks(share=0.5, flush_every=64), 2 / (0.5 * 80)),
        (over_ranks(node=0.0, ranks_per_node=1), 2 / 3000),
        # Several nodes, and several ranks on each.
        (over_ranks(ranks=4, share=0.75, node=0.25), 4 / (0.25 * (100 + 500) + 0.5 * 3000)),
        (over_ranks(share=0.75, node=0.25, flush_every=64), None),
        (over_ranks(ranks=4, ranks_per_node=4, threads=3), 12 / 500),
        (over_ranks(pattern="sg"), 2 / 500),
        (over_ranks(pattern="sg", flush_every=64), None),
        (over_ranks(flush_every=8), None),
        (over_ranks(ranks=4), 4 / 500),
        (over_ranks(backend="shmem"), None),
    ],
)
def test_rates_over_ranks_are_beside_their_limits(row, limit):
    added = [
        fetch_add(500e-9), fetch_add(600e-9), fetch_add(80e-9, 64),
        fetch_add(100e-9, distance="same rank"), fetch_add(3e-6, distance="other node"),
    ]  # fmt: skip
    rows = frame([row, *added, *patterns()])
    if limit is None:
        with refused("`memkern messages --device mpi --kernel fetch_add"):
            tables["amo-limits"](rows)
        return
    (found,) = tables["amo-limits"](rows).to_dict("records")
    assert found["limit_GAMS"] == pytest.approx(limit)
    assert found["share"] == pytest.approx(0.001 / limit)
    assert (f"amo.{found['pattern']}", found["flush_every"]) == (row["kernel"], row["flush_every"])


def test_the_section_tells_what_share_of_the_limit_is_reached():
    rows = [over_ranks(), over_ranks("central", 0.003), fetch_add(500e-9)]
    text = " ".join(findings(frame_of(frame(rows))))
    assert "25 % in RAND with targets ring and 1 completed together to 75 % in CENTRAL" in text
    assert "allow" not in " ".join(findings(frame_of(frame(rows[:2]))))


def test_findings_follow_from_the_records(whole):
    section = sections["atomics"](frame_of(whole))
    text = " ".join(section.findings)
    assert "Atomic operations of 4 workers: at random places (RAND, 2 MiB) add 0.8 GAMS" in text
    assert "at one word for all (CENTRAL) add 0.15 GAMS and cas 0.12 GAMS" in text
    assert "25 % of the compare-and-swaps at one word for all succeed." in text
    assert "in the time of one atomic add, with 4 workers: 5 at random places (RAND, 2 MiB)" in text
    assert "5 at one word for all (CENTRAL), of which 50 % are lost." in text
    assert "4 workers on separate words reach 2.4 GAMS with the words 128 B apart" in text
    assert "0.3 GAMS with the words in one cache line: false sharing costs a factor of 8.0" in text
    assert "add takes 2 ns in 16 KiB and 8 ns in 64 MiB" in text
    assert len(section.exhibits) == 8 and section.remarks == ()
    assert "CircusTent" in section.citation
