"""Benchmarks of airspeed velocity that measure with memkern.

cd examples/asv && asv run --environment existing:same --set-commit-hash "$(git rev-parse HEAD)"
"""

import memkern as mk


class Streams:
    """Times by the samples that memkern takes and judges: asv takes larger values for worse."""

    params = (["copy", "triad"], [2**14, 2**20])
    param_names = ("kernel", "elements")
    unit = "seconds"

    def track_shortest_time(self, kernel, elements):
        found = mk.stream(kernel, elements=elements, threads=1).measure()
        if not found.valid:
            raise RuntimeError("the results of the kernel were wrong")
        # asv draws no point for a disturbed measurement.
        return float("nan") if found.disturbed else found.record["time_min_s"]


class Gather:
    """Time of a gather of a prepared case, by asv's samples."""

    def setup(self):
        self.prepared = mk.gather("UNIFORM:8:4:NR", count=2**14, threads=1).prepare()

    def time_gather(self):
        self.prepared.run(1)
