"""Gather and scatter at moving bases, after Lavin et al., MEMSYS 2020.

Instance ``n`` of ``count`` moves ``L = len(pattern)`` values between a sparse array at
``base(n)`` and a dense buffer that is private to each worker. With one delta
``base(n) = delta * n``; a list of deltas is applied cyclically. If bases are negative, all are
shifted by the same offset. The dense buffer holds ``L * wrap`` values; instance ``n`` uses row
``n mod wrap``. Processors divide a pattern with more blocks of 16 indices than instances by its
indices, and share one buffer.

======================  ==========================================
gather                  ``dense[:] = sparse[base + i[:]]``
scatter                 ``sparse[base + j[:]] = dense[:]``
gs                      ``sparse_scatter[base' + j[:]] = sparse_gather[base + i[:]]``
multigather             ``dense[:] = sparse[base + i1[i2[:]]]``
multiscatter            ``sparse[base + j1[j2[:]]] = dense[:]``
======================  ==========================================

Where scatters overlap, one worker writes the instances in order; with several workers, each
location contains the last value written by any one of them.

On ``mpi`` and ``shmem`` the sparse array is distributed over all ranks; see
`memkern.families.spatter.over_ranks`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from collections.abc import Sequence as Sequence  # of the types of options, in stubs
from typing import Any

import numpy as np

from memkern import small
from memkern.checks import integer, several
from memkern.errors import InputError
from memkern.families.spatter import over_ranks, suites
from memkern.families.spatter.checks import check_gather, check_scatter, reference
from memkern.families.spatter.sides import (
    SparseSide,
    blocks_of,
    dense_length,
    from_memory,
    gather_side,
    scatter_side,
    traffic_of,
    transfers,
)
from memkern.inputs.patterns import Pattern, as_pattern, usual_count
from memkern.inputs.patterns import PatternLike as PatternLike
from memkern.machine.declarations import declared
from memkern.shared.over_ranks import check_size, check_stored_once, ranks_of, refuse
from memkern.spec.case import Case, Checks, KernelSpec, Limits, Model
from memkern.spec.inputs import REQUIRED, Given, index_type, row
from memkern.spec.kernel import INDEX_DTYPES, IndexArray
from memkern.spec.options import INTEGERS, Declared, Knobs
from memkern.spec.registry import Suite, case, register, register_suite, shows_options_of

SOURCE = "Lavin et al., Evaluating Gather and Scatter Performance on CPUs and GPUs, MEMSYS 2020"
KERNELS = {
    "gather": "A[:] = B[i[:]]",
    "scatter": "A[j[:]] = B[:]",
    "gs": "A[j[:]] = B[i[:]]",
    "multigather": "A[:] = B[i1[i2[:]]]",
    "multiscatter": "A[j1[j2[:]]] = B[:]",
}

# Largest memory of a case of the report; the paper's largest cases need 2 GB.
_REPORT_MEMORY_B = 3 * 10**9
# Sums and products of numbers below this fit in 64 bits.
_FAR = 2**60


def _stride(case: Case) -> dict[str, int | None]:
    """Return the stride of the pattern; none for kernels with two patterns."""
    patterns = [Pattern(case.indices[key]) for key in case.indices if key.startswith("pattern")]
    return {"stride": patterns[0].stride if len(patterns) == 1 else None}


# Patterns of each kernel; of two, bases move by the first.
_PATTERNS = {
    "gather": ("pattern",),
    "scatter": ("pattern",),
    "gs": ("pattern_gather", "pattern_scatter"),
    "multigather": ("pattern", "pattern_gather"),
    "multiscatter": ("pattern", "pattern_scatter"),
}


def _inputs(kernel: str) -> tuple[Declared, ...]:
    """Return the inputs of a kernel, which the verb takes from Spatter's own options."""
    pattern = "Indices in elements, one-dimensional"
    if kernel.startswith("multi"):
        pattern += ": the outer list, and the inner one, which has indices into the outer one"
    elif kernel == "gs":
        pattern += ", of equal length"
    delta = (
        "Distance between consecutive bases in elements; a list is applied cyclically. By default "
        "the delta implied by the pattern (``UNIFORM:8:4:NR``), else 8."
    )
    of_sides = ("delta_gather", "delta_scatter") if kernel == "gs" else ()
    return (
        *(
            row(name, REQUIRED, f"{pattern}.", type="PatternLike", read=_pattern, column="-")
            for name in _PATTERNS[kernel]
        ),
        row("delta", None, delta, type=_DELTA, read=_deltas, column="-"),
        *(
            row(name, None, "Delta of a side, by default `delta`.", type=_DELTA, read=_deltas,
                column="-")
            for name in of_sides
        ),
        row(
            "count",
            None,
            "Instances; by default 1024, or 1 of a pattern of more indices than that.",
            least=1,
            most=_FAR,
            goes_to=INTEGERS,
        ),
        row(
            "wrap",
            1,
            "Rows of the dense buffer; gs has none. On ``mpi`` and ``shmem`` the number of a "
            "rank's instances plus one.",
            least=1,
            most=_FAR,
            goes_to=INTEGERS,
        ),
        row("count_rule", "given", "Label for the record."),
        index_type(),
    )  # fmt: skip


