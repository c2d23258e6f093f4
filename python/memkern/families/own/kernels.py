"""Kernels of users: loops as expressions, functions in C, and functions by their addresses."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memkern import files, isolating, launcher, small
from memkern.checks import integer, one_of, printable, shown
from memkern.errors import InputError
from memkern.families.own.checks import check
from memkern.families.own.counting import bytes_of
from memkern.families.own.definition import Definition
from memkern.families.own.expressions import parse
from memkern.families.own.roles import INDEX, SUM, UPDATE, WRITE, Array, arrays_of
from memkern.inputs import indices
from memkern.machine.declarations import ArrayRole
from memkern.shared.elementwise import ELEMENTS, FOOTPRINT, PATTERN, REPEATS, memory_sized
from memkern.spec import registry
from memkern.spec.case import Case, Checks, Counts, KernelSpec, Limits
from memkern.spec.inputs import Given, row, scalar
from memkern.spec.kernel import DTYPES, INDEX_DTYPES, Traffic
from memkern.spec.options import INTEGERS

SOURCE = "the user's code"
_PARAMETER = 3.0
_SOME, _LEAST = 2**20, -(2**62)
# Packages that the process of a kernel can import.
_KNOWN = ("memkern", "numpy", "scipy")
_ULPS = 8.0


class Kernel:
    """A kernel of a user.

    Parameters
    ----------
    definition : Definition

    Attributes
    ----------
    spec : KernelSpec
    """

    def __init__(self, definition: Definition) -> None:
        self.definition, self.spec = definition, spec_of(definition)

    def __repr__(self) -> str:
        """Return the definition in one line."""
        return f"<Kernel: {self.definition.text}>"

    def case(self, n: int | None = None, **options: Any) -> Case:
        """Return a case.

        Parameters
        ----------
        n : int, optional
            Number of iterations; by default arrays are four times the last-level caches.
        **options
            ``footprint_B`` (the bytes of all arrays, instead of `n`), ``pattern`` (of indices, as
            for `memkern.raider`), values of parameters by their names, and the options of all cases
            (see `memkern.Knobs` and `memkern.Stop`).

        Raises
        ------
        InputError
            There is no such option, or its value is wrong.
        """
        return registry.built_by(self.spec, {"elements": n, **options})

    def measure(self, n: int | None = None, **options: Any) -> Any:
        """Measure a case of these options (see `case`) in a process of its own.

        Returns
        -------
        Measurement
            As of `memkern.measure`. If a guard found something, it is not valid, and column
            ``validation`` is a sentence on it.

        Raises
        ------
        InputError
            As `case`; or the code is refused by the compiler, crashes or does not end, or it
            accesses other elements than declared.
        """
        return self.case(n, **options).measure()


def kernel(  # noqa: PLR0913
    expression: str | None = None,
    *,
    file: str | Path | None = None,
    function: str | None = None,
    address: int | None = None,
    arrays: Mapping[str, str] | str | None = None,
    parameters: Mapping[str, float] | None = None,
    reference: Callable[..., Any] | str | None = None,
    dtype: str = "float64",
    idx: str = "int64",
    flops: float | None = None,
    bytes_per_iteration: float | None = None,
    flags: Sequence[str] | str = (),
) -> Kernel:
    """Make a kernel of an expression, a C function, or the address of a function.

    A function gets pointers to its arrays in their order, begin and end of its iterations
    (``int64_t``), then whole parameters (``int64_t``) and other parameters (``double``) in their
    order. It is called by each thread with a part of the iterations. To a sum it adds to the
    single element.

    Parameters
    ----------
    expression : str
        For example ``a[i] = b[idx[i]] + s * c[i]``; roles, parameters and reference follow.
    file, function : path, str
        A file in C (or C++ with ``extern "C"``), and a function in it.
    address : int
        Of a function, for example ``cfunc.address`` of Numba. It is called in this process, after a
        trial in another one.
    arrays : mapping or str
        Arrays of a function in the order of its arguments, by name, or such as ``a=write,b=read``:
        ``read``, ``write``, ``update`` or ``sum``, with the number of elements unless it is ``n``,
        such as ``read[n + 2]``; or ``index[b]``, whose elements are indices of ``b``.
    parameters : mapping
        Parameters with their values; those of an expression are 3 by default.
    reference : callable or str
        Of a function: gets arrays before the call, parameters and ``n`` by their names, and returns
        the written array, or several by name; or an expression.
    dtype, idx : str
        Types of the values, and of indices.
    flops : float
        Operations of an iteration; those of an expression are counted.
    bytes_per_iteration : float
        Checked against the counted bytes.
    flags : sequence of str
        Further flags for the compiler.

    Returns
    -------
    Kernel

    Raises
    ------
    InputError
        A value is wrong, or there is no such file.
    """
    if sum(each is not None for each in (expression, file, address)) != 1:
        raise InputError(
            "a kernel is made of an expression, a file or an address: give one of them"
        )
    known = dict(parameters or {})
    own: dict[str, Any] = {
        "dtype": dtype,
        "bytes_B": bytes_per_iteration,
        "flags": tuple(shlex.split(flags) if isinstance(flags, str) else flags),
    }
    one_of(dtype, "dtype", DTYPES)
    one_of(idx, "idx", INDEX_DTYPES)
    if expression is not None:
        loop = parse(expression)
        wrong = known.keys() - {*loop.integers, *loop.numbers}
        if wrong or arrays or reference or function:
            what = f"no parameter {min(wrong)}" if wrong else "roles and reference of its own"
            raise InputError(f"{shown(expression)} has {what}")
        own |= {
            "arrays": tuple(loop.arrays.values()),
            "integers": tuple(
                (k, integer(known.get(k, 1), f"{k} in an index", _LEAST)) for k in loop.integers
            ),
            "numbers": tuple((k, float(known.get(k, _PARAMETER))) for k in loop.numbers),
            "expression": expression,
            "flops": float(flops or loop.flops),
            "function": "expression",
            "source": loop.source("expression", dtype, idx),
        }
    else:
        if not arrays or reference is None or not (function or address):
            raise InputError(
                "a function needs its name, its arrays by role, and a reference: a function of "
                'NumPy arrays or an expression, for example reference="a[i] = b[i]"'
            )
        own["arrays"] = roles = arrays_of(arrays)
        for role in roles:
            if role.of and role.of not in [each.name for each in roles]:
                raise InputError(f"index array {role.name} has elements of {role.of}, no array")
        own |= {
            "integers": tuple((k, v) for k, v in known.items() if isinstance(v, int)),
            "numbers": tuple((k, float(v)) for k, v in known.items() if not isinstance(v, int)),
            "function": function or "function",
            "flops": float(flops or 0.0),
            "address": int(address or 0),
        }
        if isinstance(reference, str):
            own["expression"] = _covering(reference, roles, known)
        else:
            own["reference"] = _pickled(reference)
        if file is not None:
            source = files.read(Path(file)).decode(errors="replace")
            own |= {"file": printable(Path(file).name), "source": source}
    if any(array.role == INDEX for array in own["arrays"]):
        own["index_dtype"] = idx
    return Kernel(Definition(**own))


def _covering(text: str, roles: Sequence[Array], parameters: Mapping[str, Any]) -> str:
    """Return the expression of a reference, which must be of all written arrays."""
    loop = parse(text)
    written = {role.name for role in roles if role.role in (WRITE, UPDATE, SUM)}
    unknown = {*loop.arrays, *loop.integers, *loop.numbers} - {
        *(role.name for role in roles),
        *parameters,
    }
    if unknown or written != {*loop.targets}:
        what = f"{min(unknown)}, which is unknown" if unknown else f"{', '.join(loop.targets)}"
        raise InputError(
            f"the reference {shown(text)} has {what}: it must write {', '.join(sorted(written))} "
            "by arrays and parameters of the function"
        )
    return text


def _pickled(reference: Callable[..., Any]) -> bytes:
    """Return a reference for another process, which can't import the user's modules."""
    import cloudpickle

    module = sys.modules.get(getattr(reference, "__module__", None) or "")
    foreign = module is not None and module.__name__.partition(".")[0] not in _KNOWN
    try:
        if foreign:
            cloudpickle.register_pickle_by_value(module)
        return bytes(cloudpickle.dumps(reference))
    except Exception as error:  # of what the function refers to
        raise InputError(f"the reference can't be sent to another process: {error}") from None
    finally:
        if foreign:
            cloudpickle.unregister_pickle_by_value(module)


def spec_of(definition: Definition) -> KernelSpec:
    """Return the specification of a kernel; it is in no registry, whose kernels all users have."""
    integers = [
        row(name, value, "parameter of the kernel", least=_LEAST, goes_to=INTEGERS)
        for name, value in definition.integers
    ]
    numbers = [
        scalar(name, "parameter of the kernel", "Of the kernel.") for name, _ in definition.numbers
    ]
    indexed = any(array.role == INDEX for array in definition.arrays)
    once = all(array.role not in (SUM, UPDATE) for array in definition.arrays)
    return KernelSpec(
        name=definition.name,
        summary=definition.text,
        source=SOURCE,
        arrays=tuple(
            ArrayRole(a.name, f"({a.shape},)", "update" if a.role == SUM else a.role)
            for a in definition.arrays
            if a.role != INDEX
        ),
        traffic=functools.partial(_traffic, definition),
        iterations=lambda case: case.integers["elements"],
        checks=Checks(
            check=functools.partial(check, definition),
            ulps=_ULPS,
            idempotent=once,
            repeatable=not once,
        ),
        inputs=(ELEMENTS, FOOTPRINT, *integers, *numbers, *(PATTERN, REPEATS) * indexed),
        build=functools.partial(_build, definition),
        counts=Counts(flops=definition.flops, elementwise=True),
        limits=Limits(
            *((definition.dtype,), (definition.index_dtype,)),
            idle_knobs=("unroll", "prefetch"),
            refuse=_refuse,
        ),
        indices=tuple(a.name for a in definition.arrays if a.role == INDEX),
        numbers=dict(definition.numbers),
        derived_columns=lambda case: definition.columns(case.integers),
        made_by=None if definition.address else functools.partial(spec_of, definition),
        load=functools.partial(_load, definition),
    )


def _refuse(case: Case) -> None:
    if not case.knobs.backend.on_processors or launcher.size() > 1:
        raise InputError(
            "own kernels run on processors, as one process: leave out --device and --ranks"
        )


def _load(definition: Definition, case: Case) -> dict[str, Any]:
    if not definition.address:
        isolating.require()
    return definition.native(case.integers)


def _traffic(definition: Definition, case: Case) -> Traffic:
    """Return the bytes of the declared elements, each once, and of indices."""
    n = case.iterations
    accesses = definition.accesses(n, definition.own(case.integers))
    index_B = np.dtype(definition.index_dtype or "int64").itemsize
    read = write = index = allocated = 0.0
    for array in definition.arrays:
        value_B = index_B if array.role == INDEX else case.value_B
        reads_B, writes_B = bytes_of(array, accesses[array.name], value_B)
        write += writes_B / n
        allocated += writes_B / n * (array.role == WRITE and case.allocates)
        if array.role == INDEX:
            index += reads_B / n
        else:
            read += reads_B / n
    return Traffic(read, write, index, allocated)


def _build(definition: Definition, given: Given) -> Case:
    integers = {name: getattr(given, name) for name, _ in definition.integers}
    n = given.elements
    if n is None:
        some = definition.extents(_SOME, integers)
        each_B = np.dtype(given.dtype).itemsize * sum(size for _, size in some.values()) / _SOME
        n = (
            memory_sized(given.dtype, element_B=each_B)
            if given.footprint_B is None
            else max(int(given.footprint_B / each_B), 1)
        )
    n = small.cut(n, 2**14 + n.bit_length())
    lengths = {name: length for name, (_, length) in definition.extents(n, integers).items()}
    sizes = {"elements": n, "scatters": 0, **{f"length of {k}": v for k, v in lengths.items()}}
    arrays, columns = dict[str, Any](), {"elements": n}
    for number, array in enumerate(a for a in definition.arrays if a.role == INDEX):
        # Of an expression, an index array may refer to several arrays.
        bound = lengths[array.name] if definition.compiled else lengths[array.of]
        seed = given.option("seed") + number
        label, found = indices.build(
            given.pattern, max(lengths[array.name], bound), seed, given.repeats
        )
        arrays[array.name] = found = found[: lengths[array.name]] % bound
        columns["index_pattern"], sizes[f"bound of {array.name}"] = label, bound
        into = next(each for each in definition.arrays if each.name == array.of)
        scatters = into.role in (WRITE, UPDATE)
        sizes["scatters"] |= int(scatters)
        if scatters and np.bincount(found).max() > 1:
            raise InputError(
                f"{array.name} repeats indices of {array.of}, which is written: iterations would "
                "depend on each other"
            )
    return given.case(
        integers=sizes, indices=arrays, index_dtype=definition.index_dtype, columns=columns
    )


def _case(**options: Any) -> Case:
    """Build a case of a sweep file, whose options define the kernel as well."""
    names = [name for name in inspect.signature(kernel).parameters if name != "address"]
    own = {name: options.pop(name) for name in names if name in options}
    return kernel(**own).case(**options)


registry.builders["own.kernel"] = _case
