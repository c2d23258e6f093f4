"""Kernels, cases, options and the columns of records, without anything that measures."""
