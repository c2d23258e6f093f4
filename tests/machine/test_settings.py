"""Settings of the machine that are changed, on small copies of /proc, /sys and /dev."""

import contextlib
import ctypes
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import launching
import pytest
from checking import measured, output_of, refused, refused_words, tree, wait_until
from event_trees import CASCADE_LAKE
from policies import POLICIES
from registers import BEFORE, CASE, CPU, REGISTERS, machine, registers, started

import memkern as mk
from memkern.engine.sampling import series as sampling
from memkern.machine import gpu, restoring, settings, switches
from memkern.machine.settings import changed

pytestmark = pytest.mark.usefixtures("state")


@pytest.mark.parametrize("name", REGISTERS)
def test_prefetchers_are_off_in_the_context_only(tmp_path, name, state):
    root = machine(tmp_path, name)
    bits = REGISTERS[name][2]
    with changed(switches.prefetchers_off(root)):
        # Other bits do not change.
        assert registers(root, name) == [value | bits for value in BEFORE]
        assert (state / restoring.JOURNAL).exists()
    assert registers(root, name) == BEFORE
    with contextlib.suppress(ZeroDivisionError), changed(switches.prefetchers_off(root)):
        raise ZeroDivisionError
    assert registers(root, name) == BEFORE
    assert not (state / restoring.JOURNAL).exists()


def test_machines_without_the_registers(tmp_path):
    with refused("no register is published for this processor .of unknown vendor"):
        switches.prefetchers_off(tmp_path)
    root = tree(tmp_path / "a", {**CASCADE_LAKE, f"{CPU}/online": "0-1\n"})
    with refused(r"dev/cpu/0/msr does not exist \(as root: modprobe msr\)"):
        switches.prefetchers_off(root)
    (root / "dev/cpu/0").mkdir(parents=True)
    (root / "dev/cpu/0/msr").write_bytes(b"short")
    with refused("lacks 0x1a4"):
        switches.prefetchers_off(root)


def test_clock_limits(tmp_path):
    root = tree(tmp_path / "m", POLICIES)

    def limits() -> list[list[int]]:
        return [
            [
                int((root / f"{CPU}/cpufreq/policy{k}/scaling_{end}_freq").read_text())
                for k in (0, 1)
            ]
            for end in ("min", "max")
        ]

    with changed(switches.clock_limit(2500, root)):
        assert limits() == [[2000000] * 2, [2500000] * 2]
    # The lower limit can't exceed the upper limit.
    with changed(switches.clock_limit(1200, root)):
        assert limits() == [[1200000] * 2, [1200000] * 2]
    assert limits() == [[2000000] * 2, [3500000] * 2]
    for wrong in (700, 3600):
        with refused(f"clock_limit {wrong} MHz is outside 800 to 3500 MHz"):
            switches.clock_limit(wrong, root)


NVML_SOURCE = Path(__file__).parent.parent / "emulated/nvml.c"
BUS = "0000:01:00.0"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which a replacement of NVML stores the clock limits of a GPU."""
    library, limits = tmp_path / "libnvidia-ml.so.1", tmp_path / "limits"
    words = ["cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*words, "-o", library, NVML_SOURCE], check=True)
    ctypes.CDLL(str(library))
    if not hasattr(ctypes.CDLL("libnvidia-ml.so.1"), "memkern_fake"):
        pytest.skip("this process has loaded NVML itself")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("MEMKERN_FAKE_NVML", str(limits))
    monkeypatch.setattr(gpu, "clocks_MHz", lambda name: [210, 1500, 1980])
    monkeypatch.setattr(gpu, "facts", lambda name: {"bus": BUS})
    limits.write_text("none")
    return limits


def test_the_clock_of_a_gpu_is_limited_in_the_context_only(nvml):
    with changed(switches.gpu_clock_limit(1500, "cuda:0")):
        assert nvml.read_text() == "210,1500"
    assert nvml.read_text() == "none"
    with refused("clock_limit 2000 MHz is outside 210 to 1980 MHz, the clocks of cuda:0"):
        switches.gpu_clock_limit(2000, "cuda:0")


def test_the_clock_of_a_gpu_may_not_be_limited(nvml, monkeypatch, tmp_path, state):
    def limit(culprit: str) -> None:
        changes = switches.gpu_clock_limit(1500, "cuda:0")
        with refused(culprit), changed(changes):
            raise AssertionError
        assert not (state / restoring.JOURNAL).exists()

    what = "the clock limit of cuda:0 can't be changed"
    monkeypatch.setenv("MEMKERN_FAKE_NVML", str(tmp_path / "none/limits"))
    limit(f"{what}: NVML: Insufficient Permissions .only root may change it")
    monkeypatch.setattr(gpu, "facts", lambda name: {"bus": "nowhere"})
    limit(f"{what}: NVML: Not Found$")
    monkeypatch.setattr(restoring, "_NVML", "libnosuch.so.1")
    limit(f"{what}: libnosuch.so.1: cannot open")
    monkeypatch.setattr(gpu, "clocks_MHz", lambda name: [])
    with refused("the clock of cuda:0 can't be limited: NVML does not report its clocks"):
        switches.gpu_clock_limit(1500, "cuda:0")


HOLD_GPU = """
from memkern.machine import restoring, settings
change = settings.Change("clock", restoring.GPU + "%s", b"210,1500", b"", read_back=False)
with settings.changed([change]):
    print(settings._guardian._process.pid, flush=True)
    input()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_clock_of_a_gpu_is_restored_after_a_signal(nvml, state, tmp_path, number):
    process, _ = started(tmp_path, HOLD_GPU % BUS)
    with process:
        assert nvml.read_text() == "210,1500"
        process.send_signal(number)
    wait_until(lambda: not (state / restoring.JOURNAL).exists())
    assert nvml.read_text() == "none"


