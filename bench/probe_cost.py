"""Measure the cost of detecting disturbed samples: sampling with and without probes, in turns.

    python bench/probe_cost.py
    python bench/probe_cost.py --threads 2 --turns 31

One row for each number of threads and length of a sample: the ratio of the wall time of samples
with probes to the wall time without, with its 95 % interval over the turns (goal: at most 1.05);
the same ratio after division by the samples' own times, in which the kernel's drift cancels; the
ratio of these own times, which should be 1, because probes are outside of them; and the excess of
the wall time over the own time, with probes and without. Only the cost on a quiet machine is
measured. The line "disturbed" has the share of samples in which a worker waited for its processor
or the cores were slower than their best; on a quiet machine it is small.
"""

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from records import Row, add, cells, interval, options, parsed, write

import memkern as mk
from memkern.engine.recording.samples import CONDITIONS, CORE_SHARE, WAITED_SHARE
from memkern.engine.sampling.activity import names_of_cores
from memkern.statistics import ratio_interval

_LENGTHS_S = (10e-6, 45e-6, 200e-6, 1e-3, 10e-3)
_GOAL = 1.05
_LEAST_SAMPLES = 10


def block(
    native: Any, samples: int, invocations: int, probes: bool
) -> tuple[float, float, npt.NDArray[np.float64]]:
    """Return the wall seconds of a sample, its own seconds, and all samples' conditions."""
    out = np.full((samples, 1 + len(CONDITIONS)), np.nan)
    begin = time.perf_counter()
    taken = native.sample(out, invocations, math.inf, probes=probes)
    wall_s = time.perf_counter() - begin
    return wall_s / taken, invocations * float(out[:, 0].mean()), out[:, 1:]


def main() -> None:
    """Print and write a row for each number of threads and length of a sample."""
    parser = options(__doc__, turns=21)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 0])
    parser.add_argument("--pin", default="auto")
    parser.add_argument("--block", type=float, default=0.1, metavar="SECONDS")
    args = parsed(parser)
    rows: list[Row] = []
    disturbed: list[npt.NDArray[np.bool_]] = []
    for threads in args.threads:
        case = mk.loops("update", 2**11, threads=threads, pin=args.pin, repetition="barrier")
        prepared = case.prepare()
        native, obtained = prepared.native, prepared.obtained
        for length_s in _LENGTHS_S:
            several = 100
            one_s = min(native.run(several) for _ in range(100)) / several
            invocations = max(round(length_s / one_s), 1)
            samples = max(round(args.block / length_s), _LEAST_SAMPLES)
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for turn in range(args.turns):
                for probes in (turn % 2 == 0, turn % 2 == 1):
                    wall_s, own_s, conditions = block(native, samples, invocations, probes)
                    found[probes].append((wall_s, own_s))
                    if probes:
                        prepared.host.cores.add(
                            conditions[:, 1], which := names_of_cores(obtained)[0]
                        )
                        lost = conditions[:, 0] < 1 - WAITED_SHARE
                        slow = conditions[:, 1] < CORE_SHARE * prepared.host.cores.best(which)
                        disturbed.append(lost | slow)
            off, on = (np.array(found[probes]) for probes in (False, True))
            wall, own = (ratio_interval(on[:, k], off[:, k], paired=True) for k in (0, 1))
            outside = [x[:, 0] / x[:, 1] for x in (on, off)]
            cost = ratio_interval(*outside, paired=True)
            longer = [100 * (float(np.median(x)) - 1) for x in outside]
            row = {"threads": obtained["threads"], "samples of, us": 1e6 * length_s}
            row |= interval("wall time", wall) | interval("over own time", cost)
            row |= interval("own time", own)
            add(rows, row | {"longer, %": longer[0], "longer without probes, %": longer[1]})
    write(args, rows)
    print(f"disturbed: {np.concatenate(disturbed).mean():.1%} of the samples")
    missed = [cells(row) for row in rows if row["wall time"] > _GOAL]
    names = [f"{row['threads']} threads, samples of {row['samples of, us']} us" for row in missed]
    print(f"above {_GOAL}: {'; '.join(names) or 'none'}")


if __name__ == "__main__":
    main()
