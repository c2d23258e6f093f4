"""Results are loaded as they were saved, in every format, and survive interrupted runs."""

import copy
import csv
import errno
import json
import math
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkern.errors import InputError
from memkern.files import writing
from memkern.formats import (
    SCHEMA_VERSION,
    ResultSet,
    Store,
    check_output,
    database,
    load,
    open_output,
    resultset,
    store,
)
from memkern.formats import encoding as formats
from memkern.machine.environment import identity

FORMATS = [".db", ".parquet", ".csv", ".json"]
HERE = {"machine": {"model": "one"}, "build": {"commit": "a1"}, "run": {"load": [0.5]}}
THERE = {"machine": {"model": "two"}, "build": {"commit": "a2"}, "run": {"load": [0.5]}}


def record(case="c0", repeat=0, **columns):
    return {
        "case_id": case,
        "repeat": repeat,
        "environment_id": identity(HERE),
        "platform": "AMD EPYC, 2 threads",
        "kernel": "spatter.gather",
        "pattern": "UNIFORM:8:4",
        "threads": 2,
        "valid": True,
        "disturbed": False,
        "time_min_s": 1e-3,
        "bandwidth_GBps": 12.5,
        **columns,
    }


def result_set(*records):
    rng = np.random.default_rng(len(records))
    return ResultSet(
        list(records),
        [rng.exponential(size=3 + i) for i in range(len(records))],
        {identity(HERE): HERE},
    )


def assert_same(a, b):
    # repr distinguishes 1, 1.0 and True, and is equal for two NaN.
    assert repr(a.records) == repr(b.records)
    assert [list(row) for row in a] == [list(row) for row in b]
    assert [x.tobytes() for x in a.samples] == [x.tobytes() for x in b.samples]
    assert all(x.dtype == np.float64 for x in b.samples)
    assert a.environments == b.environments


# ResultSet


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


# Formats

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


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("records", [[], [record()]])
def test_round_trip_of_at_most_one_record(tmp_path, suffix, records):
    before = ResultSet(records, [[] for _ in records])
    before.save(tmp_path / f"x{suffix}")
    assert_same(before, load(tmp_path / f"x{suffix}"))


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

    import pyarrow.parquet as pq

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
        f'{{{HEAD}, "columns": {{}}, "records": [{{}}], "samples": [["x"]]}}',
        '{"schema_version": 1, "environments": {"e": 1}, "columns": {}, "records": [], '
        '"samples": []}',
        "\ufeff{}",
        "\0",
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
    for name in ("x.db", "y.db"):
        with pytest.raises(InputError, match="does not exist"):
            load(tmp_path / name)
        assert not (tmp_path / name).exists()
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


