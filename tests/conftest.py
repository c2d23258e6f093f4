"""Shared by all Python tests."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Threads that spin while they wait would starve each other on a machine with few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A shell lets what it starts in the background, and all that starts from there, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-entry", action="store_true", help="run the tests of every entry of a kernel"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--every-entry"):
        return
    left_out = [item for item in items if item.get_closest_marker("every_entry")]
    items[:] = [item for item in items if not item.get_closest_marker("every_entry")]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def disturbances() -> None:
    """Let samples be called disturbed and wait for quiet cores, as on real runs."""


@pytest.fixture(autouse=True)
def on_its_own(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Keep what else runs on the machine, and its calibration, out of what tests expect."""
    from memkern.measuring import cores, disturbance, sampling
    from memkern.measuring.disturbance import Quiet

    def none(cpu_share: Any, throughput: Any, *best: float) -> Any:
        return np.zeros(len(cpu_share), dtype=bool)

    monkeypatch.setattr(cores, "look_around", lambda: Quiet((), 0.0))
    if "disturbances" not in request.fixturenames:
        monkeypatch.setattr(disturbance, "marks", none)
        monkeypatch.setattr(sampling, "least_throughput", lambda prepared: 0.0)
    folder: Path = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
