"""The dots and the table of the nodes of a fleet."""

import pytest
from checking import once_a_kind, refused
from fleet_records import MACHINE, records, results
from plotting import LONG, assert_legible, footnotes, hardest_first, line, panel_texts

from memkern.plots import figures, tables

SLOW = {"n05": 2.0, "n11": 1.8}


def two_machines():
    """Return the records of two kinds of nodes, and of one that is alone."""
    of = [records(slow=SLOW), *(records(12, environment_id=f"e{k}") for k in (2, 3))]
    others = [one | {"node": f"b{one['node']}", "platform": LONG} for one in of[1]]
    alone = [one | {"node": "alone"} for one in of[2] if one["node"] == "n00"]
    machines = {f"e{k}": MACHINE | {"cores": 8 * k} for k in (1, 2, 3)}
    return results([*of[0], *others, *alone], machines)


RECORDS = {
    "one": lambda: results(records(slow=SLOW)),
    "several": two_machines,
    "many": lambda: results(records(200, {f"n{k}": 3.0 for k in range(100, 110)})),
    "long names": lambda: results(
        [one | {"name": LONG, "node": f"{LONG} {one['node']}"} for one in records(slow=SLOW)]
    ),
    "disturbed": lambda: results(
        records() + [r | {"node": "d"} for r in records(1, disturbed=True)]
    ),
}


@pytest.mark.parametrize("name", once_a_kind(hardest_first(RECORDS, "long names")))
def test_the_figure_is_legible(name):
    fig = figures["fleet"](RECORDS[name]())
    assert fig.get_figwidth() == 6.9
    assert_legible(fig)


def test_nodes_outside_are_named_and_others_drawn_beside_the_range():
    given = RECORDS["disturbed"]()
    given.records[0]["time_min_s"] *= 1.5
    (ax,) = figures["fleet"](given).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "stream.copy", "stream.triad", "latency.chase",
    ]  # fmt: skip
    assert panel_texts(ax) == ["n00", "", ""]
    assert len(line(ax, "in the range").get_xdata()) == 3 * 16 - 1
    hollow = line(ax, "not judged")
    assert len(hollow.get_xdata()) == 3 and hollow.get_markerfacecolor() == "white"
    (speed,) = line(ax, "outside").get_xdata()
    assert speed == pytest.approx(1 / 1.5, rel=0.05)
    table = tables["fleet"](given)
    for band, far in zip(ax.patches, table.groupby("case", sort=False)["least_slowdown"].median(),
                         strict=True):  # fmt: skip
        assert band.get_x() == pytest.approx(1 / (1 + far))
        assert speed < band.get_x() < 1 < band.get_x() + band.get_width()


def test_each_processor_has_a_panel():
    fig = figures["fleet"](two_machines())
    assert [ax.get_title(loc="left").rpartition(", ")[2] for ax in fig.axes] == [
        "16 nodes", "12 nodes",
    ]  # fmt: skip
    assert panel_texts(fig.axes[0]) == ["n05, n11"] * 3 and panel_texts(fig.axes[1]) == [""] * 3
    assert "stream.copy on 1, stream.triad on 1" in footnotes(fig)
    many = figures["fleet"](RECORDS["many"]()).axes[0]
    assert panel_texts(many)[0].endswith(" and 7 more")


def test_records_without_nodes_are_refused():
    with refused("memkern compare fleet -o"):
        figures["fleet"](results([one | {"node": None} for one in records()]))
    with refused("no node can be judged"):
        figures["fleet"](results(records(disturbed=True)))
