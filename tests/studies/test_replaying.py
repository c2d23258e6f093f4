"""The time of a program's loop beside the time of its accesses alone."""

import json
import re
import shutil
from pathlib import Path

import pytest
from checking import output_of, refused
from traced import traced

from memkern.inputs.spatter_files import read_json
from memkern.studies.extraction import extract
from memkern.studies.replaying import check

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Return the trace of a program in a folder with its source."""
    folder = tmp_path_factory.mktemp("checked")
    shutil.copy(PROGRAMS / "histogram.c", folder)
    build = "gcc -std=gnu11 -O2 -fopenmp histogram.c -o app"
    return traced(folder, "./app 40000", build=build).files[0]


def test_a_loop_is_compared_with_its_accesses(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(trace.parent)
    before = {*trace.parent.iterdir()}
    suite = tmp_path / "suite.json"
    out, _ = output_of(capsys, "patterns", str(trace), "--check", "-o", str(suite))
    (told,) = re.findall(
        r"^kernel: (.*) ms a call, .* alone (.*) ms with \d threads: (.*) \[(.*), (.*)\]; ",
        out,
        re.M,
    )
    loop_ms, replay_ms, ratio, low, high = map(float, told)
    assert loop_ms > 0 and replay_ms > 0 and low <= ratio <= high
    for config in json.loads(suite.read_text()):
        assert config["accesses_over_loop"] == pytest.approx([ratio, low, high], rel=0.01)
    assert not read_json(suite).warnings
    assert {*trace.parent.iterdir()} == before


def test_a_part_that_is_marked_is_timed_instead_of_its_function(tmp_path, capsys, monkeypatch):
    (tmp_path / "app.c").write_text(MARKED)
    trace = traced(tmp_path, "./app", build="gcc -O2 app.c -o app").files[0]
    monkeypatch.chdir(tmp_path)
    out, _ = output_of(capsys, "patterns", str(trace), "--check", "--json")
    (row,) = json.loads(out)
    assert (row["place"], row["calls"]) == ("app.c:9", 1)
    assert 0 < row["ratio_low"] <= row["ratio"] <= row["ratio_high"]


def test_a_trace_without_a_command_is_refused(tmp_path):
    lackey = tmp_path / "lackey.txt"
    lackey.write_text("I  1000,4\n" + "".join(f" L {8 * k**3 % 4096:x},8\n" for k in range(99)))
    # Only one of memkern has the command that built the program.
    with refused("has no command, which a finished run of `memkern trace` writes"):
        check(extract([lackey]))


MARKED = """#include <stdlib.h>
void memkern_begin(const char *) __attribute__((weak));
void memkern_end(const char *) __attribute__((weak));
int main(void) {
  double *a = calloc(5000, 8), s = 0;
  int *x = malloc(4 * 3000);
  for (int k = 0; k < 3000; ++k) x[k] = k * 37 % 5000;
  if (memkern_begin) memkern_begin("app.c:9");
  for (int k = 0; k < 3000; ++k) s += a[x[k]];
  if (memkern_end) memkern_end("app.c:9");
  return s != 0;
}
"""
