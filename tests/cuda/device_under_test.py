"""The device of the tests in this folder: a GPU, or this processor if there is none.

Without a GPU the same kernels run on this processor, block by block (tests/emulated), which does
not test a device's atomics, shuffles, clocks and speed.
"""

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checking import BUILD

from memkern.machine import gpu
from memkern.spec.case import Case
from memkern.spec.options import Knobs

TREE = Path(__file__).parents[2]
# Kernels whose cases are for a number of workers or for one memory.
OWN_TESTS = ("latency.chase", "latency.banks", "transfers.")
MODULE = "memkern._memkern_cuda"


def emulated_file() -> Path:
    """Return the file of the module whose device is this processor."""
    found = sorted((BUILD / "emulated").glob("_memkern_cuda*.so"))
    if not found:
        pytest.fail(f"{BUILD} has no emulated device: `make test` builds it")
    return found[0]


def emulated() -> Any:
    """Return the module whose device is this processor."""
    # The real module may be imported already, so the name must differ.
    spec = importlib.util.spec_from_file_location("emulated._memkern_cuda", emulated_file())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HAS_GPU = bool(gpu.devices())
CUDA = importlib.import_module(MODULE) if HAS_GPU else emulated()
ENTRIES = CUDA.entries()
ONLY_EMULATED = pytest.mark.skipif(
    HAS_GPU,
    reason="only the emulated device has known properties, and failures and settings on request",
)


def on_device(case: Case, **knobs: Any) -> Case:
    """Return a case on the GPU, without the knobs of processors."""
    own = {"offset": case.knobs.offset, "seed": case.knobs.seed, "device": "cuda", **knobs}
    changes = {k: own.pop(k) for k in ("dtype", "index_dtype", "template_variant") if k in own}
    if case.spec.name.startswith("amo."):
        own["threads"] = case.knobs.threads
    return dataclasses.replace(case, knobs=Knobs(**own)).with_(runs=2, **changes)


# Keys of which the chosen entries cover all values: kernel and variant, variant and operation of
# atomics, kernel and number of vectors or instances of a thread, variant and type.
KEYS: tuple[Callable[[Any], Any], ...] = (
    lambda e: (e[0], e[1]),
    lambda e: (e[1], *e[5].split("/")),
    lambda e: (e[0], e[4]),
    lambda e: (e[1], e[2]),
)
TWO_GPUS = len(gpu.devices()) > 1 if HAS_GPU else True


class Nvml:
    """A fake NVML with one device; `reasons` returns the bits of its reasons for slowing down."""

    class NVMLError(Exception):
        pass

    def __init__(self, reasons: Callable[[], int] = lambda: 0) -> None:
        self.reasons = reasons

        self.settings: dict[str, Any] = {}

    def nvmlInit(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        try:
            value = self.settings[name.removeprefix("nvmlDeviceGet")]
        except KeyError:
            raise AttributeError(name) from None
        return lambda device, *arguments: value

    def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> bytes:
        return bus

    def nvmlDeviceGetClockInfo(self, device: bytes, kind: int) -> int:
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: bytes) -> int:
        return self.reasons()

    def nvmlDeviceGetPowerUsage(self, device: bytes) -> int:
        return 350_000
