"""Sweeps over many machines: each task of a job array measures one part of the cases.

submitit submits the tasks to Slurm, or starts them on this machine, one after the other. Next to
the output ``x.parquet`` is the folder ``x.parquet.tasks``, which all machines must share:

- ``K-of-N.<machine>.db`` has the results of part K; a different machine type that continues this
  part writes a separate file,
- ``K-of-N.json`` has the request and, after the end of the task, the error if one occurred,
- ``jobs`` has submitit's files and the logs.

The nodes of a fleet are the tasks of one job, each of which measures all cases in rounds;
``NODE.db`` has the results of a node.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memkern import launcher
from memkern.errors import DeviceError, InputError
from memkern.files import publish
from memkern.formats import ResultSet, load
from memkern.formats.store import check_output
from memkern.host.environment import machine_environment
from memkern.launcher import COMM, python_command
from memkern.machine.environment import differences, identity
from memkern.progress import bar as progress_bar
from memkern.results.fleet import INSIDE, NODE, fleet, node_name, of_files
from memkern.results.merging import finished_cases, merge
from memkern.spec.case import Case
from memkern.spec.sequences import Part

_COUNT_S = 10.0  # between two checks of the tasks' results
_WAIT_S = 1.0  # between two checks whether the other nodes are done


@dataclass(frozen=True)
class Task:
    """The work of one job of an array; submitit pickles it.

    Parameters
    ----------
    part : Part
    folder : Path
        Folder of all tasks.
    request : str
        Hash of the cases and options.
    finished : frozenset of (str, int)
        case_id and repeat of the results of earlier tasks.
    work : callable
        Gets the task, measures the remaining cases (see `left`) and writes to `output`. Returns
        False if it was interrupted.
    fleet : bool
        Whether the tasks are those of one job, each on a node of its own.
    """

    part: Part
    folder: Path
    request: str
    finished: frozenset[tuple[str, int]]
    work: Callable[[Task], bool]
    fleet: bool = False

    @property
    def output(self) -> Path:
        """The results file of the task on this machine type, or on this node of a fleet."""
        name = node_name() if self.fleet else f"{self.part}.{identity(machine_environment())}"
        return self.folder / f"{name}.db"

    def is_suspect(self, measurements: int, patience_s: float) -> bool:
        """Return whether this node may be off and needs more rounds to be named.

        Parameters
        ----------
        measurements : int
            Of each node, which are waited for.
        patience_s : float
            Longest time of waiting.
        """
        end = time.monotonic() + patience_s
        while True:
            files = results_of(self.folder)
            done = sum(len(finished_cases(path)) >= measurements for path in files)
            if done == self.part.of or time.monotonic() > end:
                break
            time.sleep(_WAIT_S)
        try:
            frame = fleet(of_files(files))
        except InputError:  # there is no other node
            return False
        own = frame[frame[NODE] == node_name()]
        return bool(own["verdict"].eq(INSIDE).all() and own["evidence"].gt(0).any())

    def left(self, cases: Sequence[Case], repeats: int) -> Sequence[Case]:
        """Return the unfinished cases of the task's part."""
        own = self.part.select(cases)
        if not self.finished:
            return own  # not built
        keys = [(case, {(case.identity(), number) for number in range(repeats)}) for case in own]
        return [case for case, key in keys if not key <= self.finished]

    def run(self) -> None:
        """Measure, and write the outcome of the task.

        SIGTERM, which a scheduler sends to end a job, has the effect of Ctrl-C.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        error: str | None = "it was interrupted, by a signal or its time limit"
        part = self.part._replace(number=launcher.number() + 1) if self.fleet else self.part
        try:
            if self.work(replace(self, part=part)):
                error = None
        except KeyboardInterrupt:
            pass
        except (InputError, MemoryError, DeviceError) as failure:
            error = str(failure) or "out of memory"
            print(f"memkern: {error}", file=sys.stderr)
        outcome = json.dumps({"request": self.request, "error": error})
        publish({self.folder / f"{part}.json": outcome.encode()})


class _Executor(ABC):
    """Submits tasks by submitit.

    Parameters
    ----------
    folder : Path
        Folder of submitit's files.
    options : mapping
        Options of sbatch.

    Raises
    ------
    InputError
        submitit or the scheduler is missing, or an option can't be used.
    """

    kind: str  # in the names of submitit's classes
    at_once: int | None = None  # most jobs at a time
    poll_s: float  # between two checks of the jobs

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        try:
            self._submitit = importlib.import_module("submitit")
        except ImportError:
            raise InputError("--executor needs submitit: pip install 'memkern[cluster]'") from None
        self._folder = folder
        self._options = options

    def submit(self, tasks: Sequence[Task]) -> list[Any]:
        """Submit tasks as one array, and return a job for each.

        Raises
        ------
        InputError
            The scheduler refuses them.
        """
        executor = getattr(self._submitit, f"{self.kind}Executor")(self._folder)
        executor.update_parameters(**self._parameters(len(tasks) if tasks[0].fleet else 0))
        executor.python = shlex.join(python_command())
        utils = self._submitit.core.utils
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # it repeats the error
                if tasks[0].fleet:
                    return [executor.submit(Task.run, tasks[0])] * len(tasks)
                jobs: list[Any] = executor.map_array(Task.run, tasks)
        except (utils.FailedJobError, utils.FailedSubmissionError) as error:
            lines = [line.removeprefix("sbatch: error: ") for line in str(error).splitlines()]
            raise InputError(f"the jobs can't be submitted: {'; '.join(lines)}") from None
        return jobs

    def jobs(self) -> list[Any]:
        """Return all jobs that were submitted from this folder."""
        job = getattr(self._submitit, f"{self.kind}Job")
        end = "_submitted.pkl"
        names = sorted(path.name for path in self._folder.glob(f"*{end}"))
        return [job(self._folder, name.removesuffix(end)) for name in names]

    @abstractmethod
    def alive(self, jobs: Collection[Any]) -> list[Any]:
        """Return the jobs that have not ended."""

    @abstractmethod
    def interrupt(self, jobs: Collection[Any]) -> None:
        """End jobs after Ctrl-C, or print how to end them."""

    @abstractmethod
    def _parameters(self, nodes: int) -> dict[str, Any]:
        """Return the parameters of submitit's executor, for a job of a fleet or for others (0)."""


