"""Measure one GPU: parity with the processor, the sanitizers' verdicts, bandwidths and launches.

One call does everything that the time allows, in this order, and writes records and logs::

    python3 bench/on_gpu.py --build --out on_gpu --results results.tar.gz

- ``build`` (with ``--build``): the extension in ``build/gpu``, for the cards of this machine.
  Without it, the modules beside the Python sources are used. All other steps need them.
- ``card``: a log of ``memkern info``, ``memkern doctor --quick`` and ``nvidia-smi -q``.
- ``parity``: tests/cuda on the card, against the references; then for every entry.
- ``sanitize``: compute-sanitizer's memcheck, racecheck and synccheck over one case of every kernel.
- ``bandwidths``: kernels, the driver's copy, empty launches and peers, in a new random order in
  each turn, compared within the same turns; verdicts on all targets, and a record of them.
- ``transfers``: between host and card in every direction, by every memory of the host.
- ``latency``: dependent loads over sizes and conflicts of the banks of shared memory; and, on the
  processor and on the card, dependent loads beside dependent atomic operations.
- ``blocks``: threads per block and unrolling of the main kernels, in all combinations.
- ``tune``: ``memkern tune`` of the same kernels, over their variants, unrolling and blocks.
- ``report``: a page of all records in the folder and of earlier calls (``--records``);
  then ``memkern report --quick`` of the card.

Peers are programs, or are built here from their source trees (``--babelstream``, ``--spatter``). A
step that fails is reported, and the next one follows. After each step all records, figures and logs
are packed into one archive. Without a GPU the script ends with one sentence and exit code 2. It
changes no setting of a card.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")

TREE = Path(__file__).parents[1]
STEPS = (
    "build", "card", "parity", "sanitize", "bandwidths", "transfers", "latency", "blocks", "tune",
    "report",
)  # fmt: skip
# Weights of the remaining time: the share of a step is its weight over the sum of its own and all
# later weights.
PARTS = {
    "card": 2, "parity": 8, "sanitize": 8, "bandwidths": 14, "transfers": 4, "latency": 7,
    "blocks": 4, "tune": 3,
}  # fmt: skip
# Share of the remaining time for the build, regardless of later steps.
BUILD = 0.5
# Seconds kept for the report.
REPORT_S = 75
# Programs are built here, outside the folder of results.
PROGRAMS = TREE / "build" / "on_gpu"
TOOLS = ("memcheck", "racecheck", "synccheck")
# Families with kernels that use shared memory, besides the variant `shared` of atomic operations.
SHARED = ("bs.", "loops.", "spatter.", "latency.banks")
BARE = """
#include <chrono>
#include <cstdio>
__global__ void empty() {}
double launch_s() {
  cudaDeviceSynchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int k = 0; k < 20; ++k) empty<<<1, 1>>>();
  cudaDeviceSynchronize();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(end - begin).count() / 20;
}
int main() {
  // As memkern's warm-up, so that the card has the clocks that it has under load.
  for (double spent_s = 0; spent_s < 0.2; spent_s += 20 * launch_s()) {}
  for (int turn = 0; turn < 200; ++turn) std::printf("%.9g\\n", launch_s());
}
"""
KERNELS = (
    "stream.copy", "stream.triad", "loops.load", "loops.sum", "bs.bs1", "bs.bs2", "bs.bs3",
    "bs.bs4", "bs.bs5",
)  # fmt: skip
SPATTER = ("gather", "scatter")
BABELSTREAM = {"Copy": "stream.copy", "Triad": "stream.triad", "Dot": "bs.bs4"}
PEERS = (*BABELSTREAM.values(), *(f"spatter.{kernel}" for kernel in SPATTER))
# Required shares of the faster of the driver's copy and our own read.
TARGETS = {
    "stream.copy": 0.92, "stream.triad": 0.92, "spatter.gather": 0.90, "spatter.scatter": 0.90,
    "bs.bs3": 0.90, "bs.bs4": 0.90,
}  # fmt: skip
# Accesses between two synchronisations of a chase, enough for a launch to be negligible.
ACCESSES = 2**14
UNROLLS = (0, 1, 2, 4, 8)
# Largest accepted ratio of an empty launch to a bare one.
LAUNCH = 1.10
# Least number of alternations for a verdict on peers.
ALTERNATIONS = 7


class Call:
    """State shared by the steps: options, folder of results, and the remaining time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out)
        self.end = time.monotonic() + 60 * options.minutes
        self.end_of_step = self.end

    def begin(self, step: str) -> None:
        """Give a step its share of the remaining time."""
        now, end = time.monotonic(), self.end
        if step == "build":
            end = now + BUILD * max(end - now, 0)
        if step in PARTS:
            steps = self.options.steps
            later = steps[steps.index(step) :] if step in steps else [step]
            left_s = max(end - now - (REPORT_S if "report" in later else 0), 0)
            end = now + left_s * PARTS[step] / sum(PARTS.get(name, 0) for name in later)
        self.end_of_step = end

    @property
    def left_s(self) -> float:
        """The remaining seconds of the step."""
        return self.end_of_step - time.monotonic()

    @functools.cached_property
    def unusable(self) -> str:
        """Why no step but the build can run; empty if they can."""
        try:
            # In a separate process, since a failed import would be cached.
            self.run([sys.executable, "-c", "import memkern._memkern_cuda"], "build.log")
        except RuntimeError as error:
            last = str(error).rpartition(" | ")[2]
            return f"memkern._memkern_cuda can't be imported, so that nothing can run: {last}"
        return ""

    def run(
        self, words: Iterable[object], log: str, longest_s: float = float("inf"), **more: Any
    ) -> str:
        """Run a program for at most the remaining time; return its output."""
        seconds = max(min(self.left_s, longest_s), 1)
        paths = [str(TREE / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        # The program writes into the log itself, so that the log is complete if it is stopped.
        with (self.out / log).open("ab") as file:
            begin = file.tell()
            process = subprocess.Popen(
                [str(word) for word in words],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                **more,
            )
            try:
                code = process.wait(seconds)
            except BaseException as error:
                # Compilers and workers of tests would continue without their parent.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                code = None
        with (self.out / log).open("rb") as file:
            file.seek(begin)
            text = file.read().decode(errors="replace")
        if code != 0:
            last = " | ".join(text.strip().splitlines()[-3:])
            ended = f"exit code {code}" if code is not None else f"stopped after {seconds:.0f} s"
            raise RuntimeError(f"{ended} ({log}): {last}")
        return text

    def nvcc(self, sources: Iterable[object], program: Path, *flags: object) -> Path:
        """Build a program for the card of this machine."""
        self.run(["nvcc", "-O3", "-arch=native", *flags, *sources, "-o", program], "peers.log")
        return program


def all_of(works: Iterable[Callable[[], str]]) -> str:
    """Run all parts of a step, also after a failure; return their results.

    Raises
    ------
    RuntimeError
        A part failed; the message also has the results of the other parts.
    """
    found, failed = [], False
    for work in works:
        try:
            found.append(work())
        except (RuntimeError, OSError, ValueError) as error:
            failed = True
            found.append(str(error).splitlines()[0])
    if failed:
        raise RuntimeError("; ".join(found))
    return "; ".join(found)


def without_energy() -> contextlib.AbstractContextManager[Any]:
    """Skip measuring energy, which takes more than a second per case; records have a note."""
    note = "energy is not measured: this call leaves it out to save time"
    return mock.patch("memkern.engine.sampling.metering.why_not", lambda prepared: note)


def coarse_first(values: Sequence[T]) -> list[Sequence[T]]:
    """Return every fourth value, the values halfway between these, and the others."""
    return [values[::4], values[2::4], values[1::2]]


def build(call: Call) -> str:
    """Build the extension and put it beside the Python sources."""
    if not call.options.build:
        return "not requested"
    folder = TREE / "build" / "gpu"
    archives = [f"-D{name}={path}" for name, path in call.options.archive]
    hooks = call.run([sys.executable, "-m", "pybind11", "--cmakedir"], "build.log").strip()
    call.run(
        ["cmake", "-G", "Ninja", "-S", TREE, "-B", folder, f"-Dpybind11_DIR={hooks}",
         f"-DPython_EXECUTABLE={sys.executable}", "-DMEMKERN_CUDA=ON", *archives],
        "build.log",
    )  # fmt: skip
    begin = time.monotonic()
    call.run(["cmake", "--build", folder, "--target", "_memkern", "_memkern_cuda"], "build.log")
    for module in folder.glob("_memkern*.so"):
        shutil.copy(module, TREE / "python" / "memkern")
    return f"{time.monotonic() - begin:.0f} s"


def card(call: Call) -> str:
    """Log the description and the state of card and machine; return the card's name."""
    from memkern.machine import gpu

    memkern = [sys.executable, "-m", "memkern"]
    commands = ([*memkern, "info"], [*memkern, "doctor", "--quick"], ["nvidia-smi", "-q"])
    all_of((lambda w=words: call.run(w, "card.log")) for words in commands)
    return str(gpu.facts(call.options.device)["name"])


def parity(call: Call) -> str:
    """Run the tests of the CUDA backend on the card, first for one entry of each kind."""
    workers = ["-n", "8"] if importlib.util.find_spec("xdist") else []
    words = [sys.executable, "-m", "pytest", "-q", "--maxfail=20", *workers, "tests/cuda"]

    def tests(*options: str) -> str:
        return call.run([*words, *options], "parity.log", cwd=TREE).strip().splitlines()[-1]

    return all_of((tests, lambda: tests("--release", "-m", "release")))


def sanitize(call: Call) -> str:
    """Run one case of every kernel under each of the sanitizer's tools."""
    options = call.options

    def verdict(tool: str) -> str:
        share_s = max(call.left_s, 1) / (len(TOOLS) - TOOLS.index(tool))
        # The program ends before its share does, so that the tool prints its verdict.
        words = [
            "compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, __file__,
            "--every-kernel", tool, "--device", options.device, "--seed", options.seed,
            "--minutes", 0.6 * share_s / 60,
        ]  # fmt: skip
        text = call.run(words, f"{tool}.log", share_s)
        # Racecheck's summary starts with its name.
        found = [re.findall(rf".*{part}.*", text) for part in (" SUMMARY: ", " kernels, ")]
        if not all(found):
            raise RuntimeError(f"{tool} printed no verdict ({tool}.log)")
        return f"{tool}: {', '.join(lines[-1].strip('= ') for lines in found)}"

    return all_of((lambda t=tool: verdict(t)) for tool in TOOLS)


def small_case(entry: tuple[Any, ...], device: str) -> Any:
    """Return a small case of an entry of the extension."""
    import memkern as mk
    from memkern.spec.options import Knobs

    kernel, variant, dtype, index, _, template = entry
    own: dict[str, Any] = {}
    if kernel.startswith("amo."):
        # Workers of several warps, each with several iterations, may race.
        own = dict(zip(("primitive", "order", "returns"), template.split("/"), strict=True))
        own |= {"dtype": dtype, "threads": 100, "iters": 8}
    elif kernel == "latency.chase":
        own = {"size_B": 2**13, "steps": 100, "chains": int(template)}
    elif kernel == "latency.banks":
        own = {"steps": 100, "dtype": dtype}
    elif kernel.startswith("transfers."):
        own = {"size_B": 2**13, "memory": template}
    if own:
        return mk.case(kernel, device=device, variant=variant, **own)
    sys.path[:0] = [str(TREE / "tests"), str(TREE / "tests" / "families")]
    from samples import SAMPLES

    sample = SAMPLES[kernel][0]
    knobs = Knobs(device=device, variant=variant, seed=sample.knobs.seed)
    return dataclasses.replace(sample, knobs=knobs).with_(dtype=dtype, index_dtype=index)


def in_order(entries: list[Any], tool: str, seed: int) -> list[Any]:
    """Return entries in the order in which a tool of the sanitizer runs them.

    One of each variant of a kernel comes first, then the others, in a different random order for
    each tool. Racecheck checks only accesses to shared memory: families that use it come first.
    """
    mixed = random.Random(f"{seed} {tool}").sample(entries, len(entries))
    first = {entry[:2]: entry for entry in reversed(mixed)}
    ordered = sorted(mixed, key=lambda entry: first[entry[:2]] is not entry)
    if tool == "racecheck":
        ordered.sort(key=lambda entry: not (entry[0].startswith(SHARED) or entry[1] == "shared"))
    return ordered


def run_every_kernel(options: argparse.Namespace) -> int:
    """Run and check one small case of every kernel, in random order; return how many are wrong."""
    from memkern.machine.gpu import _module

    # Kernels with their own unrolling; transfers between two cards need both.
    entries = [e for e in _module().entries() if not e[4] and e[0] != "transfers.between"]
    end = time.monotonic() + 60 * options.minutes
    done, wrong = 0, 0
    for entry in in_order(entries, options.every_kernel, options.seed):
        if time.monotonic() >= end:
            break
        name = " ".join(map(str, filter(None, entry)))
        try:
            found = small_case(entry, options.device).prepare().check()
            said = "right" if found.valid else "WRONG"
        except ValueError as error:
            said = str(error)  # some operations have no such variant
        wrong += said == "WRONG"
        done += 1
        print(f"{done} of {len(entries)}: {name}: {said}", flush=True)
    print(f"{done} of {len(entries)} kernels, {wrong} wrong results")
    return wrong


def bare_launch_s(text: str) -> float:
    """Return the median seconds of a bare empty launch."""
    return statistics.median(float(line) for line in text.split())


def babelstream_GBps(text: str) -> dict[str, float]:
    """Return the bandwidths that BabelStream prints, of its shortest times, by memkern's names."""
    rows = (line.split() for line in text.splitlines())
    return {
        BABELSTREAM[row[0]]: float(row[1]) / 1e3
        for row in rows
        if len(row) > 1 and row[0] in BABELSTREAM
    }


def spatter_GBps(text: str) -> float:
    """Return the bandwidth that Spatter prints, of its shortest time."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s", line)]
    if not rows:
        raise ValueError("Spatter printed no bandwidth")
    return float(rows[-1][-1]) / 1e3


def _babelstream(call: Call) -> Path:
    given = call.options.babelstream
    if given.is_file():
        return given
    source = given / "src"
    flags = ["-std=c++17", "-DCUDA", "-DDEFAULT", "-I", source, "-I", source / "cuda"]
    files = [source / "main.cpp", source / "cuda" / "CUDAStream.cu"]
    return call.nvcc(files, PROGRAMS / "cuda-stream", *flags, "-x", "cu")


def _spatter(call: Call) -> Path:
    given = call.options.spatter
    if given.is_file():
        return given
    folder = PROGRAMS / "spatter"
    own = [f"-D{name}={value}" for name, value in call.options.spatter_option]
    cards = "-DCMAKE_CUDA_ARCHITECTURES=native"
    options = ["-DUSE_CUDA=ON", "-DCMAKE_BUILD_TYPE=Release", cards, *own]
    call.run(["cmake", "-S", given, "-B", folder, *options], "peers.log")
    call.run(["cmake", "--build", folder, "-j"], "peers.log")
    return folder / "spatter"


def _peers(call: Call, footprint_B: float, count: int) -> dict[str, Callable[[], dict[str, float]]]:
    """Build the peers; return functions that run each once, without peers that fail to build."""
    options = call.options
    runs: dict[str, Callable[[], dict[str, float]]] = {}

    def bare() -> None:
        source = PROGRAMS / "bare.cu"
        source.write_text(BARE)
        program = call.nvcc([source], PROGRAMS / "bare")
        runs["a bare launch"] = lambda: {"launch": bare_launch_s(call.run([program], "peers.log"))}

    def babelstream() -> None:
        # Its arrays are multiples of its blocks of 1024 elements.
        elements = max(int(footprint_B / 8 / 3) // 1024, 1) * 1024
        words = [_babelstream(call), "-s", elements, "-n", "50"]
        runs["BabelStream"] = lambda: babelstream_GBps(call.run(words, "peers.log"))

    def spatter() -> None:
        program = _spatter(call)
        for k in SPATTER:
            words = [program, "-bcuda", "-pUNIFORM:256:1", "-d256", f"-l{count}", f"-k{k}", "-r20"]
            runs[f"Spatter's {k}"] = lambda k=k, words=words: {
                f"spatter.{k}": spatter_GBps(call.run(words, "peers.log"))
            }

    PROGRAMS.mkdir(parents=True, exist_ok=True)
    builds = [bare, *[babelstream] * bool(options.babelstream), *[spatter] * bool(options.spatter)]
    for build_one in builds:
        try:
            build_one()
        except (RuntimeError, OSError) as error:
            print(f"{build_one.__name__} is left out: {error}")
    return runs


@dataclasses.dataclass
class Turn:
    """Measurements of one turn, by name.

    Shares of the ceiling are of medians, since the driver's copy is a median. Peers print the
    bandwidth of their shortest time, so ours compared with theirs is also of the shortest time.
    """

    medians: dict[str, float] = dataclasses.field(default_factory=dict)
    fastest: dict[str, float] = dataclasses.field(default_factory=dict)
    peers: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def ceiling(self) -> float:
        """The larger of the driver's copy and our own loads."""
        return max(self.medians["driver"], self.medians["loops.load"])


def verdicts(turns: list[Turn]) -> list[dict[str, Any]]:
    """Return a row for every target: the value found, the target, and whether it is met."""
    from peers import judge
    from records import interval

    from memkern.statistics import Ratio, geometric_mean, ratio_interval

    def of_pairs(
        ours: Callable[[Turn], float], theirs: Callable[[Turn], float]
    ) -> tuple[Ratio | None, int]:
        pairs = []
        for turn in turns:
            # One of them may have failed in this turn.
            with contextlib.suppress(KeyError):
                pairs.append((ours(turn), theirs(turn)))
        found = ratio_interval(*zip(*pairs, strict=True), paired=True) if pairs else None
        return found, len(pairs)

    rows: list[dict[str, Any]] = []

    def add(name: str, found: Ratio | None, wanted: str, met: bool | None) -> None:
        verdict = "not judged" if found is None or met is None else "met" if met else "NOT MET"
        row = {"target": name} | (interval("found", found) if found else {"found": None})
        rows.append(row | {"wanted": wanted, "verdict": verdict})

    for name, least in TARGETS.items():
        found, _ = of_pairs(lambda turn, n=name: turn.medians[n], lambda turn: turn.ceiling)
        add(name, found, f">= {least} of the ceiling", found and found.ratio >= least)
    found, _ = of_pairs(lambda turn: turn.medians["launch"], lambda turn: turn.peers["launch"])
    add("launch", found, f"<= {LAUNCH} of a bare one", found and found.ratio <= LAUNCH)
    ratios: dict[str, Ratio] = {}
    for name in PEERS:
        found, number = of_pairs(
            lambda turn, n=name: turn.fastest[n], lambda turn, n=name: turn.peers[n]
        )
        if found:
            add(f"{name} / peer", found, f"{number} alternations", None)
        if found and number >= ALTERNATIONS:
            ratios[name] = found
    row = {"target": f"{len(ratios)} of {len(PEERS)} / peers, geometric mean", "found": None}
    row |= {"wanted": f">= 1, {ALTERNATIONS} alternations", "verdict": "not judged"}
    if ratios:
        row["found"] = geometric_mean([ratio.ratio for ratio in ratios.values()])
        row["verdict"] = "met" if judge(ratios) else "NOT MET"
    return [*rows, row]


def shape_of(footprint_B: float) -> dict[str, Any]:
    """Return the options of gather and scatter at stride 1 over arrays of this size."""
    count = max(int(footprint_B / 8 / 256), 1)
    return {"pattern": "UNIFORM:256:1", "delta": 256, "count": count, "index_dtype": "int32"}


def bandwidths(call: Call) -> str:
    """Measure everything in turns of different order; store records and print verdicts."""
    from records import table, write

    import memkern as mk
    from memkern.engine.recording.taken import to_result_set
    from memkern.machine import gpu

    options, device = call.options, call.options.device
    how = {"device": device, "timer": options.timer, "runs": 20}
    footprint_B = options.gigabytes * 1e9
    cases = {name: mk.case(name, footprint_B=footprint_B, **how) for name in KERNELS}
    shape = shape_of(footprint_B)
    cases |= {f"spatter.{k}": mk.case(f"spatter.{k}", **shape, **how) for k in SPATTER}
    # The same number of launches between two synchronisations as in the bare program.
    cases["launch"] = mk.case("bs.bs0", device=device, runs=200, invocations=20)
    done: list[mk.Measurement] = []
    turns: list[Turn] = []
    failed: list[str] = []

    def own(name: str) -> None:
        with contextlib.nullcontext() if len(turns) == 1 else without_energy():
            found = cases[name].measure()
        done.append(found)
        if not found.valid:
            raise RuntimeError("the result is wrong")
        column = "time_median_s" if name == "launch" else "bandwidth_median_GBps"
        turns[-1].medians[name] = found.record[column]
        if name != "launch":
            turns[-1].fastest[name] = found.record["bandwidth_GBps"]

    def driver() -> None:
        gpu.copy_GBps.cache_clear()
        # A copy of as many bytes as the kernels' arrays have.
        turns[-1].medians["driver"] = gpu.copy_GBps(device, int(footprint_B / 2))

    work: dict[str, Callable[[], object]] = {
        **{name: lambda n=name: own(n) for name in cases},
        "driver": driver,
        **{
            name: lambda run=run: turns[-1].peers.update(run())
            for name, run in _peers(call, footprint_B, shape["count"]).items()
        },
    }
    order, took_s = random.Random(options.seed), 0.0
    while len(turns) < options.turns and (not turns or call.left_s > 1.5 * took_s):
        begin = time.monotonic()
        turns.append(Turn())
        for name in order.sample(sorted(work), len(work)):
            try:
                work[name]()
            except Exception as error:  # The others are still measured.
                failed.append(f"{name}: {error}")
                print(f"{failed[-1]}; it is left out from now on", flush=True)
                del work[name]
        to_result_set(done).save(str(call.out / "bandwidths.json"))
        took_s = time.monotonic() - begin
    judged = verdicts(turns)
    options.output.parent.mkdir(exist_ok=True)
    write(options, judged)
    text = "\n".join([f"{gpu.facts(device)['name']}, {len(turns)} turns", *table(judged)])
    print(text)
    (call.out / "verdicts.txt").write_text(text + "\n")
    if failed:
        raise RuntimeError(f"{len(turns)} turns, of which {'; '.join(failed)}")
    return f"{len(turns)} turns, {text.count('NOT MET')} targets not met"


def measured(call: Call, name: str, rounds: list[list[Any]], share: float = 1.0) -> Any:
    """Measure cases for a share of the time left; store and return records.

    Each round is in random order; without time left, cases of the last rounds are left out.
    """
    from memkern.engine.recording.taken import to_result_set

    end = time.monotonic() + share * call.left_s
    order = random.Random(call.options.seed)
    cases = [case for some in rounds for case in order.sample(some, len(some))]
    done = []
    try:
        with without_energy():
            for case in cases:
                if time.monotonic() >= end:
                    left = len(cases) - len(done)
                    print(f"{name}: {left} of {len(cases)} cases left out, no time left")
                    break
                done.append(case.measure())
    finally:
        results = to_result_set(done)
        if done:
            results.save(str(call.out / f"{name}.json"))
    if wrong := [record["kernel"] for record in results if not record["valid"]]:
        raise RuntimeError(f"failed validation: {', '.join(sorted(set(wrong)))}")
    return results


def drawn(call: Call, name: str, results: Any) -> str:
    """Draw a figure of records as a PDF file."""
    from memkern.plots import figures, save

    path = call.out / f"{name}.pdf"
    save(figures[name](results), path)
    return path.name


def transfers(call: Call) -> str:
    """Measure transfers in all directions, by every memory of the host; fit T0 and Wmax."""
    import memkern as mk
    from memkern.families.transfers.kernels import MEMORIES, VARIANTS, WAYS
    from memkern.machine import gpu
    from memkern.plots import tables

    how = {"device": call.options.device, "runs": 10, "placements": 1}
    ways = [(way, {"memory": memory}) for way in WAYS if way != "between" for memory in MEMORIES]
    if len(gpu.devices()) > 1:
        ways.append(("between", {}))
    rounds = [
        [
            mk.transfers(way, size_B=size_B, variant=variant, **own, **how)
            for way, own in ways
            for variant in VARIANTS[own.get("memory", "device")]
            for size_B in sizes
        ]
        for sizes in coarse_first([8 * 4**k for k in range(13)])
    ]
    results = measured(call, "transfers", rounds)
    print(tables["transfers-fit"](results).to_string(index=False))
    return drawn(call, "transfers", results)


def latency(call: Call) -> str:
    """Measure chases over sizes through all caches and through L2, and bank conflicts."""
    import memkern as mk
    from memkern.families.latency.kernels import MOST_GPU_L1_B, octaves
    from memkern.machine import gpu
    from memkern.plots import tables

    how = {"device": call.options.device, "runs": 10, "placements": 1, "invocations": 1}
    largest_B = 4 * int(gpu.facts(call.options.device)["l2_B"])
    chases = [
        [
            mk.latency(
                size,
                steps=None if size <= MOST_GPU_L1_B else ACCESSES,
                variant=variant,
                **how,
            )
            for size in sizes
            for variant in ("simt", "l2")
        ]
        for sizes in coarse_first(octaves(2**12, largest_B, 2))
    ]
    powers = [2**k for k in range(6)]
    banks = [
        [
            mk.case("latency.banks", stride=stride, block_threads=threads, **how)
            for stride in strides
            for threads in (32, 1024)
        ]
        for strides in (powers, [stride for stride in range(1, 33) if stride not in powers])
    ]
    chased = measured(call, "latency", chases, 0.4)
    conflicts = measured(call, "banks", banks, 0.4)
    measured(call, "devices", beside_processor(call, largest_B))
    print(tables["latency-banks"](conflicts).to_string(index=False))
    figures = {"latency-sizes": chased, "latency-banks": conflicts}
    figures["latency-devices"] = mk.merge(
        call.out / f"{name}.json" for name in ("latency", "devices")
    )
    return all_of(
        (lambda n=name, r=results: drawn(call, n, r)) for name, results in figures.items()
    )


def beside_processor(call: Call, largest_B: int) -> list[list[Any]]:
    """Return chases of the processor, and of atomic operations on both, to draw with the GPU's.

    The atomic operations access one word of every line of 128 B, all words equally often, and often
    enough in small buffers that a launch is negligible.
    """
    import numpy as np

    import memkern as mk
    from memkern.families.amo.index import cycle
    from memkern.families.latency.kernels import octaves

    how = {"runs": 3, "placements": 1}

    def atomics(size_B: int) -> list[Any]:
        lines = size_B // 128
        chain = np.arange(16 * lines)
        chain[::16] = 16 * cycle(lines, call.options.seed)
        # There must be more indices than iterations.
        iters = min(max(ACCESSES // lines, 1), 15) * lines
        places = (
            {"device": "cpu", "repetition": "free"},
            {"device": call.options.device, "invocations": max(ACCESSES // iters, 1)},
        )
        return [
            mk.amo(
                "ptrchase", primitive=primitive, indices=chain, iters=iters, threads=1, **place,
                **how,
            )
            for primitive in ("add", "cas")
            for place in places
        ]  # fmt: skip

    # A chase of atomic operations has to go through all lines, which takes long in large buffers.
    rounds = (octaves(2**12, largest, 1) for largest in (largest_B, largest_B // 2))
    return [
        [
            *(mk.latency(size, **how) for size in loads),
            *(case for size in words for case in atomics(size)),
        ]
        for loads, words in zip(*map(coarse_first, rounds), strict=True)
    ]


def blocks(call: Call) -> str:
    """Measure the main kernels with every number of threads per block and every unrolling."""
    import memkern as mk
    from memkern.plots import tables

    footprint_B = call.options.gigabytes * 1e9
    shape = shape_of(footprint_B)
    how = {"device": call.options.device, "runs": 10, "placements": 1}
    cases = [
        *(mk.case(f"loops.{k}", footprint_B=footprint_B, **how) for k in ("triad", "dot")),
        *(mk.case(f"spatter.{k}", **shape, **how) for k in SPATTER),
    ]
    every = [(threads, unroll) for threads in (64, 128, 256, 512, 1024) for unroll in UNROLLS]
    # First each option with the default of the other one.
    one = [(threads, unroll) for threads, unroll in every if threads == 256 or unroll == 0]
    rounds = [
        [case.with_(block_threads=t, unroll=u) for case in cases for t, u in some]
        for some in (one, [both for both in every if both not in one])
    ]
    results = measured(call, "blocks", rounds)
    table = tables["gpu-blocks"](results)
    best = table[table["of_best"] == 1.0]
    print(best.to_string(index=False))
    return drawn(call, "gpu-blocks", results)


def tune(call: Call) -> str:
    """Search the fastest options of the main kernels with ``memkern tune``."""
    from memkern.cli import main as memkern

    footprint_B = call.options.gigabytes * 1e9
    size = f"--set=footprint_B={footprint_B}"
    shape = [f"--{name.replace('_', '-')}={value}" for name, value in shape_of(footprint_B).items()]
    searches = {
        "loops.triad": [size],
        "loops.dot": [size, "--blocks=0,128,256,512,1024"],
        **{f"spatter.{kernel}": shape for kernel in SPATTER},
    }
    for number, (kernel, words) in enumerate(searches.items()):
        # The first trial and the last measurement are not part of the budget.
        budget_s = 0.6 * max(call.left_s, 1) / (len(searches) - number)
        path = call.out / f"tune-{kernel}.json"
        how = [f"--device={call.options.device}", f"--budget={budget_s:.3g}", f"--output={path}"]
        command = ["tune", f"--kernel={kernel}", *words, *how, "--force"]
        log = (call.out / "tune.log").open("a")
        with log, contextlib.redirect_stdout(log), without_energy():
            print(f"memkern {shlex.join(command)}", flush=True)
            code = memkern(command)
        if code != 0:
            raise RuntimeError(f"exit code {code} of {kernel} (tune.log)")
    best = re.findall("best: (.*)", (call.out / "tune.log").read_text())[-len(searches) :]
    return "; ".join(map(": ".join, zip(searches, best, strict=True)))


def report(call: Call) -> str:
    """Write a report of all records in the folder and of earlier calls, and a quick one."""
    return all_of((lambda: report_of_records(call), lambda: quick_report(call)))


def report_of_records(call: Call) -> str:
    """Write a report of all records in the folder and of earlier calls."""
    import memkern as mk
    from memkern.host.environment import machine_environment
    from memkern.machine import gpu
    from memkern.report import write

    folders = [call.out, *call.options.records]
    paths = [path for folder in folders for path in sorted(folder.glob("*.json"))]
    if not paths:
        return "no records"
    results = mk.merge(paths)
    page = call.out / "report.html"
    title = f"Data movement on {gpu.facts(call.options.device)['name']}"
    write(results, page, title=title, environment=machine_environment())
    return f"{page.name}, {page.stat().st_size} bytes"


def quick_report(call: Call) -> str:
    """Run ``memkern report --quick`` for the card."""
    page = call.out / "quick.html"
    words = ["report", "--quick", "--device", call.options.device, "-o", page, "--force"]
    call.run([sys.executable, "-m", "memkern", *words], "quick.log")
    return f"{page.name}, {page.stat().st_size} bytes"


def pack(call: Call) -> None:
    """Write all records, figures and logs into one archive, in place of the earlier one."""
    part = call.options.results.with_name(call.options.results.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(part, "w:gz") as archive:
        archive.add(call.out, call.out.name)
    part.replace(call.options.results)


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    import records

    parser = records.options(__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", default="on_gpu", metavar="FOLDER", help="of records and logs")
    parser.add_argument(
        "--results", type=Path, metavar="FILE",
        help="archive of all that the call wrote (default: the folder's name with .tar.gz)",
    )  # fmt: skip
    parser.add_argument(
        "--records", type=Path, action="append", default=[], metavar="FOLDER",
        help="records of an earlier call, for the report",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything together")
    parser.add_argument("--steps", default=",".join(STEPS), help=f"some of {','.join(STEPS)}")
    parser.add_argument("--build", action="store_true", help="build the extension first")
    parser.add_argument(
        "--archive", nargs=2, action="append", default=[], metavar=("OPTION", "PATH"),
        help="source archive for the build, such as MEMKERN_HWLOC_ARCHIVE hwloc.tar.bz2",
    )  # fmt: skip
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of all arrays together")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0, help="of the order in each turn")
    parser.add_argument("--timer", default="host", choices=("host", "events", "graph"))
    for peer in ("--babelstream", "--spatter"):
        parser.add_argument(peer, type=Path, metavar="PATH", help="source tree or program")
    parser.add_argument(
        "--spatter-option", nargs=2, action="append", default=[], metavar=("OPTION", "VALUE"),
        help="option for CMake of Spatter's build, such as a folder in place of a download",
    )  # fmt: skip
    parser.add_argument(
        "--every-kernel", choices=TOOLS, metavar="TOOL",
        help="run each kernel once, in the order for a tool of the sanitizer, and end",
    )  # fmt: skip
    options = records.parsed(parser, words)
    options.steps = options.steps.split(",")
    if unknown := [step for step in options.steps if step not in STEPS]:
        parser.error(f"--steps {unknown[0]!r} is not one of {', '.join(STEPS)}")
    if options.output is None:
        # Below the folder, so that it is packed but not taken for a file of results.
        options.output = Path(options.out) / "record" / "on_gpu.json"
    if options.results is None:
        options.results = Path(f"{os.path.normpath(options.out)}.tar.gz")
    # A missing folder does not end the call.
    for folder in options.records:
        if not folder.is_dir():
            print(f"there is no folder {folder}: its records are left out", file=sys.stderr)
    for peer in ("babelstream", "spatter"):
        # A name without a folder would be searched on PATH.
        if path := getattr(options, peer):
            setattr(options, peer, path.resolve())
    return options


def has_card() -> str:
    """Return the reason why there is no usable GPU; empty if there is one."""
    if shutil.which("nvidia-smi") is None:
        return "there is no GPU here: nvidia-smi is missing"
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "" if done.stdout.startswith("GPU") else f"there is no GPU here: {done.stdout.strip()}"


def main() -> int:
    """Run the steps, each within the remaining time, and print their results."""
    sys.path.insert(0, str(TREE / "python"))
    options = parsed()
    if missing := has_card():
        print(missing, file=sys.stderr)
        return 2
    if options.every_kernel:
        return 1 if run_every_kernel(options) else 0
    call = Call(options)
    call.out.mkdir(parents=True, exist_ok=True)
    # After SIGTERM, the records of the running step are still packed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed = 0
    known: dict[str, Callable[[Call], str]] = {
        "build": build, "card": card, "parity": parity, "sanitize": sanitize,
        "bandwidths": bandwidths, "transfers": transfers, "latency": latency, "blocks": blocks,
        "tune": tune, "report": report,
    }  # fmt: skip
    for name in options.steps:
        begin, found = time.monotonic(), "FAILED: interrupted"
        call.begin(name)
        unusable = name != "build" and call.unusable
        try:
            if unusable:
                raise RuntimeError(unusable)
            found = known[name](call) if call.left_s > 5 else "no time was left"
        except Exception as error:  # The other steps still run.
            failed += 1
            found = f"FAILED: {error}"
        finally:
            line = f"{name:<11} {time.monotonic() - begin:6.1f} s  {found}"
            print(line, flush=True)
            with (call.out / "summary.txt").open("a") as summary:
                print(line, file=summary)
            pack(call)
        if unusable:
            break
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
