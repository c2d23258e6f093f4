"""Loops given as expressions, such as ``a[i] = b[idx[i]] + s * c[i]``.

They are parsed by `ast`, and nothing is evaluated but what is allowed here. Arrays, roles,
parameters, C code and reference follow from them.
"""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.checks import shown
from memkern.errors import InputError
from memkern.families.own.roles import INDEX, READ, SUM, UPDATE, WRITE, Array

LOOP = "i"
Lookup = Callable[[str, npt.NDArray[np.int64]], npt.NDArray[Any]]
"""(array, elements) to their values."""
Written = tuple[str, npt.NDArray[np.int64] | None, npt.NDArray[Any]]
"""Array, elements and values; of a sum None and its terms."""

# By name, what NumPy evaluates, and the number of arguments.
_FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    **{"sqrt": (np.sqrt, 1), "abs": (np.abs, 1)},
    **{"min": (np.minimum, 2), "max": (np.maximum, 2)},
}
_TAKEN = (LOOP, "begin", "end", *_FUNCTIONS)
_C_TYPES = {"float64": "double", "float32": "float", "int64": "int64_t", "int32": "int32_t"}
# Unlike those of the C library they are vectorised without -ffast-math.
_PRELUDE = """#include <stdint.h>
#define sqrt(x) (sizeof(x) == 4 ? __builtin_sqrtf((float)(x)) : __builtin_sqrt(x))
#define abs(x) (sizeof(x) == 4 ? __builtin_fabsf((float)(x)) : __builtin_fabs(x))
#define min(x, y) ((x) < (y) ? (x) : (y))
#define max(x, y) ((x) > (y) ? (x) : (y))
"""


class Index(NamedTuple):
    """An index: a sum of multiples of ``i``, whole numbers and parameters.

    Attributes
    ----------
    text : str
    through : str
        The index array whose elements at this index are the index; empty without one.
    """

    text: str = LOOP
    through: str = ""

    def at(self, integers: Mapping[str, int]) -> tuple[int, int]:
        """Return by how much it grows from iteration to iteration, and its first value.

        Raises
        ------
        InputError
            It falls, or grows by different numbers.
        """
        first, second, third = (
            eval(self.text, {"__builtins__": {}}, {**integers, LOOP: i}) for i in range(3)
        )
        if not 0 <= second - first == third - second:
            raise InputError(f"index {self.text} does not grow by the same number")
        return second - first, first


