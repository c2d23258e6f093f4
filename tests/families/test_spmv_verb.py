"""Records of sparse products, the verb that measures them and its sentences."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from checking import assert_share_of_memory, measured, output_of, refused, refused_words, run
from matrices_for_products import FORMATS, SQUARE, scalar, uneven, whole

import memkern as mk
from memkern import limits
from memkern.families.spmv import kernels as family
from memkern.families.spmv.data import fastest_sentences
from memkern.families.spmv.model import SpmvModel
from memkern.families.spmv.suites import MATRICES, SUITE
from memkern.results.ratios import ratio, turns_of
from memkern.spec import registry
from memkern.spec.sweepfile import read_sweep

pytestmark = pytest.mark.usefixtures("ceilings")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("accumulate", [True, False])
def test_the_record_of_a_product(form, accumulate):
    a = uneven(60, 60)
    how = {"C": 4, "sigma": 8, "balance": "nnz"} if form == "sell" else {}
    measured = mk.spmv.measure(a, format=form, accumulate=accumulate, **scalar(runs=5, **how))
    record = measured.record
    assert measured.valid
    assert record["kernel"] == f"spmv.{form}"
    assert record["result"] == ("add" if accumulate else "write")
    assert (record["rows"], record["columns"], record["nonzeros"]) == (60, 60, a.nnz)
    assert record["nonzeros_per_row"] == pytest.approx(a.nnz / 60)
    assert record["balance"] == how.get("balance", "rows")
    assert (record["C"], record["sigma"]) == (how.get("C", 1), how.get("sigma", 1))
    product = mk.spmv.convert(a, format=form, **scalar(**how))
    assert record["beta"] == pytest.approx(product.beta)
    assert record["convert_s"] > 0
    for name, time_s in (("", record["time_min_s"]), ("median_", record["time_median_s"])):
        rate = 2 * a.nnz / time_s / 1e9
        assert record[f"performance_{name}GFLOPs"] == pytest.approx(rate)
    pointers = {"crs": 60, "sell": 15, "ell": 0, "csc": 60}[form]
    model = SpmvModel(*(60, 60, a.nnz), beta=product.beta, accumulate=accumulate, pointers=pointers)
    # Stores have half the bandwidth of loads; there is one more row start than in the model.
    stored_B = 60 * 8
    seconds = (model.bytes_B() - stored_B + (form != "ell") * 4) / 20e9 + stored_B / 10e9
    assert record["roofline_s"] == pytest.approx(seconds)
    assert record["roofline_GFLOPs"] == pytest.approx(2 * a.nnz / seconds / 1e9)
    assert_share_of_memory(record, seconds)
    assert (record["bound"], record["machine_file"]) == ("memory", "measured beside")
    entries = family.stored_entries(mk.spmv.case(a, format=form, **scalar(**how)))
    assert entries == round(a.nnz / record["beta"])
    assert record["alpha"] == pytest.approx(60 / a.nnz)
    moved_B = record["time_min_s"] * 20e9
    assert model.bytes_B(record["alpha_implied"]) == pytest.approx(moved_B)


def test_the_mean_length_of_rows_selects_the_accumulators() -> None:
    for length, wanted in ((1, 1), (3, 1), (4, 2), (7, 3), (8, 4), (12, 6), (15, 6), (16, 8)):
        case = mk.spmv.case(whole(10, 40, length), "crs", mve="auto")
        assert case.knobs.unroll == wanted
    assert mk.spmv.case(SQUARE, "crs", unroll=4).knobs.unroll == 4
    assert mk.spmv.case(SQUARE, "crs").knobs.unroll == 0


def test_matrices_that_differ_are_different_cases() -> None:
    other = SQUARE.copy()
    other.data[0] += 1
    cases = [
        mk.spmv.case(SQUARE),
        mk.spmv.case(other),
        mk.spmv.case(SQUARE, C=4),
        mk.spmv.case(SQUARE, sigma=8),
        mk.spmv.case(SQUARE, move_columns=True),
        mk.spmv.case(SQUARE, balance="nnz"),
        mk.spmv.case(SQUARE, accumulate=False),
    ]
    assert len({case.identity() for case in cases}) == len(cases)
    assert mk.spmv.case(SQUARE).identity() == mk.spmv.case(SQUARE.copy(), name="x").identity()


@pytest.fixture
def file(tmp_path: Path) -> str:
    a = uneven(30, 30).tocoo()
    path = tmp_path / "small.mtx"
    lines = [f"{r + 1} {c + 1} {v}" for r, c, v in zip(a.row, a.col, a.data, strict=True)]
    header = "%%MatrixMarket matrix coordinate real general"
    path.write_text("\n".join([header, f"30 30 {a.nnz}", *lines, ""]))
    return str(path)


QUICK = ("--runs", "2", "--variant", "scalar", "-t", "1")


def test_the_verb_measures_every_combination(capsys, file):
    records = measured(
        *(capsys, "spmv", file, "-f", "crs,sell,ell,csc", "-C", "2,8", "--sigma", "1,16"),
        *("--balance", "rows,nnz", "--mve", "1,4", *QUICK),
    )
    assert all(r["valid"] and r["name"] == "file small.mtx" for r in records)
    seen = [(r["kernel"], r["balance"], r["C"], r["sigma"], r["unroll"]) for r in records]
    wanted = {
        *(("spmv.crs", b, 1, 1, u) for b in ("rows", "nnz") for u in (1, 4)),
        *(("spmv.sell", b, c, s, 0) for b in ("rows", "nnz") for c in (2, 8) for s in (1, 16)),
        *((f, b, 1, 1, 0) for f in ("spmv.ell", "spmv.csc") for b in ("rows", "nnz")),
    }
    assert sorted(seen) == sorted(wanted)


def test_the_verb_prints_a_table(capsys, file):
    out, _ = output_of(capsys, "spmv", file, "5pt:4:5", *QUICK, "-t", "1,2")
    header, *rows = out.splitlines()
    assert header.split()[:3] == ["matrix", "format", "variant"]
    rows, (scope, *below) = rows[:8], rows[8:]
    assert scope.startswith("±%")
    labels = ("file small.mtx, 1 thread", "file small.mtx, 2 threads", "5pt:4:5, 1 thread")
    assert len(below) == 4
    assert all(any(line.startswith(f"{label}: ") for line in below) for label in labels)
    assert sum(row.startswith("file small.mtx") for row in rows) == 4


def test_the_suite_has_the_papers_names(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    code, out, _ = run(capsys, "spmv", "5pt:4:5", SUITE, "-f", "crs", *QUICK, "--json")
    rows = json.loads(out)
    # Cut to a few rows, all matrices of a band are the same case.
    bands = [name for name, matrix in MATRICES.items() if matrix.startswith("band")]
    apart = [name for name in MATRICES if name not in bands[1:]]
    assert code == 0 and [row["name"] for row in rows] == ["5pt:4:5", *apart]
    file = tmp_path / "sweep.toml"
    file.write_text(f"[[case]]\nsuite = '{SUITE}'\nformat = ['crs', 'sell']\nruns = 1\n")
    cases = list(read_sweep(file, {})[0])
    assert len(cases) == 2 * len(MATRICES)
    names = {(case.spec.name, case.labels["name"], case.labels["suite"]): case for case in cases}
    assert len(names) == len(cases)
    assert names["spmv.sell", "Spin-26", SUITE].columns["matrix"].startswith("spin:")
    with refused("format 'coo' is not one of crs"):
        registry.suite(SUITE).case(0, format="coo")


def test_the_verbs_flags(capsys, file, tmp_path):
    output = tmp_path / "out.json"
    words = f"spmv {file} -f sell --sigma 999 --move-columns --rcm --write -q -o {output}"
    how = "--dtype float32 --index-dtype int64"
    code, out, _ = run(capsys, *words.split(), *how.split(), *QUICK)
    assert (code, out) == (0, "")
    (record,) = mk.load(output)
    assert record["result"] == "write"
    assert record["sigma"] == 30
    assert record["name"] == "file small.mtx rcm"
    assert (record["dtype"], record["index_dtype"]) == ("float32", "int64")
    out, _ = output_of(capsys, "spmv", file, "-f", "crs", "--mve", "auto", *QUICK)
    assert "crs mve" in out


def test_the_seed_selects_a_random_matrix(capsys):
    for seed in ("0", "7"):
        (record,) = measured(capsys, "spmv", "band:60:20:4", "-f", "crs", *QUICK, "--seed", seed)
        assert record["name"] == f"band:60:20:4:{seed}"


@pytest.mark.parametrize(
    "words, match",
    [
        (("nothing.mtx",), "nothing.mtx"),
        (("FILE", "--mve", "few"), "mve"),
        (("FILE", "-f", "sell", "--unroll", "2"), "--unroll has no effect on spmv.sell"),
        (("FILE", "--mve", "2", "--unroll", "2,4"), "--unroll has no effect with --mve"),
        ((), "MATRIX"),
    ],
)
def test_wrong_words_of_the_verb_are_refused_in_one_line(capsys, file, words, match):
    words = tuple(file if word == "FILE" else word for word in words)
    assert match in refused_words(capsys, "spmv", *words, "--runs", "1")


def test_a_file_without_nonzeros_is_refused(capsys, tmp_path):
    path = tmp_path / "bad.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 0\n")
    sentence = refused_words(capsys, "spmv", str(path), "--runs", "1")
    assert "bad.mtx" in sentence and "no nonzeros" in sentence


def test_a_product_without_memory_for_its_validation_is_refused(monkeypatch):
    a = mk.matrices.hpcg(8)
    monkeypatch.setattr(limits, "memory_left", lambda: (45.0 * a.nnz, "the group"))
    monkeypatch.setattr(limits, "_UNCHECKED_B", 0)
    with refused(f"a product with {a.nnz} nonzeros.*the group leaves"):
        mk.spmv.case(a)
    monkeypatch.setattr(limits, "memory_left", lambda: (47.0 * a.nnz, "the group"))
    assert mk.spmv.case(a).integers["nonzeros"] == a.nnz


PRODUCT: dict[str, Any] = {
    "name": "", "matrix": "hpcg:4", "nonzeros": 64, "dtype": "float64", "index_dtype": "int32",
    "result": "accumulate", "threads": 2, "ranks": 1, "valid": True, "disturbed": False,
    "kernel": "spmv.crs", "C": 0, "sigma": 0, "unroll": 0, "time_min_s": 2e-3,
    "time_min_ci_relative": 0.01, "convert_s": 1e-3,
}  # fmt: skip
SELL = {**PRODUCT, "kernel": "spmv.sell", "C": 8, "sigma": 32, "time_min_s": 1.6e-3}


def told(records: list[dict[str, Any]]) -> str:
    """Return the sentences on records, whose work is that of one matrix."""
    return fastest_sentences(
        [{**record, "performance_GFLOPs": 1e-6 / record["time_min_s"]} for record in records]
    )


def in_turns(record: dict[str, Any], time_s: float) -> dict[str, Any]:
    """Return a record with times in turns with others."""
    turns = json.dumps({"now 0": [[time_s] * 3] * 10})
    return {**record, "case_id": record["kernel"], "turns_s": turns}


@pytest.mark.parametrize(
    "records, text",
    [
        (
            [PRODUCT, {**SELL, "convert_s": 0.0099}, {**SELL, "C": 4, "time_min_s": 1.9e-3}],
            "sell-8-32 is fastest, 1.25 ± 0.02 times as fast as crs; its conversion (0.0099 s) has "
            "paid after 25 products",
        ),
        (
            [{**SELL, "time_min_s": 2.2e-3}, PRODUCT, {**PRODUCT, "time_min_s": 2.1e-3}],
            "crs is fastest, 1.10 ± 0.02 times as fast as sell-8-32, and needs no conversion",
        ),
        (
            [PRODUCT, {**SELL, "time_min_s": 1.985e-3, "time_min_ci_relative": math.nan}],
            "sell-8-32 and crs do not differ by more than their intervals: sell-8-32 is 1.01 ± "
            "0.01 times as fast",
        ),
        (
            [SELL, {**SELL, "C": 4, "time_min_s": 3.2e-3}],
            "sell-8-32 is fastest, 2.00 ± 0.04 times as fast as sell-4-32; with --format crs it is "
            "told when its conversion has paid",
        ),
        (
            [{**PRODUCT, "disturbed": True}, SELL, {**SELL, "C": 4}],
            "which format is fastest can't be told, since records are disturbed",
        ),
        (  # turns decide where the records do not
            [in_turns({**PRODUCT, "disturbed": True}, 1e-3), in_turns(SELL, 1.03e-3)],
            "crs is fastest, 1.03 ± 0.01 times as fast as sell-8-32, and needs no conversion",
        ),
    ],
)  # fmt: skip
def test_the_fastest_format_is_told(records, text):
    assert told(records) == f"hpcg:4, 2 threads: {text}"


def test_formats_are_also_measured_in_turns(capsys, file, tmp_path):
    path = str(tmp_path / "formats.parquet")
    brief = ("--variant", "scalar", "-t", "1", "--budget", "0.1", "-o", path)
    out, _ = output_of(capsys, "spmv", file, "-f", "crs,sell", "-C", "4", *brief)
    crs, sell = sorted(mk.load(path), key=lambda record: record["kernel"])
    assert turns_of(crs) and turns_of(crs).keys() == turns_of(sell).keys()
    found = ratio(sell, crs, "performance_GFLOPs")
    assert found.in_turns
    faster = found if found.value > 1 else ratio(crs, sell, "performance_GFLOPs")
    assert f" {faster.text()} times as fast" in out.splitlines()[-1]


def test_each_matrix_in_several_formats_has_a_sentence() -> None:
    other = [{**record, "matrix": "hpcg:8", "time_min_s": 1.0} for record in (PRODUCT, SELL)]
    alone = {**PRODUCT, "matrix": "hpcg:16"}
    lines = told([*other, PRODUCT, SELL, alone]).splitlines()
    assert [line.partition(",")[0] for line in lines] == ["hpcg:4", "hpcg:8"]
