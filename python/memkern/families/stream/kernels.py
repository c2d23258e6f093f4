"""McCalpin's STREAM: copy, scale, add and triad, on their own or in turn (``stream.rotation``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from memkern.errors import InputError
from memkern.inputs.sizes import sizes
from memkern.machine.declarations import declared
from memkern.shared.checking import distance, error, exactly, extent, fresh, outcome, positions
from memkern.shared.elementwise import Arrays, case_of, mccalpin, streaming_inputs
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits
from memkern.spec.inputs import Given
from memkern.spec.kernel import DTYPES, INTEGER_DTYPES, Check, Native, Traffic, Validation
from memkern.spec.registry import case, find, register, shows_options_of

STREAM = "McCalpin, STREAM: Sustainable Memory Bandwidth in High Performance Computers"

mccalpin("stream", STREAM)

# The order of STREAM, in which every pass multiplies a by 15.
_ROTATION = ("stream.copy", "stream.scale", "stream.add", "stream.triad")
_DECLARED = declared("stream.rotation")
_STREAM_ERROR = {"float64": 1e-13, "float32": 1e-6}


def _rotate(v: Arrays, s: float) -> dict[str, Any]:
    b = s * v["a"]
    c = v["a"] + b
    return {"a": b + s * c, "b": b, "c": c}


def _check_rotation(case: Case, native: Native) -> Validation:
    n = case.iterations
    at = positions(n, native)
    values = {name: exactly(fresh(native, name, at), case.dtype) for name in "abc"}
    alpha = exactly(case.numbers["alpha"], case.dtype)
    native.fill(outputs=True)
    for _ in range((yield)):
        values = _rotate(values, alpha)
    if case.dtype in INTEGER_DTYPES:
        worst = max(error(native.peek(name, at), wanted) for name, wanted in values.items())
        return outcome(case, worst, extent(n))
    # STREAM's rule: the average error of each array over its average value.
    errors = (
        float(np.mean(distance(native.peek(name, at), wanted)) / np.mean(wanted))
        for name, wanted in values.items()
    )
    worst = max(0.0, *errors)
    return Check(worst <= _STREAM_ERROR[case.dtype], worst, extent(n))


def _rotation_case(given: Given) -> Case:
    if given.options["invocations"] != 1:
        raise InputError(
            f"stream.rotation has one invocation in a sample, not {given.options['invocations']}, "
            "since its values grow"
        )
    return case_of(given)


register(
    KernelSpec(
        name="stream.rotation",
        summary="copy, scale, add and triad in turn over the same arrays",
        source=STREAM,
        arrays=_DECLARED.arrays,
        traffic=lambda case: sum((find(name).traffic(case) for name in _ROTATION), start=Traffic()),
        iterations=lambda case: case.integers["elements"],
        checks=Checks(
            check=_check_rotation,
            reference=lambda case, arrays: {
                name: values.astype(case.dtype)
                for name, values in _rotate(
                    arrays, exactly(case.numbers["alpha"], case.dtype)
                ).items()
            },
            ulps=4.0,
            idempotent=False,
            repeatable=True,
        ),
        inputs=streaming_inputs("stream.rotation"),
        build=_rotation_case,
        usual={"runs": 10, "invocations": 1},
        counts=Counts(flops=_DECLARED.flops),
        numbers=_DECLARED.scalars,
        limits=Limits(dtypes=(*DTYPES, *INTEGER_DTYPES), most_runs={"float64": 200, "float32": 10}),
    )
)


@shows_options_of("stream.triad")
def stream(kernel: str = "rotation", elements: int | None = None, **options: Any) -> Case:
    """Case of one of STREAM's kernels, or of all in turn.

    Parameters
    ----------
    kernel : str
        ``copy``, ``scale``, ``add``, ``triad``, or all of them in turn: ``rotation``, by default
        with 10 runs.
    """
    return case(f"stream.{kernel}", elements=elements, **options)


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return copy and triad at every size, and STREAM's kernels at the size of memory."""
    most_B = min(4 * cache_B, memory_B // 2)
    return [
        *(
            case(kernel, footprint_B=size, repetition="free", budget_s=0.03 if quick else 0.12)
            for kernel in ("stream.copy", "stream.triad")
            for size in sizes(2**14, most_B, 8 if quick else 25)
        ),
        *(
            stream(
                kernel,
                variant=variant,
                budget_s=0.1 if quick else 0.5,
                footprint_B=3 * most_B // 2,
            )
            for kernel in (("copy", "triad") if quick else ("copy", "scale", "add", "triad"))
            for variant in ("best", "auto")
        ),
    ]


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return copy and triad on a GPU, from its cache to its memory."""
    most_B = min(16 * cache_B, memory_B // 4)
    return [
        case(kernel, footprint_B=size, device=device, budget_s=0.03 if quick else 0.12)
        for kernel in ("stream.copy", "stream.triad")
        for size in sizes(2**16, most_B, 6 if quick else 13)
    ]
