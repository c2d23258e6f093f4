"""Messages between ranks: the latency, rate and bandwidth that limit remote kernels.

An invocation is one window: each origin starts this number of messages, one after the other, and
waits until all of them have arrived.  With a window of 1 the time is the latency.

- ``put`` stores a message to the target's memory, ``get`` loads one from there, and ``fetch_add``
  adds 1 to a word there and returns the old value.  These operations are one-sided: the target
  takes no part.
- ``send`` is two-sided, by MPI: the target receives a window of messages and then sends as many
  back, so that the latency is half the time of an invocation.

Each origin has a separate target.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from memkern import small
from memkern.errors import InputError
from memkern.families.messages import pairs as ranks
from memkern.inputs.sizes import bytes_of_words, parse_sizes
from memkern.machine.declarations import declared
from memkern.machine.remote import description
from memkern.shared.checking import Values
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits, Model
from memkern.spec.inputs import Given, row
from memkern.spec.kernel import Check, IndexArray, Native, Traffic, Validation, fill_values
from memkern.spec.options import INTEGERS, Declared, Knobs
from memkern.spec.registry import case, register, shows_options_of

OSU = (
    "Liu et al., Performance Comparison of MPI Implementations over InfiniBand, Myrinet and "
    "Quadrics, SC 2003: the OSU micro-benchmarks"
)
OPERATIONS = {
    "put": "target[:] = source[:] of another rank",
    "get": "target[:] of another rank = source[:]",
    "fetch_add": "old = target[i] of another rank, target[i] += 1",
    "send": "send source[:], receive it in target[:], and back",
}
WORD_B = 8
MOST_B = 2**30
_MOST_WINDOW = 2**16
# Words that a check compares at once.
_AT_ONCE = 2**18


def most_window(kernel: str, device: str) -> int:
    """Return the maximum number of messages in flight."""
    # A fetch-and-add of OpenSHMEM 1.4 returns when it is complete.
    single = kernel == "messages.fetch_add" and Knobs(device=device).backend.fetches_singly
    return 1 if single else _MOST_WINDOW


def _inputs(most_B: int) -> tuple[Declared, ...]:
    return (
        row(
            "size_B",
            WORD_B,
            "bytes of a message, log-spaced, or a list (8 to 2 MiB); a fetch_add has 8",
            read=functools.partial(bytes_of_words, most=most_B),
            type="float | str",
            flag="sizes",
            parse=functools.partial(parse_sizes, multiple=WORD_B),
            metavar="LOW:HIGH:COUNT",
            unit="B",
            goes_to=INTEGERS,
            meaning="Size of a message, such as ``64KiB``: a multiple of 8 bytes up to 1 GiB, for "
            "fetch_add 8.",
        ),
        row(
            "window",
            1,
            "messages that are started before the first one is complete (1, and 64 up to 2 MiB of "
            "them)",
            least=1,
            most=_MOST_WINDOW,
            several=True,
            short="-w",
            metavar="N,...",
            goes_to=INTEGERS,
            meaning="Messages that an origin starts before it waits for their completion; 1 for "
            "fetch_add on ``shmem``, which waits for each message.",
        ),
        row(
            "pairs",
            "",
            "node: neighbours on a node; other: each rank and its counterpart on another node; "
            "each: every pair separately; or origins and targets: 0-1,2-3 (node and other)",
            metavar="PAIRS",
            meaning="Ranks that exchange messages: ``node``, neighbours on the same node; "
            "``other``, each rank with its counterpart on another node; or origins and targets, "
            "such as ``0-1,2-3``. By default ``node`` if there are such pairs, else ``other``.",
        ),
    )


def _between_ranks(given: Given) -> Case:
    kernel, device = given.spec.name, given.knobs.device
    if not given.knobs.backend.over_ranks:
        raise InputError(
            f"{kernel} is between ranks: give device mpi or shmem (--device), and start memkern by "
            "mpirun or oshrun"
        )
    if kernel == "messages.send" and not given.knobs.backend.sends:
        raise InputError(f"{given.knobs.backend.library} has no send and receive")
    if given.window > most_window(kernel, device):
        raise InputError(
            f"{given.knobs.backend.library} completes a fetch_add before the next one: leave out "
            f"window {given.window}"
        )
    nodes = description(device).nodes
    label, chosen = ranks.parse(given.pairs, nodes)
    if kernel == "messages.send" and any(a == b for a, b in chosen):
        raise InputError("a rank does not send messages to itself: use put or get")
    sizes = {"size_B": small.cut(given.size_B, 2**12), "window": small.cut(given.window, 4)}
    return given.case(
        integers={"workers": len(nodes), **sizes},
        indices={"pairs": np.array(chosen, dtype=np.int64).ravel()},
        columns={
            **sizes,
            "pairs": label,
            "origins": len(chosen),
            "distance": ranks.distance(chosen, nodes),
        },
    ).with_(threads=1)


def _idle(case: Case) -> dict[str, str]:
    several = {"threads": "one thread of each rank exchanges messages"}
    return {
        "flush_every": "messages use window instead",
        **(several if case.knobs.threads > 1 else {}),
    }


# ------------------------------------------------------------------------------------ validation


def _last(modulus: int, count: int) -> IndexArray:
    """Return the last of `count` messages for each remainder of its number, -1 if there is none."""
    return np.maximum(count - 1 - (count - 1 - np.arange(modulus)) % modulus, -1)


def _roles(case: Case) -> dict[int, tuple[int, bool]]:
    """Return each rank's peer and whether it is the origin, as a rank paired with itself is."""
    both = case.indices["pairs"].reshape(-1, 2).tolist()
    return {b: (a, False) for a, b in both} | {a: (b, True) for a, b in both}


