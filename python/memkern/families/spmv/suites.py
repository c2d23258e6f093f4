"""A suite of matrices with the structures of a paper's test matrices.

Table 4 of Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
2021, lists files of the SuiteSparse Matrix Collection, which are not packaged. The three matrices
that can be generated are those of the paper. Those named ``like ...`` have as many rows as the
files (``like bundle_adj`` 2 % more), within 1 % as many nonzeros (``like Hamrle3`` 5 % more), and
what the paper's text says of them. Where the columns of a row are is not known from
it, so that the accesses to the vector (alpha) are ours. A Matrix Market file is measured by its
path.
"""

from __future__ import annotations

SUITE = "alappat2021-matrices"
MATRICES = {
    # 49,152 rows of 39 nonzeros, on a lattice whose neighbours are up to 7 of 8 planes away; about
    # as large as caches.
    "like qcd5-4": "band:49152:43008:39",
    # 1,447,360 rows, 5,514,242 nonzeros, irregular columns.
    "like Hamrle3": "band:1447360:723680:4",
    # 2,063,494 rows, 12,771,361 nonzeros, rows of different lengths.
    "like kkt_power": "kkt:115:542619:2",
    # 513,351 rows, 20,207,907 nonzeros: numbers of rows alone do not balance the work.
    "like bundle_adj": "rmat:19:42",
    # 3,405,035 rows, 24,027,759 nonzeros, and accesses to the vector that caches do not help.
    "like scai1": "band:3405035:3405034:7",
    "HPCG-128": "hpcg:128",
    "FreeFermionChain-26": "fermions:26",
    "Spin-26": "spin:26",
    # 22,786,800 rows, 160,222,796 nonzeros, otherwise as scai1.
    "like scai2": "band:22786800:22786799:7",
}
"""Generators of the suite's matrices by name, in ascending order of the nonzeros."""
