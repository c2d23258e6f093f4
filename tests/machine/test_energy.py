"""Energy by meters, on small copies of /sys whose values the tests change."""

import errno
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checking import Changed, interrupt, measured, once_a_kind, output_of, refused, run, tree
from plotting import Results
from policies import POLICIES
from registers import CPU

import memkern as mk
from memkern.engine.sampling import metering
from memkern.engine.sampling import series as sampling
from memkern.engine.sampling.prepared import Prepared
from memkern.machine import energy, settings
from memkern.machine.energy import joules, meters, read, total, why_none
from memkern.plots import clock_table, figures
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


# Two sockets with memory, the cores as a part of a package, and the whole board.
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


def test_packages_and_memory_count_parts_and_the_board_do_not(tmp_path):
    found = meters(tree(tmp_path, {**SERVER, **AMD, **BOARD}))
    assert {meter.name: meter.total for meter in found} == {
        "package-0": True, "package-0 core": False, "package-0 dram": True,
        "package-1": True, "package-1 dram": True, "psys": False,
    }  # fmt: skip
    before = read(found)
    tree(tmp_path, {f"{CAP}/intel-rapl:0/energy_uj": "4000000", f"{CAP}/intel-rapl:1:1/energy_uj":
                    "1700000", f"{CAP}/intel-rapl:0:0/energy_uj": "2000010",
                    f"{CAP}/intel-rapl:2/energy_uj": "99000000"})  # fmt: skip
    used = joules(found, [before, read(found)])
    assert used["package-0"] == pytest.approx(3) and used["package-0 core"] == pytest.approx(2)
    assert total(found, used) == pytest.approx(3 + 1)


def test_a_counter_that_begins_again_and_one_that_vanishes(tmp_path):
    files = zone("intel-rapl:0", "package-0", 900_000, 1_000_000)
    found = meters(tree(tmp_path, {**files, **zone("intel-rapl:0:1", "dram", 5)}))
    before = read(found)
    tree(tmp_path, {f"{CAP}/intel-rapl:0/energy_uj": "100000\n"})
    (tmp_path / CAP / "intel-rapl:0:1/energy_uj").unlink()
    used = joules(found, [before, read(found)])
    assert used["package-0"] == pytest.approx(0.2)
    assert math.isnan(used["package-0 dram"]) and math.isnan(total(found, used))


def test_counters_of_sockets_and_sensors_of_boards(tmp_path):
    board = {path.replace("hwmon3", "hwmon4"): text for path, text in BOARD.items()}
    found = meters(tree(tmp_path / "amd", {**AMD, **board}))
    assert {(meter.name, meter.total) for meter in found} == {
        ("amd_energy Ecore000", False), ("amd_energy Esocket0", True)
    }  # fmt: skip
    (sensor,) = meters(tree(tmp_path / "board", BOARD))
    # The mean over a second may include time before the first reading: the later half counts.
    readings = [energy.Reading(time_s, (watts * 1_000_000,)) for time_s, watts in
                ((1.0, 90), (1.9, 120), (2.0, 150), (3.0, 170))]  # fmt: skip
    assert joules((sensor,), readings) == {"power_meter power1": pytest.approx(320)}


def chips(*every: Mapping[str, str]) -> dict[str, str]:
    """Return the files of chips of hwmon, each with the given files."""
    folder = "sys/class/hwmon/hwmon"
    return {
        f"{folder}{k}/{name}": f"{text}\n"
        for k, files in enumerate(every)
        for name, text in files.items()
    }


def test_meters_of_one_name_all_count(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "_SENSOR_S", 0.0)
    socket = {"name": "power_meter", "power1_average": "100000000", "power1_input": "99000000"}
    found = meters(tree(tmp_path / "sensors", chips(socket, socket)))
    assert [meter.name for meter in found] == [
        "power_meter power1 (hwmon0 power1)", "power_meter power1 (hwmon1 power1)"
    ]  # fmt: skip
    assert total(found, joules(found, [read(found)] * 2)) == 0
    assert total(found, energy.metered(found, lambda: None)) == pytest.approx(200)
    counter = {
        "name": "amd_energy", "energy1_label": "Esocket0", "energy1_input": "0",
        "energy2_label": "Esocket0", "energy2_input": "0",
    }  # fmt: skip
    root = tree(tmp_path / "counters", chips(counter))
    found = meters(root)
    before = read(found)
    for number, uJ in ((1, 5_000_000), (2, 1_000_000)):
        (root / f"sys/class/hwmon/hwmon0/energy{number}_input").write_text(str(uJ))
    assert total(found, joules(found, [before, read(found)])) == pytest.approx(6)


