"""Result sets: types of columns, filters, sums, data frames, HTML."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from result_sets import HERE, THERE, record, result_set

from memkern.errors import InputError
from memkern.formats import ResultSet, concat
from memkern.formats.table import record_line
from memkern.machine.environment import identity


def test_columns_get_one_type():
    mixed = ResultSet(
        [
            {"a": np.float32(0.5), "n": np.int32(3), "late": None, "flag": np.True_, "zero": -0.0},
            {"a": None, "n": math.nan, "word": "x", "flag": None, "wide": 1},
            {"a": 2, "n": 4, "word": None, "nothing": None, "wide": 0.5, "unknown": math.nan},
        ],
        [[1.0], [], [2, 3]],
    )
    nan = math.nan
    assert [list(row.values()) for row in mixed] == [
        pytest.approx(row, nan_ok=True)
        for row in (
            [0.5, 3, None, True, 0.0, None, nan, None, nan],
            [nan, None, None, None, nan, "x", 1.0, None, nan],
            [2.0, 4, None, None, nan, None, 0.5, None, nan],
        )
    ]
    assert [type(value) for value in mixed.records[0].values()][:5] == [
        float,
        int,
        type(None),
        bool,
        float,
    ]
    assert math.copysign(1, mixed.records[0]["zero"]) == 1
    assert mixed.samples[2].dtype == np.float64


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"a": 1}, {"a": "x"}], "column a must not mix text and numbers"),
        ([{"a": 2**63}, {}], "column a must fit into 64 bits"),
        ([{"a": [1]}, {}], "column a must be a bool, a number, text or None, not list"),
        ([{"a": 1}], "2 for 1"),
    ],
)
def test_bad_records_are_refused(records, message):
    with pytest.raises(InputError, match=message):
        ResultSet(records, [[1.0], [2.0]])


def test_sequence_and_sum():
    one, two = result_set(record("a")), result_set(record("b", valid=False, extra=7), record("c"))
    both = one + two
    assert (len(both), bool(ResultSet())) == (3, False)
    assert [row["case_id"] for row in both] == ["a", "b", "c"]
    assert [row["extra"] for row in both] == [None, 7, None]
    assert both.samples[0].tobytes() == one.samples[0].tobytes()
    assert (one.valid, both.valid, ResultSet().valid) == (True, False, True)
    assert repr(both) == "<ResultSet: 3 records of spatter.gather>"


def test_filter():
    three = result_set(record("a", threads=1), record("b", threads=2), record("c", threads=4))
    three.environments["other"] = THERE
    assert [row["case_id"] for row in three.filter(threads=2)] == ["b"]
    chosen = three.filter(threads=[1, 4], kernel="spatter.gather")
    assert [row["case_id"] for row in chosen] == ["a", "c"]
    assert chosen.samples[1].tobytes() == three.samples[2].tobytes()
    assert chosen.environments == {identity(HERE): HERE}
    assert len(three.filter(threads=3)) == 0
    assert len(ResultSet().filter(threads=3)) == 0
    with pytest.raises(InputError, match=r"column 'thread' is not one of .*: did you mean threads"):
        three.filter(thread=2)


@pytest.fixture
def three():
    """Return records of two environments, the last without extra."""
    results = result_set(
        record("a", threads=1, extra=True),
        record("b", threads=2, extra=False, environment_id="there"),
        record("c", threads=4),
    )
    results.environments["there"] = THERE
    return results


CHOSEN = {
    "query": lambda r: r.query("threads == 2 or case_id == 'c'"),
    "list": lambda r: r[[False, True, True]],
    "array": lambda r: r[np.array([False, True, True])],
    "column": lambda r: r[r["threads"] >= 2],
    "frame in another order": lambda r: r[r.to_frame().sort_index(ascending=False)["threads"] >= 2],
    "nullable": lambda r: r[~r["extra"].fillna(False)],
    "slice": lambda r: r[1:],
}


@pytest.mark.parametrize("choose", CHOSEN.values(), ids=CHOSEN)
def test_samples_and_environments_follow_the_records_that_remain(three, choose):
    rest = choose(three)
    assert [row["case_id"] for row in rest] == ["b", "c"]
    assert [x.tobytes() for x in rest.samples] == [x.tobytes() for x in three.samples[1:]]
    assert rest.environments.keys() == {"there", identity(HERE)}
    assert rest.query("threads == 2").environments == {"there": THERE}
    assert rest[:0] == ResultSet()


def test_missing_booleans_are_false_and_queries_use_variables(three):
    assert [row["case_id"] for row in three[three["extra"]]] == ["a"]
    least = 3  # noqa: F841 (the query reads it)
    assert [row["case_id"] for row in three.query("threads > @least")] == ["c"]
    assert len(ResultSet().query("threads == 2")) == 0
    assert len(ResultSet()[[]]) == 0


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda r: r["thread"], r"column 'thread' is not one of .*: did you mean threads"),
        (lambda r: r.query("thread == 2"), "query 'thread == 2': name 'thread' is not defined"),
        (lambda r: r.query("threads =="), "query 'threads ==': "),
        (lambda r: r.query("threads"), "a mask must have a boolean for each of 3 records, not "),
        (lambda r: r[[True]], r"for each of 3 records, not \[True\]"),
        (lambda r: r[[0, 1, 2]], r"for each of 3 records, not \[0, 1, 2\]"),
        (lambda r: r[r["valid"][:2]], "for each of 3 records"),
        (lambda r: r[r["valid"].set_axis([1, 2, 3])], "for each of 3 records"),
        (lambda r: concat([r, 5]), "concat joins result sets and measurements, not 5"),
        (lambda r: concat(r), "concat joins result sets and measurements, not {"),
    ],
)
def test_bad_choices_are_refused(three, use, message):
    with pytest.raises(InputError, match=message):
        use(three)


def test_concat(three):
    one = result_set(record("d", other="x"))
    measurement = SimpleNamespace(results=one)
    both = concat([three, measurement])
    assert [row["case_id"] for row in both] == ["a", "b", "c", "d"]
    assert [row["other"] for row in both] == [None, None, None, "x"]
    assert both.samples[3].tobytes() == one.samples[0].tobytes()
    assert both.environments.keys() == {"there", identity(HERE)}
    assert both == three + one
    one.interrupted, one.left_out = True, 2
    joined = concat(part for part in (one, three, one))
    assert (joined.interrupted, joined.left_out) == (True, 4)
    assert concat([]) == ResultSet()


def test_frames():
    frame = result_set(record("a", count=5, flag=True, x=0.5), record("b", word="w")).to_frame()
    assert frame["threads"].dtype == np.int64
    assert frame["valid"].dtype == bool
    assert frame["time_min_s"].dtype == np.float64
    assert frame["count"].dtype == "Int64"
    assert frame["flag"].dtype == "boolean"
    assert (frame["count"].sum(), frame["x"].sum()) == (5, 0.5)
    assert frame["word"].isna().tolist() == [True, False]
    assert (frame["kernel"] == "spatter.gather").all()
    assert ResultSet().to_frame().empty


def test_samples_frame_is_long():
    two = result_set(record("a"), record("a", 1))
    frame = two.samples_frame()
    assert frame.columns.tolist() == ["record", "case_id", "repeat", "sample", "time_s"]
    assert frame["repeat"].tolist() == [0] * 3 + [1] * 4
    assert frame["sample"].tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert frame["time_s"].tolist() == [*two.samples[0], *two.samples[1]]
    assert len(ResultSet().samples_frame()) == 0


def test_html_marks_disturbed_and_invalid_records():
    table = result_set(
        record("a", pattern="<b>&"),
        record("b", disturbed=True, time_min_s=2.5e-6),
        record("c", valid=False, time_min_s=0.0),
    )._repr_html_()
    assert "&lt;b&gt;&amp;" in table
    assert "<b>" not in table
    assert table.count("~ disturbed") == 1
    assert table.count("✗ invalid") == 1
    assert "2.5 µs" in table
    assert "3 records on AMD EPYC, 2 threads" in table
    assert "GFLOP" not in table
    many = result_set(*(record(str(i)) for i in range(100)))._repr_html_()
    assert many.count("<tr") == 61
    assert "100 records on AMD EPYC, 2 threads; the first 60 are shown" in many
    assert "0 records" in ResultSet()._repr_html_()


def test_a_record_in_one_line_has_its_main_value_with_the_interval():
    times = {
        **{"time_min_s": 1e-3, "time_min_ci_low_s": 0.8e-3, "time_min_ci_high_s": 2e-3},
        **{"time_median_s": 2e-3, "time_ci_low_s": 1e-3, "time_ci_high_s": 3e-3},
    }
    inputs = {"case_columns": "pattern delta", "delta": "32", "variant": "simd", "isa": "avx2"}
    row = record(state="quiet", **inputs, **times)
    assert record_line(row) == (
        "spatter.gather, pattern='UNIFORM:8:4', delta='32', threads=2; simd avx2; "
        "12.5 GB/s [6.25, 15.62]; valid, quiet"
    )
    # A latency is a time, by the median; a rate of atomics precedes their bandwidth.
    assert "; 90 ns per access [45, 135]; " in record_line({**row, "ns_per_access": 90.0})
    assert "; 0.5 GAMS [0.25, 0.625]; " in record_line({**row, "rate_GAMS": 0.5})
    # Without interval, rate and state.
    bare = record("a", valid=False, bandwidth_GBps=math.nan, name="<b>")
    text = "spatter.gather, name='<b>', pattern='UNIFORM:8:4', threads=2; 1 ms; invalid"
    assert record_line(bare) == text


def test_a_number_returns_a_record():
    results = result_set(record("a"), record("b"), record("c"))
    assert [results[k] for k in (0, np.int64(1), np.array(-1))] == list(results)
    assert next(iter(results[np.int64(1) :])) == results[1]
    for number in (3, -4):
        with pytest.raises(IndexError):
            results[number]
    for wrong in (True, 1.0, None, [0, 2]):
        with pytest.raises(InputError, match="a mask must have a boolean for each of 3 records"):
            results[wrong]
    names = results["case_id"]
    for several in (names[:2], set(names[:2]), names[:2].to_numpy()):
        assert [row["case_id"] for row in results.filter(case_id=several)] == list(names[:2])
