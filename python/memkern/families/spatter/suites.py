"""The suites of Spatter's paper: uniform strides and 34 application patterns.

`cases` returns the cases of a suite. The other functions return their keyword arguments, one
dictionary for each case, as `memkern.inputs.spatter_files` does, plus the suite's name and the rule
for the count.

Source: Lavin et al., "Evaluating Gather and Scatter Performance on CPUs and GPUs", MEMSYS 2020,
section 5 and table 5.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from memkern import reference
from memkern.checks import INT64_MAX, shown, unknown
from memkern.errors import InputError
from memkern.inputs.patterns import Pattern, custom, uniform
from memkern.inputs.spatter_files import Config, configs_from_options
from memkern.spec import registry
from memkern.spec.case import Case

__all__ = [
    "STRIDES",
    "CountRule",
    "SuiteConfig",
    "apps",
    "cases",
    "footprint_count",
    "load",
    "names",
    "ustride",
]
__dir__ = __all__.copy  # public names only

STRIDES = (1, 2, 4, 8, 16, 32, 64, 128)
"""The strides of the uniform suites, in values."""

CountRule: TypeAlias = Literal["paper", "footprint"]
_Counter: TypeAlias = Callable[[str, Pattern, int], int]

_LENGTHS = {"cpu": 8, "gpu": 256}
_MERGED = {"cpu": 1, "gpu": 16}  # instances of an application's pattern in one of a case


class SuiteConfig(Config):
    """The keyword arguments of one case of a suite."""

    suite: str
    count_rule: CountRule


def footprint_count(pattern: Pattern, delta: int, footprint_B: float) -> int:
    """Return the count with which a case's sparse array fills a given memory.

    The sparse array has ``maximum index + |delta| (count - 1) + 1`` values of 8 bytes.  With a
    delta of 0 its size does not depend on the count; then the count is chosen so that the moved
    values, ``length * count``, would fill the memory.

    Parameters
    ----------
    pattern : Pattern
        The indices.
    delta : int
        Distance between consecutive bases in values, of either sign.
    footprint_B : float
        Bytes to fill.

    Returns
    -------
    int
        The largest count that fits, at least 1.

    Raises
    ------
    InputError
        If the pattern alone exceeds the memory, or `footprint_B` is not a positive number.
    """
    is_number = isinstance(footprint_B, numbers.Real) and not isinstance(footprint_B, bool)
    if not is_number or not 0 < footprint_B <= INT64_MAX:  # NaN fails both comparisons
        raise InputError(
            f"footprint_B must be a positive number of bytes, not {shown(footprint_B)}"
        )
    values = int(footprint_B) // 8
    first = max(len(pattern), pattern.maximum + 1) if delta == 0 else pattern.maximum + 1
    if values < first:
        raise InputError(
            f"footprint_B must be at least {8 * first}, the size of pattern {pattern}, not "
            f"{shown(footprint_B)}"
        )
    return values // len(pattern) if delta == 0 else (values - first) // abs(delta) + 1


def _published(kind: str, column: str) -> dict[tuple[str, str], int]:
    """Return (pattern, kernel) -> count or delta, the same on all platforms of a kind."""
    return {
        (row["pattern"], row["kernel"]): row[column]
        for row in reference.rows("lavin2020")
        if row["kind"] == kind
    }


def _counter(what: str, count_rule: CountRule, kind: str, footprint_B: float) -> _Counter:
    """Return the function (kernel, pattern, delta) -> count of a rule for a kind."""
    if kind not in _LENGTHS:
        raise InputError(f"kind of the {what} must be cpu or gpu, not {shown(kind)}")
    if count_rule == "paper":
        counts = _published(kind, "count")
        return lambda kernel, pattern, delta: counts[pattern.name, f"spatter.{kernel}"]
    if count_rule == "footprint":
        return lambda kernel, pattern, delta: footprint_count(pattern, delta, footprint_B)
    raise InputError(f"count_rule must be paper or footprint, not {shown(count_rule)}")


def _case(
    suite: str, kernel: str, pattern: Pattern, delta: int, count: _Counter, count_rule: CountRule
) -> SuiteConfig:
    config = configs_from_options(
        kernel=kernel,
        pattern=pattern,
        delta=delta,
        count=count(kernel, pattern, delta),
        name=pattern.name,
    ).configs[0]
    # Our stop rule, not Spatter's number of runs.
    return {**config, "runs": None, "suite": suite, "count_rule": count_rule}


def ustride(
    kind: str = "cpu", *, count_rule: CountRule = "footprint", footprint_B: float = 2e9
) -> list[SuiteConfig]:
    """Return the uniform strides 1 to 128, gathers first, then scatters.

    Parameters
    ----------
    kind : {"cpu", "gpu"}
        8 or 256 indices; the delta is length times stride, so that no element is reused.
    count_rule : {"footprint", "paper"}
        ``footprint`` fills `footprint_B` with the sparse array; with 2 GB these are the counts of
        Spatter's own CPU suite.  ``paper`` takes the published counts, which are the same on all
        platforms of a kind: 250 000 000 / stride on CPUs and 3 906 250 / stride on GPUs, rounded
        down, which need 16 GB and 8 GB for every stride.
    footprint_B : float
        Bytes, used by ``footprint``.

    Returns
    -------
    list of SuiteConfig
        16 cases of suite ``ustride``.

    Raises
    ------
    InputError
        If an argument is not one of these.
    """
    count = _counter("uniform strides", count_rule, kind, footprint_B)
    length = _LENGTHS[kind]
    return [
        _case("ustride", kernel, uniform(length, stride), length * stride, count, count_rule)
        for kernel in ("gather", "scatter")
        for stride in STRIDES
    ]


def apps(
    name: str | None = None,
    *,
    kind: str = "cpu",
    count_rule: CountRule = "footprint",
    footprint_B: float = 2e9,
) -> list[SuiteConfig]:
    """Return the application patterns of the paper's table 5, in its order.

    Parameters
    ----------
    name : str, optional
        An application (pennant, lulesh, nekbone, amg) or a pattern (such as PENNANT-G3), in any
        case; all 34 patterns if not given.
    kind : {"cpu", "gpu"}
        On GPUs 16 consecutive instances are merged: 256 indices, and 16 times the delta.  In the
        published GPU runs of LULESH-G1, G3 and G6 and NEKBONE-G1 and G2 the deltas were 1, 4, 1, 1
        and 5 instead of 8; ``paper`` uses these as well.
    count_rule : {"footprint", "paper"}
        ``footprint`` fills `footprint_B` with the sparse array (for LULESH-S3, whose delta is 0, it
        moves this number of bytes).  ``paper`` uses the published counts; these and the deltas are
        the same on all six CPU platforms.  PENNANT's counts are ``250 000 000 / (delta + 1)``,
        rounded down, so that the sparse array takes 1 to 2 GB and the largest deltas allow only a
        few hundred gathers, which move kilobytes in microseconds.  The counts of the other
        applications are from their traces, 72 270 to 1 454 647, with sparse arrays of 3 KB to
        63 MB.
    footprint_B : float
        Bytes, used by ``footprint``.

    Returns
    -------
    list of SuiteConfig
        Cases of the suites ``pennant``, ``lulesh``, ``nekbone`` and ``amg``.

    Raises
    ------
    InputError
        If an argument is not one of these.
    """
    count = _counter("applications", count_rule, kind, footprint_B)
    table = reference.rows("lavin2020-patterns")
    if name is not None:
        wanted = name.lower() if isinstance(name, str) else name
        table = [row for row in table if wanted in (row["suite"], row["pattern"].lower())]
        if not table:
            raise InputError(
                "name must be one of pennant, lulesh, nekbone, amg or a pattern such as "
                f"PENNANT-G3, not {shown(name)}"
            )
    merged = _MERGED[kind]
    deltas = _published(kind, "delta") if count_rule == "paper" else {}
    cases = []
    for row in table:
        kernel = row["kernel"].removeprefix("spatter.")
        delta = deltas.get((row["pattern"], row["kernel"]), merged * row["delta"])
        indices = [delta // merged * k + index for k in range(merged) for index in row["indices"]]
        pattern = custom(indices, row["pattern"])
        cases.append(_case(row["suite"], kernel, pattern, delta, count, count_rule))
    return cases


def names() -> list[str]:
    """Return the names that `load` takes."""
    return ["ustride-cpu", "ustride-gpu", "apps", "apps-gpu", "pennant", "lulesh", "nekbone", "amg"]


def load(
    name: str, *, count_rule: CountRule = "footprint", footprint_B: float = 2e9
) -> list[SuiteConfig]:
    """Return a suite by its name.

    Parameters
    ----------
    name : str
        One of `names`, in any case.
    count_rule : {"footprint", "paper"}
        As in `ustride` and `apps`.
    footprint_B : float
        Bytes, used by ``footprint``.

    Returns
    -------
    list of SuiteConfig
        The cases.

    Raises
    ------
    InputError
        If there is no such suite, or another argument is wrong.
    """
    known = name.lower() if isinstance(name, str) else None
    if known not in names():
        raise unknown(name, "suite", names())
    family, _, kind = known.partition("-")
    if family == "ustride":
        return ustride(kind, count_rule=count_rule, footprint_B=footprint_B)
    return apps(
        None if family == "apps" else family,
        kind=kind or "cpu",
        count_rule=count_rule,
        footprint_B=footprint_B,
    )


def cases(name: str, **options: Any) -> list[Case]:
    """Return the cases of a suite, ready for `memkern.sweep`.

    Parameters
    ----------
    name : str
        One of `names`, or of the suites of sparse matrices, in any case.
    **options
        `count_rule` and `footprint_B` as in `load`, and options of the cases.

    Returns
    -------
    list of Case

    Raises
    ------
    InputError
        If there is no such suite, or an option is unknown or wrong.
    """
    suite = registry.suite(name)
    return [suite.case(number, **options) for number in range(suite.size())]
