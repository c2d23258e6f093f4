"""Atomic operations."""

PUBLIC = {"amo": "kernels:amo"}
