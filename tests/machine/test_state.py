"""Files of the cache folder: lifetime until the next boot, damage, concurrent processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memkern.engine import calibration, choices, drift
from memkern.limits import control_groups
from memkern.machine import caches, capacity, state

HERE = json.dumps(state.heading())[1:-1]
READERS: dict[str, Callable[[], Any]] = {
    "calibration.json": calibration.load,
    "cores.json": lambda: calibration.load_cores(calibration.cores_path()),
    "doctor.json": calibration.load_health,
    "counters.json": calibration.load_counters,
    "ceilings.json": lambda: calibration.best_rates("a", {"load": 1.0}),
    "choices.json": lambda: choices.load(choices.path()),
    "runs.json": lambda: drift.load(drift.path()),
    "caches.json": lambda: (caches.load([]), capacity._known([])),
}
DAMAGED = {
    "nothing": "",
    "text": "not JSON",
    "brackets": "[" * 200_000,
    "a list": "[]",
    "an entry": f'{{{HERE}, "placements": 1, "runs": 1, "counts": 1, "rounds": 1, "cases": 1, '
    '"rates": 1, "ratios": 1, "summary": 1, "created": 1, "sizes_B": 1, '
    f'"cgroup": {json.dumps(control_groups())}}}',
    "no entry": f"{{{HERE}}}",
    "infinity": f'{{{HERE}, "runs": {{"a": [Infinity, 1]}}}}',
    "too large a number": f'{{{HERE}, "counts": {{"2": {{"1": 1e999}}}}}}',
    "digits": f'{{{HERE}, "counts": {{"2": {{"1": {"9" * 400}}}}}}}',
    "negative": f'{{{HERE}, "created": "", "placements": {{}}, "runs": {{"a": [-1, 1]}}, '
    '"counts": {"2": {"1": -5}}, "cases": {"a": {"name": "a", "count": 0, "mean": 0, '
    '"squares": -1, "last_s": 0}}}',
}

# Files that may be from another boot give no warning.
OTHERS = {
    "no facts": "{}", "no boot": '{"version": 1}',
    "another boot": '{"version": 1, "boot": 3, "placements": 1}',
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for the files of this boot."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MEMKERN_SMALL", raising=False)
    folder = state.folder()
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", [*DAMAGED, *OTHERS])
def test_only_damaged_files_are_removed_with_a_warning(cache: Path, name: str, kind: str) -> None:
    unknown = READERS[name]()
    target = cache / name
    target.unlink(missing_ok=True)
    content = (DAMAGED | OTHERS)[kind]
    target.write_text(content)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert READERS[name]() == unknown
    warned = [f"{target} was damaged, and is written anew"] if kind in DAMAGED else []
    assert [str(one.message) for one in told] == warned
    if kind in DAMAGED:
        assert not target.exists() or target.read_text() != content


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "link to itself"])
def test_what_is_no_file_is_not_read(cache: Path, name: str, kind: str) -> None:
    unknown = READERS[name]()
    target = cache / name
    target.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    elif kind == "link to itself":
        target.symlink_to(target)
    else:
        with open(target, "wb") as file:
            file.truncate(2**34)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert READERS[name]() == unknown


def test_files_of_another_boot_are_left_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = cache / "x.json"
    state.keep(target, {"value": 1})
    assert state.kept(target, lambda document: document["value"], None) == 1
    monkeypatch.setattr(state, "boot_id", lambda: "another")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state.kept(target, lambda document: document["value"], None) is None
    assert target.exists()


def test_a_folder_that_can_not_be_written_is_no_error(cache: Path) -> None:
    cache.rmdir()
    cache.write_text("a file where the folder would be")
    calibration.save_cores({"1": {87: 2}}, calibration.cores_path())
    calibration.save_health("fit")
    drift.save({"a": drift.Repeated("a", 1, 0.0, 0.0, 0.0)}, drift.path())
    assert calibration.load_cores(calibration.cores_path()) == {}
    assert calibration.load_health() == ""
    assert cache.read_text() == "a file where the folder would be"


ADD = """
import sys
from memkern.engine import calibration, choices
from memkern.engine.drift import Repeated, path, save
from memkern.machine import state
state._LOCK_S = 60  # on a busy machine
number = int(sys.argv[1])
for k in range(20):
    calibration.save_cores({"2": {number: 1}}, calibration.cores_path())
    save({f"{number} {k}": Repeated("a", 1, 0.0, 0.0, 1.0)}, path())
    calibration.best_rates(f"{number} {k}", {"load": 1.0})
"""


def test_processes_do_not_overwrite_what_others_add() -> None:
    every = [subprocess.Popen([sys.executable, "-c", ADD, str(number)]) for number in range(4)]
    assert [process.wait() for process in every] == [0] * 4
    assert calibration.load_cores(calibration.cores_path()) == {
        "2": Counter({number: 20 for number in range(4)})
    }
    assert len(drift.load(drift.path())) == 80
    rates = json.loads(calibration.path().with_name("ceilings.json").read_text())["rates"]
    assert len(rates) == 80
