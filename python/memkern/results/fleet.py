"""Nodes of a fleet beside each other: the median and range of each case, and nodes outside.

Values are the logarithms of the shortest times, which other programs change least. A node is named
if its distance from the median of the other nodes is improbable in two ways:

- for their spread, the median absolute deviation (MAD). The distribution of distance over MAD is
  simulated for values whose variances differ as those of different hosts do: Student's t with eight
  degrees of freedom, as for the variances between runs on several recorded hosts;
- for the spread between runs on one host, which the node's interval for the next run contains.
  Without this a state of some hosts would be named, since it lies many MADs away.

The larger of both p-values counts, corrected by Holm for all nodes and cases.
``bench/fleet_false_alarms.py`` simulates the rate of false alarms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.formats import ResultSet, concat, load
from memkern.machine.environment import machine_label
from memkern.results.comparison import (
    OTHER_STATE,
    Quantity,
    differ,
    exchange_ns,
    grouped,
    key_columns,
    named_case,
    number,
    quantity_of,
    short_name,
    usable,
    varying,
    work_of,
)
from memkern.results.merging import sources
from memkern.results.verdicts import (
    ALPHA,
    FASTER,
    LEAST_EFFECT,
    PASSED,
    SLOWER,
    UNDECIDED,
    gate,
    holm,
)
from memkern.statistics import MEDIAN_OVER_MEAN, RUN_LEVEL, median, student_quantile

if TYPE_CHECKING:
    from pandas import DataFrame

Record = Mapping[str, Any]
_Floats = npt.NDArray[np.float64]

NODE = "node"
INSIDE, TOO_FEW, NO_INTERVAL = "in the range", "too few nodes", "no interval"
# Nodes of one processor that are needed. With fewer, a node would have to be more than twenty times
# their spread away.
LEAST_NODES = 9
# Of the variances between runs on several recorded hosts.
_FREEDOM = 8.0
_OF_NORMAL = 1.4826  # standard deviation over MAD
_SIMULATED = 640_000  # values of each simulation
_NUMBERS = ("median", "low", "high", "slowdown", "least_slowdown", "spread")
_DISTANCES = np.logspace(-1, 5, 49)  # over the spread, in the table of probabilities


def of_files(paths: Iterable[str | Path]) -> ResultSet:
    """Return the results of the nodes of a fleet, with the name of each node.

    Parameters
    ----------
    paths : iterable of path
        A file of results for each node, which has the node's name, or files that this function
        returned, whose records have the column ``node``.

    Returns
    -------
    ResultSet
        All records, with the column ``node``.

    Raises
    ------
    InputError
        A file can't be read, or two files are of nodes of the same name.
    """
    known: dict[str, Path] = {}
    found = []
    for path in sources([Path(path) for path in paths]):
        results = load(path)
        records = [record | {NODE: _text(record, NODE) or path.stem} for record in results]
        for node in {record[NODE] for record in records}:
            if node in known:
                raise InputError(f"{known[node]} and {path} are both of {node}: rename one of them")
            known[node] = path
        found.append(ResultSet(records, results.samples, results.environments))
    return concat(found)


class _Own(NamedTuple):
    """A node's value of a case: logarithm of its time by work, or why it has none.

    `sd` is the standard deviation of this value between runs, `exchange_ns` the state of the host.
    """

    time: float = math.nan
    sd: float = math.nan
    exchange_ns: float = math.nan
    verdict: str = ""


def fleet(
    results: ResultSet, baseline: ResultSet | None = None, *, slowdown: float = 0.0
) -> DataFrame:
    """Compare the nodes of a fleet with each other, or with the nodes of a baseline.

    Parameters
    ----------
    results : ResultSet
        Records with the column ``node`` (see `memkern.results.fleet.of_files`). Nodes with
        different processors, or different numbers of their cores, are not compared.
    baseline : ResultSet, optional
        Records of other nodes, with which these are compared instead of with each other.
    slowdown : float
        Relative increase of the time about which the column ``gate`` decides; 0 for any.

    Returns
    -------
    DataFrame
        A row for each processor, case and node:

        - ``machine``; ``case`` and ``label``, its full and its short name; ``node``;
        - ``quantity`` (GAMS, ns per access, GB/s, GFLOP/s or s), the node's ``value`` of it by its
          shortest time, the ``median`` of the other nodes, and ``low`` and ``high``, the range
          outside of which the node is named, from a slowdown of ``least_slowdown``;
        - ``slowdown``, the time over the median of the other nodes' times minus one; ``spread``,
          the relative standard deviation of their times by the MAD; ``others``, their number;
        - ``p``, corrected for all nodes and cases;
        - ``verdict``: ``slower`` or ``faster`` (p of at most 0.01 and an effect above 1 %), ``in
          the range``, or why there is none: ``too few nodes``, ``other state`` (the exchange time
          of the workers shows another state of the host than that of most nodes), ``disturbed``,
          ``invalid``, ``no time``, ``no interval``;
        - ``gate``: ``passed`` for a node in the range or faster, or if its value with an interval
          as wide as the range excludes `slowdown`; ``slower`` if that lies wholly beyond it; else
          ``undecided``.

        ``attrs["remarks"]`` lists sentences on what was not judged.

    Raises
    ------
    InputError
        There is no record, a record has no node, or no case has enough nodes of one processor.
    """
    from pandas import DataFrame

    every = [*results, *(baseline or ())]
    if not len(results):
        raise InputError("there is no record of a node: give files of results")
    if not all(_text(record, NODE) for record in every):
        raise InputError("a record has no node: a baseline is a file of memkern compare fleet -o")
    environments = {**(baseline.environments if baseline else {}), **results.environments}
    machines = _machines(every, environments)
    keys, several = key_columns(every), varying(every)
    mine = _by_case(results, machines, keys)
    theirs = {} if baseline is None else _by_case(baseline, machines, keys)
    tested: list[_Tested] = []
    for which, nodes in mine.items():
        beside = theirs.get(which, {})
        first = next(iter(nodes.values()))[0]
        records = [record for some in (*nodes.values(), *beside.values()) for record in some]
        quantity = quantity_of(*(work_of(r) for r in records if number(r, "time_min_s")))
        case = {
            "machine": which[0],
            "case": named_case(first, several),
            "label": short_name(first, several),
        }
        own = {node: _own(some, quantity) for node, some in nodes.items()}
        known = own if baseline is None else {n: _own(r, quantity) for n, r in beside.items()}
        own, known = (_in_state(values, _main_state(known)) for values in (own, known))
        for node, value in own.items():
            others = [o.time for name, o in known.items() if name != node and not o.verdict]
            tested.append(_Tested({**case, "node": node}, value, np.array(others), quantity))
    rows = _rows(tested, slowdown)
    remarks = _too_few(rows)
    if remarks and all(math.isnan(row["p"]) for row in rows):
        raise InputError(remarks[0])
    frame = DataFrame(rows)
    frame.attrs["remarks"] = remarks
    return frame


def cases(frame: DataFrame) -> DataFrame:
    """Return a row for each processor and case of `fleet` that has a node with a verdict.

    Columns ``machine``, ``case``, ``label`` and ``quantity``; ``median``, ``low``, ``high``,
    ``least_slowdown``, ``spread`` and ``others`` are medians over these nodes.
    """
    judged = frame[frame["verdict"].isin((SLOWER, FASTER, INSIDE))]
    columns = ("median", "low", "high", "least_slowdown", "spread", "others")
    of_case = judged.groupby(["machine", "case", "label", "quantity"], sort=False)
    return of_case[[*columns]].median().reset_index()


def p_value(distance: float, others: npt.ArrayLike, sd: float) -> float:
    """Return the probability of a node this far from the median of others in a healthy fleet.

    Parameters
    ----------
    distance : float
        Difference of logarithms of times.
    others : array_like of float, shape (n,)
        Logarithms of the other nodes' times.
    sd : float
        Standard deviation of the node's value between runs.

    Returns
    -------
    float
        The larger of the probabilities by the spread of the others, and by `sd`.
    """
    from scipy.special import stdtr

    x, far = np.asarray(others, dtype=np.float64), abs(distance)
    by_runs = 2 * float(stdtr(_FREEDOM, -far / (sd * _with_median(len(x)))))
    spread = _spread(x)
    if far <= _DISTANCES[0] * spread:
        return 1.0
    if not spread:
        return by_runs
    log_p = np.interp(math.log(far / spread), np.log(_DISTANCES), _table(len(x)))
    return max(math.exp(log_p), by_runs)


def reach(others: npt.ArrayLike, sd: float, p: float) -> float:
    """Return the distance from the median of others at which `p_value` is `p`.

    Parameters
    ----------
    others, sd
        As for `p_value`.
    p : float
        At most 0.5.
    """
    x = np.asarray(others, dtype=np.float64)
    log_distance = np.interp(-math.log(p), -_table(len(x)), np.log(_DISTANCES))
    by_runs = student_quantile(1 - p / 2, _FREEDOM) * sd * _with_median(len(x))
    return max(math.exp(log_distance) * _spread(x), by_runs)


def _with_median(count: int) -> float:
    """Return the standard deviation of a distance from the median of others by the node's own."""
    return math.sqrt(1 + MEDIAN_OVER_MEAN / count)


