"""Effects of nodes over all of their cases, the evidence for each, and what would be found.

A look is the measurement of some cases on a node, in one or several rounds; its values are the
logarithms of times.

- A value is the sum of the case, the state of the host (see `SLOPES`), the effect of the look in
  this round, and what is left, which has heavy tails: the effect is the location of Student's
  distribution, where each case counts by its own spread [1]_.
- The spread of healthy looks is that of the other looks and that of rounds. Both are moderated, as
  variances of genes are [2]_, by the spread between runs on recorded hosts, so that few looks that
  happen to agree do not make the next one an outlier.
- The evidence is an e-value [3]_: the likelihood of the rounds of a look if its effect is a
  slowdown or speed-up by 4 % or more, over that of a healthy one. It may be looked at after each
  round. Looks are named by the procedure of Benjamini and Hochberg for e-values [4]_.

References
----------
.. [1] K. L. Lange, R. J. A. Little and J. M. G. Taylor, "Robust statistical modeling using the t
   distribution", J. Am. Stat. Assoc. 84 (1989) 881.
.. [2] G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3.
.. [3] P. Grünwald, R. de Heide and W. Koolen, "Safe testing", J. R. Stat. Soc. B 86 (2024) 1091.
.. [4] R. Wang and A. Ramdas, "False discovery rate control with e-values", J. R. Stat. Soc. B 84
   (2022) 822.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.results.verdicts import ALPHA

_Floats = npt.NDArray[np.float64]

SLOPES = {"core_share": -0.40, "exchange_ns": -0.33}
"""Change of the logarithm of a time with that of a coordinate of the state, on recorded hosts
(``bench/fleet_false_alarms.py``)."""
LEAST_POWER, WANTED = 0.9, 0.2
"""A slowdown can be found if it is named with this probability; and the one that should be."""
# Standard deviations of the effect of a run on recorded hosts, and of healthy nodes, and the
# degrees of freedom as which both count.
_BETWEEN_RUNS, _BETWEEN_NODES, _KNOWN = 0.04, 0.01, 4.0
# Degrees of freedom of the variances between runs of recorded hosts, and largest ones of looks.
_OF_HOSTS, _MOST_FREEDOM = 8.0, 20.0
# Three quarters of normal values are within this many standard deviations. A quarter of the nodes
# may be off; where half of them are in another state, the median deviation would show one state.
_SHARE, _OF_NORMAL = 0.75, 1.1503
_EFFICIENCY = 0.55  # of this quantile
# Degrees of freedom of what is left of a case; variance of this location over that of the mean.
_TAILS, _OF_LOCATION = 4.0, 1.2
_ALTERNATIVES = np.outer([1, -1], np.geomspace(math.log(1.04), math.log(1e6), 40)).ravel()
_DISTANCES = np.geomspace(0.005, math.log(16), 400)  # of which the evidence is computed
_MOST_ROUNDS, _MOST_NODES = 60, 1024


def middle(x: _Floats, axis: int | tuple[int, ...] | None = None, share: float = 0.5) -> _Floats:
    """Return the median, or another quantile, without missing values; NaN where all are missing.

    NumPy's `nanquantile` is a Python loop over the other axes.
    """
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    moved = np.moveaxis(x, [*axes], range(len(axes)))
    flat = (math.prod(moved.shape[: len(axes)]), *moved.shape[len(axes) :])
    values = np.sort(moved.reshape(flat), axis=0)  # missing ones are last
    if not len(values):
        return np.full(values.shape[1:], math.nan)
    last = np.maximum((~np.isnan(values)).sum(0, keepdims=True) - 1, 0)
    low = (last * share).astype(int)
    ends = [np.take_along_axis(values, k, 0)[0] for k in (low, np.minimum(low + 1, last))]
    return np.asarray(ends[0] + (last * share - low)[0] * (ends[1] - ends[0]))


def _deviation(x: _Floats, axis: Any = None) -> _Floats:
    return middle(np.abs(x), axis, _SHARE) / _OF_NORMAL


def _location(x: _Floats, scale: _Floats) -> _Floats:
    """Return the location of Student's distribution along the last axis."""
    found = middle(x, -1)
    for _ in range(8):
        weights = (1 + _TAILS) / (_TAILS + ((x - found[..., None]) / scale) ** 2) / scale**2
        weights = np.where(np.isnan(x), 0.0, weights)
        total = weights.sum(-1)
        found = np.divide(
            np.nansum(weights * x, -1), total, out=np.full_like(found, np.nan), where=total > 0
        )
    return found


