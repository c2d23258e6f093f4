"""Numbers of one quantity that differ in a report or in a command's output, and impossible ones."""

import itertools
import math
import re
from html.parser import HTMLParser

NUMBER = r"(\d+(?:\.\d+)?)"
INTERVAL = r"(?: ±[\d.]+ %| \([\d.]+ to [\d.]+\)| ×÷[\d.]+| \(disturbed\))*"
SIZE = r"([\d.]+ (?:[KMG]i)?B)"
LEVELS = ("L1", "L2", "L3", "memory")
# The places in which a quantity has a number: patterns by the name of the quantity.
QUANTITIES = {
    "latency of memory": (
        rf"Idle latency of memory\s+{NUMBER}\s+ns",
        rf"previous one takes [^\n]*?{NUMBER} ns{INTERVAL} in memory",
        rf"Here: [^\n]*?{NUMBER} ns from memory",
        rf"latency of memory:? (?:idle )?{NUMBER} ns",
        rf"(?m)^memory +[\d.]+ [KMG]iB(?: to [\d.]+ [KMG]iB)? +\d+ +{NUMBER} ",
        rf"lines of 64 B in {NUMBER} ns each",
    ),
    **{
        f"latency of {level}": (
            rf"previous one takes [^\n]*?{NUMBER} ns{INTERVAL} in {level}\b",
            rf"Here: [^\n]*?{NUMBER} ns in {level}\b",
        )
        for level in LEVELS[:-1]
    },
    **{
        f"triad in {level}": (
            rf"triad reaches [^\n]*?{NUMBER} GB/s{INTERVAL} in {level}\b",
            rf"Here triad has [^\n]*?{NUMBER} GB/s (?:in|from) {level}\b",
        )
        for level in LEVELS
    },
    **{
        f"{kernel} from memory with {stores} stores": (
            rf"{kernel.capitalize()} from memory, {stores} stores\s+{NUMBER}\s+GB/s",
            rf"From memory [^\n]*?{kernel} (?:[^;\n]*? and )?{NUMBER} GB/s{INTERVAL} with {stores}",
        )
        for kernel in ("copy", "triad")
        for stores in ("non-temporal", "ordinary")
    },
    "empty launch": (rf"Empty launch\s+{NUMBER}\s+µs", rf"BS0, takes {NUMBER} µs"),
    **{
        f"size of {level}": (
            rf"{level} {SIZE} by latency",
            rf"{level} {SIZE}(?=[,\n])",
            rf"in {level} \(up to {SIZE}\)",
            rf"{level} [\d.]+ [KMG]iB \(measured: {SIZE}\)",
        )
        for level in ("L2", "L3")
    },
}
# Impossible texts: a pattern and what is wrong with it.
IMPOSSIBLE = {
    r"(?<![\w.)\]])-\d+(?:\.\d+)? ?(?:ns|µs|us|ms|s)\b": "a negative time",
    r"± ?(?:[2-9]\d|\d{3,})(?:\.\d+)? ?%": "a symmetric interval of 20 % or more",
    r"(?:1(?:0[6-9]|[1-9]\d)|[2-9]\d\d|\d{4,})(?:\.\d+)? % (?:of (?:the|its|their) "
    r"(?:roofline|limit|peak|theoretical peak|bound)|reached)": "a share above 1.05",
}
_BLOCKS = {"p", "div", "li", "tr", "h1", "h2", "h3", "dt", "dd", "table", "section", "figcaption"}
# Columns of times, rates and shares: an ending of their names, and the least and largest value.
_COLUMNS = {
    r".*_s|.*_ns|ns_per_access|.*_GBps|.*_GFLOPs|.*_GAMS|.*_GHz": (0.0, math.inf),
    r".*_share|.*_fraction": (0.0, 1.05),
}
# Each is not above the next one.
_ORDERS = (
    ("time_min_ci_low_s", "time_min_s", "time_min_ci_high_s"),
    ("time_ci_low_s", "time_median_s", "time_ci_high_s"),
    ("time_min_s", "time_median_s"),
)


class _Text(HTMLParser):
    """The text of a page without its figures, a line for each block."""

    def __init__(self, page):
        super().__init__()
        self.parts, self.hidden = [], 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("svg", "style", "script")
        self.parts.append("\n" if tag in _BLOCKS else " " if tag in ("td", "th", "span") else "")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("svg", "style", "script")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def text_of(page):
    """Return the text of an HTML page."""
    return "".join(_Text(page).parts)


def _amount(number):
    """Return a number or size as text, and half of the unit of its last figure."""
    digits, _, unit = number.partition(" ")
    scale = 1024.0 ** ("KMG".index(unit[0]) + 1) if "i" in unit else 1.0
    figures = digits.replace(".", "").lstrip("0")
    # Figures that the interval does not leave are zeros: 640 may be 636.
    zeros = 0 if "." in digits else len(figures) - len(figures.rstrip("0"))
    places = len(digits.partition(".")[2])
    return float(digits) * scale, 0.5 * 10.0 ** (zeros - places) * scale


def differing(text):
    """Return a sentence for each quantity of which a text has numbers that differ by rounding."""
    found = []
    for quantity, patterns in QUANTITIES.items():
        numbers = [number for pattern in patterns for number in re.findall(pattern, text)]
        amounts = [_amount(number) for number in dict.fromkeys(numbers)]
        if any(abs(a - b) > 1.01 * max(u, v) for a, u in amounts for b, v in amounts):
            found.append(f"{quantity}: {', '.join(dict.fromkeys(numbers))}")
    if re.search(r"by latency \(the system reports", text) and "By latency, cache" in text:
        found.append("size of a cache: by latency on the first page and as a range")
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


def wrong_records(frame):
    """Return a sentence for each column of records with an impossible value."""
    found = []
    for pattern, (low, high) in _COLUMNS.items():
        for column in (str(name) for name in frame if re.fullmatch(pattern, str(name))):
            values = frame[column].dropna()
            numbers = values[values.map(lambda value: isinstance(value, (int, float)))]
            wrong = numbers[(numbers < low) | (numbers > high)]
            found += [f"{column}: {value:.4g}" for value in wrong]
    for names in _ORDERS:
        present = [name for name in names if name in frame]
        for less, more in itertools.pairwise(present):
            above = frame[less] > frame[more] * (1 + 1e-9)
            found += [f"{less} above {more}"] * bool(above.any())
    if {"bytes_B", "time_min_s", "bandwidth_GBps"} <= set(frame):
        rate = frame["bytes_B"] / frame["time_min_s"] / 1e9
        apart = (rate - frame["bandwidth_GBps"]).abs() > 1e-3 * rate
        found += ["bandwidth_GBps is not bytes_B over time_min_s"] * bool(apart.any())
    return found


def findings(page, frame):
    """Return all sentences on the page of a report and its records."""
    text = text_of(page)
    return [*differing(text), *impossible(text), *wrong_records(frame)]
