"""Compare builds of memkern at several levels of optimisation on this machine: cycles and spills.

    for level in O1 O2 O3 Ofast; do
      CXXFLAGS=-$level pip install -t builds/$level .
    done
    python bench/levels.py builds/O1 builds/O2 builds/O3 builds/Ofast

In turns, each time in a new process and in random order, ``memkern machine incore`` of each build
measures loops in L1 and the hopping term in L2 on one core. Rows have the flags that a build's
compiler was given, cycles for a vector, a value or a site and s (the median of the turns, between
the least and the largest), and what the main loop loads and stores beyond the kernel's definition:
spills.
"""

import random
import statistics
from typing import Any

from peers import printed_by
from records import Row, add, options, parsed, write

PROGRAM = """
import json, sys
from memkern.extension import _memkern
from memkern.studies.ecm import measured_in_core
found = measured_in_core(sys.argv[1].split(","), variants=("scalar", "auto", "simd"))
print(json.dumps({"build": _memkern.build()["flags"], "rows": found.rows}))
"""
KERNELS = "loops.sum,loops.daxpy,loops.triad,loops.schoenauer,loops.stencil,dw.hop"


def main() -> None:
    """Measure in turns, print and write rows."""
    parser = options(__doc__, turns=5)
    parser.add_argument("sites", nargs="+", metavar="SITE", help="folder of a build")
    parser.add_argument("--kernels", default=KERNELS, help="names with commas between them")
    args = parsed(parser)
    turns: dict[str, list[dict[str, Any]]] = {site: [] for site in args.sites}
    for _ in range(args.turns):
        for site in random.sample(args.sites, len(args.sites)):
            turns[site].append(printed_by(site, PROGRAM, args.kernels))
    rows: list[Row] = []
    for first in turns[args.sites[0]][0]["rows"]:
        body = {name: first[name] for name in ("kernel", "layout", "variant", "isa")}
        for every in turns.values():
            found = [row for turn in every for row in turn["rows"] if body.items() <= row.items()]
            if not found:
                continue
            cycles = [row["in_core_cycles"] for row in found]
            row: Row = {"kernel": f"{body['kernel']} {body['layout']}".strip()}
            row["variant"] = f"{body['variant']}/{body['isa']}"
            row |= {"flags": every[0]["build"], "unit": found[0]["in_core_unit"]}
            row["cycles"] = statistics.median(cycles)
            row |= {"cycles low": min(cycles), "cycles high": max(cycles)}
            row["spilled loads, B"] = found[0]["surplus_load_B"]
            row["spilled stores, B"] = found[0]["surplus_store_B"]
            add(rows, row)
    write(args, rows)


if __name__ == "__main__":
    main()