def adjusted(times: _Floats, states: _Floats, slopes: npt.ArrayLike) -> _Floats:
    """Return times of one state of the host.

    Parameters
    ----------
    times : array of float, shape (looks, rounds, cases)
        Logarithms; NaN where a value is missing.
    states : array of float, shape (looks, rounds, cases, coordinates)
        Logarithms of the coordinates; NaN where they are unknown.
    slopes : array_like of float, shape (coordinates,)
    """
    return np.asarray(times - np.nan_to_num(states - middle(states, (0, 1))) @ np.asarray(slopes))


def of_rounds(times: _Floats) -> _Floats:
    """Return the effect of each look in each round, over its cases.

    Parameters
    ----------
    times : array of float, shape (looks, rounds, cases)
        As `adjusted` returns them.

    Returns
    -------
    array of float, shape (looks, rounds)
        NaN in rounds without a value.
    """
    left = times - middle(times, (0, 1))
    effects = middle(left, -1)
    for _ in range(2):
        spread = _deviation(left - effects[..., None], (0, 1))
        # A case whose values happen to agree does not outweigh all others.
        spread = np.sqrt((spread**2 + middle(spread) ** 2 / 2) / 1.5)
        effects = _location(left, np.maximum(spread, 1e-6))
    return effects


@dataclass(frozen=True)
class Effects:
    """Distances of looks from others.

    Attributes
    ----------
    distance : array of float, shape (n,)
        Of logarithms of times.
    rounds, others : array of float, shape (n,)
        Rounds of the look, and number of looks with which it is compared.
    within : array of float, shape (n,)
        Sum of the squares of the rounds' distances from the look, over their variance.
    noise, between, beside : array of float, shape (n,)
        Variance of a round, of healthy looks of infinitely many rounds, and of the other looks.
    freedom : array of float, shape (n,)
        Degrees of freedom of these variances.
    tests : float
        E-values of 1 over `ALPHA` times this number name a look.
    """

    distance: _Floats
    rounds: _Floats
    others: _Floats
    within: _Floats
    noise: _Floats
    between: _Floats
    beside: _Floats
    freedom: _Floats
    tests: float = 1.0

    @property
    def variance(self) -> _Floats:
        """The variance of the distance of healthy looks."""
        own = self.between + self.noise / self.rounds
        return own + self.beside * _OF_LOCATION / self.others

    @property
    def evidence(self) -> _Floats:
        """Logarithm of the e-value; NaN for a look without a value, or without others."""
        return self._evidence(self.distance, self.within)

    def _evidence(self, distance: _Floats, within: _Floats) -> _Floats:
        def likelihood(effect: float) -> _Floats:
            square = within + (distance - effect) ** 2 / self.variance
            exponent = (self.freedom + self.rounds) / 2
            return np.asarray(-exponent * np.log1p(square / self.freedom))

        with np.errstate(invalid="ignore"):
            total = functools.reduce(np.logaddexp, map(likelihood, _ALTERNATIVES))
        return np.asarray(total - math.log(len(_ALTERNATIVES)) - likelihood(0.0))

    @property
    def shrunk(self) -> tuple[_Floats, _Floats]:
        """Effects shrunk towards that of healthy looks, and half widths of their intervals.

        The level is 95 %; one look in a hundred is expected to be off.
        """
        off = 1 / (1 + np.exp(np.minimum(-math.log(ALPHA) - self.evidence, 700.0)))
        measured = self.noise / self.rounds
        kept = off + (1 - off) * self.between / (self.between + measured)
        return kept * self.distance, self._quantile(0.975) * np.sqrt(kept * measured)

    @functools.cached_property
    def reach(self) -> _Floats:
        """Distances from which typical looks are named."""
        evidence = self._evidence(_DISTANCES[:, None], self.rounds - 1)
        enough = evidence >= math.log(self.tests / ALPHA)
        return np.where(enough.any(0), _DISTANCES[enough.argmax(0)], math.inf)

    def found(self, power: float) -> _Floats:
        """Return the slowdowns that are named with this probability, as logarithms."""
        return self.reach + self._quantile(power) * np.sqrt(self.variance)

    def power(self, slowdown: float) -> _Floats:
        """Return the probability with which this relative slowdown is named."""
        from scipy.special import stdtr

        far = (math.log1p(slowdown) - self.reach) / np.sqrt(self.variance)
        return np.asarray(stdtr(self.freedom, far))

    def _quantile(self, p: float) -> _Floats:
        from scipy.special import stdtrit

        return np.asarray(stdtrit(self.freedom, p))

    def needed(self) -> tuple[int, int]:
        """Return the least rounds, or else nodes, with which `WANTED` is found; 0 for unknown."""
        order = np.argsort(self.variance)  # missing ones are last
        k = int(order[np.count_nonzero(~np.isnan(self.variance)) // 2])
        one = replace(
            self,
            **{
                each.name: getattr(self, each.name)[k : k + 1]
                for each in fields(self)
                if each.name != "tests"
            },
        )
        # Unless nodes differ by more than rounds do, few rounds do not tell one from the other.
        more = one.rounds * (one.between - _BETWEEN_NODES**2)
        if more[0] < 2 * one.noise[0]:
            one = replace(one, noise=one.noise + more, between=0 * more + _BETWEEN_NODES**2)
        for number in range(1, _MOST_ROUNDS + 1):
            rounds = np.full(1, float(number))
            beside = one.between + one.noise / rounds
            if replace(one, rounds=rounds, beside=beside).power(WANTED)[0] >= LEAST_POWER:
                return number, 0
        nodes = 2
        while nodes <= _MOST_NODES:
            others = np.full(1, nodes - 1.0)
            tests = self.tests * nodes / (one.others[0] + 1)
            if replace(one, others=others, tests=tests).power(WANTED)[0] >= LEAST_POWER:
                return 0, nodes
            nodes *= 2
        return 0, 0


def effects(rounds: _Floats, others: npt.NDArray[np.bool_], looks: npt.ArrayLike) -> Effects:
    """Return the distances of looks from others.

    Parameters
    ----------
    rounds : array of float, shape (looks, rounds)
        As `of_rounds` returns them.
    others : array of bool, shape (n, looks)
        The looks with which each is compared.
    looks : array_like of int, shape (n,)
        Their numbers.
    """
    own = middle(rounds, 1)
    left, counts = rounds - own[:, None], (~np.isnan(rounds)).sum(1).astype(float)
    # A look has used up one degree of freedom.
    spare = np.maximum(counts - 1, 0).sum()
    noise = float(_deviation(left)) ** 2 * counts[counts > 1].sum() / spare if spare else 0.0
    own = _location(rounds, np.full(rounds.shape[1], math.sqrt(noise) or 1.0))
    freedom = _EFFICIENCY * spare
    noise = (freedom * noise + _KNOWN * _BETWEEN_RUNS**2) / (freedom + _KNOWN)
    sure = freedom / (freedom + _KNOWN)
    beside = np.where(others & ~np.isnan(own), own, np.nan)
    number = (~np.isnan(beside)).sum(1).astype(float)
    center = middle(beside, 1)
    spread = _deviation(beside - center[:, None], 1) ** 2
    rounds_of_others = middle(np.where(others & (counts > 0), counts, np.nan), 1)
    least = noise / rounds_of_others + _BETWEEN_NODES**2
    freedom_between = _EFFICIENCY * np.maximum(number - 1, 0)
    # The prior is of looks that differ as rounds do: a larger spread of nodes stands for itself.
    known = (freedom_between * np.fmax(spread, sure * least) + _KNOWN * least) / (
        freedom_between + _KNOWN
    )
    spread = np.fmax(spread, known)
    # Where looks are in two states, their median is in one of them.
    center = _location(beside, np.sqrt(spread)[:, None])
    # What is known of single rounds is less sure than what they show.
    noise = np.minimum(noise, spread * rounds_of_others)
    mine = np.asarray(looks)
    within = np.nansum((rounds - own[:, None]) ** 2, 1)[mine] / noise
    return Effects(
        distance=own[mine] - center,
        rounds=np.where(counts[mine] > 0, counts[mine], np.nan),
        others=np.where(number > 0, number, np.nan),
        within=within,
        noise=noise,
        between=np.maximum(spread - noise / rounds_of_others, _BETWEEN_NODES**2),
        beside=spread,
        freedom=np.minimum(freedom + freedom_between + _OF_HOSTS, _MOST_FREEDOM),
    )


def named(evidence: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which e-values are discoveries, of which at most `ALPHA` are expected to be false.

    Parameters
    ----------
    evidence : array_like of float, shape (n,)
        Logarithms of e-values; NaN for none.
    """
    e = np.nan_to_num(np.asarray(evidence, dtype=np.float64), nan=-math.inf)
    falling = np.sort(e)[::-1]
    # The k largest are discoveries if each is at least n / (k alpha).
    enough = falling + np.log(np.arange(1, len(e) + 1)) >= math.log(max(len(e), 1) / ALPHA)
    return e >= (falling[enough][-1] if enough.any() else math.inf)
