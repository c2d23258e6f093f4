"""Reports of recorded results side by side, and galleries of machines."""

import pytest
from checking import refused
from merit_records import ENVIRONMENT, records, results

import memkern as mk
from memkern import report
from memkern.cli import main
from memkern.report import gallery
from memkern.report.sides import comparison, named_apart


def slower():
    """Return the same machine's results, all times twice as long."""
    factors = dict.fromkeys(("time_min_s", "time_median_s", "ns_per_access"), 2.0)
    factors |= dict.fromkeys(("bandwidth_GBps", "rate_GAMS"), 0.5)
    return results(
        [
            {**row, **{name: row[name] * factor for name, factor in factors.items() if name in row}}
            for row in records()
        ]
    )


def test_platforms_of_one_machine_are_told_apart():
    apart = named_apart(report.sides([results(), slower()], ["monday", "monday"]))
    assert [side.name for side in apart] == ["monday (1)", "monday (2)"]
    assert {r["platform"] for side in apart for r in side.results} == {
        f"Xeon Platinum 8280 ({side.name}), 28 threads" for side in apart
    }
    other = results([{**row, "platform": "Other, 2 threads"} for row in records()])
    kept = named_apart(report.sides([results(), other], ["a", "b"]))
    assert {r["platform"] for r in kept[1].results} == {"Other, 2 threads"}


def test_every_side_is_compared_with_the_first():
    section = comparison(report.sides([results(), slower()], ["before", "after"]))
    (finding,) = section.findings
    assert finding.startswith("A is before, B is after. 12 cases: 12 slower; ")
    assert "B has 0.500 times the speed of A" in finding
    assert len(section.exhibits[0].content) == 12
    assert comparison(report.sides([results()], ["alone"])) is None
    other = results([{**row, "case_id": "x", "kernel": "dw.hop"} for row in records()[:1]])
    assert comparison(report.sides([results(), other], ["a", "b"])).remarks


@pytest.mark.usefixtures("without_sections")
def test_files_are_shown_side_by_side(tmp_path, capsys):
    for name, each in (("old", results()), ("new", slower())):
        each.save(tmp_path / f"{name}.parquet")
    page = tmp_path / "page.html"
    files = [str(tmp_path / f"{name}.parquet") for name in ("old", "new")]
    assert main(["report", *files, "-o", str(page)]) == 0
    text = page.read_text()
    assert "<title>old and new</title>" in text and "Comparison of old and new" in text
    assert "memkern table compare" not in text
    assert capsys.readouterr().out == f"report: {page}\n"
    assert main(["report", *files, "-o", str(page)]) == 2  # it exists
    assert main(["report", *files, "--quick", "-o", str(tmp_path / "b.html")]) == 2
    assert "--quick is for measuring" in capsys.readouterr().err


@pytest.mark.usefixtures("without_sections")
def test_a_gallery_lists_machines_without_private_names(tmp_path):
    private = {
        "hosts": "secret-host",
        "shared_with": "secret-program",
        "machine_file": "/home/secret",
    }
    environment = ENVIRONMENT | {"run": {"hostname": "secret-host", "load": [1.0]}}
    own = tmp_path / "own.parquet"
    results([{**row, **private} for row in records()], environment).save(own)
    site = tmp_path / "site"
    bundle = gallery.add(own, site)
    assert bundle.name.startswith("intel-xeon-platinum-8280") and bundle.parent == site
    assert b"secret" not in bundle.read_bytes()
    index = gallery.write(site)
    text = index.read_text()
    assert bundle.with_suffix(".html").exists() and f'href="{bundle.stem}.html"' in text
    assert "Copy from memory (GB/s)" in text and "28 of 28" in text and "2026-05-01" in text
    assert mk.load(bundle).to_frame().shape[0] == len(records())
    with refused("gallery already"):
        gallery.add(own, site)


def test_wrong_bundles_are_refused(tmp_path):
    with refused("has no bundle"):
        gallery.write(tmp_path)
    results([]).save(tmp_path / "none.parquet")
    with refused("no record"):
        gallery.add(tmp_path / "none.parquet", tmp_path / "site")
    several = results()
    several.environments["e2"] = {"machine": {"model": "Another"}}
    several.save(tmp_path / "two.parquet")
    with refused("several machines"):
        gallery.add(tmp_path / "two.parquet", tmp_path / "site")
    assert not (tmp_path / "site").exists()
