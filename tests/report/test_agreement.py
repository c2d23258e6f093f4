"""One value for one thing, in reports and in what commands print."""

import re
from html import unescape

import dw_figure_records as dw_records
import pytest
import spmv_figure_records
import streaming_family
from latency_records import all_records
from merit_records import ENVIRONMENT, MIB, record, records, results, streams
from plotting import Results
from spatter_records import own_records

from memkern import report
from memkern.families.latency.data import level_lines
from memkern.families.latency.findings import findings as latency_findings
from memkern.families.spatter.findings import findings as spatter_findings
from memkern.models.answers import health_sentence
from memkern.plots.frames import frame_of

NUMBER = r"(\d+(?:\.\d+)?)"
INTERVAL = r"(?: ±[\d.]+ %| \([\d.]+ to [\d.]+\)| ×÷[\d.]+| \(disturbed\))*"
# The places in which a quantity has a number: patterns by the name of the quantity.
QUANTITIES = {
    "latency of memory": (
        rf"Idle latency of memory\s+{NUMBER}\s+ns",
        rf"previous one takes [^\n]*?{NUMBER} ns{INTERVAL} in memory",
        rf"latency of memory:? (?:idle )?{NUMBER} ns",
        rf"(?m)^memory +[\d.]+ [KMG]iB(?: to [\d.]+ [KMG]iB)? +\d+ +{NUMBER} ",
    ),
    **{
        f"{kernel} from memory with non-temporal stores": (
            rf"{kernel.capitalize()} from memory, non-temporal stores\s+{NUMBER}\s+GB/s",
            rf"From memory [^\n]*?{kernel} (?:[^;\n]*? and )?{NUMBER} GB/s{INTERVAL} with non-temp",
        )
        for kernel in ("copy", "triad")
    },
}
# Impossible texts: a pattern and what is wrong with it.
IMPOSSIBLE = {
    r"(?<![\w.)\]])-\d+(?:\.\d+)? ?(?:ns|µs|us|ms|s)\b": "a negative time",
    r"± ?(?:[2-9]\d|\d{3,})(?:\.\d+)? ?%": "a symmetric interval of 20 % or more",
    r"(?:1(?:0[6-9]|[1-9]\d)|[2-9]\d\d|\d{4,})(?:\.\d+)? % (?:of (?:the|its|their) "
    r"(?:roofline|limit|peak|theoretical peak|bound)|reached)": "a share above 1.05",
}
_BLOCKS = "p|div|li|tr|h1|h2|h3|dt|dd|table|section|figcaption"


