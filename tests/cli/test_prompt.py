"""What the command line answers: its verbs, its short options and its help."""

import argparse
import ast
import itertools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from checking import SMALL, measured, output_of, refused_words, run

from memkern import cli
from memkern.backends import PROCESSORS
from memkern.cli import analysis, compare, machine
from memkern.cli.options import GROUPS
from memkern.cli.questions import QUESTIONS
from memkern.formats import ResultSet
from memkern.machine.health import BAD, BASELINE, GOOD, UNKNOWN, Finding
from memkern.results.ratios import asked
from memkern.spec.options import Knobs, declared
from memkern.spec.registry import of_family
from memkern.spec.sweepfile import read_sweep
from memkern.studies.doctor import Health

# The short options of these verbs are Spatter's or CircusTent's.
PEERS = {"spatter", "amo"}


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


# For each verb of earlier versions, a command that is refused, and the end of the refusal.
REFUSED = {
    "barrier": (["--kinds", "x"], "barrier 'x' is not one of omp-passive, omp-active, spin"),
    "counters": (["--check", "x"], "must be QUANTITY=EVENT"),
    "fleet": (["none.db"], "none.db does not exist"),
    "gallery": (["none"], "memkern report gallery none --add RESULTS adds one"),
    "gather": ([], "pattern is missing, and kernel gather needs it"),
    "incore": (["-k", "x"], "kernel 'loops.x' is unknown"),
    "instructions": (["--variant", "simd"], "which chooses the variants: leave it out"),
    "merge": (["-o", "all.txt"], "the following arguments are required: FILE"),
    "scatter": ([], "pattern is missing, and kernel scatter needs it"),
}


