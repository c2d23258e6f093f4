"""Kernels that run as real ranks: records, sweeps, refused input, ranks that end or hang."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import launching
import pytest
from checking import once_a_kind, records_in, wait_until
from machines import PROCESSORS

import memkern as mk

pytestmark = pytest.mark.ranks


SMALL = {"MEMKERN_SMALL": "1"}
# Prevents mpi4py from finding an MPI library.
NO_LIBRARY = {"MPI4PY_LIBMPI": "/nonexistent/libmpi.so"}

# Launchers, and the communication of the ranks that they start.
WAYS = [("openmpi", "mpi"), ("oshmem", "shmem")]

TRIAD = (
    *("stream", "-k", "triad", "--elements", "4096", "--runs", "5", "--json"),
    *("--threads", "1", "--variant", "scalar"),
)


def memkern(kind: str, ranks: int, folder: Path, *words: str, **variables: str) -> Any:
    if "shmem" in words:
        launching.need_module("shmem")
    return launching.run(kind, ranks, ["-m", "memkern", *words], folder, variables)


def record_of(kind: str, ranks: int, folder: Path, *words: str, **variables: str) -> Any:
    """Run a command as ranks, and return its only record."""
    done = memkern(kind, ranks, folder, *words, **SMALL, **variables)
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return record


@pytest.mark.parametrize(
    ("kind", "comm"),
    [
        *WAYS,
        ("mpich", "mpi"),
        pytest.param("oshmem", "mpi", marks=pytest.mark.release),
    ],
)
def test_a_kernel_runs_as_ranks(kind, comm, tmp_path):
    option = () if comm == "mpi" else ("--comm", comm)
    how = {"OMPI_MCA_btl": "^openib"} if kind == "oshmem" else {}
    done = memkern(kind, 2, tmp_path, *TRIAD, *option, **SMALL, **how)
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert record["valid"] and record["comm"] == comm
    assert (record["ranks"], record["ranks_per_node"]) == (2, 2)
    # Bytes are totals over ranks, elements are per rank.
    assert record["bytes_B"] == 2 * 3 * 8 * record["elements"]
    assert record["bandwidth_GBps"] == pytest.approx(record["bytes_B"] / record["time_min_s"] / 1e9)
    rows = json.loads(record["rank_rows"])
    assert [row["rank"] for row in rows] == [0, 1]
    assert {row["host"] for row in rows} == {os.uname().nodename}
    units = [set(row["units"].split(",")) for row in rows]
    # Open MPI's launcher also binds ranks to processors that this process may not use.
    shared = bool(units[0] & units[1])
    assert record["oversubscribed"] is shared
    assert not shared or len(PROCESSORS) < 2
    assert all(row["time_median_s"] <= record["time_max_s"] for row in rows)
    assert record["slowest_rank"] in (0, 1) and record["rank_spread"] >= 0
    assert record["barrier_ns"] > 0
    assert {"mpi": "MPI", "shmem": "OpenSHMEM"}[comm] in record["comm_library"]
    # For kernels on processors only the main thread calls the library, which saves locks.
    assert record["comm_threads"] == {"mpi": "funneled", "shmem": "single"}[comm]
    assert ("MPI_MCA_btl=^openib" in record["comm_transport"]) is (kind == "oshmem")
    assert record["comm_transport"].startswith("ch") is (kind == "mpich")
    assert "shared memory (" in record["comm_transport"]
    # Only one rank prints warnings.
    assert done.stderr.count("MEMKERN_SMALL is set") == 1


def test_ranks_of_a_host_without_shared_memory_are_told(tmp_path):
    done = memkern("openmpi", 2, tmp_path, *TRIAD, **SMALL, OMPI_MCA_btl="tcp,self")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["comm_transport"] == "OMPI_MCA_btl=tcp,self TCP"
    assert done.stderr.count("by TCP, not by shared memory") == 1


def program_of(
    kind: str, ranks: int, folder: Path, text: str, *words: str, **variables: str
) -> list[str]:
    """Run the text of a program as ranks, and return the lines that it prints."""
    program = folder / "program.py"
    program.write_text(text)
    done = launching.run(kind, ranks, [str(program), *words], folder, variables)
    assert done.returncode == 0, done.stderr
    return list(done.stdout.splitlines())


# Contents of each rank have a different length; some are empty or have several pieces.
CONTENTS = """
import sys

import numpy as np
from memkern.engine.processes.communication import start

