"""Records of figures of transfers."""

from plotting import Family, common_columns

from memkern.families.transfers.figures import findings

SIZES = [8 * 4**power for power in range(14)]

# T0 in seconds and Wmax in bytes per second, by memory and variant.
LINES = {
    ("pinned", "copy"): (5e-6, 50e9),
    ("pageable", "copy"): (8e-6, 12e9),
    ("managed", "prefetch"): (20e-6, 40e9),
    ("managed", "touch"): (50e-6, 8e9),
    ("device", "direct"): (10e-6, 200e9),
    ("device", "staged"): (20e-6, 30e9),
}

DIRECTIONS = {"to_device": 1, "from_device": 1, "both": 2, "between": 1}


def record(way, memory, variant, size_B, machine="Own Machine 3000", **other):
    """Return one record with the columns that figures read."""
    t0, wmax = LINES[memory, variant]
    moved = DIRECTIONS[way] * size_B
    seconds = t0 + moved / wmax
    return {
        **common_columns(f"transfers.{way}", 1, machine),
        "platform": machine,
        "backend": "cuda",
        "dtype": "uint64",
        "memory": memory,
        "variant": variant,
        "size_B": size_B,
        "bytes_B": moved,
        "time_min_s": seconds,
        "bandwidth_GBps": moved / seconds / 1e9,
    } | other


def everything(machine="Own Machine 3000", **other):
    """Return all directions with all memories that they have."""
    return [
        record(way, memory, variant, size, machine, **other)
        for way in DIRECTIONS
        for memory, variant in LINES
        if (memory == "device") == (way == "between")
        for size in SIZES
    ]


FAMILY = Family(
    section="transfers",
    findings=findings,
    title="Transfers from and to a GPU",
    everything=everything,
    missing=[
        (
            "transfers", [record("both", "pinned", "copy", 8, valid=False)], {},
            "no valid record of transfers",
        )
    ],
    images=1,
    shown="T0_us",
)  # fmt: skip
