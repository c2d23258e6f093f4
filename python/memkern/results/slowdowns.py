"""Ratios of times that were measured in the same turns, such as slowdowns by neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.formats.resultset import need_columns, table_of
from memkern.results.comparison import is_disturbed, label_of, quantity_of, time_s, work_of
from memkern.statistics import ASYMMETRIC, ratio_interval

if TYPE_CHECKING:
    from pandas import DataFrame

Record = Mapping[Any, Any]
Pair = tuple[Record, Record]


class Turns(NamedTuple):
    """Comparison of two records of each turn by their median times.

    Attributes
    ----------
    ratio : float
        Time of the second record over the first: the geometric mean over the turns.
    low, high : float
        Its interval by Student's t on the logarithms of the turns' ratios; NaN if `disturbed`.
    number : int
        Number of turns in which neither record was disturbed; if it is 0, the other attributes are
        of all turns.
    disturbed : bool
        Whether `number` is below two or below half of all turns.
    log_times : ndarray of float64, shape (2,)
        Mean logarithms of both records' times in seconds.
    """

    ratio: float
    low: float
    high: float
    number: int
    disturbed: bool
    log_times: npt.NDArray[np.float64]


def with_half_width(value: float, low: float, high: float, decimals: int) -> str:
    """Return the text of a value and its interval: ``1.43 ±0.03``, or ``1.43 (0.9 to 2.27)``.

    The ends are shown where one of them is a fifth farther from the value than the other. The half
    width is never shown as 0, and is a question mark if it is unknown.
    """
    half, text = (high - low) / 2, f"{value:.{decimals}f}"
    if abs(high + low - 2 * value) >= ASYMMETRIC * half:
        return f"{text} ({low:.{decimals}f} to {high:.{decimals}f})"
    return f"{text} ±{max(half, 10.0**-decimals):.{decimals}f}" if half == half else f"{text} ±?"


def compare_turns(pairs: Sequence[Pair], level: float) -> Turns:
    """Compare pairs of records, each measured in one turn.

    Parameters
    ----------
    pairs : sequence of pairs of mappings
        At least one; all have a time.
    level : float
        Confidence level.

    Raises
    ------
    InputError
        `level` is out of range.
    """
    quiet = [pair for pair in pairs if not any(map(is_disturbed, pair))]
    first, second = np.array([list(map(time_s, pair)) for pair in quiet or pairs], dtype=float).T
    found = ratio_interval(second, first, level, paired=True)
    disturbed = len(quiet) < max(2, len(pairs) / 2)
    low, high = (math.nan, math.nan) if disturbed else (found.low, found.high)
    log_times = np.log([first, second]).mean(axis=1)
    return Turns(found.ratio, low, high, len(quiet), disturbed, log_times)


def slowdowns(results: Iterable[Record], *, level: float = 0.95) -> DataFrame:
    """Return the ratios of the times of cases with a neighbour to their times alone.

    Parameters
    ----------
    results : ResultSet
        Records of `memkern.corun`; others are ignored.
    level : float
        Confidence level of the intervals.

    Returns
    -------
    DataFrame
        A row for each case and neighbour, in the order of the records:

        - ``platform``, ``threads``, ``kernel`` (with its name, if it has one) and ``beside``;
        - ``ratio``, the geometric mean over the turns of the median time with the neighbour over
          the time alone, and the ends ``low`` and ``high`` of its interval by Student's t on the
          logarithms of the turns' ratios;
        - ``turns`` that count, those in which neither time was disturbed; if they are fewer than
          two, or fewer than half, the row is ``disturbed`` and has no interval, and if there are
          none, its ratio is over all turns;
        - ``quantity`` (GAMS, ns per access, GB/s, GFLOP/s or s) and its values ``alone`` and
          ``together``, geometric means over the same turns.

        Invalid records do not count.

    Raises
    ------
    InputError
        No case was measured alone and with a neighbour in one turn, or `level` is out of range.
    """
    rows = [_row(pairs, level) for pairs in _pairs(results)]
    return table_of(
        rows,
        "there is no case that was measured alone and beside a neighbour in the same turn: "
        "measure with `memkern corun`",
    )


def _pairs(results: Iterable[Record]) -> list[list[Pair]]:
    """Return the pairs of records alone and with a neighbour, by case and neighbour."""
    # Records of one machine, case and turn; records of several files are paired in their order.
    alone: dict[Any, list[Record]] = {}
    beside: dict[Any, dict[Any, list[Record]]] = {}
    for record in results:
        if not isinstance(record.get("beside"), str) or record.get("valid") is not True:
            continue
        need_columns(record, "case_id", "repeat", "kernel", "time_median_s")
        own, _, neighbour = str(record["case_id"]).partition("-")
        case, turn = (record.get("environment_id"), own), record["repeat"]
        if neighbour:
            beside.setdefault((case, neighbour), {}).setdefault(turn, []).append(record)
        else:
            alone.setdefault((case, turn), []).append(record)
    found = [
        [
            pair
            for turn, there in turns.items()
            for pair in zip(alone.get((case, turn), ()), there, strict=False)
            if all(time_s(record) for record in pair)
        ]
        for (case, _), turns in beside.items()
    ]
    return [pairs for pairs in found if pairs]


def _row(pairs: Sequence[Pair], level: float) -> dict[str, Any]:
    """Return the row of a case and a neighbour."""
    turns = compare_turns(pairs, level)
    first, work = pairs[0][1], work_of(pairs[0][0])
    quantity = quantity_of(work)
    log_work = math.log(work[quantity.suffix])
    return {
        "platform": first.get("platform"),
        "threads": first.get("threads"),
        "kernel": label_of(first["kernel"], first.get("definition"), first.get("name")),
        "beside": first["beside"],
        "ratio": turns.ratio,
        "low": turns.low,
        "high": turns.high,
        "turns": turns.number,
        "disturbed": turns.disturbed,
        "quantity": quantity.name,
        "alone": quantity.value(float(turns.log_times[0]) - log_work),
        "together": quantity.value(float(turns.log_times[1]) - log_work),
    }


# Explanation of the texts of `entry`.
ENTRIES = (
    "1.43 ±0.03: 1.43 times the time alone, and half the 95 % interval, or its ends if one is "
    "farther away; in parentheses if the interval includes 1; * if too many turns were "
    "disturbed for an interval."
)


def entry(row: Record) -> str:
    """Return the text of a row of `slowdowns` (see `ENTRIES`)."""
    if row["disturbed"]:
        return f"{row['ratio']:.2f} *"
    text = with_half_width(row["ratio"], row["low"], row["high"], 2)
    return f"({text})" if row["low"] <= 1 <= row["high"] else text
