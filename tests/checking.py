"""Helpers of several test files: altered prepared cases, refusals, the command line."""

import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import settings

import memkern as mk
from memkern import cli
from memkern.engine.processes.communication import ranks
from memkern.engine.sampling.activity import Activity
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.models import roofline
from memkern.spec.case import Case
from memkern.spec.kernel import Check, finish

# What CMake built of the package under test, and its emulated device.
BUILD = Path(os.environ.get("MEMKERN_BUILD", Path(__file__).parents[1] / "build" / "release"))

# The variant with non-temporal stores, which only x86-64 has.
STREAMED = "nt" if platform.machine() == "x86_64" else "simd"
NEEDS_STREAMED = pytest.mark.skipif(STREAMED != "nt", reason="only x86-64 has the variant nt")

# The smallest case of Spatter.
SMALL = ["-l", "256", "-t", "1", "-r", "3"]

# The same examples in every run, and none stored.
PROPERTY = settings(derandomize=True, deadline=None, database=None, max_examples=100)

# Arguments of the extension's `Prepared` for the smallest case, an empty kernel.
REQUEST: dict[str, Any] = {
    "kernel": "launch.empty", "dtype": "float64", "index_dtype": "", "template_variant": "",
    "integers": {"prefetch": 0}, "numbers": {}, "indices": {}, "data": {},
    "threads": 1, "pin": "none", "pages": "default", "numa": "first-touch", "offset": 0,
    "schedule": "static", "chunk": 0, "repetition": "fork", "unroll": 0, "flush": False,
    "caches_B": 0, "seed": 0, "device": None, "timer": "host", "block_threads": 0,
    "block_shared": 0,
}  # fmt: skip


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder, by path, and return the folder."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


class Changed:
    """A prepared case with some of its attributes replaced."""

    def __init__(self, native: Any, **changes: Any) -> None:
        self.native, self.changes = native, changes

    def __getattr__(self, name: str) -> Any:
        return self.changes.get(name) or getattr(self.native, name)


def corrupted(
    native: Any,
    array: str,
    position: int,
    change: Callable[[Any], Any],
    methods: tuple[str, ...] = ("run",),
) -> Changed:
    """Return a prepared case that changes one element of an array after every call of a method."""
    at = np.array([position])

    def wrapped(method: Callable[..., float]) -> Callable[..., float]:
        def call(*arguments: int) -> float:
            seconds = float(method(*arguments))
            native.poke(array, at, np.array([change(native.peek(array, at)[0])]))
            return seconds

        return call

    return Changed(native, **{name: wrapped(getattr(native, name)) for name in methods})


def checked(case: Case, native: Any, runs: int = 1) -> Check:
    """Return the result of a case's check after this number of runs."""

    validation = case.spec.checks.check(case, native)
    next(validation)
    for _ in range(runs):
        native.run(1)
    return finish(validation, runs)


@contextmanager
def allocating_at_most(most_B: float) -> Iterator[None]:
    """Assert that Python allocates less than `most_B` within the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most_B
    finally:
        tracemalloc.stop()


@contextmanager
def refused(culprit: str) -> Iterator[None]:
    """Expect an `InputError` whose one line matches the regular expression `culprit`."""
    with pytest.raises(InputError, match=culprit) as caught:
        yield
    assert "\n" not in str(caught.value)


def refusal(
    call: Callable[..., Any], *arguments: Any, most_characters: int = 400, **named: Any
) -> str:
    """Return the message of the `InputError` that a call raises: one line, below a length."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < most_characters
    return message


def prepared(kernel: str, **options: Any) -> Any:
    """Return the prepared case of a kernel."""
    return mk.case(kernel, **options).prepare()


def everywhere(value: bool) -> bool:
    """Return whether the value is true on all ranks."""
    return all(ranks().every(value))