class _Slurm(_Executor):
    kind = "Slurm"
    poll_s = 10.0

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        super().__init__(folder, options)
        if shutil.which("sbatch") is None:
            raise InputError(
                "--executor slurm needs Slurm's sbatch, which is not on PATH: run it where jobs "
                "are submitted"
            )
        if own := {"array", "error", "output"} & options.keys():
            raise InputError(f"--options {min(own)}=... is chosen by memkern: leave it out")

    def _parameters(self, nodes: int) -> dict[str, Any]:
        options = {"exclusive": "true", **self._options}
        # srun would bind a task to some of the node's units.
        of_fleet = {
            "nodes": nodes,
            "ntasks_per_node": 1,
            "srun_args": ["--cpu-bind=none"],
            "setup": [f"export {COMM}=none"],  # tasks are not ranks
        }
        return {
            **(of_fleet if nodes else {"use_srun": False}),
            "job_name": "memkern",
            "time": None,  # the partition's default instead of submitit's five minutes
            "additional_parameters": {
                name: True if value == "true" else value
                for name, value in options.items()
                if value != "false"
            },
        }

    def alive(self, jobs: Collection[Any]) -> list[Any]:
        # sacct, which submitit asks, needs a database that many clusters lack.
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        found = subprocess.run(command, capture_output=True, text=True)
        known = set(found.stdout.split())
        # If Slurm does not answer, jobs count as alive.
        return [job for job in jobs if found.returncode or job.job_id in known]

    def interrupt(self, jobs: Collection[Any]) -> None:
        numbers = " ".join(dict.fromkeys(job.job_id.partition("_")[0] for job in jobs))
        warnings.warn(
            f"the jobs go on: squeue --me shows them, scancel {numbers} ends them, and the same "
            "command with --resume waits for them and merges their results",
            stacklevel=2,
        )


