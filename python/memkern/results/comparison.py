"""Comparison of two sets of records, case by case."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memkern.errors import InputError
from memkern.formats import ResultSet, load
from memkern.machine.environment import differences
from memkern.results.hosts import APART
from memkern.results.verdicts import (
    FASTER,
    NOT_ENOUGH,
    SAME,
    SLOWER,
    UNDECIDED,
    Estimate,
    decide,
    gate,
    holm,
    moderated,
    welch,
)
from memkern.spec.columns import of_kind
from memkern.statistics import geometric_mean, median

if TYPE_CHECKING:
    from pandas import DataFrame

# Columns that identify a case, in addition to those that a record lists in case_columns,
_CASE = ("kernel", "definition", "name")
# or these columns for records without case_columns.
_INPUTS = ("pattern", "delta", "count", "elements", "bytes_B")
# Options of running a case. An option with one value in each set, but different values (such as
# pages 4k and thp), is the subject of the comparison and does not identify cases.
_OPTIONS = of_kind("requested")

DISTURBED, INVALID, NO_TIME, NOT_MEASURED = "disturbed", "invalid", "no time", "not measured"
OTHER_STATE = "other state"

_DRIFT = (
    "A and B were measured one after the other, so that drift between them can look like a "
    "difference (compare --run measures both in turns)"
)


@dataclass(frozen=True)
class Quantity:
    """Quantity by which cases are compared: a rate (work by time) or a time (time by work)."""

    name: str
    suffix: str
    rate: bool

    def value(self, log_time: float) -> float:
        """Return the quantity from the logarithm of the time of one unit of work."""
        return math.exp(-log_time if self.rate else log_time)


# A case is compared by the first of these quantities that both sides have.
_QUANTITIES = (
    Quantity("GAMS", "GAMS", True),
    Quantity("ns per access", "ns", False),
    Quantity("GB/s", "GBps", True),
    Quantity("GFLOP/s", "GFLOPs", True),
    Quantity("s", "time_s", False),
)


@dataclass
class Compared:
    """A case on both sides.

    Attributes
    ----------
    name : str
        All identifying columns in one line.
    columns : dict
        Columns that distinguish the case from the other cases of this comparison.
    work : tuple of dict
        Units of work of one invocation on each side, by `Quantity.suffix`.
    times : tuple of float, optional
        Logarithm of each side's time for a unit of work of `quantity`.
    estimate : Estimate, optional
        Estimate of their difference, if its error is known.
    p : float
        P-value, corrected for the number of cases; NaN where there was no test.
    verdict, gate : str
        See `compare`.
    needed : int
        Pairs or placements needed for the gate; 0 if it is decided, or if they are unknown.
    """

    name: str
    columns: dict[str, Any]
    work: tuple[dict[str, float], dict[str, float]]
    times: tuple[float, float] | None = None
    estimate: Estimate | None = None
    p: float = math.nan
    verdict: str = NOT_ENOUGH
    gate: str = UNDECIDED
    needed: int = 0

    @property
    def label(self) -> str:
        """Short name: the kernel, and `columns`."""
        return " ".join([self.name.split()[0], *_words(self.columns)])

    @property
    def quantity(self) -> Quantity:
        """The quantity by which the case is compared."""
        return quantity_of(*self.work)


def quantity_of(*works: Mapping[str, float]) -> Quantity:
    """Return the quantity by which records are compared, given their units of work."""
    return next(q for q in _QUANTITIES if all(q.suffix in work for work in works))


def compare(
    a: ResultSet | str | Path, b: ResultSet | str | Path, *, slowdown: float = 0.0
) -> DataFrame:
    """Compare two sets of records that were measured one after the other, case by case.

    Parameters
    ----------
    a, b : ResultSet or path
        Records, or their file. Each case must have been placed in memory several times on each
        side (columns ``placements`` and ``placement_sd``, or several repeats), since one placement
        does not show the variance between runs.
    slowdown : float
        Relative increase of the time, such as 0.05, about which the column ``gate`` decides; 0 for
        any, about which the verdict decides.

    Returns
    -------
    DataFrame
        A row for each case in both:

        - ``case`` and ``label``, its full and its short name, and the columns that distinguish the
          cases;
        - ``quantity`` (GAMS, ns per access, GB/s, GFLOP/s or s) and its values ``a`` and ``b``,
          geometric means over the placements' medians; ``ratio``, which is b over a, and the ends
          ``low`` and ``high`` of its 99 % interval by Welch's t on logarithms, whose variances are
          moderated by the other cases' variances if there are at least 8 cases;
        - ``p``, corrected by Holm for the number of cases, ``least_effect`` (relative) and
          ``placements`` (the fewer of both sides);
        - ``verdict`` on b: ``faster`` or ``slower`` than a (p of at most 0.01 and an effect above
          `least_effect`, the largest of 1 %, the interval of a side compared with itself, and that
          for the next run), ``same`` (the interval lies within 2 %), ``not enough data``, or why
          there is none: ``other state`` (the exchange time of the workers shows that the state of
          the host has changed), ``disturbed`` (`a`, `b` and `ratio` are as observed), ``invalid``,
          ``no time``; ``gate``: ``passed`` if the interval excludes `slowdown`, ``slower`` if it
          lies wholly beyond it and the verdict is slower, else ``undecided``; ``needed``, the
          placements needed for a verdict, or with a `slowdown` for its gate (0: they suffice, or it
          is unknown);
        - every rate in the records: ``a_GBps``, ``b_GBps``, ``a_GFLOPs``, ``a_GAMS``,
          ``a_ns``, and ``a_time_s``.

        ``attrs["compared"]`` lists the options in which the sets differ, ``attrs["remarks"]`` lists
        remarks on the table, ``attrs["speed"]`` is the geometric mean of b's speed over a's in the
        cases with a verdict, ``attrs["speeds"]`` is their number,
        ``attrs["versions"]`` are the versions of memkern on both sides.

    Raises
    ------
    InputError
        No case is in both sets, a set has no records of memkern, or a file can't be read.
    """
    a, b = (load(each) if isinstance(each, (str, Path)) else each for each in (a, b))
    for side, results in (("A", a), ("B", b)):
        if not len(results):
            raise InputError(f"{side} has no records: compare files with results")
        if not any(_value(record, "kernel") for record in results):
            raise InputError(f"{side} has no column kernel: compare files that memkern wrote")
    inputs = _inputs([*a, *b]) or _INPUTS
    compared = [
        column
        for column in _OPTIONS
        if len(_values(a, column)) == len(_values(b, column)) == 1
        and _values(a, column) != _values(b, column)
    ]
    keys = key_columns([*a, *b], compared)
    left, right = grouped(a, keys), grouped(b, keys)
    common = [key for key in left if key in right]
    if not common:
        raise InputError("the two files have no case in common: compare runs of the same cases")
    several = varying(list(a), compared)
    cases = []
    for key in common:
        identity = dict(zip(keys, key, strict=True))
        case = Compared(
            short_name(identity, {*inputs, *several}),
            {"kernel": identity["kernel"], **{column: identity.get(column) for column in several}},
            ({"time_s": 1.0}, {"time_s": 1.0}),
        )
        _estimate(case, left[key], right[key])
        cases.append(case)
    judge(cases, slowdown)
    remarks = [_DRIFT]
    for side, alone in (("A", len(left) - len(common)), ("B", len(right) - len(common))):
        if alone:
            remarks.append(f"{alone} {'case is' if alone == 1 else 'cases are'} in {side} alone")
    if any(case.verdict == NOT_ENOUGH and case.estimate is None for case in cases):
        remarks.append("a case that was placed once shows no spread from run to run: --repeats 5")
    if len(a.environments) == len(b.environments) == 1:
        (of_a,), (of_b,) = a.environments.values(), b.environments.values()
        if found := differences(of_a, of_b):
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            remarks.append(f"the environments differ: {'; '.join(found[:3])}{more}")
    versions = (_versions(a.environments.values()), _versions(b.environments.values()))
    return table(cases, "placements", compared, remarks, versions)


def judge(cases: Sequence[Compared], slowdown: float = 0.0) -> None:
    """Set the verdict and gate of each case with an estimate, with p-values corrected for all."""
    tested = [case for case in cases if case.estimate is not None]
    estimates = moderated([case.estimate for case in tested if case.estimate is not None])
    p = [estimate.p for estimate in estimates]
    found = zip(tested, estimates, holm(p), decide(estimates, p), strict=True)
    for case, estimate, corrected, verdict in found:
        case.estimate, case.p, case.verdict = estimate, float(corrected), verdict
        case.gate = gate(verdict, estimate.effect, estimate.half_width, slowdown)
        if case.gate == UNDECIDED:
            case.needed = estimate.needed(len(tested), slowdown)


def table(
    cases: Sequence[Compared],
    counted: str,
    compared: Sequence[str],
    remarks: Sequence[str],
    versions: tuple[str, str],
) -> DataFrame:
    """Return the comparison as a table (see `compare`); `counted` names the column of counts."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    speeds = []
    for case in cases:
        quantity = case.quantity
        row: dict[str, Any] = {
            "case": case.name,
            "label": case.label,
            **case.columns,
            "quantity": quantity.name,
            **dict.fromkeys(("a", "b", "ratio", "low", "high"), math.nan),
            "p": case.p,
            "least_effect": math.nan,
            counted: 0,
            "verdict": case.verdict,
            "gate": case.gate,
            "needed": case.needed,
        }
        if case.times is not None:
            effect = case.times[0] - case.times[1]
            if case.verdict in (FASTER, SAME, SLOWER):
                speeds.append(math.exp(effect))
            sign = 1 if quantity.rate else -1
            row["a"], row["b"] = (quantity.value(time) for time in case.times)
            row["ratio"] = math.exp(sign * effect)
            if estimate := case.estimate:
                row |= {
                    "low": math.exp(sign * effect - estimate.half_width),
                    "high": math.exp(sign * effect + estimate.half_width),
                    "least_effect": math.expm1(estimate.least_effect),
                    counted: estimate.count,
                }
            for other in _QUANTITIES:
                for side, work, time in zip("ab", case.work, case.times, strict=True):
                    if other.suffix in work:
                        scale = math.log(work[quantity.suffix] / work[other.suffix])
                        row[f"{side}_{other.suffix}"] = other.value(time + scale)
        rows.append(row)
    frame = pd.DataFrame(rows)
    frame.attrs = {
        "compared": list(compared),
        "remarks": list(remarks),
        "versions": versions,
        "speed": geometric_mean(speeds) if speeds else math.nan,
        "speeds": len(speeds),
    }
    return frame


