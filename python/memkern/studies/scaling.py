"""Strong and weak scaling: cases over numbers of ranks, each number started by a launcher.

Launchers of ranks are Open MPI's and MPICH's mpirun, oshrun, srun, and others without binding.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memkern import backends, small
from memkern import launcher as started
from memkern.checks import integer, one_of, several, shown
from memkern.engine.public import Collected, in_rounds
from memkern.errors import InputError
from memkern.files import reason
from memkern.formats import ResultSet, load
from memkern.formats.store import Sink, open_output
from memkern.formats.values import Record
from memkern.progress import announce
from memkern.progress import bar as progress_bar
from memkern.results.comparison import label_of
from memkern.results.scaling import MODES, STRONG
from memkern.spec import registry
from memkern.spec.case import Case
from memkern.spec.columns import in_order
from memkern.spec.options import Knobs, Stop, declared

# Default cases: the three triads and the two sizes of Beebe et al. 2022.
KERNELS = ("raider.triad", "raider.gather_triad", "raider.scatter_triad")
ELEMENTS = (8_700_000, 22_000_000)
RANKS = (1, 2, 4)
TURNS = 5
# Communication of the ranks of a launch.
COMMS = tuple(backends.LIBRARIES)
# The options that strong scaling divides over the ranks.
_SIZES = ("elements", "count", "iters")
# Options of the size of all ranks together, for arrays distributed over the ranks.
_WHOLE = ("count", "elements")


@dataclass(frozen=True)
class _Launch:
    """Cases that are measured by one number of ranks, each with the same number of threads."""

    ranks: int
    threads: int
    cases: Sequence[Case]
    mode: str
    bind: str
    comm: str = COMMS[0]

    def case_id(self, case: Case) -> str:
        """Return the identity of a case in this launch."""
        bind = f"-{self.bind}" if self.bind else ""
        comm = f"-{self.comm}" if self.comm != COMMS[0] else ""
        return f"{case.identity()}-{self.mode}-{self.ranks}{bind}{comm}"

    def __post_init__(self) -> None:
        """Raise InputError if a rank would get no part of a case."""
        for case in self.cases if self.mode == STRONG else ():
            size = _size(case)
            if size and case.columns[size] < self.ranks:
                raise InputError(
                    f"{case.spec.kernel} has {case.columns[size]} {size}, too few for "
                    f"{self.ranks} ranks"
                )

    def requests(self) -> list[dict[str, Any]]:
        """Return the options with which each rank builds its cases, named by their positions."""
        found = []
        for position, case in enumerate(self.cases):
            request = {"kernel": case.spec.kernel, **(case.request or {}), "name": str(position)}
            # A default size depends on the machine, and ranks may run on another machine.
            if size := _size(case):
                parts = self.ranks if self.mode == STRONG and not _is_distributed(case) else 1
                request |= {"footprint_B": None, size: -(-case.columns[size] // parts)}
            found.append({name: value for name, value in request.items() if value is not None})
        return found


def scaling(  # noqa: PLR0913
    case: Case | Sequence[Case],
    *,
    ranks: int | Sequence[int] = RANKS,
    threads: int | Sequence[int] | None = None,
    mode: str = STRONG,
    bind: str = "",
    comm: str = COMMS[0],
    launcher: str | None = None,
    turns: int = TURNS,
    seed: int = 0,
    output: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool | None = None,
) -> ResultSet:
    """Measure cases by several numbers of ranks.

    In each turn, every number of ranks is started once, in random order, and places every case in
    memory once, so that drift does not look like scaling. `memkern.efficiencies` returns speed-ups
    and efficiencies.

    Parameters
    ----------
    case : Case or sequence of Case
        Built by `memkern.case` or a function of a family from words and numbers. The turns share
        the budget of a case.
    ranks : int or sequence of int
        Numbers of ranks.
    threads : int or sequence of int, optional
        Workers of each rank, each with every number of ranks; by default the number of the case, or
        one.
    mode : str
        ``strong``: the ranks share the elements, instances or iterations of the case, which must
        have one of these sizes; the shares are rounded up. A case that is distributed over ranks
        (`halo`, or a gather on device ``mpi``) is already shared. ``weak``: each rank has the whole
        case.
    bind : str
        ``node``: one rank on each node; ``socket``: one on each socket; ``core``: each on as many
        cores as it has workers; empty: ranks are not bound, and the ranks of a host share its
        units.
    comm : str
        How the ranks communicate: ``mpi`` or ``shmem``.
    launcher : str, optional
        Command that starts ranks, with ``-n`` and their number: ``srun``, ``mpirun.mpich``,
        ``mpirun --oversubscribe``; by default ``mpirun`` (``oshrun`` for OpenSHMEM), or ``srun`` if
        there is none.
    turns : int
        At least 3.
    seed : int
        Of the random order.
    output, resume, force, progress
        As of `memkern.sweep`; each launch is written to the file at its end. The launched processes
        read and write a folder next to the file, which must be shared by all hosts.

    Returns
    -------
    ResultSet
        In its records, ``repeat`` is the turn, ``scaling`` the mode and ``scaling_size`` the
        iterations (such as elements) of all ranks in strong and of each in weak scaling. After
        Ctrl-C, the records so far, with a warning and marked as `interrupted`.

    Raises
    ------
    InputError
        Cases or options are wrong, the results file can't be used, or the launcher failed.
    """
    if started.size() > 1:
        raise InputError(
            f"scaling starts its ranks itself, but was started as one of {started.size()}: "
            "start it without a launcher"
        )
    one_of(mode, "mode", MODES)
    one_of(bind, "bind", ("", *started.BINDINGS))
    one_of(comm, "comm", COMMS)
    turns = small.cut(integer(turns, "turns", 3), 2)
    integer(seed, "seed")
    cases = _checked([case] if isinstance(case, Case) else list(case), mode)
    launches = [
        _Launch(number, workers, built, mode, bind, comm)
        for workers, built in _by_threads(cases, threads, turns).items()
        for number in _counts(ranks, "ranks")
    ]
    start = find_launcher(launcher, comm)
    _ = start.command(1, 1, bind)
    sink = open_output(output, resume, force=force) if output is not None else None
    finished, total = 0, turns * len(launches)
    begin_s = time.perf_counter()
    bar = progress_bar(progress, total=total, unit="launches")
    folder = None if output is None else Path(output).parent
    results = Collected(lambda: f"{finished} of {total} launches", sink)

    def launch_of(turn_and_launch: tuple[int, _Launch]) -> None:
        nonlocal finished
        turn, launch = turn_and_launch
        ids = [launch.case_id(case) for case in launch.cases]
        if sink is None or not all(sink.store.find(case_id, turn) for case_id in ids):
            found = _measured(launch, turn, start, folder)
            if sink is None:
                results.done += found
            else:
                _store(found, sink, resume)
        finished += 1
        if finished == 1:
            announce(f"{total - 1} more launches", (total - 1) * (time.perf_counter() - begin_s))
        bar.update()

    def of_turn(turn: int) -> list[tuple[int, _Launch]]:
        order = random.Random(f"{seed}/{turn}").sample(launches, len(launches))
        return [(turn, launch) for launch in order]

    with contextlib.closing(bar):
        interrupted = in_rounds(launch_of, of_turn, rounds=turns, results=results)
    return results.end(interrupted)


def _counts(given: int | Sequence[int], name: str) -> list[int]:
    """Return different positive numbers, in ascending order."""
    numbers = several(given, name)
    if not numbers:
        raise InputError(f"{name} must have at least one number")
    return sorted({integer(number, name, 1, 2**20) for number in numbers})


def _checked(cases: Sequence[Case], mode: str) -> Sequence[Case]:
    """Return the cases, after checking that names differ and other processes can build them."""
    if not cases:
        raise InputError("scaling needs at least one case")
    seen: dict[str, str] = {}
    for case in cases:
        label = label_of(
            case.spec.kernel, registry.definition_of(case.spec), case.labels.get("name")
        )
        if label in seen.values():
            raise InputError(f"two cases are called {label}: give one of them another name")
        if case.identity() in seen:
            raise InputError(f"{seen[case.identity()]} and {label} are the same: leave one out")
        seen[case.identity()] = label
        if case.request is None:
            raise InputError(
                f"{label} has arrays, or was not built by a function of its kernel, so that other "
                "processes can't build it: describe it by words and numbers"
            )
        if mode != STRONG and _is_distributed(case):
            raise InputError(
                f"{label} is distributed over the ranks, which share it: measure strong scaling"
            )
        if mode == STRONG and not (_size(case) or _is_distributed(case)):
            raise InputError(
                f"{label} has no {', '.join(_SIZES[:-1])} or {_SIZES[-1]} that ranks could share: "
                "measure weak scaling"
            )
    return cases


def _size(case: Case) -> str:
    """Return the option that strong scaling divides; empty if there is none."""
    options = registry.options_of(case.spec)
    return next((name for name in _SIZES if name in case.columns and name in options), "")


def _is_distributed(case: Case) -> bool:
    """Return whether the size of a case is the size of all ranks together."""
    return bool(case.halo) or (case.knobs.backend.over_ranks and _size(case) in _WHOLE)


def _by_threads(
    cases: Sequence[Case], threads: int | Sequence[int] | None, turns: int
) -> dict[int, list[Case]]:
    """Return the cases of one turn that are measured with each number of threads."""
    numbers = None if threads is None else _counts(threads, "threads")
    found: dict[int, list[Case]] = {}
    for case in cases:
        once = case.with_(placements=1, budget_s=case.stop.usual_s / turns)
        for number in numbers or [case.knobs.threads or 1]:
            found.setdefault(number, []).append(_built(once, number))
    return found


def _built(case: Case, threads: int) -> Case:
    """Build a case again for a number of workers; its request has all of its options."""
    knobs = {name: getattr(case.knobs, name) for name, _, _ in declared(Knobs)}
    stop = {name: getattr(case.stop, name) for name, _, _ in declared(Stop)}
    others = {"dtype": case.dtype, "name": case.labels.get("name", ""), "threads": threads}
    return registry.case(case.spec.kernel, **{**(case.request or {}), **knobs, **stop, **others})


def _sweep_file(requests: Sequence[Mapping[str, Any]]) -> str:
    """Return a sweep file with one case for each request."""
    lines = []
    for request in requests:
        # A list would declare several cases.
        values = {
            name: [list(value)] if isinstance(value, (list, tuple)) else value
            for name, value in request.items()
        }
        # TOML and JSON have the same form of these values.
        texts = (f"{name} = {json.dumps(v, ensure_ascii=False)}" for name, v in values.items())
        lines += ["[[case]]", *texts]
    return "\n".join(lines) + "\n"


def _measured(launch: _Launch, turn: int, start: Launcher, folder: Path | None) -> ResultSet:
    """Start the ranks of a launch, and return their records."""
    with tempfile.TemporaryDirectory(prefix=".memkern-", dir=folder) as name:
        sweep, results = Path(name) / "sweep.toml", Path(name) / "results.db"
        requests = launch.requests()
        sweep.write_text(_sweep_file(requests), encoding="utf-8")
        words = ["memkern", "sweep", str(sweep), "-o", str(results), "-q", "--comm", launch.comm]
        command = start.command(launch.ranks, launch.threads, launch.bind)
        code, output = run([*command, *started.python_command(*words)])
        found = load(results) if results.exists() else ResultSet()
    names = {str(record["name"]) for record in found}
    if code not in (0, 1) or names != {request["name"] for request in requests}:
        raise InputError(f"{launch.ranks} ranks: {start.failure(code, output)}")
    found.records = [_record(record, launch, turn) for record in found]
    return found


def _record(record: Record, launch: _Launch, turn: int) -> Record:
    """Return a record of a launch with the columns of the whole run."""
    case = launch.cases[int(record["name"])]
    part = record["kernel"] != case.spec.kernel
    return in_order(
        {
            **record,
            "case_id": launch.case_id(case) + (f"-{record['kernel']}" if part else ""),
            "repeat": turn,
            "name": case.labels.get("name", ""),
            "scaling": launch.mode,
            "scaling_size": case.iterations,
            "bind": launch.bind,
        }
    )


def _store(found: ResultSet, sink: Sink, resume: bool) -> None:
    """Write the records of a launch to the file, if it has none of another machine."""
    for environment in found.environments.values() if resume else ():
        sink.store.check(environment)
    for record, samples in zip(found.records, found.samples, strict=True):
        sink.store.add(record, samples, found.environments[record["environment_id"]])


# Launchers

OPEN_MPI, MPICH, SLURM = "Open MPI", "MPICH", "Slurm"
# Words in the output of launchers for --version, by kind.
_VERSIONS = {"Open MPI": OPEN_MPI, "OpenRTE": OPEN_MPI, "HYDRA": MPICH, "slurm": SLURM}
_VERSION_S, _END_S = 30.0, 10.0
_MOST_CHARACTERS = 300


@dataclass(frozen=True)
class Launcher:
    """A command that starts ranks.

    Parameters
    ----------
    words : tuple of str
        The command and its options.
    kind : str
        ``Open MPI``, ``MPICH``, ``Slurm``, or empty for another one.
    """

    words: tuple[str, ...]
    kind: str

    def command(self, ranks: int, threads: int, bind: str = "") -> list[str]:
        """Return the command that starts ranks, without the program that they run.

        Parameters
        ----------
        ranks, threads : int
            The number of ranks, and of the workers of each.
        bind : str
            ``node``: one rank on each node; ``socket``: one on each socket; ``core``: each on as
            many cores as it has workers; empty: ranks are not bound.

        Raises
        ------
        InputError
            The binding options of this launcher are unknown.
        """
        return [*self.words, "-n", str(ranks), *self._binding(threads, bind)]

    def _binding(self, threads: int, bind: str) -> list[str]:
        given = any(word.endswith("bind-to") for word in self.words)
        workers = f"--cpus-per-task={threads}"
        options = {
            OPEN_MPI: {
                # Its default depends on the number of ranks.
                "": [] if given else ["--bind-to", "none"],
                "node": ["--map-by", "ppr:1:node", "--bind-to", "none"],
                "socket": ["--map-by", "ppr:1:socket", "--bind-to", "socket"],
                "core": ["--map-by", f"slot:PE={threads}", "--bind-to", "core"],
            },
            MPICH: {
                "": [],
                "node": ["-ppn", "1", "-bind-to", "none"],
                "socket": ["-map-by", "socket", "-bind-to", "socket"],
                "core": ["-bind-to", f"core:{threads}"],
            },
            SLURM: {
                "": [workers],
                "node": [workers, "--ntasks-per-node=1", "--cpu-bind=none"],
                "socket": [workers, "--ntasks-per-socket=1", "--cpu-bind=sockets"],
                "core": [workers, "--cpu-bind=cores"],
            },
        }
        if self.kind in options:
            return options[self.kind][bind]
        if bind:
            raise InputError(
                f"bind {bind} is for Open MPI, MPICH and srun, not for {self.words[0]}: give "
                "options of binding in the launcher's command"
            )
        return []

    def failure(self, code: int, output: str) -> str:
        """Return one sentence on why a launched program failed.

        Parameters
        ----------
        code : int
            Exit code.
        output : str
            Output of the launcher and the program.
        """
        lines = [re.sub(r"^[-=]{4,}$|^= +", "", line.strip()) for line in output.splitlines()]
        own = [line for line in lines if line.startswith("memkern: ")]
        if own:
            return own[-1].removeprefix("memkern: ")
        # The reason is the first paragraph; below it, launchers explain other possible errors.
        paragraphs = itertools.groupby(lines, key=bool)
        first = next((" ".join(some) for filled, some in paragraphs if filled), "")
        if len(first) > _MOST_CHARACTERS:
            first = f"{first[:_MOST_CHARACTERS]}..."
        end = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        return f"{self.words[0]} {end}" + (f": {first.rstrip(' .:')}" if first else "")


def find_launcher(command: str | None = None, comm: str = "mpi") -> Launcher:
    """Return a launcher with its kind.

    Parameters
    ----------
    command : str, optional
        Such as ``srun`` or ``mpirun --oversubscribe``; by default ``mpirun``, or ``oshrun`` for
        OpenSHMEM, or else ``srun``.
    comm : str
        ``mpi`` or ``shmem``.

    Raises
    ------
    InputError
        There is no launcher, or it can't be run.
    """
    if command is None:
        usual = backends.of(comm).launchers
        command = next(filter(shutil.which, usual), None)
        if command is None:
            names = " and no ".join(usual)
            raise InputError(f"there is no {names} here that starts ranks: name a launcher")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"launcher {shown(command)} can't be split: {error}") from None
    if not words:
        raise InputError("launcher must be a command such as mpirun, not an empty text")
    _, output = run([words[0], "--version"], timeout_s=_VERSION_S)
    kinds = (kind for word, kind in _VERSIONS.items() if word in output)
    return Launcher(tuple(words), next(kinds, ""))


def run(command: Sequence[str], timeout_s: float | None = None) -> tuple[int, str]:
    """Run a command; return its exit code (or minus a signal's number) and all that it printed.

    Raises
    ------
    InputError
        It can't be run, or does not end in time.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A process that has initialised MPI has additional variables, which are not in
                # `os.environ` and make mpirun fail.
                env=os.environ,
            )
        except OSError as error:
            raise InputError(f"the launcher {command[0]} can't be run: {reason(error)}") from None
        try:
            code = process.wait(timeout_s)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise InputError(f"{shlex.join(command)} does not end") from None
            raise
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher, with enough time to end its ranks."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    process.kill()
    process.wait()
