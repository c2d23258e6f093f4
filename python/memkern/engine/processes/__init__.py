"""One measurement at a time in a process, and the ranks that measure together.

It may use the machine below, and knows no case.
"""
