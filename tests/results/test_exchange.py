"""Results for other programs, each read by its reader: Prometheus, Google Benchmark, pandas."""

import io
import json
from dataclasses import replace

import pandas as pd
import pytest
from checking import python
from merit_records import ENVIRONMENT, record, records, results

from memkern import cli
from memkern.errors import InputError
from memkern.formats import ResultSet
from memkern.models.answers import is_healthy
from memkern.results.exchange import (
    babelstream,
    google_benchmark,
    metrics_file,
    openmetrics,
    write_openmetrics,
)

COMPARE = "/usr/share/benchmark/compare.py"  # of the Debian package libbenchmark-tools


def gauges(text):
    """Return the values by name and labels, as both parsers of Prometheus read them."""
    from prometheus_client.openmetrics import parser as openmetrics_parser
    from prometheus_client.parser import text_string_to_metric_families

    found = [
        {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in read(text)
            for sample in family.samples
        }
        for read in (
            openmetrics_parser.text_string_to_metric_families,
            text_string_to_metric_families,
        )
    ]
    assert found[0] == found[1]
    return found[0]


def test_prometheus_reads_the_value_of_each_record():
    found = gauges(openmetrics(results(), True))
    of_copy = {
        name: value
        for (name, labels), value in found.items()
        if {("kernel", "stream.copy"), ("variant", "nt")} <= set(labels)
    }
    copy = records()[0]
    assert of_copy["memkern_bandwidth_bytes_per_second"] == pytest.approx(
        copy["bandwidth_GBps"] * 1e9
    )
    assert of_copy["memkern_time_min_seconds"] == copy["time_min_s"]
    assert (of_copy["memkern_valid"], of_copy["memkern_disturbed"]) == (1, 0)
    assert found[("memkern_healthy", ())] == 1
    assert len([key for key in found if key[0] == "memkern_valid"]) == len(records())


def test_labels_are_escaped_and_missing_values_are_left_out():
    odd = 'a "b"\\c\nd'
    row = record("stream.copy", 0.1, name=odd, bandwidth_GBps=float("nan"))
    found = gauges(openmetrics(results([row]), False, "disturbed"))
    names = {name for name, _ in found}
    assert "memkern_bandwidth_bytes_per_second" not in names and "memkern_valid" in names
    assert odd in {value for _, labels in found for label, value in labels if label == "name"}
    assert found[("memkern_healthy", ())] == 0
    assert found[("memkern_verdict", (("verdict", "disturbed"),))] == 1


def test_of_equal_labels_the_last_record_counts():
    row = record("stream.copy", 0.1)
    twice = results([row, {**row, "time_min_s": 0.2}])
    values = [v for (n, _), v in gauges(openmetrics(twice, True)).items() if "min_seconds" in n]
    assert values == [0.2]


def test_only_files_of_metrics_are_replaced(tmp_path):
    path = tmp_path / "memkern.prom"
    write_openmetrics(path, results(), True)
    write_openmetrics(path, results(), False)
    assert gauges(path.read_text())[("memkern_healthy", ())] == 0
    (tmp_path / "mine.prom").write_text("node_mine 1\n")
    for name, match in (
        ("memkern.txt", "ends in .prom"),
        ("mine.prom", "has no metrics of memkern"),
        ("missing/a.prom", "missing"),
    ):
        with pytest.raises(InputError, match=match):
            metrics_file(tmp_path / name)
    assert (tmp_path / "mine.prom").read_text() == "node_mine 1\n"


def test_a_host_is_healthy_unless_values_are_wrong_or_worse():
    environments = {"e1": ENVIRONMENT}
    assert is_healthy(results(), environments)
    assert is_healthy([], {})
    wrong = [{**row, "valid": False} for row in records()]
    assert not is_healthy(results(wrong), environments)
    slow = [
        {**row, "bandwidth_GBps": 0.1, "ns_per_access": 9e3} if row["kernel"] in (
            "stream.copy", "stream.triad", "loops.load", "latency.chase"
        ) else row
        for row in records()
    ]  # fmt: skip
    assert not is_healthy(results(slow), environments)
    disturbed = [{**row, "disturbed": True} for row in slow]
    assert is_healthy(results(disturbed), environments)