def _sends(case: Case, rank: int) -> bool:
    """Return whether a rank starts messages."""
    peer = _roles(case).get(rank)
    return peer is not None and (peer[1] or case.spec.name == "messages.send")


def _arrives(case: Case, rank: int) -> int | None:
    """Return the rank whose messages arrive at a rank, None if there is none."""
    peer, origin = _roles(case).get(rank, (None, False))
    receives = {"messages.get": origin, "messages.send": True}
    return peer if receives.get(case.spec.name, not origin or peer == rank) else None


def _check(case: Case, native: Native) -> Validation:
    """Compare every word of this rank's part with the value that should have arrived there."""
    rank, window = description(case.knobs.device).rank, case.integers["window"]
    words = case.integers["size_B"] // WORD_B
    native.fill(outputs=True)
    native.copy_in("sent", np.zeros_like(native.copy_out("sent")))
    messages = (yield) * window
    arrays = native.arrays()

    def positions(name: str, of: int, numbers: IndexArray) -> IndexArray:
        slots = window if name == "target" else window + 1
        return (((of * slots + numbers) * words)[:, None] + np.arange(words)).ravel()

    def filled(name: str, of: int, numbers: IndexArray) -> Values:
        return fill_values(positions(name, of, numbers), arrays[name])

    def arrived(positions: IndexArray) -> Values:
        last = _last(window, messages)[positions]
        if peer is None:
            return filled("target", rank, positions)
        if not adds:
            return filled("source", peer, last % (window + 1))
        return filled("target", rank, positions) + last // window + 1

    def returned(slots: IndexArray) -> Values:
        last = _last(window + 1, count)[slots]
        of = _roles(case).get(rank, (0, False))[0]
        old = filled("target", of, last % window) + last // window
        return np.where(last >= 0, old, filled("old", rank, slots))

    peer, adds = _arrives(case, rank), case.spec.name == "messages.fetch_add"
    count = messages if _sends(case, rank) else 0
    wrong = int(native.peek("sent", np.array([rank]))[0]) != count
    expected = {"target": (window, arrived)} | ({"old": (window + 1, returned)} if adds else {})
    for name, (slots, wanted) in expected.items():
        for first in range(0, slots, step := max(1, _AT_ONCE // words)):
            some = np.arange(first, min(first + step, slots))
            got = native.peek(name, positions(name, rank, some))
            wrong = wrong or bool((got != wanted(some)).any())
    return Check(not wrong, np.inf if wrong else 0.0, "whole")


def _reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    n, window = case.integers, case.integers["window"]
    adds = case.spec.name == "messages.fetch_add"
    sent = np.array(arrays["sent"], copy=True)
    by_rank, flat = sent.reshape(-1), n["size_B"] // WORD_B
    slots = np.array(arrays["old" if adds else "source"], copy=True)
    target = np.array(arrays["target"], copy=True)
    from_rank = slots.reshape(n["workers"], window + 1, flat)
    to_rank = target.reshape(n["workers"], window, flat)
    for rank in range(n["workers"]):
        peer = _arrives(case, rank)
        if peer is None:
            continue
        # Messages are counted by the rank that starts them, for a get the receiver.
        of = rank if case.spec.name == "messages.get" else peer
        for number in range(int(by_rank[of]), int(by_rank[of]) + window):
            slot, position = number % (window + 1), number % window
            if adds:
                from_rank[of, slot] = to_rank[rank, position]
                to_rank[rank, position] += np.uint64(1)
            else:
                to_rank[rank, position] = from_rank[peer, slot]
    for rank in range(n["workers"]):
        by_rank[rank] += np.uint64(window * _sends(case, rank))
    return {"target": target, "sent": sent, **({"old": slots} if adds else {})}


def _spec(what: str, summary: str) -> None:
    kernel = f"messages.{what}"
    declaration = declared(kernel)
    each = 2.0 if what == "send" else 1.0

    register(
        KernelSpec(
            name=kernel,
            summary=summary,
            source=OSU,
            arrays=declaration.arrays,
            traffic=lambda case: Traffic(read=each * case.integers["size_B"]),
            iterations=lambda case: case.columns["origins"] * case.integers["window"],
            checks=Checks(check=_check, reference=_reference, idempotent=False, repeatable=True),
            model=Model(
                # It is read at one end and written at the other.
                bytes_B=lambda case: 2.0 * case.bytes_B,
            ),
            inputs=_inputs(WORD_B if what == "fetch_add" else MOST_B),
            build=_between_ranks,
            limits=Limits(dtypes=("uint64",), idle=_idle),
            counts=Counts(
                amos=declaration.amos,
                messages=each,
                accesses=lambda case: each if case.integers["window"] == 1 else np.nan,
            ),
        )
    )


for _what, _summary in OPERATIONS.items():
    _spec(_what, _summary)


@shows_options_of("messages.put")
def messages(what: str, **options: Any) -> Case:
    """Case of messages between ranks.

    Parameters
    ----------
    what : str
        One of `OPERATIONS`.
    """
    return case(f"messages.{what}", **options)
