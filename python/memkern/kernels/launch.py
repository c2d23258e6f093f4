"""The empty kernel, which is what launching a parallel region costs, and work without memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from memkern.options import Knobs, Stop
from memkern.spec import Case, Check, Invoke, KernelSpec, Native, Traffic, register


def _check(case: Case, native: Native, invoke: Invoke) -> Check:
    invoke()
    return Check(valid=True, error_max=0.0, how="whole")


def _nothing(case: Case, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {}


def _case(kernel: str, **options: Any) -> Case:
    from memkern.spec import registry

    knobs = Knobs(variant="auto") if options.get("device", "cpu") == "cpu" else Knobs()
    return Case(registry()[kernel], knobs=knobs, stop=Stop(budget_s=1.0)).with_(**options)


def _spec(name: str, summary: str, source: str) -> None:
    register(
        KernelSpec(
            name=name,
            summary=summary,
            source=source,
            arrays=(),
            traffic=lambda case: Traffic(),
            iterations=lambda case: 1,
            check=_check,
            reference=_nothing,
            model_bytes=lambda case: 0.0,
            build=_case,
            dtypes=("float64",),
        )
    )


_spec("launch.empty", "fork and join only", "what an OpenMP parallel region costs")
_spec(
    "launch.compute",
    "a thousand dependent multiplications a worker",
    "Alappat et al. 2021, figure 3: work beside which a barrier's cost is seen",
)
_spec(
    "bs.bs0",
    "empty launch",
    "Chalmers and Warburton 2020, BS0: what launching a kernel costs, T0",
)


def launch(**options: Any) -> Case:
    """Case of the empty kernel.

    Parameters
    ----------
    **options
        Fields of `memkern.options.Knobs` and `memkern.options.Stop`.
    """
    return _case("launch.empty", **options)
