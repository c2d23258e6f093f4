"""Preparing, choosing variants, sampling, records and sweeps: what reaches the extension."""
