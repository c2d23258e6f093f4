"""Write the files of a release: the changelog and the version, and the recipes of packagers.

::

    python tools/release.py cut 0.2.0                      # CHANGELOG, pyproject.toml, CITATION.cff
    python tools/release.py recipes dist/memkern-0.2.0.tar.gz URL    # dist/recipes

The first makes a section of what is listed under `Unreleased`. The second fills in version and hash
of an archive of the sources, and the address at which the package index has it, in the recipes of
`packaging/`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNRELEASED = "## Unreleased\n"
RECIPES = ("spack/package.py", "conda/recipe.yaml")

Version = tuple[int, int, int]


def read_version(text: str) -> Version:
    """Return the three numbers of a version; raises ValueError if it has others."""
    found = re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", text)
    if not found:
        raise ValueError(f"the version {text} must have three numbers, such as 1.2.0")
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def next_versions(last: Version) -> list[Version]:
    """Return the versions that may follow: with corrections, additions, incompatible changes."""
    major, minor, patch = last
    return [(major, minor, patch + 1), (major, minor + 1, 0), (major + 1, 0, 0)]


def cut_changelog(text: str, version: str, day: datetime.date) -> str:
    """Return the changelog with the unreleased changes as those of a version."""
    wanted = read_version(version)
    released = re.findall(r"^## (\d+\.\d+\.\d+) \(", text, re.MULTILINE)
    if released and wanted not in (allowed := next_versions(read_version(released[0]))):
        names = ", ".join(".".join(map(str, one)) for one in allowed)
        raise ValueError(f"after {released[0]} the version must be one of {names}, not {version}")
    before, found, after = text.partition(UNRELEASED)
    if not found or not after.partition("\n## ")[0].strip():
        raise ValueError("CHANGELOG.md must have changes under the heading Unreleased")
    return f"{before}{UNRELEASED}\n## {version} ({day})\n{after}"


def replace_once(text: str, pattern: str, line: str, name: str) -> str:
    """Replace the only line that matches; raises ValueError if there are none or several."""
    text, count = re.subn(pattern, line, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{name} must have one line {pattern}, not {count}")
    return text


def cut(root: Path, version: str, day: datetime.date) -> None:
    """Write the version into the changelog, pyproject.toml and CITATION.cff of a tree."""
    texts = {name: (root / name).read_text() for name in ("pyproject.toml", "CITATION.cff")}
    changed = {"CHANGELOG.md": cut_changelog((root / "CHANGELOG.md").read_text(), version, day)}
    line = f'version = "{version}"'
    changed["pyproject.toml"] = replace_once(
        texts["pyproject.toml"], r'^version = ".*"$', line, "pyproject.toml"
    )
    cited = re.sub(r"^date-released: .*\n", "", texts["CITATION.cff"], flags=re.MULTILINE)
    lines = f"version: {version}\ndate-released: {day}"
    changed["CITATION.cff"] = replace_once(cited, r"^version: .*$", lines, "CITATION.cff")
    for name, text in changed.items():
        (root / name).write_text(text)


def recipes(archive: Path, url: str, folder: Path) -> list[Path]:
    """Write the recipes for an archive of the sources into a folder; return their paths."""
    found = re.fullmatch(r"memkern-(.+)\.tar\.gz", archive.name)
    if not found:
        raise ValueError(f"{archive} must be named memkern-VERSION.tar.gz")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    values = {"version": found[1], "sha256": digest, "url": url}
    written = []
    for name in RECIPES:
        text = (ROOT / "packaging" / name).read_text()
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        written.append(folder / name)
    return written


def main(words: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("cut", help="write the version").add_argument("version")
    fill = verbs.add_parser("recipes", help="write dist/recipes")
    fill.add_argument("archive", type=Path)
    fill.add_argument("url")
    given = parser.parse_args(words)
    try:
        if given.verb == "cut":
            cut(ROOT, given.version, datetime.date.today())
        else:
            print(*recipes(given.archive, given.url, given.archive.parent / "recipes"), sep="\n")
    except (ValueError, OSError) as error:
        print(f"release.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
