"""The registry of kernels and suites, and cases of any kernel."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from memkern.checks import listed, meant, one_of, plain, shown, unknown
from memkern.discovery import family_module, family_modules
from memkern.errors import InputError
from memkern.spec.case import Case, KernelSpec
from memkern.spec.docstrings import Entry, with_parameters
from memkern.spec.inputs import REQUIRED, given
from memkern.spec.options import LABELS, Declared, Knobs, Stop, declared

F = TypeVar("F", bound=Callable[..., Any])

DEFINITIONS = ("paper", "release")

# Descriptions of the options that every kernel has besides `Knobs` and `Stop`.
_COMMON = """
    Parameters
    ----------
    dtype : str
        Type of the values.
    name, suite : str
        Labels of the record.
    machine_file : str
        Machine file by which the roofline of the record is computed.
    """

_registry: dict[str, KernelSpec] = {}
builders: dict[str, Callable[..., Case]] = {}
"""By name, what builds a case of options instead of a kernel's spec."""
_suites: dict[str, Suite] = {}


@dataclasses.dataclass(frozen=True)
class Suite:
    """A published list of cases.

    Attributes
    ----------
    size : callable
        Returns the number of cases.
    case : callable
        The number of a case and options by keyword to the case.
    """

    size: Callable[[], int]
    case: Callable[..., Case]


def register(spec: KernelSpec) -> KernelSpec:
    """Add a spec to the registry of tests, command line and documentation."""
    _registry[spec.name] = spec
    return spec


def registry() -> dict[str, KernelSpec]:
    """Every registered spec by name, in alphabetical order of the families."""
    family_modules("kernels")  # these register their kernels
    return dict(sorted(_registry.items(), key=lambda item: item[0].partition(".")[0]))


def of_family(family: str) -> dict[str, KernelSpec]:
    """Every registered spec of a family by name."""
    family_module(family, "kernels")
    return {name: spec for name, spec in _registry.items() if name.partition(".")[0] == family}


def register_suite(name: str, suite: Suite) -> None:
    """Add a suite that sweep files may name."""
    _suites[name] = suite


def suite(name: object) -> Suite:
    """Return a suite by its name, in upper or lower case.

    Raises
    ------
    InputError
        There is no suite of that name.
    """
    family_modules("kernels")  # these register their suites
    known = name.lower() if isinstance(name, str) else ""
    if known not in _suites:
        raise unknown(name, "suite", _suites)
    return _suites[known]


def find(name: str) -> KernelSpec:
    """Return the spec of a name in a case, a record or a pickle.

    Raises
    ------
    InputError
        There is no kernel of that name.
    """
    family_module(name.partition(".")[0], "kernels")
    found = _registry.get(name)
    if found is None:
        raise InputError(
            f"kernel {name!r} of a pickled case is unknown here: import the module that registers "
            "it first, in the version of memkern that pickled the case"
        )
    return found


def _by_name(spec: KernelSpec) -> tuple[Callable[..., KernelSpec], tuple[str, ...]]:
    """Return the pickled form of a spec.

    Raises
    ------
    InputError
        The spec is not registered by its name.
    """
    if spec.made_by is not None:
        return spec.made_by, ()
    if _registry.get(spec.name) is not spec:
        raise InputError(
            f"kernel {spec.name!r} can't be pickled: register it, since other processes find "
            "kernels by their names"
        )
    return find, (spec.name,)


copyreg.pickle(KernelSpec, _by_name)


def definition_of(spec: KernelSpec) -> str:
    """Return ``paper`` or ``release`` if the definitions of a kernel differ, else empty."""
    _, at, definition = spec.name.partition("@")
    return definition if at else "paper" if f"{spec.name}@release" in _registry else ""


def spec_of(kernel: str, definition: str = "paper") -> KernelSpec:
    """Return the spec of a kernel (see `case`).

    Raises
    ------
    InputError
        There is no such kernel.
    """
    one_of(definition, "definition", DEFINITIONS)
    name = kernel if "." in kernel else f"spatter.{kernel}"
    kernels = of_family(name.partition(".")[0])
    if f"{name}@{definition}" in kernels:
        name = f"{name}@{definition}"
    if name not in kernels:
        raise unknown(kernel, "kernel", [k for k in kernels or registry() if "@" not in k])
    return kernels[name]


def case(kernel: str, *, definition: str = "paper", **options: Any) -> Case:
    """Build a case of any kernel.

    Parameters
    ----------
    kernel : str
        Name in the registry, such as ``stream.triad``; a name without a family is one of
        ``spatter``.
    definition : str
        ``paper`` or ``release``, for kernels that differ between them.
    **options
        The kernel's options; see its family's module.

    Raises
    ------
    InputError
        There is no such kernel, it has no such option, or an option's value is wrong.
    """
    family_module(str(kernel).partition(".")[0], "kernels")
    if str(kernel) in builders:
        return builders[str(kernel)](**options)
    return built_by(
        spec_of(plain(kernel, "kernel"), plain(definition, "definition")),
        options,
        definition=definition,
    )


def built_by(spec: KernelSpec, options: Mapping[str, Any], **request: Any) -> Case:
    """Return the case of a spec with options, which are its request with those of `request`.

    Raises
    ------
    InputError
        The kernel has no such option, or an option's value is wrong.
    """
    own = _own_options(spec, {name: plain(value, name) for name, value in options.items()})
    inputs = given(spec, own)
    built = inputs.case() if spec.build is None else spec.build(inputs)
    if not all(map(_is_plain, own.values())):
        return built
    return dataclasses.replace(built, request={**request, **own})


