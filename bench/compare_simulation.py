"""False verdicts and found differences of `memkern compare --run`, on simulated noise.

The order of pairs, the looks and the verdicts are those of the package; only the times are random.
All cases of a family draw consecutive values from one series of noise, as on a machine.
"""

import argparse
import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from records import Row, program

from memkern.results import verdicts
from memkern.results.comparison import Compared
from memkern.results.verdicts import FASTER, SAME, SLOWER, Family
from memkern.studies.interleaved import measure_pairs

Floats = npt.NDArray[np.float64]
SD = 0.02


def independent(rng: np.random.Generator, n: int) -> Floats:
    """Return normal noise of 2 %."""
    return SD * rng.standard_normal(n)


def autocorrelated(rng: np.random.Generator, n: int) -> Floats:
    """Return AR(1) with a correlation of 0.9 between consecutive values, 2 % in all."""
    from scipy import signal  # takes a second

    steps = SD * np.sqrt(1 - 0.9**2) * rng.standard_normal(n + 100)
    return np.asarray(signal.lfilter([1], [1, -0.9], steps)[100:])


NOISES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "independent, 2 %": independent,
    "AR(1) with 0.9 between successive values, 2 %": autocorrelated,
    "drifting by a third over the run, on top of 2 %": lambda rng, n: (
        independent(rng, n) + np.linspace(0, 0.3, n)
    ),
    "one value in ten 1.25 times slower, on top of 2 %": lambda rng, n: (
        independent(rng, n) + np.log(1.25) * (rng.random(n) < 0.1)
    ),
}


class SimulatedSide:
    """A side whose values come from one series for both sides; `effect` is added to one."""

    def __init__(self, series: Iterator[float], effects: Floats) -> None:
        self.series, self.effects = series, effects

    def request(self, verb: str, case: int) -> dict[str, Any]:
        """Return the next value."""
        return {"seconds": float(np.exp(next(self.series) + self.effects[case]))}


def simulated(
    noise: Callable[[np.random.Generator, int], Floats], effects: Floats, seed: int
) -> Family:
    """Return a family of cases whose side B is slower by `effects` (logarithms of ratios)."""
    rng = np.random.default_rng(seed)
    family = Family(len(effects))
    series = iter(noise(rng, 2 * len(effects) * family.looks[-1]))
    sides = (SimulatedSide(series, 0 * effects), SimulatedSide(series, effects))
    work = ({"time_s": 1.0}, {"time_s": 1.0})
    cases = [Compared(str(k), {}, work) for k in range(len(effects))]
    measure_pairs(
        family, cases, lambda: contextlib.nullcontext(sides), random.Random(seed), lambda _: None
    )
    return family


def without_difference(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the false verdicts for each kind of noise."""
    for name, noise in NOISES.items():
        zero = np.zeros(args.cases)
        found = [simulated(noise, zero, seed).verdicts for seed in range(args.families)]
        false = np.array([sum(v in (FASTER, SLOWER) for v in family) for family in found])
        row = {"noise": name, "cases": args.families * args.cases, "false verdicts": false.sum()}
        row |= {"families with any, %": 100 * np.mean(false > 0)}
        yield row | {"same, %": 100 * np.mean([v == SAME for family in found for v in family])}


def differences(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the differences found with 2 % of noise a side, where half of the cases differ."""
    many = range(max(args.families // 10, 10))
    for shares in (verdicts.SHARES, (1 / 3, 1 / 3, 1 / 3)):
        verdicts.SHARES = shares
        for percent in (2, 3, 4, 5):
            effects = np.where(np.arange(args.cases) % 2, np.log1p(percent / 100), 0.0)
            families = [simulated(independent, effects, seed) for seed in many]
            different = [(f, k) for f in families for k in range(1, args.cases, 2)]
            hits = [f.verdicts[k] == SLOWER for f, k in different]
            first = [hit and f.count(k) == 15 for hit, (f, k) in zip(hits, different, strict=True)]
            row = {"shares": ", ".join(f"{share:.2f}" for share in shares), "slower, %": percent}
            row |= {"found, %": 100 * np.mean(hits), "with 15 pairs, %": 100 * np.mean(first)}
            yield row


def measured(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the rows of families without and with differences."""
    yield from without_difference(args)
    for row in differences(args):
        yield "differences", row


main = program(__name__, __doc__, measured, {"--families": 400, "--cases": 30})
