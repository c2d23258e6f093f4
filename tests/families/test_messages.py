"""Messages between ranks: put, get, fetch-and-add, send and receive."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checking import cases_of, once_a_kind, refused
from launching import alone, started
from sharing import once

import memkern as mk
from memkern.families.messages import kernels, pairs, verb
from memkern.machine.remote import Description

pytestmark = pytest.mark.ranks

PROGRAM = str(Path(__file__).with_name("messages_program.py"))


class Over(NamedTuple):
    """A device, its number of ranks, pairs of ranks, and the program's results."""

    device: str
    ranks: int
    given: str
    found: dict[str, Any]


# Ranks 0, 1 and 4 are on one node, 2 and 3 on another one, 5 on a third.
NODES = (0, 0, 2, 2, 0, 5)


@pytest.fixture
def six_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this single process build cases for six ranks."""
    found = Description("a library", 0, NODES, True)
    for module in (kernels, verb):
        monkeypatch.setattr(module, "description", lambda *_: found)


PARTS = "validates applied faults refusals records"
# Choices of pairs by launcher and number of ranks: two different ranks, or a rank with itself.
LAUNCHES = {
    ("openmpi", 2): ("1-0", "0-0,1-1"),
    ("oshmem", 2): ("node", "0-0,1-1"),
    ("openmpi", 1): ("0-0",),
    ("openmpi", 4): ("0-2,3-1",),
    ("oshmem", 1): ("0-0",),
    ("oshmem", 4): ("node",),
    ("mpich", 2): ("0-1",),
}


@pytest.fixture(
    params=once_a_kind(
        [(*launch, pairs) for launch, choices in LAUNCHES.items() for pairs in choices],
        kind=lambda launch: (launch[0] == "oshmem", launch[2].startswith("0-0")),
        name=lambda launch: "-".join(map(str, launch)),
    )
)
def over(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Over:
    """Run all parts of the program on these ranks."""
    kind, ranks, given = request.param
    device = "shmem" if kind == "oshmem" else "mpi"
    choices = ";".join(LAUNCHES[kind, ranks])

    def start() -> Any:
        folder = tmp_path_factory.mktemp("x")
        return started(PROGRAM, device, ranks, f"{choices} {PARTS}", folder, kind=kind)

    found = once(tmp_path_factory, f"messages-{kind}-{ranks}", start)
    return Over(device, ranks, given, found[given])


def test_every_byte_arrives(over):
    assert over.found["validates"]["failed"] == []


def test_an_invocation_does_what_the_reference_does(over):
    assert over.found["applied"]["failed"] == []


def test_a_lost_message_is_caught(over):
    assert over.found["faults"]["missed"] == []


def test_what_is_not_there_is_refused(over):
    messages = over.found["refusals"]
    ranks = f"there are {over.ranks} ranks"
    assert all(len(message.splitlines()) <= 1 for message in messages.values())
    assert f"pairs name rank 7, but {ranks}" in messages["rank"]
    assert f"two ranks on different nodes, but {ranks} on 1 nodes" in messages["other"]
    assert "one thread of each rank" in messages["threads"]
    assert "use smaller sizes" in messages["memory"]
    if over.device == "mpi":
        assert "does not send messages to itself" in messages["self"]
    else:
        assert "OpenSHMEM has no send and receive" in messages["send"]


def test_records_have_latency_rate_and_bandwidth(over):
    origins = over.given.count(",") + 1 if over.given != "node" else over.ranks // 2
    for name, record in over.found["records"].items():
        what, window = name.split()
        assert record["valid"]
        assert (record["pairs"], record["origins"]) == (over.given, origins)
        itself = over.given.startswith("0-0")
        assert record["distance"] == ("same rank" if itself else "same node")
        each = 2 if what == "send" else 1
        number, size = each * origins * int(window), 8 if what == "fetch_add" else 4096
        assert record["messages_per_second"] == pytest.approx(number / record["time_min_s"])
        assert record["bandwidth_GBps"] == pytest.approx(size * record["messages_per_second"] / 1e9)
        latency = record["time_median_s"] / each * 1e9 if window == "1" else math.nan
        assert record["ns_per_access"] == pytest.approx(latency, nan_ok=True)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("node", [(0, 1), (2, 3)]),
        ("other", [(0, 2), (1, 3)]),
        ("", [(0, 1), (2, 3)]),
        ("4-4", [(4, 4)]),
        ("5-1,0-3", [(5, 1), (0, 3)]),
    ],
)
def test_pairs(text, wanted):
    name, found = pairs.parse(text, NODES)
    assert found == wanted
    assert name == (text or "node")


def test_pairs_of_one_rank_a_node_are_on_other_nodes() -> None:
    assert pairs.parse("", (0, 1, 2)) == ("other", [(0, 1)])
    assert len(pairs.every(NODES)) == 15


@pytest.mark.parametrize(
    "chosen, wanted",
    [
        ([(0, 0), (1, 1)], "same rank"),
        ([(0, 4), (2, 3)], "same node"),
        ([(0, 2), (4, 5)], "other node"),
    ],
)
def test_distances(chosen, wanted):
    assert pairs.distance(chosen, NODES) == wanted


@pytest.mark.usefixtures("six_ranks")
@pytest.mark.parametrize(
    "options, match",
    [
        ({"device": "cpu"}, "messages.put is between ranks: give device mpi or shmem"),
        ({"size_B": 4}, "must be a multiple of 8 up to 1073741824, not 4"),
        ({"size_B": "2GiB"}, "multiple of 8 up to"),
        ({"size_B": "much"}, "is not a size in bytes"),
        ({"what": "fetch_add", "size_B": 16}, "must be 8, not 16"),
        ({"pairs": "near"}, "pairs must be node or other or a list such as 0-1,2-3, not 'near'"),
        ({"pairs": "0-1,1-2"}, "rank 1 is in two pairs"),
        ({"pairs": "0-6"}, "pairs name rank 6, but there are 6 ranks"),
        ({"pairs": "0-1,2-5"}, "are on other node and same node: measure them separately"),
        ({"flush_every": 2}, "flush_every has no effect on messages.put, since messages"),
        ({"threads": 2}, "one thread of each rank"),
        ({"dtype": "float64"}, "dtype 'float64'"),
        ({"what": "send", "device": "shmem"}, "OpenSHMEM has no send and receive"),
        (
            {"what": "fetch_add", "device": "shmem", "window": 2},
            "OpenSHMEM completes a fetch_add before the next one: leave out window 2",
        ),
    ],
)
def test_wrong_options_are_refused(options, match):
    with refused(match):
        mk.messages(**{"what": "put", "device": "mpi", **options})


@pytest.mark.usefixtures("six_ranks")
def test_what_tells_cases_apart_is_part_of_their_identity() -> None:
    def identity(what: str = "put", **options: Any) -> str:
        return mk.messages(what, **{"device": "mpi", **options}).identity()

    different = [
        identity(), identity(size_B=16), identity(window=2), identity(pairs="other"),
        identity(pairs="0-1"), identity(device="shmem"), identity("get"),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    case = mk.messages("put", device="mpi", size_B="64KiB", window=4)
    assert case.iterations == 8
    assert case.bytes_B == 8 * 2**16


@pytest.mark.usefixtures("six_ranks")
def test_the_verb_measures_all_operations_sizes_and_distances(monkeypatch):
    cases = cases_of(monkeypatch, "messages --device mpi -q")
    named = {
        (c.spec.name, c.columns["pairs"], c.columns["size_B"], c.columns["window"]) for c in cases
    }
    assert len(named) == len(cases)
    assert {name for name, *_ in named} == {f"messages.{what}" for what in kernels.OPERATIONS}
    assert {(p, w) for _, p, _, w in named} == {(p, w) for p in ("node", "other") for w in (1, 64)}
    assert max(size * window for _, _, size, window in named if window > 1) == 2**21
    assert {size for name, _, size, _ in named if "add" in name} == {8}
    assert len({size for _, _, size, _ in named}) == 10
    of_shmem = cases_of(monkeypatch, "messages --device shmem -q")
    assert {c.spec.name for c in of_shmem} == {c.spec.name for c in cases} - {"messages.send"}
    assert {c.columns["window"] for c in of_shmem if "add" in c.spec.name} == {1}


@pytest.mark.usefixtures("six_ranks")
@pytest.mark.parametrize(
    "words, number, label",
    [
        ("--pairs each", 15, "3-5"),
        ("--pairs node,0-4,3-2", 2, "0-4,3-2"),
        ("--pairs other -w 1,2,4", 3, "other"),
        ("--sizes 8:1000:4 --pairs node", 4, "node"),
    ],
)
def test_the_verb_takes_pairs_windows_and_sizes(words, number, label, monkeypatch):
    if "--sizes" not in words:
        words += " --sizes 16"
    if "-w" not in words:
        words += " -w 1"
    cases = cases_of(monkeypatch, f"messages -k get --device mpi -q {words}")
    assert len(cases) == number
    assert label in {case.columns["pairs"] for case in cases}


def test_a_rank_alone_measures_messages_to_itself() -> None:
    words = "-m memkern messages --device mpi --pairs 0-0 --runs 2 -k put,get --json -w 1"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = alone([*words.split(), "--sizes", "8,1KiB"], root)
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert len(records) == 4
    assert all(record["valid"] for record in records)
    assert {record["distance"] for record in records} == {"same rank"}
