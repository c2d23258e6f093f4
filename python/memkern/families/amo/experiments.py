"""Experiments on atomic operations (see `memkern.spec.experiments`)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from memkern.families.amo.checks import pattern_of
from memkern.machine.caches import MEMORY
from memkern.shared.experiments import CONTENTION, ONE_THREAD, ORDER, usual
from memkern.spec.case import Case
from memkern.spec.experiments import LIMIT, Experiment, Setting
from memkern.spec.registry import rebuilt

# Words at this distance share neither a line nor a pair of lines that is fetched together.
_APART_B = 128
# Patterns whose indices refer to any words of VAL.
_DRAWN = ("rand", "sg", "scatter", "gather")
_LINES = "lines that travel"


def _built(case: Case, **changes: Any) -> Case:
    """Return the case of the same request but for the changes."""
    sizes = {"iters": case.integers["iters"], **dict.fromkeys(("words", "memsize", "size_B"))}
    if pattern_of(case) in _DRAWN:
        sizes["words"] = case.integers["words"]
    return rebuilt(case, **{**sizes, **changes})


def _resize(case: Case, size_B: float) -> Case | None:
    """Return the case with fewer words, and with fewer iterations if they need as many words."""
    pattern, n, words = pattern_of(case), case.integers, int(size_B / case.value_B)
    # Words of VAL and IDX that an iteration needs.
    each = {"ptrchase": 1, "rand": 2, "sg": 2}.get(pattern, n["stride"] + bool(case.indices))
    iters = max(1, min(n["iters"], words // each // n["workers"]))
    own = {"words": min(n["words"], words - iters * n["workers"])} if pattern in _DRAWN else {}
    return _built(case, iters=iters, **own)


def _apart(case: Case, setting: Setting) -> dict[str, int]:
    """Return the inputs with which few words are in separate lines; none if they are many."""
    times = _APART_B // max(case.columns["padding_B"], case.value_B)
    words = case.integers["words"] * times
    # Caches may be unknown.
    least_B = min((share.size_B for share in setting.caches.values()), default=0)
    if times < 2 or words * case.value_B > least_B:
        return {}
    return {"padding": _APART_B} | ({"words": words} if pattern_of(case) in _DRAWN else {})


def _contended(case: Case, setting: Setting) -> bool:
    """Return whether lines that several threads update are in caches."""
    shared = case.integers["shared"] or (case.indices and case.columns["sharing"] != "private")
    several = setting.threads > 1 and setting.level != MEMORY
    return several and bool(shared or _apart(case, setting))


def _padded(case: Case, setting: Setting) -> Case | None:
    changes = _apart(case, setting) if _contended(case, setting) else {}
    return _built(case, **changes) if changes and case.integers["words"] > 1 else None


def _private(case: Case, setting: Setting, apart: bool = False) -> Case | None:
    """Return the case with private words, which are in separate lines if they are few."""
    changes = _apart(case, setting)
    if not _contended(case, setting) or apart != bool(changes):
        return None
    return _built(case, **changes, sharing="private", hot=None)


def _plain(case: Case, setting: Setting) -> Case | None:
    """Return loads and stores, which of contended lines would hide more than the operation."""
    plain = "plain/relaxed/" + case.input_columns["returns"]
    return None if _contended(case, setting) else case.with_(template_variant=plain)


def _one_thread(case: Case, setting: Setting) -> Case | None:
    """Return the case with the iterations of all threads by one, and the same indices."""
    same = {"indices": case.indices["IDX"]} if case.indices else {}
    return None if setting.threads == 1 else _built(case, threads=1, iters=case.iterations, **same)


def _ascending(case: Case, setting: Setting) -> Case | None:
    """Return each thread's indices in ascending order."""
    if pattern_of(case) not in _DRAWN:
        return None
    own, last = np.split(case.indices["IDX"], [case.iterations])
    ordered = np.sort(own.reshape(case.integers["workers"], -1)).ravel()
    return dataclasses.replace(case, indices={"IDX": np.concatenate([ordered, last])}, request=None)


EXPERIMENTS = usual(
    _resize,
    Experiment(
        "words 128 bytes apart",
        _padded,
        "false sharing",
        within=CONTENTION,
        option="--padding 128",
    ),
    Experiment("private words", _private, _LINES, within=CONTENTION, option="--sharing private"),
    Experiment(
        "private words 128 bytes apart",
        lambda case, setting: _private(case, setting, apart=True),
        _LINES,
        within=CONTENTION,
        option="--sharing private --padding 128",
    ),
    dataclasses.replace(ONE_THREAD, change=_one_thread),
    Experiment("loads and stores that are not atomic", _plain, "the locked operation"),
    Experiment(
        "dependent loads and stores",
        lambda case, setting: _plain(case, setting) if case.spec.counts.accesses else None,
        "latency",
        LIMIT,
    ),
    Experiment("indices in ascending order", _ascending, ORDER),
    but=[ONE_THREAD],
)
