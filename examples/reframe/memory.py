# reframe -c examples/reframe/memory.py -r
"""Bandwidths from memory of the nodes of a system, as a test of ReFrame."""

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class MemoryBandwidth(rfm.RunOnlyRegressionTest):
    descr = "Copy and triad from memory"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "memkern"
    executable_opts = ["stream", "-k", "copy,triad", "-o", "machine.parquet"]
    # One line, such as: copy=29.6 GB/s; triad=29.2 GB/s
    postrun_cmds = ["memkern export machine.parquet --to figures"]
    exclusive_access = True
    # Lower and upper limits as shares, by system and partition:
    # reference = {"cluster:nodes": {"triad": (310, -0.05, None, "GB/s")}}

    @sanity_function
    def has_both_figures(self):
        # Disturbed records have none.
        return sn.assert_found(r"copy=\S+ GB/s; triad=\S+ GB/s", self.stdout)

    @performance_function("GB/s")
    def copy(self):
        return sn.extractsingle(r"copy=(\S+) GB/s", self.stdout, 1, float)

    @performance_function("GB/s")
    def triad(self):
        return sn.extractsingle(r"triad=(\S+) GB/s", self.stdout, 1, float)
