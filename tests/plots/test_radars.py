"""Radars of patterns, one or more for each platform."""

import numpy as np
import pandas as pd
import pytest
from checking import run
from plotting import assert_legible, curve_labels, footnotes, line
from spatter_records import (
    GATHER,
    OWN,
    PUBLISHED_CPUS,
    SCATTER,
    STRIDE_1,
    over_stride_1,
    own_records,
    record,
)

from memkern.cli import analysis
from memkern.errors import InputError
from memkern.families.spatter.radars import CAP, radius
from memkern.plots import figures


def test_radars_show_bandwidth_over_stride_1_of_the_same_kernel():
    fig = figures["spatter-radars-cpu"](own_records())
    axes = {ax.get_label(): ax for ax in fig.axes}
    assert list(axes) == [OWN, *PUBLISHED_CPUS, "key"]
    for platform, kernel, label, patterns in (
        ("Skylake", GATHER, "AMG gather", ("AMG-G0", "AMG-G1")),
        ("Broadwell", SCATTER, "LULESH scatter", [f"LULESH-S{number}" for number in range(4)]),
    ):
        expected = [over_stride_1(platform, kernel, pattern) for pattern in patterns]
        np.testing.assert_allclose(line(axes[platform], label).get_ydata(), radius(expected))
    mine = line(axes[OWN], "AMG gather").get_ydata()
    np.testing.assert_allclose(mine, radius(np.array([100, 100 / 1.2]) / STRIDE_1[GATHER]))
    angles = [
        round(float(angle), 6)
        for ax in axes.values()
        for label in curve_labels(ax)
        for angle in line(ax, label).get_xdata()
    ]
    assert len({*angles}) == 34


def test_radars_show_own_patterns_that_have_a_name():
    named = [(GATHER, "column", 33.0), (SCATTER, "row", 11.0), (GATHER, "", 1.0)]
    others = [record(kernel, f"0,24,{i}", top, name=n) for i, (kernel, n, top) in enumerate(named)]
    strides = own_records().query("suite == 'ustride'").assign(name="")
    fig = figures["spatter-radars-cpu"](pd.concat([strides, pd.DataFrame(others)]))
    axes = {ax.get_label(): ax for ax in fig.axes}
    for kernel, label, GBps in ((GATHER, "own gather", 33), (SCATTER, "own scatter", 11)):
        (end,) = line(axes[OWN], label).get_ydata()
        assert end == pytest.approx(radius(GBps / STRIDE_1[kernel]))
    assert any("own 1 column: 0.4, 2 row: 0.2" in text.get_text() for text in fig.texts)
    assert footnotes(fig) == ""


def forty_named():
    """Return strides, patterns of applications, and 40 patterns that the user named."""
    rows = [record(GATHER, f"0,24,{i}", 9.0 + i, name=f"pattern {i}") for i in range(40)]
    return pd.concat([own_records().assign(name=""), pd.DataFrame(rows)])


def test_radars_show_every_named_pattern_on_several_pages():
    fig = figures["spatter-radars-cpu"](forty_named())
    assert_legible(fig)
    pages = [ax for ax in fig.axes if ax.get_label() == OWN]
    keys = [ax for ax in fig.axes if ax.get_label() == "key"]
    # The first beside the patterns of applications.
    assert [len(line(ax, "own gather").get_xdata()) for ax in pages] == [12, 12, 12, 4]
    assert ["AMG gather" in curve_labels(ax) for ax in pages] == [True, False, False, False]
    values = np.concatenate([line(ax, "own gather").get_ydata() for ax in pages])
    np.testing.assert_allclose(values, radius((9 + np.arange(40)) / STRIDE_1[GATHER]))
    numbered = [text.get_text() for ax in keys for text in ax.texts if text.get_text().isdigit()]
    assert {str(number) for number in range(1, 41)} <= {*numbered}
    texts = "".join(text.get_text() for text in fig.texts)
    assert "40 pattern 39" in " ".join(texts.split()) and "left out" not in footnotes(fig)


def test_radars_show_the_chosen_patterns(capsys, monkeypatch, tmp_path):
    chosen = "LULESH-S1, pattern 3"
    fig = figures["spatter-radars-cpu"](forty_named(), patterns=chosen)
    axes = {ax.get_label(): ax for ax in fig.axes}
    assert curve_labels(axes[OWN]) == ["LULESH scatter", "own gather"]
    assert curve_labels(axes["Skylake"]) == ["LULESH scatter"]
    assert [len(line(axes[OWN], label).get_xdata()) for label in curve_labels(axes[OWN])] == [1, 1]
    alone = figures["spatter-radars-cpu"](forty_named(), patterns=["pattern 3"])
    assert [ax.get_label() for ax in alone.axes] == [OWN, "key"]
    with pytest.raises(InputError, match="pattern 'pattern 40' is unknown: did you mean"):
        figures["spatter-radars-cpu"](forty_named(), patterns="pattern 40")
    monkeypatch.setattr(analysis, "_loaded", lambda _: forty_named())
    target = str(tmp_path / "x.svg")
    command = ("figure", "spatter-radars-cpu", "x.db", "--force", "-o", target, "--option")
    assert run(capsys, *command, f"patterns={chosen}")[0] == 0
    assert "'nothing' is not one of AMG-G0" in run(capsys, *command, "patterns=nothing")[2]


def test_radars_clip_and_note_values_off_the_scale():
    frame = own_records()
    frame.loc[frame["pattern"] == "AMG-G0", "bandwidth_GBps"] = STRIDE_1[GATHER] * 20
    fig = figures["spatter-radars-cpu"](frame)
    ax = next(ax for ax in fig.axes if ax.get_label() == OWN)
    assert line(ax, "AMG gather").get_ydata()[0] == radius(CAP) == np.log2(8 * 256)
    crossed = [c.get_xdata() for c in ax.lines if c.get_marker() == "x"]
    assert sum(map(len, crossed)) >= 1
    assert any("off the scale: AMG-G0 20" in text.get_text() for text in fig.texts)
