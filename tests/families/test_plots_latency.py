"""Figures, findings and section of latency, against the records that they show."""

import pytest
from checking import refused
from plotting import (
    KIB,
    LONG,
    MIB,
    Results,
    assert_legible,
    curve_labels,
    disturbed_markers,
    footnotes,
    frame,
    line,
    panel_texts,
)

from memkern import report
from memkern.families.latency.figures import concurrency, findings
from memkern.families.latency.kernels import GROUP, report_cases
from memkern.measuring.sweep import sweep
from memkern.plots import figures, save, sections, tables

FIGURES = ("latency-chains", "latency-cores", "latency-loaded", "latency-numa", "latency-sizes")
SIZES = tuple(16 * KIB * 4**i for i in range(7))


def record(kernel, ns, machine="Own Machine 3000", threads=1, **other):
    """Return one record with the columns that figures read."""
    return {
        "environment_id": "e1",
        "platform": f"{machine}, {threads} thread{'s' * (threads > 1)}",
        "kernel": f"latency.{kernel}",
        "threads": threads,
        "pages": "4k",
        "pages_asked": "default",
        "ns_per_access": ns,
        "bandwidth_GBps": 8 / ns,
        "disturbed": False,
        "valid": True,
    } | other


def sizes(order="random", **other):
    """Return chases of 2 ns in the first size and twice as long in each further one."""
    how = {"chains": 1, "order": order, **other}
    return [record("chase", 2.0 * 2**i, size_B=size, **how) for i, size in enumerate(SIZES)]


def chains(most=16, size=SIZES[-1], ns=128.0, **other):
    """Return chases with 1 to 32 chains, of which a core has `most` loads in flight."""
    return [
        record("chase", ns / min(n, most), size_B=size, order="random", chains=n, **other)
        for n in (1, 2, 4, 8, 16, 32)
    ]


def loaded(threads=4, size=SIZES[-1], slower=3.0, **other):
    """Return latencies that grow with the traffic, up to `slower` times 128 ns."""
    return [
        record(
            "loaded", 128 * (1 + (slower - 1) * share**3), size_B=size, loads=loads, pause=pause,
            traffic_GBps=share * (100 - 5 * (GROUP - loads)), threads=threads, order="random",
            **other,
        )
        for loads in (8, 6, 4)
        for pause, share in ((0, 1.0), (64, 0.7), (256, 0.4), (1024, 0.1))
    ]  # fmt: skip


