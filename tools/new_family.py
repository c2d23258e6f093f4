"""Write the files of a new family of kernels, as `tests/new_family` has them for squares.

    python tools/new_family.py NAME [FOLDER]

FOLDER is the tree in which they are written, by default this one. No file is overwritten.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
TEMPLATE, NAME = TREE / "tests" / "new_family", "squares"


def main() -> None:
    """Write the files and print their paths."""
    name, tree = sys.argv[1], Path(*sys.argv[2:3] or [TREE])
    if not re.fullmatch(r"[a-z][a-z_]*", name) or (tree / "cpp" / "families" / name).exists():
        sys.exit(f"{name!r} is not the name of a new family: small letters, such as {NAME}")
    for path in sorted(TEMPLATE.rglob("*.*")):
        if "__pycache__" not in path.parts:
            text = path.read_text("utf-8").replace(NAME, name).replace(NAME.upper(), name.upper())
            target = tree / str(path.relative_to(TEMPLATE)).replace(NAME, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.replace(NAME.capitalize(), name.capitalize()), "utf-8")
            print(target.relative_to(tree))


if __name__ == "__main__":
    main()
