"""The figure of the ports of a core that compiled loops keep busy, by static analysis."""

from __future__ import annotations

import json

from memkern.plots.kit import (
    Axis,
    HeatMap,
    Records,
    Selection,
    need_rows,
    new_table,
    plain,
    rows_of,
    validated,
)

_MEASURE = "memkern machine incore --quick -o bodies.parquet"
# What llvm-mca writes before the names of ports of a processor, such as Zn3 or SKL.
_PROCESSOR = r"^(Zn\d+|[A-Z]{2,3}(?=Port))"
_PROGRAMS = {"llvm_mca": "llvm-mca", "osaca": "OSACA"}


@HeatMap(
    name="ports",
    rows=Axis("body", "Body"),
    by=Axis("port", "Port"),
    value=Axis("share", "Share of the cycles"),
    ends=(0.0, 1.0),
    panels=("platform", "program"),
    columns=1,
    height=1.1,
    row_height=0.2,
    legend=0,
    title=lambda rows, _: f"{plain(rows['platform'].iloc[0])}, by {rows['program'].iloc[0]}",
    returns="A panel for each platform and program, 6.9 in wide.",
    records="Own records of `memkern machine incore`, with the ports by llvm-mca or OSACA",
    lack="no record has the ports of a core",
    measure=_MEASURE,
)
def port_occupancy(records: Records = None) -> Selection:
    """Ports of the core that the main loops of compiled bodies keep busy.

    A port that is busy for all cycles limits its loop; several that are busy for as long, such as
    the two floating-point pipelines of the A64FX (Alappat et al. 2021, section 6), share its work.
    """
    frame, notes = validated(records, None, [])
    lack = f"no record has the ports of a core: `{_MEASURE}` does so where llvm-mca is installed"
    need_rows(frame, lack)
    rows = []
    for number, record in enumerate(rows_of(frame)):
        unroll = f", unroll {record['unroll']:g}" if record.get("unroll") else ""
        named = filter(None, (record.get("layout"), record.get("variant"), record.get("isa")))
        body = ", ".join([record["kernel"].partition(".")[2], *named]) + unroll
        for column, program in _PROGRAMS.items():
            ports = json.loads(record.get(f"{column}_ports") or "{}")
            rows += [
                {
                    **{name: record[name] for name in ("platform", "disturbed")},
                    **{"body": body, "body_place": number, "program": program},
                    **{"port": port, "port_place": place},
                    "share": cycles / record[f"{column}_cycles"],
                }
                for place, (port, cycles) in enumerate(ports.items())
            ]
    need_rows(rows, lack)
    found = new_table(rows).drop_duplicates(["platform", "program", "body", "port"])
    # Of a program, ports that none of the loops needs.
    used = found.groupby(["platform", "program", "port"])["share"].transform("max") > 0
    found = found[used].reset_index(drop=True)
    return found.assign(port=found["port"].str.replace(_PROCESSOR, "", regex=True)), notes
