"""The pages of the notebooks, which show them as they are: without outputs."""

from __future__ import annotations

import json
from pathlib import Path

from pages.text import put, tree

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

_HEAD = """# Notebooks

The notebooks in the folder `notebooks` run on any machine; their sizes are small, so that a cell
takes seconds. They are shown here without outputs, which differ from machine to machine.

"""


def write(folder: Path) -> list[Path]:
    """Write a list of the notebooks and a page for each."""
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    made = [put(folder / "notebooks" / f"{path.stem}.md", _page(path)) for path in paths]
    listed = _HEAD + tree(*(path.stem for path in paths))
    return [*made, put(folder / "notebooks" / "index.md", listed)]


def _page(path: Path) -> str:
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    head, *rest = parts
    return "\n\n".join([head, f"File `notebooks/{path.name}`.", *rest]) + "\n"
