"""Declarations of figures and tables, and the drawings and documentation derived from them."""

import inspect
import re

import pytest
from checking import refused
from matplotlib.figure import Figure
from plotting import common_columns, curve_labels, footnotes, frame, line

from memkern.formats import ResultSet
from memkern.plots import figures, tables
from memkern.plots.kit import Axis, Curves, Measured, Records, count_scale, log_scale, select, table

EXHIBITS = [*figures.items(), *tables.items()]


@pytest.mark.parametrize("name, exhibit", EXHIBITS, ids=[name for name, _ in EXHIBITS])
def test_the_documentation_has_every_option_once(name, exhibit):
    head, *sections = re.split(r"\n\n(?=\w[\w ]*\n-+\n)", inspect.getdoc(exhibit))
    titles = [section.partition("\n")[0] for section in sections]
    assert titles[:3] == ["Parameters", "Returns", "Raises"]
    assert re.match(r"[A-Z].*\.", head)
    assert not re.search(r"[^.]\.\.$|,,", "\n".join(sections), re.M)
    options = re.findall(r"^(\w[\w, ]*)(?: :|$)", sections[0].partition("---\n")[2], re.M)
    documented = [option for group in options for option in group.split(", ")]
    assert documented == list(inspect.signature(exhibit).parameters)


def added(threads, rate, order="relaxed", machine="Own"):
    return {
        **common_columns("amo.rand", threads, machine), "rate_GAMS": rate, "order": order,
    }  # fmt: skip


@pytest.fixture
def exhibits(monkeypatch):
    """Declare a figure and a table, as a new family would."""
    monkeypatch.setitem(figures, "new", None)
    monkeypatch.setitem(tables, "new", None)
    del figures["new"], tables["new"]

    @Curves(
        name="new",
        x=Axis("threads", "Workers", count_scale),
        y=Axis("rate_GAMS", "Rate (GAMS)", log_scale),
        layers=(Measured("order"),),
        records="`amo` kernels",
        lack="no order was measured",
        measure="memkern amo",
    )
    def orders(records: Records = None, order: str = ""):
        """Rate by the memory order.

        Parameters
        ----------
        order : str
            The only memory order that is drawn.

        References
        ----------
        Nobody 2020.
        """
        rows, notes = select(records, ["amo"], ("order",), value="rate_GAMS")
        return rows[rows["order"].eq(order) | (order == "")], notes

    @table("new", "order, threads (of all), rate_GAMS", integers="threads", records="`amo` kernels")
    def rates(records: Records = None):
        """Rates by the memory order."""
        return select(records, ["amo"], ("order",), value="rate_GAMS")

    return orders, rates


def test_a_declaration_is_a_figure(exhibits):
    rows = [added(n, n, order=order) for order in ("relaxed", "acq_rel") for n in (1, 2, 8)]
    (ax,) = figures["new"](frame(rows)).axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Workers", "Rate (GAMS)")
    assert curve_labels(ax) == ["relaxed", "acq_rel"]
    assert list(line(ax, "acq_rel").get_xdata()) == [1, 2, 8]
    assert len(figures["new"](frame([*rows, added(2, 3, machine="Other")])).axes) == 2
    with refused("no order was measured: `memkern amo` does so"):
        figures["new"](frame(rows), order="seq_cst")
    text = inspect.getdoc(figures["new"])
    assert "    Own records of `amo` kernels.\norder : str" in text
    assert text.index("No order was measured, or the records lack") < text.index("References")


def test_a_declaration_is_a_table(exhibits):
    found = tables["new"](frame([added(2, 0.5)]))
    assert found.to_dict("records") == [{"order": "relaxed", "threads": 2, "rate_GAMS": 0.5}]
    assert "Columns order, threads (of all), rate_GAMS." in inspect.getdoc(tables["new"])


def two_machines():
    """Return rates of two machines, one of them disturbed."""
    rows = [added(n, n, machine=name) for name in ("Own", "Other") for n in (1, 2, 8)]
    return frame(rows).assign(disturbed=lambda rows: rows["rate_GAMS"] == 8)


def test_figures_draw_in_given_axes(exhibits):
    fig = Figure(layout="constrained")
    axes = fig.subplots(1, 2)
    assert figures["new"](two_machines(), ax=axes) is axes
    assert [ax.get_title() for ax in axes] == ["Own", "Other"]
    assert [list(line(ax, "relaxed").get_ydata()) for ax in axes] == [[1, 2, 8]] * 2
    # The legend of all panels in the first, the small print below the last, none in the figure.
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["relaxed"]
    assert axes[1].get_legend() is None and fig.legends == [] and fig.get_supxlabel() == ""
    assert footnotes(axes[1]) == "Hollow: from a disturbed record." and not footnotes(axes[0])
    fig.draw_without_rendering()
    (note,) = axes[1].findobj(lambda artist: artist.get_gid() == "note")
    below = axes[1].xaxis.label.get_window_extent()
    assert 0 <= note.get_window_extent().y0 < note.get_window_extent().y1 <= below.y0
    # Afterwards, figures are new ones again.
    assert len(figures["new"](two_machines()).axes) == 2


def test_figures_draw_some_platforms(exhibits):
    ax = Figure().subplots()
    assert figures["new"](two_machines(), ax=ax, platforms="other, 1") is ax
    assert list(line(ax, "relaxed").get_xdata()) == [1]
    results = ResultSet(two_machines().to_dict("records"), [[1.0]] * 6)
    assert len(figures["new"](results, platforms=["Own"]).axes) == 1
    assert len(figures["new"](records=results, platforms=["OWN", "Other"]).axes) == 2


def test_axes_and_platforms_that_do_not_fit_are_refused(exhibits):
    ax, rows = Figure().subplots(), two_machines()
    with refused("figure new has 2 panels of these records: ax must be as many axes, not 1"):
        figures["new"](rows, ax=ax)
    with refused("ax must be axes of matplotlib or a sequence of them, not 'left'"):
        figures["new"](rows, ax=[ax, "left"])
    with refused("platform 'Owl' is not one of Own"):
        figures["new"](rows, platforms="Owl")
    with refused("platforms are those of own records"):
        figures["spatter-fig3"](platforms="Own")
    with refused("figure spatter-fig8 places its panels itself: leave ax out"):
        figures["spatter-fig8"](ax=ax)
    assert not ax.lines
