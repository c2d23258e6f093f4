"""Records on a published processor, for which figures draw the predictions of the ECM model."""

import numpy as np

import memkern as mk
from memkern.formats import ResultSet
from memkern.models.ecm_fit import predict_record
from memkern.models.published_machines import published

A64FX = published("A64FX")
LEVELS = ("L1", "L2", "memory")
CLOCK = 2.2


def record(case, seconds, **columns):
    """Return the columns that figures read of a case's record on the published processor."""
    counts = case.spec.counts
    found = {
        "platform": f"Some CPU, {case.knobs.threads} threads", "environment_id": "here",
        "kernel": case.spec.kernel, "definition": "", "backend": "openmp", "valid": True,
        "disturbed": False, "dtype": case.dtype, "index_dtype": case.index_dtype,
        "threads": case.knobs.threads, "variant": case.knobs.variant, "clock_GHz": CLOCK,
        "unroll": case.knobs.unroll, "pages_requested": case.knobs.pages, "prefetch": 0,
        "time_min_s": seconds, "time_median_s": seconds, "bytes_B": case.bytes_B,
        "bandwidth_GBps": case.bytes_B / seconds / 1e9, "convert_s": 1.0, "roofline_GFLOPs": 10.0,
        "roofline_fraction": 0.5, "load_GBps": 200.0, "triad_GBps": 200.0, "alpha": 0.1,
        "alpha_implied": 0.2, "beta": 1.0, "isa": "avx512", "name": "",
        "performance_GFLOPs": case.iterations * counts.width(case) * counts.flops / seconds / 1e9
        or np.nan,
        **case.columns,
    }  # fmt: skip
    found["performance_median_GFLOPs"] = found["performance_GFLOPs"]
    words = zip(case.spec.template_columns, case.template_variant.split("/"), strict=False)
    found |= dict(words)
    for level, moved in case.transfers(LEVELS, A64FX.caches).items():
        found[f"{level}_load_B"] = case.iterations * moved.load_B
        found[f"{level}_store_B"] = case.iterations * moved.store_B
    return {**found, **columns}


def results(rows):
    caches = [{**cache, "instances": 48 // cache["shared_by"]} for cache in A64FX.caches]
    here = {"machine": {"model": "", "caches": caches}}
    return ResultSet(rows, [np.empty(0)] * len(rows), {"here": here})


def streams(counts=(1, 2, 4, 12)):
    """Return triads from memory with each number of threads, at half of the predicted bandwidth."""
    rows = []
    for threads in counts:
        case = mk.case("stream.triad", footprint_B=2**30, variant="simd", threads=threads)
        row = record(case, 1.0, footprint_B=2**30)
        cycles = predict_record(A64FX, row).cycles_of(threads)
        rows.append(record(case, 2 * cycles / CLOCK / 1e9, footprint_B=2**30))
    return rows


def loops(unrolls=(1, 4), pages=("default",)):
    """Return daxpy in L1, L2 and memory, where unrolling makes it faster only in L1."""
    rows = []
    for page in pages:
        for footprint_B in (2**14, 2**15, 2**21, 2**22, 2**28, 2**29):
            for unroll in unrolls:
                case = mk.case(
                    "loops.daxpy", footprint_B=footprint_B, variant="simd", threads=1,
                    unroll=unroll, pages=page,
                )  # fmt: skip
                vectors = case.iterations / 8
                cycles = {14: 8 / unroll, 15: 8 / unroll, 21: 6 + unroll, 22: 6 + unroll}.get(
                    footprint_B.bit_length() - 1, 9 + unroll
                )
                seconds = cycles * vectors / CLOCK / 1e9
                row = record(case, seconds, footprint_B=footprint_B, cycles_per_vector=cycles)
                rows.append(row)
    return rows


def products(counts=(4,), lengths=(4, 16, 64)):
    """Return records of CRS and SELL for matrices with rows of some lengths."""
    rows = []
    for threads in counts:
        for length in lengths:
            for kernel, how in (("spmv.crs", {}), ("spmv.sell", {"C": 32})):
                matrix = f"tsm:{2**16 // length}:{length}"
                case = mk.case(kernel, matrix=matrix, threads=threads, variant="simd", **how)
                extra = {"footprint_B": 2**28, "name": matrix}
                rows.append(record(case, 1e-4 / threads, **extra))
    return rows


def hops(counts=(1,), lattices=((8, 8, 8, 8),), **columns):
    rows = []
    for threads in counts:
        for lattice in lattices:
            case = mk.dw.case(lattice, ls=8, threads=threads, variant="simd", cut="s")
            rows.append(record(case, 1e-3 / threads, footprint_B=2**28, prefetch_into=""))
    return [{**row, "vector_bits": 512, **columns} for row in rows]
