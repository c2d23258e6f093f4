"""How often `memkern compare fleet` names a healthy node, and how often a slow one, by simulation.

A node's round is a run of a recorded host (``host_samples.py``), drawn with replacement, with its
cases in memory; slopes of the coordinates of the state are those of the other hosts. With
``--contiguous``, the rounds of a node are consecutive runs, which share their state.

A row has a host and a number of nodes and rounds: of healthy fleets those with a named node, and
the share of fleets in which a node that is slow in all cases is named, with the power that the
comparison states (the median of fleets), after these rounds, and in the end, when suspect nodes
have got up to as many again. Rows of one node are of looks beside its own history of ten: of
healthy ones that were ever named in ten looks, of slow ones that were named after one, and within
ten, where a look is judged together with those since the slowdown.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from records import Row, program

from memkern.results.effects import SLOPES, middle
from memkern.results.fleet import ALL, PEERS, Compared, Looks

_Floats = npt.NDArray[np.float64]
COLUMNS = {"core_share": "throughput", "exchange_ns": "exchange_s"}
SLOW = (0.12, 0.2, 0.3)
LOOKS = 10
_STATED = 50  # fleets of which the stated power is computed


class Runs(NamedTuple):
    """Logarithms of times and coordinates of the runs of a host, and the parts of its cases."""

    times: _Floats
    states: _Floats
    parts: list[str]


def runs_of(path: Path) -> Runs:
    """Return the runs of a recording, with its cases in memory."""
    frame = pd.read_parquet(path)
    frame = frame[(frame["beside"] == "") & frame["case"].astype(str).str.contains("memory")]
    groups = frame.groupby(["run", "case"], observed=True)
    times = np.log(groups["seconds"].min()).unstack("case").dropna()
    states = [
        np.log(groups[name].median().where(lambda x: x > 0)).unstack("case").loc[times.index]
        for name in COLUMNS.values()
    ]
    parts = ["latency" if "one by one" in case else "memory" for case in times.columns]
    return Runs(times.to_numpy(), np.stack(states, axis=-1), parts)


def slopes(hosts: Sequence[Runs]) -> _Floats:
    """Return the slopes of the coordinates on hosts, by regression with heavy tails."""
    both = [
        (
            (one.times - np.median(one.times, 0)).ravel(),
            np.nan_to_num(one.states - middle(one.states, 0)).reshape(-1, len(SLOPES)),
        )
        for one in hosts
    ]
    y, x = (np.concatenate(some) for some in zip(*both, strict=True))
    weights = np.ones(len(y))
    for _ in range(30):
        weighted = x * weights[:, None]
        found = np.linalg.solve(weighted.T @ x + 1e-3 * np.eye(x.shape[1]), weighted.T @ y)
        left = y - x @ found
        weights = 5 / (4 + (left / (1.4826 * np.median(np.abs(left)))) ** 2)
    return np.asarray(found)


class Simulated:
    """Fleets, and looks at one node, made of the runs of a host."""

    def __init__(self, host: Runs, others: Sequence[Runs], contiguous: bool) -> None:
        self._host, self._slopes = host, tuple(slopes(others))
        self._contiguous = contiguous

    def _chosen(self, random: np.random.Generator, looks: int, rounds: int) -> npt.NDArray[np.int_]:
        number = len(self._host.times)
        if self._contiguous:
            first = random.integers(number - rounds + 1, size=(looks, 1))
            return np.asarray(first + np.arange(rounds))
        return random.integers(number, size=(looks, rounds))

    def _looks(self, chosen: npt.NDArray[np.int_], nodes: list[str], judged: list[int]) -> Looks:
        times, states = self._host.times[chosen].copy(), self._host.states[chosen]
        return Looks(nodes, judged, self._host.parts, times, states, slopes=self._slopes)

    def fleet(
        self, seed: int, nodes: int, rounds: int, slowdown: float = 0.0
    ) -> tuple[Compared, npt.NDArray[np.bool_]]:
        """Return a fleet whose first node is slower, and the nodes that are named in the end.

        Suspect nodes get up to as many rounds again.
        """
        chosen = self._chosen(np.random.default_rng(seed), nodes, 2 * rounds)
        looks = self._looks(chosen, [f"n{k}" for k in range(nodes)], [*range(nodes)])
        looks.times[0] += math.log1p(slowdown)
        times = looks.times.copy()
        looks.times[:, rounds:] = math.nan
        compared = first = Compared.of_looks(looks)
        off = first.off.copy()
        suspect = np.ones(nodes, dtype=bool)
        for number in range(rounds, 2 * rounds):
            evidence = [one.evidence for one in compared.effects.values()]
            suspect &= ~off & (np.max(evidence, 0) > 0)
            if not suspect.any():
                break
            looks.times[suspect, number] = times[suspect, number]
            compared = Compared.of_looks(looks)
            off |= compared.off
        return first, off

    def history(self, seed: int, slowdown: float = 0.0) -> list[bool]:
        """Return whether a node is named after each look, since it became slower."""
        chosen = self._chosen(np.random.default_rng(seed), LOOKS + 1, LOOKS)
        looks = self._looks(chosen, ["n0"] * (LOOKS + 1), [LOOKS])
        looks.times[:LOOKS, 1:] = math.nan  # earlier looks have one round
        looks.times[LOOKS] += math.log1p(slowdown)
        now, found = looks.times[LOOKS].copy(), []
        for number in range(1, LOOKS + 1):
            looks.times[LOOKS, number:] = math.nan
            looks.times[LOOKS, :number] = now[:number]
            found.append(bool(Compared.of_looks(looks).off[0]))
        return found


def fleets(simulated: Simulated, nodes: int, rounds: int, number: int) -> Row:
    """Return what was named in fleets."""
    healthy = [simulated.fleet(seed, nodes, rounds) for seed in range(number)]
    row: Row = {
        "nodes": nodes,
        "rounds": rounds,
        "healthy": number,
        "with a named node": sum(bool(one.off.any()) for one, _ in healthy),
        "after more rounds": sum(bool(off.any()) for _, off in healthy),
    }
    for slowdown in SLOW:
        seeds = range(number, number + number // 5)
        found = [simulated.fleet(seed, nodes, rounds, slowdown) for seed in seeds]
        stated = [one.effects[ALL, PEERS].power(slowdown)[0] for one, _ in healthy[:_STATED]]
        row |= {
            f"stated at {slowdown:.0%}": float(np.median(stated)),
            f"named at {slowdown:.0%}": float(np.mean([one.off[0] for one, _ in found])),
            f"in the end at {slowdown:.0%}": float(np.mean([off[0] for _, off in found])),
        }
    return row


def looks(simulated: Simulated, number: int) -> Row:
    """Return what was named in looks at one node."""
    healthy = [any(simulated.history(seed)) for seed in range(number)]
    row: Row = {"nodes": 1, "healthy": number, "with a named node": sum(healthy)}
    for slowdown in SLOW:
        found = np.array(
            [simulated.history(number + seed, slowdown) for seed in range(number // 5)]
        )
        row[f"named at {slowdown:.0%}"] = float(found[:, 0].mean())
        row[f"in the end at {slowdown:.0%}"] = float(found.any(1).mean())
    return row


def measured(args: argparse.Namespace) -> Iterator[Row]:
    """Simulate fleets and looks of each host."""
    hosts = {Path(path).stem: runs_of(Path(path)) for path in args.recordings}
    for name, host in hosts.items():
        others = [one for other, one in hosts.items() if other != name]
        simulated = Simulated(host, others or [host], args.contiguous)
        for nodes in map(int, args.nodes.split(",")):
            for rounds in map(int, args.rounds.split(",")):
                yield {"host": name} | fleets(simulated, nodes, rounds, args.fleets)
        if args.looks and not args.contiguous:
            yield {"host": name} | looks(simulated, args.looks)


OPTIONS = {
    "recordings": {"nargs": "+", "metavar": "FILE", "help": "of bench/host_samples.py"},
    "--fleets": (2000, "healthy fleets of each row; of slow ones a fifth (2000)"),
    "--looks": (300, "healthy histories of each host; of slow ones a fifth (300)"),
    "--nodes": ("16", "numbers of nodes (16)"),
    "--rounds": ("5,10", "numbers of rounds (5,10)"),
    "--contiguous": {"action": "store_true", "help": "rounds are consecutive runs"},
}
main = program(__name__, __doc__, measured, OPTIONS)