RESCTRL = "sys/fs/resctrl"
WAYS = {
    f"{RESCTRL}/schemata": "    L3:0=7ff;1=7ff\n", f"{RESCTRL}/info/L3/cbm_mask": "7ff\n",
    f"{RESCTRL}/info/L3/min_cbm_bits": "2\n",
}  # fmt: skip


def test_cache_ways(tmp_path):
    root = tree(tmp_path / "m", WAYS)
    with changed(switches.cache_ways(4, root)):
        assert (root / RESCTRL / "schemata").read_text() == "L3:0=f;1=f\n"
    assert (root / RESCTRL / "schemata").read_text() == "L3:0=7ff;1=7ff\n"
    for wrong in (1, 12):
        with refused(f"cache_ways {wrong} is outside 2 to 11"):
            switches.cache_ways(wrong, root)
    arm = tree(tmp_path / "arm", {"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x46\n"})
    with refused("Linux has no file for the sector cache of A64FX"):
        switches.cache_ways(4, arm)
    (root / RESCTRL / "schemata").write_text("MB:0=100\n")
    with refused("divide an L3"):
        switches.cache_ways(4, root)


def test_options_change_the_machine_while_samples_are_taken(tmp_path, monkeypatch, capsys):
    root = machine(tmp_path)
    monkeypatch.setattr(settings, "ROOT", root)
    seen = []
    native = sampling.sample

    def spy(*arguments: Any, **options: Any) -> None:
        seen.append(registers(root))
        native(*arguments, **options)

    monkeypatch.setattr(sampling, "sample", spy)
    # A fixed variant, since settings are also changed during trials.
    words = (*CASE, "--variant", "scalar", "--case-order", "declared")
    rows = measured(capsys, *words, "--prefetchers", "default,off")
    assert [row["prefetchers"] for row in rows] == ["default", "off"]
    off = [value | 0x0F for value in BEFORE]
    assert {tuple(values) for values in seen} == {tuple(BEFORE), tuple(off)}
    assert registers(root) == BEFORE
    case = mk.loops("copy", elements=512)
    assert case.identity() != case.with_(prefetchers="off").identity()
    assert case.identity() == case.with_(prefetchers="default").identity()


RANKS = """
import json
from pathlib import Path

import memkern as mk
from memkern.errors import InputError
from memkern.machine import settings
from memkern.engine.sampling import series as sampling
from memkern.engine.processes.communication import ranks
from registers import registers

settings.ROOT = Path("ROOT")
native, seen = sampling.sample, set()


def spy(prepared, *arguments, **named):
    before = registers(settings.ROOT)
    native(prepared, *arguments, **named)
    if prepared.case == case:  # not what a launch costs, with the settings as they are
        seen.update(map(tuple, (before, registers(settings.ROOT))))


sampling.sample = spy
case = mk.loops("copy", elements=512, threads=1, runs=2, variant="scalar", prefetchers="off")
try:
    record = case.measure().record
    result = [record["ranks"], record["valid"], *ranks().every(sorted(seen))]
except InputError as error:
    result = str(error)
if ranks().number == 0:
    print(json.dumps(result))
"""


def test_ranks_of_a_host_change_its_settings_once(tmp_path, state):
    root = machine(tmp_path / "machine")
    program = tmp_path / "ranks.py"
    program.write_text(RANKS.replace('ROOT"', f'{root}"'))

    def over_ranks() -> Any:
        done = launching.run("openmpi", 2, [str(program)], tmp_path, {"MEMKERN_SMALL": "1"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    off = [value | 0x0F for value in BEFORE]
    assert over_ranks() == [2, True, [off], [off]]
    assert registers(root) == BEFORE and not (state / restoring.JOURNAL).exists()
    (root / "dev/cpu/0/msr").unlink()
    assert "msr does not exist (as root: modprobe msr)" in over_ranks()


def test_info_tells_what_can_be_changed(tmp_path, monkeypatch, capsys):
    def told() -> list[str]:
        out, _ = output_of(capsys, "info")
        rows = {line[:17].strip(): line[18:] for line in out.splitlines()}
        return [rows[name] for name in ("prefetchers", "clock limit", "cache ways")]

    monkeypatch.setattr(settings, "ROOT", tree(tmp_path / "none", CASCADE_LAKE))
    register, clock, ways = told()
    assert register.endswith("dev/cpu/0/msr does not exist (as root: modprobe msr)")
    assert clock.startswith("the clock can't be limited: this system has no cpufreq")
    assert ways.startswith("cache ways can't be limited: ") and "is not mounted" in ways
    monkeypatch.setattr(settings, "ROOT", tree(machine(tmp_path / "all"), {**POLICIES, **WAYS}))
    assert told() == [
        "can be switched off (--prefetchers off)",
        "can be set (--clock-limit)",
        "can be limited (--cache-ways)",
    ]


def test_options_are_refused_in_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    for option, value, reason in (
        ("--prefetchers", "off", "the prefetchers can't be switched"),
        ("--clock-limit", "2000", "the clock can't be limited"),
        ("--cache-ways", "4", "cache ways can't be limited"),
    ):
        assert reason in refused_words(capsys, *CASE, option, value)
