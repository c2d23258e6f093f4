"""The first page of a report: the machine, its figures of merit, and what to look at next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from memkern.machine.caches import data_caches
from memkern.machine.health import DISTURBED
from memkern.models.answers import CHASE, own_rates
from memkern.models.expected import compared, expected_of
from memkern.models.merit import FigureOfMerit
from memkern.plots.drawing import in_bytes
from memkern.plots.frames import counted, joined, percent, three_figures
from memkern.report.quality import distinct
from memkern.statistics import meaningful

if TYPE_CHECKING:
    from pandas import DataFrame

# Figures that are also set against other streams and chases of the run.
_STREAMS = ("copy", "load", "triad")
# Shares of a limit below which a figure is worth a look.
_LOW_SHARE = 0.6


class Entry(NamedTuple):
    """A figure of merit as text.

    Attributes
    ----------
    title : str
    value, unit : str
    lines : list of (str, str)
        Names and texts: the interval for the next run, the typical value and its range, the limit,
        the expected range if it decides, else what the value is set against.
    share : float
        Share of the limit, at most 1; 0 if the limit is unknown.
    word : str
        ``as expected``, ``below``, ``above``, or empty without an expected value.
    good : bool
        Whether the figure is as expected or better.
    about : str
        What is expected, and how it follows from published values.
    """

    title: str
    value: str
    unit: str
    lines: list[tuple[str, str]]
    share: float
    word: str
    good: bool
    about: str


def tiles(
    figures: Sequence[FigureOfMerit],
    environment: Mapping[str, Any],
    records: Sequence[Mapping[Any, Any]] = (),
) -> list[list[Entry]]:
    """Return the figures of merit of a machine, with expected values.

    Those of one tile are shown together.

    Parameters
    ----------
    figures : sequence of FigureOfMerit
        In the order of their places.
    environment : mapping
        Environment of the machine.
    records : sequence of mapping
        All records of the machine, against which figures without a verdict are set.
    """
    # Of bandwidths from memory those of the tiles, so that each has one value.
    known = [
        *(figure.record for figure in figures),
        *(record for record in records if record["kernel"] == CHASE),
    ]
    return [
        [_entry(figure, environment, known) for figure in group]
        for _, group in groupby(figures, key=lambda figure: figure.order)
    ]


def _entry(
    figure: FigureOfMerit, environment: Mapping[str, Any], records: Sequence[Mapping[Any, Any]]
) -> Entry:
    low, high = figure.interval
    half, of_median = (
        float(figure.record.get(name) or 0.0)
        for name in (f"{'' if figure.by_median else 'time_min_'}ci_relative", "ci_relative")
    )
    typical = meaningful(figure.typical, of_median)
    spread = _range(*figure.typical_range, of_median)
    lines = [
        ("next run", _range(low, high, half) if low == low else "no interval: disturbed"),
        ("typical", typical if spread == typical else f"{typical} ({spread})"),
    ]
    share = figure.share if figure.limit == figure.limit else 0.0
    known = expected_of(figure, environment)
    word, sentence = compared(figure, known)
    if share:
        lines.append(("limit", f"{three_figures(figure.limit)}: {percent(share)} reached"))
        sentence += " The limit is by loads and a triad from memory, measured in the same run."
    if known is not None and known.published:
        no_verdict = f"no verdict: {known.undecided}"
        lines.append(("published", _range(known.low, known.high) if known.decides else no_verdict))
    if known is not None and known.decides:
        sentence += f" {known.sentence[0].upper()}{known.sentence[1:]}."
    elif figure.unit == "GB/s":
        of_run = records if figure.name in _STREAMS else ()
        for rate in own_rates(
            figure.record, of_run, environment, known.peak if known else math.nan
        ):
            reached = percent(figure.value / rate.GBps)
            lines.append((rate.name, f"{three_figures(rate.GBps)}: {reached} reached"))
            sentence += f" It is {rate.beside(figure.value)}."
    return Entry(
        figure.title + f", {figure.how}" * bool(figure.how),
        meaningful(figure.value, half),
        figure.unit,
        lines,
        min(share, 1.0),
        "" if word == "unknown" else word,
        word in ("as expected", "below" if figure.is_time else "above"),
        sentence,
    )


def side_by_side(
    machines: Sequence[Sequence[Sequence[Entry]]],
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the figures of several machines by their titles.

    Parameters
    ----------
    machines : sequence of sequence of sequence of Entry
        Tiles of each machine.

    Returns
    -------
    list of (str, list of (str, str))
        Title with unit, and for each machine the value and the range of the next run, empty where
        it is not measured.
    """
    columns = [
        {f"{one.title} ({one.unit})": (one.value, one.lines[0][1]) for tile in mine for one in tile}
        for mine in machines
    ]
    return [
        (title, [column.get(title, ("", "")) for column in columns])
        for title in dict.fromkeys(title for column in columns for title in column)
    ]


def _range(low: float, high: float, half: float = 0.0) -> str:
    return " to ".join(dict.fromkeys(meaningful(end, half) for end in (low, high)))


