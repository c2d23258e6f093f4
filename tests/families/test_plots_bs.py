"""The exhibits of the finite-element streaming tests that show published values."""

import math

import pandas as pd
import pytest
from checking import refused
from plotting import Results

from memkern.plots import tables

OWN = {"environment_id": "e1", "platform": "Own, 4 threads", "kernel": "bs.bs1", "device": "cpu"}


def of_machine(**about):
    """Return a record on the processor and one on the GPU of a described machine."""
    results = Results([OWN, {**OWN, "device": "cuda:0", "platform": "Card"}, OWN])
    results.environments["e1"]["machine"] |= {
        "model": "Own", "cores": 4, "memory_B": 64 * 2**30, **about,
    }  # fmt: skip
    results.environments["e1"]["memory"] = {"kind": "DDR5", "peak_GBps": 76.8}
    results.environments["e1"]["devices"] = {
        "cuda:0": {
            "name": "Card", "units": 132, "l2_B": 50 * 2**20, "memory_B": 80 * 2**30,
            "peak_GBps": 3352.0,
        }
    }  # fmt: skip
    return results


def test_own_machines_stand_beside_the_published_devices():
    published = tables["bs-devices"](None)
    assert published["platform"].tolist() == ["Radeon VII", "MI60", "Titan V", "V100"]
    assert published["tdp_W"].tolist() == [250, 225, 250, 300]
    assert published["peak_bandwidth_GBps"].tolist() == [1000, 1000, 653, 900]
    table = tables["bs-devices"](of_machine())
    assert table["row"].tolist() == ["own", "own", *["published"] * 4]
    host, card = table.iloc[0], table.iloc[1]
    assert host[["platform", "compute_units", "memory"]].tolist() == ["Own", 4, "64 GB DDR5"]
    # In 2^20 B: four L1 of 32 KiB (without instructions), four L2 of 1 MiB, an L3 of 16 MiB.
    assert host[["l1_MB", "l2_MB", "l3_MB"]].tolist() == [0.125, 4, 16]
    assert host["peak_bandwidth_GBps"] == 76.8 and math.isnan(host["tdp_W"])
    assert card[["platform", "compute_units", "memory"]].tolist() == ["Card", 132, "80 GB"]
    assert card[["l2_MB", "peak_bandwidth_GBps"]].tolist() == [50, 3352]
    assert math.isnan(card["l1_MB"])


def test_unknown_facts_of_own_machines_are_empty():
    virtual = tables["bs-devices"](of_machine(hypervisor="KVM")).iloc[0]
    assert math.isnan(virtual["peak_bandwidth_GBps"]) and virtual["memory"] == "64 GB DDR5"
    (bare,) = tables["bs-devices"](pd.DataFrame([OWN])).query("row == 'own'").to_dict("records")
    assert bare["platform"] == "Own, 4 threads" and bare["memory"] == ""
    assert pd.isna(bare["compute_units"]) and math.isnan(bare["l2_MB"])
    with refused("'platform'"):
        tables["bs-devices"](pd.DataFrame([{"kernel": "bs.bs1"}]))


@pytest.mark.parametrize("records", [[1], {"platform": ["x"]}])
def test_devices_of_other_objects_are_refused(records):
    with refused("not a DataFrame or a ResultSet"):
        tables["bs-devices"](records)
