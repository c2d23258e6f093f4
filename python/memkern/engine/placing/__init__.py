"""The measurement of a case: placements, choice of a variant, and what its record needs besides."""