def is_disturbed(record: Mapping[str, Any]) -> bool:
    """Return whether a record is disturbed."""
    return _value(record, "disturbed") is True


def time_s(record: Mapping[str, Any]) -> float | None:
    """Return a record's median time, or the time by its bandwidth; None if it has neither."""
    seconds = number(record, "time_median_s")
    if seconds is None:
        bandwidth, moved = number(record, "bandwidth_median_GBps"), number(record, "bytes_B")
        seconds = moved / bandwidth / 1e9 if bandwidth and moved else None
    return seconds


def work_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the units of work of one invocation, by the suffix of each quantity of a record."""
    shortest, median = number(record, "time_min_s"), number(record, "time_median_s")
    moved = number(record, "bytes_B")
    candidates = {
        "GAMS": _product(number(record, "rate_GAMS"), shortest),
        "GBps": moved / 1e9
        if moved
        else _product(number(record, "bandwidth_median_GBps"), median)
        or _product(number(record, "bandwidth_GBps"), shortest),
        "GFLOPs": _product(number(record, "performance_GFLOPs"), shortest),
    }
    access_ns = number(record, "ns_per_access")
    if access_ns and shortest:
        candidates["ns"] = shortest / access_ns
    return {"time_s": 1.0, **{suffix: value for suffix, value in candidates.items() if value}}


def varying(records: Sequence[Mapping[str, Any]], but: Collection[str] = ()) -> list[str]:
    """Return the columns that distinguish the cases of a kernel, except those in `but`."""
    kernels = {_value(record, "kernel") for record in records}
    groups = [[r for r in records if _value(r, "kernel") == kernel] for kernel in kernels]
    return [
        column
        for column in (*_CASE[1:], *_inputs(records), *_OPTIONS)
        if column not in but
        and any(len({_value(record, column) for record in group}) > 1 for group in groups)
    ]


def key_columns(records: Iterable[Mapping[str, Any]], but: Collection[str] = ()) -> list[str]:
    """Return the columns by which the cases of records are told apart, except those in `but`."""
    return [*_CASE, *(_inputs(records) or _INPUTS), *(c for c in _OPTIONS if c not in but)]


def _inputs(records: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    """Return the columns of inputs that records list."""
    named = {str(_value(record, "case_columns") or "") for record in records}
    return sorted({column for columns in named for column in columns.split()})


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return the options in which two records differ."""
    return [column for column in _OPTIONS if _value(a, column) != _value(b, column)]


