"""Mutation testing: put each of the faults separately into a copy of the tree, build and test it.

    python tests/mutations.py [--only TEXT] [--keep FOLDER]

`make test-all` runs it. Each fault is tried with the tests that should notice it, which `make test`
runs as well, on a build for the narrowest and the widest instruction set, without CUDA. It prints
whether tests noticed each fault; the exit code is 1 if they missed any.
"""

import argparse
import contextlib
import filecmp
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).parent.parent
_TIMEOUT_S = 300  # of each command that tests a fault
# Folders and suffixes of the files in which a fault may be.
_FOLDERS = ("cpp", "python")
_SUFFIXES = (".cpp", ".cu", ".hpp", ".inc", ".py")


def sources(tree: Path) -> dict[Path, str]:
    """Return the texts of the files in which a fault may be."""
    files = (path for folder in _FOLDERS for path in (tree / folder).rglob("*"))
    return {path: path.read_text() for path in files if path.suffix in _SUFFIXES}


def place(fault: Fault, texts: Mapping[Path, str]) -> Path:
    """Return the file of a fault; raise SystemExit unless it has exactly one place."""
    found = {path: text.count(fault.before) for path, text in texts.items() if fault.within in text}
    if sum(found.values()) != 1:
        raise SystemExit(f"{fault.what}: {fault.before!r} is in {sum(found.values())} places")
    return max(found, key=found.__getitem__)


def check_places() -> dict[str, Path]:
    """Return the file of each fault by its description; raise SystemExit if one has no place."""
    texts = sources(ROOT)
    found = {fault.what: place(fault, texts).relative_to(ROOT) for fault in FAULTS}
    if len(found) < len(FAULTS):
        raise SystemExit("two faults have the same description")
    return found


@contextlib.contextmanager
def changed(tree: Path, fault: Fault) -> Iterator[None]:
    """Apply a fault to the copy, and undo it at the end."""
    path = place(fault, sources(tree))
    text = path.read_text()
    path.write_text(text.replace(fault.before, fault.after))
    try:
        yield
    finally:
        path.write_text(text)


def file_of_tests(tree: Path, name: str) -> Path:
    """Return the Python test file with this name; raise SystemExit unless there is exactly one."""
    found = list((tree / "tests").rglob(f"{name}.py"))
    if len(found) != 1:
        raise SystemExit(f"{len(found)} files of tests are called {name}.py")
    return found[0]


def copied(tree: Path) -> None:
    """Copy files that git does not ignore; unchanged files of an older copy keep their times."""
    ignored = (line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split())

    def copy(source: str, target: str) -> None:
        if not (os.path.exists(target) and filecmp.cmp(source, target, shallow=False)):
            # With the current time: objects built from a fault are older, and are built again.
            shutil.copy(source, target)

    ignore = shutil.ignore_patterns(".git", *ignored)
    shutil.copytree(ROOT, tree, ignore=ignore, copy_function=copy, dirs_exist_ok=True)


def configured(tree: Path) -> Path:
    """Copy the tree, build it, and return the build folder."""
    copied(tree)
    import pybind11

    build = tree / "build" / "release"
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
        "MEMKERN_CUDA": "OFF",
        "MEMKERN_TARGETS": "ends",
        "MEMKERN_TESTS": "ON",
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    words = [f"-D{name}={value}" for name, value in options.items()]
    os.environ |= {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run(["cmake", "-G", "Ninja", "-S", tree, "-B", build, *words], **quiet)
    subprocess.run(["cmake", "--build", build], **quiet)
    for module in build.glob("_memkern_*.so"):
        # The modules for ranks, built without faults.
        shutil.copy(module, tree / "python" / "memkern")
    return build


def passes(tree: Path, build: Path, fault: Fault) -> bool:
    """Build and run a fault's tests; return whether all pass.

    Raise SystemExit if the fault doesn't compile.
    """
    targets = [*fault.programs, *(["_memkern"] if fault.python else [])]
    words = ["cmake", "--build", str(build), "--target", *targets]
    built = subprocess.run(words, capture_output=True, text=True)
    if built.returncode != 0:
        raise SystemExit(f"does not compile:\n{built.stdout[-2000:]}")
    commands = [[str(build / "tests" / "cpp" / name)] for name in fault.programs]
    if fault.python:
        module = f"_memkern{sysconfig.get_config_var('EXT_SUFFIX')}"
        shutil.copy(build / module, tree / "python" / "memkern" / module)
        python = [
            str(file_of_tests(tree, word)) if word.startswith("test_") else word
            for word in fault.python
        ]
        commands.append([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"])
        commands[-1] += python
    environment = {**os.environ, "PYTHONPATH": str(tree / "python")}
    # Python would use the bytecode of another fault if size and mtime in seconds were equal.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    for command in commands:
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return False
        if done.returncode != 0:
            return False
    return True


def try_with_their_tests(tree: Path, wanted: Sequence[Fault]) -> list[Fault]:
    """Try each fault with the tests that it names, and return the missed faults."""
    start = time.monotonic()
    build = configured(tree)
    print(f"built in {time.monotonic() - start:.0f} s", flush=True)
    every = {fault.tests: fault for fault in wanted}
    failing = [words for words, fault in every.items() if not passes(tree, build, fault)]
    if failing:
        raise SystemExit(f"fail without any fault: {'; '.join(failing)}")
    print(f"all tests pass without faults after {time.monotonic() - start:.0f} s", flush=True)
    places = check_places()
    missed = []
    for fault in wanted:
        began = time.monotonic()
        with changed(tree, fault):
            noticed = not passes(tree, build, fault)
        missed += [] if noticed or fault.is_hidden else [fault]
        outcome = "noticed" if noticed else "hidden" if fault.is_hidden else "MISSED"
        why = f" ({fault.hidden})" if outcome == "hidden" else ""
        seconds = time.monotonic() - began
        print(f"{outcome:<8} {seconds:4.0f} s  {places[fault.what]}: {fault.what}{why}", flush=True)
    return missed


def main() -> int:
    """Try the faults; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="faults whose file or description has this"
    )
    parser.add_argument("--keep", metavar="FOLDER", help="copy and build there, and leave it")
    args = parser.parse_args()
    places = check_places()
    wanted = [fault for fault in FAULTS if args.only in f"{places[fault.what]}: {fault.what}"]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(args.keep or folder).resolve()
        missed = try_with_their_tests(tree, wanted)
    minutes = (time.monotonic() - start) / 60
    print(f"{len(missed)} of {len(wanted)} faults missed, in {minutes:.1f} minutes")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
