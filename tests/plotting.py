"""What the tests of figures share: records and their machine, and what can be read off a figure."""

import math

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg

KIB, MIB = 2**10, 2**20


class Results:
    """What a ResultSet is to a figure: records and environments."""

    def __init__(self, rows):
        self.rows = rows
        caches = [
            {"level": 1, "type": "data", "size_B": 32 * KIB, "instances": 4},
            {"level": 1, "type": "instruction", "size_B": 64 * KIB, "instances": 4},
            {"level": 2, "type": "unified", "size_B": MIB, "instances": 4},
            {"level": 3, "type": "unified", "size_B": 16 * MIB, "instances": 1},
        ]
        self.environments = {"e1": {"machine": {"caches": caches}}, "e2": {}}

    def to_frame(self):
        return pd.DataFrame(self.rows)


def frame(rows):
    return pd.DataFrame(rows)


def line(ax, label):
    """Return the curve with a label."""
    return next(curve for curve in ax.lines if curve.get_label() == label)


def drawn(ax):
    """Return the names of the curves in a panel."""
    return [curve.get_label() for curve in ax.lines if not curve.get_label().startswith("_")]


def drawn_texts(fig, dpi=200):
    """Return what is really drawn, line by line: text, corners in pixels, size in points."""
    texts = []
    draw_text = RendererAgg.draw_text

    def spy(self, gc, x, y, s, prop, angle, *args, **kwargs):
        if s.strip():
            width, height, descent = self.get_text_width_height_descent(s, prop, False)
            turn = math.radians(angle)
            along = np.array([math.cos(turn), -math.sin(turn)])
            up = np.array([-math.sin(turn), -math.cos(turn)])
            low, high = np.array([x, y]) - descent * up, np.array([x, y]) + (height - descent) * up
            corners = np.array([low, low + width * along, high + width * along, high])
            texts.append((s, corners, prop.get_size_in_points()))
        draw_text(self, gc, x, y, s, prop, angle, *args, **kwargs)

    RendererAgg.draw_text = spy
    try:
        fig.set_dpi(dpi)
        FigureCanvasAgg(fig).draw()
    finally:
        RendererAgg.draw_text = draw_text
    return texts


def overlap(a, b):
    """Say whether two convex polygons overlap by more than a pixel (separating axes)."""
    for corners in (a, b):
        for edge in np.diff([*corners, corners[0]], axis=0)[:2]:
            axis = np.array([-edge[1], edge[0]]) / np.hypot(*edge)
            p, q = a @ axis, b @ axis
            if p.max() - q.min() <= 1 or q.max() - p.min() <= 1:
                return False
    return True


def assert_legible(fig):
    """No two texts overlap, none leaves the figure, none is smaller than 5.5 points."""
    texts = drawn_texts(fig)
    assert texts
    size = fig.get_size_inches() * fig.dpi
    for i, (text, corners, points) in enumerate(texts):
        assert points >= 5.5, text
        assert (corners >= -0.5).all() and (corners <= size + 0.5).all(), text
        for other, others, _ in texts[i + 1 :]:
            assert not overlap(corners, others), f"{text!r} overlaps {other!r}"


def small_print(fig):
    """Return the sentences below the figure."""
    notes = fig.findobj(lambda artist: artist.get_gid() == "note")
    return " ".join(" ".join(note.get_text() for note in notes).split())


def dots(ax, label):
    """Return what a series of dots says: the name of the row and the value."""
    names = [text.get_text() for text in ax.get_yticklabels()]
    curve = line(ax, label)
    places = [round(y - 1e-9) for y in curve.get_ydata()]
    return dict(zip([names[place] for place in places], curve.get_xdata(), strict=True))


def beside(ax):
    """Return the texts in a panel."""
    return [text.get_text() for text in ax.texts]


def hollow(fig):
    """Return the markers of disturbed records."""
    curves = [curve for ax in fig.axes for curve in ax.lines if curve.get_label() == "_disturbed"]
    curves = [curve for curve in curves if len(curve.get_xdata())]
    assert all(curve.get_markerfacecolor() == "white" for curve in curves)
    return curves
