"""Compare the latency beside generators that hardly make traffic with that of the plain chase.

Both have the same lines, pages and units and are measured in turns::

    python bench/idle_beside_traffic.py --turns 7

A ratio is the time beside the generators over that of the plain chase; 1 should be in its interval.
"""

from __future__ import annotations

import argparse

import numpy as np
from peers import rotated, valid_record, with_interval

import memkern as mk
from memkern.statistics import ratio_interval

# Multiplications after every 8 lines, some ten microseconds, and so many loads of an invocation
# that a generator's last pause, for which its end waits, is a negligible part of it.
PAUSE, STEPS = 2**15, 2**21


def main() -> None:
    """Print both latencies, the traffic and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--size", default="256MiB", help="of the buffer (256MiB)")
    args = parser.parse_args()
    how = {"pages": "4k", "pin": "compact", "steps": STEPS, "size_B": args.size}
    cases = {
        "plain": mk.case("latency.chase", **how),
        "beside": mk.case("latency.loaded", pause=PAUSE, **how),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    traffic = []
    for turn in range(args.turns):
        for name in rotated(list(cases), turn):
            record = valid_record(cases[name], name)
            found[name].append(record["ns_per_access"])
            traffic += [record["traffic_GBps"]] if name == "beside" else []
    ratio = ratio_interval(found["beside"], found["plain"], paired=True)
    plain, beside = (np.median(found[name]) for name in ("plain", "beside"))
    print(
        f"plain {plain:.2f} ns, beside {np.median(traffic):.3f} GB/s {beside:.2f} ns, ratio "
        f"{with_interval(ratio)}"
    )


if __name__ == "__main__":
    main()
