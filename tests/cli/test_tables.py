"""Tables of the command line: options that vary, marks, activity of other processes."""

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from checking import BUSY, IDLE, measured, one_sentence, output_of, refused_words, run, set_activity

import memkern as mk
from memkern.cli import measuring, tables
from memkern.engine.sampling import series
from memkern.families.dw import verb as dw
from memkern.families.latency import verb as latency
from memkern.families.spmv import verb as spmv
from memkern.formats import ResultSet

BRIEF = ("stream", "-k", "copy", "-n", "512", "-t", "1", "--variant", "scalar", "--runs", "2")


def test_other_processes_are_reported(capsys, monkeypatch):
    set_activity(monkeypatch, [BUSY])
    _, err = output_of(capsys, *BRIEF)
    assert "the machine is not quiet: it also runs stress (process 77)" in err
    set_activity(monkeypatch, [BUSY])
    assert "not quiet" not in run(capsys, *BRIEF, "-q")[2]


def test_waiting_for_a_quiet_machine(capsys, monkeypatch):
    observations = set_activity(monkeypatch, [BUSY, BUSY, IDLE])
    code, _, err = run(capsys, *BRIEF, "--wait-quiet", "60")
    assert (code, observations) == (0, [])
    assert "not quiet" not in err
    # The reason for waiting is printed at once, and again after a while.
    assert err.count("waiting for stress (process 77) to end, for 0 of at most 60 s") == 1
    assert "the machine is quiet after 0 s" in err
    # After the time limit it measures with a warning.
    set_activity(monkeypatch, [BUSY] * 100_000)
    _, err = output_of(capsys, *BRIEF, "--wait-quiet", "0.01")
    assert "stress (process 77) has not ended after 0 s" in err
    set_activity(monkeypatch, [BUSY, IDLE])
    assert "quiet" not in run(capsys, *BRIEF, "--wait-quiet", "60", "-q")[2]
    assert "not a positive number" in refused_words(capsys, *BRIEF, "--wait-quiet", "-1")


def test_disturbed_records_are_reported(capsys, monkeypatch):
    set_activity(monkeypatch, [IDLE])

    monkeypatch.setattr(series, "disturbed_samples", disturbed_samples)
    out, err = output_of(capsys, *BRIEF, "--budget", "0.01", "--json")
    [record] = json.loads(out)
    assert record["disturbed"] is True
    assert record["ci_relative"] is None and record["ci_scope"] == "none"
    assert record["state"] == "disturbed"
    assert "1 of 1 records are disturbed, without an interval" in err and "--pin" in err
    assert "--threads" not in err  # it has one


def test_placements_and_order_are_options(capsys):
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
def test_rows_of_a_sweep_can_be_told_apart(cases, columns, rows, tmp_path, capsys):
    file = tmp_path / "sweep.toml"
    file.write_text(f"[[case]]\n{cases}\nruns = 1\nthreads = 1\n")
    out, _ = output_of(capsys, "sweep", str(file), "--case-order", "declared")
    header, *lines = out.splitlines()
    assert header.split()[: len(columns)] == columns
    if rows is not None:
        lines = [line for line in lines if not line.startswith(("GB/s of", "±%"))]
        assert sorted(line.split()[: len(rows[0])] for line in lines) == sorted(rows)


def test_every_option_of_how_a_case_is_run_may_get_a_column():
    case = mk.loops("load", elements=64, threads=1, variant="scalar")
    other = {"prefetchers": "off", "clock_limit": 900, "cache_ways": 3, "counters": "auto"}
    for name, value in other.items():
        (column,) = tables.varying([case, case.with_(**{name: value})])
        record = case.with_(**{name: value}).knobs.columns
        assert column.value(record) == str(value)
    on_gpu = mk.loops("load", elements=64, device="cuda")
    (column,) = tables.varying([on_gpu, on_gpu.with_(block_shared=64)])
    assert column.title == "block_shared"


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
def test_disturbed_numbers_are_marked(words, mark, times, capsys, monkeypatch):
    more = ("--runs", "2", "--budget", "0.01", "-t", "1", "--variant", "scalar")
    assert mark not in run(capsys, *words.split(), *more)[1]
    monkeypatch.setattr(series, "disturbed_samples", disturbed_samples)
    out = run(capsys, *words.split(), *more)[1]
    assert sum(mark in line for line in out.splitlines()) == times and "nan" not in out


def result_set(records: list[dict[str, Any]]) -> ResultSet:
    return ResultSet(records, [np.empty(0)] * len(records), {})


def test_the_summary_is_that_of_undisturbed_records():
    rates = {
        "bandwidth_GBps": 8.0, "bytes_B": 8, "rotation": False, "valid": True, "footprint_B": 2**28,
        "environment_id": "e",
    }  # fmt: skip
    records: list[dict[str, Any]] = [
        {**rates, "disturbed": False},
        {**rates, "bandwidth_GBps": 2.0, "disturbed": False},
        {**rates, "bandwidth_GBps": 0.1, "disturbed": True},
        {**rates, "bandwidth_GBps": 99.0, "disturbed": False, "valid": False},
    ]
    text = measuring._summary(result_set(records))
    assert text.startswith("GB/s of 2 cases (2 disturbed or invalid left out): min 2.00,")
    assert text.endswith("max 8.00, harmonic mean 3.20 (standard error 1.92)")
    assert measuring._summary(result_set(records[1:])) == ""
    # Nothing is averaged over levels of memory.
    near = [{**record, "footprint_B": 2**14, "bandwidth_GBps": 300.0} for record in records]
    cache = {"level": 1, "type": "data", "size_B": 2**15, "instances": 1}
    results = result_set([*records, *near])
    results.environments["e"] = {"machine": {"caches": [cache]}}
    memory, first = measuring._summary(results).splitlines()
    assert memory.startswith("GB/s of 2 cases in memory (2 disturbed") and "max 8.00" in memory
    assert first.startswith("GB/s of 2 cases in L1 (2 disturbed") and "min 300.00" in first


