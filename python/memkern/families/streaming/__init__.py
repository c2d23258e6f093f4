"""What the families of streaming kernels share."""
