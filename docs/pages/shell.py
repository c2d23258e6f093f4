"""The reference of the command line, from its parsers."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from memkern import cli
from memkern.cli.options import GROUPS, Verb
from pages.text import cell, code, put, rows, tree

COMMON = ("results", "how to measure")
"""Titles of the groups of options that measuring verbs share."""

_HELP = (["-h", "--help"], ["--help-all"])

_HEAD = """# Command line

`memkern VERB --help` prints the same text. Options that measuring verbs share are on
[a page of their own](measuring.md); verbs that choose their own cases have only some of them, as
[commands and options](../../commands.md) lists.

"""


def write(folder: Path) -> list[Path]:
    """Write a list of all verbs, a page for each group of verbs, and that of the common options."""
    verbs = list(cli._verbs().values())
    parsers = _parsers()
    shared = _shared(parsers)
    parts = [_HEAD, tree(*GROUPS, "measuring")]
    made = []
    for group in GROUPS:
        of_group = [verb for verb in verbs if verb.group == group]
        body = [[f"[{code(verb.name)}](#{_anchor(verb)})", cell(verb.help)] for verb in of_group]
        parts.append(f"\n## To {group}\n\n{rows(['verb', 'what'], body)}")
        text = f"# Verbs to {group}\n\n" + "".join(
            _verb(verb, parsers[verb.name], shared) for verb in of_group
        )
        made.append(put(folder / "shell" / f"{group}.md", text))
    common = f"# Options of measuring verbs\n\nDefaults are in parentheses.\n\n{_table(shared)}"
    made.append(put(folder / "shell" / "measuring.md", common))
    return [*made, put(folder / "shell" / "index.md", "".join(parts))]


def _parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of all verbs by name."""
    actions = cli.build_parser()._actions
    (found,) = (a.choices for a in actions if isinstance(a, argparse._SubParsersAction))
    return dict(found)


def _shared(parsers: dict[str, argparse.ArgumentParser]) -> list[argparse.Action]:
    """Return the options of the common groups that more than half of the measuring verbs have."""
    groups = [g for p in parsers.values() for g in p._action_groups if g.title in COMMON]
    verbs = sum(group.title == COMMON[-1] for group in groups)
    counts: Counter[str] = Counter()
    actions: dict[str, argparse.Action] = {}
    for action in (action for group in groups for action in group._group_actions):
        counts[action.dest] += 1
        actions.setdefault(action.dest, action)
    return [action for dest, action in actions.items() if 2 * counts[dest] > verbs]


def _anchor(verb: Verb) -> str:
    """Return the name of a verb's section in links."""
    return f"verb-{verb.name.replace(' ', '-')}"


def _verb(verb: Verb, parser: argparse.ArgumentParser, shared: list[argparse.Action]) -> str:
    """Return the section of a verb: what it does, its own options by group, and examples."""
    parts = [f"({_anchor(verb)})=\n## {code(verb.name)}\n\n{_sentence(verb.help)}.\n\n"]
    measures = any(group.title == COMMON[-1] for group in parser._action_groups)
    common = {action.dest for action in shared if measures}
    for group in parser._action_groups:
        own = [action for action in group._group_actions if action.option_strings not in _HELP]
        if group.title in COMMON:
            own = [action for action in own if action.dest not in common]
        if own:
            plain = group.title in (None, "options", "positional arguments", *COMMON)
            title = "" if plain else f"{_sentence(str(group.title))}:\n\n"
            parts.append(f"{title}{_table(own)}\n")
    if measures:
        parts.append("It takes [the options of measuring verbs](measuring.md) as well.\n\n")
    if verb.examples:
        parts.append("```console\n" + "\n".join(verb.examples) + "\n```\n\n")
    return "".join(parts)


def _sentence(text: str) -> str:
    return cell(text[:1].upper() + text[1:])


def _table(actions: list[argparse.Action]) -> str:
    return rows(["option", "meaning"], [[_words(a), _meaning(a)] for a in actions])


def _words(action: argparse.Action) -> str:
    """Return an option's words with its value, or the placeholder of a positional argument."""
    value = "" if action.nargs == 0 else _value(action)
    names = ", ".join(map(code, action.option_strings))
    return f"{names} {cell(value)}".strip() if names else code(value)


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.metavar or (action.dest.upper() if action.option_strings else action.dest)


def _meaning(action: argparse.Action) -> str:
    help = (action.help or "") % {**vars(action), "prog": "memkern"} if action.help else ""
    return cell(" ".join(help.split()))
