"""The command line: one contract for every verb.

A table for people goes to standard output, progress and warnings to standard error. Exit codes:
0 good, 1 a result failed its validation, 2 wrong input, 3 a gate (``--fail-on``) failed, 130
interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from memkern.cli import amo, analysis, compare, dw, machine, spatter, spmv, streaming, sweep
from memkern.cli.measuring import warn
from memkern.cli.options import FAILED, GOOD, INTERRUPTED, INVALID, WRONG_INPUT, Parser
from memkern.errors import InputError

__all__ = ["FAILED", "GOOD", "INTERRUPTED", "INVALID", "WRONG_INPUT", "build_parser", "main"]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = Parser(prog="memkern", description="How fast this machine really moves data.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)

    def verb(name: str, run: Callable[[argparse.Namespace], int], help: str) -> Parser:
        sub: Parser = verbs.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        return sub

    # The help lists the verbs in this order.
    for module in (machine, spatter, streaming, amo, spmv, dw, sweep, compare, analysis):
        module.add_verbs(verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = build_parser()
    args, extra = parser.parse_known_args(argv)
    if extra and hasattr(args, "files") and not any(word.startswith("-") for word in extra):
        # argparse takes files only in one place; people put them after options as well.
        args.files += extra
    elif extra:
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    if args.version:
        import memkern

        print(f"memkern {memkern.__version__}")
        return GOOD
    if args.verb is None:
        parser.print_help()
        return WRONG_INPUT
    warnings.showwarning = lambda message, *rest, **more: warn(str(message))
    try:
        code = int(args.run(args))
        sys.stdout.flush()  # while somebody can still be told that nobody reads it
        return code
    except (InputError, MemoryError) as error:
        warn(str(error) or "out of memory")
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        warn(f"the operating system refused{where}: {error.strerror or error}")
    except KeyboardInterrupt:
        warn("interrupted")
        return INTERRUPTED
    return WRONG_INPUT
