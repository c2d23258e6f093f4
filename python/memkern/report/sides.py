"""Machines, weeks or builds of a report, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.machine.environment import machine_label
from memkern.plots import Exhibit, Section
from memkern.plots.frames import joined
from memkern.results.comparison import compare
from memkern.results.comparison_output import heading, summary

_COLUMNS = ("label", "quantity", "a", "b", "ratio", "low", "high", "verdict")


class Side(NamedTuple):
    """One of several machines, weeks or builds.

    Attributes
    ----------
    name : str
    results : ResultSet
    environment : mapping
    """

    name: str
    results: ResultSet
    environment: Mapping[str, Any]


def sides(results: Sequence[ResultSet], names: Sequence[str]) -> list[Side]:
    """Return results with their names and environments; equal names are numbered.

    Parameters
    ----------
    results : sequence of ResultSet
    names : sequence of str
    """
    apart = [
        f"{name} ({1 + names[:number].count(name)})" if names.count(name) > 1 else name
        for number, name in enumerate(names)
    ]
    return [
        Side(name, each, next(reversed([*each.environments.values()]), {}))
        for name, each in zip(apart, results, strict=True)
    ]


def named_apart(every: Sequence[Side]) -> list[Side]:
    """Return sides whose platforms have different names.

    The name of the side is added to the platforms that two sides have, so that their records are
    not taken for one machine's.
    """
    platforms = [{record.get("platform") for record in side.results} for side in every]
    sides_with = Counter(platform for names in platforms for platform in names)

    def named(side: Side) -> ResultSet:
        records = [
            {**record, "platform": _with_name(record["platform"], side.name)}
            if sides_with[record.get("platform")] > 1
            else record
            for record in side.results
        ]
        return ResultSet(records, side.results.samples, side.results.environments)

    return [side._replace(results=named(side)) for side in every]


def _with_name(platform: str, name: str) -> str:
    machine = machine_label(platform)
    return f"{machine} ({name}){platform[len(machine) :]}"


def comparison(every: Sequence[Side]) -> Section | None:
    """Return the section that compares the first side with each other one, None for one side.

    Parameters
    ----------
    every : sequence of Side
        With their records as measured.
    """
    first, *others = every
    findings, exhibits, remarks = [], [], []
    for other in others:
        try:
            frame = compare(first.results, other.results)
        except InputError as error:
            remarks.append(f"{first.name} and {other.name}: {error}.")
            continue
        about = "; ".join([*heading(frame), *frame.attrs["remarks"]])
        findings.append(f"A is {first.name}, B is {other.name}. {summary(frame)}.")
        exhibits.append(
            Exhibit(
                "compare",
                f"{first.name} (A) and {other.name} (B)",
                frame[[name for name in _COLUMNS if name in frame]],
                f"{about}." * bool(about),
            )
        )
    if not others:
        return None
    title = f"Comparison of {joined([side.name for side in every])}"
    return Section(title, tuple(findings), tuple(exhibits), tuple(remarks))
