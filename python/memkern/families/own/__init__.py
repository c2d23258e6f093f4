"""Kernels of users: expressions and C functions, compiled and checked at run time."""

VERB = "run"
PUBLIC = {"kernel": "kernels:kernel"}