def test_tables_tell_for_what_an_interval_holds(capsys):
    words = ("stream", "-k", "copy", "-n", "999", "-t", "1", "--runs", "20", "--variant", "scalar")
    row, scope = run(capsys, *words)[1].splitlines()[1:3]
    assert re.search(r" (\d+|\d\.\d+|×÷\d+(\.\d)?)( |$)", row)
    assert scope.startswith("±%") and "95 % of the next runs" in scope
    record = {"ci_relative": 0.0125, "time_min_ci_relative": 0.03, "rotation": False}
    assert tables.plus_minus(record) == "3"
    assert tables.plus_minus(record, "median") == "1.2"
    none = dict.fromkeys(record, math.nan) | {"rotation": False}
    assert tables.plus_minus(none) == "" == tables.scope_of(result_set([none]))
    wide = record | {"time_min_ci_relative": 64.6, "stop": "budget", "invocations": 1}
    assert tables.plus_minus(wide) == "×÷129"
    scope = tables.scope_of(result_set([wide]))
    assert scope.endswith("; ×÷N: from the value divided by N to N times the value")


def test_a_shared_host_is_told_once(capsys, monkeypatch):
    monkeypatch.setattr("memkern.engine.recording.taken.Taken.quiet", False)
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


def test_short_options_of_spatter_accept_memkerns_values(capsys, tmp_path):
    target = tmp_path / "out.json"
    words = ["spatter", "-p", "UNIFORM:8:4:NR", "-l", "64", "-r", "2", "--variant", "scalar"]
    code, _, err = run(capsys, *words, "-o", str(target), "-t", "1,2")
    assert (code, err) == (0, "")
    assert [record["threads"] for record in mk.load(target)] == [1, 2]
    _, err = output_of(capsys, *words, "-o", "7", "-t", "1")
    assert "-o/--op has no effect" in one_sentence(err)
    sentence = refused_words(capsys, *words, "-o", "x.json", "--output", str(target))
    assert "-o 'x.json' and --output are the same" in sentence
    assert "x.txt" in refused_words(capsys, *words, "-o", str(tmp_path / "x.txt"))


def test_atomics_take_short_options(capsys, tmp_path):
    target = tmp_path / "out.json"
    words = ["amo", "-b", "RAND_ADD", "-m", "4096", "-i", "64", "--runs", "1", "-q"]
    code, _, err = run(capsys, *words, "-t", "1", "-o", str(target))
    assert (code, err) == (0, "")
    (record,) = mk.load(target)
    assert (record["threads"], record["words"]) == (1, 512)


def test_atomics_over_sizes(capsys):
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
    assert "--sizes and --words exclude each other" in refused_words(
        capsys, *words, "--words", "64"
    )


# The longest values of each table, some of which are names of formats and of kernels.
LONGEST: dict[str, Any] = {
    "variant": "scalar", "isa": "baseline", "threads": 128, "time_min_s": 0.001234,
    "time_min_ci_relative": 64.6, "ci_relative": 64.6, "valid": True, "stop": "budget",
    "invocations": 1, "bandwidth_GBps": 1234.5, "pages": "hugetlb-2m", "bytes_B": 2**40,
    "performance_GFLOPs": 123.456, "roofline_min_fraction": 0.5, "name": "n" * 40,
    "ns_per_access": 1234.56, "cycles_per_access": 2345.6,
}  # fmt: skip
TABLES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "stream": (tables.STREAMS.header, tables.STREAMS.row, {"kernel": "raider.central_triad"}),
    "latency": (
        latency._TABLES["chase"].header,
        latency._TABLES["chase"].row,
        {"size_B": 2**30, "lines": 2**24, "order": "pairs-across", "chains": 32},
    ),
    "spmv": (
        spmv.TABLE.header,
        spmv.TABLE.row,
        {"kernel": "spmv.sell", "C": 128, "sigma": 2**20, "balance": "rows", "beta": 0.5,
         "convert_s": 0.0123},
    ),
    "dw": (
        dw.TABLE.header,
        dw.TABLE.row,
        {"lattice": "128x128x128x128", "Ls": 16, "layout": "lexicographic", "cut": "tzyx",
         "vector_bits": 512, "parity": "full"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", TABLES)
def test_long_names_keep_the_columns_in_line(verb):
    header, row, own = TABLES[verb]
    line = f" {row(1234, LONGEST | own)} "
    assert line.strip()
    for title in re.finditer(r"\S+", header):
        begin, end = title.start() + 1, title.end() + 1
        left = line[begin - 1] == " " != line[begin]
        right = line[end - 1] != " " == line[end]
        assert left or right or not line[begin:end].strip(), (title[0], line)
