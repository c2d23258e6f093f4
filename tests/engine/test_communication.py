"""Communication of ranks, by threads in their place: values, errors, waits, and its choice."""

from __future__ import annotations

import math
import os
import queue
import threading
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

from memkern import launcher
from memkern.backends import Backend
from memkern.engine.processes import communication, transports
from memkern.engine.processes.communication import Ranks
from memkern.engine.processes.transports import Floats
from memkern.errors import DeviceError, InputError
from memkern.machine import remote

pytestmark = pytest.mark.ranks


class Threads:
    """A transport for `Ranks` that are threads of this process."""

    library = "threads"
    thread_level = "multiple"
    transport = ""
    timeout_s = 0.0

    def __init__(self, shared: Shared, number: int) -> None:
        self._shared = shared
        self._number = number
        self.hosts: Sequence[str] = ()

    def every(self, content: Any) -> list[Any]:
        return self._shared.every(self._number, content)

    def largest(self, values: Floats) -> Floats:
        return np.asarray(np.max(self.every(values), axis=0))

    def barrier(self) -> None:
        self.every(None)

    def abort(self) -> NoReturn:
        raise SystemExit(1)

    def give_up(self, missing: Sequence[int], waited_s: float, *, one_of: bool = False) -> NoReturn:
        self.abort()


class Shared:
    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=20)
        self._contents: list[Any] = [None] * size

    def every(self, number: int, content: Any) -> list[Any]:
        self._contents[number] = content
        self._barrier.wait()
        found = list(self._contents)
        self._barrier.wait()
        return found


def as_ranks(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """Return the result, or the error, of `work` on each of `size` ranks."""
    shared, results = Shared(size), [None] * size

    def run(number: int) -> None:
        try:
            results[number] = work(Ranks("mpi", number, size, Threads(shared, number)))
        except BaseException as error:
            results[number] = error

    own = os.sched_getaffinity(0)
    threads = [threading.Thread(target=run, args=(k,)) for k in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert os.sched_getaffinity(0) == own
    return results


def test_one_process_agrees_with_itself() -> None:
    alone = Ranks()
    assert (alone.comm, alone.size, alone.per_node, alone.case_id) == ("none", 1, 1, "")
    assert alone.gate(True) and not alone.gate()
    assert alone.first(3) == 3 and alone.every("a") == ["a"]
    assert alone.slowest(2.0) == 2.0 and alone.barrier_s == 0.0
    assert alone.largest([1.0, math.nan]).tolist()[0] == 1.0


def test_values_are_agreed() -> None:
    def work(ranks: Ranks) -> Any:
        own = float(ranks.number)
        return (
            ranks.first(f"of {ranks.number}"),
            ranks.every(ranks.number**2),
            ranks.largest([[own], [-own]]).tolist(),
            ranks.gate(ranks.number == 1),
            ranks.gate(False),
            ranks.agreed(True),
            ranks.agreed(ranks.number != 2),
            ranks.barrier_s > 0,
        )

    expected = ("of 0", [0, 1, 4], [[2.0], [0.0]], True, False, True, False, True)
    assert as_ranks(3, work) == [expected] * 3


def test_what_a_rank_does_not_know_is_unknown() -> None:
    def work(ranks: Ranks) -> Floats:
        return ranks.largest([math.nan if ranks.number else 5.0, 1.0])

    for found in as_ranks(2, work):
        assert math.isnan(found[0]) and found[1] == 1.0


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """The units of each rank as its attribute `own`, six units unless a test sets others."""
    found = threading.local()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: getattr(found, "own", set(range(6))))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, units: setattr(found, "own", set(units)))
    return found


@pytest.mark.usefixtures("masks")
def test_ranks_of_a_host_divide_its_units(monkeypatch):
    # Cores of two hardware threads each: units k and k + 3.
    siblings = {k: f"{k % 3},{k % 3 + 3}" for k in range(6)}
    monkeypatch.setattr(communication, "units_of_core", siblings.__getitem__)

    def work(ranks: Ranks) -> Any:
        ranks.divide_units()
        return sorted(os.sched_getaffinity(0)), ranks.host_units, ranks.even, ranks.case_id

    assert [found[0] for found in as_ranks(3, work)] == [[0, 3], [1, 4], [2, 5]]
    found = as_ranks(4, work)
    # Equal numbers of units, even if some are left over.
    assert [units for units, *_ in found] == [[0], [3], [1], [4]]
    assert {tuple(rest) for _, *rest in found} == {(6, True, found[0][3])}
    # More ranks than units: ranks share units.
    assert [found[0] for found in as_ranks(7, work)] == [[0], [3], [1], [4], [2], [5], [0]]


