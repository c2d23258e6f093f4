"""Fixtures of the tests of the CUDA backend."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_under_test import CUDA, HAS_GPU, MODULE, Nvml, emulated_file

from memkern.machine import gpu


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, MODULE, CUDA)
    # Short, since tests do not depend on times.
    for name in ("WARM_S", "METERED_S", "_REST_S"):
        monkeypatch.setattr(gpu, name, 0.001)
    gpu.facts.cache_clear()
    yield
    gpu.facts.cache_clear()


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMKERN_EMULATED_DEVICES", "2")


# Lets child processes import the emulated module instead of the real one.
AS_CARD = """
import importlib.util, sys
class Emulated:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            return importlib.util.spec_from_file_location(name, {file!r})
sys.meta_path.insert(0, Emulated)
"""


@pytest.fixture
def as_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let child processes find the emulated device as a GPU."""
    if HAS_GPU:
        pytest.skip("this machine has a GPU of its own")
    folder = tmp_path / "as_card"
    folder.mkdir()
    text = AS_CARD.format(module=MODULE, file=str(emulated_file()))
    (folder / "sitecustomize.py").write_text(text)
    before = [path for path in [os.environ.get("PYTHONPATH")] if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *before]))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    fake = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    for known in (gpu._nvml, gpu.idle_W):
        known.cache_clear()
    yield fake
    for known in (gpu._nvml, gpu.idle_W):
        known.cache_clear()
