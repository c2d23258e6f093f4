"""One folder for each family of kernels: everything that belongs to it."""
