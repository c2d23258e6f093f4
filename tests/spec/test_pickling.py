"""Cases, their parts and their results can be compared, copied and pickled."""

import copy
import dataclasses
import multiprocessing
import operator
import pickle
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from checking import refused
from samples import MORE_CASES, SAMPLES

import memkern as mk
from memkern.errors import InputError
from memkern.formats.store import Store
from memkern.inputs import mesh
from memkern.spec.case import Case
from memkern.spec.registry import registry


def unpickled(thing: Any) -> Any:
    """Return a copy by pickle, as another process would get it."""
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("kernel", SAMPLES)
def test_pickled_and_copied_cases_are_equal(kernel):
    for sample in SAMPLES[kernel] + MORE_CASES.get(kernel, []):
        case = sample.with_(name="a label")
        for other in (unpickled(case), copy.deepcopy(case), copy.copy(case)):
            assert other is not case
            assert (other, hash(other)) == (case, hash(case))
            assert other.identity() == case.identity()
            assert (other.knobs, other.stop, other.spec) == (case.knobs, case.stop, case.spec)
            assert (other.columns, other.traffic) == (case.columns, case.traffic)
            for before, after in ((case.indices, other.indices), (case.data, other.data)):
                assert {k: (v.dtype, v.tobytes()) for k, v in before.items()} == {
                    k: (v.dtype, v.tobytes()) for k, v in after.items()
                }


def test_a_case_is_shown_in_one_line() -> None:
    case = mk.gather("UNIFORM:8:4", count=512, threads=2, runs=3, name="a")
    text = repr(case)
    assert text.startswith("Case(spatter.gather, pattern='UNIFORM:8:4', ")
    for word in ("count=512", "threads=2", "runs=3", "name='a'"):
        assert word in text
    assert "\n" not in text and len(text) < 200 and " at 0x" not in text
    assert len(repr(mk.gather(np.arange(10**5), count=1))) < 300
    # Only what differs from the defaults, with the words of the template variant.
    given = mk.amo("rand", iters=4, words=8, primitive="max").given
    assert (given["iters"], given["primitive"]) == (4, "max")
    assert given.keys().isdisjoint(
        {"order", "sharing", "padding_B", "dtype", "index_dtype", "runs"}
    )
    assert repr(mk.loops("triad", 8, alpha=3.0)) == "Case(loops.triad, elements=8)"
    assert "dtype='float32'" in repr(mk.loops("triad", 8, dtype="float32"))
    assert repr(case.spec) == "KernelSpec(spatter.gather: A[:] = B[i[:]])"


def test_a_notebook_shows_a_case_as_a_table() -> None:
    case = mk.gather("UNIFORM:8:4", count=512, threads=2, name="<b>&")
    text = case._repr_html_()
    assert "spatter.gather: A[:] = B[i[:]]</caption>" in text and "<thead" not in text
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
    shown = dict(zip(cells[::2], cells[1::2], strict=True))
    assert shown["count"] == "512" and shown["name"] == "&lt;b&gt;&amp;"
    assert set(shown) == set(case.given) and "wrap" not in shown


def test_cases_differ_by_inputs_options_and_labels() -> None:
    def case(**changes: Any) -> Case:
        return mk.gather(**{"pattern": np.array([0, 3, 1]), "count": 8, **changes})

    assert case() == case() == case(pattern=[0, 3, 1])
    assert case() != case(pattern=[0, 3, 2])
    assert case() != case().with_(threads=2)
    assert case() != case(name="other")
    assert case() != "case"
    matrix = np.eye(3)
    assert mk.spmv.case(matrix) == mk.spmv.case(matrix.copy()) != mk.spmv.case(2 * matrix)
    assert len({case(), case(), case(count=9)}) == 2


def test_cached_values_are_not_pickled() -> None:
    case = mk.gather([0, 1], count=8)
    assert case.identity()
    assert set(vars(unpickled(case))) == {field.name for field in dataclasses.fields(Case)}


def test_a_case_is_measured_in_another_process():
    case = mk.gather([3, 0, 5], count=64, threads=1, variant="scalar", runs=2)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        measurement = pool.submit(mk.measure, case).result(timeout=120)
        wrong = pool.submit(operator.methodcaller("measure"), case.with_(pin="x"))
        with refused("pin 'x' is not"):
            wrong.result(timeout=120)
    assert measurement.valid
    assert measurement.record["case_id"] == case.identity()


@pytest.mark.parametrize(
    "thing",
    [
        mk.patterns.uniform(8, 4),
        mk.patterns.custom([5, 0, 2]),
        mesh.HexMesh(2, 3, masked="boundary"),
        mk.results.ResultSet([{"a": 1, "b": float("nan")}], [[1.0, 2.0]], {"x": {"os": None}}),
        mk.Knobs(threads=2),
        mk.Stop(runs=3),
        InputError("n must be at least 1, not 0"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_parts_of_cases_are_pickled(thing):
    for other in (unpickled(thing), copy.deepcopy(thing)):
        if isinstance(thing, Exception):
            assert (type(other), str(other)) == (type(thing), str(thing))
        else:
            assert other == thing


def test_copied_arrays_are_read_only() -> None:
    pattern, box = mk.patterns.uniform(8, 4), mesh.HexMesh(2, 3)
    assert len(box.ids) == box.local_nodes
    for arrays in (unpickled(pattern).indices, copy.deepcopy(pattern).indices, unpickled(box).ids):
        assert not arrays.flags.writeable


def test_a_measurement_is_pickled() -> None:
    measurement = mk.stream("rotation", elements=64, threads=1, runs=2).measure()
    assert len(measurement.parts) == 4
    assert unpickled(measurement) == copy.deepcopy(measurement) == measurement
    changed = dataclasses.replace(measurement, samples=2 * measurement.samples)
    assert changed != measurement
    assert unpickled(measurement.results) == measurement.results != changed.results


def test_a_fit_is_pickled() -> None:
    sizes = np.geomspace(1e3, 1e8, 12)
    records = {"bytes_B": sizes, "time_s": 1e-6 + sizes / 1e10}
    fit = mk.fit_t0_wmax(records)
    np.testing.assert_array_equal(unpickled(fit).predict(sizes), fit.predict(sizes))


def test_prepared_cases_and_stores_can_not_be_pickled(tmp_path):
    case = mk.gather([0, 1], count=8, threads=1, variant="scalar")
    with refused("a prepared case .* pickle its case"):
        pickle.dumps(case.prepare())
    with refused("x.db is open .* pickle its path"), Store.open(tmp_path / "x.db") as store:
        pickle.dumps(store)


def test_unregistered_kernels_can_not_be_pickled(monkeypatch):
    known = registry()["launch.empty"]
    changed = dataclasses.replace(mk.launch(), spec=dataclasses.replace(known, version=2))
    with refused("kernel 'launch.empty' can't be pickled: register it"):
        pickle.dumps(changed)
    text = pickle.dumps(mk.launch())
    # The registry is replaced by a copy, since a restored entry would move to its end.
    module = sys.modules["memkern.spec.registry"]
    others = {name: spec for name, spec in registry().items() if name != "launch.empty"}
    monkeypatch.setattr(module, "_registry", others)
    with refused("kernel 'launch.empty' of a pickled case is unknown here"):
        pickle.loads(text)
    assert others["spatter.gather"] is unpickled(others["spatter.gather"])