def grace(number: int, module: int, socket: int, cpu: int) -> list[dict[str, str]]:
    """Return the meters of a Grace socket with these watts, as files of the device."""
    return [
        {
            "name": "power_meter",
            "device/power1_average": str(1_000_000 * watts),
            "device/power1_oem_info": f"{what} Power Socket {number}",
        }
        for what, watts in (("Module", module), ("Grace", socket), ("CPU", cpu))
    ]


def test_parts_and_other_devices_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "_SENSOR_S", 0.0)
    supply = {"name": "pmbus", "power1_label": "pin", "power1_input": "500000000",
              "power2_label": "pout1", "power2_input": "450000000"}  # fmt: skip
    card = {"name": "amdgpu", "power1_average": "300000000"}
    others = tree(tmp_path / "others", chips(supply, card))
    assert meters(others) == () and "no meter of a processor or a board" in why_none(others)
    both = [*grace(0, 400, 200, 150), *grace(1, 420, 210, 160)]
    found = meters(tree(tmp_path / "grace", chips(supply, *both, card)))
    assert {meter.name: meter.total for meter in found} == {
        f"power_meter {what} Power Socket {k}": what == "Grace"
        for what in ("Module", "Grace", "CPU")
        for k in (0, 1)
    }
    assert total(found, energy.metered(found, lambda: None)) == pytest.approx(410)


