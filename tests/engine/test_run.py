"""A record has what was requested, obtained and measured."""

import warnings

import numpy as np
import pytest

import memkern as mk
from memkern import _memkern
from memkern.engine.sampling import prepared as prepared_module
from memkern.families.spatter.data import points_of


def test_a_record_has_what_was_requested_obtained_and_measured(case):
    measurement = case.with_(pages="4k", pin="0", name="a label").measure()
    record = measurement.record
    assert record["kernel"] == "spatter.gather"
    assert record["name"] == "a label"
    assert record["pattern"] == "UNIFORM:8:4"
    assert record["delta"] == "32"
    assert (record["threads"], record["pin"], record["pin_requested"]) == (1, "0", "0")
    assert (record["pages"], record["pages_requested"]) == ("4k", "4k")
    assert record["variant"] == record["variant_requested"] == "scalar"
    assert record["isa"] in _memkern.supported_isas()
    assert record["valid"] and record["error_max"] == 0
    samples = measurement.samples
    assert record["samples"] == len(samples)
    assert record["time_min_s"] == samples.min()
    assert record["placements"] == 10
    assert samples.min() <= record["time_median_s"] <= samples.max()
    assert record["within_ci_low_s"] <= np.median(samples) <= record["within_ci_high_s"]
    assert record["time_ci_low_s"] <= record["time_median_s"] <= record["time_ci_high_s"]
    assert record["bytes_B"] == 8 * 8 * 512
    assert record["bandwidth_GBps"] == pytest.approx(8 * 8 * 512 / samples.min() / 1e9)
    median_GBps = 8 * 8 * 512 / record["time_median_s"] / 1e9
    assert record["bandwidth_median_GBps"] == pytest.approx(median_GBps)
    assert record["footprint_B"] == 8 * (28 + 32 * 511 + 1) + 8 * 8
    # A sample is far above the clock's resolution.
    sample_s = record["time_min_s"] * record["invocations"]
    assert sample_s > 500 * _memkern.clock_tick()
    assert set(measurement.environment) >= {"machine", "os", "settings", "build", "python"}
    assert "<table" in measurement._repr_html_()
    shown = repr(measurement)
    assert shown.startswith("<Measurement: spatter.gather, name='a label', pattern='UNIFORM:8:4', ")
    assert f"{record['bandwidth_GBps']:.4g} GB/s" in shown and f"valid, {record['state']}" in shown
    assert len(shown) < 250 and repr(mk.prepare(case)) == f"<Prepared: {case!r}>"


def test_a_fixed_count_is_exactly_the_number_of_samples(case):
    large = mk.gather("UNIFORM:8:1:NR", count=2**15, threads=1, variant="scalar", runs=7)
    record = large.measure().record
    assert (record["samples"], record["stop"], record["invocations"]) == (7, "runs", 1)
    # One invocation of a tiny case is below the clock's resolution: a sample has several.
    tiny = mk.gather([0], count=1, threads=1, variant="scalar", runs=3).measure().record
    assert tiny["samples"] == 3
    assert tiny["invocations"] > 1


def test_samples_with_flushed_caches_have_one_invocation():
    case = mk.gather("UNIFORM:8:8:NR", count=2**12, threads=1, variant="scalar", flush=True, runs=5)
    record = case.measure().record
    assert record["flush"] is True
    assert record["invocations"] == 1


def test_placements_share_the_samples(case):
    record = case.with_(runs=12, placements=5).measure().record
    assert record["samples"] == 12
    assert case.with_(runs=3, placements=5).placements == 3
    assert case.placements == 10
    assert case.with_(runs=3).placements == 1


def test_more_threads_than_processing_units_give_a_warning(case):
    units = len(_memkern.topology()["units"])
    turns = f"{units + 1} threads take turns on {units} processing"
    with pytest.warns(UserWarning, match=turns) as caught:
        case.with_(threads=units + 1).prepare()
    # The line of the caller, not one of memkern's.
    assert {each.filename for each in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.with_(threads=units).prepare()


def test_idle_threads_are_named_and_counted():
    one = mk.gather("UNIFORM:8:1", count=1, threads=2, runs=1)
    with pytest.warns(UserWarning, match=r"1 of 2 threads are idle: spatter\.gather has") as caught:
        prepared_module._warn_once.cache_clear()
        record = one.measure().record
    assert {each.filename for each in caught} == {__file__}
    assert (record["threads"], record["working_threads"]) == (2, 1)
    several = mk.gather("UNIFORM:8:1", count=8, threads=2, runs=1).measure().record
    assert several["working_threads"] == 2
    results = mk.sweep([one, one.with_(threads=1)])
    points, notes = points_of(results)
    assert points[points["own"]]["threads"].tolist() == [1.0]
    assert any("1 record with idle threads left out." in note for note in notes)


@pytest.mark.parametrize("count", [1, 2])
def test_a_long_pattern_is_divided_by_its_indices(count):
    rng = np.random.default_rng(2)
    indices = rng.permutation(2**17)
    case = mk.gather(indices, count=count, delta=0, threads=2, wrap=count, runs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record = case.measure().record
    assert (record["working_threads"], record["valid"]) == (2, True)
    assert record["bytes_B"] == 8 * count * len(indices)
    # The lists and the dense buffer are read from memory as well.
    assert record["bytes_model_B"] == (8 + 8 + 2 * 8 * count) * len(indices)
    # Each thread moves its part alone.
    native = case.prepare().native
    dense = native.arrays()["dense"]
    assert (dense["rows"], dense["columns"]) == (1, count * len(indices))
    native.fill(outputs=True)
    fresh, values = native.copy_out("dense"), native.copy_out("sparse")
    blocks = case.iterations
    native.run_range(0, blocks // 2)
    got = native.copy_out("dense").reshape(count, -1)
    half = len(indices) // 2
    assert (got[:, :half] == values[indices[:half]]).all()
    assert (got[:, half:] == fresh.reshape(count, -1)[:, half:]).all()


def test_patterns_with_equal_steps_have_a_stride():
    how = {"count": 16, "delta": 32, "runs": 1, "threads": 1, "variant": "scalar"}
    array = np.arange(0, 32, 4)
    cases = [
        *(mk.gather(pattern, **how) for pattern in (array, "UNIFORM:8:4", [0, 1, 3], [8, 4, 0])),
        mk.gs(array, array, **how),
    ]
    results = mk.sweep(cases, progress=False)
    strides = {record["case_id"]: record["stride"] for record in results}
    assert [strides[case.identity()] for case in cases] == [4, 4, None, -4, None]
    # Figures show the array as its generator.
    points, _ = points_of(results.filter(pattern=str(mk.patterns.custom(array))))
    assert points[points["own"]]["case"].tolist() == ["stride 4"]
