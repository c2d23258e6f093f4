"""Files of version 5d2fe11, whose records have no states of the host and no intervals of floors.

They have two repeats of nine cases: copies and triads in L1 and L2 with one and two threads, and a
gather, measured on two cores with an L3 of 8 MiB.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memkern as mk
from memkern.plots import figures

FILES = {path.suffix: path for path in (Path(__file__).parent / "before_states").glob("before.*")}
KINDS = (".db", ".parquet", ".csv", ".json")


def the_same_cases() -> mk.ResultSet:
    """Return new measurements of the cases of the old files."""
    how: dict[str, Any] = {"runs": 5}
    cases = [
        mk.stream(kernel, elements=size_B // (16 if kernel == "copy" else 24), threads=t, **how)
        for kernel in ("copy", "triad")
        for size_B in (24576, 393216)
        for t in (1, 2)
    ]
    cases.append(mk.gather("UNIFORM:8:4:NR", count=1024, threads=1, **how))
    return mk.sweep(cases, repeats=2, progress=False)


def which(record: Any) -> tuple[str, int]:
    return record["case_id"], record["repeat"]


@pytest.mark.parametrize("kind", KINDS)
def test_old_files_of_any_kind_are_read(kind):
    results, all_kinds = mk.load(FILES[kind]), mk.load(FILES[".db"])
    assert len(results) == 18 and results.environments.keys() == all_kinds.environments.keys()
    rows = [
        sorted(zip(each.records, each.samples, strict=True), key=lambda row: which(row[0]))
        for each in (results, all_kinds)
    ]
    for (record, samples), (other, other_samples) in zip(*rows, strict=True):
        assert which(record) == which(other)
        assert record["time_min_s"] == pytest.approx(other["time_min_s"])
        assert len(samples) == 20 and np.allclose(samples, other_samples)
        assert "state" not in record or not record["state"]


def test_old_files_are_compared_with_new_records():
    before = mk.load(FILES[".db"])
    frame = mk.compare(before, the_same_cases())
    assert len(frame) == 9
    assert np.isfinite(frame["ratio"]).all() and not frame["verdict"].eq("other state").any()
    own = mk.compare(before, before)
    assert len(own) == 9 and set(own["verdict"]) <= {"same", "not enough data", "disturbed"}


def test_old_files_are_drawn():
    before = mk.load(FILES[".db"])
    figure = figures["sizes"](before)
    assert sum(len(ax.lines) + len(ax.patches) for ax in figure.axes) > 0
    assert math.isfinite(figure.get_figwidth())
