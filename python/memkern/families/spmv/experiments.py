"""Experiments that explain the time of a product (see `memkern.spec.experiments`)."""

from __future__ import annotations

import dataclasses

import numpy as np

from memkern.families.spmv.kernels import stored_entries
from memkern.shared.experiments import HIDDEN, HUGE_PAGES, indexed, resized, usual
from memkern.spec.case import Case
from memkern.spec.experiments import TRIED, Experiment, Setting, knob
from memkern.spec.registry import find

IRREGULAR = "irregular x"
# Share of L1 for the elements of x that are left.
_HELD = 0.25
_CHUNK, _SIGMA = 8, 1024


def _by_rows(case: Case) -> bool:
    """Return whether the indices are those of rows, not of columns."""
    return case.spec.kernel != "spmv.csc"


def _adjacent(case: Case, size_B: float) -> Case | None:
    """Return a product of adjacent rows, as long as all on average, and so much less of x."""
    n, starts = case.integers, case.indices["starts"]
    # Entries are stored with the padding of chunks.
    rows = int(n["rows"] * size_B / case.bytes_B * n["nonzeros"] / stored_entries(case))
    if not (_by_rows(case) and 0 < rows < n["rows"]):
        return None
    wanted, found = n["nonzeros"] * rows / n["rows"], starts[rows:] - starts[:-rows]
    first = int(np.argmin(np.abs(found - wanted)))
    if not wanted / 2 <= found[first] <= 2 * wanted:
        return None
    columns, sigma = max(n["columns"] * rows // n["rows"], 1), min(n["sigma"], rows)
    entries = slice(int(starts[first]), int(starts[first + rows]))
    return dataclasses.replace(
        resized(case, rows=rows, columns=columns, nonzeros=int(found[first]), sigma=sigma),
        indices={
            "starts": starts[first : first + rows + 1] - starts[first],
            "columns": case.indices["columns"][entries] % columns,
        },
        data={"values": case.data["values"][entries]},
    )


def _x_in_cache(case: Case, setting: Setting) -> Case | None:
    innermost = next(iter(setting.caches.values()))
    held = int(_HELD * innermost.size_B / innermost.workers / case.value_B)
    return indexed(case, columns=case.indices["columns"] % held) if _by_rows(case) else None


def _equal_rows(case: Case, setting: Setting) -> Case | None:
    rows, nonzeros = case.integers["rows"], case.integers["nonzeros"]
    return indexed(case, starts=np.arange(rows + 1) * nonzeros // rows) if _by_rows(case) else None


def _in_chunks(case: Case, setting: Setting) -> Case | None:
    if case.spec.kernel not in ("spmv.crs", "spmv.sell"):
        return None
    shape = {"C": _CHUNK, "sigma": min(_SIGMA, case.integers["rows"])}
    return dataclasses.replace(
        resized(case, chunk=_CHUNK, sigma=shape["sigma"]).with_(unroll=0),
        spec=find("spmv.sell"),
        columns={**case.columns, **shape},
    )


EXPERIMENTS = usual(
    _adjacent,
    Experiment("x in L1", _x_in_cache, IRREGULAR),
    Experiment("equal rows", _equal_rows, "uneven rows"),
    Experiment(
        "equal nonzeros of threads",
        lambda case, setting: (
            dataclasses.replace(
                resized(case, by_entries=1), columns={**case.columns, "balance": "nnz"}
            )
            if setting.threads > 1
            else None
        ),
        role=TRIED,
        option="--balance nnz",
    ),
    dataclasses.replace(HUGE_PAGES, within=IRREGULAR),
    knob("prefetch", 64, HIDDEN, within=IRREGULAR),
    Experiment(
        "chunks of sorted rows",
        _in_chunks,
        role=TRIED,
        option=f"--format sell -C {_CHUNK} --sigma {_SIGMA}",
    ),
    but=[HUGE_PAGES],
)
