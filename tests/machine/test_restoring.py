"""Changed settings of the machine are restored, however the process ends."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from checking import output_of, refused, refused_words, run, wait_until
from registers import BEFORE, CASE, machine, registers, started

import memkern as mk
from memkern.machine import restoring, settings, switches
from memkern.machine.settings import Change, changed, recover

pytestmark = pytest.mark.usefixtures("state")

CHANGE = """
import sys
from pathlib import Path
from memkern.machine import settings, switches
root = Path(sys.argv[1])
with settings.changed(switches.prefetchers_off(root)):
    print(settings._guardian._process.pid, flush=True)
"""
# Keeps the registers changed after `started` returns.
HOLD = f"{CHANGE}    input()\n"
TOGGLE = f"""{CHANGE}
while True:
    with settings.changed(switches.prefetchers_off(root)):
        pass
"""


def wait_until_restored(root: Path, state: Path) -> None:
    """Wait until the registers have their original values and there is no journal."""
    wait_until(lambda: registers(root) == BEFORE and not (state / restoring.JOURNAL).exists())


def test_the_guardian_waits_for_the_lock_of_a_dying_process(tmp_path):
    setting = tmp_path / "setting"
    setting.write_text("changed")
    owner = restoring.Owner(os.getpid(), restoring.started(os.getpid()))
    restoring.write_journal(str(tmp_path), owner, [(str(setting), None, b"before")])
    command = [sys.executable, restoring.__file__, str(tmp_path), *map(str, owner)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as guardian:
        assert guardian.stdin is not None and guardian.stdout is not None
        assert guardian.stdout.readline() == b"ready\n"
        with restoring.locked(str(tmp_path)) as held:
            assert held
            guardian.stdin.close()
            time.sleep(0.2)
            assert guardian.poll() is None
    assert setting.read_text() == "before"


@pytest.mark.parametrize("attempt", range(10))
def test_the_guardian_restores_after_a_kill(tmp_path, state, attempt):
    root = machine(tmp_path)
    process, _ = started(root, HOLD if attempt % 2 else TOGGLE)
    with process:
        if attempt % 2:
            assert registers(root) != BEFORE
        else:
            # At a random time, possibly between writing the journal and the change.
            time.sleep(random.Random(attempt).uniform(0, 0.05))
        os.killpg(process.pid, signal.SIGKILL)
    wait_until_restored(root, state)


def test_the_next_process_restores_if_the_guardian_was_killed_too(tmp_path, state, capsys):
    root = machine(tmp_path)
    process, guardian = started(root, HOLD)
    with process:
        os.kill(guardian, signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
    assert registers(root) != BEFORE
    _, err = output_of(capsys, "columns", "kernel")
    assert err == (
        "memkern: restored 4 settings of this machine that a killed process had changed\n"
    )
    assert registers(root) == BEFORE
    assert not (state / restoring.JOURNAL).exists()
    recover()


def left(state: Path, path: Path, value: bytes = b"before") -> Path:
    """Write the journal of a process that was killed, and return its path."""
    state.mkdir(mode=0o700, exist_ok=True)
    restoring.write_journal(str(state), restoring.Owner(1, 1), [(str(path), None, value)])
    return state / restoring.JOURNAL


def test_measuring_from_python_restores_first(tmp_path, state):
    (setting := tmp_path / "setting").write_text("changed")
    journal = left(state, setting)
    with pytest.warns(UserWarning, match="restored 1 settings of this machine"):
        mk.loops("copy", elements=64, threads=1, variant="scalar").prepare()
    assert setting.read_text() == "before" and not journal.exists()


def test_ordinary_users_have_a_journal_without_the_variable(tmp_path, monkeypatch):
    (setting := tmp_path / "setting").write_text("changed")
    folder = tmp_path / "memkern"
    journal = left(folder, setting)
    user = os.geteuid() or 1000
    for path in (folder, journal):
        os.chown(path, user, -1)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.delenv(settings.FOLDER)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    recover()
    with refused("no folder is known for the journal"), changed([Change("it", "it", b"", b"")]):
        pass
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.warns(UserWarning, match="restored 1 settings"):
        recover()
    assert setting.read_text() == "before"


@pytest.mark.parametrize("text", ["{", '{"changes": []}', "[]", "\x80", None])
def test_a_journal_that_is_damaged_is_named(text, tmp_path, state, capsys):
    """A setting that no longer exists, such as a register of an offline unit, is damage too."""
    journal = left(state, tmp_path / "none" / "setting")
    if text is not None:
        journal.write_text(text, encoding="latin-1")
    out, err = output_of(capsys, "columns", "kernel")
    # Commands that measure nothing do not need settings.
    assert "kernel" in out
    assert str(journal) in err and len(err.splitlines()) == 1
    assert refused_words(capsys, *CASE) + "\n" == err
    with refused("remove"):
        mk.loops("copy", elements=64).prepare()
    journal.unlink()
    assert run(capsys, "columns", "kernel")[::2] == (0, "")


def test_signals_restore_too(tmp_path, state):
    root = machine(tmp_path)
    for number in (signal.SIGTERM, signal.SIGINT):
        process, _ = started(root, HOLD)
        with process:
            process.send_signal(number)
        wait_until_restored(root, state)


def test_one_process_at_a_time(tmp_path, state):
    root = machine(tmp_path)
    process, _ = started(root, HOLD)
    with process:
        changes = switches.prefetchers_off(root)
        with refused("another process has changed settings"), changed(changes):
            pass
        recover()  # leaves changes of a living process
        assert registers(root) != BEFORE
        process.kill()
    wait_until_restored(root, state)
    with changed(switches.prefetchers_off(root)):
        with refused("has changed settings of the machine already"), changed(changes):
            pass
        assert registers(root) != BEFORE
    assert registers(root) == BEFORE


def test_a_setting_that_keeps_its_value_is_refused_and_all_are_restored(tmp_path, state):
    root = machine(tmp_path)
    changes = switches.prefetchers_off(root)
    vanished = Change("the door", str(tmp_path / "none"), b"1", b"0")
    for wrong, culprit in (
        (Change("the null device", "/dev/null", b"1", b"0"), "/dev/null keeps its value"),
        (vanished, "the door can't be changed: .*none does not exist"),
    ):
        # There is no warning, since all changed settings are restored.
        with refused(culprit), changed([*changes, wrong]):
            raise AssertionError
        assert registers(root) == BEFORE
        assert not (state / restoring.JOURNAL).exists()


def test_a_setting_that_vanishes_while_it_is_changed_stays_in_the_journal(tmp_path, state):
    root = machine(tmp_path)
    lost = pytest.warns(UserWarning, match=r"not restored: .*cpu/1/msr: No such file")
    with lost, changed(switches.prefetchers_off(root)):
        (root / "dev/cpu/1/msr").unlink()
    assert (state / restoring.JOURNAL).exists()
    with refused(f"cpu/1/msr: No such file.*remove {state}"):
        recover()


@pytest.mark.parametrize(
    "number, reason",
    [
        (errno.EPERM, "only root may use {path}, unless the kernel forbids it to all"),
        (errno.EIO, "the processor or its hypervisor refuses the register of {path}"),
    ],
)
def test_what_may_not_be_read_or_written_is_refused(
    number, reason, tmp_path, state, monkeypatch,
    capsys):  # fmt: skip
    root = machine(tmp_path / "machine")
    monkeypatch.setattr(settings, "ROOT", root)
    forbidden = str(root / "dev/cpu/2/msr")
    reason = reason.replace("{path}", forbidden)

    def only_others(native: Any) -> Any:
        def use(path: str, *arguments: Any) -> Any:
            if path == forbidden:
                raise OSError(number, os.strerror(number))
            return native(path, *arguments)

        return use

    native = restoring.write_value
    monkeypatch.setattr(restoring, "write_value", only_others(native))
    assert refused_words(capsys, *CASE, "--prefetchers", "off") == (
        f"memkern: register 0x1a4 of unit 2 can't be changed: {reason}"
    )
    assert registers(root) == BEFORE and not (state / restoring.JOURNAL).exists()
    # Other processes can still measure.
    assert run(capsys, *CASE, "--variant", "scalar")[0] == 0
    monkeypatch.setattr(restoring, "read_value", only_others(restoring.read_value))
    assert refused_words(capsys, *CASE, "--prefetchers", "off") == (
        f"memkern: the prefetchers can't be switched: {reason}"
    )


def test_a_setting_that_is_changed_twice_has_its_first_value_again(tmp_path):
    file = tmp_path / "setting"
    file.write_text("1")
    changes = [Change("it", str(file), b"2", b"1"), Change("it", str(file), b"3", b"2")]
    with changed(changes):
        assert file.read_text() == "3"
    assert file.read_text() == "1"


def test_a_journal_that_others_could_write_is_refused(tmp_path, state):
    root = machine(tmp_path)
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    with refused("no one else may write to it"), changed(switches.prefetchers_off(root)):
        pass
    state.chmod(0o700)
    # A journal that anyone can write, or from another boot, is not applied.
    owner = restoring.Owner(1, 1)
    target = tmp_path / "target"
    target.write_text("1")
    restoring.write_journal(str(state), owner, [(str(target), None, b"0")])
    journal = state / restoring.JOURNAL
    journal.chmod(0o666)
    assert restoring.read_journal(str(state)) is None
    journal.chmod(0o600)
    journal.write_text(journal.read_text().replace(restoring.boot(), "another"))
    recover()
    assert target.read_text() == "1"
