"""A suite of matrices with the structures of a paper's test matrices.

Table 4 of Alappat et al., "ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX",
2021, lists files of the SuiteSparse Matrix Collection, which are not packaged. The three matrices
that can be generated are those of the paper, in its sizes. Those named ``like ...`` share only what
the paper's text says of a file, such as short rows that are spread over the whole vector; their
sizes are ours. A Matrix Market file is measured by its path.
"""

from __future__ import annotations

SUITE = "alappat2021-matrices"
MATRICES = {
    # A lattice with several values a site and short-ranged couplings; about as large as caches.
    "like qcd5-4": "topins:36:36:28",
    # Irregular columns.
    "like Hamrle3": "band:1500000:750000:4",
    # Short rows, and accesses to the vector that caches do not help.
    "like scai1": "band:1000000:500000:7",
    # Numbers of rows alone do not balance the work.
    "like bundle_adj": "rmat:18:32",
    # Rows of different lengths.
    "like kkt_power": "kkt:100:500000",
    "HPCG-128": "hpcg:128",
    "FreeFermionChain-26": "fermions:26",
    "Spin-26": "spin:26",
}
"""Generators of the suite's matrices by name, in ascending order of the nonzeros."""
