"""Cases of the domain-wall kernel, and their fields."""

from typing import Any

from memkern.families.dw import kernels as family
from memkern.inputs.lattice import random_field, random_links

WIDTHS = family.widths()

COMPLEX = {"float64": "complex128", "float32": "complex64"}


def fixed(**options: Any) -> dict[str, Any]:
    """Return options with one thread and a variant, so that variants are not compared first."""
    variant = "scalar" if options.get("layout") == "lexicographic" else "simd"
    return {"variant": variant, "threads": 1, **options}


def fields(extents: Any, ls: int, dtype: str = "float64", seed: int = 0) -> tuple[Any, Any]:
    kind = COMPLEX[dtype]
    return (
        random_links(extents, seed=seed, dtype=kind),
        random_field(extents, ls, seed=seed + 1, dtype=kind),
    )
