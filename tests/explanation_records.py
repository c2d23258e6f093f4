"""Scripted outcomes of experiments, whose causes are known by construction."""

from memkern.results.explanation import MOVING, UNEXPLAINED, Explanation, Tried
from memkern.spec.experiments import LEFT, LEVEL, LIMIT, WITHOUT


def tried(name, ratio, cause="", role=WITHOUT, within="", option="", half=0.01, rounds=5):
    return Tried(name, role, cause, within, option, ratio, half, rounds)


def level(cache, ratio):
    return tried(f"data in {cache}", ratio, cache, LEVEL)


def explained(*rows, unit_s=33e-9):
    return Explanation("a.kernel", "an access", unit_s, rows)


MEMORY = (level("L1", 0.02), level("L2", 0.03), level("L3", 0.2))
NEAR = tried("stream", 0.95, "bandwidth of memory", LIMIT)
FAR = NEAR._replace(ratio=0.2)
ORDER = tried("ascending", 0.45, "order", within=MOVING)
PAGES = tried("huge pages", 0.6, "page walks", within="order", option="--pages thp")
LINE = tried("one line", 0.1, "work", LEFT)
NOTHING = tried("one thread", 1.4, "contention")

# By construction: what was tried, and the cause that comes first.
CASES = {
    "a loop in L1": ((level("L1", 1.0),), "the core and L1"),
    "a copy with ordinary stores": (
        (*MEMORY, NEAR, tried("nt", 0.72, "reads of written lines")),
        "reads of written lines",
    ),
    "a copy from memory by all threads": ((*MEMORY, NEAR, NOTHING), "bandwidth of memory"),
    "a chase over small pages": ((*MEMORY, FAR, PAGES), "page walks"),
    "a random gather": ((*MEMORY, FAR, ORDER, LINE._replace(ratio=0.4)), "order"),
    "a random gather over small pages": ((*MEMORY, FAR, ORDER, PAGES, LINE), "page walks"),
    "a gather of one line": ((LINE._replace(ratio=1.0), NOTHING), "work"),
    "a scatter into one line": ((NOTHING._replace(ratio=0.3),), "contention"),
    "a short triad": ((NOTHING, tried("region", 0.05, "launch")), "launch"),
    "two experiments for one cause": (
        (tried("padding", 0.5, "lines"), tried("more padding", 0.3, "lines"), NOTHING),
        "lines",
    ),
    "nothing": ((*MEMORY, FAR, NOTHING), UNEXPLAINED),
    "too little": ((*MEMORY, FAR, tried("nt", 0.8, "reads")), UNEXPLAINED),
    "what is not certain": ((*MEMORY, FAR, ORDER._replace(half_width=1.0)), UNEXPLAINED),
}
