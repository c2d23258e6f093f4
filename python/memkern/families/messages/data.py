"""Records of messages that figures draw and findings compare, and the time of an exchange.

If a case has several records, the one with the most messages per second is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from memkern.backends import LIBRARIES
from memkern.plots.kit import (
    DataFrame,
    Fits,
    InputError,
    Records,
    best,
    line_fits,
    prevailing,
    select,
    words,
)

RATE = "messages_per_second"
LATENCY = "latency_us"
MILLIONS = "million_per_s"
MEASURE = "memkern messages --device mpi -o messages.parquet"

_OPERATIONS = ("put", "get", "fetch_add", "send")
# Without shared memory the messages of a node have the times of its network.
_BY_TCP = "same node by TCP"
_DISTANCES = ("same rank", "same node", _BY_TCP, "other node")
# Longest time of a message of one cache line through shared memory, between sockets.
_MOST_US = 4.0
_NUMBERS = ("size_B", "window", "origins", "time_min_s")
_WORDS = ("pairs", "distance", "backend")
FITTED = ("machine", "library", "operation", "distance")


def messages(records: Records, measure: str) -> tuple[DataFrame, list[str]]:
    """Return the valid records of messages, and notes on the others.

    Parameters
    ----------
    records : DataFrame, ResultSet or None
        Own records.
    measure : str
        Command that measures such records. If it is empty, no record is no error.

    Returns
    -------
    frame : DataFrame
        The columns of the records and machine, library, operation, message_s (seconds of an origin
        for a message, by the shortest time), latency_us (the same in microseconds for a window of
        1, else NaN), million_per_s and series (the name of a curve); distance tells whether ranks
        on a node have exchanged messages by TCP. For each machine and distance
        one number of origins is used, and the fastest record of each size and window; sorted by
        operation and distance.
    notes : list of str
        Sentences on the records left out.

    Raises
    ------
    InputError
        There is no such record, or a column is missing.
    """
    frame, notes = select(
        records, ["messages"], numbers=(*_NUMBERS, RATE), texts=_WORDS, measure=measure, value=RATE
    )
    # Ranks of several nodes also have shared memory.
    transport = words(frame["comm_transport" if "comm_transport" in frame else "distance"])
    by_tcp = transport.str.contains("^(?!.*shared memory).*TCP$") & (
        frame["distance"] == "same node"
    )
    frame = frame.assign(distance=frame["distance"].mask(by_tcp, _BY_TCP))
    where = ["machine", "backend", "distance"]
    frame, left = prevailing(frame, ("origins",), per=where, count=("kernel", "size_B", "window"))
    frame = best(frame, [*where, "kernel", "size_B", "window"], value=RATE)
    message_s = frame["origins"] / frame[RATE]
    frame = frame.assign(
        library=frame["backend"].map(LIBRARIES),
        operation=frame["kernel"].str.removeprefix("messages."),
        message_s=message_s,
        latency_us=(1e6 * message_s).where(frame["window"] == 1),
        million_per_s=1e-6 * frame[RATE],
    )
    order = [*_OPERATIONS, *_DISTANCES, *LIBRARIES.values()]
    frame = frame.sort_values(
        ["operation", "distance", "library"],
        key=lambda column: column.map(order.index),
        kind="stable",
    )
    # Of one cache line, with a window of 1.
    if (
        longest := frame.query("distance == 'same node' and size_B <= 64")[LATENCY].max()
    ) > _MOST_US:
        left.append(
            f"{longest:.3g} us within a node are not explained by shared memory: another transport "
            "(column comm_transport), or ranks that share processing units"
        )
    several = [name for name in ("distance", "library") if frame[name].nunique() > 1]
    series = frame["operation"].str.replace("_", "-").str.cat(frame[several], sep=", ")
    return frame.assign(series=series), [*notes, *left]


def fits(frame: DataFrame) -> Fits:
    """Fit the time of a message of each operation and distance, with a window of 1.

    `frame` is as of `messages`; the names of the fits are the columns in `FITTED`.
    """
    rows = frame[(frame["window"] == 1) & (frame["operation"] != "fetch_add")]
    points = rows[[*FITTED, "size_B", "message_s", "valid", "disturbed"]].rename(
        columns={"size_B": "bytes_B", "message_s": "time_s"}
    )
    return line_fits(points, FITTED)


def halo_time(
    halo: Mapping[str, tuple[float, float]], records: Records, machine: str = ""
) -> float:
    """Return the predicted seconds of an exchange between neighbours.

    A rank receives one message from each neighbour, one after the other, each in the time
    ``T0 + B / Wmax`` of an MPI send over this distance. Packing and unpacking are not included.

    Parameters
    ----------
    halo : mapping of str to (float, float)
        By distance (``same node`` or ``other node``), the number of neighbours of a rank, and the
        bytes that it receives from all of them.
    records : DataFrame or ResultSet
        Records of MPI sends with a window of 1, in several sizes, over each of these distances.
    machine : str
        Machine whose records are used; required if the records are from several machines.

    Returns
    -------
    float

    Raises
    ------
    InputError
        There are no such records for one of the distances, or they are from several machines.

    Notes
    -----
    The messages of the records are sent from buffers in the caches, between ranks that wait for
    each other. An exchange within a kernel takes longer if its values are in memory, because of
    packing, and because ranks wait for each other: six times as long in a sparse product from
    memory, in which the exchange takes 2 % of the time.
    """
    frame, _ = messages(records, MEASURE)
    machines = list(dict.fromkeys(frame["machine"]))
    if machine and machine not in machines:
        raise InputError(f"no record of messages is of {machine!r}, only of {', '.join(machines)}")
    if not machine and len(machines) > 1:
        raise InputError(f"the messages are of {' and '.join(machines)}: choose one as machine")
    found = fits(frame)
    seconds = 0.0
    for distance, (neighbours, received_B) in halo.items():
        if neighbours:
            fit = found.get((machine or machines[0], "MPI", "send", distance))
            if fit is None:
                raise InputError(
                    f"the time of a send to the {distance} is unknown: measure several sizes by "
                    f"`{MEASURE}`"
                )
            seconds += neighbours * max(fit.t0_s, 0.0) + received_B / (1e9 * fit.wmax_GBps)
    return seconds
