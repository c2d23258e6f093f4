"""Measuring in forked processes, which is refused, and in several threads, which take turns."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from checking import python, refused

import memkern as mk
from memkern.engine.public import take_samples
from memkern.formats.store import Store, open_output
from memkern.spec.case import Case

CASE = mk.stream("copy", elements=256, threads=2, variant="scalar", runs=2)
REFUSED = "InputError: this process was forked after memkern had started threads"
LIMIT_S = 60
# Python warns about forks in processes with several threads, which are tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def limit() -> None:
    """End this process by a signal if it hangs."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT_S)


def in_child(work: Callable[[], Any]) -> str:
    """Return the result or error of a call in a child made by os.fork(), as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        limit()
        try:
            result = str(work())
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(write, result.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        result = stream.read()
    assert os.waitpid(child, 0) == (child, 0)
    return result


def script(text: str) -> list[str]:
    """Return the lines that a new Python process prints."""
    # Several processes measure on the same processing units.
    ignored = ("ignore::DeprecationWarning", "ignore:another memkern process measures")
    done = python(*(f"-W{which}" for which in ignored), "-c", text, timeout=2 * LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_measuring_in_a_forked_process_is_refused(tmp_path):
    prepared, product = CASE.prepare(), mk.spmv.convert(np.eye(3), threads=2, variant="scalar")
    run, output = prepared.run, tmp_path / "x.db"
    works: list[Callable[[], Any]] = [
        CASE.measure,
        CASE.prepare,
        CASE.apply,
        lambda: take_samples(prepared),
        prepared.check,
        lambda: run(1),
        lambda: prepared.native.run(1),
        lambda: product.multiply([1.0, 2.0, 3.0]),
        lambda: mk.sweep([CASE], progress=False),
        lambda: mk.sweep([CASE], output=output, progress=False),
        lambda: mk.tune(CASE, budget_s=1.0),
        lambda: in_child(CASE.measure),
    ]
    for work in works:
        assert in_child(work).startswith(REFUSED)
    assert not list(tmp_path.iterdir())
    # The parent can still measure.
    assert prepared.run(1) > 0
    assert CASE.measure().valid


def test_measuring_in_forked_workers_of_pools_is_refused():
    CASE.measure()
    fork = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(1, mp_context=fork, initializer=limit)
    with executor, refused("start processes by spawn"):
        executor.submit(mk.measure, CASE).result(2 * LIMIT_S)
    with fork.Pool(1, limit) as pool, refused("start processes by spawn"):
        pool.apply_async(mk.measure, (CASE,)).get(2 * LIMIT_S)


MEASURING = """
import os, signal, sys, threading, warnings
import memkern as mk
from memkern.errors import InputError
from memkern.host import Host

# On a machine with one processing unit.
warnings.filterwarnings("ignore", "2 threads take turns")
parent = os.getpid()
Host.save = lambda _: print("saved", os.getpid() == parent, flush=True)
case = mk.stream("copy", elements=2**14, threads=2, variant="scalar", runs=9, budget_s=0.2)
"""


def test_processes_forked_before_anything_is_measured_can_measure():
    text = """
children = []
for _ in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(60)
        os._exit(0 if case.measure().valid else 1)
print(case.measure().valid, flush=True)
print([os.waitpid(child, 0)[1] for child in children], flush=True)
"""
    assert script(MEASURING + text) == ["True", "[0, 0]", "saved True"]


def test_processes_forked_while_another_thread_measures_end():
    # Their interpreters end normally: freeing memory must not wait for that thread, and only the
    # parent stores the throughput of the cores.
    text = """
prepared, other, over = case.prepare(), case.prepare(), threading.Event()
case.measure()

def measure():
    # Long enough to hold the machine during every fork.
    while not over.is_set():
        other.run(20_000)

thread = threading.Thread(target=measure)
thread.start()
for _ in range(4):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        for work in (case.measure, lambda: prepared.run(1), lambda: mk.sweep([case])):
            try:
                work()
            except InputError:
                continue
            os._exit(1)
        sys.exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
over.set()
thread.join()
"""
    assert script(MEASURING + text) == 4 * ["0"] + ["saved True"]


def test_a_forked_process_leaves_the_files_of_its_parent(tmp_path):
    record = {"case_id": "a", "repeat": 0}
    with Store.open(tmp_path / "x.db") as store:
        assert in_child(store.close) == "None"
        error = in_child(lambda: store.add(record, [1.0], {}))
        assert error.startswith(f"InputError: {store.path} was opened before this process was fork")
        assert store.path.exists()
        store.add(record, [1.0], {})
    assert len(mk.load(store.path)) == 1
    sink = open_output(tmp_path / "y.csv")
    assert "was opened before this process was forked" in in_child(sink.finish)
    assert [file.name for file in tmp_path.glob("y*")] == ["y.csv.db"]
    sink.store.close()


# The child, which has measured nothing.
@pytest.mark.filterwarnings("ignore:0 of 2 measurements done, kept in")
def test_a_sweep_that_is_forked_goes_on_in_the_parent_alone(tmp_path):
    parent, child = os.getpid(), 0

    def fork() -> None:
        nonlocal child
        child = os.fork()

    try:
        results = mk.sweep(
            [CASE, CASE.with_(seed=1)], output=tmp_path / "x.db", on_begin=fork, progress=False
        )
    except BaseException as error:
        if os.getpid() == parent:
            raise
        # Otherwise the child would run all further tests.
        os._exit(0 if f"{type(error).__name__}: {error}".startswith(REFUSED) else 1)
    assert os.waitpid(child, 0) == (child, 0)
    assert len(results) == len(mk.load(tmp_path / "x.db")) == 2


def in_threads(work: Callable[[Any], None], arguments: Iterable[Any]) -> None:
    """Call a function with each argument in a separate thread, and wait for all threads."""
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)


def test_threads_take_turns_at_measuring(monkeypatch):
    turns: list[int] = []

    def slowly(*how: Any) -> Any:
        turns.append(threading.get_ident())
        time.sleep(0.01)
        try:
            return take_samples(*how)
        finally:
            turns.append(threading.get_ident())

    monkeypatch.setattr("memkern.engine.placing.run.take_samples", slowly)
    cases = [CASE.with_(seed=seed, placements=2) for seed in range(4)]
    valid: list[bool] = []

    def measure(case: Case) -> None:
        valid.append(mk.measure(case).valid)

    in_threads(measure, cases)
    assert valid == 4 * [True]
    assert turns[::2] == turns[1::2]
    assert len(turns) >= 2 * 2 * len(cases)


def test_threads_sweep_to_files_of_their_own(tmp_path):
    def sweep(number: int) -> None:
        cases = [CASE.with_(seed=seed) for seed in range(3)]
        mk.sweep(cases, output=tmp_path / f"{number}.db", progress=False)

    in_threads(sweep, range(3))
    assert [len(mk.load(tmp_path / f"{number}.db")) for number in range(3)] == [3, 3, 3]


def test_threads_share_a_product():
    n = 400
    product = mk.spmv.convert(np.diag(np.arange(1.0, n + 1)), threads=1, variant="scalar")
    wrong: list[float] = []

    def multiply(factor: float) -> None:
        for _ in range(50):
            if not np.array_equal(product @ np.full(n, factor), factor * np.arange(1.0, n + 1)):
                wrong.append(factor)

    in_threads(multiply, map(float, range(4)))
    assert not wrong
