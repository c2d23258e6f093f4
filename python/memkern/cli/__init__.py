"""The command line: one contract for every verb.

A table for people goes to standard output, progress and warnings to standard error. Exit codes:
0 good, 1 a result failed its validation, 2 wrong input, 3 a gate (``--fail-on``) failed, 130
interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from memkern.cli import amo, analysis, compare, dw, machine, spatter, spmv, streaming, sweep
from memkern.cli.measuring import warn
from memkern.cli.options import (
    FAILED,
    GOOD,
    INTERRUPTED,
    INVALID,
    TERMINATED,
    WRONG_INPUT,
    Parser,
)
from memkern.errors import InputError

__all__ = [
    "FAILED",
    "GOOD",
    "INTERRUPTED",
    "INVALID",
    "TERMINATED",
    "WRONG_INPUT",
    "build_parser",
    "main",
]


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


def _prepare_streams() -> None:
    """Have characters that a terminal lacks, and streams that are closed, end no run."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _prepare_streams()
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
    with _terminated_as_interrupted() as terminated:
        code = _run(args)
    if code != INTERRUPTED:
        return code
    _say_how_to_resume(args, sys.argv[1:] if argv is None else argv)
    return TERMINATED if terminated else INTERRUPTED


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[list[int]]:
    """Have SIGTERM end what is measured as Ctrl-C does; what is yielded holds it if it came."""
    came: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_how_to_resume(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Say which command goes on, if there is something to go on with."""
    if not hasattr(args, "resume") or not args.output:
        return
    from memkern.results.resultset import working_file

    output = Path(args.output)
    # The report's records stand beside it.
    results = output.with_suffix(".parquet") if output.suffix == ".html" else output
    if (results if results.suffix == ".db" else working_file(results)).exists():
        kept = [word for word in words if word not in ("--force", "--resume")]
        warn(f"go on with: memkern {shlex.join([*kept, '--resume'])}")


def _run(args: argparse.Namespace) -> int:
    """Run a verb; what goes wrong becomes one sentence and an exit code."""
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
