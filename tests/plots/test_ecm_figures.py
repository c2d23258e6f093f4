"""Figures and tables of the ECM model and of rooflines, compared with their records."""

import dataclasses

import numpy as np
import pytest
from checking import refused
from ecm_records import LEVELS, LOOPS, MODEL, records
from plotting import footnotes, line

from memkern.formats import ResultSet
from memkern.models.ecm_fit import FITTED
from memkern.models.published_machines import published
from memkern.plots import figures, tables
from memkern.spec.kernel import Traffic


def test_the_table_has_every_loop_beside_its_prediction():
    frame = tables["ecm"](records(), overlap=str(MODEL.overlap))
    assert len(frame) == len(LOOPS) * len(LEVELS)
    assert frame["measured_over_predicted"].to_numpy() == pytest.approx(1, abs=0.01)
    assert set(frame.loc[frame["fitted"], "kernel"]) == set(FITTED)
    daxpy = frame[(frame["kernel"] == "loops.daxpy") & (frame["level"] == "L2")].iloc[0]
    assert daxpy["L2_load_cycles"] == pytest.approx(128 / 48, rel=0.02)
    assert daxpy["L2_store_cycles"] == pytest.approx(64 / 24, rel=0.02)


def test_the_term_of_memory_has_one_bandwidth_for_all_bytes_if_asked():
    common = tables["ecm"](records(), overlap="a", memory_rate="common")
    common = common.set_index(["kernel", "level"])
    rates = common["memory_rate"]
    assert rates["loops.load", "memory"] == "load"
    assert rates["loops.triad", "memory"] == rates["loops.copy", "memory"] == "triad"
    assert rates["loops.copy", "L2"] == ""
    # Loads of 5 and stores of 4 bytes per cycle: a triad has 3 / (3 / 5 + 1 / 4) of each.
    row = common.loc["loops.copy", "memory"]
    cycles = 64 * (3 / 5 + 1 / 4) / 4
    assert row["memory_load_cycles"] == pytest.approx(2 * cycles, rel=0.02)
    assert row["memory_store_cycles"] == pytest.approx(cycles, rel=0.02)
    apart = tables["ecm"](records(), overlap="a").set_index(["kernel", "level"])
    assert apart["memory_rate"]["loops.copy", "memory"] == "apart"
    assert apart["memory_load_cycles"]["loops.copy", "memory"] == pytest.approx(128 / 5, rel=0.02)
    with refused("memory_rate 'read' is not one of apart, common"):
        tables["ecm"](records(), memory_rate="read")


def test_a_machine_file_has_the_time_in_the_core_in_l1():
    frame = tables["ecm"](records(), machine="A64FX")
    daxpy = frame[frame["kernel"] == "loops.daxpy"].set_index("level")["core_cycles"]
    # 128 bytes are loaded, and 64 stored, at 128 and 64 bytes per cycle.
    assert daxpy["L1"] == 1
    assert tables["ecm"](records()).set_index(["kernel", "level"])["core_cycles"].loc[
        "loops.daxpy", "L1"
    ] == 0  # fmt: skip
    fig = figures["ecm"](records(), machine="A64FX")
    assert "Loads and stores of the core: A64FX, published." in footnotes(fig)


def test_predictions_lie_on_the_diagonal():
    fig = figures["ecm"](records(), overlap=str(MODEL.overlap))
    (ax,) = fig.axes
    for level in LEVELS:
        curve = line(ax, level)
        assert len(curve.get_xdata()) == len(LOOPS) - len(FITTED)
        assert curve.get_xdata() == pytest.approx(curve.get_ydata(), rel=0.01)
    assert str(MODEL.overlap) in footnotes(fig)


def test_the_overlap_diagram_stacks_what_adds():
    fig = figures["ecm-overlap"](records(), kernels="loops.copy,loops.triad")
    assert [ax.get_title() for ax in fig.axes] == ["loops.copy", "loops.triad"]
    ax = fig.axes[0]
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[0] == "measured"
    assert [name[:3] for name in names[1:5]] == ["(a)", "(b)", "(c)", "(d)"]
    assert "best fit" in " ".join(names) and "second best" in " ".join(names)
    assert "(d): max(L1 load + max(L1 store, L2), memory)." in footnotes(fig)
    ends = {}
    for bar in ax.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        ends[place] = max(ends.get(place, 0), bar.get_x() + bar.get_width())
    copy = MODEL.predict(Traffic(read=64, write=64, write_allocate=64).transfers(LEVELS)).cycles
    assert ends[0] == pytest.approx(copy)
    # Nothing overlaps in (a), which is the model of the records.
    assert ends[1] == pytest.approx(copy, rel=0.02)
    with refused("level 'L4' is not one of L1, L2, memory"):
        figures["ecm-overlap"](records(), level="L4")
    with refused("none of loops.sum was measured"):
        figures["ecm-overlap"](records(), kernels="loops.sum")


def lengths(ax):
    """Return the length of the bars of each label."""
    ends = [0.0] * len(ax.get_yticklabels())
    for bar in ax.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        ends[place] = max(ends[place], bar.get_x() + bar.get_width())
    return dict(zip((text.get_text() for text in ax.get_yticklabels()), ends, strict=True))


