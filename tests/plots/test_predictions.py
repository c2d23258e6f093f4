"""The ECM model in figures, compared with the predictions for a published processor."""

import dataclasses

import numpy as np
import pytest
from checking import refused
from plotting import footnotes, line
from predicted_records import A64FX, CLOCK, hops, loops, products, record, results, streams

import memkern as mk
from memkern.families.dw.data import core_of
from memkern.families.spmv.data import core_of as spmv_core_of
from memkern.models.ecm_fit import predict_record
from memkern.models.machine_file import InCore, Instruction, Quantity, body_of
from memkern.plots import figures


def test_a_core_takes_at_least_the_time_of_its_loads_and_stores():
    case = mk.case("loops.init", elements=1024, variant="simd", threads=1)
    row = record(case, 1.0, footprint_B=8192)
    slow = (Instruction("load", 512, Quantity(0.5)), Instruction("store", 512, Quantity(9.0)))
    found = predict_record(dataclasses.replace(A64FX, instructions=slow), row)
    assert found.cycles == found.core == 9 * 1024 / 8
    # Another part of the core may take longer.
    assert predict_record(dataclasses.replace(A64FX, instructions=slow), row, 1e6).core == 1e6


def test_saturation_has_both_forms_and_the_saturating_cores():
    (ax,) = figures["saturation"](results(streams()), machine="A64FX").axes
    limited, linear = line(ax, "ECM model"), line(ax, "ECM model, as in the paper")
    # STREAM does not count write-allocates: three quarters of the bandwidth of a triad.
    assert limited.get_ydata()[-1] == pytest.approx(0.75 * 213)
    assert linear.get_ydata()[0] == limited.get_ydata()[0]
    assert linear.get_ydata()[-1] == pytest.approx(3 * linear.get_ydata()[0])
    assert linear.get_ydata()[-1] > limited.get_ydata()[-1]
    assert "Nₛ = 3" in {text.get_text() for text in ax.texts}
    assert not line_labels(figures["saturation"](results(streams())))


def line_labels(fig):
    """Return the labels of predictions in a figure."""
    return {
        curve.get_label()
        for ax in fig.axes
        for curve in ax.lines
        if "ECM" in str(curve.get_label())
    }


def test_cycles_have_the_prediction_and_the_best_unrolling():
    (ax,) = figures["loops-cycles"](results(loops()), machine="A64FX").axes
    predicted = line(ax, "ECM model").get_ydata()
    # The published cycles are 2, 5 and 5.1.
    assert predicted == pytest.approx([2, 2, 5, 5, 5, 5])
    assert "unrolled 1" in {curve.get_label() for curve in ax.lines}
    assert "u=1" in {text.get_text() for text in ax.texts}
    # The time of slow instructions in L1 is a limit in the other levels, too.
    slow = [
        row | {"cycles_per_vector": 16.0, "time_min_s": row["time_min_s"] * 16 / 2}
        if row["footprint_B"] < 2**20
        else row
        for row in loops(unrolls=(4,))
    ]
    (ax,) = figures["loops-cycles"](results(slow), machine="A64FX").axes
    assert line(ax, "ECM model").get_ydata()[-1] == pytest.approx(16)


def test_a_model_of_another_machine_has_no_time_of_the_records():
    slow = [
        row
        | {
            "cycles_per_vector": 16.0,
            "time_min_s": row["time_min_s"] * 16 / row["cycles_per_vector"],
        }
        for row in loops(unrolls=(4,))
    ]
    others = results(slow)
    others.environments["here"]["machine"]["model"] = "Some CPU 3000"
    with pytest.warns(UserWarning, match="A64FX is another machine"):
        fig = figures["loops-cycles"](others, machine="A64FX")
    assert "The records are of another machine, Some CPU 3000." in footnotes(fig)
    # The published cycles, although the records have 16 in L1.
    cycles = line(fig.axes[0], "ECM model").get_ydata()
    assert cycles == pytest.approx([2, 2, 5, 5, 5, 5])
    assert "The model is for a vector of the records." in footnotes(fig)
    frame = others.to_frame()
    frame.attrs |= {"machine_file": "A64FX", "environments": others.environments}
    with pytest.warns(UserWarning, match="A64FX is another machine than the machine of the rec"):
        assert "Some CPU 3000" in footnotes(figures["loops-cycles"](frame))
    assert "another machine" not in footnotes(
        figures["loops-cycles"](results(slow), machine="A64FX")
    )