def python(script, folder, check=True):
    """Run a script in a new Python process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=check,
        timeout=60,
    )


# Store


def test_a_case_is_on_disk_as_soon_as_it_is_added(tmp_path):
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        for i in range(3):
            store.add(record(f"c{i}"), [1.0, 2.0], HERE)
            assert len(load(path)) == i + 1
            assert [p.name for p in tmp_path.iterdir()] == ["x.db"]
        assert store.find("c1", 0)["case_id"] == "c1"
        assert store.find("c1", np.int64(0)) == record("c1")
        assert store.find("c1", 1) is None
        assert store.find("other", 0) is None
        assert_same(store.result_set(), load(path))
    assert load(path).environments == {identity(HERE): HERE}


def test_a_case_measured_again_replaces_the_earlier(tmp_path):
    with Store.open(tmp_path / "x.db") as store:
        store.add(record("a", stop="interrupted"), [1.0], HERE)
        store.add(record("b", stop="ci"), [2.0], HERE)
        store.add(record("a", 1, stop="ci"), [3.0], HERE)
        store.add(record("a", stop="ci"), [4.0, 5.0], HERE)
        after = store.result_set()
    assert [(r["case_id"], r["repeat"], r["stop"]) for r in after] == [
        ("b", 0, "ci"),
        ("a", 1, "ci"),
        ("a", 0, "ci"),
    ]
    assert after.samples[-1].tolist() == [4, 5]


def test_columns_grow_and_widen(tmp_path):
    path = tmp_path / "x.db"
    rows = [
        record("a", n=1, nothing=None, gap=math.nan, flag=True),
        record("b", n=2.5, nothing="text", gap=7, late=None),
        record("c", n=None, **{'od"d': 3}, late=0.5),
    ]
    with Store.open(path) as store:
        for row in rows[:2]:
            store.add(row, [1.0], HERE)
    with Store.open(path, resume=True) as store:
        store.add(rows[2], [1.0], HERE)
        with pytest.raises(InputError, match="column n must not mix text and numbers"):
            store.add(record("d", n="x"), [1.0], HERE)
        with pytest.raises(InputError, match="needs case_id and repeat"):
            store.add({"case_id": "d"}, [1.0], HERE)
        with pytest.raises(InputError, match="one dimension"):
            store.add(record("d"), [[1.0]], HERE)
    assert_same(load(path), ResultSet(rows, [[1.0]] * 3, {identity(HERE): HERE}))


def test_environment_id_is_set_where_it_is_missing(tmp_path):
    row = record()
    del row["environment_id"]
    with Store.open(tmp_path / "x.db") as store:
        store.add(row, [1.0], HERE)
        assert store.find("c0", 0)["environment_id"] == identity(HERE)


def test_an_existing_file_is_continued_only_by_resume(tmp_path):
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        store.add(record("a"), [1.0], HERE)
    with pytest.raises(InputError, match=r"x\.db exists already: continue it with --resume, n"):
        Store.open(path)
    with Store.open(path, resume=True, environment=HERE | {"run": {"load": [9.0]}}) as store:
        assert store.find("a", 0) is not None
        store.add(record("b"), [1.0], HERE)
    with Store.open(tmp_path / "new.db", resume=True) as store:
        store.add(record("b"), [1.0], HERE)
    assert [row["case_id"] for row in load(path)] == ["a", "b"]


def test_results_of_another_machine_or_build_are_not_continued(tmp_path):
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        store.add(record(), [1.0], HERE)
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        Store.open(path, resume=True, environment=THERE)
    assert str(caught.value) == (
        f"{path} holds results of another machine or build "
        "(build.commit: a1 -> a2; machine.model: one -> two): name another file"
    )
    many = HERE | {"settings": {str(i): i for i in range(9)}}
    with pytest.raises(InputError, match="and 5 more"):
        Store.open(path, resume=True, environment=many)
    assert path.read_bytes() == before


def test_files_of_other_programs_are_unchanged(tmp_path):
    text = tmp_path / "text.db"
    text.write_text("no database, though as long as one" * 100)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE meta (key, value)")
    db.close()
    half = tmp_path / "half.db"
    with sqlite3.connect(half) as db:
        db.execute(f"PRAGMA application_id = {database.APPLICATION_ID}")
    db.close()
    for path in (text, other, half):
        before = path.read_bytes()
        for use in (load, lambda p: Store.open(p, resume=True)):
            with pytest.raises(InputError, match=r"can't be read as a memkern result: ."):
                use(path)
        assert path.read_bytes() == before


def test_an_empty_file_is_resumed_as_an_empty_store(tmp_path):
    path = tmp_path / "x.db"
    path.touch()
    with pytest.raises(InputError, match="can't be read"):
        load(path)
    assert path.read_bytes() == b""
    with pytest.raises(InputError, match="exists already"):
        Store.open(path)
    with Store.open(path, resume=True) as store:
        store.add(record(), [1.0], HERE)
    assert len(load(path)) == 1


@pytest.mark.parametrize("suffix", FORMATS)
def test_paths_that_can_not_be_written_are_refused(tmp_path, suffix):
    data = result_set(record())
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / f"link{suffix}").symlink_to(tmp_path / "aim")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    for path, message in [
        (tmp_path / f"folder{suffix}", "is a folder: name a file"),
        (tmp_path / f"link{suffix}", "is a symbolic link: name the file itself"),
        (tmp_path / f"pipe{suffix}", "is not a regular file: name a file"),
        (tmp_path / "absent" / f"x{suffix}", "can't be written: No such file or directory"),
        (tmp_path / "file" / f"x{suffix}", "can't be written: "),
        (tmp_path / f"{'x' * 300}{suffix}", "can't be written: File name too long"),
        (f"nul\0{suffix}", "can't be written: "),
        # Root can't create files here either.
        (f"/proc/x{suffix}", "can't be written: "),
    ]:
        for use in (data.save, open_output, lambda p: open_output(p, resume=True)):
            with pytest.raises(InputError, match=message) as caught:
                use(path)
            assert "\n" not in str(caught.value)
            assert str(path).removesuffix(suffix)[:60] in str(caught.value)
    with pytest.raises(InputError, match=r"must end in one of \.parquet, \.csv, \.json, \.db"):
        data.save("/dev/full")
    with pytest.raises(InputError, match="full can't be written because it is not a regular file"):
        data.to_json("/dev/full")
    with pytest.raises(InputError, match="must end in one of"):
        open_output(tmp_path / "x.xlsx")
    assert sorted(tmp_path.iterdir()) == before


def test_a_link_beside_an_export_is_not_followed(tmp_path):
    (tmp_path / "x.samples.csv").symlink_to(tmp_path / "aim")
    for use in (result_set(record()).save, open_output):
        with pytest.raises(
            InputError, match=r"x\.samples\.csv can't be written because it is a symbolic link"
        ):
            use(tmp_path / "x.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["x.samples.csv"]


# Full disks and crashes


def test_a_full_disk_leaves_the_finished_cases(tmp_path):
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        store.add(record("a"), [1.0], HERE)
        before = store.result_set()
        [(pages,)] = store._database.connection.execute("PRAGMA page_count").fetchall()
        store._database.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(InputError, match=r"x\.db can't be written: the disk is full$"):
            store.add(record("b", new=1), np.zeros(100_000), HERE)
        assert_same(store.result_set(), before)
        assert_same(load(path), before)
        store._database.connection.execute("PRAGMA max_page_count = 1000000")
        store.add(record("b", new=1), np.zeros(100_000), HERE)
    assert [len(x) for x in load(path).samples] == [1, 100_000]
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]


def test_a_full_disk_is_named_in_the_error():
    with (
        pytest.raises(InputError, match=r"^x can't be written: the disk is full$"),
        writing("x"),
        open("/dev/full", "wb", buffering=0) as full,
    ):
        full.write(b"x")


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    result_set(record("old")).save(path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    script = f"""
        import resource
        import numpy as np
        from memkern.errors import InputError
        from memkern.results import ResultSet, load
        old = load({str(path)!r})
        big = ResultSet(old.records, [np.random.default_rng(0).random(100_000)], {{}})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            big.save({str(path)!r})
        except InputError as error:
            print(error)
    """
    done = python(script, tmp_path)
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(str(tmp_path / "x"))
    assert "can't be written: " in done.stdout
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_killed_run_keeps_every_case_it_had_finished(tmp_path):
    script = """
        import numpy as np
        from memkern.results import Store
        store = Store.open("x.db")
        for i in range(100_000):
            row = {"case_id": f"c{i}", "repeat": 0, f"column{i % 50}": 1.5}
            store.add(row, np.full(999, i), {})
            print(i, flush=True)
    """
    for lines in (1, 7, 30):
        run = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdout=subprocess.PIPE,
            text=True,
        )
        printed = [run.stdout.readline() for _ in range(lines)]
        run.send_signal(signal.SIGKILL)
        added = len([*printed, *run.stdout.read().splitlines()])
        run.stdout.close()
        assert run.wait() == -signal.SIGKILL
        kept = load(tmp_path / "x.db")
        assert added <= len(kept) <= added + 1
        assert [row["case_id"] for row in kept] == [f"c{i}" for i in range(len(kept))]
        assert all((x == i).all() and len(x) == 999 for i, x in enumerate(kept.samples))
        with Store.open(tmp_path / "x.db", resume=True) as store:
            store.add({"case_id": "next", "repeat": 0}, [1.0], {})
            assert len(store.result_set()) == len(kept) + 1
        (tmp_path / "x.db").unlink()


@pytest.mark.parametrize("use", ["load", "resume", "overwrite"])
def test_a_half_written_transaction_is_undone(tmp_path, use):
    script = """
        import os, signal
        import numpy as np
        from memkern.results import Store
        store = Store.open("x.db")
        store.add({"case_id": "whole", "repeat": 0}, np.full(5000, 1.5), {})
        store._database.connection.execute("PRAGMA cache_size = 1")
        with store._database.transaction() as cursor:
            cursor.execute("UPDATE samples SET time_s = zeroblob(40000)")
            cursor.execute("INSERT INTO records (case_id) VALUES ('half')")
            cursor.execute("INSERT INTO samples VALUES (2, zeroblob(9000000))")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = python(script, tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    path = tmp_path / "x.db"
    # The crash was within the transaction: the file contains uncommitted data.
    assert (tmp_path / "x.db-journal").stat().st_size > 0
    assert path.stat().st_size > 9_000_000
    if use == "overwrite":
        result_set(record("new")).save(path)
        assert [row["case_id"] for row in load(path)] == ["new"]
    elif use == "resume":
        with Store.open(path, resume=True) as store:
            store.add(record("more"), [1.0], HERE)
            assert [row["case_id"] for row in store.result_set()] == ["whole", "more"]
    kept = load(path)
    if use != "overwrite":
        assert kept.samples[0].tolist() == [1.5] * 5000
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]


