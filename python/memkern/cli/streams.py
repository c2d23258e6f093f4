"""Standard output and standard error that may be closed, full, or without a reader."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

__all__ = ["Stream", "standard_streams"]


class Stream:
    """A standard stream that remembers why it can't be written, and writes nothing from then on.

    Attributes
    ----------
    error : OSError or None
        The first failure.
    ends_run : bool
        Whether that failure is raised where it happens, too.
    """

    def __init__(self, stream: TextIO) -> None:
        """Take the place of a stream."""
        self._stream = stream
        self.error: OSError | None = None
        self.ends_run = False

    def write(self, text: str) -> int:
        """Write a text."""
        with self._remembered():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what has been kept back."""
        with self._remembered():
            self._stream.flush()

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What the stream keeps back would fail again when the interpreter ends.
            with contextlib.suppress(OSError):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, self._stream.fileno())
                os.close(nothing)
            self.error = self.error or error
            if self.ends_run:
                raise

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the stream has."""
        return getattr(self._stream, name)


@contextlib.contextmanager
def standard_streams() -> Iterator[Stream]:
    """Have no failure of a standard stream, and no character that it lacks, end what is going on.

    Yields
    ------
    Stream
        Standard output.
    """
    before = sys.stdout, sys.stderr
    streams = []
    for stream in before:
        if stream is None:  # it was closed when the interpreter began
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
