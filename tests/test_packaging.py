"""The installed package has every file of the tree, and the stub matches the extension."""

import ast
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from checking import REQUEST

import memkern
from memkern import _memkern

TREE = Path(__file__).parent.parent / "python" / "memkern"
INSTALLED = Path(memkern.__file__).parent


def files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def arguments(docstring: str) -> list[str]:
    """Names in the signature that pybind11 writes, without `self`."""
    inside = docstring.partition("(")[2].partition(") ->")[0]
    return [name for name in re.findall(r"(\w+): ", inside) if name != "self"]


def test_every_file_of_the_package_is_installed():
    assert files(INSTALLED) == files(TREE)
    assert {"py.typed", "_memkern.pyi"} <= files(INSTALLED)


def test_the_stub_matches_the_extension():
    stub = ast.parse((TREE / "_memkern.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    classes = {
        node.name: {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
        for node in stub.body
        if isinstance(node, ast.ClassDef)
    }
    assert functions.keys() | classes.keys() == public(dir(_memkern))
    for name, methods in classes.items():
        assert methods.keys() - {"__init__"} == public(dir(getattr(_memkern, name)))
    owners = {getattr(_memkern, name): methods for name, methods in classes.items()}
    for owner, declared in {_memkern: functions, **owners}.items():
        for name, node in declared.items():
            given = [a.arg for a in node.args.args + node.args.kwonlyargs if a.arg != "self"]
            if isinstance(getattr(owner, name), property):
                continue
            if name == "__init__" and owner is _memkern.Prepared:
                # It has only keyword arguments, and refuses missing and unknown ones.
                assert given == [*REQUEST, "exchange"]
                _memkern.Prepared(**REQUEST)
            else:
                assert given == arguments(getattr(owner, name).__doc__ or ""), name


@pytest.mark.parametrize("name", ["Highway", "hwloc"])
def test_a_named_archive_must_be_the_pinned_one(tmp_path, name):
    source = TREE.parent.parent / "cpp" / "cmake" / "dependencies.cmake"
    function = re.search(r"function\(memkern_source.*?endfunction\(\)", source.read_text(), re.S)
    pinned = re.search(rf"set\({name.lower()}_sha256 (\w+)\)", source.read_text())
    assert function and pinned
    archive = tmp_path / "other.tar.gz"
    archive.write_bytes(b"something else")
    script = tmp_path / "script.cmake"

    def run(sha256: str) -> "subprocess.CompletedProcess[str]":
        call = f'memkern_source({name} "{archive}" https://its.home {sha256} out)'
        script.write_text(f'{function[0]}\n{call}\nmessage(STATUS "${{out}}")\n')
        return subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True)

    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    refused = run(pinned[1])
    assert refused.returncode != 0
    message = " ".join(refused.stderr.split())
    assert f"the {name} source archive {archive} must have the SHA-256 hash {pinned[1]}" in message
    assert f"of https://its.home, not {found}" in message
    accepted = run(found)
    assert accepted.returncode == 0
    assert f"URL;{archive};URL_HASH;SHA256={found}" in accepted.stdout


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake")
@pytest.mark.parametrize(
    ("mpi", "shmem", "said"),
    [
        ("AUTO", "AUTO", ["there is no mpicxx that works", "there is no oshc++"]),
        ("AUTO", "OFF", ["there is no mpicxx that works"]),
        ("OFF", "OFF", []),
        ("OFF", "ON", ["MEMKERN_SHMEM is ON but there is no oshc++"]),
    ],
)
def test_one_warning_names_the_modules_for_ranks_that_are_not_built(tmp_path, mpi, shmem, said):
    rules = TREE.parent.parent / "cpp" / "cmake" / "ranks.cmake"
    (tmp_path / "cpp" / "core").mkdir(parents=True)
    (tmp_path / "cpp" / "core" / "limits.cpp").touch()
    # CMake finds no MPI if no language is enabled.
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(without LANGUAGES NONE)\n"
        f"add_library(memkern_options INTERFACE)\ninclude({rules})\n"
    )
    options = {"MEMKERN_MPI": mpi, "MEMKERN_SHMEM": shmem, "MEMKERN_OSHCXX": ""}
    given = [f"-D{name}={value}" for name, value in options.items()]
    words = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), "--no-warn-unused-cli"]
    done = subprocess.run([*words, *given], capture_output=True, text=True)
    message = " ".join(done.stderr.split())
    assert done.returncode == (shmem == "ON"), message
    assert all(sentence in message for sentence in said)
    assert message.count("CMake Warning") == (bool(said) and done.returncode == 0)
