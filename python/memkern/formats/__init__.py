"""Records of measurements: stored during a run, exported, loaded and shown.

A `ResultSet` has one flat record per case and repeat, the raw samples of each, and the
environments they refer to. A running sweep writes to a `Store`, one SQLite file that contains every
finished case even after a power failure. Parquet, CSV and JSON are exports of it. All four have the
same contents: saved and loaded results are bitwise equal.

Missing values are NaN in a column of floats and None in any other, in all formats.
"""

from memkern.formats.resultset import ResultSet, concat, load
from memkern.formats.values import SCHEMA_VERSION, Record

__all__ = [
    "SCHEMA_VERSION",
    "Record",
    "ResultSet",
    "concat",
    "load",
]
