"""The options of a case, each declared once: how it is run, and when sampling stops.

Each field of `Knobs` or `Stop` defines the checks of its values, the option of the command line,
the key of sweep files, its part of a case's identity, the argument of the extension and, for knobs,
the column of the record by which comparisons distinguish cases.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from memkern import backends, small
from memkern.backends import EVERYWHERE, GPUS, PROCESSORS, RANKS, Backend
from memkern.checks import LEAST, MOST, integer, number, one_of, plain, shown
from memkern.errors import InputError

REQUEST, INTEGERS, NUMBERS, OF_RANKS = "request", "integers", "numbers", "ranks"
"""Parts of the extension that get options (see `Option.goes_to`)."""

LABELS = ("name", "suite", "machine_file")
"""Labels, which do not change a measurement: names, and the machine file of the roofline."""

PLACEMENTS = 10
"""Placements of a case's memory, by default."""
# Seconds of a case, and most seconds of one with a precision, by default.
_USUAL_S, _PRECISE_S = 1.0, 30.0


@dataclasses.dataclass(frozen=True)
class Option:
    """Declaration of an option or of an input of a kernel, besides its name and default.

    Parameters
    ----------
    help : str
        One line for help texts, in which ``{choices}`` stands for the allowed words.
    where : tuple of str
        Kinds of devices that have the option: some of `memkern.backends.EVERYWHERE`.
    choices : tuple of str
        Allowed values, if it is one of a few words.
    least, most : int, optional
        Range, if it is an integer.
    least_given : int
        Least value that the command line accepts, if a smaller one means a default.
    below : float, optional
        Exclusive upper bound, if it is a positive number.
    low, high : float, optional
        Range, if it is any other number; without `high` there is no upper end.
    read : callable, optional
        (value, name) to the value after a check, if it is none of these.
    type : str
        Type in the documentation, if it does not follow from the range.
    meaning : str
        Description in the documentation; by default `help`.
    excludes : tuple of str
        Inputs that may not be given together with this one.
    several : bool
        Whether the command line accepts a list; all combinations are measured.
    metavar : str
        Placeholder of its value in help texts.
    flag, short, alias : str
        Long and short option of the command line, and another long one; by default the option's
        name, and none. With the flag ``-`` the command line does not have it.
    parse : callable, optional
        Text on the command line to the list of values, if it is not a list of words or integers.
    arguments : mapping
        Further arguments of ``add_argument``; with ``nargs`` the words are whole numbers.
    per : float
        Divisor of a value from the command line, such as 100 for percent.
    unit : str
    column : str
        Column of the record that holds the requested value; by default the option's name. With
        ``-`` an input has none.
    formerly : str
        Name of this column in older files; empty if it is the same.
    goes_to : str
        Where the extension gets it, under this name: in its `REQUEST`, among the kernel's
        `INTEGERS` or its scalars (`NUMBERS`), or with the object of the ranks' device (`OF_RANKS`);
        empty if only Python uses it.
    own : bool
        Whether only kernels that list it in their `Limits.own_knobs` have it.
    late : bool
        Whether a case's identity contains it only if it is not the default, so that identities do
        not differ from versions before this option.
    """

    help: str
    where: tuple[str, ...] = EVERYWHERE
    choices: tuple[str, ...] = ()
    least: int | None = None
    least_given: int = 0
    most: int = 2**31 - 1
    below: float | None = None
    low: float | None = None
    high: float = math.inf
    read: Callable[[Any, str], Any] | None = None
    type: str = ""
    meaning: str = ""
    excludes: tuple[str, ...] = ()
    several: bool = False
    metavar: str = ""
    flag: str = ""
    short: str = ""
    alias: str = ""
    parse: Callable[[str], list[Any]] | None = None
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    per: float = 1.0
    unit: str = ""
    column: str = ""
    formerly: str = ""
    goes_to: str = REQUEST
    own: bool = False
    late: bool = False

    @property
    def text(self) -> str:
        """The line for help texts, with the allowed words."""
        return self.help.format(choices=", ".join(filter(None, self.choices)))


