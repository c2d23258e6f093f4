"""One value for one thing: in reports, in what commands print, and in records."""

import agreement
import numpy as np
import pandas as pd
import pytest
from dw_figure_records import everything as dw_records
from latency_records import all_records
from merit_records import ENVIRONMENT, MIB, record, records, streams
from plotting import Results
from spatter_records import own_records
from spmv_figure_records import everything as spmv_records
from streaming_figure_records import everything as streaming_records

from memkern import report
from memkern.families.latency.data import level_lines
from memkern.formats import ResultSet
from memkern.models.answers import health_sentence
from memkern.plots import sections
from memkern.plots.frames import frame_of

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


def result_set(rows):
    """Return a result set of records with nine samples each."""
    samples = [np.linspace(row["time_min_s"], 1.2 * row["time_min_s"], 9) for row in rows]
    return ResultSet(rows, samples, {"e1": ENVIRONMENT})


def whole():
    """Return records of each figure of merit, and of triads and chases over sizes."""
    few = [row for row in records() if row["kernel"] != "latency.chase"]
    return result_set([*few, *over_sizes()])


def test_a_report_has_one_value_for_one_thing(tmp_path):
    results = whole()
    path = report.write(results, tmp_path / "r.html", title="A title", environment=ENVIRONMENT)
    page = path.read_text(encoding="utf-8")
    text = agreement.text_of(page)
    # What is compared is there.
    for quantity in ("latency of memory", "copy from memory with non-temporal stores"):
        patterns = agreement.QUANTITIES[quantity][:2]
        assert all(agreement.re.search(pattern, text) for pattern in patterns), quantity
    assert "L3 30 MiB by latency (the system reports 40 MiB)" in text
    assert agreement.findings(page, results.to_frame()) == []


def test_the_table_of_latencies_and_the_verdict_agree():
    chases = [row for row in over_sizes() if row["kernel"] == "latency.chase"]
    results = result_set([{**row, "backend": "openmp"} for row in chases])
    lines = "\n".join([*level_lines(results), health_sentence(results, results.environments)])
    assert "latency of memory" in lines and "\nmemory " in lines
    assert agreement.differing(lines) == []
    # The lowest latency from memory, which verdicts had before, is another one.
    lowest = min(row["ns_per_access"] for row in chases if row["caches_multiple"] >= 2)
    assert agreement.differing(f"{lines}\nlatency of memory {lowest:.0f} ns") != []


@pytest.mark.parametrize(
    ("section", "everything"),
    [
        ("spatter", lambda: own_records()),
        ("streaming", streaming_records),
        ("latency", all_records),
        ("spmv", spmv_records),
        ("dw", dw_records),
    ],
)
def test_findings_have_no_impossible_numbers(section, everything):
    rows = everything()
    found = sections[section](frame_of(Results(rows) if isinstance(rows, list) else rows))
    text = "\n".join(found.findings)
    assert text and agreement.impossible(text) == []


TILE = "Idle latency of memory 196 ns next run 180 to 210"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "memory   256 MiB to 1 GiB           9    173.6    12\nlatency of memory 165 ns: no",
            "latency of memory: 165, 173.6",
        ),
        (
            f"{TILE}\nA load that depends on the previous one takes 187 ns in memory",
            "latency of memory: 196, 187",
        ),
        (
            "triad reaches 283 GB/s ±12 % in L1, 33 GB/s in memory\nHere triad has 248 GB/s in L1",
            "triad in L1: 283, 248",
        ),
        (
            "L3 32 MiB (measured: 7.91 MiB)\n187 ns in L3 (up to 2 MiB)",
            "size of L3: 2 MiB, 7.91 MiB",
        ),
        (
            "L3 7.91 MiB by latency (the system reports 32 MiB)\nBy latency, cache 3 has 724 KiB "
            "to 2 MiB, the system reports L3: 32 MiB",
            "size of a cache: by latency on the first page and as a range",
        ),
        ("Speed-up with 2 threads on m: 2.97 in CRS", "a speed-up with 2 threads: 2.97"),
        (
            "Speed-up with 2 threads on m: 1.9 in CRS and 2.97 in SELL",
            "a speed-up with 2 threads: 2.97",
        ),
        ("spinning barrier of 2 threads: -138 ns", "a negative time: -138 ns"),
        ("triad 33 GB/s ±67 % in memory", "a symmetric interval of 20 % or more: ±67 %"),
        ("1.34 ±147 %", "a symmetric interval of 20 % or more: ±147 %"),
        ("times as fast: 1.43 ± 0.9", "a symmetric interval of a fifth or more: 1.43 ± 0.9"),
        ("8 GFLOP/s, 138 % of the roofline", "a share above 1.05: 138 % of the roofline"),
        ("limit 8: 107 % reached", "a share above 1.05: 107 % reached"),
        ("typical 43 (57 to 62)", "a typical value outside of its range: 43 (57 to 62)"),
    ],
)
def test_numbers_that_differ_or_are_impossible_are_found(text, found):
    assert [*agreement.differing(text), *agreement.impossible(text)] == [found]


@pytest.mark.parametrize(
    "text",
    [
        f"{TILE}\nA load that depends on the previous one takes 196 ns ±8 % in memory",
        "triad reaches 280 GB/s (200 to 400) in L1\nHere triad has 283 GB/s in L1",
        "Speed-up with 2 threads on m: 2.97 ± 0.03 (more than the threads: caches) in CRS",
        "-> see --threads 2; 105 % of the roofline; 14 (8 to 23) % of it; 1990-138 ns",
        "typical 61 (59 to 62)",
    ],
)
def test_numbers_that_agree_are_not_found(text):
    assert [*agreement.differing(text), *agreement.impossible(text)] == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"time_net_s": -1e-7}, "time_net_s: -1e-07"),
        ({"roofline_min_fraction": 1.4}, "roofline_min_fraction: 1.4"),
        ({"ns_per_access": -2.0}, "ns_per_access: -2"),
        ({"time_median_s": 1e-9}, "time_min_s above time_median_s"),
        ({"time_min_ci_low_s": 1.0}, "time_min_ci_low_s above time_min_s"),
        ({"bandwidth_GBps": 3.0}, "bandwidth_GBps is not bytes_B over time_min_s"),
    ],
)
def test_impossible_records_are_found(change, found):
    good = records()[0]
    assert agreement.wrong_records(pd.DataFrame([good])) == []
    assert agreement.wrong_records(pd.DataFrame([{**good, **change}])) == [found]