def text_of(page):
    """Return the text of an HTML page without its figures, a line for each block."""
    page = re.sub(r"<(svg|style|script).*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(rf"<(?:{_BLOCKS})\b[^>]*>", "\n", re.sub(r"\s+", " ", page))
    return unescape(re.sub("<[^>]*>", "", re.sub(r"<(?:td|th|span)\b[^>]*>", " ", page)))


def _amount(number):
    """Return a number as text, and half of the unit of its last figure."""
    figures = number.replace(".", "").lstrip("0")
    # Figures that the interval does not leave are zeros: 640 may be 636.
    zeros = 0 if "." in number else len(figures) - len(figures.rstrip("0"))
    places = len(number.partition(".")[2])
    return float(number), 0.5 * 10.0 ** (zeros - places)


def differing(text):
    """Return a sentence for each quantity of which a text has numbers that differ by rounding."""
    found = []
    for quantity, patterns in QUANTITIES.items():
        numbers = [number for pattern in patterns for number in re.findall(pattern, text)]
        amounts = [_amount(number) for number in dict.fromkeys(numbers)]
        if any(abs(a - b) > 1.01 * max(u, v) for a, u in amounts for b, v in amounts):
            found.append(f"{quantity}: {', '.join(dict.fromkeys(numbers))}")
    return found


def impossible(text):
    """Return a sentence for each impossible number of a text."""
    found = [
        f"{what}: {match[0]}"
        for pattern, what in IMPOSSIBLE.items()
        for match in re.finditer(pattern, text)
    ]
    for threads, told in re.findall(r"[Ss]peed-up with (\d+) threads([^\n]*)", text):
        gains = rf": {NUMBER}|(?:, | and ){NUMBER}(?= (?:±|in |\())"
        for match in re.finditer(gains, told):
            gain = float(match[1] or match[2])
            more = told[match.end() :].partition(" in ")[0]
            if gain > int(threads) and "(more than the threads" not in more:
                found.append(f"a speed-up with {threads} threads: {gain}")
    for value, low, high in re.findall(rf"typical\s*{NUMBER} \({NUMBER} to {NUMBER}\)", text):
        if not float(low) <= float(value) <= float(high):
            found.append(f"a typical value outside of its range: {value} ({low} to {high})")
    for value, half in re.findall(rf"{NUMBER} ?± ?{NUMBER}(?! ?%)(?![\d.])", text):
        if float(half) >= 0.25 * float(value):
            found.append(f"a symmetric interval of a fifth or more: {value} ± {half}")
    return found


def found_in(text):
    """Return all sentences on a text."""
    return [*differing(text), *impossible(text)]


SIZES = [2**k for k in range(13, 30)]  # 8 KiB to 512 MiB; L3 ends at 30 MiB


def over_sizes():
    """Return records of triads and chases whose values differ within each level of memory."""
    found = []
    for number, size_B in enumerate(SIZES):
        common = {"footprint_B": size_B, "caches_multiple": size_B / (30 * MIB)}
        ordinary = 900.0 / (1 + size_B / 2**18) + 60 + 3 * (number % 3)
        third = size_B // 3
        found.append(streams("stream.triad", ordinary, 2 * third, third, **common))
        ns = 1.0 + 140.0 * size_B / (size_B + 2**24) + number % 3
        seconds = ns * size_B / 64 * 1e-9
        chase = {"threads": 1, "chains": 1, "order": "random", "size_B": size_B, "line_B": 64}
        chase |= {"pages_requested": "default", "variant_requested": "best"}
        columns = {**common, **chase, "lines": size_B // 64, "clock_GHz": 3.0}
        found.append(record("latency.chase", seconds / 1.1, ns_per_access=ns, **columns))
    return found


def test_a_report_has_one_value_for_one_thing(tmp_path):
    few = [row for row in records() if row["kernel"] != "latency.chase"]
    found = results([*few, *over_sizes()])
    options = {"environment": ENVIRONMENT, "sections": ["streaming", "latency"]}
    path = report.write(found, tmp_path / "r.html", title="A title", **options)
    text = text_of(path.read_text(encoding="utf-8"))
    # What is compared is there.
    for quantity in ("latency of memory", "copy from memory with non-temporal stores"):
        patterns = QUANTITIES[quantity][:2]
        assert all(re.search(pattern, text) for pattern in patterns), quantity
    assert "L3 30 MiB by latency (the system reports 40 MiB)" in text
    assert "By latency, cache" not in text  # as a range
    assert found_in(text) == []


def test_the_table_of_latencies_and_the_verdict_agree():
    chases = [row for row in over_sizes() if row["kernel"] == "latency.chase"]
    found = results([{**row, "backend": "openmp"} for row in chases])
    lines = "\n".join([*level_lines(found), health_sentence(found, found.environments)])
    assert "latency of memory" in lines and "\nmemory " in lines
    assert differing(lines) == []
    # The lowest latency from memory, which verdicts had before, is another one.
    lowest = min(row["ns_per_access"] for row in chases if row["caches_multiple"] >= 2)
    assert differing(f"{lines}\nlatency of memory {lowest:.0f} ns") != []


@pytest.mark.parametrize(
    ("findings", "rows"),
    [
        pytest.param(spatter_findings, own_records, id="spatter"),
        pytest.param(latency_findings, all_records, id="latency"),
        *(
            pytest.param(family.findings, family.everything, id=family.section)
            for family in (streaming_family.FAMILY, spmv_figure_records.FAMILY, dw_records.FAMILY)
        ),
    ],
)
def test_findings_have_no_impossible_numbers(findings, rows):
    found = rows()
    text = "\n".join(findings(frame_of(Results(found) if isinstance(found, list) else found)))
    assert text and impossible(text) == []


TILE = "Idle latency of memory 196 ns next run 180 to 210"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "memory   256 MiB to 1 GiB           9    173.6    12\nlatency of memory 165 ns: no",
            "latency of memory: 165, 173.6",
        ),
        ("Speed-up with 2 threads on m: 2.97 in CRS", "a speed-up with 2 threads: 2.97"),
        (
            "Speed-up with 2 threads on m: 1.9 in CRS and 2.97 in SELL",
            "a speed-up with 2 threads: 2.97",
        ),
        ("spinning barrier of 2 threads: -138 ns", "a negative time: -138 ns"),
        ("triad 33 GB/s ±67 % in memory", "a symmetric interval of 20 % or more: ±67 %"),
        ("times as fast: 1.43 ± 0.9", "a symmetric interval of a fifth or more: 1.43 ± 0.9"),
        ("8 GFLOP/s, 138 % of the roofline", "a share above 1.05: 138 % of the roofline"),
        ("typical 43 (57 to 62)", "a typical value outside of its range: 43 (57 to 62)"),
    ],
)
def test_numbers_that_differ_or_are_impossible_are_found(text, found):
    assert found_in(text) == [found]


@pytest.mark.parametrize(
    "text",
    [
        f"{TILE}\nA load that depends on the previous one takes 196 ns ±8 % in memory",
        "Idle latency of memory 280 ns\nlatency of memory 283 ns",
        "Speed-up with 2 threads on m: 2.97 ± 0.03 (more than the threads: caches) in CRS",
        "-> see --threads 2; 105 % of the roofline; 14 (8 to 23) % of it; 1990-138 ns",
        "typical 61 (59 to 62)",
    ],
)
def test_numbers_that_agree_are_not_found(text):
    assert found_in(text) == []
