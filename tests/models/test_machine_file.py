"""Machine files: round trips, refusal of damaged files, comparison of two machines."""

import dataclasses
import json
import math

import pytest
from checking import refused
from hypothesis import given
from hypothesis import strategies as st

from memkern import reference
from memkern.models import machine_reading, roofline
from memkern.models.machine_file import InCore, Instruction, Quantity, body_of, differences
from memkern.models.published_machines import published
from memkern.spec.kernel import Traffic, Transfer

A64FX = published("A64FX")


def test_the_published_machine_has_the_paper_s_numbers():
    facts = {row["quantity"]: row["value"] for row in reference.rows("alappat2021-machine")}
    assert (A64FX.cores * A64FX.domains, A64FX.cores) == (facts["cores"], facts["cores_per_cmg"])
    assert A64FX.caches == [
        {"level": 1, "size_B": 64 * 2**10, "shared_by": 1},
        {"level": 2, "size_B": 8 * 2**20, "shared_by": 12},
    ]
    found = {
        (b.level, b.operation, b.cores): (b.B_per_cycle.value, b.GBps.value)
        for b in A64FX.bandwidths
    }
    assert found["L1", "load", 1] == (128, pytest.approx(281.6))
    assert found["memory", "triad", 48] == (pytest.approx(841 / 2.2), pytest.approx(841))
    assert A64FX.instruction("fma").reciprocal_cycles.value == 0.5
    assert A64FX.instruction("ordered add").latency_cycles.value == 72
    gather = A64FX.instruction("gather, complex stride")
    assert (gather.latency_cycles.value, gather.note) == (
        11,
        "ld1d (gather, complex stride); latency: at least this",
    )
    assert "Alappat" in A64FX.source
    with refused("no instruction 'fma' with 128 bits"):
        A64FX.instruction("fma", 128)
    with refused("machine 'M1' is not published: choose from A64FX, Xeon Gold 6148"):
        published("M1")


@pytest.mark.parametrize(
    ("name", "load_GBps", "copy_GBps"),
    [("Xeon Gold 6148", 58.95, 51.45), ("Xeon Platinum 8360Y", 84.96, 80.3)],
)
def test_the_machines_of_rrze(name, load_GBps, copy_GBps):
    """Check the cycles per line of the models and the bandwidths that they are derived from."""
    machine = published(name)
    model = machine.model_of()
    clock = machine.clock_GHz.value
    copy = Traffic(read=64.0, write=64.0, write_allocate=64.0).transfers(model.names)
    predicted = model.predict(copy)
    load, store = (GBps / clock for GBps in (load_GBps, copy_GBps))
    # L1: a store of 64 B. L2: two lines loaded and one stored. L3: the loads, two lines.
    assert model.predict(copy, at="L1").cycles == 1
    assert model.predict(copy, at="L2").cycles == 1 + 3
    assert model.predict(copy, at="L3").cycles == 1 + 3 + 8
    assert predicted.cycles == pytest.approx(1 + 3 + 8 + 128 / load + 64 / store, rel=2e-3)
    loads = Traffic(read=64.0).transfers(model.names)
    assert model.predict(loads).bandwidth_GBps(machine.cores) == pytest.approx(load_GBps, rel=2e-3)
    assert roofline.peak_GFLOPs(machine) == pytest.approx(32 * clock)
    assert "kerncraft" in machine.source
    assert machine_reading.load_machine(name).to_json() == machine.to_json()


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = A64FX.save(tmp_path / "a.json")
    again = machine_reading.load_machine(path)
    assert again.to_json() == A64FX.to_json()
    assert again.model_of() == A64FX.model_of()
    assert machine_reading.load_machine("A64FX").to_json() == A64FX.to_json()
    with refused("exists already"):
        A64FX.save(path)
    assert A64FX.save(path, force=True) == path


