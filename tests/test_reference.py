"""Published data: complete, consistent with their own formulas, converted correctly."""

import subprocess
import sys

import numpy as np
import pytest

from memkern import reference
from memkern.errors import InputError


def test_names_and_citations():
    lavin = ["lavin2020", "lavin2020-patterns", "lavin2020-platforms"]
    assert reference.names() == ["chalmers2020", *lavin]
    for name in reference.names():
        paper = "10.1145/3422575.3422794" if name in lavin else "arXiv:2009.10917"
        assert paper in reference.cite(name)
        assert len(reference.load(name)) == len(reference.rows(name)) > 0
    for call in (reference.cite, reference.rows, reference.load):
        with pytest.raises(InputError, match="lavin2020-platforms, not 'lavin2019'"):
            call("lavin2019")


def test_results_are_500_rows_of_ten_platforms_by_fifty_cases():
    frame = reference.load("lavin2020")
    assert frame.shape == (500, 14)
    assert (frame.groupby("platform").size() == 50).all()
    assert frame.groupby("kind")["platform"].nunique().to_dict() == {"cpu": 6, "gpu": 4}
    cases = frame.groupby(["kind", "suite", "kernel"])["pattern"].nunique()
    for kind in ("cpu", "gpu"):
        assert cases[kind].to_dict() == {
            ("amg", "spatter.gather"): 2,
            ("lulesh", "spatter.gather"): 8,
            ("lulesh", "spatter.scatter"): 4,
            ("nekbone", "spatter.gather"): 3,
            ("pennant", "spatter.gather"): 16,
            ("pennant", "spatter.scatter"): 1,
            ("ustride", "spatter.gather"): 8,
            ("ustride", "spatter.scatter"): 8,
        }
    assert set(frame["source"]) == {"published"}
    assert not frame.duplicated(["platform", "pattern", "kernel"]).any()


def test_bandwidths_follow_from_times_and_sizes():
    frame = reference.load("lavin2020")
    bytes_B = 8.0 * frame["pattern_length"] * frame["count"]
    np.testing.assert_allclose(
        frame["bandwidth_GBps"], bytes_B / frame["time_min_s"] / 1e9, rtol=6e-4
    )


def test_units_and_missing_values_are_converted():
    first = reference.rows("lavin2020")[0]
    assert first["platform"] == "K40"
    assert first["kernel"] == "spatter.scatter"
    assert first["pattern"] == "UNIFORM:256:1"
    assert first["bandwidth_GBps"] == pytest.approx(172.218)
    assert first["time_min_s"] == 0.04645
    assert first["threads"] is None
    frame = reference.load("lavin2020")
    assert frame["threads"].isna().equals(frame["kind"] == "gpu")
    platforms = reference.load("lavin2020-platforms").set_index("platform")
    assert np.isnan(platforms.loc["V100", "table4_stream_GBps"])
    assert platforms.loc["Skylake", "table4_stream_GBps"] == 96
    assert platforms.loc["Naples", "table3_threads"] is not None


def test_platforms_are_those_of_the_results():
    results = {(row["platform"], row["kind"]) for row in reference.rows("lavin2020")}
    platforms = {(row["platform"], row["kind"]) for row in reference.rows("lavin2020-platforms")}
    assert results == platforms


def test_published_deltas_are_those_of_table_5_or_noted():
    table = {row["pattern"]: row for row in reference.rows("lavin2020-patterns")}
    assert len(table) == 34
    for row in reference.rows("lavin2020"):
        if row["suite"] == "ustride":
            _, length, stride = row["pattern"].split(":")
            assert row["pattern_length"] == int(length)
            assert row["delta"] == int(length) * int(stride)
            continue
        entry = table[row["pattern"]]
        merged = 16 if row["kind"] == "gpu" else 1
        assert row["pattern_length"] == merged * len(entry["indices"])
        assert (row["suite"], row["kernel"]) == (entry["suite"], entry["kernel"])
        assert (row["delta"] == merged * entry["delta"]) == (row["note"] == "")


def test_rows_are_fresh_and_need_no_pandas():
    reference.rows("lavin2020")[0]["platform"] = "changed"
    assert reference.rows("lavin2020")[0]["platform"] == "K40"
    code = (
        "import sys, memkern.suites as s, memkern.reference as r; r.rows('lavin2020'); s.apps();"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