class Declared(NamedTuple):
    """Name, default and declaration of an option or an input; the latter may have no default."""

    name: str
    default: Any
    option: Option

    @property
    def column(self) -> str:
        """Column of the record; empty for none."""
        return (self.option.column or self.name).strip("-")

    @property
    def flag(self) -> str:
        """Long option of the command line without dashes; empty for none."""
        return (self.option.flag or self.name).strip("-").replace("-", "_")

    def is_default(self, value: Any) -> bool:
        """Return whether a value, which may be an array, is the default."""
        return type(value) is type(self.default) and bool(value == self.default)

    def refuse_elsewhere(self, knobs: Knobs) -> None:
        """Raise InputError if the device of the knobs does not have the option."""
        where = self.option.where
        if knobs.backend.kind not in where:
            raise InputError(
                f"{self.name} is for {backends.named(where)}: leave it out on {knobs.device}"
            )

    def checked(self, value: Any) -> Any:
        """Return a value after a check.

        Raises
        ------
        InputError
            The option can't have this value.
        """
        name, default, option = self
        if value is None and default is None:
            return None
        if option.read is not None:
            return option.read(value, name)
        if option.choices:
            one_of(value, name, option.choices)
        elif option.least is not None:
            return integer(value, name, option.least, option.most)
        elif option.low is not None:
            return number(value, name, option.low, option.high)
        elif option.below is not None:
            if not LEAST <= number(value, name) < option.below:
                raise InputError(f"{name} must lie between 0 and {option.below:g}, not {value}")
        elif not option.type and type(value) is not type(default):
            raise InputError(
                f"{name} must be {'a text' if isinstance(default, str) else 'True or False'}, not "
                f"{shown(value)}"
            )
        return value


def _option(default: Any, help: str, **facts: Any) -> Any:
    return dataclasses.field(default=default, metadata={"option": Option(help, **facts)})


def declared(table: Any) -> tuple[Declared, ...]:
    """Return every option of `Knobs` or `Stop`."""
    return _declared(table if isinstance(table, type) else type(table))


@functools.cache
def _declared(table: Any) -> tuple[Declared, ...]:
    fields = dataclasses.fields(table)
    return tuple(Declared(each.name, each.default, each.metadata["option"]) for each in fields)


def _given(table: Knobs | Stop) -> Iterator[tuple[Declared, Any]]:
    """Yield options that are not their defaults, with their values.

    Values of NumPy, pandas and enumerations are replaced by Python's.
    """
    for row in declared(table):
        if (value := getattr(table, row.name)) is row.default:
            continue
        value = vars(table)[row.name] = plain(value, row.name)
        if type(value) is not type(row.default) or value != row.default:
            yield row, value


