"""Each fault of faults.py has one place, and tests that `make test` runs."""

import ast
import re
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


def test_a_place_is_in_one_file(tmp_path):
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "a.py").write_text("one = 1\ntwo = 2\n")
    for wrong in (Fault("", "three", "", ""), Fault("", " = ", "", "")):
        with pytest.raises(SystemExit, match=r"in [02] places"):
            mutations.place(wrong, mutations.sources(tmp_path))