class _Local(_Executor):
    kind = "Local"
    at_once = 1  # several would disturb each other
    poll_s = 0.2

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        super().__init__(folder, options)
        if options:
            raise InputError(f"--options {min(options)}=... is for --executor slurm: leave it out")

    def _parameters(self, nodes: int) -> dict[str, Any]:
        return {"timeout_min": 365 * 24 * 60}  # a year

    def alive(self, jobs: Collection[Any]) -> list[Any]:
        # submitit only knows the processes that were started from this one.
        folder = os.fsencode(self._folder)
        return [job for job in jobs if not job.done() or folder in _command_of(job.job_id)]

    def submit(self, tasks: Sequence[Task]) -> list[Any]:
        # Ctrl-C reaches all processes of a terminal; submitit's would end with a traceback.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        # submitit's own process has no other option for its path, and none before Python 3.11.
        safe, os.environ["PYTHONSAFEPATH"] = os.environ.get("PYTHONSAFEPATH"), "1"
        try:
            return super().submit(tasks)
        finally:
            if not safe:
                del os.environ["PYTHONSAFEPATH"]
            signal.signal(signal.SIGINT, before)

    def interrupt(self, jobs: Collection[Any]) -> None:
        for job in self.alive(jobs):
            os.kill(int(job.job_id), signal.SIGTERM)
        while self.alive(jobs):
            time.sleep(self.poll_s)


EXECUTORS: Mapping[str, type[_Executor]] = {"slurm": _Slurm, "local": _Local}


def results_of(folder: Path) -> list[Path]:
    """Return the results files of tasks; one that a task has just created is empty."""
    return sorted(path for path in folder.glob("*.db") if path.stat().st_size)


def _command_of(process: str) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


