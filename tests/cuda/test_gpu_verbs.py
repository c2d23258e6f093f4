"""Verbs, reports and builds for GPUs."""

import json
import re
import shlex
import subprocess
from typing import Any

import pytest
from checking import measured, output_of, refusal, run
from device_under_test import TREE

import memkern as mk
from memkern.cli import main
from memkern.discovery import family_modules
from memkern.machine import gpu
from memkern.plots import figures, tables
from memkern.report import cases as report_cases
from memkern.report.cases import gpu_report_cases


def test_the_verb_measures_sizes_of_the_caches_of_a_gpu(capsys):
    found = measured(capsys, "latency", "--device", "cuda", "--runs", "2", "--steps", "64")
    sizes = [one["size_B"] for one in found]
    assert (min(sizes), max(sizes)) == (2**12, 4 * gpu.facts("cuda:0")["l2_B"])


def test_the_verb_measures_banks(capsys):
    assert "stride" in output_of(capsys, "latency", "banks", "--stride", "1,32", "--runs", "2")[0]


def test_the_report_of_a_gpu_has_cases_of_the_families_that_run_there(monkeypatch):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    for quick in (False, True):
        cases = gpu_report_cases("cuda:0", quick, 2**14, 2**24)
        assert {case.knobs.device for case in cases} == {"cuda:0"}
        by_family = {case.spec.name.partition(".")[0]: case for case in cases}
        with_cases = [m for m in family_modules("kernels") if hasattr(m, "gpu_report_cases")]
        assert sorted(by_family) == [module.__name__.split(".")[-2] for module in with_cases]
        for case in by_family.values():
            assert case.prepare().check().valid


def test_the_report_measures_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    few = [mk.stream("copy", elements=2**k, device="cuda") for k in (8, 12)]
    calls: list[Any] = []
    monkeypatch.setattr("memkern.cli.report._QUICK_S", 600.0)
    monkeypatch.setattr("memkern.engine.public.expected_s", lambda _: 60.0)
    monkeypatch.setattr(report_cases, "gpu_report_cases", lambda *how: calls.append(how) or few)
    path = tmp_path / "report.html"
    assert main(["report", "--device", "cuda", "--quick", "-q", "-o", str(path)]) == 0
    ((device, quick, cache_B, _),) = calls
    about = gpu.facts("cuda:0")
    assert (device, quick, cache_B) == ("cuda:0", True, about["l2_B"])
    results = mk.load(path.with_suffix(".parquet"))
    assert results.valid and {record["device"] for record in results} == {"cuda:0"}
    page = path.read_text()
    assert "memkern report --quick --device cuda:0" in page
    assert f"Data movement on {about['name']}" in page
    capsys.readouterr()
    for words, said in (
        ("cuda --threads 2", "--threads is for processors: leave it out"),
        ("mpi", "a report is for cpu or a GPU such as cuda:0, not for mpi"),
        ("cuda:7", "cuda:7"),
    ):
        other = ["-o", str(tmp_path / "other.html")]
        code, _, error = run(capsys, "report", "--device", *words.split(), *other)
        assert code == 2 and said in error


def test_tune_searches_the_options_of_gpus():
    best, search = mk.tune(
        mk.gather("UNIFORM:8:1", count=300, device="cuda"),
        # More than all trials take on a GPU, where each allocates memory.
        budget_s=20.0,
        knobs={"unroll": (0, 1, 8), "block_threads": (64, 256)},
    )
    steps = {row["tune_step"] for row in search} - {"base"}
    assert steps == {"variant", "unroll", "block_threads", "best"}
    assert best.knobs.device == "cuda:0"
    one_by_one = mk.gather("UNIFORM:8:1", count=9, wrap=2, device="cuda")
    best, search = mk.tune(one_by_one, budget_s=0.5, knobs={"unroll": (0, 1, 2, 4, 8)})
    assert {row["unroll"] for row in search} == {0} and best.knobs.unroll == 0


def test_the_command_that_the_map_of_blocks_recommends_makes_its_records(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    monkeypatch.chdir(tmp_path)
    command = re.search("`memkern (.*?)`", refusal(figures["gpu-blocks"], None))
    assert command is not None
    words = shlex.split(command[1])
    assert main(words) == 0
    found = tables["gpu-blocks"](mk.load(words[words.index("-o") + 1]))
    assert set(found["kernel"]) == {"loops.triad", "loops.dot"}
    assert set(found["block_threads"]) == {64, 128, 256, 512, 1024}
    assert set(found["unroll"]) == {0, 1, 2, 4, 8}


@pytest.mark.parametrize(
    "cards, wanted",
    [
        ("90", "90-real"),
        ("80;90;80", "80-real;90-real"),
        ("150", "121-virtual"),
        ("90;150;160", "90-real;121-virtual"),
        # Between two known architectures: a GPU does not run the PTX of a newer one.
        ("103", "100-virtual"),
        ("110;89", "100-virtual;80-virtual"),
        # Older than the toolkit supports: nvcc's error names it.
        ("70", "70-real"),
    ],
)
def test_cards_unknown_to_the_toolkit_run_ptx(cards, wanted, tmp_path):
    known = "\n".join(f"compute_{n}" for n in (75, 80, 90, 100, 121))
    script = tmp_path / "try.cmake"
    script.write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        f"include({TREE}/cpp/cmake/architectures.cmake)\n"
        f'memkern_architectures("{cards}" "{known}\n" found)\n'
        'message("${found}")\n'
    )
    run = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == wanted


def test_the_command_line_measures_on_a_gpu(capsys, tmp_path):
    file = tmp_path / "gpu.json"
    words = ["stream", "-k", "copy,triad", "--elements", "5000", "--device", "cuda", "--runs", "3"]
    assert main([*words, "--timer", "events", "--block-threads", "64,256", "-o", str(file)]) == 0
    records = json.loads(file.read_text())["records"]
    assert [r["block_threads"] for r in records] == [64, 256, 64, 256]
    assert [r["block_threads_requested"] for r in records] == [64, 256, 64, 256]
    assert {r["timer"] for r in records} == {"events"}
    assert main(["spatter", "-pUNIFORM:8:1", "-l500", "--device", "cuda", "--runs", "3"]) == 0
    amo = ["amo", "-b", "RAND_ADD", "--iters", "20", "--threads", "7"]
    assert main([*amo, "--device", "cuda"]) == 0
    capsys.readouterr()
    out, _ = output_of(capsys, "info")
    assert "cuda:0" in out and "an empty kernel takes" in out and "openmp, cuda" in out


@pytest.mark.parametrize(
    "case, names",
    [
        (lambda: mk.stream("triad", 2**10, device="cuda:0"), {"--block-threads 64", "data in L2"}),
        (
            lambda: mk.transfers("to_device", size_B=2**12, memory="pageable", device="cuda:0"),
            {"pinned memory of the host"},
        ),
    ],
)
def test_cases_on_a_gpu_are_explained_by_experiments_of_gpus(case, names):
    found = mk.explain(case(), seconds=1)
    known = {one.name for one in found.tried} | {*found.left_out}
    assert names <= known and not {"one thread", "huge pages", "data in L1"} & known
