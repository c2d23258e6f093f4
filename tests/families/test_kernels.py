"""Every variant, instruction set and type of every registered kernel, compared with its reference.

A new kernel or family needs no code here: the family's file in `samples` has the cases, and the
spec has the reference.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from checking import REQUEST, Changed, checked, refused
from chosen_entries import (
    INDEXED,
    STREAMING,
    THREADS,
    check_corrupted,
    entry_parameters,
    family_of,
    for_entry,
    inputs,
    one_of_all,
    options_of,
    with_threads,
)
from samples import SAMPLES, own

import memkern as mk
from memkern import _memkern
from memkern.errors import InputError
from memkern.families.amo import kernels as amo
from memkern.families.spatter import kernels as spatter
from memkern.machine.declarations import declared
from memkern.shared.checking import rounding
from memkern.spec.registry import registry

# Keys of which the chosen entries cover all values: kernel, family and variant, variant and
# instruction set, types. Other entries are for a release, as tests/cpp run every entry.
KEYS: tuple[Callable[[Any], Any], ...] = (
    lambda e: e[0],
    lambda e: (family_of(e), e[1]),
    lambda e: (e[1], e[2]),
    lambda e: e[3:5],
)


def entry_params() -> list[Any]:
    """Return a parameter of tests for every entry of the binary.

    A hash chooses one entry of each kind (see `KEYS`), so that types and instruction sets differ
    between kernels. The others are marked `release`. Entries of `BOUND` families have their own
    tests.
    """
    every = [entry for entry in _memkern.entries() if not own(entry[0], "BOUND", False)]
    here = [entry for entry in every if entry[2] in _memkern.supported_isas()]
    return entry_parameters(every, one_of_all(here, KEYS))


def test_chosen_entries_have_every_kernel_variant_type_and_instruction_set() -> None:
    params = entry_params()
    every = [param.values[0] for param in params]
    chosen = [param.values[0] for param in params if not param.marks]
    here = [entry for entry in every if entry[2] in _memkern.supported_isas()]
    for key in KEYS:
        assert {key(entry) for entry in chosen} == {key(entry) for entry in here}
    assert {entry[0] for entry in chosen} == {entry[0] for entry in every}
    assert len(chosen) < 2 * len({entry[0] for entry in chosen})


def test_unsupported_instruction_sets_are_refused() -> None:
    isas = _memkern.supported_isas()
    # No build has the instruction sets of two architectures.
    foreign = [("stream.copy", "simd", isa, "float64", "", 0, "") for isa in ("avx2", "sve")]
    refused = [e for e in (*_memkern.entries(), *foreign) if e[2] not in isas]
    assert refused
    for entry in refused:
        if entry[0].startswith("dw."):
            continue  # laid out for a vector: see test_dw.py
        with pytest.raises(InputError, match="has no variant"):
            for_entry(SAMPLES[entry[0]][0], options_of(entry)).prepare()


def test_the_extension_and_the_registry_have_the_same_kernels() -> None:
    # The rotation is a sequence of other kernels.
    assert {entry[0] for entry in _memkern.entries()} | {"stream.rotation"} == set(SAMPLES)
    assert {kernel for kernel, *_ in _memkern.declarations()} == set(registry())


def test_every_type_and_instruction_set_is_built_for_every_variant() -> None:
    entries = set(_memkern.entries())
    for name in (name for name in SAMPLES if name not in own(name, "OWN_ENTRIES", ())):
        spec = registry()[name]
        techniques = {(v, i) for n, v, i, *_ in entries if n == name}
        single = name in own(name, "SCALAR", ())
        compiled = ("scalar",) if single else ("scalar", "auto")
        same = name in own(name, "BASELINE", ())
        isas = ("baseline",) if same else _memkern.supported_isas()
        assert techniques >= set(itertools.product(compiled, isas))
        assert single or "simd" in {v for v, _ in techniques}
        forms = {(d, i, form) for n, _, _, d, i, _, form in entries if n == name}
        if not spec.template_columns:
            assert forms == {
                (d, i, "") for d in spec.limits.dtypes for i in spec.limits.index_dtypes
            }
        for (variant, isa), form in itertools.product(techniques, forms):
            assert (name, variant, isa, *form[:2], 0, form[2]) in entries


def accepted(pattern: str, dtype: str) -> Iterator[str]:
    """Yield the template variants of the atomic operations that Python accepts."""
    how = {"dtype": dtype, "iters": 4, "threads": 1}
    for one, order, returns in itertools.product(amo.PRIMITIVES, amo.ORDERS, ("used", "unused")):
        with suppress(InputError):
            case = mk.amo(pattern, primitive=one, order=order, returns=returns, **how)
            yield case.template_variant


@pytest.mark.parametrize("pattern", amo.PATTERNS)
def test_atomics_are_built_for_every_primitive_order_and_use(pattern):
    for dtype in ("uint64", "uint32", "float64", "float32"):
        built = {e[6] for e in _memkern.entries() if (e[0], e[3]) == (f"amo.{pattern}", dtype)}
        assert built == {*accepted(pattern, dtype)}


def test_kernels_are_unrolled_as_their_families_tell() -> None:
    unrolls: dict[tuple[str, ...], set[int]] = {}
    for *key, unroll, _ in _memkern.entries():
        unrolls.setdefault(tuple(key), set()).add(unroll)
    for key, found in unrolls.items():
        assert found == own(key[0], "unrolls", lambda *_: {0})(*key[:2]), key


@pytest.mark.parametrize("entry", entry_params())
def test_kernel_agrees_with_its_reference(entry):
    kernel, variant, isa, dtype, *_ = entry
    options = options_of(entry)
    samples = SAMPLES[kernel][:4] if options["unroll"] else SAMPLES[kernel]
    if isa not in _memkern.supported_isas():
        for case in samples:
            with pytest.raises(InputError, match=r"has no variant|vector of"):
                for_entry(case, options).prepare()
        return
    for sample in samples:
        one = for_entry(sample, options).with_(threads=1, schedule="static")
        arrays = inputs(one, 1)
        wanted = one.spec.checks.reference(one, arrays)
        got = one.apply(**arrays)
        allowed = one.spec.checks.ulps * rounding(dtype)
        for name, values in wanted.items():
            np.testing.assert_allclose(
                got[name],
                values,
                rtol=0,
                atol=allowed * float(np.max(np.abs(values), initial=1.0)),
                err_msg=f"{name} of {one.columns}",
            )
        for threads in THREADS:
            case = for_entry(with_threads(sample, threads), options)
            prepared = case.prepare()
            assert (prepared.choice.variant, prepared.choice.isa) == (variant, isa)
            check = prepared.check()
            assert check.valid, f"{case.columns} with {threads} threads: {check}"


@pytest.mark.parametrize("kernel", spatter.KERNELS)
@pytest.mark.parametrize("threads, value", [(1, 0.5), (1, 3e6), (1, np.nan), (1, -1.0), (2, 0.5)])
def test_corrupted_result_is_caught(kernel, threads, value):
    array = {"gs": "sparse_scatter"}.get(kernel, "dense" if "gather" in kernel else "sparse")
    for case in SAMPLES[f"spatter.{kernel}"]:
        case = case.with_(threads=threads, schedule="static", chunk=0, variant="scalar")
        native = case.prepare().native
        length = native.arrays()[array]["columns"]
        for position in (0, length // 2, length - 1):
            check = check_corrupted(case, native, array, position, value)
            assert not check.valid, f"{array}[{position}] of {case.columns}"
            assert check.error_max > 0
        assert checked(case, native).valid


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    "shape",
    [
        {"pattern": "UNIFORM:8:4:NR", "count": 70_000},
        {"pattern": "UNIFORM:8:4", "delta": [8, 0, 16], "count": 70_000, "wrap": 3},
        {"pattern": "0,3,3,1", "delta": 0, "count": 200_000, "wrap": 3},
        {"pattern": "UNIFORM:16:8", "delta": 1, "count": 40_000},
        {"pattern": "UNIFORM:16:8", "delta": -3, "count": 40_000},
    ],
)
@pytest.mark.parametrize("kernel", ["gather", "scatter", "gs"])
def test_large_cases_are_checked_by_samples(kernel, shape, threads):
    shape = dict(shape)
    if kernel == "gs":
        pattern = mk.patterns.as_pattern(shape.pop("pattern"))
        shape.pop("wrap", None)
        shape.setdefault("delta", pattern.delta)
        shape.update(pattern_gather=pattern, pattern_scatter=pattern)
    case = spatter.case(kernel, threads=threads, variant="scalar", **shape)
    native = case.prepare().native
    check = checked(case, native)
    assert check.valid, check
    assert check.how in ("sampled", "membership")
    assert not checked(case, Changed(native, run=lambda k: 0.0)).valid


@pytest.mark.parametrize("chunk, how", [(0, "whole"), (4, "whole"), (2, "sampled")])
def test_gathers_are_checked_whole_where_no_row_is_used_twice(chunk, how):
    # With chunks of 2 a worker has instances 0, 1, 4 and 5, and 4 and 5 reuse rows 0 and 1.
    case = spatter.case("gather", pattern="0,1", count=8, wrap=4, threads=2, chunk=chunk)
    check = checked(case, case.prepare().native)
    assert (check.valid, check.how) == (True, how)


def test_a_large_gather_of_the_wrong_place_is_caught() -> None:
    case = mk.gather("UNIFORM:8:4:NR", count=70_000, threads=1)
    other = mk.gather("UNIFORM:8:4", delta=31, count=70_000, threads=1)
    native = other.prepare().native
    assert checked(other, native).valid
    assert not checked(case, native).valid


@pytest.mark.parametrize("kernel", spatter.KERNELS)
def test_another_seed_fills_other_values(kernel):
    case = SAMPLES[f"spatter.{kernel}"][0].with_(threads=1)
    results = [case.with_(seed=seed).apply() for seed in (0, 0, 1, 2**63 - 1)]
    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])
        assert (values != results[2][name]).any()
        assert (results[2][name] != results[3][name]).any()
    assert case.with_(seed=1).identity() != case.identity()
    record = case.with_(seed=1, runs=3).measure().record
    assert record["valid"]
    assert record["seed"] == 1


TRIAD: dict[str, Any] = {
    **REQUEST,
    "kernel": "stream.triad",
    "integers": {"elements": 4, "prefetch": 0},
}


# Kernels whose declared shapes are formulas of integers of the case.
FORMULAS = [*STREAMING, *INDEXED, *(k for k in SAMPLES if k in own(k, "FORMULAS", ()))]


@pytest.mark.parametrize("kernel", FORMULAS)
def test_declared_shapes_are_those_of_the_arrays(kernel):
    case = SAMPLES[kernel][1].with_(threads=1, variant="scalar")
    arrays = case.prepare().native.arrays()
    assert {*arrays} == {role.name for role in case.spec.arrays}
    for role in case.spec.arrays:
        shape = eval(role.shape, {"cuts": 1}, dict(case.integers))
        assert shape == (arrays[role.name]["columns"],), role


# Kernels that have integers, also those without samples, which need a GPU or ranks.
WITH_INTEGERS = [row[0] for row in _memkern.declarations() if declared(row[0]).integers]


@pytest.mark.parametrize("kernel", WITH_INTEGERS)
def test_the_extension_refuses_integers_out_of_their_range(kernel):
    ranges = declared(kernel).integers
    sample = SAMPLES[kernel][0].integers if kernel in SAMPLES else {}
    good = {name: min(max(least, 1), most) for name, (least, most) in ranges.items()}
    good |= {name: sample[name] for name in ranges if sample}

    def expect(message: str, **integers: int) -> None:
        with refused(message):
            _memkern.Prepared(**{**REQUEST, "kernel": kernel, "integers": integers})

    for name, (least, most) in ranges.items():
        assert least <= good[name] <= most
        expect(f"'{name}' is missing", **{n: v for n, v in good.items() if n != name})
        for value, why in ((least - 1, f"at least {least}"), (most + 1, f"at most {most}")):
            fits = -(2**63) <= value < 2**63
            message = (
                f"{name} must be {why}, not {value}" if fits else "integers has the wrong type"
            )
            expect(message, **{**good, name: value})


@pytest.mark.parametrize("kernel", SAMPLES)
def test_kernels_declare_all_their_integers(kernel):
    case = SAMPLES[kernel][0]
    integers = {name: case.integers[name] for name in declared(kernel).integers}
    assert dataclasses.replace(case, integers=integers).prepare().candidates


def test_kernels_that_the_extension_does_not_declare_are_refused() -> None:
    with refused("kernel 'loops.dance' is not declared in the extension"):
        declared("loops.dance")


def test_missing_and_unknown_arguments_are_refused() -> None:
    for name in TRIAD:
        with pytest.raises(ValueError, match=f"argument {name} is missing"):
            _memkern.Prepared(**{k: v for k, v in TRIAD.items() if k != name})
    with pytest.raises(ValueError, match="argument colour is unknown"):
        _memkern.Prepared(**TRIAD, colour="red")
    for name, wrong in (("index_dtype", 5), ("integers", {"elements": 1.5, "prefetch": 0}),
                        ("integers", {"elements": 2**64, "prefetch": 0})):  # fmt: skip
        with pytest.raises(ValueError, match=f"argument {name} has the wrong type"):
            _memkern.Prepared(**{**TRIAD, name: wrong})
