"""Atomic memory operations: refused options, the check of results, records and the verb."""

import json

import numpy as np
import pytest
from checking import Changed, checked, corrupted, measured, output_of, refused

import memkern as mk
from memkern.families.amo import checks, verb
from memkern.families.amo import kernels as amo

# Patterns by their operand: the same for every access, or read from memory.
CONSTANT = ("rand", "stride1", "striden", "central")
PUT = ("scatter", "gather", "sg")


@pytest.mark.parametrize(
    "pattern, options, match",
    [
        ("sg", {"dtype": "float64"}, "'float64' is not one of uint64, uint32"),
        ("sg", {"primitive": "exchange"}, "no exchange"),
        ("rand", {"primitive": "plain", "order": "seq_cst"}, "plain has only order relaxed"),
        ("rand", {"primitive": "xor", "dtype": "float64"}, "no xor"),
        ("ptrchase", {"returns": "unused"}, "always uses"),
        ("rand", {"primitive": "cas", "returns": "unused"}, "always uses"),
        ("rand", {"padding": 12}, "multiple of the 8 bytes"),
        ("rand", {"memsize": 100}, "memsize must be a multiple of the 8 bytes of a word"),
        ("rand", {"memsize": 64, "words": 8}, "not both"),
        ("rand", {"memsize": 64, "size_B": 64}, "takes memsize or size_B, not both"),
        ("rand", {"indices": "zipf"}, "indices 'zipf' is not one of random, circustent"),
        ("rand", {"indices": [0] * 8}, "must have 9 elements"),
        ("rand", {"indices": "circustent", "padding": 64}, "neither padding"),
        ("rand", {"sharing": "private", "words": 1, "threads": 2}, "private words"),
    ],
)
def test_wrong_options_are_refused(pattern, options, match):
    with refused(match):
        mk.amo(pattern, **{"iters": 8, "threads": 1, **options})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "pattern, primitive",
    [(a, b) for a in (*CONSTANT, *PUT) for b in amo.PRIMITIVES if amo.exists(a, b)],
)
def test_any_number_of_runs_validates(pattern, primitive, threads):
    case = mk.amo(pattern, primitive=primitive, iters=100, threads=threads)
    for runs in (1, 3):
        assert checked(case, case.prepare().native, runs).valid


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("primitive", ["add", "or", "and", "xor", "min", "max", "exchange", "cas"])
@pytest.mark.parametrize("pattern", CONSTANT)
def test_a_wrong_word_is_caught(pattern, primitive, threads):
    case = mk.amo(pattern, primitive=primitive, iters=40, threads=threads)
    native = case.prepare().native
    words = native.arrays()["VAL"]["columns"]
    for position in {0, words // 2, words - 1}:
        wrong = corrupted(native, "VAL", position, lambda value: 2.0**30 + 5)
        assert not checked(case, wrong).valid


@pytest.mark.parametrize("pattern", CONSTANT)
def test_a_swap_with_the_target_changes_no_word(pattern):
    case = mk.amo(pattern, primitive="cas-target", iters=40, threads=2)
    native = case.prepare().native
    native.fill(outputs=True)
    before = native.digest("VAL")
    found = checked(case, native)
    assert found.valid and found.columns["success_fraction"] == 1.0
    assert native.digest("VAL") == before
    wrong = corrupted(native, "VAL", 0, lambda value: value + 1)
    assert not checked(case, wrong).valid


@pytest.mark.parametrize("pattern", PUT)
def test_swaps_with_the_target_store_values_of_other_words(pattern):
    case = mk.amo(pattern, primitive="cas-target", iters=40, threads=2)
    wrong = corrupted(case.prepare().native, "VAL", 3, lambda value: 2.0**30 + 5)
    assert not checked(case, wrong).valid


@pytest.mark.parametrize("pattern", PUT)
@pytest.mark.parametrize("primitive", ["add", "xor", "cas"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_lost_update_is_caught(pattern, primitive, threads):
    case = mk.amo(pattern, primitive=primitive, iters=40, threads=threads)
    native = case.prepare().native

    def lossy_run(k: int) -> float:
        before = native.peek("VAL", np.array([3])).astype(float)
        seconds = float(native.run(k))
        native.poke("VAL", np.array([3]), before)
        return seconds

    before = native.digest("VAL")
    native.fill(outputs=True)
    native.run(1)
    assert native.digest("VAL") != before
    assert not checked(case, Changed(native, run=lossy_run)).valid


@pytest.mark.parametrize("pattern", [*CONSTANT, "ptrchase", *PUT])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_that_does_nothing_is_caught(pattern, threads):
    for primitive in ("add", "cas"):
        case = mk.amo(pattern, primitive=primitive, iters=50, threads=threads)
        idle = Changed(case.prepare().native, run=lambda k: 0.0)
        assert not checked(case, idle).valid


@pytest.mark.parametrize("pattern", [*CONSTANT, "ptrchase", *PUT])
def test_another_pattern_is_caught(pattern):
    case = mk.amo(pattern, iters=60, threads=1, seed=1)
    other = mk.amo(pattern, iters=60, threads=1, seed=2)
    shifted = mk.amo(pattern, iters=61, threads=1, seed=1)
    native = (shifted if case.indices == {} else other).prepare().native
    assert not checked(case, native).valid


# Operands differ between words in SCATTER, which has no exchange, and are constant in RAND.
PRIMITIVES = {
    "scatter": ("add", "or", "and", "xor", "min", "max"),
    "rand": ("add", "or", "and", "xor", "max", "exchange"),
}


@pytest.mark.parametrize(
    "pattern, primitive", [(pattern, p) for pattern, known in PRIMITIVES.items() for p in known]
)
def test_another_primitive_is_caught(pattern, primitive):
    threads = 1 if pattern == "scatter" else 2
    case = mk.amo(pattern, iters=2000, threads=threads, primitive=primitive)
    for other in PRIMITIVES[pattern]:
        native = case.with_(template_variant=f"{other}/relaxed/unused").prepare().native
        assert checked(case, native).valid == (other == primitive)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_of_floating_point_numbers(dtype):
    case = mk.amo("central", dtype=dtype, iters=3000, threads=2)
    native = case.prepare().native
    assert checked(case, native, 5).valid
    assert not checked(case, corrupted(native, "VAL", 0, lambda value: value - 1.0)).valid


def test_a_pointer_chase_visits_every_word() -> None:
    for threads in (1, 3):
        case = mk.amo("ptrchase", iters=500, threads=threads)
        successor = case.indices["IDX"][:-1]
        at, seen = 0, set()
        for _ in range(500 * threads):
            seen.add(at)
            at = int(successor[at])
        assert at == 0
        assert len(seen) == 500 * threads
    private = mk.amo("ptrchase", iters=50, threads=2, sharing="private").indices["IDX"]
    assert set(private[:50]) == set(range(50))
    assert set(private[50:100]) == set(range(50, 100))


@pytest.mark.parametrize(
    "pattern, options, iters",
    [
        ("rand", {}, 2**18),
        ("central", {}, 2**18),
        ("stride1", {}, 64),
        ("stride1", {"sharing": "shared"}, 128),
        ("striden", {"stride": 4}, 16),
        ("gather", {"padding": 64}, 8),
        ("gather", {"iters": 5}, 5),
    ],
)
def test_a_size_limits_iterations_that_have_words_of_their_own(pattern, options, iters):
    columns = mk.amo(pattern, size_B=1027, threads=2, **options).columns
    assert (columns["words"], columns["iters"]) == (128, iters)


def test_circustents_rule_leaves_out_the_last_word() -> None:
    case = mk.amo("rand", iters=5000, threads=2, words=10, indices="circustent")
    assert set(case.indices["IDX"]) == set(range(9))
    chase = mk.amo("ptrchase", iters=300, threads=2, indices="circustent")
    assert len(chase.indices["IDX"]) == 900


def test_private_words_belong_to_one_worker() -> None:
    case = mk.amo("rand", iters=400, threads=2, words=100, sharing="private", padding=64)
    idx = case.indices["IDX"][:800]
    assert (idx % 8 == 0).all()
    assert not set(idx[:400]) & set(idx[400:])
    central = mk.amo("central", iters=10, threads=2, sharing="private", padding=64)
    assert central.columns["hot"] == 2
    assert sorted(set(checks.hit_words(central))) == [0, 8]


@pytest.mark.parametrize("hot, wanted", [(1, [20]), (2, [10, 10]), (4, [5, 5, 5, 5])])
def test_hot_words_are_visited_in_turn(hot, wanted):
    case = mk.amo("central", iters=20, threads=1, hot=hot)
    assert np.bincount(checks.hit_words(case)).tolist() == wanted


def test_records_have_the_columns_of_atomics() -> None:
    record = mk.amo("sg", primitive="cas", iters=64, threads=2, budget_s=0.05).measure().record
    assert record["valid"]
    assert record["kernel"] == "amo.sg"
    assert (record["primitive"], record["order"], record["returns"]) == ("cas", "relaxed", "used")
    assert 0 < record["success_fraction"] <= 1
    assert record["attempts_per_amo"] == 1
    assert record["rate_GAMS"] == pytest.approx(2 * 64 * 4 / record["time_min_s"] / 1e9)
    plain = mk.amo("central", primitive="plain", iters=4000, threads=2, budget_s=0.1).measure()
    assert 0 <= plain.record["lost_fraction"] < 1
    retried = mk.amo("central", primitive="cas-retry", iters=4000, threads=2, budget_s=0.1)
    record = retried.measure().record
    assert record["valid"]
    assert record["rate_GAMS"] == pytest.approx(
        8000 * record["attempts_per_amo"] / record["time_min_s"] / 1e9
    )


@pytest.mark.parametrize(
    "pattern, amos", [*zip(amo.PATTERNS, (1, 1, 1, 1, 1, 3, 3, 4), strict=True)]
)
def test_traffic_is_that_of_the_words_operated_on(pattern, amos):
    case = mk.amo(pattern, iters=32, threads=1)
    assert case.spec.counts.amos == amos
    assert case.bytes_B == 32 * amos * 16
    assert case.bytes_index_B == (256 if pattern == "rand" else 0)


@pytest.mark.parametrize(
    "words",
    [
        ("-b", "RAND_ADD", "-m", "64000", "-p", "2", "-i", "1000", "-s", "1"),
        *(
            (f"{d}bench", "RAND_ADD", f"{d}memsize", "64000", f"{d}pes", "2", f"{d}iters", "1000")
            for d in ("-", "--")
        ),
    ],
)
def test_the_verb_takes_circustents_options(capsys, words):
    out, _ = output_of(capsys, "amo", *words, "--runs", "5")
    lines = dict(line.split(":") for line in out.splitlines() if ":" in line)
    assert lines[" Benchmark Kernel     "].strip() == "RAND_ADD"
    assert out.startswith("RUNNING WITH NUM_THREADS = 2\n==")
    seconds, rate = (
        float(lines[key]) for key in (" Timing (secs)        ", " Giga AMOs/sec (GAMS) ")
    )
    assert rate == pytest.approx(2000 / seconds / 1e9, rel=1e-4)
    (record,) = measured(capsys, "amo", *words, "--runs", "5")
    assert record["words"] == 8000
    assert record["threads"] == 2


def test_a_benchmark_of_swaps_is_circustents(capsys):
    words = ("amo", "-b", "STRIDE1_CAS", "-m", "8000", "-p", "2", "-i", "100", "--runs", "2")
    out, _ = output_of(capsys, *words)
    assert " Benchmark Kernel     : STRIDE1_CAS\n" in out
    (record,) = measured(capsys, *words)
    assert (record["primitive"], record["success_fraction"]) == ("cas-target", 1.0)
    # Libraries and GPUs take the expected value itself.
    for place in ("MPI and OpenSHMEM", "GPUs"):
        assert verb._benchmarks(place)["STRIDE1_CAS"] == ("amo.stride1", "cas")


def test_the_list_has_the_sixteen_kernels_of_circustent(capsys):
    for flag in ("-l", "-list", "--list"):
        out, _ = output_of(capsys, "amo", flag)
        names = {line.split()[1] for line in out.splitlines()[1:]}
        assert names >= {f"{p.upper()}_{a}" for p in amo.PATTERNS for a in ("ADD", "CAS")}
        assert "SG_EXCHANGE" not in names


def test_the_verb_measures_every_combination(capsys):
    records = measured(
        *(capsys, "amo", "--kernel", "rand,central", "--primitive", "add,cas", "--threads", "1,2"),
        *("--order", "relaxed,seq_cst", "-i", "100", "--runs", "2"),
    )
    seen = {(r["kernel"], r["primitive"], r["order"], r["threads"]) for r in records}
    assert len(seen) == 16


def test_the_cost_of_false_sharing_is_told() -> None:
    sure = {
        "kernel": "amo.central", "primitive": "add", "order": "relaxed", "returns": "used",
        "threads": 4, "ranks": 1, "dtype": "uint64", "variant_requested": "best", "repeat": 0,
        "sharing": "private", "valid": True,
    }  # fmt: skip
    beside = {**sure, "case_id": "a", "padding_B": 0, "rate_GAMS": 0.1, "time_min_s": 1.0}
    apart = {**sure, "case_id": "b", "padding_B": 64, "rate_GAMS": 0.4, "time_min_s": 0.25}
    text = verb._false_sharing([beside, apart])
    assert "an operation on adjacent words takes 4.00 times as long as one on words 64 B" in text
    assert text.endswith("apart (40 and 10 ns)")
    unsure = verb._false_sharing([beside, {**apart, "disturbed": True}])
    assert unsure.endswith("can't be told: a record is disturbed")
    # Beside others, turns tell the ratio.
    turns = [
        {**one, "disturbed": True, "turns_s": json.dumps({"now": [[times, times]] * 4})}
        for one, times in ((beside, 3.0), (apart, 1.0))
    ]
    assert "3.00 ± 0.03 times as long as one on words 64 B apart" in verb._false_sharing(turns)
    assert "ns)" not in verb._false_sharing(turns)
    for others in ([beside], [{**beside, "threads": 1}, {**apart, "threads": 1}]):
        assert verb._false_sharing(others) == ""
    assert verb._false_sharing([{**beside, "sharing": "shared"}, apart]) == ""
