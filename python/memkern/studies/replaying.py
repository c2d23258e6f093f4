"""The time of a program's loop beside the time of its accesses alone.

The program is built without tracing, with a clock around the functions that have patterns. Their
accesses are replayed by a kernel that is compiled for them: regular ones at their distance,
indirect ones through an index array in the recorded order, all in memory of the same size.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memkern.engine.public import measure
from memkern.errors import InputError
from memkern.inputs import traces
from memkern.spec.case import Case
from memkern.spec.registry import case
from memkern.studies.extraction import FEW, NONE, Extracted, Sites, plain
from memkern.studies.tracing import copied, hooked, named

_FLAGS = {
    "gcc": "-g -finstrument-functions",
    "clang": "-g -finstrument-functions-after-inlining",
}
_OPTIMISED = ("-O2", "-fno-tree-vectorize")
_BUDGET_S = 0.1
_FEWEST, _MOST, _MOST_S = 3, 20, 10.0  # turns, and their time
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
    if not traces.is_own(Path(path)):
        raise InputError(f"{path} is no trace of `memkern trace`, whose command is needed")
    sites = Sites(Path(path))
    about = sites.about
    if "command" not in about:
        raise InputError(f"{path} has no command: the run was not finished")
    # Parts that the program marks by a source line are timed instead of its function.
    wanted = {key for one in found.patterns for key in (plain(one.function), one.place)}
    files = sorted({Path(one.place.rpartition(":")[0]).name for one in found.patterns})
    # The clock is not read in other functions, which may be small; a name excludes all with it.
    others = [n for n in about["functions"] if not any(n in one for one in wanted)]
    excluded = f" -finstrument-functions-exclude-function-list={','.join(others)}" if others else ""
    flags = {**_FLAGS, "gcc": _FLAGS["gcc"] + excluded}
    loops: dict[str, list[tuple[int, float]]] = defaultdict(list)
    replays: dict[str, list[float]] = defaultdict(list)
    with copied(None) as copy, hooked(copy, "timed", flags, files) as environment:
        if about["build"]:
            _run({"args": about["build"], "shell": True}, copy, environment)
        cases: dict[str, list[Case]] = {}
        # In turns, since the host's state changes.
        began = time.perf_counter()
        for turn in range(_MOST):
            if turn >= _FEWEST and time.perf_counter() - began > _MOST_S:
                break
            told = _times(about["command"], copy, environment)
            times = {name: row for name, row in told.items() if name in wanted}
            cases = cases or _cases(sites, times, copy / ".memkern")
            for name in times.keys() & cases.keys():
                loops[name].append(times[name])
                replays[name].append(sum(_seconds(one) for one in cases[name]))
    return {
        name: Checked(
            loops[name][0][0],
            min(loop_s for _, loop_s in loops[name]),
            min(replays[name]),
            max(one.knobs.threads for one in cases[name]),
        )
        for name in sorted(loops)
    }


def _run(words: dict[str, Any], copy: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        **words, cwd=copy, env=environment, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        told = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"`{words['args']}` failed without tracing: {told}")


def _times(
    command: Sequence[str], copy: Path, environment: dict[str, str]
) -> dict[str, tuple[int, float]]:
    """Run the program, and return calls and seconds of a call of its functions and marks."""
    with tempfile.TemporaryDirectory() as folder:
        _run({"args": command}, copy, {**environment, "MEMKERN_TIMES": f"{folder}/times"})
        found: dict[str, tuple[int, float]] = {}
        for file in Path(folder).iterdir():
            head, _, rows = file.read_text().partition("\n\n")
            lines = [line.split() for line in rows.splitlines()]
            after = {key: int(key, 16) + 1 for key, *_ in lines if key[0] != "@"}
            names = named(head, list(after.values()), copy)
            for key, *numbers in lines:
                name = key[1:] if key[0] == "@" else plain(names.get(after[key], ("", ""))[1])
                calls, total, shortest = map(int, numbers)
                # The mean if calls differ by much.
                loop = shortest if 2 * shortest * calls >= total else total / calls
                if calls * loop > math.prod(found.get(name, (0, 0.0))) * 1e9:
                    found[name] = calls, loop / 1e9
        return found


def _cases(
    sites: Sites, times: Mapping[str, tuple[int, float]], folder: Path
) -> dict[str, list[Case]]:
    """Return the kernels that replay a call of each function.

    Instructions that are executed equally often are one loop, by as many threads as execute it.
    """
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for k, site in enumerate(sites.sites):
        place, function = sites.place(k)
        name = place if place in times else plain(function)
        if name in times and site["count"] >= FEW:
            groups[name, site["count"]].append(k)
    # What is left of a function with marks may have no pattern.
    indirect = {name for (name, _), group in groups.items() if any(map(sites.indirect, group))}
    cases: dict[str, list[Case]] = defaultdict(list)
    for number, ((name, count), group) in enumerate(groups.items()):
        if name not in indirect:
            continue
        accesses = np.zeros(sites.trace.threads)
        for k in group:
            accesses[: len(sites.sites[k]["threads"])] += sites.sites[k]["threads"]
        threads = int(np.sum(accesses >= _BUSY * accesses.max()))
        own = folder / f"replay{number}"
        own.mkdir()
        (own / "replay.c").write_text(_source(sites, group, own), encoding="utf-8")
        cases[name].append(
            case(
                "own.kernel",
                file=str(own / "replay.c"),
                function="replay",
                arrays={"sum": "sum"},
                reference=_iterations,
                flags=_OPTIMISED,
                n=max(round(count * sites.whole / times[name][0]), threads),
                threads=threads,
                budget_s=_BUDGET_S,
            )
        )
    return cases


def _iterations(n: int) -> int:
    return n


def _seconds(one: Case) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the few iterations of outer loops
        return float(measure(one).record["time_min_s"])


def _source(sites: Sites, group: list[int], folder: Path) -> str:
    """Return a function in C that makes the accesses of instructions, and write its indices."""
    regions = _regions(sites, group)
    written = {
        _region(regions, sites.sites[k]) for k in group if sites.sites[k]["how"] & traces.WRITE
    }
    memory: list[str] = []
    setup: list[str] = []
    first: list[str] = []
    for r, (low, end) in enumerate(regions):
        # Threads write to memory of their own, as they do in programs without races.
        memory.append(f"static {'__thread ' * (r in written)}unsigned char *memory{r};")
        one = f"if (!memory{r}) memory{r} = touched({end - low});"
        (first if r in written else setup).append(f"  {one}")
    body: list[str] = []
    values: dict[str, str] = {}
    periods: dict[str, int] = {}
    loaded: dict[tuple[int, bytes], str] = {}
    fed = {sites.origins(k)[0] for k in group if sites.indirect(k)}
    for k in group:
        site, size = sites.sites[k], sites.sites[k]["size"] or 8
        r = _region(regions, site)
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
        elif k in fed and sites.frequent(k):
            continue  # the index array is loaded beside what it leads to
        elif step := sites.frequent(k):
            period = periods[f"c{k}"] = (site["high"] - site["low"]) // abs(step) + 1
            offset = f"{start if step > 0 else start - (period - 1) * step} + (c{k} + j) * {step}"
        else:
            offset = str(start)
        kind = f"uint{8 * min(size, 8)}_t"
        for word in range(max(size // 8, 1)):
            at_word = f"*({kind} *)(memory{r} + {offset} + {8 * word})"
            if not site["how"] & traces.WRITE:
                values[at_word] = f"v{k}_{word}"
                body.append(f"const {kind} v{k}_{word} = {at_word};")
                body.append(f"s += v{k}_{word};")
            else:
                # An update depends on the value that was there.
                body.append(f"{at_word} = ({kind})({values.get(at_word, 'j')} + 1);")
    return _FRAME.format(
        memory="\n".join(memory),
        setup="\n".join(setup),
        first="\n".join(first),
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


def _region(regions: list[tuple[int, int]], site: dict[str, Any]) -> int:
    return next(r for r, (low, end) in enumerate(regions) if low <= site["low"] < end)


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
{first}
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
