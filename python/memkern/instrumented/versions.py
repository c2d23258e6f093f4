"""A program that makes one file of two versions of code, with and without calls of hooks.

It rewrites their assembly code for x86-64: in the second version global functions get other names,
and each one of the first version begins with a jump to the other one, which is taken as often as
`memkern_left` of traced.c says. Both use the variables of the first version: those of the file
become global, by names with a word of the file, and are weak in the second version. Local functions
remain, so that each version calls its own.

    versions.py PLAIN.s HOOKED.s WORD
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_NAME = re.compile(r"[\w.][\w.$]*")
_DIRECTIVE = re.compile(r"\t\.(globl|weak|hidden|local|type|size|set)\t([\w.$]+)(.*)")
_SECTION = re.compile(r"\t\.(?:section\t|(?=text|data|bss))([\w.$]+)")
_LABEL = re.compile(r"([\w.$]+):")
_GROUP = re.compile(r",([\w.$]+),comdat")
_CONSTRUCTORS = (".init_array", ".ctors", ".fini_array", ".dtors")
_WRITABLE = re.compile(r"\.?(t?data|t?bss|l?data|l?bss)\b(?!\.rel\.ro)")
_BEFORE_CODE = re.compile(r"\.L\w+:|\t\.cfi_(startproc|personality|lsda)|\tendbr64")
_TEXTS = ("\t.string", "\t.ascii", "\t.asciz")
_JUMP = """\tmovq\tmemkern_left@gottpoff(%rip), %r11
\tdecq\t%fs:(%r11)
\tjs\t{}.hooked"""


class _Code:
    """Assembly code: its lines, each with its section, and the names that it defines.

    Of functions that access no memory, there is no second version: they draw no next call.
    """

    def __init__(self, text: str) -> None:
        self.lines: list[tuple[str, str]] = []
        self.functions: set[str] = set()
        self.aliases: dict[str, str] = {}
        self.drawing: set[str] = set()
        shared, own, labels, section, label = set[str](), set[str](), set[str](), ".text", ""
        for line in text.splitlines():
            if found := _SECTION.match(line):
                section = found[1]
            self.lines.append((section, line))
            if found := _DIRECTIVE.match(line):
                kind, name, rest = found.groups()
                if kind in ("globl", "weak"):
                    shared.add(name)
                elif kind == "local":
                    own.add(name)
                elif kind == "set":
                    self.aliases[name] = rest.strip(", \t")
                elif kind == "type" and "function" in rest:
                    self.functions.add(name)
            elif (found := _LABEL.match(line)) and not line.startswith(".L"):
                label = found[1]
                labels.add(label)
                if _WRITABLE.match(section):
                    own.add(label)
            elif "__tsan_func_entry" in line:
                self.drawing.add(label)
        self.variables = own - shared - self.functions
        self.functions &= shared & labels


def rewritten(plain: str, hooked: str, word: str) -> tuple[str, str]:
    """Return both versions, with `word` in the names of variables that are the file's own.

    Raises
    ------
    ValueError
        The versions have different variables of their own.
    """
    first, second = _Code(plain), _Code(hooked)
    if other := first.variables ^ second.variables:
        raise ValueError(f"the versions with and without tracing differ in {min(other)}")
    names = {name: f"{name}.{word}" for name in first.variables}
    both = first.functions & second.functions & second.drawing
    dropped = {name for name, target in second.aliases.items() if target in both}
    return (
        "\n".join(_jumping(_common(first.lines, names, "globl"), both)) + "\n",
        "\n".join(_renamed(_common(second.lines, names, "weak"), both, dropped)) + "\n",
    )


def _common(
    lines: Iterable[tuple[str, str]], names: Mapping[str, str], linkage: str
) -> Iterator[tuple[str, str]]:
    """Yield lines in which variables of the file are global or weak, by their new names."""
    for section, line in lines:
        if line.startswith(_TEXTS):
            yield section, line
            continue
        found, label = _DIRECTIVE.match(line), _LABEL.match(line)
        if found and found[1] == "local" and found[2] in names:
            yield section, f"\t.hidden\t{names[found[2]]}"
            continue
        if label and label[1] in names:
            yield section, f"\t.{linkage}\t{names[label[1]]}\n\t.hidden\t{names[label[1]]}"
        yield section, _NAME.sub(lambda word: names.get(word[0], word[0]), line)


def _jumping(lines: Iterable[tuple[str, str]], functions: set[str]) -> Iterator[str]:
    """Yield the first version: functions begin with a jump."""
    waiting = ""
    for _, line in lines:
        if waiting and not _BEFORE_CODE.match(line):
            yield _JUMP.format(waiting)
            waiting = ""
        yield line
        label = _LABEL.match(line)
        waiting = label[1] if label and label[1] in functions else waiting


def _renamed(
    lines: Iterable[tuple[str, str]], functions: set[str], dropped: set[str]
) -> Iterator[str]:
    """Yield the second version: functions have other names, other global names are weak."""
    for section, line in lines:
        if section.startswith(_CONSTRUCTORS):
            continue
        if _SECTION.match(line) and section.startswith((".text", ".gcc_except_table")):
            line = _GROUP.sub(r",\1.hooked,comdat", line)
        label, found = _LABEL.match(line), _DIRECTIVE.match(line)
        if label and label[1] in functions:
            line = f"{label[1]}.hooked:"
        elif found:
            kind, name, rest = found.groups()
            if name in dropped or (name in functions and kind == "hidden"):
                continue
            if name in functions:
                rest = rest.replace(f"-{name}", f"-{name}.hooked")
                line = f"\t.{kind}\t{name}.hooked{rest}"
                line += f"\n\t.hidden\t{name}.hooked" * (kind in ("globl", "weak"))
            elif kind == "globl":
                line = f"\t.weak\t{name}"
        yield line


def main() -> int:
    """Rewrite two files."""
    *paths, word = sys.argv[1:]
    plain, hooked = (Path(p).read_text(encoding="utf-8", errors="surrogateescape") for p in paths)
    try:
        found = rewritten(plain, hooked, word)
    except ValueError as error:
        sys.stderr.write(f"memkern: {error}: name the other sources by --sources\n")
        return 2
    for path, text in zip(paths, found, strict=True):
        Path(path).write_text(text, encoding="utf-8", errors="surrogateescape")
    return 0


if __name__ == "__main__":
    sys.exit(main())
