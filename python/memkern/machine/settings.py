"""Settings of the machine that are changed for a measurement and always restored.

The values before a change are first written to a journal. A separate process, the guardian,
restores them if this process is killed; if the guardian is killed as well, the next measuring
process restores them. `memkern.machine.switches` defines the settings that can be changed.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memkern.errors import InputError
from memkern.machine import restoring

# Environment variable with the folder of the journal.
FOLDER = "MEMKERN_STATE"
_WAIT_S = 1.0
# Folder that contains proc, sys and dev of the machine whose settings are changed.
ROOT = Path("/")


@dataclass(frozen=True)
class Change:
    """A setting and its new value.

    Attributes
    ----------
    what : str
        Name for messages.
    path : str
        File of the setting, or a GPU (see `restoring.GPU`).
    value : bytes
        The new value.
    before : bytes
        The current value, which is restored.
    offset : int, optional
        Position of the value in the file, such as the number of a register; without it the value is
        the text of the file.
    read_back : bool
        Whether the setting must have exactly the new value afterwards.
    """

    what: str
    path: str
    value: bytes
    before: bytes
    offset: int | None = None
    read_back: bool = True


def _journal_folder() -> Path | None:
    """Return the folder of the journal, which may not exist; None if this user has no folder."""
    if given := os.environ.get(FOLDER):
        return Path(given)
    base = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(base) / "memkern" if base else None


def _folder() -> str:
    """Return the folder of the journal; it is created if it does not exist.

    Raises
    ------
    InputError
        Other users can write to it, or it can't be created.
    """
    folder = _journal_folder()
    if folder is None:
        raise InputError(f"no folder is known for the journal of changed settings: set {FOLDER}")
    try:
        folder.mkdir(mode=0o700, parents=bool(os.environ.get(FOLDER)), exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise InputError(
            f"{folder} can't be made for the journal of changed settings: {error.strerror} "
            f"(set {FOLDER} to another folder)"
        ) from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise InputError(f"{folder} must belong to this user, and no one else may write to it")
    return str(folder)


def recover() -> None:
    """Restore settings that a killed process has changed.

    Raises
    ------
    InputError
        A setting can't be restored.
    """
    journal_folder = _journal_folder()
    if _changing == os.getpid() or not (
        journal_folder and os.path.exists(journal_folder / restoring.JOURNAL)
    ):
        return
    folder = _folder()
    with restoring.locked(folder) as held:
        if held:
            _restore_killed(folder)


def _restore_killed(folder: str) -> None:
    """Restore settings that a dead process has changed; the caller holds the lock."""
    try:
        found = restoring.read_journal(folder)
        failed = restoring.restore(folder) if found is not None else []
    except ValueError as error:
        raise InputError(str(error)) from None
    if found is None:
        return
    if failed:
        raise InputError(
            f"settings that a killed process had changed can't be restored: {'; '.join(failed)}; "
            f"once they are, or if they no longer exist, remove {folder}/{restoring.JOURNAL}"
        )
    warnings.warn(
        f"restored {len(found[1])} settings of this machine that a killed process had changed",
        stacklevel=3,
    )


class _Guardian:
    """The process that restores settings if this process dies; started once."""

    _process: subprocess.Popen[bytes] | None = None
    _owner = 0

    def start(self, folder: str, owner: restoring.Owner) -> None:
        """Start the guardian unless it runs.

        Raises
        ------
        InputError
            The guardian does not start.
        """
        process = self._process
        if process is not None and self._owner == owner.pid and process.poll() is None:
            return
        command = [sys.executable, "-I", "-S", str(Path(restoring.__file__)), folder]
        # In its own session, so that a signal to this process's group does not end it.
        process = subprocess.Popen(
            [*command, *map(str, owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            process.kill()
            raise InputError("the process that restores changed settings did not start")
        self._process, self._owner = process, owner.pid
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the guardian; no setting is left to restore."""
        if self._process is not None and self._owner == os.getpid():
            self._process.communicate()  # closes its input, and waits
        self._process = None


_guardian = _Guardian()
# Process that has currently changed settings; a second lock in it would release the first.
_changing = 0


@contextlib.contextmanager
def changed(changes: Sequence[Change]) -> Iterator[None]:
    """Change settings of the machine until the end of the context.

    Raises
    ------
    InputError
        A setting can't be changed, or another process has changed settings; then none is changed.
    """
    global _changing
    if not changes:
        yield
        return
    if _changing == os.getpid():
        raise InputError("this process has changed settings of the machine already")
    folder = _folder()
    # A guardian that restores settings of a killed process holds the lock for a moment.
    with restoring.locked(folder, _WAIT_S) as held:
        if not held:
            raise InputError(
                "another process has changed settings of this machine: wait for its end"
            )
        _restore_killed(folder)
        owner = restoring.Owner(os.getpid(), restoring.started(os.getpid()))
        _guardian.start(folder, owner)
        restoring.write_journal(folder, owner, [(c.path, c.offset, c.before) for c in changes])
        _changing = owner.pid
        made = 0
        try:
            for change in changes:
                # Counted before the change, since an interrupt may follow directly after it.
                made += 1
                try:
                    restoring.write_value(change.path, change.offset, change.value)
                except OSError as error:
                    # A setting that may not be written could not be restored either.
                    made -= 1
                    raise _refusal(change, error) from None
                _check(change)
            yield
        finally:
            # A process that was forked in between leaves the restoration to this process.
            if os.getpid() == owner.pid:
                _changing = 0
                if failed := restoring.restore(folder, made):
                    warnings.warn(f"not restored: {'; '.join(failed)}", stacklevel=3)


def _refusal(change: Change, error: OSError) -> InputError:
    return InputError(f"{change.what} can't be changed: {why(change.path, error)}")


def _check(change: Change) -> None:
    """Check that a setting has its new value."""
    if not change.read_back:
        return
    try:
        now = restoring.read_value(change.path, change.offset, len(change.value))
    except OSError as error:
        raise _refusal(change, error) from None
    if now.strip() != change.value.strip():
        raise InputError(
            f"{change.what} can't be changed: {change.path} keeps its value (a hypervisor or the "
            "firmware may hold it)"
        )


def why(path: str, error: OSError) -> str:
    """Return why a setting can't be read or written, as the end of a sentence."""
    if path.startswith(restoring.GPU):
        only = " (only root may change it)" if error.errno == errno.EPERM else ""
        return f"{error.strerror or error}{only}"
    only_root = f"only root may use {path}, unless the kernel forbids it to all"
    reasons = {
        errno.ENOENT: f"{path} does not exist",
        errno.EACCES: only_root,
        errno.EPERM: only_root,
        errno.EIO: f"the processor or its hypervisor refuses the register of {path}",
    }
    return reasons.get(error.errno or 0, f"{path}: {error.strerror}")
