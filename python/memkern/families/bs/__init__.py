"""The finite-element streaming tests BS0 to BS8."""

PUBLIC = {"bs": "kernels:bs"}
