"""Figures of energy over performance, and of the changes of speed and energy at lower clocks.

A Z-plot shows the energy of an invocation over its performance, with one line for each clock limit
that connects numbers of threads. The second figure compares each case with itself at the highest
clock, as Alappat et al. (2021) do for A64FX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memkern.plots.kit import (
    AMONG,
    GREY,
    NOTE_SIZE,
    Axis,
    Curves,
    DataFrame,
    Dots,
    Figure,
    Level,
    Measured,
    Panel,
    Records,
    Selection,
    concat,
    counted,
    drawn,
    finish,
    first_note,
    frame_of,
    marked_look,
    need_columns,
    need_rows,
    ordered,
    panels,
    plain,
    spaced,
    spread,
    table,
    typed,
)

_NUMBERS = ("energy_J", "time_median_s", "bandwidth_median_GBps", "threads", "clock_limit",
            "energy_per_byte_pJ", "elements", "prefetch")  # fmt: skip
_NAMES = ("kernel", "variant", "pattern", "matrix", "lattice", "layout")
# Settings of a case besides its threads and the clock.
_SETTINGS = ("pages", "prefetch", "variant")
# What stands for a column that the records lack.
_WORDS = {**dict.fromkeys(("platform", "pages", *_NAMES), ""), "variant_choice": "requested"}
# Alappat et al. 2021, A64FX: change of speed and of energy in percent at a clock that is 9 % lower.
PUBLISHED_A64FX = (-2.7, -13.0)


def _metered(records: Records) -> DataFrame:
    """Return the valid records with energy, and the name of each case without limit and threads.

    A clock_limit of 0 is none.

    Raises
    ------
    InputError
        No valid record has energy.
    """
    frame = frame_of(records)
    need_rows(frame, "energy is drawn from own records: name a file of results that have it")
    need_columns(frame, "valid", "threads")
    frame = frame.assign(**{name: word for name, word in _WORDS.items() if name not in frame})
    frame = typed(frame, _NUMBERS, tuple(_WORDS))
    why = no_energy(frame)
    frame = frame[frame["valid"].eq(True) & (frame["energy_J"] > 0)]
    need_rows(frame, f"no record has energy: {why}")
    # The fastest variant may depend on clock and threads.
    frame = frame.assign(
        clock_limit=frame["clock_limit"].fillna(0.0),
        disturbed=frame["disturbed"].eq(True) if "disturbed" in frame else False,
        variant=frame["variant"].where(frame["variant_choice"].eq("requested"), ""),
        size=frame["elements"].map(lambda n: f"{spaced(n)} elements" if n == n else ""),
    )
    parts = frame[[*_NAMES, "size"]].to_numpy()
    return frame.assign(case=[", ".join(filter(None, row)) for row in parts])


def no_energy(frame: DataFrame) -> str:
    """Return the end of a sentence on why records have no energy: their note, or advice."""
    return first_note(frame, "energy_note") or (
        "measure where /sys/class/powercap or /sys/class/hwmon can be read (as root), or on a GPU "
        "with nvidia-ml-py"
    )


def changes(rows: DataFrame, base: DataFrame, case: Sequence[str]) -> DataFrame:
    """Return cases and clock limits with their changes of speed and energy in percent.

    Parameters
    ----------
    rows, base : DataFrame
        Records with clock_limit, energy_J, time_median_s and disturbed, and those that they are
        compared with, at most one for each case.
    case : sequence of str
        Columns that are the same in both.
    """
    first, second = (
        frame[[*dict.fromkeys([*case, "clock_limit", "energy_J", "time_median_s", "disturbed"])]]
        for frame in (rows, base)
    )
    pairs = first.merge(second, on=[*case], suffixes=("", "_base"))
    return pairs.assign(
        speed_percent=100 * (pairs["time_median_s_base"] / pairs["time_median_s"] - 1),
        energy_percent=100 * (pairs["energy_J"] / pairs["energy_J_base"] - 1),
        disturbed=pairs["disturbed"] | pairs["disturbed_base"],
    )


def by_limit(frame: DataFrame, column: str, without: str) -> DataFrame:
    """Return records with their clock limits in words, the highest first.

    Parameters
    ----------
    frame : DataFrame
        With clock_limit in MHz, 0 for none.
    column : str
        The new column.
    without : str
        Words for no limit.
    """
    limits = sorted(set(frame["clock_limit"]), key=lambda MHz: -(MHz or math.inf))
    texts = {limit: f"{limit / 1000:.2f} GHz" if limit else without for limit in limits}
    return ordered(
        frame.assign(**{column: frame["clock_limit"].map(texts)}), column, texts.values()
    )


def _fewest_threads(panel: Panel) -> None:
    """Write the number of threads beside the record of the lowest bandwidth."""
    lowest = panel.rows.nsmallest(1, panel.x).iloc[0]
    panel.ax.annotate(
        counted(int(lowest["threads"]), "thread"),
        (lowest[panel.x], lowest[panel.y]),
        xytext=(5, 0),
        textcoords="offset points",
        fontsize=NOTE_SIZE,
        color=GREY,
    )


@Curves(
    name="energy",
    x=Axis("bandwidth_median_GBps", "Bandwidth (GB/s)"),
    y=Axis(
        "energy_per_byte_pJ", "Energy (pJ/B)", lambda ax, *_: ax.set(xlim=(0, None), ylim=(0, None))
    ),
    layers=(Measured("limit", along="threads"), _fewest_threads),
    panels=("machine", "case"),
    height=2.6,
    returns="A panel for each platform and case, at most six, 6.9 in wide.",
    records="Own records with energy, such as of ``--threads 1,2,4 --clock-limit 1500,2000``",
    lack="no record with energy moves bytes",
    measure="memkern loops -k triad --threads 1,2 -o energy.parquet",
)
def z_plot(records: Records = None) -> Selection:
    """Energy per byte over bandwidth, along threads, with a line for each clock limit."""
    frame = _metered(records)
    frame = frame[frame["energy_per_byte_pJ"] > 0]
    frame = frame.assign(
        machine=frame["platform"].str.replace(r", \d+ threads?$", "", regex=True),
        panel=frame["case"].map(lambda case: plain(case, 44)),
    )
    here = ["machine", "case"]
    frame = frame.drop_duplicates([*here, "clock_limit", "threads"])
    number = frame.groupby(here, sort=False).ngroup()
    left = max(number, default=0) - 5
    notes = [f"{counted(left, 'further case')} left out."] * (left > 0)
    notes.append("Lines run from few to many threads. Energy includes the idle power.")
    return by_limit(frame[number < 6], "limit", "no clock limit"), notes


@table(
    "energy-clock",
    "platform, case, threads, clock_limit (MHz), speed_percent and energy_percent (changes against "
    "the highest clock), disturbed",
    records="Own records with energy at several clock limits; 0 is the highest one",
    lack="no case was measured at two clock limits",
)
def clock_table(records: Records = None) -> Selection:
    """Speed and energy of each case at each clock limit, against the highest clock."""
    case = ["platform", "case", "threads"]
    frame = _metered(records)
    # Of a case and limit, the last record, and an undisturbed one where there is any.
    order = frame.assign(
        number=frame.groupby(case, sort=False).ngroup(),
        highest=frame["clock_limit"].replace(0.0, math.inf),
    ).sort_values(["number", "highest", "disturbed"], ascending=[True, True, False], kind="stable")
    each = order.drop_duplicates([*case, "clock_limit"], keep="last")
    top = ~each.duplicated(case, keep="last")
    need_rows(
        each[~top], "no case was measured at two clocks with energy: give --clock-limit a list"
    )
    return changes(each[~top], each[top], case), []


@drawn(
    "energy-clock",
    "One panel, 3.35 in wide, with the published change on A64FX by a clock lower by 9 %.",
    paper="alappat2021",
    number="figure 15",
    records="As of `clock_table`",
)
def clock_whiskers(records: Records = None) -> Figure:
    """Change of speed and of energy by a lower clock: range, quartiles and median of all cases."""
    rows = by_limit(clock_table(records).sort_values("clock_limit"), "name", "")
    return whiskers(
        rows,
        "name",
        ("A64FX,\nclock −9 %", PUBLISHED_A64FX),
        "Change against the highest clock (%)",
        [],
        len(rows.drop_duplicates(["platform", "case", "threads"])),
    )


@Dots(
    name="energy-knobs",
    value=Axis("ratio", "Relative to the first setting"),
    by="kind",
    panels=("platform",),
    columns=1,
    height=0.3,
    marks=(("least and most of the cases", "least", "|"), ("_most", "most", "|")),
    around=(0.5, 2.0),
    layers=(Level(1.0, upright=True),),
    title=lambda rows, _: plain(rows["platform"].iloc[0]),
    returns="A panel for each platform, 6.9 in wide: rows of settings, with the medians of speed "
    "and of energy.",
    records="Own records with energy, of the same cases with other pages, prefetches or variants",
    lack="no case with energy was measured with two pages, prefetch distances or variants",
    measure="memkern stream -k triad --pages 4k,thp -o energy.parquet",
)
def by_setting(records: Records = None) -> Selection:
    """Speed and energy of cases by pages, prefetch or variant, relative to the first of them.

    The records of a case differ in one of these settings alone; the first in the records is what
    the others are compared with.
    """
    frame = _metered(records).fillna({"prefetch": 0.0})
    every = dict.fromkeys(("platform", "threads", "clock_limit", "size", *_NAMES, *_SETTINGS))
    parts = []
    for setting in _SETTINGS:
        same = [name for name in every if name != setting]
        pairs = frame.merge(frame.drop_duplicates(same), on=same, suffixes=("", "_first"))
        pairs = pairs[pairs[setting] != pairs[f"{setting}_first"]].assign(setting=setting)
        values = pairs[[setting, f"{setting}_first"]].map(lambda x: x if x == str(x) else f"{x:g}")
        row = setting + " " + values[setting] + ", not " + values[f"{setting}_first"]
        parts.append(pairs.assign(row=row))
    pairs = concat(parts, ignore_index=True)
    pairs["disturbed"] |= pairs["disturbed_first"].astype(bool)
    speed = pairs["time_median_s_first"] / pairs["time_median_s"]
    energy = pairs["energy_J"] / pairs["energy_J_first"]
    by = ["platform", "row", "kind"]
    both = [pairs.assign(kind=kind, ratio=ratio) for kind, ratio in
            (("speed", speed), ("energy", energy))]  # fmt: skip
    found = spread(concat(both, ignore_index=True), by, "ratio")
    return found.sort_values("setting", kind="stable"), ["Energy includes the idle power."]


def whiskers(
    rows: DataFrame,
    by: str,
    published: tuple[str, Sequence[float]],
    ylabel: str,
    notes: Sequence[str],
    cases: int,
) -> Figure:
    """Draw range, quartiles and median of changes, and the published changes at the right.

    Parameters
    ----------
    rows : DataFrame
        As of `changes`.
    by : str
        Column with a group for each of its values.
    published : (str, (float, float))
        Name of the published changes of speed and energy, and these in percent.
    ylabel : str
    notes : sequence of str
        Small print before that on boxes.
    cases : int
        Number of different cases.
    """
    fig, (ax,) = panels(1, 2, 2.3)
    groups = [(str(name), mine) for name, mine in rows.groupby(by, sort=False)]
    for number, label in enumerate(("speed", "energy")):
        look = marked_look(number)
        positions = [2.5 * k + 0.8 * number for k in range(len(groups) + 1)]
        ax.boxplot(
            [mine[f"{label}_percent"].to_numpy() for _, mine in groups],
            positions=positions[:-1],
            whis=(0, 100),
            widths=0.6,
            medianprops={"color": look.color, "linewidth": 1.6},
            boxprops={"color": look.color},
            whiskerprops={"color": look.color},
            capprops={"color": look.color},
        )
        ax.plot([], [], color=look.color, linewidth=1.6, label=label)
        ax.plot(
            positions[-1], published[1][number], marker="D", color=look.color, linestyle="none",
            markersize=4,
        )  # fmt: skip
    ticks = [2.5 * k + 0.4 for k in range(len(groups) + 1)]
    ax.set_xticks(ticks, [*(name for name, _ in groups), published[0]])
    ax.set_ylabel(ylabel)
    ax.axhline(0, color=GREY, linewidth=0.9, zorder=1)
    boxes = f"Boxes: quartiles, whiskers: range over {counted(cases, 'case')}."
    return finish(fig, 2, [*notes, boxes, "Diamonds: published, Alappat et al. 2021."], rows, AMONG)
