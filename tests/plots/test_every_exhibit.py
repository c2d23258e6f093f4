"""Every figure and table, made of the tests' records and compared with them."""

import inspect
import io
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from checking import once_a_kind, refusal
from exhibit_records import inputs_of
from matplotlib.lines import Line2D
from plotting import (
    Results,
    assert_legible,
    contents,
    curve_labels,
    dot_values,
    footnotes,
    panel_texts,
)

from memkern.cli import _parse
from memkern.errors import InputError
from memkern.plots import figures, save, tables
from memkern.plots.drawing import marked
from memkern.plots.forms import (
    QUANTITY,
    Axis,
    Dots,
    Form,
    HeatMap,
    Ideal,
    Limit,
    Measured,
    Predicted,
    Shown,
)
from memkern.plots.frames import frame_of, with_samples
from memkern.plots.selection import cache_ends
from memkern.report.svg import _data

# They take long, as many panels or texts are placed.
SLOW = ("spatter-fig7", "spatter-fig9", "spatter-radars-cpu", "spatter-radars-gpu")
EVERY = pytest.mark.parametrize(
    ("where", "name"),
    [
        pytest.param(
            where, name, id=f"{where.what} {name}", marks=[pytest.mark.release] * (name in SLOW)
        )
        for where in (figures, tables)
        for name in where
    ],
)
# Of the machine that a result set describes, not of records of some kernels.
OF_MACHINES = ("bs-devices", "dw-traffic", "raider-systems")
# Their messages tell in words what to measure.
IN_WORDS = (
    *("counters", "energy", "energy-clock", "energy-knobs", "fleet", "latency-histogram", "peak"),
    *("roofline", "spatter-fig4"),
)
# Their small print has no sentence on disturbed records, or they show nothing that noise changes.
WITHOUT_REMARK = (
    *("corun", "dw-traffic", "ecm-overlap", "explanation", "fleet", "latency-structure"),
    "spmv-fill-in",
)
# None of their lines and series has records, which the page offers as data.
WITHOUT_DATA = (
    *("corun", "dw-energy", "dw-traffic", "ecm-overlap", "energy-clock"),
    *("explanation", "gpu-blocks", "latency-cores", "latency-histogram", "latency-numa"),
    *("latency-structure", "ports", "raider-kernels", "spatter-fig7", "spatter-fig8"),
    *("spatter-fig9", "spatter-radars-cpu", "spatter-radars-gpu"),
)


def made(where, name, records):
    """Return a figure or table of records."""
    return where[name](records, **inputs_of(where[name]).options.get(name, {}))


def everything(make):
    """Return the records of an exhibit as a table, with their samples if there are any."""
    records = inputs_of(make).everything()
    return with_samples(records) if isinstance(records, Results) else frame_of(records)


def ignores_records(make):
    return "Not used." in make.__doc__


def shown(exhibit):
    """Return all that a figure or table shows."""
    return exhibit.to_csv() if isinstance(exhibit, pd.DataFrame) else contents(exhibit)


def among_invalid_ones(rows):
    """Return records among invalid ones with other values."""
    numbers = rows.select_dtypes("float").columns
    wrong = [
        rows.assign(valid=False, **{name: factor * rows[name] for name in numbers})
        for factor in (1e-3, 1e3)
    ]
    return pd.concat([rows, *wrong], ignore_index=True)


def among_other_families(rows):
    """Return records beside one of another family, which lacks most of their columns."""
    other = {"kernel": "other.kernel", "valid": True, "disturbed": False, "bandwidth_GBps": 1.0}
    found = pd.concat([pd.DataFrame([other]), rows], ignore_index=True)
    found["platform"] = found["platform"].bfill()
    return found.astype(dict.fromkeys(rows.select_dtypes("int").columns, "Int64"))


@EVERY
def test_the_table_of_a_result_set_among_other_records_gives_the_same(where, name):
    make, inputs = where[name], inputs_of(where[name])
    first = made(where, name, inputs.everything())
    assert len(shown(first))
    if ignores_records(make):
        assert shown(made(where, name, None)) == shown(first)
    elif name not in OF_MACHINES:
        rows = everything(make)
        given = among_invalid_ones(rows)
        if by_kernel := "kernel" in inputs.nothing:
            given = among_other_families(given)
        # A figure shows the same of disturbed records, but hollow.
        if where is figures and name not in (*WITHOUT_REMARK, *inputs.disturbed):
            given["disturbed"] = True
        given.attrs = rows.attrs
        again = made(where, name, given)
        assert shown(again) == shown(first)
        if where is figures:
            assert "failed validation left out" in footnotes(again) or not by_kernel
            assert bool(lines_with_data(first)) != (name in WITHOUT_DATA)
            if name in inputs.disturbed:
                again = made(where, name, rows.assign(disturbed=inputs.disturbed[name]))
            assert hollow_points(again) or name in (*WITHOUT_REMARK, *WITHOUT_DATA)
            assert ("from a disturbed record" in footnotes(again)) == (name not in WITHOUT_REMARK)