def message_of(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """Return the error message of a call; empty if it succeeds."""
    try:
        call(*arguments, **named)
    except (ValueError, MemoryError) as error:
        return str(error)
    return ""


def unless_refused(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or None if it raises an `InputError` of one line."""
    try:
        return call(*arguments)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        return None


def set_activity(monkeypatch: pytest.MonkeyPatch, observations: list[Activity]) -> list[Activity]:
    """Replace the observed activity of the machine by these observations, one after the other."""
    for place in ("memkern.engine.sampling.activity", "memkern.engine.public"):
        monkeypatch.setattr(f"{place}.observe_activity", lambda: observations.pop(0))
    monkeypatch.setattr("memkern.cli.measuring.time.sleep", lambda seconds: None)
    return observations


BUSY = Activity(((77, "stress", 1),), 0.0)
IDLE = Activity((), 0.0)


@contextmanager
def warnings_printed() -> Iterator[None]:
    """Let the command line print warnings within the block, as in a process of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        yield


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command line in this process; return exit code, standard output and error."""
    try:
        with warnings_printed():
            code = cli.main(list(words))
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Run a command line that succeeds; return standard output and error."""
    code, out, err = run(capsys, *words)
    assert code == 0, err
    return out, err


def python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python WORDS`` in a new process, with options of `subprocess.run`."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def one_sentence(err: str) -> str:
    """Return the one line of an error message of the command line."""
    (sentence,) = filter(None, err.splitlines())
    assert sentence.startswith("memkern")
    return sentence


def interrupt(*_: Any, **__: Any) -> NoReturn:
    """Interrupt, in place of a function that Ctrl-C may meet."""
    raise KeyboardInterrupt


def executable(path: Path, text: str, program: str = "/bin/sh") -> str:
    """Write an executable script, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{program}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def wait_until(
    condition: Callable[[], Any], running: subprocess.Popen[str] | None = None, most_s: float = 60.0
) -> Any:
    """Wait until a condition is true, while a process runs; return its value."""
    end = time.monotonic() + most_s
    while not (found := condition()):
        assert time.monotonic() < end and (running is None or running.poll() is None)
        time.sleep(0.02)
    return found


def records_in(path: Path) -> int:
    """Return the number of records of a file; 0 if it has none yet."""
    try:
        return len(mk.load(path))
    except InputError:
        return 0


def task_of(folder: Path) -> int | None:
    """Return the process id of a sweep's running task in this folder, or None."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"submitit.core._submit" in words and os.fsencode(folder) in words:
            return int(path.parent.name)
    return None


def refused_words(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command line that is refused; return the error's sentence."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    return one_sentence(err)


def cases_of(monkeypatch: pytest.MonkeyPatch, words: str) -> list[Case]:
    """Return the cases that a command would measure."""
    cases: list[Case] = []

    def sweep(some: Any, **options: Any) -> ResultSet:
        cases.extend(some)
        return ResultSet([], [], {})

    monkeypatch.setattr("memkern.engine.public.sweep", sweep)
    assert cli.main(shlex.split(words)) == 0
    return cases


def assert_share_of_memory(record: Mapping[str, Any], seconds: float) -> None:
    """Assert that a record has the share of its time that memory needs at its ceilings.

    It is NaN where the record took less time: memory is faster, or caches hold the data.
    """
    share = seconds / record["time_median_s"]
    known = share if share <= roofline._MOST_FRACTION else math.nan
    assert record["roofline_fraction"] == pytest.approx(known, nan_ok=True)


def measured(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """Run a command line that measures; return its records."""
    return list(json.loads(output_of(capsys, *words, "--json")[0]))


def once_a_kind(
    values: Iterable[Any],
    kind: Callable[[Any], Any] = lambda value: None,
    name: Callable[[Any], str] = str,
) -> list[Any]:
    """Return parameters of a test; all except the first of each kind are marked `release`.

    Parameters
    ----------
    values : iterable
    kind : callable
        Value to a hashable object that identifies its kind; by default all have the same kind.
    name : callable
        Value to its part of the test's id.
    """
    seen: set[Any] = set()
    parameters = []
    for value in values:
        marks = [pytest.mark.release] if kind(value) in seen else []
        seen.add(kind(value))
        parameters.append(pytest.param(value, marks=marks, id=name(value)))
    return parameters
