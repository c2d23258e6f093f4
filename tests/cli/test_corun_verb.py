"""The verb corun."""

import json

import pytest
from checking import measured, output_of, refused_words, run
from machines import PROCESSORS

import memkern as mk
from memkern.host import capacity
from memkern.spec.kernel import Check
from memkern.studies import corun

# Neighbours are other processes.
pytestmark = pytest.mark.usefixtures("this_machine", "small_cases")
UNITS = PROCESSORS
TWO_UNITS = pytest.mark.skipif(len(UNITS) < 2, reason="a neighbour needs a unit of its own")
UNITS_OPTION = f"--units={UNITS[0]}:{UNITS[-1]}"


@TWO_UNITS
def test_a_matrix_is_printed_and_drawn(capsys, tmp_path):
    output = str(tmp_path / "x.db")
    words = ["loops.load", "elements=1000", "stream.triad", UNITS_OPTION, "-o", output]
    out, err = output_of(capsys, "corun", *words, "--turns", "2")
    assert "2 of 2" not in err
    lines = out.splitlines()
    # Two turns and their summary with a heading and two rows each, and the explanation.
    assert len(lines) == 10
    names = ["loops.load elements=1000", "stream.triad"]
    for begin, title in ((0, "turn 1"), (3, "turn 2"), (6, "all turns")):
        assert lines[begin].split() == [*title.split(), "alone", *" ".join(names).split()]
        for line, name in zip(lines[begin + 1 : begin + 3], names, strict=True):
            assert line.startswith(f"{name} ")
        assert "GB/s" in lines[begin + 1]
    assert "in parentheses if the interval includes 1" in lines[-1]
    results = mk.load(output)
    assert {(r["elements"], r["name"]) for r in results.filter(kernel="loops.load")} == {
        (1000, "elements=1000")
    }
    assert {r["beside"] for r in results} == {"", *names}
    code, out, err = run(capsys, "corun", *words, "--turns", "2")
    assert (code, out) == (2, "") and "exists already" in err
    # Nothing is left to measure.
    assert run(capsys, "corun", *words, "--turns", "2", "--resume")[0] == 0
    assert mk.load(output) == results
    picture = tmp_path / "x.png"
    assert run(capsys, "figure", "corun", output, "-o", str(picture))[0] == 0
    assert picture.exists()
    table = json.loads(run(capsys, "table", "corun", output, "--json")[1])
    assert [row["beside"] for row in table] == names * 2


@TWO_UNITS
def test_the_usual_kernels_are_records_in_json(capsys):
    records = measured(capsys, "corun", UNITS_OPTION, "--pages", "4k", "-q")
    assert len(records) == 2 * 5 * 6
    assert {record["kernel"] for record in records} == set(corun.KERNELS)
    assert {record["pages_requested"] for record in records} == {"4k"}
    assert all(record["valid"] for record in records)


@TWO_UNITS
def test_kernels_may_follow_options(capsys):
    words = ["loops.load", UNITS_OPTION, "-q", "latency.chase", "size_B=64KiB"]
    records = measured(capsys, "corun", *words)
    assert {r["beside"] for r in records} == {"", "loops.load", "latency.chase size_B=64KiB"}


@TWO_UNITS
def test_invalid_results_are_named(capsys, monkeypatch):
    wrong = Check(False, 1.0, "no")
    for module in ("sampling.prepared", "placing.run"):
        monkeypatch.setattr(f"memkern.engine.{module}.finish", lambda *_: wrong)
    code, out, err = run(capsys, "corun", "loops.load", UNITS_OPTION)
    assert code == 1
    assert "the results of loops.load are invalid" in err
    assert out.splitlines()[-1].startswith("1.43")


@TWO_UNITS
@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        ("nope", "nope"),
        ("loops.nope", "kernel 'loops.nope' is unknown: did you mean loops."),
        ("elements=5 loops.load", "'elements=5' must follow the kernel"),
        ("loops.load elements=", "elements must be an integer, not ''"),
        ("loops.load colour=5", "has no option 'colour'"),
        ("loops.load --threads 1,2", "--threads takes one value, not a list"),
        (f"loops.load --units {UNITS[0]}:70000", "processing unit 70000"),
        ("loops.load --turns 1", "'1' is not a whole number of at least 2"),
        ("loops.load --pin compact", "--pin has no effect beside neighbours"),
        ("loops.load --repeats 2", "--repeats has no effect in turns"),
        ("loops.load --placements 2", "--placements has no effect in turns"),
        ("loops.load --case-order declared", "--case-order has no effect in turns"),
        ("loops.load --output x.txt", "x.txt"),
        ("loops.peakflops --prefetch 4", "--prefetch has no effect on loops.peakflops"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, monkeypatch, words, culprit):
    # A machine with large caches and little memory would warn about its default sizes as well.
    monkeypatch.setattr(capacity, "memory_left", lambda: (10**15, "the test"))
    units = [] if "--units" in words else [UNITS_OPTION]
    assert culprit in refused_words(capsys, "corun", *units, "-q", *words.split())


def test_one_unit_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(corun, "physical_cores", lambda: [[0]])
    told = "two processing units, and this process may use one"
    assert told in refused_words(capsys, "corun", "-q")