@pytest.mark.parametrize(
    ("bindings", "threads", "crowded"),
    [
        ([{0}, {1, 2, 3}], 1, [False, False]),
        ([{0}, {1, 2, 3}], 2, [True, False]),
        ([{0, 1}, {2, 3}], 2, [False, False]),
        ([{0}, {0}, {1, 2, 3}], 1, [True, True, False]),
        ([{0, 1}, {1, 2}], 2, [True, True]),
    ],
)
def test_a_rank_with_fewer_units_than_workers_is_crowded(bindings, threads, crowded, masks):
    def work(ranks: Ranks) -> bool:
        masks.own = bindings[ranks.number]
        return Ranks("mpi", ranks.number, ranks.size, ranks._transport).crowded(threads)

    assert as_ranks(len(bindings), work) == crowded


def test_the_identity_holds_ranks_and_binding(masks):
    def identities(*bindings: set[int]) -> set[Any]:
        def work(ranks: Ranks) -> Any:
            masks.own = bindings[ranks.number]
            ranks.divide_units()
            return ranks.case_id, ranks.even

        return set(as_ranks(len(bindings), work))

    ids = [identities({0}, {1}), identities({0}, {2}), identities({0}, {1}, {2})]
    ids.append(identities({0}, {1, 2}))
    assert [len(one) for one in ids] == [1, 1, 1, 1]
    assert len(set.union(*ids)) == 4
    assert [next(iter(one))[1] for one in ids] == [True, True, True, False]


@pytest.mark.parametrize("kind", [InputError, MemoryError, DeviceError])
def test_an_error_of_one_rank_is_raised_by_all(kind):
    def work(ranks: Ranks) -> None:
        with ranks.together():
            ranks.every(1)
            if ranks.number == 1:
                raise kind("no such page")
            # Other ranks may be in a collective call or at the end.
            if ranks.number == 2:
                ranks.largest([1.0])

    host = os.uname().nodename
    errors = as_ranks(3, work)
    assert [type(error) for error in errors] == [kind] * 3
    assert str(errors[1]) == "no such page"
    assert str(errors[0]) == str(errors[2]) == f"rank 1 on {host}: no such page"


def test_a_value_that_can_not_be_sent_is_an_error_of_all() -> None:
    class Unsent:
        def __reduce__(self) -> Any:
            raise InputError("it can't be sent")

    def work(ranks: Ranks) -> Any:
        with ranks.together():
            return ranks.every(Unsent() if ranks.number else 1)

    for error in as_ranks(2, work):
        assert isinstance(error, InputError) and "it can't be sent" in str(error)


def test_the_same_error_of_all_ranks_is_each_rank_s_own() -> None:
    def work(ranks: Ranks) -> None:
        with ranks.together():
            raise InputError(f"wrong on {ranks.number}")

    assert [str(error) for error in as_ranks(2, work)] == ["wrong on 0", "wrong on 1"]


def test_an_unexpected_error_is_told_with_its_type() -> None:
    def work(ranks: Ranks) -> None:
        with ranks.together(), ranks.together():
            if ranks.number == 0:
                raise KeyError("lost")
            ranks.gate()

    errors = as_ranks(2, work)
    assert isinstance(errors[0], KeyError)
    assert isinstance(errors[1], RuntimeError) and "KeyError: 'lost'" in str(errors[1])


@pytest.mark.parametrize(
    ("hosts", "stopped", "named"),
    [
        ("aa", {1}, ([1], False)),
        ("aa", set(), ([], True)),
        ("ab", set(), ([1], True)),
        ("abb", set(), ([1, 2], True)),
        ("aab", {1}, ([1], False)),
    ],
)
def test_a_rank_that_stops_in_a_call_is_looked_for(hosts, stopped, named, monkeypatch):
    monkeypatch.setattr(communication, "_state", lambda process: "ST"[process in stopped])
    monkeypatch.setenv("MEMKERN_RANK_TIMEOUT_S", "0.01")

    def work(ranks: Ranks) -> Any:
        transport = ranks._transport
        assert isinstance(transport, Threads)
        if ranks.number > 0:
            return None
        found: queue.SimpleQueue[tuple[list[int], bool]] = queue.SimpleQueue()

        def give_up(missing: Sequence[int], waited_s: float, *, one_of: bool = False) -> None:
            found.put((list(missing), one_of))

        monkeypatch.setattr(transport, "give_up", give_up)
        ranks._process_of = {k: k for k, host in enumerate(hosts) if host == hosts[0]}
        ranks.watch(True)
        if stopped:
            assert found.get(timeout=20) == named
            # Also outside of such a call.
            ranks.watch_host()
        return found.get(timeout=20)

    assert as_ranks(len(hosts), work)[0] == named


