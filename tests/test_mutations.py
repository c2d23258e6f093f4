"""Each fault of faults.py has one place and tests of `make test`; runs of all tests resume."""

import ast
import re
import shutil
import sys
from pathlib import Path

import mutations
import pytest
from faults import FAULTS, Fault
from mutations import ROOT


def test_every_fault_has_one_place():
    mutations.check_places()
    for fault in FAULTS:
        assert fault.before != fault.after, fault.what


def run_by_default(file: Path) -> list[str]:
    """Names of a file's test functions that run without an option of pytest."""
    marks = ("pytest.mark.release", "pytest.mark.cluster")
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node).startswith("pytestmark ="):
            if any(mark in ast.unparse(node.value) for mark in marks):
                return []
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            decorators = map(ast.unparse, node.decorator_list)
            if not any(decorator.startswith(marks) for decorator in decorators):
                found.append(node.name)
    return found


def selects(expression: str, name: str) -> bool:
    """Whether an option -k selects a test; words with a point are parameters, and count as true."""

    def value(word: re.Match[str]) -> str:
        if word[0] in ("and", "or", "not"):
            return word[0]
        return str("." in word[0] or word[0].lower() in name.lower())

    return bool(eval(re.sub(r"[\w.]+", value, expression)))


def test_every_fault_names_tests_that_make_test_runs():
    programs = {path.stem for path in (ROOT / "tests" / "cpp").glob("*_test.cpp")}
    for fault in FAULTS:
        assert fault.programs or fault.python, fault.what
        assert programs.issuperset(fault.programs), fault.what
        files = [word for word in fault.python if word.startswith("test_")]
        assert fault.python in (files, [*files, "-k", *fault.python[-1:]]), fault.what
        for name in files:
            tests = run_by_default(mutations.file_of_tests(ROOT, name))
            expression = fault.python[-1] if "-k" in fault.python else "test"
            assert any(selects(expression, test) for test in tests), (fault.what, name)


FAKE = (
    Fault("one for two", "one = 1", "one = 2", ""),
    Fault("three for two", "two = 2", "two = 3", "", within="two"),
)
# Fails with the first of these faults, and counts its calls.
COMMAND = """
from pathlib import Path
with open("calls", "a") as out:
    print("call", file=out)
if "one = 2" in Path("python/a.py").read_text():
    print("failed: tests.a.test_a")
    raise SystemExit(1)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "a.py").write_text("one = 1\ntwo = 2\n")
    return tmp_path


def test_a_run_with_all_tests_goes_on_where_it_ended(tree):
    state, command = tree / "state", [sys.executable, "-c", COMMAND]

    def missed(drawn: tuple[Fault, ...], seed: int = 1) -> list[str]:
        return [f.what for f in mutations.try_with_all_tests(tree, drawn, seed, state, command)]

    assert missed(FAKE[:1]) == []
    assert (tree / "calls").read_text().count("call") == 2
    assert missed(FAKE) == ["three for two"]
    assert missed(FAKE) == ["three for two"]
    assert (tree / "calls").read_text().count("call") == 3
    lines = state.read_text().splitlines()
    assert len(lines) == 3
    assert '"failing": ["tests.a.test_a"]' in lines[1]
    assert (tree / "python" / "a.py").read_text() == "one = 1\ntwo = 2\n"
    assert missed(FAKE, seed=2) == ["three for two"]
    assert len(state.read_text().splitlines()) == 6


# Simulates a stage of `make test` that fails before other stages, and writes a JUnit file.
STAGES = """
import time
from pathlib import Path
folder = Path("build/tests")
folder.mkdir(parents=True, exist_ok=True)
case = "<testcase classname='tests.a' name='test_a' time='1'><failure/></testcase>"
(folder / "python.xml").write_text(f"<testsuite>{case}</testsuite>")
columns = "stage,wall_s,processor_s,stolen_s,others_s,exit_status"
(folder / "stages.csv").write_text(columns + "\\nC++,1,1,0,0,0\\nPython,1,1,0,0,1\\n")
time.sleep(600)
"""


def test_a_run_with_all_tests_ends_with_the_first_stage_that_fails(tree):
    (tree / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "stages.py", tree / "tools")
    assert mutations.failures(tree, [sys.executable, "-c", STAGES]) == ["tests.a.test_a"]


def test_a_run_with_all_tests_needs_tests_that_pass(tree):
    (tree / "python" / "a.py").write_text("one = 2\n")
    with pytest.raises(SystemExit, match=r"without any fault: tests\.a\.test_a"):
        mutations.try_with_all_tests(tree, (), 1, None, [sys.executable, "-c", COMMAND])
    with pytest.raises(SystemExit, match="without a test that does"):
        mutations.failures(tree, ["false"])


def test_a_place_is_in_one_file(tree):
    for wrong in (Fault("", "three", "", ""), Fault("", " = ", "", "")):
        with pytest.raises(SystemExit, match=r"in [02] places"):
            mutations.place(wrong, mutations.sources(tree))
