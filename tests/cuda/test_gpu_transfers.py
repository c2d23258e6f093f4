"""Transfers between host and GPUs: every word arrives; memory that does not move is refused."""

from typing import Any

import numpy as np
import pytest
from checking import measured, output_of, refused
from device_under_test import ENTRIES, HAS_GPU, ONLY_EMULATED, TWO_GPUS

import memkern as mk
from memkern.spec.case import Case
from memkern.spec.kernel import finish

TRANSFERS = [entry for entry in ENTRIES if entry[0].startswith("transfers.")]


def transfer(entry: tuple[Any, ...], size_B: int, **options: Any) -> Case:
    """Return the case of an entry of transfers."""
    kernel, variant, _, _, _, memory = entry
    own = {} if memory == "device" else {"memory": memory}
    return mk.case(kernel, device="cuda", variant=variant, size_B=size_B, **own, **options)


def transfer_params() -> list[Any]:
    """Return a parameter for every entry of transfers; entries between GPUs need two GPUs."""
    one_gpu = pytest.mark.skipif(not TWO_GPUS, reason="this machine has one GPU")
    return [
        pytest.param(
            entry,
            id=f"{entry[0]}-{entry[1]}-{entry[5]}",
            marks=one_gpu if entry[0] == "transfers.between" else (),
        )
        for entry in TRANSFERS
    ]


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("entry", transfer_params())
def test_transfers_move_every_word(entry):
    for size_B in (8, 4096, 4104, 2**20 + 8):
        case = transfer(entry, size_B, runs=3, seed=5)
        record = case.measure().record
        assert record["valid"], (entry, size_B)
        assert record["bytes_B"] == (2 if entry[0] == "transfers.both" else 1) * size_B
        assert record["bandwidth_GBps"] == pytest.approx(
            record["bytes_B"] / record["time_min_s"] / 1e9
        )
        assert (record["size_B"], record["memory"], record["variant"]) == (
            size_B, entry[5], entry[1],
        )  # fmt: skip
        assert (record["invocations"], record["timer"]) == (1, "host")
        assert record.get("peer") == ("cuda:1" if entry[0] == "transfers.between" else None)
        declared = {a.name: a for a in case.spec.arrays}
        sources = [name for name in declared if name.endswith("source")]
        words = np.arange(size_B // 8, dtype=np.uint64)
        arrays = {name: words + np.uint64(k) for k, name in enumerate(sources)}
        pages = -(-size_B // 4096)
        length = pages if entry[5] == "managed" else size_B // 8
        arrays |= {
            name: np.zeros(length, dtype=np.uint64) for name in declared if name not in sources
        }
        got = case.apply(**arrays)
        for name, wanted in case.spec.checks.reference(case, arrays).items():
            assert (got[name] == wanted).all(), (entry, size_B, name)


@ONLY_EMULATED
@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize(
    "entry", [e for e in TRANSFERS if e[5] != "managed"], ids=lambda e: f"{e[0]}-{e[1]}-{e[5]}"
)
def test_wrong_copies_are_found(entry, monkeypatch):
    kinds = {
        "to_device": ["HostToDevice"],
        "from_device": ["DeviceToHost"],
        "both": ["HostToDevice", "DeviceToHost"],
        "between": ["DeviceToDevice"],
    }[entry[0].partition(".")[2]]
    for kind in kinds:
        prepared = transfer(entry, 4104).prepare()
        assert prepared.check().valid
        monkeypatch.setenv("MEMKERN_EMULATED_WRONG", kind)
        assert not prepared.check().valid, kind
        monkeypatch.delenv("MEMKERN_EMULATED_WRONG")


@pytest.mark.parametrize("way", ["to_device", "from_device", "both"])
def test_wrong_pages_are_found(way):
    prepared = mk.transfers(way, size_B=3 * 4096, memory="managed", device="cuda").prepare()
    assert prepared.check().valid
    validation = prepared.validation()
    prepared.native.run(1)
    name = "back_target" if way == "both" else "target"
    prepared.native.poke(name, np.array([2]), np.array([1.0]))
    assert not finish(validation, 1).valid


@ONLY_EMULATED
def test_memory_that_does_not_move_is_refused(monkeypatch):
    case = mk.transfers("to_device", size_B=64, memory="managed", device="cuda")
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "managed")
    with refused("managed memory does not move between this host and cuda:0: use pageable or"):
        case.prepare()
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "cudaHostAlloc")
    with pytest.raises(MemoryError, match="no pinned buffer of 64 bytes"):
        mk.transfers("to_device", size_B=64, device="cuda").prepare()
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "peer")
    monkeypatch.setenv("MEMKERN_EMULATED_DEVICES", "2")
    with refused("cuda:0 has no direct access to cuda:1: use variant staged"):
        mk.transfers("between", size_B=64, device="cuda").prepare()
    staged = mk.transfers("between", size_B=64, device="cuda", variant="staged")
    assert staged.prepare().check().valid


def test_the_verb_measures_transfers(monkeypatch, capsys, tmp_path):
    path = tmp_path / "transfers.json"
    few = ["transfers", "--runs", "2", "--sizes"]
    shown, _ = output_of(capsys, *few, "64,4096", "-o", str(path))
    # Three directions with four ways of moving data each.
    assert shown.count("to_device") == shown.count("both") == 8
    results = mk.load(path)
    assert results.valid and len(results) >= 24
    assert {record["device"] for record in results} == {"cuda:0"}
    found = measured(capsys, *few, "64", "--variant", "touch")
    assert {(one["memory"], one["variant"]) for one in found} == {("managed", "touch")}
    if not TWO_GPUS:
        return
    monkeypatch.setenv("MEMKERN_EMULATED_DEVICES", "2")
    between = [*few, "64", "--kernel", "between"]
    assert [(one["peer"], one["variant"]) for one in measured(capsys, *between)] == [
        ("cuda:1", "direct"), ("cuda:1", "staged"),
    ]  # fmt: skip
    if HAS_GPU:
        return
    monkeypatch.setenv("MEMKERN_EMULATED_FAIL", "peer")
    assert [one["variant"] for one in measured(capsys, *between)] == ["staged"]
