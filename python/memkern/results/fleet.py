"""Nodes of a fleet beside each other and beside their own history: which are off, and where.

Each node has an effect over all of its cases, and one over those of each part of the machine
(`memkern.results.effects`). A node is named if the mean of its e-values, against the other nodes
and against its own earlier looks, is a discovery among those of all nodes of its processor; then
the parts that show it are slower or faster. ``bench/fleet_false_alarms.py`` simulates how often
that is false, and how often a slow node is named.
"""

from __future__ import annotations

import math
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.backends import ACCELERATORS
from memkern.checks import counted
from memkern.errors import InputError
from memkern.formats import ResultSet, concat, load
from memkern.machine.caches import MEMORY, data_caches, ends, level_of
from memkern.machine.environment import comparable, machine_label
from memkern.results.comparison import DISTURBED, grouped, key_columns, number, usable
from memkern.results.effects import (
    LEAST_POWER,
    SLOPES,
    WANTED,
    Effects,
    adjusted,
    effects,
    middle,
    named,
    of_rounds,
)
from memkern.results.hosts import memory_notes
from memkern.results.merging import sources
from memkern.results.verdicts import ALPHA, FASTER, SAME, SLOWER, UNDECIDED, gate

if TYPE_CHECKING:
    from pandas import DataFrame

Record = Mapping[str, Any]
_Floats = npt.NDArray[np.float64]

NODE = "node"
INSIDE, ALONE = "in the range", "nothing to compare with"
ALL = "all cases"
PEERS, HISTORY = "other nodes", "earlier looks"
_NUMBERS = (
    *("rounds", "others", "slowdown", "low", "high"),
    *("evidence", "spread", "half", "least_slowdown"),
)
# Measurements of a node that are further apart are two looks.
_LOOK_S = 1800.0
# Parts of the machine that kernels show, whatever their data; others show a cache or the memory.
_PARTS = {
    "latency.ping_pong": "exchange",
    "latency": "latency",
    "amo": "exchange",
    "messages": "exchange",
    "launch": "cores",
    "instructions": "cores",
}
# Coordinates of the state of a host in which a node differs from most if it has a tenth less.
_STATE, _LESS = ("core_share", "clock_GHz"), 0.9


