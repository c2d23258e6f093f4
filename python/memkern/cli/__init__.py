"""The command line, whose verbs all follow these conventions.

Tables go to standard output, progress and warnings to standard error. Exit codes:
0 good, 1 a result failed its validation, 2 wrong input or a device that does not work, 3 a gate
(``--fail-on``, ``doctor --baseline``) failed, 4 it could not decide, 130 interrupted, 143
terminated.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TextIO, cast

from memkern import isolating, launcher, progress, small
from memkern.checks import meant
from memkern.cli import (
    analysis,
    compare,
    ecm,
    machine,
    machine_file,
    questions,
    report,
    sweep,
    tracing,
    turns,
)
from memkern.cli.measuring import warn
from memkern.cli.options import (
    FAILED,
    GOOD,
    GROUPS,
    INTERRUPTED,
    INVALID,
    TERMINATED,
    WRONG_INPUT,
    Verb,
)
from memkern.cli.parsing import Parser
from memkern.discovery import above, family_module, family_modules, family_of
from memkern.errors import DeviceError, InputError, interrupted_by
from memkern.files import reason
from memkern.machine import settings
from memkern.spec.registry import registry

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


class Stream:
    """Standard stream that records its first error and discards all later output.

    Attributes
    ----------
    error : OSError or None
        The first failure.
    raises : bool
        Whether an error is also raised.
    """

    def __init__(self, stream: TextIO) -> None:
        """Wrap a stream."""
        self._stream = stream
        self.error: OSError | None = None
        self.raises = False

    def write(self, text: str) -> int:
        """Write a text."""
        with self._recording_error():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write the buffered text."""
        with self._recording_error():
            self._stream.flush()

    @contextlib.contextmanager
    def _recording_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Buffered text would fail again when the interpreter exits.
            with contextlib.suppress(OSError):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, self._stream.fileno())
                os.close(nothing)
            self.error = self.error or error
            if self.raises:
                raise

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)


@contextlib.contextmanager
def standard_streams() -> Iterator[Stream]:
    """Prevent errors and unencodable characters of the standard streams from ending the run.

    Yields
    ------
    Stream
        Standard output.
    """
    before = sys.stdout, sys.stderr
    streams = []
    for stream in before:
        if stream is None:  # closed before the interpreter started
            stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
        streams.append(Stream(stream))
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in streams)
    try:
        yield streams[0]
    finally:
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


# Verbs of earlier versions, which are taken until 1.0, and the words that replace them.
ALIASES = {
    "barrier": "machine barrier",
    "counters": "machine counters",
    "fleet": "compare fleet",
    "gallery": "report gallery",
    "gather": "spatter -k gather",
    "incore": "machine incore",
    "instructions": "machine instructions",
    "merge": "export",
    "scatter": "spatter -k scatter",
}


