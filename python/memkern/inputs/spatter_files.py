"""Parsers of Spatter 2's JSON files and command line, which return arguments of memkern's cases.

The meaning of every key and option is Spatter 2's, defaults included, with these differences:

- deltas may be negative (as in old public files) or lists, which are applied cyclically;
- without a boundary (or with 0) indices are unchanged.  Spatter then takes them modulo an implicit
  boundary, which only affects patterns that span more than 32 GB divided by the number of
  configurations;
- in version 0, ``runs`` means ``nruns``, and keys that change the measurement are errors;
- input that Spatter silently ignores or leaves undefined (unknown and repeated keys, numbers with
  trailing letters, patterns that the kernel does not use) gives a warning or an error.

Configurations are numbered from 0, as in Spatter's output.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from memkern import files
from memkern.backends import of
from memkern.checks import (
    INT64_MAX,
    converter,
    integer,
    plain,
    read_integer,
    shown,
    unknown,
)
from memkern.checks import (
    number as number_of,
)
from memkern.errors import InputError
from memkern.inputs.patterns import NOTATION, Pattern, as_pattern, parse, usual_count
from memkern.limits import check_memory

MAX_FILE_B = 2**30
"""The largest JSON file that is read, in bytes."""

_PARSED_B = 20  # bytes of Python's lists and numbers per byte of JSON
_MAX_UNCHECKED_B = 2**24


class Config(TypedDict):
    """The keyword arguments of one case."""

    kernel: str
    pattern: Pattern | None
    pattern_gather: Pattern | None
    pattern_scatter: Pattern | None
    delta: int | list[int]
    delta_gather: int | list[int]
    delta_scatter: int | list[int]
    count: int
    wrap: int
    runs: int | None
    seed: int | None
    name: str
    local_work_size: int | None


@dataclasses.dataclass
class SpatterFile:
    """The configurations of a JSON file or a command line.

    Attributes
    ----------
    configs : list of Config
        Keyword arguments, one dictionary for each configuration.
    warnings : list of str
        One sentence for each key or option that has no effect.
    threads : int or None
        The requested number of threads; None if it was not given.
    on_gpu : bool
        Whether the backend is ``cuda``.
    block_shared : int or None
        Additional shared memory of each block on a GPU in bytes; None if it was not given.
    weights : dict of str to float
        Parts of an application's bytes by name, if configurations have the key ``weight`` (which is
        not Spatter's: `memkern patterns` writes it).
    """

    configs: list[Config]
    warnings: list[str] = dataclasses.field(default_factory=list)
    threads: int | None = None
    on_gpu: bool = False
    block_shared: int | None = None
    weights: dict[str, float] = dataclasses.field(default_factory=dict)


# Keys that each kernel uses; its patterns are required.
_USED = {
    "gather": {"pattern", "delta", "wrap"},
    "scatter": {"pattern", "delta", "wrap"},
    "gs": {"pattern-gather", "pattern-scatter", "delta-gather", "delta-scatter"},
    "multigather": {"pattern", "pattern-gather", "delta", "wrap"},
    "multiscatter": {"pattern", "pattern-scatter", "delta", "wrap"},
}
_PATTERNS = ("pattern", "pattern-gather", "pattern-scatter")
_DELTAS = ("delta", "delta-gather", "delta-scatter")
# Key -> (default, smallest value).
_SIZES = {"wrap": (1, 1), "count": (1024, 1), "nruns": (10, 1)}
# Key -> smallest value.
_OPTIONAL = {"pattern-size": 1, "boundary": 0, "seed": 0, "local-work-size": 0}
# The last one is what `memkern patterns --check` found.
_KEYS = {"name", "kernel", *_PATTERNS, *_DELTAS, *_SIZES, *_OPTIONAL, "accesses_over_loop"}
# Keys of Spatter 0 that change the measurement; its key runs means nruns.
_OF_VERSION_0 = {
    "stride", "morton", "hilbert", "roblock", "op", "random", "vector-len", "index-len",
    "block-len", "generic-len", "source-len", "target-len", "shared-memory", "aggregate",
    "strong-scale",
}  # fmt: skip
# Their values that do not change it; such a key gives a warning.
_WITHOUT_EFFECT = ("", "0", "false", "none", "copy")


def _sentence(message: str, configs: Sequence[int]) -> str:
    """Return a warning with the numbers of the configurations that it concerns."""
    more = f" and {len(configs) - 6} more" if len(configs) > 6 else ""
    listed = ", ".join(map(str, configs[:6]))
    return f"{message} (config{'s' * (len(configs) > 1)} {listed}{more})"


def _whole(value: object) -> object:
    """Convert integral floats such as 1e6, which Spatter accepts, to integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kernel(value: object) -> str:
    kernel = value.lower() if isinstance(value, str) else None
    if kernel not in _USED:
        raise InputError(
            f"kernel must be one of {', '.join(_USED)}, not {shown(value)}"
            + ", which is called gs since Spatter 2" * (kernel == "sg")
        )
    return kernel


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"name must be a text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"name must be valid Unicode, not {shown(value)}") from None
    return value


