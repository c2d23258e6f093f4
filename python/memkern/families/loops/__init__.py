"""The loop kernels of the ECM studies."""

PUBLIC = {"loops": "kernels:loops"}
