"""The theoretical peak of the memory of a record, and the share of it that was reached."""

import math

import numpy as np
import pytest
from checking import measured, refused, refused_words
from pytest import approx

import memkern as mk
from memkern.formats import ResultSet
from memkern.host import environment as host_environment
from memkern.machine import environment
from memkern.machine.smbios import Module, Population, columns
from memkern.models import with_peak
from memkern.models.peak import peak_columns
from memkern.plots import figures, tables
from memkern.plots.frames import frame_of

GPU = {"device": "cuda:0", "bandwidth_GBps": 1676.0, "footprint_B": 2**30}
HOST = {"device": "cpu", "bandwidth_GBps": 19.2, "caches_multiple": 4.0}
MACHINE = {
    "machine": {"hypervisor": None},
    "memory": {"peak_GBps": 76.8},
    "devices": {"cuda:0": {"peak_GBps": 3352.0, "l2_B": 50 * 2**20}},
}


@pytest.mark.parametrize(
    ("record", "peak", "share"),
    [
        (HOST, 76.8, 0.25),
        # A record without the column is of processors.
        ({"bandwidth_GBps": 38.4}, 76.8, 0.5),
        # Two machines of two ranks each.
        ({**HOST, "ranks": 4, "ranks_per_node": 2}, 153.6, 0.125),
        ({**HOST, "ranks": 2, "ranks_per_node": 2}, 76.8, 0.25),
        # Caches hold the data, as measured or else as the system reports.
        ({**HOST, "caches_multiple": 1.0}, 76.8, math.nan),
        ({**HOST, "caches_multiple": math.nan, "system_caches_multiple": 0.5}, 76.8, math.nan),
        ({**HOST, "system_caches_multiple": 0.5}, 76.8, 0.25),
        (GPU, 3352, 0.5),
        ({**GPU, "footprint_B": 2**20}, 3352, math.nan),
        # Memory of other ranks, and of the host.
        ({**HOST, "device": "mpi"}, math.nan, math.nan),
        ({**GPU, "memory": "pinned"}, 3352, math.nan),
        ({**HOST, "bandwidth_GBps": 0.0}, 76.8, math.nan),
    ],
)
def test_a_record_has_the_peak_of_its_memory(record, peak, share):
    found = peak_columns(record, MACHINE)
    assert found == approx({"peak_GBps": peak, "peak_share": share}, nan_ok=True)


def test_an_unknown_peak_leaves_both_columns_empty():
    # A virtual machine shows modules that its host does not have.
    virtual = {**MACHINE, "machine": {"hypervisor": "KVM"}}
    for unknown in ({}, virtual, {"memory": {"peak_GBps": None}}):
        found = peak_columns(HOST, unknown)
        assert found == approx(dict.fromkeys(found, math.nan), nan_ok=True)
    assert peak_columns(HOST, virtual, 38.4) == {"peak_GBps": 38.4, "peak_share": 0.5}
    # The column of older records of GPUs.
    assert peak_columns({**GPU, "gpu_peak_GBps": 838.0}, {})["peak_share"] == 2


def saved(**columns: object) -> ResultSet:
    """Return records as older versions wrote them."""
    record = {"environment_id": "e", "kernel": "stream.copy", "platform": "Own, 4 threads"}
    record |= {"valid": True, "disturbed": False, "variant": "simd", "threads": 4}
    return ResultSet([record | HOST | columns], [np.ones(1)], {"e": MACHINE})


def test_saved_records_get_the_columns():
    assert with_peak(saved()).records[0]["peak_share"] == 0.25
    assert with_peak(saved(), 38.4).records[0]["peak_share"] == 0.5
    assert with_peak(frame_of(saved()))["peak_share"].tolist() == [0.25]
    # What was given with the measurement stays, unless another peak is given.
    known = saved(peak_GBps=192.0, peak_share=0.1)
    assert with_peak(known).records == known.records
    assert with_peak(known, 38.4).records[0]["peak_GBps"] == 38.4
    for wrong in (0, -1.0, math.nan, math.inf, "fast"):
        with refused("peak_GBps must be a positive number"):
            with_peak(saved(), wrong)


