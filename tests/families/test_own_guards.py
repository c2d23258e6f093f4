"""Kernels that cheat or are wrong are caught by the guards that are meant for them."""

from pathlib import Path

import numpy as np
import pytest

import memkern as mk
from memkern.families.own import checks

CHEATS = Path(__file__).with_name("cheats")
TRIAD = {"a": "write", "b": "read", "c": "read"}
N = 60_000


def triad(b, c, s):
    return b + s * c


def of_file(name, arrays=TRIAD, reference=triad, **options):
    known = {"s": 3.0} if arrays is TRIAD else {}
    return mk.kernel(
        **{"file": CHEATS / f"{name}.c", "function": "f", "arrays": arrays},
        **{"reference": reference, "parameters": known, **options},
    )


def measured(kernel, threads=2):
    return kernel.measure(N, threads=threads, budget_s=0.02, placements=1)


def refusal(kernel, **how):
    """Return the sentence by which a kernel is refused, before or after it is timed."""
    try:
        found = measured(kernel, **how)
    except mk.InputError as error:
        return str(error)
    return "" if found.valid else found.record["validation"]


# By cheat: the guard's sentence.
CAUGHT = {
    "constant": "the timed invocations differ from the reference: a[",
    "last_call": "it does not compute what was not there before: a[",
    "first_only": "f is not as declared: it writes",
    "half_range": "f is not as declared: it writes",
    "prepared": "it does not compute what was not there before: a[",
    "threads": "f starts threads that do not end with it",
    "outside": "a worker accesses a[",
    "input": "it changes its input c",
    "half_bytes": "f is not as declared: it reads 16400 bytes of c, not 32792 as declared",
    "same_page": "f is not as declared: it writes 4096 bytes of a",
    "uninitialised": "f is not as declared: it writes 0 bytes of a",
    "n_ignored": "a worker accesses a[0]",
    "dead": "f is not as declared: it writes 0 bytes of a",
    "denormals": "it changes the modes of floating-point arithmetic",
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_cheat_is_caught_by_its_guard(name):
    assert refusal(of_file(name)).startswith(CAUGHT[name])


def test_an_honest_function_is_valid_and_its_bytes_are_counted():
    found = measured(of_file("honest", bytes_per_iteration=24))
    assert found.valid and found.record["validation"] == "whole"
    assert found.record["bytes_counted"] == "accesses"
    assert found.record["bytes_B"] == 24 * N


def test_values_are_not_rounded_to_fewer_digits():
    # The values by which arrays are filled, and their sums, are exact in float32.
    narrow = of_file("single", reference=lambda b, c: b + c)
    assert refusal(narrow).startswith("it does not compute what was not there before: a[")


def test_an_index_array_must_be_read():
    arrays = {"a": "write", "b": "read", "idx": "index[b]"}
    own = of_file("no_index", arrays, lambda b, idx: b[idx], idx="int32")
    assert refusal(own).startswith("f is not as declared: it reads 0 bytes of idx")


def test_workers_may_not_add_to_one_element():
    arrays = {"sum": "update[1]", "b": "read"}
    own = of_file("racing_sum", arrays, lambda sum, b: sum + np.sum(b))
    assert refusal(own).startswith("a worker accesses sum[0], which another one writes")


def test_declared_bytes_are_compared_with_counted_ones():
    twice = of_file("honest", bytes_per_iteration=48)
    assert refusal(twice) == "f moves 24 bytes an iteration, not 48 as declared"


def test_time_must_grow_with_the_iterations():
    told = "its time does not grow with the number of iterations"
    # Others on the host may stretch the longer of two times again and again.
    assert told in (refusal(of_file("slow_start")) for _ in range(3))
    constant, growing = Instant(), Instant()
    constant.run_range = lambda begin, end: 1e-2
    growing.run_range = lambda begin, end: 1e-5 * (end - begin)
    assert [checks._growth(1000, one) for one in (constant, growing)] == [told, ""]


def test_results_may_not_depend_on_the_ranges():
    found = refusal(of_file("by_range"), threads=1)
    assert found.startswith("results depend on how iterations are divided: a[")


class Instant:
    """A kernel that takes hardly any time."""

    def obtained(self):
        return {"footprint_B": 2**22, "threads": 1}

    def run(self, invocations):
        return 1e-8 * invocations


def test_more_than_loads_and_stores_reach_is_impossible():
    case = mk.kernel("a[i] = b[i]").case(2**18, threads=1)
    assert checks._ceiling(case, Instant()).startswith("impossible: 4.19e+05 GB/s by its bytes")
    slow = Instant()
    slow.run = lambda invocations: 1e-2 * invocations
    assert checks._ceiling(case, slow) == ""


def test_an_access_outside_of_the_arrays_leaves_this_process(tmp_path):
    source = tmp_path / "wrong.c"
    source.write_text(
        "#include <stdint.h>\n"
        "void miss(double *a, const double *b, int64_t m, int64_t n) { a[n + 4096] = b[m]; }\n"
    )
    how = {"file": source, "arrays": {"a": "write", "b": "read"}, "reference": lambda b: b}
    # The first of three workers has 1366 iterations.
    missed = "miss accesses a[5462] of 4099 elements, with 4099 iterations"
    assert refusal(mk.kernel(function="miss", **how)) == missed
    assert measured(of_file("honest")).valid  # by another process
