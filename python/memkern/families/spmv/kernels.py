"""Sparse matrix-vector products: y = A x and y = y + A x by rows, chunks of rows or columns.

``spmv.crs`` uses compressed rows. ``spmv.sell`` is SELL-C-sigma: rows sorted by length within
blocks of sigma, C of them side by side in a chunk as wide as its longest row. ``spmv.ell`` is
ELLPACK, one chunk of all rows, and ``spmv.csc`` uses compressed columns, which every worker adds
to a private y; both are baselines.

A case uses the order of its chunks: row i of y is row ``order[i]`` of A, and if columns are moved
like rows, x has the same order. Padding of rows is zero and multiplies an additional element of x
after the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import comb, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from memkern.checks import one_of, shown
from memkern.errors import InputError
from memkern.families.spmv.distributed import share_of
from memkern.families.spmv.model import FORMATS as FORMATS
from memkern.families.spmv.model import SpmvModel
from memkern.families.spmv.suites import MATRICES, SUITE
from memkern.inputs.sizes import integer_list_parser
from memkern.limits import check_memory
from memkern.machine.declarations import declared
from memkern.shared.checking import SALT, Values, distance, fresh, outcome, positions
from memkern.spec.case import (
    HALOS,
    Case,
    Checks,
    Counts,
    KernelSpec,
    Limits,
    Model,
    Part,
    once_for_inputs,
)
from memkern.spec.inputs import REQUIRED, Given, index_type, row
from memkern.spec.kernel import (
    INDEX_DTYPES,
    Ceilings,
    IndexArray,
    Native,
    Traffic,
    Transfer,
    Validation,
    fill_values,
)
from memkern.spec.options import Declared
from memkern.spec.registry import Suite, case, register, register_suite, shows_options_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ALAPPAT = (
    "Alappat, Meyer, Laukemann, Gruber, Hager, Wellein and Wettig, ECM modeling and performance "
    "tuning of SpMV and Lattice QCD on A64FX, Concurrency and Computation 34, 2022"
)
KREUTZER = (
    "Kreutzer, Hager, Wellein, Fehske and Bishop, A Unified Sparse Matrix Data Format for "
    "Efficient General Sparse Matrix-Vector Multiplication on Modern Processors with Wide SIMD "
    "Units, SIAM Journal on Scientific Computing 36, 2014"
)
BALANCES = ("rows", "nnz")
MVE = (1, 2, 3, 4, 6, 8)
# Bytes per nonzero in addition to the matrix: a case's format, and the validation of its product.
_MEASURED_B = 46
# Up to this number of rows, all are checked.
_WHOLE_ROWS = 2**18


def _accumulators(value: Any, name: str) -> Any:
    """Return the accumulators of a row after a check."""
    if value != "auto" and value not in (0, *MVE):
        known = ", ".join(map(str, MVE))
        raise InputError(f"{name} must be auto, 0 or one of {known}, not {shown(value)}")
    return value


_MVE = row(
    "mve",
    0,
    f"accumulators of a row of crs: {', '.join(map(str, MVE))} or auto",
    read=_accumulators,
    type="int | str",
    parse=lambda text: [text] if text == "auto" else integer_list_parser(0, "mve")(text),
    metavar="N,...",
    column="-",
    meaning="Accumulators of a row in ``spmv.crs`` (modulo variable expansion): 1, 2, 3, 4, 6, 8, "
    "0 for the kernel's own choice, ``auto`` by the mean length of rows.",
)
_CHUNKS = (
    row(
        "C",
        8,
        "rows of a chunk of sell (8)",
        least=1,
        most=128,
        short="-C",
        several=True,
        metavar="ROWS,...",
        meaning="Rows of a chunk in ``spmv.sell``.",
    ),
    row(
        "sigma",
        1,
        "rows of a block within which rows are sorted by length (1)",
        least=1,
        most=2**62,
        several=True,
        metavar="ROWS,...",
        meaning="Rows of a block of ``spmv.sell`` within which rows are sorted by length: 1, a "
        "multiple of C, or at least the number of rows.",
    ),
    row(
        "move_columns",
        False,
        "permute the columns of a square matrix like its rows",
        column="-",
        meaning="Whether the columns of a square matrix in ``spmv.sell`` are moved like its rows.",
    ),
)
_INPUTS = (
    row(
        "matrix",
        REQUIRED,
        "",
        type="Any",
        flag="-",
        meaning="Input of `memkern.matrices.build`.",
    ),
    row(
        "balance",
        "rows",
        "{choices} (rows)",
        choices=BALANCES,
        several=True,
        metavar="HOW,...",
        meaning="Workers, and ranks with a `halo`, get equal numbers of ``rows``, or of nonzeros "
        "(``nnz``).",
    ),
    row(
        "halo",
        None,
        "one product of all ranks, which exchange elements of x in each invocation: blocking "
        "(before the product), overlap (during the product of rows that need none)",
        choices=HALOS,
        several=True,
        metavar="WHEN,...",
        meaning="Distribute the rows of one product over all ranks instead of giving each rank its "
        "own product. Each invocation exchanges the elements of x that rows of other ranks need: "
        "``blocking``, before the product, or ``overlap``, during the rows that need no remote "
        "elements, which then come first. Not for ``spmv.csc``.",
    ),
    row(
        "accumulate",
        True,
        "y = A x in place of y = y + A x",
        flag="write",
        column="-",
        meaning="True for y = y + A x, False for y = A x.",
    ),
    index_type("int32"),
)


def _product(given: Given) -> Case:
    from memkern.inputs import matrices

    label, a = matrices.build(given.matrix, given.option("seed"))
    rows, columns = (int(n) for n in a.shape)
    if a.nnz == 0:
        raise InputError(
            f"the matrix {given.options.get('name') or label} has no nonzeros to multiply"
        )
    own = {"C": 1, "sigma": 1, "move_columns": False, "mve": 0, **given.inputs}
    chunk, block = own["C"], min(own["sigma"], rows)
    if 1 < block < rows and block % chunk:
        raise InputError(
            f"sigma must be 1, a multiple of C = {chunk}, or at least the {rows} rows, not {block}"
        )
    if own["move_columns"] and (rows != columns or given.halo):
        raise InputError("move_columns is for square matrices without halo: leave it out")
    if own["mve"] == "auto":
        # The largest number that a mean row fills twice.
        own["mve"] = max(u for u in MVE if u == 1 or 2 * u <= a.nnz / rows)
    if given.halo is None:
        check_memory(_MEASURED_B * a.nnz, f"a product with {a.nnz} nonzeros, with its validation,")
    stored = a.tocsc() if given.spec.name == "spmv.csc" else a
    sizes = {"rows": rows, "columns": columns, "nonzeros": int(a.nnz)}
    return given.case(
        integers={
            **sizes,
            "chunk": chunk,
            "sigma": block,
            "move_columns": int(own["move_columns"]),
            "by_entries": int(given.balance == "nnz"),
        },
        indices={"starts": stored.indptr, "columns": stored.indices},
        data={"values": stored.data},
        index_dtype=given.index_dtype,
        template_variant="add" if given.accumulate else "write",
        columns={
            **sizes,
            "matrix": label,
            "nonzeros_per_row": a.nnz / rows,
            "C": chunk,
            "sigma": block,
        },
        fixed={"unroll": own["mve"]} if own["mve"] else None,
    )


def as_csr(case: Case) -> csr_array:
    """Return a case's matrix as an array of SciPy."""
    from scipy.sparse import csc_array, csr_array

    shape = (case.integers["rows"], case.integers["columns"])
    parts = (case.data["values"], case.indices["columns"], case.indices["starts"])
    kind = csc_array if case.spec.name == "spmv.csc" else csr_array
    return csr_array(kind(parts, shape=shape))


