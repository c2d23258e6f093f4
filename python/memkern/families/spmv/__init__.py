"""Products of sparse matrices and vectors."""
