"""Measure one GPU: parity with the processor, the sanitizers' verdicts, bandwidths and launches.

One call does everything that the time allows, in this order, and writes records and logs::

    python3 tests/bench/on_gpu.py --build --out results

- ``build`` (with ``--build``): the extension in ``build/gpu``, for the cards of this machine.
- ``parity``: tests/test_cuda.py on the card, against the references.
- ``sanitize``: compute-sanitizer's memcheck, racecheck and synccheck over one case of every kernel.
- ``bandwidths``: kernels, the driver's copy, empty launches and peers, in another random order in
  each turn, compared by medians of the same turns.
- ``transfers``: between host and card in every direction, by every memory of the host.
- ``latency``: dependent loads over sizes, and conflicts of the banks of shared memory.
- ``blocks``: threads per block and unrolling of the main kernels, in all combinations.
- ``report``: a page of all records in the folder, also of earlier calls.

Peers are programs, or are built here from their source trees (``--babelstream``, ``--spatter``). A
step that fails is reported, and the next one follows. Without a GPU the script ends with one
sentence and exit code 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TREE = Path(__file__).parents[2]
STEPS = (
    "build", "parity", "sanitize", "bandwidths", "transfers", "latency", "blocks", "report",
)  # fmt: skip
# Most seconds of a step that would otherwise take all that is left.
LONGEST_S = {"sanitize": 240, "bandwidths": 240}
TOOLS = ("memcheck", "racecheck", "synccheck")
BARE = """
#include <chrono>
#include <cstdio>
__global__ void empty() {}
int main() {
  for (int turn = 0; turn < 200; ++turn) {
    cudaDeviceSynchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < 20; ++k) empty<<<1, 1>>>();
    cudaDeviceSynchronize();
    const auto end = std::chrono::steady_clock::now();
    std::printf("%.9g\\n", std::chrono::duration<double>(end - begin).count() / 20);
  }
}
"""
KERNELS = (
    "stream.copy", "stream.triad", "loops.load", "loops.sum", "bs.bs1", "bs.bs2", "bs.bs3",
    "bs.bs4", "bs.bs5",
)  # fmt: skip
SPATTER = ("gather", "scatter")
BABELSTREAM = {"Copy": "stream.copy", "Triad": "stream.triad", "Dot": "bs.bs4"}
# Least shares of the best of the driver's copy and our own read.
TARGETS = {
    "stream.copy": 0.92, "stream.triad": 0.92, "spatter.gather": 0.90, "spatter.scatter": 0.90,
    "bs.bs3": 0.90, "bs.bs4": 0.90,
}  # fmt: skip


class Call:
    """What the steps share: options, folder of results, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out)
        self.end = time.monotonic() + 60 * options.minutes
        self.end_of_step = self.end

    def begin(self, step: str) -> None:
        """Give a step the time that is left, or less."""
        self.end_of_step = min(self.end, time.monotonic() + LONGEST_S.get(step, 3600))

    @property
    def left_s(self) -> float:
        return self.end_of_step - time.monotonic()

    def run(self, words: Iterable[object], log: str, **more: Any) -> str:
        """Run a program for at most the time that is left; return what it prints."""
        with (self.out / log).open("a") as file:
            done = subprocess.run(
                [str(word) for word in words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=max(self.left_s, 1),
                env={**os.environ, "PYTHONPATH": str(TREE / "python")},
                **more,
            )
            file.write(done.stdout)
        if done.returncode != 0:
            last = " | ".join(done.stdout.strip().splitlines()[-3:])
            raise RuntimeError(f"exit code {done.returncode} ({log}): {last}")
        return done.stdout

    def nvcc(self, sources: Iterable[object], program: Path, *flags: object) -> Path:
        """Build a program for the card of this machine."""
        self.run(["nvcc", "-O3", "-arch=native", *flags, *sources, "-o", program], "peers.log")
        return program


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


def parity(call: Call) -> str:
    """Run the tests of the CUDA backend on the card."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--maxfail=20",
        "--every-entry",
        "tests/test_cuda.py",
    ]
    return call.run(words, "parity.log", cwd=TREE).strip().splitlines()[-1]


def sanitize(call: Call) -> str:
    """Run one case of every kernel under each of the sanitizer's tools."""
    program = [sys.executable, __file__, "--every-kernel", "--device", call.options.device]
    verdicts = []
    for tool in TOOLS:
        words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *program]
        try:
            text = call.run(words, f"{tool}.log")
            verdicts.append(f"{tool}: {re.findall('ERROR SUMMARY: .*', text)[-1]}")
        except (RuntimeError, IndexError, FileNotFoundError, subprocess.TimeoutExpired) as error:
            verdicts.append(f"{tool}: {str(error).splitlines()[0]}")
    return "; ".join(verdicts)


