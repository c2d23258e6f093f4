"""Traces of the memory accesses of programs.

A program is built in a copy of the current folder: compilers that are found on ``PATH`` get flags
by which each access calls a function (``-fsanitize=thread``), and the functions of
``instrumented/traced.c``, which write a file, are linked instead of that sanitizer's library.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from memkern.checks import integer
from memkern.errors import InputError, warn
from memkern.extension import _memkern
from memkern.files import reason, unused
from memkern.inputs.traces import text_part
from memkern.instrumented import FOLDER
from memkern.progress import announce

_COMMON = "-g -fsanitize=thread -fno-unroll-loops"
_FLAGS = {
    "gcc": f"{_COMMON} -fno-tree-vectorize -fno-tree-slp-vectorize -Wno-tsan",
    "clang": f"{_COMMON} -fno-vectorize -fno-slp-vectorize "
    "-mllvm -tsan-instrument-read-before-write=1",
}
_LINKED = {
    "traced": "-Wl," + ",".join(f"--wrap={name}" for name in ("memcpy", "memmove", "memset")),
    "timed": "",
}
_COMPILER = re.compile(r"(cc|c99|c\+\+|gcc|g\+\+|gfortran|clang|clang\+\+|flang)(-\d+)?")
_READ_BPS = 6e7  # bytes of a trace that are read in a second, for the announced time
_MOST_COPIED_B = 4 * 10**9
MOST_B = 2**32
"""Size of a trace of a process, in bytes, unless another one is requested."""


class Traced(NamedTuple):
    """A traced run.

    Attributes
    ----------
    files : list of Path
        A trace of each process.
    seconds : float
        Time of the run, with the tracing.
    code : int
        Exit code of the program.
    """

    files: list[Path]
    seconds: float
    code: int


def trace(
    command: Sequence[str],
    output: str | Path,
    *,
    build: str = "",
    sources: Sequence[str] = ("*",),
    folder: str | Path | None = None,
    most_B: int = MOST_B,
    sampled: int = 1,
    force: bool = False,
) -> Traced:
    """Build a program in a copy of the current folder, run it there, and write its trace.

    Parameters
    ----------
    command : sequence of str
        The program with its arguments, or a command that builds and runs it.
    output : str or Path
        File for the trace. Ranks of MPI write one file each, ``OUTPUT.0`` and so on.
    build : str
        Command of the shell that builds the program.
    sources : sequence of str
        Names or paths of the sources whose accesses are traced, with wildcards.
    folder : str or Path, optional
        New folder for the copy, which remains; by default a temporary one.
    most_B : int
        Largest size of each file. Windows of 2**20 accesses of a thread are recorded or left out
        together, so that the whole run is covered.
    sampled : int
        One of so many calls of global functions is traced, at random; the others run code without
        tracing. For x86-64.
    force : bool
        Whether files that exist are replaced.

    Raises
    ------
    InputError
        The program can't be built or started, or no traced code ran.
    """
    if integer(sampled, "sampled", 1) > 1 and platform.machine() != "x86_64":
        raise InputError(f"calls can be sampled on x86-64 only, not on {platform.machine()}")
    target = unused(output, force).absolute()
    for old in _files(target):
        unused(old, force).unlink()
    with copied(folder) as copy, hooked(copy, "traced", _FLAGS, sources) as environment:
        if sampled > 1:
            environment["MEMKERN_HOOKS_VERSIONS"] = str(FOLDER / "versions.py")
        if build:
            built = subprocess.run(build, shell=True, cwd=copy, env=environment, stdout=2)
            if built.returncode:
                raise InputError(f"`{build}` failed with exit code {built.returncode}")
        traced = {
            "MEMKERN_TRACE": str(target),
            "MEMKERN_TRACE_MOST_B": str(most_B),
            "MEMKERN_TRACE_CALLS": str(sampled),
        }
        begin = time.perf_counter()
        try:
            code = subprocess.run(
                command, cwd=copy, env={**environment, **traced}, check=False
            ).returncode
        except OSError as error:
            raise InputError(f"{command[0]} can't be started: {reason(error)}") from None
        seconds = time.perf_counter() - begin
        if not (files := _files(target)):
            raise InputError(
                f"no traced code ran in `{shlex.join(command)}`: its sources must be compiled by "
                "the command or by --build, with a compiler that is found on PATH"
            )
        about = {
            "command": list(command),
            "build": build,
            "sources": list(sources),
            "sampled": sampled,
        }
        for file in files:
            _complete(file, copy, about)
    if code:
        warn(f"`{shlex.join(command)}` ended with exit code {code}; its trace was kept")
    return Traced(files, seconds, code)


def _files(target: Path) -> list[Path]:
    """Return the traces of a run: of a single process, or of several."""
    several = sorted(target.parent.glob(f"{target.name}.*"))
    return [p for p in (target, *several) if p == target or p.suffix[1:].isdigit() if p.exists()]


@contextmanager
def copied(folder: str | Path | None) -> Iterator[Path]:
    """Copy the current folder without objects and programs, which must be built again."""
    here = Path.cwd()
    bytes_B = 0
    for path in here.rglob("*"):
        bytes_B += path.lstat().st_size
        if bytes_B > _MOST_COPIED_B:
            raise InputError(
                f"the current folder has more than {_MOST_COPIED_B / 1e9:g} GB: start memkern in "
                "the folder of the program"
            )
    with tempfile.TemporaryDirectory(prefix="memkern-") as temporary:
        copy = Path(folder).absolute() if folder else Path(temporary) / here.name
        if copy.exists():
            raise InputError(f"{copy} exists: name a new folder for the copy")
        if copy.is_relative_to(here):
            raise InputError(f"{copy} is in the copied folder: name a folder outside of it")
        try:
            shutil.copytree(here, copy, symlinks=True, ignore=_built)
        except (OSError, shutil.Error) as error:
            raise InputError(f"{here} can't be copied to {copy}: {reason(error)}") from None
        yield copy


def _built(folder: str, names: Iterable[str]) -> set[str]:
    """Return the objects and programs among the files of a folder, and what is no file."""
    found = {".git"}
    for name in names:
        path = Path(folder, name)
        if path.is_symlink() or path.is_dir():
            continue
        if not path.is_file():
            found.add(name)
            continue
        with path.open("rb") as stream:
            head = stream.read(18)
        # Kinds of ELF: object, program, and library or program.
        kind = head[16] if head[:4] == b"\x7fELF" and len(head) == 18 else 0
        if kind in (1, 2) or (kind == 3 and ".so" not in name):
            found.add(name)
    return found


@contextmanager
def hooked(
    copy: Path, library: str, flags: Mapping[str, str], sources: Sequence[str]
) -> Iterator[dict[str, str]]:
    """Yield an environment in which compilers add flags, and link a library of hooks.

    Parameters
    ----------
    copy : Path
        Folder in which the program is built; the library is in it, since the program needs it.
    library : str
        A source of `memkern.instrumented`, without its suffix.
    flags : mapping of str to str
        Flags of ``gcc`` and ``clang`` for the chosen sources.
    sources : sequence of str
        Names or paths of these sources, with wildcards.
    """
    folder = copy / ".memkern"
    folder.mkdir(exist_ok=True)
    file = folder / f"libmemkern_{library}.so"
    words = ["-O2", "-fPIC", "-shared", "-o", str(file), str(FOLDER / f"{library}.c")]
    compiled([*words, *_LINKED[library].split(), "-lpthread"])
    script = folder / "compiler"
    text = (FOLDER / "compiler.py").read_text(encoding="utf-8")
    script.write_text(f"#!{sys.executable} -IS\n{text}", encoding="utf-8")
    script.chmod(0o700)
    path = os.environ.get("PATH", os.defpath)
    for place in path.split(os.pathsep):
        with os.scandir(place) if os.path.isdir(place) else nullcontext(()) as entries:
            for name in {entry.name for entry in entries if _COMPILER.fullmatch(entry.name)}:
                if not (folder / name).exists():
                    (folder / name).symlink_to(script)
    yield {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{path}",
        "MEMKERN_HOOKS_FOLDER": str(folder),
        "MEMKERN_HOOKS_LINKED": f"-lmemkern_{library} {_LINKED[library]}",
        "MEMKERN_HOOKS_SOURCES": ":".join(sources),
        **{f"MEMKERN_HOOKS_{kind.upper()}": words for kind, words in flags.items()},
    }


def compiled(words: Sequence[str]) -> None:
    """Run a compiler of C with words, one of which is a source.

    Raises
    ------
    InputError
        There is none, or it fails.
    """
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise InputError("there is no compiler of C on PATH: install gcc or clang")
    done = subprocess.run([compiler, *words], capture_output=True, text=True)
    if done.returncode:
        source = next(word for word in words if word.endswith(".c"))
        told = done.stderr.partition("\n")[0]
        raise InputError(f"{compiler} can't compile {Path(source).name}: {told}")


def load(path: Path) -> Any:
    """Return the accesses of a trace of memkern (`_memkern.Trace`)."""
    announce(f"reading {path.name}", path.stat().st_size / _READ_BPS)
    return _memkern.Trace(str(path))


def named(head: str, callers: Sequence[int], copy: Path) -> dict[int, tuple[str, str]]:
    """Return source line and function of the instructions before some addresses.

    Parameters
    ----------
    head : str
        A line of any text, then first address, length and path of each loaded file.
    callers : sequence of int
        Addresses after the instructions.
    copy : Path
        Folder of the sources, which is left out of their paths.
    """
    lines: dict[int, tuple[str, str]] = {}
    for line in head.splitlines()[1:]:
        first, length, path = line.split(" ", 2)
        base, end = int(first, 16), int(first, 16) + int(length, 16)
        within = [c for c in callers if base <= c < end]
        if within and shutil.which("addr2line"):
            asked = "\n".join(hex(c - 1 - base) for c in within)
            words = ["addr2line", "-f", "-C", "-e", path]
            told = subprocess.run(words, input=asked, capture_output=True, text=True).stdout
            pairs = told.splitlines()
            for c, function, place in zip(within, pairs[::2], pairs[1::2], strict=True):
                place = place.partition(" (")[0].replace(f"{copy}/", "")
                lines[c] = (f"{Path(path).name}+{c - base:#x}" if "?" in place else place, function)
    return lines


def _functions(path: str) -> set[str]:
    """Return the names of all functions in the debug information of a file, also inlined ones."""
    if not shutil.which("readelf"):
        return set()
    words = ["readelf", "--debug-dump=info", "--wide", path]
    told = subprocess.run(words, capture_output=True, text=True, errors="replace").stdout
    found = re.findall(r"\(DW_TAG_subprogram\)\n(?:(?!\(DW_TAG).)*?DW_AT_name +: (.*)", told)
    names = {name.rpartition(": ")[2].strip() for name in found}
    return {name for name in names if re.fullmatch(r"[\w:~]+", name)}


def _complete(file: Path, copy: Path, about: Mapping[str, Any]) -> None:
    """Add the command, and the source line of each instruction, to a trace."""
    trace = load(file)
    lines = named(trace.head, [site["caller"] for site in trace.sites()], copy)
    paths = (line.split(" ", 2)[2] for line in trace.head.splitlines()[1:])
    functions = {name for path in paths if path.startswith(str(copy)) for name in _functions(path)}
    with file.open("ab") as stream:
        stream.write(text_part({**about, "lines": lines, "functions": sorted(functions)}))
