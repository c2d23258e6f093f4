"""What the command line answers: its verbs, its short options and its help."""

import argparse
import itertools
import shlex
from pathlib import Path

import numpy as np
import pytest
from checking import measured, output_of, refused_words, run

from memkern import cli
from memkern.cli import analysis, compare, machine
from memkern.cli.options import GROUPS
from memkern.cli.questions import QUESTIONS
from memkern.formats import ResultSet
from memkern.machine.health import BAD, BASELINE, GOOD, UNKNOWN, Finding
from memkern.spec.options import PROCESSORS, Knobs, declared
from memkern.spec.sweepfile import read_sweep
from memkern.studies.doctor import Health

SMALL = ["-l", "256", "-t", "1", "-r", "3"]
# The short options of these verbs are Spatter's or CircusTent's.
PEERS = {"spatter", "gather", "scatter", "amo"}


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every verb."""
    (verbs,) = (a.choices for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    return dict(verbs)


def test_a_short_option_has_one_meaning() -> None:
    meanings: dict[str, set[str]] = {}
    for verb, parser in parsers().items():
        for action in parser._actions if verb not in PEERS else ():
            *short, long = action.option_strings or ("",)
            for flag in short:
                meanings.setdefault(flag, set()).add(long)
    # BS6 to BS8 have elements of a mesh.
    assert meanings.pop("-n") == {"--elements", "--entries"}
    assert all(len(long) == 1 for long in meanings.values()), meanings
    assert {"-o", "-q", "-t", "-k", "-p", "-d", "-l"} <= meanings.keys()


@pytest.mark.parametrize("kernel", ["gather", "scatter"])
def test_gather_and_scatter_are_verbs(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-p", "UNIFORM:8:4", *SMALL, "--variant", "scalar"]
    (own,) = measured(capsys, kernel, *words)
    (of_spatter,) = measured(capsys, "spatter", "-k", kernel, *words)
    assert own["kernel"] == f"spatter.{kernel}"
    assert own["case_id"] == of_spatter["case_id"]
    # The kernel is fixed, and options of other kernels are none of the verb's.
    for other in ("-k", "-f", "-g", "-x"):
        code, _, err = run(capsys, kernel, *words, other, "1")
        assert code == 2 and f"unrecognized arguments: {other} 1" in err


def test_without_a_verb_the_questions_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 100
    assert len(QUESTIONS) == 10
    assert all(f"  {question}" in lines and f"      {command}" in lines
               for question, command in QUESTIONS)  # fmt: skip


@pytest.mark.parametrize("command", [command for _, command in QUESTIONS])
def test_commands_of_questions_are_taken(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "memkern"
    assert cli.build_parser(words).parse_args(words).verb == words[0]


def test_a_kernel_is_compared_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with compare._sweep_file("stream.copy", ["elements=1000", "dtype=float32"]) as path:
        (case,) = read_sweep(path, {})[0]
    assert case.integers["elements"] == 1000 and case.dtype == "float32"
    with compare._sweep_file("x.toml", []) as path:
        assert path == Path("x.toml")
    for words, problem in {
        ("stream.copy", "elements=x"): "elements must be an integer, not 'x'",
        ("stream.copy", "a.db"): "leave 'a.db' out",
        ("x.toml", "elements=9"): "leave 'elements=9' out",
    }.items():
        assert problem in refused_words(capsys, "compare", "--run", *words)


def test_sizes_of_a_kernel_are_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [10**k for k in (4, 5, 6, 7)]
    records = [
        {"kernel": "bs.bs1", "bytes_B": size, "time_min_s": 1e-6 + size / 1e10, "valid": True}
        for size in sizes
    ]
    other = {**records[0], "kernel": "bs.bs2"}
    results = ResultSet([*records, other], [np.empty(0)] * 5, {})
    header, fit = analysis.fit_text(results).splitlines()
    assert "T0" in header and "Wmax" in header
    assert fit.split()[0] == "bs.bs1" and "10" in fit.split()
    assert analysis.fit_text(ResultSet([records[0], other], [np.empty(0)] * 2, {})) == ""
    assert analysis.fit_text(ResultSet(records[:2], [np.empty(0)] * 2, {})) == ""
    assert "at least 3 points" in capsys.readouterr().err


@pytest.mark.parametrize(
    "state, end",
    [
        (BAD, "is slower than in a.db: see the finding on the baseline"),
        (GOOD, "is not slower than in a.db"),
        (UNKNOWN, "slower than in a.db can't be told: no case was judged"),
    ],
)
def test_a_check_with_a_baseline_ends_with_the_answer(state: str, end: str) -> None:
    found = Health("fit", (Finding(BASELINE, state, "text"),), ResultSet([], [], {}), 1.0)
    assert machine._answer(found, "a.db").endswith(end)


def test_the_help_lists_every_verb_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = output_of(capsys, "--help")
    _, *parts = out.split("\nto ")
    assert [part.partition(":")[0] for part in parts] == list(GROUPS)
    listed = {
        line.split()[0]: group
        for group, part in zip(GROUPS, parts, strict=True)
        for line in part.splitlines()[1:]
        if line
    }
    assert listed == {name: verb.group for name, verb in cli._verbs().items()}
    assert {*listed.values()} == {*GROUPS}


@pytest.mark.parametrize("name", cli._verbs())
def test_help_ends_with_three_examples_that_are_taken(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = cli._verbs()[name].examples
    assert len({*examples}) == 3
    out, _ = output_of(capsys, name, "--help")
    assert out.endswith("examples:\n" + "".join(f"  {example}\n" for example in examples))
    for example in examples:
        program, *words = itertools.takewhile(lambda word: word != ">", shlex.split(example))
        assert (program, words[0]) == ("memkern", name)
        assert cli._parse(words).verb == name


def test_options_for_gpus_and_ranks_are_in_the_whole_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    elsewhere = {
        f"--{(option.flag or name).replace('_', '-')}"
        for name, _, option in declared(Knobs)
        if PROCESSORS not in option.where
    }
    own = {
        "bs": {"--halo"}, "spmv": {"--halo"}, "amo": {"--targets", "--remote"},
        "gather": {"--shared-memory", "--local-work-size"},
    }  # fmt: skip
    for verb, more in {"stream": set[str](), **own}.items():
        hidden = elsewhere | more | {"--comm"}
        _, usual, _ = run(capsys, verb, "--help")
        _, whole, _ = run(capsys, verb, "--help-all")
        assert [option for option in hidden if f" {option}" in usual] == []
        assert [option for option in hidden if f" {option}" not in whole] == []
        assert "--threads" in usual and "--threads" in whole
        told = [line for line in usual.splitlines() if line.startswith("  --help-all")]
        assert told == ["  --help-all            this help with the options for GPUs and ranks"]
    # The options are there, whether shown or not.
    assert cli._parse(["stream", "--timer", "events"]).timer == "events"


def test_the_help_tells_that_own_code_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(run(capsys, "compare", "--help")[1].split())
    assert "gates builds and options of memkern, not other programs" in words
    assert "`memkern corun`" in words
    text = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text()
    own = text.partition("## Own code")[2].partition("## ")[0]
    assert "memkern corun" in own and "--fail-on slower:5" in own
