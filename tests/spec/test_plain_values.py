"""Options as NumPy, pandas and enumerations have them: the same cases, or the same refusals."""

import enum
import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checking import refused

import memkern as mk
from memkern.checks import integer, number, plain
from memkern.errors import InputError
from memkern.spec.options import Option, declared
from memkern.spec.registry import options_of, spec_of
from memkern.studies import interleaved
from memkern.studies.scaling import _counts

# A kernel of each family, with the least options.
KERNELS: dict[str, dict[str, Any]] = {
    "stream.triad": {"elements": 100, "alpha": 2.0},
    "loops.stencil": {"elements": 4096, "columns": 64},
    "bs.bs6": {"mesh_elements": 2, "degree": 2},
    "latency.chase": {"size_B": 2**16, "chains": 2},
    "spatter.gather": {"pattern": [0, 5, 9], "delta": [3, 0], "count": 40, "wrap": 2},
    "spatter.gs": {"pattern_gather": "UNIFORM:8:2", "pattern_scatter": "UNIFORM:8:1", "count": 9},
    "raider.gather_copy": {"elements": 100, "pattern": "stride:3"},
    "amo.rand": {"iters": 64},
    "spmv.crs": {"matrix": "hpcg:3", "rcm": False},
    "dw.hop": {"lattice": [4, 4, 4, 4], "ls": 4},
    "launch.compute": {},
    "instructions.repeat": {"instruction": "fma", "count": 4},
}
WORDS = {"pin": "compact", "numa": "interleave", "counters": "cycles"}


def other(name: str, default: object, option: Option) -> Any:
    """Return a value of an option that is not its default."""
    if option.choices:
        return option.choices[-1]
    if option.least is not None:
        return max(option.least, option.least_given, 1) + 1
    return 0.25 if option.below is not None else WORDS.get(name, default is False)


OTHERS = {
    name: other(name, default, option)
    for name, default, option in (*declared(mk.Knobs), *declared(mk.Stop))
    if name != "device"
}


def forms(value: Any) -> Iterator[Any]:
    """Yield the forms in which NumPy, pandas and enumerations have a value."""
    if isinstance(value, (list, tuple)):
        yield from (list(map(np.int64, value)), tuple(map(np.uint8, value)), pd.Series(value))
        yield from (np.array(value), pd.Series(value, dtype="Int64"), pd.Index(value))
        return
    yield from (np.array(value), pd.Series([value]).iloc[0], enum.Enum("Member", {"A": value})["A"])
    if isinstance(value, bool):
        yield from (np.bool_(value), pd.Series([value], dtype="boolean").iloc[0])
    elif isinstance(value, int):
        yield from (np.int64(value), np.uint32(value), enum.IntEnum("Member", {"A": value})["A"])
    elif isinstance(value, float):
        yield from (np.float64(value), np.float32(value), np.longdouble(value))
    else:
        yield from (np.str_(value), enum.Enum("Member", {"A": value}, type=str)["A"])


def outcome(kernel: str, options: dict[str, Any]) -> Any:
    """Return what distinguishes a case, as JSON, or the sentence of its refusal."""
    try:
        case = mk.case(kernel, **options)
    except InputError as error:
        return str(error)
    words = vars(case.knobs), vars(case.stop), case.labels, dict(case.columns)
    return json.dumps([case.identity(), repr(case), words])


@pytest.mark.parametrize("kernel", KERNELS)
def test_options_of_numpy_are_those_of_python(kernel):
    given = KERNELS[kernel]
    for name, default in options_of(spec_of(kernel)).items():
        value = given.get(name, OTHERS.get(name, default))
        if value is None or value is inspect.Parameter.empty:
            continue
        expected = outcome(kernel, {**given, name: value})
        for form in forms(value):
            assert outcome(kernel, {**given, name: form}) == expected, (name, type(form))


def test_a_request_has_what_a_sweep_file_can_hold() -> None:
    options = {"elements": np.int64(9), "threads": np.array(2), "flush": np.True_}
    case = mk.case("stream.copy", **options, name=np.str_("a"))
    assert case.request is not None
    assert json.loads(json.dumps(case.request)) == case.request
    assert [type(case.request[name]) for name in options] == [int, int, bool]
    assert case.with_(threads=np.uint8(3), name=np.str_("b")).knobs.threads == 3
    assert mk.Stop(budget_s=np.float64(0.5)) == mk.Stop(budget_s=0.5)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("threads", np.True_, "threads must be an integer, not True"),
        ("threads", pd.NA, "threads is missing .<NA>.: give a value, or leave it out"),
        ("runs", np.array([1, 2]), "runs must be an integer, not array"),
        ("runs", np.ma.masked, "runs has masked values"),
        ("flush", np.int64(1), "flush must be True or False, not 1"),
        ("flush", "yes", "flush must be True or False, not 'yes'"),
        ("pin", np.int64(1), "pin must be a text, not 1"),
        ("ci", np.str_("2"), "ci must be a finite number, not '2'"),
        ("elements", np.array(["8"]), "elements must be an integer"),
    ],
)
def test_refusals_are_one_sentence(name, value, message):
    with refused(message):
        mk.stream("copy", **{"elements": 8, name: value})


def test_values_of_one_option_are_any_sequence() -> None:
    case = mk.stream("copy", elements=9)
    for values in (np.arange(1, 3), pd.Series([1, 2]), {1: 0, 2: 0}, iter((np.int64(1), 2))):
        assert [one.knobs.threads for one in mk.vary(case, threads=values)] == [1, 2]
    assert [one.knobs.threads for one in mk.vary(case, threads=np.int64(2))] == [2]
    assert [one.knobs.pages for one in mk.vary(case, pages="4k")] == ["4k"]
    assert _counts(np.array([4, 2]), "ranks") == _counts((np.int64(2), 4), "ranks") == [2, 4]
    assert _counts(np.array(2), "ranks") == [2]
    assert mk.patterns.ms1(8, np.array(4), np.int8(3)) == mk.patterns.ms1(8, [4], 3)
    assert integer(np.array(3), "x") == number(np.float32(3), "x") == 3
    assert plain([(np.int8(1),), [np.str_("a")]], "x") == [(1,), ["a"]]


def test_seeds_and_changes_of_numpy_reach_other_processes(monkeypatch):
    started: list[Any] = []

    def worker(*words: Any) -> None:
        started.append(json.dumps(words[-1]))
        raise InputError("started")

    monkeypatch.setattr(interleaved, "Worker", worker)
    change = {"threads": np.int64(2), "flush": np.True_}
    with refused("started"):
        mk.compare_runs("x.toml", change, change, pairs=np.int64(30), seed=np.int64(3))
    assert started == ['{"threads": 2, "flush": true}']
    with refused("order_seed must be an integer, not 2.5"):
        mk.sweep([], order_seed=np.float64(2.5))
    assert len(mk.sweep([], order_seed=np.int64(3))) == 0
