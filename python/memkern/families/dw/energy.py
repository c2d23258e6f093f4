"""Energy of the domain-wall kernel, by layout and by clock."""

from __future__ import annotations

import math

from memkern.families.dw.data import (
    PUBLISHED_ENERGY,
    PUBLISHED_SPEED,
    VALUE,
    energies,
    hops,
    in_order,
)
from memkern.plots.energy import no_energy, whisker_notes, whiskers
from memkern.plots.kit import (
    Figure,
    InputError,
    Records,
    dot_series,
    dots,
    drawn,
    finish,
    longest_scan,
    machine_panels,
    need_rows,
    of_workers,
    panels,
    plain,
    row_in,
    typed,
    with_workers,
)

_MEASURE = "memkern dw --lattice 16 16 16 16 --layout RRII,RIRI -o dw.parquet"
_MEASURE_CLOCKS = _MEASURE.replace(" -o", " --clock-limit 1500,2000 -o")
_QUANTITIES = {VALUE: "Performance (GFLOP/s)", "energy_per_flop_pJ": "Energy (pJ/flop)"}


@drawn(
    "dw-energy",
    "One panel, 3.35 in wide: range, quartiles and median over lattices, workers and clocks of "
    "each machine, and the published values of the A64FX.",
    paper="alappat2021",
    number="figure 24",
    records="`dw.hop` in both layouts, with energy",
    lack="no lattice has both layouts with energy",
)
def by_energy(records: Records = None) -> Figure:
    """Speed and energy of the domain-wall kernel as RIRI against RRII.

    Each layout is represented by its fastest record with energy.
    """
    frame, notes = hops(records, _MEASURE)
    changes = energies(frame)
    if changes.empty:
        known = typed(frame, ("energy_J",))["energy_J"].gt(0).any()
        why = "measure both layouts (--layout RRII,RIRI)" if known else no_energy(frame)
        raise InputError(f"no lattice was measured as RIRI and as RRII with energy: {why}")
    fig, (ax,) = panels(1, 2, 2.3)
    groups = {
        plain(str(machine), 20): rows for machine, rows in changes.groupby("machine", sort=False)
    }
    whiskers(ax, groups, "A64FX", (PUBLISHED_SPEED, PUBLISHED_ENERGY))
    ax.set_ylabel("RIRI against RRII (%)")
    return finish(fig, 2, [*notes, *whisker_notes(len(changes))], changes)


@drawn(
    "dw-clocks",
    "For each machine a panel of the performance and one of the energy, 6.9 in wide.",
    paper="alappat2021",
    number="figure 24",
    records="`dw.hop` at several clock limits, with energy",
    lack="no lattice has energy at two clock limits, a number of workers that no record has",
)
def by_clock(records: Records = None, lattice: str = "", threads: float = 0) -> Figure:
    """Domain-wall kernel on one lattice by clock limit and layout: performance and energy.

    The fastest record of each layout at each clock is drawn.

    Parameters
    ----------
    lattice : str
        Prefix of the lattice; by default the largest of those with most clock limits.
    threads : int
        Number of workers; by default the most of each machine.
    """
    from pandas import concat

    frame, notes = hops(records, _MEASURE_CLOCKS)
    frame = typed(frame, ("energy_J", "energy_per_flop_pJ", "clock_limit"))
    frame = frame[(frame["energy_J"] > 0) & frame["lattice"].str.startswith(lattice)]
    if frame.empty:
        raise InputError(f"no lattice has energy: {no_energy(hops(records, _MEASURE_CLOCKS)[0])}")
    frame = of_workers(frame.fillna({"clock_limit": 0.0}), threads)
    frame = longest_scan(frame, "lattice_label", "clock_limit", "sites", value=VALUE)
    need_rows(frame, f"no lattice was measured at two clock limits: `{_MEASURE_CLOCKS}` does so")
    limits = sorted(set(frame["clock_limit"]), key=lambda MHz: -(MHz or math.inf))
    clocks = {MHz: f"{MHz / 1000:.2f} GHz" if MHz else "no limit" for MHz in limits}
    kinds = in_order(frame["kind"])
    frame = frame.assign(row=frame["clock_limit"].map(clocks))
    frame = concat([frame.assign(quantity=column) for column in _QUANTITIES])
    fig, cells = machine_panels(frame, row_in(len(clocks), len(kinds)) + 0.25, "quantity")
    for ax, rows in cells:
        column = rows["quantity"].iloc[0]
        series = dot_series(rows, "kind", kinds, column)
        ends = frame[column].min(), frame[column].max()
        dots(ax, [name for name in clocks.values() if name in set(rows["row"])], series, ends)
        workers = with_workers(rows, frame["machine"].nunique() > 1)
        ax.set(title=f"{workers}\n{rows['lattice_label'].iloc[0]}", xlabel=_QUANTITIES[column])
    return finish(fig, 5, [*notes, "Energy includes the idle power."], frame)
