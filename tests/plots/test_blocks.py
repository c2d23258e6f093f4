"""The heat map and the table of block sizes and unrolling on a GPU."""

import pandas as pd
import pytest
from checking import once_a_kind, refused
from plotting import assert_legible, common_columns, footnotes, panel_texts

from memkern.plots import figures, save, tables

BLOCKS, UNROLLS = (64, 128, 256, 512, 1024), (0, 1, 2, 4, 8)


def record(kernel, block, unroll, machine="A Card 3000", **other):
    """Return a record whose bandwidth is the block size plus the unroll factor."""
    return {
        **common_columns(kernel, 1, machine),
        "platform": machine,
        "backend": "cuda",
        "block_threads": block,
        "unroll": unroll,
        "bandwidth_GBps": float(block + unroll),
    } | other


def everything(machine="A Card 3000", kernels=("loops.triad", "spatter.gather")):
    """Return records of some kernels with all block sizes and unroll factors."""
    return [
        record(kernel, block, unroll, machine)
        for kernel in kernels
        for block in BLOCKS
        for unroll in UNROLLS
    ]


def frame(*parts):
    return pd.DataFrame([row for part in parts for row in part])


RECORDS = {
    "two machines": frame(everything(), everything("Another Card With a Long Name 9000")),
    "two kernels": frame(everything()),
    "one kernel": frame(everything(kernels=("loops.triad",))),
    "disturbed": frame(everything()).assign(disturbed=lambda rows: rows["unroll"] == 4),
}


@pytest.mark.parametrize("records", once_a_kind(RECORDS))
def test_the_map_is_legible(records, tmp_path):
    fig = figures["gpu-blocks"](RECORDS[records])
    assert_legible(fig)
    assert save(fig, tmp_path / "blocks.pdf").stat().st_size > 1000


def test_the_map_has_the_best_record_of_each_cell():
    slower = record("loops.triad", 64, 1, bandwidth_GBps=1.0)
    elsewhere = record("loops.triad", 64, 1, backend="openmp", bandwidth_GBps=9999.0)
    invalid = record("loops.triad", 64, 1, valid=False, bandwidth_GBps=9999.0)
    rows = frame(everything(), [slower, elsewhere, invalid])
    triad, gather = (ax for ax in figures["gpu-blocks"](rows).axes if ax.get_title())
    assert (triad.get_title(), gather.get_title()) == ("loops.triad", "spatter.gather")
    assert panel_texts(triad)[:5] == ["64", "65", "66", "68", "72"]
    assert panel_texts(triad)[-1] == "1032"
    assert "failed validation" in footnotes(figures["gpu-blocks"](rows))
    table = tables["gpu-blocks"](rows)
    assert len(table) == 2 * len(BLOCKS) * len(UNROLLS)
    assert table["of_best"].max() == 1.0
    top = table[table["of_best"] == 1.0]
    assert set(zip(top["block_threads"], top["unroll"], strict=True)) == {(1024, 8)}


def test_kernels_can_be_chosen_and_disturbed_records_are_marked():
    rows = frame(everything()).assign(disturbed=lambda rows: rows["block_threads"] == 128)
    (triad,) = (ax for ax in figures["gpu-blocks"](rows, kernels="loops").axes if ax.get_title())
    assert "(136)" in panel_texts(triad) and "In parentheses" in footnotes(triad.figure)


def test_records_without_a_choice_are_refused():
    # tests/cuda/test_gpu_verbs.py runs the command.
    with refused("`memkern loops .*`"):
        figures["gpu-blocks"](None)
    with refused("no kernel was measured on a GPU with several block sizes"):
        figures["gpu-blocks"](frame([record("loops.triad", 64, 1)]))
    with refused("'unroll'"):
        figures["gpu-blocks"](frame(everything()).drop(columns="unroll"))