def test_google_benchmark_compares_two_runs(tmp_path):
    rows = records()[:1]
    before = results(rows)
    after = ResultSet(
        before.records, [2 * samples for samples in before.samples], before.environments
    )
    for name, found in (("before", before), ("after", after)):
        (tmp_path / f"{name}.json").write_text(google_benchmark(found))
    words = ("-d", "compared.json", "benchmarks", "before.json", "after.json")
    done = python(COMPARE, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    compared, _geometric_mean = json.loads((tmp_path / "compared.json").read_text())
    assert compared["name"].startswith("stream.copy/") and compared["run_type"] == "iteration"
    assert compared["measurements"][0]["time"] == pytest.approx(1.0)  # twice as long
    assert compared["utest"]["time_pvalue"] < 0.01
    document = json.loads((tmp_path / "before.json").read_text())
    first = document["benchmarks"][0]
    assert first["bytes_per_second"] == pytest.approx(rows[0]["bytes_B"] / first["real_time"] * 1e9)
    assert document["context"]["num_cpus"] == 28
    assert len(document["context"]["caches"]) == 3


def test_google_benchmark_sees_wrong_results_and_one_machine():
    (row, *_) = records()
    document = json.loads(google_benchmark(results([{**row, "valid": False}])))
    assert all(found["error_occurred"] for found in document["benchmarks"])
    with pytest.raises(InputError, match="one machine, not of 0"):
        google_benchmark(ResultSet())


def test_babelstreams_table_has_its_columns():
    rows = [
        record(kernel, 0.1, elements=1000, bytes_B=16_000, time_max_s=0.3, time_mean_s=0.2)
        for kernel in ("stream.copy", "stream.scale", "loops.dot", "bs.bs3")
    ]
    found = pd.read_csv(io.StringIO(babelstream(results(rows))))
    assert list(found) == [
        "function", "num_times", "n_elements", "sizeof", "max_mbytes_per_sec", "min_runtime",
        "max_runtime", "avg_runtime",
    ]  # fmt: skip
    assert list(found["function"]) == ["Copy", "Mul", "Dot"]
    assert list(found.loc[0])[1:] == [9, 1000, 8, pytest.approx(0.16), 0.1, 0.3, 0.2]
    with pytest.raises(InputError, match="none given"):
        babelstream(results(rows[3:]))


def test_the_verb_writes_each_format_once(tmp_path, capsys):
    path = tmp_path / "results.parquet"
    results().save(path)
    assert cli.main(["export", str(path), "--to", "figures"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    figures = dict(part.split("=") for part in line.split("; "))
    copy = records()[0]
    assert figures["copy"] == f"{copy['bandwidth_GBps']:.6g} GB/s"
    assert figures["latency"].endswith(" ns")
    target = tmp_path / "out.prom"
    words = ["export", str(path), "--to", "openmetrics", "-o", str(target)]
    assert cli.main(words) == 0
    assert ("memkern_healthy", ()) in gauges(target.read_text())
    assert cli.main(words) == 2
    assert "exists" in capsys.readouterr().err
    assert cli.main(["export", str(tmp_path / "none.db"), "--to", "figures"]) == 2


def test_measuring_and_doctor_write_metrics(tmp_path, monkeypatch):
    target = tmp_path / "run.prom"
    words = ["stream", "-k", "copy", "-n", "5000", "--runs", "2", "-q"]
    assert cli.main([*words, "--openmetrics", str(target)]) == 0
    (kernel,) = {dict(labels).get("kernel") for _, labels in gauges(target.read_text())} - {None}
    assert kernel == "stream.copy"
    assert cli.main([*words, "--openmetrics", str(tmp_path / "run.txt")]) == 2
    from memkern.studies import doctor

    found = doctor.Health("disturbed", (), results(), 0.1)
    for verdict, healthy in (("disturbed", 0), ("fit with reservations", 1)):
        judged = replace(found, verdict=verdict)
        monkeypatch.setattr(doctor, "doctor", lambda judged=judged, **_: judged)
        cli.main(["doctor", "-q", "--openmetrics", str(target)])
        metrics = gauges(target.read_text())
        assert metrics[("memkern_healthy", ())] == healthy
        assert metrics[("memkern_verdict", (("verdict", verdict),))] == 1
