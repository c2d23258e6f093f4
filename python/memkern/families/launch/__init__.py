"""Launching parallel regions, and barriers."""

PUBLIC = {"launch": "kernels:launch"}
