"""Output of a run: a database until it is exported, never over other files."""

import csv
import math
import os

import pytest
from result_sets import FORMATS, HERE, THERE, assert_same, record, result_set

from memkern.errors import InputError
from memkern.formats import load
from memkern.formats.store import Store, check_output, open_output


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