@functools.cache
def _table(count: int) -> _Floats:
    """Return the logarithms of the p-values of `_DISTANCES`, for this number of other nodes."""
    from scipy.special import stdtr

    random = np.random.default_rng(count)
    x = random.standard_t(_FREEDOM, size=(_SIMULATED // count, count))
    middle = np.median(x, axis=1)
    spread = _OF_NORMAL * np.median(np.abs(x - middle[:, None]), axis=1)
    # The tail beyond each threshold is exact, so that small p-values need few simulations.
    return np.log([2 * np.mean(stdtr(_FREEDOM, middle - d * spread)) for d in _DISTANCES])


def _spread(x: _Floats) -> float:
    return _OF_NORMAL * float(np.median(np.abs(x - np.median(x))))


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


def _by_case(
    results: ResultSet, machines: Mapping[Any, str], keys: Sequence[str]
) -> dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]]:
    """Return the records of each node by processor and case."""
    found: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for key, records in grouped(results, [NODE, "platform", "environment_id", *keys]).items():
        node, platform, environment, *case = key
        machine = machines[platform or "", environment or ""]
        found.setdefault((machine, *case), {}).setdefault(str(node), []).extend(records)
    return found


def _own(records: Sequence[dict[str, Any]], quantity: Quantity) -> _Own:
    """Return the value of a node from its records of a case, which are repeats."""
    some, verdict = usable(records, lambda record: number(record, "time_min_s"))
    if not some:
        return _Own(verdict=verdict)
    times = [math.log(r["time_min_s"] / work_of(r)[quantity.suffix]) for r in some]
    # Repeats follow each other in one state of the host, so that their mean varies like one run.
    sd = max(map(_sd, some))
    verdict = verdict or NO_INTERVAL * (not sd)
    return _Own(float(np.mean(times)), sd, exchange_ns(some), verdict)


