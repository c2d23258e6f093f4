"""The verbs machine and ecm: files, output and refused input."""

import dataclasses
import json
import re

import pytest
from checking import output_of, refused_words, run

from memkern.cli import ecm
from memkern.cli.machine_file import _paragraphs
from memkern.errors import InputError
from memkern.formats import load
from memkern.models import paper_hypotheses
from memkern.models.machine_file import Quantity, Tlb
from memkern.models.machine_reading import load_machine
from memkern.models.published_machines import published

pytestmark = pytest.mark.usefixtures("small_cases")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory):
    """Return the path of a machine file of this machine, and the measurement."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMKERN_SMALL", "1")
        from memkern.studies.machine_file import measure_machine

        shares: list[float] = []
        found = measure_machine(seconds=60, progress=shares.append)
    assert found.missing == ()
    assert shares == sorted(shares) and shares[-1] == 1
    assert found.results.valid
    folder = tmp_path_factory.mktemp("host")
    found.results.save(folder / "host.parquet")
    return found.machine.save(folder / "host.json"), found


def test_a_machine_file_has_every_part(host):
    path, found = host
    machine = load_machine(path)
    assert machine.to_json() == found.machine.to_json()
    names = [level.name for level in machine.levels]
    assert names[0] == "L1" and names[-1] == "memory"
    assert all(level.latency_ns.value > 0 for level in machine.levels)
    assert all(level.in_flight.value > 0 for level in machine.levels)
    ways = {(b.level, b.operation, b.stores) for b in machine.bandwidths if b.cores == 1}
    for level in names[1:]:
        for operation in ("store", "copy"):
            assert (level, operation, "ordinary") in ways
            assert (level, operation, "non-temporal") in ways
        assert (level, "load", "") in ways
    assert {cost.name for cost in machine.costs} >= {"launch"}
    widest = machine.vector_bits
    for name in ("load", "store", "add", "mul", "divide", "horizontal add", "permute"):
        assert machine.instruction(name, widest).reciprocal_cycles.value > 0
    assert machine.instruction("atomic add", 64).latency_cycles.value > 0
    assert machine.clock_GHz.low <= machine.clock_GHz.value <= machine.clock_GHz.high
    for tlb in machine.tlbs:
        assert tlb.reach_B.value == tlb.reach_B.low and not tlb.reach_B.high < tlb.reach_B.low


def test_machine_prints_and_compares_files(host, capsys):
    path, _ = host
    out, err = output_of(capsys, "machine", str(path))
    assert re.fullmatch("memkern: MEMKERN_SMALL is set: .*\n", err)
    assert "horizontal add" in out
    assert "another machine" not in out
    code, out, _ = run(capsys, "machine", "A64FX")
    assert f"of another machine than this one ({load_machine(path).model})" in out.splitlines()[0]
    code, out, _ = run(capsys, "machine", "A64FX", "-q")
    assert (code, out) == (0, "")
    code, out, _ = run(capsys, "machine", "A64FX", "--json")
    assert json.loads(out)["name"] == "A64FX"
    out, _ = output_of(capsys, "machine", "A64FX", str(path))
    (line,) = [line for line in out.splitlines() if line.startswith("vector (bit)")]
    assert "512" in line
    out, _ = output_of(capsys, "machine", "A64FX", "Xeon Gold 6148")
    header, *lines = out.splitlines()[:-1]
    end = header.index("A64FX") + len("A64FX")
    assert any(line.startswith("gather with index load, complex stride") for line in lines)
    # The values of each side end below its name.
    own = [line for line in lines if ", 512 bit: " in line]
    assert all(line[end - 1] != " " and line[end:] == "" for line in own if "fma," not in line)
    code, out, _ = run(capsys, "machine", str(path), str(path))
    assert not [line for line in out.splitlines() if line.endswith(" *")]


def test_the_reach_of_a_tlb_is_printed_in_pages(tmp_path, capsys):
    tlbs = (
        Tlb(4096, Quantity(64 * 4096, 64 * 4096, 81 * 4096), 0.5),
        Tlb(4096, Quantity(1620 * 4096, 1620 * 4096), 2.27),
    )
    path = dataclasses.replace(published("A64FX"), tlbs=tlbs).save(tmp_path / "a.json")
    assert load_machine(path).tlbs[0] == tlbs[0]
    _, out, _ = run(capsys, "machine", str(path))
    assert "TLB 1 reaches 64 to 81 pages of 4 KiB: 0.50 ns" in out
    assert "TLB 2 reaches 1620 or more pages of 4 KiB: 2.27 ns" in out
    # The entries of table 1 of Alappat et al. 2021, for pages of 2 MiB.
    lines = run(capsys, "machine", "A64FX")[1].splitlines()
    assert [line for line in lines if line.startswith("TLB")] == [
        "TLB 1 reaches 16 pages of 2048 KiB",
        "TLB 2 reaches 1024 pages of 2048 KiB",
    ]
    assert lines[-1].startswith("all bytes of memory have the bandwidth of loads where they domi")
    assert lines[-1].endswith("else that of a triad: 96.82 B/cycle; of a domain 96.82")


def test_wide_intervals_keep_the_bandwidths_in_line():
    wide = Quantity(1234.0, 1023.0, 23456.0)
    machine = published("A64FX")
    rows = [dataclasses.replace(row, B_per_cycle=wide, GBps=wide) for row in machine.bandwidths]
    header, *lines = _paragraphs(dataclasses.replace(machine, bandwidths=tuple(rows)))[2]
    assert header.endswith("GB/s") and len(lines) == len(rows)
    assert {*map(len, lines)} == {len(header)}


def test_machine_writes_a_published_machine(tmp_path, capsys):
    path = tmp_path / "a64fx.json"
    assert run(capsys, "machine", "A64FX", "-o", str(path), "-q")[0] == 0
    assert load_machine(path).to_json() == published("A64FX").to_json()
    assert "exists already" in refused_words(capsys, "machine", "A64FX", "-o", str(path), "-q")


def test_machine_refuses(tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text(published("A64FX").to_json()[:999])
    assert "is truncated" in refused_words(capsys, "machine", str(broken), "-q")
    assert "two files, not 3" in refused_words(capsys, "machine", "-q", *["A64FX"] * 3)
    words = refused_words(capsys, "machine", "A64FX", "A64FX", "--json", "-q")
    assert "leave out -o and --json" in words
    words = refused_words(capsys, "machine", "A64FX", "--records", "a.parquet", "-q")
    assert "measures nothing" in words
    existing = tmp_path / "there.json"
    existing.write_text("")
    assert "exists already" in refused_words(capsys, "machine", "-o", str(existing), "-q")


def test_ecm_measures_judges_and_adds_the_model(host, tmp_path, capsys, monkeypatch):
    # The verb adds the model to the file.
    path = load_machine(host[0]).save(tmp_path / "host.json")
    records = tmp_path / "ecm.parquet"
    code, out, err = run(capsys, "ecm", "-o", str(records), "-q")
    assert (code, out) == (0, ""), err
    out, err = output_of(capsys, "ecm", str(records), "--json")
    document = json.loads(out)
    levels = [level["level"] for level in document["levels"]]
    kernels = {row["kernel"] for row in document["loops"]}
    # No loop is left out in any level.
    assert len(document["loops"]) == len(kernels) * len(levels)
    assert {"loops.stencil", "loops.matvec", "loops.daxpy"} <= kernels
    out, _ = output_of(capsys, "ecm", str(records), "--machine", str(path))
    assert "loops are judged" in out
    machine = load_machine(path)
    assert machine.ecm is not None and machine.model_of().names == tuple(levels)
    text = "L1 + max(" + ", ".join(levels[1:]) + ")"
    out, err = output_of(capsys, "ecm", str(records), "--overlap", text, "--json")
    assert json.loads(out)["overlap"] == text
    words = ("--overlap", "d", "--memory-rate", "common", "--json", "--machine", str(path))
    out, err = output_of(capsys, "ecm", str(records), *words)
    document = json.loads(out)
    assert document["hypothesis"] == "d"
    assert document["overlap"] == str(paper_hypotheses(levels)["d"])
    rates = {(row["kernel"], row["level"]): row["memory_rate"] for row in document["loops"]}
    assert rates["loops.load", "memory"] == "load"
    assert rates["loops.triad", "memory"] == "triad"
    assert rates["loops.triad", "L1"] == ""
    machine = load_machine(path)
    assert machine.ecm is not None and machine.ecm.memory_rate == "common"
    assert machine.model_of().overlap == paper_hypotheses(levels)["d"]

    def without_limit(*_):
        raise InputError("loads of 2 GB/s are too slow for a triad of 4 GB/s")

    monkeypatch.setattr("memkern.models.ecm_fit.judge_cores", without_limit)
    out, err = output_of(capsys, "ecm", str(records))
    assert "loops are judged" in out
    assert "loops on several cores are not judged: loads of 2 GB/s are too slow" in err
    if any(row["threads"] > 1 for row in load(records)):
        monkeypatch.setattr("memkern.models.ecm_fit.judge_cores", lambda *_: ())
        _, _, err = run(capsys, "ecm", str(records))
        assert "not judged: loads or the triad were disturbed there" in err


def test_loops_that_are_off_have_a_reason():
    anew = "every column starts anew"
    for fitted, ratio, reason, marks in (
        (False, 1.5, "", ["off: not explained"]),
        (False, 0.7, anew, [f"off: {anew}"]),
        (False, 1.2, anew, []),
        (True, 1.5, "", ["fitted", "disturbed"]),
    ):
        row = {"measured_over_predicted": ratio, "reason": reason}
        assert ecm._marks({**row, "fitted": fitted, "disturbed": fitted}) == marks


def test_ecm_refuses(host, tmp_path, capsys):
    _, found = host
    records = tmp_path / "host.parquet"
    found.results.filter(kernel="latency.chase").save(records)
    assert "no record of one core" in refused_words(capsys, "ecm", str(records), "-q")
    words = refused_words(capsys, "ecm", str(records), "--machine", "A64FX", "-q")
    assert "not the published machine A64FX" in words
    other = tmp_path / "other.json"
    document = json.loads(published("A64FX").to_json())
    other.write_text(json.dumps({**document, "model": "Another CPU"}))
    words = refused_words(capsys, "ecm", str(records), "--machine", str(other), "-q")
    assert "of another machine (Another CPU" in words
    words = refused_words(capsys, "ecm", str(records), "-o", "more.parquet", "-q")
    assert "measures nothing" in words
