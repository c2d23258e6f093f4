"""Predictions of the ECM model in figures, if a machine file is given.

Figures have the option ``machine``. Without it, they use the machine file of the report, if any.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from memkern.errors import InputError
from memkern.models.ecm import EcmPrediction, Scaling
from memkern.models.ecm_fit import predict_record
from memkern.models.machine_file import MachineFile
from memkern.models.machine_reading import machine_of
from memkern.models.records import processors
from memkern.plots.frames import Records, joined
from memkern.plots.style import Look
from memkern.plots.typenames import DataFrame

ECM = "ECM model"
LINEAR = "ECM model, as in the paper"
MACHINE = "machine_file"
"""Attribute of the table of a report's records: the path of its machine file."""

ECM_DASHES: Any = (0, (6, 1.2, 1, 1.2))

Core = Callable[[Mapping[Any, Any]], float]


def machine_for(machine: str, records: Records, *, ecm: bool = True) -> MachineFile | None:
    """Return the machine file of a figure, None if there is none.

    Parameters
    ----------
    machine : str
        The figure's option: a machine file, or the name of a published machine; empty for the
        machine file of the report.
    records : DataFrame, ResultSet or None
    ecm : bool
        Whether the figure needs the parameters of the ECM model.

    Raises
    ------
    InputError
        The file can't be read, is of another machine than the records, or was given for this figure
        and has no parameters of the ECM model.
    """
    path = machine or getattr(records, "attrs", {}).get(MACHINE, "")
    if not path:
        return None
    found = machine_of(path, processors(records))
    if ecm and found.ecm is None and not machine:
        return None
    if ecm:
        found.model_of()
    return found


def others_note(source: MachineFile | None, records: Records) -> list[str]:
    """Return the small print on records of another machine than the file's, if any are."""
    others = [model for model in processors(records) if source and not source.describes(model)]
    return [f"The records are of another machine, {joined(others)}."] if others else []


def machine_note(source: MachineFile | None, records: Records) -> list[str]:
    """Return the small print on the machine file, if there is one, and on records of another."""
    if source is None:
        return []
    text = f"{ECM}: {source.label}"
    if source.ecm is not None:
        text += f", {source.ecm.overlap}"
        text += ", one bandwidth for all bytes of memory" * (source.ecm.memory_rate == "common")
    return [f"{text}.", *others_note(source, records)]


def predictions(
    source: MachineFile, rows: Iterable[Mapping[Any, Any]], core: Core | None = None
) -> list[EcmPrediction | None]:
    """Return the prediction of each record, None if the bytes of a level are unknown.

    Parameters
    ----------
    source : MachineFile
    rows : iterable of mapping
        Records.
    core : callable, optional
        Record to T_core in cycles of all its threads; NaN if it is unknown.

    Raises
    ------
    InputError
        No record has the bytes of each level.
    """
    found: list[EcmPrediction | None] = []
    why: InputError | None = None
    for row in rows:
        cycles = core(row) if core is not None else 0.0
        try:
            found.append(predict_record(source, row, 0.0 if math.isnan(cycles) else cycles))
        except InputError as error:
            found.append(None)
            why = error
    if why is not None and not any(found):
        raise why
    return found


def seconds_of(
    predicted: EcmPrediction | None, threads: float, scaling: Scaling = "limited"
) -> float:
    """Return the time of an invocation by this number of threads.

    It is NaN without a prediction, or if the threads exceed the cores.
    """
    if predicted is None or not 1 <= threads <= predicted.model.cores * predicted.model.domains:
        return math.nan
    return predicted.cycles_of(int(threads), scaling) / predicted.model.clock_GHz / 1e9


def with_ecm(
    frame: DataFrame,
    records: Records,
    machine: str,
    value: str,
    core: Callable[[MachineFile, Mapping[Any, Any]], float],
    *,
    saturation: bool = False,
) -> tuple[DataFrame, list[str]]:
    """Return records with predictions of a value that is proportional to 1 / time_min_s.

    Parameters
    ----------
    frame : DataFrame
        Records of a figure.
    records, machine
        As for `machine_for`.
    value : str
        Such as ``performance_GFLOPs``.
    core : callable
        (source, record) to T_core as for `predictions`.
    saturation : bool
        Whether the small print has the number of cores that saturate a domain, by kind.

    Returns
    -------
    frame : DataFrame
        With the column ecm, NaN where there is no prediction.
    notes : list of str
        Small print on the machine file and on T_core.
    """
    source = machine_for(machine, records)
    if source is None:
        return frame.assign(ecm=math.nan), []
    rows = frame.to_dict("records")
    found = predictions(source, rows, functools.partial(core, source))
    seconds = [seconds_of(one, n) for one, n in zip(found, frame["threads"], strict=True)]
    frame = frame.assign(ecm=frame[value] * frame["time_min_s"] / seconds)
    notes = machine_note(source, records)
    known = zip(frame["kind"], found, frame["ecm"].notna(), strict=True)
    cores = {kind: one.saturating_cores for kind, one, told in known if told and one}
    if saturation and cores:
        named = [f"{kind} {f'{n:g} cores' if n else 'not within a domain'}"
                 for kind, n in cores.items()]  # fmt: skip
        notes.append(f"Saturated by: {joined(named)}.")
    levels = [body.level for body in map(source.in_core_of, rows) if body is not None]
    others = f" for {len(levels)} of {len(rows)} records" * (len(levels) < len(rows))
    how = f"as measured in {joined(sorted(set(levels)))}{others}" if levels else (
        "by the throughput of instructions"
    )  # fmt: skip
    return frame, [*notes, f"T_core {how}."]


def ecm_look(look: Look) -> Look:
    """Return the look of the prediction of a series."""
    return look._replace(marker="", linestyle=ECM_DASHES, linewidth=0.9, zorder=look.zorder - 1)
