"""The benchmarks' pages: tables equal the records, and the scripts accept the commands."""

import importlib
import json
import re
import shlex
import sys

import numpy as np
import pandas as pd
import peers
import pytest
import records
import replay_samples
import tables
from documents import blocks, commands, options_of_verbs

from memkern import cli
from memkern.statistics import ratio_interval

INDEX = tables.PAGES[0].parent.parent / "README.md"
SCRIPTS = sorted(
    path.stem
    for path in INDEX.parent.glob("*.py")
    if path.stem not in ("peers", "records", "tables")
)
TEXTS = {path: path.read_text() for path in (INDEX, *tables.PAGES)}


def test_the_pages_have_the_tables_of_the_records():
    for page in tables.PAGES:
        assert tables.with_tables(TEXTS[page]) == TEXTS[page], "run bench/tables.py"
    named = [
        name
        for text in TEXTS.values()
        for found in tables.MARKED.finditer(text)
        for name in found[2].split()
    ]
    assert sorted(named) == sorted(path.stem for path in records.FOLDER.glob("*.json"))


def test_the_pages_name_the_scripts_and_the_index_the_pages():
    named = {name for text in TEXTS.values() for name in re.findall(r"bench/(\w+)\.py", text)}
    assert named == {*SCRIPTS, "tables"}
    linked = re.findall(r"\]\((measured/[\w-]+\.md)\)", TEXTS[INDEX])
    assert sorted(linked) == [f"measured/{page.name}" for page in tables.PAGES]
    docs = INDEX.parent.parent / "docs"
    for page in tables.PAGES:
        included = f"../../bench/measured/{page.name}"
        assert included in (docs / "measured" / page.name).read_text()


def test_scripts_take_the_commands_of_the_pages(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])  # scripts append to it
    taken = {f"memkern {verb}": {f"--{o}" for o in of} for verb, of in options_of_verbs().items()}
    for name in (*SCRIPTS, "tables"):
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit, match=r"^0$"):
            importlib.import_module(name).main()
        taken[f"python bench/{name}.py"] = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
        assert name == "tables" or taken[f"python bench/{name}.py"] >= {"--output", "--force"}
    for kind, block in (block for page in TEXTS for block in blocks(page)):
        for command in commands(block) if kind == "sh" else ():
            words = [word for word in shlex.split(command, comments=True) if word != "..."]
            while "=" in words[0]:
                words.pop(0)
            if words[:2] == ["mpirun", "-n"]:
                del words[:3]
            if words[:2] == ["python", "-m"]:
                del words[:2]
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            known = taken.get(" ".join((words[0], *cli._command(words[1:])[:1])), set())
            assert given <= known, command


def test_a_record_is_written_once_and_read_as_a_table(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    ratio = ratio_interval([1.25], [1.0])
    rows = [{"case": "a", "size, B": 8} | records.interval("ratio", ratio)]
    rows += [{"case": "b", "size, B": None, "unknown": float("nan")}]
    judged: list[list[records.Row]] = []

    def measured(args):
        assert (args.words, args.fast, args.sizes, args.turns) == ("x", False, [8], 3)
        yield from rows
        yield "finer", rows[0]

    options = {"--words": "x", "--fast": (False, "or not"), "--sizes": {"default": [8]}}

    def judge(every):
        judged.append(every)
        return len(judged) > 1

    main = records.program("", "Measure nothing.\n\nMore.", measured, options, 3, judge)
    words = ["program", "-o", str(tmp_path / "new.json")]
    monkeypatch.setattr(sys, "argv", [*words, "--conditions", "none"])
    assert main() == 1 and judged == [[*rows, rows[0]]]
    assert capsys.readouterr().out.startswith("case a; size, B 8; ratio 1.25")
    found = json.loads((tmp_path / "new.json").read_text())
    assert found["conditions"] == "none" and found["host"]["cores"] and found["date"]
    assert found["rows"][0] == found["finer"][0] and found["rows"][1]["unknown"] is None
    assert records.table(records.read("new")["rows"]) == records.table(rows)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match=r"^2$"):
        main()
    assert "overwrite it with --force" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*words, "--force"])
    assert main() == 0
    # A rank that measures nothing writes nothing, and judges nothing.
    monkeypatch.setattr(sys, "argv", ["program", "-o", str(tmp_path / "none.json")])
    assert records.program("", "Nothing.", lambda args: iter(()), judge=judge)() == 0
    assert not (tmp_path / "none.json").exists() and len(judged) == 2


def test_the_best_forms_of_both_sides_are_compared(capsys):
    ours = {"slow": [2.0, 2.2], "fast": [1.0, 1.1]}
    row = peers.beside("Peer", "GB/s", ours, {"": [2.0, 2.1]}, work=4.0)
    assert (row["form"], row["memkern, GB/s"], "peer" in row) == ("fast", 4.0 / 1.05, False)
    assert row["ratio"] == pytest.approx((2.0 * 2.1 / 1.1) ** 0.5)
    times = peers.beside("Peer", "us", {"": [3.0]}, {"one": [4.0], "two": [2.0]})
    assert (times["memkern, us"], times["peer"], times["Peer, us"]) == (3.0, "two", 2.0)
    below = {"case": "a", "ratio": 0.5, "ratio low": 0.4, "ratio high": 0.6}
    above = {"case": "b", "ratio": 3.0, "ratio low": 2.0, "ratio high": 4.0}
    assert peers.as_fast([above, {"case": "unjudged"}]) and not peers.as_fast([above, below])
    assert "all 2 cases: geometric mean 1.225, wholly below 0.97: ['a']" in capsys.readouterr().out
    order = []
    found = peers.in_turns("ab", 3, lambda name: order.append(name) or len(order))
    assert "".join(order) == "abbaab" and found == {"a": [1, 4, 5], "b": [2, 3, 6]}


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
