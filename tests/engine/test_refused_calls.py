"""System calls that a filter refuses, as those of containers do: only what needs them ends."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from checking import python

CALLS = ("sched_setaffinity", "madvise", "mbind", "perf_event_open")

# Prints the warnings of default cases and what they obtained, and the refusals of named options.
SCRIPT = """
import json, os, sys, warnings
from refusing import refuse
refuse(sys.argv[1:])
import memkern as mk

def case(**options):
    return mk.stream("copy", elements=300000, threads=1, runs=1, **options)

def refusal(**options):
    try:
        return case(**options).prepare().obtained["pin"]
    except (ValueError, MemoryError) as error:
        return str(error)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    obtained = [case().prepare().obtained for _ in range(2)]
    os.environ["MEMKERN_SMALL"] = "1"  # the others need no large arrays
    record = case(counters="auto").measure().record
    checked = mk.doctor(quick=True)
named = {"pin": "compact", "pages": "thp", "numa": "interleave", "counters": "page-faults"}
print(json.dumps({
    "warnings": [str(one.message) for one in caught],
    "obtained": [(one["pin"], one["pages"]) for one in obtained],
    "measured": (record["pin"], record["valid"], record["counters"]),
    "subjects": [one.subject for one in checked.findings],
    "refusals": {name: refusal(**{name: value}) for name, value in named.items()},
    "unpinned": refusal(pin="none", numa="first-touch"),
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what SCRIPT prints, of one process."""
    folder = tmp_path_factory.mktemp("refused")
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    # With OMP_PROC_BIND, OpenMP's runtime ends a process whose threads it can't bind.
    settings = {"OMP_PROC_BIND": "true", "XDG_CACHE_HOME": str(folder)}
    settings["PYTHONPATH"] = os.pathsep.join(paths)
    done = python("-c", SCRIPT, *CALLS, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_what_was_not_requested_falls_back_with_one_warning(found):
    assert {pin for pin, _ in found["obtained"]} == {"none"}
    assert "thp" not in {pages for _, pages in found["obtained"]}
    assert found["measured"] == ["none", True, "auto"]
    assert {"load", "triad"} <= {*found["subjects"]}
    for call, what in (
        ("sched_setaffinity", "threads are not pinned"),
        ("madvise", "no huge pages"),
    ):
        about = [text for text in found["warnings"] if call in text]
        assert len(about) == 1, found["warnings"]
        assert about[0].startswith(what)
        assert f"not permit {call} (Operation not permitted)" in about[0]
        assert "seccomp=unconfined" in about[0]


def test_what_was_requested_is_refused_with_the_cause_and_the_cure(found):
    calls = dict(zip(("pin", "pages", "numa", "counters"), CALLS, strict=True))
    for name, text in found["refusals"].items():
        assert f"not permit {calls[name]} (Operation not permitted)" in text
        assert "seccomp=unconfined" in text
    assert found["refusals"]["pin"].startswith("pin 'compact' was refused")
    assert "--cap-add SYS_NICE" in found["refusals"]["numa"]
    assert "--cap-add PERFMON" in found["refusals"]["counters"]
    assert found["unpinned"] == "none"
