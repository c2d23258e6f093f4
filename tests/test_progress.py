"""Progress of long measurements."""

import sys

from memkern import progress


def test_progress_without_a_terminal_is_printed_in_lines(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    lines = progress.bar(True)
    lines.total = 4
    for seconds in (4.0, 8.0, 1.0, 11.0):
        clock[0] += seconds
        lines.update()
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        "memkern: 2 of 4 placements after 12 s, about 12 s left",
        "memkern: 4 of 4 placements after 24 s, about 0 s left",
        "memkern: 4 of 4 placements measured in 24 s",
    ]
    short = progress.bar(True, time_s=30.0)
    short.total = 100
    clock[0] += 20.0
    short.update()
    assert "1 of 100 placements after 20 s, about 10 s left" in capsys.readouterr().err
    clock[0] += 20.0
    short.update()
    assert "2 of 100 placements after 40 s, longer than expected" in capsys.readouterr().err
    for total, wanted in ((4, False), (4, None), (None, True)):
        other = progress.bar(wanted)
        other.total = total
        other.update()
        other.close()
    assert capsys.readouterr().err == ""
