"""Records of all figures and tables, by the module that declares them."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import amo_figure_records
import dw_figure_records
import ecm_records
import fleet_records as fleet
import latency_records as lr
import messages_figure_records
import neighbour_records
import pandas as pd
import predicted_records as predicted
import scaling_records
import spatter_records
import spmv_figure_records
import streaming_family
import streaming_figure_records as streaming
import transfers_figure_records
from explanation_records import CASES, explained
from plotting import LONG, Results, common_columns, frame, hardest_first

OWN = "Own Machine 3000"


class Inputs(NamedTuple):
    """The records of the exhibits of a module.

    Attributes
    ----------
    everything : callable
        Returns records of which all the exhibits are made.
    others : mapping of str to callable
        Further records with which figures must be legible, those that leave the least room first.
    nothing : mapping
        Columns of records of which no exhibit is made.
    disturbed : mapping
        By name of exhibits that show other values of disturbed records, functions that tell which
        are disturbed.
    options : mapping
        Options of exhibits, by name.
    predicted : callable, optional
        Returns records of a published machine, for the predictions of its model.
    """

    everything: Callable[[], Any]
    others: Mapping[str, Callable[[], Any]] = {}
    nothing: Mapping[str, Any] = {"kernel": "other.kernel"}
    disturbed: Mapping[str, Callable[[pd.DataFrame], Any]] = {}
    options: Mapping[str, Mapping[str, Any]] = {}
    predicted: Callable[[], Any] | None = None


def of_family(module, value, more=tuple, **about):
    """Return the inputs of a family by the module of its records, and more records.

    Among the further ones are records with faults, and extreme values of a column.
    """

    def beside_more(given):
        records = given()
        rows = records.rows if isinstance(records, Results) else records.to_dict("records")
        return Results([*rows, *more()])

    def everything():
        return Results([*module.everything(), *more()])

    cases = getattr(module, "INPUTS", {})
    others = {name: partial(beside_more, cases[name]) for name in hardest_first(cases)}
    others |= {
        "faults": lambda: frame(everything().rows).assign(
            valid=lambda rows: rows.index % 7 != 3, disturbed=lambda rows: rows.index % 5 == 2
        ),
        "extremes": lambda: frame(everything().rows).assign(
            **{value: lambda rows: rows[value] * 1e-4 ** (rows.index % 2)}
        ),
    }
    return Inputs(everything, others, **about)


def of_rows(rows, *parts):
    """Return a function that returns the records of a function called with some options each."""
    return lambda: frame(row for options in parts for row in rows(**options))


def metered(rows):
    """Return records at three clock limits, with more energy at higher ones."""
    return [
        row
        | {
            "clock_limit": limit,
            "time_median_s": row["time_min_s"] / share,
            "bandwidth_median_GBps": share * row["bandwidth_GBps"],
            "energy_J": (100 + limit / 100) * row["time_min_s"],
            "energy_per_byte_pJ": (100 + limit / 100) / row["bandwidth_GBps"],
            "energy_per_flop_pJ": 5 + limit / 100,
        }
        for row in rows
        for limit, share in ((0, 1.0), (2000, 0.9), (1500, 0.75))
    ]


def settings():
    """Return metered records with other pages, prefetches and variants than the first ones."""
    first = [row | {"pages": "4k", "prefetch": 0} for row in metered(streaming.threads())]
    others = ({"pages": "thp"}, {"prefetch": 512}, {"variant": "nt"})
    return [
        *(row | {"variant_choice": "requested", "variant": "simd"} for row in first),
        *(
            row | {"variant_choice": "requested", "variant": "simd"} | other
            | {"energy_J": row["energy_J"] * 1.2, "time_median_s": row["time_median_s"] / (n + 1.1)}
            for n, other in enumerate(others)
            for row in first
        ),
    ]  # fmt: skip


def bodies():
    """Return compiled bodies with the cycles of their ports by two programs."""
    rows = []
    for name, share in {"loops.triad": 0.5, "loops.stencil": 1.0, "dw.hop": 0.75}.items():
        ports = {"FLA": 4 * share, "PR": 0.0, "FLB": 2.0, "EAGA": 1.0}
        rows.append(
            common_columns(name, 1, OWN)
            | {"variant": "simd", "isa": "avx2", "unroll": 4, "layout": "RIRI" * (name == "dw.hop")}
            | {"llvm_mca_cycles": 4.0, "llvm_mca_ports": json.dumps(ports)}
            | {"osaca_cycles": 5.0, "osaca_ports": json.dumps(ports)}
        )
    return frame(rows)


def fetch_adds():
    """Return fetch-and-adds of messages, and atomic operations over ranks that they limit."""
    added = [
        common_columns("messages.fetch_add", 1, OWN)
        | {"backend": "mpi", "window": 1, "origins": 1, "messages_per_second": 2e6}
        | {"distance": distance}
        for distance in ("same rank", "same node", "other node")
    ]
    how = {"backend": "mpi", "ranks": 2, "ranks_per_node": 2, "targets": "ring", "flush_every": 1}
    how |= {"remote_share": 1.0, "node_share": 1.0}
    return [*added, amo_figure_records.record("rand", "add", 1, 0.001, **how)]


def latencies(machine=OWN, **other):
    """Return latencies of a processor and of a GPU, with those of atomic operations."""
    card = {"backend": "cuda", "variant": "simt", "machine": f"{machine} Card"}
    atomic = {"kernel": "amo.ptrchase", "dtype": "uint64", "primitive": "add", "rate_GAMS": 0.1}
    return [
        *lr.all_records(machine=machine, **other),
        *lr.structured(machine=machine, **other),
        *lr.sizes(**card, **other),
        *(
            lr.record("chase", 10.0, **how, **other) | atomic | {"words": words}
            for how in ({"machine": machine}, card)
            for words in (2**10, 2**12)
        ),
    ]


def many_latencies():
    """Return latencies of many settings, of many units and nodes."""
    rows = latencies()
    for dtype in ("uint32", "uint64"):
        rows += [*lr.banks(dtype), *lr.banks(dtype, 1024)]
    rows += [*lr.sizes("in-page"), *lr.sizes("one-per-page"), *lr.sizes(pages_requested="thp")]
    rows += [*lr.chains(size=2**16, ns=6.0, most=4), *lr.chains(size=2**20, ns=20.0, most=8)]
    rows += [*lr.loaded(threads=64, slower=8.0), *lr.pairs(units=24), *lr.nodes(12, 12)]
    return [*rows, *lr.structured(reaches=(1024, 1536))]


def streams():
    """Return triads over ranks, loops with and without non-temporal stores, and a known peak."""
    how = {"definition": "paper", "index_pattern": "permutation", "elements": 8_700_000}
    over_ranks = [
        row | how | {"bandwidth_GBps": row["bandwidth_median_GBps"]}
        for row in scaling_records.rows(platform=OWN)
    ]
    known = {"peak_GBps": 76.8, "peak_share": 0.5, "caches_multiple": 4.0, "device": "cpu"}
    return [
        *over_ranks,
        *streaming.loops(["triad"], [0], variant="nt"),
        streaming.record("loops.copy", 2**20, 100.0),
        streaming.record("loops.copy", 2**28, 50.0, variant="nt"),
        *streaming.threads(names=["stream.copy"], **known),
    ]


def gathers(**other):
    """Return gathers and scatters of a processor, with and without prefetchers, and of a GPU."""
    default = spatter_records.own_records(prefetchers="default")
    off = default.assign(prefetchers="off", bandwidth_GBps=0.4 * default["bandwidth_GBps"])
    card = spatter_records.gpu_records().assign(prefetchers="default")
    return pd.concat([default, off, card], ignore_index=True).assign(**other)


def several_gathers():
    """Return gathers of three machines."""
    faster = gathers(platform="Intel Xeon Platinum 8259CL, 96 threads")
    faster["bandwidth_GBps"] *= 3.7
    long = gathers(platform="_ $x_1$ " + "a name without end " * 9 + ", 1 thread")
    return pd.concat([gathers(), faster, long], ignore_index=True)


def blocks(machine="A Card 3000", kernels=("loops.triad", "spatter.gather")):
    """Return kernels with several block sizes and unrollings, whose sum is the bandwidth."""
    return [
        common_columns(kernel, 1, machine)
        | {"platform": machine, "backend": "cuda", "block_threads": block, "unroll": unroll}
        | {"bandwidth_GBps": float(block + unroll)}
        for kernel in kernels
        for block in (64, 128, 256, 512, 1024)
        for unroll in (0, 1, 2, 4, 8)
    ]


def explanations(*names):
    """Return a record of each named case, and one that was not explained."""
    about = {"platform": "A Processor, 2 threads", "kernel": "a.kernel", "rotation": ""}
    about |= {"valid": True, "disturbed": False}
    records = [
        about
        | {"case_id": name, "valid": True, "disturbed": False}
        | explained(*CASES[name][0]).columns
        for name in names or CASES
    ]
    return frame([*records, {**records[0], "explained_by": ""}])


def counted():
    """Return bandwidths with twice the traffic that the model expects."""
    events = [
        {"event": event, "count": 2e6, "model": 1e6, "running": 0.9, "checked": 1.0}
        for event in ("L2_load", "memory_load", "memory_store")
    ]
    rows = streaming.stream(sizes=(2**20, 2**28))
    return Results([row | {"counter_rows": json.dumps(events)} for row in rows])


def in_memory():
    """Return bandwidths of data in memory, of which the peak is known."""
    results = Results(streaming.stream(caches_multiple=4.0, device="cpu"))
    results.environments["e1"]["memory"] = {"peak_GBps": 76.8}
    return results


SLOW = {"n05": 2.0, "n11": 1.8}


def two_kinds_of_nodes():
    """Return the records of two kinds of nodes, and of one that is alone."""
    one, other, last = (
        fleet.records(slow=SLOW),
        *(fleet.records(12, environment_id=f"e{k}") for k in (2, 3)),
    )
    rows = [*one, *(row | {"node": f"b{row['node']}", "platform": LONG} for row in other)]
    rows += [row | {"node": "alone"} for row in last if row["node"] == "n00"]
    machines = {f"e{k}": fleet.MACHINE | {"cores": 8 * k} for k in (1, 2, 3)}
    return fleet.results(rows, machines)


def nodes(number=16, slow=SLOW, **names):
    """Return records of nodes, with a text before their names and other columns."""
    before = names.pop("before", "")
    rows = fleet.records(number, slow)
    return fleet.results([row | {"node": before + row["node"]} | names for row in rows])


_NEIGHBOURS, _BESIDE = neighbour_records.rows, neighbour_records.KERNELS
_RANKS, _SCALED = scaling_records.rows, scaling_records.KERNELS
_STREAMING = of_family(
    streaming_family,
    "bandwidth_GBps",
    streams,
    # Fits need and are of those that are not.
    disturbed=dict.fromkeys(
        ("bs-fit", "bs-mesh"), lambda rows: rows.groupby("kernel").cumcount().eq(5)
    ),
    predicted=lambda: predicted.results(
        [*predicted.streams(), *predicted.loops(pages=("4k", "thp"))]
    ),
)

INPUTS = {
    "amo": of_family(amo_figure_records, "rate_GAMS", fetch_adds),
    "blocks": Inputs(
        lambda: Results(blocks()),
        {
            "two machines": of_rows(blocks, {}, {"machine": "Another Card of a Long Name 9000"}),
            "one kernel": of_rows(blocks, {"kernels": ["loops.triad"]}),
        },
        nothing={"backend": "openmp"},
    ),
    **dict.fromkeys(("bs", "launch", "loops", "raider", "streaming"), _STREAMING),
    "dw": of_family(
        dw_figure_records,
        "performance_GFLOPs",
        lambda: metered(dw_figure_records.layouts()),
        predicted=lambda: predicted.results(predicted.hops((1, 12), ((8, 8, 8, 8), (16, 8, 8, 8)))),
    ),
    "ecm": Inputs(
        ecm_records.records,
        nothing=dict.fromkeys(
            [f"{level}_{way}_B" for level in ecm_records.LEVELS for way in ("load", "store")]
        ),
        disturbed={"ecm": lambda rows: rows["kernel"].eq("loops.daxpy")},
        options={"roofline": {"machine": "A64FX"}},
    ),
    "energy": Inputs(lambda: Results(settings()), nothing={"energy_J": None}),
    "explanation": Inputs(
        explanations,
        {"one": lambda: explanations("a random gather over small pages")},
        nothing={"explained_by": ""},
    ),
    "fleet": Inputs(
        nodes,
        {
            "long names": lambda: nodes(before=f"{LONG} ", name=LONG),
            "several": two_kinds_of_nodes,
            "many": lambda: nodes(200, {f"n{k}": 3.0 for k in range(100, 110)}),
        },
        nothing={"node": None},
    ),
    "kernels": Inputs(in_memory, nothing={"caches_multiple": 0.5}),
    "latency": Inputs(
        lambda: lr.sampled(latencies()),
        {
            "several": lambda: lr.sampled([*latencies(), *latencies(LONG)]),
            "many": lambda: lr.sampled(many_latencies()),
            "disturbed": lambda: lr.sampled(
                [*latencies(), *latencies(disturbed=True, pages="thp")]
            ),
        },
        disturbed={"latency-histogram": lambda rows: rows["chains"].eq(1)},
    ),
    "messages": of_family(messages_figure_records, "messages_per_second"),
    "neighbours": Inputs(
        of_rows(_NEIGHBOURS, {}),
        {
            "long names": of_rows(_NEIGHBOURS, {"kernels": [f"{k} {LONG}" for k in _BESIDE]}),
            "a pair": of_rows(_NEIGHBOURS, {"kernels": _BESIDE[:2]}),
            "one kernel": of_rows(_NEIGHBOURS, {"kernels": _BESIDE[:1]}),
            "machines": of_rows(_NEIGHBOURS, {}, {"platform": "Other"}, {"platform": LONG}),
            "many": of_rows(_NEIGHBOURS, {"kernels": [f"{k} {n}" for k in _BESIDE for n in "ab"]}),
            "disturbed": of_rows(_NEIGHBOURS, {"disturbed": True}),
            "uncertain": of_rows(_NEIGHBOURS, {"factor": 0.0}),
        },
        nothing={"beside": None},
    ),
    "papers": Inputs(lambda: None),
    "ports": Inputs(bodies, nothing={"llvm_mca_ports": "", "osaca_ports": ""}),
    "scaling": Inputs(
        of_rows(_RANKS, {}),
        {
            "long names": of_rows(_RANKS, {"kernels": [f"{kernel} {LONG}" for kernel in _SCALED]}),
            "a pair": of_rows(_RANKS, {"kernels": _SCALED[:1], "ranks": (1, 2)}),
            "modes": of_rows(_RANKS, {}, {"scaling": "weak", "bind": "core", "comm": "shmem"}),
            "machines": of_rows(_RANKS, {}, {"platform": LONG, "ranks": (2, 4, 6, 256, 512)}),
            "threads": of_rows(_RANKS, {}, {"threads": 16, "bind": "socket"}),
            "long titles": of_rows(
                _RANKS,
                {"threads": 16, "bind": "socket"},
                {"threads": 16, "bind": "node", "platform": LONG},
            ),
            "many": of_rows(_RANKS, {"kernels": [f"loops.kernel{number}" for number in range(11)]}),
            "worse": of_rows(_RANKS, {"loss": 0.3}),
            "few turns": lambda: (
                frame(_RANKS())
                .query("repeat < 2")
                .assign(
                    time_median_s=lambda rows: (
                        rows["time_median_s"] * (1 + rows["repeat"] * (rows["ranks"] > 2))
                    )
                )
            ),
        },
        nothing={"scaling": ""},
        disturbed={"scaling": lambda rows: rows["ranks"].eq(4)},
    ),
    "spatter": Inputs(
        gathers,
        {
            "several": several_gathers,
            "faults": lambda: gathers(
                valid=lambda rows: rows.index % 7 != 3,
                disturbed=lambda rows: rows.index % 5 == 2,
                count_rule="footprint",
            ),
            "extremes": lambda: gathers().assign(
                bandwidth_GBps=lambda rows: rows["bandwidth_GBps"] * 1e-5 ** (rows.index % 3)
            ),
        },
    ),
    "spmv": of_family(
        spmv_figure_records,
        "performance_GFLOPs",
        spmv_figure_records.clocks,
        predicted=lambda: predicted.results(predicted.products((1, 4))),
    ),
    "traffic": Inputs(counted, nothing={"counter_rows": ""}),
    "transfers": of_family(
        transfers_figure_records,
        "bandwidth_GBps",
        disturbed={"transfers": lambda rows: rows["size_B"].eq(32)},
    ),
}


def inputs_of(make: Callable[..., Any]) -> Inputs:
    """Return the records of a figure or a table, by its family or its module of all kernels.

    Those of other families than these are in ``tests/families/samples/<family>.py``.
    """
    name = make.__module__.split(".")[2]
    if name not in INPUTS:
        everything = import_module(f"samples.{name}").everything
        INPUTS[name] = Inputs(lambda: Results(everything()))
    return INPUTS[name]
