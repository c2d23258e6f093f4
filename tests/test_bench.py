"""The benchmarks' page has the tables of its records, and commands that the scripts take."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import records
import replay_samples
import tables
from test_documentation import blocks, commands, options_of_verbs

from memkern.statistics import ratio_interval

SCRIPTS = sorted(
    path.stem
    for path in tables.PAGE.parent.glob("*.py")
    if path.stem not in ("peers", "records", "tables")
)


def test_the_page_has_the_tables_of_the_records() -> None:
    page = tables.PAGE.read_text()
    assert tables.with_tables(page) == page, "run bench/tables.py"
    named = {name for found in tables.MARKED.finditer(page) for name in found[2].split()}
    assert named == {path.stem for path in records.FOLDER.glob("*.json")}


def test_the_page_names_the_scripts() -> None:
    assert set(re.findall(r"bench/(\w+)\.py", tables.PAGE.read_text())) == {*SCRIPTS, "tables"}


def test_scripts_take_the_commands_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which scripts add
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
            assert given <= taken.get(" ".join(words[:2]), set()), command


def test_a_record_is_written_once_and_read_as_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
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


def test_numbers_have_the_digits_of_the_record_but_at_most_four() -> None:
    row = {"x": 1.0, "x low": 0.123456, "x high": 12345.6, "n": 123456}
    assert records.cells(row) == {"x": "1 [0.1235, 12346]", "n": "123456"}
    known = [records.fraction(text) for text in ("1.50", "0.037", "1.136842", "45678.123")]
    assert known == ["1.50", "0.037", "1.137", "45678"]
    with_columns = [{"a": "x", "b": None}, {"a": "y", "c": 1}]
    assert records.table(with_columns) == ["| a | c |", "| --- | --- |", "| x |  |", "| y | 1 |"]


def test_states_are_modes_that_have_some_of_the_values() -> None:
    near, far, rare = [4e-8, 4.4e-8] * 50, [2e-7, 2.2e-7, 2.4e-7] * 30, [9e-7]
    found = replay_samples.modes([*far, *near, *rare, 0.0])
    assert found == [(4e-8, 4.4e-8), (2e-7, 2.4e-7)]
    assert replay_samples.modes([]) == []
    seconds, exchange_s = np.array([1.0] * 12 + [3.0] * 8), [4.2e-8] * 12 + [2.1e-7] * 8
    run = pd.DataFrame({"seconds": seconds, "exchange_s": exchange_s})
    value = replay_samples.values_of(run, found)
    assert (value["state"], value["min in it"], value["median"]) == (0, 1.0, 1.0)
    other = replay_samples.values_of(run.assign(exchange_s=2.1e-7, seconds=3.0), found)
    assert replay_samples.next_run([value, other] * 4, "min", False) == pytest.approx(
        100 * np.log(3)
    )
    assert np.isnan(replay_samples.next_run([value, other] * 4, "min in it", True))