def lines_with_data(fig):
    """Return the lines of a figure with records, which are those of the data beside it.

    No record is disturbed.
    """
    lines = [(artist, drawn) for artist, drawn in marked(fig) if len(drawn.records)]
    data = pd.read_csv(io.StringIO(_data([drawn for _, drawn in lines]))) if lines else []
    assert len(data) == sum(len(drawn.records) for _, drawn in lines)
    for artist, drawn in lines:
        assert artist.get_label() != "_disturbed"
        mine, data = data[: len(drawn.records)], data[len(drawn.records) :]
        assert set(mine["series"]) == {drawn.label}
        x, y = artist.get_data()
        if drawn.x == "row":  # of dots, whose values are along x
            np.testing.assert_allclose(x, mine[drawn.y])
        else:
            np.testing.assert_allclose([x, y], [mine[drawn.x], mine[drawn.y]])
    return lines


def hollow_points(fig):
    """Return the points of hollow markers, which all disturbed records have."""
    filled, hollow = [], []
    for artist, drawn in marked(fig):
        rows = drawn.records[drawn.records["disturbed"]]
        if artist.get_label() == "_disturbed":
            assert artist.get_markerfacecolor() == "white" and len(rows) == len(drawn.records)
            hollow += [*rows[drawn.y]]
        else:
            filled += [*rows[drawn.y]]
    assert sorted(filled) == sorted(hollow)
    return hollow


@EVERY
def test_without_records_the_command_that_measures_them_is_named(where, name):
    make, given = where[name], [None]
    optional = "ResultSet or None" in make.__doc__ or name in OF_MACHINES
    if name in where.origins:
        assert str(where.origins[name]) in make.__doc__
    if not optional:
        given.append(everything(make).assign(**inputs_of(make).nothing))
    for records in given:
        try:
            found = made(where, name, records)
            assert optional
            text = footnotes(found) if where is figures else ""
        except InputError as error:
            assert not optional
            text = str(error)
            assert "\n" not in text
            assert "`memkern " in text or name in IN_WORDS
        for command in re.findall("`memkern (.*?)`", text):
            assert _parse(shlex.split(command)).run


@EVERY
def test_other_tables_are_refused_by_what_they_lack(where, name):
    if ignores_records(where[name]) or name in OF_MACHINES:
        assert len(shown(made(where, name, frame_of(pd.DataFrame([{"platform": "Own"}])))))
        return
    rows, nothing = everything(where[name]), inputs_of(where[name]).nothing
    assert "no record" in refusal(made, where, name, rows.iloc[:0])
    assert "list" in refusal(made, where, name, [1, 2])
    bare = rows[[c for c in ("kernel", "platform", "valid", "disturbed") if c in rows]]
    told = refusal(made, where, name, bare)
    if named := re.findall(r"'(\w+)'", told):
        assert set(named) <= set(rows) - set(bare)
        assert repr(named[-1]) in refusal(made, where, name, rows.drop(columns=named[-1]))
    else:
        # A figure of all kernels: those without the column are not of it.
        assert "kernel" not in nothing
        assert told == refusal(made, where, name, rows.assign(**nothing))


def cases_of(name):
    """Return functions that return a figure's records, and its options, by the kind of records."""
    inputs = inputs_of(figures[name])
    options = inputs.options.get(name, {})
    cases = {"everything": (inputs.everything, options)}
    if inputs.predicted and "machine" in inspect.signature(figures[name]).parameters:
        cases["predicted"] = (inputs.predicted, {"machine": "A64FX"})
    if "ResultSet or None" in figures[name].__doc__:
        cases["published"] = (lambda: None, {})
    return cases | {given: (records, options) for given, records in inputs.others.items()}


@pytest.mark.parametrize(
    "case",
    once_a_kind(
        [
            (name, given)
            for name in figures
            for given in sorted(cases_of(name), key=("everything", "published").__contains__)
        ],
        # The figures of a family are built from the same parts.
        kind=lambda case: (inputs_of(figures[case[0]]).everything, case[1] == "predicted"),
        name=" ".join,
    ),
)
def test_figures_are_legible(case):
    name, given = case
    records, options = cases_of(name)[given]
    fig = figures[name](records(), **options)
    assert fig.get_figwidth() in (3.35, 6.9)
    assert_legible(fig)
    if given == "predicted":
        assert any(label.startswith("ECM model") for ax in fig.axes for label in curve_labels(ax))
        assert "A64FX, published" in footnotes(fig)