def named_case(record: Mapping[str, Any], several: Iterable[str] = ()) -> str:
    """Return a record's kernel, inputs and the columns in `several`, in one line."""
    return short_name(record, {*_inputs([record]), *several})


def version_of(build: Mapping[str, Any]) -> str:
    """Return version and commit of a build of memkern, where they are known."""
    return " ".join(str(build[key]) for key in ("version", "commit") if build.get(key))


def _versions(environments: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(sorted({version_of(found.get("build") or {}) for found in environments}))


def label_of(kernel: object, definition: object = "", name: object = "") -> str:
    """Return the label of a case: its kernel, and its name if it has one."""
    which = f"@{definition}" if isinstance(definition, str) and definition else ""
    return f"{kernel}{which}" + (f" {name}" if isinstance(name, str) and name else "")


def short_name(identity: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Return a case's kernel, label and the given columns, in one line."""
    label = label_of(*map(identity.get, _CASE))
    return " ".join([label, *_words({c: identity.get(c) for c in sorted(columns) if c != "name"})])


def _words(columns: Mapping[str, Any]) -> list[str]:
    known = ((c, _value(columns, c)) for c in columns if c not in ("kernel", "definition"))
    return [f"{c}={value}" for c, value in known if value is not None and value != ""]


def usable(
    records: Sequence[dict[str, Any]],
    seconds: Callable[[Mapping[str, Any]], float | None] = time_s,
) -> tuple[list[dict[str, Any]], str]:
    """Return a side's undisturbed records, or else all with a time, and why they decide nothing."""
    valid = [record for record in records if _value(record, "valid") is not False]
    timed = [record for record in valid if seconds(record)]
    quiet = [record for record in timed if not is_disturbed(record)]
    if not timed:
        return [], NO_TIME if valid else INVALID
    return quiet or timed, "" if quiet else DISTURBED


def _estimate(case: Compared, a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]]) -> None:
    """Set a case's work, times and estimate from the records of both sides, or a verdict."""
    (of_a, why_a), (of_b, why_b) = usable(a), usable(b)
    if not (of_a and of_b):
        case.verdict = why_b if of_a else why_a
        return
    clean = (of_a, of_b)
    case.work = (work_of(clean[0][0]), work_of(clean[1][0]))
    suffix = case.quantity.suffix
    sides = [
        _spread(records, math.log(work[suffix]))
        for records, work in zip(clean, case.work, strict=True)
    ]
    case.times = (sides[0][0], sides[1][0])
    if DISTURBED in (why_a, why_b):
        case.verdict = DISTURBED
    elif differ(*(exchange_ns(records) for records in clean)):
        case.verdict = OTHER_STATE
    elif min(count for _, _, count in sides) >= 2:
        estimate = welch(*sides)
        widths = [estimate.self_half_width, *map(_next_run, clean)]
        case.estimate = replace(estimate, self_half_width=max(widths))


