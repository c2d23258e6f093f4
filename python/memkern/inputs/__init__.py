"""Inputs of the kernels: patterns, indices, sizes, matrices, meshes, lattices, and their files."""
