"""Kernels, cases, options and the columns of records, without code that measures."""
