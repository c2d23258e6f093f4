"""A release: its version and changelog, the archive of its sources, its wheel and its recipes."""

import contextlib
import datetime
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import release

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def minima(requirements: list[str]) -> dict[str, str]:
    """The oldest release of each requirement, all of which have the form `name>=release`."""
    return dict(requirement.partition(";")[0].split(">=") for requirement in requirements)


def spack_recipe() -> tuple[type, list[tuple[str, dict[str, Any]]]]:
    """The class of Spack's recipe, and its dependencies, by substitutes for Spack's functions."""
    found: list[tuple[str, dict[str, Any]]] = []
    given: list[dict[str, Any]] = [{}]

    @contextlib.contextmanager
    def default_args(**named: Any) -> Iterator[None]:
        given.append(named)
        yield
        given.pop()

    def depends_on(spec: str, **named: Any) -> None:
        found.append((spec, given[-1] | named))

    def accept(*words: str, **named: Any) -> None:
        pass

    names: dict[str, Any] = dict.fromkeys(("license", "version", "variant", "conflicts"), accept)
    names |= {"depends_on": depends_on, "default_args": default_args}
    names |= {"PythonPackage": type("PythonPackage", (), {}), "CudaPackage": type("Cuda", (), {})}
    lines = (ROOT / "packaging" / "spack" / "package.py").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("from "))
    exec(compile(text, "package.py", "exec"), names)
    return names["PyMemkern"], found


def test_spack_s_recipe_has_the_dependencies_of_the_project():
    _, found = spack_recipe()
    declared = project()
    named = declared["project"]
    extras = named["optional-dependencies"]
    expected = {
        "build": minima(declared["build-system"]["requires"]),
        "run": minima([*named["dependencies"], *extras["cuda"], *extras["mpi"]]),
    }
    for kind, releases in expected.items():
        there = dict(
            spec.removeprefix("py-").rstrip(":").split("@")
            for spec, how in found
            if spec.startswith("py-") and ("run" in how["type"]) == (kind == "run")
        )
        assert there == releases
    every = {spec.partition("@")[0]: (spec, how) for spec, how in found}
    assert every["python"][0] == f"python@{named['requires-python'].removeprefix('>=')}:"
    cmake = declared["tool"]["scikit-build"]["cmake"]["version"]
    assert every["cmake"][0] == f"cmake@{cmake.removeprefix('>=')}:"
    # Those that only some installations need.
    conditions = {name: how["when"] for name, (_, how) in every.items() if "when" in how}
    assert conditions == {
        "py-tomli": "^python@:3.10",
        "py-nvidia-ml-py": "+cuda",
        "cuda": "+cuda",
        "py-mpi4py": "+mpi",
        "mpi": "+mpi",
    }


@pytest.mark.parametrize("variants", [(), ("+cuda",), ("+cuda", "80", "90"), ("+mpi",)])
def test_spack_s_recipe_passes_its_variants(variants):
    architectures = variants[1:]

    class Spec:
        variants: ClassVar = {"cuda_arch": SimpleNamespace(value=architectures)}

        def satisfies(self, what: str) -> bool:
            return what in variants or (what == "cuda_arch=none" and not architectures)

    settings = spack_recipe()[0]().config_settings(Spec(), None)
    options = (ROOT / "CMakeLists.txt").read_text() + (ROOT / "cpp/cmake/cuda.cmake").read_text()
    names = {name.removeprefix("cmake.define."): value for name, value in settings.items()}
    assert all(f"set({name} " in options for name in names)
    assert names["MEMKERN_CUDA"] == ("ON" if "+cuda" in variants else "OFF")
    assert names["MEMKERN_MPI"] == ("ON" if "+mpi" in variants else "OFF")
    assert names.get("MEMKERN_CUDA_ARCHITECTURES") == (";".join(architectures) or None)


def test_conda_s_recipe_has_the_dependencies_of_the_project():
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    declared = project()
    named = declared["project"]

    def listed(part: str) -> dict[str, str]:
        (lines,) = re.findall(rf"^  {part}:\n((?: {{4,}}.*\n)+)", recipe, re.MULTILINE)
        return dict(re.findall(r"(?:- |then: )([\w-]+) >=(\S+)$", lines, re.MULTILINE))

    expected = minima(named["dependencies"])
    expected["matplotlib-base"] = expected.pop("matplotlib")
    expected["python"] = named["requires-python"].removeprefix(">=")
    assert listed("run") == expected
    assert '- if: match(python, "<3.11")\n      then: tomli' in recipe
    libraries = {"libhwy", "libhwloc"}
    host = listed("host")
    assert {name: host[name] for name in host.keys() - libraries} == minima(
        declared["build-system"]["requires"]
    )
    assert libraries <= host.keys()
    cmake = declared["tool"]["scikit-build"]["cmake"]["version"].removeprefix(">=")
    assert listed("build") == {"cmake": cmake}
    assert f"summary: {named['description'].partition(':')[0]}" in recipe