def test_a_call_that_ends_in_time_is_not_given_up(monkeypatch):
    monkeypatch.setenv("MEMKERN_RANK_TIMEOUT_S", "1000")

    def work(ranks: Ranks) -> bool:
        before = set(threading.enumerate())
        ranks.watch(True)
        (watching,) = set(threading.enumerate()) - before
        ranks.watch(False)
        watching.join(20)
        return watching.is_alive()

    assert as_ranks(1, work) == [False]


def test_ranks_that_do_not_answer_are_named_with_their_hosts() -> None:
    one = transports.Connection()
    assert one._named([], True) == "a rank does"
    assert one._named([3], False) == "rank 3 does"
    one.hosts = ["a", "a", "b", "b"]
    assert one._named([1], True) == "rank 1 on a does"
    assert one._named([2, 3], True) == "one of ranks 2 on b, 3 on b does"
    one.hosts = ["a"] * 20
    assert one._named(range(9), False).endswith("7 on a, ... do")


def test_others_wait_for_the_first_rank_without_a_timeout() -> None:
    def work(ranks: Ranks) -> list[float]:
        transport = ranks._transport
        assert isinstance(transport, Threads)
        found = []
        largest = transport.largest

        def noting(values: Floats) -> Floats:
            found.append(transport.timeout_s)
            return largest(values)

        transport.largest = noting  # type: ignore[method-assign]
        with ranks.waiting_for_first():
            pass
        return [*found, transport.timeout_s]

    assert as_ranks(3, work) == [[0.0, 0.0], [math.inf, 0.0], [math.inf, 0.0]]


def test_an_error_of_the_first_rank_ends_the_wait_for_it() -> None:
    def work(ranks: Ranks) -> None:
        with ranks.together(), ranks.waiting_for_first():
            if ranks.number == 0:
                raise InputError("the disk is full")

    host = os.uname().nodename
    assert [str(error) for error in as_ranks(2, work)] == [
        "the disk is full",
        f"rank 0 on {host}: the disk is full",
    ]


def test_ranks_meet_again_after_an_error() -> None:
    def work(ranks: Ranks) -> int:
        with pytest.raises(InputError), ranks.together():
            if ranks.number:
                raise InputError("of one")
            ranks.gate()
        with ranks.together():
            return sum(ranks.every(1))

    assert as_ranks(2, work) == [2, 2]


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, (0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 1)),  # a batch script
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, (3, 8)),
        ({"PMI_RANK": "x", "PMI_SIZE": "2"}, (0, 1)),
    ],
)
def test_launchers_are_recognised(variables, found):
    assert (launcher.number(variables), launcher.size(variables)) == found


def test_how_ranks_communicate_is_decided_once() -> None:
    two = {"PMI_RANK": "0", "PMI_SIZE": "2"}
    assert launcher.comm("auto", {}) == "none"
    assert launcher.comm("auto", two) == "auto"
    assert launcher.comm("auto", {**two, "MEMKERN_COMM": "none"}) == "none"
    assert launcher.comm("mpi", {}) == "mpi"
    assert launcher.comm("auto", {"MEMKERN_COMM": "shmem"}) == "shmem"
    for wrong in ({"MEMKERN_COMM": "tcp"}, {"MEMKERN_COMM": "auto"}):
        with pytest.raises(InputError, match="MEMKERN_COMM"):
            launcher.comm("auto", wrong)
    with pytest.raises(InputError, match="comm"):
        launcher.comm("tcp", {})


