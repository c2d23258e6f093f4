"""bench/on_gpu.py, which measures a GPU, on the emulated device."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import on_gpu
import pytest
from checking import executable
from chosen_entries import one_of_each
from device_under_test import CUDA, ENTRIES, HAS_GPU, KEYS, ONLY_EMULATED, TREE

import memkern as mk
from memkern.machine import gpu


@pytest.mark.usefixtures("as_card")
@ONLY_EMULATED
def test_a_card_runs_the_tests_that_suit_it(tmp_path):
    chosen = "clock_is_limited or (transfers_move and (between or pinned)) or doctor_judges"
    files = [f"tests/cuda/test_gpu_{name}.py" for name in ("sampling", "settings", "transfers")]
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-k", chosen]
    words += [f"--basetemp={tmp_path / 'tests'}", *files]
    run = subprocess.run(words, capture_output=True, text=True, cwd=TREE)
    counts = re.search(r"(\d+) passed, (\d+) skipped, .* deselected in", run.stdout)
    # Pinned memory in three directions; between two GPUs directly or through the host.
    assert counts and counts.groups() == ("3", "4"), run.stdout
    assert (
        "[2] tests/cuda/test_gpu_transfers.py" in run.stdout
        and "this machine has one GPU" in run.stdout
    )
    assert run.stdout.count("only the emulated device") == 2


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that calls the script with some words; its records are in a folder."""
    if HAS_GPU:
        pytest.skip("the script for a card measures it")
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script appends to it

    def called(*words: object) -> int:
        size = ["--gigabytes", "1e-5", "--records", tmp_path / "records.json"]
        output = ["-o", tmp_path / "on_gpu.json", "--force"]
        monkeypatch.setattr(sys, "argv", [str(word) for word in ("on_gpu", *size, *output, *words)])
        return on_gpu.main()

    return called


def test_the_script_for_a_card_judges_and_goes_on_without_a_failing_peer(
    monkeypatch, call, tmp_path, capsys
):
    bare = executable(tmp_path / "bare", "print(1e-3)", sys.executable)
    compiler = f"import shutil, sys; shutil.copy({bare!r}, sys.argv[-1])"
    executable(tmp_path / "bin" / "nvcc", compiler, sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    stream = "import sys; assert int(sys.argv[2]) % 1024 == 0; print('Copy 1 0.1\\nTriad 2 0.1')"
    stream = executable(tmp_path / "cuda-stream", stream, sys.executable)
    broken = executable(tmp_path / "spatter", "echo no memory; exit 1")
    monkeypatch.setattr(on_gpu, "KERNELS", ("stream.copy", "stream.triad", "loops.load"))
    copied_B: list[int] = []
    native = CUDA.copy_s

    def copy_s(number: int, size_B: int, *more: Any) -> float:
        copied_B.append(size_B)
        return float(native(number, size_B, *more))

    monkeypatch.setattr(CUDA, "copy_s", copy_s)
    assert call("--babelstream", stream, "--spatter", broken, "--turns", "7") == 0
    text = capsys.readouterr().out
    assert text.count("exit code 1: no memory; it is left out from now on") == 2
    # The fake peers are far slower than all kernels.
    assert re.search(r"target launch; .* <= 1.1 of a bare one; verdict met", text)
    assert re.search(r"2 of 5 / peers, geometric mean; .* met", text)
    assert re.search(r"target bs.bs4; wanted .* not judged", text)
    assert re.search(r"Emulated, 7 turns, \d targets not met", text)
    done = mk.load(tmp_path / "records.json")
    assert len(done) == 7 * 6
    # Both arrays of the driver's copy together have the size of a kernel's arrays.
    assert copied_B.count(5000) == 7
    # Energy is measured in the first turn only.
    spared = ["in its first turn" in one["energy_note"] for one in done]
    assert spared == [False] * 6 + [True] * 36
    copies = [one["bandwidth_GBps"] for one in done if one["kernel"] == "stream.copy"]
    mean = float(np.exp(np.mean(np.log(copies)))) / 1e-3
    found = re.search(r"stream.copy / peer; found ([\d.]+)", text)
    assert found and float(found[1]) == pytest.approx(mean, rel=1e-3)


def test_a_single_turn_without_peers_is_judged():
    medians = {"driver": 2.0, "loops.load": 1.0, "stream.copy": 1.9, "stream.triad": 1.0}
    found = {
        row["target"]: row["verdict"] for row in on_gpu.verdicts([on_gpu.Turn(medians=medians)])
    }
    assert found["stream.copy"] == "met" and found["stream.triad"] == "NOT MET"
    assert found["0 of 5 / peers, geometric mean"] == "not judged"


def test_records_of_finished_turns_are_kept(monkeypatch, call, tmp_path):
    monkeypatch.setattr(on_gpu, "KERNELS", ("stream.copy", "loops.load"))
    monkeypatch.setattr(on_gpu, "peers", lambda *_: {})
    monkeypatch.setattr(on_gpu, "verdicts", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call()
    assert len(mk.load(tmp_path / "records.json")) == 7 * 5


def test_the_script_for_a_card_runs_every_kernel_once(monkeypatch, call, capsys):
    kernels = {entry[0] for entry in ENTRIES} - {"transfers.between"}
    chosen = one_of_each([entry for entry in ENTRIES if not entry[4]], KEYS[0])
    monkeypatch.setattr(gpu._module("cuda"), "entries", lambda: sorted(chosen))
    assert call("--every-kernel", "memcheck") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[5] for line in lines if line.endswith("; found right")} == kernels
    number = len(lines) - 1
    assert lines[-1] == f"{number} of {number} kernels, 0 wrong results"
    assert call("--every-kernel", "memcheck", "--minutes", "0") == 0
    assert capsys.readouterr().out.startswith("0 of ")


def test_every_tool_of_the_sanitizer_begins_with_other_kernels_that_matter_to_it():
    entries = [entry for entry in ENTRIES if not entry[4]]
    kinds = {entry[:2] for entry in entries}
    orders = {tool: on_gpu.in_order(entries, tool, 0) for tool in on_gpu.TOOLS}
    for order in orders.values():
        assert sorted(order) == sorted(entries)
    for tool in ("memcheck", "synccheck"):
        assert {entry[:2] for entry in orders[tool][: len(kinds)]} == kinds
    assert orders["memcheck"] != orders["synccheck"]
    shared = [e[0].startswith(on_gpu.SHARED) or e[1] == "shared" for e in orders["racecheck"]]
    assert shared == sorted(shared, reverse=True) and sum(shared) > 50
    first = {entry[:2] for entry in orders["racecheck"][: sum(shared)]}
    assert {entry[:2] for entry in orders["racecheck"][: len(first)]} == first
    # Atomic operations have workers in several warps and several iterations.
    (some,) = [entry for entry in entries if entry[:2] == ("amo.rand", "warp")][:1]
    case = on_gpu.small_case(some, "cuda:0")
    assert case.integers["workers"] > 32 and case.integers["iters"] > 1
