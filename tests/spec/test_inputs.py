"""Inputs of kernels are what their rows declare."""

import math
from typing import Any

import pytest

import memkern as mk
from memkern import cli
from memkern.errors import InputError
from memkern.machine.declarations import declared
from memkern.spec.columns import COLUMNS
from memkern.spec.inputs import REQUIRED, given
from memkern.spec.options import INTEGERS, NUMBERS, Declared
from memkern.spec.registry import options_of, registry, type_of

# Values of inputs that must be given, by name.
NEEDED: dict[str, Any] = {
    "pattern": "UNIFORM:4:1",
    "pattern_gather": "UNIFORM:4:1",
    "pattern_scatter": "UNIFORM:4:1",
    "lattice": (4, 4, 4, 4),
    "matrix": "hpcg:2",
}
DEVICES = {"processors": "cpu", "GPUs": "cuda", "ranks": "mpi"}
ROWS = {
    f"{name}-{row.name}": (name, row) for name, spec in registry().items() for row in spec.inputs
}


def wrong_values(row: Declared) -> dict[Any, str]:
    """Return values that an input can't have, each with a part of the sentence that refuses it."""
    option = row.option
    if option.read is not None or (option.type and option.least is None):
        return {}
    if option.choices:
        return {"nonsense": f"{row.name} 'nonsense' is not one of", 0.5: f"{row.name} 0.5 is not"}
    if option.least is not None:
        low, high = option.least - 1, option.most + 1
        return {
            low: f"{row.name} must be at least {option.least}, not",
            high: f"{row.name} must be at most {option.most}, not",
            1.5: f"{row.name} must be an integer, not 1.5",
            "x": f"{row.name} must be an integer, not 'x'",
        }
    if option.low is not None:
        ends = {option.low - 1: row.name, 2 * option.high: row.name}
        return {**ends, math.nan: row.name, "x": f"{row.name} must be a"}
    word = "True or False" if isinstance(row.default, bool) else "a text"
    return {1.5: f"{row.name} must be {word}, not 1.5"}


@pytest.mark.parametrize("kernel, row", ROWS.values(), ids=ROWS)
def test_values_outside_the_row_are_refused(kernel, row):
    spec = registry()[kernel]
    needed = {each.name: NEEDED[each.name] for each in spec.inputs if each.default is REQUIRED}
    for value, sentence in wrong_values(row).items():
        with pytest.raises(InputError) as refused:
            given(spec, {"device": _device(row), **needed, row.name: value})
        assert sentence in str(refused.value)


def _device(row: Declared) -> str:
    """Return a device that has the input."""
    return DEVICES[row.option.where[0]]


def test_inputs_are_refused_on_other_devices() -> None:
    tested = set()
    for kernel, row in ROWS.values():
        for kind in {*DEVICES} - {*row.option.where}:
            with pytest.raises(InputError, match=f"{row.name} is for .*: leave it out on"):
                given(registry()[kernel], {"device": DEVICES[kind], row.name: "another value"})
            tested.add((row.name, kind))
    assert {("order", "ranks"), ("targets", "processors"), ("sharing", "ranks")} <= tested


def test_most_rows_have_a_range() -> None:
    assert sum(bool(wrong_values(row)) for _, row in ROWS.values()) > 0.6 * len(ROWS)


@pytest.mark.parametrize("kernel, row", ROWS.values(), ids=ROWS)
def test_rows_are_documented(kernel, row):
    assert (row.option.meaning or row.option.text).endswith(".")
    assert options_of(registry()[kernel])[row.name] == row.default or row.name in (
        registry()[kernel].usual
    )
    assert type_of(row).removesuffix(" | None")
    if row.column and row.option.goes_to != NUMBERS:
        assert row.column in COLUMNS and COLUMNS[row.column].kind in ("input", "requested")
    assert row.option.goes_to in ("", INTEGERS, NUMBERS)


@pytest.mark.parametrize("kernel, row", ROWS.values(), ids=ROWS)
def test_integers_are_in_the_range_of_the_extension(kernel: str, row: Declared) -> None:
    if row.option.goes_to != INTEGERS:
        return
    least, most = declared(kernel).integers[row.name]
    if row.option.read is None:
        assert least <= (row.option.least or 0) and row.option.most <= most


@pytest.mark.parametrize("kernel", registry())
def test_other_inputs_are_refused(kernel):
    spec = registry()[kernel]
    every = {row.name for _, row in ROWS.values()} - {*options_of(spec)} - {"alpha", "beta"}
    for name in every:
        with pytest.raises(InputError, match="has no option"):
            mk.case(kernel.partition("@")[0], **{name: "nonsense"})


def test_inputs_of_other_kernels_may_have_no_value() -> None:
    few = {"iters": 4, "threads": 1}
    assert mk.amo("rand", stride=1, hot=None, **few) == mk.amo("rand", **few)
    with pytest.raises(InputError, match="has no option 'stride'"):
        mk.amo("rand", stride=2, **few)


def test_options_of_verbs_are_the_rows() -> None:
    (verbs,) = (a.choices for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    shown = 0
    for kernel, row in ROWS.values():
        parser = verbs.get(kernel.partition(".")[0])
        if parser is None or kernel.startswith("spatter") or not row.flag:
            continue
        (action,) = [a for a in parser._actions if a.dest == row.flag]
        assert action.default is None and (action.help or "").strip()
        shown += 1
    assert shown > 100
