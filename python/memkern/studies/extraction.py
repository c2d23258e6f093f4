"""Patterns of gathers and scatters, from the trace of a program.

An instruction accesses memory indirectly if its address is linear in a value that another
instruction loaded just before, with a constant base as long as that one continues at its distance,
or if its addresses are not regular: its four most frequent distances are less than 95 % of them.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memkern.errors import InputError
from memkern.inputs import traces
from memkern.inputs.locality import FIRST, reuse_distances
from memkern.inputs.pattern import owned
from memkern.studies.tracing import load

_Ints = npt.NDArray[np.int64]

_REGULAR = 0.95
FEW = 32  # accesses from which on an instruction is looked at
_HOLDS = 0.95
_MOST = 2**20  # indices of a pattern
_MOST_OF_ALL = 2**23
_LONGEST = 2**16  # indices of an instance
_CYCLE = 64
_TURNS = 64  # index arrays of an instruction
NONE = 2**32 - 1


@dataclass(frozen=True)
class Found:
    """A pattern of a program.

    Attributes
    ----------
    place, function : str
        Source line, and function.
    kernel : str
        ``gather``, ``scatter``, ``gs`` or ``multigather``.
    patterns : dict of str to ndarray of int64
        Indices in elements, by Spatter's keys.
    deltas : dict of str to int
        Distance of successive instances in elements, by Spatter's keys.
    count : int
        Instances.
    size_B : int
        Bytes of an element.
    accesses, bytes_B : int
        Indirect accesses that the pattern stands for, and their bytes.
    share : float
        Their part of all bytes of the program.
    atomic : bool
    files : tuple of str
        Traces, such as those of ranks, in which it is.
    correlation : float
        Smallest correlation of the indices of these traces with those of the first one.
    """

    place: str
    function: str
    kernel: str
    patterns: dict[str, _Ints]
    deltas: dict[str, int]
    count: int
    size_B: int
    accesses: int
    bytes_B: int
    share: float
    atomic: bool
    files: tuple[str, ...] = ()
    correlation: float = 1.0

    @property
    def names(self) -> tuple[str, str]:
        """What a program may be timed by: its place, where it is marked, and its function."""
        return self.place, plain(self.function)

    @property
    def length(self) -> int:
        """Indices of an instance."""
        return len([*self.patterns.values()][-1])

    @property
    def access_class(self) -> str:
        """The class of its last pattern (see `memkern.inputs.pattern.Pattern.access_class`)."""
        return owned([*self.patterns.values()][-1], self.place).access_class

    @property
    def reuse(self) -> float:
        """Median distance of reuse of its elements, infinite if most are accessed once."""
        indices = [*self.patterns.values()][-1][:_LONGEST]
        distances = reuse_distances(np.tile(indices, 2) if 0 in self.deltas.values() else indices)
        return float(np.median(np.where(distances == FIRST, np.inf, distances)))

    def config(self) -> dict[str, Any]:
        """Return its entry in a file of Spatter."""
        return {
            "name": f"{self.place} {self.function}",
            "kernel": self.kernel,
            **{key: indices.tolist() for key, indices in self.patterns.items()},
            **self.deltas,
            "count": self.count,
            "weight": self.share,
        }


class Extracted(NamedTuple):
    """The patterns of a program, and its totals over all traces.

    Attributes
    ----------
    patterns : list of Found
        The largest first.
    accesses, bytes_B : int
        Of the whole program, also of windows that were left out.
    recorded : int
        Accesses in the traces.
    atomics : tuple of int
        Atomic accesses, lines that they access, and lines of several threads.
    sites : list of Sites
        Instructions of each trace.
    """

    patterns: list[Found]
    accesses: int
    bytes_B: int
    recorded: int
    atomics: tuple[int, int, int]
    sites: list[Sites]


class _Shape(NamedTuple):
    """What instructions access: as `Found`, accesses of an instance, and their part of all."""

    kernel: str
    patterns: dict[str, _Ints]
    deltas: dict[str, int]
    length: int
    part: float = 1.0


class Sites:
    """The instructions of a trace."""

    def __init__(self, path: Path, converted: Path | None = None) -> None:
        self.path = path
        self.trace = load(converted or path)
        self.sites: list[dict[str, Any]] = self.trace.sites()
        self.recorded = sum(site["count"] for site in self.sites)
        # The command of the run, and ``lines``: source line and function by caller.
        self.about = _about(self.trace, path)
        # Accesses of windows and calls that were left out are distributed as the recorded ones.
        self.whole = 1 + self.trace.left_out / max(self.recorded, 1)
        self.whole *= self.about["sampled"]
        self.feeding = [self._feeding(site) for site in self.sites]
        self.sequences = self._sequences()

    def place(self, k: int) -> tuple[str, str]:
        """Return the source line and the function of an instruction."""
        line, function = self.about.get("lines", {}).get(str(self.sites[k]["caller"]), ("", ""))
        return line or f"{self.sites[k]['caller']:#x}", function

    def regular(self, k: int) -> bool:
        """Return whether few distances make up an instruction's accesses."""
        site = self.sites[k]
        frequent = sorted(site["deltas"].values())[-4:]
        return bool(site["count"] < FEW or sum(frequent) >= _REGULAR * (site["count"] - 1))

    def indirect(self, k: int) -> bool:
        """Return whether an instruction accesses memory indirectly."""
        return self.sites[k]["count"] >= FEW and (
            self.feeding[k] is not None or not self.regular(k)
        )

    def _feeding(self, site: dict[str, Any]) -> dict[str, Any] | None:
        """Return the dependency of an instruction's addresses on a loaded value."""
        usual = _usual(site)
        for one in sorted(site["dependencies"], key=lambda d: -d["hits"] - d["all_hits"]):
            scale, tries, every = one["scale"], one["tries"], one["all_tries"]
            if not scale or scale % site["size"]:
                continue
            # Where the loads of the values are irregular themselves, the base may change anywhere.
            if not (tries >= 4 and one["hits"] >= _HOLDS * tries) and not (
                every >= 4 and one["all_hits"] >= every / 2 and not self.regular(one["on"])
            ):
                continue
            other = self.sites[one["on"]]
            if (usual, _usual(other)) == (scale, other["size"]) and scale == site["size"]:
                continue  # an array beside the indices 0, 1, 2, ...
            return dict(one)
        return None

    def frequent(self, k: int) -> int:
        """Return the most frequent distance between accesses of an instruction."""
        return _frequent(self.sites[k])

    def origins(self, k: int) -> tuple[int, int]:
        """Return the instruction that loads an instruction's index, and the first one of a chain.

        They differ if the index is itself loaded through an index array.
        """
        feeding = self.feeding[k]
        if feeding is None:
            return NONE, NONE
        near = feeding["on"]
        outer = self.feeding[near]
        return near, near if outer is None or self.regular(near) else outer["on"]

    def _sequences(self) -> dict[tuple[int, int], tuple[_Ints, _Ints, _Ints]]:
        """Return the accesses of indirect instructions, beside the loads of their indices.

        They are addresses, addresses of the loads, and loaded values where they are known (else
        -1), of the thread that accesses most.
        """
        wanted: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for k, site in enumerate(self.sites):
            if self.indirect(k):
                pairs = {(k, other) for other in self.origins(k)}
                wanted[int(np.argmax(site["threads"]))] += sorted(pairs)
        most = min(_MOST, _MOST_OF_ALL // max(sum(map(len, wanted.values())), 1))
        found = {}
        for thread, asked in wanted.items():
            told = self.trace.sequences(thread, asked, most)
            for pair, (at, origin, value) in zip(asked, told, strict=True):
                if pair[1] != NONE and self.sites[pair[1]]["size"] == 4:
                    value = np.where(value < 2**31, value, value - 2**32)
                found[pair] = at.astype(np.int64), origin.astype(np.int64), value
        return found


def _frequent(site: dict[str, Any]) -> int:
    """Return the most frequent distance between accesses of an instruction."""
    return int(max(site["deltas"], key=site["deltas"].__getitem__, default=0))


def _usual(site: dict[str, Any]) -> int | None:
    """Return the distance between most accesses of an instruction, if there is one."""
    step = _frequent(site)
    return step if site["deltas"].get(step, 0) >= _REGULAR * (site["count"] - 1) else None


def plain(function: str) -> str:
    """Return a function's name without the compiler's additions, such as ``._omp_fn.0``."""
    return function.partition(".")[0]


def _about(trace: Any, path: Path) -> dict[str, Any]:
    """Return what a trace's text says of its run."""
    try:
        about = json.loads(trace.text or "{}")
        lines = {k: (str(line), str(name)) for k, (line, name) in about.get("lines", {}).items()}
        return {**about, "lines": lines, "sampled": int(about.get("sampled", 1))}
    except (ValueError, AttributeError, TypeError):
        raise InputError(f"{path} is damaged: its text can't be read") from None


def extract(paths: Sequence[str | Path], least_share: float = 0.0) -> Extracted:
    """Return the patterns of gathers and scatters in the traces of a program.

    Parameters
    ----------
    paths : sequence of str or Path
        A trace of each process.
    least_share : float
        Patterns with a smaller part of the program's bytes are left out.

    Raises
    ------
    InputError
        A file is no trace, or damaged.
    """
    every = [_sites_of(Path(path)) for path in paths]
    total = [round(sum(s["bytes"] for s in one.sites) * one.whole) for one in every]
    found = [
        replace(pattern, files=(str(path),))
        for path, one in zip(paths, every, strict=True)
        for pattern in _of_trace(one, max(sum(total), 1))
    ]
    return Extracted(
        sorted(
            (one for one in _joined(found) if one.share >= least_share),
            key=lambda pattern: -pattern.bytes_B,
        ),
        round(sum(one.recorded * one.whole for one in every)),
        sum(total),
        sum(one.recorded for one in every),
        tuple(np.sum([one.trace.atomics() for one in every], axis=0).tolist()),
        every,
    )


def _sites_of(path: Path) -> Sites:
    """Return the instructions of a trace, also of other tools."""
    if traces.is_own(path):
        return Sites(path)
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder, path.name)
        traces.write(converted, traces.events(path))
        return Sites(path, converted)