@dataclass
class Loop:
    """A parsed expression.

    Attributes
    ----------
    text : str
    body : list of ast.Assign and ast.AugAssign
        Its assignments.
    arrays : dict of str to Array
    integers, numbers : list of str
        Parameters in indices, and in values.
    flops : int
        Operations of an iteration.
    uses : dict of str to set of Index
        The indices of each array.
    targets : dict of str to Index or None
        The index of each array that is written; None of a sum.
    """

    text: str
    body: list[Any] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    integers: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    flops: int = 0
    uses: dict[str, set[Index]] = field(default_factory=dict)
    targets: dict[str, Index | None] = field(default_factory=dict)

    @property
    def _sums(self) -> list[str]:
        return [name for name, at in self.targets.items() if at is None]

    def direct(self, name: str) -> list[Index]:
        """Return the indices of an array; instead of those through an index array, ``i``."""
        return sorted({Index() if use.through else use for use in self.uses.get(name, ())})

    def extents(self, n: int, integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return the least element and the length of each array that `n` iterations access.

        Arrays that are accessed through an index array have `n` elements.

        Raises
        ------
        InputError
            See `Index.at`; or all iterations write the same element.
        """
        found = dict.fromkeys(self._sums, (0, 1))
        for name in self.uses:
            uses = [use.at(integers) for use in self.direct(name)]
            least = min(first for _, first in uses)
            found[name] = least, max(step * (n - 1) + first for step, first in uses) - least + 1
            if name in self.targets and not uses[0][0]:
                raise self.refused(f"all iterations write the same element of {name}")
        return found

    def source(self, function: str, dtype: str, index_dtype: str) -> str:
        """Return the loop as a function in C."""
        value, index = _C_TYPES[dtype], _C_TYPES[index_dtype]
        kinds = {READ: f"const {value}", INDEX: f"const {index}"}
        own = [
            *(f"{kinds.get(a.role, value)} *restrict {a.name}" for a in self.arrays.values()),
            *("int64_t begin", "int64_t end"),
            *(f"int64_t {name}" for name in self.integers),
            *(f"double {name}_" for name in self.numbers),
        ]
        # Pointers are to the least element that is accessed.
        lines = [
            *(
                f"{{ int64_t {LOOP} = 0; {name} -= {functools.reduce('min({}, {})'.format, at)}; }}"
                for name in self.uses
                if (at := [use.text for use in self.direct(name)]) != [LOOP]
            ),
            *(f"const {value} {name} = ({value}){name}_;" for name in self.numbers),
            # The sums of a worker.
            *(f"{value} *const {name}_ = {name};\n{{ {value} {name} = 0;" for name in self._sums),
            "#pragma omp simd" + f" reduction(+ : {', '.join(self._sums)})" * bool(self._sums),
            f"for (int64_t {LOOP} = begin; {LOOP} < end; ++{LOOP}) {{",
        ]
        for node in copy.deepcopy(self.body):
            node.value = _InC(value).visit(node.value)
            lines.append(f"{ast.unparse(node)};")
        lines += ["}", *(f"*{name}_ += {name}; }}" for name in self._sums), "}", ""]
        return f"{_PRELUDE}void {function}({', '.join(own)}) {{\n" + "\n".join(lines)

    def values(
        self,
        i: npt.NDArray[np.int64],
        lookup: Lookup,
        integers: Mapping[str, int],
        numbers: Mapping[str, Any],
    ) -> list[Written]:
        """Return what iterations `i` write.

        `lookup` returns elements of arrays as they are before the invocation.
        """
        written: list[Written] = []
        known: dict[str, Any] = {
            **{name: _View(name, lookup, written) for name in self.arrays},
            **{name: function for name, (function, _) in _FUNCTIONS.items()},
            **{**integers, **numbers, **dict.fromkeys(self._sums, 0.0), LOOP: i},
        }
        exec(ast.unparse(ast.Module(self.body, [])), {"__builtins__": {}}, known)
        return written + [
            (name, None, np.broadcast_to(known[name], i.shape)) for name in self._sums
        ]

    def refused(self, why: str) -> InputError:
        """Return the error of an expression that is not elementwise."""
        return InputError(f"{shown(self.text)} is not elementwise: {why}")


def parse(text: str) -> Loop:
    """Parse an expression.

    Parameters
    ----------
    text : str
        Assignments, separated by semicolons or lines. On the left are ``a[...]``, or a name with
        ``+=`` for a sum over all iterations. Indices are sums of multiples of ``i``, whole numbers
        and parameters, or elements of an index array at such an index.

    Raises
    ------
    InputError
        It is no such expression, or iterations depend on each other.
    """
    lines = "\n".join(line.strip() for line in re.split("[;\n]", text))
    try:
        loop = Loop(text, ast.parse(lines).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{shown(text)} is no expression: {error.args[0]}") from None
    if not loop.body:
        raise InputError("the expression is empty: write for example a[i] = b[i] + s * c[i]")
    for statement in loop.body:
        _statement(loop, statement)
    for name, target in loop.targets.items():
        if target is not None and loop.uses[name] != {target}:
            raise loop.refused(f"iterations depend on each other by {name}")
    for name, uses in loop.uses.items():
        for through in {use.through for use in uses if use.through}:
            loop.arrays[through] = loop.arrays[through]._replace(of=name)
    # Written arrays first, as in the expression.
    loop.arrays = {name: loop.arrays[name] for name in dict.fromkeys([*loop.targets, *loop.arrays])}
    return loop


def _statement(loop: Loop, node: ast.stmt) -> None:
    """Add what an assignment uses to a loop."""
    match node:
        case ast.Assign(targets=[target], value=value):
            adds = False
        case ast.AugAssign(target=target, op=ast.Add(), value=value):
            adds, loop.flops = True, loop.flops + 1
        case _:
            raise _unknown(loop, node, "an assignment with = or +=")
    _value(loop, value)
    match target:
        case ast.Name(id=name) if adds:
            _array(loop, name, SUM)
            at = None
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            at = _index(loop, inside)
            _array(loop, name, UPDATE if adds or name in loop.arrays else WRITE, at)
        case _:
            raise _unknown(loop, target, "an element such as a[i], or a sum by +=")
    if name in loop.targets:
        raise loop.refused(f"it writes {name} twice")
    loop.targets[name] = at


def _value(loop: Loop, node: ast.expr) -> None:
    """Add what a value uses to a loop."""
    match node:
        case ast.Constant(value=number) if type(number) in (int, float):
            return
        case ast.Name(id=name):
            _parameter(loop, name, loop.numbers)
            return
        case ast.Subscript(value=ast.Name(id=name), slice=at):
            if name in loop.targets:
                raise loop.refused(f"it reads {name} after it was written")
            _array(loop, name, READ, _index(loop, at))
            return
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            parts, loop.flops = [left, right], loop.flops + 1
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if (
            name in _FUNCTIONS and len(parts) == _FUNCTIONS[name][1]
        ):
            loop.flops += 1
        case _:
            raise _unknown(loop, node, f"elements, parameters, + - * / and {', '.join(_FUNCTIONS)}")
    for part in parts:
        _value(loop, part)


def _index(loop: Loop, node: ast.expr, inner: bool = False) -> Index:
    """Return an index, whose parameters and index array are added to a loop."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=inside) if not inner:
            at = _index(loop, inside, inner=True)
            _array(loop, name, INDEX, at)
            return Index(at.text, name)
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name):
                if name != LOOP:
                    _parameter(loop, name, loop.integers)
            case ast.Constant(value=number) if type(number) is int:
                pass
            case (
                ast.BinOp()
                | ast.UnaryOp(op=ast.USub())
                | ast.Load()
                | ast.Add()
                | ast.Sub()
                | ast.Mult()
                | ast.USub()
            ):
                pass
            case _:
                raise _unknown(loop, node, "a sum of multiples of i, whole numbers and parameters")
    return Index(ast.unparse(node))