def test_pages_have_panels_of_their_own():
    fig = figures["loops-cycles"](results(loops(pages=("4k", "thp"))))
    assert [ax.get_title() for ax in fig.axes] == ["daxpy, 4k pages", "daxpy, thp pages"]


def test_a_size_sweep_of_the_stencil_marks_what_holds():
    rows = []
    none = "L1 none, L2 none"
    for footprint_B, held in ((2**16, "L1 rows, L2 rows"), (2**22, "L1 none, L2 rows"),
                              (2**28, none), (2**30, none)):  # fmt: skip
        case = mk.case("loops.stencil", footprint_B=footprint_B, variant="simd", threads=1)
        extra = {"footprint_B": footprint_B, "cycles_per_vector": 5.0, "conditions": held}
        rows.append(record(case, case.iterations * 1e-7, **extra))
    fig = figures["loops-cycles"](results(rows))
    texts = [text for text in fig.axes[0].texts if "rows" in text.get_text()]
    assert [text.get_text().split("\n")[0] for text in texts] == [
        "rows in L1", "rows in L2", "rows in memory"
    ]  # fmt: skip
    # Above the panel, not over its lines.
    assert all(text.get_position()[1] > 1 for text in texts)
    ends = [line.get_xdata()[0] for line in fig.axes[0].lines if len(set(line.get_xdata())) == 1]
    assert {2**22, 2**28} <= set(ends)