def test_an_interrupted_add_is_undone(tmp_path, monkeypatch):
    with Store.open(tmp_path / "x.db") as store:
        store.add(record("a"), [1.0], HERE)

        def interrupt(name):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(database, "_insertion", interrupt)
            store.add(record("b"), [1.0], HERE)
        assert not store._database.connection.in_transaction
        store.add(record("c"), [1.0], HERE)
    assert [row["case_id"] for row in load(tmp_path / "x.db")] == ["a", "c"]


def test_text_that_is_not_unicode_is_stored_with_escapes(tmp_path):
    results = ResultSet([{"a": "m\udcff"}, {"a": "\ud800 \N{GREEK SMALL LETTER MU}"}], [[1.0]] * 2)
    assert [row["a"] for row in results] == ["m\\udcff", "\\ud800 \N{GREEK SMALL LETTER MU}"]
    for suffix in (".json", ".csv", ".parquet"):
        results.save(tmp_path / f"x{suffix}")
        assert_same(load(tmp_path / f"x{suffix}"), results)


def test_columns_that_another_process_adds_are_known(tmp_path):
    path = tmp_path / "x.db"
    with Store.open(path) as one, Store.open(path, resume=True) as other:
        one.add(record("a"), [1.0], HERE)
        other.add(record("b", more="text"), [1.0], HERE)
        one.add(record("c", more="again"), [1.0], HERE)
        with pytest.raises(InputError, match="more must not mix text and numbers"):
            one.add(record("d", more=1), [1.0], HERE)
    assert [row["more"] for row in load(path)] == [None, "text", "again"]


