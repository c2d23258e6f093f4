"""The changed cases of the experiments on a case, on a made-up machine with small caches."""

from contextlib import suppress

import memkern as mk
from memkern.discovery import family_module
from memkern.errors import InputError
from memkern.machine.caches import MEMORY, Share
from memkern.spec.experiments import Setting

CACHES = {name: Share(name, 2**power, 1) for name, power in (("L1", 13), ("L2", 15), ("L3", 18))}
LEVELS = {f"data in {name}" for name in CACHES}


def changed(case, **facts):
    """Return the changed cases by the names of the experiments that apply; facts of a `Setting`."""
    setting = Setting(**{
        "threads": case.integers.get("workers") or case.knobs.threads or 1, "units": 2,
        "pages": "4k", "variants": ("simd", "nt"), "requested": True, "footprint_B": 2**24,
        "level": MEMORY, "seconds": 1.0, "caches": CACHES, "last_B": CACHES["L3"].size_B,
    } | facts)  # fmt: skip
    found = {}
    for one in family_module(case.spec.kernel.partition(".")[0], "experiments").EXPERIMENTS:
        with suppress(InputError):
            found[one.name] = one.change(case, setting)
    return {name: one for name, one in found.items() if one is not None}


def footprint_B(case):
    """Return the bytes of a case's arrays."""
    return mk.prepare(case.with_(variant="best")).obtained["footprint_B"]
