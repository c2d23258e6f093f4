"""The first page of a report: tiles, facts, the verdict, and the sentence on what to look at."""

import pytest
from merit_records import ENVIRONMENT, records, results

from memkern.models.merit import figures_of_merit
from memkern.plots.frames import with_samples
from memkern.report import write
from memkern.report.first import fitness, machine_facts, next_sentence, side_by_side, tiles


def shown(rows=None, environment=ENVIRONMENT):
    frame = with_samples(results(rows))
    found = tiles(figures_of_merit(frame), environment, frame.to_dict("records"))
    return found, [entry for tile in found for entry in tile]


def next_step(rows):
    frame = with_samples(results(rows))
    return next_sentence(frame, figures_of_merit(frame), shown(rows)[1])


def test_eight_tiles_have_value_interval_limit_and_expected_range():
    found, entries = shown()
    assert [len(tile) for tile in found] == [1, 1, 1, 1, 1, 1, 2, 1]
    copy = entries[0]
    assert (copy.title, copy.value) == ("Copy from memory, non-temporal stores", "100")
    lines = dict(copy.lines)
    assert lines["next run"] == "80 to 111" and lines["typical"].startswith("91 (84")
    assert lines["limit"].endswith("97 % reached") and copy.share == pytest.approx(0.974, abs=1e-3)
    load = entries[2]
    assert dict(load.lines)["published"] == "79.7 to 141"
    assert load.word == "as expected" and load.good and "28 of 28 cores" in load.about


def test_a_figure_without_a_verdict_is_set_against_the_same_machine():
    copy = shown()[1][0]
    lines = dict(copy.lines)
    assert lines["published"].startswith("no verdict: ") and copy.word == ""
    assert lines["channels"] == "141: 71 % reached" and lines["best"] == "110: 91 % reached"
    assert "It is 91 % of the 110 GB/s of the best of copy, load and triad (load)." in copy.about


def test_the_idle_latency_has_a_range_and_a_verdict():
    machine = {**ENVIRONMENT["machine"], "model": "Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz"}
    rows = records()
    for ns, word in ((90.0, "as expected"), (120.0, "above")):
        rows[5] = {**rows[5], "ns_per_access": ns * 1.1}
        entries = shown(rows, {**ENVIRONMENT, "machine": machine})[1]
        (latency,) = (entry for entry in entries if entry.unit == "ns")
        assert dict(latency.lines)["published"] == "61.4 to 103" and latency.word == word


def test_disturbed_values_have_no_interval():
    rows = [{**row, "disturbed": True} for row in records()]
    for row in rows:
        row["time_min_ci_low_s"] = row["time_min_ci_high_s"] = float("nan")
    _, entries = shown(rows)
    assert {dict(entry.lines)["next run"] for entry in entries} == {"no interval: disturbed"}
    assert all(entry.word == "" for entry in entries)


def test_an_unknown_processor_has_no_verdict():
    _, entries = shown(environment={"machine": {"model": "Some Processor"}})
    assert all(entry.word == "" and "published" not in dict(entry.lines) for entry in entries)


def test_facts_name_what_is_used_reported_and_measured():
    facts = dict(machine_facts(records(), ENVIRONMENT))
    assert facts["cores"] == "28 of 28 processing units used, 28 cores, 1 socket"
    by_latency = "L3 30 MiB by latency (the system reports 40 MiB)"
    assert facts["caches"] == f"L1 32 KiB, L2 1 MiB, {by_latency}"
    assert facts["memory"] == "192 GiB, 6 channels, DDR4 2933 MT/s, peak 141 GB/s"
    assert facts["virtual machine"] == "no" and facts["load"].startswith("0.5 ")
    unknown = dict(machine_facts(records(), {"machine": {"hypervisor": "unknown"}}))
    assert unknown["memory"] == "channels unknown (no firmware table that this user may read)"
    assert unknown["virtual machine"] == "yes" and unknown["cores"] == "28 used"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "Gather at stride 8 reaches 11 % of its limit"),
        ({"valid": False}, "12 records failed validation"),
        ({"disturbed": True}, "9 figures disturbed: measure again"),
    ],
)
def test_the_next_step_follows_from_the_worst(change, sentence):
    assert next_step([{**row, **change} for row in records()]).startswith(sentence)


def test_values_worse_than_published_come_before_low_shares():
    rows = records()
    rows[3] = {**rows[3], "time_min_s": 2 * rows[3]["time_min_s"], "bandwidth_GBps": 55.0}
    assert next_step(rows).startswith("Loads from memory: worse than")
    _, entries = shown(rows)
    (load,) = (entry for entry in entries if entry.title == "Loads from memory")
    assert load.word == "below" and not load.good


@pytest.mark.parametrize(
    ("doctor", "text", "word"),
    [
        ("fit", "fit", "good"),
        ("disturbed: steal time", "disturbed: steal time", "bad"),
        (None, "memkern doctor has not checked this machine since its boot", ""),
    ],
)
def test_the_verdict_is_of_the_doctor(doctor, text, word):
    frame = with_samples(results([{**row, "doctor": doctor} for row in records()]))
    assert (text, word) in fitness(frame) and fitness(frame)[-1] == (". The host was quiet.", "")


@pytest.mark.parametrize(
    ("doctor", "slower", "tile", "verdict"),
    [
        ("disturbed: load", 1, "as expected: its shortest time was hardly disturbed<", ""),
        ("fit", 2, "below<", "fit</b> (of the host, not of the values that are below)"),
        ("fit", 1, "as expected<", "fit</b>. The host was quiet."),
        ("disturbed: load", 2, "below<", "load</b>. The host was quiet."),
    ],
)
def test_green_beside_orange_says_why(doctor, slower, tile, verdict, tmp_path):
    rows = [{**row, "doctor": doctor} for row in records()]
    rows[3] |= {"time_min_s": slower * rows[3]["time_min_s"], "bandwidth_GBps": 110.0 / slower}
    kept = [rows[3]]  # one value that is published: loads from memory
    path = write(results(kept), tmp_path / "r.html", title="", environment=ENVIRONMENT)
    text = path.read_text()
    assert f">{tile}" in text and verdict in text
    assert ("hardly disturbed" in text) == ("hardly disturbed" in tile)
    assert ("of the host, not" in text) == ("of the host, not" in verdict)


def test_nothing_is_good_on_a_disturbed_machine():
    rows = [{**row, "doctor": "disturbed: swap (1 hour before)"} for row in records()]
    sentence = next_step(rows)
    assert sentence.startswith("memkern doctor found this machine disturbed: swap (1 hour before):")
    frame = with_samples(results([{**row, "state": "disturbed"} for row in rows]))
    assert fitness(frame)[-1] == (". The host was disturbed.", "")


def test_the_source_of_a_limit_is_told():
    by_limit = [one for one in shown()[1] if "limit" in dict(one.lines)]
    assert by_limit and all("by loads and a triad" in one.about for one in by_limit)


def test_machines_are_side_by_side_by_figure():
    every, _ = shown()
    few, _ = shown(records()[:1])
    rows = dict(side_by_side([every, few]))
    assert rows["Loads from memory (GB/s)"] == [
        ("110", rows["Loads from memory (GB/s)"][0][1]),
        ("", ""),
    ]
    assert [value for value, _ in rows["Copy from memory, non-temporal stores (GB/s)"]] == [
        "100"
    ] * 2
