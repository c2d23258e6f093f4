"""Announced times, quick looks (--quick), and results after Ctrl-C."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from checking import output_of, run

import memkern as mk
from memkern import progress, small
from memkern.cli import measuring, report
from memkern.engine.placing.run import CaseRun
from memkern.engine.sweeping import planning
from memkern.engine.sweeping.planning import Rates
from memkern.host import Host
from memkern.results import verdicts
from memkern.results.comparison import Compared
from memkern.studies import doctor as doctoring
from memkern.studies import interleaved

HOW: dict[str, Any] = {"threads": 1, "variant": "simd", "runs": 2}


@pytest.fixture
def announcing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands announce times, by fixed rates."""
    monkeypatch.delenv(small.VARIABLE, raising=False)
    monkeypatch.setattr(planning, "rates", lambda device="cpu": Rates())


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that interrupts after a number of placements."""
    monkeypatch.setattr(planning, "rates", lambda device="cpu": Rates())

    def after(number: int) -> None:
        place, count = CaseRun.place, itertools.count()

        def placed(self: CaseRun, *prepared: Any) -> Any:
            if next(count) >= number:
                raise KeyboardInterrupt
            return place(self, *prepared)

        monkeypatch.setattr(CaseRun, "place", placed)

    return after


def test_times_are_announced_in_commands_only(announcing, capsys):
    progress.announce("measuring", 100.0)
    with progress.announcing(False):
        progress.announce("measuring", 100.0)
    assert capsys.readouterr().err == ""
    with progress.announcing(True):
        for seconds in (2.0, 3.4, 290.0, 600.0):
            progress.announce("measuring", seconds)
    progress.announce("measuring", 100.0)
    assert capsys.readouterr().err.splitlines() == [
        "memkern: measuring, about 3 s",
        "memkern: measuring, about 290 s",
        "memkern: measuring, about 10 minutes",
    ]


def test_cases_and_their_time_are_announced(announcing, monkeypatch, capsys):
    options = "--sizes 1KiB,2KiB,3KiB --isa baseline --variant auto --runs 2 --placements 1"
    words = ["loops", "-k", "copy", *options.split()]
    assert "about" not in run(capsys, *words)[2]
    monkeypatch.setattr(planning, "rates", lambda device="cpu": Rates(once_s=2.0))
    _, err = output_of(capsys, *words)
    assert "memkern: measuring 3 cases, about 6 s" in err
    assert "about" not in run(capsys, *words, "-q")[2]


def test_the_time_of_a_report_includes_its_drawing(announcing, monkeypatch, capsys):
    monkeypatch.setattr(planning, "rates", lambda device="cpu": Rates(once_s=2.0))
    cases = [mk.loops("copy", elements=64 * k, **HOW) for k in (1, 2, 3)]
    with progress.announcing(True):
        measuring.announce(cases, 3.0)
        measuring.announce(cases, 3.0, drawing_s=report._DRAWING_S)
    told = capsys.readouterr().err
    assert " of 3 cases, about 3 s" in told and " of 3 cases and drawing them, about 33 s" in told


def test_a_quick_look_is_at_the_cases_that_tell_most(announcing, monkeypatch, capsys):
    words = ["loops", "-k", "copy", "--sizes", ",".join(str(1600 + 16 * k) for k in range(100))]
    words += ["--variant", "auto", "--isa", "baseline", "--budget", "0.05", "--json"]
    monkeypatch.setattr("memkern.cli.measuring.QUICK_S", 1.0)
    monkeypatch.setattr(progress, "_TOLD_FROM_S", 0.5)
    # At these rates not all cases fit in the time.
    monkeypatch.setattr(planning, "rates", lambda device="cpu": Rates(once_s=0.006, first_s=0.01))
    code, out, err = run(capsys, *words, "--quick")
    found = [record["elements"] for record in json.loads(out)]
    assert code == 0 and 100 in found and len(found) < 100
    assert 199 in found or len(found) == 1
    assert " of 100 cases, about 1 s" in err and "are left out: 1 s did not suffice" in err


def test_an_interrupted_machine_file_is_shown_but_not_written(interrupt_after, capsys, tmp_path):
    interrupt_after(12)
    target, records = tmp_path / "machine.json", tmp_path / "records.json"
    code, out, err = run(capsys, "machine", "-o", str(target), "--records", str(records))
    assert code == 130 and "clock" in out
    assert f"interrupted: {target} is not written" in err and not target.exists()
    assert 0 < len(mk.load(records)) <= 12


def test_an_interrupted_search_tells_the_best_so_far(interrupt_after, capsys):
    words = ["tune", "-k", "stream.copy", "--set", "elements=1000", "--budget", "60"]
    interrupt_after(5)
    code, out, _ = run(capsys, *words)
    assert code == 130 and "best: --variant " in out
    interrupt_after(0)
    assert run(capsys, *words)[:2] == (130, "")


def test_an_interrupted_check_has_findings_but_is_not_kept(interrupt_after, monkeypatch, capsys):
    def kept(self: Host, summary: str) -> None:
        pytest.fail("kept")

    monkeypatch.setattr(Host, "keep_health", kept)
    monkeypatch.setattr(doctoring, "_QUICK", doctoring._Plan(4.0, 0.1, 3, 0.01, 2**20, 2**20))
    interrupt_after(2)
    code, out, _ = run(capsys, "doctor", "--quick")
    assert code == 130 and "core share" in out


def test_an_interrupted_comparison_has_the_pairs_so_far():
    class Side:
        def request(self, what: str, case: int) -> dict[str, Any]:
            if family.count(1) == 3:
                raise KeyboardInterrupt
            return {"seconds": 1.0}

    @contextmanager
    def sides() -> Iterator[tuple[Side, Side]]:
        yield Side(), Side()

    work = ({"time_s": 1.0}, {"time_s": 1.0})
    cases = [Compared(str(k), {}, work) for k in range(2)]
    family = verdicts.Family(2)
    tried, errors = interleaved.measure_pairs(
        family, cases, sides, random.Random(0), lambda family: None
    )
    assert family.interrupted and min(tried) >= 3 and not errors
    remarks = interleaved._assign_verdicts(family, cases, tried, errors)
    assert [case.verdict for case in cases] == [verdicts.NOT_ENOUGH] * 2
    assert all("pairs were undisturbed" in remark for remark in remarks)