def order_of(case: Case, native: Native) -> IndexArray:
    """Return the row of A of each row of y."""
    if case.spec.name in ("spmv.sell", "spmv.ell"):
        return native.copy_out("order")
    return np.arange(case.integers["rows"])


def _check(case: Case, native: Native) -> Validation:
    columns = case.integers["columns"]
    order = order_of(case, native)
    x = fresh(native, "x", np.arange(columns))
    if case.integers["move_columns"]:
        x = x[np.argsort(order)]
    native.fill(outputs=True)
    return (yield from _compared(case, order, as_csr(case), x, native))


def _compared(case: Case, order: IndexArray, a: csr_array, x: Values, native: Native) -> Validation:
    """Invoke a case whose row i of y is row ``order[i]`` of `a`, and compare y with `a` times x."""
    n = len(order)
    look = positions(n, native) if n > _WHOLE_ROWS else np.arange(n)
    a = a[order[look]].astype(np.float64)
    before = fresh(native, "y", look) if case.template_variant == "add" else np.zeros(len(look))
    with np.errstate(over="ignore", invalid="ignore"):  # overflows are refused below
        a.data[:] = a.data.astype(case.dtype)
        wanted = before + a @ x
        size = np.abs(before) + abs(a) @ np.abs(x)
    if not np.max(size, initial=0.0) <= np.finfo(case.dtype).max:
        raise InputError(
            f"the values of the matrix {case.columns['matrix']} are so large that its products "
            f"overflow {case.dtype}"
        )
    # The error bound is one rounding per term, relative to the sum of the terms' absolute values.
    terms = np.maximum((np.diff(a.indptr) + 2.0) / case.spec.checks.ulps, 1.0)
    yield
    allowed = terms * size
    errors = distance(native.peek("y", look), wanted) / np.where(allowed > 0, allowed, 1)
    each_row_once = np.bincount(order, minlength=n).all()
    worst = float(np.max(errors, initial=0.0)) if each_row_once else np.inf
    facts = native.obtained()["facts"]
    return outcome(
        case,
        worst,
        "whole" if len(look) == n else "sampled",
        beta=case.integers["nonzeros"] / facts["entries_stored"],
        convert_s=facts["convert_s"],
    )


