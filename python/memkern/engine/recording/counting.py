"""Counters of events during the samples of a case, compared with the traffic of models."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.machine.events import BOUNDARIES, TLB_MISSES, WAYS, Code, Event
from memkern.spec.case import Case
from memkern.spec.kernel import Transfer

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counting:
    """The events that are counted during the samples of a case, the same on all ranks.

    Attributes
    ----------
    events : tuple of Event
    note : str
        The events of ``auto`` that can't be counted here, and why.
    counts_units : bool
        Whether this rank reads the counters of whole units, such as memory controllers: true for
        the first rank of each host.
    """

    events: tuple[Event, ...] = ()
    note: str = ""
    counts_units: bool = True

    def _own(self, event: Event) -> list[Code]:
        return [code for code in event.codes if self.counts_units or code.unit < 0]

    @property
    def codes(self) -> list[Code]:
        """The counters of all events that this rank has."""
        return [code for event in self.events for code in self._own(event)]

    def by_event(self, counts: Counts) -> list[Counts]:
        """Return the counts of each event, shape (samples, counters, 3), from all counts.

        NaN where a counter could not be read. An event that another rank counts has no counters.
        """
        known = np.where(counts[:, :, 1:2] > 0, counts, np.nan)
        ends = np.cumsum([len(self._own(event)) for event in self.events])
        return np.split(known, ends[:-1], axis=1) if self.events else []


def agrees(ratio: float) -> bool:
    """Return whether a count with this ratio to the true one is accurate to 10 %."""
    return 0.9 <= ratio <= 1.1


def columns(
    case: Case,
    counting: Counting,
    counts: Sequence[Sequence[Sequence[Counts]]],
    invocations: int,
    moved: Mapping[str, Transfer],
    level: str,
    checked: Mapping[str, float],
    cases: int = 1,
) -> dict[str, Any]:
    """Return the columns of a record on counted events.

    Parameters
    ----------
    case : Case
        As it ran.
    counting : Counting
    counts : nested sequences of ndarray of float64, shape (samples, counters, 3)
        By placement, rank and event, value and nanoseconds enabled and running of each counter,
        over all workers of the rank (see `Counting.by_event`).
    invocations : int
        Of each sample.
    moved : mapping of str to Transfer
        Data that an invocation moves across the boundary in front of each level, where known.
    level : str
        The smallest level that holds the case: ``L1``, ..., ``memory``.
    checked : mapping of str to float
        By event, its count divided by the true one (see `memkern.host.Host.counters`).
    cases : int
        Number of ranks with their own case.
    """
    if not counting.events:
        return {"counters_note": counting.note} if counting.note else {}
    each = _of_ranks(counts)
    own = _modelled(case, case.bytes_model_B, moved, level)
    modelled = {name: cases * lines for name, lines in own.items()}
    notes = [counting.note] if counting.note else []
    rows = []
    for number, event in enumerate(counting.events):
        of_event = np.concatenate([of_rank[number] for of_rank in each], axis=1)
        row = _row(event, of_event, invocations)
        if math.isnan(row["count"]):
            why = "its counter never ran" if row["running"] == 0 else "its counter can't be read"
            notes.append(f"{event.name} has no count: {why}")
        if event.name in modelled:
            row["model"] = modelled[event.name]
        if (ratio := checked.get(event.name)) is not None:
            row["checked"] = ratio
            if not agrees(ratio):
                notes.append(
                    f"{event.name}: {ratio:.3g} times the true count in "
                    "memkern machine counters --check"
                )
        rows.append(row)
    return {
        **_levels(rows, modelled, case.line_B),
        "counter_rows": json.dumps([_plain(row) for row in rows]),
        "counters_note": "; ".join(notes),
    }


def _of_ranks(counts: Sequence[Sequence[Sequence[Counts]]]) -> list[list[Counts]]:
    """Return counts of all placements by rank and event (see `columns`)."""
    return [
        [np.concatenate(of_event) for of_event in zip(*placements, strict=True)]
        for placements in zip(*counts, strict=True)
    ]


def by_rank(
    counting: Counting, counts: Sequence[Sequence[Sequence[Counts]]], invocations: int
) -> list[dict[str, float | None]]:
    """Return the count of each event in an invocation, by rank, None if it is unknown.

    Counts of whole units come from the rank that reads their counters. For the parameters see
    `columns`.
    """
    if not counting.events:
        return []
    return [
        {
            event.name: _plain(_row(event, own, invocations))["count"]
            for event, own in zip(counting.events, of_rank, strict=True)
            if own.shape[1]
        }
        for of_rank in _of_ranks(counts)
    ]


def _row(event: Event, counts: Counts, invocations: int) -> dict[str, Any]:
    """Return name, count per invocation and the share of the time in which the counters ran.

    Multiplexed counters are extrapolated to the whole time, each by its own share; the row has the
    smallest share. `counts` has the shape (samples, counters, 3).
    """
    value, enabled, running = np.nansum(counts, axis=0).T
    samples = np.count_nonzero(~np.isnan(counts[:, :, 1]), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = running / enabled
        each = np.where(shares > 0, value / shares / (samples * invocations), np.nan)
    row = {"event": event.name, "count": float(each.sum()), "running": float(shares.min())}
    if event.unit:
        row |= {"scale": event.scale, "unit": event.unit}
    return row


def _modelled(
    case: Case, model_B: float, moved: Mapping[str, Transfer], level: str
) -> dict[str, float]:
    """Return the cache lines that an invocation moves by the model, by quantity of the table.

    For a boundary with unknown traffic, the traffic of memory is used, or else all bytes of the
    model, divided into loads and stores as in the kernel's definition, with write-allocates as
    loads. Boundaries beyond the level that holds the case have no traffic.
    """
    traffic = case.traffic
    every_B = traffic.view(index=True, write_allocate=True)
    stored = traffic.write / every_B if every_B else math.nan
    whole = moved.get("memory", Transfer((1 - stored) * model_B, stored * model_B))
    # Names are in the order of the levels.
    transfers = {
        name: Transfer(0.0, 0.0) if level < name else moved.get(name, whole) for name in BOUNDARIES
    }
    return {
        f"{name}_{way}": moved_B / case.line_B
        for name, transfer in transfers.items()
        for way, moved_B in zip(WAYS, transfer, strict=True)
    }


def _levels(
    rows: Sequence[Mapping[str, Any]], modelled: Mapping[str, float], line_B: int
) -> dict[str, float]:
    """Return the columns on bytes of each level, from the rows of the record."""
    by_name = {row["event"]: row["count"] for row in rows}
    found: dict[str, float] = {}
    for name in BOUNDARIES:
        present = {way: by_name[f"{name}_{way}"] for way in WAYS if f"{name}_{way}" in by_name}
        found |= {f"counted_{name}_{way}_B": line_B * lines for way, lines in present.items()}
        model = sum(modelled[f"{name}_{way}"] for way in present)
        if model > 0:
            found[f"counted_{name}_ratio"] = sum(present.values()) / model
    if TLB_MISSES in by_name:
        found["counted_tlb_misses"] = by_name[TLB_MISSES]
    return found


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with null for unknown numbers, since JSON has no NaN."""
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
