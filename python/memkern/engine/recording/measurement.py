"""Measurements: records with their samples and environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.formats import ResultSet
from memkern.formats.table import record_line


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """One measured case; measurements with equal results are equal.

    Attributes
    ----------
    record : dict
        The row of the results table.
    samples : ndarray of float64, shape (n,)
        Seconds per invocation, in the order in which they were taken.
    environment : dict
        The machine and build.
    parts : tuple of Measurement
        The single kernels, where an invocation runs several in turn.
    """

    record: dict[str, Any]
    samples: npt.NDArray[np.float64]
    environment: dict[str, Any]
    parts: tuple[Measurement, ...] = ()

    def __repr__(self) -> str:
        """Return the case, the main value with its interval, and the state, in one line."""
        return f"<Measurement: {record_line(self.record)}>"

    def __eq__(self, other: object) -> bool:
        """Compare the results."""
        if not isinstance(other, Measurement):
            return NotImplemented
        return self.results == other.results

    @property
    def valid(self) -> bool:
        """Whether the kernel's results were right."""
        return bool(self.record["valid"])

    @property
    def disturbed(self) -> bool:
        """Whether too few samples were undisturbed for reliable times."""
        return bool(self.record["disturbed"])

    @property
    def bandwidth_GBps(self) -> float:
        """Bytes by the paper's formula divided by the shortest time, in 1e9 B/s."""
        return float(self.record["bandwidth_GBps"])

    def cut_off(self) -> Measurement:
        """Return a copy marked as interrupted, which is measured again when the run is resumed."""
        parts = tuple(part.cut_off() for part in self.parts)
        return dataclasses.replace(self, record={**self.record, "stop": "interrupted"}, parts=parts)

    @property
    def results(self) -> ResultSet:
        """The measurement as a result set, its parts first."""
        return to_result_set([self])

    def _repr_html_(self) -> str:
        return self.results._repr_html_()


def to_result_set(done: Sequence[Measurement], interrupted: bool = False) -> ResultSet:
    """Return measurements as one result set, each after its parts."""
    rows = [row for m in done for row in (*m.parts, m)]
    return ResultSet(
        [row.record for row in rows],
        [row.samples for row in rows],
        {row.record["environment_id"]: row.environment for row in rows},
        interrupted,
    )
