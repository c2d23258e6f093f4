"""Single instructions, repeated: their reciprocal throughput and their latency.

``instructions.repeat`` executes an instruction on values in registers and in L1.  For the
reciprocal throughput there are 12 or 24 independent chains of it, for the latency one chain; in
both cases ``cycles_per_access`` is the time per instruction.  Vectors have the width of the
instruction set (`isa`); the variant ``scalar`` uses single doubles.

An ``ordered add`` sums a vector's lanes one after the other, from L1 if there is no instruction for
this.  The latency of a store includes a load of the same place.  ``gather with index load`` loads a
vector of indices before each gather.  SVE alone has ``fcadd`` and ``fcmla``, on complex numbers,
and ``whilelo``, which sets a predicate (Alappat et al. 2021, table 2 and section 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memkern import small
from memkern.checks import integer, shown
from memkern.errors import InputError
from memkern.machine.declarations import declared, template_variants
from memkern.shared.checking import Values, error, outcome
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits
from memkern.spec.inputs import Given, row
from memkern.spec.kernel import Native, Traffic, Validation
from memkern.spec.registry import case, register, shows_options_of

INSTRUCTIONS = (
    *("load", "store", "add", "mul", "fma", "divide", "horizontal add", "ordered add"),
    *("permute", "gather", "gather with index load", "atomic add", "fcadd", "fcmla", "whilelo"),
)
QUANTITIES = ("throughput", "latency")
# As in cpp/families/instructions/args.hpp.
_LANES, _CHAINS, _TABLE, _MOST_STRIDE = 32, 24, 512, 8
_VALUES = _CHAINS * _LANES
# Instructions of an invocation: a multiple of 12 and 24.
_COUNT = 24 * 1000
_UNROLL = 12


def _distance(value: Any, name: str) -> str:
    """Return the distance between the indices of a gather as a word."""
    text = str(value)
    if text == "random":
        return text
    if not text.isdecimal():
        raise InputError(f"{name} must be 0 to 8 or random, not {shown(value)}")
    return str(integer(int(text), name, 0, _MOST_STRIDE))


_INPUTS = (
    row("instruction", "fma", "One of `INSTRUCTIONS`.", choices=INSTRUCTIONS, column="-"),
    row("quantity", "throughput", "One of `QUANTITIES`.", choices=QUANTITIES, column="-"),
    row(
        "index_stride",
        "1",
        "Distance between the indices of a gather, 0 to 8, or ``random``.",
        read=_distance,
        type="int | str",
        column="-",
    ),
    row(
        "vector",
        0,
        "Bits of a vector: 128 if the instruction set also has longer vectors; 0 for the longest.",
        least=0,
        most=2**16,
        column="-",
    ),
    row(
        "count",
        _COUNT,
        "Instructions of an invocation, rounded up to a multiple of 24.",
        least=1,
        most=2**40,
        column="-",
    ),
)


def _case(given: Given) -> Case:
    instruction, quantity, vector = given.instruction, given.quantity, given.vector
    gathers, random = instruction.startswith("gather"), given.index_stride == "random"
    if given.option("threads") not in (0, 1):
        raise InputError(f"instructions.repeat runs 1 thread, not {given.option('threads')}")
    built = given.case(
        integers={
            "count": small.cut(-(-given.count // _CHAINS), 3) * _CHAINS,
            "stride": int(given.index_stride) if gathers and not random else 0,
            "random": int(gathers and random),
        },
        template_variant="/".join([instruction, quantity, *[str(vector)] * bool(vector)]),
        columns={
            **({"index_stride": given.index_stride} if gathers else {}),
            **({"vector_bits": vector} if vector else {}),
        },
        options={
            "variant": "scalar" if instruction == "atomic add" else "simd", "repetition": "free"
        },
        fixed={"threads": 1},
    )  # fmt: skip
    if built.template_variant not in available(built.knobs.variant, built.knobs.isa):
        raise InputError(
            f"no {quantity} of {instruction}{f' of {vector} bits' * bool(vector)} is compiled for "
            f"this processor, variant {built.knobs.variant} and instruction set {built.knobs.isa}"
        )
    return built


def available(variant: str, isa: str = "best") -> list[str]:
    """Return a variant's instructions and quantities on this processor, as template variants."""
    return sorted(template_variants("instructions.repeat", isa, variant))


