"""The file of this host: lifetime until the next boot, damage, concurrent processes."""

import json
import math
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memkern.host import CHOICES, Caches, Host, file, this_host
from memkern.host.distances import RUNS, Repeated
from memkern.host.file import File, Section
from memkern.host.rates import RATES
from memkern.limits import control_groups

NUMBER: Section[int] = Section("number", 0, int)
READERS: dict[str, Callable[[Host], Any]] = {
    "cores": lambda host: host._file.get(RATES),
    "doctor": lambda host: host.health,
    "counters": lambda host: host.counters,
    "ceilings": lambda host: host.best_rates("a", {"load": 1.0}),
    "choices": lambda host: host.choices.known("a"),
    "runs": lambda host: host._file.get(RUNS),
    "caches": lambda host: host.caches,
}
DAMAGED_FILES = {
    "nothing": "",
    "text": "not JSON",
    "brackets": "[" * 200_000,
    "a list": "[]",
}
DAMAGED_SECTIONS = {
    "a number": 1,
    "a list": [1],
    "a list of lists": {"a": [[1]]},
    "text": {"2": {"1": "x"}, "a": "x", "placements": "x", "summary": "x"},
    "infinity": {"a": {"b": math.inf}, "runs": {"a": [math.inf, 1]}},
    "digits": {"a": {"1": 10**400}},
    "negative": {
        "created": "", "placements": {}, "runs": {"a": [-1, 1]},
        "2": {"1": -5}, "a": ["a", -1, 0, 0, 0],
    },
}  # fmt: skip

# Files that may be from another boot or version give no warning.
OTHERS = {
    "no facts": "{}", "no boot": '{"version": 1}',
    "another boot": '{"version": 1, "boot": 3, "ceilings": 1}',
    "another version": json.dumps({**file._heading(), "version": 0, "ceilings": 1}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the file, in an empty folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MEMKERN_SMALL", raising=False)
    path = file.usual_path()
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", [*DAMAGED_FILES, *OTHERS])
def test_only_damaged_files_are_removed_with_a_warning(path, name, kind):
    unknown = READERS[name](Host())
    content = (DAMAGED_FILES | OTHERS)[kind]
    path.write_text(content)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert READERS[name](Host(path)) == unknown
    warned = [f"{path} was damaged, and is written anew"] if kind in DAMAGED_FILES else []
    assert [str(one.message) for one in told] == warned
    if kind in DAMAGED_FILES:
        assert not path.exists() or path.read_text() != content


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", DAMAGED_SECTIONS)
def test_only_a_damaged_section_is_replaced(path, name, kind):
    unknown = READERS[name](Host())
    content = {**file._heading(), name: DAMAGED_SECTIONS[kind], "number": 5}
    path.write_text(json.dumps(content))
    host = Host(path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert READERS[name](host) == unknown
        assert READERS[name](host) == unknown
    assert [str(one.message) for one in told] == [
        f"section {name} of {path} was damaged, and is written anew"
    ]
    host.keep_counters({"a": 1.0})
    stored = json.loads(path.read_text())
    assert stored["number"] == 5 and stored.get(name) != DAMAGED_SECTIONS[kind]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "link to itself"])
def test_what_is_no_file_is_not_read(path, name, kind):
    unknown = READERS[name](Host())
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path)
    else:
        with open(path, "wb") as stream:
            stream.truncate(2**34)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert READERS[name](Host(path)) == unknown


def test_a_file_is_read_again_only_after_a_change(path, monkeypatch):
    one, other = File(path), File(path)
    one.put((NUMBER, 1))
    assert other.get(NUMBER) == 1
    with monkeypatch.context() as patch:
        patch.setattr(file, "_document", None)
        assert other.get(NUMBER) == 1
    one.put((NUMBER, 23))
    assert other.get(NUMBER) == 23
    path.unlink()
    assert other.get(NUMBER) == 0