@pytest.fixture
def many(tmp_path, monkeypatch):
    """Return results too many to be read at once, the same results in memory, and their path."""
    monkeypatch.setattr(store, "MANY", 3)
    monkeypatch.setattr(resultset, "MANY", 2)
    path = tmp_path / "x.db"
    with Store.open(path) as target:
        rows = [(record(f"c{k}", time_min_s=1e-3 * k), [1.0] * (k + 1)) for k in range(5)]
        target.add_all(rows, HERE)
        results = target.result_set()
    return results, load(path), path


def test_many_results_stay_in_the_file_until_they_are_used(many):
    results, whole, path = many
    assert len(results) == 5 and results.valid and results
    assert repr(list(results)) == repr(whole.records)
    assert results.environments == whole.environments
    assert "records" not in vars(results)
    path.unlink()
    assert_same(results, whole)
    assert "records" in vars(results)
    with pytest.raises(AttributeError, match="no attribute 'rows'"):
        _ = results.rows


@pytest.mark.parametrize("use", [pickle.dumps, copy.deepcopy, lambda results: results + results])
def test_many_results_can_be_copied(many, use):
    results, whole, _ = many
    copied = use(results)
    copied = pickle.loads(copied) if isinstance(copied, bytes) else copied
    assert repr(copied.records[:5]) == repr(whole.records)


def test_results_of_a_file_that_has_grown_are_refused(many):
    results, whole, path = many
    with Store.open(path, resume=True) as target:
        target.add(record("more"), [1.0], HERE)
    with pytest.raises(InputError, match=r"x\.db was written to by another run: load it again"):
        _ = results.records
    assert len(load(path)) == len(whole) + 1