@pytest.mark.parametrize("name", once_a_kind(figures))
def test_figures_become_files(name, tmp_path):
    fig = made(figures, name, inputs_of(figures[name]).everything())
    for suffix, start in {".pdf": b"%PDF", ".png": b"\x89PNG", ".svg": b"<?xml"}.items():
        assert save(fig, tmp_path / f"figure{suffix}").read_bytes().startswith(start)


# --------------------------------------------------------------------------------------- forms


def form_of(name):
    """Return the form of a figure and the function that selects its records, if it has a form."""
    found = inspect.getclosurevars(figures[name].__wrapped__).nonlocals
    return (found["self"], found["select"]) if isinstance(found.get("self"), Form) else None


def watched(layer, drawn):
    """Return a layer that tells its panel and the artists that it draws."""

    def draw(panel):
        before = panel.ax.get_children()
        layer(panel)
        drawn.append((layer, panel, [a for a in panel.ax.get_children() if a not in before]))

    return draw


def draw_watched(form, shown):
    """Draw a form; return its panels, with their records, and its layers as by `watched`."""
    panels, drawn = [], []

    class Watched(type(form)):
        def panel(self, ax, rows, frame):
            panels.append((ax, rows))
            super().panel(ax, rows, frame)

    parts = vars(form)
    if "layers" in parts:
        parts = parts | {"layers": tuple(watched(layer, drawn) for layer in form.layers)}
    Watched(**parts).drawn(shown)
    return panels, drawn


def points(artists, *labels):
    """Return the sorted points of the lines with some labels."""
    lines = [one.get_xydata() for one in artists if one.get_label() in labels]
    return sorted(tuple(point) for line in lines for point in line)


def points_of(rows, *columns):
    """Return the sorted points of records with known values of two columns."""
    known = rows[[*columns]].astype(float).replace([np.inf, -np.inf], np.nan).dropna()
    return sorted(known.itertuples(index=False, name=None))


def assert_drawn(layer, panel, artists):
    """Assert that a layer draws what the records of its panel have."""
    rows = panel.rows
    if isinstance(layer, Measured):
        curves = [one for one in artists if isinstance(one, Line2D)]
        labels = {one.get_label() for one in curves} - {"_disturbed"}
        assert points(curves, *labels) == points_of(rows.dropna(subset=layer.by), panel.x, panel.y)
    elif isinstance(layer, Ideal):
        assert points(artists, layer.label) == points_of(
            rows.drop_duplicates([panel.x, layer.column]), panel.x, layer.column
        )
    elif isinstance(layer, Limit):
        assert points(artists, f"_{layer.label}") == points_of(rows, panel.x, layer.column)
    elif isinstance(layer, Predicted):
        assert points(artists, "_ecm") == points_of(rows, panel.x, "ecm")


def assert_has_values(form, ax, rows):
    """Assert that the dots, cells or caches of a panel are those of its records."""
    if isinstance(form, Dots | HeatMap):
        axis = form.value if isinstance(form.value, Axis) else form.value[rows[QUANTITY].iloc[0]]
    if isinstance(form, Dots):
        for name, mine in rows.groupby(form.by, observed=True, sort=False):
            wanted = dict(zip(mine["row"], mine[axis.column], strict=True))
            assert dot_values(ax, str(name)) == wanted
    elif isinstance(form, HeatMap):
        cells = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
        assert sorted(cells[~np.isnan(cells)]) == sorted(rows[axis.column].dropna())
    elif form.caches and cache_ends(rows):
        assert panel_texts(ax)


@pytest.mark.parametrize("name", filter(form_of, figures))
def test_a_form_draws_what_was_selected_and_each_of_its_layers(name):
    form, select = form_of(name)
    lacking = {id(layer): layer for layer in vars(form).get("layers", ())}
    for number, (records, options) in enumerate(cases_of(name).values()):
        if number and not lacking:
            break
        selected = Shown(*select(records(), **options))
        panels, layers = draw_watched(form, selected)
        assert sum(len(rows) for _, rows in panels) == len(selected.frame)
        for ax, rows in panels:
            assert_has_values(form, ax, rows)
        for layer, panel, artists in layers:
            assert_drawn(layer, panel, artists)
            if artists:
                lacking.pop(id(layer), None)
    assert not lacking
