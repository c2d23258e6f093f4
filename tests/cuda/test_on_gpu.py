"""bench/on_gpu.py, which measures a GPU, on the emulated device."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import wait_until
from chosen_entries import one_of_each
from device_under_test import CUDA, ENTRIES, HAS_GPU, KEYS, ONLY_EMULATED, TREE

import memkern as mk
from memkern.cli import main
from memkern.errors import InputError
from memkern.machine import gpu
from memkern.report import cases as report_cases


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return bench/on_gpu.py, which builds its programs in a folder of the test.

    On a GPU the script itself runs these tests.
    """
    if HAS_GPU:
        pytest.skip("the script for a card runs its steps itself")
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script appends to it
    found = importlib.import_module("on_gpu")
    monkeypatch.setattr(found, "PROGRAMS", tmp_path / "programs")
    return found


def program(path: Path, text: str) -> Path:
    """Write an executable Python script."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("as_card")
@ONLY_EMULATED
def test_a_card_runs_the_tests_that_suit_it(tmp_path: Path) -> None:
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


def begun(script: Any, folder: Path, *words: str) -> Any:
    """Return a call of the script that writes into a folder."""
    folder.mkdir()
    size = ["--minutes", "2", "--gigabytes", "1e-5"]
    return script.Call(script.parsed(["--out", str(folder), *size, *words]))


def test_the_script_for_a_card_measures_and_draws(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Every fourth size and two ways to unroll make all figures.
    monkeypatch.setattr(script, "coarse_first", lambda values: [values[::4]])
    monkeypatch.setattr(script, "UNROLLS", (0, 2))
    # Long enough even if other tests run at the same time.
    call = begun(script, tmp_path / "first", "--minutes", "20")
    for step, files in {
        "transfers": ["transfers.json", "transfers.pdf"],
        "latency": [
            "latency.json",
            "banks.json",
            "devices.json",
            "latency-banks.pdf",
            "latency-sizes.pdf",
            "latency-devices.pdf",
        ],
        "blocks": ["blocks.json", "gpu-blocks.pdf"],
        "tune": ["tune-loops.dot.json", "tune-spatter.scatter.json", "tune.log"],
    }.items():
        call.begin(step)
        getattr(script, step)(call)
        for file in files:
            assert (tmp_path / "first" / file).stat().st_size > 1000, file
    searched = mk.load(tmp_path / "first" / "tune-loops.dot.json")
    steps = [row["tune_step"] for row in searched]
    assert set(steps) - {"base"} == {"variant", "unroll", "block_threads", "blocks", "best"}
    assert steps[-1] == "best" and all(row["valid"] for row in searched)
    assert {row["blocks"] for row in searched} >= {512, 1024}
    log = (tmp_path / "first" / "tune.log").read_text()
    assert log.count("memkern tune --kernel=") == log.count("best: --variant ") == 4
    # A later call writes the report of an earlier call's records, even if others are missing.
    (tmp_path / "earlier").mkdir()
    shutil.copy(tmp_path / "first" / "transfers.json", tmp_path / "earlier")
    missing = ["--records", str(tmp_path / "missing")]
    later = begun(script, tmp_path / "later", "--records", str(tmp_path / "earlier"), *missing)
    assert "missing: its records are left out" in capsys.readouterr().err
    monkeypatch.setattr(script.Call, "run", lambda *_: 1 / 0)
    monkeypatch.setattr(script, "quick_report", lambda _: "quick")
    assert re.fullmatch(r"report.html, \d+ bytes; quick", script.report(later))
    page = (tmp_path / "later" / "report.html").read_text()
    assert "Transfers from and to a GPU" in page
    script.pack(later)
    with tarfile.open(tmp_path / "later.tar.gz") as archive:
        assert archive.getnames() == ["later", "later/report.html"]


def test_the_script_for_a_card_measures_first_what_matters_most(
    script: Any, tmp_path: Path
) -> None:
    assert script.coarse_first(range(9)) == [range(0, 9, 4), range(2, 9, 4), range(1, 9, 2)]
    how = {"elements": 64, "device": "cuda", "runs": 2}
    first, then = (
        [mk.stream(kernel, **how) for kernel in kernels]
        for kernels in (("copy", "scale"), ("add", "triad"))
    )
    done = list(script.measured(begun(script, tmp_path / "records"), "rounds", [first, then]))
    assert {record["kernel"] for record in done[:2]} == {"stream.copy", "stream.scale"}
    assert len(done) == 4
    assert all("to save time" in record["energy_note"] for record in done)


def test_chases_of_atomic_operations_go_through_all_lines(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    monkeypatch.delenv("MEMKERN_SMALL")
    rounds = script.beside_processor(begun(script, tmp_path / "records"), 2**21)
    atomic = [case for some in rounds for case in some if case.spec.name == "amo.ptrchase"]
    sizes = {8 * case.columns["words"] for case in atomic}
    assert sizes == {2**k for k in range(12, 21)} and len(atomic) == 4 * len(sizes)
    for case in atomic:
        lines = case.columns["words"] // 16
        assert case.iterations % lines == 0
        if case.knobs.device == "cpu":
            assert case.stop.invocations == 0
        else:
            assert case.iterations * case.stop.invocations > 2**13
        # Only the first case of each size is checked, which takes time.
        if case is next(one for one in atomic if one.columns["words"] == case.columns["words"]):
            assert case.prepare().check().valid


def test_the_script_for_a_card_judges_and_goes_on_without_a_failing_peer(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    bare = program(tmp_path / "bare", "print(1e-3)")
    compiler = f"import shutil, sys; shutil.copy({str(bare)!r}, sys.argv[-1])"
    program(tmp_path / "bin" / "nvcc", compiler)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    stream = "import sys; assert int(sys.argv[2]) % 1024 == 0; print('Copy 1 0.1\\nTriad 2 0.1')"
    stream = program(tmp_path / "cuda-stream", stream)
    broken = program(tmp_path / "spatter", "print('no memory'); raise SystemExit(1)")
    peers = ["--babelstream", str(stream), "--spatter", str(broken), "--turns", "7"]
    call = begun(script, tmp_path / "records", *peers)
    monkeypatch.setattr(script, "KERNELS", ("stream.copy", "stream.triad", "loops.load"))
    copied_B: list[int] = []
    native = CUDA.copy_s

    def copy_s(number: int, size_B: int, *more: Any) -> float:
        copied_B.append(size_B)
        return float(native(number, size_B, *more))

    monkeypatch.setattr(CUDA, "copy_s", copy_s)
    with pytest.raises(RuntimeError, match=r"7 turns, of which .*Spatter's gather: exit"):
        script.bandwidths(call)
    text = (tmp_path / "records" / "verdicts.txt").read_text()
    # The fake peers are far slower than all kernels.
    assert re.search(r"launch .* <= 1.1 of a bare one \| met", text)
    assert re.search(r"2 of 5 / peers, geometric mean .* met", text)
    assert re.search(r"bs.bs4 \|  \| .* not judged", text)
    done = mk.load(tmp_path / "records" / "bandwidths.json")
    assert len(done) == 7 * 6
    # Both arrays of the driver's copy together have the size of a kernel's arrays.
    assert copied_B.count(int(call.options.gigabytes * 1e9 / 2)) == 7
    # Energy is measured in the first turn only.
    spared = ["to save time" in one["energy_note"] for one in done]
    assert spared == [False] * 6 + [True] * 36
    copies = [one["bandwidth_GBps"] for one in done if one["kernel"] == "stream.copy"]
    mean = float(np.exp(np.mean(np.log(copies)))) / 1e-3
    found = re.search(r"stream.copy / peer \| ([\d.]+)", text)
    assert found and float(found[1]) == pytest.approx(mean, rel=1e-3)


def test_a_single_turn_without_peers_is_judged(script: Any) -> None:
    medians = {"driver": 2.0, "loops.load": 1.0, "stream.copy": 1.9, "stream.triad": 1.0}
    found = {
        row["target"]: row["verdict"] for row in script.verdicts([script.Turn(medians=medians)])
    }
    assert found["stream.copy"] == "met" and found["stream.triad"] == "NOT MET"
    assert found["0 of 5 / peers, geometric mean"] == "not judged"


def test_records_of_finished_turns_are_kept(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    call = begun(script, tmp_path / "records")
    monkeypatch.setattr(script, "KERNELS", ("stream.copy", "loops.load"))
    monkeypatch.setattr(script, "_peers", lambda *_: {})
    monkeypatch.setattr(script, "verdicts", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        script.bandwidths(call)
    assert len(mk.load(tmp_path / "records" / "bandwidths.json")) == 7 * 5


def test_a_stopped_program_leaves_its_log_and_no_children(script: Any, tmp_path: Path) -> None:
    call = begun(script, tmp_path / "records")
    child = tmp_path / "child"
    words = f"sleep 60 & echo $! >{child}; echo begun; wait"
    with pytest.raises(RuntimeError, match=r"stopped after 1 s \(sh.log\): begun"):
        call.run(["sh", "-c", words], "sh.log", 0.1)
    assert (tmp_path / "records" / "sh.log").read_text() == "begun\n"
    status = Path("/proc") / child.read_text().strip() / "status"

    def has_ended() -> bool:
        try:
            return "State:\tZ" in status.read_text()
        except OSError:
            return True

    # A killed child ends a little later, and may become a zombie after its parent has ended.
    wait_until(has_ended)


def test_steps_share_the_time_that_is_left(script: Any, tmp_path: Path) -> None:
    steps = "build,bandwidths,latency,blocks,report"
    call = begun(script, tmp_path / "records", "--steps", steps, "--minutes", "5")
    call.begin("build")
    assert call.left_s == pytest.approx(150, abs=2)
    call.begin("bandwidths")
    assert call.left_s == pytest.approx((300 - script.REPORT_S) * 14 / (14 + 7 + 4), abs=2)
    call.begin("blocks")
    assert call.left_s == pytest.approx(300 - script.REPORT_S, abs=2)
    call.begin("report")
    assert call.left_s == pytest.approx(300, abs=2)


def test_the_script_for_a_card_runs_its_steps_and_packs_after_each(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "print('GPU 0: a card')")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    package = tmp_path / "python" / "memkern"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(script, "TREE", tmp_path)
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "kept" / "results.tar.gz"
    packed: list[list[str]] = []

    def step(name: str) -> Callable[[Any], str]:
        def run(call: Any) -> str:
            if results.exists():
                with tarfile.open(results) as archive:
                    packed.append(sorted(archive.getnames()))
            (call.out / name).write_text("")
            return name if name != "blocks" else str(1 / 0)

        return run

    def call(steps: str) -> str:
        for name in steps.split(","):
            monkeypatch.setattr(script, name, step(name))
        words = ["on_gpu.py", "--steps", steps, "--out", "out", "--results", str(results)]
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setattr(script.signal, "signal", lambda *_: None)
        assert script.main() == 1
        return capsys.readouterr().out

    found = call("build,transfers,latency")
    # No step runs after the build, since the module still can't be imported.
    assert re.fullmatch(
        r"build .*build\ntransfers .*FAILED: memkern._memkern_cuda can't be imported, so that "
        r"nothing can run: ModuleNotFoundError: .*\n",
        found,
    )
    (package / "_memkern_cuda.py").write_text("")
    found = call("transfers,blocks,latency")
    assert re.fullmatch(
        r"transfers .* transfers\nblocks .*FAILED: division by zero\nlatency .* latency\n", found
    )
    # At the start of each step, the archive has the files of all previous steps.
    assert [{"out/transfers", "out/blocks"} & {*names} for names in packed] == [
        set(), {"out/transfers"}, {"out/transfers", "out/blocks"},
    ]  # fmt: skip


@pytest.mark.usefixtures("as_card")
def test_the_script_for_a_card_logs_what_the_card_is(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "import sys; print('queried', sys.argv[1:])")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(script, "TREE", tmp_path)
    call = begun(script, tmp_path / "records")
    assert script.card(call) == "Emulated"
    log = (tmp_path / "records" / "card.log").read_text()
    assert "Emulated" in log and "cuda:0 memory" in log and "queried ['-q']" in log


def test_the_script_for_a_card_asks_for_a_quick_report(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    few = [mk.stream(kernel, elements=64, device="cuda") for kernel in ("copy", "add")]
    monkeypatch.setattr("memkern.cli.report._QUICK_S", 600.0)
    monkeypatch.setattr("memkern.engine.public.expected_s", lambda _: 60.0)
    calls: list[Any] = []
    monkeypatch.setattr(report_cases, "gpu_report_cases", lambda *how: calls.append(how) or few)
    monkeypatch.setattr(script.Call, "run", lambda _, words, log: main([*map(str, words[3:])]))
    assert "quick.html" in script.quick_report(begun(script, tmp_path / "records"))
    assert [how[:2] for how in calls] == [("cuda:0", True)]
    assert len(mk.load(tmp_path / "records" / "quick.parquet")) == 2


def test_work_goes_on_after_a_failure(script: Any) -> None:
    assert script.all_of([lambda: "a", lambda: "b"]) == "a; b"
    done: list[str] = []

    def refuse() -> str:
        raise InputError("too few records")

    with pytest.raises(RuntimeError, match="too few records; None"):
        script.all_of([refuse, lambda: str(done.append("drawn"))])
    assert done == ["drawn"]


def test_all_tests_run_on_a_card_after_those_that_were_chosen(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    def run(call: Any, words: list[str], log: str, **more: Any) -> str:
        if "--release" not in words:
            raise RuntimeError("1 failed")
        return "...\n2 passed"

    monkeypatch.setattr(script.Call, "run", run)
    with pytest.raises(RuntimeError, match="1 failed; 2 passed"):
        script.parity(begun(script, tmp_path / "records"))


def test_peers_are_built_for_the_card(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "cmake", "import sys; print(sys.argv[1:])")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    call = begun(script, tmp_path / "records", "--spatter", str(tmp_path))
    assert script._spatter(call) == tmp_path / "programs" / "spatter" / "spatter"
    log = (tmp_path / "records" / "peers.log").read_text()
    assert "-DCMAKE_CUDA_ARCHITECTURES=native" in log


def test_the_script_for_a_card_runs_every_kernel_once(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = {entry[0] for entry in ENTRIES} - {"transfers.between"}
    chosen = one_of_each([entry for entry in ENTRIES if not entry[4]], KEYS[0])
    monkeypatch.setattr(gpu._module("cuda"), "entries", lambda: sorted(chosen))
    options = begun(script, tmp_path / "records", "--every-kernel", "memcheck").options
    assert script.run_every_kernel(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[3] for line in lines if line.endswith(": right")} == kernels
    options.minutes = 0
    assert script.run_every_kernel(options) == 0
    assert capsys.readouterr().out.startswith("0 of ")


def test_the_sanitizers_share_the_time(
    monkeypatch: pytest.MonkeyPatch, script: Any, tmp_path: Path
) -> None:
    tool = """import sys
