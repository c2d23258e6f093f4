"""The paper's tables of applications, platforms and patterns, and its bandwidths by delta."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memkern.checks import LEAST, MOST
from memkern.errors import InputError
from memkern.families.spatter.data import (
    KERNELS,
    KINDS,
    STRIDE_1,
    application_patterns,
    incomplete,
    labels_of,
    own_records,
    platforms_of,
    points_of,
    remarks,
)
from memkern.inputs.patterns import Pattern, custom, parse
from memkern.plots.drawing import finish, panels, spaced, ticks_at
from memkern.plots.exhibits import Selection, drawn, table, tabulated
from memkern.plots.frames import Records, frame_of, joined
from memkern.plots.style import GREY, fraction, other_look, own_look, plain, tell_lacking

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@table(
    "spatter-table1",
    "application, class (of its patterns), kernel, gathers, scatters, moved_MB (by gathers and "
    "scatters) and moved_percent (of the bytes of all loads and stores)",
    paper="lavin2020",
    number="table 1",
    records="Not used",
    optional=True,
)
def traced_kernels(records: Records = None) -> Selection:
    """Gathers and scatters of kernels of four applications, as published."""
    from memkern import reference

    return reference.load("lavin2020-kernels"), []


@table(
    "spatter-table2",
    "application, version, problem, changes and traced (the parts of the kernels)",
    paper="lavin2020",
    number="table 2",
    records="Not used",
    optional=True,
)
def traced_applications(records: Records = None) -> Selection:
    """Versions and problems of the applications from which the patterns were extracted."""
    from memkern import reference

    return reference.load("lavin2020-applications"), []


@tabulated(
    "spatter-table3",
    'Columns platform, abbreviation, name, kind ("cpu" or "gpu"), row ("own" or "published"), '
    "stream_MBps, threads and backend. Naples is missing, as in the paper.",
    paper="lavin2020",
    number="table 3",
    records="gather and scatter, whose platforms are added",
    lack="a STREAM bandwidth that is not positive",
    optional=True,
)
def platforms_table(records: Records = None, stream_GBps: float = float("nan")) -> DataFrame:
    """Platforms of the paper with their STREAM bandwidth, and those of own records.

    Parameters
    ----------
    stream_GBps : float
        STREAM bandwidth of the own machine in GB/s.
    """
    from pandas import DataFrame

    from memkern import reference

    if stream_GBps == stream_GBps and not LEAST <= stream_GBps <= MOST:
        raise InputError(f"stream_GBps is {stream_GBps!r}, which is not a positive number")
    own, notes = own_records(records)
    rows = [
        {
            "platform": row["platform"],
            "abbreviation": "",
            "name": row["platform"],
            "kind": row["kind"],
            "row": "own",
            "stream_MBps": 1e3 * stream_GBps,
            "threads": row.get("threads") if row["kind"] == "cpu" else None,
            "backend": row["backend"],
        }
        for row in own.drop_duplicates("platform").to_dict("records")
    ]
    for row in reference.rows("lavin2020-platforms"):
        if row["table3_stream_MBps"] is not None:
            about = {name: row[name] for name in ("platform", "abbreviation", "name", "kind")}
            measured = {
                "stream_MBps": row["table3_stream_MBps"],
                "threads": row["table3_threads"],
                "backend": row["backend"],
            }
            rows.append({**about, "row": "published", **measured})
    frame = DataFrame(rows).round({"stream_MBps": 0})
    frame = frame.astype({"threads": "Int64", "stream_MBps": "Int64"})
    frame.attrs["notes"] = notes
    return frame


@tabulated(
    "spatter-table5",
    'Columns pattern, kernel, row ("published" or "own"), index, delta, type (as printed in the '
    "paper) and class (by `Pattern.access_class`: uniform, broadcast, mostly stride-1 or complex).",
    paper="lavin2020",
    number="table 5",
    records="gather and scatter, whose other patterns are added",
    lack="a list is given instead of records",
    optional=True,
)
def patterns_table(records: Records = None) -> DataFrame:
    """Patterns of applications with their class, and those of own records."""
    from pandas import DataFrame

    from memkern import reference

    rows = []
    for row in reference.rows("lavin2020-patterns"):
        about = {"pattern": row["pattern"], "kernel": KERNELS[row["kernel"]], "row": "published"}
        pattern = custom(row["indices"])
        rows.append({**about, **_described(pattern, row["delta"]), "type": row["type"]})
    unknown = []
    for text, kernel, delta in _own_patterns(records):
        if (known := _readable(text)) is None:
            unknown.append(text)
            continue
        about = {"pattern": text, "kernel": KERNELS[kernel], "row": "own"}
        rows.append({**about, **_described(known, delta), "type": ""})
    columns = ["pattern", "kernel", "row", "index", "delta", "type", "class"]
    frame = DataFrame(rows)[columns]
    frame.attrs["notes"] = [
        f"{name} left out: records have the name of this pattern, but not its indices."
        for name in dict.fromkeys(unknown)
    ]
    return frame


def _own_patterns(records: Records) -> list[tuple[str, str, object]]:
    """Return pattern, kernel and delta of own gathers and scatters of no application."""
    if records is None:
        return []
    frame = frame_of(records)
    frame = frame[frame["kernel"].isin(KERNELS) & ~frame["pattern"].isin(application_patterns())]
    cases = frame[["pattern", "kernel", "delta"]].drop_duplicates()
    return [
        (str(text), str(kernel), delta) for text, kernel, delta in cases.itertuples(index=False)
    ]


def _readable(text: str) -> Pattern | None:
    """Return the pattern of a text in a record, None for a name that is no notation."""
    try:
        return parse(text)
    except InputError:
        return None


def _described(pattern: Pattern, delta: object) -> dict[str, object]:
    most = 16
    shown = ",".join(map(str, pattern.indices[:most])) + ",..." * (len(pattern) > most)
    return {"index": f"[{shown}]", "delta": delta, "class": pattern.access_class}


@drawn(
    "spatter-delta",
    "A panel for CPUs and one for GPUs, 6.9 in wide.",
    paper="lavin2020",
    number="insight 5 of section 5.4.2",
    records="application patterns and of stride 1; the highest bandwidths are drawn",
    optional=True,
)
def bandwidth_by_delta(records: Records = None) -> Figure:
    """Bandwidth of application patterns over that of stride 1 against the delta of the pattern.

    The delta is that with which the pattern ran, in values of 8 B; of the 16 instances that GPUs
    merged into one, that from one to the next. Gathers are filled, and scatters are crossed out.
    """
    from memkern import reference

    points, notes = points_of(records)
    left_out, told = incomplete(points)
    base = points[points["case"] == STRIDE_1].set_index(["platform", "kernel"])
    base = base[["bandwidth_GBps"]].add_prefix("base_")
    deltas = {row["pattern"]: row["delta"] for row in reference.rows("lavin2020-patterns")}
    points = points[points["case"].isin(deltas)]
    points = points.join(base, on=["platform", "kernel"], how="inner")
    points = points.assign(
        ratio=points["bandwidth_GBps"] / points["base_bandwidth_GBps"],
        delta=points["apart"].fillna(points["case"].map(deltas)),
    )
    others = points.loc[
        ~points["own"].astype(bool) & points["delta"].ne(points["case"].map(deltas)), "case"
    ]
    notes.append(f"GPUs ran {joined(sorted(set(others)))} with other deltas than table 5 has.")
    notes = [*notes, *left_out, *remarks(records, points, "application patterns and of stride 1")]
    labels = labels_of(points)
    fig, axes = panels(2, 2, 2.9)
    tell_lacking(fig, told)
    number = {True: 0, False: 0}  # over both panels, which share a legend
    for ax, (kind, title) in zip(axes, KINDS.items(), strict=True):
        of_kind = points[points["kind"] == kind]
        for platform, own in platforms_of(of_kind).items():
            look = (own_look if own else other_look)(number[own])._replace(linestyle="none")
            number[own] += 1
            rows = of_kind[of_kind["platform"] == platform]
            label = plain(labels[platform])
            ax.plot(rows["delta"], rows["ratio"], label=label, **look._asdict())
            for marks, name, how in (
                (
                    rows[rows["kernel"].ne("spatter.gather")],
                    "_scatter",
                    {"marker": "x", "color": "black"},
                ),
                (rows[rows["disturbed"]], "_disturbed", {"markerfacecolor": "white"}),
            ):
                style = look._replace(zorder=look.zorder + 0.05)._asdict() | how
                ax.plot(marks["delta"], marks["ratio"], label=name, **style)
        ax.axhline(1, color=GREY, linewidth=0.9, zorder=1, label="_equal")
        # A delta of 0 has a place of its own, at the left of 1.
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xlim(-0.5, 1e7)
        ticks_at(ax.xaxis, [0, 1, 10, 100, 10**3, 10**4, 10**5, 10**6, 10**7], _short)
        ax.set_yscale("log", base=2)
        low, high = points["ratio"].min(), points["ratio"].max()
        ax.set_ylim(low / 1.5, high * 1.5)
        ax.yaxis.set_major_formatter(
            lambda share, _: fraction(share) if share < 1 else f"{share:g}"
        )
        ax.set(title=title, xlabel="Delta (values of 8 B)")
    axes[0].set_ylabel("Bandwidth over that of stride 1")
    return finish(fig, 4, [*notes, "Crossed out: scatters."], points)


def _short(delta: float) -> str:
    return spaced(delta) if delta < 10**4 else f"{delta / 10**6:g} M" if delta >= 10**6 else (
        f"{delta / 10**3:g} k"
    )  # fmt: skip
