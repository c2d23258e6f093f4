"""Figures of energy over performance, and of the changes of speed and energy at lower clocks.

A Z-plot shows the energy of an invocation over its performance, with one line for each clock limit
that connects numbers of threads. The second figure compares each case with itself at the highest
clock, as Alappat et al. (2021) do for A64FX.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memkern.plots.kit import (
    GREY,
    Axes,
    DataFrame,
    Figure,
    InputError,
    Records,
    counted,
    curve,
    drawn,
    finish,
    first_note,
    frame_of,
    marked_look,
    need_rows,
    panels,
    plain,
    spaced,
    table_of,
    tabulated,
    typed,
    undisturbed,
    words,
)

_COLUMNS = ("energy_J", "time_median_s", "bandwidth_median_GBps", "threads", "clock_limit",
            "energy_per_byte_pJ", "power_W", "idle_power_W", "energy_delay_Js")  # fmt: skip
# Alappat et al. 2021, A64FX: change of speed and of energy in percent at a clock that is 9 % lower.
PUBLISHED_A64FX = (-2.7, -13.0)


def _metered(records: Records) -> DataFrame:
    """Return the valid records with energy.

    Raises
    ------
    InputError
        No valid record has energy.
    """
    frame = frame_of(records)
    texts = ("platform", "kernel", "variant", "pattern")
    frame = typed(frame.assign(**{t: "" for t in texts if t not in frame}), _COLUMNS, texts)
    if "valid" not in frame:
        raise InputError("energy is drawn from own records: name a file of results that have it")
    why = no_energy(frame)
    frame = frame[frame["valid"].eq(True) & (frame["energy_J"] > 0)]
    need_rows(frame, f"no record has energy: {why}")
    disturbed = frame["disturbed"].eq(True) if "disturbed" in frame else False
    return frame.assign(disturbed=disturbed)


def no_energy(frame: DataFrame) -> str:
    """Return the end of a sentence on why records have no energy: their note, or advice."""
    return first_note(frame, "energy_note") or (
        "measure where /sys/class/powercap or /sys/class/hwmon can be read (as root), or on a GPU "
        "with nvidia-ml-py"
    )


def _names(frame: DataFrame) -> DataFrame:
    """Add the name of each case without clock limit and threads."""
    variant = frame["variant"]
    if "variant_choice" in frame:
        # The fastest variant may depend on clock and threads.
        variant = variant.where(words(frame["variant_choice"]).eq("requested"), "")
    columns = [frame["kernel"], variant, frame["pattern"]]
    columns += [words(frame[name]) for name in ("matrix", "lattice", "layout") if name in frame]
    if "elements" in frame:
        sizes = typed(frame, ["elements"])["elements"]
        columns.append(sizes.map(lambda size: f"{spaced(size)} elements" if size == size else ""))
    parts = [", ".join(filter(None, row)) for row in zip(*columns, strict=True)]
    return frame.assign(case=parts)


@drawn(
    "energy",
    "A panel for each platform and case, at most six, 6.9 in wide.",
    records="Own records with energy, such as of ``--threads 1,2,4 --clock-limit 1500,2000``",
    lack="no record has energy",
)
def z_plot(records: Records = None) -> Figure:
    """Energy per byte over bandwidth, along threads, with a line for each clock limit."""
    frame = _names(_metered(records))
    frame = frame[frame["energy_per_byte_pJ"] > 0]
    need_rows(frame, "no record with energy moves bytes")
    frame = frame.assign(machine=frame["platform"].str.replace(r", \d+ threads?$", "", regex=True))
    cells = [rows for _, rows in frame.groupby(["machine", "case"], sort=False)]
    notes = [f"{counted(len(cells) - 6, 'further case')} left out."] if len(cells) > 6 else []
    fig, axes = panels(len(cells[:6]), 2, 2.6)
    for ax, rows in zip(axes, cells[:6], strict=True):
        limits = {float(limit) for limit in rows["clock_limit"].fillna(0.0)}
        # No limit first, then the highest clocks.
        for number, limit in enumerate(sorted(limits, key=lambda MHz: -(MHz or math.inf))):
            mine = rows[rows["clock_limit"].fillna(0.0) == limit]
            mine = mine.sort_values("threads").drop_duplicates("threads")
            label = f"{limit / 1000:.2f} GHz" if limit else "no clock limit"
            look = marked_look(number)
            curve(ax, mine, "bandwidth_median_GBps", "energy_per_byte_pJ", look, label, "threads")
        lowest = rows.sort_values("bandwidth_median_GBps").iloc[0]
        ax.annotate(
            counted(int(lowest["threads"]), "thread"),
            (lowest["bandwidth_median_GBps"], lowest["energy_per_byte_pJ"]),
            xytext=(5, 0),
            textcoords="offset points",
            fontsize=6,
            color=GREY,
        )
        ax.set(
            title=plain(rows["case"].iloc[0], 44),
            xlabel="Bandwidth (GB/s)",
            ylabel="Energy (pJ/B)",
            xlim=(0, None),
            ylim=(0, None),
        )
    notes.append("Lines run from few to many threads. Energy includes the idle power.")
    return finish(fig, 4, notes, frame)


@tabulated(
    "energy-clock",
    "Columns platform, case, threads, clock_limit (MHz), speed_percent and energy_percent "
    "(changes against the highest clock) and disturbed.",
    records="Own records with energy at several clock limits; 0 is the highest one",
    lack="no case was measured at two clock limits",
)
def clock_table(records: Records = None) -> DataFrame:
    """Speed and energy of each case at each clock limit, against the highest clock."""
    frame = _names(_metered(records))
    frame = frame.assign(clock_limit=frame["clock_limit"].fillna(0.0))
    rows = []
    for (platform, case, threads), cell in frame.groupby(
        ["platform", "case", "threads"], sort=False
    ):
        limits = cell.groupby("clock_limit")
        best = {float(str(limit)): undisturbed(mine).iloc[-1] for limit, mine in limits}
        top = best.pop(0.0 if 0.0 in best else max(best))
        for limit, row in best.items():
            speed = top["time_median_s"] / row["time_median_s"]
            rows.append(
                {
                    "platform": platform,
                    "case": case,
                    "threads": threads,
                    "clock_limit": limit,
                    "speed_percent": 100 * (speed - 1),
                    "energy_percent": 100 * (row["energy_J"] / top["energy_J"] - 1),
                    "disturbed": bool(row["disturbed"] or top["disturbed"]),
                }
            )
    return table_of(
        rows, "no case was measured at two clocks with energy: give --clock-limit a list"
    )


@drawn(
    "energy-clock",
    "One panel, 3.35 in wide, with the published change on A64FX by a clock lower by 9 %.",
    paper="alappat2021",
    number="figure 15",
    records="As of `clock_table`",
)
def clock_whiskers(records: Records = None) -> Figure:
    """Change of speed and of energy by a lower clock: range, quartiles and median of all cases."""
    table = clock_table(records)
    fig, (ax,) = panels(1, 2, 2.3)
    groups = {
        f"{float(str(limit)) / 1000:.2f} GHz": rows
        for limit, rows in table.groupby("clock_limit", sort=True)
    }
    whiskers(ax, groups, "A64FX,\nclock −9 %", PUBLISHED_A64FX)
    ax.set_ylabel("Change against the highest clock (%)")
    number = len(table[["platform", "case", "threads"]].drop_duplicates())
    return finish(fig, 2, whisker_notes(number), table)


def whiskers(
    ax: Axes, groups: Mapping[str, DataFrame], published: str, changes: Sequence[float]
) -> None:
    """Draw the changes of speed and energy of each group, and the published ones at the right.

    Parameters
    ----------
    ax : Axes
    groups : mapping
        By name, rows with speed_percent and energy_percent.
    published : str
        Name of the published changes.
    changes : (float, float)
        Published changes of speed and energy in percent.
    """
    for number, label in enumerate(("speed", "energy")):
        look = marked_look(number)
        positions = [2.5 * k + 0.8 * number for k in range(len(groups) + 1)]
        ax.boxplot(
            [rows[f"{label}_percent"].to_numpy() for rows in groups.values()],
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
            positions[-1], changes[number], marker="D", color=look.color, linestyle="none",
            markersize=4,
        )  # fmt: skip
    ax.set_xticks([2.5 * k + 0.4 for k in range(len(groups) + 1)], [*groups, published])
    ax.axhline(0, color=GREY, linewidth=0.9, zorder=1)


def whisker_notes(number: int) -> list[str]:
    """Return sentences that explain boxes, whiskers and diamonds, for this number of cases."""
    return [
        f"Boxes: quartiles, whiskers: range over {counted(number, 'case')}.",
        "Diamonds: published, Alappat et al. 2021.",
    ]
