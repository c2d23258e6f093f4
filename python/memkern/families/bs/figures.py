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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memkern import reference
from memkern.backends import HOST, LIBRARIES
from memkern.models import T0WmaxFit, fit_both_sides, fit_t0_wmax
from memkern.models.peak import peak_GBps, with_peak
from memkern.models.records import apart, data_caches
from memkern.plots.kit import (
    BANDWIDTH,
    LOOK,
    NOTE_SIZE,
    SETTING,
    TITLE,
    Axes,
    Axis,
    Curves,
    DataFrame,
    InputError,
    Look,
    Measured,
    Panel,
    Records,
    Selection,
    Series,
    best,
    byte_scale,
    cache_ends,
    counted,
    counts_axis,
    distinct,
    frame_of,
    joined,
    named,
    need_rows,
    new_table,
    objects,
    ordered,
    other_look,
    own_look,
    prevailing,
    select,
    shade,
    tabulated,
    three_figures,
    typed,
)
from memkern.shared.streaming_records import as_defined, of_machines, short

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


@dataclass(frozen=True, eq=False)
class Fitted:
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
            return f"{name} {fit.parameters['t0'].text(1e6)} µs"
        most = fit.t0_ci_s[1]
        return (
            f"{name} below {three_figures(1e6 * most)} µs" if most > 0 else f"{name} not resolved"
        )

    def wmax(self) -> str:
        """Return Wmax of the largest sizes with its interval."""
        return f"Wmax {self.fits[-1].parameters['wmax'].text()} GB/s"

    @property
    def wmax_GBps(self) -> tuple[float, float, float]:
        """Wmax of the largest sizes and the ends of its interval."""
        fit = self.fits[-1]
        return fit.wmax_GBps, *fit.wmax_ci_GBps

    @property
    def used(self) -> Series:
        """Whether each row is in a fit."""
        return self.rows["bytes_B"].isin(
            [size for fit in self.fits for size in fit.points["bytes_B"]]
        )