def _delta(key: str, value: Any) -> int | list[int]:
    if not isinstance(value, (list, tuple)) and getattr(value, "shape", ()) == ():
        return integer(_whole(plain(value, key)), key, -INT64_MAX)
    if not len(value):
        raise InputError(f"{key} must be an integer or a list of integers, not an empty list")
    return [integer(_whole(one), f"{key} {i}", -INT64_MAX) for i, one in enumerate(value)]


def _pattern(key: str, value: Any) -> Pattern:
    if isinstance(value, list) and float in set(map(type, value)):
        value = [_whole(index) for index in value]
    try:
        # Spatter drops quotation marks within a text.
        return as_pattern(value.replace('"', "") if isinstance(value, str) else value)
    except InputError as error:
        # The message about a string already begins with "pattern".
        about = f"{key} " if isinstance(value, str) else f"{key}: "
        raise InputError(f"{about}{str(error).removeprefix('pattern ')}") from None


def _config(
    values: Mapping[str, Any], compress: bool, on_gpu: bool, warn: Callable[[str], None]
) -> Config:
    """Build one configuration from Spatter's keys."""
    kernel = _kernel(values.get("kernel", "gather"))
    used = _USED[kernel]
    sizes = {
        key: integer(_whole(values.get(key, default)), key, low)
        for key, (default, low) in _SIZES.items()
    }
    optional = {
        key: integer(_whole(values[key]), key, low) if key in values else None
        for key, low in _OPTIONAL.items()
    }
    deltas = {key: _delta(key, values.get(key, 8)) for key in _DELTAS}
    patterns = {key: _pattern(key, values[key]) for key in _PATTERNS if key in values}
    for key in _PATTERNS:
        if key in used and key not in patterns:
            raise InputError(f"{key} is missing, and kernel {kernel} needs it")
    for key in (*_PATTERNS, *_DELTAS, "wrap"):
        if key in values and key not in used:
            warn(f"{key} has no effect on kernel {kernel}")
    if "local-work-size" in values and not on_gpu:
        warn("local-work-size has no effect on this backend, only on cuda")

    patterns = {key: pattern for key, pattern in patterns.items() if key in used}
    for key, pattern in patterns.items():
        implied, delta_key = pattern.delta, key.replace("pattern", "delta")
        if implied is not None and delta_key in used:
            if delta_key in values and deltas[delta_key] != implied:
                warn(
                    f"{delta_key} has no effect beside {key} {pattern}, which sets it to {implied}"
                )
            deltas[delta_key] = implied
        patterns[key] = _shaped(
            key, pattern, optional["pattern-size"], optional["boundary"], compress
        )
    _check_together(kernel, patterns)
    return {
        "kernel": kernel,
        "pattern": patterns.get("pattern"),
        "pattern_gather": patterns.get("pattern-gather"),
        "pattern_scatter": patterns.get("pattern-scatter"),
        "delta": deltas["delta"],
        "delta_gather": deltas["delta-gather"],
        "delta_scatter": deltas["delta-scatter"],
        "count": sizes["count"],
        "wrap": sizes["wrap"],
        "runs": sizes["nruns"],
        "seed": optional["seed"],
        "name": _name(values.get("name", "")),
        "local_work_size": optional["local-work-size"],
    }


def _shaped(
    key: str, pattern: Pattern, size: int | None, boundary: int | None, compress: bool
) -> Pattern:
    """Truncate, remap and compress a pattern, in Spatter's order."""
    if size is not None:
        if size > len(pattern):
            raise InputError(
                f"pattern-size must be at most {len(pattern)}, the length of {key}, not {size}"
            )
        pattern = pattern.truncated(size)
    if boundary:
        pattern = pattern.remapped(boundary)
    return pattern.compressed() if compress else pattern


