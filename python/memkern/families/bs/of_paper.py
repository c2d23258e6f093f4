"""The paper's table of devices, with the machines of own records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memkern.formats.resultset import need_columns
from memkern.models.peak import peak_GBps
from memkern.models.records import data_caches
from memkern.plots.exhibits import tabulated
from memkern.plots.frames import Records, frame_of

if TYPE_CHECKING:
    from pandas import DataFrame

_MIB, _GIB = 2**20, 2**30


@tabulated(
    "bs-devices",
    'Columns platform, row ("own" or "published"), tdp_W, compute_units (of a GPU) or cores, '
    "registers_MB, shared_MB, l1_MB, l2_MB and l3_MB (each the sum over the device, in 2^20 B), "
    "memory and peak_bandwidth_GBps. Cells are empty where the paper or the own system states "
    "nothing.",
    paper="chalmers2020",
    number="table 2",
    records="any kernels, a ResultSet for the descriptions of the machines",
    optional=True,
)
def devices_table(records: Records = None) -> DataFrame:
    """Specifications of the four GPUs of the paper, and of the machines of own records."""
    from pandas import DataFrame

    from memkern import reference

    published = [{**row, "row": "published"} for row in reference.rows("chalmers2020-devices")]
    columns = ["platform", "row", "tdp_W", "compute_units", "registers_MB", "shared_MB"]
    columns += ["l1_MB", "l2_MB", "l3_MB", "memory", "peak_bandwidth_GBps"]
    table = DataFrame([*_own_devices(records), *published], columns=columns)
    numbers = [name for name in columns if name not in ("platform", "row", "memory")]
    return table.astype(dict.fromkeys(numbers, float)).astype({"compute_units": "Int64"})


def _own_devices(records: Records) -> list[dict[str, Any]]:
    """Return a row for each processor and GPU of own records."""
    environments = getattr(records, "environments", {})
    frame = frame_of(records)
    if records is not None:
        need_columns(frame, "platform")
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for record in frame.to_dict("records"):
        key, device = str(record.get("environment_id")), str(record.get("device", "cpu"))
        if device not in ("mpi", "shmem"):
            environment = environments.get(key) or {}
            rows.setdefault((key, device), _described(record, device, environment))
    return list(rows.values())


def _described(
    record: Mapping[Any, Any], device: str, environment: Mapping[str, Any]
) -> dict[str, Any]:
    about = (environment.get("devices") or {}).get(device) or {}
    machine = environment.get("machine") or {}
    if device == "cpu":
        caches = data_caches({"": environment})[""]
        totals = [(f"l{level}_MB", size_B * count / _MIB) for level, size_B, count in caches]
        units, memory_B = machine.get("cores"), machine.get("memory_B")
        kind = (environment.get("memory") or {}).get("kind") or ""
    else:
        totals = [("l2_MB", about["l2_B"] / _MIB)] if about.get("l2_B") else []
        units, memory_B, kind = about.get("units"), about.get("memory_B"), ""
    return {
        "platform": (machine.get("model") if device == "cpu" else about.get("name"))
        or record["platform"],
        "row": "own",
        "compute_units": units,
        **dict(totals),
        "memory": f"{memory_B / _GIB:.0f} GB {kind}".strip() if memory_B else "",
        "peak_bandwidth_GBps": peak_GBps(record, environment),
    }
