"""The kernels by their names, and cases of any of them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from memkern.checks import shown
from memkern.discovery import family_modules
from memkern.errors import InputError
from memkern.spec.options import Knobs, Stop, declared

if TYPE_CHECKING:
    from memkern.spec.case import Case
    from memkern.spec.kernel import KernelSpec

F = TypeVar("F", bound=Callable[..., Any])

DEFINITIONS = ("paper", "release")

_registry: dict[str, KernelSpec] = {}
_suites: dict[str, Suite] = {}


@dataclass(frozen=True)
class Suite:
    """A published list of cases.

    Attributes
    ----------
    size : callable
        Returns how many cases it has.
    case : callable
        The number of a case and options by keyword to that case.
    """

    size: Callable[[], int]
    case: Callable[..., Case]


def register(spec: KernelSpec) -> KernelSpec:
    """Add a spec to the registry that tests, CLI and documentation read."""
    _registry[spec.name] = spec
    return spec


def registry() -> dict[str, KernelSpec]:
    """Every registered spec by name, family by family, whichever was imported first."""
    family_modules("kernels")  # which register themselves
    return dict(sorted(_registry.items(), key=lambda item: item[0].partition(".")[0]))


def register_suite(name: str, suite: Suite) -> None:
    """Add a suite that sweep files may name."""
    _suites[name] = suite


def suite(name: object) -> Suite:
    """Return a suite by its name, in any case.

    Raises
    ------
    InputError
        There is none of that name.
    """
    family_modules("kernels")  # which register them
    known = name.lower() if isinstance(name, str) else ""
    if known not in _suites:
        raise InputError(f"a suite is one of {', '.join(_suites)}, not {shown(name)}")
    return _suites[known]


def find(name: str) -> KernelSpec:
    """Return the spec that a pickle names.

    Raises
    ------
    InputError
        There is none of that name here.
    """
    found = registry().get(name)
    if found is None:
        raise InputError(
            f"kernel {name!r} of a pickled case is unknown here: import what registers it first, "
            "in the version of memkern that pickled the case"
        )
    return found


def case(kernel: str, *, definition: str = "paper", **options: Any) -> Case:
    """Build a case of any kernel.

    Parameters
    ----------
    kernel : str
        Its name in the registry, such as ``stream.triad``; without a family a gather/scatter
        kernel.
    definition : str
        ``paper`` or ``release``, for kernels that differ between them.
    **options
        What the kernel takes; see its family's module.

    Raises
    ------
    InputError
        There is no such kernel, it has no such option, or its family refuses.
    """
    kernels = registry()
    if definition not in DEFINITIONS:
        raise InputError(f"definition {shown(definition)} is not one of {', '.join(DEFINITIONS)}")
    name = kernel if "." in kernel else f"spatter.{kernel}"
    if f"{name}@{definition}" in kernels:
        name = f"{name}@{definition}"
    if name not in kernels:
        family = f"{name.partition('.')[0]}."
        known = [k for k in kernels if "@" not in k]
        near = [k for k in known if k.startswith(family)]
        raise InputError(f"kernel {shown(kernel)} is not one of {', '.join(near or known)}")
    _check_options(kernels[name], options)
    return kernels[name].build(name, **options)


def shows_options_of(*kernels: str) -> Callable[[F], F]:
    """Show the options of kernels in the signature of a function that hands its own on to them.

    Editors and notebooks complete them; `inspect.signature` has them with types and defaults.
    """

    def show(function: F) -> F:
        own = inspect.signature(function)
        listed = {p.name: p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD}
        for spec in map(_registry.__getitem__, kernels):
            builders = inspect.signature(spec.build).parameters
            for name, default in options_of(spec).items():
                annotation = builders[name].annotation if name in builders else _types()[name]
                listed.setdefault(
                    name,
                    inspect.Parameter(
                        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
                    ),
                )
        vars(function)["__signature__"] = own.replace(parameters=list(listed.values()))
        return function

    return show


@functools.cache
def _types() -> dict[str, str]:
    """Return the types of what every kernel takes, by name."""
    fields = (*dataclasses.fields(Knobs), *dataclasses.fields(Stop))
    return {"dtype": "str", "name": "str", "suite": "str", **{f.name: str(f.type) for f in fields}}


def options_of(spec: KernelSpec) -> dict[str, Any]:
    """Return what a kernel takes besides its name, with the defaults.

    Returns
    -------
    dict of str to object
        Its own options first; what has to be given is ``inspect.Parameter.empty``.
    """
    parameters = inspect.signature(spec.build).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    for scalar in {"alpha", "beta"} - {*spec.numbers}:
        own.pop(scalar, None)
    everywhere = {"dtype": spec.dtypes[0], "name": "", "suite": ""}
    fields = {name: default for name, default, _ in (*declared(Knobs), *declared(Stop))}
    return {**own, **everywhere, **fields, **own}


def _check_options(spec: KernelSpec, options: Mapping[str, Any]) -> None:
    """Refuse options that a kernel does not take, and to do without what it needs."""
    known = options_of(spec)
    for option in options:
        if option in ("alpha", "beta") and option not in known:
            raise InputError(f"kernel {spec.name!r} has no scalar {option}")
        if option not in known and not (option == "index_dtype" and options[option] == ""):
            raise InputError(
                f"kernel {spec.name!r} has no option {shown(option)}: there are {', '.join(known)}"
            )
    for option, default in known.items():
        if default is inspect.Parameter.empty and option not in options:
            raise InputError(f"kernel {spec.name!r} needs {option}")