@dataclasses.dataclass(frozen=True)
class Knobs:
    """How a case is run; every field is part of its identity and of its record.

    Parameters
    ----------
    threads : int
        Number of workers; 0 for one on each processing unit.
    pin : str
        ``auto`` (the least busy units, chosen for each placement; workers share a unit only where
        there are more workers than units), ``none``, ``compact``, ``spread`` or a list of units
        such as ``0,2,4-7``.
    pages : str
        ``default`` (transparent huge pages where the system grants them), or a required page size:
        ``4k``, ``thp``, ``hugetlb-2m``, ``hugetlb-1g``.
    numa : str
        ``first-touch``, ``interleave`` or ``node:N``.
    variant : str
        A code variant (``scalar``, ``auto``, ``simd``, ``nt``, ``nta``, ``pipelined``) or ``best``:
        each is tried briefly, the fastest is measured.
    isa : str
        An instruction set of this binary or ``best``: the widest one that the processor runs,
        with variant ``best`` the fastest one.
    prefetch : int
        Distance of the software prefetch in iterations, 0 for none.
    unroll : int
        Vectors (of a reduction, accumulators) per step of the loop; 0 for the kernel's own choice.
        On processors only the loop kernels have others.
    offset : int
        Array k (from 0) starts ``(k + 1) * offset`` bytes after the start of a page; a multiple
        of 8.
    repetition : str
        How invocations follow each other in a sample: ``fork`` (each a parallel region),
        ``barrier`` (one region, with OpenMP's barrier in between), ``spin`` (with memkern's spin
        barrier), ``free`` (without a barrier).
    schedule, chunk : str, int
        ``static`` or ``dynamic``; iterations that a worker gets at a time, 0 for one range each.
    flush : bool
        Evict the caches before each sample.
    seed : int
        Seed of the values that arrays are filled with.
    device : str
        ``cpu``, ``cuda:N`` (``cuda`` is the first one), or the memory of all ranks by one-sided
        operations: ``mpi`` or ``shmem``. A device has no option that is declared for others. A GPU
        has `threads` only where a case is built for a number of workers, and `unroll` is the number
        of vectors or instances of each of its threads; with ranks, `threads` is the number per
        rank.
    timer : str
        On a GPU: ``host`` (launches between two synchronisations), ``events`` (in the stream), or
        ``graph`` (all launches of a sample submitted as one graph).
    block_threads : int
        On a GPU: threads per block; 0 for the kernel's own choice.
    block_shared : int
        On a GPU: additional bytes of shared memory of each block, which limit the number of blocks
        that run at a time.
    blocks : int
        On a GPU: blocks of a reduction; 0 for as many as run at a time. Chalmers and Warburton 2020
        use 512.
    nodes_per_block : int
        On a GPU: entries, of local nodes, that a block of BS6 balanced by entries loads into shared
        memory at most, and twice as many as it has rows at most; 0 for 512, as in Chalmers and
        Warburton 2020. Only kernels that list it in `Limits.own_knobs` have it.
    flush_every : int
        On ``mpi`` and ``shmem``: number of updates that are started one after the other and then
        completed together; 1 to complete each one before the next.
    contexts : str
        On ``shmem``: ``default``, or ``private`` for a context of each thread.
    prefetchers : str
        ``default`` (as they are) or ``off``: the prefetchers of all cores are switched off while
        variants are chosen and samples are taken, and restored afterwards, even if the process is
        killed.
    clock_limit : int
        Limit of the clock of all cores in MHz, restored in the same way; 0 for none.
    cache_ways : int
        Ways of the last cache that programs may fill, restored in the same way; 0 for all.
    counters : str
        Events to count during the samples, with commas in between, or ``auto``: the traffic of each
        level of the memory, if it can be counted here.
    """

    threads: int = _option(
        0,
        "workers (default: every processing unit)",
        least=0,
        least_given=1,
        several=True,
        metavar="N,...",
        short="-t",
    )
    pin: str = _option(
        "auto",
        "auto (the least busy units), none, compact, spread or a list: 0,2,4-7",
        where=(PROCESSORS,),
        metavar="HOW",
        column="pin_requested",
        formerly="pin_asked",
    )
    pages: str = _option(
        "default",
        "page size of the arrays: {choices}",
        where=(PROCESSORS,),
        choices=("default", "4k", "thp", "hugetlb-2m", "hugetlb-1g"),
        several=True,
        metavar="NAME,...",
        column="pages_requested",
        formerly="pages_asked",
    )
    numa: str = _option(
        "first-touch",
        "first-touch, interleave or node:N",
        where=(PROCESSORS,),
        metavar="HOW",
        column="numa_requested",
        formerly="numa_asked",
    )
    variant: str = _option(
        "best",
        "scalar, auto, simd, nt, nta or best: try all, measure the fastest",
        several=True,
        metavar="NAME,...",
        column="variant_requested",
        formerly="variant_asked",
        goes_to="",
    )
    isa: str = _option(
        "best",
        "instruction set",
        where=(PROCESSORS,),
        choices=("best", "baseline", "sse4", "avx2", "avx512", "neon", "sve", "sve2"),
        column="isa_requested",
        formerly="isa_asked",
        goes_to="",
    )
    prefetch: int = _option(
        0,
        "software prefetch distance in iterations (none, except for BS6 to BS8 and dw)",
        where=(PROCESSORS,),
        least=0,
        several=True,
        metavar="N,...",
        goes_to=INTEGERS,
    )
    unroll: int = _option(
        0,
        "vectors or accumulators per step of the loop kernels; on a GPU: per thread",
        where=(PROCESSORS, GPUS),
        least=0,
        several=True,
        metavar="N,...",
    )
    offset: int = _option(
        0,
        "array k starts (k + 1) times this far after the start of a page",
        where=(PROCESSORS, GPUS),
        least=0,
        several=True,
        metavar="BYTES,...",
        unit="B",
    )
    repetition: str = _option(
        "fork",
        "synchronisation between invocations: {choices}",
        where=(PROCESSORS,),
        choices=("fork", "barrier", "spin", "free"),
        several=True,
        metavar="HOW,...",
    )
    schedule: str = _option(
        "static",
        "how iterations are distributed to workers",
        where=(PROCESSORS,),
        choices=("static", "dynamic"),
    )
    chunk: int = _option(
        0,
        "iterations that a worker gets at a time (0: one range each)",
        where=(PROCESSORS,),
        least=0,
        metavar="N",
    )
    flush: bool = _option(False, "evict the caches before each sample", where=(PROCESSORS, GPUS))
    seed: int = _option(
        0, "seed of values and of random matrices (0)", least=0, most=2**63 - 1, metavar="N"
    )
    device: str = _option(
        "cpu",
        "where to run: cpu, cuda, cuda:N, or mpi or shmem, the memory of all ranks (cpu)",
        metavar="NAME",
        goes_to="",
        late=True,
    )
    timer: str = _option(
        "host",
        "how launches on a GPU are timed",
        where=(GPUS,),
        choices=("host", "events", "graph"),
    )
    block_threads: int = _option(
        0,
        "on a GPU: threads per block (0: the kernel's own choice)",
        where=(GPUS,),
        least=0,
        several=True,
        metavar="N,...",
        column="block_threads_requested",
        formerly="block_threads_asked",
    )
    block_shared: int = _option(
        0,
        "on a GPU: further shared memory of each block (0)",
        where=(GPUS,),
        least=0,
        most=2**20,
        several=True,
        metavar="BYTES,...",
        unit="B",
        column="block_shared_B",
        late=True,
    )
    blocks: int = _option(
        0,
        "on a GPU: blocks of a reduction (0: as many as run at a time)",
        where=(GPUS,),
        least=0,
        most=8192,
        several=True,
        metavar="N,...",
        goes_to=INTEGERS,
        late=True,
    )
    nodes_per_block: int = _option(
        0,
        "on a GPU: local nodes in a block of a balanced BS6 (512)",
        where=(GPUS,),
        least=0,
        least_given=1,
        most=6144,
        several=True,
        metavar="N,...",
        goes_to=INTEGERS,
        late=True,
        own=True,
    )
    flush_every: int = _option(
        1,
        "on mpi and shmem: operations that are completed together (1)",
        where=(RANKS,),
        least=1,
        most=2**16,
        several=True,
        metavar="N,...",
        goes_to=OF_RANKS,
    )
    contexts: str = _option(
        "default",
        "on shmem: the library's default context, or private ones, one for each thread",
        where=(RANKS,),
        choices=("default", "private"),
        goes_to=OF_RANKS,
    )
    prefetchers: str = _option(
        "default",
        "switch the hardware prefetchers off while measuring: {choices}",
        where=(PROCESSORS,),
        choices=("default", "off"),
        several=True,
        metavar="STATE,...",
        goes_to="",
        late=True,
    )
    clock_limit: int = _option(
        0,
        "limit the clock of all cores, or of the GPU, while measuring, in MHz",
        where=(PROCESSORS, GPUS),
        least=0,
        least_given=1,
        most=100_000,
        several=True,
        metavar="MHZ,...",
        unit="MHz",
        goes_to="",
        late=True,
    )
    cache_ways: int = _option(
        0,
        "ways of the last cache that programs may fill while measuring",
        where=(PROCESSORS,),
        least=0,
        least_given=1,
        most=64,
        several=True,
        metavar="N,...",
        goes_to="",
        late=True,
    )
    counters: str = _option(
        "",
        "events to count during the samples, or auto: events known to show traffic",
        where=(PROCESSORS,),
        metavar="NAMES",
        goes_to="",
        late=True,
    )

    def __post_init__(self) -> None:
        """Check all values that can be checked without the machine."""
        device = plain(self.device, "device")
        backend = backends.of(device)
        is_first = backend.is_accelerator and device == backend.device
        vars(self)["device"] = f"{device}:0" if is_first else device
        for row, value in _given(self):
            row.refuse_elsewhere(self)
            row.checked(value)
        if self.contexts != "default" and not backend.private_contexts:
            having = " and ".join(b.device for b in backends.BACKENDS if b.private_contexts)
            raise InputError(f"contexts are for {having}: leave them out on {self.device}")

    @property
    def backend(self) -> Backend:
        """The backend of the device, which has its features."""
        return backends.of(self.device)

    @property
    def requested(self) -> dict[str, Any]:
        """The options as requested, without those that only other devices have."""
        # Identities of cases on processors and GPUs depend on these rules.
        here = {self.backend.kind, *[PROCESSORS] * self.backend.is_accelerator}
        return {
            name: getattr(self, name)
            for name, default, option in declared(self)
            if here.intersection(option.where)
            and not (option.late and getattr(self, name) == default)
        }

    def going_to(self, part: str) -> dict[str, Any]:
        """Return the options that one part of the extension gets (see `Option.goes_to`)."""
        found = (name for name, _, option in declared(self) if option.goes_to == part)
        return {name: getattr(self, name) for name in found}

    @property
    def columns(self) -> dict[str, Any]:
        """The options as requested, by the columns of a record."""
        return {option.column or name: getattr(self, name) for name, _, option in declared(self)}


