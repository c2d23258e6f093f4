"""Squares of elements."""

PUBLIC = {"squares": "kernels:squares"}
