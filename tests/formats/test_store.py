"""The database of a run keeps every finished case, whatever interrupts it."""

import copy
import errno
import math
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from checking import interrupt
from result_sets import FORMATS, HERE, THERE, assert_same, python, record, result_set

from memkern.errors import InputError
from memkern.files import writing
from memkern.formats import ResultSet, database, load, resultset, store
from memkern.formats.store import Store
from memkern.machine.environment import identity


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


def test_a_full_disk_leaves_the_finished_cases(tmp_path):
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        store.add(record("a"), [1.0], HERE)
        before = store.result_set()
        [(pages,)] = store.database.connection.execute("PRAGMA page_count").fetchall()
        store.database.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(InputError, match=r"x\.db can't be written: the disk is full$"):
            store.add(record("b", new=1), np.zeros(100_000), HERE)
        assert_same(store.result_set(), before)
        assert_same(load(path), before)
        store.database.connection.execute("PRAGMA max_page_count = 1000000")
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


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path):
    for suffix in FORMATS:
        result_set(record("old")).save(tmp_path / f"x{suffix}")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    script = """
        import resource
        import sys
        import numpy as np
        from memkern.errors import InputError
        from memkern.results import ResultSet, load
        sys.dont_write_bytecode = True  # it would be incomplete
        old = load("x.db")
        big = ResultSet(old.records, [np.random.default_rng(0).random(100_000)], {})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for suffix in ("db", "parquet", "csv", "json"):
            try:
                big.save("x." + suffix)
            except InputError as error:
                print(error)
    """
    done = python(script, tmp_path)
    sentences = done.stdout.splitlines()
    assert len(sentences) == len(FORMATS)
    assert all(re.match(r"x\S* can't be written: ", sentence) for sentence in sentences)
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
        store.database.connection.execute("PRAGMA cache_size = 1")
        with store.database.transaction() as cursor:
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

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(database, "_insertion", interrupt)
            store.add(record("b"), [1.0], HERE)
        assert not store.database.connection.in_transaction
        store.add(record("c"), [1.0], HERE)
    assert [row["case_id"] for row in load(tmp_path / "x.db")] == ["a", "c"]


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
