"""Helpers of the tests of figures: a result set with its machine, and the contents of a figure."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

import memkern as mk
import memkern.plots

KIB, MIB = 2**10, 2**20
# A name that must be shortened and escaped.
LONG = "_ $x_1$ A Processor With a Name That Never Seems to End 8480+"


class Results:
    """The parts of a `ResultSet` that figures use: records, samples and environments."""

    def __init__(self, rows, samples=(), units=None, tlbs=None):
        self.rows = rows
        self.samples = [np.asarray(taken) for taken in samples]
        caches = [
            {"level": 1, "type": "data", "size_B": 32 * KIB, "instances": 4, "line_B": 64},
            {"level": 1, "type": "instruction", "size_B": 64 * KIB, "instances": 4},
            {"level": 2, "type": "unified", "size_B": MIB, "instances": 4},
            {"level": 3, "type": "unified", "size_B": 16 * MIB, "instances": 1},
        ]
        self.environments = {
            "e1": {"machine": {"caches": caches, "units": units, "tlbs": tlbs}},
            "e2": {},
        }

    def to_frame(self):
        return pd.DataFrame(self.rows)


class Family(NamedTuple):
    """A family's section and records, for test_plots_families.py."""

    section: str
    findings: Callable  # records to findings
    title: str
    everything: Callable  # returns records for all figures
    missing: list[tuple]  # name, records, options, and part of the error message
    images: int  # number of images in a report
    shown: str  # a text in a table of a report
    marked: tuple[str, ...] = ()  # parts of the findings of disturbed records
    # Few records, and the numbers of exhibits, findings and remarks in their section.
    few: Sequence[tuple[list, int, int, int]] = ()


def frame(rows):
    return pd.DataFrame(rows)


def measured_briefly(cases):
    """Measure cases in one placement each, and return their records."""
    brief = [case.with_(budget_s=0.002, max_samples=3, placements=1) for case in cases]
    return mk.sweep(brief, progress=False)


def common_columns(kernel, threads, machine):
    """Return the columns that records of all families have in common."""
    return {
        "environment_id": "e1",
        "platform": f"{machine}, {threads} thread{'s' * (threads > 1)}",
        "kernel": kernel,
        "backend": "openmp",
        "dtype": "float64",
        "threads": threads,
        "disturbed": False,
        "valid": True,
    }


def hardest_first(names, hardest="several"):
    """Return names of records; the first has long machine names, which leave the least room."""
    return sorted(names, key=lambda name: name != hardest)


def line(ax, label):
    """Return the curve with a label."""
    return next(curve for curve in ax.lines if curve.get_label() == label)


def curve_labels(ax):
    """Return the labels of the curves in a panel."""
    return [curve.get_label() for curve in ax.lines if not curve.get_label().startswith("_")]


def drawn_texts(fig, dpi=200):
    """Render a figure; return its lines of text with corners in pixels and size in points."""
    texts = []
    draw_text = RendererAgg.draw_text

    def spy(self, gc, x, y, s, prop, angle, *args, **kwargs):
        if s.strip():
            width, height, descent = self.get_text_width_height_descent(s, prop, False)
            radians = math.radians(angle)
            along = np.array([math.cos(radians), -math.sin(radians)])
            up = np.array([-math.sin(radians), -math.cos(radians)])
            low, high = np.array([x, y]) - descent * up, np.array([x, y]) + (height - descent) * up
            corners = np.array([low, low + width * along, high + width * along, high])
            texts.append((s, corners, prop.get_size_in_points()))

    RendererAgg.draw_text = spy
    try:
        fig.set_dpi(dpi)
        FigureCanvasAgg(fig).draw()
    finally:
        RendererAgg.draw_text = draw_text
    return texts


def overlap(a, b):
    """Return whether two convex polygons overlap by more than a pixel (separating axes)."""
    for corners in (a, b):
        for edge in np.diff([*corners, corners[0]], axis=0)[:2]:
            axis = np.array([-edge[1], edge[0]]) / np.hypot(*edge)
            p, q = a @ axis, b @ axis
            if p.max() - q.min() <= 1 or q.max() - p.min() <= 1:
                return False
    return True