def _array(loop: Loop, name: str, role: str, at: Index | None = None) -> None:
    known = loop.arrays.get(name)
    mixed = known and known.role != role and (INDEX in (known.role, role) or role == SUM)
    if mixed or name in (*_TAKEN, *loop.integers, *loop.numbers):
        raise loop.refused(f"{name} has several meanings")
    if known is None or role == UPDATE:
        loop.arrays[name] = Array(name, role)
    if at is not None:
        loop.uses.setdefault(name, set()).add(at)


def _parameter(loop: Loop, name: str, of: list[str]) -> None:
    if name in (*_TAKEN, *loop.arrays, *(loop.numbers if of is loop.integers else loop.integers)):
        raise loop.refused(f"{name} has several meanings")
    if name not in of:
        of.append(name)


def _unknown(loop: Loop, node: ast.AST, wanted: str) -> InputError:
    return InputError(f"{shown(ast.unparse(node))} in {shown(loop.text)} is not {wanted}")


class _InC(ast.NodeTransformer):
    """Turns the numbers of a value into those of a type in C."""

    def __init__(self, value: str) -> None:
        self._value = value

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Name:
        return ast.Name(f"({self._value}){node.value!r}")


class _View:
    """An array of an expression that NumPy evaluates."""

    def __init__(self, name: str, lookup: Lookup, written: list[Written]) -> None:
        self._name, self._lookup, self._written = name, lookup, written

    def __getitem__(self, at: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return self._lookup(self._name, at)

    def __setitem__(self, at: npt.NDArray[np.int64], values: Any) -> None:
        self._written.append((self._name, at, np.broadcast_to(values, at.shape)))
