"""The measured structure of caches and TLBs, beside what the system reports."""

import pytest
from checking import output_of, refused, run
from latency_records import sizes, structured
from plotting import KIB, MIB, Results, curve_labels, footnotes, frame, line, panel_texts

from memkern.families.latency import verb
from memkern.families.latency.data import DIFFERS
from memkern.families.latency.findings import findings
from memkern.families.latency.structure_data import measured_caches
from memkern.host.environment import machine_environment
from memkern.host.file import usual_path
from memkern.plots import figures, tables


def table(rows):
    """Return the table latency-structure with its column `what` as index."""
    return tables["latency-structure"](Results(rows)).set_index("what")


def test_the_structure_stands_beside_what_the_system_says():
    # The system reports L1 of 32 KiB, L2 of 1 MiB and L3 of 16 MiB; a quarter of L3 is usable.
    rows = structured(ends={32 * KIB: 1.0, MIB: 4.0, 4 * MIB: 15.0, 2**40: 100.0})
    found = table(rows)
    assert list(found.index) == [
        "cache 1", "cache 2", "cache 3", "beyond", "TLB 1", "TLB 2", "page walk", "line",
        "adjacent line",
    ]  # fmt: skip
    assert found["ns"].tolist() == pytest.approx([1, 4, 15, 100, 0, 1.8, 18, 3, 14])
    assert found["cycles"].tolist() == pytest.approx((4 * found["ns"]).tolist())
    assert found["fits_B"][:3].tolist() == [32 * KIB, MIB, 4 * MIB]
    assert found["agrees"].tolist() == ["yes", "yes", "differs", *[""] * 4, "yes", ""]
    assert found["found"].tolist() == [
        "32 KiB to 38.1 KiB", "1 MiB to 1.19 MiB", "4 MiB to 4.76 MiB", "from 4.76 MiB",
        "64 to 76 pages", "1448 to 1722 pages", "in 16384 pages", "64 B", "not fetched with it",
    ]  # fmt: skip
    assert found["system"].tolist() == [
        "L1: 32 KiB", "L2: 1 MiB", "L3: 16 MiB", "", "unknown", "unknown", "", "64 B", "unknown",
    ]  # fmt: skip
    (_, said) = findings(Results(rows))
    assert said == "By latency, cache 3 has 4 MiB to 4.76 MiB, the system reports L3: 16 MiB"
    # A report begins with sizes that were measured in this boot, by more latencies than its own.
    known = Results(rows)
    known.environments["e1"]["measured_caches"] = {"sizes_B": {"L3": 3 * MIB}}
    assert not any("L3: 16 MiB" in text for text in findings(known))


def test_sizes_of_caches_are_confirmed_or_that_of_the_last_one_is_measured():
    def measured(rows):
        return measured_caches(Results(rows))

    ends = {32 * KIB: 1.0, MIB: 4.0, 4 * MIB: 15.0, 2**40: 100.0}
    assert measured(structured(ends=ends)) == {
        "L1": 32 * KIB, "L2": MIB, "L3": pytest.approx(4.36 * MIB, rel=0.01),
    }  # fmt: skip
    assert measured(structured()) == {"L1": 32 * KIB, "L2": MIB, "L3": 16 * MIB}
    # L3 is unknown without a rise beyond L2, or if all buffers may be in the last cache.
    assert measured(structured(ends={32 * KIB: 1.0, MIB: 4.0, 2**40: 9.0})) == {
        "L1": 32 * KIB, "L2": MIB,
    }  # fmt: skip
    small = [row for row in structured(ends=ends) if row["size_B"] <= 16 * MIB]
    assert set(measured(small)) == {"L1", "L2"}
    assert measured([row for row in structured() if row["order"] != "random"]) == {}
    # The table has the size that the system reports even if another size was measured before.
    again = Results(structured(ends=ends))
    again.environments["e1"]["measured_caches"] = {"sizes_B": measured(structured(ends=ends))}
    shown = tables["latency-structure"](again).set_index("what")
    assert shown.loc["cache 3", "system"] == "L3: 16 MiB" and measured_caches(again)["L3"] < 5 * MIB