def own_tests(records: Records, kernels: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return the records of some tests with one setting, the best for each size and degree.

    If a test has several values in another column of `memkern.models.records.APART`, the value with
    most sizes is chosen.
    """
    needed = ("bytes_B", "footprint_B", "time_min_s", "repetition", "threads", "dtype")
    meshes = ("degree",) * all(kernel in MESH for kernel in kernels)
    frame, notes = select(records, kernels, needed + meshes)
    frame = as_defined(typed(frame, ["degree"]), "paper")
    # T0 depends on how invocations are repeated.
    frame, left = prevailing(frame, (*SETTING, "repetition"), count=("kernel", "degree", "bytes_B"))
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
    if isinstance(leave_out, str) and leave_out not in ("", "caches", "changepoint", "none"):
        raise InputError(
            f"leave_out must be caches, changepoint, none or a number of bytes, not {leave_out!r}"
        )
    done, notes = [], []
    frame = frame[frame["degree"].isna() | frame["degree"].eq(DEGREE)]
    if frame["disturbed"].any():
        notes.append(f"{counted(int(frame['disturbed'].sum()), 'disturbed record')} in no fit.")
    for (platform, kernel), rows in frame.groupby(["platform", "kernel"], sort=False):
        out: Any = None if leave_out == "none" else leave_out
        last = max((end for _, end in cache_ends(rows)), default=None)
        try:
            if leave_out == "":
                sides = {side.name: side.fit for side in fit_both_sides(rows)}
            else:
                sides = {"all": fit_t0_wmax(rows, leave_out_B=out, caches_B=last)}
        except InputError as error:
            notes.append(f"{short(str(kernel))} on {named(platform)} not fitted: {error}.")
            continue
        in_caches = list(sides) == ["caches"]
        done.append(Fitted(str(platform), str(kernel), rows, tuple(sides.values()), in_caches))
    return done, notes


def _with_fits(
    records: Records, tests: Sequence[str], leave_out: str | float, measure: str
) -> tuple[DataFrame, list[str], list[str]]:
    """Return the records of some tests, each with its fit, small print, and what is not fitted.

    Without own records there are two sizes of each test with published fits.
    """
    frame, notes = own_tests(records, tests)
    fits, unfit = fitted(frame, leave_out)
    notes += [*unfit, *_fit_notes(fits)]
    notes.append("Published: T(B) = T₀ + B / Wmax by table 3 of Chalmers and Warburton 2020.")
    if frame.empty:
        notes += [f"No own record: `{measure}` measures it."] * (records is not None)
        known = {row["kernel"] for row in reference.rows("chalmers2020")}
        cases = [(test, size_B) for test in tests if test in known for size_B in _SIZES]
        nothing: dict[str, Any] = {BANDWIDTH: math.nan, "degree": math.nan, "disturbed": False}
        frame = new_table(cases, columns=["kernel", "bytes_B"]).assign(platform="", **nothing)
    fit_of = {(one.platform, one.kernel): one for one in fits}
    cells = zip(frame["platform"], frame["kernel"], strict=True)
    frame = frame.assign(
        fit=objects(frame, map(fit_of.get, cells)),
        panel=frame["kernel"].map(_TITLES),
        least_B=frame["bytes_B"].min(),
        most_B=frame["bytes_B"].max(),
    )
    return frame, notes, unfit


def _fit_notes(fits: Sequence[Fitted]) -> list[str]:
    """Return the explanation of the fits for the small print."""
    held = _tests([one for one in fits if one.in_caches])
    far = _tests([one for one in fits if any(fit.far for fit in one.fits)])
    notes = {
        "Line: fit of T(B) = T₀ + B / Wmax, in brackets 95 % intervals; ◇ 80 % of Wmax.": fits,
        "T₀ is fitted to sizes up to half the last cache, Wmax to sizes beyond it.": any(
            len(one.fits) > 1 for one in fits
        ),
        f"Wmax of {held} is a bandwidth of the caches: few sizes exceed them.": held,
        f"Half the points of {far} are more than 10 % off their line.": far,
        "No line is drawn at sizes that it misses by more than a third.": not all(
            fit.holds.all() for one in fits for fit in one.fits
        ),
    }
    return [text for text, holds in notes.items() if holds]


def _tests(fits: Sequence[Fitted]) -> str:
    """Return the tests of some fits as text, '' if there are none."""
    names = dict.fromkeys(short(one.kernel) for one in fits)
    return joined(list(names)) if names else ""


def _left_out(panel: Panel) -> None:
    """Draw the points that are in no fit pale."""
    for _, rows in panel.rows[panel.rows["pale"]].groupby("platform", sort=False):
        look = rows[LOOK].iloc[0]._replace(zorder=3)._asdict()
        panel.ax.plot(rows[panel.x], rows[panel.y], alpha=0.25, label="_left out", **look)


@dataclass(frozen=True)
class _Fits:
    """The fits of a panel, with their T0 and Wmax below its title.

    Attributes
    ----------
    label : str
    between : str
        What separates T0 and Wmax.
    look : callable
        Returns the look of a platform by its number.
    """

    label: str = "_fit"
    between: str = "   "
    look: Callable[[int], Look] = own_look

    def __call__(self, panel: Panel) -> None:
        """Draw the fits and write the title."""
        told, platforms = [], distinct(panel.frame["platform"])
        for one in dict.fromkeys(panel.rows["fit"].dropna()):
            colour = self.look(platforms.index(one.platform)).color
            for fit in one.fits:
                _draw_line(panel.ax, fit, colour, self.label)
            values = one.t0("T₀"), one.wmax()
            told += [(line, colour) for line in self.between.join(values).split("\n")]
        for number, (line, colour) in enumerate(reversed(told)):
            panel.ax.annotate(
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
        panel.ax.set_title(panel.rows[TITLE].iloc[0], loc="left", pad=4 + 8.5 * len(told))


def _draw_line(ax: Axes, fit: T0WmaxFit, colour: str, label: str) -> None:
    """Draw a fit in its range of validity, and the point at which it reaches 80 % of Wmax."""
    order = np.argsort(fit.points["bytes_B"])
    x, holds = fit.points["bytes_B"][order], fit.holds[order]
    size = np.geomspace(x[0], x[-1], 200)
    after = np.clip(np.searchsorted(x, size), 1, len(x) - 1)
    drawn = np.where(holds[after - 1] & holds[after], fit.predict(size).bandwidth_GBps, np.nan)
    how: dict[str, Any] = {"color": colour, "zorder": 9}
    ax.plot(size, drawn, linewidth=1.1, label=label, **how)
    if fit.t0_resolved and x[0] <= fit.b80_B <= x[-1]:
        how |= {"marker": "D", "markersize": 4, "markerfacecolor": "white", "label": "_b80"}
        ax.plot(fit.b80_B, 0.8 * fit.wmax_GBps, **how)


def _published(panel: Panel) -> None:
    """Draw the published models of a panel's test.

    The lines have the sizes of the own records, and more if these are about the same.
    """
    least, most = panel.rows[["least_B", "most_B"]].iloc[0]
    if most < _WIDEN * least:
        least, most = least / _WIDEN, most * _WIDEN
    size = np.geomspace(least, most, 200)
    kernel, known = panel.rows["kernel"].iloc[0], reference.rows("chalmers2020")
    for number, row in enumerate(row for row in known if row["kernel"] == kernel):
        look = other_look(number)._replace(marker="", linestyle=(0, (4, 1.5)))
        bandwidth = size / (row["t0_s"] + size / (row["wmax_GBps"] * 1e9)) / 1e9
        panel.ax.plot(size, bandwidth, label=f"{row['platform']}, published fit", **look._asdict())


def _beside_published(ax: Axes, rows: DataFrame, frame: DataFrame, column: str) -> None:
    """Make y logarithmic if the largest own bandwidth is much smaller than those of the GPUs."""
    if frame[column].max() < reference.load("chalmers2020")["wmax_GBps"].max() / 5:
        ax.set_yscale("log")
        counts_axis(ax.yaxis, 8)
    else:
        ax.set_ylim(0, 1.06 * ax.dataLim.y1)


_SIZE_AXIS = Axis("bytes_B", "Bytes moved", byte_scale)
_BANDWIDTH_AXIS = Axis(BANDWIDTH, "Bandwidth (GB/s)", _beside_published)


@dataclass(frozen=True, kw_only=True)
class _OfPlatforms(Curves):
    """Curves with a line below the title for each platform."""

    def height_of(self, frame: DataFrame, parts: Sequence[DataFrame]) -> float:
        """Return the height of a panel in inches."""
        return self.height + 0.12 * frame["series"].nunique()


@_OfPlatforms(
    name="bs-fit",
    x=_SIZE_AXIS,
    y=_BANDWIDTH_AXIS,
    layers=(Measured("series"), _left_out, _Fits(), _published),
    panels=("kernel",),
    title=lambda *_: "",
    height=1.75,
    returns="A panel for each test, of own records if there are any, 6.9 in wide, 3.35 in for one "
    "alone. A diamond marks the size at which a fit reaches 80 % of its Wmax.",
    paper="chalmers2020",
    number="figure 1, 2, 3, 4, 5",
    records="several sizes",
    lack="no test has enough sizes to fit, a wrong `leave_out`, a bandwidth that is not positive",
    optional=True,
)
def bs_fits(records: Records = None, leave_out: str | float = "") -> Selection:
    """Bandwidth of BS1 to BS5 against bytes moved: own with fits, and fits of four published GPUs.

    Parameters
    ----------
    leave_out : str or float
        Points excluded from a single fit because they fit in the caches: ``caches``,
        ``changepoint``, a number of bytes or ``none``. By default, if the caches are known, T0 is
        fitted to the sizes in the caches and Wmax to the larger sizes.
    """
    frame, notes, unfit = _with_fits(records, LINEAR, leave_out, _MEASURE)
    frame = frame.sort_values("kernel", kind="stable")
    known = frame[frame["fit"].notna() | frame[BANDWIDTH].isna()]
    need_rows(known, f"{' '.join(unfit)[:-1]}: `{_MEASURE}` measures enough sizes")
    platforms, fits = distinct(known["platform"]), dict.fromkeys(known["fit"].dropna())
    looks = [
        own_look(platforms.index(platform))._replace(linestyle="none", markersize=3.2)
        for platform in known["platform"]
    ]
    used = known.index.isin([row for one in fits for row in one.rows.index[one.used]])
    shown = used | known["disturbed"]
    known = known.assign(
        series=known["platform"].where(shown),
        curve_label=known["platform"].map(named),
        pale=known["fit"].notna() & ~shown,
        look=objects(known, looks),
    )
    return known, notes + ["Pale: in no fit."] * bool(known["pale"].any())


@Curves(
    name="bs-mesh",
    x=_SIZE_AXIS,
    y=_BANDWIDTH_AXIS,
    layers=(Measured("series"), _Fits("fit, N = 7", "\n", lambda _: own_look(0)), _published),
    panels=("platform", "kernel"),
    sort=True,
    columns=lambda parts: max(2, len({rows["kernel"].iloc[0] for rows in parts})),
    title=lambda *_: "",
    height=2.2,
    legend=8,
    returns="A row for each platform, a panel for each test, 6.9 in wide.",
    paper="chalmers2020",
    number="figure 6, 7",
    records="several meshes",
    lack="a wrong `leave_out`, a bandwidth that is not positive",
    optional=True,
)
def bs_mesh(records: Records = None, leave_out: str | float = "") -> Selection:
    """Bandwidth of BS6 to BS8 against bytes moved: a line for each degree, and four published fits.

    Parameters
    ----------
    leave_out : str or float
        As for `bs_fits`, for the fit at degree 7, which is drawn in black. The published fits are
        of this degree as well, and of BS6 and BS7.
    """
    frame, notes, _ = _with_fits(records, MESH, leave_out, _MEASURE_MESH)
    degree = frame["degree"]
    share = (degree - degree.min()) / max(degree.max() - degree.min(), 1.0)
    look = own_look(0)._replace(linewidth=1.0, markersize=2.6, zorder=5)
    frame = frame.assign(
        series=degree.map("N = {:g}".format, na_action="ignore"),
        look=objects(frame, [look._replace(color=shade(each)) for each in share]),
    )
    frame = ordered(frame, "series", [f"N = {each:g}" for each in sorted(set(degree.dropna()))])
    if frame["platform"].nunique() > 1:
        platform = [f"{named(name, 16)}\n" for name in frame["platform"]]
        frame = frame.assign(panel=platform + frame[TITLE])
    return frame, notes


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
    published = [{**row, "row": "published"} for row in reference.rows("chalmers2020-devices")]
    own = [
        _described(row, environment)
        for environment, rows in of_machines(records)
        for row in rows.drop_duplicates("device").to_dict("records")
        if row["device"] not in LIBRARIES
    ]
    columns = [
        *("platform", "row", "tdp_W", "compute_units", "registers_MB", "shared_MB"),
        *("l1_MB", "l2_MB", "l3_MB", "memory", "peak_bandwidth_GBps"),
    ]
    table = new_table([*own, *published], columns=columns)
    numbers = [name for name in columns if name not in ("platform", "row", "memory")]
    return table.astype(dict.fromkeys(numbers, float)).astype({"compute_units": "Int64"})


def _described(record: Mapping[Any, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the processor or GPU of a record."""
    device, caches = record["device"], data_caches({"": environment})[""]
    about = environment.get("machine") or {}
    kind = (environment.get("memory") or {}).get("kind") or ""
    if device != HOST.device:
        about, kind = (environment.get("devices") or {}).get(device) or {}, ""
        caches = [(2, about["l2_B"], 1)] if about.get("l2_B") else []
    memory_B = about.get("memory_B")
    return {
        "platform": about.get("model") or about.get("name") or record["platform"],
        "row": "own",
        "compute_units": about.get("cores") or about.get("units"),
        **{f"l{level}_MB": size_B * count / 2**20 for level, size_B, count in caches},
        "memory": f"{memory_B / 2**30:.0f} GB {kind}".strip() if memory_B else "",
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
    tests = [f"bs.bs{number}" for number in range(1, 8)]
    frame, _ = own_tests(None if records is None else with_peak(frame_of(records)), tests)
    peaks = {
        row["platform"]: row["peak_bandwidth_GBps"]
        for row in reference.rows("chalmers2020-devices")
    }
    cells = [(one.platform, one.kernel, fit_columns(one)) for one in fitted(frame, leave_out)[0]]
    cells += [
        (
            row["platform"],
            row["kernel"],
            {
                "T0_us": row["t0_s"] * 1e6,
                "Wmax_GBps": row["wmax_GBps"],
                "Wmax_of_peak": row["wmax_GBps"] / peaks[row["platform"]],
            },
        )
        for row in reference.rows("chalmers2020")
    ]
    columns: dict[str, dict[str, float]] = {}
    for platform, kernel, values in cells:
        for name, value in values.items():
            columns.setdefault(f"{platform}: {name}", {})[kernel] = value
    return new_table(columns, index=tests).rename(index=short).rename_axis("test").reset_index()


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
