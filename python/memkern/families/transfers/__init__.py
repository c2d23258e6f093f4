"""Transfers between a host and a GPU, and between two GPUs."""

PUBLIC = {"transfers": "kernels:transfers"}
