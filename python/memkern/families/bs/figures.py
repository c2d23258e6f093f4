"""Figures and tables of the finite-element streaming tests: time as T0 + B / Wmax.

After Chalmers and Warburton 2020, whose four GPUs are drawn as lines, and listed in the table, next
to own platforms. What they measured was published as T0 and Wmax, not as points.

Their GPUs have small caches, and one line fits all sizes. A processor with a large last-level cache
needs two lines: one for sizes in the cache, which starts at T0, and one for larger sizes, whose
slope is determined by memory. One line fits neither range, and the second line starts below zero,
since the cache still holds part of the data. So if the caches are known, T0 is fitted to the sizes
that fit in them and Wmax to the larger sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from memkern import reference
from memkern.backends import HOST, LIBRARIES
from memkern.models.peak import peak_GBps, with_peak
from memkern.models.records import apart, data_caches
from memkern.plots.kit import (
    BANDWIDTH,
    NOTE_SIZE,
    SETTING,
    Axes,
    DataFrame,
    Figure,
    InputError,
    Look,
    Records,
    Series,
    best,
    bytes_axis,
    cache_ends,
    counted,
    counts_axis,
    curve,
    drawn,
    finish,
    frame_of,
    joined,
    named,
    need_columns,
    other_look,
    own_look,
    panels,
    prevailing,
    select,
    shade,
    tabulated,
    three_figures,
)
from memkern.shared.streaming_records import as_defined, short

if TYPE_CHECKING:
    from memkern.models import T0WmaxFit

LINEAR = ("bs.bs1", "bs.bs2", "bs.bs3", "bs.bs4", "bs.bs5")
MESH = ("bs.bs6", "bs.bs7", "bs.bs8")
# Polynomial degree of the published fits.
DEGREE = 7
# Sizes at which the published fits are drawn without own records.
_SIZES = (2**16, 2**30)
# Factor by which they are drawn beyond sizes that are within this factor.
_WIDEN = 8

_TITLES = {
    "bs.bs1": "BS1: copy",
    "bs.bs2": "BS2: axpy",
    "bs.bs3": "BS3: norm",
    "bs.bs4": "BS4: dot product",
    "bs.bs5": "BS5: CG update",
    "bs.bs6": "BS6: gather",
    "bs.bs7": "BS7: scatter",
    "bs.bs8": "BS8: gather-scatter",
}
_MEASURE = "memkern bs 1..5 --sizes 64KiB:512MiB:60 -o bs.parquet"
_MEASURE_MESH = "memkern bs 6..8 --degree 1..7 --elements 4,8,12,16,20,24 -o mesh.parquet"


class Fitted(NamedTuple):
    """The fits of one test: one for all sizes, or one for sizes in the caches and one beyond."""

    platform: str
    kernel: str
    rows: DataFrame
    fits: tuple[T0WmaxFit, ...]
    in_caches: bool
    """Whether the only fit is for sizes in the caches, so that Wmax is the caches' bandwidth."""

    def t0(self, name: str = "T0") -> str:
        """Return T0 of the smallest sizes with its interval, or its upper bound."""
        fit = self.fits[0]
        if fit.t0_resolved:
            return interval(name, [1e6 * x for x in (fit.t0_s, *fit.t0_ci_s)], "µs")
        most = fit.t0_ci_s[1]
        return (
            f"{name} below {three_figures(1e6 * most)} µs" if most > 0 else f"{name} not resolved"
        )

    @property
    def wmax_GBps(self) -> tuple[float, float, float]:
        """Wmax of the largest sizes and the ends of its interval."""
        fit = self.fits[-1]
        return fit.wmax_GBps, *fit.wmax_ci_GBps

    @property
    def used(self) -> Series:
        """Whether each row is in a fit."""
        sizes = [size for fit in self.fits for size in fit.points["bytes_B"]]
        return self.rows["bytes_B"].isin(sizes)