def test_products_have_the_time_of_rows_and_columns_in_the_core():
    fig = figures["spmv-row-length"](results(products()), formats="crs,sell", machine="A64FX")
    (ax,) = fig.axes
    crs, sell = (curve for curve in ax.lines if curve.get_label() == "_ecm")
    # CRS: 9 cycles for each vector of a row, and 49 for its sum, on four cores.
    for length, performance in zip((4, 16, 64), crs.get_ydata(), strict=True):
        cycles = 9 * -(-length // 8) + 49
        assert performance == pytest.approx(4 * 2 * length / cycles * CLOCK)
    # SELL: four vectors of 6 cycles for a column of 32 rows.
    assert sell.get_ydata()[0] == pytest.approx(4 * 2 * 32 / 24 * CLOCK)


NARROW = dataclasses.replace(
    A64FX,
    instructions=(
        Instruction("load", 256, Quantity(0.5)),
        Instruction("fma", 256, Quantity(0.5), Quantity(4.0)),
        Instruction("horizontal add", 256, Quantity(1.5), Quantity(12.0)),
        Instruction("gather with index load, random", 256, Quantity(5.5)),
        Instruction("load", 64, Quantity(0.5)),
        Instruction("fma", 64, Quantity(0.5), Quantity(4.0)),
    ),
)


@pytest.mark.parametrize(
    ("variant", "isa", "unroll", "row_cycles", "column_cycles"),
    [
        # 16 vectors of four values, each of which waits for the previous one or for the gather.
        ("simd", "avx2", 0, 16 * 6 + 12, 8 * 6),
        ("simd", "avx2", 4, 16 * 6 + 12, 8 * 6),
        ("auto", "avx2", 0, 16 * 6 + 12, 8 * 6),
        # Scalars with three loads each: two accumulators, unless another number is requested.
        ("scalar", "avx2", 0, 32 * 4 + 4, 32 * 1.5),
        ("scalar", "avx512", 1, 64 * 4, 32 * 1.5),
        ("scalar", "avx2", 8, 64 * 1.5, 32 * 1.5),
        # The file has no vectors of this width.
        ("simd", "avx512", 0, np.nan, np.nan),
        ("simd", "sve", 0, np.nan, np.nan),
    ],
)
def test_the_time_in_the_core_is_of_the_body_that_ran(
    variant, isa, unroll, row_cycles, column_cycles
):
    crs, sell = products(lengths=(64,))
    how = {"variant": variant, "isa": isa, "unroll": unroll}
    rows = [{**crs, **how, "format": "crs"}, {**sell, **how, "format": "sell"}]
    assert spmv_core_of(NARROW, rows[0]) / crs["rows"] == pytest.approx(row_cycles, nan_ok=True)
    columns = sell["nonzeros"] / 32
    assert spmv_core_of(NARROW, rows[1]) / columns == pytest.approx(column_cycles, nan_ok=True)


def test_measured_times_of_bodies_replace_the_formulas(tmp_path):
    crs, sell = products(lengths=(64,))
    rows = [{**crs, "format": "crs"}, {**sell, "format": "sell", "beta": 0.5}]
    (hop,) = hops()
    machine = A64FX.with_in_core(
        InCore(body_of(row), "L1", cycles, row_cycles)
        for row, cycles, row_cycles in ((crs, 1.5, 20.0), (sell, 2.0, 1.0), (hop, 250.0, 0.0))
    )
    assert spmv_core_of(machine, rows[0]) == pytest.approx(crs["nonzeros"] * 1.5 + crs["rows"] * 20)
    # Padding is loaded as well.
    found = spmv_core_of(machine, rows[1])
    assert found == pytest.approx(sell["nonzeros"] / 0.5 * 2 + sell["rows"])
    assert core_of(machine, hop) == pytest.approx(8**4 * 8 * 250)
    path = str(machine.save(tmp_path / "a.json"))
    fig = figures["dw-layouts"](results([hop]), machine=path)
    assert "T_core as measured in L1." in footnotes(fig)
    fig = figures["dw-layouts"](results([hop, {**hop, "dtype": "float32"}]), machine="A64FX")
    assert "T_core by the throughput of instructions." in footnotes(fig)


def test_products_saturate():
    rows = results(products(counts=(1, 12), lengths=(64,)))
    fig = figures["spmv-saturation"](rows, machine="A64FX")
    assert "Saturated by: CRS not within a domain and SELL-32 " in footnotes(fig)


def test_the_domain_wall_has_its_arithmetic_and_its_layer_conditions():
    rows = hops(counts=(1, 12))
    fig = figures["dw-scaling"](results(rows), machine="A64FX")
    predicted = [curve for curve in fig.axes[0].lines if curve.get_label() == "_ecm"]
    data = predict_record(A64FX, rows[0]).data / (8**4 * 8)
    wanted = 1320 / max(840 / 8 * 0.5, data) * CLOCK
    assert predicted[0].get_ydata()[0] == pytest.approx(wanted)


def core_of_a_hop(source, **columns):
    """Return T_core per site and s in cycles."""
    (row,) = hops(**columns)
    return core_of(source, row) / (8**4 * 8)


def test_complex_numbers_take_their_own_instructions_if_interleaved():
    # Per four complex numbers: 288 fcmla of 2 cycles, 48 fcadd of 1 and 84 additions of 0.5.
    cycles = core_of_a_hop(A64FX, layout="RIRI")
    assert cycles == pytest.approx((288 * 2 + 48 * 1 + 84 * 0.5) / 4)
    assert core_of_a_hop(A64FX, layout="RRII") == pytest.approx(52.5)
    assert core_of_a_hop(A64FX, layout="RIRI", dtype="float32") == pytest.approx(cycles / 2)


def with_permutations(cycles):
    kept = [one for one in A64FX.instructions if one.name != "fcmla"]
    permute = Instruction("permute", 512, Quantity(cycles))
    return dataclasses.replace(A64FX, instructions=(*kept, permute))


def test_complex_numbers_are_permuted_without_such_instructions():
    # 468 arithmetic instructions and 96 permutations, or 240 if sites do not share their links.
    shared, own = {"layout": "RIRI", "cut": "s"}, {"layout": "RIRI", "cut": "t2"}
    assert core_of_a_hop(with_permutations(0.5), **shared) == pytest.approx(564 * 0.5 / 4)
    assert core_of_a_hop(with_permutations(0.5), **own) == pytest.approx(708 * 0.5 / 4)
    assert core_of_a_hop(with_permutations(4.0), **own) == pytest.approx(240 * 4 / 4)
    without = dataclasses.replace(A64FX, instructions=with_permutations(1).instructions[:-1])
    assert np.isnan(core_of_a_hop(without, **shared))


def test_the_layout_decides_whether_memory_is_saturated():
    """Check Alappat et al. 2021: interleaved complex numbers do not saturate the memory."""
    for layout, wanted in (("RRII", " cores."), ("RIRI", "RIRI s not within a domain.")):
        fig = figures["dw-scaling"](results(hops(counts=(1, 12), layout=layout)), machine="A64FX")
        assert wanted in footnotes(fig).partition("Saturated by:")[2]


def test_what_lacks_a_prediction_is_said(tmp_path):
    bare = [
        {k: v for k, v in row.items() if not k.endswith(("_load_B", "_store_B"))}
        for row in streams()
    ]
    with refused("has no bytes of L1, which the ECM model of A64FX needs"):
        figures["saturation"](results(bare), machine="A64FX")
    path = dataclasses.replace(A64FX, ecm=None, model="A").save(tmp_path / "a.json")
    with refused("has no parameters of the ECM model"):
        figures["saturation"](results(streams()), machine=str(path))
