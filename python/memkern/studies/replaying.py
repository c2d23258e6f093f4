"""The time of a program's loop beside the time of its accesses alone.

The program is built without tracing, with a clock around the functions that have patterns. Their
accesses are replayed by a kernel that is compiled for them: regular ones at their distance,
indirect ones through an index array in the recorded order, all in memory of the same size.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memkern.engine.public import measure
from memkern.errors import InputError
from memkern.spec.registry import case
from memkern.studies.extraction import FEW, NONE, WRITES, Extracted, Sites
from memkern.studies.tracing import copied, hooked, named

_FLAGS = {
    "gcc": "-g -finstrument-functions",
    "clang": "-g -finstrument-functions-after-inlining",
}
_OPTIMISED = ("-O2", "-fno-tree-vectorize")
_BUDGET_S = 0.5
_RUNS, _RUNS_S = 5, 10.0  # of the program
_BUSY = 0.05  # least part of the busiest thread's accesses of a thread that takes part


class Checked(NamedTuple):
    """A function of a program.

    Attributes
    ----------
    calls : int
    loop_s : float
        Shortest time of a call without tracing; the mean if that is more than twice as long.
    replay_s : float
        Time of the accesses of a call alone.
    threads : int
        That made the accesses.
    """

    calls: int
    loop_s: float
    replay_s: float
    threads: int

    @property
    def ratio(self) -> float:
        """Time of the accesses over that of the loop."""
        return self.replay_s / self.loop_s


def check(path: str | Path, found: Extracted) -> dict[str, Checked]:
    """Return the functions with patterns of a traced program.

    Parameters
    ----------
    path : str or Path
        The trace; the program is built again in a copy of the current folder, as it was for it.
    found : Extracted
        Its patterns.

    Raises
    ------
    InputError
        The trace has no command, or the program can't be built or run.
    """
    sites = Sites(Path(path))
    if "command" not in sites.about:
        raise InputError(f"{path} has no command: only traces of `memkern trace` can be checked")
    # Parts that the program marks by a source line are timed instead of its function.
    wanted = {key for one in found.patterns for key in (_plain(one.function), one.place)}
    files = sorted({Path(one.place.rpartition(":")[0]).name for one in found.patterns})
    times = _times(sites.about, files, wanted)
    members: dict[str, list[int]] = defaultdict(list)
    for k, site in enumerate(sites.sites):
        place, function = sites.place(k)
        if site["count"] >= FEW:
            members[place if place in times else _plain(function)].append(k)
    checked = {}
    for function in sorted(wanted & times.keys() & members.keys()):
        calls, total_s, shortest_s = times[function]
        loop_s = shortest_s if 2 * shortest_s * calls >= total_s else total_s / calls
        accesses = np.sum([_padded(sites, k) for k in members[function]], axis=0)
        threads = int(np.sum(accesses >= _BUSY * accesses.max()))
        groups: dict[int, list[int]] = defaultdict(list)
        for k in members[function]:
            groups[sites.sites[k]["count"]].append(k)
        replay_s = sum(
            _replayed(sites, group, max(round(count * sites.whole / calls), 1), threads)
            for count, group in groups.items()
        )
        checked[function] = Checked(calls, loop_s, replay_s, threads)
    return checked


def _plain(function: str) -> str:
    """Return a function's name without the compiler's additions, such as ``._omp_fn.0``."""
    return function.partition(".")[0]


def _padded(sites: Sites, k: int) -> Any:
    of_threads = sites.sites[k]["threads"]
    return np.pad(of_threads, (0, sites.trace.threads - len(of_threads)))


def _times(
    about: dict[str, Any], files: Sequence[str], wanted: Collection[str]
) -> dict[str, tuple[int, float, float]]:
    """Return calls, and total and shortest time, of functions in some files of a program.

    The clock is not read in others, which may be small.
    """
    # A name excludes all that contain it.
    others = [n for n in about["functions"] if not any(n in one for one in wanted)]
    excluded = f" -finstrument-functions-exclude-function-list={','.join(others)}" if others else ""
    flags = {**_FLAGS, "gcc": _FLAGS["gcc"] + excluded}
    times: dict[str, tuple[int, float, float]] = {}
    with copied(None) as copy, hooked(copy, "timed", flags, files) as environment:
        environment["MEMKERN_TIMES"] = str(copy / ".memkern" / "times")
        shell: list[dict[str, Any]] = [{"args": about["build"], "shell": True}]
        began = time.perf_counter()
        for words in [*(shell if about["build"] else ()), *[{"args": about["command"]}] * _RUNS]:
            if times and time.perf_counter() - began > _RUNS_S:
                break
            done = subprocess.run(
                **words, cwd=copy, env=environment, capture_output=True, text=True, errors="replace"
            )
            if done.returncode:
                told = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
                raise InputError(f"`{words['args']}` failed without tracing: {told}")
            for file in (copy / ".memkern").glob("times.*"):
                for name, calls, total_s, shortest_s in _read_times(file.read_text(), copy):
                    _, before_s, least_s = times.get(name, (0, np.inf, np.inf))
                    times[name] = calls, min(total_s, before_s), min(shortest_s, least_s)
                file.unlink()
    return times


def _read_times(text: str, copy: Path) -> Iterator[tuple[str, int, float, float]]:
    """Yield name, calls, and total and shortest seconds of functions and marks."""
    head, _, rows = text.partition("\n\n")
    lines = [line.split() for line in rows.splitlines()]
    after = {key: int(key, 16) + 1 for key, *_ in lines if key[0] != "@"}
    names = named(head, list(after.values()), copy)
    for key, calls, total, shortest in lines:
        name = key[1:] if key[0] == "@" else _plain(names.get(after[key], ("", ""))[1])
        yield name, int(calls), int(total) / 1e9, int(shortest) / 1e9


def _replayed(sites: Sites, group: list[int], n: int, threads: int) -> float:
    """Return the seconds of `n` iterations of instructions that are executed together."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "replay.c")
        source.write_text(_source(sites, group, Path(folder)), encoding="utf-8")
        made = case(
            "own.kernel",
            file=str(source),
            function="replay",
            arrays={"sum": "sum"},
            reference=_iterations,
            flags=_OPTIMISED,
            n=n,
            threads=threads,
            budget_s=_BUDGET_S,
        )
        return float(measure(made).record["time_min_s"])