def node_name() -> str:
    """Return the scheduler's name of this node, or that of the host."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def of_files(paths: Iterable[str | Path]) -> ResultSet:
    """Return the results of the nodes of a fleet, with the name of each node.

    Parameters
    ----------
    paths : iterable of path
        Files of results: of a node, whose name is that of the file, or of several, whose records
        have the column ``node``.

    Returns
    -------
    ResultSet
        All records, with the column ``node``.

    Raises
    ------
    InputError
        A file can't be read.
    """
    found = []
    for path in sources([Path(path) for path in paths]):
        results = load(path)
        records = [record | {NODE: _text(record, NODE) or path.stem} for record in results]
        found.append(ResultSet(records, results.samples, results.environments))
    return concat(found)


def fleet(
    results: ResultSet, baseline: ResultSet | None = None, *, slowdown: float = 0.0
) -> DataFrame:
    """Compare the nodes of a fleet with each other, and with their own history.

    Parameters
    ----------
    results : ResultSet
        Records with the column ``node`` (see `memkern.results.fleet.of_files`). Records of a case
        are rounds; those that began half an hour apart are another look at the node, of which the
        last one is judged. Nodes with different processors, or different numbers of their cores,
        are not compared.
    baseline : ResultSet, optional
        Earlier records, and records of other nodes, which are not judged.
    slowdown : float
        Relative increase of the time about which the column ``gate`` decides; 0 for any.

    Returns
    -------
    DataFrame
        A row for each processor, node, part and reference:

        - ``machine``, ``node``; ``part``: ``all cases``, and, if the cases show several,
          ``memory``, ``caches``, ``cores``, ``latency``, ``exchange`` or ``GPU``;
        - ``against``: ``other nodes`` or ``earlier looks``, and their number ``others``; ``cases``
          and ``rounds`` of the node;
        - ``slowdown``, the time over that of the others minus one, shrunk towards that of
          healthy nodes, and its interval from ``low`` to ``high`` (95 %);
        - ``evidence``, the logarithm to base 10 of the e-value; ``spread``, the relative standard
          deviation of healthy nodes; ``half`` and ``least_slowdown``, the slowdowns that are named
          with a probability of 0.5 and 0.9;
        - ``verdict``: ``slower`` or ``faster`` if the node is named and this row shows it, ``in
          the range``, or why there is none: ``nothing to compare with``, ``disturbed``,
          ``invalid`` or ``no time``;
        - ``gate``: ``slower`` if the interval of a named node lies wholly beyond `slowdown`,
          ``passed`` if it excludes `slowdown`, or without one if the node is not slower, else
          ``undecided``;
        - ``differs``: facts and settings in which the node differs from most nodes, and errors of
          its memory.

        ``attrs["remarks"]`` lists sentences on what would have been found.

    Raises
    ------
    InputError
        There is no record, a record has no node, or no node can be compared.
    """
    from pandas import DataFrame

    every = [*results, *(baseline or ())]
    if not len(results):
        raise InputError("there is no record of a node: give files of results")
    if not all(_text(record, NODE) for record in every):
        raise InputError("a record has no node: a baseline is a file of memkern compare fleet -o")
    environments = {**(baseline.environments if baseline else {}), **results.environments}
    names = _machines(every, environments)

    def machine_of(record: Record) -> str:
        return names[_text(record, "platform"), _text(record, "environment_id")]

    rows, remarks = [], []
    for machine in dict.fromkeys(map(machine_of, results)):
        before, now = (
            [record for record in some if machine_of(record) == machine]
            for some in (baseline or (), results)
        )
        looks = Looks.of_records(before, now, environments)
        own, found = _judged(looks, slowdown)
        remarks += [f"{machine}: {sentence}" for sentence in found]
        different = _differences(looks, environments)
        ids = {_text(record, "environment_id") for record in (*before, *now)}
        channels = [environments.get(name, {}).get("memory", {}).get("channels", 0) for name in ids]
        for row in own:
            different[row[NODE]] += _channels(row, max(channels))
        for row in own:
            words = dict.fromkeys(different[row[NODE]])
            rows.append({"machine": machine, **row, "differs": "; ".join(words)})
    frame = DataFrame(rows)
    if frame["verdict"].eq(ALONE).all():
        raise InputError(
            f"{rows[0][NODE]} has no other node of its processor with the same cases and no "
            "earlier look: give files of more nodes, or of earlier measurements"
        )
    frame.attrs["remarks"] = remarks
    return frame


@dataclass(frozen=True)
class Looks:
    """The looks at nodes with one processor, as arrays.

    Attributes
    ----------
    nodes : list of str
        The node of each look; looks at a node are in their order.
    judged : list of int
        The last look at each node that is judged.
    parts : list of str
        Of the cases.
    times, states : array of float, shape (looks, rounds, cases) and (..., coordinates)
        Logarithms; NaN where there is no value.
    records : list of list of dict
        Of each look.
    slopes : tuple of float
        Of the coordinates.
    """

    nodes: list[str]
    judged: list[int]
    parts: list[str]
    times: _Floats
    states: _Floats
    records: list[list[dict[str, Any]]] = field(default_factory=list)
    slopes: tuple[float, ...] = tuple(SLOPES.values())

    @classmethod
    def of_records(
        cls,
        earlier: Iterable[Record],
        records: Iterable[Record],
        environments: Mapping[str, dict[str, Any]],
    ) -> Looks:
        """Return the looks of earlier records, and of those that are judged."""
        nodes: list[str] = []
        of_look: list[list[dict[str, Any]]] = []
        for some in (earlier, records):
            judged = {}
            for (node,), of_node in grouped(map(dict, some), [NODE]).items():
                last_s = -math.inf
                for record in sorted(of_node, key=_began_s):
                    if (began_s := _began_s(record)) > last_s + _LOOK_S:
                        judged[node] = len(nodes)
                        nodes.append(node)
                        of_look.append([])
                    of_look[-1].append(record)
                    last_s = began_s
        keys = key_columns([record for some in of_look for record in some])
        found: dict[tuple[Any, ...], dict[int, list[dict[str, Any]]]] = {}
        for look, those in enumerate(of_look):
            for key, rounds in grouped(those, keys).items():
                found.setdefault(key, {})[look] = rounds
        # A case of one look has nothing beside it.
        found = {key: of_case for key, of_case in found.items() if len(of_case) > 1}
        counts = [len(rounds) for of_case in found.values() for rounds in of_case.values()]
        times = np.full((len(nodes), max(counts, default=1), len(found)), math.nan)
        states = np.full((*times.shape, len(SLOPES)), math.nan)
        parts = []
        for case, looks in enumerate(found.values()):
            parts.append(_part(next(iter(looks.values()))[0], environments))
            for look, rounds in looks.items():
                for k, record in enumerate(rounds):
                    if not usable([record], _least_s)[1]:
                        times[look, k, case] = math.log(record["time_min_s"])
                    state = [number(record, name) or math.nan for name in SLOPES]
                    states[look, k, case] = np.log(state)
        return cls(nodes, [*judged.values()], parts, times, states, of_look)

    @property
    def last(self) -> dict[str, int]:
        """The last look at each node."""
        return {node: k for k, node in enumerate(self.nodes)}

    def effects_of(self, part: str) -> _Floats:
        """Return the effects of looks in their rounds, over the cases of a part."""
        those = [part in (ALL, each) for each in self.parts]
        return of_rounds(adjusted(self.times[:, :, those], self.states[:, :, those], self.slopes))

    def others(self, against: str) -> npt.NDArray[np.bool_]:
        """Return with which looks each judged one is compared."""
        nodes, numbers = np.array(self.nodes), np.arange(len(self.nodes))
        mine = np.array(self.judged)[:, None]
        same = nodes == nodes[mine]
        if against == HISTORY:
            return np.asarray(same & (numbers < mine))
        return np.asarray(~same & np.isin(numbers, [*self.last.values()]))

    def why(self, look: int) -> str:
        """Return why a look has no value, or `ALONE` if it has one."""
        return usable(self.records[look], _least_s)[1] or ALONE


def _least_s(record: Record) -> float | None:
    return number(record, "time_min_s")


def _began_s(record: Record) -> float:
    """Return when a record began, 0 if that is unknown."""
    began = _text(record, "started")
    return datetime.fromisoformat(began).timestamp() if began else 0.0


def _part(record: Record, environments: Mapping[str, dict[str, Any]]) -> str:
    """Return the part of the machine that a case shows."""
    if _text(record, "backend") in ACCELERATORS:
        return "GPU"
    kernel = str(record["kernel"])
    if part := _PARTS.get(kernel, _PARTS.get(kernel.partition(".")[0])):
        return part
    caches = data_caches(environments.get(_text(record, "environment_id"), {}))
    held_B = ends(caches, int(number(record, "threads") or 1))
    level = level_of(number(record, "footprint_B") or math.inf, held_B)
    return "memory" if level == MEMORY else "caches"


class Compared(NamedTuple):
    """Looks beside each other: effects by part and reference, and which judged ones are named."""

    effects: dict[tuple[str, str], Effects]
    known: npt.NDArray[np.bool_]
    off: npt.NDArray[np.bool_]

    @classmethod
    def of_looks(cls, looks: Looks) -> Compared:
        """Compare looks in all cases, and in those of each part."""
        found: dict[tuple[str, str], Effects] = {}
        parts = dict.fromkeys(looks.parts)
        for part in (ALL, *(parts if len(parts) > 1 else ())):
            rounds = looks.effects_of(part)
            for against in (PEERS, HISTORY):
                others = looks.others(against)
                if others.any() or against == PEERS:
                    found[part, against] = effects(rounds, others, looks.judged)
        every = np.array([one.evidence for one in found.values()])
        number = (~np.isnan(every)).sum(0)
        # The mean of e-values is one.
        total = np.logaddexp.reduce(np.nan_to_num(every, nan=-math.inf))
        total -= np.log(np.maximum(number, 1))
        nodes = max(float((number > 0).sum()), 1.0)
        # A node that is slow in all cases shows it everywhere, one that is in a part only there.
        of_part = nodes * max(number.max(), 1)
        return cls(
            {
                (part, against): replace(one, tests=nodes if part == ALL else of_part)
                for (part, against), one in found.items()
            },
            number > 0,
            named(np.where(number, total, math.nan)),
        )


def _judged(looks: Looks, slowdown: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of a processor, and sentences on what would have been found."""
    compared = Compared.of_looks(looks)
    rows: list[dict[str, Any]] = []
    sentences = []
    for (part, against), one in compared.effects.items():
        cases = sum(part in (ALL, each) for each in looks.parts)
        what = {"part": part, "against": against, "cases": cases}
        if some := _rows(one, compared.off, slowdown):
            rows += [{NODE: looks.nodes[looks.judged[k]], **what, **row} for k, row in some]
            if part == ALL:
                sentences.append(_power(one, against))
    for k in np.flatnonzero(~compared.known):
        look = looks.judged[k]
        blank = dict.fromkeys(_NUMBERS, math.nan) | {"verdict": looks.why(look), "gate": UNDECIDED}
        what = {"part": ALL, "against": PEERS, "cases": 0}
        rows.append({NODE: looks.nodes[look], **what, **blank})
    return rows, sentences


