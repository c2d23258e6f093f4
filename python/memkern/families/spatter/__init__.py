"""Gather and scatter, as Spatter measures them."""
