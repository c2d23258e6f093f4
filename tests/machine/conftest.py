"""Fixtures of several tests of settings."""

from pathlib import Path

import pytest

from memkern.machine import settings


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the journal."""
    folder = tmp_path / "state"
    monkeypatch.setenv(settings.FOLDER, str(folder))
    return folder
