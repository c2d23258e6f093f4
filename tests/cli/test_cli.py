"""The command line as people and scripts use it: tables, JSON, exit codes, one-sentence errors."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import (
    measured,
    once_a_kind,
    one_sentence,
    records_in,
    refused_words,
    run,
    wait_until,
)

import memkern as mk
from memkern import cli
from memkern.cli import measuring
from memkern.cli.options import knobs_of
from memkern.engine import disturbance
from memkern.engine.disturbance import Activity
from memkern.families.launch import barrier
from memkern.formats import ResultSet
from memkern.formats.resultset import working_file
from memkern.spec.kernel import Check, Validation, finish

SMALL = ["-l", "256", "-t", "1", "-r", "3"]


def test_spatter_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "spatter", "-p", "UNIFORM:8:4:NR", "-k", "Gather", *SMALL)
    assert code == 0
    header, row, scope, peer = out.splitlines()
    assert "GB/s" in header and peer.startswith("differences from Spatter: ")
    assert row.split()[1:3] == ["gather", "UNIFORM:8:4"]
    assert scope.startswith("±%: half the width")
    assert err == ""


def test_json_is_the_only_output(capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = measured(capsys, "spatter", "-pUNIFORM:8:4", "-d8", "-kscatter", *SMALL)
    assert record["kernel"] == "spatter.scatter"
    assert (record["delta"], record["count"], record["threads"]) == ("8", 256, 1)
    assert record["samples"] == 3
    assert record["rate_GAMS"] is None


def test_a_budget_or_an_interval_replaces_the_number_of_runs() -> None:
    assert knobs_of(argparse.Namespace(budget=2.0)) == {"budget_s": 2.0, "runs": None}
    assert knobs_of(argparse.Namespace(ci=5.0)) == {"ci": 0.05, "runs": None}
    assert knobs_of(argparse.Namespace(budget=2.0, runs=3)) == {"budget_s": 2.0, "runs": 3}
    assert knobs_of(argparse.Namespace()) == {}


def test_long_options_of_both_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    records = measured(
        capsys,
        "spatter", "--pattern", "0,4,8", "--kernel", "gather", "--delta", "4", "--count", "64",
        "--wrap", "2", "--omp-threads", "1", "--runs", "2", "--pages", "4k", "--variant", "scalar",
        "--isa", "baseline", "--dtype", "float32", "--index-dtype", "int32", "--pin", "none",
        "--repetition", "barrier", "--prefetch", "2", "--chunk", "8", "--schedule", "dynamic",
        "--repeats", "2", "--name", "mine", "--output", str(target),
    )  # fmt: skip
    assert [record["repeat"] for record in records] == [0, 1]
    record = records[0]
    wanted: dict[str, Any] = {
        "pattern": "0,4,8", "wrap": 2, "pages": "4k", "variant": "scalar", "isa": "baseline",
        "dtype": "float32", "index_dtype": "int32", "repetition": "barrier", "prefetch": 2,
        "chunk": 8, "schedule": "dynamic", "name": "mine", "bytes_B": 3 * 4 * 64,
    }  # fmt: skip
    assert {key: record[key] for key in wanted} == wanted
    assert len(mk.load(target)) == 2


def test_spatter_file_runs_unchanged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one, two = "UNIFORM:8:1:NR", "UNIFORM:8:2:NR"
    configs = [
        {"pattern": one, "kernel": "Gather", "count": 64},
        {"pattern": [0, 8, 16], "kernel": "SCATTER", "delta": 1, "count": 99, "nruns": 4},
        {"pattern-gather": one, "pattern-scatter": two, "kernel": "GS", "count": 64},
        {"pattern": one, "pattern-gather": [1, 2], "kernel": "MultiGather", "count": 64},
        {"pattern": one, "pattern-scatter": [3, 0], "kernel": "multiscatter", "colour": "red"},
        {"pattern": [0, 6, 12], "kernel": "Gather", "delta": -5, "count": 64},
    ]
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps(configs))
    code, out, err = run(capsys, "spatter", "-f", str(suite), "-t", "1", "--json")
    assert code == 0
    records = json.loads(out)
    assert [record["kernel"].partition(".")[2] for record in records] == [
        "gather", "scatter", "gs", "multigather", "multiscatter", "gather",
    ]  # fmt: skip
    assert [record["samples"] for record in records] == [10, 4, 10, 10, 10, 10]
    assert records[2]["bytes_B"] == 2 * 8 * 8 * 64
    assert records[3]["bytes_B"] == 2 * 8 * 64
    assert records[4]["count"] == 1024
    assert all(record["valid"] for record in records)
    assert "colour" in err
    # The table has a row for each case, a line on intervals and one with the mean.
    code, out, _ = run(capsys, "spatter", "-f", str(suite), "-t", "1")
    assert code == 0
    assert len(out.splitlines()) == 1 + 6 + 1 + 1 + 1
    assert "harmonic mean" in out.splitlines()[-2]


def test_options_without_effect_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(
        capsys,
        "spatter", "-p", "0,1", *SMALL, "-a", "-m", "64", "-z", "32", "-o", "1", "-s",
        "--dense-buffers", "--atomic-writes", "--atomic-thread-fence", "-b", "openmp", "-c",
    )  # fmt: skip
    assert code == 0
    for option in ("-a", "-m", "-o", "--dense-buffers", "--atomic-writes", "--atomic-thread"):
        assert option in err
    quiet = run(capsys, "spatter", "-p", "0,1", *SMALL, "-a", "-v", "0")
    assert quiet == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("spatter -p UNIFORM:8:x", "stride"),
        ("spatter -p -1", "-p"),
        ("spatter -p 0 -k scan", "kernel"),
        ("spatter -p 0 -l 0", "count"),
        ("spatter -p 0 -l 999999999999999999999", "count"),
        ("spatter -p 0 -l 99999999999", "GB"),
        ("spatter -p 0 -d 999999999999999 -l 99999999999", "2**60"),
        ("spatter -p 0 -t 1000000", "threads"),
        ("spatter -p 0 --pages 8k", "pages '8k' is not one of"),
        ("spatter -p 0 --isa mmx", "--isa"),
        ("spatter -p 0 --variant magic", "magic"),
        ("spatter -p 0 --pin 4,x", "pin"),
        ("spatter -p 0 --numa node:99", "node:99"),
        ("spatter -p 0 --ci -1", "--ci"),
        ("spatter -p 0 --budget nan", "--budget"),
        ("spatter -p 0 --runs 2 --ci 1", "--runs sets the number of samples"),
        ("spatter -p 0 -b cuda --device cpu", "-b cuda does not run on cpu"),
        ("spatter -p 0 -b serial --device cuda", "-b serial does not run on"),
        ("spatter -p 0 --output /nowhere/x.db", "/nowhere"),
        ("spatter -p 0 --output x.xlsx", ".parquet"),
        ("spatter -f /nowhere.json", "/nowhere.json"),
        ("spatter", "pattern"),
        ("suite nothing", "nothing"),
        ("suite lulesh --footprint 1", "footprint"),
        ("sweep /nowhere.toml", "/nowhere.toml"),
        ("tune -p 0:0", "0:0"),
        ("amo --kernel rand --iters 99999999999", "GB of memory"),
        ("dw --lattice 9999 9999 9999 9999", "GB of memory"),
        ("raider -n 99999999999", "an index array of 99999999999 elements needs"),
        ("spmv hpcg:2000", "a matrix of 8000000000 x 8000000000"),
        ("compare /a.db /b.db", "/a.db"),
        ("figure mona-lisa", "mona-lisa"),
        ("figure spatter-fig3 /a.db", "/a.db"),
        ("table spatter-table4 -o x.doc", ".csv"),
        ("report -o x.pdf", ".html"),
        ("fly", "fly"),
        ("stream --kernel quad", "stream.quad"),
        ("stream --runs 300 -n 9", "at most 200"),
        ("loops --sizes 1KiB:2KiB", "LOW:HIGH:COUNT"),
        ("loops --sizes 1KiB -n 9", "exclude each other"),
        ("bs 1 --sizes 1KiB -n 9", "exclude each other"),
        ("bs two", "two"),
        ("loops -k copy --threads 0 -n 9", "--threads"),
        ("loops --layer-condition L9 -n 99", "'L9'"),
        ("loops -k copy --layer-condition L1", "stencil"),
        ("barrier --kinds nap", "nap"),
        ("tune -k stream.triad --set elements", "'elements' is not NAME=VALUE"),
        ("tune -k stream.triad --set 3=4", "'3=4' is not NAME=VALUE"),
        ("tune -k stream.triad --set elements=many", "elements must be an integer"),
        ("tune -k stream.triad --set rows=3", "has no option 'rows'"),
        ("tune -k stream.dance", "'stream.dance' is not one of"),
        ("tune", "needs pattern"),
        # Options without a meaning
        ("amo --kernel ptrchase --words 100", "--words is for amo.rand, "),
        ("amo --kernel ptrchase --memsize 800", "--memsize is for"),
        ("amo --kernel ptrchase --padding 0,64", "not for amo.ptrchase"),
        ("amo --kernel stride1 --stride 3", "--stride is for amo.striden, not for amo.stride1"),
        ("amo --kernel rand --hot 4", "--hot is for amo.central"),
        ("amo --kernel central --indices random", "--indices is for amo.rand"),
        ("amo --kernel rand --index-dtype int32", "as wide as the words"),
        ("amo --kernel rand --prefetch 0,4", "--prefetch has no effect on amo.rand"),
        ("bs 1..3 --elements 5", "--elements is for bs.bs6, bs.bs7, bs.bs8, not for bs.bs1, "),
        ("bs 1..3 --elements 20", "--elements is for"),
        ("bs 0..5 --degree 7", "--degree is for"),
        ("bs 1 --masked none", "--masked is for"),
        ("bs 5 --numbering elements", "--numbering is for"),
        ("bs 5 --index-dtype int32", "--index-dtype is for"),
        ("bs 6 --entries 10", "--entries is for"),
        ("bs 6..8 --sizes 1KiB:2KiB:2", "--sizes is for"),
        ("bs 1,6 --alpha 2", "--alpha is for bs.bs2, bs.bs5"),
        ("bs 1 --definition paper", "--definition is for bs.bs5"),
        ("bs 0 --variant simd", "--variant is for"),
        ("bs 0 --prefetch 4", "--prefetch has no effect on bs.bs0"),
        ("bs 0 --offset 64", "--offset has no effect on bs.bs0"),
        ("bs 0 --chunk 64", "--chunk has no effect on bs.bs0"),
        ("bs 0 --schedule dynamic", "--schedule has no effect on bs.bs0"),
        ("loops -k triad --rows 9 --columns 9", "--rows is for loops.stencil, loops.matvec"),
        ("loops -k triad -n 9 --columns 9", "--columns is for"),
        ("loops -k stencil --rows 9 --columns 9 -n 5", "--elements has no effect with --rows"),
        ("loops --layer-condition L1 --sizes 1KiB:2KiB:2", "--sizes has no effect with --layer"),
        ("loops --layer-condition L1 --rows 9", "--rows has no effect with --layer"),
        ("loops -k load --alpha 3", "--alpha is for loops."),
        ("loops -k peakflops --prefetch 4 -n 9", "--prefetch has no effect on loops.peakflops"),
        ("stream -k copy --alpha 3 -n 9", "--alpha is for"),
        ("stream -k copy --index-dtype int32 -n 9", "--index-dtype is for other kernels"),
        ("raider -k copy,triad --pattern chase -n 9", "--pattern is for raider.gather_copy"),
        ("raider -k copy --allow-repeats -n 9", "--allow-repeats is for"),
        ("raider -k gather_copy --definition release -n 9", "--definition is for"),
        ("spmv hpcg:4 -f sell --unroll 2", "--unroll is for the format crs"),
        ("spmv hpcg:4 --tune --prefetch 8", "--prefetch has no effect with --tune"),
        ("spmv hpcg:4 --tune --runs 3", "--runs has no effect with --tune"),
        (
            "dw --lattice 4 4 4 4 --layout lexicographic --cut s",
            "--cut has no effect in the lexico",
        ),
        ("dw --lattice 4 4 4 4 --layout lexicographic --vector 256", "--vector has no effect"),
        ("dw --lattice 4 4 4 4 --prefetch-into L1", "--prefetch-into has no effect without"),
        ("suite apps --counts paper --footprint 1e6", "--footprint has no effect with"),
        ("tune -p UNIFORM:8:1 --repeats 3", "--repeats has no effect in a search"),
        ("latency --prefetch 8", "prefetch has no effect on latency.chase"),
        ("latency --prefetch 0,8", "--prefetch has no effect on latency.chase"),
        ("tune -k latency.chase --set prefetch=8", "prefetch has no effect on latency.chase"),
        ("tune -k latency.chase --prefetch 0,8", "prefetch has no effect on latency.chase"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(
    words: str, message: str, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused_words(capsys, *words.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '[{"pattern": "UNIFORM:8:' + "9" * 5000 + '"}]',
        '[{"pattern": [0], "count": 4611686018427387904}]',
        "\x00\x01\x02",
    ],
)
def test_malformed_files_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert len(refused_words(capsys, "spatter", "-f", str(path))) < 500


TOO_LARGE = {
    "rows.mtx": b"%%MatrixMarket matrix coordinate real general\n"
    b"99999999999 99999999999 1\n1 1 1\n",
    "idx.npy": b"\x93NUMPY\x01\x00\x46\x00"
    + b"{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999,), }".ljust(69)
    + b"\n",
    "u.json": b"[" + b'{"pattern": "UNIFORM:200000000:1"},' * 9 + b'{"pattern": "0"}]',
}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("spmv rows.mtx", "rows.mtx can't be read: a matrix of 99999999999 x 99999999999"),
        ("raider -n 8 --pattern ./idx.npy", "idx.npy can't be read as a NumPy array: mmap length"),
        ("bs 6 --elements 1000 --degree 7", "a mesh of 512000000000 local nodes needs"),
        ("spatter -f u.json", "'u.json', config 0: pattern 'UNIFORM:200000000:1': a pattern of"),
        ("sweep /dev/zero", "/dev/zero must be a regular file, or end after at most"),
    ],
)
def test_sizes_beyond_memory_are_refused_before_allocation(
    tmp_path: Path, words: str, message: str
) -> None:
    for name, content in TOO_LARGE.items():
        (tmp_path / name).write_bytes(content)
    script = (
        "import re, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31));"
        "from memkern.cli import main; code = main(sys.argv[1:]);"
        "print(re.search('VmHWM:\\\\s+([0-9]+) kB', open('/proc/self/status').read())[1]);"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert one_sentence(done.stderr).startswith(f"memkern: {message}")
    peak_kB = int(done.stdout)
    # At most 256 MiB are read from a pipe or device before it is refused.
    assert peak_kB < (550_000 if "/dev/zero" in words else 200_000)


@pytest.mark.parametrize(
    "words",
    [
        "spatter -p 0,1 -l 256",
        "stream -k copy -n 256",
        "raider -k gather_copy -n 256",
        "loops -k sum -n 256",
        "bs 1 -n 256",
        "amo --kernel rand -i 256",
        "dw --lattice 4 4 4 4 --layout lexicographic",
        *(f"spmv 5pt:4:5 -f {form}" for form in ("crs", "sell", "ell", "csc")),
    ],
)
def test_a_failed_validation_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def refuted(validation: Validation, invocations: int) -> Check:
        return dataclasses.replace(finish(validation, invocations), valid=False)

    for module in ("prepared", "run"):
        monkeypatch.setattr(f"memkern.engine.{module}.finish", refuted)
    code, out, _ = run(capsys, *words.split(), "--runs", "2", "-t", "1", "--variant", "scalar")
    assert code == 1
    assert "INVALID" in out


SHORT = ("--runs", "2", "-t", "1")


@pytest.mark.parametrize(
    "words, kernels",
    [
        (("stream", "--kernel", "copy,triad", "-n", "1000"), ["stream.copy", "stream.triad"]),
        (("bs", "5", "-n", "1000"), ["bs.bs5"]),
        (("bs", "0..1,3", "-n", "1000"), ["bs.bs0", "bs.bs1", "bs.bs3"]),
        (("bs", "6,7", "--elements", "2", "--degree", "1,3"), ["bs.bs6"] * 2 + ["bs.bs7"] * 2),
        (("loops", "-k", "schoenauer", "--dtype", "float32", "-n", "1000"), ["loops.schoenauer"]),
        (("raider", "-k", "sg_add,copy", "-n", "1000"), ["raider.sg_add", "raider.copy"]),
    ],
)
def test_streaming_verbs(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], kernels: list[str]
) -> None:
    records = measured(capsys, *words, *SHORT)
    assert [record["kernel"] for record in records] == kernels
    assert all(record["valid"] for record in records)
    assert all(record.get("elements") in (None, 1000) for record in records)
    code, out, _ = run(capsys, *words, *SHORT)
    assert code == 0
    assert ("K 2, N 3" if "--degree" in words else "1000 ") in out


def test_stream_without_a_kernel_prints_the_table_of_stream(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "rotation.parquet"
    code, out, _ = run(capsys, "stream", "-n", "1000", "-t", "1", "-o", str(target))
    assert code == 0
    lines = out.splitlines()
    assert " ".join(lines[0].split()) == "Function Best Rate MB/s Avg time Min time Max time"
    assert [line.split()[0] for line in lines[1:5]] == ["Copy:", "Scale:", "Add:", "Triad:"]
    for line in lines[1:5]:
        _, rate, mean, least, most = line.split()
        assert float(rate) > 0
        assert float(least) <= float(mean) <= float(most)
    assert lines[5].startswith("Solution validates")
    assert lines[6].startswith("differences from STREAM: ") and "`-k triad`" in lines[7]
    assert "healthy" in lines[8] and len(lines) == 9
    results = mk.load(target)
    assert [r["kernel"].partition(".")[2] for r in results] == [
        "copy", "scale", "add", "triad", "rotation"
    ]  # fmt: skip
    # After a complete rotation nothing is left to measure.
    code, out, _ = run(capsys, "stream", "-n", "1000", "-t", "1", "-o", str(target), "--resume")
    assert code == 0
    assert out.splitlines() == lines[6:]
    assert len(mk.load(target)) == 5


@pytest.mark.parametrize("words", [("stream", "-k", "copy", "-n", "512"), ("spatter", "-p", "0,1")])
def test_a_number_of_runs_is_kept_beside_a_budget(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    words = (*words, "-t", "1", "--runs", "2", "--budget", "1", "--json")
    code, out, _ = run(capsys, *words)
    (record,) = json.loads(out)
    assert (code, record["samples"], record["stop"]) == (0, 2, "runs")


def test_sizes_and_lists_of_knobs_are_combined(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("loops", "-k", "copy,dot", "--sizes", "16KiB:64KiB:3", "--unroll", "1,4", "-t", "1,2")
    records = measured(capsys, *words, "--variant", "simd", "--runs", "2")
    assert len(records) == 2 * 3 * 2 * 2
    sizes_KiB = {r["footprint_B"] // 1024 for r in records if r["kernel"] == "loops.copy"}
    assert sizes_KiB == {16, 32, 64}
    assert {(r["unroll"], r["threads"]) for r in records} == {(1, 1), (1, 2), (4, 1), (4, 2)}


def test_stencils_by_layer_condition(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("loops", "--layer-condition", "L1,memory", "-n", "2000000", *SHORT)
    held, broken = measured(capsys, *words)
    assert (held["layer_condition"], broken["layer_condition"]) == ("L1", "memory")
    assert held["columns"] < broken["columns"]
    assert held["kernel"] == broken["kernel"] == "loops.stencil"


def test_indices_come_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "idx.txt"
    source.write_text("3\n1\n0\n2\n")
    words = ("raider", "-k", "scatter_copy", "-n", "4", "--pattern", str(source), *SHORT)
    (record,) = measured(capsys, *words)
    assert (record["index_pattern"], record["index_dtype"]) == ("file idx.txt", "int64")
    source.write_text("3\n1\n0\n3\n")
    assert "idx.txt[3] repeats 3" in refused_words(capsys, *words)
    assert run(capsys, *words, "--allow-repeats")[0] == 0


def test_barrier_verb(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests of barriers cover the processes for each kind.
    monkeypatch.setattr(barrier, "_measure_in_new_process", barrier.measure_here)
    target = tmp_path / "barrier.csv"
    code, out, _ = run(capsys, "barrier", "-t", "1,2", "--runs", "3", "-o", str(target))
    assert code == 0
    assert len(out.splitlines()) == 7
    assert len(mk.load(target)) == 6
    (record,) = measured(capsys, "barrier", "-t", "1", "--kinds", "spin", "--runs", "3")
    assert record["barrier"] == "spin"


def test_suite_and_tune(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("suite", "nekbone", "--footprint", "1e5", "--runs", "2", "-t", "1")
    names = [record["name"] for record in measured(capsys, *words)]
    assert names == [f"NEKBONE-G{n}" for n in range(3)]
    target = tmp_path / "search.json"
    code, out, _ = run(
        capsys,
        "tune", "-p", "UNIFORM:8:4:NR", "-l", "256", "-t", "1", "--budget", "1", "-o", str(target),
    )  # fmt: skip
    assert code == 0
    best, answer = out.splitlines()[-2:]
    assert best.startswith("best: --variant ") and "healthy" in answer
    assert mk.load(target).records[-1]["tune_step"] == "best"


def test_tune_searches_lists_and_keeps_single_values(capsys: Any, tmp_path: Path) -> None:
    target = tmp_path / "search.json"
    words = "-k stream.triad --set elements=1000 -t 1 --variant simd --pages 4k --prefetch 0,8,16"
    code, out, _ = run(capsys, *f"tune {words} --budget 4 -o {target}".split())
    assert code == 0
    records = list(mk.load(target))
    assert {record["variant"] for record in records} == {"simd"}
    assert {record["pages_requested"] for record in records} == {"4k"}
    assert {record["prefetch"] for record in records} == {0, 8, 16}
    assert {record["tune_step"] for record in records} == {"variant", "prefetch", "chunk", "best"}
    assert "--prefetch" in out.splitlines()[-2] and "--pages" not in out.splitlines()[-2]


@pytest.mark.parametrize(
    "words, kernel",
    [
        ("-k stream.triad --set elements=1000", "triad"),
        ("-k spmv.sell --set matrix=hpcg:4 --set C=4", "spmv.sell"),
        ("-k raider.gather_copy --set elements=500 --set pattern=stride1", "raider.gather_copy"),
    ],
)
def test_tune_takes_any_kernel(words: str, kernel: str, capsys: Any, tmp_path: Path) -> None:
    target = tmp_path / "search.json"
    command = f"tune {words} -t 1 --budget 0.5 -o {target}"
    code, out, _ = run(capsys, *command.split())
    assert code == 0
    assert out.splitlines()[-2].startswith("best: --variant ")
    assert {record["kernel"].endswith(kernel) for record in mk.load(target)} == {True}


SWEEP = """
repeats = 2
[defaults]
runs = 2
threads = 1
count = 64
[[case]]
kernel = ["gather", "scatter"]
pattern = ["UNIFORM:8:1:NR", [0, 4]]
[[case]]
kernel = "gather"
pattern = "UNIFORM:4:2"
delta = [[8, 0], 4]
variant = "scalar"
[[case]]
suite = "nekbone"
footprint_B = 1e5
"""


def test_sweep_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP.replace("[0, 4]]", '"0,4"]').replace("count = 64\n", ""))
    target = tmp_path / "out.db"
    records = measured(capsys, "sweep", str(path), "-o", str(target))
    assert len(records) == 2 * (4 + 2 + 3)
    assert {record["samples"] for record in records} == {2}
    assert {record["delta"] for record in records} >= {"8,0", "4"}
    resumed = measured(capsys, "sweep", str(path), "-o", str(target), "--resume")
    assert len(resumed) == len(records)
    fewer = measured(capsys, "sweep", str(path), "--runs", "3", "--variant", "auto")
    assert {(r["samples"], r["variant"]) for r in fewer} == {(3, "auto")}


def test_the_command_line_overrides_a_sweep_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        "repeats = 2\n[[case]]\nkernel = 'gather'\npattern = '0'\ncount = 64\nruns = 1\n"
        "pages = '4k'\nvariant = 'scalar'\nthreads = 1\nschedule = 'dynamic'\n"
    )
    of_file = measured(capsys, "sweep", str(path))
    words = "--repeats 1 --pages default --variant best --schedule static"
    given = measured(capsys, "sweep", str(path), *words.split())
    names = ("pages_requested", "variant_requested", "schedule")
    assert [tuple(r[n] for n in names) for r in of_file] == [("4k", "scalar", "dynamic")] * 2
    assert [tuple(r[n] for n in names) for r in given] == [("default", "best", "static")]


@pytest.mark.parametrize(
    "text, culprit",
    [
        ("x = [", "TOML"),
        ("[[case]]\nkernel = 'stream.copy'\nelements = []", "elements"),
        ("[[case]]\nkernel = 'gather'\npattern = '0'\ncount = 'x'", "count"),
        ("[[case]]\nkernel = 'gather'", "pattern"),
        ("repeats = 1", "[[case]]"),
        ("[[case]]\npattern = '0'", "kernel"),
        ("[[case]]\nkernel = 'gather'\npattern = []", "pattern"),
        ("[[case]]\nkernel = 'gather'\npattern = 'UNIFORM:1'", "UNIFORM"),
        ("[[case]]\nsuite = 'none'", "none"),
        ("repeats = 0\n[[case]]\nkernel='gather'\npattern='0'", "repeats"),
        (f"repeats = {'9' * 5000}\n[[case]]\nkernel='gather'\npattern='0'", "is not TOML"),
    ],
)
def test_bad_sweep_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, culprit: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    assert culprit in refused_words(capsys, "sweep", str(path))


def test_figures_and_tables_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "figure", "--list")
    assert code == 0
    for number in (3, 5, 6, 7, 8, 9):
        assert f"spatter-fig{number}" in out
    target = tmp_path / "fig.png"
    assert run(capsys, "figure", "spatter-fig3", "-o", str(target))[0] == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    code, out, _ = run(capsys, "table", "spatter-table4")
    assert code == 0
    assert "Skylake" in out


def test_info_describes_the_machine_and_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "info")
    assert code == 0
    for word in ("processor", "caches", "pages", "pinning", "instruction sets", "openmp", "cuda"):
        assert word in out.lower()
    facts = json.loads(run(capsys, "info", "--json")[1])
    assert facts["launch_s"] > 0 and facts["backends"][0] == "openmp"
    assert facts["environment"]["machine"]["model"] in out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[1] == f"memkern {mk.__version__}\n"


def test_only_the_verb_that_is_asked_for_gets_its_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[str] = []
    add = argparse._ActionsContainer.add_argument  # of parsers and groups

    def record(self: Any, *names: str, **more: Any) -> argparse.Action:
        added.append(names[-1])
        return add(self, *names, **more)

    monkeypatch.setattr(argparse._ActionsContainer, "add_argument", record)
    assert run(capsys, "columns", "nope")[0] == 2
    assert added == ["--help", "--version", "--help", "names", "--json", "--schema"]
    for words, named in {
        (): ("memkern stream", "memkern --help"),
        ("--help",): ("info", "stream", "report"),
        ("nope",): ("info", "more"),
        ("repord",): ("verb 'repord' is unknown: did you mean report?",),
        ("gs",): ("kernel gs is measured by memkern spatter",),
    }.items():
        added.clear()
        _, out, err = run(capsys, *words)
        assert all(verb in out + err for verb in named)
        assert set(added) == {"--help", "--version"}
    # The verb may also follow an option.
    assert run(capsys, "--version", "columns", "time_s", "--json")[0] == 0


def test_a_kernel_after_its_verb_is_recognized(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "stream", "triad")
    assert code == 2 and "unrecognized arguments: triad: did you mean --kernel triad?" in err


def test_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "memkern", "table", "spatter-table4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


LIMITED = (
    "import resource, sys; most = int(sys.argv[1]);"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most));"
    "from memkern.cli import main; sys.exit(main(sys.argv[2:]))"
)


def limited(most_B: int, folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run memkern with a limit on the size of files, which acts like a full disk."""
    command = [sys.executable, "-c", LIMITED, str(most_B), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("target", once_a_kind(["out.csv", "out.db"]))
def test_a_sweep_is_resumed_after_a_full_disk(tmp_path: Path, target: str) -> None:
    words = "stream -k copy -n 512 -t 1 --variant scalar --runs 2 --budget 0.05 --repeats 30 -q"
    words = [*words.split(), "-o", target]
    working = "out.db" if target == "out.db" else "out.csv.db"
    done = limited(40960, tmp_path, words)
    assert done.returncode == 2
    kept, reason, resume = done.stderr.splitlines()
    finished = len(mk.load(tmp_path / working))
    assert kept == f"memkern: {finished} of 30 measurements done, kept in {working}"
    assert reason == (
        f"memkern: {working} can't be written: a file may have at most 40960 bytes here (ulimit -f)"
    )
    assert resume == f"memkern: resume with: memkern {' '.join(words)} --resume"
    assert 0 < finished < 30
    assert limited(2**30, tmp_path, [*words, "--resume"]).returncode == 0
    assert len(mk.load(tmp_path / target)) == 30


def test_a_full_disk_leaves_no_incomplete_file(tmp_path: Path) -> None:
    for most_B, words in (
        (4096, "stream -k copy -n 512 -t 1 --runs 2 -q -o x.db"),
        (512, "table spatter-table4 -o x.csv"),
    ):
        done = limited(most_B, tmp_path, words.split())
        assert done.returncode == 2
        told = f"can't be written: a file may have at most {most_B} bytes"
        assert told in one_sentence(done.stderr)
        assert not list(tmp_path.iterdir())


def few_cases(*how: Any) -> list[mk.Case]:
    """Return the cases of a report in tests that do not depend on them."""
    brief: dict[str, Any] = {"elements": 512, "variant": "scalar", "runs": 2}
    gather = mk.gather("UNIFORM:8:1", count=64, threads=1, variant="scalar", runs=2)
    return [mk.stream("copy", **brief), mk.stream("triad", **brief), gather]


@pytest.mark.parametrize("whole", once_a_kind([False, True]))
def test_report_end_to_end(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: bool,
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    if not whole:
        monkeypatch.setattr("memkern.report.cases.report_cases", few_cases)
    # No case is left out, even on a busy machine.
    monkeypatch.setattr("memkern.cli.report._QUICK_S", 600.0)
    monkeypatch.setattr("memkern.engine.expected_s", lambda cases: 600.0)
    set_activity(monkeypatch, [BUSY])
    told: list[mk.ResultSet] = []
    monkeypatch.setattr("memkern.cli.report.tell_host", lambda results, quiet: told.append(results))
    target = tmp_path / "report.html"
    code, out, _ = run(capsys, "report", "--quick", "-q", "-o", str(target), "-t", "1")
    assert code == 0, out
    assert len(told) == 1
    html = target.read_text()
    assert "When measuring began, stress (process 77) also ran on this machine" in html
    assert str(target) in out
    assert "<html" in html
    frame = mk.load(tmp_path / "report.parquet").to_frame()
    assert frame["valid"].all()
    kernels = {"spatter.gather", "stream.copy"}
    names = {"Gather and scatter", "Streaming"}
    if whole:
        kernels |= {"spatter.scatter", "bs.bs1"}
        names |= {"PENNANT-G0", "LULESH-S3", "AMG-G1", "NEKBONE-G2"}
    assert set(frame["kernel"]) >= kernels
    assert all(name in html for name in names)


def test_records_figures_and_reports_take_a_machine_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    records = tmp_path / "x.json"
    words = ["stream", "-k", "triad,copy", "-n", "4096", "-t", "1", "-q", "-o", str(records)]
    code, _, err = run(capsys, *words, "--machine", "A64FX")
    assert code == 0
    assert "A64FX is another machine than the machine of the records" in err
    shown = [word for word in words[:-2] if word != "-q"]
    assert "bound" in run(capsys, *shown, "--machine", "A64FX")[1].splitlines()[-1]
    assert "no roofline" not in err
    for row in mk.load(records):
        assert row["machine_file"] == "A64FX, published"
        assert row["bound"] in ("L1", "L2", "memory", "core")
        assert row["roofline_s"] == pytest.approx(row["roofline_fraction"] * row["time_median_s"])
        has_flops = row["kernel"] == "stream.triad"
        assert (row["roofline_GFLOPs"] == row["roofline_GFLOPs"]) == has_flops
    code, out, _ = run(capsys, "table", "roofline", str(records), "--machine", "A64FX")
    assert code == 0 and "stream.triad" in out
    code, _, err = run(capsys, "table", "kernels", "--machine", "A64FX")
    assert code == 2 and "machine" in err
    code, _, err = run(capsys, *words[:-1], "y.json", "--machine", str(tmp_path / "none.json"))
    assert code == 2 and "none.json" in err
    other = dataclasses.replace(mk.models.published("A64FX"), model="Another").save(
        tmp_path / "other.json"
    )
    code, _, err = run(capsys, *words[:-1], str(tmp_path / "z.json"), "--machine", str(other))
    assert code == 2 and "is of another machine (Another)" in err
    atomics = ["amo", "-b", "RAND_ADD", "-m", "4096", "-i", "64", "--runs", "1", "-q"]
    code, _, err = run(capsys, *atomics, "--machine", "A64FX")
    assert code == 0
    assert "no roofline by A64FX, published: the record of amo." in err
    target = tmp_path / "report.html"
    monkeypatch.setattr("memkern.report.cases.report_cases", few_cases)
    monkeypatch.setattr("memkern.engine.expected_s", lambda cases: 600.0)
    code, out, err = run(
        capsys, "report", "--quick", "-q", "-o", str(target), "-t", "1", "--machine", "A64FX"
    )
    assert code == 0, err
    assert "by the machine file A64FX, published" in target.read_text()


# Existing files


@pytest.mark.parametrize(
    ("words", "suffixes"),
    [
        ("report -o x.html", (".html", ".parquet", ".samples.parquet", ".parquet.db")),
        ("report -o x.html --quick", (".html", ".parquet", ".samples.parquet", ".parquet.db")),
        ("stream -n 512 --runs 1 -o x.csv", (".csv", ".samples.csv", ".csv.db")),
        ("tune -p UNIFORM:8:4 -l 64 -o x.json", (".json", ".json.db")),
        ("spmv poisson:4 --tune -o x.db", (".db",)),
        ("barrier --runs 2 -o x.json", (".json",)),
        ("table spatter-table4 -o x.csv", (".csv",)),
        ("compare a.json b.json --junit x.xml", (".xml",)),
    ],
)
def test_existing_files_are_not_overwritten(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    suffixes: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in suffixes:
        mine = tmp_path / f"x{suffix}"
        mine.write_text("mine")
        code, out, err = run(capsys, *words.split())
        assert code == 2, out
        assert f"{mine.name} exists already" in one_sentence(err)
        assert "--force" in err
        assert [file.name for file in tmp_path.iterdir()] == [mine.name]
        assert mine.read_text() == "mine"
        mine.unlink()


def test_force_overwrites(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    for file in (target, tmp_path / "x.json.db"):
        file.write_text("mine")
    words = ("stream", "-n", "512", "--runs", "2", "-q", "-o", str(target))
    code, _, err = run(capsys, *words, "--force")
    assert code == 0, err
    assert len(mk.load(target)) == 5
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
    csv = tmp_path / "x.csv"
    csv.write_text("mine")
    assert run(capsys, "table", "spatter-table4", "-o", str(csv), "--force")[0] == 0
    assert csv.read_text() != "mine"


# Standard streams


@pytest.mark.parametrize("encoding", once_a_kind(["ascii", "latin-1", "utf-8"]))
def test_output_in_any_encoding(encoding: str) -> None:
    words = ["stream", "-k", "copy", "-n", "512", "-t", "1", "--runs", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "memkern", *words],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert b"GB/s" in done.stdout
    assert "±%".encode(encoding, errors="replace") in done.stdout


def test_closed_standard_streams_are_no_error(tmp_path: Path) -> None:
    words = f"-m memkern stream -k copy -n 512 -t 1 --runs 2 -o {tmp_path / 'x.json'}"
    done = subprocess.run(["sh", "-c", f"{sys.executable} {words} >&- 2>&-"])
    assert done.returncode == 0
    assert len(mk.load(tmp_path / "x.json")) == 1


COPY = "stream -k copy -n 512 -t 1 --runs 2 -q"
REPEATED = "stream -k copy -n 512 -t 1 --runs 2 --repeats 2 -o x.csv"


@pytest.mark.parametrize(
    ("words", "streams", "code", "message"),
    [
        (f"{COPY} --json", ">/dev/full", 2, "standard output can't be written: the disk is full"),
        (REPEATED, ">/dev/full", 2, "output can't be written: the disk is full; x.csv is complete"),
        (REPEATED, "| true", 0, ""),
        (f"{COPY} -o x.csv", "2>/dev/full", 0, ""),
        ("stream --help", ">/dev/full", 2, "standard output can't be written: the disk is full"),
        ("stream -k nope", "2>/dev/full", 2, ""),
        ("stream --nope", "2>/dev/full", 2, ""),
        ("fit none.json", ">/dev/full 2>/dev/full", 2, ""),
        ("fit none.json", ">&- 2>&-", 2, ""),
    ],
)
def test_results_are_kept_when_standard_streams_fail(
    tmp_path: Path, words: str, streams: str, code: int, message: str
) -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m memkern {words} {streams}"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == code, done.stderr
    # Earlier lines may report that the machine is not quiet.
    assert (done.stderr.splitlines() or [""])[-1].endswith(message)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    if "-o" in words.split():
        assert len(mk.load(tmp_path / "x.csv")) == (2 if "--repeats" in words else 1)
        assert not (tmp_path / "x.csv.db").exists()


@pytest.mark.parametrize("setting", ["PYTHONIOENCODING=ascii", "LC_ALL=C"])
def test_non_ascii_arguments_raise_no_exception(tmp_path: Path, setting: str) -> None:
    name, _, value = setting.partition("=")
    for words in (["fit", "µ±.json"], ["spatter", "-p", "µ±"], ["bs", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "memkern", *words],
            capture_output=True,
            env={**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", name: value},
            cwd=tmp_path,
        )
        assert done.returncode == (0 if "--help" in words else 2)
        assert b"Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == (0 if "--help" in words else 1)


@pytest.mark.parametrize("three", ["٣", "³", "３", "1_0"])
@pytest.mark.parametrize(
    "words",
    [
        "stream --budget X",
        "stream --ci X",
        "stream --alpha X",
        "stream -n X",
        "stream --sizes 1KiB:1MiB:X",
        "stream --sizes X",
        "stream -t X",
        "stream --seed X",
        "bs X",
        "spatter -p UNIFORM:8:X",
        "spatter -p 0,X",
        "spatter -p 0 -l X",
        "spatter -p 0 -d X",
        "tune -p 0 -d X",
        "raider -n 8 --pattern zipf:X",
        "raider -n 8 --pattern stride:X",
        "spmv anderson:2:2:2:X",
        "spmv hpcg:X",
        "dw --lattice 4 4 4 X",
        "dw --lattice 4 4 4 4 --block X 4 4 4",
        "suite lulesh --footprint X",
        "compare a.db b.db --fail-on slower:X",
        "fit a.db --level X",
        "fit a.db --leave-out X",
        "report --wait-quiet X",
    ],
)
def test_numbers_with_other_signs_than_ascii_digits_are_refused(
    capsys: pytest.CaptureFixture[str], words: str, three: str
) -> None:
    assert repr(three)[1:-1] in refused_words(capsys, *words.replace("X", three).split())


# Interrupts


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "terminated"]
)
def test_an_interrupted_sweep_says_how_to_resume(tmp_path: Path, number: int, code: int) -> None:
    words = ["stream", "-k", "copy", "--sizes", "64KiB:4MiB:400", "-o", "x.csv"]
    words += ["--budget", "0.1", "--placements", "1"]
    command = [sys.executable, "-m", "memkern", *words]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    working = tmp_path / "x.csv.db"
    wait_until(lambda: records_in(working), running)
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode == code, err
    assert "Traceback" not in err
    assert "measurements done, kept in x.csv.db" in err
    assert f"resume with: memkern {' '.join(words)} --resume" in err
    assert len(mk.load(working)) > 0
    assert not (tmp_path / "x.csv").exists()


def test_the_command_that_resumes_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    working_file(tmp_path / "x.csv").touch()
    args = argparse.Namespace(resume=False, output=str(tmp_path / "x.csv"))
    cli._print_resume_command(args, ["stream", "--force", "-t", "1"])
    assert capsys.readouterr().err == "memkern: resume with: memkern stream -t 1 --resume\n"


def test_ctrl_c_before_the_first_record_leaves_no_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memkern.engine.run.CaseRun.place", interrupted)
    target = tmp_path / "x.parquet"
    code, _, err = run(capsys, "stream", "-k", "copy", "-n", "512", "-q", "-o", str(target))
    assert code == 130
    assert "0 of 1 measurements done" in one_sentence(err)
    assert "kept" not in err and "--resume" not in err
    assert list(tmp_path.iterdir()) == []


# Options of some kernels


@pytest.mark.parametrize(
    ("words", "column", "value"),
    [
        ("amo --words 4096 -i 9", "words", 4096),
        ("amo --stride 3 -i 9", "stride", 3),
        ("amo --primitive add -i 9 --padding 64", "padding_B", 64),
        ("bs -n 99 --elements 2 --degree 2 --alpha 2", "degree", 2),
        ("loops -n 99 --alpha 5", "alpha", 5),
        ("raider -n 99 --pattern chase", "index_pattern", "chase"),
    ],
)
def test_options_of_some_kernels_apply_to_these_only(words, column, value, capsys):
    how = ("--runs", "1", "--threads", "1", "--variant", "scalar", "-q")
    records = measured(capsys, *words.split(), *how)
    having = {r["kernel"] for r in records if r.get(column) == value}
    assert having and having < {r["kernel"] for r in records}


def test_knobs_of_some_kernels_multiply_the_cases_of_these_only(capsys):
    words = "loops -k peakflops,triad -n 999 --prefetch 0,8 --runs 1 --threads 1 -q"
    records = measured(capsys, *words.split())
    found = [(r["kernel"], r["prefetch"]) for r in records]
    assert sorted(found) == [("loops.peakflops", 0), ("loops.triad", 0), ("loops.triad", 8)]


def test_unused_options_of_circustent_are_reported(capsys):
    words = "amo -b PTRCHASE_ADD -m 800 -s 7 -i 9 --runs 1 --threads 1"
    code, _, err = run(capsys, *words.split())
    assert code == 0
    for unused in ("--memsize: 800", "--stride: 7"):
        assert f"amo.ptrchase takes no {unused} is not used" in err


def set_activity(monkeypatch: pytest.MonkeyPatch, observations: list[Activity]) -> list[Activity]:
    """Replace the observed activity of the machine by these observations, one after the other."""
    for place in ("memkern.engine.cores", "memkern.engine"):
        monkeypatch.setattr(f"{place}.observe_activity", lambda: observations.pop(0))
    monkeypatch.setattr("memkern.cli.measuring.time.sleep", lambda seconds: None)
    return observations


BUSY = Activity(((77, "stress", 1),), 0.0)
IDLE = Activity((), 0.0)
BRIEF = ("stream", "-k", "copy", "-n", "512", "-t", "1", "--variant", "scalar", "--runs", "2")


def test_other_processes_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_activity(monkeypatch, [BUSY])
    code, _, err = run(capsys, *BRIEF)
    assert code == 0
    assert "the machine is not quiet: it also runs stress (process 77)" in err
    set_activity(monkeypatch, [BUSY])
    assert "not quiet" not in run(capsys, *BRIEF, "-q")[2]


def test_waiting_for_a_quiet_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    observations = set_activity(monkeypatch, [BUSY, BUSY, IDLE])
    code, _, err = run(capsys, *BRIEF, "--wait-quiet", "60")
    assert (code, observations) == (0, [])
    assert "not quiet" not in err
    # The reason for waiting is printed at once, and again after a while.
    assert err.count("waiting for stress (process 77) to end, for 0 of at most 60 s") == 1
    assert "the machine is quiet after 0 s" in err
    # After the time limit it measures with a warning.
    set_activity(monkeypatch, [BUSY] * 100_000)
    code, _, err = run(capsys, *BRIEF, "--wait-quiet", "0.01")
    assert code == 0 and "stress (process 77) has not ended after 0 s" in err
    set_activity(monkeypatch, [BUSY, IDLE])
    assert "quiet" not in run(capsys, *BRIEF, "--wait-quiet", "60", "-q")[2]
    code, _, err = run(capsys, *BRIEF, "--wait-quiet", "-1")
    assert code == 2 and "not a positive number" in err


def test_disturbed_records_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_activity(monkeypatch, [IDLE])

    monkeypatch.setattr(disturbance, "disturbed_samples", disturbed_samples)
    code, out, err = run(capsys, *BRIEF, "--budget", "0.01", "--json")
    assert code == 0
    [record] = json.loads(out)
    assert record["disturbed"] is True
    assert record["ci_relative"] is None and record["ci_scope"] == "none"
    assert record["state"] == "disturbed"
    assert "1 of 1 records are disturbed: their workers waited" in err and "--threads" in err


def test_placements_and_order_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("stream", "-k", "copy,scale", "-n", "512", "-t", "1", "--variant", "scalar")
    brief = (*words, "--budget", "0.01", "--placements", "2")
    records = measured(capsys, *brief, "--case-order", "declared")
    assert [r["kernel"] for r in records] == ["stream.copy", "stream.scale"]
    assert {r["case_order"] for r in records} == {"declared"}
    assert all(r["placements"] <= 2 for r in records)
    assert len({r["case_order_seed"] for r in measured(capsys, *brief)}) == 1
    assert {r["case_order_seed"] for r in measured(capsys, *brief, "--case-order-seed", "7")} == {7}
    declared = ("--case-order", "declared", "--case-order-seed", "7")
    assert "has no effect with --case-order declared" in refused_words(capsys, *brief, *declared)
    refused_words(capsys, *brief, "--case-order", "backwards")
    refused_words(capsys, *words, "--placements", "0")


def test_calibrate_prints_what_it_stores(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    code, out, _ = run(capsys, "calibrate", "--seconds", "1", "-q")
    assert code == 0
    assert "L1, 1 thread" in out
    assert str(tmp_path / "memkern" / "calibration.json") in out
    assert run(capsys, "calibrate", "--seconds", "0")[0] == 2


# Tables


@pytest.mark.parametrize(
    ("words", "columns", "rows"),
    [
        (
            "loops -k triad,sum --unroll 1,2 --prefetch 0,4 --variant simd -n 99",
            "prefetch unroll case",
            [["0", "1"], ["0", "2"], ["4", "1"], ["4", "2"]] * 2,
        ),
        (
            "amo --kernel central --sharing private --padding 0,64 --pages default,4k -i 9",
            "pages padding_B case",
            [["default", "0"], ["4k", "0"], ["default", "64"], ["4k", "64"]],
        ),
        ("spmv hpcg:4 -f crs --mve 1,2 --prefetch 0,8", "prefetch matrix", [["0"], ["8"]] * 2),
        (
            "dw --lattice 2 2 2 2 --repetition fork,barrier --variant scalar "
            "--layout lexicographic",
            "repetition lattice",
            [["fork"], ["barrier"]],
        ),
        (
            "latency sizes --sizes 4096,8192 --order pairs --distance 128,256",
            "distance_B case",
            [["128"], ["256"]] * 2,
        ),
        # Options that have a column anyway or depend on the kernel get no column in front.
        ("spmv hpcg:4 -f sell -C 4,8 --sigma 1,32 -t 1", "matrix format", None),
        ("amo --kernel central --sharing private,shared --threads 1,2 -i 9", "case pattern", None),
        ("bs 1,6 -n 99 --elements 2,3 --degree 2 --pages default,4k", "case kernel", None),
    ],
)
def test_tables_show_every_option_that_varies(words, columns, rows, capsys):
    code, out, _ = run(capsys, *words.split(), "--runs", "1", "--threads", "1")
    header, *lines = out.splitlines()
    assert code == 0 and " ".join(header.split()).startswith(columns)
    if rows is not None:
        below = ("GB/s of", "±%", "whether ", "latency of memory", "differences from ")
        lines = [line for line in lines if not line.startswith(below)]
        assert [line.split()[: len(rows[0])] for line in lines] == rows


@pytest.mark.parametrize(
    ("cases", "columns", "rows"),
    [
        (
            "kernel = 'spmv.sell'\nmatrix = 'hpcg:4'\nC = [4, 8]\nsigma = [1, 32]",
            ["C", "sigma", "case"],
            [["4", "1"], ["4", "32"], ["8", "1"], ["8", "32"]],
        ),
        (
            "kernel = 'dw.hop'\nlattice = [[2, 2, 2, 2], [4, 2, 2, 2]]\nls = [2, 3]",
            ["lattice", "Ls", "case"],
            [["2x2x2x2", "2"], ["2x2x2x2", "3"], ["4x2x2x2", "2"], ["4x2x2x2", "3"]],
        ),
        (
            "kernel = 'amo.rand'\nsharing = ['private', 'shared']\niters = 9\nchunk = [0, 4]",
            ["chunk", "sharing", "case"],
            [["0", "private"], ["4", "private"], ["0", "shared"], ["4", "shared"]],
        ),
        # Inputs that the first columns distinguish get no column.
        ("kernel = 'gather'\npattern = ['0,1', '0,1,2']\ncount = 9", ["case"], None),
        (
            "kernel = 'gather'\npattern = '0,1'\ncount = [8, 9]\nname = 'a'",
            ["count", "case"],
            [["8"], ["9"]],
        ),
    ],
)
def test_rows_of_a_sweep_can_be_told_apart(
    cases: str, columns: list[str], rows: list[list[str]] | None, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(f"[[case]]\n{cases}\nruns = 1\nthreads = 1\n")
    code, out, err = run(capsys, "sweep", str(file), "--case-order", "declared")
    assert code == 0, err
    header, *lines = out.splitlines()
    assert header.split()[: len(columns)] == columns
    if rows is not None:
        lines = [line for line in lines if not line.startswith(("GB/s of", "±%"))]
        assert sorted(line.split()[: len(rows[0])] for line in lines) == sorted(rows)


def test_every_option_of_how_a_case_is_run_may_get_a_column() -> None:
    case = mk.loops("load", elements=64, threads=1, variant="scalar")
    other = {"prefetchers": "off", "clock_limit": 900, "cache_ways": 3, "counters": "auto"}
    for name, value in other.items():
        widths = measuring.varying([case, case.with_(**{name: value})])
        assert list(widths) == [name]
        record = case.with_(**{name: value}).knobs.columns
        assert measuring.varying_cells(widths, record).strip() == str(value)
    on_gpu = mk.loops("load", elements=64, device="cuda")
    assert list(measuring.varying([on_gpu, on_gpu.with_(block_shared=64)])) == ["block_shared"]


def disturbed_samples(share: Any, *others: Any) -> Any:
    return np.ones(len(share), dtype=bool)


@pytest.mark.parametrize(
    ("words", "mark", "times"),
    [
        ("stream -n 999", "disturbed", 4),
        ("stream -k copy -n 999", "disturbed", 1),
        ("amo -b RAND_ADD -i 9 -m 512", " DISTURBED", 1),
    ],
)
def test_disturbed_numbers_are_marked(
    words: str, mark: str, times: int, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("--runs", "2", "--budget", "0.01", "-t", "1", "--variant", "scalar")
    assert mark not in run(capsys, *words.split(), *more)[1]
    monkeypatch.setattr(disturbance, "disturbed_samples", disturbed_samples)
    out = run(capsys, *words.split(), *more)[1]
    assert sum(mark in line for line in out.splitlines()) == times and "nan" not in out


def result_set(records: list[dict[str, Any]]) -> ResultSet:
    return ResultSet(records, [np.empty(0)] * len(records), {})


def test_the_summary_is_that_of_undisturbed_records() -> None:
    rates = {"bandwidth_GBps": 8.0, "bytes_B": 8, "rotation": False, "valid": True}
    records: list[dict[str, Any]] = [
        {**rates, "disturbed": False},
        {**rates, "bandwidth_GBps": 2.0, "disturbed": False},
        {**rates, "bandwidth_GBps": 0.1, "disturbed": True},
        {**rates, "bandwidth_GBps": 99.0, "disturbed": False, "valid": False},
    ]
    text = measuring._summary(result_set(records))
    assert text.startswith("GB/s of 2 cases (2 disturbed or invalid left out): min 2.00,")
    assert "max 8.00" in text
    assert measuring._summary(result_set(records[1:])) == ""


def test_tables_tell_for_what_an_interval_holds(capsys: Any) -> None:
    words = ("stream", "-k", "copy", "-n", "999", "-t", "1", "--runs", "20", "--variant", "scalar")
    row, scope = run(capsys, *words)[1].splitlines()[1:3]
    assert re.search(r" \d+\.\d( |$)", row)
    assert scope.startswith("±%") and "95 % of the next runs" in scope
    record = {"ci_relative": 0.0125, "time_min_ci_relative": 0.03, "rotation": False}
    assert measuring.plus_minus(record) == "3.0"
    assert measuring.plus_minus(record, "median") == "1.2"
    none = dict.fromkeys(record, math.nan) | {"rotation": False}
    assert measuring.plus_minus(none) == "" == measuring.scope_of(result_set([none]))


def test_a_shared_host_is_told_once(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memkern.engine.taken.Taken.quiet", False)
    words = ("stream", "-k", "copy,scale", "-n", "999", "-t", "1", "--runs", "20")
    _, out, err = run(capsys, *words)
    assert err.count("this host is shared") == 1 and "shared" not in out
    assert run(capsys, *words, "-q")[2] == ""


def test_rotations_are_headed_by_the_options_that_vary(capsys):
    words = "stream -n 999 --offset 0,64 --runs 2 --threads 1 --variant scalar"
    code, out, _ = run(capsys, *words.split())
    lines = out.splitlines()
    assert code == 0 and [line for line in lines if line.startswith("offset")] == [
        "offset 0:",
        "offset 64:",
    ]


# Short options of Spatter, CircusTent and memkern


def test_short_options_of_spatter_accept_memkerns_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "out.json"
    words = ["spatter", "-p", "UNIFORM:8:4:NR", "-l", "64", "-r", "2", "--variant", "scalar"]
    code, _, err = run(capsys, *words, "-o", str(target), "-t", "1,2")
    assert (code, err) == (0, "")
    assert [record["threads"] for record in mk.load(target)] == [1, 2]
    code, _, err = run(capsys, *words, "-o", "7", "-t", "1")
    assert code == 0
    assert "-o/--op has no effect" in one_sentence(err)
    sentence = refused_words(capsys, *words, "-o", "x.json", "--output", str(target))
    assert "-o 'x.json' and --output are the same" in sentence
    assert "x.txt" in refused_words(capsys, *words, "-o", str(tmp_path / "x.txt"))


def test_atomics_take_short_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    words = ["amo", "-b", "RAND_ADD", "-m", "4096", "-i", "64", "--runs", "1", "-q"]
    code, _, err = run(capsys, *words, "-t", "1", "-o", str(target))
    assert (code, err) == (0, "")
    (record,) = mk.load(target)
    assert (record["threads"], record["words"]) == (1, 512)


def test_atomics_over_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["amo", "--sizes", "1KiB,4KiB", "-t", "2", "--runs", "1", "--json", "-q"]
    words += ["--case-order", "declared"]
    code, out, err = run(capsys, *words, "--padding", "0,64", "-i", "200")
    assert (code, err) == (0, "")
    found: dict[str, list[tuple[int, int, int]]] = {}
    for record in json.loads(out):
        sized = (record["words"], record["padding_B"], record["iters"])
        found.setdefault(record["kernel"], []).append(sized)
    assert found["amo.rand"] == [(128, 0, 200), (128, 64, 200), (512, 0, 200), (512, 64, 200)]
    # All iterations of all workers access different words.
    assert found["amo.stride1"] == [(128, 0, 64), (128, 64, 8), (512, 0, 200), (512, 64, 32)]
    assert found["amo.gather"] == found["amo.stride1"]
    assert len(found["amo.ptrchase"]) == 1
    assert "--words has no effect with --sizes" in refused_words(capsys, *words, "--words", "64")


@pytest.mark.parametrize("verb", ["amo", "spatter", "stream", "compare", "report"])
def test_errors_name_the_help_of_their_verb(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    for words in (("--colour", "red"), ("--threads", "none"), ("--force=1",)):
        code, _, err = run(capsys, verb, *words)
        assert code == 2
        assert one_sentence(err).endswith(f"(see memkern {verb} --help)")


@pytest.fixture(scope="module")
def plain_results() -> mk.ResultSet:
    """Return two records of a gather."""
    cases = [mk.gather(f"UNIFORM:8:{n}:NR", count=64, threads=1, runs=2) for n in (1, 2)]
    return mk.sweep([case.with_(variant="scalar", placements=1) for case in cases])


ANALYSES = [
    "compare x.json x.json",
    "fit x.json",
    "table spatter-table4 x.json",
    "figure spatter-fig3 x.json -o x.png",
]


ODD = itertools.product(
    ANALYSES,
    ["bytes_B", "bandwidth_median_GBps", "kernel", "time_median_s"],
    ["left out", None, "text", math.inf, -1.0],
)


# Figures take longest, and columns that they do not read have no effect.
@pytest.mark.parametrize(
    "case",
    once_a_kind(
        ODD,
        kind=lambda case: case[:2] if case[0].startswith("figure") else case,
        name=lambda case: " ".join(map(str, case)),
    ),
)
def test_results_with_odd_columns_are_analysed_or_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plain_results: mk.ResultSet,
    case: tuple[str, str, Any],
) -> None:
    command, column, value = case
    monkeypatch.chdir(tmp_path)
    odd = [{k: v for k, v in r.items() if k != column} for r in plain_results]
    if value != "left out":
        odd = [{**record, column: value} for record in odd]
    mk.ResultSet(odd, plain_results.samples, plain_results.environments).save("x.json")
    code = cli.main(command.split())
    refused = [line for line in capsys.readouterr().err.splitlines() if line]
    assert code in (0, 2)
    assert code == 0 or len(refused) == 1
    assert (tmp_path / "x.png").exists() == (code == 0 and command.startswith("figure"))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"text", b"\x89PNG", b"SQLite format 3\0"])
@pytest.mark.parametrize("suffix", ["json", "csv", "parquet", "db"])
@pytest.mark.parametrize("command", ANALYSES)
def test_files_of_other_formats_are_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    suffix: str,
    content: bytes,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"x.{suffix}").write_bytes(content)
    assert cli.main(command.replace("x.json", f"x.{suffix}").split()) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert f"x.{suffix}" in sentence
    assert sorted(tmp_path.iterdir()) == [tmp_path / f"x.{suffix}"]


@pytest.mark.parametrize(
    ("words", "column", "values"),
    [
        ("stream -k copy -n 1e3 --runs 1", "elements", [1000]),
        ("amo --kernel rand --words 2.5e2 --runs 1", "words", [250]),
        ("amo --kernel rand --padding 0,6.4e1 --words 64 --runs 1", "padding_B", [0, 64]),
        ("spmv hpcg:4 --format csr --runs 1", "kernel", ["spmv.crs"]),
    ],
)
def test_numbers_with_exponents_and_other_names_of_formats(
    words: str, column: str, values: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *words.split(), "--json")
    assert code == 0
    assert sorted(record[column] for record in json.loads(out)) == values


def test_what_is_printed_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    for invocations in (1, 3):
        file.write_text(
            f'[[case]]\nkernel = "stream.copy"\nelements = 64\nruns = 2\n{invocations = }'
        )
        _, out, _ = run(capsys, "sweep", str(file))
        explained = "; xN: a sample is N invocations, since the clock does not resolve one"
        assert (" x3\n" in out, explained in out) == (invocations == 3, invocations == 3)
    for heading, column in (
        ("GAMS", "rate_GAMS"),
        ("pages_asked", "pages_requested"),
        ("±%", "time_min_ci_relative"),
    ):
        code, out, _ = run(capsys, "columns", heading)
        assert code == 0 and out.splitlines()[1].startswith(column)
