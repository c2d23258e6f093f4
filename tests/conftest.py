"""Options and fixtures of all Python tests."""

import functools
import gc
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Variables set by the caller: shell, batch job or launcher. OpenMP reads its variables when the
# extension is loaded, which the modules below import.
_OTHERS = (
    *("OMP_", "GOMP_", "KMP_", "HWLOC_", "MEMKERN_"),
    *("SLURM_", "PBS_", "PMI_", "PMIX_", "OMPI_"),
)
_TERMINAL = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
for _name in [name for name in os.environ if name.startswith(_OTHERS) or name in _TERMINAL]:
    if _name != "MEMKERN_BUILD":
        del os.environ[_name]
# Waiting threads that spin would delay the others on a machine with few cores.
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# Collecting garbage after every 700 objects takes a twelfth of the time.
gc.set_threshold(10_000)

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from machines import MACHINES, STANDARD, Machine, describe, described  # noqa: E402

# Tests that run simultaneously start commands that measure on the same units.
os.environ.setdefault("PYTHONWARNINGS", "ignore:another memkern process measures")
# Background jobs of a shell and their children ignore SIGINT, which tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Folder of the tests' cache folders, each with a number.
_CACHES = "caches"
_NUMBERS = itertools.count()
# Markers of tests that run only with the option of this name.
ON_REQUEST = ("release", "cluster")


