"""Records of cases beside neighbours."""

from in_turns import beside_one

KERNELS = ["loops.load", "stream.triad", "spatter.gather", "amo.rand", "latency.chase"]


def rows(kernels=KERNELS, turns=7, platform="Machine", factor=0.3, **more):
    """Return records of every kernel, slower by `factor` times the index of its neighbour."""
    found = []
    for turn in range(turns):
        for kernel in kernels:
            for number, beside in enumerate(["", *kernels]):
                time_s = (1 + factor * max(number - 1, 0)) * 1.001 ** (
                    (turn % 3 - 1) * (number > 0)
                )
                found.append(beside_one(kernel, beside, turn, time_s, platform, **more))
    return found