def _of_trace(all: Sites, total_B: int) -> list[Found]:
    """Return the patterns of a trace."""
    # Unrolled accesses of a line, which take turns, are one pattern.
    together: dict[Any, list[int]] = defaultdict(list)
    instances: dict[int, list[_Shape]] = {}
    for k, site in enumerate(all.sites):
        if not all.indirect(k):
            continue
        if shapes := _instances(all, k):
            instances[k] = shapes
        else:
            together[(all.place(k), site["how"], site["size"], site["count"])].append(k)
    found = [_found(all, sites, total_B, _whole(all, sites)) for sites in together.values()]
    while instances:
        k, shapes = instances.popitem()
        other = _partner(all, k, shapes, instances)
        if other is None:
            found += [_found(all, [k], total_B, shape) for shape in shapes]
            continue
        gathers = shapes[0].kernel == "gather"
        found += [
            _found(all, [k, other], total_B, _copying(*pair[:: 1 if gathers else -1]))
            for pair in zip(shapes, instances.pop(other), strict=True)
        ]
    return found


def _partner(
    all: Sites, k: int, shapes: list[_Shape], others: dict[int, list[_Shape]]
) -> int | None:
    """Return the other side of a copy by two index arrays, in the same source line."""
    for j, those in others.items():
        if (
            {shapes[0].kernel, those[0].kernel} == {"gather", "scatter"}
            and all.place(j) == all.place(k)
            and all.sites[j]["low"] != all.sites[k]["low"]
            and [(x.length, x.part) for x in shapes] == [(y.length, y.part) for y in those]
        ):
            return j
    return None


