"""Counters over ranks: sums of the ranks' counts, and units that are counted once for a host."""

import json
import math
from pathlib import Path
from typing import Any

import launching
import pytest
from counters_here import COMMAND, NEEDS_COUNTERS, OF_ALL_CODE

OVER_RANKS = ("-m", "memkern", *COMMAND, "-t", "1", "--comm", "mpi", "--json")


@NEEDS_COUNTERS
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_count_their_own_workers(ranks, tmp_path):
    words = [*OVER_RANKS, "--counters", "page-faults,task-clock"]
    done = launching.run("openmpi", ranks, words, tmp_path, {"MEMKERN_SMALL": "1"})
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert (record["ranks"], record["valid"]) == (ranks, True)
    assert (record["counters_note"] == "") == OF_ALL_CODE
    total = {row["event"]: row for row in json.loads(record["counter_rows"])}
    assert list(total) == ["page-faults", "task-clock"]
    assert all(row["running"] == 1 for row in total.values())
    assert total["task-clock"]["count"] > 0
    rows = [row["counts"] for row in json.loads(record.get("rank_rows") or "[]")]
    assert len(rows) == (ranks if ranks > 1 else 0)
    for name in total if rows else ():
        assert math.isclose(sum(row[name] for row in rows), total[name]["count"])
    assert all(row["task-clock"] > 0 for row in rows)


# Rank 1 counts a third of the counts of rank 0. Only rank 0 reads the memory controllers of the
# host.
STEPS = """
import json
from pathlib import Path

import memkern as mk
from checking import tree
from event_trees import COUNTERS
from memkern import _memkern
from memkern.errors import InputError
from memkern.engine.sampling import counters as counting
from memkern.engine.recording import record
from memkern.engine.processes.communication import ranks

number = ranks().number
files, codes = COUNTERS["Cascade Lake"]
counting.ROOT = tree(Path("{folder}") / str(number), files)
record.level_of = lambda *_: "memory"
lost = {lost}
_memkern.step_events([
    (*code, (300, 100)[number], 10, 10, 0, 1 if quantity in lost[number] else -1)
    for quantity, those in codes.items()
    for code in sorted(set(those))
    if quantity not in {absent}[number]
])
case = mk.loops("update", elements=2**14, threads=1, runs=2, placements=1, invocations=1)
try:
    found = case.with_(counters="{counters}").measure().record
    rows = [row["counts"] for row in json.loads(found["rank_rows"])]
    result = json.loads(found["counter_rows"]), rows, found["counters_note"]
except InputError as error:
    result = str(error)
if number == 0:
    print(json.dumps(result))
"""


def stepped(
    folder: Path,
    counters: str = "auto",
    lost: tuple[str, str] = ("", ""),
    absent: tuple[str, str] = ("", ""),
) -> Any:
    """Return the counts of two ranks with steps, or their error message.

    `lost` are quantities of each rank that become unreadable, `absent` are those that it lacks.
    """
    program = folder / "steps.py"
    text = STEPS.replace("{folder}", str(folder)).replace("{counters}", counters)
    for name, both in (("{lost}", lost), ("{absent}", absent)):
        text = text.replace(name, repr([quantities.split() for quantities in both]))
    program.write_text(text)
    done = launching.run("openmpi", 2, [str(program)], folder, {"MEMKERN_SMALL": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_whole_units_are_counted_once_for_a_host(tmp_path):
    counted, rows, _ = stepped(tmp_path)
    counts = {row["event"]: row["count"] for row in counted}
    # Two controllers on each of two sockets.
    assert rows == [
        {"L2_load": 300, "L2_store": 300, "L3_load": 300, "L3_store": 300, "memory_load": 1200,
         "memory_store": 1200, "tlb_misses": 600},
        {"L2_load": 100, "L2_store": 100, "L3_load": 100, "L3_store": 100, "tlb_misses": 200},
    ]  # fmt: skip
    assert counts == {
        name: sum(row.get(name, 0) for row in rows) for name in counts
    } and counts["L2_load"] == 400  # fmt: skip
    # The model includes the arrays of both ranks.
    model = {row["event"]: row["model"] for row in counted if "model" in row}
    assert set(model.values()) == {2 * 2**14 * 8 / 64}


def test_what_a_rank_cannot_count(tmp_path):
    counted, rows, note = stepped(tmp_path, absent=("", "L3_load"))
    assert "L3_load" not in {row["event"] for row in counted} | rows[0].keys()
    assert "L3_load can't be counted on every rank" in note
    why = stepped(tmp_path, "L2_load,L3_load", absent=("", "L3_load"))
    assert "rank 1 on " in why and "event 'L3_load' can't be counted: this machine has no" in why
    # A sum without the count of one rank would be too small.
    counted, rows, note = stepped(tmp_path, "L2_load,L3_load", lost=("", "L3_load"))
    assert [row["count"] for row in counted] == [400, None]
    assert rows == [{"L2_load": 300, "L3_load": 300}, {"L2_load": 100, "L3_load": None}]
    assert note == "L3_load has no count: its counter can't be read"
