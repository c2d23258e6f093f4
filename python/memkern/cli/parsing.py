"""The parser of the command line, whose errors are one sentence."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from typing import Any, NoReturn, cast

from memkern.checks import unknown
from memkern.cli.options import WRONG_INPUT
from memkern.spec.registry import registry


class _HelpAll(argparse._HelpAction):
    """The option that prints the help with all options."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        """Print the help and exit."""
        cast(Parser, parser).further.clear()
        super().__call__(parser, *rest)


class _Store(argparse.Action):
    """Store the value of an option; warn if it replaces one that was given before."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value."""
        given = cast(Parser, parser).given
        if option_string and self in given:
            text = f"{option_string} is given more than once, and only its last value counts"
            print(f"{parser.prog}: {text}", file=sys.stderr)
        given.append(self)
        setattr(namespace, self.dest, values)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Formatter with line breaks in the epilog, and none within options and commands."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Argument parser with line breaks in its epilog, and errors of one sentence.

    Attributes
    ----------
    further : set of str
        Options that only the whole help describes.
    given : list of argparse.Action
        Options that the command line has, as far as it is parsed.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(formatter_class=_Formatter, **how)
        self.further: set[str] = set()
        self.given: list[argparse.Action] = []
        self.register("action", None, _Store)
        self.register("action", "help_all", _HelpAll)

    def parse_known_args(self, *what: Any, **how: Any) -> Any:
        """Parse a command line, of which no option is given yet."""
        self.given.clear()
        return super().parse_known_args(*what, **how)

    def format_help(self) -> str:
        """Return the help."""
        hidden = {a: a.help for a in self._actions if a.dest in self.further}
        for action in hidden:
            action.help = argparse.SUPPRESS
        text = super().format_help()
        for action, help in hidden.items():
            action.help = help
        return text

    def error(self, message: str) -> NoReturn:
        """Exit with the message."""
        # argparse's message lists all choices; ours has the nearest ones.
        found = re.fullmatch(
            r"(?:argument (?P<name>\S+): )?invalid choice: '?(?P<value>.*?)'? "
            r"\(choose from (?P<all>.*)\)",
            message,
            re.DOTALL,
        )
        if found:
            choices = [word.strip("' ") for word in found["all"].split(",")]
            what = "verb" if found["name"] == "VERB" else found["name"] or "choice"
            message = str(unknown(found["value"], what, choices))
            if what == "verb" and (owners := _owners(found["value"], choices)):
                message = f"kernel {found['value']} is measured by {', '.join(owners)}"
        command = self.prog.partition(" --")[0]
        self.exit(WRONG_INPUT, f"{self.prog}: {message} (see {command} --help)\n")


def _owners(kernel: str, verbs: list[str]) -> list[str]:
    """Return the commands of the families that have a kernel of this name."""
    names = (name.partition(".") for name in registry())
    return [f"memkern {family}" for family, _, name in names if name == kernel and family in verbs]