def _copying(gather: _Shape, scatter: _Shape) -> _Shape:
    sides = {"gather": gather, "scatter": scatter}
    return _Shape(
        "gs",
        {f"pattern-{name}": side.patterns["pattern"] for name, side in sides.items()},
        {f"delta-{name}": side.deltas["delta"] for name, side in sides.items()},
        2 * gather.length,
        gather.part,
    )


def _found(all: Sites, sites: list[int], total_B: int, shape: _Shape) -> Found:
    first, scale = all.sites[sites[0]], all.whole * shape.part
    accesses, bytes_B = (
        round(sum(all.sites[k][name] for k in sites) * scale) for name in ("count", "bytes")
    )
    place, function = all.place(sites[0])
    return Found(
        place=place,
        function=function,
        kernel=shape.kernel,
        patterns=shape.patterns,
        deltas=shape.deltas,
        count=max(round(accesses / shape.length), 1),
        size_B=first["size"],
        accesses=accesses,
        bytes_B=bytes_B,
        share=bytes_B / total_B,
        atomic=bool(first["how"] & traces.ATOMIC),
    )


def _kernel(site: dict[str, Any]) -> str:
    return "scatter" if site["how"] & traces.WRITE else "gather"


def _instances(all: Sites, k: int) -> list[_Shape]:
    """Return the patterns of an instruction that uses index arrays again and again.

    There is one for each array in turn; none if the instruction has no such arrays.
    """
    site, feeding = all.sites[k], all.feeding[k]
    if feeding is None or feeding["scale"] % site["size"]:
        return []
    near, root = all.origins(k)
    at, origin, value = all.sequences[k, root]
    through = all.sequences[k, near][2] if root != near else None
    values, numbers = np.unique(np.diff(origin), return_counts=True)
    if len(values) < 2:
        return []
    begins = np.flatnonzero(np.diff(origin, prepend=-1) != values[np.argmax(numbers)])
    lengths = np.diff(np.append(begins, len(at)))
    if len(at) < max(site["threads"]):
        begins, lengths = begins[:-1], lengths[:-1]  # the last one is cut off
    # Instances of one array follow each other.
    changes = (np.diff(origin[begins]) != 0) | (np.diff(lengths) != 0)
    turns = np.split(np.arange(len(begins)), np.flatnonzero(changes) + 1)
    if not len(begins) or len(turns) > _TURNS or max(lengths) > _LONGEST:
        return []
    found = []
    for turn in turns:
        first = np.arange(lengths[turn[0]]) + begins[turn[0]]
        shape = _shape(
            at[begins[turn][:, None] + np.arange(len(first))],
            value[first],
            None if through is None else through[first],
            feeding["scale"] // site["size"],
            site["size"],
        )
        if shape is None:
            return []
        patterns, delta = shape
        kernel = _kernel(site)
        if through is not None:
            patterns[f"pattern-{kernel}"] = patterns.pop("inner")
            kernel = f"multi{kernel}"
        length = len([*patterns.values()][-1])
        part = len(turn) * len(first) / sum(lengths)
        found.append(_Shape(kernel, patterns, {"delta": delta}, length, part))
    return found


