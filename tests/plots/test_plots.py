"""What all figures and tables share: names, records, files, styles."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from checking import refused
from plotting import assert_legible, footnotes, line
from spatter_records import OWN, own_records

from memkern.errors import InputError
from memkern.plots import figures, save, sections, tables
from memkern.plots.drawing import (
    counts_axis,
    curve,
    dots,
    label_outside,
    marked_look,
    panels,
)
from memkern.plots.frames import best, extent, frame_of
from memkern.plots.style import new_figure, other_look, own_look, plain, two_lines


def test_the_check_of_legibility_notices_faults():
    fig = figures["spatter-fig3"](None)
    ax = fig.axes[0]
    fault = ax.text(2, 20, "a text", fontsize=7)
    ax.text(2, 20, "another", fontsize=7, rotation=30)
    with pytest.raises(AssertionError, match="overlaps"):
        assert_legible(fig)
    fault.set_position((200000, 20))
    fault.set_in_layout(False)
    with pytest.raises(AssertionError, match="a text"):
        assert_legible(fig)


def test_entries_of_a_legend_that_look_the_same_are_noticed():
    fig = figures["spatter-fig3"](None)
    ax = fig.axes[0]
    first, other = ax.get_legend_handles_labels()[0][:2]
    for one in (first, other):
        one.set(color="red", marker="o", linestyle=(0, (5, 2)))
    other.set_linestyle((0, (3, 1.2)))  # dashes as well
    ax.legend()
    with pytest.raises(AssertionError, match="looks like"):
        assert_legible(fig)


def test_the_older_column_noisy_is_read_as_disturbed():
    old = pd.DataFrame({"kernel": ["a", "b"], "noisy": [True, False]})
    new = pd.DataFrame({"kernel": ["c", "d"], "disturbed": [False, True]})
    for rows, wanted in ((old, [True, False]), (new, [False, True])):
        assert frame_of(rows)["disturbed"].tolist() == wanted
    both = frame_of(pd.concat([old, new], ignore_index=True))
    assert both["disturbed"].tolist() == [True, False, False, True] and "noisy" not in both


def test_the_best_record_is_an_undisturbed_one_if_there_is_any():
    rows = pd.DataFrame(
        {
            "case": ["b", "a", "a", "b"],
            "bandwidth_GBps": [7.0, 9.0, 5.0, 8.0],
            "disturbed": [True, True, False, True],
            "paper": [True, True, True, False],
        }
    )
    assert best(rows, ["case"])["bandwidth_GBps"].tolist() == [5.0, 8.0]
    assert best(rows, ["case"], prefer=["paper"])["bandwidth_GBps"].tolist() == [7.0, 5.0]


@pytest.mark.parametrize("registry", [figures, tables, sections])
def test_an_unknown_name_is_refused_with_the_known_ones(registry):
    first, *_, last = registry
    with refused(f"'nope' is not one of {first}, "):
        registry["nope"]
    with refused(f"'{last[:-1]}' is .*did you mean .*{last}"):
        registry[last[:-1]]


def test_columns_share_the_attributes_of_their_frame():
    """The attributes may be large, and figures read hundreds of columns."""
    frame = frame_of(SimpleNamespace(to_frame=own_records, environments={"e1": {}}))
    assert frame.equals(own_records()) and frame.attrs
    assert all(frame["kernel"].attrs[name] is facts for name, facts in frame.attrs.items())


@pytest.mark.parametrize(
    ("name", "culprit"),
    [("figure.bmp", ".pdf, .png, .svg"), ("figure", ".pdf"), ("no/such/place.svg", "No such file")],
)
def test_save_refuses_what_it_cannot_write(name, culprit, tmp_path):
    with pytest.raises(InputError, match=culprit):
        save(figures["spatter-fig5"](None), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_save_over_a_directory_leaves_nothing_behind(tmp_path):
    (tmp_path / "figure.svg").mkdir()
    with pytest.raises(InputError, match="can't be written"):
        save(figures["spatter-fig5"](None), tmp_path / "figure.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["figure.svg"]


def test_figures_are_independent_of_the_callers_style(tmp_path):
    expected = save(figures["spatter-fig3"](own_records()), tmp_path / "a.svg").read_bytes()
    style = {"font.size": 20, "lines.linewidth": 9, "axes.facecolor": "red", "axes.grid": False}
    with mpl.rc_context(style):
        fig = figures["spatter-fig3"](own_records())
        assert mpl.rcParams["font.size"] == 20
        assert save(fig, tmp_path / "b.svg").read_bytes() == expected
    assert fig._repr_png_().startswith(b"\x89PNG")


def test_texts_of_records_are_shortened_and_escaped():
    assert plain("a\n b") == "a b"
    assert plain("$x$") == r"\$x\$"
    assert plain("_hidden") != "_hidden" and plain("_hidden").endswith("_hidden")
    assert len(plain("x" * 1000)) == 40
    assert two_lines("A, B, 2 threads") == "A, B\n2 threads"
    assert two_lines("K40") == "K40"


@pytest.mark.parametrize(
    ("look", "number"),
    [(own_look, 8), (other_look, 36), (marked_look, 64)],
    ids=["own", "other", "marked"],
)
def test_series_have_different_looks_without_their_dashes(look, number):
    assert len({(one.color, one.marker) for one in map(look, range(number))}) == number


@pytest.mark.parametrize(
    ("ends", "ticks"), [((24.9, 49.4), [30, 40]), ((10.2, 19.9), [12, 16]), ((3, 30), [5, 10, 20])]
)
def test_an_axis_of_counts_has_ticks_however_short_it_is(ends, ticks):
    ax = new_figure(3.0, 2.0).subplots()
    ax.set_xscale("log")
    ax.set_xlim(*ends)
    counts_axis(ax.xaxis)
    assert list(ax.get_xticks()) == ticks


# Columns of an interval from 4/5 to 5/4 of the time.
WITHIN = {"time_min_s": 1.0, "time_min_ci_low_s": 0.8, "time_min_ci_high_s": 1.25}
ABOUT = "Bars and bands: 95 % intervals for the next run."


def spans(ax):
    """Return x, low and high of the bars of a panel."""
    bars = [one for one in ax.collections if one.get_label() == "_interval"]
    return [(x, low, high) for one in bars for (x, low), (_, high) in one.get_segments()]


def test_bars_are_the_intervals_of_own_rates():
    rows = own_records(**WITHIN)
    eighth = rows["pattern"].eq("UNIFORM:8:8")
    rows.loc[eighth, ["time_min_ci_low_s", "time_min_ci_high_s"]] = float("nan")
    fig = figures["spatter-fig3"](rows)
    ax = fig.axes[0]
    own = dict(zip(*line(ax, plain(OWN)).get_data(), strict=True))
    wanted = [(x, y / 1.25, y / 0.8) for x, y in own.items() if x != 8]
    np.testing.assert_allclose(sorted(spans(ax)), sorted(wanted))
    assert ABOUT in footnotes(fig)
    assert_legible(fig)
    # Without them there is neither a bar nor a remark, nor have ratios any.
    assert ABOUT not in footnotes(figures["spatter-fig3"](own_records()))
    assert not any(map(spans, figures["spatter-fig6"](rows).axes))


def test_a_line_of_many_points_has_a_band():
    sizes = pd.DataFrame({"size": range(1, 14), "ns_per_access": 8.0, "disturbed": False})
    sizes = sizes.assign(time_median_s=1.0, time_ci_low_s=0.5, time_ci_high_s=1.5)
    _, (ax,) = panels(1, 1, 2.0)
    curve(ax, sizes, "size", "ns_per_access", own_look(0), "own")
    (band,) = ax.collections
    box = band.get_paths()[0].get_extents()
    assert (box.x0, box.x1, box.y0, box.y1) == (1, 13, 4, 12)
    _, (ax,) = panels(1, 1, 2.0)
    curve(ax, sizes[:12], "size", "ns_per_access", own_look(0), "own")
    assert [(low, high) for _, low, high in spans(ax)] == [(4, 12)] * 12


def test_numbers_are_beside_the_bars_of_dots():
    rows = pd.DataFrame({"row": ["a", "b"], "kind": "k", "disturbed": False, **WITHIN})
    rows = rows.assign(rate_GAMS=[1.0, 100.0])
    ends = extent(rows, "rate_GAMS")
    assert ends == pytest.approx((0.8, 125.0))
    _, (ax,) = panels(1, 1, 2.0)
    dots(ax, rows, "kind", {"k": marked_look(0)}, "rate_GAMS", ends)
    (bars,) = [one for one in ax.collections if one.get_label() == "_interval"]
    assert [segment.tolist() for segment in bars.get_segments()] == [
        pytest.approx(np.array([[0.8, 0], [1.25, 0]])),
        pytest.approx(np.array([[80, 1], [125, 1]])),
    ]
    assert [text.xy[0] for text in ax.texts] == pytest.approx([1.25, 80])


@pytest.mark.parametrize(
    ("number", "columns", "rows"),
    [(3, 2, [2, 1]), (5, 4, [3, 2]), (9, 4, [3, 3, 3]), (4, 2, [2, 2]), (1, 4, [1])],
)
def test_panels_fill_their_rows(number, columns, rows):
    fig, axes = panels(number, columns, 2.0)
    label_outside(axes, "x", "y")
    assert len(fig.axes) == len(axes) == number
    fig.canvas.draw()
    for ax in axes:
        ax.plot([1, 2])
    boxes = [ax.get_subplotspec().get_position(fig) for ax in axes]
    heights = list(dict.fromkeys(round(box.y0, 6) for box in boxes))
    assert [sum(round(box.y0, 6) == height for box in boxes) for height in heights] == rows
    for height in heights:
        row = [box for box in boxes if round(box.y0, 6) == height]
        assert (row[0].x0, row[-1].x1) == pytest.approx((boxes[0].x0, boxes[rows[0] - 1].x1))
    assert [ax.get_xlabel() for ax in axes] == [""] * (number - rows[-1]) + ["x"] * rows[-1]
    assert sum(ax.get_ylabel() == "y" for ax in axes) == len(rows)
