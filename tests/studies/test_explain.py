"""Explanations by experiments: what is tried, by scripted times, and the verbs and options."""

import json

import numpy as np
import pytest
from changed_cases import changed
from checking import interrupt, output_of, run

import memkern as mk
from memkern.cli import main, measuring
from memkern.machine import switches
from memkern.results.explanation import Explanation
from memkern.spec.experiments import LEVEL
from memkern.spec.registry import case_of_record
from memkern.studies import explain as explaining
from memkern.studies import turns

CASE = mk.stream("copy", elements=2**22, variant="simd", threads=2)
RECORD = {
    **{"variant": "simd", "isa": "avx2", "threads": 2, "pages": "thp"},
    **{"footprint_B": 2**26, "time_min_s": 4e-3},
}


@pytest.fixture
def scripted(monkeypatch):
    """Replace times in turns by a function of the case, and return the cases that were placed."""
    placed = []
    monkeypatch.setattr(explaining, "last_level_cache_B", lambda: 2**24)
    monkeypatch.setattr(explaining, "level_of", lambda size_B, ends: "memory")
    isa = mk.prepare(CASE).obtained["isa"]

    def script(time_of, case=CASE, **how):
        def times_in_turns(cases, rng, most_s):
            placed.extend(cases[1:])
            return [[time_of(one)] * 3 for one in cases]

        monkeypatch.setattr(turns, "times_in_turns", times_in_turns)
        return mk.explain(case, record=RECORD | {"isa": isa}, **how), placed

    return script


def by_bytes(case):
    """Return times of 16 GB/s in memory, 64 GB/s in caches, and 24 GB/s by other stores."""
    rate = 24e9 if case.knobs.variant == "nt" else 64e9 if case.bytes_B < 2**24 else 16e9
    return case.bytes_B / rate * (2 if case.knobs.threads == 1 else 1)


def test_ratios_are_those_of_equal_bytes(scripted):
    found, placed = scripted(by_bytes)
    ratios = {one.name: one.ratio for one in found.tried}
    assert ratios["data in L1"] == pytest.approx(0.25)
    assert ratios["non-temporal stores"] == pytest.approx(2 / 3)
    assert ratios["one thread"] == pytest.approx(2.0)
    # The reference moves the bytes of the model, in which lines are read before they are written.
    assert ratios["the same bytes in a stream"] == pytest.approx(3 / 2 * 2 / 3)
    assert found.first == ("reads of written lines", pytest.approx(1 / 3))
    assert [one.option for one in found.advice] == ["--variant nt"]
    assert found.unit_s == pytest.approx(4e-3 / 2**22) and found.left_out == ()
    # Each changed case is another one.
    assert len({one.identity() for one in placed}) == len(found.tried)


def test_what_the_time_does_not_suffice_for_is_named(scripted):
    with pytest.raises(KeyboardInterrupt):
        scripted(interrupt)
    found, _ = scripted(by_bytes, seconds=1e-9)
    assert found.tried == () and "data in L1" in found.left_out
    assert "not tried for lack of time: data in L1" in str(found)


def test_states_of_the_host_and_predictions_are_told_beside(scripted, monkeypatch):
    states = [
        {"share": 0.5, "time_median_s": 4e-3},
        {"share": 0.4, "time_median_s": 6e-3},
        {"share": 0.1, "time_median_s": 1e-3},
    ]
    more = {"states": json.dumps(states), "within_ci_relative": 0.01}
    more |= {"roofline_min_fraction": 0.8, "machine_file": "host.json of today"}
    for name, value in more.items():
        monkeypatch.setitem(RECORD, name, value)
    found, _ = scripted(by_bytes)
    state, model = found.tried[-2:]
    assert (
        state.ratio == pytest.approx(4 / (4.4 / 0.9)) and state.cause == "other states of the host"
    )
    assert (model.name, model.ratio) == ("predicted by the roofline", 0.8)
    assert found.limit.cause != model.name


def test_settings_of_the_machine_are_tried_where_they_can_be_changed(monkeypatch):
    def names():
        return changed(CASE).keys() & {"prefetchers off", "half of the ways of the last cache"}

    def refuse(*_):
        raise mk.InputError("not here")

    monkeypatch.setattr(switches, "prefetchers_off", refuse)
    monkeypatch.setattr(switches, "cache_ways", refuse)
    assert not names()
    monkeypatch.setattr(switches, "prefetchers_off", lambda: [])
    monkeypatch.setattr(switches, "cache_ways", lambda ways: [])
    assert len(names()) == 2
    assert changed(CASE)["prefetchers off"].knobs.prefetchers == "off"


