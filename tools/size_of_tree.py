"""Print how large the tree is: statements of Python, lines of C++, tests, benchmarks and data.

A statement is one of Python's syntax tree, docstrings left out: neither comments nor the breaking
of lines count. Lines are all lines of files that git tracks, blank ones and comments too::

    python tools/size_of_tree.py            # of the working tree
    python tools/size_of_tree.py COMMIT     # of that commit, and the change since then
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPP = (".cpp", ".hpp", ".cu", ".inc", ".c")
DATA = (".csv", ".j2", ".js", ".css", ".toml")
LONG = 600


def git(*words: str) -> str:
    """Return what git prints."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def statements(text: str) -> int:
    """Return the number of statements of a module, without its docstrings."""
    every = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    texts = [n for n in every if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    return len(every) - len(texts)


def lines(text: str) -> int:
    """Return the number of lines of a file."""
    return text.count("\n")


COUNTS: dict[str, tuple[Callable[[str], int], Callable[[str], object]]] = {
    "statements of python/": (statements, lambda p: p.startswith("python/") and p.endswith(".py")),
    # Figures, tables and findings, also by the names that modules of families had.
    "statements of exhibits": (
        statements,
        re.compile(
            r"python/memkern/(plots/|families/\w+/(\w*figures|\w*data|findings|of_paper|"
            r"\w*radars?|energy)\.py)"
        ).match,
    ),
    "statements of other folders": (
        statements,
        lambda p: (
            p.startswith(("tools/", "docs/", "examples/", "packaging/")) and p.endswith(".py")
        ),
    ),
    "lines of data in python/": (lines, lambda p: p.startswith("python/") and p.endswith(DATA)),
    # With the C that the package compiles at run time.
    "lines of cpp/": (lines, lambda p: p.startswith(("cpp/", "python/")) and p.endswith(CPP)),
    "lines of tests/ and bench/": (
        lines,
        lambda p: p.startswith(("tests/", "bench/")) and p.endswith((".py", *CPP)),
    ),
    f"files of more than {LONG} lines": (
        lambda text: int(lines(text) > LONG),
        lambda p: (
            p.startswith(("python/", "cpp/", "tests/", "bench/")) and p.endswith((".py", *CPP))
        ),
    ),
}


def files(commit: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of every file, of the working tree if no commit is given."""
    listed = git("ls-tree", "-r", "--name-only", commit) if commit else git("ls-files")
    for path in listed.splitlines():
        if path.endswith((".py", *CPP, *DATA)):
            here = ROOT / path
            if commit:
                yield path, git("show", f"{commit}:{path}")
            elif here.exists():
                yield path, here.read_text("utf-8")


def sizes(commit: str = "") -> dict[str, int]:
    """Return every count."""
    found = dict.fromkeys(COUNTS, 0)
    for path, text in files(commit):
        for name, (count, counted) in COUNTS.items():
            if counted(path):
                found[name] += count(text)
    return found


def main() -> None:
    """Print the counts, beside those of a commit if one is given."""
    now = sizes()
    before = sizes(sys.argv[1]) if len(sys.argv) > 1 else now
    for name, number in now.items():
        print(f"{name:<32} {before[name]:>7} {number:>7} {number / before[name] - 1:+.1%}")


if __name__ == "__main__":
    main()
