"""Shared by all Python tests."""

import os

# Threads that spin while they wait would starve each other on a machine with few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
