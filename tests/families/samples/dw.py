"""Cases of the hopping term."""

from typing import Any

from shapes import built

import memkern as mk
from memkern.spec.case import Case

# Options of cases by name. The arrays of a case depend on type, layout and vector, so it is rebuilt
# for each of them.
SHAPES: dict[str, dict[str, Any]] = {
    "uneven": {"lattice": (2, 4, 2, 6), "ls": 3},
    "single": {"lattice": (2, 2, 2, 2), "ls": 1, "repetition": "barrier"},
    "even": {"lattice": (4, 4, 4, 4), "ls": 1, "parity": "even", "prefetch": 3, "chunk": 5},
    "odd": {
        **{"lattice": (4, 4, 4, 4), "ls": 2, "parity": "odd", "order": "xyzt"},
        **{"block": (0, 2, 0, 2), "prefetch": 1, "prefetch_into": "L1", "repetition": "free"},
    },
    "offset": {"lattice": (4, 2, 4, 2), "ls": 2, "share_planes": True, "offset": 64},
}


# Parts with one and with several sites, both parities and another order.
SAMPLES = {
    "dw.hop": [
        built("dw.hop", layout="lexicographic", name=name, **shape)
        for name, shape in SHAPES.items()
    ]
}
MORE_CASES = {
    "dw.hop": [
        mk.dw.case((4, 4, 4, 4), ls=8, layout=layout, dtype=dtype, parity="odd")
        for layout in ("RRII", "RIRI")
        for dtype in ("float32", "float64")
    ],
}
# Layouts depend on variant and instruction set: tests/cpp/dw_test.cpp tests all of them.
OWN_ENTRIES = FORMULAS = ("dw.hop",)


def for_entry(case: Case, options: dict[str, Any]) -> Case:
    """Return the case rebuilt for the layout of an entry."""
    shape = dict(SHAPES[case.labels["name"]])
    layout, *vector = options["template_variant"].split("/")
    if vector:
        shape.update(cut="tzyx" if vector[0] == "sites" else "s", vector=int(vector[1]))
        if vector[0] == "s":
            # A multiple of the complex numbers of any vector.
            shape.update(lattice=(2, 2, 4, 2), ls=16)
    found = built("dw.hop", layout=layout, dtype=options["dtype"], **shape)
    assert found.template_variant == options["template_variant"]
    return found.with_(variant=options["variant"], isa=options["isa"], threads=case.knobs.threads)
