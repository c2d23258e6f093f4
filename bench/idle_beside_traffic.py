"""Compare the latency with generators that make almost no traffic and without generators.

Both have the same lines, pages and units and are measured in turns::

    python bench/idle_beside_traffic.py --turns 7

A ratio is the time with generators over the time of the plain chase; its interval should contain 1.
"""

import numpy as np
from peers import in_turns, valid_record
from records import Row, add, interval, options, parsed, write

import memkern as mk
from memkern.statistics import ratio_interval

# Multiplications after every 8 lines (tens of microseconds), and loads of an invocation, enough for
# a generator's last pause, which delays its end, to be negligible.
PAUSE, STEPS = 2**15, 2**21


def main() -> None:
    """Print and write both latencies, the traffic and the ratio."""
    parser = options(__doc__, turns=7)
    parser.add_argument("--size", default="256MiB", help="of the buffer (256MiB)")
    args = parsed(parser)
    how = {"pages": "4k", "pin": "compact", "steps": STEPS, "size_B": args.size}
    cases = {
        "plain": mk.case("latency.chase", **how),
        "beside": mk.case("latency.loaded", pause=PAUSE, **how),
    }
    records = in_turns(cases, args.turns, lambda name, _: valid_record(cases[name], name))
    plain, beside = ([one["ns_per_access"] for one in some] for some in records.values())
    traffic = np.median([one["traffic_GBps"] for one in records["beside"]])
    row = {"plain, ns": np.median(plain), "beside, ns": np.median(beside), "traffic, GB/s": traffic}
    rows: list[Row] = []
    add(rows, row | interval("ratio", ratio_interval(beside, plain, paired=True)))
    write(args, rows)


if __name__ == "__main__":
    main()
