"""Results files of several runs and machines are merged with their samples and environments."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import result_sets
from checking import one_sentence, output_of, refused_words, run
from result_sets import HERE, THERE

import memkern as mk
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.machine.environment import identity
from memkern.results.merging import finished_cases


def record(case: str, environment: Any = HERE, repeat: int = 0, **columns: Any) -> dict[str, Any]:
    how = {"environment_id": identity(environment), "stop": "runs", **columns}
    return result_sets.record(case, repeat, **how)


def saved(path: Path, *records: dict[str, Any], environment: Any = HERE, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    samples = [generator.exponential(size=4) for _ in records]
    ResultSet(list(records), samples, {identity(environment): environment}).save(path)
    return path


def cases(results: ResultSet) -> list[str]:
    return [row["case_id"] for row in results]


@pytest.mark.parametrize("suffix", [".db", ".parquet", ".csv", ".json"])
def test_two_machines_are_joined(tmp_path, suffix):
    a = saved(tmp_path / f"a{suffix}", record("c0"), record("c1", name="only here"))
    b = saved(tmp_path / "b.db", record("c0", THERE, ilp=2), environment=THERE, seed=1)
    merged = mk.merge([a, b])
    assert cases(merged) == ["c0", "c1", "c0"]
    assert [row["name"] for row in merged] == [None, "only here", None]
    assert merged.environments == {identity(HERE): HERE, identity(THERE): THERE}
    parts = mk.load(a), mk.load(b)
    assert [x.tobytes() for x in merged.samples] == [
        x.tobytes() for part in parts for x in part.samples
    ]


def test_equal_records_of_a_machine_are_there_once(tmp_path):
    a = saved(tmp_path / "a.db", record("c0"), record("c1"))
    # The second file has another column, which is empty for c0.
    b = saved(tmp_path / "b.csv", record("c0"), record("c2", extra=1.5))
    assert cases(mk.merge([a, b, a])) == ["c0", "c1", "c2"]
    other_samples = saved(tmp_path / "c.db", record("c0"), seed=1)
    assert cases(mk.merge([a, other_samples])) == ["c0", "c1", "c0"]
    other_machine = saved(tmp_path / "d.db", record("c0", THERE), environment=THERE)
    assert cases(mk.merge([a, other_machine])) == ["c0", "c1", "c0"]


def test_an_interrupted_case_is_left_out_where_it_is_finished(tmp_path):
    a = saved(tmp_path / "a.db", record("c0", stop="interrupted"), record("c1", stop="interrupted"))
    b = saved(tmp_path / "b.db", record("c0", THERE), record("c1", repeat=1), environment=THERE)
    merged = mk.merge([a, b])
    found = [(row["case_id"], row["repeat"], row["stop"]) for row in merged]
    assert found == [("c1", 0, "interrupted"), ("c0", 0, "runs"), ("c1", 1, "runs")]
    assert finished_cases(a) == set()
    assert finished_cases(b) == {("c0", 0), ("c1", 1)}
    assert finished_cases(saved(tmp_path / "c.json", record("c0"))) == {("c0", 0)}


def test_files_that_belong_to_others_are_no_sources(tmp_path):
    saved(tmp_path / "a.parquet", record("c0"))
    saved(tmp_path / "b.csv", record("c1"))
    files = [path for path in sorted(tmp_path.iterdir()) if path.suffix != ".db"]
    assert len(files) == 5
    assert cases(mk.merge(files)) == ["c0", "c1"]


def test_nonsense_is_refused(tmp_path):
    a = saved(tmp_path / "a.db", record("c0", name="text"))
    empty = saved(tmp_path / "empty.json")
    mixed = saved(tmp_path / "mixed.db", record("c1", name=1.5))
    other = tmp_path / "other.json"
    other.write_text("{}")
    for files, message in (
        ([a, tmp_path / "none.db"], "none.db does not exist"),
        ([a, other], "other.json can't be read as a memkern result"),
        ([a, tmp_path / "a.txt"], "a.txt must end in one of"),
        ([], "the files to merge have no records"),
        ([empty], "the files to merge have no records"),
        ([a, mixed], "column name must not mix text and numbers"),
    ):
        with pytest.raises(InputError, match=message):
            mk.merge(files)


def test_the_verb_writes_a_new_file_only(capsys, tmp_path):
    a = saved(tmp_path / "a.db", record("c0"))
    b = saved(tmp_path / "b.json", record("c1", THERE), environment=THERE)
    target = tmp_path / "all.parquet"
    code, out, err = run(capsys, "export", str(a), str(b), "-o", str(target))
    assert (code, err) == (0, "")
    assert out == f"{target}: 2 records of 2 environments\n"
    before = mk.load(target)
    assert cases(before) == ["c0", "c1"]
    before.save(before_file := tmp_path / "both.db")
    refusal = refused_words(capsys, "export", str(a), "-o", str(target))
    assert f"{target} exists already" in refusal and "--force" in refusal
    assert mk.load(target) == before
    code, out, _ = run(capsys, "export", "-o", str(target), "--force", str(a))
    assert (code, out) == (0, f"{target}: 1 record of 1 environment\n")
    assert cases(mk.load(target)) == ["c0"]
    assert "needs --to, or -o" in refused_words(capsys, "export", str(a), str(b))
    to = ("--to", "openmetrics")
    joined = output_of(capsys, "export", str(a), str(b), *to)
    assert joined == output_of(capsys, "export", str(before_file), *to) and len(joined[0]) > 0


def test_the_verb_reads_before_it_writes(capsys, tmp_path):
    target = tmp_path / "all.db"
    code, _, err = run(capsys, "export", str(tmp_path / "none.db"), "-o", str(target))
    assert code == 2
    assert "none.db does not exist" in one_sentence(err)
    assert not list(tmp_path.iterdir())
