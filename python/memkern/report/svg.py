"""Figures as inline SVG, with tooltips, and their data.

Markers with records have a tooltip. The parts of a series have a class, so that the page can hide
the series.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from markupsafe import Markup

from memkern.formats.encoding import csv_table
from memkern.formats.values import is_known
from memkern.plots.drawing import Drawn, marked
from memkern.plots.frames import three_figures
from memkern.plots.style import encoded
from memkern.spec.columns import COLUMNS
from memkern.statistics import with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Columns of the times by which values are, and of the relative width of their intervals.
_BY_MEDIAN = ("ns_per_access", "cycles_per_access", "time_median_s", "time_s")
_WIDTHS = ("time_min_ci_relative", "ci_relative")
_KEYS = ("platform", "kernel", "pattern", "variant", "threads", "pages", "footprint_B")
_CASE = ("kernel", "pattern", "primitive", "variant", "isa", "threads", "pages")
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_REFERENCE = re.compile(r"^#|(?<=url\(#)")


ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", _XLINK)


class Inline(NamedTuple):
    """A figure for a page.

    Attributes
    ----------
    svg : Markup
    series : list of str
        Labels of the series that the page can hide: number ``k`` has the class
        ``<name>-series-<k>``.
    data : str
        Records of all markers as CSV.
    """

    svg: Markup
    series: list[str]
    data: str


def inline(fig: Figure, name: str, title: str) -> Inline:
    """Return a figure as a part of an HTML page.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Figure of this package.
    name : str
        Prefix of all identifiers; unique in the page.
    title : str
        Text for people who cannot see the figure.
    """
    lines = marked(fig)
    for number, (artist, _) in enumerate(lines):
        artist.set_gid(f"marked-{number}")
    root = ElementTree.fromstring(encoded(fig, ".svg", "figure"))
    labels = dict.fromkeys(drawn.label for _, drawn in lines)
    series = [label for label in labels if not label.startswith("_")]
    groups = {group.get("id"): group for group in root.iter(f"{{{_SVG}}}g")}
    for number, (_, drawn) in enumerate(lines):
        # Lines outside of their axes have no group.
        if (group := groups.get(f"marked-{number}")) is not None:
            if drawn.label in series:
                group.set("class", f"{name}-series-{series.index(drawn.label)}")
            _add_tooltips(group, drawn)
    _prefix_names(root, name)
    root.attrib |= {"role": "img", "aria-label": title}
    del root.attrib["width"], root.attrib["height"]
    # The style would hold for the whole page.
    for parent in list(root.iter()):
        for part in [part for part in parent if part.tag.endswith(("}metadata", "}style"))]:
            parent.remove(part)
    return Inline(
        Markup(ElementTree.tostring(root, encoding="unicode")),
        series if len(series) > 1 else [],
        _data([d for _, d in lines]),
    )


def _add_tooltips(group: ElementTree.Element, drawn: Drawn) -> None:
    """Add their tooltips to the markers of a line."""
    markers = list(group.iter(f"{{{_SVG}}}use"))
    shown = [row for row in _rows(drawn) if _finite(row, drawn.x) and _finite(row, drawn.y)]
    if len(markers) != len(shown):  # some are outside of the figure
        return
    for marker, row in zip(markers, shown, strict=True):
        ElementTree.SubElement(marker, f"{{{_SVG}}}title").text = tooltip(drawn, row)


def _rows(drawn: Drawn) -> list[dict[Any, Any]]:
    """Return the needed columns of the records of a line."""
    wanted = dict.fromkeys([drawn.x, drawn.y, *_KEYS, *_CASE, *_WIDTHS, "case_id"])
    return drawn.records[[name for name in wanted if name in drawn.records]].to_dict("records")


def _prefix_names(root: ElementTree.Element, name: str) -> None:
    """Put a prefix before all identifiers and references to them."""
    for part in root.iter():
        for key, value in part.attrib.items():
            if key == "id":
                part.set(key, f"{name}-{value}")
            elif key == f"{{{_XLINK}}}href" or "url(#" in value:
                part.set(key, _REFERENCE.sub(lambda found: f"{found[0]}{name}-", value))


def _finite(row: Mapping[Any, Any], column: str) -> bool:
    return not isinstance(row[column], float) or math.isfinite(row[column])


def tooltip(drawn: Drawn, row: Mapping[Any, Any]) -> str:
    """Return the text about a marker: series, value, interval, and case.

    Parameters
    ----------
    drawn : Drawn
    row : mapping
        The record of the marker.
    """
    parts = [drawn.label]
    for column in (drawn.y, drawn.x):
        if isinstance(row[column], (int, float)):
            width = _WIDTHS[column in _BY_MEDIAN or "median" in column]
            value = (
                with_interval(row[column], row.get(width) or 0.0)
                if column == drawn.y
                else _amount(row[column])
            )
            parts.append(f"{_named(column)}: {value}")
    parts.append(
        ", ".join([f"{name} {_amount(row[name])}" for name in _CASE if is_known(row.get(name))])
    )
    if is_known(row.get("case_id")):
        parts.append(f"case {row['case_id'][:12]}")
    return "\n".join(filter(None, parts))


def _named(column: str) -> str:
    unit = COLUMNS[column].unit if column in COLUMNS else ""
    stem = column.removesuffix(f"_{unit.replace('/s', 'ps')}") if unit else column
    return stem.replace("_", " ") + f" ({unit})" * bool(unit)


def _amount(value: Any) -> str:
    return three_figures(value) if isinstance(value, float) else str(value)


def _data(every: Sequence[Drawn]) -> str:
    """Return the records of all markers as CSV: their series, case and values."""
    values = dict.fromkeys(column for drawn in every for column in (drawn.x, drawn.y))
    names = list(dict.fromkeys([*_KEYS, *values, *_WIDTHS]))
    rows = [{"series": drawn.label, **row} for drawn in every for row in _rows(drawn)]
    used = [name for name in ("series", *names) if any(is_known(row.get(name)) for row in rows)]
    return csv_table(used, ([row.get(name) for name in used] for row in rows)).decode()
