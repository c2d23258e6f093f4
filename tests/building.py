"""Copies of the tree with other kernels, which tests build."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from checking import BUILD

ROOT = Path(__file__).parent.parent

MODULE = f"_memkern{sysconfig.get_config_var('EXT_SUFFIX')}"

PARTS = ("CMakeLists.txt", "LICENSE", "README.md", "cpp", "pyproject.toml", "python")


def copied(folder: Path, *more: str) -> Path:
    """Copy the parts of the tree that the package needs, and `more`, to a folder, and return it."""
    for part in (*PARTS, *more):
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


def linked(tree: Path, folder: Path, family: str, techniques: str, like: str) -> Path:
    """Return the extension linked with the bodies of a family in a copy of the tree.

    The family's declarations and these techniques are compiled into `folder`, with the package's
    compiler options for the family `like`. All other objects are the package's.
    """
    cache = BUILD / "CMakeCache.txt"
    if not cache.exists():
        pytest.fail(f"{BUILD} has no build of the package: make test has it")
    known = dict(re.findall(r"(?m)^(\w+):\w+=(.*)$", cache.read_text()))
    ninja = [known["CMAKE_MAKE_PROGRAM"], "-t", "commands", MODULE]
    shown = subprocess.run(ninja, cwd=BUILD, capture_output=True, text=True, check=True)
    *compile_, link = shown.stdout.splitlines()
    for command in compile_:
        found = re.search(
            rf"CMakeFiles/memkern_(core|{techniques})\.dir/cpp/families/{like}/\S+\.o\b", command
        )
        if not found:
            continue
        command = command.replace(f"{known['CMAKE_HOME_DIRECTORY']}/cpp", f"{tree}/cpp")
        command = command.replace(f"/families/{like}/", f"/families/{family}/")
        own = folder / found[0].replace(f"/families/{like}/", f"/families/{family}/")
        own.parent.mkdir(parents=True)
        subprocess.run(re.sub(r" -O\d", " -O0", command), shell=True, cwd=folder, check=True)
        link = link.replace(found[0], str(own) if like == family else f"{found[0]} {own}")
    link = link.replace(f"-o {MODULE}", f"-o {folder / MODULE}")
    subprocess.run(link, shell=True, cwd=BUILD, check=True)
    return folder / MODULE
