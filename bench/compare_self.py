"""False verdicts of `memkern compare --run SWEEP.toml --self` on this machine, with short cases.

    python bench/compare_self.py --comparisons 25

Twenty cases from L1 to L3 with one and two threads, A against itself. The exit code is 1 if more
than one verdict, and more than one in 500, is false.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from scipy.stats import binomtest

import memkern as mk
from memkern.results.comparison_output import false_verdicts, summary

SWEEP = """
[[case]]
kernel = ["stream.copy", "stream.triad", "loops.dot"]
elements = [1024, 16384, 131072]
threads = 1

[[case]]
kernel = ["gather", "scatter"]
pattern = ["UNIFORM:8:1:NR", "UNIFORM:8:8:NR"]
count = 4096
threads = 1

[[case]]
kernel = "gather"
pattern = "UNIFORM:8:1:NR"
count = [4096, 65536]
threads = 2

[[case]]
kernel = "stream.copy"
elements = [4096, 65536]
threads = 2

[[case]]
kernel = "amo.stride1"
iters = 2000
threads = [1, 2]

[[case]]
kernel = "launch.empty"
threads = 2
"""
ALLOWED = 500


def main() -> int:
    """Print one line for each comparison and the rate of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0, help="of the first comparison")
    args = parser.parse_args()
    false = judged = 0
    with tempfile.TemporaryDirectory() as folder:
        sweep = Path(folder) / "short.toml"
        sweep.write_text(SWEEP)
        for k in range(args.comparisons):
            start = time.monotonic()
            frame = mk.compare_runs(sweep, seed=args.seed + k, progress=False)
            found = false_verdicts(frame)
            false, judged = false + found[0], judged + found[1]
            spent = time.monotonic() - start
            print(f"seed {args.seed + k}, {spent:.0f} s, {summary(frame)}", flush=True)
            for row in frame[frame["verdict"].isin(["faster", "slower"])].to_dict("records"):
                print(
                    f"  {row['label']}: {row['verdict']}, {row['ratio']:.4f} "
                    f"[{row['low']:.4f}, {row['high']:.4f}], p {row['p']:.2g}, {row['pairs']} pairs"
                )
    high = binomtest(false, judged).proportion_ci(0.95, method="exact").high
    print(
        f"false verdicts: {false} of {judged} cases ({100 * false / judged:.2g} %, below "
        f"{100 * high:.2g} % with 95 % confidence); allowed is 1 in {ALLOWED}"
    )
    return int(false > max(1, judged / ALLOWED))


if __name__ == "__main__":
    sys.exit(main())
