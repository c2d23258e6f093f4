"""Kernels of users: what defines them, and what compiling and counting them tells."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern import isolating
from memkern.errors import InputError
from memkern.families.own import compiling, counting
from memkern.families.own.expressions import Lookup, Loop, parse
from memkern.families.own.roles import INDEX, LENGTH, SUM, UPDATE, WRITE, Array, number_of

# Iterations and bytes of a count at most.
_COUNTED, _COUNTED_B = 4099, 2**25
_COUNTED_S = 20.0
_ROLE_LETTERS = {"read": "r", "write": "w", "update": "u", "sum": "s", "index": "i"}

Wanted = dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[Any]]]
"""By written array, elements and their values after an invocation."""


class Loaded(NamedTuple):
    """A kernel in this process.

    Attributes
    ----------
    address : int
        Of its function.
    columns : dict of str to str
        Columns of the record on its compiler and its accesses.
    raced : str
        Where workers access elements that another one writes; empty without any.
    """

    address: int
    columns: dict[str, str]
    raced: str


@dataclasses.dataclass(frozen=True)
class Definition:
    """A kernel of a user.

    Parameters
    ----------
    function : str
        Its name.
    arrays : tuple of Array
        In the order of its arguments.
    integers, numbers : tuple of (str, number)
        Parameters with their defaults.
    dtype, index_dtype : str
    source, file : str
        Code in C and the name of its file; empty of a function that is given by its address.
    flags : tuple of str
        Further flags of the compiler.
    expression : str
        The loop, also of a function whose reference it is; empty of one with another reference.
    address : int
        0 of code that is compiled.
    reference : bytes
        Pickled: arrays before an invocation, parameters and ``n`` by name to the written arrays
        after it; empty with an expression.
    flops : float
        Operations of an iteration.
    bytes_B : float, optional
        Bytes of an iteration by the user, which must be those that are counted.
    """

    function: str
    arrays: tuple[Array, ...]
    integers: tuple[tuple[str, int], ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    dtype: str = "float64"
    index_dtype: str = ""
    source: str = ""
    file: str = ""
    flags: tuple[str, ...] = ()
    expression: str = ""
    address: int = 0
    reference: bytes = b""
    flops: float = 0.0
    bytes_B: float | None = None

    @functools.cached_property
    def name(self) -> str:
        """Name of the kernel, with a hash of everything that defines it."""
        own = {**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, "reference": 0}
        return f"own.{self.function}@{hashlib.sha256(repr(own).encode()).hexdigest()[:12]}"

    @functools.cached_property
    def loop(self) -> Loop | None:
        """The parsed expression."""
        return parse(self.expression) if self.expression else None

    @property
    def text(self) -> str:
        """The definition in one line."""
        return (
            self.expression if self.compiled else f"{self.function} of {self.file or 'an address'}"
        )

    @property
    def compiled(self) -> bool:
        """Whether the code is that of the expression."""
        return bool(self.source) and not self.file

    @property
    def _code(self) -> str:
        return self.file or "expression.c"

    @property
    def written(self) -> list[Array]:
        """The arrays that it writes."""
        return [array for array in self.arrays if array.role in (WRITE, UPDATE, SUM)]

    def extents(self, n: int, integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return the least element and the length of each array for `n` iterations."""
        if self.loop and self.compiled:
            return self.loop.extents(n, integers)
        sizes = {LENGTH: n, **integers}
        return {array.name: (0, number_of(array, array.shape, sizes)) for array in self.arrays}

    def accesses(self, n: int, integers: Mapping[str, int]) -> dict[str, int]:
        """Return the elements of each array that `n` iterations access.

        Of arrays that are accessed through index arrays these are as many as their indices.
        """
        lengths = {name: length for name, (_, length) in self.extents(n, integers).items()}
        sizes = {LENGTH: n, **integers}
        lengths |= {a.name: number_of(a, a.used, sizes) for a in self.arrays if a.used}
        through = {
            array.name: sum(lengths[each.name] for each in self.arrays if each.of == array.name)
            for array in self.arrays
        }
        return {name: through[name] or length for name, length in lengths.items()}

    def wanted(
        self, i: npt.NDArray[np.int64], lookup: Lookup, sizes: Mapping[str, int], numbers: Any
    ) -> Wanted:
        """Return what an invocation writes: of an expression in iterations `i`, else all.

        Raises
        ------
        InputError
            The reference fails, or returns something else than the written arrays.
        """
        every = self.extents(sizes[LENGTH], sizes)
        if self.loop:
            least = {name: low for name, (low, _) in every.items()}
            terms = self.loop.values(i, lambda k, at: lookup(k, at - least[k]), sizes, numbers)
            return {
                name: (np.zeros(1, dtype=np.int64), np.sum(values, keepdims=True))
                if at is None
                else (at - least[name], values)
                for name, at, values in terms
            }
        known = {
            **{name: lookup(name, np.arange(length)) for name, (_, length) in every.items()},
            **sizes,
            **numbers,
        }
        reference = pickle.loads(self.reference)
        takes = inspect.signature(reference).parameters
        try:
            given = reference(**{name: known[name] for name in takes})
            after = given if isinstance(given, Mapping) else {self.written[0].name: given}
            found = {
                array.name: (
                    np.arange(every[array.name][1]),
                    np.broadcast_to(np.asarray(after[array.name]), every[array.name][1:]),
                )
                for array in self.written
            }
        except Exception as error:  # it is code of the user
            raise InputError(
                f"the reference of {self.function} failed: {type(error).__name__}: {error}; it "
                f"gets arrays and parameters by name ({', '.join(known)}), and returns the "
                "written array, or a dict of several"
            ) from None
        return found

    def own(self, integers: Mapping[str, int]) -> dict[str, int]:
        """Return the parameters among the integers of a case."""
        return {name: integers[name] for name, _ in self.integers}

    def columns(self, integers: Mapping[str, int]) -> dict[str, Any]:
        """Return the columns of the record on the code and its accesses."""
        source = self.expression if self.compiled else self.file or self.function
        loaded = _loaded.get((self.name, *self.own(integers).values()))
        return {"source": source, **(loaded.columns if loaded else {})}

    def load(self, integers: Mapping[str, int]) -> Loaded:
        """Compile, count and load the kernel unless that was done before in this process.

        Raises
        ------
        InputError
            The compiler refuses it, it accesses elements outside of its arrays, or other bytes
            than are declared.
        """
        own = self.own(integers)
        key = self.name, *own.values()
        if key not in _loaded:
            called = self._called(own)
            if self.address:
                counting.tried(self.address, called, self.function)
                _loaded[key] = Loaded(self.address, {"bytes_counted": "declared"}, "")
            else:
                columns, raced = self._counted(called, own)
                _loaded[key] = Loaded(self._compiled()[1], columns, raced)
        return _loaded[key]

    def native(self, integers: Mapping[str, int]) -> dict[str, Any]:
        """Return what the extension needs to call the function, which is loaded."""
        return {
            "kernel": self.name,
            "address": self.load(integers).address,
            "dtype": self.dtype,
            "arrays": [
                (a.name, _ROLE_LETTERS[a.role], self.index_dtype if a.role == INDEX else self.dtype)
                for a in self.arrays
            ],
            "integers": [name for name, _ in self.integers],
            "numbers": [name for name, _ in self.numbers],
        }

    def _called(self, integers: Mapping[str, int]) -> counting.Called:
        """Return the function with a few iterations on arrays of values."""
        size_B = np.dtype(self.dtype).itemsize
        each_B = size_B * sum(self.accesses(_COUNTED, integers).values()) // _COUNTED
        n = max(min(_COUNTED, _COUNTED_B // max(each_B, 1)), 8 * counting.WORKERS)
        extents = self.extents(n, integers)
        values, rng = {}, np.random.default_rng(0)
        for array in self.arrays:
            length = extents[array.name][1]
            if array.role == INDEX:
                values[array.name] = rng.permutation(
                    max(length, extents[array.of][1]) if array.of else length
                )[:length].astype(self.index_dtype)
                values[array.name] %= extents[array.of][1] if array.of else length
            else:
                values[array.name] = (
                    np.zeros(counting.WORKERS * counting.SUM_B // size_B, self.dtype)
                    if array.role == SUM
                    else rng.uniform(1, 2, length).astype(self.dtype)
                )
        return counting.Called(
            self.arrays, values, [*integers.values()], [x for _, x in self.numbers], n
        )

    def _compiled(self, counted: bool = False) -> tuple[Path, int]:
        """Return the file that the code was compiled to, and the address of the function."""
        path = compiling.built(self.source, self._code, self.flags, counted=counted)
        return path, compiling.function_of(path, self.function, self._code)

    def _counted(
        self, called: counting.Called, integers: Mapping[str, int]
    ) -> tuple[dict[str, str], str]:
        """Return the columns on the accesses of a few iterations, and races (see `Loaded`)."""
        n, values, size_B = called.n, called.values, np.dtype(self.dtype).itemsize
        path, address = self._compiled(counted=True)
        accesses = self.accesses(n, integers)
        isolating.limit(_COUNTED_S)
        counts, elsewhere = counting.counted(str(path), address, self.function, called)
        isolating.limit(0)
        declared = {
            array.name: counting.bytes_of(array, accesses[array.name], values[array.name].itemsize)
            for array in self.arrays
        }
        if self.compiled:
            declared |= self._touched(n, integers, size_B)
        hidden = compiling.unseen(self.source)
        wrong = counting.differences(self.arrays, counts, declared)
        if wrong and not hidden:
            raise InputError(f"{self.function} is not as declared: {'; '.join(wrong)}")
        own_B = sum(map(sum, declared.values())) / n
        if self.bytes_B is not None and abs(own_B - self.bytes_B) > 0.01 * own_B:
            raise InputError(
                f"{self.function} moves {own_B:.6g} bytes an iteration, not {self.bytes_B:.6g} as "
                "declared"
            )
        once = all(
            (one["load_B"], one["store_B"]) == (one["read_B"], one["written_B"])
            for array, one in zip(self.arrays, counts.values(), strict=True)
            if array.role != SUM
        )
        races = [f"{name}[{one['raced']}]" for name, one in counts.items() if one["raced"] >= 0]
        raced = "a worker accesses {}, which another one writes, so that results depend on luck"
        return {
            "compiler": compiling.compiler()[1],
            "compiler_flags": " ".join(compiling.flags(self._code, self.flags)),
            "bytes_counted": (
                "partly" if hidden or elsewhere else "accesses" if once else "distinct bytes"
            ),
            "accesses_counted": json.dumps(counts),
        }, raced.format(races[0]) if races else ""

    def _touched(
        self, n: int, integers: Mapping[str, int], size_B: int
    ) -> dict[str, tuple[int, int]]:
        """Return the bytes of arrays that an expression accesses directly, each once."""
        assert self.loop is not None
        found = {}
        for array in self.arrays:
            uses = self.loop.uses.get(array.name, set())
            if array.role == INDEX or any(use.through for use in uses) or not uses:
                continue
            places = [step * np.arange(n) + first for step, first in (u.at(integers) for u in uses)]
            found[array.name] = counting.bytes_of(array, len(np.unique(places)), size_B)
        return found


# By name and parameters, in this process.
_loaded: dict[tuple[Any, ...], Loaded] = {}