def test_files_of_another_boot_are_left_alone(path, monkeypatch):
    File(path).put((NUMBER, 1))
    monkeypatch.setattr(file, "boot_id", lambda: "another")
    assert File(path).get(NUMBER) == 0
    assert path.exists()


def test_each_version_has_its_own_file(path, monkeypatch):
    this_host().keep_counters({"a": 1.0})
    before = path.read_bytes()
    monkeypatch.setattr(file, "_VERSION", file._VERSION + 1)
    assert this_host().counters == {}
    this_host().keep_counters({"a": 2.0})
    assert path.read_bytes() == before and this_host().path != path


def test_a_folder_that_can_not_be_written_is_no_error(path):
    path.parent.rmdir()
    path.parent.write_text("a file where the folder would be")
    host = Host(path)
    host.cores.add([1.0, 1.1], "1")
    host.keep_health("fit")
    host.save()
    assert host.health == "" and not host.keep_caches(Caches([], {}, "", 1, 1, 1, 0.0))
    assert path.parent.read_text() == "a file where the folder would be"


ADD = """
import sys
from memkern.host import Host, file
from memkern.host.rates import RATES
from memkern.host import CHOICES
from memkern.host.distances import RUNS, Repeated
file._LOCK_S = 60  # on a busy machine
number, path = int(sys.argv[1]), file.usual_path()
for k in range(20):
    host, name = Host(path), f"{number} {k}"
    host._file.put(
        (RATES, {"2": {number: 1}}),
        (RUNS, {name: Repeated("a", 1, 0.0, 0.0, 1.0)}),
        (CHOICES, {"a": [{"simd": 1.0}], name: [{"simd": float(k)}]}),
    )
    host.best_rates("a", {"load": float(number), name: 1.0})
"""


def test_processes_do_not_overwrite_what_others_add(path):
    every = [subprocess.Popen([sys.executable, "-c", ADD, str(number)]) for number in range(4)]
    assert [process.wait() for process in every] == [0] * 4
    known = File(path)
    assert known.get(RATES) == {"2": Counter({number: 20 for number in range(4)})}
    assert len(known.get(RUNS)) == 80
    rounds = known.get(CHOICES)
    assert len(rounds) == 81 and rounds["a"] == [{"simd": 1.0}] * 12
    rates = json.loads(path.read_text())["ceilings"]["a"]
    assert len(rates) == 81 and rates["load"] == 3.0


def test_a_verdict_is_that_of_this_control_group(path):
    host = Host(path)
    host.keep_health("fit")
    content = json.loads(path.read_text())
    assert content["doctor"]["cgroup"] == control_groups()
    assert host.health.startswith("fit (")
    content["doctor"]["cgroup"] = "0::/another"
    path.write_text(json.dumps(content))
    assert host.health == ""


@pytest.mark.parametrize("small", [False, True])
def test_a_process_stores_what_it_has_added_when_it_ends(small, path, monkeypatch):
    add = """
import os
from memkern.host import this_host
record = {"time_min_s": 1.0, "time_median_s": 2.0}
host = this_host()
host.add_record("a", "L1, 1 thread, 1 placement", record, 5.0)
host.cores.add([1.0], "2")
host.choices.add("a", {"simd/avx2": -7.5})
if os.fork() == 0:
    raise SystemExit  # a forked process stores nothing
os.wait()
"""
    if small:
        monkeypatch.setenv("MEMKERN_SMALL", "1")
    subprocess.run([sys.executable, "-c", add], check=True)
    known = File(path)
    runs = {
        "a floor": Repeated("L1, 1 thread, 1 placement, floor", 0.0, 0.0, 0.0, 5.0),
        "a median": Repeated("L1, 1 thread, 1 placement, median", 0.0, 0.0, math.log(2), 5.0),
    }
    assert known.get(RUNS) == ({} if small else runs)
    assert known.get(RATES) == ({} if small else {"2": {0: 1}})
    assert known.get(CHOICES) == ({} if small else {"a": [{"simd/avx2": -7.5}]})
    assert path.exists() == (not small)