def _rows(one: Effects, off: npt.NDArray[np.bool_], slowdown: float) -> list[tuple[int, Any]]:
    """Return the rows of judged looks with evidence, by their numbers."""
    middles, halves = one.shrunk
    numbers = {
        "rounds": one.rounds,
        "others": one.others,
        "slowdown": np.expm1(middles),
        "low": np.expm1(middles - halves),
        "high": np.expm1(middles + halves),
        "evidence": one.evidence / math.log(10),
        "spread": np.expm1(np.sqrt(one.variance)),
        "half": np.expm1(one.found(0.5)),
        "least_slowdown": np.expm1(one.found(LEAST_POWER)),
    }
    rows = []
    for k in np.flatnonzero(~np.isnan(one.evidence)):
        row: dict[str, Any] = {name: float(values[k]) for name, values in numbers.items()}
        shows = off[k] and one.evidence[k] >= -math.log(ALPHA)
        row["verdict"] = (SLOWER if middles[k] > 0 else FASTER) if shows else INSIDE
        decided = row["verdict"] if shows else SAME
        row["gate"] = gate(decided, middles[k], halves[k], slowdown)
        rows.append((int(k), row))
    return rows


def _power(one: Effects, against: str) -> str:
    """Return the sentence on what would have been found."""
    number, rounds = (int(np.nanmedian(x)) for x in (one.others, one.rounds))
    power, half = np.nanmedian(one.power(WANTED)), np.nanmedian(one.found(0.5))
    what = "node" if against == PEERS else "earlier look"
    text = (
        f"{counted(number + (against == PEERS), what)}, {counted(rounds, 'round')}: "
        f"a node {WANTED:.0%} slow is named with {math.floor(100 * power) / 100:g}; "
        f"{math.expm1(half):.0%} with 0.5"
    )
    if power >= LEAST_POWER:
        return text
    more_rounds, more = one.needed()
    if more_rounds or more:
        need = f"{more_rounds} rounds" if more_rounds else f"{more - (against != PEERS)} {what}s"
        return f"{text}; {need} are needed to name {WANTED:.0%} with {LEAST_POWER:g}"
    return f"{text}; neither more rounds nor more {what}s would name {WANTED:.0%}"


