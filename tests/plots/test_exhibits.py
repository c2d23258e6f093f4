"""Declarations of figures and tables, and the drawings and documentation derived from them."""

import inspect
import re

import pytest
from checking import refused
from plotting import common_columns, curve_labels, frame, line

from memkern.plots import figures, tables
from memkern.plots.drawing import counted_axis
from memkern.plots.exhibits import Axis, curve_figure, log_scale, table
from memkern.plots.frames import Records
from memkern.plots.selection import select

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

    @curve_figure(
        "new",
        x=Axis("threads", "Workers", counted_axis),
        y=Axis("rate_GAMS", "Rate (GAMS)", log_scale),
        by="order",
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
