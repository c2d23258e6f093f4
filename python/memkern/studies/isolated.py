"""A process that runs code of users for this one: it may crash or not end.

It is started once, and gets functions and arguments pickled.
"""

from __future__ import annotations

import atexit
import base64
import importlib
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle

from memkern.errors import DeviceError, InputError, warn
from memkern.formats import load
from memkern.isolating import ended_by, enter, limit
from memkern.studies.workers import Answer, WorkerProcess, run_worker

_KINDS = {kind.__name__: kind for kind in (InputError, DeviceError, MemoryError)}
_workers: list[WorkerProcess] = []


def call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function of a module in the process, and return its result.

    `progress` is not passed on. After Ctrl-C, the result is what the function returns then. If the
    process ends during a sweep without a file, the result is what was measured before, if anything.

    Raises
    ------
    InputError
        The process ended: code crashed, or did not end in time; or the function raised it.
    MemoryError, DeviceError
        The function raised it.
    """
    options = {name: value for name, value in options.items() if name != "progress"}
    if isinstance(options.get("output"), (str, Path)):
        # The process was started in another folder, perhaps.
        options["output"] = Path(options["output"]).absolute()
    if function.__name__ != "sweep" or options.get("output") is not None:
        return _call(function, args, options)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results.db"
        try:
            return _call(function, args, {**options, "output": path})
        except InputError as error:
            kept = load(path) if path.exists() else None
            if not kept:
                raise
            warn(f"{error}; records from before are kept: {len(kept)}")
            kept.interrupted = True
            return kept


def _call(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call a function in the process (see `call`)."""
    request = (function.__module__, function.__qualname__, args, options)
    if not _workers:
        _workers.append(WorkerProcess("runs own kernels", __name__, session=True))
        atexit.register(_workers[0].close)
    worker = _workers[0]
    worker.send(json.dumps({"call": _text(cloudpickle.dumps(request))}).encode() + b"\n")
    try:
        try:
            answer = worker.answer()
        except KeyboardInterrupt:
            worker.process.send_signal(signal.SIGINT)
            answer = worker.answer()
    except InputError:
        _workers.remove(worker)
        atexit.unregister(worker.close)
        worker.close()
        if (worker.process.returncode or 0) < 0:
            raise InputError(ended_by(-worker.process.returncode)) from None
        raise
    for text in answer["warnings"]:
        warn(text)
    if "error" in answer:
        raise _KINDS[answer["kind"]](answer["error"])
    return cloudpickle.loads(base64.b64decode(answer["result"]))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def serve(requests: Iterable[bytes], answer: Answer) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        text = json.loads(line)["call"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                module, name, args, options = cloudpickle.loads(base64.b64decode(text))
                function = getattr(importlib.import_module(module), name)
                found = {"result": _text(cloudpickle.dumps(function(*args, **options)))}
            except tuple(_KINDS.values()) as error:
                kind = next(k for k, each in _KINDS.items() if isinstance(error, each))
                found = {"error": str(error) or "out of memory", "kind": kind}
            limit(0)
        answer(**found, warnings=[str(one.message) for one in caught])


def main(_: Sequence[str]) -> int:
    """Serve on standard input and output."""
    enter()
    return run_worker(serve)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
