"""Cases over numbers of ranks: launchers, their commands, records, errors."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import launching as ranks_of_tests
import numpy as np
import pytest
from checking import executable, refused
from launching import Ranks

import memkern as mk
from memkern import _memkern
from memkern.errors import InputError, Interrupted
from memkern.launcher import BINDINGS
from memkern.machine import remote, topology
from memkern.spec.case import Case
from memkern.spec.columns import COLUMNS
from memkern.spec.sweepfile import read_sweep
from memkern.studies import scaling
from memkern.studies.scaling import Launcher, find_launcher

pytestmark = pytest.mark.ranks

OPEN_MPI = Launcher(("mpirun",), scaling.OPEN_MPI)
MPICH = Launcher(("mpiexec", "-iface", "lo"), scaling.MPICH)
SLURM = Launcher(("srun", "--mpi=pmix"), scaling.SLURM)
OTHER = Launcher(("aprun",), "")
BOUND = Launcher(("mpirun", "--bind-to", "core"), scaling.OPEN_MPI)
SRUN = "srun --mpi=pmix -n 4 --cpus-per-task=2"


@pytest.mark.parametrize(
    ("launcher", "bind", "command"),
    [
        (OPEN_MPI, "", "mpirun -n 4 --bind-to none"),
        (OPEN_MPI, "node", "mpirun -n 4 --map-by ppr:1:node --bind-to none"),
        (OPEN_MPI, "socket", "mpirun -n 4 --map-by ppr:1:socket --bind-to socket"),
        (OPEN_MPI, "core", "mpirun -n 4 --map-by slot:PE=2 --bind-to core"),
        (MPICH, "", "mpiexec -iface lo -n 4"),
        (MPICH, "node", "mpiexec -iface lo -n 4 -ppn 1 -bind-to none"),
        (MPICH, "socket", "mpiexec -iface lo -n 4 -map-by socket -bind-to socket"),
        (MPICH, "core", "mpiexec -iface lo -n 4 -bind-to core:2"),
        (SLURM, "", SRUN),
        (SLURM, "node", f"{SRUN} --ntasks-per-node=1 --cpu-bind=none"),
        (SLURM, "socket", f"{SRUN} --ntasks-per-socket=1 --cpu-bind=sockets"),
        (SLURM, "core", f"{SRUN} --cpu-bind=cores"),
        (OTHER, "", "aprun -n 4"),
        (BOUND, "", "mpirun --bind-to core -n 4"),
    ],
)
def test_each_launcher_binds_by_its_own_options(launcher, bind, command):
    assert launcher.command(4, 2, bind) == command.split()


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("mpirun (Open MPI) 4.1.4", scaling.OPEN_MPI),
        ("HYDRA build details:\n    Version: 4.0.2", scaling.MPICH),
        ("slurm-wlm 22.05.8", scaling.SLURM),
        ("something else", ""),
    ],
)
def test_kinds_are_found_by_the_version(tmp_path, version, kind):
    command = executable(tmp_path / "run", f"[ $1 = --version ] && echo '{version}'")
    assert find_launcher(f"{command} --many 'a b'") == Launcher((command, "--many", "a b"), kind)


def test_the_usual_launchers_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused("there is no mpirun and no srun here that starts ranks: name a launcher"):
        find_launcher()
    for name in ("srun", "mpirun"):
        executable(tmp_path / name, "echo x")
        assert find_launcher() == Launcher((name,), "")


@pytest.mark.parametrize(
    ("use", "words", "culprit"),
    [
        (find_launcher, [""], "not an empty text"),
        (find_launcher, ["mpirun 'a"], "launcher \"mpirun 'a\" can't be split"),
        (find_launcher, ["/nowhere/mpirun"], "/nowhere/mpirun can't be run: No such file"),
        (find_launcher, ["/"], "the launcher / can't be run: Permission denied"),
        (OTHER.command, [4, 2, "core"], "bind core is for Open MPI, MPICH and srun, not for aprun"),
    ],
)
def test_wrong_launchers_are_refused(use, words, culprit):
    with refused(culprit):
        use(*words)


DASHES = "-" * 74


@pytest.mark.parametrize(
    ("output", "code", "sentence"),
    [
        ("", 3, "mpirun ended with exit code 3"),
        ("", -9, "mpirun was ended by signal 9"),
        ("memkern: no kernel\nmemkern: two\n" + DASHES + "\nPrimary job terminated.", 2, "two"),
        (
            f"{DASHES}\nThere are not enough slots to satisfy the 4\nslots that were requested by "
            f"the application:\n\n  python\n\nEither request fewer.\n{DASHES}\n",
            1,
            "mpirun ended with exit code 1: There are not enough slots to satisfy the 4 slots that "
            "were requested by the application",
        ),
        (
            "=" * 83 + "\n=   BAD TERMINATION OF ONE PROCESS\n=   EXIT CODE: 9\n" + "=" * 83,
            9,
            "mpirun ended with exit code 9: BAD TERMINATION OF ONE PROCESS EXIT CODE: 9",
        ),
        ("x" * 400, 1, f"mpirun ended with exit code 1: {'x' * 300}"),
    ],
)
def test_failures_are_one_sentence(output, code, sentence):
    assert OPEN_MPI.failure(code, output) == sentence


def test_a_launcher_that_is_interrupted_is_ended(tmp_path):
    told = tmp_path / "told"
    command = executable(
        tmp_path / "run", f"trap 'echo ended >{told}; exit 1' TERM; sleep 60 & wait"
    )
    with refused("run x does not end"):
        scaling.run([command, "x"], timeout_s=0.5)
    assert told.read_text() == "ended\n"


def triad(elements: int = 4096, **options: Any) -> Case:
    return mk.raider("triad", elements, **{"variant": "scalar", **options})


def requests(case: Case, ranks: int, mode: str = "strong", threads: int = 1) -> list[Case]:
    """Return the cases that the ranks of a launch build from its sweep file."""
    ((_, cases),) = scaling._by_threads([case], threads, 5).items()
    launch = scaling._Launch(ranks, threads, cases, mode, "")
    path = Path("sweep.toml")
    path.write_text(scaling._sweep_file(launch.requests()))
    return list(read_sweep(path, {})[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "build",
    [
        lambda n: triad(n, dtype="float32", pages="4k", budget_s=5.0, ci=0.01),
        lambda n: mk.raider("gather_triad", n, pattern="stride:8", seed=7).with_(pin="none"),
        lambda n: mk.raider("add", n, definition="release", runs=3),
        lambda n: mk.stream("triad", footprint_B=24 * n),
        lambda n: mk.gather("UNIFORM:8:4", delta=[8, 16], count=n, prefetch=2),
        lambda n: mk.amo("rand", iters=n, words=512, primitive="min", seed=3, threads=1),
    ],
)
def test_ranks_share_the_size_of_a_case(build):
    whole = build(1000)
    ((shared,), (all_of_it,)) = (requests(whole, 3, mode) for mode in ("strong", "weak"))
    assert (all_of_it.iterations, shared.iterations) == (1000, 334)
    for case in (shared, all_of_it):
        expected = whole.with_(threads=1, placements=1, budget_s=whole.stop.usual_s / 5)
        assert (case.knobs, case.stop) == (expected.knobs, expected.stop)
        assert (case.spec, case.dtype) == (whole.spec, whole.dtype)
        assert case.template_variant == whole.template_variant
    assert all_of_it.columns == whole.columns
    assert all_of_it.identity() == expected.identity()


@pytest.mark.usefixtures("folder")
def test_every_number_of_threads_has_a_case():
    (case,) = requests(mk.amo("rand", iters=1000, words=512, threads=2), 4, threads=3)
    assert (case.knobs.threads, case.columns["iters"], case.iterations) == (3, 250, 750)
    cases = [triad(), triad(threads=2, name="two")]
    by_default = scaling._by_threads(cases, None, 5)
    assert {n: [c.labels["name"] for c in some] for n, some in by_default.items()} == {
        1: [""], 2: ["two"],
    }  # fmt: skip
    assert {n: len(some) for n, some in scaling._by_threads(cases, [4, 1], 5).items()} == {
        1: 2, 4: 2,
    }  # fmt: skip


def nobody(*_: Any, **__: Any) -> Launcher:
    raise AssertionError("wrong input is refused before anything is launched")


@pytest.mark.parametrize(
    ("case", "options", "culprit"),
    [
        (triad, {"mode": "both"}, "mode 'both' is not one of strong, weak"),
        (triad, {"bind": "rack"}, "bind 'rack' is not one of node, socket, core"),
        (triad, {"comm": "none"}, "comm 'none' is not one of mpi, shmem"),
        (triad, {"turns": 2}, "turns must be at least 3, not 2"),
        (triad, {"seed": -1}, "seed must be at least 0"),
        (triad, {"ranks": []}, "ranks must have at least one number"),
        (triad, {"ranks": [1, 0]}, "ranks must be at least 1, not 0"),
        (triad, {"threads": 0}, "threads must be at least 1, not 0"),
        (lambda: triad(3), {}, "raider.triad has 3 elements, too few for 4 ranks"),
        (lambda: [], {}, "scaling needs at least one case"),
        (lambda: [triad(), triad(9)], {}, "two cases are called raider.triad"),
        (lambda: [triad(), triad(name="x")], {}, "raider.triad and raider.triad x are the same"),
        (
            lambda: mk.raider("gather_copy", 3, pattern=np.array([2, 0, 1])),
            {},
            "raider.gather_copy has arrays, or was not built by a function of its kernel",
        ),
        (lambda: mk.latency(2**16), {}, "latency.chase has no elements, count or iters"),
        (
            lambda: mk.case("spmv.crs", matrix="hpcg:3", halo="overlap"),
            {"mode": "weak"},
            "spmv.crs is distributed over the ranks, which share it: measure strong scaling",
        ),
    ],
)
def test_wrong_cases_are_refused(monkeypatch, case, options, culprit):
    monkeypatch.setattr(scaling, "find_launcher", nobody)
    with refused(culprit):
        mk.scaling(case(), **options)


def test_a_rank_starts_no_ranks(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with refused("scaling starts its ranks itself, but was started as one of 2"):
        mk.scaling(triad())


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_every_turn_launches_every_number_of_ranks_and_threads(ranks, tmp_path):
    output = tmp_path / "x.parquet"
    cases = [triad(name="small"), triad(8192)]
    results = mk.scaling(
        cases, ranks=[2, 1], threads=[1, 2], bind="core", launcher="mpirun -q", output=output
    )
    expected = itertools.product((0, 1), (1, 2), (1, 2), (4096, 8192))
    assert sorted((r["repeat"], r["ranks"], r["threads"], r["scaling_size"]) for r in results) == (
        list(expected)
    )
    for record in results:
        assert record["elements"] == record["scaling_size"] / record["ranks"]
        assert record["name"] == ("small" if record["scaling_size"] == 4096 else "")
        assert (record["scaling"], record["bind"], record["placements"]) == ("strong", "core", 1)
        assert (record["valid"], record["seed"]) == (True, 0)
    assert set(results.records[0]) - set(COLUMNS) <= {"ranks_per_node", "oversubscribed"}
    # Each combination is a different case, and the same in each turn.
    assert len({r["case_id"] for r in results}) == 8
    assert mk.load(output) == results
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    commands = [c for c in ranks.commands if "sweep" in c]
    assert len(commands) == 8
    for command in commands:
        assert command[:3] == ["mpirun", "-q", "-n"]
        assert command[command.index("--bind-to") + 1] == "core"
        assert command[command.index("--comm") + 1] == "mpi"
    places = [[c[3] + c[5] for c in commands[begin : begin + 4]] for begin in (0, 4)]
    assert sorted(places[0]) == sorted(places[1])
    found = mk.efficiencies(results)
    assert found["ranks"].tolist() == [1, 2] * 4
    assert (found["turns"] <= 2).all()


def test_turns_are_in_random_order(ranks):
    orders = []
    for seed in range(6):
        ranks.commands.clear()
        mk.scaling(triad(), ranks=(1, 2, 3, 4), seed=seed, mode="weak")
        launched = [int(c[c.index("-n") + 1]) for c in ranks.commands if "-n" in c]
        assert sorted(launched[:4]) == sorted(launched[4:]) == [1, 2, 3, 4]
        orders += [tuple(launched[:4]), tuple(launched[4:])]
    assert len(set(orders)) > 6


def test_kernels_in_turn_keep_the_records_of_their_parts(ranks):
    results = mk.scaling(mk.stream("rotation", 4096), ranks=(1, 2))
    kernels = ["stream.copy", "stream.scale", "stream.add", "stream.triad", "stream.rotation"]
    assert [r["kernel"] for r in results] == kernels * 4
    assert len({(r["case_id"], r["repeat"]) for r in results}) == 20
    assert len(mk.efficiencies(results)) == 10


def test_an_interrupted_run_is_resumed(ranks, tmp_path):
    def interrupt(_: int) -> None:
        if sum("sweep" in command for command in ranks.commands) == 2:
            raise KeyboardInterrupt

    ranks.fails = interrupt
    how: dict[str, Any] = {"ranks": (1, 2), "output": tmp_path / "x.db"}
    with pytest.warns(UserWarning, match="interrupted: 1 of 4 launches done, kept in"):
        first = mk.scaling(triad(), **how)
    assert first.interrupted and len(first) == 1
    ranks.commands.clear()
    ranks.fails = lambda ranks: None
    results = mk.scaling(triad(), resume=True, **how)
    assert sum("sweep" in command for command in ranks.commands) == 3
    assert results.records[0] == first.records[0] and len(results) == 4
    # Cases with other options are different.
    ranks.commands.clear()
    assert len(mk.scaling(triad(pages="4k"), resume=True, **how)) == 8


def test_a_failure_keeps_what_is_done(ranks, tmp_path):
    def fail(number: int) -> tuple[int, str] | None:
        return (1, f"{DASHES}\nThere are not enough slots.\n") if number == 2 else None

    ranks.fails = fail
    output = tmp_path / "x.parquet"
    kept = pytest.warns(UserWarning, match="1 of 4 launches done, kept in")
    with kept, pytest.raises(InputError) as caught:
        mk.scaling(triad(), ranks=(1, 2), output=output, seed=6)
    assert str(caught.value) == (
        "2 ranks: mpirun ended with exit code 1: There are not enough slots"
    )
    assert isinstance(caught.value.__cause__, Interrupted)
    assert [record["ranks"] for record in mk.load(tmp_path / "x.parquet.db")] == [1]
    assert not output.exists()
    # The launcher succeeds, but records are missing.
    ranks.fails = lambda number: (0, "")
    with refused("ranks: mpirun ended with exit code 0"):
        mk.scaling(triad(), ranks=(1, 2))


def test_ranks_of_openshmem_have_cases_of_their_own(ranks, tmp_path):
    output = tmp_path / "x.db"
    by_mpi = mk.scaling(triad(), ranks=1, output=output)
    both = mk.scaling(triad(), ranks=1, comm="shmem", output=output, resume=True)
    assert len(by_mpi) == 2 and len(both) == 4
    launched = [c for c in ranks.commands if "sweep" in c]
    assert [(c[0], c[-1]) for c in launched] == [("mpirun", "mpi")] * 2 + [("oshrun", "shmem")] * 2


@pytest.mark.parametrize(
    ("case", "shared"),
    [
        # Iterations of atomics are per rank, instances of a gather are totals over ranks.
        (lambda: mk.amo("rand", iters=100, threads=1, device="mpi"), {"iters": 50}),
        (lambda: mk.gather("UNIFORM:8:4", count=100, device="mpi"), {"count": 100}),
        (lambda: mk.raider("gather_copy", 100, device="mpi"), {"elements": 100}),
    ],
)
def test_what_ranks_share_already_is_not_divided(case, shared, monkeypatch):
    one = remote.Description("MPI", 0, (0,), threads=True)
    for module in ("families.amo.kernels", "shared.over_ranks"):
        monkeypatch.setattr(f"memkern.{module}.description", lambda *_: one)
    built = case()
    launch = scaling._Launch(2, 1, [built], "strong", "")
    (request,) = launch.requests()
    assert {name: request[name] for name in shared} == shared
    if "iters" not in shared:
        with refused(f"{built.spec.name} is distributed over the ranks, which share it"):
            mk.scaling(built, mode="weak")


# With MPI


@pytest.fixture
def by_mpi(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the command of a launcher, and set its variables in this process."""
    command, variables = ranks_of_tests.launcher(request.param, tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    return " ".join(command)


@pytest.mark.parametrize(
    ("by_mpi", "most"),
    [("openmpi", 3), pytest.param("mpich", 2, marks=pytest.mark.release)],
    indirect=["by_mpi"],
)
@pytest.mark.usefixtures("this_machine", "users_files")
def test_ranks_of_mpi_share_a_case(by_mpi, most):
    results = mk.scaling(triad(), ranks=(1, most), launcher=by_mpi)
    assert results.valid and len(results) == 2 * 2
    units = len(_memkern.topology()["units"])
    for record in results:
        assert record["elements"] == -(-record["scaling_size"] // record["ranks"])
        assert record["bytes_B"] == record["elements"] * record["ranks"] * 24
        assert (record["comm"], record["ranks_per_node"]) == ("mpi", record["ranks"])
        assert record["oversubscribed"] == (record["ranks"] > units)
    found = mk.efficiencies(results)
    assert found["ranks"].tolist() == [1, most]
    assert found["oversubscribed"].tolist() == [False, units < most]
    assert (found["speed_up"] > 0).all()


INITIALISED = """
import memkern as mk

# This process is a rank of MPI from here on.
case = mk.amo("rand", iters=64, words=64, threads=1, device="mpi")
results = mk.scaling(case, ranks=2, launcher="mpirun.openmpi")
assert results.valid and len(results) == 2
for record in results:
    assert (record["ranks"], record["iters"], record["device"]) == (2, 32, "mpi")
"""


@pytest.mark.parametrize("by_mpi", ["openmpi"], indirect=True)
@pytest.mark.usefixtures("by_mpi")
def test_a_process_that_uses_mpi_starts_ranks():
    ranks_of_tests.need_module("mpi")
    done = ranks_of_tests.alone(["-c", INITIALISED], {})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("by_mpi", ["oshmem"], indirect=True)
def test_ranks_of_openshmem_share_a_case(by_mpi):
    ranks_of_tests.need_module("shmem")
    results = mk.scaling(triad(), ranks=2, comm="shmem", launcher=by_mpi)
    assert results.valid
    assert [(record["comm"], record["ranks"]) for record in results] == [("shmem", 2)] * 2


@pytest.mark.parametrize("by_mpi", ["openmpi", "mpich"], indirect=True)
@pytest.mark.parametrize("bind", BINDINGS)
@pytest.mark.usefixtures("this_machine")
def test_ranks_of_mpi_are_bound(by_mpi, bind):
    program = [sys.executable, "-c", "import os; print('units', len(os.sched_getaffinity(0)))"]
    code, output = scaling.run([*find_launcher(by_mpi).command(1, 1, bind), *program])
    assert code == 0, output
    (units,) = (int(line.split()[1]) for line in output.splitlines() if line.startswith("units"))
    here, cores = len(_memkern.topology()["units"]), len(topology.physical_cores())
    # Launchers bind to the whole socket, although this process may be limited to a part.
    expected = {"node": here, "core": here // cores}.get(bind, units)
    assert units == expected <= (os.cpu_count() or expected)


@pytest.mark.parametrize("by_mpi", ["openmpi"], indirect=True)
def test_failures_of_mpi_are_one_sentence(by_mpi):
    with refused("2 ranks: mpirun.openmpi ended with exit code .*: .*ppr"):
        mk.scaling(triad(), ranks=2, bind="node", launcher=by_mpi)
    # If all ranks refuse the case, the first message is used.
    with refused("2 ranks: .*page"):
        mk.scaling(triad(pages="hugetlb-1g"), ranks=2, launcher=by_mpi)
