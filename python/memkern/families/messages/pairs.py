"""Pairs of an origin and a target that exchange messages; a rank is in at most one pair."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from memkern.checks import shown
from memkern.errors import InputError

Pair: TypeAlias = tuple[int, int]

NEIGHBOURS = ("node", "other")
"""Words for pairs: neighbours on the same node; each rank with its counterpart on another node."""

DISTANCES = ("same rank", "same node", "other node")
"""Relative location of a message's origin and target."""


def neighbours(word: str, nodes: Sequence[int]) -> list[Pair]:
    """Return the pairs denoted by one of `NEIGHBOURS`; there may be none.

    Parameters
    ----------
    word : str
    nodes : sequence of int
        The number of each rank's node.
    """
    by_node = [[r for r, node in enumerate(nodes) if node == n] for n in dict.fromkeys(nodes)]
    if word == "node":
        return [pair for ranks in by_node for pair in zip(ranks[::2], ranks[1::2], strict=False)]
    return [
        pair
        for near, far in zip(by_node[::2], by_node[1::2], strict=False)
        for pair in zip(near, far, strict=False)
    ]


def every(nodes: Sequence[int]) -> list[Pair]:
    """Return all pairs of different ranks."""
    return [(a, b) for a in range(len(nodes)) for b in range(a + 1, len(nodes))]


def written(pairs: Sequence[Pair]) -> str:
    """Return pairs as text, such as ``0-1,2-3``."""
    return ",".join(f"{origin}-{target}" for origin, target in pairs)


def parse(text: str, nodes: Sequence[int]) -> tuple[str, list[Pair]]:
    """Return the pairs of a case, and their name in its record.

    Parameters
    ----------
    text : str
        One of `NEIGHBOURS`, a list such as ``0-1,2-3``, or empty for the first of `NEIGHBOURS` that
        denotes any pairs.
    nodes : sequence of int
        The number of each rank's node.

    Raises
    ------
    InputError
        The text has another form, there are no such ranks, or a rank is in two pairs.
    """
    if not text or text in NEIGHBOURS:
        for word in (text,) if text else NEIGHBOURS:
            if found := neighbours(word, nodes):
                return word, found
        where = {"node": " on a node", "other": " on different nodes"}.get(text, "")
        raise InputError(
            f"messages need two ranks{where}, but there are {len(nodes)} ranks on "
            f"{len(set(nodes))} nodes: start more of them by mpirun or oshrun, or give pairs such "
            "as 0-0"
        )
    if not re.fullmatch(r"[0-9]{1,9}-[0-9]{1,9}(,[0-9]{1,9}-[0-9]{1,9})*", text):
        raise InputError(
            f"pairs must be {' or '.join(NEIGHBOURS)} or a list such as 0-1,2-3, not {shown(text)}"
        )
    pairs = [(int(a), int(b)) for a, _, b in (one.partition("-") for one in text.split(","))]
    seen: set[int] = set()
    for pair in pairs:
        for rank in dict.fromkeys(pair):
            if rank >= len(nodes):
                raise InputError(f"pairs name rank {rank}, but there are {len(nodes)} ranks")
            if rank in seen:
                raise InputError(f"rank {rank} is in two pairs: a rank has one peer")
            seen.add(rank)
    return written(pairs), pairs


def distance(pairs: Sequence[Pair], nodes: Sequence[int]) -> str:
    """Return the common distance of the pairs, one of `DISTANCES`.

    Raises
    ------
    InputError
        The distances of the pairs differ, so that their times would be mixed.
    """
    found = {
        DISTANCES[0] if a == b else DISTANCES[1 if nodes[a] == nodes[b] else 2] for a, b in pairs
    }
    if len(found) > 1:
        raise InputError(
            f"the pairs {written(pairs)} are on {' and '.join(sorted(found))}: measure them "
            "separately"
        )
    return found.pop()
