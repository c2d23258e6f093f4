"""Processes that measure for this one and answer its requests, each in one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import IO, Any

from memkern.checks import shown
from memkern.errors import DeviceError, InputError
from memkern.files import reason
from memkern.formats.values import dumps
from memkern.launcher import python_command

# Writes an answer with the entries given by keyword.
Answer = Callable[..., None]


class WorkerProcess:
    """A process that answers requests.

    Parameters
    ----------
    what : str
        Description for errors: "the process that `what` ended".
    module : str
        Module that it runs, whose `main` calls `run_worker`.
    *words : str
        Arguments of the module.
    python : str
        The interpreter.
    session : bool
        Whether Ctrl-C in a terminal does not reach it.

    Raises
    ------
    InputError
        The interpreter can't be run.
    """

    def __init__(
        self,
        what: str,
        module: str,
        *words: str,
        python: str = sys.executable,
        session: bool = False,
    ) -> None:
        self._what = what
        with ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            try:
                self.process = subprocess.Popen(
                    python_command(module, *words, python=python),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    start_new_session=session,
                )
            except OSError as error:
                raise InputError(f"{python} can't be run: {reason(error)}") from None
            self._open = stack.pop_all()

    def send(self, content: bytes) -> None:
        """Write to its standard input; if the process has ended, `answer` raises the reason."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(content)
            self.process.stdin.flush()

    def request(self, verb: str, value: Any, /) -> dict[str, Any]:
        """Return the answer to a request, ``{verb: value}``.

        Raises
        ------
        InputError
            The process has ended.
        """
        self.send(json.dumps({verb: value}).encode() + b"\n")
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next answer of the process.

        Raises
        ------
        InputError
            The process has ended, or printed something else.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line.endswith(b"\n"):
            try:
                return dict(json.loads(line))
            except (ValueError, TypeError):
                text = line.decode(errors="replace").strip()
                raise InputError(
                    f"the process that {self._what} printed {shown(text)}: its interpreter must "
                    "be Python with memkern"
                ) from None
        code = self.process.wait()
        self._errors.seek(0)
        lines = [text.strip() for text in self._errors if text.strip()]
        why = lines[-1] if lines else f"exit code {code}" if code >= 0 else f"signal {-code}"
        raise InputError(f"the process that {self._what} ended: {why}")

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError), self.process:
            self.process.kill()
        self._open.close()


def run_worker(serve: Callable[[IO[bytes], Answer], None]) -> int:
    """Run a worker process on standard input and output, and return its exit code.

    Parameters
    ----------
    serve : callable
        Gets the requests and the function that answers. If it raises `InputError`, `MemoryError`
        or `DeviceError`, the last answer is ``{"error": "..."}``.
    """
    # Other output of this process goes to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(**content: Any) -> None:
        print(dumps(content), file=answers, flush=True)

    try:
        serve(sys.stdin.buffer, answer)
    except (InputError, MemoryError, DeviceError) as error:
        answer(error=str(error) or "out of memory")
        return 2
    return 0
