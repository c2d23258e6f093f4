"""The experiments that explain times, and the section of a report on them."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from memkern.plots.kit import (
    GREY,
    NOTE_SIZE,
    Axes,
    DataFrame,
    Figure,
    Records,
    Section,
    Selection,
    drawn,
    legend_above,
    named,
    need_rows,
    new_table,
    note,
    other_look,
    panels,
    rows_of,
    section,
    section_of,
    table,
    three_figures,
    validated,
)
from memkern.results.explanation import EXPLAINED, Explanation
from memkern.spec.experiments import LEFT, LEVEL, LIMIT, MODEL, TRIED, WITHOUT

_MEASURE = "memkern stream -k triad --explain -o why.parquet"
# Most records that are drawn, and the longest time relative to a case that fits in a panel.
_MOST, _LONGEST = 8, 2.0
_TITLE = 52  # characters of a line of a panel's title
_ROLES = {
    LEVEL: "data in a cache",
    WITHOUT: "without a cause",
    LEFT: "nothing but one cause",
    LIMIT: "a limit",
    TRIED: "options",
    MODEL: "a prediction",
}


def _explained(records: Records) -> tuple[list[tuple[dict[str, Any], Explanation]], list[str]]:
    """Return the valid records with explanations, and notes on the others."""
    lack = f"no record was explained: `{_MEASURE}` does so"
    frame, notes = validated(records, None, [])
    need_rows(frame, lack)
    rows = ((record, Explanation.of_record(record)) for record in rows_of(frame))
    found = [(record, one) for record, one in rows if one is not None]
    need_rows(found, lack)
    return found, notes


@table(
    "explanation",
    "platform, kernel, case_id, name (the experiment), role, cause, option, ratio (the time over "
    "that of the case, for the same bytes), low, high, rounds",
    integers="rounds",
    records="Own records of kernels that were explained (``--explain``)",
)
def explanation_table(records: Records = None) -> Selection:
    """Experiments that explain times, with their times relative to the case."""
    explained, notes = _explained(records)
    rows = [
        {
            **{name: record[name] for name in ("platform", "kernel", "case_id")},
            **{**one._asdict(), "low": one.low, "high": one.high},
        }
        for record, explanation in explained
        for one in explanation.tried
    ]
    return new_table(rows), notes


@drawn(
    "explanation",
    f"A panel for each of at most {_MOST} records, 6.9 in wide, 3.35 in with one panel.",
    records="Own records of kernels that were explained (``--explain``)",
)
def explanation_bars(records: Records = None) -> Figure:
    """Time of each experiment that explains a case, relative to the case."""
    every, notes = _explained(records)
    shown = every[:_MOST]
    fig, axes = panels(len(shown), 2, 0.8 + 0.17 * max(len(one.tried) for _, one in shown))
    for ax, (record, one) in zip(axes, shown, strict=True):
        _bars(ax, one)
        ax.set_title(f"{named(record['kernel'])}\n{fill(one.first[0], _TITLE)}")
    legend_above(fig, 3)
    left_out = [f"{len(every) - _MOST} further records are not drawn."] * (len(every) > _MOST)
    note(
        fig,
        [*notes, *left_out, "Lines: 95 % intervals. Dashed: the case; dotted: its nearest limit."],
    )
    return fig


def _bars(ax: Axes, one: Explanation) -> None:
    """Draw a bar for each experiment, from top to bottom."""
    for number, (role, label) in enumerate(_ROLES.items()):
        mine = [(y, row) for y, row in enumerate(one.tried) if row.role == role]
        ax.barh(
            [y for y, _ in mine],
            [min(row.ratio, _LONGEST) for _, row in mine],
            color=other_look(number).color,
            height=0.7,
            label=label if mine else f"_{label}",
        )
    for y, row in enumerate(one.tried):
        ends = [min(end, _LONGEST) for end in (row.low, row.high)]
        ax.plot(ends, [y, y], color="black", linewidth=0.8)
        text = three_figures(row.ratio) + (" →" if row.ratio > _LONGEST else "")
        ax.annotate(
            text,
            (max(ends[1], min(row.ratio, _LONGEST)), y),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=NOTE_SIZE,
            color=GREY,
        )
    ax.axvline(1.0, color=GREY, linestyle="--", linewidth=0.8)
    if one.limit is not None:
        ax.axvline(one.limit.share, color=GREY, linestyle=":", linewidth=0.8)
    ax.set_yticks(range(len(one.tried)), [row.name for row in one.tried])
    ax.set(xlim=(0, 1.15 * _LONGEST), ylim=(len(one.tried) - 0.4, -0.6))
    ax.set_xlabel("Time relative to the case")
    ax.grid(False, axis="y")


def explanations(records: Records) -> list[str]:
    """Return the sentences on each record that was explained."""
    every, _ = _explained(records)
    return [f"{record['kernel']}: {'; '.join(one.sentences)}." for record, one in every]


_EXHIBITS = (
    ("Experiments in turns with each case", explanation_bars, ""),
    ("Experiments in numbers", explanation_table, "Ratios are times over that of the case."),
)


@section("why", 0)
def report_section(records: DataFrame) -> Section | None:
    """Return the section on the explained records; none without any."""
    if EXPLAINED not in records or not (records[EXPLAINED].fillna("") != "").any():
        return None
    return section_of(records, "Why: what the times are made of", explanations, _EXHIBITS)
