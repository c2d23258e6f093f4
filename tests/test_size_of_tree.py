"""Long files have a reason in their docstring or head comment (tools/size_of_tree.py)."""

import ast
import re
from collections import Counter

import pytest
from size_of_tree import CPP, LONG, ROOT, lacks_reason

FOLDERS = ("bench", "cpp", "docs", "examples", "python", "tests", "tools")


def test_long_files_tell_why_they_are_long() -> None:
    every = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*")]
    sources = [p for p in every if p.suffix in (".py", *CPP)]
    assert len(sources) > 500
    found = [str(p.relative_to(ROOT)) for p in sources if lacks_reason(p.name, p.read_text())]
    assert not found, (
        f"{', '.join(found)}: divide it, or write in its docstring or head comment that it has "
        f"more than {LONG} lines because ..."
    )


@pytest.mark.parametrize(
    "name, head",
    [
        ("a.py", '"""A list.\n\nIt has more than 600 lines\nbecause they are one.\n"""\n'),
        ("a.py", '# It has more than 600 lines\n# because they are one.\n"""A list."""\n'),
        ("a.cu", "// It has more than 600 lines\n// because they are one.\n"),
    ],
)
def test_the_reason_is_at_the_head_of_a_file(name: str, head: str) -> None:
    code = "a = 1\n" * LONG
    assert not lacks_reason(name, head + code)
    assert lacks_reason(name, code + head)
    assert lacks_reason(name, head.replace("because", "since") + code)
    assert not lacks_reason(name, code)


def test_few_functions_are_complex_or_have_many_arguments() -> None:
    # Public functions have options by keyword; ruff refuses any other.
    noqa = Counter(
        rule
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for rules in re.findall(r"# noqa: (.+)", path.read_text())
        for rule in rules.split(", ")
    )
    assert 0 < noqa["C901"] <= 10 and 0 < noqa["PLR0913"] <= 10


def test_lists_of_docstrings_have_an_item_a_line() -> None:
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


def test_tests_import_nothing_from_each_other() -> None:
    texts = [
        path.read_text() for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(texts) > 150
    assert not [
        found for text in texts for found in re.findall(r"^\s*(?:from|import) test_\w+", text, re.M)
    ]