def _check_together(kernel: str, patterns: Mapping[str, Pattern]) -> None:
    if kernel == "gs":
        lengths = [len(patterns[key]) for key in ("pattern-gather", "pattern-scatter")]
        if lengths[0] != lengths[1]:
            raise InputError(
                f"pattern-gather and pattern-scatter must be of one length, not of {lengths[0]} "
                f"and {lengths[1]}"
            )
    if kernel.startswith("multi"):
        inner = kernel.replace("multi", "pattern-")
        outer = len(patterns["pattern"])
        if patterns[inner].maximum >= outer:
            raise InputError(
                f"{inner} must hold positions in pattern, which are below {outer}, not "
                f"{patterns[inner].maximum}"
            )


class _Object(dict[str, Any]):
    """A JSON object that records a repeated key."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: str | None = None
        if len(pairs) != len(self):
            self.repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]


def _parse_json(data: bytes, label: str) -> list[Any]:
    if not data.strip():
        raise InputError(f"{label} is empty, but must hold a list of configurations")
    if data.startswith(b"version https://git-lfs.github.com/spec/"):
        raise InputError(
            f"{label} is a git-lfs pointer, not JSON: fetch the file itself with `git lfs pull`"
        )
    try:
        top = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_Object,
            # Python refuses to convert thousands of digits; the first hundred exceed every limit.
            parse_int=lambda digits: int(digits[:100]),
        )
    except UnicodeDecodeError:
        raise InputError(f"{label} is not JSON: it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        before, after = error.doc[: error.pos].rstrip(), error.doc[error.pos :]
        if before.endswith(",") and after.startswith(("]", "}")):
            raise InputError(
                f"{label} is not JSON: a comma too many at line {before.count(chr(10)) + 1}, "
                f"before {after[0]}"
            ) from None
        fault = error.msg.removesuffix(" at")
        raise InputError(
            f"{label} is not JSON: {fault} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InputError(f"{label} is nested too deeply to be a list of configurations") from None
    if not isinstance(top, list):
        found = "an object" if isinstance(top, dict) else shown(top)
        raise InputError(f"{label} must hold a list of configurations, not {found}")
    if not top:
        raise InputError(f"{label} holds an empty list, but must hold at least one configuration")
    return top


def read_json(  # noqa: C901
    source: str | Path | bytes,
    *,
    compress: bool = False,
    runs: int | None = None,
    on_gpu: bool = False,
) -> SpatterFile:
    """Read a JSON file of Spatter 2.

    The file is a list of objects.  Their keys are name, kernel (in any case), pattern,
    pattern-gather, pattern-scatter (texts as for `memkern.patterns.parse`, or lists of indices),
    pattern-size, delta, delta-gather, delta-scatter, boundary, seed, wrap, count,
    local-work-size and nruns.  Patterns are truncated to pattern-size, then taken modulo
    boundary, then compressed; the delta that a generator implies overrides the key's.  Numbers
    may be written as integral floats.

    Parameters
    ----------
    source : str, pathlib.Path or bytes
        The path of the file, or its content as bytes.
    compress : bool
        Renumber the pages that each pattern accesses consecutively.
    runs : int, optional
        Replaces nruns in every configuration.
    on_gpu : bool
        Whether the configurations are for a GPU, on which local-work-size has an effect.

    Returns
    -------
    SpatterFile
        Configurations and warnings (unknown keys, keys without an effect).

    Raises
    ------
    InputError
        If the file cannot be read, is not such a list, or a value is wrong.  The message has the
        number of the configuration (from 0), the key and the value.

    Notes
    -----
    The format is that of Spatter 2.x, https://github.com/hpcgarage/spatter.
    """
    if isinstance(source, bytes):
        label, data = "the JSON text", source
    elif isinstance(source, (str, os.PathLike)):
        label, data = repr(os.fspath(source)), files.read(Path(source), most_B=MAX_FILE_B)
    else:
        raise InputError(f"a JSON file must be given by its path, not {shown(source)}")
    if runs is not None:
        runs = integer(runs, "runs", 1)
    check_memory(_PARSED_B * len(data), label)
    warnings: dict[str, list[int]] = {}  # configurations by message
    configs = []
    weights: dict[str, float] = {}
    unchecked_B = 0
    for number, values in enumerate(_parse_json(data, label)):
        where = f"{label}, config {number}"
        if not isinstance(values, _Object):
            raise InputError(f"{where} must be an object, not {shown(values)}")
        if values.repeated is not None:
            raise InputError(f"{where}: key {shown(values.repeated)} is given twice")

        def warn(message: str, number: int = number) -> None:
            warnings.setdefault(message, []).append(number)

        try:
            if "runs" in values:
                if "nruns" in values:
                    raise InputError("nruns is given twice: also as runs, its name in Spatter 0")
                values["nruns"] = values.pop("runs")
            if of_version_0 := sorted(
                key
                for key in values.keys() & _OF_VERSION_0
                if str(values[key]).lower() not in _WITHOUT_EFFECT
            ):
                raise InputError(
                    f"{', '.join(of_version_0)} of Spatter 0 is not in Spatter 2, and changes the "
                    "measurement: give the indices as the pattern, and leave it out"
                )
            if "weight" in values:
                weights[_name(values.get("name"))] = number_of(values.pop("weight"), "weight", 0)
            for key in values:
                if key not in _KEYS:
                    warn(f"unknown key {shown(key)} is ignored")
            config = _config(values, compress, on_gpu, warn)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if runs is not None:
            config["runs"] = runs
        configs.append(config)
        # A small pattern is not checked on its own, but there may be many.
        unchecked_B += sum(
            8 * len(value) for value in config.values() if isinstance(value, Pattern)
        )
        if unchecked_B > _MAX_UNCHECKED_B:
            check_memory(unchecked_B, f"{label} with all of its patterns")
            unchecked_B = 0
    return SpatterFile(
        configs, [_sentence(*warning) for warning in warnings.items()], weights=weights
    )


_ARGUMENTS = (
    *("kernel", "pattern", "pattern_gather", "pattern_scatter", "pattern_size", "delta"),
    *("delta_gather", "delta_scatter", "boundary", "seed", "wrap", "count", "runs", "name"),
    *("local_work_size", "compress"),
)


def configs_from_options(
    *, on_gpu: bool = False, compress: bool = False, **given: Any
) -> SpatterFile:
    """Build the single configuration that options describe.

    Parameters
    ----------
    on_gpu : bool
        Whether it is for a GPU.
    compress : bool
        Renumber the pages that each pattern accesses consecutively.
    kernel : str
        gather (by default), scatter, gs, multigather or multiscatter, in any case.
    pattern, pattern_gather, pattern_scatter : Pattern, str or array_like of int, optional
        ``pattern`` for all kernels but gs, ``pattern_gather`` for gs and (inner) multigather,
        ``pattern_scatter`` for gs and (inner) multiscatter.
    pattern_size : int, optional
        Truncates the patterns.
    delta, delta_gather, delta_scatter : int or sequence of int, optional
        Distances between consecutive bases in values.  A delta that the pattern implies overrides
        this one; the default is 8.
    boundary : int, optional
        Indices are taken modulo this, unless it is None or 0.
    seed : int, optional
        Seed of the data.
    wrap, count, runs, local_work_size : int, optional
        1, 1024 (or 1 of a pattern of more indices than that), 10 (or the usual placements of a
        single instance) and 1024 if not given.
    name : str
        Label.

    Returns
    -------
    SpatterFile
        One configuration and its warnings.

    Raises
    ------
    InputError
        If a value is wrong, a pattern is missing, or there is no such option.
    """
    for argument in given:
        if argument not in _ARGUMENTS:
            raise unknown(argument, "option", _ARGUMENTS)
    keys = {"kernel": "gather", **given}
    if "runs" in keys:
        keys["nruns"] = keys.pop("runs")
    warnings: list[str] = []
    config = _config(
        {key.replace("_", "-"): value for key, value in keys.items() if value is not None},
        compress,
        on_gpu,
        warnings.append,
    )
    if given.get("count") is None:
        moved = (config["pattern_gather"], config["pattern_scatter"], config["pattern"])
        config["count"] = usual_count(next(filter(None, moved)))
    if config["count"] == 1 and given.get("runs") is None:
        config["runs"] = None  # the usual placements
    return SpatterFile([config], warnings)


class _DeltaAction(argparse.Action):
    """Store a delta, which overrides the delta of a pattern that was given before it.

    Spatter reads its command line from left to right: the later one of ``-d`` and a generator's
    delta applies.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        key = self.dest.replace("delta", "pattern")
        pattern = getattr(namespace, key, None)
        if pattern is not None:
            setattr(namespace, key, dataclasses.replace(pattern, delta=None))


