"""Traces of programs: how they are built, and what files are written."""

import functools
import json
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from checking import (
    executable,
    output_of,
    refusal,
    refused_words,
    run,
    tree,
    unless_refused,
)
from traced import COMPILERS, HEAD_B, LOADS, PART_B, kernels, traced

from memkern.inputs.traces import READ, WRITE
from memkern.instrumented import compiler, versions
from memkern.studies.extraction import Sites, extract, write_suite
from memkern.studies.tracing import trace

FLAGS = ["-g", "-fsanitize=thread"]
LINKED = ["-L/hooks", "-Wl,-rpath,/hooks", "-lhooks", "-Wl,--wrap=memcpy"]


@pytest.fixture
def commands(monkeypatch):
    """Return a function that returns the commands that replace a command of gcc."""
    monkeypatch.setenv("MEMKERN_HOOKS_FOLDER", "/hooks")
    monkeypatch.setenv("MEMKERN_HOOKS_LINKED", " ".join(LINKED[2:]))
    monkeypatch.setenv("MEMKERN_HOOKS_GCC", " ".join(FLAGS))
    monkeypatch.setenv("MEMKERN_HOOKS_SOURCES", "solver*:src/a.c")

    def commands(words):
        all_ = compiler.commands("gcc", words.split(), "/made")
        assert {command[0] for command in all_} == {"gcc"}
        return [command[1:] for command in all_]

    return commands


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("-O2 -c solver.c -o x.o", ["-O2 -c solver.c -o x.o FLAGS"]),
        ("-c src/a.c", ["-c src/a.c FLAGS"]),
        # Another source.
        ("-c sub/a.c", ["-c sub/a.c"]),
        # Neither compiles nor links.
        ("-E solver.c", ["-E solver.c"]),
        ("--version", ["--version"]),
        ("-MM -MF solver.d solver.c", ["-MM -MF solver.d solver.c"]),
        ("x.o lib.a -o app -lm", ["x.o lib.a -o app -lm LINKED"]),
        ("-shared x.o -o libx.so", ["-shared x.o -o libx.so LINKED"]),
        ("main.c -o solver.c", ["main.c -o solver.c LINKED"]),
        # Compiles and links: what is for one of both remains there.
        ("solver.c", ["-c solver.c -o /made/0.o FLAGS", "/made/0.o LINKED"]),
        (
            "-I inc -L lib -DX solver1.f90 main.c x.o solver2.c -o app -l m -Wl,-z,now -fopenmp",
            [
                "-I inc -DX -fopenmp -c solver1.f90 -o /made/0.o FLAGS",
                "-I inc -DX -fopenmp -c solver2.c -o /made/1.o FLAGS",
                "-I inc -L lib -DX /made/0.o main.c x.o /made/1.o -o app -l m -Wl,-z,now -fopenmp "
                "LINKED",
            ],
        ),
        (
            "-Xlinker --gc-sections -z now -fopenmp solver.c",
            [
                "-fopenmp -c solver.c -o /made/0.o FLAGS",
                "-Xlinker --gc-sections -z now -fopenmp /made/0.o LINKED",
            ],
        ),
    ],
)
def test_commands_get_flags_for_chosen_sources_and_the_library(commands, words, wanted):
    filled = [
        one.replace("FLAGS", " ".join(FLAGS)).replace("LINKED", " ".join(LINKED)) for one in wanted
    ]
    assert [" ".join(command) for command in commands(words)] == filled


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-flto -c a.c", "link-time optimisation (-flto)"),
        ("-flto=auto a.o", "link-time optimisation (-flto)"),
        ("-static a.o", "a static program (-static) can't be traced"),
        ("-fsanitize=address a.c", "the build has a sanitizer (-fsanitize)"),
        ("-flto -fno-lto -static-libgcc -fno-sanitize=all a.c", ""),
    ],
)
def test_builds_that_hide_accesses_are_refused(words, says):
    why = compiler.refusal(words.split())
    assert says in why
    assert bool(why) == bool(says)