def test_the_overlap_diagram_of_the_paper_needs_no_records():
    fig = figures["ecm-overlap"](None, kernels="loops.triad")
    found = lengths(fig.axes[0])
    memory = 256 * 2.2 / 213
    store = memory / 4
    # A vector: loads 1, stores 1, L2 3 + 2 cycles. Measured: table 3.
    assert found == pytest.approx(
        {"measured": 5.7, "(a)": 7 + memory, "(b)": 5, "(c)": 6 + store, "(d)": 6}
    )
    assert "Measured loops and bandwidths: A64FX, Alappat et al. 2021." in footnotes(fig)
    in_l2 = figures["ecm-overlap"](None, level="L2")
    assert [ax.get_title() for ax in in_l2.axes] == ["loops.copy", "loops.load", "loops.triad"]
    in_l2 = figures["ecm-overlap"](None, level="L2", kernels="loops.triad")
    assert lengths(in_l2.axes[0]) == pytest.approx(
        {"measured": 5.6, "(a)": 7, "(b)": 5, "(c)": 6, "(d)": 6}
    )


def test_the_overlap_diagram_with_the_bandwidths_of_a_file(machine):
    fig = figures["ecm-overlap"](records(), kernels="loops.load", machine=machine)
    found = lengths(fig.axes[0])
    assert list(found) == ["measured", "(a)", "(b)", "(c)", "(d), machine file"]
    load = MODEL.predict(Traffic(read=64).transfers(LEVELS)).cycles
    assert found["measured"] == pytest.approx(load)
    assert found["(a)"] == pytest.approx(0.5 + 1 + 64 * 2.2 / 227)
    assert found["(d), machine file"] == pytest.approx(1.5)
    assert "Bandwidths: A64FX, published." in footnotes(fig)


def test_records_that_do_not_fit_are_refused():
    with refused("needs an undisturbed loops.load"):
        figures["ecm"](records(disturbed=True))


# Roofline


@pytest.fixture
def machine(tmp_path):
    """Return the path of a machine file with the levels of the records."""
    return str(dataclasses.replace(published("A64FX"), model="A").save(tmp_path / "a.json"))


def test_the_roofline_table(machine):
    frame = tables["roofline"](records(), machine=machine)
    assert len(frame) == len(LOOPS) * len(LEVELS)
    row = frame[(frame["kernel"] == "loops.triad") & (frame["name"] == "L2")].iloc[0]
    # Loads of three lines at 64 bytes per cycle, and a store at 32 bytes per cycle, at 2.2 GHz.
    assert row["roofline_s"] == pytest.approx((192 / 64 + 64 / 32) * 1e6 / 2.2e9)
    assert row["bound"] == "L2"
    assert row["roofline_fraction"] == pytest.approx(row["roofline_s"] / row["time_median_s"])
    assert row["roofline_min_fraction"] == pytest.approx(row["roofline_s"] / row["time_min_s"])
    assert row["roofline_GFLOPs"] == pytest.approx(16e6 / row["roofline_s"] / 1e9)
    assert row["machine_file"] == "A64FX, published"
    assert row["flops_per_B"] == pytest.approx(16 / 256)
    assert np.isnan(frame[frame["kernel"] == "loops.copy"]["flops_per_B"]).all()


def test_the_roofline_figure(machine):
    (ax,) = figures["roofline"](records(), machine=machine).axes
    assert len(line(ax, "loops.triad").get_xdata()) == len(LEVELS)
    texts = [text.get_text() for text in ax.texts]
    # Lines that nearly touch share a label.
    assert texts == ["L1 282, memory 227 GB/s", "L2 141 GB/s"]
    # Kernels without flops have no performance.
    assert "loops.copy" not in {curve.get_label() for curve in ax.lines}


def test_rooflines_need_a_machine_and_bytes(machine, tmp_path):
    with refused("the roofline needs a machine file"):
        figures["roofline"](records())
    with refused("no record has the bytes of each level"):
        bare = [
            {k: v for k, v in row.items() if not k.endswith(("_load_B", "_store_B"))}
            for row in records()
        ]
        tables["roofline"](ResultSet(bare, [np.empty(0)] * len(bare)), machine=machine)
    elsewhere = ResultSet(list(records()), records().samples, {"here": {"machine": {"model": "B"}}})
    with refused(r"a.json is of another machine \(A\) than the records \(B\)"):
        tables["roofline"](elsewhere, machine=machine)
    with refused("has floating-point operations"):
        figures["roofline"](records(performance_GFLOPs=float("nan")), machine=machine)


@pytest.mark.filterwarnings("ignore:A64FX is another machine")
def test_figures_say_that_records_are_of_another_machine_than_the_model():
    others = records()
    others.environments["here"] = {"machine": {"model": "Some CPU 3000"}}
    for name in ("roofline", "ecm-overlap"):
        fig = figures[name](others, machine="A64FX")
        assert "The records are of another machine, Some CPU 3000." in footnotes(fig)
        assert "another machine" not in footnotes(figures[name](records(), machine="A64FX"))
    # Loads and stores of one machine are not joined with bandwidths of another.
    for exhibit in (figures["ecm"], tables["ecm"]):
        with refused("machine must be that of the records, to whose loops .*, not A64FX"):
            exhibit(others, machine="A64FX")
