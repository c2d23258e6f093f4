"""False verdicts of `memkern compare --run SWEEP.toml --self` on this machine, with short cases.

    python bench/compare_self.py --comparisons 25

Twenty cases from L1 to L3 with one and two threads, A against itself. The exit code is 1 if more
than one verdict, and more than one in 500, is false.
"""

import tempfile
import time
from pathlib import Path

from records import Row, add, options, parsed, write
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
    """Print and write a row for each comparison, and print the rate of all."""
    parser = options(__doc__)
    parser.add_argument("--comparisons", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0, help="of the first comparison")
    args = parsed(parser)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        sweep = Path(folder) / "short.toml"
        sweep.write_text(SWEEP)
        for seed in range(args.seed, args.seed + args.comparisons):
            start = time.monotonic()
            frame = mk.compare_runs(sweep, seed=seed, progress=False)
            spent = time.monotonic() - start
            print(summary(frame))
            for found in frame[frame["verdict"].isin(["faster", "slower"])].to_dict("records"):
                print(
                    f"  {found['label']}: {found['verdict']}, {found['ratio']:.4f} "
                    f"[{found['low']:.4f}, {found['high']:.4f}], p {found['p']:.2g}, "
                    f"{found['pairs']} pairs"
                )
            false, judged = false_verdicts(frame)
            same = int((frame["verdict"] == "same").sum())
            row = {"seed": seed, "time, s": spent, "cases": judged, "same": same}
            add(rows, row | {"false verdicts": false})
    write(args, rows)
    false, judged = (sum(row[name] for row in rows) for name in ("false verdicts", "cases"))
    high = binomtest(false, judged).proportion_ci(0.95, method="exact").high
    print(
        f"false verdicts: {false} of {judged} cases ({100 * false / judged:.2g} %, below "
        f"{100 * high:.2g} % with 95 % confidence); allowed is 1 in {ALLOWED}"
    )
    return int(false > max(1, judged / ALLOWED))


if __name__ == "__main__":
    raise SystemExit(main())
