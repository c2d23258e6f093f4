"""The command ``memkern``, which ends with exit code 130 after Ctrl-C at any time."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

# Equal to those of `memkern.cli`, whose import takes too long here.
_WRONG_INPUT, _INTERRUPTED = 2, 130


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"memkern: interrupted\n")
    os._exit(_INTERRUPTED)


def main() -> int:
    """Run the command line and return its exit code.

    During imports nothing was measured or written yet, so Ctrl-C ends the process at once.
    """
    # OpenBLAS starts a thread for each processor when NumPy is imported, which waits beside
    # measurements, and where a limit refuses them it sends an interrupt.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Shells make background commands ignore it.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    try:
        from memkern import cli

        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return cli.main()
    except (KeyboardInterrupt, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("memkern"):
            print(
                f"memkern: this Python has no module {error.name}:",
                "use one that was built with it"
                if error.name in sys.stdlib_module_names
                else "install it",
                file=sys.stderr,
            )
            return _WRONG_INPUT
        # Outside of the verb, which has its own handler. The extension's import turns it into an
        # ImportError.
        if isinstance(error, ImportError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end(signal.SIGINT, None)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the remaining work saves results


if __name__ == "__main__":
    sys.exit(main())
