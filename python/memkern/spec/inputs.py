"""The inputs of kernels, each declared by one row, and their values for a case.

Checks, the option of the command line, the key of sweep files, the column of the record, the
argument of the extension and the documentation of an input follow from its row.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memkern.checks import INT64_MAX, one_of
from memkern.errors import InputError
from memkern.spec.case import Case, KernelSpec, by_part
from memkern.spec.kernel import INDEX_DTYPES, INTEGER_DTYPES
from memkern.spec.options import INTEGERS, LABELS, NUMBERS, Declared, Knobs, Option, Stop

REQUIRED: Any = inspect.Parameter.empty
"""Default of an input that must be given."""

# With scalars up to this, sums of squared products in float32 do not overflow.
_MOST_SCALAR = 1e9


def row(name: str, default: Any, help: str, **facts: Any) -> Declared:
    """Return the declaration of an input; `facts` are those of `Option`.

    The extension gets it only if `Option.goes_to` says so. With the default None the builder
    chooses the value.
    """
    return Declared(name, default, Option(help, **{"goes_to": "", "most": INT64_MAX, **facts}))


def scalar(name: str, help: str, meaning: str) -> Declared:
    """Return the declaration of a scalar, whose default is the extension's."""
    return row(
        name,
        None,
        help,
        low=-_MOST_SCALAR,
        high=_MOST_SCALAR,
        metavar="X",
        goes_to=NUMBERS,
        meaning=meaning,
    )


def index_type(default: str = "int64") -> Declared:
    """Return the declaration of the type of the indices."""
    return row("index_dtype", default, "Type of the indices.", choices=INDEX_DTYPES, column="-")


@dataclass(frozen=True)
class Given:
    """The checked inputs of a case, also as attributes, and the options of all cases.

    Parameters
    ----------
    spec : KernelSpec
    inputs : mapping
        The value of every input, by name; None for those that the builder chooses.
    dtype : str
        Type of the values.
    options : mapping
        The given fields of `memkern.Knobs` and `memkern.Stop`, and labels.
    """

    spec: KernelSpec
    inputs: Mapping[str, Any]
    dtype: str
    options: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        """Return the value of an input."""
        if name not in self.__dict__["inputs"]:
            raise AttributeError(f"{self.spec.name} has no input {name}")
        return self.inputs[name]

    def option(self, name: str) -> Any:
        """Return a field of `Knobs` as given, or its default."""
        return self.options.get(name, getattr(Knobs, name))

    @functools.cached_property
    def knobs(self) -> Knobs:
        """The options of all cases as given, without those that follow from the inputs."""
        return Knobs(**by_part(self.options)["knobs"])

    def _to(self, part: str) -> dict[str, Any]:
        """Return the inputs that have a value for a part of the extension."""
        return {
            row.name: self.inputs[row.name]
            for row in self.spec.inputs
            if row.option.goes_to == part and self.inputs[row.name] is not None
        }

    def case(
        self,
        *,
        integers: Mapping[str, int] | None = None,
        columns: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Case:
        """Return the case of the inputs.

        Parameters
        ----------
        integers, columns : mapping, optional
            Integers of the case and columns of its record besides those of the inputs, or instead
            of them.
        options : mapping, optional
            Defaults of options of all cases that follow from the inputs.
        fixed : mapping, optional
            Options of all cases that replace given ones.
        **parts
            Other fields of `memkern.spec.case.Case`.

        Raises
        ------
        InputError
            A scalar is no whole number though the values are integers, or an option is wrong.
        """
        numbers = {**self.spec.numbers, **self._to(NUMBERS)}
        for name, value in numbers.items():
            if self.dtype in INTEGER_DTYPES and value % 1:
                raise InputError(f"{name} must be a whole number with {self.dtype}, not {value!r}")
        own = {row.column: self.inputs[row.name] for row in self.spec.inputs if row.column}
        shown = {name: value for name, value in own.items() if value is not None}
        others = columns or {}
        new = by_part({**(options or {}), **self.options, **(fixed or {})})
        return Case(
            self.spec,
            integers={**self._to(INTEGERS), **(integers or {})},
            numbers=numbers,
            dtype=self.dtype,
            columns={**others, **shown, **numbers, **others},
            knobs=Knobs(**new["knobs"]),
            stop=Stop(**new["stop"]),
            labels={**dict.fromkeys(LABELS, ""), **new["labels"]},
            **parts,
        )


def given(spec: KernelSpec, options: Mapping[str, Any]) -> Given:
    """Return the checked inputs among the options of a kernel, and the other options.

    Raises
    ------
    InputError
        An input is out of range, not for the device, or excluded by another one.
    """
    options = {**spec.usual, **options}
    inputs = {row.name: options.pop(row.name, row.default) for row in spec.inputs}
    dtype = options.pop("dtype", spec.limits.dtypes[0])
    one_of(dtype, "dtype", spec.limits.dtypes)
    knobs = Knobs(device=options.get("device", Knobs.device))
    for row in spec.inputs:
        if row.is_default(inputs[row.name]):
            continue
        row.refuse_elsewhere(knobs)
        for other in row.option.excludes:
            if inputs[other] is not None:
                raise InputError(f"{spec.name} takes {other} or {row.name}, not both")
    return Given(
        spec, {row.name: row.checked(inputs[row.name]) for row in spec.inputs}, dtype, options
    )
