"""The pages of the documentation that are generated from registries, parsers and packaged data.

`conf.py` calls `write` before Sphinx reads the sources. Nothing is measured.
"""

from __future__ import annotations

from pathlib import Path

from pages import columns, figures, kernels, notebooks, papers, python, shell


def write(folder: Path) -> None:
    """Write all generated pages into a folder, and remove those that are no longer made.

    Parameters
    ----------
    folder : Path
        The folder ``generated`` beside the written pages.
    """
    made = {
        path
        for module in (columns, figures, kernels, notebooks, papers, python, shell)
        for path in module.write(folder)
    }
    for path in set(folder.rglob("*.*")) - made:
        path.unlink()
