"""Time of an exchange between neighbours, from the times of single messages.

A rank receives one message from each neighbour, one after the other, each in the time
``T0 + B / Wmax`` of an MPI send over this distance. Packing and unpacking are not included.
"""

from __future__ import annotations

from collections.abc import Mapping

from memkern.errors import InputError
from memkern.families.messages.data import MEASURE, fits, messages
from memkern.plots.frames import Records

__all__ = ["halo_time"]


def halo_time(
    halo: Mapping[str, tuple[float, float]], records: Records, machine: str = ""
) -> float:
    """Return the predicted seconds of an exchange between neighbours.

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
    found, _ = fits(frame)
    sends = (machine or machines[0], "MPI", "send")
    links = {distance: fit for (*of, distance), fit in found.items() if tuple(of) == sends}
    seconds = 0.0
    for distance, (neighbours, received_B) in halo.items():
        if not neighbours:
            continue
        if distance not in links:
            raise InputError(
                f"the time of a send to the {distance} is unknown: measure several sizes by "
                f"`{MEASURE}`"
            )
        fit = links[distance]
        seconds += neighbours * max(fit.t0_s, 0.0) + received_B / (1e9 * fit.wmax_GBps)
    return seconds
