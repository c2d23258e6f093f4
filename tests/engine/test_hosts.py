"""Ranks on two hosts, which are network namespaces of this machine (``--cluster``; as root)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launching
import pytest

from memkern import backends
from memkern.families.messages.kernels import OPERATIONS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces"),
]

HOSTS = {"memkern-a": "10.77.0.1", "memkern-b": "10.77.0.2"}
DEVICE = "memkern0"
_UCX = ["-x", "UCX_TLS=tcp,self", "-x", f"UCX_NET_DEVICES={DEVICE}"]
_OPEN_MPI = [
    *("--mca", "plm_rsh_agent", "{agent}", "--mca", "btl_tcp_if_include", "10.77.0.0/24"),
    *("--mca", "oob_tcp_if_include", "10.77.0.0/24", "-x", "PYTHONPATH", "-x", "MEMKERN_SMALL"),
    *("--host", "10.77.0.1:1,10.77.0.2:1"),
]
# Options with which a launcher starts processes on another host by `AGENT`, over TCP.
REMOTELY = {
    "openmpi": [*_OPEN_MPI, *_UCX, "--mca", "btl", "tcp,self"],
    "oshmem": [*_OPEN_MPI, *_UCX],
    "mpich": [
        *("-launcher", "rsh", "-launcher-exec", "{agent}", "-iface", DEVICE),
        *("-hosts", "10.77.0.1:1,10.77.0.2:1"),
    ],
}
# Open MPI's component for windows that works over TCP.
ONE_SIDED = {"OMPI_MCA_osc": "ucx"}
# Called with the options of ssh, a host and the words of a command.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in *.1) name=memkern-a ;; *) name=memkern-b ;; esac
shift
exec ip netns exec $name unshare --uts sh -c "hostname $name; $*"
"""


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """Connect two namespaces by a veth pair; yield the program that starts processes in them."""
    a, b = HOSTS
    try:
        for name in HOSTS:
            ip("netns", "add", name)
        ends = ("type", "veth", "peer", "name", DEVICE, "netns", b)
        ip("link", "add", DEVICE, "netns", a, *ends)
        for name, address in HOSTS.items():
            ip("-n", name, "addr", "add", f"{address}/24", "dev", DEVICE)
            for device in ("lo", DEVICE):
                ip("-n", name, "link", "set", device, "up")
        path = tmp_path / "agent"
        path.write_text(AGENT)
        path.chmod(0o755)
        yield path
    finally:
        for name in HOSTS:
            ip("netns", "del", name, check=False)


def records(kind: str, agent: Path, folder: Path, words: str) -> list[dict[str, Any]]:
    """Return the records of a command of memkern on both hosts."""
    command, variables = launching.launcher(kind, folder)
    remotely = [word.format(agent=agent) for word in REMOTELY[kind]]
    comm = "shmem" if kind == "oshmem" else "mpi"
    launching.need_module(comm)
    started = [*command, *remotely, "-n", "2", sys.executable, "-m", "memkern", *words.split()]
    done = subprocess.run(
        [str(agent), "10.77.0.1", *started, "--runs", "3", "--json", "--comm", comm],
        capture_output=True,
        text=True,
        env={**variables, "MEMKERN_SMALL": "1", **ONE_SIDED},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("kind", REMOTELY)
def test_ranks_on_two_hosts_measure_together(kind, agent, tmp_path):
    (record,) = records(kind, agent, tmp_path, "stream -k triad --threads 1")
    assert record["valid"] and record["hosts"] == "memkern-a,memkern-b"
    comm = "shmem" if kind == "oshmem" else "mpi"
    assert (record["comm"], record["ranks"], record["ranks_per_node"]) == (comm, 2, 1)
    assert [row["host"] for row in json.loads(record["rank_rows"])] == list(HOSTS)


def test_messages_between_two_hosts(agent, tmp_path):
    found = records("openmpi", agent, tmp_path, "messages --device mpi --sizes 8 --window 2")
    assert len(found) == 4
    assert {record["kernel"].partition(".")[2] for record in found} == {*OPERATIONS}
    for record in found:
        assert record["valid"]
        assert (record["pairs"], record["distance"]) == ("other", "other node")


def test_gathers_between_two_hosts(agent, tmp_path):
    methods = ",".join(backends.of("mpi").moves)
    words = f"spatter -p UNIFORM:8:4 -d -32 -l 64 -k Gather --device mpi --variant {methods}"
    found = records("openmpi", agent, tmp_path, words)
    assert [record["variant"] for record in found] == methods.split(",")
    assert all(record["valid"] and record["remote_share"] > 0 for record in found)