def _part(case: Case, rank: int, ranks: int) -> Part:
    share = share_of(case, rank, ranks)

    def check(native: Native) -> Validation:
        """Compare with the product of the whole matrix and vector.

        The vector has new values and the halo is NaN before the product, so that lost values and
        values from an earlier invocation are detected.
        """
        whole = fill_values(np.arange(case.integers["columns"]), {"salt": SALT})
        x = np.ones(native.arrays()["x"]["columns"], dtype=case.dtype)
        x[: len(share.own)] = whole[share.own.start : share.own.stop]
        x[len(share.own) : len(share.own) + len(share.halo)] = np.nan
        native.fill(outputs=True)
        native.copy_in("x", x)
        rows: Any = as_csr(case)[share.rows]  # SciPy's types of resize are wrong
        # A rank without nonzeros has one additional row.
        rows.resize(share.case.integers["rows"], case.integers["columns"])
        order = order_of(share.case, native)
        return (yield from _compared(share.case, order, rows, whole, native))

    return Part(share.case, share.exchange, check, share.dependent)


def _reference(case: Case, arrays: Mapping[str, Values]) -> dict[str, Values]:
    """Return y in the order of the chunks; the order is computed independently."""
    a = as_csr(case)
    n, sigma = case.integers["rows"], case.integers["sigma"]
    lengths = np.diff(a.indptr)
    order = np.arange(n)
    if case.spec.name == "spmv.sell":
        blocks = (order[b : b + sigma] for b in range(0, n, sigma))
        order = np.concatenate([b[np.argsort(-lengths[b], kind="stable")] for b in blocks])
    x = arrays["x"][: case.integers["columns"]].astype(np.float64)
    if case.integers["move_columns"]:
        x = x[np.argsort(order)]
    y = np.array(arrays["y"], copy=True)
    product = a.astype(np.float64) @ x
    y[:n] = product[order] + (y[:n] if case.template_variant == "add" else 0)
    if case.template_variant == "write" and case.spec.name == "spmv.sell":
        y[n:] = 0
    return {"x": arrays["x"], "y": y}