def machine_facts(
    records: Sequence[Mapping[Any, Any]], environment: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return names and texts of what is known about a machine.

    Parameters
    ----------
    records : sequence of mapping
        Records that were measured on it.
    environment : mapping
    """
    machine, memory, run, os = (
        environment.get(name) or {} for name in ("machine", "memory", "run", "os")
    )
    used = max((int(record.get("threads") or 0) for record in records), default=0)
    load = (run.get("load") or [None])[0]
    facts = [
        ("processor", machine.get("model") or machine.get("architecture") or "unknown"),
        ("cores", _cores(machine, used)),
        ("caches", _caches(environment)),
        ("memory", _memory(machine, memory)),
        ("virtual machine", _virtual(machine)),
        ("load", "" if load is None else f"{load:g} at the start (other programs included)"),
        ("system", ", ".join(filter(None, (os.get("distribution"), os.get("kernel"))))),
    ]
    return [(name, text) for name, text in facts if text]


def _cores(machine: Mapping[str, Any], used: int) -> str:
    cores, units, sockets = (machine.get(name) for name in ("cores", "threads", "sockets"))
    if not units:
        return f"{used} used"
    parts = [
        f"{used} of {counted(int(units), 'processing unit')} used",
        counted(int(cores), "core") if cores else "",
        counted(int(sockets), "socket") if sockets else "",
    ]
    return ", ".join(filter(None, parts))


def _caches(environment: Mapping[str, Any]) -> str:
    return ", ".join(
        f"L{cache['level']} {in_bytes(cache['size_B'])}"
        + (
            " by latency (the system reports "
            f"{in_bytes(cache['system_B']) if cache['system_B'] else 'none'})"
            if cache["size_B"] != cache["system_B"]
            else ""
        )
        for cache in data_caches(environment)
    )


def _memory(machine: Mapping[str, Any], memory: Mapping[str, Any]) -> str:
    total, channels, speed, peak = (
        machine.get("memory_B"),
        *(memory.get(name) for name in ("channels", "speed_MTs", "peak_GBps")),
    )
    parts = [
        in_bytes(total) if total else "",
        counted(int(channels), "channel")
        if channels
        else "channels unknown (no firmware table that this user may read)",
        f"{memory.get('kind') or ''} {speed} MT/s".strip() if speed else "",
        f"peak {three_figures(peak)} GB/s" if peak else "",
    ]
    return ", ".join(filter(None, parts))


def _virtual(machine: Mapping[str, Any]) -> str:
    hypervisor = machine.get("hypervisor") or ""
    return {"": "no", "unknown": "yes"}.get(hypervisor, f"yes ({hypervisor})")


def fitness(frame: DataFrame, worse: bool = False) -> list[tuple[str, str]]:
    """Return the line on the machine's fitness and the host, as texts with their class.

    The class is ``good``, ``bad``, or empty for plain text. If values are `worse` than published,
    a good fitness says that it does not judge them.
    """
    found = [("memkern doctor has not checked this machine since its boot", "")]
    known = [text for text in distinct(frame, "doctor") if text]
    if known:
        bad = any(text.startswith(DISTURBED) for text in known)
        found = [("Fitness by memkern doctor: ", ""), ("; ".join(known), "bad" if bad else "good")]
        found += [(" (of the host, not of the values that are below)", "")] * (worse and not bad)
    states = distinct(frame, "state")
    host = (
        "is shared"
        if "shared" in states
        else "was disturbed"
        if DISTURBED in states
        else "was quiet"
    )
    return [*found, (f". The host {host}.", "")]


def next_sentence(
    frame: DataFrame,
    figures: Sequence[FigureOfMerit],
    entries: Sequence[Entry],
) -> str:
    """Return the sentence on what to look at next.

    Parameters
    ----------
    frame : DataFrame
        All records of the machine.
    figures : sequence of FigureOfMerit
    entries : sequence of Entry
        Of the same figures.
    """
    failed = int((~frame["valid"].eq(True)).sum()) if "valid" in frame else 0
    disturbed = sum(figure.disturbed for figure in figures)
    if failed:
        return (
            f"{counted(failed, 'record')} failed validation: test memory and processor before "
            "trusting any number."
        )
    worse = [entry.title for entry in entries if entry.word and not entry.good]
    if worse:
        return (
            f"{joined(worse)}: worse than published for this processor; memkern doctor lists "
            "causes, and other users of the host are one."
        )
    if disturbed:
        return (
            f"{counted(disturbed, 'figure')} disturbed: measure again when nothing else runs "
            "(--wait-quiet 600)."
        )
    if unfit := [text for text in distinct(frame, "doctor") if text.startswith(DISTURBED)]:
        return (
            f"memkern doctor found this machine {unfit[0]}: run it again, remove what it lists, "
            "and measure again."
        )
    worst = min(
        (figure for figure in figures if 0 < figure.share < _LOW_SHARE),
        key=lambda figure: figure.share,
        default=None,
    )
    if worst is not None:
        return (
            f"{worst.title} reaches {percent(worst.share)} of its limit: its figure below shows at "
            "which sizes and options it comes closer."
        )
    return "Nothing stands out: keep the data file as the baseline of later comparisons."