def test_little_shared_memory_is_told_before_a_library_starts(tmp_path, monkeypatch, capfd):
    free_B, folder = 2**20, str(tmp_path)
    monkeypatch.setattr(launcher, "_shortage", "")
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: {folder: SimpleNamespace(free=free_B)}[str(path)]
    )
    ranks = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    known = ranks | {"OMPI_MCA_btl_vader_backing_directory": folder}
    slurm = {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3)", "UCX_POSIX_DIR": folder}
    for variables in (known, slurm):
        with pytest.warns(UserWarning, match=r"1\.05 MB .* but 2 ranks of a host need .* 8\.8 MB"):
            launcher.check_shared_memory(1, variables)
    launcher.tell_end("rank 1 does not answer for 120 s")
    assert "--shm-size=1g, or as root: mount -o remount,size=1g" in capfd.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Others of the host do not repeat it.
        launcher.check_shared_memory(1, known | {"OMPI_COMM_WORLD_LOCAL_RANK": "1"})
        launcher.check_shared_memory(1, known | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
        free_B = 9 * 10**6
        launcher.check_shared_memory(1, known)
        launcher.tell_end("rank 1 does not answer for 120 s")
        assert "because" not in capfd.readouterr().err
    # OpenSHMEM has the segments of MPI and its own.
    with pytest.warns(UserWarning, match=r"about 17\.6 MB of shared memory"):
        launcher.check_shared_memory(2, known)
    absent = known | {"OMPI_MCA_btl_vader_backing_directory": f"{folder}/absent"}
    with pytest.warns(UserWarning, match="absent has 0 MB that this process may use"):
        launcher.check_shared_memory(1, absent)


def test_common_memory_and_connections_are_the_transport(tmp_path):
    def process(number: int, maps: str, tcp: str) -> bytes:
        folder = tmp_path / str(number) / "proc/self"
        (folder / "fd").mkdir(parents=True)
        (folder / "net").mkdir()
        (folder / "maps").write_text(maps)
        (folder / "net/tcp").write_text("  sl  local_address rem_address st ...\n" + tcp)
        (folder / f"fd/{3 + number}").symlink_to(f"socket:[{77 + number}]")
        return "\n".join(remote.links(tmp_path / str(number))).encode()

    def row(own: str, other: str, inode: int) -> str:
        return f"  0: {own} {other} 01 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0\n"

    one, two, launched = "0100007F:1000", "0100007F:2000", "0100007F:3000"
    maps = (
        "7f00-7f01 rw-s 00000000 00:19 {} /dev/shm/vader_segment.host.0.{}\n"
        "7f01-7f02 rw-s 00000000 00:19 9 /tmp/ompi.host/pmix_dstor/smdataseg-0\n"
        "7f02-7f03 r--s 00000000 08:01 4 /usr/lib/gconv/gconv-modules.cache\n"
        "7f03-7f04 rw-p 00000000 00:00 0 \n"
    )
    # All processes of the system see all connections; the launcher has one with each rank.
    tcp = row(one, two, 77) + row(two, one, 78) + row(one, launched, 77)
    ranks = [process(k, maps.format(k, k), tcp) for k in (0, 1)]
    assert transports._with_links("", lambda _: ranks) == "TCP"
    shared = [
        process(k, maps.format(5, 5), row(f"{one[:-1]}{k}", launched, 77 + k)) for k in (2, 3)
    ]
    assert transports._with_links("", lambda _: shared) == "shared memory (vader)"
    assert transports._with_links("ch4:ofi", lambda _: [*shared, *ranks]) == (
        "ch4:ofi shared memory (vader), TCP"
    )
    assert transports._with_links("UCX_TLS=rc", lambda _: [ranks[0], shared[1]]) == "UCX_TLS=rc"
    # Those of this process.
    assert all(link.startswith(("shared memory (", "TCP:")) for link in remote.links())


@pytest.mark.parametrize(
    ("links", "told"),
    [("TCP", True), ("shared memory (vader)", False), ("shared memory (vader), TCP", False)],
)
def test_ranks_of_a_host_without_shared_memory_are_told(links, told, monkeypatch):
    shared = Shared(1)
    found = Threads(shared, 0)
    vars(found).update(comm="mpi", number=0, size=2, transport=links)
    monkeypatch.setattr(found, "every", lambda content: [content, content])
    monkeypatch.setattr(found, "largest", lambda values: values)
    monkeypatch.setattr(communication, "_current", None)
    monkeypatch.setattr(transports, "connect", lambda *_: found)
    monkeypatch.setattr(Ranks, "divide_units", lambda _: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert communication.start("mpi").transport == links
    assert any("by TCP, not by shared memory" in str(one.message) for one in caught) is told


def test_openshmem_is_chosen_only_where_its_programs_are_started(monkeypatch):
    def no_mpi(backend: Backend, level: str) -> NoReturn:
        raise InputError("no mpi4py")

    monkeypatch.setattr(transports, "_by_mpi", no_mpi)
    monkeypatch.setattr(transports, "_by_module", lambda to, level: f"by {to.name}, {level}")
    for shmem_starts, built in ((True, False), (False, True)):
        # Open MPI's launcher sets the variable, others do not.
        monkeypatch.delenv("OMPI_COMM_WORLD_SIZE", raising=False)
        if shmem_starts:
            monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
        monkeypatch.setattr(remote, "is_built", lambda _, known=built: known)
        with pytest.raises(InputError, match="no mpi4py"):
            transports.connect("auto")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    for level in ("single", "multiple"):
        found: object = transports.connect("auto", level)
        assert found == f"by shmem, {level}"
    with pytest.raises(InputError, match="no mpi4py"):
        transports.connect("mpi")


@pytest.mark.parametrize("given", ["abc", "", "0", "nan", "1e30", "1_0"])
def test_a_timeout_must_be_a_positive_number(given, monkeypatch):
    monkeypatch.setenv("MEMKERN_RANK_TIMEOUT_S", given)
    for comm in ("auto", "mpi", "shmem"):
        with pytest.raises(InputError, match=r"^MEMKERN_RANK_TIMEOUT_S must be a number"):
            transports.connect(comm)
    monkeypatch.setenv("MEMKERN_RANK_TIMEOUT_S", "0.5")
    assert launcher.timeout_s() == 0.5