def _at_least(low: int, high: int = INT64_MAX) -> Callable[[str], Any]:
    return converter(lambda text: integer(read_integer(text, "the value"), "the value", low, high))


@converter
def _read_pattern(text: str) -> Pattern:
    if text.upper().startswith("FILE="):  # of Spatter 0 and 1
        raise InputError(f"pattern {shown(text)} is a file: give it by -f {text[5:]}")
    return parse(text)


@converter
def _read_delta(text: str) -> int | list[int]:
    deltas = [read_integer(part, "delta") for part in text.split(",")]
    return _delta("delta", deltas if len(deltas) > 1 else deltas[0])


@converter
def _read_backend(text: str) -> str:
    if text.lower() not in ("serial", "openmp", "cuda"):
        raise InputError(f"the backend must be one of serial, openmp, cuda, not {shown(text)}")
    return text.lower()


class _Option(NamedTuple):
    flags: tuple[str, ...]
    help: str
    arguments: Mapping[str, Any] = {"action": "store_true"}  # of argparse
    idle: str | None = None  # why it has no effect

    @property
    def dest(self) -> str:
        return self.flags[-1].removeprefix("--").replace("-", "_")

    @property
    def argument(self) -> str | None:
        """The argument of `configs_from_options`, if it has one."""
        name = "seed" if self.dest == "random" else self.dest
        return name if name in _ARGUMENTS else None


