"""Sentences of a report on the validity, the disturbance and the intervals of its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memkern.models.machine_reading import machine_of
from memkern.models.memory import contradictions
from memkern.models.roofline import BESIDE
from memkern.plots.frames import counted, joined
from memkern.report.tables import Table, table_of
from memkern.results.hosts import host_sentence
from memkern.statistics import half_width

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_MOST_CONTRADICTIONS = 12
# Largest share of disturbed records on a quiet machine.
_QUIET = 0.05

_FEW_PLACEMENTS = 5  # in which a record tells little of the next run


def distinct(frame: DataFrame, column: str) -> list[str]:
    """Return the distinct values of a column as text; none if there is no such column."""
    return [str(value) for value in frame[column].dropna().unique()] if column in frame else []


def quality(frame: DataFrame) -> list[str]:
    """Return sentences on validity, the host, disturbance and intervals."""
    sentences = []
    if "valid" in frame:
        wrong = int((~frame["valid"].eq(True)).sum())
        sentences.append(
            f"{wrong} of {counted(len(frame), 'record')} failed validation; "
            "they are in no figure and in no finding."
            if wrong
            else f"All {counted(len(frame), 'record')} passed validation."
        )
    if "validation" in frame:
        kinds = frame["validation"].dropna().value_counts()
        parts = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
        sentences += [f"Methods of validation: {parts}."] if parts else []
    if "disturbed" in frame:
        disturbed = int(frame["disturbed"].eq(True).sum())
        sentences.append(
            f"{counted(disturbed, 'record')} {'is' if disturbed == 1 else 'are'} disturbed"
            f"{', drawn with hollow markers and left out of fits' if disturbed else ''}."
        )
    host = host_sentence(frame.to_dict("records"))
    sentences += [f"{host[0].upper()}{host[1:]}."] if host else []
    return [*sentences, *_placements(frame), *_samples(frame), *_intervals(frame)]


def machine_files(frame: DataFrame, machine: str, models: Sequence[str]) -> list[str]:
    """Return the sentences on the machine files of rooflines and of predictions in figures."""
    texts = [
        f"bandwidths {name} them" if name == BESIDE else name
        for name in distinct(frame, "machine_file")
        if name
    ]
    found = [f"The rooflines of records are by {joined(texts)}."] if texts else []
    if machine:
        found.append(
            f"Predictions in figures are by the machine file {machine_of(machine, models).label}."
        )
    return found


def disagreements(frame: DataFrame) -> list[str]:
    """Return the contradictions between the valid records of a machine."""
    return [*contradictions(frame[frame["valid"].eq(True)] if "valid" in frame else frame)]


def shortened(against: Sequence[str]) -> list[str]:
    """Return at most `_MOST_CONTRADICTIONS` sentences, and the number of the others."""
    more = len(against) - _MOST_CONTRADICTIONS
    return [*against[:_MOST_CONTRADICTIONS], *[f"And {more} more."] * (more > 0)]


def _numbers(frame: DataFrame, column: str) -> Series:
    """Return the numbers in a column; empty if the column is missing."""
    from pandas import Series, to_numeric

    if column not in frame:
        return Series(dtype=float)
    return to_numeric(frame[column], errors="coerce").dropna().astype(float)


def _samples(frame: DataFrame) -> list[str]:
    """Return sentences on disturbed samples, and on the smallest share of a processor or core."""
    retaken = _numbers(frame, "samples_disturbed")
    number = int(retaken.sum())
    text = (
        f"{counted(number, 'sample')} {'was' if number == 1 else 'were'} disturbed and retaken, in "
        f"addition to {_numbers(frame, 'samples').sum():.0f} that count."
    )
    sentences = [text] if len(retaken) else []
    shares = {
        "its processor (cpu_share)": _numbers(frame, "cpu_share"),
        "its core (core_share)": _numbers(frame, "core_share"),
    }
    least = [f"{values.min():.1%} of {of}" for of, values in shares.items() if len(values)]
    sentences += [f"In the worst record a worker had {joined(least)}."] if least else []
    return sentences


def _placements(frame: DataFrame) -> list[str]:
    """Return the sentence on records with few placements, and the reasons."""
    placed = _numbers(frame, "placements")
    few = placed[placed < _FEW_PLACEMENTS]
    if few.empty:
        return []
    wanted = _numbers(frame, "placements_requested").reindex(few.index)
    fewer, lost = int((wanted < _FEW_PLACEMENTS).sum()), int((wanted >= _FEW_PLACEMENTS).sum())
    reasons = {
        f"{fewer} since no more were requested (--quick, --runs or a GPU)": fewer,
        f"{lost} since time was short or placements were disturbed": lost,
    }
    return [
        f"{len(few)} of {counted(len(frame), 'record')} "
        f"{'has' if len(few) == 1 else 'have'} fewer than {_FEW_PLACEMENTS} placements"
        f"{''.join(f', {text}' for text, number in reasons.items() if number)}: "
        f"{'its interval is' if len(few) == 1 else 'their intervals are'} less certain."
    ]


# Meaning of the interval of a record, by its column ci_scope.
_SCOPES = {
    "next run": "for the next run",
    "within this run": "within this run only",
    "none": "for no runs: these records show no interval",
}


def _intervals(frame: DataFrame) -> list[str]:
    """Return sentences on the meaning and the width of the intervals."""
    sentences = []
    if "ci_scope" in frame:
        parts = [
            f"of {counted(number, 'record')} {_SCOPES.get(str(scope), str(scope))}"
            for scope, number in frame["ci_scope"].dropna().value_counts().items()
        ]
        sentences += [f"The intervals are valid, {joined(parts)}."] if parts else []
    widths = {
        "the interval of the shortest time": _numbers(frame, "time_min_ci_relative"),
        "the interval of the median": _numbers(frame, "ci_relative"),
        "the interval within the run": _numbers(frame, "within_ci_relative"),
    }
    parts = [
        f"of {what} is {half_width(half.median(), '{}%')} of the value in the median record "
        f"and {half_width(half.max(), '{}%')} in the widest"
        for what, half in widths.items()
        if len(half)
    ]
    return [*sentences, f"Half the width {joined(parts)}."] if parts else sentences


def cautions(frame: DataFrame, left_out: int, beside: str) -> list[str]:
    """Return the warnings about how the records of a report were measured."""
    disturbed = int(frame["disturbed"].eq(True).sum()) if "disturbed" in frame else 0
    rows = (
        (beside, f"When measuring began, {beside} also ran on this machine."),
        (
            disturbed > _QUIET * len(frame),
            f"{disturbed} of {counted(len(frame), 'record')} "
            f"{'is' if disturbed == 1 else 'are'} disturbed, since workers waited for processors: "
            "such a record has no interval, is drawn with hollow markers and counts only where "
            "there is no undisturbed one. Measure again when nothing else runs.",
        ),
        (
            left_out,
            f"{counted(left_out, 'case')} {'was' if left_out == 1 else 'were'} not measured: the "
            "time of the report did not suffice for three placements.",
        ),
    )
    return [text for holds, text in rows if holds]


def failed(frame: DataFrame) -> Table | None:
    """Return the table of the records that failed validation, if there are any."""
    if "valid" not in frame or frame["valid"].eq(True).all():
        return None
    columns = ("kernel", "pattern", "variant", "isa", "threads", "validation", "error_max")
    rows = frame[~frame["valid"].eq(True)]
    return table_of(rows[[column for column in columns if column in rows]])