class Array:
    """The tasks of one sweep.

    Parameters
    ----------
    output : path
        The results file of all tasks together.
    parts : int
        Number of tasks.
    request : str
        Hash of the cases and options.
    work : callable
        See `Task`.
    executor : str
        ``slurm`` or ``local``.
    options : mapping
        Options of sbatch by their long names; ``true`` is an option without a value, ``false``
        leaves a default out.
    resume, force : bool
        Whether to continue existing results, or to overwrite them.

    Raises
    ------
    InputError
        The executor can't be used, or an option.
    """

    _fleet = False

    def __init__(
        self,
        output: str | Path,
        parts: int,
        request: str,
        work: Callable[[Task], bool],
        *,
        executor: str,
        options: Mapping[str, str],
        resume: bool,
        force: bool,
    ) -> None:
        self.output = Path(output)
        self.folder = self.output.absolute().with_name(f"{self.output.name}.tasks")
        self._parts = [Part(number + 1, parts) for number in range(parts)]
        self._request, self._work = request, work
        self._executor = EXECUTORS[executor](self.folder / "jobs", options)
        self._resume, self._force = resume, force
        self._jobs: dict[Part, Any] = {}

    def run(self, measurements: int, progress: bool) -> ResultSet:
        """Measure the missing parts, and write the results of all tasks to the output.

        Parameters
        ----------
        measurements : int
            Number of measurements in all parts, for the progress.
        progress : bool
            Whether to show it.

        Raises
        ------
        InputError
            The results can't be continued or written, the scheduler refuses the jobs, or a task has
            failed. Each failed task is named in a warning, with its log; finished measurements are
            in the folder.
        """
        self._begin()
        before = self._count()
        total = max(measurements - before, 0)
        with contextlib.closing(progress_bar(progress, total=total, unit="measurements")) as bar:
            self._wait(self._running(), bar, before)
            missing = self._missing()
            most = self._executor.at_once or len(missing)
            while missing:
                self._wait(self._submit(missing[:most]), bar, before)
                missing = missing[most:]
        return self._merge()

    def submit(self) -> list[str]:
        """Submit the missing parts, and return the identifiers of the jobs.

        Raises
        ------
        InputError
            The results can't be continued, jobs of this folder are still running, or the scheduler
            refuses the new ones.
        """
        if self._executor.at_once:
            raise InputError(
                "--no-wait has no effect with --executor local, whose tasks run one after the "
                "other: leave it out"
            )
        self._begin()
        if running := self._running():
            raise InputError(
                f"job {running[0].job_id} is still running: without --no-wait, this command waits "
                "for it"
            )
        return [job.job_id for job in self._submit(self._missing())]

    def _begin(self) -> None:
        """Check that results can be written and continued, and create the folder."""
        check_output(self.output, self._force or self._resume)
        if self.folder.exists() and not self._resume:
            if not self._force:
                raise InputError(
                    f"{self.folder} exists already: continue it with --resume, name another "
                    "output, or remove it with --force"
                )
            if running := self._running():
                raise InputError(
                    f"job {running[0].job_id} still writes to {self.folder}: cancel it first"
                )
            shutil.rmtree(self.folder)
        here = machine_environment()
        for path in self._sources():
            for environment in load(path).environments.values():
                found = differences(environment, here)
                if builds := [text for text in found if text.startswith(("build.", "python."))]:
                    raise InputError(
                        f"{path} holds results of another build ({builds[0]}): name another output"
                    )
        (self.folder / "jobs").mkdir(parents=True, exist_ok=True)

    def _running(self) -> list[Any]:
        """Return the jobs that were submitted from the folder and have not ended."""
        return self._executor.alive(self._executor.jobs())

    def _submit(self, parts: Sequence[Part]) -> list[Any]:
        """Submit the tasks of parts; if the first are refused, remove the new folder."""
        for part in parts:
            self._outcome(part).unlink(missing_ok=True)
        finished = frozenset[tuple[str, int]]().union(*map(finished_cases, self._sources()))
        tasks = [
            Task(part, self.folder, self._request, finished, self._work, self._fleet)
            for part in parts
        ]
        try:
            jobs = self._executor.submit(tasks) if tasks else []
        except InputError:
            if not (self._resume or self._jobs):
                shutil.rmtree(self.folder)
            raise
        self._jobs |= zip(parts, jobs, strict=True)
        return jobs

    def _wait(self, jobs: Collection[Any], bar: Any, before: int) -> None:
        """Wait until jobs have ended, and show the number of measurements finished since then."""
        counted = time.monotonic()
        try:
            while self._executor.alive(jobs):
                time.sleep(self._executor.poll_s)
                if time.monotonic() >= counted + _COUNT_S:
                    bar.update(self._count() - before - bar.n)
                    counted = time.monotonic()
        except KeyboardInterrupt:
            self._executor.interrupt(jobs)
            raise

    def _merge(self) -> ResultSet:
        failed = self._missing()
        for part in failed:
            log = self._jobs[part].paths.stderr
            why = self._errors().get(part) or _last_line(log)
            warnings.warn(
                f"task {part.number} of {part.of} failed: {why} (log: {log})", stacklevel=3
            )
        if failed:
            raise InputError(
                f"{len(failed)} of {len(self._parts)} tasks failed: their measurements are kept in "
                f"{self.folder}, and the same command with --resume measures the rest"
            )
        results = (of_files if self._fleet else merge)(self._sources())
        results.save(self.output)
        return results

    def _sources(self) -> list[Path]:
        """Return the files with results, including the output if it is continued."""
        kept = self._resume and self.output.exists()
        return [self.output, *results_of(self.folder)] if kept else results_of(self.folder)

    def _count(self) -> int:
        """Return the number of measurements that tasks have finished."""
        return len(set().union(*map(finished_cases, results_of(self.folder))))

    def _outcome(self, part: Part) -> Path:
        return self.folder / f"{part}.json"

    def _errors(self) -> dict[Part, str | None]:
        """Return the errors of the parts whose task has ended, None for those that succeeded."""
        # The folder is listed first, because a network file system may cache that a file was
        # missing.
        ended = set(self.folder.glob("*.json"))
        outcomes = {
            part: json.loads(self._outcome(part).read_text())
            for part in self._parts
            if self._outcome(part) in ended
        }
        return {
            part: outcome["error"]
            for part, outcome in outcomes.items()
            if outcome["request"] == self._request
        }

    def _missing(self) -> list[Part]:
        """Return the parts whose task has not succeeded."""
        errors = self._errors()
        return [part for part in self._parts if errors.get(part, "") is not None]


class Fleet(Array):
    """The nodes of a fleet: tasks of one job, each of which measures all cases."""

    _fleet = True


def _last_line(log: Path) -> str:
    """Return the last line of a log as the reason of a task's end."""
    with contextlib.suppress(OSError):
        if text := log.read_text(errors="replace").strip():
            return text.splitlines()[-1].strip()
    return "it was ended without a message"