_SEED_OF_CLOCK = -1
_BESIDE_A_FILE = (None, "runs", "compress")
_INT32_MAX = 2**31 - 1

_OPTIONS = (
    _Option(("-a", "--aggregate"), "no effect", idle="each case reports all of its runs"),
    _Option(("--atomic-thread-fence",), "no effect", idle="the kernels have no fence"),
    _Option(
        ("--atomic-writes",), "no effect", idle="scatters on a GPU write plain values, in any order"
    ),
    _Option(
        ("-b", "--backend"),
        "serial, openmp (default) or cuda",
        {"type": _read_backend, "metavar": "NAME"},
    ),
    _Option(("-c", "--compress"), "renumber the pages that a pattern accesses consecutively"),
    _Option(
        ("-d", "--delta"),
        "distance between bases, or a list such as 8,0 (default 8)",
        {"type": _read_delta, "metavar": "N", "action": _DeltaAction},
    ),
    _Option(
        ("--dense-buffers",),
        "no effect",
        idle="each thread has its own dense buffer, unless a long pattern is divided",
    ),
    _Option(
        ("-e", "--boundary"),
        "take indices modulo this (default: off)",
        {"type": _at_least(0), "metavar": "N"},
    ),
    _Option(("-f", "--file"), "JSON file of configurations", {"type": str, "metavar": "FILE"}),
    _Option(
        ("-g", "--pattern-gather"),
        "pattern to gather by (gs), inner pattern (multigather)",
        {"type": _read_pattern, "metavar": "PATTERN"},
    ),
    _Option(
        ("-j", "--pattern-size"), "truncate the patterns", {"type": _at_least(1), "metavar": "N"}
    ),
    _Option(
        ("-k", "--kernel"),
        f"{', '.join(_USED)} (default gather)",
        {"type": converter(_kernel), "metavar": "NAME"},
    ),
    _Option(
        ("-l", "--count"),
        "gathers or scatters (default 1024, or 1 of more than 1024 indices)",
        {"type": _at_least(1), "metavar": "N"},
    ),
    _Option(
        ("-m", "--shared-memory"),
        "on cuda: further shared memory of each block",
        {"type": _at_least(0), "metavar": "BYTES"},
    ),
    _Option(
        ("-n", "--name"),
        "label of the configuration",
        {"type": converter(_name), "metavar": "TEXT"},
    ),
    _Option(
        ("-o", "--op"),
        "a number has no effect, a path is the results file",
        {"type": _at_least(0), "metavar": "N|PATH"},
        idle="Spatter does not use it",
    ),
    _Option(
        ("-p", "--pattern"),
        f"{NOTATION}: .npy, FILE.parquet:COLUMN, or text with one a line",
        {"type": _read_pattern, "metavar": "PATTERN"},
    ),
    _Option(
        ("-r", "--runs"),
        "timed runs (default 10, or the file's; of one instance the usual placements)",
        {"type": _at_least(1), "metavar": "N"},
    ),
    _Option(
        ("-s", "--random"),
        "seed of the data; without a value, the time",
        {
            "type": _at_least(0, _INT32_MAX),
            "metavar": "SEED",
            "nargs": "?",
            "const": _SEED_OF_CLOCK,
        },
    ),
    _Option(
        ("-t", "--omp-threads"),
        "threads (default: all)",
        {"type": _at_least(1, _INT32_MAX), "metavar": "N,..."},
    ),
    _Option(
        ("-u", "--pattern-scatter"),
        "pattern to scatter by (gs), inner pattern (multiscatter)",
        {"type": _read_pattern, "metavar": "PATTERN"},
    ),
    _Option(
        ("-v", "--verbosity"),
        "0 is quiet (default 1)",
        {"type": _at_least(0), "metavar": "N", "default": 1},
    ),
    _Option(
        ("-w", "--wrap"),
        "number of dense blocks, used in turn (default 1)",
        {"type": _at_least(1), "metavar": "N"},
    ),
    _Option(
        ("-x", "--delta-gather"),
        "delta of gs's gather (default 8)",
        {"type": _read_delta, "metavar": "N", "action": _DeltaAction},
    ),
    _Option(
        ("-y", "--delta-scatter"),
        "delta of gs's scatter (default 8)",
        {"type": _read_delta, "metavar": "N", "action": _DeltaAction},
    ),
    _Option(
        ("-z", "--local-work-size"),
        "on cuda: threads per block",
        {"type": _at_least(0), "metavar": "N"},
    ),
)


