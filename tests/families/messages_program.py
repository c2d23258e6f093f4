"""The ranks' program of test_messages.py: python messages_program.py DEVICE PAIRS;... PART....

The first rank prints a JSON object with the results of the parts for each choice of pairs.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from checking import Changed, checked, everywhere, message_of, prepared

import memkern as mk
from memkern.engine.processes.communication import ranks
from memkern.families.messages.kernels import OPERATIONS, most_window
from memkern.machine import remote
from memkern.spec.case import Case


def operations(device: str, pairs: str) -> list[str]:
    """Return the operations that a library supports between these ranks."""
    sends = device == "mpi" and not pairs.startswith("0-0")
    return [what for what in OPERATIONS if what != "send" or sends]


def windows(device: str, what: str, *wanted: int) -> list[int]:
    """Return the wanted windows, limited to the largest that a library has for an operation."""
    most = most_window(f"messages.{what}", device)
    return list(dict.fromkeys(min(window, most) for window in wanted))


def case_of(device: str, what: str, pairs: str, window: int, size_B: int = 24) -> Case:
    """Return a small case."""
    size = 8 if what == "fetch_add" else size_B
    return mk.messages(what, device=device, pairs=pairs, window=window, size_B=size, runs=2)


def validates(device: str, pairs: str) -> dict[str, Any]:
    """Return the cases whose check fails for any number of invocations.

    More than two ranks, which have to share processors, use only one window.
    """
    failed = []
    for what in operations(device, pairs):
        for window in windows(device, what, *((1, 2, 5) if ranks().size <= 2 else (5,))):
            # Libraries don't send messages of the largest size at once.
            for size_B in (8, 24, 300_000):
                case = case_of(device, what, pairs, window, size_B)
                native = case.prepare().native
                if not all(everywhere(checked(case, native, runs).valid) for runs in (1, 3)):
                    failed.append((what, window, size_B))
    return {"failed": failed}


def applied(device: str, pairs: str) -> dict[str, Any]:
    """Return the operations whose invocation differs from the reference."""
    failed = []
    for what in operations(device, pairs):
        case = case_of(device, what, pairs, *windows(device, what, 3))
        rng = np.random.default_rng(0)
        native = case.prepare().native
        before = {
            name: rng.integers(0, 2**40, array["columns"] * array["rows"], dtype=np.uint64).reshape(
                (array["rows"], -1) if array["rows"] > 1 else -1
            )
            for name, array in native.arrays().items()
        }
        before["sent"][:] = 4
        after = case.apply(**before)
        wanted = before | case.spec.checks.reference(case, before)
        if not all((after[name] == wanted[name]).all() for name in after):
            failed.append(what)
    return {"failed": failed}


def faults(device: str, pairs: str) -> dict[str, Any]:
    """Return which faults the check of an operation misses.

    Lost: the last word of the last message keeps its earlier value. Cut: the last message is not
    sent. Idle: nothing is sent. Uncounted: messages are sent but not counted.
    """
    missed = []
    for what in operations(device, pairs):
        (window,) = windows(device, what, 3)
        case = case_of(device, what, pairs, window)
        native = case.prepare().native
        n, words = case.iterations, case.integers["size_B"] // 8
        at_origin = what == "get"
        origin, target = case.indices["pairs"][-2:]
        arrives = int(origin if at_origin else target)
        last = np.array([(arrives + 1) * window * words - 1])

        def lost(k: int, of: Any = native, at: Any = last) -> float:
            before = of.peek("target", at)
            seconds = float(of.run(k))
            of.poke("target", at, before.astype(float))
            return seconds

        def uncounted(k: int, of: Any = native) -> float:
            counts = of.copy_out("sent")
            seconds = float(of.run(k))
            of.copy_in("sent", counts)
            return seconds

        wrong = {
            "idle": Changed(native, run=lambda k: 0.0),
            "lost": Changed(native, run=lost),
            "uncounted": Changed(native, run=uncounted),
        }
        if n > 1:
            wrong["cut"] = Changed(native, run=lambda k, of=native, n=n: of.run_range(0, n - 1))
        for name, other in wrong.items():
            if everywhere(checked(case, other).valid):
                missed.append((what, name))
        if not everywhere(checked(case, native).valid):
            missed.append((what, "none"))
    return {"missed": missed}


def refusals(device: str, pairs: str) -> dict[str, Any]:
    """Return the messages of refused cases."""
    wrong: dict[str, dict[str, Any]] = {
        "send": {"what": "send"},
        "self": {"what": "send", "pairs": "0-0"},
        "rank": {"pairs": "0-7"},
        "other": {"pairs": "other"},
        "threads": {"threads": 2, "pairs": pairs},
        "memory": {"size_B": 2**30, "window": 2**16, "pairs": pairs},
    }
    messages = {}
    for name, options in wrong.items():
        kernel = f"messages.{options.pop('what', 'put')}"
        messages[name] = message_of(prepared, kernel, device=device, **options)
    return messages


def records(device: str, pairs: str) -> dict[str, Any]:
    """Return records of each operation, with windows of 1 and 8."""
    found = {}
    for what in operations(device, pairs):
        for window in windows(device, what, 1, 8):
            case = case_of(device, what, pairs, window, 4096).with_(runs=3, budget_s=0.05)
            found[f"{what} {window}"] = case.measure().record
    return found


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    f.__name__: f for f in (validates, applied, faults, refusals, records)
}

if __name__ == "__main__":
    device, choices, *parts = sys.argv[1:]
    result = {
        pairs: {part: PARTS[part](device, pairs) for part in parts} for pairs in choices.split(";")
    }
    if remote.description(device).rank == 0:
        print(json.dumps(result, default=str))
