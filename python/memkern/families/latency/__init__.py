"""Latency of loads, alone, in parallel and beside traffic, and between two cores."""