def run_every_kernel(device: str) -> None:
    """Run and check one small case of every kernel with its own unrolling and block size."""
    from memkern.machine.gpu import _module
    from memkern.spec.options import Knobs

    sys.path[:0] = [str(TREE / "tests"), str(TREE / "tests" / "families")]
    from test_kernels import SAMPLES

    import memkern as mk

    small = {
        "latency.chase": {"size_B": 2**13, "steps": 100},
        "latency.banks": {"steps": 100},
        **{f"transfers.{way}": {"size_B": 2**13} for way in ("to_device", "from_device", "both")},
    }
    wrong = 0
    for kernel, variant, dtype, index, unroll, template in _module().entries():
        if unroll or kernel == "transfers.between":
            continue
        if kernel in small:
            own = dict(small[kernel])
            if kernel == "latency.chase":
                own["chains"] = int(template)
            elif kernel.startswith("transfers."):
                own["memory"] = template
            else:
                own["dtype"] = dtype
            case = mk.case(kernel, device=device, variant=variant, **own)
            if not case.prepare().check().valid:
                wrong += 1
                print(f"{kernel} {variant} {dtype} {template} is wrong")
            continue
        sample = SAMPLES[kernel][0]
        knobs = {"device": device, "variant": variant, "seed": sample.knobs.seed}
        if kernel.startswith("amo."):
            knobs["threads"] = sample.knobs.threads
        case = dataclasses.replace(sample, knobs=Knobs(**knobs))
        names = {"dtype": dtype, "index_dtype": index}
        if kernel.startswith("amo."):
            names["template_variant"] = template
        try:
            valid = case.with_(**names).prepare().check().valid
        except ValueError as error:
            print(f"{kernel} {variant} {template}: {error}")
            continue
        if not valid:
            wrong += 1
            print(f"{kernel} {variant} {dtype} {index} {template} is wrong")
    print(f"{wrong} wrong results")
    sys.exit(1 if wrong else 0)


