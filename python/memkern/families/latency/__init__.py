"""Latency of loads, alone, in parallel and under load, and between two cores."""

PUBLIC = {"latency": "kernels:latency"}
