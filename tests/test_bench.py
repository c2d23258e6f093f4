"""The benchmarks' page: its tables equal the records, and the scripts accept its commands."""

import importlib
import json
import re
import shlex
import sys

import numpy as np
import pandas as pd
import pytest
import records
import replay_samples
import tables
from documents import blocks, commands, options_of_verbs

from memkern import cli
from memkern.statistics import ratio_interval

SCRIPTS = sorted(
    path.stem
    for path in tables.PAGE.parent.glob("*.py")
    if path.stem not in ("peers", "records", "tables")
)


def test_the_page_has_the_tables_of_the_records():
    page = tables.PAGE.read_text()
    assert tables.with_tables(page) == page, "run bench/tables.py"
    named = {name for found in tables.MARKED.finditer(page) for name in found[2].split()}
    assert named == {path.stem for path in records.FOLDER.glob("*.json")}


def test_the_page_names_the_scripts():
    assert set(re.findall(r"bench/(\w+)\.py", tables.PAGE.read_text())) == {*SCRIPTS, "tables"}


def test_scripts_take_the_commands_of_the_page(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])  # scripts append to it
    taken = {f"memkern {verb}": {f"--{o}" for o in of} for verb, of in options_of_verbs().items()}
    for name in (*SCRIPTS, "tables"):
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit, match=r"^0$"):
            importlib.import_module(name).main()
        taken[f"python bench/{name}.py"] = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
        assert name == "tables" or taken[f"python bench/{name}.py"] >= {"--output", "--force"}
    for kind, block in blocks(tables.PAGE):
        for command in commands(block) if kind == "sh" else ():
            words = [word for word in shlex.split(command, comments=True) if word != "..."]
            while "=" in words[0]:
                words.pop(0)
            if words[:2] == ["mpirun", "-n"]:
                del words[:3]
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            known = taken.get(" ".join((words[0], *cli._command(words[1:])[:1])), set())
            assert given <= known, command


def test_a_record_is_written_once_and_read_as_a_table(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    words = ["-o", str(tmp_path / "new.json")]
    args = records.parsed(records.options("Measure nothing."), [*words, "--conditions", "none"])
    rows: list[records.Row] = []
    ratio = ratio_interval([1.25], [1.0])
    records.add(rows, {"case": "a", "size, B": 8} | records.interval("ratio", ratio))
    records.add(rows, {"case": "b", "size, B": None, "unknown": float("nan")})
    assert capsys.readouterr().out.startswith("case a; size, B 8; ratio 1.25")
    records.write(args, rows, finer=rows)
    found = json.loads((tmp_path / "new.json").read_text())
    assert found["conditions"] == "none" and found["host"]["cores"] and found["date"]
    assert found["rows"] == found["finer"] and found["rows"][1]["unknown"] is None
    assert records.table(records.read("new")["rows"]) == records.table(rows)
    with pytest.raises(SystemExit):
        records.parsed(records.options("Measure nothing."), words)
    assert "overwrite it with --force" in capsys.readouterr().err
    assert records.parsed(records.options("Measure nothing."), [*words, "--force"]).force


def test_numbers_have_the_digits_of_the_record_but_at_most_four():
    row = {"x": 1.0, "x low": 0.123456, "x high": 12345.6, "n": 123456}
    assert records.cells(row) == {"x": "1 [0.1235, 12346]", "n": "123456"}
    known = [records.fraction(text) for text in ("1.50", "0.037", "1.136842", "45678.123")]
    assert known == ["1.50", "0.037", "1.137", "45678"]
    with_columns = [{"a": "x", "b": None}, {"a": "y", "c": 1}]
    assert records.table(with_columns) == ["| a | c |", "| --- | --- |", "| x |  |", "| y | 1 |"]


def recording(runs: int, seed: int) -> pd.DataFrame:
    """Return samples of a case with one worker, and of one with two on a host with two states."""
    rng, parts = np.random.default_rng(seed), []
    for run in range(runs):
        far = run % 4 == 3
        for case, exchange_s, spread in (
            ("load from memory, 1 thread", np.nan, 0.02),
            ("load from memory, all threads", 2e-7 if far else 5e-8, 0.02),
        ):
            several = not np.isnan(exchange_s)
            level = (1 + far * several) * rng.lognormal(0, spread)
            times = {"seconds": level * (1 + rng.exponential(0.05, 200))}
            times |= {"exchange_s": exchange_s * rng.lognormal(0, 0.05, 200)}
            part = pd.DataFrame(times | {"throughput": rng.normal(2.0, 0.01, 200)})
            parts.append(part.assign(case=case, run=run, beside=""))
    return pd.concat(parts, ignore_index=True).astype({"case": "category"})


def test_recordings_are_replayed(tmp_path, monkeypatch):
    paths = [tmp_path / f"{name}.parquet" for name in ("a", "b")]
    for seed, path in enumerate(paths):
        recording(40, seed).to_parquet(path)
    output, spreads = tmp_path / "found.json", tmp_path / "distances.csv"
    words = [*map(str, paths), "-o", str(output), "--distances", str(spreads)]
    monkeypatch.setattr(sys, "argv", ["replay_samples.py", *words])
    replay_samples.main()
    rows = {
        (row["host"], row["workers"], row["quantity"]): row
        for row in json.loads(output.read_text())["rows"]
    }
    assert {row[1] for row in rows} == {"one", "several", "mixed"}
    one, several, mixed = (rows["a", workers, "floor"] for workers in ("one", "several", "mixed"))
    deviation = "standard deviation, %"
    assert one[deviation] == pytest.approx(2, rel=0.4)
    assert several[deviation] == pytest.approx(2, rel=0.4) and mixed[deviation] > 20
    # Of four pairs of consecutive runs, two are in one state.
    assert several["in one state, %"] == pytest.approx(50, abs=5)
    assert one["in one state, %"] == mixed["in one state, %"] == 100
    assert one["quiet, %"] == several["quiet, %"] == 100 and mixed["quiet, %"] == 0
    for row in (one, several):
        assert row["later, hold, %"] > 85
        assert 1.2 < row["later, over 1.96 deviations"] < 2.4
    table = pd.read_csv(spreads).set_index(["level", "workers", "quantity", "host", "placements"])
    assert len(table) == 6
    known = table.loc[("memory", "several", "floor", "quiet", 1), "distance"]
    # The mean distance of two normal values is 1.13 standard deviations.
    assert known == pytest.approx(1.13 * 0.02, rel=0.3)