def _index(case: Case) -> Values:
    """Return the indices of the gathered values, shape (chains, lanes)."""
    if case.integers["random"]:
        return ((197 * np.arange(_VALUES) + 89) % _TABLE).reshape(_CHAINS, _LANES)
    return np.tile(np.arange(_LANES) * case.integers["stride"], (_CHAINS, 1))


def expected(case: Case, chains: int, lanes: int) -> Values:
    """Return the values after an invocation with the given numbers of chains and lanes.

    Returns
    -------
    numpy.ndarray of float64, shape (chains, lanes)
        For sums in order and for atomics, the first lane only.
    """
    instruction, quantity, *_ = case.template_variant.split("/")
    count = case.integers["count"]
    steps = count // chains if chains > 1 else count // _UNROLL * _UNROLL
    signs = np.where(np.arange(lanes) % 2 == 0, 1.0, -1.0)
    before = np.arange(1.0, chains + 1)[:, None] * signs
    if instruction == "load" and quantity == "latency":
        return np.ones((1, 1))
    if instruction == "ordered add":
        first = 8 * np.arange(chains)
        each = first * lanes + lanes * (lanes - 1) / 2
        return (np.arange(1.0, chains + 1) + steps * each)[:, None]
    if instruction == "atomic add":
        return np.full((chains, 1), float(steps))
    if instruction.startswith("gather"):
        index = _index(case)
        rows = index[:chains] if "load" in instruction else np.tile(index[0], (chains, 1))
        return rows[:, :lanes].astype(np.float64)
    after: dict[str, Values] = {
        "load": before,
        "store": before,
        "add": before + steps,
        "mul": -before if steps % 2 else before,
        "fma": before + steps,
        "divide": 8 / before if steps % 2 else before,
        "horizontal add": np.zeros_like(before),
        "permute": before[:, ::-1] if steps % 2 else before,
        # Of interleaved real and imaginary parts.
        "fcadd": before - steps * signs,
        "fcmla": before + steps,
        "whilelo": before,
    }
    return after[instruction]


def _check(case: Case, native: Native) -> Validation:
    native.fill(outputs=True)
    yield
    ends = native.copy_out("ends")
    chains, lanes = (int(n) for n in ends[_VALUES:])
    if not (1 <= chains <= _CHAINS and 1 <= lanes <= _LANES):
        return outcome(case, float("inf"), "whole")
    wanted = expected(case, chains, lanes)
    got = ends[:_VALUES].reshape(_CHAINS, _LANES)[:chains, : wanted.shape[1]]
    return outcome(case, error(got, wanted), "whole")


register(
    KernelSpec(
        name="instructions.repeat",
        summary="one instruction, repeated in chains on values in registers and L1",
        source="Alappat et al. 2021, table 2; Fog, Instruction tables",
        arrays=declared("instructions.repeat").arrays,
        traffic=lambda case: Traffic(),
        iterations=lambda case: case.integers["count"],
        # It has no reference, since the numbers of chains and lanes depend on the code that runs.
        checks=Checks(check=_check, reference=lambda case, arrays: {}, ulps=64.0),
        inputs=_INPUTS,
        build=_case,
        limits=Limits(dtypes=("float64",), idle_knobs=("prefetch",)),
        template_columns=("instruction", "quantity"),
        counts=Counts(accesses=lambda case: case.integers["count"]),
    )
)


@shows_options_of("instructions.repeat")
def instructions(instruction: str = "fma", **options: Any) -> Case:
    """Case of an instruction."""
    return case("instructions.repeat", instruction=instruction, **options)
