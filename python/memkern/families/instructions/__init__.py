"""Reciprocal throughput and latency of single instructions."""
