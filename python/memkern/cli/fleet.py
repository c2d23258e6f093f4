"""The verb fleet: nodes beside each other, or beside a baseline of nodes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from memkern.cli.compare import Gate, fail_on
from memkern.cli.measuring import line, warn
from memkern.cli.options import COMPARE, FAILED, FORCE, GOOD, INVALID, argument, verb

if TYPE_CHECKING:
    from pandas import DataFrame


def _fleet(args: argparse.Namespace) -> int:
    from memkern.formats.store import check_output
    from memkern.results.comparison import INVALID as WRONG
    from memkern.results.fleet import fleet, of_files
    from memkern.results.verdicts import SLOWER

    target = check_output(args.output, args.force) if args.output else None
    results = of_files(args.files)
    frame = fleet(results, of_files([args.baseline]) if args.baseline else None)
    if target:
        results.save(target)
    if args.json:
        print(frame.to_json(orient="records"))
    else:
        line(text(frame))
    for remark in frame.attrs["remarks"]:
        warn(remark)
    if (frame["verdict"] == WRONG).any():
        return INVALID
    gate: Gate | None = args.fail_on
    if gate is None:
        return GOOD
    undecided = int(frame["p"].isna().sum())
    slow = frame[(frame["verdict"] == SLOWER) & (frame["slowdown"] > (gate.percent or 0) / 100)]
    fails = gate.percent is not None and len(slow) > 0
    return FAILED if fails or undecided == len(frame) or (gate.undecided and undecided) else GOOD


def text(frame: DataFrame) -> str:
    """Return the cases of a fleet as a table for each processor, with the nodes outside."""
    from memkern.results.comparison_output import aligned
    from memkern.results.fleet import cases
    from memkern.results.verdicts import FASTER, SLOWER

    lines = []
    for machine, rows in cases(frame).groupby("machine", sort=False):
        table = [["case", "quantity", "others", "median", "spread", "range", "outside"]]
        for row in rows.to_dict("records"):
            own = frame[(frame["machine"] == machine) & (frame["case"] == row["case"])]
            outside = own[own["verdict"].isin((SLOWER, FASTER))]
            outside = outside.sort_values("slowdown", ascending=False)
            named = zip(outside["node"], outside["value"], outside["verdict"], strict=True)
            cells = [row["label"], row["quantity"], f"{row['others']:.0f}", f"{row['median']:.4g}"]
            cells += [f"{row['spread']:.1%}", f"{row['low']:.4g} to {row['high']:.4g}"]
            table.append([*cells, ", ".join(f"{n} {x:.4g} ({word})" for n, x, word in named)])
        lines += [str(machine), *aligned(table, left=[0, 6]), ""]
    without = frame[frame["p"].isna()].groupby("node", sort=False)["verdict"]
    for node, verdicts in without:
        number, words = len(verdicts), ", ".join(dict.fromkeys(verdicts))
        lines.append(f"{node}: {number} case{'s' * (number != 1)} not judged ({words})")
    lines.append("of healthy fleets, fewer than 1 in 100 have a node outside of any range")
    return "\n".join(lines)


FLEET_VERB = verb(
    "fleet",
    COMPARE,
    "find nodes of a fleet that are slower than others with the same processor",
    _fleet,
    (
        "memkern fleet nodes/*.parquet -o fleet.parquet",
        "memkern fleet nodes/*.parquet --fail-on slower:10",
        "memkern fleet node.parquet --baseline fleet.parquet",
    ),
    argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="results of the same command on each node, in a file with the node's name",
    ),
    argument(
        "--baseline",
        metavar="FILE",
        help="compare with the nodes in this file of -o instead of with each other",
    ),
    argument(
        "-o", "--output", metavar="PATH", help="write all records with their nodes: a baseline"
    ),
    argument("--json", action="store_true", help="a row for each case and node, as JSON"),
    argument(
        "--fail-on",
        type=fail_on,
        metavar="slower[:PERCENT][,undecided]",
        help="exit code 3 if a node is slower (by more than PERCENT, if given) or undecided; "
        "always if no node has a verdict",
    ),
    FORCE,
)