print(sys.argv[-2:])
print("3 of 3 kernels, 0 wrong results")
race = "racecheck" in sys.argv
print("=========", "RACECHECK SUMMARY: 0 hazards" if race else "ERROR SUMMARY: 0 errors")
sys.exit(9 if "synccheck" in sys.argv else 0)
"""
    program(tmp_path / "bin" / "compute-sanitizer", tool)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    call = begun(script, tmp_path / "records")
    call.begin("sanitize")
    share_s = call.left_s / 3
    with pytest.raises(RuntimeError) as found:
        script.sanitize(call)
    text = str(found.value)
    assert "memcheck: ERROR SUMMARY: 0 errors, 3 of 3 kernels, 0 wrong results" in text
    assert "racecheck: RACECHECK SUMMARY: 0 hazards, 3 of 3 kernels, 0 wrong results" in text
    assert "exit code 9 (synccheck.log)" in text
    # Kernels get 60 % of the time, because the tool starts and ends slowly.
    log = (tmp_path / "records" / "memcheck.log").read_text()
    minutes = re.search(r"\['--minutes', '([\d.]+)'\]", log)
    assert minutes and float(minutes[1]) == pytest.approx(0.6 * share_s / 60, rel=0.1)


def test_every_tool_of_the_sanitizer_begins_with_other_kernels_that_matter_to_it(
    script: Any,
) -> None:
    entries = [entry for entry in ENTRIES if not entry[4]]
    kinds = {entry[:2] for entry in entries}
    orders = {tool: script.in_order(entries, tool, 0) for tool in script.TOOLS}
    for order in orders.values():
        assert sorted(order) == sorted(entries)
    for tool in ("memcheck", "synccheck"):
        assert {entry[:2] for entry in orders[tool][: len(kinds)]} == kinds
    assert orders["memcheck"] != orders["synccheck"]
    shared = [e[0].startswith(script.SHARED) or e[1] == "shared" for e in orders["racecheck"]]
    assert shared == sorted(shared, reverse=True) and sum(shared) > 50
    first = {entry[:2] for entry in orders["racecheck"][: sum(shared)]}
    assert {entry[:2] for entry in orders["racecheck"][: len(first)]} == first
    # Atomic operations have workers in several warps and several iterations.
    (some,) = [entry for entry in entries if entry[:2] == ("amo.rand", "warp")][:1]
    case = script.small_case(some, "cuda:0")
    assert case.integers["workers"] > 32 and case.integers["iters"] > 1