def test_the_table_of_shares():
    rows = saved() + saved(bandwidth_GBps=38.4) + saved(kernel="stream.triad", caches_multiple=0.5)
    table = tables["peak"](rows)
    assert table[["kernel", "peak_share"]].to_numpy().tolist() == [["stream.copy", 0.5]]
    assert tables["peak"](rows, peak_GBps=384)["peak_share"].tolist() == [approx(0.1)]
    assert tables["peak"](with_peak(rows).to_frame())["peak_GBps"].tolist() == [76.8]
    unknown = rows.to_frame()
    for records in (unknown, saved(caches_multiple=0.5)):
        with refused("peak of the memory is unknown, or caches hold all data: give it as"):
            tables["peak"](records)
    assert tables["peak"](unknown, peak_GBps=384)["peak_share"].tolist() == [approx(0.1)]
    with refused("peak_GBps must be a positive number"):
        tables["peak"](rows, peak_GBps=0)
    with refused("there is no record: `memkern stream"):
        tables["peak"](None)


def test_saturation_draws_the_peak_of_data_in_memory():
    def lines(**columns: object) -> list[float]:
        rows = [saved(threads=n, bytes_B=2**30, dtype="float64", backend="openmp", **columns)
                for n in (1, 2)]  # fmt: skip
        (ax,) = figures["saturation"](rows[0] + rows[1]).axes
        drawn = [one for one in ax.lines if one.get_label() == "peak of memory"]
        assert ax.get_ylim()[1] > max((one.get_ydata()[0] for one in drawn), default=0)
        return [one.get_ydata()[0] for one in drawn]

    assert lines() == [76.8]
    assert lines(caches_multiple=0.5) == [] == lines(environment_id="unknown")
    assert lines(peak_GBps=40.0, peak_share=0.5) == [40.0]


def test_wmax_is_also_a_share_of_the_peak():
    table = tables["bs-t0-wmax"](None).set_index("test")
    assert table.shape == (7, 12)
    # BS4 reached 879 of 900 GB/s on a V100.
    assert table.loc["BS4", "V100: Wmax_of_peak"] == approx(879 / 900)
    assert table.loc["BS7", "Titan V: Wmax_of_peak"] == approx(563 / 653)
    rows = [
        saved(
            kernel="bs.bs1", bytes_B=size, footprint_B=size, time_min_s=2e-6 + size / 38.4e9,
            repetition="fork", dtype="float64", backend="openmp", definition="",
        )
        for size in (10**6, 10**7, 10**8, 10**9)
    ]  # fmt: skip
    own = tables["bs-t0-wmax"](rows[0] + rows[1] + rows[2] + rows[3]).iloc[0]
    assert own["Own, 4 threads: Wmax_of_peak"] == approx(38.4 / 76.8)


def test_the_given_peak_is_in_records_and_not_in_identities(capsys):
    words = ("stream", "-k", "copy", "--elements", str(2**21), "--runs", "2")
    (record,) = measured(capsys, *words, "--peak", "51.2")
    assert record["peak_GBps"] == 51.2 and record["peak_share"] > 0
    assert record["peak_share"] == approx(record["bandwidth_GBps"] / 51.2)
    case = mk.stream("copy", elements=64)
    assert case.with_(peak_GBps=51.2).identity() == case.identity()
    assert "--peak" in refused_words(capsys, *words, "--peak", "0")


def test_the_firmware_tells_the_peak_of_a_measured_record(monkeypatch):
    case = mk.stream("copy", elements=2**21, runs=2, placements=1)
    module = Module(2**34, "DDR5", 4800, 4800, "DIMM_A1", "")
    memory = columns(Population((module, module), (), 2, "by EDAC"))
    monkeypatch.setattr(host_environment, "_memory", lambda: memory)
    collect = environment.collect

    def described(hypervisor: str | None):
        def of_machine(build: object) -> dict[str, object]:
            found = collect(build)
            return {**found, "machine": {**found["machine"], "hypervisor": hypervisor}}

        return of_machine

    monkeypatch.setattr(environment, "collect", described(None))
    record = case.measure().record
    assert record["peak_GBps"] == 76.8
    assert record["peak_share"] == approx(record["bandwidth_GBps"] / 76.8)
    monkeypatch.setattr(environment, "collect", described("KVM"))
    record = case.measure().record
    assert math.isnan(record["peak_GBps"]) and math.isnan(record["peak_share"])
