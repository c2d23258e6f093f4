"""Predictions of the ECM model for records of any family, by a machine file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memkern.errors import InputError
from memkern.models.ecm import EcmPrediction
from memkern.models.ecm_fit import level_of, transfers_of
from memkern.models.machine_file import MachineFile

__all__ = ["predict_record"]


def predict_record(
    machine: MachineFile, record: Mapping[str, Any], core: float = 0.0
) -> EcmPrediction:
    """Return the prediction for a record of one process; its unit of work is an invocation.

    Parameters
    ----------
    machine : MachineFile
        With parameters of the ECM model.
    record : mapping
        With the columns of transfers (``L1_load_B`` and so on), ``threads`` and ``footprint_B``.
    core : float
        T_core: cycles of an invocation in the core that overlap with all transfers, of all threads
        together. It is at least the time of the vector loads and stores, if the file has it.

    Raises
    ------
    InputError
        The file has no parameters of the model, or the record has no bytes of one of its levels.
    """
    model = machine.model_of()
    moved = transfers_of(record)
    for name in model.names:
        if name not in moved:
            raise InputError(
                f"the record of {record.get('kernel')} has no bytes of {name}, which the ECM model "
                f"of {machine.name} needs: measure kernels that stream or gather, such as "
                "stream.triad, on a machine with its levels"
            )
    instructions = machine.loads_and_stores
    if instructions is not None:
        core = max(core, instructions.longest(moved[model.names[0]]))
    cores = min(int(record["threads"]), machine.cores * machine.domains)
    at = level_of(record, model.names, machine.cache_sizes_B(cores))
    return model.predict(moved, core, at)
