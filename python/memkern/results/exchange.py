"""Results in the formats of other programs: OpenMetrics, Google Benchmark and BabelStream.

Sources: the OpenMetrics specification 1.0 and the text format of Prometheus, of which these files
are valid instances of both; Google Benchmark, "User guide", output format json; BabelStream 5.0,
option ``--csv``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from memkern.errors import InputError
from memkern.files import publish, read, writable
from memkern.formats import ResultSet
from memkern.formats.values import is_known

Record = Mapping[str, Any]

_FIRST = "# HELP memkern_healthy "


# Gauges of each record: column, factor to the metric's unit, and meaning.
_METRICS = {
    "memkern_bandwidth_bytes_per_second": (
        "bandwidth_GBps",
        1e9,
        "Bytes of the kernel's definition over the shortest time.",
    ),
    "memkern_time_min_seconds": ("time_min_s", 1.0, "Shortest time of an invocation."),
    "memkern_time_median_seconds": ("time_median_s", 1.0, "Median time of an invocation."),
    "memkern_time_min_interval_ratio": (
        "time_min_ci_relative",
        1.0,
        "Half the width of the interval of the shortest time of the next run, relative to it.",
    ),
    "memkern_valid": ("valid", 1.0, "Whether the results of the kernel were right."),
    "memkern_disturbed": ("disturbed", 1.0, "Whether workers waited for processors."),
}

# Columns that tell the records of a run apart, with the names of their labels.
_LABELS = {
    "kernel": "kernel",
    "name": "name",
    "pattern": "pattern",
    "variant": "variant",
    "isa": "isa",
    "dtype": "dtype",
    "threads": "threads",
    "pages": "pages",
    "device": "device",
    "footprint_B": "footprint_bytes",
    "case_id": "case",
    "repeat": "repeat",
}


def openmetrics(results: ResultSet, healthy: bool, verdict: str = "") -> str:
    """Return a text for Prometheus, such as for the textfile collector of node_exporter.

    Parameters
    ----------
    results : ResultSet
    healthy : bool
        Value of the gauge ``memkern_healthy``.
    verdict : str, optional
        Of `memkern.doctor`, as the label of ``memkern_verdict``.

    Returns
    -------
    str
        Gauges of all records; missing values are left out.
    """
    lines = [
        f"{_FIRST}Whether all results were right and no value was worse than is known.",
        "# TYPE memkern_healthy gauge",
        f"memkern_healthy {int(healthy)}",
    ]
    if verdict:
        lines += [
            "# HELP memkern_verdict Verdict of memkern doctor.",
            "# TYPE memkern_verdict gauge",
            f"memkern_verdict{_label_set({'verdict': verdict})} 1",
        ]
    # A repeated case has several records, and a set of labels one value: the last.
    by_labels = {_label_set(_labels(record)): record for record in results}
    for name, (column, factor, meaning) in _METRICS.items():
        rows = [
            f"{name}{labels} {float(record[column]) * factor!r}"
            for labels, record in by_labels.items()
            if is_known(record.get(column))
        ]
        if rows:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *rows]
    return "\n".join([*lines, "# EOF", ""])


def _labels(record: Record) -> dict[str, str]:
    values = {label: record.get(column) for column, label in _LABELS.items()}
    return {label: str(value) for label, value in values.items() if is_known(value)}


def _label_set(labels: Mapping[str, str]) -> str:
    escaped = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
    pairs = (f'{name}="{text.translate(escaped)}"' for name, text in labels.items())
    return f"{{{','.join(pairs)}}}"


def metrics_file(path: str | Path) -> Path:
    """Return a path to which metrics may be written: earlier ones are replaced, other files never.

    Raises
    ------
    InputError
        The name does not end in .prom, the file has other contents, or it can't be written.
    """
    target = writable(path)
    if target.suffix != ".prom":
        raise InputError(f"a file of metrics ends in .prom, unlike {target}")
    if target.exists() and read(target, len(_FIRST)) != _FIRST.encode():
        raise InputError(f"{target} exists and has no metrics of memkern: give another name")
    return target


def write_openmetrics(
    path: str | Path, results: ResultSet, healthy: bool, verdict: str = ""
) -> None:
    """Write `openmetrics` to a file, which is replaced in one step.

    Parameters
    ----------
    path : path
        As for `metrics_file`.
    results, healthy, verdict
        As for `openmetrics`.

    Raises
    ------
    InputError
        As `metrics_file`.
    """
    publish({metrics_file(path): openmetrics(results, healthy, verdict).encode()})


def google_benchmark(results: ResultSet) -> str:
    """Return a document in Google Benchmark's JSON format, each sample being a repetition.

    Parameters
    ----------
    results : ResultSet
        Of one machine.

    Returns
    -------
    str
        ``real_time`` and ``cpu_time`` are both the time of a sample in nanoseconds: memkern
        measures no time of processors for each sample.

    Raises
    ------
    InputError
        There are no records, or they are of several machines.
    """
    if len(results.environments) != 1 or not len(results):
        raise InputError(
            "Google Benchmark's format has records of one machine, not of "
            f"{len(results.environments)}: filter them first"
        )
    (environment,) = results.environments.values()
    records = [*results]
    return json.dumps(
        {
            "context": _context(environment, records),
            "benchmarks": [
                row
                for number, (record, samples) in enumerate(
                    zip(records, results.samples, strict=True)
                )
                for row in _repetitions(number, record, samples)
            ],
        },
        indent=1,
        allow_nan=False,
    )


def _context(environment: Mapping[str, Any], records: list[Record]) -> dict[str, Any]:
    machine = environment.get("machine") or {}
    clocks = [record["clock_GHz"] for record in records if is_known(record.get("clock_GHz"))]
    return {
        "date": records[0].get("started"),
        "host_name": str(machine.get("model") or ""),
        "executable": "memkern",
        "num_cpus": machine.get("threads"),
        "mhz_per_cpu": round(1000 * clocks[0]) if clocks else None,
        "cpu_scaling_enabled": None,
        "caches": [
            {
                "type": str(cache.get("type", "")).capitalize(),
                "level": cache.get("level"),
                "size": cache.get("size_B"),
                "num_sharing": cache.get("shared_by"),
            }
            for cache in machine.get("caches") or []
        ],
        "library_version": (environment.get("build") or {}).get("version"),
        "library_build_type": "release",
        "json_schema_version": 1,
    }


def _repetitions(number: int, record: Record, samples: Iterable[float]) -> Iterable[dict[str, Any]]:
    values = [float(sample) for sample in samples] or [float(record["time_min_s"])]
    name = "/".join(
        f"{label}:{value}" if position else value
        for position, (label, value) in enumerate(_labels(record).items())
    )
    for index, seconds in enumerate(values):
        row = {
            "name": name,
            "family_index": number,
            "per_family_instance_index": 0,
            "run_name": name,
            "run_type": "iteration",
            "repetitions": len(values),
            "repetition_index": index,
            "threads": record.get("threads"),
            "iterations": 1,
            "real_time": seconds * 1e9,
            "cpu_time": seconds * 1e9,
            "time_unit": "ns",
        }
        if record.get("bytes_B"):
            row["bytes_per_second"] = record["bytes_B"] / seconds
        if record.get("valid") is not True:
            row |= {"error_occurred": True, "error_message": "the results were wrong"}
        yield row


# Functions of BabelStream with the kernels of the same definition.
_FUNCTIONS = {
    "stream.copy": "Copy",
    "stream.scale": "Mul",
    "stream.add": "Add",
    "stream.triad": "Triad",
    "loops.dot": "Dot",
}
_ELEMENT_B = {"float64": 8, "float32": 4}


def babelstream(results: ResultSet) -> str:
    """Return the records of BabelStream's functions as it prints them with ``--csv``.

    Parameters
    ----------
    results : ResultSet

    Returns
    -------
    str
        A header and a row for each record of copy, scale ("Mul"), add, triad and dot. Rates are in
        10^6 B/s, times in seconds.

    Raises
    ------
    InputError
        There is no such record.
    """
    header = "function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,"
    rows = [header + "avg_runtime"]
    for record in results:
        function = _FUNCTIONS.get(str(record.get("kernel")))
        if function and math.isfinite(record["time_min_s"]):
            times = (record["time_min_s"], record["time_max_s"], record["time_mean_s"])
            rate = record["bytes_B"] / record["time_min_s"] / 1e6
            size = _ELEMENT_B[record["dtype"]]
            cells = (function, record["samples"], record["elements"], size, rate, *times)
            rows.append(",".join(map(str, cells)))
    if len(rows) == 1:
        raise InputError(f"BabelStream's format has records of {', '.join(_FUNCTIONS)}: none given")
    return "\n".join([*rows, ""])
