"""Energy of the domain-wall kernel, by layout and by clock."""

from __future__ import annotations

from memkern.families.dw.data import (
    PUBLISHED_ENERGY,
    PUBLISHED_SPEED,
    VALUE,
    energies,
    hops,
    in_order,
)
from memkern.plots.energy import by_limit, no_energy, whiskers
from memkern.plots.kit import (
    QUANTITY,
    Axis,
    Dots,
    Figure,
    Records,
    Selection,
    drawn,
    longest_scan,
    need_rows,
    of_workers,
    ordered,
    plain,
    quantities,
    typed,
    with_workers,
)

_MEASURE = "memkern dw --lattice 16 16 16 16 --layout RRII,RIRI -o dw.parquet"
_MEASURE_CLOCKS = _MEASURE.replace(" -o", " --clock-limit 1500,2000 -o")


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
    rows = energies(frame)
    known = typed(frame, ("energy_J",))["energy_J"].gt(0).any()
    why = "measure both layouts (--layout RRII,RIRI)" if known else no_energy(frame)
    need_rows(rows, f"no lattice was measured as RIRI and as RRII with energy: {why}")
    rows = rows.assign(name=[plain(machine, 20) for machine in rows["machine"]])
    return whiskers(
        rows,
        "name",
        ("A64FX", (PUBLISHED_SPEED, PUBLISHED_ENERGY)),
        "RIRI against RRII (%)",
        notes,
        len(rows),
    )


@Dots(
    name="dw-clocks",
    value={
        VALUE: Axis(VALUE, "Performance (GFLOP/s)"),
        "energy_per_flop_pJ": Axis("energy_per_flop_pJ", "Energy (pJ/flop)"),
    },
    by="kind",
    panels=("machine", QUANTITY),
    height=0.25,
    title=lambda rows, several: f"{with_workers(rows, several)}\n{rows['lattice_label'].iloc[0]}",
    returns="For each machine a panel of the performance and one of the energy, 6.9 in wide.",
    paper="alappat2021",
    number="figure 24",
    records="`dw.hop` at several clock limits, with energy",
    lack="no lattice was measured at two clock limits",
    measure=_MEASURE_CLOCKS,
)
def by_clock(records: Records = None, lattice: str = "", threads: float = 0) -> Selection:
    """Domain-wall kernel on one lattice by clock limit and layout: performance and energy.

    The fastest record of each layout at each clock is drawn.

    Parameters
    ----------
    lattice : str
        Prefix of the lattice; by default the largest of those with most clock limits.
    threads : int
        Number of workers; by default the most of each machine.
    """
    frame, notes = hops(records, _MEASURE_CLOCKS)
    why = no_energy(frame)
    frame = typed(frame, ("energy_J", "energy_per_flop_pJ", "clock_limit"))
    frame = frame[(frame["energy_J"] > 0) & frame["lattice"].str.startswith(lattice)]
    need_rows(frame, f"no lattice has energy: {why}")
    frame = of_workers(frame.fillna({"clock_limit": 0.0}), threads)
    frame = longest_scan(frame, "lattice_label", "clock_limit", "sites", value=VALUE)
    frame = by_limit(ordered(frame, "kind", in_order(frame["kind"])), "row", "no limit")
    notes = [*notes, "Energy includes the idle power."]
    return quantities(frame, VALUE, "energy_per_flop_pJ"), notes
