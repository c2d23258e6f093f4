"""Records of figures of sparse products."""

import math

from plotting import LONG, Family, Results, common_columns, frame

from memkern.families.spmv.findings import findings

# Rows and nonzeros by label. A nonzero has 12 bytes, the last cache 16 MiB.
MATRICES = {
    "5pt:300:300": (90_000, 448_800),
    "hpcg:68": (314_432, 8_242_408),
    "rmat:18:16:0": (262_144, 3_939_202),
    "kkt:_a long$ name of one:20000:7:3": (300_000, 5_000_000),
}

# Performance of one worker in GFLOP/s, by format.
SPEEDS = {"crs": 1.0, "sell-8": 1.5, "sell-16": 1.25, "ell": 0.5, "csc": 0.25}


def record(kind, label, shape, threads=4, speed=None, machine="Own Machine 3000", **other):
    """Return one record with the columns that figures read."""
    rows, nonzeros = shape
    form, _, chunk = kind.partition("-")
    speed = SPEEDS[kind] * threads if speed is None else speed
    roofline = min(threads, 2) * 2.0
    time_s = 2 * nonzeros / speed / 1e9
    beta = other.get("beta", 1.0)
    return {
        **common_columns(f"spmv.{form}", threads, machine),
        "name": label,
        "matrix": "matrix",
        "rows": rows,
        "columns": rows,
        "nonzeros": nonzeros,
        "nonzeros_per_row": nonzeros / rows,
        "C": int(chunk or 1),
        "sigma": 1,
        "balance": "rows",
        "result": "add",
        "unroll": 0,
        "prefetch": 0,
        "index_dtype": "int32",
        "performance_GFLOPs": speed,
        "performance_median_GFLOPs": 0.9 * speed,
        "roofline_GFLOPs": roofline,
        "roofline_fraction": 0.9 * speed / roofline,
        "roofline_min_fraction": speed / roofline if speed <= roofline else math.nan,
        "load_GBps": 6 * roofline,
        "triad_GBps": 9 * roofline,
        "alpha": rows / nonzeros,
        "alpha_implied": 3 * rows / nonzeros,
        "beta": beta,
        "convert_s": 20 * time_s,
        "time_min_s": time_s,
        "bandwidth_GBps": 6 * speed,
        "footprint_B": round(12 * nonzeros / beta) + 20 * rows,
    } | other


def matrices(counts=(1, 2, 4), kinds=("crs", "sell-8", "sell-16"), **other):
    """Return all matrices in all formats; RMAT is at half the speed of the others and padded."""
    rows = []
    for label, shape in MATRICES.items():
        for kind in kinds:
            slow = "rmat" in label
            beta = {"sell-8": 0.25, "sell-16": 0.25 * 0.5**0.1}.get(kind, 1.0) if slow else 1.0
            for n in counts:
                speed = SPEEDS[kind] * n * (0.5 if slow else 1)
                rows.append(record(kind, label, shape, n, speed, **{"beta": beta, **other}))
    return rows


def blocks(chunks=(8, 16), threads=4, **other):
    """Return RMAT sorted within blocks: beta from 0.25 to 0.96 and nearly proportional speeds."""
    shape = MATRICES["rmat:18:16:0"]
    betas = dict(zip((1, 32, 1024, shape[0]), (0.25, 0.5, 0.75, 0.96), strict=True))
    return [
        record(
            f"sell-{chunk}", "rmat:18:16:0", shape, threads, 4 * beta - 0.005 * chunk,
            **{"sigma": sigma, "beta": min(beta * (8 / chunk) ** 0.1, 1.0), **other},
        )
        for chunk in chunks
        for sigma, beta in betas.items()
    ]  # fmt: skip


