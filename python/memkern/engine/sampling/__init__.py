"""Prepared cases, and samples of them: these modules call the extension's kernels.

It may use `processes` and `recording`, and makes no record.
"""
