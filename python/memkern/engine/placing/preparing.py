"""Preparation of cases, with the choice of a variant by trials."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.checks import refuse_masked
from memkern.engine.placing import variants
from memkern.engine.processes.process import exclusive
from memkern.engine.recording.taken import Choice
from memkern.engine.sampling.prepared import Prepared
from memkern.errors import InputError
from memkern.host import Host
from memkern.spec.case import Case


def prepare(case: Case) -> Prepared:
    """Allocate, place and fill the memory of a case, and choose its variant.

    Raises
    ------
    InputError, MemoryError
        A requested option is wrong or not available; then nothing was written.
    DeviceError
        An operation of a GPU failed.
    """
    return ready(case)


def ready(
    case: Case,
    chosen: Choice | None = None,
    deadline: float = math.inf,
    host: Host | None = None,
) -> Prepared:
    """Return a prepared case with the variant `chosen`, by default as `prepare` does it.

    See `Prepared` for the parameters, and `prepare` for the errors.
    """
    with exclusive():
        prepared = Prepared(case, chosen, deadline, host)
        with prepared.switched():
            if chosen is None and case.knobs.variant == "best":
                begin = time.perf_counter()
                best, prepared.loss = variants.fastest(prepared, prepared.candidates)
                prepared.how = "trial"
                prepared.select(*best)
                prepared.choosing_s = time.perf_counter() - begin
    return prepared


def apply(case: Case, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Run a case's kernel once on the caller's values, exactly as a measurement would.

    Parameters
    ----------
    case : Case
    **arrays : ndarray
        Values for arrays of the kernel (see its spec) in the case's dtype; the others have the
        values with which measurements fill them. An array with one row per worker has shape
        (workers, n), or (n,) with one worker.

    Returns
    -------
    dict of ndarray
        All arrays of the kernel afterwards.

    Raises
    ------
    InputError
        An array is unknown or of the wrong shape or type.
    """
    given = {}
    for name, values in arrays.items():
        refuse_masked(values, f"array {name!r}")
        try:
            given[name] = np.asarray(values)
        except ValueError as error:
            raise InputError(f"array {name!r} is no array: {error}") from None
    prepared = prepare(case)
    prepared.native.fill(outputs=True)
    for name, values in given.items():
        prepared.native.copy_in(name, values)
    prepared.native.run(1)
    return {name: prepared.native.copy_out(name) for name in prepared.native.arrays()}