def _iterations(case: Case) -> int:
    """Return the number of rows, chunks or columns, which are divided among the workers."""
    if case.spec.name == "spmv.csc":
        return case.integers["columns"]
    return -(-case.integers["rows"] // case.integers["chunk"])


def _traffic(case: Case) -> Traffic:
    """Count every nonzero and its index once, x once, the pointers if any, and y."""
    size = float(case.value_B)
    index = float(np.dtype(case.index_dtype).itemsize)
    n = case.integers
    y = n["rows"] * size
    share = 1.0 / _iterations(case)
    adds = case.template_variant == "add"
    pointers = 0 if case.spec.name == "spmv.ell" else _iterations(case) + 1
    return Traffic(
        read=share * ((n["nonzeros"] + n["columns"]) * size + (y if adds else 0.0)),
        write=share * y,
        index=share * (n["nonzeros"] + pointers) * index,
        write_allocate=share * y if case.template_variant == "write" and case.allocates else 0.0,
    )


def format_of(name: str) -> str:
    """Return a format by its name; ``csr``, its more common name, is accepted for ``crs``.

    Raises
    ------
    InputError
        There is no such format.
    """
    format = "crs" if name == "csr" else name
    one_of(format, "format", FORMATS)
    return format


@once_for_inputs
def stored_entries(case: Case) -> int:
    """Return the number of entries that a case stores, with the padding of its chunks."""
    n = case.integers
    if case.spec.name not in ("spmv.sell", "spmv.ell"):
        return n["nonzeros"]
    lengths = np.diff(case.indices["starts"])
    if case.spec.name == "spmv.ell":
        return int(n["rows"] * lengths.max())
    if n["sigma"] > 1:
        lengths = lengths[np.lexsort((-lengths, np.arange(n["rows"]) // n["sigma"]))]
    padded = np.pad(lengths, (0, -n["rows"] % n["chunk"]))
    return int(n["chunk"] * padded.reshape(-1, n["chunk"]).max(axis=1).sum())


def _transfers(
    case: Case, levels: Sequence[str], caches: Sequence[Mapping[str, Any]]
) -> dict[str, Transfer]:
    """Return the data that a row or chunk moves: x per entry from L1, else once (best alpha)."""
    n, size = case.integers, case.value_B
    entries = stored_entries(case)
    padding_B = (entries - n["nonzeros"]) * (size + np.dtype(case.index_dtype).itemsize)
    traffic = _traffic(case) + Traffic(read=padding_B / _iterations(case))
    moved = traffic.transfers(levels, bypass=not case.allocates)
    again_B = (entries - n["columns"]) * size / _iterations(case)
    first = moved[levels[0]]
    return {**moved, levels[0]: Transfer(first.load_B + again_B, first.store_B)}


def model_of(case: Case, beta: float) -> SpmvModel:
    """Return the model of a case with fill-in `beta`."""
    n = case.integers
    return SpmvModel(
        rows=n["rows"],
        columns=n["columns"],
        nonzeros=n["nonzeros"],
        value_B=case.value_B,
        index_B=np.dtype(case.index_dtype).itemsize,
        beta=beta,
        accumulate=case.template_variant == "add",
        write_allocate=case.allocates,
        pointers=0 if case.spec.name == "spmv.ell" else _iterations(case),
    )


def _implied_columns(
    case: Case, found: Mapping[str, float], ceilings: Ceilings, seconds: float
) -> dict[str, float]:
    """Return the best alpha, and the alpha implied by the time and the bandwidth of loads."""
    model = model_of(case, found["beta"])
    return {
        "alpha": model.best_alpha,
        "alpha_implied": model.implied_alpha(seconds, ceilings.load_GBps),
    }


# Summary, source, own inputs and options without effect of each format.
_FORMATS: dict[str, tuple[str, str, tuple[Declared, ...], tuple[str, ...]]] = {
    "crs": ("by compressed rows", ALAPPAT, (_MVE,), ()),
    "sell": ("by chunks of C rows sorted within sigma", KREUTZER, _CHUNKS, ("unroll",)),
    "ell": ("by one chunk of all rows (ELLPACK)", KREUTZER, (), ("prefetch", "unroll")),
    "csc": ("by compressed columns", "baseline", (), ("prefetch", "unroll")),
}
for _name, (_summary, _source, _own, _idle) in _FORMATS.items():
    register(
        KernelSpec(
            name=f"spmv.{_name}",
            summary=f"y = y + A x or y = A x, {_summary}",
            source=_source,
            arrays=declared(f"spmv.{_name}").arrays,
            indices=("starts", "columns"),
            traffic=_traffic,
            iterations=_iterations,
            checks=Checks(check=_check, reference=_reference, ulps=32.0, idempotent=False),
            inputs=(*_own, *_INPUTS),
            build=_product,
            limits=Limits(index_dtypes=INDEX_DTYPES, idle_knobs=_idle),
            counts=Counts(
                flops=declared(f"spmv.{_name}").flops,
                width=lambda case: case.integers["nonzeros"] / _iterations(case),
                work=None if _name == "ell" else lambda case, native: native.copy_out("starts"),
                indices=True,
            ),
            model=Model(
                transfers=_transfers, measures_ceilings=True, implied_columns=_implied_columns
            ),
            template_columns=("result",),
            # The workers' private y are added up only after the last part.
            part=None if _name == "csc" else _part,
        )
    )


@shows_options_of("spmv.sell", "spmv.crs")
def spmv(matrix: Any, format: str = "sell", **options: Any) -> Case:
    """Case of a sparse matrix-vector product.

    Its attributes use your own vectors (`multiply`, and `convert` for many products with a matrix),
    measure (`measure`), search the fastest format (`tune`) and predict (`SpmvModel`).

    In ``crs`` and ``sell``, `prefetch` is the distance of the software prefetch of x in nonzeros,
    and variant ``nta`` loads values and indices with a non-temporal prefetch hint.

    Parameters
    ----------
    matrix : str, path, sparse array, ndarray or tuple
        Input of `memkern.matrices.build`: a generator such as ``hpcg:64``, a Matrix Market file, a
        SciPy sparse array, a two-dimensional array, or triplets.
    format : str
        ``crs``, ``sell``, ``ell`` or ``csc``.
    """
    return case(f"spmv.{format_of(format)}", matrix=matrix, **options)


# Bytes of a nonzero with its index, in the types used in the report.
_NONZERO_B = 12


def _products(matrix: str, forms: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Case]:
    """Return cases of one matrix, which is built and stored only once."""
    from memkern.inputs import matrices

    label, a = matrices.build(matrix)
    cases = [spmv(a, form, name=label, **how) for form, how in forms]
    return [replace(case, indices=cases[0].indices, data=cases[0].data) for case in cases]


def _of_suite(number: int, *, format: str = "crs", **options: Any) -> Case:
    """Build the case of a matrix of the suite in a format."""
    name, matrix = list(MATRICES.items())[number]
    return spmv(matrix, format, **{"name": name, "suite": SUITE, **options})


register_suite(SUITE, Suite(lambda: len(MATRICES), _of_suite))


def report_cases(quick: bool, cache_B: int, memory_B: int) -> list[Case]:
    """Return matrices of each kind, larger than the caches, with the options relevant for each."""
    # All matrices together take 16 units, and the matrix in use is in memory four times.
    unit = min(cache_B, memory_B // 64, 2**28)
    brief: dict[str, Any] = {"budget_s": 0.05}
    forms: list[tuple[str, dict[str, Any]]] = [("crs", brief), ("sell", {"C": 8, **brief})]
    if quick:
        return _products("hpcg:32", forms)
    forms.append(("sell", {"C": 16, **brief}))
    workers = len(os.sched_getaffinity(0))
    counts = sorted({*(2**k for k in range(workers.bit_length())), workers})
    # At most five: for each number of workers the bandwidth is measured first.
    counts = sorted({counts[round(i * (len(counts) - 1) / 4)] for i in range(5)})

    def edge(size: float) -> int:
        """Return the edge, in points, of a cube whose 27-point matrix has `size` bytes."""
        return max(round(float(np.cbrt(size / 27 / _NONZERO_B))), 4)

    def sites(size: float) -> int:
        """Return the number of spins of the chain whose matrix is closest to `size` bytes."""
        return min(range(6, 33), key=lambda n: abs(comb(n, n // 2) * (n + 2) * 6 - size))

    size = 1.5 * unit
    short = round(size / 14 / _NONZERO_B)
    scale = max(round(log2(size / 15 / _NONZERO_B)), 6)
    summed = [("crs", {"mve": u, **brief}) for u in (1, 2, 3)]
    chosen: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
        (f"hpcg:{edge(unit / 4)}", forms),
        (f"spin:{sites(size)}", forms),
        (f"band:{short}:{short // 2}:14", forms),
        (
            f"rmat:{scale}:16",
            [
                *(("crs", {"balance": balance, **brief}) for balance in BALANCES),
                *(("sell", {"C": 8, "sigma": s, **brief}) for s in (1, 32, 1024, 2**scale)),
                *(("sell", {"C": 16, "sigma": s, **brief}) for s in (1, 1024, 2**scale)),
            ],
        ),
        *(
            (f"tsm:{round(size / length / _NONZERO_B)}:{length}", [*summed, *forms[1:]])
            for length in (4, 8, 16, 64)
        ),
    ]
    scaled = _products(f"hpcg:{edge(3 * unit)}", forms)
    return [
        *(case.with_(threads=n) for case in scaled for n in counts),
        *(case for matrix, ways in chosen for case in _products(matrix, ways)),
    ]
