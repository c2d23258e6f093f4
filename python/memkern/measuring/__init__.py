"""Preparing, choosing variants, sampling, records and sweeps: all use of the extension."""
