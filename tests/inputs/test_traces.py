"""Traces of lackey and DynamoRIO, and addresses as .npy."""

from collections import defaultdict

import numpy as np
import pytest
from checking import refused

from memkern.inputs.traces import READ, WRITE, Event, events, is_own, write
from memkern.studies.extraction import NONE, Sites, extract

LACKEY = """==7== Lackey, an example Valgrind tool
==7==
I  00401000,3
 L 1ffeffe7e8,8
I  00401003,4
I  00401007,7
 S 04222c40,4
 M 04222c44,16
result: 5
"""
# Lines are as long as the tool prints them. A thread's number has the number of its workload before
# it in newer releases.
DYNAMORIO = """Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:         512 <marker: version 6>
           2           1:         512 ifetch       3 byte(s) @ 0x0000000000401000 48 8b 07 mov
           3           1:         512 read         8 byte(s) @ 0x0000001ffeffe7e8 by PC 0x0000000000401000
------------------------------------------------------------
           4           2:      W0.T513 ifetch       7 byte(s) @ 0x0000000000401007 89 07 mov
           5           2:      W0.T513 write        4 byte(s) @ 0x0000000004222c40 by PC 0x0000000000401007
           6           2:      W0.T513 write       16 byte(s) @ 0x0000000004222c44 by PC 0x0000000000401007
"""  # noqa: E501


def test_accesses_of_lackey_are_read(tmp_path):
    path = tmp_path / "lackey.txt"
    path.write_text(LACKEY)
    assert not is_own(path)
    assert [*events(path)] == [
        Event(0, 0x401000, 0x1FFEFFE7E8, 8, READ),
        Event(0, 0x401007, 0x4222C40, 4, WRITE),
        Event(0, 0x401007, 0x4222C44, 16, READ | WRITE),
    ]


def test_accesses_of_dynamorio_are_read(tmp_path):
    path = tmp_path / "view.txt"
    path.write_text(DYNAMORIO)
    assert [*events(path)] == [
        Event(512, 0x401000, 0x1FFEFFE7E8, 8, READ),
        Event(513, 0x401007, 0x4222C40, 4, WRITE),
        Event(513, 0x401007, 0x4222C44, 16, WRITE),
    ]


@pytest.mark.parametrize("text", ["", "one two\n", " L 1ffeffe7e8\n", "I  00401000 3\n"])
def test_other_texts_are_refused(tmp_path, text):
    path = tmp_path / "x.txt"
    path.write_text(text)
    with refused("x.txt is no trace: neither of `memkern trace`, lackey or DynamoRIO's view"):
        list(events(path))


def test_equal_accesses_have_equal_patterns(tmp_path):
    indices = np.arange(60) ** 2 * 37 % 97
    addresses = 0x4222C40 + 8 * indices
    np.save(tmp_path / "addresses.npy", addresses)
    (tmp_path / "lackey.txt").write_text(
        "".join(f"I  00401000,3\n L {address:08x},8\n" for address in addresses)
    )
    (tmp_path / "view.txt").write_text(
        "".join(
            f"{k:12}{k:12}:         512 read         8 byte(s) @ 0x{address:016x} by PC 0x1000\n"
            for k, address in enumerate(addresses)
        )
    )
    for name in ("addresses.npy", "lackey.txt", "view.txt"):
        found = extract([tmp_path / name])
        assert (found.accesses, found.bytes_B) == (60, 480)
        (one,) = found.patterns
        assert (one.kernel, one.count, one.deltas, one.share) == ("gather", 1, {"delta": 0}, 1)
        assert one.patterns["pattern"].tolist() == indices.tolist()
        assert len(one.files) == 1
    assert one.place == "0x1000"


def test_written_traces_have_all_accesses(tmp_path):
    random = np.random.default_rng(1)
    number = 40_000
    # Addresses that need many bytes, so that a thread has several parts.
    all_ = [
        Event(*values)
        for values in zip(
            random.choice([7, 9, 512], number).tolist(),
            (0x401000 + random.integers(0, 50, number) ** 2).tolist(),
            random.integers(1, 2**46, number).tolist(),
            random.choice([1, 4, 8, 64, 300], number).tolist(),
            random.integers(1, 4, number).tolist(),
            strict=True,
        )
    ]
    path = tmp_path / "x.trace"
    write(path, all_)
    assert is_own(path)
    assert path.stat().st_size > 2**16 + 3 * 2**18
    found = Sites(path)
    trace = found.trace
    threads = list(dict.fromkeys(event.thread for event in all_))
    assert (trace.threads, trace.left_out) == (3, 0)
    wanted = defaultdict(list)
    for event in all_:
        wanted[event.caller, event.how, threads.index(event.thread)].append(event)
    for k, site in enumerate(found.sites):
        caller = int(found.place(k)[0], 16)
        of_site = [wanted.pop((caller, site["how"], thread), []) for thread in range(3)]
        assert site["threads"] + [0] * (3 - len(site["threads"])) == [*map(len, of_site)]
        assert site["bytes"] == sum(event.size for events_ in of_site for event in events_)
        for thread, events_ in enumerate(of_site):
            ((at, _, _),) = trace.sequences(thread, [(k, NONE)], number)
            assert at.tolist() == [event.at for event in events_]
    assert not wanted
