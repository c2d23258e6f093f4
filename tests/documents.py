"""Blocks and commands of the documentation."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from memkern import cli
from memkern.engine.sweeping import sweep as sweep


def blocks(document: Path) -> list[tuple[str, str]]:
    """Kind and text of every fenced block."""
    text = document.read_text()
    found = re.findall(r"^```(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert 2 * len(found) == len(re.findall("^```", text, re.MULTILINE))
    return found


def commands(block: str) -> Iterator[str]:
    """Commands of a shell block, each with its continuation lines and here-document."""
    lines = iter(block.splitlines())
    for line in lines:
        command = line
        while command.endswith("\\"):
            command = command[:-1] + next(lines).lstrip()
        if here := re.search(r"<<'?(\w+)'?", command):
            while not command.endswith(f"\n{here[1]}"):
                command += "\n" + next(lines)
        if shlex.split(command.partition("\n")[0], comments=True):
            yield command


def options_of_verbs() -> dict[str, set[str]]:
    (verbs,) = (a.choices for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    return {
        name: {word[2:] for word in parser._option_string_actions if word.startswith("--")}
        for name, parser in verbs.items()
    }
