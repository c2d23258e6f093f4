"""Latency of loads, alone, in parallel and beside traffic, and between two cores."""

PUBLIC = {"latency": "kernels:latency"}
