"""Records of figures of the domain-wall kernel."""

import math

from plotting import LONG, Family, Results, common_columns, frame

from memkern.families.dw.findings import findings
from memkern.models import LayerConditions

SMALL, LARGE = "8x8x8x8", "16x16x16x16"

TRIAD = 40.0

# Performance of one worker in GFLOP/s, by layout and cut.
SPEEDS = {"RRII s": 16.0, "RRII y2 z2 t2": 8.0, "RIRI s": 12.0, "RIRI z2 t2": 10.0}


def record(kind, lattice=LARGE, threads=4, site_B=None, machine="Own Machine 3000", **other):
    """Return one record with the columns that figures read."""
    layout, _, cut = kind.partition(" ")
    nt, ahead = other.get("variant", "simd") == "nt", other.get("prefetch", 0)
    if site_B is None:
        site_B = 192.0 * nt if lattice == SMALL else 1104.0 - 192 * nt
    held = site_B <= 192
    speed = SPEEDS.get(kind, 2.0) * threads * (1.5 if held else 1)
    speed *= (1.1 if nt else 1) * ((0.8 if held else 1.4) if ahead else 1)
    speed = other.pop("speed", speed)
    roofline = 1320 / site_B * TRIAD if site_B else math.nan
    updates = speed * 1e9 * 1e-3 / 1320
    return {
        **common_columns("dw.hop", threads, machine),
        "lattice": lattice,
        "Ls": 8,
        "layout": layout,
        "cut": cut,
        "partitions": {"y2 z2 t2": 8, "z2 t2": 4}.get(cut, 1),
        "vector_bits": 64 if layout == "lexicographic" else 512,
        "parity": "full",
        "order": "tzyx",
        "block": "",
        "share_planes": False,
        "prefetch": 0,
        "prefetch_into": "L2" if ahead else "",
        "variant": "simd",
        "isa": "avx512",
        "performance_GFLOPs": speed,
        "performance_median_GFLOPs": 0.9 * speed,
        "triad_GBps": TRIAD,
        "memory_load_B": max(site_B - 192, 0) * updates,
        "memory_store_B": min(site_B, 192) * updates,
        "roofline_GFLOPs": roofline,
        "roofline_fraction": 0.9 * speed / roofline,
        "bandwidth_GBps": speed / 2,
        "time_min_s": 1e-3,
    } | other


def layouts(lattices=(SMALL, LARGE), kinds=tuple(SPEEDS), counts=(4,), **other):
    """Return all layouts with all stores, with and without prefetch."""
    return [
        record(kind, lattice, n, **{"variant": variant, "prefetch": ahead, **other})
        for lattice in lattices
        for kind in kinds
        for n in counts
        for variant in ("simd", "nt")
        for ahead in (0, 2)
    ]


def workers(counts=(1, 2), **other):
    """Return several numbers of workers in two layouts."""
    return [
        record(kind, LARGE, n, **{"variant": "nt", "prefetch": 2, **other})
        for kind in ("RRII s", "RIRI s")
        for n in counts
    ]


def scan(each=(4, 8, 16, 32, 64), threads=4, site_B=None, **other):
    """Return lattices of different Lx, with the roofline for 16 MiB of cache."""
    rows = []
    for lx in each:
        for kind, cuts in (("RRII s", (1, 1, 1, 1)), ("RIRI z2 t2", (1, 1, 2, 2))):
            model = LayerConditions((lx, 8, 8, 16), 8, cuts, threads=threads)
            moved_B = model.site_B(2**24, threads) if site_B is None else site_B
            rows.append(record(kind, f"{lx}x8x8x16", threads, moved_B, **other))
    return rows


def everything(**other):
    """Return records for all figures."""
    return [*layouts(**other), *workers(**other), *scan(**other)]


INPUTS = {
    "several": lambda: Results(
        [
            *everything(),
            *layouts(counts=(112,), machine=LONG),
            *workers(counts=(1, 2, 4, 8, 16, 32, 64, 96, 112), machine=LONG),
            *scan(each=(2, 4, 6, 8, 12, 32, 256), threads=112, machine=LONG, environment_id="e2"),
        ]
    ),
    "three": lambda: Results([row for n in "ABC" for row in everything(machine=f"Machine {n}")]),
    "equal": lambda: frame(everything()).assign(performance_GFLOPs=2.0, roofline_GFLOPs=2.0),
    "few": lambda: frame(
        [*scan(each=(2, 3)), *(record("lexicographic", "2x2x2x2", n) for n in (1, 20))]
    ),
    "many": lambda: frame(
        [
            row | {"vector_bits": bits, "prefetch_into": into}
            for bits in (128, 256, 512)
            for into in ("L1", "L2")
            for row in [*everything(), record("lexicographic"), record("RRII x8")]
        ]
    ),
    "in cache": lambda: frame(
        [record(kind, SMALL, n) for kind in SPEEDS for n in (1, 2)] + scan((2, 4), 2, site_B=0.0)
    ),
}

FAMILY = Family(
    section="dw",
    findings=findings,
    title="Domain-wall kernel",
    everything=everything,
    missing=[
        ("dw-layouts", layouts(), {"threads": 3}, "3 workers, only 4"),
        ("dw-layouts", layouts(), {"lattices": "24,32"}, "'24' or '32', only of 8x8x8x8, 16x"),
        ("dw-layouts", layouts(["8x8x8"]), {}, "'8x8x8' is not four extents"),
        ("dw-scaling", layouts(), {}, "no lattice was measured with two numbers"),
        ("dw-scaling", everything(), {"lattice": "24"}, "no lattice was measured with two"),
        ("dw-extent", layouts(), {}, "no lattices that differ in Lx alone"),
        ("dw-extent", scan(), {"others": "4x4x4"}, "no lattices that differ in Lx alone"),
        ("dw-extent", scan(), {"threads": 3}, "3 workers, only 4"),
        ("dw-traffic", scan(), {"lattice": "8x8x8"}, "'8x8x8' must be four numbers"),
        ("dw-traffic", scan(), {"cuts": "1x1x0x1"}, "'1x1x0x1' must be four numbers"),
        ("dw-traffic", scan(), {"lattice": "8x8x8x9"}, "multiple of 2"),
        ("dw-traffic", scan(), {"ls": 0}, "ls must be at least 1, not 0"),
    ],
    images=4,
    shown="site_B",
    marked=(
        "106 GFLOP/s (disturbed)",
        "4.00 (disturbed) in RRII s",
        "(disturbed) times as fast on 8x8x8x8",
    ),
    few=[
        (layouts(), 3, 4, 2),
        (workers(counts=(1, 2)), 4, 2, 1),
        (scan(), 4, 6, 1),
        ([row | {"valid": False} for row in layouts()], 1, 0, 4),
    ],
)
