"""Guards: checks of a user's kernel that can't be met by doing less than it says.

The outputs of the timed invocations are compared with the reference. Then inputs that the kernel
has not seen and outputs that it has not written are put among the others, and the next invocation
must have their results, too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from memkern.discovery import above
from memkern.errors import InputError
from memkern.families.own.definition import Definition, Wanted
from memkern.families.own.roles import INDEX, LENGTH, READ, SUM, UPDATE, WRITE
from memkern.host.capacity import last_level_cache_B
from memkern.machine.caches import FROM_MEMORY
from memkern.shared.checking import difference, error, extent, positions
from memkern.spec.case import Case
from memkern.spec.kernel import Check, IndexArray, Native, Validation, fill_values
from memkern.spec.registry import case as case_of

_CHANGED = 64  # inputs and outputs that are changed in an array
_TIMES, _LONG_S = 5, 0.02
_AGAIN = 2
_LEAST_S = 1e-3  # of an invocation whose time must grow with its iterations
_SAMPLE_S = 1e-4
_GROWN = 2.0  # of eight times as many iterations
_TERMS = 64  # of a sum that has the error of another value
_IMPOSSIBLE = 1.25  # times the bandwidth of loads and stores at the same time


class _Contents:
    """Contents of the arrays: as they were filled, but for changed elements."""

    def __init__(self, case: Case, native: Native) -> None:
        self._case, self._native, self._filled = case, native, native.arrays()
        self.changed: dict[str, tuple[IndexArray, npt.NDArray[Any]]] = {}
        self.read: dict[str, list[IndexArray]] = {}

    def at(self, name: str, elements: IndexArray) -> npt.NDArray[Any]:
        """Return elements of an array before an invocation."""
        if name in self._case.indices:
            return self._case.indices[name][elements]
        self.read.setdefault(name, []).append(elements)
        values = fill_values(elements, self._filled[name]).astype(self._case.dtype)
        if name in self.changed:
            places, new = self.changed[name]
            where = np.minimum(np.searchsorted(places, elements), len(places) - 1)
            values = np.where(places[where] == elements, new[where], values)
        return values

    def fill(self) -> None:
        """Fill all arrays again, with the changes."""
        self._native.fill(outputs=True)
        for name, (places, new) in self.changed.items():
            self._native.poke(name, places, new.astype(np.float64))


def check(definition: Definition, case: Case, native: Native) -> Validation:
    """Validate a kernel (see `memkern.spec.case.Checks`)."""
    n = case.iterations
    inputs = [array.name for array in definition.arrays if array.role in (READ, INDEX)]
    native.fill(outputs=True)
    before = {name: native.digest(name) for name in inputs}
    yield
    worst = 0.0
    contents = _Contents(case, native)
    changed = [name for name in inputs if native.digest(name) != before[name]]
    if changed:
        return Check(False, worst, f"it changes its input {changed[0]}")
    for why, found in _guards(definition, case, native, contents):
        worst = max(worst, found)
        if why:
            return Check(False, worst, why)
    return Check(True, worst, extent(n))


def _guards(
    definition: Definition, case: Case, native: Native, contents: _Contents
) -> Iterator[tuple[str, float]]:
    """Yield what each guard found: a sentence, empty if nothing is wrong, and the error."""
    n, sizes = case.iterations, {LENGTH: case.iterations, **definition.own(case.integers)}
    i = positions(n, native)
    numbers = {name: np.dtype(case.dtype).type(x) for name, x in case.numbers.items()}

    sums = {array.name for array in definition.arrays if array.role == SUM}

    def compared(what: str, at: IndexArray = i, but: tuple[str, ...] = ()) -> tuple[str, float]:
        wanted = definition.wanted(at, contents.at, sizes, numbers)
        wanted = {name: found for name, found in wanted.items() if name not in but}
        return _compared(case, native, wanted, sums, what)

    raced = definition.load(case.integers).raced
    yield raced if native.obtained()["threads"] > 1 else "", 0.0
    # Values of sums and updates depend on the number of invocations.
    later = tuple(a.name for a in definition.arrays if a.role in (SUM, UPDATE))
    yield compared("the timed invocations differ from the reference", but=later)
    some = _unseen(definition, case, native, contents, sizes, numbers)
    contents.fill()
    native.run(1)
    yield compared("it does not compute what was not there before", some)
    if not later and n > 1:
        contents.fill()
        native.run_range(0, (n + 2) // 3)
        native.run_range((n + 2) // 3, n)
        yield compared("results depend on how iterations are divided", some)
    modes = native.obtained()["facts"]["changed_modes"]
    yield "it changes the modes of floating-point arithmetic" if modes else "", 0.0
    # Times may be those of others on the host: what is found must be found again.
    guards = functools.partial(_growth, n, native), functools.partial(_ceiling, case, native)
    for guard in guards:
        found = guard()
        for _ in range(_AGAIN):
            found = found and guard()
        yield found, 0.0


def _compared(
    case: Case, native: Native, wanted: Wanted, sums: Collection[str], what: str
) -> tuple[str, float]:
    """Return whether arrays have the wanted values; the first that is wrong is named."""
    worst, least = 0.0, float(np.finfo(case.dtype).eps) * case.spec.checks.ulps
    for name, (elements, values) in wanted.items():
        # A sum is rounded as often as it grows.
        limit = least * (1 + case.iterations / _TERMS * (name in sums))
        got = native.peek(name, elements)
        found = error(got, values)
        worst = max(worst, found)
        if not found <= limit:
            k = int(np.argmax(~(difference(got, values) <= limit)))
            return f"{what}: {name}[{elements[k]}] is {got[k]:.9g}, not {values[k]:.9g}", worst
    return "", worst


def _unseen(
    definition: Definition,
    case: Case,
    native: Native,
    contents: _Contents,
    sizes: Mapping[str, int],
    numbers: Mapping[str, Any],
) -> IndexArray:
    """Change a few inputs and outputs of each worker, and return the iterations that have them."""
    rng, n = np.random.default_rng(), case.iterations
    parts = np.linspace(0, n, native.obtained()["threads"] + 1).astype(np.int64)
    inside = [rng.integers(a, b, _CHANGED) for a, b in itertools.pairwise(parts) if a < b]
    some = np.unique(np.concatenate([*inside, parts[:-1], parts[1:] - 1]).clip(0, n - 1))
    contents.read.clear()
    wanted = definition.wanted(some, contents.at, sizes, numbers)
    for array in definition.arrays:
        if array.role == WRITE:
            elements = wanted[array.name][0]
        elif array.role in (READ, UPDATE):
            elements = np.concatenate(contents.read[array.name])
        else:
            continue
        if not definition.loop:  # its reference has all elements
            elements = rng.choice(elements, min(len(elements), len(some)))
        places = np.unique(elements)
        # With all digits of the type.
        contents.changed[array.name] = places, rng.uniform(1, 1e3, len(places)).astype(case.dtype)
    # A sum has the terms of all iterations.
    return np.arange(n) if any(array.role == SUM for array in definition.arrays) else some


def _shortest(run: Callable[[], float]) -> float:
    """Return the shortest of some times, of which there are fewer if they are long."""
    times = [run()]
    while len(times) < _TIMES and sum(times) < _LONG_S:
        times.append(run())
    return min(times)


def _growth(n: int, native: Native) -> str:
    """Return whether the time grows with the number of iterations."""
    whole_s = _shortest(lambda: native.run_range(0, n))
    if (
        n < 8
        or whole_s < _LEAST_S
        or whole_s > _GROWN * _shortest(lambda: native.run_range(0, n // 8))
    ):
        return ""
    return "its time does not grow with the number of iterations"


def _ceiling(case: Case, native: Native) -> str:
    """Return whether it moves its bytes faster than loads and stores of the same footprint."""
    obtained, knobs = native.obtained(), case.knobs
    options: dict[str, Any] = {
        # Larger arrays are not faster.
        "footprint_B": min(obtained["footprint_B"], FROM_MEMORY * last_level_cache_B()),
        "threads": obtained["threads"],
        **{"pages": knobs.pages, "pin": knobs.pin, "repetition": knobs.repetition},
    }
    try:
        streams = [
            above("engine").prepare(case_of(name, variant="simd", **options))
            for name in ("loops.load", "stream.copy", "loops.update")
        ]
    except (InputError, MemoryError):
        return ""

    def rate(one: Native, bytes_B: float) -> float:
        """Return the largest of some rates, each of invocations in 100 us or more."""
        times = max(1, round(_SAMPLE_S / max(one.run(1), 1e-9)))
        return times * bytes_B / _shortest(lambda: one.run(times))

    load, copy, update = (rate(one.native, one.case.bytes_B) for one in streams)
    own = rate(native, case.bytes_B)
    if own <= _IMPOSSIBLE * max(load + copy / 2, update):
        return ""
    return (
        f"impossible: {own / 1e9:.3g} GB/s by its bytes, where loads reach {load / 1e9:.3g} and a "
        f"copy {copy / 1e9:.3g}: its bytes are not these, or work was skipped"
    )
