"""Entries of the extension of which tests run one of each kind, and cases of them."""

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from checking import checked, corrupted
from samples import own
from shapes import over_length

from memkern.spec.case import Case
from memkern.spec.kernel import Check
from memkern.spec.registry import registry

THREADS = (1, 2)
# Kernels over arrays of one length, without and with indices.
STREAMING = [name for name, s in registry().items() if over_length(s) and not s.indices]
INDEXED = [name for name, s in registry().items() if over_length(s) and s.indices]
MAPS = [name for name in STREAMING if name != "stream.rotation" and "central" not in name]

Entry = tuple[str, str, str, str, str, int, str]


def options_of(entry: Entry) -> dict[str, Any]:
    """Return the options that select an entry of a kernel."""
    names = ("variant", "isa", "dtype", "index_dtype", "unroll", "template_variant")
    return dict(zip(names, entry[1:], strict=True))


def one_of_each(entries: Iterable[Any], key: Callable[[Any], Any]) -> set[Any]:
    """Return one entry, which a hash chooses, of each group of entries with the same key."""
    groups: dict[Any, list[Any]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return {group[zlib.crc32(repr(key).encode()) % len(group)] for key, group in groups.items()}


def one_of_all(entries: Iterable[Any], keys: Iterable[Callable[[Any], Any]]) -> set[Any]:
    """Return entries with at least one of each group with the same key, for all keys."""
    entries = list(entries)
    chosen: set[Any] = set()
    for key in keys:
        covered = set(map(key, chosen))
        chosen |= one_of_each((entry for entry in entries if key(entry) not in covered), key)
    return chosen


def entry_parameters(entries: Iterable[Any], chosen: set[Any]) -> list[Any]:
    """Return a parameter of tests for every entry, marked `release` unless it was chosen."""
    return [
        pytest.param(
            entry,
            id="-".join(filter(None, map(str, entry))),
            marks=() if entry in chosen else pytest.mark.release,
        )
        for entry in entries
    ]


def family_of(entry: Any) -> str:
    """Return the family of an entry's kernel."""
    return str(entry[0]).partition(".")[0]


def with_threads(case: Case, threads: int) -> Case:
    """Return the case with another number of threads."""
    again = own(case.spec.name, "with_threads", None)
    return again(case, threads) if again else case.with_(threads=threads)


def for_entry(case: Case, options: dict[str, Any]) -> Case:
    """Return the case with the options of an entry."""
    again = own(case.spec.name, "for_entry", None)
    return again(case, options) if again else case.with_(**options)


def inputs(case: Case, threads: int) -> dict[str, np.ndarray]:
    """Return random integers, which are exact in every type, for every array of the case."""
    rng = np.random.default_rng(7)
    # The arrays do not depend on the variant, and comparing variants takes time.
    some = case if case.knobs.variant != "best" else case.with_(variant="scalar")
    native = some.with_(threads=threads).prepare().native
    return {
        name: rng.integers(
            0, 2**20, a["columns"] if a["rows"] == 1 else (a["rows"], a["columns"])
        ).astype(a["dtype"])
        for name, a in native.arrays().items()
    }


def check_corrupted(case: Case, native: Any, array: str, position: int, value: float) -> Check:
    """Check a prepared case with an element overwritten after every run."""
    methods = ("run", "run_range")
    return checked(case, corrupted(native, array, position, lambda _: value, methods))
