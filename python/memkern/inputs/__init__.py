"""What kernels work on: patterns, indices, matrices, meshes, lattices, and their files."""
