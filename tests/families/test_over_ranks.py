"""Atomics on words of several ranks: MPI's one-sided operations and OpenSHMEM's."""

import json
import os
import random
import select
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checking import refused, refused_words
from launching import LAUNCHERS, alone, need_module, ranks_of, run, start, started
from sharing import once

import memkern as mk
from memkern.families.amo import checks, index, kernels, over_ranks
from memkern.families.amo.over_ranks import Layout
from memkern.machine import remote
from memkern.machine.remote import Description

pytestmark = pytest.mark.ranks

PROGRAM = str(Path(__file__).with_name("remote_program.py"))


# Open MPI's component for windows in which all operations work on one node.
SHARED = {"OMPI_MCA_osc": "sm"}
NO_ANSWER = f"rank 1 on {os.uname().nodename} does not answer for {{}} s: all ranks end"


@pytest.fixture(params=LAUNCHERS)
def shared(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the parts that need two ranks and windows on one node."""
    device = request.param

    def start() -> Any:
        parts, folder = "some_entries=2 faults", tmp_path_factory.mktemp("x")
        return started(PROGRAM, device, 2, parts, folder, SHARED)

    return once(tmp_path_factory, f"shared-{device}", start)


def test_an_entry_of_each_kind_validates(shared):
    assert shared["some_entries=2"]["entries"] >= 20
    assert shared["some_entries=2"]["failed"] == []


@pytest.mark.release
@pytest.mark.parametrize(
    "kind, ranks, threads",
    [
        ("openmpi", 1, 1),
        ("openmpi", 2, 2),
        ("openmpi", 4, 1),
        ("mpich", 2, 1),
        ("oshmem", 1, 1),
        ("oshmem", 2, 2),
        ("oshmem", 4, 1),
    ],
)
def test_every_entry_validates(kind, ranks, threads, tmp_path):
    device, least = ("shmem", 102) if kind == "oshmem" else ("mpi", 288)
    variables = SHARED if kind == "openmpi" and ranks > 1 else {}
    words = f"every_entry={threads}"
    found = started(PROGRAM, device, ranks, words, tmp_path, variables, kind)[words]
    assert found["entries"] >= least
    assert found["failed"] == []


@pytest.mark.parametrize("device", LAUNCHERS)
def test_a_rank_that_stops_in_a_call_of_the_library_is_named(device, tmp_path):
    need_module(device)
    variables = {"MEMKERN_RANK_TIMEOUT_S": "2"}
    done = run(LAUNCHERS[device], 2, [PROGRAM, device, "stopped"], tmp_path, variables)
    assert done.returncode != 0
    assert f"memkern: {NO_ANSWER.format(2)}" in done.stderr


@pytest.mark.parametrize(
    "device, started, do",
    [("mpi", 0, "start MPI"), ("mpi", 1, "connect"), ("shmem", 1, "connect")],
)
def test_a_rank_that_leaves_before_others_meet_it_ends_all(device, started, do, tmp_path):
    need_module(device)
    variables = {"MEMKERN_COMM": device, "MEMKERN_RANK_TIMEOUT_S": "2"}
    words = [PROGRAM, device, f"leaving={started}"]
    done = run(LAUNCHERS[device], 2, words, tmp_path, variables)
    assert done.returncode != 0
    assert f"memkern: a rank has kept others waiting for 2 s to {do}: all" in done.stderr


def test_a_lost_update_on_one_rank_is_caught(shared):
    assert shared["faults"]["missed"] == []


@pytest.fixture
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the parts that need two ranks and no variables; return results by device."""

    def start() -> Any:
        parts, folder = "targets refusals record", tmp_path_factory.mktemp("x")
        return {device: started(PROGRAM, device, 2, parts, folder) for device in LAUNCHERS}

    found: dict[str, Any] = once(tmp_path_factory, "atomics", start)
    return found


@pytest.mark.parametrize("device", LAUNCHERS)
def test_targets_are_the_ranks_whose_words_change(device, two_ranks):
    found = two_ranks[device]["targets"]
    # The iterations that run here belong to the first rank's part of IDX.
    for name, (ranks, share) in found.items():
        pattern, _, targets = name.partition("/")
        if targets in ("ring", "one") and name != "central/ring":
            assert ranks == [0], name
        else:
            assert ranks == [0, 1], name
        if targets == "ring":
            assert share >= 1 - 1 / 24, name
        elif targets == "one" and pattern in ("rand", "stride1", "striden", "central"):
            assert share == 0.5, name
    assert found["rand/share"][1] == 0.25
    assert found["stride1/ring"][1] == found["central/ring"][1] == 1.0


def test_what_a_library_lacks_is_refused(two_ranks):
    mpi, shmem = (two_ranks[device]["refusals"] for device in LAUNCHERS)
    for messages in (mpi, shmem):
        assert all(len(message.splitlines()) <= 1 for message in messages.values())
        assert "'stream.copy'" in messages["kernel"]
        assert "has no atomic plain of uint64: it has add, and, or" in messages["plain"]
        assert "order is for processors and GPUs: leave it out on" in messages["order"]
        assert "whole words of 8 bytes" in messages["odd"]
        assert "use smaller sizes" in messages["memory"]
    assert mpi["min"] == mpi["float"] == shmem["contexts"] == ""
    assert "OpenSHMEM has no atomic min" in shmem["min"]
    assert "OpenSHMEM has no atomic add of float64: it has exchange" in shmem["float"]
    assert "MPI has no atomic and of float64: it has add, min, max, exchange" in mpi["float and"]
    assert "has no atomic cas of float32" in mpi["float swaps"]
    assert "has no atomic cas of float32" in shmem["float swaps"]
    assert "contexts are for shmem" in mpi["contexts"]
    faulty = two_ranks["mpi"]["record"]["comm_library"].startswith("Open MPI v4.")
    for name in ("threads", "swaps"):
        assert ("end with a segmentation fault" in mpi[name]) is faulty
    assert "was initialised for one thread of each rank" in shmem["threads"]
    assert shmem["swaps"] == ""
    assert mpi["small swaps"] == ""
    assert ("is not built as 'cas/relaxed/used' for uint32" in shmem["small swaps"]) is faulty


@pytest.mark.parametrize("device", LAUNCHERS)
def test_records_name_targets_and_library(device, two_ranks):
    record = two_ranks[device]["record"]
    assert record["valid"]
    assert (record["device"], record["backend"], record["threads"]) == (device, device, 1)
    assert (record["targets"], record["remote_share"]) == ("share", 0.25)
    assert (record["flush_every"], record["contexts"]) == (4, "default")
    assert record["ranks"] == 2
    rate = 2 * 500 / record["time_min_s"] / 1e9
    assert record["rate_GAMS"] == pytest.approx(rate)
    assert record["bytes_B"] == 2 * 500 * 16


@pytest.mark.parametrize(
    "device, comm, ranks",
    [
        ("mpi", "mpi", 2),
        ("shmem", "shmem", 3),
        pytest.param("shmem", "mpi", 2, marks=pytest.mark.release),
    ],
)
def test_a_rank_that_fails_anywhere_ends_all(device, comm, ranks, tmp_path):
    variables = {**SHARED, "MEMKERN_COMM": comm, "MEMKERN_RANK_TIMEOUT_S": "20"}
    found = started(PROGRAM, device, ranks, "failing=0", tmp_path, variables)
    calls = found["failing=0"]["calls"]
    assert calls > 1000
    told = f"rank {ranks - 1} on {os.uname().nodename}: RuntimeError: "
    at = random.randrange(1, calls)
    done = run(LAUNCHERS[device], ranks, [PROGRAM, device, f"failing={at}"], tmp_path, variables)
    assert done.returncode != 0, at
    errors = {line.partition(": ")[::2] for line in done.stdout.splitlines()}
    assert errors == {
        (f"rank {rank}", f"{told if rank < ranks - 1 else ''}at random") for rank in range(ranks)
    }, (at, done.stdout, done.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("device, comm", [("mpi", "mpi"), ("shmem", "shmem")])
def test_a_rank_that_dies_or_hangs_anywhere_ends_all(device, comm, number, tmp_path):
    need_module(device)
    # Long enough for ranks to start on a busy machine.
    variables = {**SHARED, "MEMKERN_COMM": comm, "MEMKERN_RANK_TIMEOUT_S": "5"}
    words = [PROGRAM, device, "endless"]
    with start(LAUNCHERS[device], 2, words, tmp_path, variables) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0], "the ranks have not begun"
        assert process.stdout.readline() == "begun\n"
        time.sleep(random.random())
        os.kill(ranks_of(process)[1], number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    if number == signal.SIGKILL:
        assert "signal 9" in errors
    else:
        assert f"memkern: {NO_ANSWER.format(5)}" in errors


def test_one_process_needs_no_launcher():
    done = alone([PROGRAM, "mpi", "record"], {"OMPI_ALLOW_RUN_AS_ROOT": "1"})
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["record"]
    assert record["valid"]
    assert (record["ranks"], record["remote_share"]) == (1, 0.0)


def test_two_mpis_are_used_beside_each_other(tmp_path):
    need_module("mpi")
    words = ["-m", "memkern", "amo", "--kernel", "rand,gather", "--iters", "64", "--device", "mpi"]
    done = run("mpich", 2, [*words, "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    # Network libraries also log on standard output.
    records, _ = json.JSONDecoder().raw_decode(done.stdout)
    assert len(records) == 2
    for record in records:
        assert record["valid"] and "MPICH" in record["comm_library"]


def test_another_mpi_is_refused():
    module = SimpleNamespace(version=lambda: "Open MPI v4.1.4, package\n")
    mpi = SimpleNamespace(Get_library_version=lambda: "MPICH Version: 4.0.2\nconfigured")
    with refused(r"built for Open MPI v4.1.4, but mpi4py uses MPICH Version: 4.0.2: start it"):
        remote._start_mpi(module, mpi)


@pytest.mark.usefixtures("three_ranks")
@pytest.mark.parametrize(
    "options, match",
    [
        ({"pattern": "stride1", "targets": "random"}, "amo.stride1 has no targets 'random'"),
        ({"pattern": "ptrchase", "targets": "share"}, "amo.ptrchase has no targets 'share'"),
        ({"targets": "share"}, "percentage of remote operations"),
        ({"targets": "ring", "remote": 5}, "percentage of remote operations"),
        ({"pattern": "scatter", "words": 50}, "leave out words and memsize"),
        ({"pattern": "central", "hot": 3}, "leave out hot"),
    ],
)
def test_wrong_options_are_refused(options, match):
    with refused(match):
        mk.amo(**{"pattern": "rand", "device": "mpi", "iters": 8, **options})


@pytest.mark.usefixtures("three_ranks")
@pytest.mark.parametrize(
    "device, options, why",
    [
        ("mpi", {"pattern": "ptrchase"}, "each step of a chase depends on the previous one"),
        ("mpi", {"primitive": "cas-retry"}, "each cas-retry needs the old value"),
        ("shmem", {"primitive": "cas"}, "each cas needs the old value"),
        ("shmem", {"returns": "used"}, "OpenSHMEM completes an operation that returns a value"),
        ("shmem", {"pattern": "gather"}, "OpenSHMEM completes an operation that returns a value"),
    ],
)
def test_batches_of_what_is_completed_one_by_one_are_refused(device, options, why):
    options = {"pattern": "rand", "device": device, "iters": 8, **options}
    with refused(f"flush_every has no effect on amo.{options['pattern']}, since {why}"):
        mk.amo(**options, flush_every=2)
    # The command line applies lists of values to a case that was built with one of them.
    with refused(why):
        mk.amo(**options).with_(flush_every=2)


def test_batches_are_for_the_cases_that_have_them():
    need_module("mpi")
    words = "amo --primitive add,cas --iters 16 --device mpi --flush-every 1,4 --runs 1 --json -q"
    done = alone(["-m", "memkern", *words.split()], {"OMPI_ALLOW_RUN_AS_ROOT": "1"})
    assert done.returncode == 0, done.stderr
    found: dict[tuple[str, str], list[int]] = {}
    for record in json.loads(done.stdout):
        of_case = found.setdefault((record["kernel"], record["primitive"]), [])
        of_case.append(record["flush_every"])
    assert {name: sorted(values) for name, values in found.items()} == {
        (f"amo.{pattern}", primitive): [1, 4] if (pattern, primitive) in BATCHES else [1]
        for pattern in kernels.PATTERNS
        for primitive in ("add", "cas")
    }


BATCHES = {(pattern, "add") for pattern in kernels.PATTERNS if pattern != "ptrchase"}


@pytest.mark.usefixtures("three_ranks")
@pytest.mark.parametrize("value", ["4", "1,4"])
def test_batches_of_no_case_are_refused(value, capsys):
    words = "amo --kernel ptrchase,rand --primitive cas --iters 8 --device mpi --flush-every"
    assert refused_words(capsys, *words.split(), value).endswith(
        "--flush-every has no effect on amo.ptrchase, amo.rand, since each step of a chase depends "
        "on the previous one and each cas needs the old value: leave it out"
    )


@pytest.mark.usefixtures("three_ranks")
def test_updates_are_completed_together():
    for pattern, device, returns in [
        ("rand", "mpi", "used"), ("gather", "mpi", "unused"), ("rand", "shmem", "unused"),
    ]:  # fmt: skip
        case = mk.amo(pattern, device=device, returns=returns, iters=8, flush_every=2)
        assert case.knobs.flush_every == 2


@pytest.mark.parametrize(
    "share, wanted", [(0.0, 0), (0.1, 1), (0.25, 2), (0.5, 5), (0.95, 10), (1.0, 10)]
)
def test_each_worker_has_the_same_share_of_remote_indices(share, wanted):
    layout = Layout(4, 2, 10, 80, 1, "share", share)
    found = over_ranks.targeted_ranks(layout, np.random.default_rng(0))[:-1].reshape(8, 10)
    own = np.arange(8)[:, None] // 2
    assert ((found != own).sum(axis=1) == wanted).all()
    assert set(found.ravel()) == {0, 1, 2, 3}


def test_a_single_rank_has_local_targets_only():
    for targets in over_ranks.TARGETS:
        layout = Layout(1, 2, 10, 80, 1, targets, 0.5)
        assert not over_ranks.targeted_ranks(layout, np.random.default_rng(0)).any()


@pytest.mark.usefixtures("three_ranks")
@pytest.mark.parametrize(
    "pattern, targets, share",
    [
        ("rand", "random", 2 / 3),
        ("rand", "ring", 1.0),
        ("rand", "one", 2 / 3),
        ("stride1", "ring", 1.0),
        ("stride1", "one", 2 / 3),
        ("central", "ring", 1.0),
        ("central", "one", 2 / 3),
        ("ptrchase", "ring", 1.0),
        ("ptrchase", "random", 2 / 3),
        # The operations on IDX and on VAL[i] are local.
        ("scatter", "random", 2 / 9),
        ("sg", "random", 1 / 3),
        ("gather", "ring", 1.0),
    ],
)
def test_the_share_of_remote_operations_is_counted(pattern, targets, share):
    case = mk.amo(pattern, device="mpi", targets=targets, iters=2000, threads=2)
    assert case.columns["targets"] == targets
    assert case.columns["remote_share"] == pytest.approx(share, abs=0.0 if share == 1.0 else 0.02)


@pytest.mark.parametrize(
    "pattern, targets, share",
    [
        # A third of the operations of ranks 0 and 1, none of rank 2.
        ("rand", "random", 2 / 9),
        ("rand", "ring", 1 / 3),
        ("rand", "one", 1 / 3),
        ("ptrchase", "ring", 1 / 3),
        ("central", "ring", 1 / 3),
        ("scatter", "random", 2 / 27),
    ],
)
def test_the_share_of_operations_on_the_same_node_is_counted(pattern, targets, share, monkeypatch):
    found = Description("a library", 0, (0, 0, 2), True)
    monkeypatch.setattr(kernels, "description", lambda *_: found)
    case = mk.amo(pattern, device="mpi", targets=targets, iters=2000, threads=2)
    assert case.columns["node_share"] == pytest.approx(share, abs=0.02)
    assert case.columns["node_share"] < case.columns["remote_share"]


@pytest.mark.usefixtures("three_ranks")
def test_words_and_iterations_are_those_of_all_ranks():
    case = mk.amo("rand", device="shmem", iters=10, threads=2, words=100)
    assert (case.iterations, case.integers["words"], case.integers["workers"]) == (60, 300, 6)
    assert (case.columns["words"], case.knobs.threads) == (100, 2)
    assert case.indices["IDX"].max() < 300
    central = mk.amo("central", device="mpi", iters=10, targets="ring", dtype="uint32")
    words = checks.hit_words(central)
    assert sorted(set(words // central.columns["words"])) == [0, 1, 2]
    one = mk.amo("central", device="mpi", iters=10, targets="one", hot=4)
    assert checks.hit_words(one).max() == 3


def test_a_chase_stays_where_its_targets_are():
    ring = index.drawn_over_ranks("ptrchase", Layout(3, 2, 10, 20, 1, "ring"), 0)[:-1]
    assert (ring.reshape(3, 20) // 20 == [[0], [1], [2]]).all()
    assert sorted(ring) == list(range(60))
    one = index.drawn_over_ranks("ptrchase", Layout(3, 2, 10, 20, 1, "one"), 0)[:-1]
    assert one.max() < 20
    assert sorted(one[:20]) == list(range(20))


@pytest.mark.usefixtures("three_ranks")
def test_what_tells_cases_apart_is_part_of_their_identity():
    def identity(**options: Any) -> str:
        return mk.amo("rand", device="mpi", iters=8, **options).identity()

    different = [
        identity(), identity(targets="ring"), identity(flush_every=2), identity(threads=2),
        identity(targets="share", remote=20), identity(targets="share", remote=60),
        mk.amo("rand", device="shmem", iters=8).identity(),
        mk.amo("rand", device="shmem", iters=8, contexts="private").identity(),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
