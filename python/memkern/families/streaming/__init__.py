"""Figures over all streaming families, and their section of a report."""
