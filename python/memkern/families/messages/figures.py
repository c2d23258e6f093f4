"""Figure, tables and findings of messages between ranks, and their section of a report."""

from __future__ import annotations

from typing import Any

from memkern.families.messages.data import (
    FITTED,
    LATENCY,
    MEASURE,
    RATE,
    fits,
    messages,
)
from memkern.plots.kit import (
    BANDWIDTH,
    FIT_COLUMNS,
    QUANTITY,
    Axis,
    Curves,
    DataFrame,
    Finding,
    Measured,
    Records,
    Selection,
    best,
    by_machine,
    by_value,
    byte_scale,
    family_section,
    fit_rows,
    log_range,
    ordered,
    quantities,
    table,
    tabulated,
    tell,
)

_RANGE = log_range(1.5, 9, alike=False)
_WHERE = {
    "same rank": "to the rank itself",
    "same node": "on a node",
    "same node by TCP": "on a node, by TCP instead of shared memory",
    "other node": "between nodes",
}


@Curves(
    name="messages",
    x=Axis("size_B", "Size of a message", byte_scale),
    y={
        LATENCY: Axis(LATENCY, "Latency (µs)", _RANGE),
        RATE: Axis(RATE, "Messages per second", _RANGE),
        BANDWIDTH: Axis(BANDWIDTH, "Bandwidth (GB/s)", _RANGE),
    },
    layers=(Measured("series"),),
    panels=("machine", QUANTITY),
    columns=3,
    height=2.3,
    records="`messages` kernels",
    returns="Up to three panels for each machine, with a curve for each operation, distance and "
    "library, 6.9 in wide.",
)
def against_size(records: Records = None) -> Selection:
    """Latency, rate and bandwidth of messages between ranks against their size.

    Latency is measured with messages that are each complete before the next one starts; rate and
    bandwidth are totals of all origins with the window that gives the highest values.
    """
    frame, notes = messages(records, MEASURE)
    windows = ", ".join(f"{window:g}" for window in sorted(set(frame["window"])))
    frame = quantities(ordered(frame, "series", frame["series"].unique()), LATENCY, RATE, BANDWIDTH)
    # A bandwidth is a rate times the size.
    frame = best(frame, ("machine", QUANTITY, "series", "size_B"), value=RATE)
    return frame, [*notes, f"Windows: {windows}."]


@table(
    "messages",
    "platform, library, operation, distance, origins, size_B, window, latency_us (where the window "
    "is 1), messages_per_second and bandwidth_GBps (of all origins), disturbed",
    integers="origins, size_B, window",
    records="`messages` kernels",
)
def messages_table(records: Records = None) -> Selection:
    """Latency, rate and bandwidth of messages by operation, distance, size and window."""
    return messages(records, MEASURE)


@tabulated(
    "messages-fit",
    f"Columns {', '.join(FITTED)}, {FIT_COLUMNS}.",
    records="`messages` kernels of several sizes, with a window of 1",
)
def fit_table(records: Records = None) -> DataFrame:
    """Time of a message as T0 + B / Wmax, by operation and distance."""
    return fit_rows(fits(messages(records, MEASURE)[0]), FITTED)


def findings(records: DataFrame) -> list[str]:
    """Return the findings on every own machine, the most important first."""
    return by_machine(messages(records, "")[0], _on_machine)


def _on_machine(mine: DataFrame) -> list[str]:
    """Return the findings on one machine, by library and distance."""
    groups = mine.groupby(["library", "distance"], sort=False)
    return [sentence for _, rows in groups for sentence in tell(_ROWS, rows)]


def _of_each(rows: DataFrame, by: str, lowest: bool) -> list[dict[Any, Any]]:
    """Return the record of each operation with the lowest or highest `by`."""
    rows = rows.assign(
        name=rows["operation"].str.replace("_", "-"),
        where=rows["distance"].map(_WHERE),
        least_B=rows["size_B"].min(),
        most=rows["window"].max(),
    )
    order = rows.sort_values(by, ascending=lowest, kind="stable").drop_duplicates("name")
    found = by_value(order, "name")
    return [found[name] for name in rows["name"].unique()]


_ROWS = (
    Finding(
        "messages", lambda rows: _of_each(rows[rows["window"] == 1], "size_B", True),
        "Messages by {library} {where}, {least_B:B}, one at a time: {parts}.",
        "{name} {latency_us}",
    ),
    Finding(
        "messages", lambda rows: _of_each(rows[rows["window"] > 1], "size_B", True),
        "Messages by {library} {where}, {most:.0f} started together: {parts}.",
        "{name} {million_per_s}",
    ),
    Finding(
        "messages",
        lambda rows: _of_each(rows[rows["operation"] != "fetch_add"], BANDWIDTH, False),
        "Highest bandwidth of messages by {library} {where}: {parts}.",
        "{name} {bandwidth_GBps}",
    ),
)  # fmt: skip

_EXHIBITS: tuple[tuple[str, Any, str], ...] = (
    (
        "Messages between ranks against their size", against_size,
        "Latency: each message is complete before the next one; a put or get is complete when the "
        "target's memory has changed or the value has arrived; for send and receive, half of a "
        "round trip is drawn. Rate and bandwidth: of all origins, with the window that makes them "
        "highest. All axes are logarithmic.",
    ),
    (
        "Time of a message as T0 + B / Wmax", fit_table,
        "Of messages that are complete one after the other; intervals of 95 %. Where libraries "
        "change the protocol with the size, one line fits badly.",
    ),
    (
        "Messages in numbers", messages_table,
        "Latency where the window is 1; rate and bandwidth are of all origins.",
    ),
)  # fmt: skip

family_section("messages", 7, "messages", "Messages between ranks", findings, _EXHIBITS)
