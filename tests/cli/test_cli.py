"""The command line as people and scripts use it: tables, JSON, exit codes, one-sentence errors."""

import argparse
import dataclasses
import json
import math
import re
import sys
from typing import Any

import pandas as pd
import pytest
from checking import BUSY, SMALL, measured, once_a_kind, output_of, refused_words, run, set_activity

import memkern as mk
from memkern.cli.analysis import table_text
from memkern.cli.options import knobs_of
from memkern.families.launch import barrier
from memkern.machine import remote
from memkern.results.ratios import turns_of


def test_spatter_prints_a_table(capsys):
    out, err = output_of(capsys, "spatter", "-p", "UNIFORM:8:4:NR", "-k", "Gather", *SMALL)
    header, row, scope, peer = out.splitlines()
    assert "GB/s" in header and peer.startswith("differences from Spatter: ")
    assert row.split()[1:3] == ["gather", "UNIFORM:8:4"]
    assert scope.startswith("±%: half the width")
    assert err == ""


def test_json_is_the_only_output(capsys):
    (record,) = measured(capsys, "spatter", "-pUNIFORM:8:4", "-d8", "-kscatter", *SMALL)
    assert record["kernel"] == "spatter.scatter"
    assert (record["delta"], record["count"], record["threads"]) == ("8", 256, 1)
    assert record["samples"] == 3
    assert record["rate_GAMS"] is None


def test_a_budget_or_a_precision_replaces_the_number_of_runs(capsys):
    assert knobs_of(argparse.Namespace(budget=2.0)) == {"budget_s": 2.0, "runs": None}
    assert knobs_of(argparse.Namespace(precision=5.0)) == {"precision": 0.05, "runs": None}
    words = "stream -k copy -n 512 -t 1 --variant scalar --placements 2"
    for flag in ("--precision", "--ci"):
        assert measured(capsys, *words.split(), flag, "99")[0]["stop"] == "precision"


def test_long_options_of_both_programs(capsys, tmp_path):
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


def test_spatter_file_runs_unchanged(capsys, tmp_path):
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
    out, err = output_of(capsys, "spatter", "-f", str(suite), "-t", "1", "--json")
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
    out, _ = output_of(capsys, "spatter", "-f", str(suite), "-t", "1")
    assert len(out.splitlines()) == 1 + 6 + 1 + 1 + 1
    assert "harmonic mean" in out.splitlines()[-2]


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
def test_streaming_verbs(capsys, words, kernels):
    records = measured(capsys, *words, *SHORT)
    assert [record["kernel"] for record in records] == kernels
    assert all(record["valid"] for record in records)
    assert all(record.get("elements") in (None, 1000) for record in records)
    out, _ = output_of(capsys, *words, *SHORT)
    assert ("K 2, N 3" if "--degree" in words else "1000 ") in out


def test_stream_without_a_kernel_prints_the_table_of_stream(capsys, tmp_path):
    target = tmp_path / "rotation.parquet"
    out, _ = output_of(capsys, "stream", "-n", "1000", "-t", "1", "-o", str(target))
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
    out, _ = output_of(capsys, "stream", "-n", "1000", "-t", "1", "-o", str(target), "--resume")
    assert out.splitlines() == lines[6:]
    assert len(mk.load(target)) == 5


@pytest.mark.parametrize("words", [("stream", "-k", "copy", "-n", "512"), ("spatter", "-p", "0,1")])
def test_a_number_of_runs_is_kept_beside_a_budget(capsys, words):
    words = (*words, "-t", "1", "--runs", "2", "--budget", "1", "--json")
    code, out, _ = run(capsys, *words)
    (record,) = json.loads(out)
    assert (code, record["samples"], record["stop"]) == (0, 2, "runs")


