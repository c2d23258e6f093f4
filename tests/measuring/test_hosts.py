"""Ranks on two hosts, which are network namespaces of this machine (``--cluster``; as root)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import launching
import pytest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces"),
]

HOSTS = {"memkern-a": "10.77.0.1", "memkern-b": "10.77.0.2"}
DEVICE = "memkern0"
# How a launcher starts processes on another host by a program of ours, over TCP.
REMOTELY = {
    "openmpi": [
        *("--mca", "plm_rsh_agent", "{agent}", "--mca", "btl", "tcp,self", "--mca"),
        *("btl_tcp_if_include", "10.77.0.0/24", "--mca", "oob_tcp_if_include", "10.77.0.0/24"),
        *("-x", "PYTHONPATH", "-x", "MEMKERN_SMALL", "--host", "10.77.0.1:1,10.77.0.2:1"),
    ],
    "mpich": [
        *("-launcher", "rsh", "-launcher-exec", "{agent}", "-iface", DEVICE),
        *("-hosts", "10.77.0.1:1,10.77.0.2:1"),
    ],
}
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
    """Connect two namespaces by a cable, and return the program that starts processes in them."""
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


@pytest.mark.parametrize("kind", REMOTELY)
def test_ranks_on_two_hosts_measure_together(kind: str, agent: Path, tmp_path: Path) -> None:
    command, variables = launching.launcher(kind, tmp_path)
    remotely = [word.format(agent=agent) for word in REMOTELY[kind]]
    words = ["-m", "memkern", "stream", "-k", "triad", "--threads", "1", "--runs", "3", "--json"]
    done = subprocess.run(
        [str(agent), "10.77.0.1", *command, *remotely, "-n", "2", sys.executable, *words],
        capture_output=True,
        text=True,
        env={**variables, "MEMKERN_SMALL": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert record["valid"] and record["hosts"] == "memkern-a,memkern-b"
    assert (record["ranks"], record["ranks_per_node"]) == (2, 1)
    assert [row["host"] for row in json.loads(record["rank_rows"])] == list(HOSTS)
