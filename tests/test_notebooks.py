"""Every notebook runs from top to bottom."""

import re
from pathlib import Path

import nbformat
import pytest
from checking import once_a_kind
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", once_a_kind(NOTEBOOKS, name=lambda path: path.stem))
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    # debugpy, which older clients import, sets it for the whole process.
    monkeypatch.setenv("PYDEVD_USE_FRAME_EVAL", "NO")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    kinds = {kind for cell in code for out in cell.outputs for kind in out.get("data", {})}
    assert {"text/html", "image/png"} <= kinds
    streams = [out for cell in code for out in cell.outputs if out.get("name") == "stderr"]
    # Of several sizes, small cases are the same.
    assert all(re.search("(repeat|equal) an earlier one", out["text"]) for out in streams)