def test_sizes_and_lists_of_knobs_are_combined(capsys):
    words = ("loops", "-k", "copy,dot", "--sizes", "16KiB:64KiB:3", "--unroll", "1,4", "-t", "1,2")
    records = measured(capsys, *words, "--variant", "simd", "--runs", "2")
    assert len(records) == 2 * 3 * 2 * 2
    sizes_KiB = {r["footprint_B"] // 1024 for r in records if r["kernel"] == "loops.copy"}
    assert sizes_KiB == {16, 32, 64}
    assert {(r["unroll"], r["threads"]) for r in records} == {(1, 1), (1, 2), (4, 1), (4, 2)}


def test_stencils_by_layer_condition(capsys):
    words = ("loops", "--layer-condition", "L1,memory", "-n", "2000000", *SHORT)
    held, broken = measured(capsys, *words)
    assert (held["layer_condition"], broken["layer_condition"]) == ("L1", "memory")
    assert held["columns"] < broken["columns"]
    assert held["kernel"] == broken["kernel"] == "loops.stencil"


def test_indices_come_from_a_file(capsys, tmp_path):
    source = tmp_path / "idx.txt"
    source.write_text("3\n1\n0\n2\n")
    words = ("raider", "-k", "scatter_copy", "-n", "4", "--pattern", str(source), *SHORT)
    (record,) = measured(capsys, *words)
    assert (record["index_pattern"], record["index_dtype"]) == ("file idx.txt", "int64")
    source.write_text("3\n1\n0\n3\n")
    assert "idx.txt[3] repeats 3" in refused_words(capsys, *words)
    assert run(capsys, *words, "--allow-repeats")[0] == 0


def test_barrier_verb(capsys, tmp_path, monkeypatch):
    # The tests of barriers cover the processes for each kind.
    monkeypatch.setattr(barrier, "_measure_in_new_process", barrier.measure_here)
    target = tmp_path / "barrier.csv"
    out, _ = output_of(capsys, "machine", "barrier", "-t", "1,2", "--runs", "3", "-o", str(target))
    assert len(out.splitlines()) == 7
    assert len(mk.load(target)) == 6
    (record,) = measured(capsys, "machine", "barrier", "-t", "1", "--kinds", "spin", "--runs", "3")
    assert record["barrier"] == "spin"


def test_suite_and_tune(capsys, tmp_path):
    words = ("suite", "nekbone", "--footprint", "1e5", "--runs", "2", "-t", "1")
    names = [record["name"] for record in measured(capsys, *words)]
    assert names == [f"NEKBONE-G{n}" for n in range(3)]
    target = tmp_path / "search.json"
    out, _ = output_of(
        capsys,
        "tune", "-p", "UNIFORM:8:4:NR", "-l", "256", "-t", "1", "--budget", "1", "-o", str(target),
    )  # fmt: skip
    best, gain, answer = out.splitlines()[-3:]
    assert best.startswith("best: --variant ") and "healthy" in answer
    assert "times as fast as the first case" in gain or gain.startswith("no other values are")
    assert mk.load(target).records[-1]["tune_step"] == "best"


def test_tune_searches_lists_and_keeps_single_values(capsys, tmp_path):
    target = tmp_path / "search.json"
    words = "tune -k raider.gather_copy --set elements=1000 --set pattern=stride1 -t 1 --budget 4"
    words += f" --variant simd --pages 4k --prefetch 0,8,16 -o {target}"
    out, _ = output_of(capsys, *words.split())
    records = list(mk.load(target))
    assert {record["kernel"] for record in records} == {"raider.gather_copy"}
    assert {record["variant"] for record in records} == {"simd"}
    assert {record["pages_requested"] for record in records} == {"4k"}
    assert {record["prefetch"] for record in records} == {0, 8, 16}
    assert {record["tune_step"] for record in records} - {"base"} == {"variant", "prefetch", "best"}
    assert "--prefetch" in out.splitlines()[-3] and "--pages" not in out.splitlines()[-3]


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


def test_sweep_file(capsys, tmp_path):
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


def test_the_command_line_overrides_a_sweep_file(capsys, tmp_path):
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


def test_figures_and_tables_by_name(capsys, tmp_path):
    out, _ = output_of(capsys, "figure", "--list")
    for number in (3, 5, 6, 7, 8, 9):
        assert f"spatter-fig{number}" in out
    target = tmp_path / "fig.png"
    assert run(capsys, "figure", "spatter-fig3", "-o", str(target))[0] == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    out, _ = output_of(capsys, "table", "spatter-table4")
    assert "Skylake" in out


def test_numbers_of_tables_are_in_full_from_1000_on():
    frame = pd.DataFrame({"B": [2200.0, 0.53333, 1e-7, math.nan]})
    assert table_text(frame).split() == ["B", "2200", "0.533", "1e-07"]


def test_only_the_last_value_of_an_option_counts_and_the_user_is_told(capsys):
    words = ("spatter", "-p", "UNIFORM:8:1", "--pattern=UNIFORM:8:4", *SMALL)
    out, err = output_of(capsys, *words)
    assert "UNIFORM:8:4" in out and "UNIFORM:8:1" not in out
    told = "--pattern is given more than once, and only its last value counts\n"
    assert err == f"memkern spatter: {told}"
    # Each command line is judged on its own, and some options are lists.
    assert run(capsys, "spatter", "-p", "UNIFORM:8:4", *SMALL)[2] == ""
    several = ("--option", "dtype=float64", "--option", "kernel=gather")
    assert "more than once" not in run(capsys, "figure", "spatter-fig3", *several)[2]


def test_info_describes_the_machine_and_the_build(capsys, monkeypatch):
    monkeypatch.setattr(remote, "is_built", lambda name: name == "mpi")
    out, _ = output_of(capsys, "info")
    for word in ("processor", "caches", "pages", "pinning", "instruction sets", "openmp", "cuda"):
        assert word in out.lower()
    assert re.search(r"^backends .*mpi; built without shmem \(needs oshc\+\+", out, re.MULTILINE)
    facts = json.loads(run(capsys, "info", "--json")[1])
    assert facts["launch_s"] > 0 and facts["backends"][0] == "openmp"
    assert facts["environment"]["machine"]["model"] in out


def test_the_version(capsys):
    assert run(capsys, "--version")[1] == f"memkern {mk.__version__}\n"


def test_only_the_verb_that_is_asked_for_gets_its_options(capsys, monkeypatch):
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


def few_cases(*how: Any) -> list[mk.Case]:
    """Return the cases of a report in tests that do not depend on them."""
    brief: dict[str, Any] = {"elements": 512, "variant": "scalar", "runs": 2}
    gather = mk.gather("UNIFORM:8:1", count=64, threads=1, variant="scalar", runs=2)
    return [mk.stream("copy", **brief), mk.stream("triad", **brief), gather]


@pytest.mark.parametrize("whole", once_a_kind([False, True]))
def test_report_end_to_end(capsys, tmp_path, monkeypatch, whole):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    if not whole:
        monkeypatch.setattr("memkern.report.cases.report_cases", few_cases)
    # No case is left out, even on a busy machine.
    monkeypatch.setattr("memkern.cli.report._QUICK_S", 600.0)
    monkeypatch.setattr("memkern.engine.public.expected_s", lambda cases: 600.0)
    # At the begin, and where the doctor looks.
    set_activity(monkeypatch, [BUSY] * 9)

    def pair_of(frame: pd.DataFrame) -> list[dict[Any, Any]]:
        """Return records of two cases whose ratio no finding has."""
        kernels = ("spatter.gather", "stream.copy")
        return [frame[frame["kernel"].eq(kernel)].iloc[0].to_dict() for kernel in kernels]

    monkeypatch.setattr("memkern.models.memory.contradictions", lambda frame: {"": pair_of(frame)})
    told: list[mk.ResultSet] = []
    monkeypatch.setattr("memkern.cli.report.tell_host", lambda results, quiet: told.append(results))
    monkeypatch.setitem(sys.modules, "memkern._memkern_cuda", None)
    target = tmp_path / "report.html"
    out, _ = output_of(capsys, "report", "--quick", "-q", "-o", str(target), "-t", "1")
    assert len(told) == 1
    html = target.read_text()
    assert "When measuring began, stress (process 77) also ran on this machine" in html
    assert str(target) in out
    assert "<html" in html
    assert "<td>memkern was built without its CUDA part" in html
    frame = mk.load(tmp_path / "report.parquet").to_frame()
    assert frame["valid"].all()
    # Cases that contradict each other are measured again, in turns.
    one, other = (turns_of(record) for record in pair_of(frame))
    assert len(one.keys() & other.keys()) == 1
    kernels = {"spatter.gather", "stream.copy"}
    names = {"Gather and scatter", "Streaming"}
    if whole:
        kernels |= {"spatter.scatter", "bs.bs1"}
        names |= {"PENNANT-G0", "LULESH-S3", "AMG-G1", "NEKBONE-G2"}
    assert set(frame["kernel"]) >= kernels
    assert all(name in html for name in names)


@pytest.mark.usefixtures("without_sections")
def test_records_figures_and_reports_take_a_machine_file(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    records = tmp_path / "x.json"
    words = ["stream", "-k", "triad,copy", "-n", "4096", "-t", "1", "-q", "-o", str(records)]
    _, err = output_of(capsys, *words, "--machine", "A64FX")
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
    out, _ = output_of(capsys, "table", "roofline", str(records), "--machine", "A64FX")
    assert "stream.triad" in out
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
    _, err = output_of(capsys, *atomics, "--machine", "A64FX")
    assert "no roofline by A64FX, published: the record of amo." in err
    target = tmp_path / "report.html"
    monkeypatch.setattr("memkern.report.cases.report_cases", few_cases)
    monkeypatch.setattr("memkern.engine.public.expected_s", lambda cases: 600.0)
    out, err = output_of(
        capsys, "report", "--quick", "-q", "-o", str(target), "-t", "1", "--machine", "A64FX"
    )
    assert "by the machine file A64FX, published" in target.read_text()


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
    _, err = output_of(capsys, *words.split())
    for unused in ("--memsize: 800", "--stride: 7"):
        assert f"amo.ptrchase takes no {unused} is not used" in err


def test_what_is_printed_is_explained(capsys, tmp_path):
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
        out, _ = output_of(capsys, "columns", heading)
        assert out.splitlines()[1].startswith(column)