def test_a_file_in_use_is_named_in_the_error(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        store.add(record("a"), [1.0], HERE)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            InputError, match=r"x\.db can't be written: another program is using it$"
        ):
            store.add(record("b"), [1.0], HERE)
        other.execute("ROLLBACK")
        other.close()
        store.add(record("b"), [1.0], HERE)
        assert len(store.result_set()) == 2


@pytest.mark.parametrize(
    ("message", "explanation"),
    [
        ("database or disk is full", "the disk is full"),
        ("attempt to write a readonly database", "it may not be written"),
        ("unable to open database file", "its folder may not be written"),
        ("database disk image is malformed", "it is damaged"),
        ("file is not a database", "it is not a database"),
        ("disk I/O error", "its disk or file system failed"),
        ("no such table: meta", "no such table: meta"),
    ],
)
def test_messages_of_sqlite_are_explained(message, explanation):
    with pytest.raises(InputError, match=f"^x can't be written: {explanation}$"), writing("x"):
        raise sqlite3.OperationalError(message)


def test_a_file_that_may_not_be_written_is_refused_before_anything_is_measured(
    tmp_path, monkeypatch
):
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        store.add(record("a"), [1.0], HERE)
    os_open = os.open

    def read_only(name, flags, *rest, **more):
        if flags & os.O_ACCMODE != os.O_RDONLY and os.fspath(name) == os.fspath(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        return os_open(name, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(InputError, match=r"x\.db can't be written: Read-only file system$"):
        Store.open(path, resume=True)
    assert len(load(path)) == 1


def test_small_files_of_tables_too_large_for_the_memory_are_refused(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": pa.repeat(1, 10**7)}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 10**5
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (5e8, "MemAvailable"))
    with pytest.raises(InputError, match=r"x\.parquet needs about 1 GB of memory"):
        load(tmp_path / "x.parquet")


# Output of a run


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_output_is_a_store_until_it_is_exported(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    with open_output(path) as sink:
        sink.store.add(record("a"), [1.0, 2.0], HERE)
        assert [p.name for p in tmp_path.iterdir()] == [f"x{suffix}.db"]
        with pytest.raises(
            InputError, match=rf"does not exist; .*x{suffix}\.db has the results of an unf"
        ):
            load(path)
        assert len(load(f"{path}.db")) == 1
    assert not path.with_name(path.name + ".db").exists()
    assert load(path).samples[0].tolist() == [1, 2]
    with pytest.raises(InputError, match="exists already"):
        open_output(path)


def test_output_to_a_store_is_that_store(tmp_path):
    with open_output(tmp_path / "x.db") as sink:
        sink.store.add(record("a"), [1.0], HERE)
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]
    sink = open_output(tmp_path / "x.db", resume=True, environment=HERE)
    sink.store.add(record("b"), [1.0], HERE)
    assert len(sink.finish()) == 2
    assert len(load(tmp_path / "x.db")) == 2


def test_no_cell_of_a_csv_is_a_formula_of_a_spreadsheet(tmp_path):
    texts = ["=1+1", "+2", "-3", "@sum(a1)", "\t=1", "\r=1", "'=1", "'", "plain", "", "a=b", "5-3"]
    path = tmp_path / "x.csv"
    result_set(*(record(f"c{i}", name=text) for i, text in enumerate(texts))).save(path)
    assert [row["name"] for row in load(path)] == texts
    with open(path, newline="") as stream:
        cells = [row["name"] for row in csv.DictReader(stream)]
    assert cells[-4:] == texts[-4:]
    assert [cell[:1] for cell in cells[:-4]] == ["'"] * 8


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("late", [False, True])
def test_a_file_deleted_during_a_run_is_written_again(tmp_path, suffix, late):
    path = tmp_path / f"x{suffix}"
    words = "was deleted while .*: all results are written to a new file"
    with pytest.warns(UserWarning, match=words), open_output(path) as sink:
        sink.store.add(record("a"), [1.0], HERE)
        sink.store.add(record("b"), [2.0, 3.0], HERE)
        sink.store.path.unlink()
        if not late:
            sink.store.add(record("c"), [4.0], HERE)
    found = load(path)
    assert [row["case_id"] for row in found] == (["a", "b"] if late else ["a", "b", "c"])
    assert found.samples[1].tolist() == [2.0, 3.0]


def test_a_file_that_replaced_results_is_not_overwritten(tmp_path):
    path = tmp_path / "x.db"
    store = Store.open(path)
    store.add(record("a"), [1.0], HERE)
    path.unlink()
    path.write_text("mine")
    with pytest.raises(InputError, match=r"the results are in .*x\.db\.rescued\.db"):
        store.add(record("b"), [2.0], HERE)
    store.close()
    assert path.read_text() == "mine"
    assert [row["case_id"] for row in load(tmp_path / "x.db.rescued.db")] == ["a"]


@pytest.mark.parametrize("add", [False, True])
def test_a_file_that_replaced_an_empty_store_is_not_overwritten(tmp_path, add):
    path = tmp_path / "x.db"
    store = Store.open(path)
    path.unlink()
    path.write_text("mine")
    if add:
        with pytest.raises(InputError, match="was replaced by another file"):
            store.add(record("a"), [1.0], HERE)
    store.close()
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_files_are_overwritten_only_by_force(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    with open_output(path) as sink:
        sink.store.add(record("a"), [1.0], HERE)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for file in before:
        for other in set(before) - {file}:
            other.unlink()
        for use in (check_output, open_output):
            with pytest.raises(InputError, match=rf"{file.name} exists already: .*--force"):
                use(path)
        for other, content in before.items():
            other.write_bytes(content)
    assert check_output(path, force=True) == path
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    with open_output(path, force=True) as sink:
        sink.store.add(record("b"), [2.0], HERE)
    assert [row["case_id"] for row in load(path)] == ["b"]
    # Resuming keeps the records, also with force.
    with open_output(path, resume=True, environment=HERE, force=True) as sink:
        sink.store.add(record("c"), [3.0], HERE)
    assert [row["case_id"] for row in load(path)] == ["b", "c"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_run_that_measured_nothing_leaves_nothing(tmp_path, suffix):
    with open_output(tmp_path / f"x{suffix}"):
        pass
    with pytest.raises(ZeroDivisionError), open_output(tmp_path / f"x{suffix}"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_failed_is_resumed_from_its_working_file(tmp_path):
    path = tmp_path / "x.csv"
    with pytest.raises(ZeroDivisionError), open_output(path) as sink:
        sink.store.add(record("a"), [1.0], HERE)
        raise ZeroDivisionError
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv.db"]
    with pytest.raises(InputError, match=r"x\.csv\.db exists already"):
        open_output(path)
    with open_output(path, resume=True, environment=HERE) as sink:
        assert sink.store.find("a", 0) is not None
        sink.store.add(record("b"), [2.0], HERE)
    assert [row["case_id"] for row in load(path)] == ["a", "b"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_a_finished_export_is_resumed(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    data = result_set(record("a", x=math.nan, n=None), record("b", x=1.0, n=5))
    data.save(path)
    with pytest.raises(InputError, match="model: one -> two"):
        open_output(path, resume=True, environment=THERE)
    assert not path.with_name(path.name + ".db").exists()
    with open_output(path, resume=True, environment=HERE) as sink:
        assert sink.store.find("b", 0)["n"] == 5
        sink.store.add(record("c"), [1.0], HERE)
    assert_same(load(path).filter(case_id=["a", "b"]), data)
    assert len(load(path)) == 3


def test_the_working_file_is_kept_until_the_export_is_complete(tmp_path):
    sink = open_output(tmp_path / "x.csv")
    sink.store.add(record("a"), [1.0], HERE)
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        sink.finish()
    sink.store.close()
    (tmp_path / "x.csv").rmdir()
    with open_output(tmp_path / "x.csv", resume=True):
        pass
    assert len(load(tmp_path / "x.csv")) == 1
    assert not (tmp_path / "x.csv.db").exists()


def test_infinity_is_text_in_json():
    rows = json.loads(result_set(record("a", e=math.inf), record("b", e=0.5)).to_json_text())
    assert [row["e"] for row in rows] == ["Infinity", 0.5]
