"""The ranks' program of test_over_ranks.py: python remote_program.py DEVICE PART[=NUMBER]....

The first rank prints a JSON object with the results of the parts.
"""

import inspect
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import numpy as np
from checking import Changed, checked, message_of, prepared

import memkern as mk
from memkern import backends, launcher
from memkern.engine.processes.communication import ranks
from memkern.families.amo import over_ranks
from memkern.families.amo.over_ranks import TARGETS
from memkern.machine import remote
from memkern.spec.case import Case

# Targets of each pattern.
KNOWN = {
    **dict.fromkeys(("rand", "scatter", "gather", "sg"), TARGETS),
    "ptrchase": ("random", "ring", "one"),
    **dict.fromkeys(("stride1", "striden", "central"), ("ring", "one")),
}


def case_of(device: str, pattern: str, targets: str, **options: Any) -> Case:
    """Return a small case."""
    shape: dict[str, Any] = {"iters": 24, "runs": 2}
    shape |= {"stride": 3} if pattern == "striden" else {}
    shape |= {"remote": 25} if targets == "share" else {}
    return mk.amo(pattern, device=device, targets=targets, **{**shape, **options})


def kinds_of(entry: Any) -> set[tuple[str, ...]]:
    """Return the kinds of an entry: operation and type, pattern and use of the old value."""
    kernel, _, dtype, _, _, form = entry
    primitive, _, returns = form.split("/")
    return {(primitive, dtype), (kernel, returns)}


def one_of_each_kind(entries: list[Any]) -> list[Any]:
    """Return entries that have all kinds of entries (see `kinds_of`)."""
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for entry in entries:
        if not kinds_of(entry) <= seen:
            seen |= kinds_of(entry)
            chosen.append(entry)
    return chosen


def some_entries(device: str, threads: int) -> dict[str, Any]:
    """Return the result of `every_entry` for one entry of each kind."""
    return every_entry(device, threads, one_of_each_kind)


def every_entry(
    device: str, threads: int, choose: Callable[[list[Any]], list[Any]] = list
) -> dict[str, Any]:
    """Return the entries whose check fails, with alternating targets, and the number of entries."""
    every = remote.extension(device, threads > 1).entries()
    entries = choose([entry for entry in every if entry[0].startswith("amo.")])
    failed = []
    for number, (kernel, _, dtype, _, _, form) in enumerate(entries):
        pattern, (primitive, _, returns) = kernel.partition(".")[2], form.split("/")
        alone = over_ranks.one_by_one(backends.of(device), pattern, primitive, returns)
        for flush_every in (1,) if alone else (1, 5):
            targets = KNOWN[pattern][(number + flush_every) % len(KNOWN[pattern])]
            case = case_of(
                device, pattern, targets, primitive=primitive, returns=returns, dtype=dtype,
                flush_every=flush_every, threads=threads,
            )  # fmt: skip
            native = case.prepare().native
            if not all(checked(case, native, runs).valid for runs in (1, 3)):
                failed.append((kernel, dtype, form, flush_every, targets))
    return {"entries": len(entries), "failed": failed}


def lost(native: Any, at: int, operand: int) -> Callable[[int], float]:
    """Return a `run` after which a word lacks one update."""

    def run(invocations: int) -> float:
        seconds = float(native.run(invocations))
        place = np.array([at])
        native.poke("VAL", place, native.peek("VAL", place).astype(float) - operand)
        return seconds

    return run


def faults(device: str) -> dict[str, Any]:
    """Return which faults the check of a pattern misses.

    Lost: an update of a word of the last rank. Cut: the last iteration of the last rank. Idle: no
    update is done.
    """
    missed = []
    forms = [
        (pattern, primitive, "uint64") for pattern in KNOWN for primitive in ("add", "cas-retry")
    ]
    forms += [("rand", p, "float64") for p in backends.of(device).atomics["f"]]
    for pattern, primitive, dtype in forms:
        # Some libraries have no exchange whose result is not used.
        how = {"primitive": primitive, "dtype": dtype, "returns": "used"}
        case = case_of(device, pattern, KNOWN[pattern][0], **how)
        native = case.prepare().native
        n = case.iterations
        wrong = {
            "idle": Changed(native, run=lambda k: 0.0),
            "cut": Changed(native, run=lambda k, of=native, n=n: of.run_range(0, n - 1)),
        }
        if pattern != "ptrchase":
            # On the last rank.
            last = case.integers["words"] - 1
            wrong["lost"] = Changed(native, run=lost(native, last, case.integers["operand"]))
        missed += [
            (pattern, primitive, dtype, name)
            for name, other in wrong.items()
            if checked(case, other).valid
        ]
        if not checked(case, native).valid:
            missed.append((pattern, primitive, dtype, "none"))
    return {"missed": missed}


