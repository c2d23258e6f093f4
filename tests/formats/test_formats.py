"""Results are loaded as they were saved, in every format; damaged files are refused."""

import csv
import json
import math
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_sets import FORMATS, assert_same, python, record, result_set

from memkern.errors import InputError
from memkern.formats import SCHEMA_VERSION, ResultSet, database, load
from memkern.formats import encoding as formats
from memkern.formats.store import open_output

AWKWARD = [
    record("a", text='a,"b"\nü\r\n; \t', empty="", x=0.1 + 0.2, big=2**63 - 1, inf=math.inf),
    record("b", text="", empty=None, x=math.nan, big=-(2**63), inf=-math.inf, flag=False),
    record("c", 3, text="NaN", empty="None", x=5e-324, big=None, inf=1e308, flag=None),
    record("c", 3, text="\\N", empty='"', x=1.0, big=0, inf=0.0, flag=True, **{"odd, name": 1}),
]


@pytest.mark.parametrize("suffix", FORMATS)
def test_round_trip(tmp_path, suffix):
    before = result_set(*AWKWARD)
    before.samples[1] = np.array([])
    before.samples[2] = np.array([math.pi, math.nan, math.inf, 1e-300])
    before.environments["none"] = {"machine": {"numa": None, "caches": [{"level": 1}]}, "é": 1.5}
    path = tmp_path / f"ünder v1.0?#{suffix}"
    before.save(path)
    after = load(path)
    assert_same(before, after)
    after.save(path)
    assert_same(before, ResultSet.load(str(path)))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
)
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
ROWS = st.fixed_dictionaries(
    {"case_id": st.text(st.characters(exclude_categories=["Cs"])), "repeat": st.integers(0, 9)},
    optional={
        "number": VALUES,
        "real": st.floats(),
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "flag": st.none() | st.booleans(),
        "text": TEXT,
        "Ünïcode, quoted": TEXT,
    },
)


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(rows=st.lists(st.tuples(ROWS, st.lists(st.floats(), max_size=3)), max_size=4))
def test_any_records_round_trip(tmp_path_factory, rows):
    before = ResultSet([row for row, _ in rows], [times for _, times in rows])
    for suffix in FORMATS:
        path = tmp_path_factory.mktemp("any") / f"x{suffix}"
        before.save(path)
        after = load(path)
        # The sign and payload of a NaN may change.
        for samples in (*before.samples, *after.samples):
            samples[np.isnan(samples)] = math.nan
        assert_same(before, after)


def test_exports_are_read_by_other_programs(tmp_path):
    data = result_set(record("a", x=math.nan, name=""), record("b", x=0.25, name='say "hi"'))
    for suffix in FORMATS:
        data.save(tmp_path / f"x{suffix}")

    assert (tmp_path / "x.csv").read_text().splitlines()[1].endswith(',0.001,12.5,,""')
    table = pd.read_csv(tmp_path / "x.csv")
    assert table["x"].isna().tolist() == [True, False]
    assert table["valid"].dtype == bool
    assert table["name"][1] == 'say "hi"'
    with open(tmp_path / "x.samples.csv", newline="") as stream:
        times = [float(row["time_s"]) for row in csv.DictReader(stream)]
    assert times == data.samples_frame()["time_s"].tolist()
    assert json.loads((tmp_path / "x.environment.json").read_text())["environments"]

    def refuse(constant):
        raise AssertionError(constant)

    document = json.loads((tmp_path / "x.json").read_text(), parse_constant=refuse)
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["records"][0]["x"] is None
    assert document["samples"][1] == data.samples[1].tolist()
    array = json.loads(data.to_json_text(), parse_constant=refuse)
    assert [row["case_id"] for row in array] == ["a", "b"]
    assert array == document["records"]
    assert json.loads(ResultSet().to_json_text()) == []

    metadata = pq.read_schema(tmp_path / "x.parquet").metadata
    assert metadata[b"memkern.schema_version"] == b"1"
    assert json.loads(metadata[b"memkern.environments"]) == data.environments
    assert pd.read_parquet(tmp_path / "x.parquet")["name"].tolist() == ["", 'say "hi"']
    assert len(pd.read_parquet(tmp_path / "x.samples.parquet")) == 7

    with sqlite3.connect(tmp_path / "x.db") as db:
        types = {name: kind for _, name, kind, *_ in db.execute("PRAGMA table_info(records)")}
        assert (types["kernel"], types["threads"], types["x"]) == ("TEXT", "INTEGER", "REAL")
        assert types["valid"] == "INTEGER"
        [(count,)] = db.execute("SELECT count(*) FROM records WHERE valid = 1 AND x > 0.2")
        assert count == 1
        [(blob,)] = db.execute("SELECT time_s FROM samples WHERE record = 1")
        assert np.frombuffer(blob, "<f8").tolist() == data.samples[0].tolist()
        assert db.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
    db.close()


