"""The heat map and the table of slowdowns."""

import itertools

import numpy as np
import pandas as pd
import pytest
from checking import once_a_kind
from neighbour_records import KERNELS, rows
from plotting import LONG, assert_legible, footnotes, hardest_first, panel_texts

from memkern.plots import figures


def frame(*found):
    return pd.DataFrame(list(itertools.chain(*found)))


MANY = [f"{kernel} {number}" for kernel in KERNELS for number in range(2)]
RECORDS = {
    "one": lambda: frame(rows()),
    "a pair": lambda: frame(rows(KERNELS[:2])),
    "one kernel": lambda: frame(rows(KERNELS[:1])),
    "machines": lambda: frame(rows(), rows(platform="Other", factor=3.0), rows(platform=LONG)),
    "long names": lambda: frame(rows([f"{kernel} {LONG}" for kernel in KERNELS])),
    "many": lambda: frame(rows(MANY, turns=2)),
    "disturbed": lambda: frame(rows(disturbed=True)),
    "uncertain": lambda: frame(rows(factor=0.0)),
}


@pytest.mark.parametrize("records", once_a_kind(hardest_first(RECORDS, "long names")))
def test_the_figure_is_legible(records):
    fig = figures["corun"](RECORDS[records]())
    assert fig.get_figwidth() in (3.35, 6.9)
    assert_legible(fig)


def test_cells_have_the_slowdowns():
    fig = figures["corun"](frame(rows()))
    ax = fig.axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == KERNELS
    assert [text.get_text() for text in ax.get_xticklabels()] == KERNELS
    grid = ax.images[0].get_array()
    expected = np.tile(1 + 0.3 * np.arange(5), (5, 1))
    np.testing.assert_allclose(grid, expected, rtol=0.002)
    assert panel_texts(ax)[:5] == [
        "(1.00\n±0.01)", "1.30\n±0.01", "1.60\n±0.01", "1.90\n±0.01", "2.20\n±0.01",
    ]  # fmt: skip
    assert "in parentheses if the interval includes 1" in footnotes(fig)


def test_disturbed_entries_have_no_colour():
    found = frame(rows())
    found["disturbed"] = (found["kernel"] == "amo.rand") & (found["beside"] == "loops.load")
    ax = figures["corun"](found).axes[0]
    shown = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    assert np.argwhere(np.isnan(shown)).tolist() == [[3, 0]]
    assert panel_texts(ax)[15] == "1.00 *"


def test_each_machine_has_a_panel():
    fig = figures["corun"](RECORDS["machines"]())
    assert [ax.get_title() for ax in fig.axes[:2]] == ["Machine", "Other"]
    # Different numbers of threads have no panels of their own.
    other = [row | {"environment_id": "g", "threads": 1} for row in rows()]
    assert "25 rows of the same names with other options" in footnotes(
        figures["corun"](frame(rows(), other))
    )