def _differences(looks: Looks, environments: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return facts and settings in which the last look at each node differs from most looks."""
    ids = [_text(records[-1], "environment_id") for records in looks.records]
    facts = [comparable(environments.get(name, {})) for name in ids]
    found: dict[str, list[str]] = {}
    for node, look in looks.last.items():
        records = looks.records[look]
        notes = (note for record in records for note in memory_notes(record).values())
        found[node] = [*dict.fromkeys(note.partition(": ")[0] for note in notes)]
        doctor = _text(records[-1], "doctor")
        found[node] += [f"doctor: {doctor}"] * doctor.startswith(DISTURBED)
    for name in sorted({name for of_look in facts for name in of_look}):
        (most, _), *_ = Counter(of_look.get(name) for of_look in facts).most_common(1)
        for node, look in looks.last.items():
            if (own := facts[look].get(name)) != most:
                found[node].append(f"{name}: {own} (most: {most})")
    for name in _STATE:
        medians = [_median(records, name) for records in looks.records]
        usual = float(middle(np.array(medians)))
        for node, look in looks.last.items():
            if medians[look] < _LESS * usual:
                found[node].append(f"{name}: {medians[look]:.3g} (most: {usual:.3g})")
    return found


def _median(records: Iterable[Record], name: str) -> float:
    values = [x for record in records if (x := number(record, name))]
    return float(np.median(values)) if values else math.nan


def _channels(row: Record, populated: int) -> list[str]:
    """Return with how many channels of the memory a slow node would be as slow, if any."""
    if row["verdict"] != SLOWER or row["part"] not in (ALL, "memory"):
        return []
    lacking = range(1, populated // 2 + 1)
    fit = [k for k in lacking if row["low"] <= populated / (populated - k) - 1 <= row["high"]]
    return [f"as with {populated - k} of {populated} channels of the memory" for k in fit[:1]]


def _machines(records: Sequence[Record], environments: Mapping[str, Record]) -> dict[Any, str]:
    """Return the names of the processors of records, by platform and environment.

    Equal names of different processors, as hypervisors show them, are followed by what differs.
    """
    columns = ("family", "model_number", "stepping", "sockets", "cores", "threads")
    facts: dict[str, dict[tuple[Any, ...], list[Any]]] = {}
    for record in records:
        key = _text(record, "platform"), _text(record, "environment_id")
        name = machine_label(key[0])
        machine = environments.get(key[1], {}).get("machine") or {}
        identity = tuple(machine.get(column) for column in columns)
        facts.setdefault(name, {}).setdefault(identity, []).append(key)
    names = {}
    for name, by_identity in facts.items():
        differing = [
            k for k in range(len(columns)) if len({str(one[k]) for one in by_identity}) > 1
        ]
        for identity, keys_of in by_identity.items():
            words = [f"{columns[k].replace('_', ' ')} {identity[k]}" for k in differing]
            names.update(dict.fromkeys(keys_of, ", ".join([name, *words])))
    return names


def _text(record: Record, column: str) -> str:
    """Return a text, empty where it is missing."""
    value = record.get(column)
    return value if isinstance(value, str) else ""
