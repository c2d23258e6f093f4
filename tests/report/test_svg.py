"""Figures in a page: unique names, tooltips, series that can be hidden, and their data."""

import re
from xml.etree import ElementTree

import pytest
from merit_records import record, results

from memkern.plots import figures
from memkern.report.svg import inline

SVG = "{http://www.w3.org/2000/svg}"


def chases(**columns):
    """Return records of chases over three sizes, the second one disturbed."""
    how = {"threads": 1, "chains": 1, "order": "random", **columns}
    return [
        record("latency.chase", 1e-3, size_B=2.0**k, ns_per_access=k, disturbed=k == 20, **how)
        for k in (16, 20, 24)
    ]


@pytest.fixture(scope="module")
def curve():
    return inline(figures["latency-sizes"](results(chases())), "f1", "A <title>")


def test_every_name_and_reference_has_the_prefix(curve):
    root = ElementTree.fromstring(curve.svg)
    assert root.get("aria-label") == "A <title>" and root.get("width") is None
    names = [part.get("id") for part in root.iter() if part.get("id")]
    assert len(names) > 20 and all(name.startswith("f1-") for name in names)
    used = re.findall(r'(?:href="#|url\(#)([^")]*)', curve.svg)
    assert used and set(used) <= set(names)
    assert "<metadata" not in curve.svg and "<style" not in curve.svg


def test_markers_tell_value_interval_and_case(curve):
    tips = [part.text for part in ElementTree.fromstring(curve.svg).iter(f"{SVG}title")]
    # The disturbed record has a second, hollow marker.
    assert len(tips) == 4 and len(set(tips)) == 3
    assert tips[0].splitlines()[:3] == [
        "random order", "ns per access (ns): 16 ±10 %", "size (B): 65536"
    ]  # fmt: skip
    assert "kernel latency.chase, variant auto, isa avx2, threads 1, pages thp" in tips[0]
    assert "case latency.cha" in tips[0]


def test_several_series_can_be_hidden():
    both = results([*chases(), *chases(order="sequential")])
    found = inline(figures["latency-sizes"](both), "f2", "")
    assert found.series == ["random order", "sequential order"]
    for number in range(2):
        assert f'class="f2-series-{number}"' in found.svg
    assert inline(figures["latency-sizes"](results(chases())), "f3", "").series == []


def test_boxes_hide_the_series_of_their_label():
    from memkern.plots.drawing import curve, marked_look, panels
    from memkern.plots.frames import frame_of

    rows = frame_of(results(chases()))
    fig, (ax,) = panels(1, 1, 2.0)
    for number, label in enumerate(("one", "_without a box", "two")):
        curve(ax, rows, "size_B", "ns_per_access", marked_look(number), label)
    found = inline(fig, "f5", "")
    assert found.series == ["one", "two"]
    groups = ElementTree.fromstring(found.svg).iter(f"{SVG}g")
    of = {
        part.get("id"): part.get("class") for part in groups if "marked" in (part.get("id") or "")
    }
    # Each curve has a line and one of the hollow markers.
    assert [of.get(f"f5-marked-{number}") for number in range(0, 6, 2)] == [
        "f5-series-0", None, "f5-series-1"
    ]  # fmt: skip


def test_intervals_are_hidden_with_their_series():
    about = {"time_ci_low_s": 0.9e-3, "time_ci_high_s": 1.2e-3, "time_median_s": 1e-3}
    both = results([*chases(**about), *chases(**about | {"order": "sequential"})])
    found = inline(figures["latency-sizes"](both), "f6", "")
    assert found.series == ["random order", "sequential order"]
    for number in range(2):
        # The line, the hollow markers and the bars.
        assert found.svg.count(f'class="f6-series-{number}"') == 3
    assert len(found.data.splitlines()) == 1 + 2 * (3 + 1)


def test_data_are_the_drawn_records_without_formulas():
    rows = [{**row, "platform": "=HYPERLINK(1), 2 threads"} for row in chases()]
    found = inline(figures["latency-sizes"](results(rows)), "f4", "")
    head, *lines = found.data.splitlines()
    assert head.split(",")[:3] == ["series", "platform", "kernel"] and "ns_per_access" in head
    assert len(lines) == 4 and all("'=HYPERLINK" in line for line in lines)