def _pattern(value: Any, name: str) -> Pattern:
    return as_pattern(value)


def _deltas(delta: Any, name: str) -> list[int]:
    values = several(delta, name)
    if not values:
        raise InputError(f"{name} must not be an empty list")
    return [integer(value, name, -_FAR, _FAR) for value in values]


_DELTA = "int | Sequence[int]"


def _case(given: Given) -> Case:
    kernel = given.spec.name.partition(".")[2]
    patterns = {name: given.inputs[name] for name in _PATTERNS[kernel]}
    count = given.count or usual_count([*patterns.values()][-1])
    sides = ("gather", "scatter") if kernel == "gs" else (kernel.removeprefix("multi"),)
    indices: dict[str, IndexArray] = {}
    deltas: dict[str, list[int]] = {}
    for side in sides:
        own = patterns["pattern"] if kernel == side else patterns[f"pattern_{side}"]
        indices[f"pattern_{side}"] = own.indices
        walker = own if kernel == "gs" else patterns["pattern"]
        chosen = given.inputs.get(f"delta_{side}") or given.delta
        usual = walker.delta if walker.delta is not None else 8
        deltas[side] = chosen if chosen is not None else _deltas(usual, "delta")
        # Small cases have few instances, and few values on either side.
        count = small.cut(count, 256)
        count = small.cut(count, max(1, 2**18 // max(1, *map(abs, deltas[side]))))
        indices[f"delta_{side}"] = np.array(deltas[side], dtype=np.int64)
    if kernel.startswith("multi"):
        indices["pattern"] = patterns["pattern"].indices
    length = len(indices[f"pattern_{sides[0]}"])
    integers = {"count": count, "wrap": given.wrap}
    fixed: dict[str, Any] = {}
    if given.knobs.backend.over_ranks:
        if kernel == "gs":
            device = given.knobs.device
            raise InputError(f"gs has one sparse array too many for {device}: use gather")
        ranks, row_B = ranks_of(given), length * np.dtype(given.dtype).itemsize
        integers |= {"wrap": over_ranks.rows(given.wrap, count, ranks, row_B), "workers": ranks}
        fixed["threads"] = 1
    columns = {
        "pattern": " ".join(map(str, patterns.values())),
        "pattern_length": length,
        "delta": " ".join(",".join(map(str, d)) for d in deltas.values()),
        "count": count,
        "wrap": integers["wrap"],
    }
    built = given.case(
        integers=integers,
        indices=indices,
        index_dtype=given.index_dtype,
        columns=columns,
        fixed=fixed,
    )
    _check_reach(built)
    return _over_ranks(built) if fixed else built


def _over_ranks(case: Case) -> Case:
    """Return a case with the share of remote elements; refuse it if ranks can't run it."""
    side = SparseSide(case, "scatter" if "pattern_scatter" in case.indices else "gather")
    ranks = case.integers["workers"]
    check_size(case.integers["wrap"] * len(side.index), ranks)
    positions = side.positions(np.arange(side.count))
    if "pattern_scatter" in case.indices:
        check_stored_once(positions)
    share = over_ranks.remote_share(positions, side.size, ranks, case.value_B)
    return dataclasses.replace(case, columns={**case.columns, "remote_share": share})


for _kernel, _summary in KERNELS.items():
    register(
        KernelSpec(
            name=f"spatter.{_kernel}",
            summary=_summary,
            source=SOURCE,
            arrays=declared(f"spatter.{_kernel}").arrays,
            traffic=traffic_of,
            iterations=lambda case: blocks_of(case) or case.integers["count"],
            checks=Checks(
                check=check_gather if _kernel in ("gather", "multigather") else check_scatter,
                reference=reference,
            ),
            model=Model(bytes_B=lambda case: sum(from_memory(case)), transfers=transfers),
            inputs=_inputs(_kernel),
            build=_case,
            limits=Limits(index_dtypes=INDEX_DTYPES, refuse=refuse),
            derived_columns=_stride,
        )
    )


def _check_reach(case: Case) -> None:
    """Refuse a case whose bases or number of values would overflow in NumPy."""
    count, length = case.integers["count"], dense_length(case)
    for key, array in case.indices.items():
        if not key.startswith("delta"):
            continue
        way = sum(abs(int(d)) for d in array) * (count // len(array) + 1)
        if way >= _FAR or count * length >= _FAR:
            raise InputError(
                f"{count} instances of {length} indices at delta {case.columns['delta']} span more "
                "than 2**60 elements: use a smaller count or delta"
            )


@shows_options_of("spatter.gather")
def gather(pattern: PatternLike, **options: Any) -> Case:
    """Case of ``A[:] = B[i[:]]``."""
    return case("gather", pattern=pattern, **options)


@shows_options_of("spatter.scatter")
def scatter(pattern: PatternLike, **options: Any) -> Case:
    """Case of ``A[j[:]] = B[:]``."""
    return case("scatter", pattern=pattern, **options)


@shows_options_of("spatter.gs")
def gs(pattern_gather: PatternLike, pattern_scatter: PatternLike, **options: Any) -> Case:
    """Case of ``A[j[:]] = B[i[:]]``."""
    return case("gs", pattern_gather=pattern_gather, pattern_scatter=pattern_scatter, **options)


@shows_options_of("spatter.multigather")
def multigather(pattern: PatternLike, pattern_gather: PatternLike, **options: Any) -> Case:
    """Case of ``A[:] = B[i1[i2[:]]]``."""
    return case("multigather", pattern=pattern, pattern_gather=pattern_gather, **options)


@shows_options_of("spatter.multiscatter")
def multiscatter(pattern: PatternLike, pattern_scatter: PatternLike, **options: Any) -> Case:
    """Case of ``A[j1[j2[:]]] = B[:]``."""
    return case("multiscatter", pattern=pattern, pattern_scatter=pattern_scatter, **options)


def from_config(config: Mapping[str, Any], **options: Any) -> Case:
    """Case of a configuration of `memkern.inputs.spatter_files` or `memkern.suites`.

    Parameters
    ----------
    config : mapping
        Arguments of `memkern.case`, and ``runs``, which becomes the stop rule unless `options` has
        one.
    **options
        Override the configuration.
    """
    unused = ["local_work_size"] + ["delta_gather", "delta_scatter"] * (config["kernel"] != "gs")
    arguments = {
        key: value for key, value in config.items() if value is not None and key not in unused
    }
    on_gpu = Knobs(device=options.get("device", Knobs.device)).backend.is_accelerator
    if config.get("local_work_size") and on_gpu:
        arguments["block_threads"] = config["local_work_size"]
    return case(**{**arguments, **options})


def _suite_case(
    name: str,
    number: int,
    *,
    count_rule: suites.CountRule = "footprint",
    footprint_B: float = 2e9,
    **options: Any,
) -> Case:
    """Build one case of a suite."""
    config = suites.load(name, count_rule=count_rule, footprint_B=footprint_B)[number]
    return from_config(config, **options)


for _suite in suites.names():
    register_suite(
        _suite,
        Suite(
            functools.partial(lambda name: len(suites.load(name)), _suite),
            functools.partial(_suite_case, _suite),
        ),
    )


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return strides by variant and page size, and the 34 application patterns."""
    most_B = min(memory_B // 2, _REPORT_MEMORY_B)
    footprint = min(max(cache_B * (2 if quick else 4), 2**26), most_B)
    brief: dict[str, Any] = {"budget_s": 0.1 if quick else 1.0, "runs": None}
    strides = suites.ustride("cpu", footprint_B=footprint)
    cases = [
        *(
            from_config(config, variant=variant, **brief)
            for config in strides
            for variant in ("scalar", "auto", "simd")
        ),
        *(from_config(config, pages="4k", **brief) for config in strides),
    ]
    # Published counts, unless they move too many bytes or need too much memory.
    most_moved_B = 2e8 if quick else 1e11
    small = {c["name"]: c for c in suites.apps(footprint_B=footprint)}
    for config in suites.apps(count_rule="paper"):
        published = from_config(config, **brief)
        sides = (gather_side(published), scatter_side(published))
        sparse_B = sum(side.size for side in sides if side is not None) * published.value_B
        fits = published.bytes_B <= most_moved_B and sparse_B <= most_B
        cases.append(published if fits else from_config(small[config["name"]], **brief))
    return cases


def gpu_report_cases(device: str, quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return strides on a GPU."""
    footprint_B = min(max(4 * cache_B, 2**26), memory_B // 4)
    brief: dict[str, Any] = {"budget_s": 0.1 if quick else 0.4, "runs": None, "device": device}
    return [from_config(one, **brief) for one in suites.ustride("gpu", footprint_B=footprint_B)]