def test_files_of_earlier_versions_are_read(tmp_path):
    old = "L1 load + max(L1 store, L2, memory)"

    def earlier(document):
        document["ecm"].update(overlap=old)
        del document["ecm"]["memory_rate"], document["in_core"]

    found = machine_reading.load_machine(damaged(tmp_path, earlier))
    assert str(found.model_of().overlap) == old
    assert found.model_of().memory_rate == "apart" and found.in_core == ()
    assert found.model_of(memory_rate="common").memory_rate == "common"


def test_the_published_tlbs_reach_64_mib_with_small_pages():
    # In the paper, misses begin at 64 MiB with pages of 64 KiB, and at 2 GiB with those of 2 MiB.
    entries = [tlb.reach_B.value / tlb.page_B for tlb in A64FX.tlbs]
    assert entries == [16, 1024]
    assert A64FX.tlbs[1].reach_B.value == 2 * 2**30
    assert entries[1] * 64 * 2**10 == 64 * 2**20


@given(st.integers(0, 10_000))
def test_truncated_files_are_refused(tmp_path_factory, size):
    text = A64FX.to_json().strip()
    path = tmp_path_factory.mktemp("cut") / "a.json"
    path.write_text(text[: size % len(text)])
    with refused("is truncated or not a machine file"):
        machine_reading.load_machine(path)


def damaged(tmp_path, change):
    """Return the path of a file whose document was changed."""
    document = json.loads(A64FX.to_json())
    change(document)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=1), "has version 1 of the schema, but this memkern reads 2"),
        (lambda d: d.pop("version"), "has version None"),
        (lambda d: d.update(format="other"), "is not a machine file"),
        (lambda d: d.pop("clock_GHz"), "is damaged: the file has no clock_GHz"),
        (lambda d: d.update(more=1), "is damaged: the file has 'more'"),
        (lambda d: d.update(cores="12"), "cores must be of type int, not '12'"),
        (lambda d: d.update(levels={}), "levels must be a list"),
        (lambda d: d["levels"][0].pop("name"), r"levels\[0\] has no name"),
        (lambda d: d["ecm"]["levels"][0].update(load_B=-1.0), "load_B of L1 must be positive"),
        (lambda d: d.update(clock_GHz=2.2), "clock_GHz must be an object, not 2.2"),
        (lambda d: d["clock_GHz"].update(value=math.inf), "value must be a finite number, not inf"),
        (lambda d: d["clock_GHz"].update(value=-2.2), "clock_GHz must be positive, not -2.2"),
        (lambda d: d.update(cores=10**30), "cores must be from 1 to"),
        (lambda d: d.update(levels=[]), "levels must be caches such as L1 and L2, and then memory"),
        (lambda d: d["levels"][0].update(name="cache"), "levels must be caches .* not .*'cache'"),
        (lambda d: d["levels"][1].update(size_B=-5), "size_B must be from 1 to .* not -5"),
        (lambda d: d["levels"][2].update(size_B=64), "size_B of memory must be null, not 64"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, message):
    path = damaged(tmp_path, change)
    with refused(message):
        machine_reading.load_machine(path)


BODY = {
    "kernel": "spmv.crs", "variant": "simd", "isa": "avx2", "dtype": "float64",
    "index_dtype": "int32", "unroll": 2, "result": "add", "C": 1,
}  # fmt: skip