def bare_launch_s(program: Path) -> float:
    """Return the median seconds of a bare empty launch."""
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    seconds = sorted(float(line) for line in lines.split())
    return seconds[len(seconds) // 2]


def babelstream_GBps(program: Path, elements: int) -> dict[str, float]:
    """Return the bandwidths that BabelStream prints, by memkern's names."""
    command = [program, "-s", str(elements), "-n", "50"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in text.splitlines())
    return {
        BABELSTREAM[row[0]]: float(row[1]) / 1e3
        for row in rows
        if len(row) > 1 and row[0] in BABELSTREAM
    }


def spatter_GBps(program: Path, kernel: str, count: int) -> dict[str, float]:
    """Return the bandwidth that Spatter prints for UNIFORM:256:1."""
    options = ["-pUNIFORM:256:1", "-d256", f"-l{count}", f"-k{kernel}", "-r20"]
    text = subprocess.run([program, *options], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s", line)]
    return {f"spatter.{kernel}": float(rows[-1][-1]) / 1e3}


def _babelstream(call: Call) -> Path | None:
    given = call.options.babelstream
    if given is None or given.is_file():
        return given
    source = given / "src"
    flags = ["-std=c++17", "-DCUDA", "-DDEFAULT", "-I", source, "-I", source / "cuda"]
    files = [source / "main.cpp", source / "cuda" / "CUDAStream.cu"]
    return call.nvcc(files, call.out / "cuda-stream", *flags, "-x", "cu")


def _spatter(call: Call) -> Path | None:
    given = call.options.spatter
    if given is None or given.is_file():
        return given
    folder = call.out / "spatter"
    options = ["-DUSE_CUDA=ON", "-DCMAKE_BUILD_TYPE=Release"]
    call.run(["cmake", "-S", given, "-B", folder, *options], "peers.log")
    call.run(["cmake", "--build", folder, "-j"], "peers.log")
    return folder / "spatter"


def bandwidths(call: Call) -> str:
    """Measure everything in turns, each in another order; store the records and print shares."""
    import memkern as mk
    from memkern.machine import gpu
    from memkern.measuring.record import to_result_set
    from memkern.statistics import ratio_interval

    options, device = call.options, call.options.device
    how = {"device": device, "timer": options.timer, "runs": 20}
    footprint_B = options.gigabytes * 1e9
    cases = {name: mk.case(name, footprint_B=footprint_B, **how) for name in KERNELS}
    count = max(int(footprint_B / 8 / 256), 1)
    shape = {"pattern": "UNIFORM:256:1", "delta": 256, "count": count, "index_dtype": "int32"}
    cases |= {f"spatter.{k}": mk.case(f"spatter.{k}", **shape, **how) for k in SPATTER}
    cases["launch"] = mk.case("bs.bs0", device=device, runs=200)
    done: list[mk.Measurement] = []
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}

    def own(name: str) -> None:
        found = cases[name].measure()
        if not found.valid:
            raise RuntimeError(f"{name} failed its validation")
        done.append(found)
        column = "time_median_s" if name == "launch" else "bandwidth_median_GBps"
        ours.setdefault(name, []).append(found.record[column])

    def peer(rates: Callable[[], dict[str, float]]) -> None:
        for name, rate in rates().items():
            theirs.setdefault(name, []).append(rate)

    def driver() -> None:
        gpu.copy_GBps.cache_clear()
        ours.setdefault("driver", []).append(gpu.copy_GBps(device))

    work: list[Callable[[], object]] = [lambda n=name: own(n) for name in cases]
    work.append(driver)
    (call.out / "bare.cu").write_text(BARE)
    bare = call.nvcc([call.out / "bare.cu"], call.out / "bare")
    work.append(lambda: theirs.setdefault("launch", []).append(bare_launch_s(bare)))
    if stream := _babelstream(call):
        work.append(lambda: peer(lambda: babelstream_GBps(stream, int(footprint_B / 8 / 3))))
    if spatter := _spatter(call):
        for kernel in SPATTER:
            work.append(lambda k=kernel: peer(lambda: spatter_GBps(spatter, k, count)))

    order, turns, longest_s = random.Random(options.seed), 0, 0.0
    while turns < options.turns and (turns == 0 or call.left_s > 2 * longest_s):
        begin = time.monotonic()
        for one in order.sample(work, len(work)):
            one()
        longest_s = max(longest_s, time.monotonic() - begin)
        turns += 1
    to_result_set(done).save(str(call.out / "bandwidths.json"))

    ceilings = [max(pair) for pair in zip(ours["driver"], ours["loops.load"], strict=True)]
    print(f"{gpu.describe(device)['name']}, {turns} turns")
    for name, rates in ours.items():
        values = sorted(rates)
        text = f"{name:<16} {values[len(values) // 2]:12.5g}"
        if name != "launch":
            share = ratio_interval(rates, ceilings, paired=True)
            text += f" GB/s  {share.ratio:.3f} of the best of copy and read"
            if share.ratio < TARGETS.get(name, 0.0):
                text += f", BELOW {TARGETS[name]}"
        if name in theirs:
            ratio = ratio_interval(rates, theirs[name], paired=True)
            text += f"  {ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of the peer"
        print(text)
    return f"{turns} turns"


def measured(call: Call, name: str, cases: list[Any], longest_s: float) -> Any:
    """Measure cases in random order for some time; store and return their records."""
    from memkern.measuring.record import to_result_set

    end = time.monotonic() + min(longest_s, call.left_s)
    done = []
    for case in random.Random(call.options.seed).sample(cases, len(cases)):
        if time.monotonic() >= end:
            print(f"{name}: {len(cases) - len(done)} of {len(cases)} cases left out, no time left")
            break
        done.append(case.measure())
    results = to_result_set(done)
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

    device = call.options.device
    cases = []
    for way in WAYS:
        if way == "between" and len(gpu.devices()) < 2:
            continue
        for memory in ("device",) if way == "between" else MEMORIES:
            own = {} if way == "between" else {"memory": memory}
            cases += [
                mk.transfers(
                    way,
                    size_B=8 * 4**k,
                    variant=variant,
                    device=device,
                    runs=20,
                    placements=1,
                    **own,
                )
                for variant in VARIANTS[memory]
                for k in range(13)
            ]
    results = measured(call, "transfers", cases, 150)
    print(tables["transfers-fit"](results).to_string(index=False))
    return drawn(call, "transfers", results)


def latency(call: Call) -> str:
    """Measure chases over sizes through all caches and through L2, and bank conflicts."""
    import memkern as mk
    from memkern.families.latency.kernels import octaves
    from memkern.machine import gpu
    from memkern.plots import tables

    how = {"device": call.options.device, "runs": 20, "placements": 1, "invocations": 1}
    largest_B = 4 * int(gpu.describe(call.options.device)["l2_B"])
    chases = [
        mk.latency(size, steps=2**14, variant=variant, **how)
        for size in octaves(2**12, largest_B, 2)
        for variant in ("simt", "l2")
    ]
    banks = [
        mk.case("latency.banks", stride=stride, block_threads=threads, **how)
        for stride in range(1, 33)
        for threads in (32, 1024)
    ]
    chased = measured(call, "latency", chases, 100)
    conflicts = measured(call, "banks", banks, 60)
    print(tables["latency-banks"](conflicts).to_string(index=False))
    return f"{drawn(call, 'latency-sizes', chased)}, {drawn(call, 'latency-banks', conflicts)}"


def blocks(call: Call) -> str:
    """Measure the main kernels with every number of threads per block and every unrolling."""
    import memkern as mk
    from memkern.plots import tables

    footprint_B = call.options.gigabytes * 1e9
    count = max(int(footprint_B / 8 / 256), 1)
    shape = {"pattern": "UNIFORM:256:1", "delta": 256, "count": count, "index_dtype": "int32"}
    how = {"device": call.options.device, "runs": 10, "placements": 1}
    cases = [
        case.with_(block_threads=threads, unroll=unroll)
        for case in (
            *(mk.case(f"loops.{k}", footprint_B=footprint_B, **how) for k in ("triad", "dot")),
            *(mk.case(f"spatter.{k}", **shape, **how) for k in SPATTER),
        )
        for threads in (64, 128, 256, 512, 1024)
        for unroll in (0, 1, 2, 4, 8)
    ]
    results = measured(call, "blocks", cases, 120)
    table = tables["gpu-blocks"](results)
    best = table[table["of_best"] == 1.0]
    print(best.to_string(index=False))
    return drawn(call, "gpu-blocks", results)


def report(call: Call) -> str:
    """Write a report of all records in the folder."""
    import memkern as mk
    from memkern.machine import gpu
    from memkern.machine.topology import machine_environment
    from memkern.report import write

    results = mk.merge(sorted(call.out.glob("*.json")))
    page = call.out / "report.html"
    title = f"Data movement on {gpu.describe(call.options.device)['name']}"
    write(results, page, title=title, environment=machine_environment())
    return f"{page.stat().st_size} bytes"


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", default="on_gpu", metavar="FOLDER", help="of records and logs")
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything together")
    parser.add_argument("--steps", default=",".join(STEPS), help=f"some of {','.join(STEPS)}")
    parser.add_argument("--build", action="store_true", help="build the extension first")
    parser.add_argument(
        "--archive", nargs=2, action="append", default=[], metavar=("OPTION", "PATH"),
        help="source archive for the build, such as MEMKERN_HWLOC_ARCHIVE hwloc.tar.bz2",
    )  # fmt: skip
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of all arrays together")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0, help="of the order in each turn")
    parser.add_argument("--timer", default="host", choices=("host", "events", "graph"))
    parser.add_argument("--babelstream", type=Path, metavar="PATH", help="source tree or program")
    parser.add_argument("--spatter", type=Path, metavar="PATH", help="source tree or program")
    parser.add_argument("--every-kernel", action="store_true", help="run each kernel once, and end")
    options = parser.parse_args(words)
    options.steps = options.steps.split(",")
    if unknown := [step for step in options.steps if step not in STEPS]:
        parser.error(f"--steps {unknown[0]!r} is not one of {', '.join(STEPS)}")
    for path in (options.babelstream, options.spatter):
        if path is not None and not path.exists():
            parser.error(f"there is no {path}")
    return options


def has_card() -> str:
    """Return why there is no usable GPU; empty where there is one."""
    if shutil.which("nvidia-smi") is None:
        return "there is no GPU here: nvidia-smi is missing"
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "" if done.stdout.startswith("GPU") else f"there is no GPU here: {done.stdout.strip()}"


def main() -> int:
    """Run the steps, each for the time that is left, and print what each found."""
    options = parsed()
    if missing := has_card():
        print(missing, file=sys.stderr)
        return 2
    sys.path.insert(0, str(TREE / "python"))
    if options.every_kernel:
        run_every_kernel(options.device)
    call = Call(options)
    call.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    known: dict[str, Callable[[Call], str]] = {
        "build": build, "parity": parity, "sanitize": sanitize, "bandwidths": bandwidths,
        "transfers": transfers, "latency": latency, "blocks": blocks, "report": report,
    }  # fmt: skip
    lines = []
    for name in options.steps:
        begin = time.monotonic()
        call.begin(name)
        try:
            found = known[name](call) if call.left_s > 5 else "no time was left"
        except Exception as error:  # The results of other steps are worth having all the same.
            failed += 1
            found = f"FAILED: {error}"
        lines.append(f"{name:<11} {time.monotonic() - begin:6.1f} s  {found}")
        print(lines[-1], flush=True)
    (call.out / "summary.txt").write_text("\n".join(lines) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
