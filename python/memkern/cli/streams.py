"""Standard output and standard error that may be closed, full, or without a reader."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


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
