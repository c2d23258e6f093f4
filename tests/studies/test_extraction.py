"""Patterns of gathers and scatters in traces of programs."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from checking import once_a_kind, output_of
from launching import OPEN_MPI, launcher
from sharing import once
from traced import ARRAYS, COMPILERS, kernels, traced

from memkern import _memkern
from memkern.inputs.spatter_files import read_json
from memkern.studies.extraction import extract, write_suite

TRACED = Path(__file__).parent / "traced"

# What kernels.c does: function, kernel, arrays, deltas, instances and class.
KERNELS = [
    ("gather", "gather", "gathered", [5], 200, "complex"),
    ("gather", "gather", "uniform", [8], 100, "uniform"),
    ("gather", "gather", "mostly", [2], 80, "mostly stride-1"),
    ("mirrored", "gather", "mirrored", [7], 70, "complex"),
    ("scatter", "scatter", "scattered", [3], 150, "mostly stride-1"),
    ("gs", "gs", "in out", [10, 6], 90, "complex"),
    ("multigather", "multigather", "outer inner", [2], 120, "complex"),
    ("multigather", "gather", "inner", [0], 120, "complex"),
    ("cyclic", "gather", "repeated", [14], 100, "complex"),
    ("product", "gather", "columns", [0], 3, "complex"),
]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_kernels_have_their_patterns(compiler, tmp_path_factory):
    cycle = [index + base for base in (0, 4, 4 + 9) for index in ARRAYS["cyclic"]]
    mirrored = [max(ARRAYS["gathered"]) - index for index in ARRAYS["gathered"]]
    arrays = {**ARRAYS, "repeated": cycle, "mirrored": mirrored}
    found = [
        (
            one.function,
            one.kernel,
            [indices.tolist() for indices in one.patterns.values()],
            [*one.deltas.values()],
            one.count,
            one.access_class,
        )
        for one in extract([kernels(tmp_path_factory, compiler)]).patterns
    ]
    wanted = [
        (function, kernel, [arrays[name] for name in names.split()], *others)
        for function, kernel, names, *others in KERNELS
    ]
    assert sorted(found) == sorted(wanted)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return what the trace of our own kernels has."""
    return extract([kernels(tmp_path_factory, COMPILERS[0])])


def test_totals_are_those_of_the_program(found):
    assert found.recorded == found.accesses
    assert found.atomics == (0, 0, 0)
    first = next(one for one in found.patterns if one.function == "product")
    assert (first.place, first.size_B) == ("kernels.c:49", 8)
    assert first.accesses == 3 * len(ARRAYS["columns"])
    assert first.bytes_B == 8 * first.accesses
    assert first.share == first.bytes_B / found.bytes_B
    # Elements of the others are accessed once, or again in the next sweep.
    assert {one.reuse for one in found.patterns if one.deltas != {"delta": 0}} == {np.inf}
    assert first.reuse < 1000
    assert [one.bytes_B for one in found.patterns] == sorted(
        (one.bytes_B for one in found.patterns), reverse=True
    )


def test_a_suite_has_the_patterns_with_their_weights(found, tmp_path, capsys):
    path = tmp_path / "suite.json"
    path.write_bytes(write_suite(found, {}))
    suite = read_json(path)
    assert suite.warnings == []
    for config, one in zip(suite.configs, found.patterns, strict=True):
        assert (config["kernel"], config["count"]) == (one.kernel, one.count)
        for key, indices in one.patterns.items():
            assert config[key.replace("-", "_")].indices.tolist() == indices.tolist()
    assert len(suite.weights) == len(found.patterns)
    assert [*suite.weights.values()] == [one.share for one in found.patterns]
    out, _ = output_of(capsys, "spatter", "-f", str(path), "-t", "1", "-r", "1")
    share = sum(one.share for one in found.patterns)
    assert f"the patterns together, {share:.0%} of the application's bytes" in out


def test_equal_patterns_are_one_with_their_weights_together(found):
    one = found.patterns[0]
    twice = found._replace(patterns=[one, dataclasses.replace(one, place="elsewhere.c:1")])
    (config,) = json.loads(write_suite(twice, {}))
    assert config["name"] == f"{one.place} {one.function}"
    assert config["weight"] == 2 * one.share


def test_patterns_of_traces_are_joined(tmp_path_factory, tmp_path, capsys):
    trace = kernels(tmp_path_factory, COMPILERS[0])
    (tmp_path / "other").mkdir()
    traces = [
        shutil.copy(trace, tmp_path / name) for name in ("a.trace", "b.trace", "other/a.trace")
    ]
    one, all_ = extract([trace]), extract(traces)
    assert all_.bytes_B == 3 * one.bytes_B
    for single, joined in zip(one.patterns, all_.patterns, strict=True):
        assert joined.count == 3 * single.count
        assert len(joined.files) == 3
        assert joined.share == pytest.approx(single.share)
        assert joined.correlation == 1
    # A part of all bytes is that of the joined pattern.
    least = sorted(one.share for one in all_.patterns)[-2]
    assert len(extract(traces, least).patterns) == 2
    rows = json.loads(output_of(capsys, "patterns", *map(str, traces), "--json")[0])
    assert [row["files"] for row in rows] == [3] * len(all_.patterns)


