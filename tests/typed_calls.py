"""Calls checked by `make lint`: type checkers know the options of cases from the package's stub.

If mypy misses an error here, it reports the unused comment instead.
"""

import memkern as mk

mk.gather([0, 1], count=8, threads=2)
mk.loops("stencil", rows=9, columns=9, pages="4k")
mk.gather([0, 1], cuont=8)  # type: ignore[call-arg]
mk.stream("copy", threads="two")  # type: ignore[arg-type]
mk.dw((4, 4, 4, 4), layout="RIRI", threads=2)
mk.spmv("hpcg:4", format="crs", mve=2)
product: mk.spmv.Product = mk.spmv.convert("hpcg:4", format="crs")
mk.spmv("hpcg:4", sigmas=2)  # type: ignore[call-arg]
mk.bs(1, degrees=3)  # type: ignore[call-arg]
