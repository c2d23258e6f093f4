"""A cluster on this machine: munge and Slurm as processes of this user, files in one folder."""

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Folders of daemons, which are not on every user's PATH.
DAEMONS = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", "/sbin"))
PROGRAMS = ("munged", "slurmctld", "slurmd")
_START_S = 30.0

# No accounting and no cgroups, as they need a database and systemd; tasks are bound to units.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_min_interval=100000,batch_sched_delay=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
MailProg=/bin/true
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Return the required programs that are not installed."""
    path = f"{os.environ['PATH']}{os.pathsep}{DAEMONS}"
    return [name for name in (*PROGRAMS, "sbatch", "squeue") if not shutil.which(name, path=path)]


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def cluster_of(nodes: int, folder: Path) -> Iterator[Path]:
    """Start a cluster whose nodes are all this machine; yield its configuration, for SLURM_CONF."""
    host = socket.gethostname().partition(".")[0]
    names = [host, *(f"{host}-{number}" for number in range(1, nodes))]
    for name in ("state", *(f"spool-{name}" for name in names)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    controller, *daemons = _free_ports(1 + nodes)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            user=getpass.getuser(),
            controller=controller,
            folder=folder,
            nodes="\n".join(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
                f"CPUs={os.cpu_count()} State=UNKNOWN"
                for name, port in zip(names, daemons, strict=True)
            ),
        )
    )
    path = f"{os.environ['PATH']}{os.pathsep}{DAEMONS}"
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(configuration)}
    munge = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file")]
    # Without --force, munged refuses a socket in a folder that other users can't enter.
    munge += [f"--seed-file={folder}/munge.seed", f"--key-file={key}", "--force"]
    commands = {
        "munged": ["munged", "--foreground", *munge],
        "slurmctld": ["slurmctld", "-D", "-c", "-f", str(configuration)],
        **{n: ["slurmd", "-D", "-N", n, "-f", str(configuration)] for n in names},
    }
    with contextlib.ExitStack() as stack:
        for name, command in commands.items():
            output = stack.enter_context((folder / f"{name}.out").open("w"))
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment
            )
            stack.callback(_end, process)
            if name == "munged":
                _until(lambda: (folder / "munge.socket").exists(), process, folder)

        def idle() -> bool:
            state = subprocess.run(
                ["sinfo", "--noheader", "--format=%T"],
                capture_output=True,
                text=True,
                env=environment,
            )
            return state.stdout.split() == ["idle"]

        _until(idle, process, folder)
        yield configuration


def _until(ready: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until `ready` is true; raise a RuntimeError with the logs if it never is."""
    deadline = time.monotonic() + _START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            logs = {path.name: path.read_text() for path in folder.glob("*.[lo][ou][gt]")}
            raise RuntimeError(f"Slurm does not start: {logs}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
