"""The extension checks what it gets, takes samples and lets threads run at once."""

import concurrent.futures
import threading
from typing import Any

import numpy as np
import pytest
from checking import REQUEST

import memkern as mk
from memkern import _memkern
from memkern.engine.sampling import series as sampling


def untaken(samples: int) -> np.ndarray:
    """Return rows for samples and their conditions."""
    return np.full((samples, 1 + len(sampling.CONDITIONS)), np.nan)


def test_the_extension_checks_the_arguments_of_samples_and_values():
    native = mk.gather([0, 1], delta=2, count=4, threads=1).prepare().native
    rows = untaken(2)
    with pytest.raises(ValueError, match="outside"):
        native.sample(rows, 1, 1.0, parts=[(0, 2), (2, 5)])
    with pytest.raises(ValueError, match="one for each row"):
        native.sample(rows, 1, 1.0, parts=[(0, 2)])
    assert np.isnan(rows).all()
    assert native.sample(rows, 1, 1.0, parts=[(0, 2), (2, 4)]) == 2 and (rows[:, 0] > 0).all()
    for wrong, match in (([("scalar", "baseline")], "one for each"), ([("a", "b")] * 2, "no var")):
        with pytest.raises(ValueError, match=match):
            native.sample(rows, 1, 1.0, candidates=wrong)
    with pytest.raises(ValueError, match="as many values"):
        native.poke("sparse", np.array([0]), np.array([1.0, 2.0]))


def native(**changes: Any) -> Any:
    gather = {
        "kernel": "spatter.gather",
        "index_dtype": "int64",
        "integers": {"count": 4, "wrap": 1, "prefetch": 0},
        "indices": indices(range(4)),
    }
    return _memkern.Prepared(**{**REQUEST, **gather, **changes})


def indices(pattern: Any) -> dict[str, Any]:
    return {"pattern_gather": np.array(pattern), "delta_gather": np.array([4])}


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"kernel": "spatter.nothing"}, "nothing"),
        ({"indices": indices([[0, 1]])}, "one dimension"),
        ({"integers": {}}, "missing"),
        ({"threads": -1}, "threads"),
        ({"pin": "0,x"}, "pin"),
        ({"pages": "8k"}, "8k"),
        ({"numa": "far"}, "far"),
        ({"schedule": "guided"}, "guided"),
        ({"chunk": -1}, "chunk"),
        ({"repetition": "twice"}, "twice"),
    ],
)
def test_the_extension_refuses_bad_input(changes, match):
    with pytest.raises(ValueError, match=match) as caught:
        native(**changes)
    assert "\n" not in str(caught.value)


def test_the_extension_copies_the_indices():
    mine = indices([0, 1, 2, 3])
    prepared = native(indices=mine)
    mine["pattern_gather"][:] = 2**50
    assert prepared.run(1) > 0
    np.testing.assert_array_equal(prepared.copy_out("dense"), prepared.copy_out("sparse")[12:])


def test_threads_may_measure_at_once():
    prepared = [mk.gather([0, 1], count=64, threads=2).prepare() for _ in range(2)]
    done: list[float] = []
    workers = [
        threading.Thread(target=lambda p=p: done.append(sum(p.run(5) for _ in range(20))))
        for p in prepared
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(done) == 2


def test_elements_are_set_and_read_while_others_measure():
    case = mk.gather("UNIFORM:8:1:NR", count=64, threads=1, variant="scalar")
    native = case.prepare().native
    positions = np.arange(512)

    def values_seen(value: float) -> set[int]:
        seen = set()
        for _ in range(50):
            native.poke("sparse", positions, np.full(512, value))
            seen.add(len(set(native.peek("sparse", positions).tolist())))
        return seen

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # Calls are atomic: values of two threads never mix.
        assert list(pool.map(values_seen, map(float, range(4)))) == [{1}] * 4


@pytest.mark.parametrize("repetition", ["fork", "barrier"])
def test_samples_start_when_they_are_told_to(case, repetition):
    native = case.with_(repetition=repetition).prepare().native
    rows, calls = untaken(10), []

    def start() -> bool:
        calls.append((~np.isnan(rows[:, 0])).sum())
        return len(calls) < 4

    # `start` decides, although the deadline is past.
    assert native.sample(rows, 1, 0.0, start) == 3
    assert calls == [0, 1, 2, 3]
    assert (rows[:3, 0] > 0).all() and np.isnan(rows[3:]).all()


def test_an_error_at_the_start_of_a_sample_ends_sampling(case):
    native = case.prepare().native
    rows, starts = untaken(4), iter([True, True])

    def interrupted() -> bool:
        if next(starts, False):
            return True
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        native.sample(rows, 1, 1.0, interrupted)
    assert (rows[:2, 0] > 0).all() and np.isnan(rows[2:]).all()
    with pytest.raises(RuntimeError, match="cast"):
        native.sample(rows, 1, 1.0, lambda: "yes")
    # The case can still be sampled.
    assert native.sample(rows, 1, 1.0) == 4


@pytest.mark.parametrize("probes", [True, False])
def test_samples_without_probes_have_no_conditions(case, probes):
    rows = untaken(3)
    assert case.prepare().native.sample(rows, 1, 1.0, probes=probes) == 3
    assert (rows[:, 0] > 0).all()
    assert np.isnan(rows[:, 1:4]).all() != probes


def test_each_sample_of_a_round_is_of_its_candidate():
    prepared = mk.stream("copy", elements=64, threads=1, isa="baseline").prepare()
    rows = untaken(3)
    every = [("scalar", "baseline"), ("auto", "baseline"), ("scalar", "baseline")]
    assert prepared.native.sample(rows, 1, 1.0, candidates=every) == 3
    assert prepared.obtained["variant"] == "scalar"
    prepared.native.sample(rows[:2], 1, 1.0, candidates=every[:2])
    assert prepared.obtained["variant"] == "auto"
