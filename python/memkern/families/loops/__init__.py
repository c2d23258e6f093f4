"""The loop kernels of the ECM studies."""
