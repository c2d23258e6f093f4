"""The process that runs a case while another process measures others.

It reads a pickled case and the choice of its variant from its standard input, prepares the case and
answers ``{}``. From the first request to the second, it invokes the kernel repeatedly, and so on.
It answers the first request, ``{}``, after some invocations, and the second with the number of
invocations since then and the largest share of this time in which a worker waited for a processor:
``{"invocations": 40, "waited_share": 0.001}``. It ends with its standard input, even if the other
process was killed.
"""

from __future__ import annotations

import math
import pickle
import select
import signal
import time
from pathlib import Path
from typing import IO

from memkern.engine.public import ready
from memkern.extension import _memkern
from memkern.studies.workers import Answer, run_worker

# Seconds of invocations between two checks of the standard input.
_AT_ONCE_S = 0.02


def serve(requests: IO[bytes], answer: Answer) -> None:
    """Prepare the case and answer requests until there are no more."""
    prepared = ready(*pickle.load(requests))
    prepared.set_steady_inputs()
    at_once = math.ceil(_AT_ONCE_S / max(min(prepared.run(1) for _ in range(3)), 1e-6))
    answer()
    threads = prepared.obtained["threads"]
    while requests.readline():
        prepared.run(at_once)
        begin, before, invocations = time.perf_counter(), absent_s(threads), 0
        answer()
        # The next request waits for this answer, so it is not in the buffer. At least one
        # invocation, since the request may arrive before this process has a processor again.
        while True:
            prepared.run(at_once)
            invocations += at_once
            if select.select([requests], [], [], 0)[0]:
                break
        if not requests.readline():
            return
        absent = (s - before.get(thread, s) for thread, s in absent_s(threads).items())
        share = max(absent, default=0.0) / (time.perf_counter() - begin)
        answer(invocations=invocations, waited_share=max(share, 0.0))


def absent_s(threads: int) -> dict[str, float]:
    """Return the time that each thread of this process has waited for a processor.

    If the system does not report it, return one value: the mean time without a processor of
    `threads` threads that never sleep, of which only differences are meaningful.
    """
    if not _memkern.run_queue_delays_known():
        return {"": time.perf_counter() - time.process_time() / threads}
    # Nanoseconds on a processor, nanoseconds of waiting for one, and time slices.
    files = Path("/proc/self/task").glob("*/schedstat")
    return {file.parent.name: int(file.read_text("ascii").split()[1]) / 1e9 for file in files}


def main() -> int:
    """Serve on standard input and output."""
    # Ctrl-C is sent to both processes, but only the other one decides when both end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run_worker(serve)


if __name__ == "__main__":
    raise SystemExit(main())
