"""The verb raider."""

from __future__ import annotations

from memkern.cli.options import measuring_options
from memkern.cli.verbs import kernel_verb
from memkern.spec.kernel import DTYPES, INTEGER_DTYPES

RAIDER_VERB = kernel_verb(
    "raider",
    "RaiderSTREAM: STREAM's kernels regular, gathered, scattered and central",
    (
        "memkern raider -k triad,gather_triad",
        "memkern raider --pattern zipf:1.2",
        "memkern raider -k gather_copy --pattern stride:8 -n 1000000",
    ),
    measuring=measuring_options(dtypes=(*DTYPES, *INTEGER_DTYPES)),
)