def _shape(
    rows: _Ints, value: _Ints, through: _Ints | None, scale: int, size: int
) -> tuple[dict[str, _Ints], int] | None:
    """Return the patterns and the delta of instances; None if they differ.

    Parameters
    ----------
    rows : ndarray, shape (instances, length)
        Addresses.
    value : ndarray, shape (length,)
        Values of the index array.
    through : ndarray, shape (length,), optional
        Values of a second index array, which are loaded at the positions `value`.
    scale, size : int
        Elements by which the address grows with a value, and bytes of an element.
    """
    moves = np.diff(rows[:, 0]) // size
    cycle = _cycle(moves)
    if cycle is None or (rows - rows[:, :1] != rows[0] - rows[0, 0]).any():
        return None
    delta = abs(int(moves[:cycle].sum()))
    if through is not None:
        if cycle > 1 or scale < 0 or (value < 0).any() or (through < 0).any():
            return None
        outer = np.zeros(int(value.max()) + 1, dtype=np.int64)
        outer[value] = through * scale
        return {"pattern": outer, "inner": value}, delta
    positive = scale > 0 and (value >= 0).all()
    indices = value * scale if positive else (rows[0] - rows[0].min()) // size
    if cycle > 1:
        # An instance for each delta.
        indices = (indices + np.concatenate(([0], np.cumsum(moves[: cycle - 1])))[:, None]).ravel()
        indices -= min(indices.min(), 0)
    return {"pattern": indices}, delta