def _iterations(n: int) -> int:
    return n


def _source(sites: Sites, group: list[int], folder: Path) -> str:
    """Return a function in C that makes the accesses of instructions, and write its indices."""
    regions = _regions(sites, group)
    memory = [f"static unsigned char *memory{r};" for r in range(len(regions))]
    setup = [f"  memory{r} = touched({end - low});" for r, (low, end) in enumerate(regions)]
    body: list[str] = []
    periods: dict[str, int] = {}
    loaded: dict[tuple[int, bytes], str] = {}
    fed = {sites.origins(k)[0] for k in group if sites.indirect(k)}
    for k in group:
        site, size = sites.sites[k], sites.sites[k]["size"] or 8
        r = next(r for r, (low, end) in enumerate(regions) if low <= site["low"] < end)
        start = site["low"] - regions[r][0]
        near = sites.origins(k)[0] if sites.indirect(k) else NONE
        if sites.indirect(k):
            at = sites.sequences[k, near][0]
            index = (at - at.min()) // size
            key = near, index.tobytes()
            if key not in loaded:
                loaded[key] = f"o{k}"
                # The type of the index array that the program has.
                bits = 64 if near != NONE and sites.sites[near]["size"] == 8 else 32
                stored = index.astype(f"int{bits}")
                file = folder / f"{k}.bin"
                stored.tofile(file)
                memory.append(f"static int{bits}_t *index{k};")
                setup.append(f'  index{k} = read_file("{file}", {stored.nbytes});')
                periods[f"c{k}"] = len(index)
                body.append(f"const int64_t o{k} = index{k}[c{k} + j];")
            offset = f"{start} + {loaded[key]} * {size}"
        elif k in fed and abs(sites.step(k) or 0) == size:
            continue  # the index array is loaded beside what it leads to
        elif step := sites.frequent(k):
            period = periods[f"c{k}"] = (site["high"] - site["low"]) // abs(step) + 1
            offset = f"{start if step > 0 else start - (period - 1) * step} + (c{k} + j) * {step}"
        else:
            offset = str(start)
        kind = f"uint{8 * min(size, 8)}_t"
        for word in range(max(size // 8, 1)):
            at_word = f"*({kind} *)(memory{r} + {offset} + {8 * word})"
            writes = site["how"] & WRITES
            body.append(f"{at_word} = ({kind})s;" if writes else f"s += {at_word};")
    return _FRAME.format(
        memory="\n".join(memory),
        setup="\n".join(setup),
        begin="\n".join(f"  int64_t {c} = begin % {p};" for c, p in periods.items()),
        least="\n".join(f"    if ({p} - {c} < m) m = {p} - {c};" for c, p in periods.items()),
        body="\n".join(f"      {line}" for line in body),
        end="\n".join(f"    if (({c} += m) == {p}) {c} = 0;" for c, p in periods.items()),
    )


def _regions(sites: Sites, group: list[int]) -> list[tuple[int, int]]:
    """Return the ranges of memory that instructions access, joined where they overlap."""
    ranges = sorted((sites.sites[k]["low"], sites.sites[k]["high"] + 16) for k in group)
    joined = [ranges[0]]
    for low, end in ranges[1:]:
        if low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((low, end))
    return joined


_FRAME = """#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

{memory}

static void *touched(int64_t bytes) {{
  volatile unsigned char *all = malloc((size_t)bytes);
  for (int64_t k = 0; k < bytes; ++k) all[k] = 0;
  return (void *)all;
}}
static void *read_file(const char *path, int64_t bytes) {{
  void *all = touched(bytes);
  FILE *file = fopen(path, "rb");
  if (!file || fread(all, 1, (size_t)bytes, file) != (size_t)bytes) abort();
  fclose(file);
  return all;
}}
__attribute__((constructor)) static void prepare(void) {{
{setup}
}}

void replay(double *sum, int64_t begin, int64_t end) {{
  uint64_t s = 0;
{begin}
  // Blocks within which no array begins again.
  for (int64_t i = begin, m = 0; i < end; i += m) {{
    m = end - i;
{least}
    for (int64_t j = 0; j < m; ++j) {{
{body}
    }}
{end}
  }}
  sum[0] += (double)(end - begin) + (s == 1);
}}
"""
