"""The questions that the command line answers most often, each with its command."""

from __future__ import annotations

QUESTIONS = (
    ("What is my copy bandwidth, and is it healthy?", "memkern stream -k copy"),
    ("How does a gather depend on its stride, beside a Skylake?", "memkern suite ustride-cpu"),
    ("Is CRS or SELL faster for this matrix?", "memkern spmv FILE.mtx"),
    (
        "Do huge pages help?",
        'memkern compare --run stream.triad --a="--pages 4k" --b="--pages thp"',
    ),
    ("What are T0 and Wmax of BS1?", "memkern bs 1 --sizes 64KiB:512MiB:60"),
    ("What are the idle and the loaded latency of memory?", "memkern latency loaded"),
    (
        "What does false sharing cost?",
        "memkern amo --kernel central --sharing private --padding 0,64",
    ),
    (
        "Why does this case take so long, and what helps?",
        "memkern stream -k triad --explain",
    ),
    (
        "How fast is my own loop, and is that number true?",
        'memkern run --expr "a[i] = b[i] + s * c[i]"',
    ),
    (
        "Is this node slower than last week? (`memkern doctor -o week.db` wrote the file)",
        "memkern doctor --baseline week.db",
    ),
    (
        "Does a pull request make memkern slower?",
        "memkern compare --run FILE.toml --a-python OLD --b-python NEW --fail-on slower:5",
    ),
)
"""Questions, and the command that answers each of them."""


def screen() -> str:
    """Return the questions with their commands, for a screen of 24 lines."""
    lines = ["Questions that memkern answers, each by one command:"]
    for question, command in QUESTIONS:
        lines += [f"  {question}", f"      {command}"]
    lines.append("`memkern --help` lists all verbs, `memkern VERB --help` the options of one.")
    return "\n".join(lines)