def test_missing_meters_are_named_in_one_sentence(tmp_path, monkeypatch):
    assert "this system has no meter" in why_none(tmp_path)
    root = tree(tmp_path, SERVER)
    assert why_none(root) == ""
    first = root / CAP / "intel-rapl:0/energy_uj"
    for path in (root / CAP).glob("*/energy_uj"):
        path.write_text("?")
    assert why_none(root) == f"energy is not measured: {first} must contain a number, not '?'"
    for path in (root / CAP).glob("*/energy_uj"):
        path.unlink()
    assert why_none(root) == f"energy is not measured: {first} does not exist"
    assert meters(root) == ()

    def forbidden(path: Path, **options: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_text", forbidden)
    monkeypatch.setattr(energy, "meters", lambda root: ())
    monkeypatch.setattr(energy, "_powercap", lambda root: [energy.Meter("a", "/a", 1, True)])
    monkeypatch.setattr(energy, "_hwmon", lambda root: [])
    assert "only root may use /a" in why_none(root)


def live(
    monkeypatch: pytest.MonkeyPatch, root: Path, watts: Mapping[str, Callable[[], float]]
) -> None:
    """Measure with the meters of a tree; `watts` has the power of each from now on, by its file."""
    since_s = time.perf_counter()

    def up_to_date(those: Sequence[energy.Meter]) -> energy.Reading:
        nonlocal since_s
        now_s = time.perf_counter()
        for name, power in watts.items():
            path = root / name
            if not path.exists():
                continue
            if "power" in path.name:
                path.write_text(f"{power() * 1e6:.0f}\n")
                continue
            most = path.with_name("max_energy_range_uj")
            range_uJ = int(most.read_text()) if most.exists() else 2**64
            value = int(path.read_text()) + round(1e6 * power() * (now_s - since_s))
            path.write_text(f"{value % range_uJ}\n")
        since_s = now_s
        return replace(read(those), time_s=now_s)

    monkeypatch.setattr(energy, "ROOT", root)
    monkeypatch.setattr(energy, "read", up_to_date)
    energy.idle_W.cache_clear()


PACKAGE = f"{CAP}/intel-rapl:0/energy_uj"
DRAM = f"{CAP}/intel-rapl:0:1/energy_uj"
CASE = ("loops", "-k", "triad", "--elements", "100000", "-t", "1", "--runs", "3", "-q")


def test_energy_of_an_invocation(tmp_path, monkeypatch, capsys):
    # The counter overflows once during the measurement, regardless of its duration.
    root = tree(tmp_path, zone("intel-rapl:0", "package-0", 299_900_000, 300_000_000))
    now_W = 8.0
    live(monkeypatch, root, {PACKAGE: lambda: now_W})
    native = sampling.sample

    def hot(*arguments: Any, **options: Any) -> None:
        # Energy used while samples are taken does not count.
        nonlocal now_W
        now_W = 900.0
        native(*arguments, **options)
        energy.read(())
        now_W = 8.0

    monkeypatch.setattr(sampling, "sample", hot)
    (row,) = measured(capsys, *CASE)
    assert row["power_W"] == pytest.approx(8, rel=1e-3)
    assert row["idle_power_W"] == pytest.approx(8, rel=1e-3)
    assert row["energy_J"] == pytest.approx(row["power_W"] * row["time_median_s"])
    assert row["energy_delay_Js"] == pytest.approx(row["energy_J"] * row["time_median_s"])
    assert row["energy_per_byte_pJ"] == pytest.approx(1e12 * row["energy_J"] / row["bytes_B"])
    assert row["energy_per_flop_pJ"] == pytest.approx(1e12 * row["energy_J"] / 2e5)
    assert json.loads(row["energy_meters"])["package-0"] == pytest.approx(row["energy_J"])
    assert row["energy_note"] == "" and set(row) <= set(COLUMNS)


def test_invocations_run_until_the_meters_have_counted(tmp_path, monkeypatch):
    root = tree(tmp_path, zone("intel-rapl:0", "package-0", 0))
    live(monkeypatch, root, {PACKAGE: lambda: 8.0})
    prepared = mk.loops("triad", 4096).prepare()
    runs: list[float] = []

    def run(invocations: int) -> float:
        runs.append(invocations * 1e-6)
        time.sleep(runs[-1])
        return runs[-1]

    prepared.native = Changed(prepared.native, run=run)
    found = metering.measure(prepared, 1e-6)
    assert found.power_W == pytest.approx(8, rel=1e-3) and found.note == ""
    # The only pauses are readings.
    assert 2 <= len(runs) <= 10 and set(runs) == {0.01}


def test_a_meter_that_vanishes_is_named(tmp_path, monkeypatch, capsys):
    files = {**zone("intel-rapl:0", "package-0", 0), **zone("intel-rapl:0:1", "dram", 0)}
    core = f"{CAP}/intel-rapl:0:0/energy_uj"
    root = tree(tmp_path, {**files, **zone("intel-rapl:0:0", "core", 0)})
    live(monkeypatch, root, {PACKAGE: lambda: 8.0, DRAM: lambda: 2.0, core: lambda: 5.0})
    up_to_date = energy.read

    def vanishing(those: Sequence[energy.Meter]) -> energy.Reading:
        reading = up_to_date(those)
        (root / lost).unlink(missing_ok=True)
        return reading

    monkeypatch.setattr(energy, "read", vanishing)
    # A part of the package does not count in the total.
    lost = core
    (row,) = measured(capsys, *CASE)
    assert row["power_W"] == pytest.approx(10, rel=1e-3)
    assert json.loads(row["energy_meters"])["package-0 core"] is None
    lost = DRAM
    code, out, err = run(capsys, *CASE, "--json")
    (row,) = json.loads(out)
    note = "energy is unknown: package-0 dram can no longer be read"
    assert code == 0 and "energy_J" not in row and row["energy_note"] == note
    assert f"memkern: {note}\n" in err


def test_records_say_why_they_have_no_energy(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(energy, "ROOT", tmp_path)
    (row,) = measured(capsys, *CASE)
    assert "this system has no meter" in row["energy_note"]
    assert not {"energy_J", "power_W", "idle_power_W", "energy_meters"} & set(row)
    for name in ("energy", "energy-clock"):
        with refused("no record has energy: energy is not measured: this system has no meter"):
            figures[name](Results([row]))
        with refused("no record has energy: measure where /sys/class/powercap"):
            figures[name](Results([{**row, "energy_note": ""}]))
    live(monkeypatch, tree(tmp_path, SERVER), {PACKAGE: lambda: 8.0})
    (row,) = measured(capsys, *CASE, "--flush")
    assert row["energy_note"] == "energy is not measured with flush, whose energy would be included"
    late = Prepared(mk.loops("triad", 4096), deadline=time.perf_counter() + 4)
    assert metering.measure(late, 1e-6).note == "energy is not measured: too little time was left"
    monkeypatch.setattr(metering, "ranks", lambda: SimpleNamespace(size=2))
    assert "not measured over ranks" in metering.measure(late, 1e-6).note


def test_an_interrupt_while_energy_is_measured_keeps_the_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "ROOT", tree(tmp_path, SERVER))
    monkeypatch.setattr(energy, "metered", interrupt)
    record = mk.loops("triad", 4096, runs=3).measure().record
    assert (record["stop"], record["samples"]) == ("interrupted", 3)
    assert record["energy_note"] == "energy is not measured: sampling was interrupted"


LIMIT = f"{CPU}/cpufreq/policy0/scaling_max_freq"
TREES: dict[str, tuple[dict[str, str], dict[str, float]]] = {
    # Files, and the share of the power measured by each meter of the total.
    "Intel": (SERVER, {f"{CAP}/intel-rapl:{zone}/energy_uj": share for zone, share in
                       (("0", 0.4), ("0:1", 0.1), ("1", 0.3), ("1:1", 0.2))}),
    "AMD": (AMD, {f"{HWMON}/energy129_input": 1.0}),
    "Grace": (chips(*grace(0, 1, 1, 1), *grace(1, 1, 1, 1)),
              {f"sys/class/hwmon/hwmon{k}/device/power1_average": 0.5 for k in (1, 4)}),
}  # fmt: skip


@pytest.fixture(params=once_a_kind(TREES))
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Replace meters and clock limits: the machine needs 10 W for each GHz of the limit."""
    files, shares = TREES[request.param]
    root = tree(tmp_path / "machine", {**files, **POLICIES})

    def watts(share: float) -> float:
        return share * 1e-5 * int((root / LIMIT).read_text())

    live(monkeypatch, root, {name: partial(watts, share) for name, share in shares.items()})
    monkeypatch.setattr(settings, "ROOT", root)
    monkeypatch.setenv(settings.FOLDER, str(tmp_path / "state"))
    monkeypatch.setattr(energy, "_SENSOR_S", 0.1)
    yield
    energy.idle_W.cache_clear()


def test_from_meters_and_clock_limits_to_figures(machine, tmp_path, capsys):
    file = tmp_path / "clocks.json"
    words = ("loops", "-k", "triad", "--elements", "100000", "--threads", "1,2", "--runs", "3")
    output_of(capsys, *words, "--clock-limit", "1000,2500", "-o", str(file), "-q")
    found = {(row["threads"], row["clock_limit"]): row for row in mk.load(file).records}
    assert set(found) == {(1, 1000), (1, 2500), (2, 1000), (2, 2500)}
    for (_, limit), row in found.items():
        assert row["power_W"] == pytest.approx(limit / 100, rel=1e-3)
        # The idle power is measured at the same clock.
        assert row["idle_power_W"] == pytest.approx(limit / 100, rel=1e-3)
        energies = json.loads(row["energy_meters"])
        assert len(energies) >= 2 and row["energy_note"] == ""
    (ax,) = [ax for ax in figures["energy"](mk.load(file)).axes if ax.get_lines()]
    drawn = {str(one.get_label()): one for one in ax.get_lines()}
    assert [label for label in drawn if "GHz" in label] == ["2.50 GHz", "1.00 GHz"]
    for label, limit in (("1.00 GHz", 1000), ("2.50 GHz", 2500)):
        assert np.asarray(drawn[label].get_ydata()).tolist() == [
            found[threads, limit]["energy_per_byte_pJ"] for threads in (1, 2)
        ]
    table = clock_table(mk.load(file)).set_index("threads")
    for threads in (1, 2):
        slow, fast = (found[threads, limit]["energy_J"] for limit in (1000, 2500))
        assert table.loc[threads, "energy_percent"] == pytest.approx(100 * (slow / fast - 1))


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


def test_z_plot_has_a_line_for_each_clock():
    frame = rows(disturbed=lambda frame: frame.index % 5 == 1)
    for ax, kernel in zip(figures["energy"](frame).axes, ("loops.triad", "loops.sum"), strict=True):
        assert ax.get_title().startswith(kernel)
        drawn = {str(one.get_label()): one for one in ax.get_lines()}
        assert {"no clock limit", "1.50 GHz", "2.00 GHz"} <= set(drawn)
        mine = frame[(frame["kernel"] == kernel) & (frame["clock_limit"] == 1500)]
        assert drawn["1.50 GHz"].get_xdata().tolist() == mine["bandwidth_median_GBps"].tolist()
        assert drawn["1.50 GHz"].get_ydata().tolist() == mine["energy_per_byte_pJ"].tolist()
    several = pd.concat([frame, frame.assign(platform="Other CPU, 1 thread")])
    assert figures["energy"](several).axes[0].get_title().startswith("Own CPU\nloops.triad")


def test_what_a_lower_clock_costs_and_saves():
    table = clock_table(rows())
    assert len(table) == 2 * 2 * 4
    row = table[(table["threads"] == 8) & (table["clock_limit"] == 1500)].iloc[0]
    # Bound by memory: 0.5 ** 0.2 of the speed, at 66 of 114 W.
    assert row["speed_percent"] == pytest.approx(100 * (0.5**0.2 - 1))
    assert row["energy_percent"] == pytest.approx(100 * (66 / 114 / 0.5**0.2 - 1))
    (ax,) = figures["energy-clock"](rows()).axes
    # Published for A64FX.
    diamonds = [one.get_ydata()[0] for one in ax.get_lines() if one.get_marker() == "D"]
    assert np.allclose(sorted(diamonds), [-13.0, -2.7])
    with refused("no case was measured at two clocks"):
        figures["energy-clock"](rows().iloc[:4])