def targets(device: str) -> dict[str, Any]:
    """Return, by pattern and targets, the ranks whose words of VAL change."""
    found = {}
    for pattern, known in KNOWN.items():
        for name in known if pattern != "ptrchase" else ():
            case = case_of(device, pattern, name)
            native = case.prepare().native
            native.fill(outputs=True)
            everywhere = np.arange(case.integers["words"])
            before = native.peek("VAL", everywhere)
            native.run_range(0, 20)
            (moved,) = np.nonzero(native.peek("VAL", everywhere) != before)
            ranks = np.unique(moved // case.columns["words"]).tolist()
            found[f"{pattern}/{name}"] = [ranks, case.columns["remote_share"]]
    return found


def refusals(device: str) -> dict[str, Any]:
    """Return the messages of refused cases."""
    wrong: dict[str, dict[str, Any]] = {
        "kernel": {"kernel": "stream.copy", "elements": 64},
        "plain": {"primitive": "plain"},
        "min": {"primitive": "min"},
        "float": {"dtype": "float64"},
        "float and": {"dtype": "float64", "primitive": "and"},
        "float swaps": {"dtype": "float32", "primitive": "cas"},
        "order": {"order": "seq_cst"},
        "contexts": {"contexts": "private"},
        "odd": {"dtype": "uint32", "iters": 3},
        "threads": {"threads": 2},
        "swaps": {"primitive": "cas"},
        "small swaps": {"primitive": "cas", "dtype": "uint32"},
        "memory": {"words": 2**40},
    }
    messages = {}
    for name, options in wrong.items():
        kernel = options.pop("kernel", "amo.rand")
        iters = {"iters": 8} if kernel == "amo.rand" else {}
        messages[name] = message_of(prepared, kernel, device=device, **{**iters, **options})
    return messages


def record(device: str) -> dict[str, Any]:
    """Return a record."""
    options = {"primitive": "add", "flush_every": 4, "iters": 500, "runs": 3, "budget_s": 0.05}
    case = case_of(device, "rand", "share", **options)
    return case.measure().record


class _CallCounter:
    """Counts the calls of memkern's functions, and raises an error in one of them.

    Communication functions are left out, because a rank that fails in them can't tell the others;
    generators as well, because Python ignores errors in generators that it frees.
    """

    def __init__(self, at: int) -> None:
        self.calls = 0
        self._at = at

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name, flags = frame.f_code.co_filename, frame.f_code.co_flags
        if event != "call" or flags & inspect.CO_GENERATOR:
            return
        if "/memkern/" in name and not name.endswith(_COMMUNICATION):
            self.calls += 1
            if self.calls == self._at:
                raise RuntimeError("at random")


_COMMUNICATION = ("processes/communication.py", "processes/transports.py")


def failing(device: str, at: int) -> dict[str, Any]:
    """Measure cases while the last rank raises an error at the call with this number.

    Each rank prints its error; if there is none, the number of calls is returned.
    """
    described = remote.description(device)
    counter = _CallCounter(at)
    # A rank that fails before the ranks communicate can't tell the others.
    ranks()
    cases = [case_of(device, pattern, KNOWN[pattern][0]) for pattern in ("rand", "gather")]
    sweep = mk.sweep
    if described.rank == described.ranks - 1:
        sys.setprofile(counter)
    try:
        sweep(cases)
    except Exception as error:
        os.write(1, f"rank {described.rank}: {error}\n".encode())
        raise SystemExit(1) from None
    finally:
        sys.setprofile(None)
    return {"calls": max(ranks().every(counter.calls))}


def leaving(device: str, started: int) -> NoReturn:
    """End the last rank before it communicates; if not `started`, before it starts the device."""
    last = launcher.number() == launcher.size() - 1
    if device == "mpi":
        remote.mpi("single")
    if started or not last:
        remote.description(device)
    if last:
        raise SystemExit(1)
    ranks()
    raise AssertionError


def endless(device: str) -> NoReturn:
    """Measure cases until something ends the process."""
    begun = False
    for pattern in itertools.cycle(KNOWN):
        mk.sweep([case_of(device, pattern, KNOWN[pattern][0], iters=2000)])
        if not begun and remote.description(device).rank == 0:
            print("begun", flush=True)
        begun = True
    raise AssertionError


def stopped(device: str) -> NoReturn:
    """Stop the last rank when all ranks call the library to allocate memory."""
    found = ranks()
    if found.number == found.size - 1:
        found.watch = lambda begins: os.kill(os.getpid(), signal.SIGSTOP)  # type: ignore[method-assign]
    case_of(device, "rand", "random").prepare()
    raise AssertionError


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    f.__name__: f
    for f in (
        *(some_entries, every_entry, faults, targets, refusals, record),
        *(failing, leaving, endless, stopped),
    )
}

if __name__ == "__main__":
    device, *parts = sys.argv[1:]
    result = {}
    for part in parts:
        name, _, number = part.partition("=")
        result[part] = PARTS[name](device, *map(int, filter(None, [number])))
    if remote.description(device).rank == 0:
        print(json.dumps(result, default=str))