def lengths(counts=(4,), each=(4, 8, 16, 32, 128), **other):
    """Return tall and skinny matrices: CRS gains from length, up to a limit by its accumulators."""
    rows = []
    for length in each:
        label, shape = f"tsm:{2**22 // length}:{length}", (2**22 // length, 2**22)
        for n in counts:
            for unroll in (1, 2, 3):
                speed = n * min(length / 32, 1 + unroll / 4)
                rows.append(record("crs", label, shape, n, speed, **{"unroll": unroll, **other}))
            rows += [record(f"sell-{c}", label, shape, n, 1.5 * n, **other) for c in (8, 16)]
    return rows


def clocks(limits=(0, 1500, 2000), **other):
    """Return three matrices at several clocks, and one that was measured at one alone."""
    rows = []
    for n, (label, shape) in enumerate(MATRICES.items()):
        for kind in ("crs", "sell-8"):
            for limit in limits[: 1 if n == 3 else None]:
                speed = SPEEDS[kind] * 4 * (1 + n / 4) * ((limit or 2500) / 2500) ** 0.5
                flops = 2 * shape[1]
                energy = {"energy_per_flop_pJ": 300 + 100 * n + (limit or 2500) / 10}
                energy["energy_J"] = 1e-12 * energy["energy_per_flop_pJ"] * flops
                about = {"clock_limit": limit, "name": f"{label}:clocks", **energy, **other}
                rows.append(record(kind, label, shape, 4, speed, **about))
    return rows


def everything(**other):
    """Return records for all figures."""
    return [*matrices(**other), *blocks(**other), *lengths(**other)]


INPUTS = {
    "several": lambda: Results(
        [
            *everything(),
            *matrices(counts=(1, 2, 4, 8, 16, 32, 64, 96, 112), machine=LONG),
            *blocks(threads=112, machine=LONG),
            *lengths(counts=(112,), machine=LONG, environment_id="e2"),
        ]
    ),
    "three": lambda: Results([row for n in "ABC" for row in everything(machine=f"Machine {n}")]),
    "equal": lambda: frame(everything()).assign(performance_GFLOPs=2.0, beta=1.0),
    "few": lambda: frame(
        [
            *lengths(each=(8, 9))[::5],
            *(record("sell-8", "spin:6", (20, 80), n, 0.1 * n, sigma=n) for n in (1, 20)),
        ]
    ),
    "chunks": lambda: frame(
        [row for c in (4, 32, 64, 128) for row in blocks(chunks=(c,))] + everything()
    ),
    "many matrices": lambda: frame(
        [
            row | {"name": f"{row['name']}:{i}", "nonzeros": row["nonzeros"] + i}
            for i in range(12)
            for row in everything()
        ]
    ),
}

FAMILY = Family(
    section="spmv",
    findings=findings,
    title="Sparse matrix-vector products",
    everything=everything,
    missing=[
        ("spmv-row-length", matrices(), {}, "no tall and skinny matrices"),
        ("spmv-row-length", lengths(each=(8,)), {}, "rows of two lengths"),
        ("spmv-row-length", lengths(), {"threads": 3}, "3 workers, only 4"),
        ("spmv-row-length", lengths(), {"formats": "ell"}, "format ell, only in CRS, SELL-8 and"),
        ("spmv-row-length", lengths(), {"formats": "coo"}, "'coo' is not one of crs, sell"),
        ("spmv-saturation", matrices(counts=(4,)), {}, "no matrix was measured with two numbers"),
        (
            "spmv-saturation",
            matrices(),
            {"matrix": "spin"},
            "no matrix was measured with two numbers",
        ),
        ("spmv-matrices", matrices(), {"threads": 3}, "3 workers, only 1, 2 and 4"),
        ("spmv-matrices", matrices(), {"formats": "csc,ell"}, "csc or ell, only in CRS"),
        ("spmv-matrices", matrices(), {"matrices": "spin,arrow"}, "'spin' or 'arrow'"),
        ("spmv-fill-in", matrices(), {}, "two values of sigma"),
        ("spmv-fill-in", blocks(), {"matrices": "hpcg"}, "two values of sigma"),
    ],
    images=4,
    shown="alpha_implied",
    marked=("CRS 4 GFLOP/s (disturbed)", "4.00 (disturbed) in CRS"),
    few=[
        (matrices(counts=(1,)), 2, 3, 3),
        (matrices(counts=(1, 2), kinds=("csc",)), 2, 3, 3),
        (lengths(), 3, 1, 2),
        (blocks(), 3, 4, 2),
        ([row | {"valid": False} for row in matrices()], 0, 0, 5),
    ],
)