def _is_plain(value: object) -> bool:
    """Return whether a sweep file can contain a value."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, bool, int, float))


def request_of(case: Case) -> dict[str, Any]:
    """Return the options by which `case` builds a case, also those that were changed later."""
    given = {**(case.request or {})}
    for part in (case.knobs, case.stop):
        given |= {
            name: getattr(part, name)
            for name, default, _ in declared(part)
            if name in given or getattr(part, name) != default
        }
    return given


def rebuilt(original: Case, **changes: Any) -> Case:
    """Build a case again, but for some of its options.

    Raises
    ------
    InputError
        It was built from arrays.
    """
    if original.request is None:
        raise InputError(f"{original.spec.name} was built from arrays")
    return case(original.spec.name, **{**request_of(original), **changes})


def case_of_record(record: Mapping[str, Any]) -> Case:
    """Build the case of a record again.

    Raises
    ------
    InputError
        It was built from arrays, or by a version of memkern with another definition.
    """
    name = f"case {record.get('case_id')} of {record.get('kernel')}"
    if record.get("source"):
        raise InputError(
            f"{name} was compiled from {shown(record['source'])}: code that a file names is not "
            "run, so that it must be given again (memkern run)"
        )
    if not record.get("request"):
        raise InputError(f"{name} was built from arrays, which are not in the record")
    built = case(record["kernel"], **json.loads(record["request"]))
    if built.identity() != record["case_id"]:
        raise InputError(f"{name} is another one in this version of memkern, or on this machine")
    return built


def shows_options_of(*kernels: str) -> Callable[[F], F]:
    """Add kernels' options to signature and docstring of a function that passes them on.

    Editors and notebooks complete them; `inspect.signature` returns them with types and defaults.
    They are described as in their rows, and as in `Knobs` and `Stop`.
    """

    def show(function: F) -> F:
        own = inspect.signature(function)
        specs = [_registry[kernel] for kernel in kernels]
        rows = {row.name: row for spec in reversed(specs) for row in spec.inputs}
        listed = {p.name: p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD}
        for spec in specs:
            for name, default in options_of(spec).items():
                kind = type_of(rows[name]) if name in rows else _types()[name]
                listed.setdefault(
                    name,
                    inspect.Parameter(
                        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
                    ),
                )
        vars(function)["__signature__"] = own.replace(parameters=list(listed.values()))
        entries = {
            name: Entry(
                type_of(row).removesuffix(" | None"),
                textwrap.fill(row.option.meaning or row.option.text, 92),
            )
            for name, row in rows.items()
        }
        function.__doc__ = with_parameters(
            function.__doc__,
            listed.values(),
            entries,
            [Knobs.__doc__, Stop.__doc__, _COMMON],
            specs[0].source,
        )
        return function

    return show


def type_of(row: Declared) -> str:
    """Return the type of an input as it is annotated."""
    option = row.option
    kinds = {"bool": isinstance(row.default, bool), "int": option.least is not None}
    kinds["float"] = option.low is not None or option.below is not None
    known = option.type or next((kind for kind, fits in kinds.items() if fits), "str")
    return f"{known} | None" if row.default is None else known


@functools.cache
def _types() -> dict[str, str]:
    """Return the types of the options that every kernel has, by name."""
    fields = (*dataclasses.fields(Knobs), *dataclasses.fields(Stop))
    return dict.fromkeys(("dtype", *LABELS), "str") | {f.name: str(f.type) for f in fields}


def options_of(spec: KernelSpec) -> dict[str, Any]:
    """Return the options of a kernel with their defaults.

    Returns
    -------
    dict of str to object
        Its inputs first; those that must be given have ``inspect.Parameter.empty``.
    """
    return {
        **{row.name: row.default for row in spec.inputs},
        "dtype": spec.limits.dtypes[0],
        **dict.fromkeys(LABELS, ""),
        **{name: default for name, default, _ in (*declared(Knobs), *declared(Stop))},
        **spec.usual,
    }


def _own_options(spec: KernelSpec, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a kernel, without inputs of its family's other kernels at no value.

    These are None or the default, so that one set of options serves all kernels of a family.

    Raises
    ------
    InputError
        The kernel does not have an option, or needs one that is missing.
    """
    known = options_of(spec)
    if options.keys() - known.keys():
        kernels = of_family(spec.name.partition(".")[0]).values()
        others = {row.name: row for each in kernels for row in each.inputs if row.name not in known}
        options = {
            name: value
            for name, value in options.items()
            if name not in others or not (value is None or others[name].is_default(value))
        }
    for option in options:
        if option in ("alpha", "beta") and option not in known:
            raise InputError(f"kernel {spec.name!r} has no scalar {option}")
        if option not in known and not (option == "index_dtype" and options[option] == ""):
            near = meant(option, known, cutoff=0.8) or f": choose from {listed(known)}"
            raise InputError(f"kernel {spec.name!r} has no option {shown(option)}{near}")
    for option, default in known.items():
        if default is REQUIRED and option not in options:
            raise InputError(f"kernel {spec.name!r} needs {option}")
    return options
