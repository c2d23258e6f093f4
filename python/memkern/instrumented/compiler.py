"""A program that stands for a compiler: it adds flags for chosen sources, and links a library.

It is called by a compiler's name, and runs the compiler of that name that comes later on ``PATH``.
It imports nothing of the package, since builds call it often. Variables of the environment:

- ``MEMKERN_HOOKS_FOLDER``: this program's links, which are first on ``PATH``, and the library;
- ``MEMKERN_HOOKS_SOURCES``: names or paths of the sources, with wildcards, separated by colons;
- ``MEMKERN_HOOKS_LINKED``: the library, and further words for the linker;
- ``MEMKERN_HOOKS_GCC``, ``MEMKERN_HOOKS_CLANG``: flags that compile a source;
- ``MEMKERN_HOOKS_VERSIONS``: the program that makes one object of two versions of a source, with
  and without these flags, if it has both.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

SOURCES = (".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".f", ".for", ".f90", ".f95", ".f03", ".f08",
           ".F", ".F90", ".F95", ".F03", ".F08")  # fmt: skip
_OBJECTS = (".o", ".a", ".so", ".lo")
# Options whose value is the next word.
_WITH_VALUE = ("-o", "-I", "-D", "-U", "-L", "-l", "-x", "-MF", "-MT", "-MQ", "-include",
               "-isystem", "-iquote", "-J", "-T", "-u", "-z", "-Xlinker")  # fmt: skip
_NOT_BUILDING = ("-E", "-M", "-MM", "-S", "-fsyntax-only", "-###")


def refusal(words: list[str]) -> str:
    """Return why a command can't be instrumented; empty if it can."""
    if any(w.startswith("-flto") for w in words) and "-fno-lto" not in words:
        return "link-time optimisation (-flto) moves accesses between files: build without it"
    if "-static" in words or "-static-pie" in words:
        return "a static program (-static) can't be traced: link it dynamically"
    if any(w.startswith("-fsanitize=") for w in words):
        return "the build has a sanitizer (-fsanitize): build without it"
    return ""


def commands(compiler: str, words: list[str], made: str) -> list[list[str]]:
    """Return the commands that replace a compiler's command; temporary objects are in `made`."""
    folder = os.environ["MEMKERN_HOOKS_FOLDER"]
    kind = "CLANG" if "clang" in os.path.basename(compiler) else "GCC"
    flags = os.environ[f"MEMKERN_HOOKS_{kind}"].split()
    wanted = os.environ["MEMKERN_HOOKS_SOURCES"].split(":")
    free = [k for k, w in enumerate(words) if not (k and words[k - 1] in _WITH_VALUE)]
    sources = [k for k in free if words[k].endswith(SOURCES) and not words[k].startswith("-")]
    matching = [
        k
        for k in sources
        if any(fnmatch.fnmatch(t, w) for w in wanted for t in (words[k], Path(words[k]).name))
    ]
    if {*words} & {*_NOT_BUILDING} or all(words[k].startswith("-") for k in free):
        return [[compiler, *words]]
    if "-c" in words:
        if matching and os.environ.get("MEMKERN_HOOKS_VERSIONS"):
            return _versions(compiler, words, flags, words[matching[0]], made)
        return [[compiler, *words, *(flags if matching else [])]]
    whole, compiled = list(words), []
    of_compiling = [
        w
        for k, w in enumerate(words)
        if (
            k in free
            and k not in sources
            and not w.endswith(_OBJECTS)
            and not w.startswith(("-Wl,", "-l", "-L", "-o"))
            and w not in ("-Xlinker", "-z")
        )
        or (k not in free and words[k - 1] not in ("-o", "-L", "-l", "-Xlinker", "-z"))
    ]
    for number, k in enumerate(matching):
        whole[k] = f"{made}/{number}.o"
        compiling = [*of_compiling, "-c", words[k], "-o", whole[k]]
        compiled += commands(compiler, compiling, made)
    linked = [f"-L{folder}", f"-Wl,-rpath,{folder}", *os.environ["MEMKERN_HOOKS_LINKED"].split()]
    return [*compiled, [compiler, *whole, *linked]]


def _versions(
    compiler: str, words: list[str], flags: list[str], source: str, made: str
) -> list[list[str]]:
    """Return the commands that compile a source twice and make one object of both versions."""
    to = words[words.index("-o") + 1] if "-o" in words else f"{Path(source).stem}.o"
    own = f"{made}/{Path(to).name}"
    plain, hooked = f"{own}.plain.s", f"{own}.hooked.s"
    # The first command writes what the build needs besides the object, such as dependencies.
    once = [
        "-S" if word == "-c" else word
        for before, word in zip(["", *words], words, strict=False)
        if not word.startswith(("-o", "-M")) and before not in ("-o", "-MF", "-MT", "-MQ")
    ]
    if "clang" not in os.path.basename(compiler):
        # GCC adapts calls to the registers and the alignment that a function of the file needs.
        once += ["-fno-ipa-ra", "-fno-ipa-stack-alignment"]
    word = f"{zlib.crc32(os.path.abspath(to).encode()):x}"
    return [
        [compiler, *words],
        [compiler, *once, "-o", plain],
        [compiler, *once, *flags, "-o", hooked],
        [sys.executable, "-IS", os.environ["MEMKERN_HOOKS_VERSIONS"], plain, hooked, word],
        *([compiler, "-c", "-Wa,--no-warn", text, "-o", f"{text}.o"] for text in (plain, hooked)),
        [compiler, "-r", "-nostdlib", "-o", to, f"{plain}.o", f"{hooked}.o"],
    ]


def main() -> int:
    """Run the compiler by whose name this program was called."""
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    own = os.path.realpath(os.environ["MEMKERN_HOOKS_FOLDER"])
    path = [p for p in os.environ["PATH"].split(":") if os.path.realpath(p or ".") != own]
    os.environ["PATH"] = ":".join(path)
    found = next((f"{p}/{name}" for p in path if os.access(f"{p}/{name}", os.X_OK)), name)
    if why := refusal(words):
        sys.stderr.write(f"memkern: {name}: {why}\n")
        return 2
    with tempfile.TemporaryDirectory() as made:
        for command in commands(found, words, made):
            if code := subprocess.run(command, check=False).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
