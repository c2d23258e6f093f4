"""Products of sparse matrices and vectors."""

PUBLIC = {"spmv": "product:case"}