@pytest.mark.parametrize("suffix", FORMATS)
def test_another_schema_version_is_refused(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"x{suffix}"
    with monkeypatch.context() as patch:
        for module in (database, formats):
            patch.setattr(module, "SCHEMA_VERSION", 7)
        result_set(record()).save(path)
    with pytest.raises(InputError, match="its schema version is 7, not 1"):
        load(path)
    with pytest.raises(InputError, match="its schema version is 7, not 1"):
        open_output(path, resume=True)


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files_are_refused_or_readable(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    result_set(*AWKWARD).save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for i in range(120):
        content = bytearray(whole)
        if i < 40:
            del content[int(rng.integers(len(whole))) :]
        elif i < 80:
            content[int(rng.integers(len(whole)))] ^= int(rng.integers(1, 256))
        else:
            at = int(rng.integers(len(whole)))
            content[at : at + 8] = rng.bytes(8)
        path.write_bytes(content)
        try:
            load(path)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)
            assert str(path.with_suffix("")) in str(error)
    assert refused >= 30
    path.write_bytes(b"")
    with pytest.raises(InputError):
        load(path)


HEAD = '"schema_version": 1, "environments": {}'


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]",
        "{}",
        '{"schema_version": "1"}',
        f'{{{HEAD}, "columns": [], "records": [], "samples": []}}',
        f'{{{HEAD}, "columns": {{"a": "colour"}}, "records": [], "samples": []}}',
        f'{{{HEAD}, "columns": {{"a": "real"}}, "records": [{{"a": [1]}}], "samples": [[]]}}',
        f'{{{HEAD}, "columns": {{"a": "bool"}}, "records": [{{"a": 5}}], "samples": [[]]}}',
        f'{{{HEAD}, "columns": {{"a": "integer"}}, "records": [{{"a": 5.5}}], "samples": [[]]}}',
        f'{{{HEAD}, "columns": {{"a": "integer"}}, "records": [{{"a": 1{"0" * 30}}}], '
        '"samples": [[]]}',
        f'{{{HEAD}, "columns": {{"a": "integer"}}, "records": [{{"a": 1{"0" * 5000}}}], '
        '"samples": [[]]}',
        f'{{{HEAD}, "columns": {{"a": "text"}}, "records": [{{"a": 5}}], "samples": [[]]}}',
        f'{{{HEAD}, "columns": {{"a": "text"}}, "records": [{{"b": "x"}}], "samples": [[]]}}',
        f'{{{HEAD}, "columns": {{}}, "records": [{{}}], "samples": []}}',
        f'{{{HEAD}, "columns": {{}}, "records": [{{}}], "samples": [[[1]]]}}',
        '{"schema_version": 1, "environments": {"e": 1}, "columns": {}, "records": [], '
        '"samples": []}',
    ],
)
def test_hostile_json_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.json can't be read as a memkern result: .") as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_files_that_can_not_be_loaded_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"x\.json does not exist$"):
        load(tmp_path / "x.json")
    with pytest.raises(InputError, match=r"must end in one of \.parquet, \.csv, \.json, \.db"):
        load(tmp_path / "x.txt")
    (tmp_path / "d.json").mkdir()
    with pytest.raises(InputError, match="can't be read: Is a directory"):
        load(tmp_path / "d.json")
    with pytest.raises(InputError, match="can't be read"):
        load("nul\0.json")
    with pytest.raises(InputError, match="does not exist"):
        load(tmp_path / "x.db")
    assert not (tmp_path / "x.db").exists()
    result_set(record()).save(tmp_path / "x.csv")
    (tmp_path / "x.samples.csv").unlink()
    with pytest.raises(InputError, match=r"x\.samples\.csv does not exist"):
        load(tmp_path / "x.csv")