def test_measured_times_are_found_by_the_body_of_a_record(tmp_path):
    assert A64FX.in_core_of(BODY) is None
    first = InCore(body_of(BODY), "L1", 1.5, 12.0)
    machine = A64FX.with_in_core([first])
    again = machine_reading.load_machine(machine.save(tmp_path / "a.json"))
    assert again.in_core == (first,)
    for same in ({"variant": "nta"}, {"unroll": 2.0}, {"layout": math.nan}, {"cut": None}):
        assert again.in_core_of({**BODY, **same}) == first
    for other in ({"isa": "sse4"}, {"unroll": 0}, {"C": 8}, {"dtype": "float32"}):
        assert again.in_core_of({**BODY, **other}) is None
    hop = {"kernel": "dw.hop", "variant": "simd", "cut": "s", "vector_bits": 256}
    assert body_of(hop) != body_of({**hop, "cut": "t2"})
    assert body_of({**hop, "cut": "z2"}) == body_of({**hop, "cut": "t2"})
    second = dataclasses.replace(first, cycles=2.0)
    assert again.with_in_core([second]).in_core == (second,)
    (row,) = (one for one in differences(A64FX, machine) if "row (cycles)" in one.what)
    assert row.second.value == 12


def test_files_that_hold_something_else(tmp_path):
    path = tmp_path / "a.json"
    for text in ("[]", "3", "null", '"memkern machine"', "{}"):
        path.write_text(text)
        with refused("is not a machine file"):
            machine_reading.load_machine(path)
    path.write_text("[" * 100_000)
    with refused("nested too deeply"):
        machine_reading.load_machine(path)
    with refused("missing.json"):
        machine_reading.load_machine(tmp_path / "missing.json")


def test_loads_and_stores_are_those_of_the_widest_vectors():
    rows = (
        Instruction("load", 512, Quantity(0.5)),
        Instruction("store", 512, Quantity(2.0)),
        Instruction("store", 256, Quantity(1.0)),
    )
    found = dataclasses.replace(A64FX, instructions=rows).loads_and_stores
    assert found is not None
    assert (found.load_B, found.store_B) == (128, 32)
    assert found.longest(Transfer(256, 32)) == 2
    assert found.longest(Transfer(64, 64)) == 2
    assert dataclasses.replace(A64FX, instructions=rows[::2]).loads_and_stores is None


def test_two_machines_are_compared():
    def faster(clock):
        return dataclasses.replace(A64FX, name="other", clock_GHz=clock, instructions=())

    rows = {row.what: row for row in differences(A64FX, faster(Quantity(2.0, 1.99, 2.01)))}
    clock = rows["clock (GHz)"]
    assert clock.differs
    assert clock.ratio == pytest.approx(2 / 2.2)
    assert not rows["L1: load, one core (GB/s)"].differs
    fma = rows["fma, 512 bit: latency (cycles)"]
    assert not fma.second.known
    assert math.isnan(fma.ratio)
    assert not fma.differs
    # Values whose intervals overlap or are less than 1 % apart do not differ.
    near = {row.what: row for row in differences(A64FX, faster(Quantity(2.19, 2.1, 2.3)))}
    assert not near["clock (GHz)"].differs
    close = {row.what: row for row in differences(A64FX, faster(Quantity(2.19, 2.189, 2.191)))}
    assert not close["clock (GHz)"].differs


def test_whose_records_a_file_describes():
    mine = dataclasses.replace(A64FX, model="Some CPU")
    assert mine.is_of("Some CPU")
    assert mine.is_of("")
    assert not mine.is_of("Another CPU")
    assert A64FX.is_of("Another CPU")  # the system's name of this model is unknown
    assert mine.describes("Some CPU") and not mine.describes("A64FX")
    assert A64FX.describes("Fujitsu A64FX") and not A64FX.describes("AMD EPYC 7742")
    xeon = published("Xeon Gold 6148")
    assert xeon.describes("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz")
    assert not xeon.describes("Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz")


def test_published_data_of_another_machine_are_said_to_be_so(recwarn):
    assert machine_reading.machine_of("A64FX", ["Fujitsu A64FX", ""]).name == "A64FX"
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"A64FX is another machine than .* \(AMD EPYC 7742\)"):
        machine_reading.machine_of("A64FX", ["AMD EPYC 7742"])


def test_a_file_without_a_model_says_so():
    bare = dataclasses.replace(A64FX, ecm=None)
    with refused("no parameters of the ECM model"):
        bare.model_of()
