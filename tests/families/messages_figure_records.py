"""Records of figures of messages."""

from plotting import Family, common_columns

from memkern.families.messages.figures import findings

SIZES = [8 * 4**power for power in range(9)]

# T0 in seconds and Wmax in bytes per second.
LINES = {"put": (0.5e-6, 8e9), "get": (0.8e-6, 10e9), "send": (0.4e-6, 6e9)}

FARTHER = {"same node": 1.0, "other node": 4.0}


def record(what, size_B, window, distance="same node", machine="Own Machine 3000", **other):
    """Return one record with the columns that figures read."""
    t0, wmax = LINES.get(what, (0.6e-6, 1e10))
    message_s = (t0 / (1 if window == 1 else 8) + size_B / wmax) * FARTHER[distance]
    origins = other.get("origins", 1)
    rate = origins / message_s
    return {
        **common_columns(f"messages.{what}", 1, machine),
        "platform": f"{machine}, 1 thread a rank, 2 ranks",
        "backend": "mpi",
        "size_B": size_B,
        "window": window,
        "pairs": "node" if distance == "same node" else "other",
        "origins": origins,
        "distance": distance,
        "time_min_s": window * message_s,
        "messages_per_second": rate,
        "bandwidth_GBps": size_B * rate / 1e9,
    } | other


def everything(machine="Own Machine 3000", **other):
    """Return all operations at both distances, with windows of 1 and 64."""
    return [
        record(what, size, window, distance, machine, **other)
        for what in ("put", "get", "fetch_add", "send")
        for distance in FARTHER
        for size in (SIZES if what != "fetch_add" else [8])
        for window in (1, 64)
    ]


FAMILY = Family(
    section="messages",
    findings=findings,
    title="Messages between ranks",
    everything=everything,
    missing=[("messages", [record("put", 8, 1, valid=False)], {}, "no valid record of messages")],
    images=1,
    shown="T0_us",
    marked=("put 0.501 µs (disturbed)",),
)
