"""The time of a program's loop beside the time of its accesses alone.

The program is built without tracing, with a clock around the functions that have patterns. The
accesses of a call are replayed by a second program that is compiled for them: regular ones at their
distance, indirect ones through an index array in the recorded order, all in memory of the same
size. Both run in turns, each time as new processes with other pages. Arrays get these in the order
in which the program accessed them first: with another order a product of a sparse matrix took 1.5
times as long on a Zen 3, a loop over an unstructured mesh 1.3 times.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memkern import small
from memkern.errors import InputError
from memkern.inputs import traces
from memkern.progress import announce
from memkern.results.verdicts import yuen
from memkern.studies.extraction import FEW, NONE, Extracted, Sites, plain
from memkern.studies.tracing import compiled, copied, hooked, named

_FLAGS = {
    "gcc": "-g -finstrument-functions",
    "clang": "-g -finstrument-functions-after-inlining",
}
_OPTIMISED = ("-std=gnu11", "-O2", "-fno-tree-vectorize")
_FEWEST, _MOST, _MOST_S = 3, 100, 15.0  # turns, and their time
_BUSY = 0.05  # least part of the busiest thread's accesses of a thread that takes part


class Checked(NamedTuple):
    """A function of a program, or a part that it marks.

    Attributes
    ----------
    calls : int
    loop_s : float
        Mean time of a call after the first one, without tracing: the median of all turns.
    replay_s : float
        The same of the accesses of a call alone.
    threads : int
        That made the accesses.
    ratio, ratio_low, ratio_high : float
        Time of the accesses over that of the loop, by pairs of turns, and its 99 % interval.
    turns : int
    """

    calls: int
    loop_s: float
    replay_s: float
    threads: int
    ratio: float
    ratio_low: float
    ratio_high: float
    turns: int

    @property
    def interval(self) -> tuple[float, float, float]:
        """Ratio, and the ends of its interval."""
        return self.ratio, self.ratio_low, self.ratio_high


def check(found: Extracted) -> dict[str, Checked]:
    """Compare functions with patterns of a traced program with their accesses alone.

    Parameters
    ----------
    found : Extracted
        Of its trace, or those of its ranks, the first of which counts. The program is built again
        in a copy of the current folder, as it was for the trace.

    Raises
    ------
    InputError
        The trace has no command, or the program can't be built or run.
    """
    sites = found.sites[0]
    about = sites.about
    if "command" not in about:
        raise InputError(
            f"{sites.path} has no command, which a finished run of `memkern trace` writes"
        )
    # Parts that the program marks by a source line are timed instead of its function.
    wanted = {name for one in found.patterns for name in one.names}
    files = sorted({Path(one.place.rpartition(":")[0]).name for one in found.patterns})
    # The clock is not read in other functions, which may be small; a name excludes all with it.
    others = [n for n in about["functions"] if not any(n in one for one in wanted)]
    excluded = f" -finstrument-functions-exclude-function-list={','.join(others)}" if others else ""
    flags = {**_FLAGS, "gcc": _FLAGS["gcc"] + excluded}
    turns: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    with copied(None) as copy, hooked(copy, "timed", flags, files) as environment:
        if about["build"]:
            _run({"args": about["build"], "shell": True}, copy, environment)
        replays: dict[str, tuple[Path, int]] = {}
        announce("comparing loops with their accesses in turns", _MOST_S)
        began = time.perf_counter()
        for turn in range(small.cut(_MOST, _FEWEST)):
            if turn >= _FEWEST and time.perf_counter() - began > _MOST_S:
                break
            told = _times(about["command"], copy, environment)
            times = {name: row for name, row in told.items() if name in wanted}
            replays = replays or _replays(sites, times, copy / ".memkern")
            for name in times.keys() & replays.keys():
                replay_s = float(_run({"args": [str(replays[name][0])]}, copy, environment))
                turns[name].append((*times[name], replay_s))
    return {name: _checked(of, replays[name][1]) for name, of in sorted(turns.items())}


def _checked(turns: Sequence[tuple[int, float, float]], threads: int) -> Checked:
    calls, loop_s, replay_s = np.array(turns).T
    found = yuen(np.log(loop_s), np.log(replay_s))
    ratio, low, high = (math.exp(found.effect + by * found.half_width) for by in (0, -1, 1))
    medians = float(np.median(loop_s)), float(np.median(replay_s))
    return Checked(int(calls[0]), *medians, threads, ratio, low, high, len(turns))


def _run(words: dict[str, Any], copy: Path, environment: dict[str, str]) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(
        **words, cwd=copy, env=environment, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        told = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"`{words['args']}` failed without tracing: {told}")
    return str(done.stdout)


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
                calls, total, first = map(int, numbers)
                # Without the first call, which gets its pages, as the replay's.
                loop = (total - first) / (calls - 1) if calls > 1 else total
                if calls * loop > math.prod(found.get(name, (0, 0.0))) * 1e9:
                    found[name] = calls, loop / 1e9
        return found


def _replays(
    sites: Sites, times: Mapping[str, tuple[int, float]], folder: Path
) -> dict[str, tuple[Path, int]]:
    """Return programs that replay the calls of each function, and the most threads of one.

    Instructions that are executed equally often are one loop, by as many threads as execute it.
    """
    loops: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for k, site in enumerate(sites.sites):
        place, function = sites.place(k)
        name = place if place in times else plain(function)
        if name in times and site["count"] >= FEW:
            loops[name][site["count"]].append(k)
    programs = {}
    for number, (name, groups) in enumerate(loops.items()):
        # What is left of a function with marks may have no pattern.
        if any(sites.indirect(k) for group in groups.values() for k in group):
            own = folder / f"replay{number}"
            own.mkdir()
            parts = [(group, _threads(sites, group)) for group in groups.values()]
            text = _source(sites, parts, times[name][0], own)
            (own / "replay.c").write_text(text, encoding="utf-8")
            threads = max(number for _, number in parts)
            words = [*_OPTIMISED, *["-fopenmp"] * (threads > 1), "-o", str(own / "replay")]
            compiled([*words, str(own / "replay.c")])
            programs[name] = own / "replay", threads
    return programs


def _threads(sites: Sites, group: list[int]) -> int:
    """Return how many threads take part in a loop."""
    accesses = np.zeros(sites.trace.threads)
    for k in group:
        accesses[: len(sites.sites[k]["threads"])] += sites.sites[k]["threads"]
    return int(np.sum(accesses >= _BUSY * accesses.max()))


def _source(sites: Sites, parts: list[tuple[list[int], int]], calls: int, folder: Path) -> str:
    """Return a program in C that makes the accesses of loops, and write its indices.

    A loop has its instructions and its number of threads.
    """
    every = [k for group, _ in parts for k in group]
    regions = _regions(sites, every)
    written = {
        _region(regions, sites.sites[k]) for k in every if sites.sites[k]["how"] & traces.WRITE
    }
    called = []
    for number, (group, threads) in enumerate(parts):
        n = round(sites.sites[group[0]]["count"] * sites.whole / calls)
        share = "n * omp_get_thread_num() / {0}, n * (omp_get_thread_num() + 1) / {0}"
        called += [
            f"    n = {max(n, threads)};",
            f"    #pragma omp parallel num_threads({threads}) reduction(+ : s)" * (threads > 1),
            f"    s += loop{number}({share.format(threads) if threads > 1 else '0, n'});",
        ]
    return _FRAME.format(
        # Threads write to memory of their own, as they do in programs without races.
        memory="\n".join(
            f"static {'__thread ' * (r in written)}unsigned char *memory{r};"
            for r in range(len(regions))
        ),
        reserved="\n".join(
            f"  if (!memory{r}) memory{r} = reserved({end - low}, {_touched(sites, low, end)});"
            for r, (low, end) in enumerate(regions)
        ),
        most=len(regions) + len(every),
        loops="\n".join(
            _loop(sites, group, regions, str(number), folder)
            for number, (group, _) in enumerate(parts)
        ),
        prepared="\n".join(f"  reserve{number}();" for number in range(len(parts))),
        filled="\n".join(f"  fill{number}();" for number in range(len(parts))),
        calls=calls,
        called="\n".join(called),
    )


def _loop(
    sites: Sites,
    group: list[int],
    regions: list[tuple[int, int]],
    name: str,
    folder: Path,
) -> str:
    """Return a function in C that makes the accesses of instructions, and write its indices."""
    memory: list[str] = []
    reserved: list[str] = []
    filled: list[str] = []
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
                holder = site if near == NONE else sites.sites[near]
                touched = _touched(sites, holder["low"], holder["high"])
                reserved.append(f"  index{k} = reserved({stored.nbytes}, {touched});")
                filled.append(f'  read_file(index{k}, "{file}", {stored.nbytes});')
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
    return _LOOP.format(
        name=name,
        memory="\n".join(memory),
        reserved="\n".join(reserved),
        filled="\n".join(filled),
        begin="\n".join(f"  int64_t {c} = begin % {p};" for c, p in periods.items()),
        least="\n".join(f"    if ({p} - {c} < m) m = {p} - {c};" for c, p in periods.items()),
        body="\n".join(f"      {line}" for line in body),
        end="\n".join(f"    if (({c} += m) == {p}) {c} = 0;" for c, p in periods.items()),
    )


def _touched(sites: Sites, low: int, high: int) -> str:
    """Return when the program begins and ends to access a range of memory for the first time."""
    first = next(s for s in sites.sites if s["low"] <= high and s["high"] >= low)
    return f"{first['begin']}, {first['end']}"


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
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

// Memory of a thread, whose pages are touched from `begin` to `end`; `next` is one of them.
static __thread struct {{
  volatile unsigned char *at;
  int64_t pages, next;
  double begin, end;
}} all[{most}];
static __thread int count, started;
static void *reserved(int64_t bytes, double begin, double end) {{
  all[count].at = malloc((size_t)bytes);
  all[count].pages = (bytes + 4095) / 4096;
  all[count].begin = begin;
  all[count].end = end;
  return (void *)all[count++].at;
}}
static void touch(void) {{
  for (;;) {{
    double soonest = 0;
    int first = -1;
    for (int r = 0; r < count; ++r) {{
      const double part = (double)all[r].next / (double)all[r].pages;
      const double at = all[r].begin + part * (all[r].end - all[r].begin);
      if (part < 1 && (first < 0 || at < soonest)) first = r, soonest = at;
    }}
    if (first < 0) return;
    all[first].at[all[first].next++ * 4096] = 0;
  }}
}}
static void read_file(void *to, const char *path, int64_t bytes) {{
  FILE *file = fopen(path, "rb");
  if (!file || fread(to, 1, (size_t)bytes, file) != (size_t)bytes) abort();
  fclose(file);
}}
static double now(void) {{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}}

{memory}
static void start(void) {{
{reserved}
  touch();
  started = 1;
}}
{loops}

int main(void) {{
{prepared}
  start();
{filled}
  uint64_t s = 0;
  double first = 0, all = 0;
  for (int64_t call = 0, n; call < {calls}; ++call) {{
    const double begin = now();
{called}
    const double took = now() - begin;
    if (call == 0) first = took;
    all += took;
  }}
  // The mean without the first call, which gets its pages.
  printf("%.9e\\n", {calls} > 1 ? (all - first) / ({calls} - 1) : first);
  return s == 1;
}}
"""
_LOOP = """
{memory}
static void reserve{name}(void) {{
{reserved}
}}
static void fill{name}(void) {{
{filled}
}}
static uint64_t loop{name}(int64_t begin, int64_t end) {{
  uint64_t s = 0;
  if (!started) start();
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
  return s;
}}
"""