def pytest_addoption(parser: pytest.Parser) -> None:
    for marker in ON_REQUEST:
        parser.addoption(
            f"--{marker.replace('_', '-')}",
            action="store_true",
            help=f"run the tests marked {marker} as well",
        )
    parser.addoption(
        "--machine",
        default=STANDARD,
        choices=[*MACHINES, "this"],
        help="the described machine on which the tests run (tests/machines.py), or this one",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    _know_caches()
    describe(MACHINES.get(session.config.getoption("machine")))


def _know_caches() -> None:
    """Store for programs that tests start that the caches are those that the system reports.

    Each of them would measure their capacity for a second.
    """
    from memkern.host import Host, capacity, file

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        patch.setattr(capacity, "measure", lambda system, tries: {})
        target = file.usual_path()
        capacity.capacity(Host(target))
        # What this process measures, it measures.
        capacity._measured.cache_clear()
        place, known = target.relative_to(folder), target.read_bytes()
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def started(self: Any, *words: Any, **options: Any) -> None:
        folder = Path((options.get("env") or os.environ).get("XDG_CACHE_HOME", os.devnull))
        if folder.parent.name == _CACHES and not folder.exists():
            (folder / place).parent.mkdir(parents=True)
            (folder / place).write_bytes(known)
        start(self, *words, **options)

    subprocess.Popen.__init__ = started


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Leave out parameters that run only on request: there are as many as tests that run."""
    parametrize = metafunc.parametrize

    def parametrized(names: Any, values: Iterable[Any], *words: Any, **options: Any) -> None:
        values = list(values)
        wanted = [v for v in values if _wanted(metafunc.config, getattr(v, "marks", ()))]
        # Without any, there is one test for each, which is left out below.
        parametrize(names, wanted or values, *words, **options)

    metafunc.parametrize = parametrized


def _wanted(config: pytest.Config, marks: Iterable[pytest.Mark]) -> bool:
    """Return whether what has these marks runs."""
    return all(config.getoption(mark.name) for mark in marks if mark.name in ON_REQUEST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (wanted if _wanted(config, item.iter_markers()) else left_out).append(item)
    # Without a slow one at the end, no worker waits for the others.
    slowest = (Path(__file__).parent / "slowest.txt").read_text().splitlines()
    places = {name: place for place, name in enumerate(slowest)}

    def place_of(item: pytest.Item) -> int:
        module = item.nodeid.partition("::")[0].removesuffix(".py").replace("/", ".")
        return places.get(f"{module}.{item.name}", len(places))

    items[:] = sorted(wanted, key=place_of)
    config.hook.pytest_deselected(items=left_out)


def _process() -> dict[str, Any]:
    """Return the state shared by tests of the same process."""
    # pytest sets this variable to the running test.
    variables = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return {
        "variables": variables,
        "folder": os.getcwd(),
        "path": list(sys.path),
        "processors": os.sched_getaffinity(0),
        "interrupt": signal.getsignal(signal.SIGINT),
    }


_BEFORE = pytest.StashKey[dict[str, Any]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEFORE] = _process()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail a test that changes the state of its process for later tests."""
    result = yield
    before, after = item.stash[_BEFORE], _process()
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"changed for later tests: {', '.join(changed)}"
    return result


@pytest.fixture
def this_machine() -> Iterator[None]:
    """Run the test on the machine itself instead of a described one."""
    with described(None):
        yield


@pytest.fixture(params=[pytest.param(machine, id=name) for name, machine in MACHINES.items()])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Run the test on each of the described machines."""
    with described(request.param):
        yield request.param


@pytest.fixture
def users_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one whose files have the names of modules that processes import."""
    folder = tmp_path / "of the user"
    folder.mkdir()
    named = ("copy", "json", "numpy", "random", "runpy", "statistics", "subprocess", "typing")
    for module in named:
        (folder / f"{module}.py").write_text(f"raise AttributeError('{module}.py of the user ran')")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make cases small, here and in other processes."""
    monkeypatch.setenv("MEMKERN_SMALL", "1")


@pytest.fixture
def without_sections() -> Iterator[None]:
    """Leave the sections of kernels, which take long to draw, out of reports."""
    from memkern.plots.registry import sections

    known = dict(sections)
    sections.clear()
    yield
    # In their order, which is that of a report.
    sections.clear()
    sections.update(known)


@pytest.fixture
def disturbances() -> None:
    """Keep warm-ups and the detection of disturbed samples, which `isolated` turns off."""


@pytest.fixture
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the measurement of the memory bandwidth, which takes seconds."""
    from memkern import host
    from memkern.engine.placing import costs
    from memkern.engine.recording.record import CEILINGS
    from memkern.spec.kernel import Ceilings

    # Other tests of this process measure it.
    monkeypatch.setattr(host, "_default", functools.lru_cache(maxsize=1)(host.Host))
    monkeypatch.setitem(costs._MEASURES, CEILINGS, lambda *options: Ceilings(20.0, 15.0, 10.0))


# Launch costs and bandwidths, which tests of a process measure once.
_MEASURED: dict[Any, Any] = {}


def _host(path: Path | None) -> Any:
    """Return a default host of a test, which is not saved at the end of the process."""
    from memkern.host import Host

    found = Host(path)
    found.measured = _MEASURED
    return found


@pytest.fixture(autouse=True)
def isolated(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Make results independent of other processes on the machine, its history and meters."""
    from memkern import host
    from memkern.engine import public
    from memkern.engine.placing import run, watching
    from memkern.engine.recording import taken
    from memkern.engine.sampling import activity, prepared, series
    from memkern.engine.sampling.activity import Activity
    from memkern.machine import energy, environment

    names = activity.names_of_cores

    def none(values: Any, *others: Any) -> Any:
        return np.zeros(len(values), dtype=bool)

    for module in (activity, public):
        monkeypatch.setattr(module, "observe_activity", lambda: Activity((), 0.0))
    monkeypatch.setattr(watching, "shared_probes", lambda: float("nan"))
    monkeypatch.setattr(environment, "read_steal_s", lambda *_, **__: 0.0)
    if "disturbances" not in request.fixturenames:
        monkeypatch.setattr(series, "disturbed_samples", none)
        monkeypatch.setattr(taken.Taken, "quiet", True)
        # Without exchanges between workers, the host has no states.
        monkeypatch.setattr(series, "names_of_cores", lambda obtained: (names(obtained)[0], ""))
        monkeypatch.setattr(run, "competitors", lambda beside: ())
        monkeypatch.setattr(series, "warms_up", lambda: False)
        monkeypatch.setattr(prepared, "warn_of_conditions", lambda shared_units: None)
    monkeypatch.setattr(energy, "ROOT", Path("/nonexistent"))
    # Importing it is taken for running in a notebook; an earlier test may have run one.
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    # Values that a test measures or sets are not visible to the next test.
    folder: Path = tmp_path_factory.getbasetemp() / _CACHES / str(next(_NUMBERS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(host, "_default", functools.lru_cache(maxsize=1)(_host))
