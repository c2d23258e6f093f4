"""Figures of the energy of the domain-wall kernel, by clock and layout."""

import math

import numpy as np
import pytest
from checking import refused
from dw_figure_records import LARGE, SMALL, SPEEDS, everything, layouts, record
from plotting import assert_legible, dot_values, frame

from memkern.families.dw.data import energies, hops
from memkern.families.dw.findings import findings
from memkern.plots import figures
from memkern.plots.frames import frame_of


def energies_of(power_W=(100.0, 130.0), **other):
    """Return both layouts with energy on two lattices, by two numbers of workers."""
    rows = [
        record(kind, lattice, n, **other)
        for kind in ("RRII s", "RIRI s")
        for lattice in (SMALL, LARGE)
        for n in (2, 4)
    ]
    for row in rows:
        row["time_median_s"] = 1 / row["performance_GFLOPs"]
        row["energy_J"] = power_W[row["layout"] == "RIRI"] * row["time_median_s"]
    return rows


def clocks_of():
    """Return those of `energies_of` at three clock limits."""
    return [
        row
        | {
            "clock_limit": MHz,
            "energy_per_flop_pJ": 5 + row["energy_J"] * k,
            "performance_GFLOPs": k * row["performance_GFLOPs"],
        }
        for MHz, k in ((None, 1.0), (2000.0, 0.9), (1500.0, 0.75))
        for row in energies_of()
    ]


def test_performance_and_energy_by_clock_and_layout():
    speed, energy = figures["dw-clocks"](frame(clocks_of())).axes
    labels = speed.get_xlabel(), energy.get_xlabel()
    assert labels == ("Performance (GFLOP/s)", "Energy (pJ/flop)")
    assert speed.get_title() == "4 workers\n16x16x16x16, Ls 8"
    clocks = ["no limit", "2.00 GHz", "1.50 GHz"]
    assert [text.get_text() for text in speed.get_yticklabels()] == clocks
    for kind, watts in (("RRII s", 100.0), ("RIRI s", 130.0)):
        full = 4 * SPEEDS[kind]
        shares = dict(zip(clocks, (1, 0.9, 0.75), strict=True))
        wanted = {clock: k * full for clock, k in shares.items()}
        assert dot_values(speed, kind) == pytest.approx(wanted)
        wanted = {clock: 5 + k * watts / full for clock, k in shares.items()}
        assert dot_values(energy, kind) == pytest.approx(wanted)
    assert_legible(speed.figure)
    with refused("no lattice was measured at two clock limits: `memkern dw --lattice"):
        figures["dw-clocks"](frame(energies_of()))
    with refused("no lattice has energy: here is no meter"):
        figures["dw-clocks"](frame(layouts(energy_note="here is no meter")))


CHANGE = 100 * (1.3 * 16 / 12 - 1)  # 12 of 16 GFLOP/s at 1.3 times the power, in every case


def test_energy_of_both_layouts():
    rows = frame(energies_of())
    (ax,) = figures["dw-energy"](rows).axes
    drawn = [one.get_ydata() for one in ax.get_lines()]
    medians = {round(float(y[0]), 6) for y in drawn if len(y) == 2}
    assert medians >= {-25.0, round(CHANGE, 6)}
    published = [one.get_ydata()[0] for one in ax.get_lines() if one.get_marker() == "D"]
    assert published == pytest.approx([-12 / 1.12, 20])
    assert_legible(ax.figure)
    for disturbed, mark in ((False, ""), (True, " (disturbed)")):
        given = frame_of(rows.assign(disturbed=disturbed & rows["layout"].eq("RRII")))
        text = f"Energy of RIRI against RRII: +73 %{mark}; published for A64FX: almost +20 %."
        assert text in " ".join(findings(given))


def test_energy_needs_both_layouts():
    rows = energies_of()
    one = [row for row in rows if row["layout"] == "RIRI"]
    none = [{**row, "energy_J": math.nan} for row in rows]
    for lacking in (one, none, everything()):
        with refused("no lattice was measured as RIRI and as RRII with energy"):
            figures["dw-energy"](frame(lacking))
    # A lattice at two clocks is two cases, and the fastest record of each layout counts.
    slower = [{**row, "performance_GFLOPs": 1.0, "energy_J": 1e9} for row in rows]
    limited = [{**row, "clock_limit": 2000, "energy_J": 2 * row["energy_J"]} for row in rows]
    changes = energies(hops(frame([*rows, *slower, *limited]), "")[0])
    assert len(changes) == 8
    assert np.allclose(changes["energy_percent"], CHANGE)
