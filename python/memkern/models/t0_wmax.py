"""Time against bytes as a line: ``T(B) = T0 + B / Wmax``.

T0 is the time of an invocation that moves no data, Wmax the asymptotic bandwidth. The slope
``1 / Wmax`` is fitted, so Wmax's interval is the inverse of the slope's.

The noise of timings is proportional to the time, so the largest sizes determine an unweighted fit:
its T0 is a small difference of large numbers. With weights ``1 / T**2`` all sizes have equal
influence. These weights use the fitted times: with measured times, a time that is too short by
chance would have a larger weight, which biases the line downwards and invalidates the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.machine.caches import MULTIPLE
from memkern.models.fit import Floats, ModelFit, Parameter, Prediction
from memkern.models.memory import plateau_B
from memkern.models.records import Records, cache_ends, last_level_cache_B, points
from memkern.statistics import student_quantile

_LEAST_POINTS = 3
# Least number of sizes on each side of a change-point: a line through fewer fits the noise.
_LEAST_SIDE = 5
# Least reduction of the sum of squares by two lines instead of one, in units of their variance. The
# best split of 10 to 400 sizes of one regime exceeds it by chance in one of a hundred cases.
_BEND = 20.0
_MOST_ITERATIONS = 1000
_MOST_HALVINGS = 60  # after which a step is smaller than rounding errors
# Largest median deviation of the points from a valid line.
_FAR = 0.1
# Largest deviation of a point for which the line is valid.
_HOLDS = 1 / 3
# Least number of sizes in the caches, or beyond them, for a separate fit.
_LEAST_HELD = 4
# Relative change of the fitted times that ends the iteration of the weights.
_SETTLED = 1e-10

_UNWEIGHTED = (
    "the fit is unweighted: its interval of T0 is unreliable, and with few sizes also its interval "
    "of Wmax"
)


@dataclass(frozen=True, eq=False, repr=False)
class T0WmaxFit(ModelFit):
    """A fit of ``T(B) = T0 + B / Wmax``.

    Its `parameters` are ``t0`` (s), ``slope`` (s/B) and, derived, ``wmax`` (GB/s); `residuals`
    are in seconds.

    Attributes
    ----------
    weighting : str
        ``"fitted"`` or ``"none"``.
    left_out : int
        Number of points left out as cache-resident.
    left_out_B : float
        Largest size to leave out; 0 if none was to be left out.
    entry_B : float
        Bytes moved for each entry of the arrays, whose length is the column ``elements``; NaN
        without it, or if the points differ.
    """

    weighting: str
    left_out: int
    left_out_B: float
    entry_B: float = math.nan

    def __repr__(self) -> str:
        """Return both parameters with their intervals, the number of points and the remark."""
        parts = [
            f"T0 = {self.parameters['t0'].text(1e6)} us",
            f"Wmax = {self.parameters['wmax'].text()} GB/s",
            f"{len(self.residuals)} points",
            f"r2 = {self.r2:.4f}",
            *([self.remark] if self.remark else []),
        ]
        return f"<T0WmaxFit: {', '.join(parts)}>"

    @property
    def t0_s(self) -> float:
        """Time of an invocation that moves no data, in seconds; noise can make it negative."""
        return self.parameters["t0"].value

    @property
    def t0_ci_s(self) -> tuple[float, float]:
        """Interval of `t0_s`."""
        return self.parameters["t0"].low, self.parameters["t0"].high

    @property
    def off(self) -> Floats:
        """Absolute residuals as a share of the measured times, shape (n,)."""
        return np.asarray(np.abs(self.residuals) / self.points["time_s"])

    @property
    def t0_resolved(self) -> bool:
        """Whether T0 is significant: its interval is above zero and the line is near the points.

        It is near if at least half of the points are within 10 %.
        """
        return self.t0_ci_s[0] > 0 and not self.far

    @property
    def far(self) -> bool:
        """Whether most of the points are more than 10 % off the line."""
        return bool(np.median(self.off) > _FAR)

    @property
    def holds(self) -> npt.NDArray[np.bool_]:
        """Whether the line is within a third of each measured time, shape (n,)."""
        return np.asarray(self.off <= _HOLDS)

    @property
    def wmax_GBps(self) -> float:
        """Asymptotic bandwidth of large sizes; infinite if times do not grow with size."""
        return self.parameters["wmax"].value

    @property
    def wmax_ci_GBps(self) -> tuple[float, float]:
        """Interval of `wmax_GBps`; its upper end is infinite if the slope may be zero."""
        return self.parameters["wmax"].low, self.parameters["wmax"].high

    @property
    def b80_B(self) -> float:
        """Bytes at which 80 % of Wmax is reached, ``4 T0 Wmax``; NaN if T0 is negative."""
        return self.b_fraction(0.8)

    def b_fraction(self, fraction: float) -> float:
        """Return the bytes at which a fraction of Wmax is reached, the Fischer-Brown point.

        Parameters
        ----------
        fraction : float
            Between 0 and 1.

        Returns
        -------
        float
            ``fraction / (1 - fraction) * T0 * Wmax``; NaN if T0 is negative.

        Raises
        ------
        InputError
            If `fraction` is not between 0 and 1.
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction must lie between 0 and 1, not {fraction!r}")
        if self.t0_s < 0:
            return math.nan
        return fraction / (1 - fraction) * self.t0_s * self.wmax_GBps * 1e9

    @property
    def b80_ci_B(self) -> tuple[float, float]:
        """Interval of `b80_B`."""
        return self.b_fraction_ci(0.8)

    def b_fraction_ci(self, fraction: float) -> tuple[float, float]:
        """Return the interval of `b_fraction`, by Fieller's theorem.

        It contains every ratio of T0 to the slope that the data do not reject. Its lower end may be
        negative, like T0's; both ends are infinite if the slope may be zero.

        Parameters
        ----------
        fraction : float
            Between 0 and 1.

        Returns
        -------
        low, high : float
            Bytes.

        Raises
        ------
        InputError
            If `fraction` is not between 0 and 1.

        References
        ----------
        E. C. Fieller, "Some problems in interval estimation", Journal of the Royal Statistical
        Society B 16 (1954) 175.
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction must lie between 0 and 1, not {fraction!r}")
        t0, slope = self.t0_s, self.parameters["slope"].value
        square = student_quantile((1 + self.level) / 2, len(self.residuals) - 2) ** 2
        (v00, v01), (_, v11) = square * self.covariance
        # (t0 - b slope)^2 <= v00 - 2 b v01 + b^2 v11 as a b^2 - 2 h b + c <= 0
        a, h, c = slope**2 - v11, t0 * slope - v01, t0**2 - v00
        if a <= 0 or slope <= 0:
            return -math.inf, math.inf
        root = math.sqrt(max(h * h - a * c, 0.0))
        times = fraction / (1 - fraction)
        return times * (h - root) / a, times * (h + root) / a

    @property
    def b80_entries(self) -> float:
        """Length of the arrays at which 80 % of Wmax is reached, `b80_B` over `entry_B`."""
        return self.b80_B / self.entry_B

    def predict(self, bytes_B: npt.ArrayLike) -> Prediction:
        """Return time and bandwidth.

        Parameters
        ----------
        bytes_B : array_like of float
            Bytes moved, of any shape.

        Returns
        -------
        Prediction
            Of the same shape.

        Raises
        ------
        InputError
            If an amount is negative or not finite.
        """
        return predict_sum([(self, bytes_B)])

    def summary(self) -> dict[str, Any]:
        """Return the results of the fit for a table.

        Returns
        -------
        dict
            ``t0_s``, ``t0_ci_s`` [low, high], ``t0_resolved``, ``wmax_GBps``, ``wmax_ci_GBps``,
            ``b80_B``, ``b80_ci_B``, ``b80_entries`` (None if unknown), ``r2`` and ``points``, the
            number of points used.
        """
        return {
            "t0_s": self.t0_s,
            "t0_ci_s": list(self.t0_ci_s),
            "t0_resolved": self.t0_resolved,
            "wmax_GBps": self.wmax_GBps,
            "wmax_ci_GBps": list(self.wmax_ci_GBps),
            "b80_B": self.b80_B,
            "b80_ci_B": list(self.b80_ci_B),
            "b80_entries": None if math.isnan(self.b80_entries) else self.b80_entries,
            "r2": self.r2,
            "points": len(self.residuals),
        }


def fit_t0_wmax(
    records: Records,
    *,
    weighting: Literal["fitted", "none"] = "fitted",
    level: float = 0.95,
    leave_out_B: float | Literal["caches", "changepoint"] | None = None,
    caches_B: float | None = None,
    footprint_B: tuple[float, float] = (0.0, math.inf),
) -> T0WmaxFit:
    """Fit ``T(B) = T0 + B / Wmax`` by least squares.

    Parameters
    ----------
    records : ResultSet, DataFrame or mapping of str to array_like
        Columns ``bytes_B`` and ``time_s``, or ``time_min_s`` as in memkern's records, at least
        three rows of at least two sizes. Rows whose ``valid`` is False or whose ``disturbed`` is
        True are ignored.
    weighting : str
        ``"fitted"`` weights each point by ``1 / T**2`` with T the fitted time, for noise in
        proportion to the time. ``"none"`` gives all points the same weight, as Chalmers and
        Warburton [1]_ do, with a covariance robust against unequal variances (HC3 [2]_). A few
        large sizes determine this fit: the interval of its T0 is unreliable, and with 20 sizes and
        2 % noise the interval of its Wmax has a coverage of 0.83 instead of 0.95.
    level : float
        Confidence level of the intervals.
    leave_out_B : float or str, optional
        Leaves out cache-resident points: a number leaves out points of up to this many bytes;
        ``"caches"``, points whose memory (``footprint_B`` if there is such a column, else
        ``bytes_B``) is no larger than the last-level caches together; ``"changepoint"``, points
        before the size at which two lines fit best, if two fit significantly better than one. If
        the slope changes at several sizes, the sharpest change is used, not always the last.
    caches_B : float, optional
        Total size of the last-level caches, if the records do not have it.
    footprint_B : (float, float)
        Only points whose memory is above the first size and at most the second are used.

    Returns
    -------
    T0WmaxFit
        Intervals are Student's with n - 2 degrees of freedom.

    Raises
    ------
    InputError
        If a column is missing, a value is not positive and finite, there are too few points or
        sizes, or an option is out of its range.

    Notes
    -----
    The weighted fit is iterated until the weights converge. It solves the likelihood equations of
    gamma-distributed times; a step is halved as long as it increases their deviance or makes a
    fitted time negative.

    References
    ----------
    .. [1] N. Chalmers and T. Warburton, "Portable high-order finite element kernels I: Streaming
       Operations", arXiv:2009.10917 (2020).
    .. [2] J. G. MacKinnon and H. White, "Some heteroskedasticity-consistent covariance matrix
       estimators with improved finite sample properties", Journal of Econometrics 29 (1985) 305.

    Examples
    --------
    >>> fit = fit_t0_wmax({"bytes_B": [1e3, 1e6, 1e9], "time_s": [2.01e-6, 12e-6, 10.002e-3]})
    >>> round(fit.wmax_GBps), round(fit.b80_B)
    (100, 800000)
    """
    if weighting not in ("fitted", "none"):
        raise InputError(f"weighting must be fitted or none, not {weighting!r}")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    sizes, times, footprint, disturbed, entries = points(records)
    limit, held = 0.0, sizes
    if leave_out_B == "changepoint":
        limit = _change_point(sizes, times)
    elif leave_out_B == "caches":
        limit, held = _cache_size(records, caches_B), footprint
    elif leave_out_B is not None:
        limit = _positive("leave_out_B", leave_out_B)
    kept = (held > limit) & (footprint > footprint_B[0]) & (footprint <= footprint_B[1])
    x, y = sizes[kept], times[kept]
    if len(x) < _LEAST_POINTS:
        beyond = f" beyond {limit:.0f} B" if limit else ""
        raise InputError(
            f"a fit needs at least {_LEAST_POINTS} points{beyond}, not {len(x)}"
            + f" beside {disturbed} that were disturbed" * bool(disturbed)
        )
    if x.min() == x.max():
        raise InputError(f"a fit needs at least two sizes, but every bytes_B is {x[0]:.0f}")

    weights = _settled_weights(x, y) if weighting == "fitted" else np.ones_like(x)
    rows = _line(x, weights)
    t0, slope = (float(value) for value in rows @ y)
    residuals = y - (t0 + slope * x)
    squares = float(weights @ residuals**2)
    fitted = weighting == "fitted"
    variance = squares / (len(x) - 2) / weights if fitted else _hc3(x, rows, residuals)
    covariance = (rows * variance) @ rows.T
    about_mean = float(weights @ (y - np.average(y, weights=weights)) ** 2)

    remarks = [_UNWEIGHTED] * (weighting == "none")
    if disturbed:
        remarks.append(f"{disturbed} disturbed record{'s' * (disturbed > 1)} left out of the fit")
    quantile = student_quantile((1 + level) / 2, len(x) - 2)
    t0_error, slope_error = (math.sqrt(value) for value in np.diag(covariance))
    low, high = slope - quantile * slope_error, slope + quantile * slope_error
    return T0WmaxFit(
        parameters={
            "t0": Parameter(t0, t0_error, t0 - quantile * t0_error, t0 + quantile * t0_error, "s"),
            "slope": Parameter(slope, slope_error, low, high, "s/B"),
            "wmax": Parameter(
                _inverse_GBps(slope),
                # By the delta method; the interval does not use it.
                slope_error / slope**2 / 1e9 if slope > 0 else math.inf,
                _inverse_GBps(high),
                _inverse_GBps(low),
                "GB/s",
            ),
        },
        covariance=covariance,
        points={"bytes_B": x, "time_s": y},
        residuals=residuals,
        r2=1 - squares / about_mean if about_mean > 0 else math.nan,
        level=level,
        remark="; ".join(remarks),
        weighting=weighting,
        left_out=int(np.count_nonzero(~kept)),
        left_out_B=limit,
        entry_B=_entry_B(x, entries[kept]),
    )


def _entry_B(sizes: Floats, entries: Floats) -> float:
    """Return the bytes of an entry, NaN if not all points have equally many."""
    each = sizes / entries
    return float(each[0]) if np.allclose(each, each[0], rtol=1e-9, atol=0) else math.nan


class Side(NamedTuple):
    """A fit of the sizes in the caches, of those in memory, or of all.

    Attributes
    ----------
    name : str
        ``caches``, ``memory`` or ``all``.
    fit : T0WmaxFit
    """

    name: str
    fit: T0WmaxFit


def fit_both_sides(records: Records, **options: Any) -> list[Side]:
    """Fit the sizes in the caches and those in memory separately.

    If the last cache is large, one line fits neither: in the caches the line starts at T0; in
    memory it has the slope of memory and starts below zero, by the time saved for data still in the
    caches. So T0 comes from the first side and Wmax from the last one.

    Parameters
    ----------
    records : ResultSet, DataFrame or mapping
        As for `fit_t0_wmax`, of one group that `groups` returns.
    **options
        ``weighting``, ``level`` and ``caches_B`` of `fit_t0_wmax`; by default the last cache comes
        from `cache_ends`.

    Returns
    -------
    list of Side
        Fits of the sizes up to half the last cache and of those beyond it, each with four sizes or
        more. If the plateau of the bandwidth from memory begins at a smaller size (see
        `memkern.models.memory.plateau_B`), since a virtual machine has only a part of the cache,
        the sizes of the plateau are fitted instead, and the size of the cache is taken as a quarter
        of its beginning. With fewer sizes beyond the cache, these are not fitted; with fewer sizes
        in the caches, or unknown caches, all sizes are fitted together.

    Raises
    ------
    InputError
        As `fit_t0_wmax`.
    """
    ends = cache_ends(records)
    last = options.get("caches_B") or (ends[-1][1] if ends else 0.0)
    sizes, times, footprint, *_ = points(records)
    parts = {"caches": (0.0, last / 2), "memory": (last, math.inf)}
    begin_B = math.nan if options.get("caches_B") else plateau_B(footprint, sizes / times, last)
    if begin_B <= last:
        parts = {
            "caches": (0.0, min(last, begin_B / MULTIPLE) / 2),
            "memory": (math.nextafter(begin_B, 0), math.inf),
        }
    enough = {
        name: len(np.unique(sizes[(footprint > low) & (footprint <= high)])) >= _LEAST_HELD
        for name, (low, high) in parts.items()
    }
    if not (last and enough["caches"]):
        return [Side("all", fit_t0_wmax(records, **options))]
    return [
        Side(name, fit_t0_wmax(records, footprint_B=part, **options))
        for name, part in parts.items()
        if enough[name]
    ]


def predict_sum(parts: Iterable[tuple[T0WmaxFit, npt.ArrayLike]]) -> Prediction:
    """Return time and bandwidth of kernels that run in sequence, as in a CG iteration.

    Parameters
    ----------
    parts : iterable of (T0WmaxFit, array_like of float)
        Each kernel's fit and the bytes that it moves; shapes that broadcast.

    Returns
    -------
    Prediction
        The sum of the times, and the sum of the bytes over it.

    Raises
    ------
    InputError
        If there is no kernel, or an amount is negative or not finite.
    """
    sizes, times = [], []
    for fit, bytes_B in parts:
        size = np.asarray(bytes_B, dtype=np.float64)
        if not (np.isfinite(size) & (size >= 0)).all():
            raise InputError("bytes_B must be finite and not negative to predict from")
        sizes.append(size)
        times.append(fit.t0_s + fit.parameters["slope"].value * size)
    if not times:
        raise InputError("a prediction needs at least one kernel")
    time, size = np.asarray(sum(times)), np.asarray(sum(sizes))
    with np.errstate(divide="ignore", invalid="ignore"):
        bandwidth = np.where(time > 0, size / time / 1e9, np.nan)
    # Indexing with () turns an array without dimensions into a scalar.
    return Prediction(time[()], bandwidth[()])


def _line(x: Floats, weights: Floats) -> Floats:
    """Return the (2, n) matrix of weighted least squares that maps times to T0 and slope."""
    share = weights / weights.sum()
    mean = share @ x
    from_mean = share * (x - mean)
    slope = from_mean / (from_mean @ (x - mean))
    return np.stack((share - mean * slope, slope))


def _settled_weights(x: Floats, y: Floats) -> Floats:
    """Return the weights that are the inverse squares of the times fitted with them."""
    # The iteration starts with a line without T0, which is positive at every size.
    fitted = x * (y / x).mean()
    deviance = _deviance(y, fitted)
    for _ in range(_MOST_ITERATIONS):
        t0, slope = _line(x, fitted**-2.0) @ y
        proposed = t0 + slope * x
        if np.abs(proposed / fitted - 1).max() <= _SETTLED:
            return np.asarray(fitted**-2.0)
        for _ in range(_MOST_HALVINGS):
            # The tolerance is for rounding errors.
            if _deviance(y, proposed) <= deviance + 1e-13 * len(y):
                break
            proposed = (fitted + proposed) / 2
        else:
            break
        fitted, deviance = proposed, _deviance(y, proposed)
    raise InputError("the weights of the fit do not converge: the times are far from any line")


def _deviance(y: Floats, fitted: Floats) -> float:
    """Return half the gamma deviance of the times, or NaN if a fitted one is not positive."""
    if not fitted.min() > 0:
        return math.nan
    ratio = y / fitted
    return float((ratio - 1 - np.log(ratio)).sum())


def _hc3(x: Floats, rows: Floats, residuals: Floats) -> Floats:
    """Return the variances of the times as HC3 estimates them."""
    rest = 1 - (rows[0] + rows[1] * x)
    # A point that alone determines the line has no residual for estimating its variance.
    alone = rest < 1e-9
    return np.where(alone, np.inf, (residuals / np.where(alone, 1, rest)) ** 2)


def _change_point(sizes: Floats, times: Floats) -> float:
    """Return the last size of the first of two regimes, or 0 if there is only one regime."""
    different = np.unique(sizes)
    if len(different) < 2 * _LEAST_SIDE:
        raise InputError(
            f"a change-point search needs at least {2 * _LEAST_SIDE} sizes, not {len(different)}"
        )
    order = np.argsort(sizes, kind="stable")
    x, y = sizes[order], times[order]
    ends = np.searchsorted(x, different[_LEAST_SIDE - 1 : -_LEAST_SIDE], side="right")
    misfits = [_misfit(x[:end], y[:end]) + _misfit(x[end:], y[end:]) for end in ends]
    best = int(np.argmin(misfits))
    # Smaller residuals are rounding errors, which are not independent.
    variance = (misfits[best] + len(x) * 1e-24) / (len(x) - 4)
    return float(x[ends[best] - 1]) if _misfit(x, y) - misfits[best] > _BEND * variance else 0.0


def _misfit(x: Floats, y: Floats) -> float:
    """Return the sum of squared relative residuals about a line."""
    # The weights use measured times, so that the sums of different splits are comparable.
    weights = y**-2.0
    t0, slope = _line(x, weights) @ y
    return float(weights @ (y - t0 - slope * x) ** 2)


def _cache_size(records: Records, caches_B: float | None) -> float:
    size = last_level_cache_B(records) if caches_B is None else caches_B
    if size is None:
        raise InputError("the records do not describe their machine's caches: give caches_B")
    return _positive("caches_B", size)


def _positive(name: str, value: float | str) -> float:
    if isinstance(value, str) or not 0 < value < math.inf:
        raise InputError(f"{name} must be a positive number of bytes, not {value!r}")
    return float(value)


def _inverse_GBps(slope: float) -> float:
    return 1 / slope / 1e9 if slope > 0 else math.inf