def pairs(units=4, **other):
    """Return all pairs of units, 50 ns for neighbours and 100 ns for others, and half that."""
    return [
        record(
            "ping_pong", (50.0 if b // 2 == a // 2 else 100.0) / lines, pin=f"{a},{b}",
            lines=lines, threads=2, take_by="load", **other,
        )
        for lines in (1, 2)
        for a in range(units)
        for b in range(a + 1, units)
    ]  # fmt: skip


def nodes(units=2, memories=2, **other):
    """Return 100 ns and 50 GB/s to the own node's memory, twice and half of it to others."""
    rows = []
    for near in range(units):
        for far in range(memories):
            slower = 1 + (near != far)
            how = {"name": f"units of node {near}, memory of node {far}", **other}
            how |= {"size_B": 2**30, "order": "random", "chains": 1, "time_min_s": 1.0}
            rows.append(record("chase", 100.0 * slower, **how))
            rows.append({**rows[-1], "kernel": "stream.triad", "bandwidth_GBps": 50.0 / slower})
    return rows


def all_records(**other):
    return [*sizes(**other), *chains(**other), *loaded(**other), *pairs(**other), *nodes(**other)]


INPUTS = {
    "own": all_records(),
    "several": [*all_records(), *all_records(machine=LONG)],
    "many": [
        *sizes(), *sizes("in-page"), *sizes("one-per-page"), *sizes("random", pages_asked="thp"),
        *chains(), *chains(size=64 * KIB, ns=6.0, most=4), *chains(size=MIB, ns=20.0, most=8),
        *loaded(threads=64, slower=8.0), *pairs(units=24), *nodes(12, 12),
    ],
    "disturbed": [*all_records(), *all_records(disturbed=True, pages="thp")],
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("records", INPUTS)
def test_every_figure_is_legible(name, records):
    assert_legible(figures[name](Results(INPUTS[records])))


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_becomes_a_file(name, tmp_path):
    assert save(figures[name](Results(all_records())), tmp_path / "x.pdf").stat().st_size > 5000


@pytest.mark.parametrize("name", FIGURES)
def test_figures_say_how_to_measure_what_they_lack(name):
    with refused("`memkern latency .*-o .*parquet`"):
        figures[name](frame([record("other", 1.0)]))


def test_sizes_draw_each_order():
    fig = figures["latency-sizes"](Results([*sizes(), *sizes("in-page")]))
    (ax,) = fig.axes
    assert {"random order", "in-page order"} <= set(curve_labels(ax))
    assert list(line(ax, "random order").get_xdata()) == list(SIZES)
    assert list(line(ax, "random order").get_ydata()) == [2.0 * 2**i for i in range(7)]


def test_only_one_worker_and_chain_is_a_latency():
    others = [*chains(), *sizes(threads=2)]
    fig = figures["latency-sizes"](Results([*sizes(), *others]))
    assert len(line(fig.axes[0], "random order").get_xdata()) == len(SIZES)
    with refused("no chase was measured over two sizes"):
        figures["latency-sizes"](Results(chains()))
    with refused("with one worker"):
        figures["latency-sizes"](Results(sizes(threads=2)))


def test_loads_in_flight_are_latency_times_rate():
    found, _ = concurrency(Results(chains(most=10)))
    assert sorted(found["in_flight"]) == pytest.approx([1, 2, 4, 8, 10, 10])
    with refused("with one and with several chains"):
        concurrency(Results(sizes()))
    with refused("with one and with several chains"):
        concurrency(Results(chains()[1:]))


def test_the_structure_stands_beside_what_the_system_says():
    # The machine has L1 of 32 KiB, L2 of 1 MiB and L3 of 16 MiB; of L3 there is a quarter.
    levels = {32 * KIB: 1.0, MIB: 4.0, 4 * MIB: 15.0, 2**40: 100.0}
    rows = [
        record("chase", next(ns for end, ns in levels.items() if size <= end), size_B=size,
               order="random", chains=1)
        for size in (int(4 * KIB * 2 ** (k / 4)) for k in range(60))
    ]  # fmt: skip
    found = tables["latency-structure"](Results(rows))
    assert found["ns"].tolist() == list(levels.values())
    assert found["system"].tolist() == ["L1", "L2", "L3", ""]
    assert found["agrees"].tolist() == [True, True, False, None]
    assert found["fits_B"][:3].tolist() == [32 * KIB, MIB, 4 * MIB]
    (_, said) = findings(Results(rows))
    assert said == (
        "The latency rises between 4 MiB and 4.76 MiB, where the system says that L3 has 16 MiB"
    )
    with refused("no latency is the same over three sizes"):
        tables["latency-structure"](Results(sizes()))


def test_chains_in_another_cache_are_left_out():
    rows = [*chains(most=10), *chains(size=8 * MIB, ns=100.0)[:3], *chains(size=8 * MIB, ns=10)[3:]]
    found, notes = concurrency(Results(rows))
    assert sorted(found.loc[found["size_B"] == 8 * MIB, "chains"]) == [1, 2, 4]
    assert any("3 points left out" in note for note in notes)
    assert "a shared cache held more" in footnotes(figures["latency-chains"](Results(rows)))


def test_loaded_latency_names_saturation():
    saturated = figures["latency-loaded"](Results([*sizes(), *loaded(slower=3.0)]))
    assert not any("not saturated" in text for text in panel_texts(saturated.axes[0]))
    light = figures["latency-loaded"](Results([*sizes(), *loaded(slower=1.4, threads=2)]))
    assert "not saturated with 1 generator" in panel_texts(light.axes[0])
    labels = curve_labels(light.axes[0])
    assert labels == ["100 % loads", "75 % loads", "50 % loads", "no traffic"]
    assert set(line(light.axes[0], "no traffic").get_ydata()) == {128.0}
    without = figures["latency-loaded"](Results(loaded(slower=1.4)))
    assert "no traffic" not in curve_labels(without.axes[0])


def test_every_pair_stands_twice_in_the_map():
    fig = figures["latency-cores"](Results(pairs(units=3)))
    values = fig.axes[0].images[0].get_array()
    assert values[0, 1] == values[1, 0] == 50.0 and values[0, 2] == 100.0
    assert sorted(panel_texts(fig.axes[0])) == ["100"] * 4 + ["50"] * 2


def test_nodes_have_a_map_of_latency_and_one_of_bandwidth():
    fig = figures["latency-numa"](Results([*nodes(units=2, memories=3), *sizes()]))
    latencies, bandwidths = (ax.images[0].get_array() for ax in fig.axes[:2])
    assert latencies.tolist() == [[100, 200, 200], [200, 100, 200]]
    assert bandwidths.tolist() == [[50, 25, 25], [25, 50, 25]]
    assert "nothing is remote" in footnotes(figures["latency-numa"](Results(nodes(1, 1))))
    with refused("no record is of NUMA nodes"):
        figures["latency-numa"](Results([{**row, "name": "x"} for row in nodes()]))
    # Remote memory is no further point of a curve over sizes.
    fig = figures["latency-sizes"](Results([*nodes(), *sizes()]))
    assert len(line(fig.axes[0], "random order").get_xdata()) == len(SIZES)


def test_disturbed_records_are_hollow():
    rows = [*sizes()[:-1], record("chase", 9.0, size_B=SIZES[-1], chains=1, order="random",
                                  disturbed=True)]  # fmt: skip
    (curve,) = disturbed_markers(figures["latency-sizes"](Results(rows)))
    assert list(curve.get_ydata()) == [9.0]


def test_findings_follow_from_the_records():
    first, second, third = findings(Results(all_records()))
    assert "takes 2 ns in 16 KiB and 128 ns in 64 MiB" in first
    assert "32 independent chains in 64 MiB have 16 loads in flight: 8 ns" in second
    assert "answers another core's write after 50 to 100 ns" in third
    assert findings(Results(sizes())) == [first]
    named = findings(Results([*sizes(), *sizes(machine="Other")]))
    assert named[1].startswith("Other: ")


def test_the_section_in_a_report(tmp_path):
    cases = [case.with_(runs=2) for case in report_cases(True, 2**20, 2**30)]
    results = sweep(cases, progress=False)
    assert results.valid
    section = sections["latency"](results.to_frame())
    assert section is not None and len(section.exhibits) == 2
    path = report.write(results, tmp_path / "r.html", title="Latency", environment={})
    assert "Loads in flight" in path.read_text()
