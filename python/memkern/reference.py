"""Published results to compare with, shipped with the package.

`rows` returns a table as dictionaries, `load` as a data frame, and `cite` its source. Columns have
the names and units of memkern's records (``time_min_s``, ``bandwidth_GBps``), so that published and
measured results can be combined; ``source`` is ``"published"``.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from memkern.checks import unknown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cite", "load", "names", "rows"]
__dir__ = __all__.copy  # public names only

_LAVIN_2020 = (
    "Patrick Lavin, Jeffrey Young, Richard Vuduc, Jason Riedy, Aaron Vose, Daniel Ernst: "
    "Evaluating Gather and Scatter Performance on CPUs and GPUs, MEMSYS 2020, pp. 209-222, "
    "doi:10.1145/3422575.3422794"
)
_CHALMERS_2020 = (
    "Noel Chalmers, Tim Warburton: Portable high-order finite element kernels I: Streaming "
    "Operations, 2020, arXiv:2009.10917"
)
_ALAPPAT_2021 = (
    "Christie Alappat, Nils Meyer, Jan Laukemann, Thomas Gruber, Georg Hager, Gerhard Wellein, "
    "Tilo Wettig: ECM modeling and performance tuning of SpMV and Lattice QCD on A64FX, 2021, "
    "arXiv:2103.03013, doi:10.1002/cpe.6512"
)
_RRZE = (
    "Erlangen Regional Computing Center: ECM models of processors, github.com/RRZE-HPC/ECM-Model "
    "(53a8af3), and machine files of kerncraft, github.com/RRZE-HPC/kerncraft (192c9ce, 34de5f0)"
)
_BEEBE_2022 = (
    "Michael Beebe et al.: CircusTent: A Tool for Understanding the Performance of Atomic Memory "
    "Operations, 2022 (slides)"
)
_PUBLISHED = (
    "Sources of their own, named in each row by title, address and the date on which it was read"
)
_RAIDER_2022 = (
    "Michael Beebe, Brody Williams, Stephen Devaney, John Leidel, Yong Chen, Stephen Poole: "
    "RaiderSTREAM: Adapting the STREAM Benchmark to Modern HPC Systems, HPEC 2022, "
    "doi:10.1109/HPEC55821.2022.9926292"
)


def _optional_int(text: str) -> int | None:
    return int(text) if text else None


def _optional_float(text: str) -> float | None:
    return float(text) if text else None


def _milli(text: str) -> float:
    return float(text) / 1e3


def _number(text: str) -> float:
    """Return a number that may follow ``>=``, NaN for an empty cell."""
    return float(text.removeprefix(">=")) if text else math.nan


def _texts(*names: str) -> dict[str, tuple[str, Callable[[str], object]]]:
    return {name: (name, str) for name in names}


@dataclass(frozen=True)
class _Table:
    file: str
    citation: str
    # Column of the table -> (column of the file, conversion).
    columns: dict[str, tuple[str, Callable[[str], object]]]


_TABLES = {
    "alappat2021-domain-wall": _Table(
        "alappat2021_table6_dw.csv",
        _ALAPPAT_2021,
        {
            "layout": ("implementation", lambda text: text.partition("-")[0]),
            "compiler": ("compiler", str),
            "core_cycles": ("t_c_ol", float),
            "L1_load_cycles": ("t_l1_ld", float),
            "L1_store_cycles": ("t_l1_st", float),
            "L2_cycles": ("t_l2", float),
            "memory_cycles": ("t_mem", float),
            "cycles": ("t_ecm", float),
        },
    ),
    "alappat2021-instructions": _Table(
        "alappat2021_instructions.csv",
        _ALAPPAT_2021,
        {
            "instruction": ("instruction", str),
            "reciprocal_cycles": ("reciprocal_throughput_cy", _number),
            "latency_cycles": ("latency_cy", _number),
            "note": (
                "latency_cy",
                lambda text: "latency: at least this" if text.startswith(">=") else "",
            ),
        },
    ),
    "alappat2021-kernels": _Table(
        "alappat2021_ecm_kernels.csv",
        _ALAPPAT_2021,
        {
            # The three rows of the stencil share a name.
            "kernel": (
                "kernel",
                lambda loop: f"loops.{'stencil' if loop.startswith('2d5pt') else loop}",
            ),
            "statement": ("statement", str),
            **{
                f"{what}_{level}": (f"{what}_{level}", convert)
                for what, convert in (("pred", float), ("meas", float), ("unroll", int))
                for level in ("l1", "l2", "mem")
            },
        },
    ),
    "alappat2021-machine": _Table(
        "alappat2021_a64fx_machine.csv",
        _ALAPPAT_2021,
        {"quantity": ("quantity", str), "value": ("value", float), "unit": ("unit", str)},
    ),
    "alappat2021-text": _Table(
        "alappat2021_text.csv",
        _ALAPPAT_2021,
        {
            **_texts("exhibit", "section", "quantity", "case"),
            "cores": ("cores", _optional_int),
            "value": ("value", float),
            **_texts("unit"),
        },
    ),
    "beebe2022-circustent": _Table(
        "beebe2022_circustent_rand_add.csv",
        _BEEBE_2022,
        {
            "platform": ("machine", str),
            # Benchmarks are such as RAND_ADD.
            "kernel": ("benchmark", lambda text: f"amo.{text.rpartition('_')[0].lower()}"),
            "primitive": ("benchmark", lambda text: text.rpartition("_")[2].lower()),
            "memory_B": ("memory_B", int),
            "threads": ("pes", int),
            "iters": ("iterations_per_pe", int),
            "time_min_s": ("time_s", float),
            "rate_GAMS": ("rate_GAMS", float),
        },
    ),
    "chalmers2020": _Table(
        "chalmers2020_table3_t0_wmax.csv",
        _CHALMERS_2020,
        {
            "platform": ("device", str),
            "kernel": ("test", lambda test: f"bs.{test.lower()}"),
            "degree": ("polynomial_degree", _optional_int),
            "t0_s": ("t0_us", lambda text: float(text) / 1e6),
            "wmax_GBps": ("wmax_GBps", float),
        },
    ),
    "chalmers2020-devices": _Table(
        "chalmers2020_table2_devices.csv",
        _CHALMERS_2020,
        {
            "platform": ("device", str),
            "memory": ("memory", str),
            "peak_bandwidth_GBps": ("peak_bandwidth_GBps", float),
            "compute_units": ("compute_units", int),
            "registers_MB": ("registers_MB", float),
            "shared_MB": ("shared_MB", float),
            "l1_MB": ("l1_MB", float),
            "l2_MB": ("l2_MB", float),
            "tdp_W": ("tdp_W", float),
        },
    ),
    "lavin2020": _Table(
        "spatter_memsys20_results.csv",
        _LAVIN_2020,
        {
            "platform": ("platform", str),
            "kind": ("kind", str),
            "suite": ("suite", str),
            "pattern": ("pattern_name", str),
            "pattern_length": ("pattern_length", int),
            "kernel": ("kernel", "spatter.{}".format),
            "delta": ("delta", int),
            "count": ("count", int),
            "runs": ("runs", int),
            "threads": ("threads", _optional_int),
            "time_min_s": ("time_s", float),
            "bandwidth_GBps": ("bandwidth_MBps", _milli),
            "note": ("note", str),
        },
    ),
    "lavin2020-applications": _Table(
        "lavin2020_table2_applications.csv",
        _LAVIN_2020,
        _texts("application", "version", "problem", "changes", "traced"),
    ),
    "lavin2020-kernels": _Table(
        "lavin2020_table1_kernels.csv",
        _LAVIN_2020,
        {
            **_texts("application", "class", "kernel"),
            "gathers": ("gathers", int),
            "scatters": ("scatters", int),
            "moved_MB": ("moved_MB", float),
            "moved_percent": ("moved_percent", float),
        },
    ),
    "lavin2020-patterns": _Table(
        "lavin2020_table5_patterns.csv",
        _LAVIN_2020,
        {
            "suite": ("pattern_name", lambda name: name.partition("-")[0].lower()),
            "pattern": ("pattern_name", str),
            "kernel": ("kernel", "spatter.{}".format),
            "indices": ("index", json.loads),
            "delta": ("delta", int),
            "type": ("type", str),
        },
    ),
    "lavin2020-platforms": _Table(
        "lavin2020_platforms.csv",
        _LAVIN_2020,
        {
            "platform": ("platform", str),
            "abbreviation": ("abbreviation", str),
            "name": ("name", str),
            "kind": ("kind", str),
            "backend": ("backend", str),
            "table3_threads": ("table3_threads", _optional_int),
            "table3_stream_MBps": ("table3_stream_MBps", _optional_float),
            "table4_stream_GBps": ("table4_stream_GBps", _optional_float),
        },
    ),
    "published-figures": _Table(
        "published_figures.csv",
        _PUBLISHED,
        {
            **_texts("processor", "instance", "quantity"),
            "value": ("value", float),
            "unit": ("unit", str),
            "sockets": ("sockets", float),
            "cores": ("cores", _optional_int),
            "channels": ("channels", _optional_int),
            **_texts("memory", "stores", "method", "title", "address", "read"),
        },
    ),
    "published-generations": _Table(
        "published_generations.csv",
        _PUBLISHED,
        {
            **_texts("generation", "vendor"),
            "family": ("family", int),
            "model_number": ("model_number", int),
            **_texts("steppings", "match", "title", "address", "read"),
        },
    ),
    "published-processors": _Table(
        "published_processors.csv",
        _PUBLISHED,
        {
            **_texts("processor", "match", "vendor", "generation"),
            "cores": ("cores", _optional_int),
            "channels": ("channels", _optional_int),
            "rate_MTps": ("rate_MTps", _optional_int),
            "width_B": ("width_B", _optional_int),
            "l3_MiB": ("l3_MiB", _optional_float),
            **_texts("title", "address", "read"),
        },
    ),
    "raider2022": _Table(
        "raiderstream2022_figures.csv",
        _RAIDER_2022,
        {
            "figure": ("figure", int),
            "platform": ("platform", str),
            "model": ("model", str),
            "kernel": ("kernel", "raider.{}".format),
            "nodes": ("nodes", int),
            "cores": ("cores", int),
            "elements": ("array_elements", int),
            "bandwidth_GBps": ("bandwidth_MBps", _milli),
        },
    ),
    "raider2022-systems": _Table(
        "raiderstream2022_table2_systems.csv",
        _RAIDER_2022,
        {
            **_texts("platform", "isa", "processor"),
            "sockets": ("sockets", int),
            "cores_per_socket": ("cores_per_socket", int),
            "threads_per_core": ("threads_per_core", int),
            "memory_GiB": ("memory_GiB", float),
            "memory": ("memory", str),
            "l1_KiB": ("l1_KiB", float),
            "l2_KiB": ("l2_KiB", float),
            "l3_MiB": ("l3_MiB", float),
            **_texts("interconnect", "system", "compiler", "mpi", "openshmem"),
        },
    ),
    "rrze-machines": _Table(
        "rrze_ecm_machines.csv",
        _RRZE,
        {
            "machine": ("machine", str),
            "quantity": ("quantity", str),
            "value": ("value", float),
            "unit": ("unit", str),
            "stated_in": ("stated in", str),
        },
    ),
}


def _table(name: str) -> _Table:
    if name not in _TABLES:
        raise unknown(name, "reference data", _TABLES)
    return _TABLES[name]


def names() -> list[str]:
    """Return the names of the shipped tables."""
    return list(_TABLES)


def cite(name: str) -> str:
    """Return the citation of a table's source.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    str
        Authors, title, venue, DOI.

    Raises
    ------
    InputError
        If there is no such table.
    """
    return _table(name).citation


def rows(name: str) -> list[dict[str, Any]]:
    """Return a table, row by row.

    Parameters
    ----------
    name : str
        One of `names`:

        ``alappat2021-domain-wall``
            Table 6, terms of the ECM model of the domain wall's hopping term by layout (``"RIRI"``
            or ``"RRII"``) and compiler, for a lattice of 24^4 x 8 on an A64FX, in cycles of a site
            and s: core_cycles (T_c_OL), L1_load_cycles, L1_store_cycles (with the spills of
            registers), L2_cycles, memory_cycles, and cycles (T_ECM).
        ``alappat2021-instructions``
            Table 2, instructions of the A64FX: instruction, reciprocal_cycles (inverse
            throughput), latency_cycles (NaN where the paper prints none), note.
        ``alappat2021-kernels``
            Loops on one core of an A64FX: kernel, statement, and for data in L1, in L2 and in
            memory the prediction of the ECM model (pred_l1, pred_l2, pred_mem), the measurement
            with the best unrolling (meas_l1, ...), both in cycles for one 512-bit vector of every
            stream, and that unrolling (unroll_l1, ...).  The stencil has three rows, one for each
            place where the layer condition holds (see `statement`).
        ``alappat2021-machine``
            The A64FX: quantity, value, unit.
        ``beebe2022-circustent``
            Five runs of CircusTent's RAND_ADD: platform, kernel (``amo.rand``), primitive
            (``add``), memory_B (of VAL), threads (processing elements), iters (of each thread),
            time_min_s (of the run), rate_GAMS (1e9 atomic operations a second by all threads).
        ``chalmers2020``
            Table 3, fits of ``T0 + B / Wmax`` on four GPUs: platform, kernel (``bs.bs1`` to
            ``bs.bs7``), degree (of the polynomials; None where there are none), t0_s, wmax_GBps.
        ``chalmers2020-devices``
            Table 2, those GPUs: platform, memory, peak_bandwidth_GBps, compute_units,
            registers_MB, shared_MB, l1_MB, l2_MB, tdp_W.
        ``lavin2020``
            500 results on ten platforms: platform, kind (``"cpu"`` or ``"gpu"``), suite, pattern,
            pattern_length, kernel, delta, count, runs, threads (None on GPUs), time_min_s,
            bandwidth_GBps, note.  On GPUs an application pattern is 16 instances merged into
            256 indices, with 16 times the delta.
        ``lavin2020-applications``
            Table 2, how the patterns were extracted: application, version, problem, changes,
            traced (parts of the kernels).
        ``lavin2020-kernels``
            Table 1: application, class (of its patterns), kernel, gathers, scatters, moved_MB (by
            them), moved_percent (of all data moved by loads and stores).
        ``lavin2020-patterns``
            Table 5: suite, pattern, kernel, indices (list of int), delta, type.
        ``lavin2020-platforms``
            Tables 3 and 4: platform, abbreviation, name, kind, backend, table3_threads,
            table3_stream_MBps, table4_stream_GBps; None where the paper prints nothing.
        ``published-figures``
            Figures of processors from many sources: processor, instance (of a cloud, if the source
            names one), quantity (``copy``, ``scale``, ``add``, ``triad``, ``load``, ``latency``,
            ``gather_stride_1`` and ``gather_stride_8``), value, unit, sockets (that were measured;
            0.25 is a quarter of one), cores (that were measured; None if the source has no number),
            channels (of a socket, if they are not those of the processor), memory, stores
            (``"ordinary"``, ``"non-temporal"`` or empty if unknown), method, and the source: title,
            address, read (the date).
        ``published-generations``
            Processors by CPUID: generation, vendor, family, model_number, steppings (such as
            ``"0-4"``, or empty), match (regular expression of the models' names), title, address,
            read.
        ``published-processors``
            Their specifications: processor, match (regular expression of the name; empty if the
            source names no model), vendor, generation, and of a socket cores, channels, rate_MTps
            (10^6 transfers a second), width_B (bytes of a channel's transfer) and l3_MiB, with
            title, address, read; None where the source states nothing.
        ``raider2022``
            Figures 3 to 8, two clusters: figure, platform, model (``"OpenMP"``, ``"MPI"``, ...),
            kernel (``raider.triad``, ``raider.gather_triad``, ...), nodes, cores, elements (of
            each array), bandwidth_GBps, as read from the paper's vector graphics.
        ``raider2022-systems``
            Table II, a node of each of these clusters: platform, isa, processor, sockets,
            cores_per_socket, threads_per_core, memory_GiB, memory (its kind), l1_KiB (data), l2_KiB
            and l3_MiB (one cache of each level), interconnect, system, compiler, mpi, openshmem.
        ``rrze-machines``
            ECM models of two processors: machine, quantity, value, unit, stated_in (``model``, or
            ``kerncraft`` for cores and multiply-adds per cycle).

    Returns
    -------
    list of dict
        One per row, with ``source`` = ``"published"``.

    Raises
    ------
    InputError
        If there is no such table.
    """
    table = _table(name)
    return [
        {
            **{new: convert(row[old]) for new, (old, convert) in table.columns.items()},
            "source": "published",
        }
        for row in csv.DictReader(
            (files("memkern") / "data" / table.file).read_text(encoding="utf-8").splitlines()
        )
    ]


def load(name: str) -> pd.DataFrame:
    """Return a table as a data frame.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    pandas.DataFrame
        The columns of `rows`; missing numbers are NaN, missing numbers of threads ``<NA>``.

    Raises
    ------
    InputError
        If there is no such table.
    """
    import pandas as pd

    frame = pd.DataFrame(rows(name))
    counted = [new for new, (_, how) in _table(name).columns.items() if how is _optional_int]
    return frame.astype(dict.fromkeys(counted, "Int64"))