def add_options(
    parser: argparse.ArgumentParser,
    readers: Mapping[str, Callable[[str], Any]] | None = None,
) -> None:
    """Add every option of Spatter 2, short and long, to a parser.

    ``-h/--help`` is left to the parser.  An option that is not given is None (or False for a
    switch) in the namespace; only the verbosity has a default, 1.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser to extend; it reports wrong values as its usual errors.
    readers : mapping, optional
        Converters by long option (``op``) that replace those for Spatter's values.
    """
    group = parser.add_argument_group("Spatter's options")
    types = {name: {"type": read} for name, read in (readers or {}).items()}
    for option in _OPTIONS:
        arguments = {**option.arguments, **types.get(option.dest, {})}
        group.add_argument(*option.flags, help=option.help, **arguments)


def options_to_configs(namespace: argparse.Namespace) -> SpatterFile:
    """Turn parsed options into configurations.

    Parameters
    ----------
    namespace : argparse.Namespace
        From a parser that has `add_options`.

    Returns
    -------
    SpatterFile
        The configurations of ``--file``, or the single one that the other options describe;
        the requested threads (1 for the serial backend); a warning for each option that has no
        effect.  Unlike in Spatter, ``--runs`` also applies to a file.

    Raises
    ------
    InputError
        If the backend and the device differ, the file is wrong, or the options do not describe a
        case.
    """
    given = vars(namespace)
    backend, device = given["backend"], given.get("device")
    on_gpu = backend == "cuda" if device is None else of(device).is_accelerator
    if backend is not None and (backend == "cuda") != on_gpu:
        raise InputError(
            f"-b {backend} does not run on {device}: use -b cuda for GPUs and no other device, or "
            "leave out one of them"
        )
    warnings = []
    for option in _OPTIONS:
        is_given = given[option.dest] is not None and given[option.dest] is not False
        if is_given and option.idle:
            warnings.append(f"{'/'.join(option.flags)} has no effect: {option.idle}")
        elif is_given and given["file"] is not None and option.argument not in _BESIDE_A_FILE:
            warnings.append(f"{'/'.join(option.flags)} has no effect beside -f/--file")
    block_shared = given["shared_memory"]
    if block_shared is not None and not on_gpu:
        warnings.append("-m/--shared-memory has no effect on this backend, only on cuda")
        block_shared = None
    threads = given["omp_threads"]
    if backend == "serial":
        if threads not in (None, 1):
            warnings.append(
                "-t/--omp-threads has no effect on backend serial, which has one thread"
            )
        threads = 1
    if given["file"] is not None:
        parsed = read_json(
            given["file"], compress=given["compress"], runs=given["runs"], on_gpu=on_gpu
        )
    else:
        arguments = {o.argument: given[o.dest] for o in _OPTIONS if o.argument is not None}
        if arguments["seed"] == _SEED_OF_CLOCK:
            arguments["seed"] = int(time.time())
        parsed = configs_from_options(
            **{key: value for key, value in arguments.items() if value is not None}, on_gpu=on_gpu
        )
    warnings += parsed.warnings
    return SpatterFile(
        parsed.configs, warnings, threads, on_gpu, block_shared, weights=parsed.weights
    )
