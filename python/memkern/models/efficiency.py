"""Scaling efficiencies of kernels over devices, predicted by their fits of T0 and Wmax."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.models.fit import Floats
from memkern.models.t0_wmax import T0WmaxFit, predict_sum


def strong_scaling_efficiency(
    kernels: Iterable[tuple[T0WmaxFit, float]], parts: npt.ArrayLike
) -> Floats:
    """Return the strong-scaling efficiency of kernels whose data are divided among devices.

    Parameters
    ----------
    kernels : iterable of (T0WmaxFit, float)
        Each kernel's fit on one device and the bytes that it moves there.
    parts : array_like of float
        Numbers of devices, of any shape.

    Returns
    -------
    ndarray of float
        The time for all bytes on one device over `parts` times the time for one part, with the
        shape of `parts`. It is an upper bound, since communication is not included.

    Raises
    ------
    InputError
        If there is no kernel, an amount is negative or not finite, or there is less than one part.
    """
    devices, given = np.asarray(parts, dtype=np.float64), list(kernels)
    if not (np.isfinite(devices) & (devices >= 1)).all():
        raise InputError("parts must be finite and at least 1")
    whole = predict_sum(given).time_s
    part = predict_sum([(fit, np.float64(bytes_B) / devices) for fit, bytes_B in given]).time_s
    return np.asarray(whole / (devices * part))[()]


def weak_scaling_efficiency(
    kernels: Iterable[tuple[T0WmaxFit, float]], communication_s: npt.ArrayLike
) -> Floats:
    """Return the weak-scaling efficiency of kernels whose data grow with the number of devices.

    Parameters
    ----------
    kernels : iterable of (T0WmaxFit, float)
        Each kernel's fit on one device and the bytes that it moves on every device.
    communication_s : array_like of float
        Seconds by which the kernels together take longer on several devices, of any shape: of the
        exchanges on each number of devices, for instance.

    Returns
    -------
    ndarray of float
        The time on one device over that on several, ``T / (T + communication)``, with the shape of
        `communication_s`: 1 without communication, since T depends on the bytes of a device alone.
        The larger these are, the less the communication matters.

    Raises
    ------
    InputError
        If there is no kernel, or an amount or a time is negative or not finite.

    Notes
    -----
    Chalmers and Warburton (2020, section 4) name both efficiencies as uses of the model of their
    equation (8), without a formula for either.
    """
    added = np.asarray(communication_s, dtype=np.float64)
    if not (np.isfinite(added) & (added >= 0)).all():
        raise InputError("communication_s must be finite and not negative")
    alone = predict_sum(kernels).time_s
    return np.asarray(alone / (alone + added))[()]