def _sd(record: Record) -> float:
    """Return the standard deviation between runs by a record's interval; 0 if it has none."""
    low, high = (number(record, f"time_min_ci_{end}_s") for end in ("low", "high"))
    if low is None or high is None or low >= high:
        return 0.0
    # The interval is that of the difference of two runs.
    return math.log(high / low) / 2 / student_quantile((1 + RUN_LEVEL) / 2, _FREEDOM) / math.sqrt(2)


def _main_state(values: Mapping[str, _Own]) -> float:
    """Return the median time of an exchange on nodes; NaN if it is unknown."""
    known = [own.exchange_ns for own in values.values() if own.exchange_ns > 0]
    return median(known) if known else math.nan


def _in_state(values: Mapping[str, _Own], main_ns: float) -> dict[str, _Own]:
    """Return values, with the verdict `OTHER_STATE` on those of another state of the host."""
    return {
        node: own._replace(verdict=own.verdict or OTHER_STATE * differ(own.exchange_ns, main_ns))
        for node, own in values.items()
    }


class _Tested(NamedTuple):
    """A node's value of a case, and logarithms of the times of other nodes that can be judged."""

    row: dict[str, Any]
    own: _Own
    times: _Floats
    quantity: Quantity

    @property
    def verdict(self) -> str:
        """The reason for which the node can't be judged; empty if it can."""
        return self.own.verdict or TOO_FEW * (len(self.times) < LEAST_NODES - 1)

    @property
    def p(self) -> float:
        """The p-value of the node, not corrected."""
        return p_value(self.own.time - float(np.median(self.times)), self.times, self.own.sd)


def _rows(tested: Sequence[_Tested], slowdown: float) -> list[dict[str, Any]]:
    """Return the rows of the table."""
    p = np.array([math.nan if one.verdict else one.p for one in tested])
    level = ALPHA / max(int((~np.isnan(p)).sum()), 1)
    rows = []
    for one, corrected in zip(tested, holm(p), strict=True):
        row, own, x, of = one.row, one.own, one.times, one.quantity.value
        row |= {
            "quantity": one.quantity.name,
            "value": of(own.time),
            **dict.fromkeys(_NUMBERS, math.nan),
            "others": len(x),
            "p": float(corrected),
            "verdict": one.verdict,
            "gate": UNDECIDED,
        }
        if len(x):
            middle = float(np.median(x))
            row |= {"median": of(middle), "slowdown": math.expm1(own.time - middle)}
        if not one.verdict:
            far = max(reach(x, own.sd, level), math.log1p(LEAST_EFFECT))
            row["low"], row["high"] = sorted((of(middle - far), of(middle + far)))
            row |= {"least_slowdown": math.expm1(far), "spread": math.expm1(_spread(x))}
            outside = corrected <= ALPHA and abs(own.time - middle) > math.log1p(LEAST_EFFECT)
            verdict = (SLOWER if own.time > middle else FASTER) if outside else INSIDE
            row |= {
                "verdict": verdict,
                "gate": gate(verdict, own.time - middle, far, slowdown) if outside else PASSED,
            }
        rows.append(row)
    return rows


def _too_few(rows: Sequence[Record]) -> list[str]:
    """Return sentences on the processors and cases that too few nodes have."""
    few: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["verdict"] == TOO_FEW:
            few.setdefault(row["machine"], {})[row["label"]] = row["others"] + 1
    return [
        f"{machine}: {', '.join(f'{label} on {number}' for label, number in cases.items())} "
        f"node{'' if max(cases.values()) == 1 else 's'}, and at least {LEAST_NODES} nodes of one "
        "processor with the same case are needed"
        for machine, cases in few.items()
    ]


def _text(record: Record, column: str) -> str:
    """Return a text, empty where it is missing."""
    value = record.get(column)
    return value if isinstance(value, str) else ""