def test_only_parquet_and_frames_need_more_than_numpy(tmp_path):
    for suffix in FORMATS:
        result_set(record()).save(tmp_path / f"x{suffix}")
    script = """
        import sys
        for name in ("pandas", "pyarrow", "memkern._memkern"):
            sys.modules[name] = None
        from memkern.errors import InputError
        from memkern.results import load, open_output
        for suffix in ("csv", "json", "db"):
            results = load(f"x.{suffix}")
            results._repr_html_()
            results.save(f"y.{suffix}")
        for use in (lambda: load("x.parquet"), lambda: open_output("z.parquet")):
            try:
                use()
            except InputError as error:
                print(error)
    """
    done = python(script, tmp_path)
    assert (
        done.stdout.splitlines()
        == ["Parquet files need pyarrow: install it, or use .csv, .json or .db"] * 2
    )
    assert not list(tmp_path.glob("z*"))


def test_text_that_is_not_unicode_is_stored_with_escapes(tmp_path):
    results = ResultSet([{"a": "m\udcff"}, {"a": "\ud800 \N{GREEK SMALL LETTER MU}"}], [[1.0]] * 2)
    assert [row["a"] for row in results] == ["m\\udcff", "\\ud800 \N{GREEK SMALL LETTER MU}"]
    for suffix in (".json", ".csv", ".parquet"):
        results.save(tmp_path / f"x{suffix}")
        assert_same(load(tmp_path / f"x{suffix}"), results)


def test_small_files_of_tables_too_large_for_the_memory_are_refused(tmp_path, monkeypatch):
    pq.write_table(pa.table({"x": pa.repeat(1, 10**7)}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 10**5
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (5e8, "MemAvailable"))
    with pytest.raises(InputError, match=r"x\.parquet needs about 1 GB of memory"):
        load(tmp_path / "x.parquet")


def test_infinity_is_text_in_json():
    rows = json.loads(result_set(record("a", e=math.inf), record("b", e=0.5)).to_json_text())
    assert [row["e"] for row in rows] == ["Infinity", 0.5]


# What spreadsheets and pandas make of a file, and why it is refused if it is.
SAVED_AGAIN = {
    "byte-order mark": (lambda text: "\ufeff" + text, ""),
    "CRLF": (lambda text: text.replace("\n", "\r\n"), ""),
    "capitals": (lambda text: text.replace("True", "TRUE").replace("False", "FALSE"), ""),
    "index": (lambda text: "," + text.replace("\n", "\n7,", text.count("\n") - 1), ""),
    "named index": (
        lambda text: "Unnamed: 0," + text.replace("\n", "\n7,", text.count("\n") - 1),
        "",
    ),
    "semicolons": (lambda text: text.replace(",", ";").replace(".", ","), "semicolons or tabs"),
    "tabs": (lambda text: text.replace(",", "\t"), "semicolons or tabs"),
    "thousands": (lambda text: text.replace("1000\n", '"1,000"\n'), "'1,000' does not fit"),
}


@pytest.mark.parametrize("how", SAVED_AGAIN)
def test_csv_that_was_saved_again_is_read_or_refused_with_the_reason(tmp_path, how):
    change, why = SAVED_AGAIN[how]
    saved = result_set(record(count=1000), record("c1", count=1000))
    saved.save(tmp_path / "x.csv")
    for name in ("x.csv", "x.samples.csv"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_bytes(change(text).encode())
    if not why:
        assert load(tmp_path / "x.csv") == saved
        return
    with pytest.raises(InputError, match=rf"x\.csv can't be read as a memkern result: .*{why}"):
        load(tmp_path / "x.csv")


def test_csv_in_utf_16_is_refused_with_the_reason(tmp_path):
    result_set(record()).save(tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_text()
    (tmp_path / "x.csv").write_bytes(text.encode("utf-16"))
    with pytest.raises(InputError, match="it is UTF-16, as some spreadsheets save it: save it as"):
        load(tmp_path / "x.csv")
