"""Launching parallel regions, and barriers."""
