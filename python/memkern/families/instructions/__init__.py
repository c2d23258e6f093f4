"""Reciprocal throughput and latency of single instructions."""

PUBLIC = {"instructions": "kernels:instructions"}
