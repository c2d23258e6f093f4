"""Measurements of many cases in rounds, and plans for a limited time."""
