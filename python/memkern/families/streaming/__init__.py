"""Shared parts of the families of streaming kernels."""
