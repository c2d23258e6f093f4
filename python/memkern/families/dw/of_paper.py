"""The paper's tables of layer conditions and of the ECM model's terms for the domain wall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from memkern import reference
from memkern.families.dw.data import CONDITIONS, VALUE, core_of, extents_of
from memkern.models import LayerConditions, paper_hypotheses, published
from memkern.models.layer_conditions import FLOPS
from memkern.plots.kit import Records, Selection, new_table, table

_LATTICE, _LS = "24x24x24x24", 8
# Partitions of x, y, z and t whose sites share a vector of 512 bits.
_CUTS = {"RIRI": (1, 1, 2, 2), "RRII": (1, 2, 2, 2)}
_LEVELS = ("L1", "L2", "memory")
# Spinors that come from the next level, by the strongest condition that holds.
_SPINORS = {"none": 8, "s": 8, "x": 7, "y": 5, "z": 3, "t": 1}


@table(
    "dw-conditions",
    "condition, site_B (V_j, the bytes of a site and s from and to the next level, if this is the "
    "strongest condition that a cache fulfils) and scalar_B, RIRI_B and RRII_B (sizes above which "
    "caches fulfil it, for scalar code and for vectors of 512 bits; in whole bytes)",
    paper="alappat2021",
    number="table 5",
    records="Not used",
    lack="a number is wrong",
    optional=True,
)
def conditions(records: Records = None, lattice: str = _LATTICE, ls: int = _LS) -> Selection:
    """Layer conditions of the domain-wall kernel as published, in bytes for a lattice.

    They are for double precision, stores that first read their lines, and one core.

    Parameters
    ----------
    lattice : str
        Lattice, by default the paper's.
    ls : int
        Ls.
    """
    models = {layout: _model(layout, lattice, ls) for layout in ("scalar", *_CUTS)}
    sizes_B = {layout: model.paper_conditions() for layout, model in models.items()}
    rows = [
        {
            "condition": CONDITIONS[name],
            "site_B": round(16 * (72 / (1 if name == "none" else ls) + 12 * (spinors + 2))),
            **{f"{layout}_B": round(sizes.get(name, 0)) for layout, sizes in sizes_B.items()},
        }
        for name, spinors in _SPINORS.items()
    ]
    return new_table(rows), []


@table(
    "dw-ecm",
    'row ("published" or "computed"), layout, compiler (of the published code), core_cycles '
    "(T_c_OL), L1_load_cycles, L1_store_cycles, L2_cycles, memory_cycles, data_cycles (f of these "
    "four by the paper's hypothesis d), cycles (T_ECM, the larger one of T_c_OL and f) and "
    "printed_cycles (T_ECM as printed)",
    paper="alappat2021",
    number="table 6",
    records="Not used",
    optional=True,
)
def terms_of_codes(records: Records = None) -> Selection:
    """Terms of the ECM model of the domain-wall kernel on an A64FX, published and computed.

    Cycles of a site and s on one core, for the paper's lattice of 24^4 x 8. The published times of
    loads and stores in L1 are those of the compiled codes, including spilled registers. The
    computed ones are those of links, spinors and results alone; T_c_OL is that of the arithmetic,
    and the other terms follow from layer conditions.
    """
    rows = [
        {
            "row": "published",
            "layout": row["layout"],
            "compiler": row["compiler"],
            **_terms(
                {
                    "L1": (row["L1_load_cycles"], row["L1_store_cycles"]),
                    **{level: (row[f"{level}_cycles"], 0.0) for level in _LEVELS[1:]},
                },
                row["core_cycles"],
            ),
            "printed_cycles": row["cycles"],
        }
        for row in reference.rows("alappat2021-domain-wall")
    ]
    computed = [
        {"row": "computed", "layout": layout, "compiler": "", **_computed(layout)}
        for layout in _CUTS
    ]
    return new_table([*rows, *computed]), []


def _model(layout: str, lattice: str = _LATTICE, ls: int = _LS) -> LayerConditions:
    cuts = _CUTS.get(layout, (1, 1, 1, 1))
    return LayerConditions(extents_of(lattice, "lattice"), ls, cuts, layout=cast("Any", layout))


def _terms(terms: Mapping[str, tuple[float, float]], core: float) -> dict[str, float]:
    """Return the columns of the terms, of f and of T_ECM."""
    data = paper_hypotheses(_LEVELS)["d"].cycles(terms)
    load, store = terms["L1"]
    return {
        "core_cycles": core,
        "L1_load_cycles": load,
        "L1_store_cycles": store,
        **{f"{level}_cycles": sum(terms[level]) for level in _LEVELS[1:]},
        "data_cycles": data,
        "cycles": max(core, data),
    }


def _computed(layout: str) -> dict[str, float]:
    """Return the columns by layer conditions and by the instructions of the A64FX."""
    machine = published("A64FX")
    # An invocation of one update.
    record = {"layout": layout, "cut": "sites", "vector_bits": machine.vector_bits,
              "dtype": "float64", VALUE: FLOPS / 1e9, "time_min_s": 1.0}  # fmt: skip
    moved = _model(layout).transfers(_LEVELS, machine.caches)
    predicted = machine.model_of().predict(moved, core_of(machine, record))
    return _terms(predicted.terms, predicted.core)