# A program of which some sources are traced, with a library, built by make. Of the files that the
# folder has already, make would use the newer ones.
PROJECT = {
    "Makefile": """
main: main.o other.o liblooped.so
	$(CC) -O2 main.o other.o -L. -llooped -Wl,-rpath,'$$ORIGIN' -o main
liblooped.so: sub/looped.c
	$(CC) -O2 -fPIC -shared sub/looped.c -o liblooped.so
%.o: %.c
	$(CC) -O2 -c $< -o $@
CC = gcc
""",
    "main.c": """
#include <stdio.h>
#include "sizes.h"
double looped(const double *), other(const double *);
double array[SIZE];
int main(void) {
  FILE *file = fopen("data.txt", "r");
  for (int k = 0; k < SIZE; ++k) array[k] = fgetc(file);
  printf("%g %g\\n", looped(array), other(array));
}
""",
    "other.c": """
#include "sizes.h"
double other(const double *from) {
  double sum = 0;
  for (int k = 0; k < SIZE; ++k) sum += from[k];
  return sum;
}
""",
    "sub/looped.c": """
#include "../sizes.h"
double looped(const double *from) {
  double sum = 0;
  for (int k = 0; k < SIZE; ++k) sum += from[SIZE - 1 - k];
  return sum;
}
""",
    "sizes.h": "enum { SIZE = 200 };\n",
    "data.txt": "x" * 200,
    # Programs, libraries and objects of ELF.
    "main": b"\x7fELF" + bytes(12) + b"\x03\0",
    "main.o": b"\x7fELF" + bytes(12) + b"\x01\0",
    ".git/HEAD": "",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Make the current folder one that has a program, with a space in its name."""
    folder = tree(tmp_path / "a program", PROJECT)
    monkeypatch.chdir(folder)
    return folder


def test_a_program_is_built_in_a_copy_and_chosen_sources_are_traced(project, capfd):
    output_of(capfd, "trace", "--sources", "main.c,sub/*", "--build", "make -s", "--", "./main")
    assert {path.name for path in project.iterdir()} == {
        *(name.split("/")[0] for name in PROJECT), "main.trace"
    }  # fmt: skip
    assert (project / "main").read_bytes() == PROJECT["main"]
    trace = Sites(Path("main.trace"))
    found = {
        trace.place(k): (site["how"], site["deltas"])
        for k, site in enumerate(trace.sites)
        if site["count"] == 200
    }
    assert found == {
        ("main.c:8", "main"): (WRITE, {8: 199}),
        ("sub/looped.c:5", "looped"): (READ, {-8: 199}),
    }
    assert trace.recorded < 2 * 200 + 10
    found = extract(["main.trace"])
    assert found.patterns == []
    assert "no indirect accesses" in refusal(write_suite, found, {})


def test_a_build_that_is_refused_fails(project, capfd):
    build = f"{COMPILERS[0]} -O2 -flto main.c -o main"
    code, out, err = run(capfd, "trace", "--build", build, "--", "./main")
    assert (code, out) == (2, "")
    first, last = err.splitlines()
    assert first.startswith(f"memkern: {COMPILERS[0]}: link-time optimisation")
    assert last == f"memkern: `{build}` failed with exit code 2"


@pytest.fixture
def without_library(tmp_path, monkeypatch):
    """Let the compiler make nothing, which takes long; return its path."""
    path = executable(tmp_path / "bin" / "cc", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-- ./missing 5", "./missing can't be started: No such file or directory"),
        ("-- ./data.txt", "./data.txt can't be started: Permission denied"),
        ("--build 'exit 3' -- true", "`exit 3` failed with exit code 3"),
        ("-- sh -c 'exit 0'", "no traced code ran in `sh -c 'exit 0'`"),
        ("-o there/x.trace -- true", "there/x.trace can't be written"),
        ("--most 5x -- true", "--most"),
    ],
)
def test_programs_without_a_trace_are_sentences(project, without_library, capsys, words, says):
    assert says in refused_words(capsys, "trace", *shlex.split(words))
    assert {path.name for path in project.iterdir()} == {name.split("/")[0] for name in PROJECT}


def test_a_library_that_can_not_be_compiled_is_a_sentence(project, without_library, monkeypatch):
    executable(Path(without_library), "echo broken >&2; exit 1")
    assert refusal(trace, ["true"], "x.trace") == "cc can't compile traced.c: broken"
    executable(Path(without_library), "exit 1")
    assert refusal(trace, ["true"], "x.trace").startswith("cc can't compile traced.c")
    monkeypatch.setenv("PATH", str(project))
    assert "there is no compiler of C on PATH" in refusal(trace, ["true"], "x.trace")


def test_files_that_exist_are_kept(project, without_library, tmp_path):
    for name in ("x.trace", "y.trace.0", "y.trace.txt"):
        (project / name).touch()
    assert "x.trace exists already" in refusal(trace, ["true"], "x.trace")
    assert "y.trace.0 exists already" in refusal(trace, ["true"], "y.trace")
    # Those of ranks are replaced with the others.
    assert "no traced code" in refusal(trace, ["true"], "y.trace", force=True)
    assert not (project / "y.trace.0").exists()
    assert (project / "y.trace.txt").exists()
    assert f"{tmp_path} exists" in refusal(trace, ["true"], "new", folder=tmp_path)
    assert "sub/copy" in refusal(trace, ["true"], "new", folder="sub/copy")
    assert not (project / "sub/copy").exists()
    kept = tmp_path / "kept"
    assert "no traced code" in refusal(trace, ["true"], "new", folder=kept)
    assert (kept / "sub/looped.c").read_text() == PROJECT["sub/looped.c"]
    assert not (kept / "main").exists()
    assert not (kept / ".git").exists()


@pytest.fixture(scope="module")
def loads(tmp_path_factory):
    """Return a function that traces a command in a folder with a program that loads."""
    folder = tree(tmp_path_factory.mktemp("loads"), {"loads.c": LOADS})
    return functools.partial(traced, folder, build=f"{COMPILERS[0]} -O2 loads.c -o loads")


def test_a_killed_program_leaves_its_accesses(loads):
    with pytest.warns(UserWarning, match="ended with exit code -9; its trace was kept"):
        done = loads("exec ./loads 5000 3000 killed >/dev/null")
    assert done.code == -9
    found = extract(done.files)
    assert found.recorded == found.accesses == 5000 + 3000 + 2
    (one,) = found.patterns
    wanted = np.arange(5000) ** 2 * 37 % 65521
    assert one.patterns["pattern"].tolist() == wanted.tolist()


def test_a_trace_of_limited_size_stands_for_the_whole_run(loads):
    runs = [(150_000, 2_400_000), (0, 2_400_000), (3_500_000, 0)]
    words = " && ".join(f"./loads {irregular} {regular} >/dev/null" for irregular, regular in runs)
    files = loads(words, "small.trace", most_B=2**20, force=True).files
    all_ = [extract([file]) for file in files]
    assert sorted(found.accesses for found in all_) == pytest.approx(
        sorted(map(sum, runs)), rel=0.01
    )
    # Regular accesses need next to nothing.
    assert sorted(found.recorded < found.accesses for found in all_) == [False, True, True]
    # The head and the text are not counted.
    assert max(file.stat().st_size for file in files) < HEAD_B + 2**20 + PART_B


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls are sampled on x86-64 only")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_both_versions_of_a_program_share_its_state(compiler, tmp_path):
    for name in ("states.c", "states.cc"):
        shutil.copy(Path(__file__).parent / "traced" / name, tmp_path)
    plus, flags = {
        "gcc": ("g++", "-O2 -fPIC -ffunction-sections"), "clang": ("clang++", "-O0")
    }[compiler]  # fmt: skip
    # Compiled in a step of its own, and together with linking.
    build = (
        f"{compiler} {flags} -MD -MT states.o -MF states.d -c states.c && "
        f"{plus} {flags} states.o states.cc -o app"
    )
    subprocess.run(f"{build} && ./app >plain", shell=True, cwd=tmp_path, check=True)
    output = tmp_path / "told"
    (file,) = traced(tmp_path, f"./app >{output}", build=build, sampled=8).files
    assert output.read_text() == (tmp_path / "plain").read_text()
    found = extract([file])
    # 5000 times 300 and 100 elements, and as many as there are of states.cc.
    for line, bytes_B in (("sum += table[x[i]]", 5000 * 400 * 4), ("v[x[i]]", 5000 * 200 * 8)):
        places = {
            f"{name}:{number}"
            for name in ("states.c", "states.cc")
            for number, text in enumerate((tmp_path / name).read_text().splitlines(), 1)
            if line in text
        }
        most = max(one.bytes_B for one in found.patterns if one.place in places)
        assert most == pytest.approx(bytes_B, rel=0.2)
    assert found.recorded < found.accesses / 4


def test_versions_with_other_variables_are_refused():
    plain = "\t.local\tone.0\n\t.comm\tone.0,4,4\n"
    with pytest.raises(ValueError, match=r"differ in two\.1"):
        versions.rewritten(plain, plain.replace("one.0", "two.1") + plain, "word")


def test_calls_are_not_sampled_on_other_processors(project, without_library, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "on x86-64 only, not on riscv64" in refusal(trace, ["true"], "new", sampled=2)


@pytest.fixture(scope="module")
def trace_of_kernels(tmp_path_factory):
    """Return a trace as bytes: the head, a part of 256 KiB, and text."""
    data = kernels(tmp_path_factory, COMPILERS[0]).read_bytes()
    assert HEAD_B + PART_B + 16 < len(data) < HEAD_B + 2 * PART_B
    return data


def test_a_trace_without_its_text_has_places_as_numbers(trace_of_kernels, tmp_path):
    path = tmp_path / "cut.trace"
    path.write_bytes(trace_of_kernels[: HEAD_B + PART_B])
    places = [one.place for one in extract([path]).patterns]
    # Without a line, a gather and a scatter are not one copy.
    assert len(places) == 10 + 1
    assert all(place.startswith("0x") for place in places)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "is no trace: neither of `memkern trace`, lackey"),
        (lambda data: b"data of something else\n" * 100, "is no trace"),
        (lambda data: data[:8] + b"trace 2\n" + data[16:], "is no trace"),
        (lambda data: data[: HEAD_B - 1], "is not a trace of memkern: it is too short"),
        (lambda data: data[: HEAD_B + 100], f"is cut off after {HEAD_B + 100} bytes"),
        (lambda data: data[: HEAD_B + PART_B + 4], "is cut off after"),
        (lambda data: data[:-50], "is damaged"),
        (lambda data: data[:-50] + b"\xff" * 50, "is damaged"),
        (lambda data: data[: HEAD_B + PART_B + 16] + b"[1, 2]", "is damaged"),
        (
            lambda data: data[: HEAD_B + 7] + b"\x7f" + data[HEAD_B + 8 :],
            f"is damaged: byte {HEAD_B} is no thread",
        ),
    ],
)
def test_other_and_damaged_files_are_sentences(trace_of_kernels, tmp_path, damage, says):
    path = tmp_path / "x.trace"
    path.write_bytes(damage(trace_of_kernels))
    assert f"{path} {says}" in refusal(extract, [path])


def test_of_damaged_bytes_there_are_patterns_or_a_sentence(trace_of_kernels, tmp_path):
    random = np.random.default_rng(1)
    path = tmp_path / "x.trace"
    used = len(trace_of_kernels[: HEAD_B + PART_B].rstrip(b"\0"))
    results = []
    for turn in range(60):
        data = bytearray(trace_of_kernels)
        # Of events, or of the text.
        first, end = (HEAD_B + 16, used) if turn % 4 else (HEAD_B + PART_B + 16, len(data))
        if turn % 2:
            end = first + 300
        for place in random.integers(first, end, 3):
            data[place] ^= random.integers(1, 256)
        path.write_bytes(data)
        results.append(unless_refused(extract, [path]))
    # Some are refused, and some are not.
    assert None in results
    assert any(results)


def test_patterns_are_printed_and_written(trace_of_kernels, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x.trace").write_bytes(trace_of_kernels)
    out, _ = output_of(capsys, "patterns", "x.trace", "-o", "suite.json")
    lines = out.splitlines()
    assert len(lines) == 1 + 10 + 1
    assert lines[1].split()[2:] == [
        "gather", "complex", "901", "0", "3", "605", "kernels.c:49", "product"
    ]  # fmt: skip
    gathers = 270 * 6 + 180 * 8 + 90 * 4 + 2 * 120 * 6 + 300 * 3 + 3 * 901
    assert lines[-1].startswith(f"{gathers} gathers, {150 * 4 + 90 * 4} scatters, ")
    assert len(json.loads(Path("suite.json").read_text())) == 10
    assert "suite.json exists already" in refused_words(
        capsys, "patterns", "x.trace", "-o", "suite.json"
    )
    out, _ = output_of(capsys, "patterns", "x.trace", "--least", "4")
    assert len(out.splitlines()) == 1 + 2 + 1
    assert "does not exist" in refused_words(capsys, "patterns", "missing.trace")