_DESCRIPTION = """Measure how fast this machine moves data.

`memkern` alone prints the questions that it answers, each with its command."""


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Parameters
    ----------
    words : sequence of str, optional
        Words to parse (see `_command`): options are added only to verbs among these words, by
        default to all verbs.
    """
    # The list of verbs is in the epilog, by groups.
    usage = "memkern [-h] [--version] VERB ..."
    parser = Parser(prog="memkern", usage=usage, description=_DESCRIPTION)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(
        dest="verb", prog="memkern", metavar="VERB", help=argparse.SUPPRESS, parser_class=Parser
    )
    # If the first word is a verb, neither help nor errors list the others.
    there = _verbs(words[0].partition(" ")[0] if words else "").values()
    parser.epilog = _by_group(there)
    for verb in there:
        examples = "".join(f"\n  {command}" for command in verb.examples)
        parts = [part for part in there if part.name.startswith(f"{verb.name} ")]
        listed = "".join(f"\n  memkern {part.name}: {part.help}" for part in parts)
        about = verb.help + f"\n\nParts with options of their own:{listed}" * bool(parts)
        sub = verbs.add_parser(verb.name, description=about, epilog=f"examples:{examples}")
        sub.set_defaults(run=verb.run, parser=sub)
        if words is None or verb.name in words:
            for options in verb.options:
                options(sub)
    return parser


def _by_group(verbs: Collection[Verb]) -> str:
    """Return the list of verbs in the help, by their groups, without the parts of verbs."""
    lines = {group: [f"to {group}:"] for group in GROUPS}
    whole = [verb for verb in verbs if " " not in verb.name]
    width = max(len(verb.name) for verb in whole)
    for verb in whole:
        lines[verb.group].append(f"  {verb.name:<{width}}  {verb.help}")
    return "\n\n".join(map("\n".join, lines.values()))


def _command(words: Sequence[str]) -> list[str]:
    """Return the words of a command with its verb, even a part, as one word; replace old verbs."""
    if words and words[0] in ALIASES:
        words = [*ALIASES[words[0]].split(), *words[1:]]
    two = " ".join(words[:2])
    return [two, *words[2:]] if words[1:] and two in _verbs(words[0]) else [*words]


def _verbs(first: str = "") -> dict[str, Verb]:
    """Return the verbs by name in the order of the help: those that begin with a word, or all."""
    own = family_module(family_of(first), "verb")
    verbs = _verbs_of([own]) if own else {}
    if first not in verbs:
        measuring = [machine, machine_file, ecm, *family_modules("verb"), sweep, turns]
        verbs = _verbs_of([*measuring, tracing, compare, analysis, report])
    return {n: verb for n, verb in verbs.items() if n.partition(" ")[0] == first} or verbs


def _verbs_of(modules: Sequence[ModuleType]) -> dict[str, Verb]:
    found = (value for module in modules for value in vars(module).values())
    return {verb.name: verb for verb in found if isinstance(verb, Verb)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    # It logs the creation of folders and font caches.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with standard_streams() as output, contextlib.ExitStack() as stack:
        errors = sys.stderr
        target = None
        try:
            # Only the first of several ranks prints, except errors in a rank's own words.
            silent = launcher.number() > 0
            if silent:
                opened = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                nothing = Stream(opened)
                stack.enter_context(contextlib.redirect_stdout(nothing))
            args = _parse(words)
            comm = getattr(args, "comm", "auto")
            if (os.environ.get(launcher.COMM) if comm == "auto" else comm) == "none":
                stack.close()
            elif silent:
                stack.enter_context(contextlib.redirect_stderr(nothing))
            target = getattr(args, "output", None)
            # A run with an output file continues when the reader of standard output has gone.
            output.raises = target is None
            code = _main(args, words, errors)
        except SystemExit as end:  # by the parser
            code = end.code if isinstance(end.code, int) else GOOD
        except OSError as error:
            if error is not output.error:
                raise
            code = GOOD
        output.raises = False
        output.flush()  # while an error can still be reported
        # A closed pipe is no error: its reader needs no more output.
        if output.error is None or isinstance(output.error, BrokenPipeError):
            return code
        saved = f"; {target} is complete" if target and os.path.exists(target) else ""
        warn(f"standard output can't be written: {reason(output.error)}{saved}")
        return code or WRONG_INPUT


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    words = _command(words)
    parser = build_parser(words)
    args, extra = parser.parse_known_args(words)
    listed = getattr(args, "files", getattr(args, "kernels", None))
    if extra and listed is not None and not any(word.startswith("-") for word in extra):
        # argparse accepts a list in one place only; users may put some words after options.
        listed += extra
    elif extra:
        own = getattr(args, "parser", parser)
        options = own._option_string_actions
        near = meant(extra[0].partition("=")[0], options)
        if "--kernel" in options and f"{args.verb}.{extra[0]}" in registry():
            near = f": did you mean --kernel {extra[0]}?"
        if getattr(args, "run_file", None):
            near = near or f": an option of a kernel must {compare.AFTER_KERNEL}"
        own.error(f"unrecognized arguments: {' '.join(extra)}{near}")
    if args.verb is None and not args.version:
        print(questions.screen())
        parser.exit(GOOD)
    return args


def _main(args: argparse.Namespace, words: Sequence[str], errors: TextIO) -> int:
    """Run the parsed command line and return its exit code (for `errors` see `_run`)."""
    if args.version:
        from importlib.metadata import version

        print(f"memkern {version('memkern')}")
        return GOOD
    quiet = getattr(args, "quiet", False)
    if words[0] in ALIASES and not quiet:
        warn(f"`memkern {words[0]}` is `memkern {ALIASES[words[0]]}` now")
    warnings.showwarning = lambda message, *rest, **more: warn(str(message))
    if small.wanted() and not quiet:
        warn(f"{small.VARIABLE} is set: cases are small, and their results are meaningless")
    with (
        _terminated_as_interrupted() as terminated,
        progress.announcing(not quiet),
    ):
        code, resumable = _run(args, words, errors)
    if resumable:
        _print_resume_command(args, words)
    return TERMINATED if terminated and code == INTERRUPTED else code


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[list[int]]:
    """Let SIGTERM interrupt like Ctrl-C; the yielded list contains the received signal, if any."""
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_resume_command(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Print the command that resumes the run, if there are results to resume from."""
    if not hasattr(args, "resume") or not args.output:
        return
    from memkern.formats.resultset import working_file

    output = Path(args.output)
    # The records of a report are in a file next to it.
    results = output.with_suffix(".parquet") if output.suffix == ".html" else output
    if (results if results.suffix == ".db" else working_file(results)).exists():
        others = [word for word in words if word not in ("--force", "--resume")]
        warn(f"resume with: memkern {shlex.join([*others, '--resume'])}")