def test_data_in_a_cache_are_there_without_being_measured():
    found = mk.explain(mk.loops("load", elements=1000, threads=1), seconds=0.5)
    (level,) = [one for one in found.tried if one.role == LEVEL]
    assert (level.cause, level.ratio, level.rounds) == ("L1", 1.0, 0)


def test_variants_are_tried_only_if_one_was_requested():
    def names(variant):
        case = mk.loops("sum", elements=1000, threads=1, variant=variant)
        found = mk.explain(case, seconds=1e-9)
        return {one.name for one in found.tried} | set(found.left_out)

    assert {"--variant simd", "--variant auto"} <= names("scalar")
    assert not {"--variant simd", "--variant scalar"} & names("best")


def test_what_has_no_experiments_is_refused(monkeypatch):
    with pytest.raises(mk.InputError, match=r"there are no experiments for launch\.empty on cpu"):
        mk.explain(mk.case("launch.empty"))
    with pytest.raises(mk.InputError, match="seconds"):
        mk.explain(CASE, seconds=0)


def test_verbs_explain_what_they_measure(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(measuring, "QUICK_S", 1.0)
    file = tmp_path / "why.parquet"
    words = ("stream", "-k", "copy", "-n", "5000", "--runs", "3", "--explain", "--quick")
    out, _ = output_of(capsys, *words, "-o", str(file))
    assert "case 0, stream.copy" in out and "data in L1" in out
    (record,) = mk.load(file)
    found = Explanation.of_record(record)
    assert found is not None and found.columns["cause"] == record["cause"] != ""
    assert record["cause_share"] == pytest.approx(found.first[1])
    assert case_of_record(record).identity() == record["case_id"]
    # The file is explained again, also without the measuring verb.
    target = tmp_path / "again.csv"
    out, _ = output_of(capsys, "explain", str(file), "--seconds", "1", "--json", "-o", str(target))
    (again,) = json.loads(out)
    assert again["case_id"] == record["case_id"] and again["explained_by"] != record["explained_by"]
    assert mk.load(target).records[0]["cause"] == again["cause"]
    assert main(["explain", str(file), "-o", str(target)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_ctrl_c_ends_explanations_and_keeps_those_before(capsys, monkeypatch, tmp_path):
    file, calls = tmp_path / "why.csv", []

    def second_is_interrupted(*args, **_):
        calls.append(args)
        return len(calls) == 2

    monkeypatch.setattr(explaining, "take_turns", second_is_interrupted)
    words = ("stream", "-k", "copy,add,triad", "-n", "5000", "--runs", "3", "--explain", "--quick")
    code, out, _ = run(capsys, *words, "-o", str(file))
    assert code == 130 and len(calls) == 2
    explained = [bool(record["explained_by"]) for record in mk.load(file)]
    assert explained == [True, False, False] and out.count("\ncase ") == 1
    calls[:] = [None]
    code, _, _ = run(capsys, "explain", str(file))
    assert code == 130 and len(calls) == 2


def test_records_without_explanation_have_empty_columns(capsys):
    out, _ = output_of(capsys, "messages", "--help")
    assert "--explain" in out
    result = mk.measure(CASE.with_(runs=1))
    assert (result.record["cause"], result.record["explained_by"]) == ("", "")
    assert np.isnan(result.record["cause_share"])


def test_records_of_arrays_and_other_machines_are_not_explained(capsys, tmp_path):
    file = tmp_path / "arrays.csv"
    result = mk.measure(mk.gather(np.arange(8), count=100, runs=1))
    mk.ResultSet([result.record], [result.samples]).save(file)
    code, _, err = run(capsys, "explain", str(file))
    assert code == 2 and "was built from arrays, which are not in the record" in err
    other = mk.measure(CASE.with_(runs=1))
    record = {**other.record, "platform": "another one"}
    mk.ResultSet([record], [other.samples]).save(tmp_path / "other.csv")
    code, _, err = run(capsys, "explain", str(tmp_path / "other.csv"), "--seconds", "1")
    assert code == 0 and "not explained: stream.copy was measured on another one" in err
    changed = {**other.record, "case_id": "0"}
    with pytest.raises(mk.InputError, match="is another one in this version of memkern"):
        case_of_record(changed)
