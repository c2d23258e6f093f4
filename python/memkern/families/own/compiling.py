"""Compilation of C functions by the system's compiler, with a cache in the user's folder.

The key of a compiled file is the source, the compiler and its version, the flags and the features
of the processor, since unlike nodes may share a folder. Nothing is loaded that others may write.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from memkern.errors import InputError
from memkern.files import reason
from memkern.host.file import usual_path
from memkern.instrumented import FOLDER
from memkern.limits import read_text
from memkern.machine.environment import fields_of

# As for the variant `auto` of the package (see cpp/cmake/techniques.cmake).
_FLAGS = (
    *("-O3", "-march=native", "-fPIC", "-fopenmp-simd", "-fno-builtin"),
    *("-fno-math-errno", "-ffp-contract=off"),
)
# Compilers tune for processors that are newer than they are as for older ones.
_TUNED = "-mtune=generic"
_FLAGS_OF = {
    "gcc": ("-fno-tree-loop-distribute-patterns", _TUNED),
    "clang": ("-Wno-pass-failed", _TUNED),
    "zig": ("-Wno-pass-failed",),
}
_X86 = ("-mprefer-vector-width=512",)
# So that each access is seen.
_COUNTED = ("-g", "-fsanitize=thread")
_SCALAR = ("-fno-vectorize", "-fno-slp-vectorize", "-fno-openmp-simd")
_COUNTED_OF = {"gcc": (), "clang": _SCALAR, "zig": _SCALAR}
_WRAPPED = "-Wl," + ",".join(f"--wrap={name}" for name in ("memcpy", "memmove", "memset"))
_HOOKS = ("counted.c", "hooks.h")
_LONGEST_S = 120.0


@functools.cache
def compiler() -> tuple[tuple[str, ...], str]:
    """Return the command of the compiler, and the first line of what it says of its version.

    Raises
    ------
    InputError
        There is none.
    """
    wanted = (shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"])
    command = next((tuple(words) for words in wanted if words and shutil.which(words[0])), ())
    if not command and importlib.util.find_spec("ziglang"):
        command = (sys.executable, "-m", "ziglang", "cc")
    if not command:
        raise InputError(
            "own kernels need a compiler of C: install gcc or clang by the system's package "
            "manager, or `pip install ziglang`"
        )
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return command, (version.stdout.splitlines() or ["unknown"])[0]


def flags(name: str, extra: Sequence[str] = ()) -> list[str]:
    """Return the flags for a file of this name, with further ones of the user."""
    is_cpp = name.endswith((".cc", ".cpp", ".cxx", ".C"))
    return [
        *(["-std=gnu++17", "-lstdc++"] if is_cpp else ["-std=gnu11"]),
        *_FLAGS,
        *_FLAGS_OF[_kind()],
        *(_X86 if os.uname().machine == "x86_64" else ()),
        *extra,
    ]


def built(source: str, name: str, extra: Sequence[str] = (), *, counted: bool = False) -> Path:
    """Return the compiled form of a source, from the cache or from the compiler.

    Parameters
    ----------
    source : str
        C, or C++ if `name` ends accordingly.
    name : str
        The name of its file, for the compiler's messages.
    extra : sequence of str
        Further flags.
    counted : bool
        Whether its accesses are counted (see ``counted.c``).

    Raises
    ------
    InputError
        The compiler refuses it, or others may write to the cache.
    """
    own = flags(name, extra) + ([*_COUNTED, *_COUNTED_OF[_kind()]] if counted else [])
    hooks = "".join((FOLDER / name).read_text() for name in _HOOKS) if counted else ""
    parts = [source, hooks, *compiler()[0], compiler()[1], *own, _processor()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = usual_path().parent / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{key}.so"
        if not path.exists():
            _build(path, source, name, own, counted)
    except OSError as error:
        raise InputError(f"{folder} can't be used for compiled kernels: {reason(error)}") from None
    for each in (folder, path):
        status = each.lstat()
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InputError(
                f"{each} belongs to another user or may be written by others, so that nothing is "
                "loaded from it: set XDG_CACHE_HOME to a folder of your own"
            )
    return path


def function_of(path: Path, name: str, file: str) -> int:
    """Load a compiled file, and return the address of a function.

    Raises
    ------
    InputError
        It has no such function, or can't be loaded.
    """
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise InputError(f"{file} can't be loaded: {error}") from None
    found = getattr(library, name, None)
    if found is None:
        raise InputError(
            f"{file} has no function {name}: a static one can't be called, and one of C++ needs "
            'extern "C"'
        )
    return int(ctypes.cast(found, ctypes.c_void_p).value or 0)


def unseen(source: str) -> str:
    """Return what in a source accesses memory without being counted; empty without any."""
    words = re.findall(r"\b(?:__asm__|asm|_mm\d*_\w+|__builtin_ia32_\w+|v(?:ld|st)\d\w*)\b", source)
    return ", ".join(sorted({*words})[:3])


def _processor() -> str:
    """Return what ``-march=native`` depends on."""
    known = fields_of(read_text(Path("/"), "proc/cpuinfo"))
    return " ".join(
        str(known.get(name)) for name in ("flags", "Features", "cpu family", "model", "CPU part")
    )


def _kind() -> str:
    words = " ".join((*compiler()[0], compiler()[1]))
    return next((kind for kind in ("zig", "clang") if kind in words), "gcc")


def _build(path: Path, source: str, name: str, own: Sequence[str], counted: bool) -> None:
    """Compile a source to a file, which appears when it is complete."""
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        code = Path(made) / Path(name).name
        code.write_text(source, encoding="utf-8")
        object_, hooks, whole = (Path(made) / each for each in ("own.o", "hooks.o", "own.so"))
        _compile([*own, "-c", "-o", str(object_), str(code)], code, name)
        linked = [str(object_)]
        if counted:
            _compile(
                [
                    "-O2",
                    "-fPIC",
                    "-fvisibility=hidden",
                    "-c",
                    "-o",
                    str(hooks),
                    str(FOLDER / _HOOKS[0]),
                ]
            )
            linked += [str(hooks), _WRAPPED]
        linked += [word for word in own if word.startswith("-l")]
        _compile(["-shared", "-o", str(whole), *linked, "-lm"])
        whole.chmod(0o700)
        os.replace(whole, path)


def _compile(words: Sequence[str], code: Path | None = None, name: str = "") -> None:
    try:
        done = subprocess.run(
            [*compiler()[0], *words],
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{name}: the compiler did not end within {_LONGEST_S:.0f} s") from None
    if done.returncode == 0:
        return
    lines = done.stderr.splitlines() or ["the compiler failed"]
    line = next((each for each in lines if "error" in each), lines[0])
    raise InputError(line.replace(str(code), name) if code else line)