def exchange_ns(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the median time of an exchange in the state of records; NaN if it is unknown."""
    known = [number(record, "exchange_ns") for record in records if _value(record, "states")]
    values = [value for value in known if value is not None]
    return median(values) if values else math.nan


def differ(*exchanges: float) -> bool:
    """Return whether times of an exchange show different states; not if one is unknown."""
    return not math.isnan(sum(exchanges)) and max(exchanges) > APART * min(exchanges)


def _next_run(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the half width of the interval for the mean of as many next runs, in logarithms."""
    of_next = [record for record in records if _value(record, "ci_scope") == "next run"]
    widths = [width for record in of_next if (width := number(record, "ci_relative"))]
    return math.log1p(max(widths)) / math.sqrt(len(records)) if widths else 0.0


def _spread(records: Sequence[Mapping[str, Any]], log_work: float) -> tuple[float, float, int]:
    """Return mean, standard deviation and number of the placements' log times."""
    groups = []
    for record in records:
        seconds = time_s(record)
        placements, sd = number(record, "placements"), _value(record, "placement_sd")
        if not placements or placements < 2 or not isinstance(sd, (int, float)):
            placements, sd = 1.0, 0.0
        groups.append((placements, math.log(seconds or math.nan) - log_work, float(sd)))
    total = sum(n for n, _, _ in groups)
    mean = sum(n * centre for n, centre, _ in groups) / total
    square = sum((n - 1) * sd**2 + n * (centre - mean) ** 2 for n, centre, sd in groups)
    return mean, math.sqrt(square / max(total - 1, 1)), int(total)


def _product(rate: float | None, seconds: float | None) -> float | None:
    return rate * seconds if rate and seconds else None


def number(record: Mapping[str, Any], column: str) -> float | None:
    """Return a positive finite number, None where there is none."""
    value = record.get(column)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < math.inf else None


def _value(record: Mapping[str, Any], column: str) -> Any:
    """Return a value, None if it is missing or NaN."""
    value = record.get(column)
    return value if value == value else None


def _values(results: ResultSet, column: str) -> set[Any]:
    return {_value(record, column) for record in results}


def grouped(
    results: Iterable[dict[str, Any]], keys: Iterable[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the records with equal values of the columns `keys`, by these values."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in results:
        groups.setdefault(tuple(_value(record, column) for column in keys), []).append(record)
    return groups
