"""The table of columns agrees with records, and saved files contain its units and meanings."""

import contextlib
import json
import math
import sqlite3

import pandas as pd
import pytest
from interfaces import stored
from pyarrow import parquet
from samples import SAMPLES

import memkern as mk
from memkern import cli
from memkern.formats.values import column_kinds
from memkern.models.records import with_current_names
from memkern.spec.columns import COLUMNS, CURRENT_NAMES, KINDS, TYPES, in_order, of_kind

# Columns that the records of the sample cases do not have.
ELSEWHERE = {
    *(name for name in COLUMNS if name.startswith(("gpu_", "barrier", "counted_"))),
    *(name for name in COLUMNS if name.startswith("energy_") and name != "energy_note"),
    *("counter_rows", "counters_note", "power_W", "idle_power_W"),
    *("case_order", "case_order_seed", "tune_step", "rcm", "beside", "success_fraction"),
    *("attempts_per_amo", "distance_B", "slowest_rank", "rank_spread", "skewed", "rank_rows"),
    *("scaling", "scaling_size", "bind", "targets", "remote_share", "node_share"),
    *("memory", "peer", "node", "turns_s"),
    *("window", "pairs", "origins", "distance", "messages_per_second"),
    *("halo", "halo_neighbours", "halo_sent_B", "halo_rows", "halo_share"),
    "lost_fraction",
    *("source", "compiler", "compiler_flags", "bytes_counted", "accesses_counted"),
    *(f"L{level}_{way}_B" for level in range(1, 5) for way in ("load", "store")),
    "index_stride",
    *("in_core_unit", "in_core_cycles", "in_core_row_cycles", "llvm_mca_cycles", "osaca_cycles"),
    *("llvm_mca_ports", "osaca_ports"),
    *("llvm_mca_port", "llvm_mca_port_cycles", "surplus_load_B", "surplus_store_B"),
    *("arithmetic_cycles", "load_cycles", "store_cycles", "transfer_cycles"),
}


def test_every_column_is_complete() -> None:
    for column in COLUMNS.values():
        assert column.kind in KINDS
        assert column.type in TYPES
        assert column.meaning and not column.meaning.endswith(".")
        assert column.since == 1
    # Names end with their unit.
    suffixes = {"GB/s": "_GBps", "GFLOP/s": "_GFLOPs", "GAMS": "_GAMS", "GHz": "_GHz"}
    for suffix, unit in {"s": "s", "B": "B", "J": "J"}.items():
        suffixes[suffix] = f"_{unit}"
    for column in COLUMNS.values():
        if column.unit in suffixes and column.name != "offset":
            assert column.name.endswith(suffixes[column.unit]), column.name
        for unit, suffix in suffixes.items():
            if column.name.endswith(suffix):
                assert column.unit == unit, column.name


def test_records_have_the_declared_columns_and_no_others() -> None:
    every = [columns for own in stored().values() for columns in own.get("columns", {}).values()]
    found = {name for columns in every for name in columns}
    assert found - set(COLUMNS) == set()
    assert set(COLUMNS) - found == ELSEWHERE
    types = {"text": {"str"}, "integer": {"int"}, "real": {"float"}, "bool": {"bool"}}
    for columns in every:
        for name, kind in columns.items():
            # Not every pattern has a stride.
            missing = {"NoneType"} if name == "stride" else set()
            assert kind in types[COLUMNS[name].type] | missing, name


@pytest.mark.parametrize("primitive", ["cas-retry", "cas", "plain"])
def test_columns_of_atomics_are_declared(primitive):
    case = mk.amo("central", primitive=primitive, iters=64, threads=2, runs=2)
    assert set(case.measure().record) <= set(COLUMNS)


def test_columns_of_searches_and_sweeps_are_declared() -> None:
    case = mk.stream("copy", elements=512, threads=1, runs=2)
    _, search = mk.tune(case, budget_s=0.2, knobs={"prefetch": [0]})
    _, formats = mk.spmv.tune("hpcg:3", budget_s=0.2, threads=1)
    for results in (search, formats, mk.sweep([case])):
        assert {name for record in results for name in record} <= set(COLUMNS)