def _ranks(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Return the context in which all processes of a launcher run a verb together.

    Raises
    ------
    InputError
        The processes can't run the verb together.
    """
    comm = launcher.comm(getattr(args, "comm", "auto"))
    if comm == "none" and launcher.size() == 1:
        return contextlib.nullcontext()
    if comm != "none" and not (hasattr(args, "comm") and getattr(args, "over_ranks", True)):
        if launcher.size() == 1:
            raise InputError(f"memkern {args.verb} runs as one process: leave --comm {comm} out")
        raise InputError(
            f"memkern {args.verb} runs as one process, not as {launcher.size()} ranks: start it "
            f"without the launcher (or, as separate processes, with {launcher.COMM}=none)"
        )
    from memkern.engine.public import start

    return start(comm, _thread_level(args)).together()


def _thread_level(args: argparse.Namespace) -> str:
    """Return the thread level: which threads of a rank call the communication library."""
    if args.verb == "sweep":
        return "multiple"
    if not getattr(args, "device", None):
        # Kernels on processors have several threads, but only the main thread calls it.
        return "funneled"
    threads = args.threads or 1
    most = max(threads if isinstance(threads, list) else [threads])
    return "multiple" if most > 1 else "single"


def _run(args: argparse.Namespace, words: Sequence[str], errors: TextIO) -> tuple[int, bool]:
    """Run a verb, print its error if any, and return its exit code and whether it can resume.

    Settings that a killed process has changed are restored before.

    An error of ranks that do not communicate goes to `errors`, since no other rank prints it.
    """
    said = ""
    try:
        try:
            settings.recover()
        except InputError as failure:
            # Only measurements depend on them, and they are refused with the same sentence.
            said = str(failure)
            warn(said)
        with _ranks(args):
            code = int(args.run(args))
        return code, code == INTERRUPTED
    except KeyboardInterrupt:
        warn("interrupted")
        return INTERRUPTED, True
    except isolating.NotIsolated:
        code = isolating.run_again(words)
        if code < 0:
            warn(isolating.ended_by(-code))
        return (INVALID if code < 0 else code), False
    except (InputError, MemoryError, DeviceError) as error:
        if not said or str(error) != said:
            connected = "memkern.engine" in sys.modules and above("engine").connected()
            with contextlib.nullcontext() if connected else contextlib.redirect_stderr(errors):
                warn(str(error) or "out of memory")
        return WRONG_INPUT, interrupted_by(error) is not None
    except OSError as error:
        if error is cast(Stream, sys.stdout).error:
            raise
        where = f" {error.filename!r}" if error.filename else ""
        warn(f"the operating system refused{where}: {reason(error)}")
        return WRONG_INPUT, interrupted_by(error) is not None
