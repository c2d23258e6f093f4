"""Prepared cases, and samples of them: these modules call the extension's kernels."""