def _cycle(moves: _Ints) -> int | None:
    """Return after how many moves they repeat; None if they do not."""
    if len(moves) < 2:
        return 1
    longest = min(_CYCLE, len(moves) // 2)
    return next((n for n in range(1, longest + 1) if (moves[n:] == moves[:-n]).all()), None)


def _whole(all: Sites, sites: list[int]) -> _Shape:
    """Return the accesses of instructions that take turns as one pattern."""
    first = all.sites[sites[0]]
    of_each = [all.sequences[k, all.origins(k)[0]][0] for k in sites]
    fewest = min(map(len, of_each))
    at = np.stack([one[:fewest] for one in of_each], axis=1).ravel()[:_MOST]
    # Of accesses that repeat, those of one repetition.
    likely = (
        p
        for p in np.flatnonzero(at == at[0])[1:]
        if (at[p : p + FEW] == at[:FEW][: len(at) - p]).all()
    )
    at = at[: next((p for p in likely if (at[p:] == at[: len(at) - p]).all()), len(at))]
    indices = (at - at.min()) // first["size"]
    return _Shape(_kernel(first), {"pattern": indices}, {"delta": 0}, len(at))


def _joined(found: Iterable[Found]) -> list[Found]:
    """Join the patterns of the same line and kernel in several traces, if they are equal."""
    groups: dict[Any, list[Found]] = {}
    for one in found:
        same = groups.setdefault((one.place, one.function, one.kernel, one.size_B), [])
        for number, other in enumerate(same):
            correlation = _correlation(one, other)
            if not {*one.files} & {*other.files} and correlation >= _HOLDS:
                same[number] = replace(
                    other,
                    count=other.count + one.count,
                    accesses=other.accesses + one.accesses,
                    bytes_B=other.bytes_B + one.bytes_B,
                    share=other.share + one.share,
                    files=(*other.files, *one.files),
                    correlation=min(correlation, other.correlation),
                )
                break
        else:
            same.append(one)
    return [one for same in groups.values() for one in same]


def _correlation(one: Found, other: Found) -> float:
    """Return the correlation of two patterns' indices; 0 if their lengths differ."""
    x, y = (np.concatenate([*each.patterns.values()]) for each in (one, other))
    if len(x) != len(y) or one.deltas != other.deltas:
        return 0.0
    if np.array_equal(x, y):
        return 1.0
    spread = np.std(x) * np.std(y)
    return float(np.mean((x - x.mean()) * (y - y.mean())) / spread) if spread else 0.0


def write_suite(found: Extracted, ratios: Mapping[str, Sequence[float]]) -> bytes:
    """Return a file that Spatter and memkern read, with a configuration for each pattern.

    Parameters
    ----------
    found : Extracted
    ratios : mapping of str to sequence of float
        Time of its accesses over that of a loop, with the ends of its interval, by one of the
        `Found.names`; it is the key ``accesses_over_loop`` of the configuration.

    Raises
    ------
    InputError
        There is no pattern.
    """
    if not found.patterns:
        raise InputError("the trace has no indirect accesses, so that there is no pattern to write")
    # Equal patterns, such as those of a load and a store, are measured once.
    configs: dict[str, dict[str, Any]] = {}
    for pattern in found.patterns:
        config = pattern.config()
        key = json.dumps({**config, "name": "", "weight": 0})
        checked = next((ratios[name] for name in pattern.names if name in ratios), None)
        config |= {"accesses_over_loop": checked} if checked else {}
        one = configs.setdefault(key, config)
        if one is not config:
            one["weight"] += config["weight"]
    names = Counter[str]()
    for config in configs.values():
        names[config["name"]] += 1
        if names[config["name"]] > 1:
            config["name"] += f" {names[config['name']]}"
    lines = ",\n ".join(map(json.dumps, configs.values()))
    return f"[{lines}]\n".encode()