def test_the_makefile_installs_the_declared_build_requirements():
    (line,) = re.findall(r"^BUILD_REQUIRES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert shlex.split(line) == project()["build-system"]["requires"]


def test_the_declared_python_releases_are_those_of_the_wheels():
    declared = project()
    prefix = "Programming Language :: Python :: "
    classifiers = declared["project"]["classifiers"]
    releases = [c.removeprefix(prefix) for c in classifiers if re.search(r":: 3\.\d+$", c)]
    assert declared["project"]["requires-python"] == f">={releases[0]}"
    wheels = [f"cp{release.replace('.', '')}-*" for release in releases]
    assert declared["tool"]["cibuildwheel"]["build"] == wheels


@pytest.mark.parametrize("name", ["Containerfile", "apptainer.def"])
def test_images_have_the_libraries_of_the_build(name):
    # Debian's packages of the libraries to which those of install-system-packages.sh belong.
    text = (ROOT / "packaging" / name).read_text()
    assert text.count("tools/install-system-packages.sh") == 1
    (packages,) = re.findall(
        r"apt-get install -y --no-install-recommends (.*?)(?: \\)?$", text, re.M
    )
    assert packages.split() == ["python3", "libgomp1", "libhwloc15", "libhwy1"]


def sources(folder: Path) -> Path:
    """Build the archive of the sources."""
    script = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    words = [sys.executable, "-c", script, str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def test_the_archive_of_the_sources_has_the_files_of_the_tree(tmp_path):
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    there = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    excluded = {".clang-format", ".clang-tidy", ".gitignore", ".pre-commit-config.yaml"}
    expected = {
        name
        for name in there.stdout.splitlines()
        if not name.startswith(".ci/") and Path(name).name not in excluded
    }
    with tarfile.open(sources(tmp_path)) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert names == expected | {"PKG-INFO"}


@pytest.mark.release
def test_a_wheel_for_other_machines_is_small_and_has_one_module(tmp_path):
    words = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*words, "--wheel-dir", str(tmp_path / "wheels"), str(sources(tmp_path))],
        env=os.environ | {"MEMKERN_WHEEL": "1"},
        check=True,
    )
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.stat().st_size < 8e6
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    modules = [name.partition(".")[0] for name in names if name.endswith(".so")]
    assert modules == ["memkern/_memkern"]
    licenses = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licenses == {"LICENSE", "LICENSES.bundled"}


DAY = datetime.date(2027, 1, 31)
CHANGES = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.9.3 (2026-12-01)\n\n- Old.\n"


@pytest.mark.parametrize("version", ["0.9.4", "0.10.0", "1.0.0"])
def test_a_release_makes_a_section_of_the_unreleased_changes(version):
    changed = release.cut_changelog(CHANGES, version, DAY)
    section = f"## Unreleased\n\n## {version} (2027-01-31)\n\n- New.\n\n## 0.9.3"
    assert section in changed
    assert changed.replace(f"\n## {version} (2027-01-31)\n", "") == CHANGES


@pytest.mark.parametrize(
    ("text", "version", "message"),
    [
        (CHANGES, "0.9", "the version 0.9 must have three numbers, such as 1.2.0"),
        (CHANGES, "0.9.04", "the version 0.9.04 must have three numbers"),
        (
            CHANGES,
            "0.9.3",
            "after 0.9.3 the version must be one of 0.9.4, 0.10.0, 1.0.0, not 0.9.3",
        ),
        (CHANGES, "0.11.0", "after 0.9.3 the version must be one of"),
        (CHANGES.replace("- New.", ""), "1.0.0", "must have changes under the heading Unreleased"),
        ("# Changelog\n", "0.1.0", "must have changes under the heading Unreleased"),
    ],
    ids=["two numbers", "a leading zero", "the last one", "a gap", "no changes", "no heading"],
)
def test_a_release_without_a_next_version_or_changes_is_refused(text, version, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        release.cut_changelog(text, version, DAY)


def test_a_release_writes_its_version_into_three_files(tmp_path):
    for name in ("pyproject.toml", "CITATION.cff"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    for version in ("0.9.4", "1.0.0"):  # the second replaces the date of the first
        (tmp_path / "CHANGELOG.md").write_text(CHANGES)
        release.cut(tmp_path, version, DAY)
        assert (tmp_path / "CHANGELOG.md").read_text() == release.cut_changelog(
            CHANGES, version, DAY
        )
        assert (
            tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["version"]
            == version
        )
        cited = (tmp_path / "CITATION.cff").read_text()
        assert f"\nversion: {version}\ndate-released: 2027-01-31\n" in cited
        assert cited.count("date-released") == 1


def test_the_versions_of_the_tree_are_equal():
    version = project()["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    cut = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cut[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading) for heading in cut[1:])
    assert not cut[1:] or cut[1].partition(" ")[0] == version


def test_recipes_get_the_version_and_the_hash_of_the_archive(tmp_path, capsys):
    archive = tmp_path / "memkern-1.2.3.tar.gz"
    archive.write_bytes(b"something")
    url = "https://its.home/memkern-1.2.3.tar.gz"
    assert release.main(["recipes", str(archive), url]) == 0
    spack, conda = map(Path, capsys.readouterr().out.split())
    digest = hashlib.sha256(b"something").hexdigest()
    assert f'version("1.2.3", sha256="{digest}")' in spack.read_text()
    assert 'pypi = "memkern/memkern-1.2.3.tar.gz"' in spack.read_text()
    recipe = conda.read_text()
    assert f'version: "1.2.3"\n\nsource:\n  url: "{url}"\n  sha256: "{digest}"\n' in recipe
    assert not any(re.search(r"@\w+@", path.read_text()) for path in (spack, conda))
    assert release.main(["recipes", str(tmp_path / "other.zip"), url]) == 2
    assert "must be named memkern-VERSION.tar.gz" in capsys.readouterr().err
