"""Records of scaling."""

import itertools
import math

from in_turns import over_ranks

KERNELS = ["raider.triad", "raider.gather_triad", "raider.scatter_triad"]


def rows(kernels=KERNELS, ranks=(1, 2, 4, 8), platform="Machine", loss=0.9, **more):
    """Return records whose efficiency is multiplied by `loss` if the number of ranks doubles."""
    mode = more.get("scaling", "strong")
    found = []
    for turn, (number, kernel), n in itertools.product(range(3), enumerate(kernels), ranks):
        speed = (2 * (loss - 0.02 * number)) ** math.log2(n) * 1.002 ** (turn * n)
        work = n if mode == "weak" else 1
        more_bytes = {"bytes_B": 10**9 * work} | more
        found.append(over_ranks(kernel, n, turn, work / speed, platform, **more_bytes))
    return found