ranks = start(sys.argv[1])
assert (ranks.size, ranks.comm) == (int(sys.argv[2]), sys.argv[1])
for length in (0, 1, 8, 1000, 65536, 65537, 300_000):
    found = ranks.every(bytes([ranks.number + 1]) * (length * ranks.number))
    assert found == [bytes([k + 1]) * (length * k) for k in range(ranks.size)], length
    numbers = np.arange(length) * (1.0 if ranks.number == ranks.size - 1 else -1.0)
    assert (ranks.largest(numbers) == np.arange(length)).all(), length
for k in range(200 // ranks.size):
    assert ranks.gate(k % 7 == ranks.number) == (k % 7 < ranks.size)
    assert ranks.align() is False
if ranks.number == 0:
    print(ranks.library)
"""


@pytest.mark.parametrize(("kind", "comm"), WAYS)
@pytest.mark.parametrize("ranks", once_a_kind([2, 1, 4]))
def test_contents_of_any_length_are_exchanged(kind, comm, ranks, tmp_path):
    launching.need_module(comm)
    (library,) = program_of(kind, ranks, tmp_path, CONTENTS, comm, str(ranks))
    assert ({"mpi": "MPI", "shmem": "SHMEM"}[comm] in library) == (ranks > 1)


def test_a_meeting_has_a_longest_content(tmp_path):
    launching.need_module("shmem")
    text = """
from memkern.machine import remote

meetings = remote.extension("shmem").Meetings()
try:
    meetings.bring(bytes(meetings.most_B + 1))
except ValueError as error:
    print(error)
"""
    told = ["a meeting's content must have at most 65536 bytes, not 65537"]
    assert program_of("oshmem", 1, tmp_path, text) == told


def test_openshmem_replaces_a_missing_mpi(tmp_path):
    launching.need_module("shmem")
    record = record_of("oshmem", 2, tmp_path, *TRIAD, **NO_LIBRARY)
    assert (record["comm"], record["ranks"], record["valid"]) == ("shmem", 2, True)


@pytest.mark.parametrize("threads", once_a_kind([2, 1]))
def test_ranks_of_openshmem_use_its_atomics(threads, tmp_path):
    words = ("amo", "--kernel", "rand", "--iters", "64", "--device", "shmem", "--json")
    how = ("--comm", "shmem", "--threads", str(threads))
    record = record_of("oshmem", 2, tmp_path, *words, *how)
    assert (record["comm"], record["device"], record["ranks"]) == ("shmem", "shmem", 2)
    level = "multiple" if threads > 1 else "single"
    assert (record["threads"], record["comm_threads"], record["valid"]) == (threads, level, True)


def test_openshmem_refuses_processes_that_it_did_not_start():
    launching.need_module("shmem")
    words = ["-m", "memkern", *TRIAD, "--comm", "shmem"]
    done = launching.alone(words, {**launching.OPEN_MPI, "PMI_RANK": "0", "PMI_SIZE": "2"})
    assert done.returncode == 2
    assert "2 ranks were started, but OpenSHMEM sees 1" in done.stderr


def test_more_workers_than_units_are_oversubscribed(tmp_path):
    # Open MPI is restricted to a single unit.
    unit = str(min(os.sched_getaffinity(0)))
    one = {"OMPI_MCA_hwloc_base_cpu_list": unit}
    one |= {"PRTE_MCA_hwloc_default_cpu_list": unit, "PRTE_MCA_bindto": "core:overload-allowed"}
    record = record_of("openmpi", 2, tmp_path, *TRIAD, **one)
    assert record["valid"] and record["oversubscribed"]
    assert len(json.loads(record["rank_rows"])) == 2


@pytest.mark.parametrize("each", once_a_kind(["family", "kernel"]))
def test_every_family_is_valid_over_ranks(each, tmp_path):
    from samples import FAMILIES  # slow, since it builds cases

    text = """
import sys

import memkern as mk
from memkern.engine.processes.communication import ranks
from samples import SAMPLES
from chosen_entries import with_threads

kernels = {name if sys.argv[1] == "kernel" else name.split(".")[0]: name for name in SAMPLES}
cases = [with_threads(SAMPLES[name][0], 1).with_(runs=2) for name in kernels.values()]
results = mk.sweep(cases)
assert results.valid and len(results) >= len(cases)
assert all(record["ranks"] == 2 for record in results)
# One rotation of small arrays takes less time than a hundred barriers.
rotation = mk.stream("rotation", elements=64, threads=1, runs=3)
assert rotation.measure().record["skewed"]
ranks().barrier_s = 0.0
assert not rotation.measure().record["skewed"]
if ranks().number == 0:
    print(*sorted({record["kernel"].split(".")[0] for record in results}))
"""
    (found,) = program_of("openmpi", 2, tmp_path, text, each, **SMALL)
    assert found.split() == list(FAMILIES)


def test_one_rank_is_one_process(tmp_path):
    record = record_of("openmpi", 1, tmp_path, *TRIAD, "--comm", "mpi")
    assert (record["comm"], record["ranks"]) == ("mpi", 1)
    alone = mk.stream("triad", elements=record["elements"], runs=3).measure().record
    assert alone["bytes_B"] == record["bytes_B"]
    assert (alone["comm"], alone["ranks"]) == ("none", 1)


def test_copies_are_measured_on_purpose_only(tmp_path):
    # Each rank writes a file, since the launcher may mix their output.
    program = (
        "import os, sys; from memkern.cli import main;"
        "target = f\"{sys.argv[1]}/{os.environ['OMPI_COMM_WORLD_RANK']}.json\";"
        "sys.exit(main([*sys.argv[2:], '--comm', 'none', '-o', target]))"
    )
    words = ["-c", program, str(tmp_path), *TRIAD]
    done = launching.run("openmpi", 2, words, tmp_path, SMALL)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        (record,) = mk.load(tmp_path / f"{rank}.json")
        assert record["ranks"] == 1


@pytest.mark.parametrize("number", ["0", "1"])
def test_ranks_that_cannot_communicate_stop(number, tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('absent', name='mpi4py')")
    words = ["-m", "memkern", *TRIAD]
    variables = {"PMI_RANK": number, "PMI_SIZE": "2"}
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = launching.alone(words, {**variables, "PYTHONPATH": paths})
    assert done.returncode == 2 and done.stdout == ""
    # Each rank prints the reason: ranks can't agree on one that does.
    for word in ("2 ranks", "mpi4py is not installed", "memkern[mpi]", "--comm none"):
        assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_mpi_library_is_named():
    variables = {"PMI_RANK": "0", "PMI_SIZE": "2", **NO_LIBRARY}
    together = launching.alone(["-m", "memkern", *TRIAD], variables)
    words = ["-m", "memkern", "amo", "--kernel", "rand", "--device", "mpi"]
    device = launching.alone(words, NO_LIBRARY)
    for done in (together, device):
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert "/nonexistent/libmpi.so" in done.stderr and "MPI4PY_LIBMPI" in done.stderr
        assert "pip install" not in done.stderr
    assert "2 ranks can't measure together" in together.stderr
    assert "--comm none" in together.stderr


def test_another_library_s_launcher_is_refused():
    words = ["-m", "memkern", *TRIAD]
    done = launching.alone(words, {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI4PY_MPIABI": "openmpi"})
    if "mpi4py is not installed" in done.stderr or "libmpi" in done.stderr:
        pytest.skip("mpi4py finds no Open MPI here")
    assert done.returncode == 2
    assert "2 ranks were started, but mpi4py uses Open MPI" in done.stderr


WRONG = {
    "stream -k nothing": "nothing",
    "stream --elements -3": "--elements",
    "stream --comm tcp": "--comm",
    "doctor": "memkern doctor runs as one process, not as 2 ranks",
    "tune": "memkern tune runs as one process",
}


@pytest.mark.parametrize("words", once_a_kind(WRONG, lambda words: "stream" in words))
def test_wrong_input_is_refused_once(words, tmp_path):
    # The launcher waits for the message of the first rank.
    wait = {"OMPI_MCA_odls_base_sigkill_timeout": "1"}
    done = memkern("openmpi", 2, tmp_path, *words.split(), **wait)
    own = [line for line in done.stderr.splitlines() if line.startswith("memkern")]
    assert done.returncode == 2 and done.stdout == ""
    # Until ranks communicate, each prints its error; then only the first rank does.
    assert len({*own}) == 1 and WRONG[words] in own[0]
    assert len(own) == 1 or words in ("stream --elements -3", "stream --comm tcp", "doctor", "tune")


# Two ranks need 30 ms per case, so that they are interrupted before the last one.
CASES = 60
_IN_ORDER = "--case-order declared"


def sweep_of(output: Path, comm: str, cases: int = CASES) -> list[str]:
    """Return the words of a sweep with this number of small cases."""
    launching.need_module(comm)
    file = output.with_name("sweep.toml")
    file.write_text(
        f"""
[[case]]
kernel = "stream.triad"
elements = {list(range(1000, 1000 + cases))}
threads = 1
variant = "scalar"
runs = 2
"""
    )
    return [*("sweep", str(file), "-o", str(output)), *f"--comm {comm} -q {_IN_ORDER}".split()]


def test_the_first_rank_writes_and_resumes(tmp_path):
    output = tmp_path / "records.csv"
    words = sweep_of(output, "mpi", 6)
    done = memkern("openmpi", 2, tmp_path, *words, **SMALL)
    assert done.returncode == 0, done.stderr
    first = mk.load(output)
    assert len(first) == 6 and first.valid
    (environment,) = first.environments.values()
    assert list(environment["ranks"]["hosts"]) == [os.uname().nodename]
    # An existing file is not overwritten.
    assert memkern("openmpi", 2, tmp_path, *words, **SMALL).returncode == 2
    done = memkern("openmpi", 2, tmp_path, *words, "--resume", **SMALL)
    assert done.returncode == 0, done.stderr
    assert mk.load(output).records == first.records


@contextmanager
def start_sweep(
    kind: str, comm: str, output: Path, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a sweep of two ranks, and wait for its first record."""
    words = ["-m", "memkern", *sweep_of(output, comm)]
    with launching.start(kind, 2, words, output.parent, {**SMALL, **variables}) as process:
        wait_until(lambda: records_in(output.with_name(output.name + ".db")), process)
        yield process


@pytest.mark.parametrize(
    ("kind", "comm", "rank"),
    [("openmpi", "mpi", 0), ("mpich", "mpi", 1), ("oshmem", "shmem", 1)],
)
def test_finished_cases_survive_a_rank_that_is_killed(kind, comm, rank, tmp_path):
    output = tmp_path / "records.csv"
    with start_sweep(kind, comm, output) as process:
        os.kill(launching.ranks_of(process)[rank], signal.SIGKILL)
        told = "".join(process.communicate(timeout=60))
    assert process.returncode != 0 and "signal 9" in told
    kept = mk.load(output.with_name(output.name + ".db"))
    assert 0 < len(kept) < CASES and kept.valid


@pytest.mark.parametrize(
    ("kind", "comm"), [*WAYS, pytest.param("mpich", "mpi", marks=pytest.mark.release)]
)
def test_a_rank_that_hangs_is_named(kind, comm, tmp_path):
    output = tmp_path / "records.csv"
    with start_sweep(kind, comm, output, MEMKERN_RANK_TIMEOUT_S="2") as process:
        os.kill(launching.ranks_of(process)[1], signal.SIGSTOP)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    expected = f"rank 1 on {os.uname().nodename} does not answer for 2 s: all ranks end"
    assert f"memkern: {expected}" in errors


@pytest.mark.parametrize(("kind", "comm"), WAYS)
def test_interrupting_a_rank_interrupts_all(kind, comm, tmp_path):
    output = tmp_path / "records.csv"
    with start_sweep(kind, comm, output) as process:
        os.kill(launching.ranks_of(process)[1], signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.count("memkern: interrupted: ") == 1 and "resume with" in errors
    kept = mk.load(output.with_name(output.name + ".db"))
    assert kept.valid
    # Two of the remaining cases.
    words = sweep_of(output, comm, len(kept) + 2)
    done = memkern(kind, 2, tmp_path, *words, "--resume", **SMALL)
    assert done.returncode == 0, done.stderr
    assert len(mk.load(output)) == len(kept) + 2


@pytest.mark.parametrize(("kind", "comm"), WAYS)
def test_an_error_on_one_rank_ends_all(kind, comm, tmp_path):
    launching.need_module(comm)
    text = """
import os

import memkern as mk
from memkern.engine.sampling import prepared
from memkern.engine.public import ranks

if ranks().number == 1:
    def fail(*_): raise mk.InputError("no huge pages")
    prepared.gpu.handle = fail
try:
    mk.stream("copy", elements=1000, threads=1, runs=2).measure()
except mk.InputError as error:
    os.write(1, f"{ranks().number}: {error}\\n".encode())
"""
    told = [f"0: rank 1 on {os.uname().nodename}: no huge pages", "1: no huge pages"]
    assert sorted(program_of(kind, 2, tmp_path, text, MEMKERN_COMM=comm)) == told