# Upper limits for small cases (see `memkern.small`).
_SMALL: Mapping[str, float] = {"runs": 3, "budget_s": 0.005, "max_samples": 10, "invocations": 2}


@dataclasses.dataclass(frozen=True)
class Stop:
    """When a measurement has enough samples, and what is known about the machine.

    None of it changes what is measured.

    Parameters
    ----------
    runs : int, optional
        Exact number of samples, as in the papers. Otherwise samples are taken until the 95 %
        interval of the median is narrow enough, and the five shortest times agree as well.
    ci : float
        Target half-width of that interval, relative to the median.
    precision : float, optional
        Half-width of the interval of the shortest time for the next run, relative to it, until
        which the case is placed again.
    budget_s, max_samples : float, int
        Limits at which sampling ends even if a target was not reached; column ``stop`` of the
        record has the reason. The default budget is 1 s, or 30 s with a `precision`.
    invocations : int
        Invocations per sample; 0 for as many as the clock's resolution requires.
    placements : int
        Number of placements, each with new allocations and bindings of workers (buffers of 64 MiB
        and more are reused, since effects of page placement average out); samples and budget are
        divided among the placements. 0 for 10, or for 1 where `runs` is given or the case runs on a
        GPU.
    peak_GBps : float, optional
        Theoretical bandwidth of the memory of the machine, or of the GPU, in GB/s, for the column
        ``peak_share``; by default as the firmware or the GPU describes it.
    """

    runs: int | None = _option(None, "exactly N samples", least=1, most=10**7, metavar="N")
    ci: float = _option(0.02, "target interval of the median", below=1.0, flag="-")
    precision: float | None = _option(
        None,
        "place cases again until the interval of the shortest time is within PERCENT",
        below=1.0,
        metavar="PERCENT",
        per=100.0,
        alias="ci",
    )
    budget_s: float | None = _option(
        None,
        "time limit of a case in seconds (1; 30 with --precision)",
        below=MOST,
        metavar="SECONDS",
        flag="budget",
        unit="s",
    )
    max_samples: int = _option(2000, "most samples", least=1, most=10**7, flag="-")
    invocations: int = _option(0, "invocations in a sample", least=0, most=10**9, flag="-")
    placements: int = _option(
        0,
        "allocate memory and place workers anew N times; samples and budget are divided among "
        "these (10; 1 with --runs)",
        least=0,
        least_given=1,
        most=1000,
        metavar="N",
    )
    peak_GBps: float | None = _option(
        None,
        "theoretical bandwidth of the memory, or of the GPU's (by the firmware or the GPU)",
        below=MOST,
        metavar="GB/s",
        flag="peak",
        unit="GB/s",
    )

    def __post_init__(self) -> None:
        """Check the numbers."""
        for row, value in _given(self):
            row.checked(value)
        for name, most in _SMALL.items() if small.wanted() else ():
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, min(given, most))

    @property
    def usual_s(self) -> float:
        """Seconds that are divided among the usual placements."""
        usual_s = small.cut(_USUAL_S, _SMALL["budget_s"])
        if self.budget_s is None:
            return usual_s
        return self.budget_s if self.precision is None else min(self.budget_s, usual_s)

    @property
    def most_s(self) -> float:
        """Most seconds, including placements for a precision."""
        if self.precision is None or self.budget_s is not None:
            return self.budget_s or self.usual_s
        return small.cut(_PRECISE_S, _SMALL["budget_s"])