def own_tests(records: Records, kernels: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return the records of some tests with one setting, the best for each size and degree.

    If a test has several values in another column of `memkern.models.records.APART`, the value with
    most sizes is chosen.
    """
    meshes = [kernel for kernel in kernels if kernel in MESH]
    frame, notes = select(
        records,
        kernels,
        ("bytes_B", "footprint_B", "time_min_s", "repetition", "threads", "dtype")
        + ("degree",) * (meshes == list(kernels)),
    )
    if "degree" not in frame:
        frame = frame.assign(degree=math.nan)
    # T0 depends on how invocations are repeated.
    frame, left = prevailing(
        as_defined(frame, "paper"), (*SETTING, "repetition"), count=("kernel", "degree", "bytes_B")
    )
    line = [name for name in apart(frame) if name not in ("platform", "degree")]
    frame, others = prevailing(frame, line, per=("platform", "kernel"), count=("degree", "bytes_B"))
    return best(frame, ("platform", "kernel", "degree", "bytes_B")), [*notes, *left, *others]


def fitted(frame: DataFrame, leave_out: str | float = "") -> tuple[list[Fitted], list[str]]:
    """Fit each platform's tests, those on meshes at degree 7.

    Parameters
    ----------
    frame : DataFrame
        As `own_tests` returns it.
    leave_out : str or float
        Sizes excluded from a single fit, as in `memkern.models.fit_t0_wmax`: ``"caches"``,
        ``"changepoint"``, a number of bytes or ``"none"``. By default the fits of
        `memkern.models.fit_both_sides`.

    Returns
    -------
    fits : list of Fitted
        Platforms and kernels in the order of the records.
    notes : list of str
        Sentences on the tests that could not be fitted, and on disturbed records.

    Raises
    ------
    InputError
        `leave_out` is none of these.
    """
    from memkern.models import fit_both_sides, fit_t0_wmax

    if isinstance(leave_out, str) and leave_out not in ("", "caches", "changepoint", "none"):
        raise InputError(
            f"leave_out must be caches, changepoint, none or a number of bytes, not {leave_out!r}"
        )
    done, notes = [], []
    frame = frame[frame["degree"].isna() | frame["degree"].eq(DEGREE)]
    if frame["disturbed"].any():
        notes.append(f"{counted(int(frame['disturbed'].sum()), 'disturbed record')} in no fit.")
    for (platform, kernel), rows in frame.groupby(["platform", "kernel"], sort=False):
        ends = cache_ends(rows)
        out: Any = None if leave_out == "none" else leave_out
        try:
            if leave_out == "":
                sides = {side.name: side.fit for side in fit_both_sides(rows)}
            else:
                last = ends[-1][1] if ends else None
                sides = {"all": fit_t0_wmax(rows, leave_out_B=out, caches_B=last)}
        except InputError as error:
            notes.append(f"{short(str(kernel))} on {named(platform)} not fitted: {error}.")
            continue
        in_caches = list(sides) == ["caches"]
        done.append(Fitted(str(platform), str(kernel), rows, tuple(sides.values()), in_caches))
    return done, notes


@drawn(
    "bs-fit",
    "A panel for each test, of own records if there are any, 6.9 in wide, 3.35 in for one alone. A "
    "diamond marks the size at which a fit reaches 80 % of its Wmax.",
    paper="chalmers2020",
    number="figure 1, 2, 3, 4, 5",
    records="several sizes",
    lack="no test has enough sizes to fit, a wrong `leave_out`, a bandwidth that is not positive",
    optional=True,
)
def bs_fits(records: Records = None, leave_out: str | float = "") -> Figure:
    """Bandwidth of BS1 to BS5 against bytes moved: own with fits, and fits of four published GPUs.

    Parameters
    ----------
    leave_out : str or float
        Points excluded from a single fit because they fit in the caches: ``caches``,
        ``changepoint``, a number of bytes or ``none``. By default, if the caches are known, T0 is
        fitted to the sizes in the caches and Wmax to the larger sizes.
    """
    frame, notes = own_tests(records, LINEAR)
    fits, unfit = fitted(frame, leave_out)
    if len(frame) and not fits:
        raise InputError(f"{' '.join(unfit)[:-1]}: `{_MEASURE}` measures enough sizes")
    platforms = list(dict.fromkeys(one.platform for one in fits))
    kernels = sorted({one.kernel for one in fits}) or list(LINEAR)
    fig, axes = panels(len(kernels), 2, 1.75 + 0.12 * len(platforms))
    for ax, kernel in zip(axes, kernels, strict=True):
        lines = []
        for one in fits:
            if one.kernel == kernel:
                look = own_look(platforms.index(one.platform))
                _draw_fit(ax, one, look)
                wmax = interval("Wmax", one.wmax_GBps, "GB/s")
                lines.append((f"{one.t0('T₀')}   {wmax}", look.color))
        _set_title(ax, _TITLES[kernel], lines)
    _draw_published(axes, kernels, frame)
    pale = ["Pale: in no fit."] * any((~one.used & ~one.rows["disturbed"]).any() for one in fits)
    notes = [*notes, *unfit, *_fit_notes(fits), *pale, *_published_notes(records, frame, _MEASURE)]
    return finish(fig, 4, notes, frame)


def _draw_published(axes: Sequence[Axes], kernels: Sequence[str], frame: DataFrame) -> None:
    """Draw the published models of each panel's test, and set the axes of all panels.

    The lines have the sizes of the own records, and more if these are about the same. Bandwidths
    are on a logarithmic axis if the largest own one is much smaller than those of the GPUs.
    """
    import numpy as np

    known = reference.rows("chalmers2020")
    least, most = map(float, frame["bytes_B"].agg(["min", "max"]) if len(frame) else _SIZES)
    if most < _WIDEN * least:
        least, most = least / _WIDEN, most * _WIDEN
    size = np.geomspace(least, most, 200)
    wide = len(frame) > 0 and frame[BANDWIDTH].max() < max(row["wmax_GBps"] for row in known) / 5
    for ax, kernel in zip(axes, kernels, strict=True):
        for number, row in enumerate(row for row in known if row["kernel"] == kernel):
            look = other_look(number)._replace(marker="", linestyle=(0, (4, 1.5)))
            bandwidth = size / (row["t0_s"] + size / (row["wmax_GBps"] * 1e9)) / 1e9
            ax.plot(size, bandwidth, label=f"{row['platform']}, published fit", **look._asdict())
        bytes_axis(ax, 5)
        if wide:
            ax.set_yscale("log")
            counts_axis(ax.yaxis, 8)
        else:
            ax.set_ylim(0, 1.06 * ax.dataLim.y1)
        ax.set(xlabel="Bytes moved", ylabel="Bandwidth (GB/s)")


def _published_notes(records: Records, frame: DataFrame, measure: str) -> list[str]:
    """Return the explanation of the published lines, and that there is no own record."""
    notes = ["Published: T(B) = T₀ + B / Wmax by table 3 of Chalmers and Warburton 2020."]
    if records is not None and frame.empty:
        notes.append(f"No own record: `{measure}` measures it.")
    return notes


def _draw_fit(ax: Axes, one: Fitted, look: Look) -> None:
    """Draw points (excluded ones pale) and each fit with the size that reaches 80 % of Wmax."""
    shown = one.used | one.rows["disturbed"]
    points = look._replace(linestyle="none", markersize=3.2)
    curve(ax, one.rows[shown], "bytes_B", BANDWIDTH, points, named(one.platform))
    rest, pale = one.rows[~shown], points._replace(zorder=3)._asdict()
    ax.plot(rest["bytes_B"], rest[BANDWIDTH], alpha=0.25, label="_left out", **pale)
    for fit in one.fits:
        draw_line(ax, fit, look.color)


def draw_line(ax: Axes, fit: T0WmaxFit, colour: str, label: str = "_fit") -> None:
    """Draw a fit in its range of validity, and the point at which it reaches 80 % of Wmax."""
    import numpy as np

    order = np.argsort(fit.points["bytes_B"])
    x, holds = fit.points["bytes_B"][order], fit.holds[order]
    size = np.geomspace(x[0], x[-1], 200)
    after = np.clip(np.searchsorted(x, size), 1, len(x) - 1)
    drawn = np.where(holds[after - 1] & holds[after], fit.predict(size).bandwidth_GBps, np.nan)
    how: dict[str, Any] = {"color": colour, "zorder": 9}
    ax.plot(size, drawn, linewidth=1.1, label=label, **how)
    if fit.t0_resolved and x[0] <= fit.b80_B <= x[-1]:
        top = 0.8 * fit.wmax_GBps
        ax.plot(
            fit.b80_B, top, marker="D", markersize=4, markerfacecolor="white", label="_b80", **how
        )


def _set_title(ax: Axes, title: str, lines: Sequence[tuple[str, str]]) -> None:
    """Write a title and pairs of a line and its colour above the axes."""
    for number, (line, colour) in enumerate(reversed(lines)):
        ax.annotate(
            line,
            (0, 1),
            xycoords="axes fraction",
            xytext=(0, 2 + 8.5 * number),
            textcoords="offset points",
            fontsize=NOTE_SIZE,
            color=colour,
            va="bottom",
            # The padding of the title makes room for it.
            in_layout=False,
        )
    ax.set_title(title, loc="left", pad=4 + 8.5 * len(lines))


def interval(name: str, values: Sequence[float], unit: str) -> str:
    """Return a value with its interval as text: 'T0 1.43 [1.2, 1.66] µs'."""
    value, low, high = map(three_figures, values)
    return f"{name} {value} [{low}, {high}] {unit}"


def _fit_notes(fits: Sequence[Fitted]) -> list[str]:
    """Return the explanation of points and lines for the small print."""
    if not fits:
        return []
    notes = ["Line: fit of T(B) = T₀ + B / Wmax, in brackets 95 % intervals; ◇ 80 % of Wmax."]
    if any(len(one.fits) > 1 for one in fits):
        notes.append("T₀ is fitted to sizes up to half the last cache, Wmax to sizes beyond it.")
    held = dict.fromkeys(short(one.kernel) for one in fits if one.in_caches)
    if held:
        notes.append(
            f"Wmax of {joined(list(held))} is a bandwidth of the caches: few sizes exceed them."
        )
    far = dict.fromkeys(short(one.kernel) for one in fits if any(fit.far for fit in one.fits))
    if far:
        notes.append(f"Half the points of {joined(list(far))} are more than 10 % off their line.")
    if not all(fit.holds.all() for one in fits for fit in one.fits):
        notes.append("No line is drawn at sizes that it misses by more than a third.")
    return notes


@drawn(
    "bs-mesh",
    "A row for each platform, a panel for each test, 6.9 in wide.",
    paper="chalmers2020",
    number="figure 6, 7",
    records="several meshes",
    lack="a wrong `leave_out`, a bandwidth that is not positive",
    optional=True,
)
def bs_mesh(records: Records = None, leave_out: str | float = "") -> Figure:
    """Bandwidth of BS6 to BS8 against bytes moved: a line for each degree, and four published fits.

    Parameters
    ----------
    leave_out : str or float
        As for `bs_fits`, for the fit at degree 7, which is drawn in black. The published fits are
        of this degree as well, and of BS6 and BS7.
    """
    frame, notes = own_tests(records, MESH)
    fits, unfit = fitted(frame, leave_out)
    fit_of = {(one.platform, one.kernel): one for one in fits}
    platforms, kernels = list(dict.fromkeys(frame["platform"])), sorted(set(frame["kernel"]))
    measured = set(zip(frame["platform"], frame["kernel"], strict=True))
    cells = [(platform, kernel) for platform in platforms for kernel in kernels]
    cells = [cell for cell in cells if cell in measured] or [("", kernel) for kernel in MESH[:2]]
    fig, axes = panels(len(cells), max(2, len(kernels)), 2.2)
    degrees = sorted(frame["degree"].dropna().unique())
    span = max(degrees[-1] - degrees[0], 1.0) if degrees else 1.0
    for ax, (platform, kernel) in zip(axes, cells, strict=True):
        rows = frame[(frame["platform"] == platform) & (frame["kernel"] == kernel)]
        for degree in degrees:
            look = own_look(0)._replace(
                color=shade((degree - degrees[0]) / span),
                linewidth=1.0,
                markersize=2.6,
                zorder=5,
            )
            curve(ax, rows[rows["degree"] == degree], "bytes_B", BANDWIDTH, look, f"N = {degree:g}")
        lines = []
        if (platform, kernel) in fit_of:
            one = fit_of[platform, kernel]
            for fit in one.fits:
                draw_line(ax, fit, "black", label="fit, N = 7")
            lines = [one.t0("T₀"), interval("Wmax", one.wmax_GBps, "GB/s")]
        name = f"{named(platform, 16)}\n" if len(platforms) > 1 else ""
        _set_title(ax, name + _TITLES[kernel], [(line, "black") for line in lines])
    _draw_published(axes, [kernel for _, kernel in cells], frame)
    published = _published_notes(records, frame, _MEASURE_MESH)
    return finish(fig, 8, [*notes, *unfit, *_fit_notes(fits), *published], frame)


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

    published = [{**row, "row": "published"} for row in reference.rows("chalmers2020-devices")]
    columns = [
        *("platform", "row", "tdp_W", "compute_units", "registers_MB", "shared_MB"),
        *("l1_MB", "l2_MB", "l3_MB", "memory", "peak_bandwidth_GBps"),
    ]
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
        key, device = str(record.get("environment_id")), str(record.get("device", HOST.device))
        if device not in LIBRARIES:
            environment = environments.get(key) or {}
            rows.setdefault((key, device), _described(record, device, environment))
    return list(rows.values())


def _described(
    record: Mapping[Any, Any], device: str, environment: Mapping[str, Any]
) -> dict[str, Any]:
    about = (environment.get("devices") or {}).get(device) or {}
    machine = environment.get("machine") or {}
    if device == HOST.device:
        caches = data_caches({"": environment})[""]
        totals = [(f"l{level}_MB", size_B * count / _MIB) for level, size_B, count in caches]
        units, memory_B = machine.get("cores"), machine.get("memory_B")
        kind = (environment.get("memory") or {}).get("kind") or ""
    else:
        totals = [("l2_MB", about["l2_B"] / _MIB)] if about.get("l2_B") else []
        units, memory_B, kind = about.get("units"), about.get("memory_B"), ""
    return {
        "platform": (machine.get("model") if device == HOST.device else about.get("name"))
        or record["platform"],
        "row": "own",
        "compute_units": units,
        **dict(totals),
        "memory": f"{memory_B / _GIB:.0f} GB {kind}".strip() if memory_B else "",
        "peak_bandwidth_GBps": peak_GBps(record, environment),
    }


@tabulated(
    "bs-t0-wmax",
    "One row per test. For each own platform the columns ``T0_us`` and ``Wmax_GBps``, each with "
    "the ends of its 95 % interval, ``low`` and ``high``; for each published one only the values. "
    "``Wmax_of_peak`` is its share of the theoretical peak, where that is known. Column names "
    "begin with the platform's name and a colon. A T0 that is not resolved has only the upper end, "
    "if that is positive.",
    paper="chalmers2020",
    number="table 3",
    records="several sizes; those of BS6 and BS7 at polynomial degree 7",
    lack="a wrong `leave_out`",
    optional=True,
)
def t0_wmax_table(records: Records = None, leave_out: str | float = "") -> DataFrame:
    """T0 and Wmax of BS1 to BS7 on own platforms and the four published GPUs.

    Parameters
    ----------
    leave_out : str or float
        As for `bs_fits`.
    """
    from pandas import DataFrame

    tests = [f"bs.bs{number}" for number in range(1, 8)]
    table: dict[str, dict[str, float | str]] = {test: {"test": short(test)} for test in tests}
    frame, _ = own_tests(None if records is None else with_peak(frame_of(records)), tests)
    devices = reference.rows("chalmers2020-devices")
    peaks = {row["platform"]: row["peak_bandwidth_GBps"] for row in devices}
    cells = [(one.platform, one.kernel, fit_columns(one)) for one in fitted(frame, leave_out)[0]]
    for row in reference.rows("chalmers2020"):
        wmax, share = row["wmax_GBps"], row["wmax_GBps"] / peaks[row["platform"]]
        published = {"T0_us": row["t0_s"] * 1e6, "Wmax_GBps": wmax, "Wmax_of_peak": share}
        cells.append((row["platform"], row["kernel"], published))
    columns = {"test": None}
    for platform, kernel, values in cells:
        named_values = {f"{platform}: {name}": value for name, value in values.items()}
        table[kernel] |= named_values
        columns |= dict.fromkeys(named_values)
    return DataFrame(list(table.values()), columns=list(columns))


def fit_columns(one: Fitted) -> dict[str, float]:
    """Return T0 of the smallest sizes, Wmax of the largest, and their intervals.

    A T0 that is not resolved has only the upper end. Caches are faster than the peak of memory.
    """
    first, wmax = one.fits[0], one.wmax_GBps
    low, high = (1e6 * end for end in first.t0_ci_s)
    known = first.t0_resolved
    return {
        "T0_us": 1e6 * first.t0_s if known else math.nan,
        "T0_low_us": low if known else math.nan,
        "T0_high_us": high if known or high > 0 else math.nan,
        **dict(zip(("Wmax_GBps", "Wmax_low_GBps", "Wmax_high_GBps"), wmax, strict=True)),
        "Wmax_of_peak": math.nan if one.in_caches else wmax[0] / one.rows["peak_GBps"].max(),
    }
