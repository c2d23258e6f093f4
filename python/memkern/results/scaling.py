"""Speed-up and efficiency over ranks, from records of `memkern.scaling`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from memkern.formats.resultset import need_columns, table_of
from memkern.machine.environment import machine_label
from memkern.results.comparison import label_of, quantity_of, time_s, work_of
from memkern.results.slowdowns import Pair, Record, compare_turns

if TYPE_CHECKING:
    from pandas import DataFrame

STRONG, WEAK = "strong", "weak"
MODES = (STRONG, WEAK)

# Records of one number of ranks, by turn; several files are appended.
_Turns = dict[Any, list[Record]]


def efficiencies(results: Iterable[Record], *, level: float = 0.95) -> DataFrame:
    """Return the speed-up and efficiency of cases over the number of ranks.

    Parameters
    ----------
    results : ResultSet
        Records of `memkern.scaling`; others, and invalid ones, are ignored.
    level : float
        Confidence level of the intervals.

    Returns
    -------
    DataFrame
        A row for each case, number of threads and number of ranks, in the order of the records and
        of the ranks:

        - ``machine``, ``kernel`` (with its name, if it has one), ``scaling`` (strong or weak),
          ``size`` (iterations, such as elements: of all ranks together in strong scaling, of each
          rank in weak scaling), ``bind``, ``comm``, ``threads`` of each rank, ``ranks`` and
          ``ranks_per_node``;
        - ``quantity`` (GB/s, GAMS, GFLOP/s, ns per access or s) and its ``value``, the geometric
          mean over the turns that count; rates are of all ranks together;
        - ``speed_up`` over the fewest ranks that are not oversubscribed, and the ends ``low`` and
          ``high`` of its interval by Student's t on the logarithms of the turns' ratios;
        - ``efficiency``, ``efficiency_low`` and ``efficiency_high`` in percent: the speed-up over
          the ratio of the numbers of ranks;
        - ``turns`` that count, those in which neither time was disturbed; if they are fewer than
          two, or fewer than half, the row is ``disturbed`` and has no interval;
        - ``oversubscribed``: a host had more workers than processing units, so the row does
          not show scaling.

    Raises
    ------
    InputError
        There is no such record, or `level` is out of range.
    """
    rows = [row for series in _series(results) for row in _rows(series, level)]
    return table_of(rows, "there is no valid record over ranks: `memkern scaling` measures them")


def _series(results: Iterable[Record]) -> list[dict[int, _Turns]]:
    """Return the records of each case by number of ranks, in ascending order."""
    found: dict[Any, dict[int, _Turns]] = {}
    for record in results:
        mode = record.get("scaling")
        if mode in MODES and record.get("valid") is True and time_s(record):
            need_columns(record, "case_id", "repeat", "kernel", "platform", "threads")
            case, _, _ = str(record["case_id"]).partition("-")
            names = ("kernel", "scaling", "bind", "comm", "threads")
            key = (case, machine_label(record["platform"]), *map(record.get, names))
            turns = found.setdefault(key, {}).setdefault(int(record["ranks"]), {})
            turns.setdefault(record["repeat"], []).append(record)
    return [dict(sorted(by_ranks.items())) for by_ranks in found.values()]


def _rows(by_ranks: Mapping[int, _Turns], level: float) -> list[dict[str, Any]]:
    """Return the rows of one case."""
    oversubscribed = {
        ranks: any(r.get("oversubscribed") is True for records in turns.values() for r in records)
        for ranks, turns in by_ranks.items()
    }
    few = min(by_ranks, key=lambda ranks: (oversubscribed[ranks], ranks))
    pairs: dict[int, list[Pair]] = {
        ranks: [
            pair
            for turn, records in turns.items()
            for pair in zip(by_ranks[few].get(turn, ()), records, strict=False)
        ]
        for ranks, turns in by_ranks.items()
    }
    return [
        _row(mine, ranks / few, level) | {"oversubscribed": oversubscribed[ranks]}
        for ranks, mine in pairs.items()
        if mine
    ]


def _row(pairs: list[Pair], ideal: float, level: float) -> dict[str, Any]:
    """Return the row of pairs of records, the second of which has `ideal` times as many ranks."""
    turns = compare_turns(pairs, level)
    record, work = pairs[0][1], work_of(pairs[0][1])
    quantity = quantity_of(work)
    log_time = float(turns.log_times[1]) - math.log(work[quantity.suffix])
    # In weak scaling, the work grows with the number of ranks.
    gain = ideal if record["scaling"] == WEAK else 1.0
    speeds = [gain / ratio for ratio in (turns.ratio, turns.high, turns.low)]
    percent = [100 * speed / ideal for speed in speeds]
    return {
        "machine": machine_label(record["platform"]),
        "kernel": label_of(record["kernel"], record.get("definition"), record.get("name")),
        "scaling": record["scaling"],
        "size": record.get("scaling_size"),
        "bind": record.get("bind"),
        "comm": record.get("comm", ""),
        "threads": record.get("threads"),
        "ranks": int(record["ranks"]),
        "ranks_per_node": record.get("ranks_per_node"),
        "quantity": quantity.name,
        "value": quantity.value(log_time),
        **dict(zip(("speed_up", "low", "high"), speeds, strict=True)),
        **dict(zip(("efficiency", "efficiency_low", "efficiency_high"), percent, strict=True)),
        "turns": turns.number,
        "disturbed": turns.disturbed,
    }
