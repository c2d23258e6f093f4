"""The measurement of a case: variant, placements, and what its record needs besides.

It may use `sampling` and the packages below, and knows one case at a time.
"""
