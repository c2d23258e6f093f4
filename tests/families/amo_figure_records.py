"""Records of figures of atomic operations."""

from plotting import KIB, LONG, MIB, Family, Results, common_columns, frame

from memkern.families.amo.data import PATTERNS
from memkern.families.amo.findings import findings

# Rates of adds by one worker in GAMS, and how many times slower other primitives are.
RATES = dict(zip(PATTERNS, (0.2, 0.4, 0.5, 0.1, 0.6, 0.3, 0.25, 0.24), strict=True))

PRICES = {"add": 1.0, "cas": 1.25, "plain": 0.2, "xor": 1.0}


def record(pattern, primitive, threads, rate, machine="Own Machine 3000", **other):
    """Return one record with the columns that figures read."""
    iters = other.get("iters", 2**16)
    chance = {"success_fraction": 1.0} if primitive == "cas" else {}
    return {
        **common_columns(f"amo.{pattern}", threads, machine),
        "primitive": primitive,
        "order": "relaxed",
        "returns": "used" if primitive == "cas" else "unused",
        "sharing": "original",
        "padding_B": 0,
        "hot": 1 if pattern == "central" else 0,
        "iters": iters,
        "words": 1 if pattern == "central" else iters * threads,
        "stride": 1,
        "index_pattern": "" if pattern in ("stride1", "striden", "central") else "random",
        "dtype": "uint64",
        "rate_GAMS": rate,
        "time_min_s": iters * threads / rate / 1e9,
        "bandwidth_GBps": 16 * rate,
        **chance,
    } | other


def scaled(pattern, threads):
    """Return the rate of adds: inverse to the workers in CENTRAL, else proportional to them."""
    return RATES[pattern] / threads if pattern == "central" else RATES[pattern] * threads


def patterns(counts=(1, 2, 4), primitives=("add", "cas", "plain"), **other):
    """Return all patterns; in CENTRAL 3 of 4 swaps fail and half the plain updates are lost."""
    rows = []
    for pattern in PATTERNS:
        for primitive in primitives:
            for threads in counts:
                contended = pattern == "central" and threads > 1
                how = dict(other)
                if contended and primitive == "cas":
                    how["success_fraction"] = 0.25
                if pattern == "central" and primitive == "plain":
                    how["lost_fraction"] = 0.5 if contended else 0.0
                rate = scaled(pattern, threads) / PRICES[primitive]
                rows.append(record(pattern, primitive, threads, rate, **how))
    return rows


def large(threads=4, words=8 * MIB, **other):
    """Return RAND in 64 MiB at half the rate of adds."""
    return [
        record("rand", primitive, threads, 0.4, words=words, iters=2**19, **other)
        for primitive in ("add", "cas", "plain")
    ]


def sharing(counts=(1, 2, 4), **other):
    """Return CENTRAL with private words, 8 times slower if adjacent, and with one word for all."""
    rows = []
    for threads in counts:
        for gap in (0, 64, 128):
            near = 8 if gap == 0 and threads > 1 else 1
            how = {"sharing": "private", "hot": threads, "padding_B": gap, **other}
            how["words"] = max(gap // 8, 1) * (threads - 1) + 1
            rows.append(record("central", "add", threads, 0.6 * threads / near, **how))
        rows.append(record("central", "add", threads, 0.05, **{"sharing": "shared", **other}))
    return rows


def chases(sizes=tuple(16 * KIB * 4**i for i in range(7)), **other):
    """Return chains of one worker: 2 ns in the first size, 1 ns more in each further one."""
    rows = []
    for primitive, slower in {"add": 1.0, "cas": 2.0, "plain": 0.5}.items():
        for i, size in enumerate(sizes):
            how = {"words": size // 8, "iters": size // 64, "index_pattern": "array", **other}
            rows.append(record("ptrchase", primitive, 1, 1 / slower / (i + 2), **how))
    return rows


def remote(ranks=(2, 4, 8), patterns=("rand", "scatter"), **other):
    """Return ors over ranks: on random words all but the own share is remote, in a ring all."""
    return [
        record(pattern, "or", 1, 0.001 * n, **how | other)
        for pattern in patterns
        for n in ranks
        for targets, share in {"random": 1 - 1 / n, "ring": 1.0}.items()
        for how in [{"backend": "mpi", "ranks": n, "targets": targets, "remote_share": share}]
    ]


def everything(**other):
    """Return records for all figures."""
    machine = [*patterns(**other), *large(**other), *sharing(**other), *chases(**other)]
    return [*machine, *remote(**other)]


INPUTS = {
    "several": lambda: Results(
        [
            *everything(),
            *(
                row | {"rate_GAMS": 3 * row["rate_GAMS"]}
                for part in (
                    patterns(counts=(1, 2, 4, 8, 16, 32, 64, 96, 112), machine=LONG),
                    large(threads=112, machine=LONG),
                    sharing(counts=(1, 2, 4, 8, 16, 32, 64, 96, 112), machine=LONG),
                    chases(machine=LONG, environment_id="e2"),
                )
                for row in part
            ),
        ]
    ),
    "three": lambda: Results([row for n in "ABC" for row in everything(machine=f"Machine {n}")]),
    "equal": lambda: frame(everything()).assign(rate_GAMS=0.125),
    "few": lambda: frame(
        [
            *(record("rand", name, 1, 0.1) for name in ("add", "plain")),
            record("rand", "add", 3, 0.2),
            *sharing(counts=(1, 3))[::4],
            *chases(sizes=(KIB, MIB))[:2],
            *remote(ranks=(2, 4), patterns=("rand",)),
        ]
    ),
}

FAMILY = Family(
    section="atomics",
    findings=findings,
    title="Atomics",
    everything=everything,
    missing=[
        ("amo-rates", patterns(), {"primitives": "xor,nand"}, "'xor' or 'nand', only of add,"),
        ("amo-rates", patterns(), {"threads": 3}, "3 workers, only 1, 2 and 4"),
        ("amo-rates", sharing(), {}, "sharing 'original', only 'private' and 'shared'"),
        (
            "amo-price",
            patterns(primitives=("add", "cas")),
            {},
            "both as plain and as one",
        ),
        ("amo-price", patterns(), {"threads": 3}, "3 workers, only 1, 2 and 4"),
        ("amo-workers", patterns(counts=(2,)), {}, "two numbers of workers"),
        ("amo-workers", patterns(), {"primitive": "max"}, "'max', only of add, cas and plain"),
        ("amo-sharing", sharing(counts=(4,)), {}, "two numbers of workers"),
        ("amo-sharing", patterns(), {}, "private words"),
        ("amo-remote", remote(ranks=(4,)), {}, "two numbers of ranks"),
        ("amo-remote", patterns(), {}, "two numbers of ranks"),
        ("amo-latency", chases(sizes=(MIB,)), {}, "two sizes"),
        ("amo-latency", chases(), {"threads": 2}, "2 workers, only 1"),
    ],
    images=6,
    shown="PTRCHASE",
    marked=("add 0.8 GAMS (disturbed)", "(disturbed) at random places", "ns (disturbed) in"),
    few=[
        (patterns(counts=(1,)), 4, 2, 3),
        (patterns(counts=(2,), primitives=("add",)), 3, 1, 4),
        (patterns(primitives=("xor",)), 2, 0, 5),
        (chases(), 5, 1, 2),
        (sharing(), 2, 1, 5),
        ([row | {"valid": False} for row in patterns()], 1, 0, 6),
    ],
)
