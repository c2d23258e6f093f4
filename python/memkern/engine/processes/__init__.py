"""One measurement at a time in a process, and the ranks that measure together."""
