"""Rules that keep the tree small: long files, complex functions, tests on their own."""

import ast
import re
from collections import Counter

from size_of_tree import CPP, LONG, ROOT, lines

FOLDERS = ("bench", "cpp", "docs", "examples", "python", "tests", "tools")


def test_few_files_are_long_and_named_with_a_reason():
    every = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*")]
    sources = [p for p in every if p.suffix in (".py", *CPP)]
    assert len(sources) > 500
    long = [str(p.relative_to(ROOT)) for p in sources if lines(p.read_text()) > LONG]
    rules = (ROOT / "CONTRIBUTING.md").read_text()
    table = rules.partition(f"have more than {LONG} lines")[2].partition("\n\n`")[0]
    assert sorted(long) == sorted(re.findall(r"^\| `(.+?)` \| \w", table, re.M)) and len(long) <= 8


def test_few_functions_are_complex_or_have_many_arguments():
    # Public functions have options by keyword; ruff refuses any other.
    noqa = Counter(
        rule
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for rules in re.findall(r"# noqa: (.+)", path.read_text())
        for rule in rules.split(", ")
    )
    assert 0 < noqa["C901"] <= 10 and 0 < noqa["PLR0913"] <= 10


def test_lists_of_docstrings_have_an_item_a_line():
    docstrings = [
        (path, ast.get_docstring(node) or "")
        for path in (ROOT / "python").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    ]
    assert sum(bool(text) for _, text in docstrings) > 2000
    item = re.compile(r"[;:.,] - \w")
    assert item.search("are errors; - input")
    assert not [(path, found) for path, text in docstrings if (found := item.findall(text))]


def test_tests_import_nothing_from_each_other():
    texts = [
        path.read_text() for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(texts) > 150
    assert not [
        found for text in texts for found in re.findall(r"^\s*(?:from|import) test_\w+", text, re.M)
    ]