def test_case_columns_are_declared_as_inputs() -> None:
    inputs = set(of_kind("input"))
    scalars = {"alpha", "beta"}
    for cases in SAMPLES.values():
        for case in cases:
            assert {*case.columns, *case.spec.template_columns} <= inputs | scalars


def test_a_record_is_in_the_order_of_the_table() -> None:
    record = mk.stream("copy", elements=64, threads=1, runs=1).measure().record
    assert list(record) == [name for name in COLUMNS if name in record]
    assert list(in_order({"mine": 1, "valid": True, "case_id": ""})) == ["case_id", "valid", "mine"]


def test_a_declared_column_without_values_has_its_type() -> None:
    nothing = {"time_net_s": math.nan, "suite": None, "valid": None, "other": math.nan}
    assert column_kinds([nothing]) == {
        "time_net_s": "real",
        "suite": "text",
        "valid": "bool",
        "other": "nan",
    }


def test_parquet_files_have_units_and_meanings(tmp_path):
    results = mk.stream("copy", elements=64, threads=1, runs=1).measure().results
    results.save(tmp_path / "x.parquet")
    schema = parquet.read_schema(tmp_path / "x.parquet")
    for name in schema.names:
        field = schema.field(name)
        assert field.metadata[b"unit"].decode() == COLUMNS[name].unit
        assert field.metadata[b"meaning"].decode() == COLUMNS[name].meaning
    assert str(schema.field("time_net_s").type) == "double"
    assert str(schema.field("suite").type) == "string"


def test_the_verb_lists_the_columns(capsys):
    assert cli.main(["columns"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(COLUMNS)
    assert cli.main(["columns", "core_share", "bandwidth_GBps"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["core_share", "measured", "real"]
    assert second.split()[:4] == ["bandwidth_GBps", "measured", "real", "GB/s"]
    assert head.split() == ["column", "kind", "type", "unit", "meaning"]
    assert cli.main(["columns", "--json", "valid"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert only["type"] == "bool"


def test_an_unknown_column_is_named(capsys):
    assert cli.main(["columns", "bandwith"]) == 2
    assert "column 'bandwith' is unknown: did you mean bandwidth_GBps?" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_columns_of_older_files_get_their_current_names(suffix, tmp_path):
    names = {"noisy": True, "pages_asked": "4k", "placements_asked": 3}
    current = {"disturbed": True, "pages_requested": "4k", "placements_requested": 3}
    assert {old: CURRENT_NAMES[old] for old in names} == dict(zip(names, current, strict=True))
    record = {"environment_id": "e", "kernel": "stream.copy", **current}
    new = mk.ResultSet([record], [[1e-6]], {"e": {}})
    new.save(tmp_path / f"x{suffix}")
    for file in tmp_path.iterdir():
        text = file.read_text()
        for old in names:
            text = text.replace(CURRENT_NAMES[old], old)
        file.write_text(text)
    assert "pages_asked" in (tmp_path / f"x{suffix}").read_text()
    assert mk.load(tmp_path / f"x{suffix}") == new
    old_frame = pd.DataFrame([{"kernel": "stream.copy", **names}])
    assert with_current_names(old_frame).iloc[0].to_dict() == {"kernel": "stream.copy", **current}


def test_a_file_of_an_older_version_is_resumed(tmp_path):
    path = tmp_path / "x.db"
    cases = [mk.stream("triad", elements=n, threads=1, runs=2, pages="4k") for n in (64, 128)]
    mk.sweep(cases[:1], output=path)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for old, new in CURRENT_NAMES.items():
            if new in COLUMNS:
                database.execute(f'ALTER TABLE records RENAME COLUMN "{new}" TO "{old}"')
                quoted = [f'"{name}"' for name in (new, old)]
                database.execute("UPDATE meta SET value = replace(value, ?, ?)", quoted)
    assert mk.load(path).records[0]["pages_requested"] == "4k"
    done = mk.sweep(cases, output=path, resume=True)
    assert [record["pages_requested"] for record in done] == ["4k", "4k"]
    assert [record["disturbed"] is None for record in mk.load(path)] == [False, False]
    assert not CURRENT_NAMES.keys() & mk.load(path).records[0].keys()