def _dashes(artist):
    """Return the kind of dashes of a line: those of one kind can't be told apart in a legend."""
    style = artist.get_linestyle()
    if style in ("None", "", " "):
        return "none"
    _, dashes = artist._unscaled_dash_pattern
    if not dashes:
        return "solid"
    return "mixed" if len(set(dashes[::2])) > 1 else "dashed" if dashes[0] > 2 else "dotted"


def look_of(artist):
    """Return what distinguishes an entry of a legend from others."""
    if isinstance(artist, Line2D):
        marker = "" if artist.get_marker() in ("None", None) else artist.get_marker()
        face = to_hex(artist.get_markerfacecolor()) if marker else ""
        return to_hex(artist.get_color()), marker, face, _dashes(artist)
    if isinstance(artist, PathCollection):
        path = artist.get_paths()[0].vertices.round(3).tolist()
        return str(path), str(artist.get_facecolor()), str(artist.get_edgecolor())
    return to_hex(artist.get_facecolor(), keep_alpha=True), artist.get_hatch()


def assert_entries_differ(fig):
    """Assert that no two entries of a legend look the same."""
    found = fig.findobj(Legend)
    for legend in found:
        looks = {}
        for artist, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            other = looks.setdefault(look_of(artist), text.get_text())
            assert other == text.get_text(), f"{other!r} looks like {text.get_text()!r}"


def assert_legible(fig):
    """Assert that no two texts overlap, all lie in the figure and have at least 5.5 points.

    No two entries of a legend look the same.
    """
    assert_entries_differ(fig)
    texts = drawn_texts(fig)
    assert texts
    size = fig.get_size_inches() * fig.dpi
    low = np.array([corners.min(axis=0) for _, corners, _ in texts])
    high = np.array([corners.max(axis=0) for _, corners, _ in texts])
    for i, (text, corners, points) in enumerate(texts):
        assert points >= 5.5, text
        assert (corners >= -0.5).all() and (corners <= size + 0.5).all(), text
        # Texts with disjoint bounding boxes need no exact test.
        near = np.flatnonzero(((low < high[i]) & (low[i] < high)).all(axis=1))
        for other, others, _ in (texts[j] for j in near[near > i]):
            assert not overlap(corners, others), f"{text!r} overlaps {other!r}"


def contents(fig):
    """Return what the panels of a figure show, without marks of disturbed records, as text."""
    return [
        [
            *(ax.get_title(), ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel()),
            *(
                f"{one.get_label()}: {one.get_xydata().tolist()}"
                for one in ax.lines
                if one.get_label() != "_disturbed" and one.get_markerfacecolor() != "white"
            ),
            *(str(one.get_path().vertices.tolist()) for one in ax.patches if not one.get_hatch()),
            *(str([path.vertices.tolist() for path in one.get_paths()]) for one in ax.collections),
            *(str(one.get_array().tolist()) for one in ax.images),
            sorted(text.strip("()") for text in panel_texts(ax)),
        ]
        for ax in fig.axes
    ]


def footnotes(fig):
    """Return the sentences below the figure."""
    notes = fig.findobj(lambda artist: artist.get_gid() == "note")
    return " ".join(" ".join(note.get_text() for note in notes).split())


def dot_values(ax, label):
    """Return the values of a series of dots by the name of their row."""
    names = [text.get_text() for text in ax.get_yticklabels()]
    curve = line(ax, label)
    rows = [names[round(y - 1e-9)] for y in curve.get_ydata()]
    return dict(zip(rows, curve.get_xdata(), strict=True))


def values_beside(ax, label, mark):
    """Return the values of a mark at the heights of a series of dots by the name of their row."""
    names = [text.get_text() for text in ax.get_yticklabels()]
    marks = {y: x for x, y in zip(*line(ax, mark).get_data(), strict=True)}
    heights = line(ax, label).get_ydata()
    return {names[round(y - 1e-9)]: marks[y] for y in heights if y in marks}


def panel_texts(ax):
    """Return the texts in a panel."""
    return [text.get_text() for text in ax.texts]


def disturbed_markers(fig):
    """Return the curves of disturbed records' markers; assert that all are hollow."""
    curves = [curve for ax in fig.axes for curve in ax.lines if curve.get_label() == "_disturbed"]
    curves = [curve for curve in curves if len(curve.get_xdata())]
    assert all(curve.get_markerfacecolor() == "white" for curve in curves)
    return curves