def test_measured_sizes_of_caches_are_stored(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = structured(ends={32 * KIB: 1.0, MIB: 4.0, 4 * MIB: 15.0, 2**40: 100.0})
    monkeypatch.setattr(verb, "measure", lambda *_, **__: Results(rows))
    monkeypatch.setattr(verb, "health_of", lambda _: "healthy")
    monkeypatch.setattr(verb, "exit_code", lambda _: 0)
    out, err = output_of(capsys, "latency", "structure")
    assert "L3: 16 MiB" in out and out.endswith("healthy\n")
    assert err == (
        "memkern: sizes of caches for later records, until the next boot: L1 32 KiB, L2 1 MiB, "
        "L3 4.36 MiB\n"
    )
    stored = machine_environment()["measured_caches"]["sizes_B"]
    assert list(stored) == ["L1", "L2", "L3"] and stored["L1"] == 32 * KIB
    assert "measured: L1 32 KiB, L2 1024 KiB, L3 4" in run(capsys, "info")[1]
    # Small cases, as in tests, do not measure the machine's caches.
    usual_path().unlink()
    monkeypatch.setenv("MEMKERN_SMALL", "1")
    assert run(capsys, "latency", "structure", "-q")[0] == 0 and not usual_path().exists()


def test_lines_that_differ_or_come_in_pairs_are_said():
    found = table(structured(line_B=128))
    assert found["found"]["line"] == "128 B" and found["agrees"]["line"] == DIFFERS
    found = table(structured(fetched=True))
    assert found["found"]["line"] == "64 B" and found["agrees"]["line"] == "yes"
    assert found["found"]["adjacent line"] == "fetched with it"
    assert found["ns"]["adjacent line"] == pytest.approx(3)
    found = table(structured(line_B=4096))
    assert found["found"]["line"] == "not found" and "adjacent line" not in found.index
    few = [r for r in structured(fetched=True) if r["size_B"] != 128 * MIB]
    assert "adjacent line" not in table(few).index
    unknown = tables["latency-structure"](frame(structured())).set_index("what")
    assert set(unknown["agrees"]) == {""} and unknown["system"]["line"] == "unknown"


def test_parts_of_a_structure_are_shown_alone():
    rows = structured()
    assert set(table([r for r in rows if r["order"] == "random"]).index) == {
        "cache 1", "cache 2", "cache 3", "beyond",
    }  # fmt: skip
    assert set(table([r for r in rows if r["order"].startswith("pairs")]).index) == {
        "line", "adjacent line",
    }  # fmt: skip
    with refused("no latency is the same over three sizes"):
        table(sizes())
    with refused("latency structure"):
        table([r for r in rows if r["order"] == "one-per-page"])
    # All pages fit in the TLBs.
    found = table(structured(reaches=(64, 2**20)))
    assert found["found"]["TLB 2"] == "at least 16384 pages" and "page walk" not in found.index
    # Disturbed records are ignored, as well as huge pages, which have other TLBs.
    huge = [{**r, "pages": "thp", "ns_per_access": 1.0} for r in rows if r["lines"] < 2**14]
    disturbed = [{**r, "disturbed": True, "ns_per_access": 0.1} for r in rows]
    apart = [r for r in huge if r["order"] == "one-per-page"]
    assert table([*rows, *apart, *disturbed]).equals(table(rows))


def test_tlbs_stand_beside_those_of_the_processor():
    entries = [{"level": 1, "entries": 64}, {"level": 2, "entries": 8192}]
    shown = tables["latency-structure"](Results(structured(), tlbs=entries)).set_index("what")
    assert shown.loc["TLB 1", ["system", "agrees"]].tolist() == ["64 entries", "yes"]
    assert shown.loc["TLB 2", ["system", "agrees"]].tolist() == ["8192 entries", DIFFERS]
    one = tables["latency-structure"](Results(structured(), tlbs=entries[:1])).set_index("what")
    assert one.loc["TLB 2", ["system", "agrees"]].tolist() == ["unknown", ""]


def test_pairs_in_the_large_buffer_do_not_decide_on_the_line():
    rows = structured()
    for row in rows:
        if row.get("distance_B") == 32 and row["size_B"] == 128 * MIB:
            row["ns_per_access"] += 5.0
    assert table(rows).loc["line", "found"] == "64 B"
    # They decide if the small buffer has no pairs.
    far = [row for row in rows if row["size_B"] != 4 * MIB or "distance_B" not in row]
    assert table(far).loc["line", "found"] == "32 B"


def test_the_structure_is_drawn_with_its_marks():
    fig = figures["latency-structure"](Results(structured()))
    costs, both = fig.axes
    assert {"TLB 1: 64 pages", "TLB 2: 1448 pages", "page walks"} == set(panel_texts(costs))
    assert set(panel_texts(both)) == {"same line", "other lines of 64 B"}
    assert curve_labels(both) == [
        f"{order} in {size} MiB" for size in (4, 128) for order in ("pairs", "pairs-across")
    ]
    within, across = (line(both, f"{order} in 128 MiB") for order in ("pairs", "pairs-across"))
    assert list(within.get_ydata()) == pytest.approx([0, 0, 0, *[14] * 5])
    assert list(across.get_xdata()) == [64, 128, 256, 512, 1024]
    assert "in either order" in footnotes(fig)
    (alone,) = figures["latency-structure"](
        Results([r for r in structured() if r["order"].startswith("pairs")])
    ).axes
    assert "Distance" in alone.get_xlabel()
