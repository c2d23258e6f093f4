"""Code shared by several families of kernels."""
