"""Published data: complete, consistent with the papers' formulas, converted correctly."""

import numpy as np
import pandas as pd
import pytest
from checking import python, refused

from memkern import reference

RAIDER = ("copy", "scale", "add", "triad")
# What is cited, by the first word of the names of data.
PAPERS = {
    "alappat2021": "10.1002/cpe.6512",
    "beebe2022": "CircusTent: A Tool for Understanding",
    "chalmers2020": "arXiv:2009.10917",
    "lavin2020": "10.1145/3422575.3422794",
    "published": "title, address",
    "raider2022": "10.1109/HPEC55821.2022.9926292",
    "rrze": "github.com/RRZE-HPC/ECM-Model",
}


def test_names_and_citations():
    assert {name.partition("-")[0] for name in reference.names()} == set(PAPERS)
    for name in reference.names():
        assert PAPERS[name.partition("-")[0]] in reference.cite(name)
        assert len(reference.load(name)) == len(reference.rows(name)) > 0
    unknown = "reference data 'lavin2019' is unknown: did you mean lavin2020"
    for call in (reference.cite, reference.rows, reference.load):
        with refused(unknown):
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
    assert pd.isna(platforms.loc["Naples", "table3_threads"])


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


def test_raider_figures_are_two_clusters_by_kernel_size_and_nodes():
    frame = reference.load("raider2022")
    assert frame.groupby("figure").size().to_dict() == {3: 12, 4: 12, 5: 45, 6: 45, 7: 15, 8: 15}
    assert frame.groupby("platform")["figure"].unique().map(list).to_dict() == {
        "nocona": [3, 5, 7],
        "thor": [4, 6, 8],
    }
    kernels = {f"{access}{k}" for access in ("", "gather_", "scatter_") for k in RAIDER}
    assert set(frame["kernel"]) == {f"raider.{kernel}" for kernel in kernels}
    assert ((frame["nodes"] == 1) == (frame["figure"] <= 6)).all()
    assert not frame.duplicated(["figure", "model", "kernel", "nodes", "elements"]).any()
    first = frame.iloc[0]
    assert (first["kernel"], first["elements"]) == ("raider.copy", 8_700_000)
    assert first["bandwidth_GBps"] == pytest.approx(18.921)


def test_rates_of_circustent_follow_from_times_and_iterations():
    frame = reference.load("beebe2022-circustent")
    assert frame["iters"].tolist() == [n * 10**7 for n in range(1, 6)]
    assert set(frame["kernel"]) == {"amo.rand"} and set(frame["primitive"]) == {"add"}
    assert set(frame["threads"]) == {24} and set(frame["memory_B"]) == {16_488_974_000}
    operations = frame["threads"] * frame["iters"]
    np.testing.assert_allclose(
        frame["rate_GAMS"], operations / frame["time_min_s"] / 1e9, rtol=1e-4
    )


def test_rows_are_copies_and_need_no_pandas():
    reference.rows("lavin2020")[0]["platform"] = "changed"
    assert reference.rows("lavin2020")[0]["platform"] == "K40"
    code = (
        "import sys; from memkern import reference, suites; "
        "reference.rows('lavin2020'); suites.apps();"
        "sys.exit('pandas' in sys.modules)"
    )
    assert python("-c", code).returncode == 0


# Sums over the columns of what the papers print, which a changed cell changes.
TOTALS = {
    "alappat2021-instructions": {"reciprocal_cycles": 52.5, "latency_cycles": 222},
    "alappat2021-kernels": {"pred_l1": 27.5, "pred_l2": 73.5, "pred_mem": 75, "meas_l1": 36.9}
    | {"meas_l2": 72.2, "meas_mem": 72.9, "unroll_l1": 120, "unroll_l2": 132, "unroll_mem": 81},
    "alappat2021-machine": {"value": 8517.4},
    "alappat2021-text": {"value": 8602.87, "cores": 1174},
    "beebe2022-circustent": {"time_min_s": 46.4152, "rate_GAMS": 0.386641},
    "chalmers2020": {"t0_s": 251.73e-6, "wmax_GBps": 21_099, "degree": 56},
    "chalmers2020-devices": {"tdp_W": 1025, "compute_units": 284, "registers_MB": 71}
    | {"shared_MB": 22.75, "l1_MB": 6.9, "l2_MB": 18.5, "peak_bandwidth_GBps": 3553},
    "lavin2020": {"count": 11_310_078_646, "delta": 368_272_708, "time_min_s": 74.464994475}
    | {"bandwidth_GBps": 96_677.161396, "threads": 19_596},
    "lavin2020-kernels": {"gathers": 9_754_089, "scatters": 1_860_283, "moved_MB": 1485}
    | {"moved_percent": 304.5},
    "lavin2020-patterns": {"delta": 5_253_254},
    "lavin2020-platforms": {"table3_threads": 428, "table3_stream_MBps": 2_624_245}
    | {"table4_stream_GBps": 1997},
    "raider2022": {"bandwidth_GBps": 3085.531, "elements": 898_650_000, "nodes": 294},
}


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_those_of_the_papers(name):
    frame = reference.load(name)
    found = {column: float(frame[column].sum()) for column in TOTALS[name]}
    assert found == pytest.approx(TOTALS[name], rel=1e-9)


def test_cells_are_those_of_the_papers():
    devices = reference.load("chalmers2020-devices").set_index("platform")
    assert devices["tdp_W"].to_dict() == {
        "Radeon VII": 250, "MI60": 225, "Titan V": 250, "V100": 300,
    }  # fmt: skip
    fits = reference.load("chalmers2020").set_index(["kernel", "platform"])["wmax_GBps"]
    assert fits["bs.bs4"].to_dict() == {
        "Radeon VII": 747, "Titan V": 639, "MI60": 831, "V100": 879,
    }  # fmt: skip
    patterns = reference.load("lavin2020-patterns").set_index("pattern")
    assert sum(patterns["indices"].map(sum)) == 71_295
    assert patterns["type"].eq("").sum() == 10 and patterns.loc["LULESH-S3", "delta"] == 0
    stream = reference.load("lavin2020-platforms").set_index("platform")["table4_stream_GBps"]
    assert stream[["Cascade Lake", "P100"]].tolist() == [94, 541]