@pytest.mark.parametrize("old", cli.ALIASES)
def test_old_verbs_are_those_that_replace_them(old, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    new = cli.ALIASES[old].split()
    assert output_of(capsys, old, "--help") == output_of(capsys, *new, "--help")
    words, sentence = REFUSED[old]
    code, out, err = run(capsys, old, *words)
    hint = f"memkern: `memkern {old}` is `memkern {' '.join(new)}` now\n"
    assert code == 2 and sentence in err
    assert run(capsys, *new, *words) == (code, out, err.removeprefix(hint))


def test_hints_on_old_verbs_are_neither_in_json_nor_quiet(capsys):
    words = ["-p", "UNIFORM:8:4", *SMALL, "--variant", "scalar"]
    code, out, err = run(capsys, "scatter", *words, "--json")
    assert (code, [row["kernel"] for row in json.loads(out)]) == (0, ["spatter.scatter"])
    assert err.startswith("memkern: `memkern scatter` is `memkern spatter -k scatter` now\n")
    assert "is `memkern" not in run(capsys, "scatter", *words, "-q")[2]
    (new,) = measured(capsys, "spatter", "-k", "scatter", *words)
    assert json.loads(out)[0]["case_id"] == new["case_id"]


def test_without_a_verb_the_questions_are_printed(capsys):
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 100
    assert len(QUESTIONS) == 11
    assert all(f"  {question}" in lines and f"      {command}" in lines
               for question, command in QUESTIONS)  # fmt: skip
    assert "`memkern` alone prints the questions" in output_of(capsys, "--help")[0]


@pytest.mark.parametrize("command", [command for _, command in QUESTIONS])
def test_commands_of_questions_are_taken(command):
    program, *words = shlex.split(command)
    assert program == "memkern"
    assert cli.build_parser(words).parse_args(words).verb == words[0]


def test_a_kernel_is_compared_without_a_file(capsys):
    with compare._sweep_file("stream.copy", ["elements=1000", "dtype=float32"]) as path:
        (case,) = read_sweep(path, {})[0]
    assert case.integers["elements"] == 1000 and case.dtype == "float32"
    with compare._sweep_file("x.toml", []) as path:
        assert path == Path("x.toml")
    with compare._sweep_file("gather", ["pattern=UNIFORM:8:1", "count=9"]) as path:
        (case,) = read_sweep(path, {})[0]
    assert case.spec.name == "spatter.gather"
    for words, problem in {
        ("stream.copy", "elements=x"): "--run stream.copy: elements must be an integer, not 'x'",
        ("stream.copy", "a.db"): "leave 'a.db' out",
        ("stream.cpy",): "did you mean stream.copy",
        ("x.toml", "elements=9"): "leave 'elements=9' out",
        ("gather",): "needs pattern, which must follow the kernel, such as --run gather pattern=",
        ("gather", "-p", "UNIFORM:8:1"): "must follow the kernel, such as --run gather pattern=",
    }.items():
        assert problem in refused_words(capsys, "compare", "--run", *words)


def test_sizes_of_a_kernel_are_fitted(capsys):
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
    few = ResultSet(records[:2], [np.empty(0)] * 2, {})
    assert asked([analysis.fit_text], few) == [] and capsys.readouterr().err == ""
    assert analysis.fit_text(few) == ""
    assert "at least 3 points" in capsys.readouterr().err


@pytest.mark.parametrize(
    "state, end",
    [
        (BAD, "is slower than in a.db: see the finding on the baseline"),
        (GOOD, "is not slower than in a.db"),
        (UNKNOWN, "slower than in a.db can't be told: no case was judged"),
    ],
)
def test_a_check_with_a_baseline_ends_with_the_answer(state, end):
    found = Health("fit", (Finding(BASELINE, state, "text"),), ResultSet([], [], {}), 1.0)
    assert machine._answer(found, "a.db").endswith(end)


def test_the_help_lists_every_verb_in_its_group(capsys):
    out, _ = output_of(capsys, "--help")
    _, *parts = out.split("\nto ")
    assert [part.partition(":")[0] for part in parts] == list(GROUPS)
    listed = {
        line.split()[0]: group
        for group, part in zip(GROUPS, parts, strict=True)
        for line in part.splitlines()[1:]
        if line
    }
    assert listed == {n: verb.group for n, verb in cli._verbs().items() if " " not in n}
    assert {*listed.values()} == {*GROUPS}
    assert len(listed) == 31 and len(out.splitlines()) <= 48


def test_the_help_of_a_verb_lists_its_parts(capsys):
    parts = {name: verb.help for name, verb in cli._verbs().items() if " " in name}
    assert len(parts) == 6
    for name, help in parts.items():
        assert f"  memkern {name}: {help}\n" in output_of(capsys, name.split()[0], "--help")[0]
    assert "Parts" not in output_of(capsys, "stream", "--help")[0]


@pytest.mark.parametrize("name", cli._verbs())
def test_help_ends_with_three_examples_that_are_taken(name, capsys):
    examples = cli._verbs()[name].examples
    assert len({*examples}) == 3
    out, _ = output_of(capsys, *name.split(), "--help")
    assert out.endswith("examples:\n" + "".join(f"  {example}\n" for example in examples))
    for example in examples:
        program, *words = itertools.takewhile(lambda word: word != ">", shlex.split(example))
        assert (program, cli._command(words)[0]) == ("memkern", name)
        assert cli._parse(words).verb == name


def described(help: str) -> set[str]:
    """Return the long options that have lines of their own in a help."""
    lines = re.findall(r"^  (-.*?)(?:  |$)", help, re.MULTILINE)
    return {word for line in lines for word in re.findall(r"(?<![\w-])--[\w-]+", line)}


def test_the_usual_help_names_the_options_that_the_whole_help_describes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    further = {
        f"--{(option.flag or name).replace('_', '-')}"
        for name, _, option in declared(Knobs)
        if PROCESSORS not in option.where
    } | {"--comm", "--resume", "--pin", "--seed", "--placements", "--wait-quiet"}
    own = {
        "stream": set[str](), "bs": {"--halo"}, "spmv": {"--halo"},
        "amo": {"--targets", "--remote"}, "spatter": {"--local-work-size", "--aggregate"},
    }  # fmt: skip
    for verb, more in own.items():
        usual, _ = output_of(capsys, verb, "--help")
        whole, _ = output_of(capsys, verb, "--help-all")
        every = set(parsers()[verb]._option_string_actions)
        assert described(whole) == {option for option in every if option.startswith("--")}
        assert not (further | more) & described(usual)
        assert {"--threads", "--output", "--pages", "--quick", "--help-all"} <= described(usual)
        hidden = described(whole) - described(usual) - {"--precision"}  # which --ci names
        assert all(f"{option}," in usual or f"{option}\n" in usual for option in hidden)
    assert len(output_of(capsys, "stream", "--help")[0].splitlines()) < 50
    # The options are there, whether described or not.
    assert cli._parse(["stream", "--timer", "events"]).timer == "events"


@pytest.mark.parametrize("family", ["stream", "raider", "loops"])
def test_the_help_names_the_kernels(family):
    words = parsers()[family].format_help().split()
    names = {word.strip(",") for word in words[words.index("NAME,...") :]}
    assert {name.partition(".")[2] for name in of_family(family) if "@" not in name} <= names


def test_every_option_has_a_text() -> None:
    every = {(verb, a.dest): a.help for verb, parser in parsers().items() for a in parser._actions}
    assert [option for option, help in every.items() if not re.search("[a-z]", help or "")] == []


# Commands in the text of the package: between backquotes, or the whole of a string.
def commands_in_texts() -> dict[str, list[str]]:
    """Return the words of each command by its text; a value that is inserted is a word ``0``."""
    found = {}
    for path in sorted(Path(str(cli.__file__)).parents[1].rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [getattr(part, "value", "0") for part in parts]
            text = "".join(text if isinstance(text, str) else "0" for text in texts)
            for command in re.findall(r"(?:`|^)(memkern [a-z][^`\n]*?)(?:`|$)", text):
                # Options of a command that is an argument are not memkern's.
                words = cli._command(re.sub(r'"[^"]*"', "0", command).split()[1:])
                assert command.split()[1] not in cli.ALIASES, command
                if words[0] in cli._verbs():
                    ended = itertools.takewhile(lambda word: word not in (">", "--"), words)
                    found[command] = list(ended)
    return found


def test_commands_in_texts_exist() -> None:
    known = {verb: set(parser._option_string_actions) for verb, parser in parsers().items()}
    commands = commands_in_texts()
    assert len(commands) > 99
    for command, (verb, *words) in commands.items():
        options = {word.partition("=")[0] for word in words if re.match("--?[a-zA-Z]", word)}
        assert options <= known[verb], command


def test_errors_refer_to_a_help_that_is_printed(capsys):
    of_side = ["compare", "--run", "stream.triad", "--a=--pges 4k"]
    for words in (of_side, ["stream", "--pges"], ["dance"]):
        code, _, err = run(capsys, *words)
        (command,) = re.findall(r"\(see memkern (.*)\)$", err.strip())
        assert code == 2 and output_of(capsys, *command.split())[0].startswith("usage: memkern")
    help = output_of(capsys, "compare", "--help")[0]
    assert "`memkern sweep --help-all`" in " ".join(help.split())
