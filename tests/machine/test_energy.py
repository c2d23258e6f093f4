"""Energy by meters, on small copies of /sys whose values the tests change."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checking import measured, refused, run, tree
from plotting import Results, assert_legible

from memkern.machine import energy
from memkern.machine.energy import joules, meters, read, total_J, why_none
from memkern.plots import clock_table, figures, save
from memkern.spec.columns import COLUMNS

CAP = "sys/class/powercap"
RANGE_UJ = 262_143_328_850


def zone(name: str, label: str, uJ: int, range_uJ: int = RANGE_UJ) -> dict[str, str]:
    folder = f"{CAP}/{name}"
    return {
        f"{folder}/name": f"{label}\n",
        f"{folder}/energy_uj": f"{uJ}\n",
        f"{folder}/max_energy_range_uj": f"{range_uJ}\n",
    }


# Two sockets with memory, cores as a part of the package, and the whole board once more.
SERVER = {
    **zone("intel-rapl:0", "package-0", 1_000_000),
    **zone("intel-rapl:0:0", "core", 10),
    **zone("intel-rapl:0:1", "dram", 500_000),
    **zone("intel-rapl:1", "package-1", 2_000_000),
    **zone("intel-rapl:1:1", "dram", 700_000),
    **zone("intel-rapl:2", "psys", 9_000_000),
    f"{CAP}/intel-rapl-mmio:0/name": "package-0\n",
}
HWMON = "sys/class/hwmon/hwmon3"
AMD = {
    f"{HWMON}/name": "amd_energy\n",
    f"{HWMON}/energy1_label": "Ecore000\n", f"{HWMON}/energy1_input": "5\n",
    f"{HWMON}/energy129_label": "Esocket0\n", f"{HWMON}/energy129_input": "100\n",
}  # fmt: skip
BOARD = {f"{HWMON}/name": "power_meter\n", f"{HWMON}/power1_average": "150000000\n"}


def test_packages_and_memory_count_parts_and_the_board_do_not(tmp_path: Path) -> None:
    found = meters(tree(tmp_path, {**SERVER, **AMD, **BOARD}))
    assert {meter.name: meter.total for meter in found} == {
        "package-0": True, "package-0 core": False, "package-0 dram": True,
        "package-1": True, "package-1 dram": True, "psys": False,
    }  # fmt: skip
    before = read(found)
    tree(tmp_path, {f"{CAP}/intel-rapl:0/energy_uj": "4000000", f"{CAP}/intel-rapl:1:1/energy_uj":
                    "1700000", f"{CAP}/intel-rapl:0:0/energy_uj": "2000010",
                    f"{CAP}/intel-rapl:2/energy_uj": "99000000"})  # fmt: skip
    used = joules(found, before, read(found))
    assert used["package-0"] == pytest.approx(3) and used["package-0 core"] == pytest.approx(2)
    assert total_J(found, used) == pytest.approx(3 + 1)


def test_a_counter_that_begins_again_and_one_that_vanishes(tmp_path: Path) -> None:
    files = zone("intel-rapl:0", "package-0", 900_000, 1_000_000)
    found = meters(tree(tmp_path, {**files, **zone("intel-rapl:0:1", "dram", 5)}))
    before = read(found)
    tree(tmp_path, {f"{CAP}/intel-rapl:0/energy_uj": "100000\n"})
    (tmp_path / CAP / "intel-rapl:0:1/energy_uj").unlink()
    used = joules(found, before, read(found))
    assert used["package-0"] == pytest.approx(0.2)
    assert math.isnan(used["package-0 dram"]) and math.isnan(total_J(found, used))


def test_counters_of_sockets_and_sensors_of_boards(tmp_path: Path) -> None:
    board = {path.replace("hwmon3", "hwmon4"): text for path, text in BOARD.items()}
    found = meters(tree(tmp_path / "amd", {**AMD, **board}))
    assert {(meter.name, meter.total) for meter in found} == {
        ("amd_energy Ecore000", False), ("amd_energy Esocket0", True)
    }  # fmt: skip
    (sensor,) = meters(tree(tmp_path / "board", BOARD))
    before = energy.Reading(1.0, (150_000_000,))
    after = energy.Reading(3.0, (170_000_000,))
    assert joules((sensor,), before, after) == {"power_meter power1": pytest.approx(320)}


def test_missing_meters_are_named_in_one_sentence(tmp_path: Path) -> None:
    assert "this system has no meter" in why_none(tmp_path)
    root = tree(tmp_path, SERVER)
    assert why_none(root) == ""
    for path in (root / CAP).glob("*/energy_uj"):
        path.unlink()
    assert "only root may read" in why_none(root) and meters(root) == ()


@contextmanager
def growing(path: Path, watts: float, start_uJ: int, range_uJ: int) -> Iterator[None]:
    """Let a meter grow at a constant power while the block runs."""
    stop = threading.Event()
    begin = time.perf_counter()

    def run() -> None:
        while not stop.wait(0.0005):
            value = start_uJ + round(1e6 * watts * (time.perf_counter() - begin))
            new = path.with_suffix(".new")
            new.write_text(f"{value % range_uJ}\n")
            new.rename(path)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_energy_of_an_invocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The counter begins again while it is measured.
    range_uJ = 10_000_000
    root = tree(tmp_path, zone("intel-rapl:0", "package-0", 9_900_000, range_uJ))
    monkeypatch.setattr(energy, "ROOT", root)
    energy.idle_W.cache_clear()
    words = ("loops", "-k", "triad", "--elements", "100000", "-t", "1", "--ci", "0.01", "-q")
    with growing(root / CAP / "intel-rapl:0/energy_uj", 8.0, 9_900_000, range_uJ):
        (row,) = measured(capsys, *words, "--budget", "0.6", "--placements", "1")
    # The thread that lets the meter grow may get no processor for a while.
    assert row["power_W"] == pytest.approx(8, rel=0.5)
    assert row["idle_power_W"] == pytest.approx(8, rel=0.5)
    assert row["energy_J"] == pytest.approx(row["power_W"] * row["time_median_s"])
    assert row["energy_delay_Js"] == pytest.approx(row["energy_J"] * row["time_median_s"])
    assert row["energy_per_byte_pJ"] == pytest.approx(1e12 * row["energy_J"] / row["bytes_B"])
    assert row["energy_per_flop_pJ"] == pytest.approx(1e12 * row["energy_J"] / 2e5)
    assert json.loads(row["energy_meters"])["package-0"] == pytest.approx(row["energy_J"])
    assert set(row) <= set(COLUMNS)


def test_a_meter_that_vanishes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path, zone("intel-rapl:0", "package-0", 1000))
    monkeypatch.setattr(energy, "ROOT", root)
    there = energy.meters()
    monkeypatch.setattr(energy, "meters", lambda root=None: there)
    (root / CAP / "intel-rapl:0/energy_uj").unlink()
    words = ("loops", "-k", "triad", "--elements", "100000", "-t", "1", "-q")
    words += ("--ci", "0.001", "--budget", "0.1", "--placements", "1")
    code, out, err = run(capsys, *words, "--json")
    assert code == 0 and "energy_J" not in json.loads(out)[0]
    assert "memkern: energy is unknown: package-0 can't be read any more\n" in err


def test_without_meters_records_have_no_energy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(energy, "ROOT", tmp_path)
    (row,) = measured(capsys, "loops", "-k", "copy", "--elements", "512", "--runs", "2", "-q")
    assert not {name for name in row if name.startswith(("energy_", "power_", "idle_power"))}
    for name in ("energy", "energy-clock"):
        with refused("no record has energy: measure where /sys/class/powercap"):
            figures[name](Results([row]))


def rows(**more: object) -> pd.DataFrame:
    """Return records of two kernels at three clocks and four numbers of threads."""
    found = []
    for kernel, bound in (("loops.triad", 90.0), ("loops.sum", 110.0)):
        for limit in (0, 1500, 2000):
            for threads in (1, 2, 4, 8):
                clock = (limit or 3000) / 3000
                rate = min(20 * threads * clock, bound * clock**0.2)
                power = 50 + 8 * threads * clock**2
                seconds = 1 / rate
                found.append({
                    "platform": f"Own CPU, {threads} threads", "kernel": kernel,
                    "variant": "simd", "elements": 1e8, "threads": threads, "valid": True,
                    "disturbed": False, "clock_limit": limit, "bandwidth_median_GBps": rate,
                    "time_median_s": seconds, "energy_J": power * seconds, "power_W": power,
                    "energy_per_byte_pJ": 1e3 * power / rate,
                })  # fmt: skip
    return pd.DataFrame(found).assign(**more)


def test_z_plot_has_a_line_for_each_clock(tmp_path: Path) -> None:
    frame = rows(disturbed=lambda frame: frame.index % 5 == 1)
    fig = figures["energy"](frame)
    first, second = fig.axes
    for ax, kernel in ((first, "loops.triad"), (second, "loops.sum")):
        assert ax.get_title().startswith(kernel)
        drawn = {str(one.get_label()): one for one in ax.get_lines()}
        assert {"no limit", "1.50 GHz", "2.00 GHz"} <= set(drawn)
        mine = frame[(frame["kernel"] == kernel) & (frame["clock_limit"] == 1500)]
        assert drawn["1.50 GHz"].get_xdata().tolist() == mine["bandwidth_median_GBps"].tolist()
        assert drawn["1.50 GHz"].get_ydata().tolist() == mine["energy_per_byte_pJ"].tolist()
    assert save(fig, tmp_path / "z.png").stat().st_size > 10_000


def test_what_a_lower_clock_costs_and_saves() -> None:
    table = clock_table(rows())
    assert len(table) == 2 * 2 * 4
    row = table[(table["threads"] == 8) & (table["clock_limit"] == 1500)].iloc[0]
    # Bound by memory: 0.5 ** 0.2 of the speed, at 66 of 114 W.
    assert row["speed_percent"] == pytest.approx(100 * (0.5**0.2 - 1))
    assert row["energy_percent"] == pytest.approx(100 * (66 / 114 / 0.5**0.2 - 1))
    fig = figures["energy-clock"](rows())
    (ax,) = fig.axes
    # Published for A64FX.
    diamonds = [one.get_ydata()[0] for one in ax.get_lines() if one.get_marker() == "D"]
    assert np.allclose(sorted(diamonds), [-13.0, -2.7])
    assert_legible(fig)
    with refused("no case was measured at two clocks"):
        figures["energy-clock"](rows().iloc[:4])


def test_figures_of_energy_are_legible() -> None:
    assert_legible(figures["energy"](rows()))


def test_readings_are_of_the_meters(tmp_path: Path) -> None:
    found = meters(tree(tmp_path, SERVER))
    values: Mapping[str, int | None] = dict(
        zip((meter.name for meter in found), read(found).values, strict=True)
    )
    assert values["package-1"] == 2_000_000
