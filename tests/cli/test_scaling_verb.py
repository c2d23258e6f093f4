"""The verb scaling."""

import json

import pytest
from checking import measured, output_of, refused_words, run
from launching import Ranks

import memkern as mk
from memkern.studies import scaling


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Measure in this process instead of launching ranks, and return the command lines."""
    fake = Ranks(monkeypatch)
    fake.fails = lambda ranks: (1, "There are not enough slots.\n") if ranks > 8 else None
    return fake.commands


def test_a_table_is_printed_and_drawn(capsys, tmp_path):
    output = str(tmp_path / "x.db")
    words = ["stream.triad", "elements=1000", "loops.load", "--ranks", "1,2,4", "-t", "1,2"]
    out, err = output_of(capsys, "scaling", *words, "-o", output)
    assert "8 of 24 records are oversubscribed" in err
    lines = out.splitlines()
    assert lines[0].split() == ["kernel", "threads", "ranks", "rate", "speed-up", "efficiency", "%"]
    assert len(lines) == 14
    told = "±: half of the 95 % interval over the turns, or its ends if one is farther away"
    assert lines[-1] == told
    assert [line.endswith("oversubscribed") for line in lines[1:4]] == [False, False, True]
    assert lines[1].startswith("stream.triad elements=1000 ") and " GB/s " in lines[1]
    results = mk.load(output)
    assert {(r["scaling"], r["ranks"], r["threads"]) for r in results} == {
        ("strong", ranks, threads) for ranks in (1, 2, 4) for threads in (1, 2)
    }
    code, out, err = run(capsys, "scaling", *words, "-o", output)
    assert (code, out) == (2, "") and "exists already" in err
    # Nothing is left to measure.
    assert run(capsys, "scaling", *words, "-o", output, "--resume")[0] == 0
    assert mk.load(output) == results
    picture = tmp_path / "x.png"
    assert run(capsys, "figure", "scaling", output, "-o", str(picture))[0] == 0
    assert picture.exists()
    table = json.loads(run(capsys, "table", "scaling", output, "--json")[1])
    assert [row["ranks"] for row in table] == [1, 2, 4] * 4


BY_SHMEM = ("--comm", "shmem", "--launcher", "oshrun")


def test_three_triads_of_two_sizes_are_the_default(capsys, commands, monkeypatch):
    assert scaling.ELEMENTS == (8_700_000, 22_000_000)
    monkeypatch.setattr(scaling, "ELEMENTS", (1000, 2000))
    records = measured(capsys, "scaling", "-q", "--mode", "weak", "--bind", "core", *BY_SHMEM)
    assert {r["kernel"] for r in records} == set(scaling.KERNELS)
    assert {r["name"] for r in records} == {"elements=1000", "elements=2000"}
    assert {r["ranks"] for r in records} == {1, 2, 4}
    assert {(r["scaling"], r["bind"], r["threads"]) for r in records} == {("weak", "core", 1)}
    launched = [" ".join(command) for command in commands if "sweep" in command]
    assert all("--map-by slot:PE=1" in c and c.endswith("--comm shmem") for c in launched)


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        ("nope", "nope"),
        ("loops.load --ranks 0", "ranks must be a list of whole numbers of at least 1"),
        ("loops.load --ranks 1,x", "x"),
        ("loops.load --mode both", "--mode 'both' is not one of strong, weak"),
        ("loops.load --bind rack", "--bind 'rack' is not one of node"),
        ("loops.load --comm none", "--comm 'none' is not one of mpi"),
        ("loops.load --turns 2", "'2' is not a whole number of at least 3"),
        ("loops.load --pages 4k,thp", "--pages takes one value, not a list"),
        ("loops.load --repeats 2", "--repeats has no effect in turns"),
        ("loops.load --output x.txt", "x.txt"),
        ("loops.load --ranks 9", "9 ranks: mpirun ended with exit code 1: There are not enough"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, words, culprit):
    assert culprit in refused_words(capsys, "scaling", "-q", *words.split())
