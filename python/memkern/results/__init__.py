"""Records of measurements: kept safe while they are made, exported, loaded, shown.

A `ResultSet` holds one flat record a case and repeat, the raw samples of each, and the
environments they refer to. A running sweep writes into a `Store`, one SQLite file that has every
finished case even after a power cut. Parquet, CSV and JSON are exports of it. All four hold the
same: what is saved in one and loaded again is equal, bit by bit.

Missing values have one form, whatever the format: NaN in a column of floats, None in any other.
"""

from memkern.results.resultset import ResultSet, load
from memkern.results.store import Sink, Store, check_output, open_output
from memkern.results.values import SCHEMA_VERSION, Record

__all__ = [
    "SCHEMA_VERSION",
    "Record",
    "ResultSet",
    "Sink",
    "Store",
    "check_output",
    "load",
    "open_output",
]