PROGRAMS = Path(__file__).parent / "programs"
# Their sizes.
SIZES = {
    "bfs.c": 3000,
    "bitreverse.f90": 8192,
    "hashjoin.c": 3000,
    "histogram.c": 11_000,
    "lookup.c": 10_000,
    "lulesh.c": 10,
    "push.c": 36,
    "spmv_hpcg.c": 12,
    "trisolve.c": 1000,
    "unstructured.f90": 65,
}
# Loads whose index is not loaded, but follows the one before.
NOT_COUNTED = {"bfs.c": "const int w = neighbour[k];"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return what each program prints, its patterns, and accesses by thread of the indirect ones.

    They are built and traced by one command, since each has a trace of its own.
    """

    def make():
        folder = tmp_path_factory.mktemp("programs")
        names = [name for name in SIZES if name.endswith(".c") or shutil.which("gfortran")]
        build, commands = [], []
        for name in names:
            shutil.copy(PROGRAMS / name, folder)
            compiler = "gfortran" if name.endswith(".f90") else "gcc -std=gnu11"
            build.append(f"{compiler} -O2 -fopenmp {name} -o {name}.app")
            commands.append(f"OMP_NUM_THREADS=2 ./{name}.app {SIZES[name]} >>{folder}/told")
        traces = traced(folder, " && ".join(commands), build=" && ".join(build)).files
        lines = (folder / "told").read_text().splitlines()
        told = dict(zip(names, map(json.loads, lines), strict=True))
        patterns = {}
        for trace in traces:
            patterns[re.search(r"(\w+\.\w+)\.app\n", _memkern.Trace(str(trace)).head)[1]] = (
                extract([trace])._replace(sites=[]),
                [site["threads"] for site in _memkern.Trace(str(trace)).sites()],
            )
        return {name: (told[name], *patterns[name]) for name in names}

    return once(tmp_path_factory, "programs", make)


@pytest.mark.parametrize("name", SIZES)
def test_indirect_accesses_of_programs_are_found(programs, name):
    if name not in programs:
        pytest.skip("gfortran is not installed (tools/install-system-packages.sh --test)")
    told, found, _ = programs[name]
    lines = (PROGRAMS / name).read_text().splitlines()
    bytes_B = 0
    for one in found.patterns:
        source, line = one.place.split(":")
        assert source == name
        if "kernel" in one.function and lines[int(line) - 1].strip() != NOT_COUNTED.get(name):
            bytes_B += one.bytes_B
    assert bytes_B == pytest.approx(told["indirect_B"], rel=0.05)


def test_accesses_of_all_threads_are_counted(programs):
    told, found, threads = programs["histogram.c"]
    assert sum(one.bytes_B for one in found.patterns) == told["indirect_B"]
    half = told["indirect_B"] // 8 // 4
    # Load and store of a bin, and the load of the bin's number.
    assert threads.count([half, half]) == 3


@pytest.fixture(scope="module")
def updates(tmp_path_factory):
    """Return the trace of two threads that change the same memory."""

    def make():
        folder = tmp_path_factory.mktemp("updates")
        shutil.copy(TRACED / "updates.c", folder)
        build = f"{COMPILERS[0]} -O2 -fopenmp updates.c -o updates"
        return traced(folder, "./updates >/dev/null", build=build).files[0]

    return once(tmp_path_factory, "updates", make)


def test_atomic_accesses_are_counted_with_their_lines(updates, capsys):
    found = extract([updates])
    # Two words by 500 additions, and 300 bins twice, by two threads each. There is a line of each
    # thread, one of both, and 128 / 8 of bins.
    assert found.atomics == (2 * (2 * 500 + 2 * 300), 2 + 1 + 16, 1 + 16)
    (bins,) = (one for one in found.patterns if one.function == "bins")
    assert (bins.kernel, bins.atomic, bins.accesses) == ("scatter", True, 2 * 2 * 300)
    assert bins.patterns["pattern"].tolist() == [k * k * 37 % 127 for k in range(300)]
    out, _ = output_of(capsys, "patterns", str(updates))
    assert out.splitlines()[-1] == "3200 atomic accesses to 19 lines, 17 of several threads"
    assert re.search(r"updates.c:\d+ bins atomic\n", out)


def test_structures_are_elements_and_copies_are_regular(updates):
    found = extract([updates])
    assert {one.function for one in found.patterns} == {"bins", "items"}
    (items,) = (one for one in found.patterns if one.function == "items")
    assert (items.kernel, items.size_B, items.count) == ("gather", 64, 4)
    assert items.patterns["pattern"].tolist() == [k * k * 37 % 127 for k in range(300)]
    assert not items.atomic


@pytest.mark.ranks
@pytest.mark.parametrize("kind", once_a_kind(["openmpi", "mpich"]))
def test_patterns_of_ranks_are_joined_if_they_correlate(kind, tmp_path, monkeypatch):
    words, _ = launcher(kind, tmp_path)
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    shutil.copy(TRACED / "ranks.c", tmp_path)
    files = traced(
        tmp_path, f"{' '.join(words)} -n 2 ./ranks", build=f"{COMPILERS[0]} -O2 ranks.c -o ranks"
    ).files
    assert [file.name for file in files] == ["app.trace.0", "app.trace.1"]
    same = np.arange(500) ** 2 * 37 % 997
    some = np.where(np.arange(500) % 100 == 0, 996 - same, same)
    found = {}
    for one in extract(files).patterns:
        found.setdefault(one.function, []).append((len(one.files), one.count, one.correlation))
    assert found == {
        "equal": [(2, 2, 1.0)],
        "similar": [(2, 2, pytest.approx(np.corrcoef(same, some)[0, 1]))],
        "different": [(1, 1, 1.0)] * 2,
    }
