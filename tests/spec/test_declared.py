"""Declared sweeps: cases are built when they are measured, with the same defaults everywhere."""

import contextlib
import dataclasses
import json
import shlex
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from checking import cases_of

import memkern as mk
from memkern import cli
from memkern.engine.sweeping import sweep as sweeping
from memkern.errors import InputError
from memkern.families.messages import kernels, verb
from memkern.families.spatter.kernels import from_config
from memkern.formats import ResultSet
from memkern.host import capacity
from memkern.machine.remote import Description
from memkern.spec.case import Case
from memkern.spec.options import Knobs, Stop, declared
from memkern.spec.registry import registry
from memkern.spec.sequences import joined, permuted, product, sample
from memkern.spec.sweepfile import read_sweep

MILLION = 10**6
FOREVER = 999_999_999_999
BLOCK = 8
EIGHTS = ",".join(str(8 * k) for k in range(1000))
TINY = {"elements": 64, "threads": 1, "variant": "scalar", "runs": 1}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the cases that are built, including changed ones; blocks have 8 cases."""
    count = [0]
    original = Case.__post_init__

    def counted(case: Case) -> None:
        count[0] += 1
        original(case)

    monkeypatch.setattr(Case, "__post_init__", counted)
    monkeypatch.setattr(sweeping, "_BLOCK", BLOCK)
    monkeypatch.setattr(cli.measuring, "_AT_ONCE", BLOCK)
    monkeypatch.setattr(cli.measuring, "_LOOK", BLOCK)
    return count


class FirstRecord(Exception):
    """Raised to end a sweep after its first record."""


def first_record(sweep: Callable[[Callable[[Any], None]], object]) -> dict[str, Any]:
    """Start a sweep and end it after its first record."""
    records = []

    def end(measurement: mk.Measurement) -> None:
        records.append(measurement.record)
        raise FirstRecord

    with pytest.raises(FirstRecord):
        sweep(end)
    return records[0]


def offsets(count: int) -> Sequence[Case]:
    return mk.vary(mk.stream("copy", **TINY), offset=range(0, 64 * 8, 8), seed=range(count // 64))


def written(path: Path, count: int, repeats: int = 1) -> Path:
    """Write a sweep file of two tables: `count` cases (one if it is 0) and two cases."""
    prefetch, seed = list(range(10)), list(range(100))
    table = {"offset": [8 * k for k in range(count // 1000)], "prefetch": prefetch, "seed": seed}
    lists = "".join(f"{key} = {values}\n" for key, values in table.items())
    head = "[[case]]\nkernel = 'stream.copy'\nelements = 64\n"
    path.write_text(
        f"repeats = {repeats}\n[defaults]\nthreads = 1\nvariant = 'scalar'\nruns = 1\n"
        f"{head}{lists if count else ''}{head}dtype = 'float32'\nseed = [0, 1]\n"
    )
    return path


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    "cases, repeats",
    [
        (lambda: offsets(MILLION), 1),
        (lambda: (case for case in offsets(MILLION)), 1),
        (lambda: [mk.stream("copy", **TINY)], FOREVER),
        (lambda: (case for case in [mk.stream("copy", **TINY)]), FOREVER),
    ],
    ids=["product", "generator", "repeats", "repeated generator"],
)
def test_sweeps_from_python_are_lazy(cases, repeats, stored, built, tmp_path):
    output = tmp_path / "x.db" if stored else None
    kept = pytest.warns(UserWarning, match="of .* measurements done, kept in .*x.db")
    with kept if stored else contextlib.nullcontext():
        record = first_record(
            lambda end: mk.sweep(cases(), repeats=repeats, output=output, on_result=end)
        )
    assert record["kernel"] == "stream.copy"
    assert record["repeat"] < BLOCK
    # A case is built, changed, and changed once more for its record.
    assert built[0] <= 4 * BLOCK


def run_to_first_record(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Run the command line and end its sweep after the first record."""
    original = sweeping.sweep

    def sweep(cases: Any, **options: Any) -> ResultSet:
        first_record(lambda end: original(cases, **{**options, "on_result": end}))
        return ResultSet([], [], {})

    monkeypatch.setattr("memkern.engine.public.sweep", sweep)
    assert cli.main(shlex.split(words)) == 0


@pytest.mark.parametrize(
    "count, repeats, words", [(MILLION, 1, ""), (0, FOREVER, ""), (0, 1, f"--repeats {FOREVER}")]
)
def test_sweep_files_are_lazy(count, repeats, words, built, tmp_path, monkeypatch):
    path = written(tmp_path / "x.toml", count, repeats)
    run_to_first_record(monkeypatch, f"sweep {path} {words} -q")
    assert built[0] <= 16 * BLOCK


@pytest.mark.parametrize(
    "words",
    [
        f"stream -k copy --sizes 1KiB:16KiB:2000 --prefetch 0..999 --repeats {FOREVER}",
        f"amo --kernel stride1 -i 8 --offset {EIGHTS} --padding {EIGHTS}",
        "bs 1,2 -n 64 --offset 0,64,128 --prefetch 0..999999",
        "spatter -p 0,1 -l 8 --prefetch 0..999999",
        "spmv hpcg:2 -f crs,sell --prefetch 0..999999",
    ],
)
def test_verbs_are_lazy(words, built, monkeypatch):
    run_to_first_record(monkeypatch, f"{words} --runs 1 --threads 1 --variant scalar -q")
    assert built[0] <= 16 * BLOCK


def test_memory_does_not_grow_with_the_number_of_cases(built):
    def peak(count: int, repeats: int) -> int:
        cases = offsets(count)
        tracemalloc.start()
        try:
            first_record(lambda end: mk.sweep(cases, repeats=repeats, on_result=end))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(640, 1)  # fills caches
    # Other threads of the interpreter may allocate during one of the calls.
    many = min(peak(64 * 10**9, FOREVER) for _ in range(3))
    assert many < peak(640, 1) + 2**18


@pytest.mark.parametrize("size", [1, 2, 3, 8, 100, 257])
def test_permuted_indices_are_a_permutation(size):
    orders = [[permuted(place, size, seed) for place in range(size)] for seed in ("a", "b")]
    assert [sorted(order) for order in orders] == [list(range(size))] * 2
    assert size < 8 or (orders[0] != orders[1] and orders[0] != sorted(orders[0]))


def test_products_go_in_random_order_and_each_repeat_ends_before_the_next(built):
    cases = mk.vary(mk.stream("copy", **TINY), offset=range(0, 40 * 8, 8))
    results = mk.sweep(cases, repeats=2, order_seed=1)
    offsets_of = [
        [record["offset"] for record in results if record["repeat"] == repeat] for repeat in (0, 1)
    ]
    assert [sorted(some) for some in offsets_of] == [list(range(0, 320, 8))] * 2
    assert max(offsets_of[0][:BLOCK]) > BLOCK * 8
    assert [record["repeat"] for record in results] == [0] * 40 + [1] * 40
    declared = mk.sweep(cases, order="declared")
    assert [record["offset"] for record in declared] == list(range(0, 320, 8))


def test_declared_cases_are_a_sequence() -> None:
    case = mk.stream("copy", **TINY)
    cases = mk.vary(case, offset=[0, 8], seed=range(3))
    assert [(c.knobs.offset, c.knobs.seed) for c in cases] == [
        (0, 0), (0, 1), (0, 2), (8, 0), (8, 1), (8, 2),
    ]  # fmt: skip
    assert cases[-1] == cases[1:][4] and len(cases[::2]) == 3
    both = joined([cases, [case], mk.vary(case, seed=[])])
    assert len(both) == 7 and both[6] == case
    with pytest.raises(IndexError):
        both[7]
    many = joined([mk.vary(case, seed=range(MILLION)), mk.vary(case, prefetch=[0, 3])])
    some = sample(many, 16)
    assert len(some) <= 16 and {c.knobs.prefetch for c in some} == {0, 3}
    assert len(product(case.with_, {})) == 1
    with pytest.raises(InputError, match="a sweep has at most"):
        mk.vary(case, seed=range(2**62), offset=range(2**40))


# Required options of each family in Python, in a sweep file and on the command line.
REQUIRED = {
    "dw": ({"lattice": [4, 4, 4, 4]}, "lattice = [[4, 4, 4, 4]]", "--lattice 4 4 4 4"),
    "spmv": ({"matrix": "hpcg:2"}, "matrix = 'hpcg:2'", "hpcg:2"),
    "spatter": ({"pattern": "UNIFORM:8:4"}, "pattern = 'UNIFORM:8:4'", "-p UNIFORM:8:4"),
    # The verb measures several sizes and windows.
    "messages": ({"device": "mpi"}, "device = 'mpi'", "--device mpi --sizes 8 --window 1"),
    # The verb measures several sizes and kinds of memory.
    "transfers": (
        {"device": "cuda"}, "device = 'cuda'",
        "--device cuda --sizes 64MiB --memory pinned",
    ),
    "transfers.between": (
        {"device": "cuda"}, "device = 'cuda'", "--device cuda --sizes 64MiB --variant direct",
    ),
    "latency.banks": ({"device": "cuda"}, "device = 'cuda'", "--device cuda --stride 1"),
}  # fmt: skip


def required(kernel: str) -> tuple[dict[str, Any], str, str]:
    """Return the required options of a kernel."""
    family = kernel.partition(".")[0]
    return REQUIRED.get(kernel, REQUIRED.get(family, ({}, "", "")))


def words_of(kernel: str) -> str:
    """Return the command that measures a kernel with default options."""
    family, _, name = kernel.partition(".")
    words = required(kernel)[2]
    if kernel == "stream.rotation" or kernel == "dw.hop":
        return f"{family} {words}"
    if family == "bs":
        return f"bs {name.removeprefix('bs')}"
    if family == "spmv":
        return f"spmv {words} -f {name}"
    return f"{family} {words} {'--kernel' if family == 'amo' else '-k'} {name}"


def without_arrays(case: Case) -> dict[str, Any]:
    """Return the parts of a case except its arrays."""
    return {
        "spec": case.spec.name, "integers": case.integers, "numbers": case.numbers,
        "dtypes": (case.dtype, case.index_dtype), "template_variant": case.template_variant,
        "knobs": case.knobs,
        "stop": case.stop, "columns": case.columns,
    }  # fmt: skip


@pytest.mark.parametrize(
    "kernel",
    [
        name
        for name in registry()
        # The verbs of these families measure tables.
        if "@" not in name and name.partition(".")[0] not in ("launch", "instructions")
    ],
)
def test_defaults_are_the_same_in_python_in_sweep_files_and_on_the_command_line(
    kernel, monkeypatch, tmp_path
):
    monkeypatch.setattr(capacity, "last_level_cache_B", lambda: 2**10)
    for module in (kernels, verb):
        monkeypatch.setattr(module, "description", lambda *_: Description("", 0, (0, 0), True))
    family, _, name = kernel.partition(".")
    options, toml, _ = required(kernel)
    if name in ("gs", "multigather", "multiscatter"):
        # These have two patterns.
        side = "gather" if name == "multigather" else "scatter"
        options = {f"pattern_{side}": "UNIFORM:2:1"}
        options |= {"pattern_gather" if name == "gs" else "pattern": "UNIFORM:2:1"}
        toml = "\n".join(f"{key} = '{value}'" for key, value in options.items())
    path = tmp_path / "x.toml"
    path.write_text(f"[[case]]\nkernel = '{kernel}'\n{toml}\n")
    of_python = mk.case(kernel, **options)
    (of_file,) = cases_of(monkeypatch, f"sweep {path} -q")
    assert without_arrays(of_file) == without_arrays(of_python)
    assert of_file.identity() == of_python.identity()
    if name in ("gs", "multigather", "multiscatter"):
        return
    (of_shell,) = cases_of(monkeypatch, f"{words_of(kernel)} -q")
    if family == "spmv":
        # The command line makes a matrix once for all formats.
        of_python = mk.case(kernel, matrix=mk.matrices.build(options["matrix"])[1])
    if family == "spatter":
        # The verb has Spatter's number of runs.
        assert of_shell.stop.runs == 10
        of_shell = of_shell.with_(runs=None)
    assert without_arrays(of_shell) == without_arrays(of_python)
    assert of_shell.identity() == of_python.identity()


def test_suites_have_the_default_number_of_runs(monkeypatch, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("[[case]]\nsuite = 'nekbone'\n")
    of_python = [from_config(c) for c in mk.suites.load("nekbone")]
    assert mk.suites.cases("NEKBONE") == of_python
    for words in ("suite nekbone -q", f"sweep {path} -q"):
        found = cases_of(monkeypatch, words)
        assert [case.identity() for case in found] == [case.identity() for case in of_python]
    assert {case.stop.runs for case in of_python} == {None}


# A value of every option of `Knobs` and `Stop` that is not the default, and the defaults.
OTHER: dict[str, Any] = {
    "variant": "scalar", "isa": "baseline", "threads": 1, "pin": "none", "pages": "4k",
    "numa": "interleave", "offset": 8, "schedule": "dynamic", "chunk": 4, "prefetch": 2,
    "unroll": 2, "repetition": "free", "flush": True, "seed": 3, "device": "cuda:1",
    "timer": "events", "block_threads": 64, "block_shared": 1024,
    "blocks": 512, "nodes_per_block": 1024, "flush_every": 8, "contexts": "private",
    "prefetchers": "off", "clock_limit": 2000, "cache_ways": 2, "counters": "auto",
    "ci": 0.5, "max_samples": 5, "invocations": 3, "placements": 2,
    "dtype": "float32",
}  # fmt: skip
DEFAULTS = {f.name: f.default for f in (*dataclasses.fields(Knobs), *dataclasses.fields(Stop))}
DEFAULTS |= {"dtype": "float64"}
ON_DEVICE = {
    "timer": "cuda", "block_threads": "cuda", "block_shared": "cuda",
    "blocks": "cuda", "nodes_per_block": "cuda", "flush_every": "mpi",
    "contexts": "shmem",
}  # fmt: skip


@pytest.mark.parametrize("option", OTHER)
def test_the_more_specific_value_wins_even_if_it_is_the_default(option, tmp_path):
    # The others have no default that TOML can name.
    assert {*OTHER} == {*DEFAULTS} - {"runs", "precision", "budget_s", "peak_GBps"}
    path = tmp_path / "x.toml"
    device = f"device = '{ON_DEVICE[option]}'\n" if option in ON_DEVICE else ""
    kernel, elements = ("bs.bs6", 2) if option == "nodes_per_block" else ("stream.copy", 64)
    table = f"[[case]]\nkernel = '{kernel}'\nelements = {elements}\n{device}"

    def found(text: str, changes: dict[str, Any] | None = None) -> Any:
        path.write_text(text)
        (case,) = read_sweep(path, changes or {})[0]
        place = case if option == "dtype" else case.stop
        return getattr(case.knobs if hasattr(case.knobs, option) else place, option)

    other, default = OTHER[option], DEFAULTS[option]
    # JSON and TOML have the same notation for these values.
    lines = [f"{option} = {json.dumps(value)}\n" for value in (other, default)]
    assert found(f"[defaults]\n{lines[0]}{table}") == other
    assert found(f"[defaults]\n{lines[0]}{table}{lines[1]}") == default
    assert found(f"[defaults]\n{lines[1]}{table}{lines[0]}") == other
    assert found(f"[defaults]\n{lines[0]}{table}{lines[0]}", {option: default}) == default


@pytest.mark.parametrize("device", ["cpu", "cuda", "mpi"])
def test_options_are_refused_on_other_devices(device):
    for row in declared(Knobs):
        if Knobs(device=device).backend.kind not in row.option.where:
            with pytest.raises(InputError, match=f"{row.name} is for .*: leave it out on {device}"):
                Knobs(device=device, **{row.name: OTHER[row.name]})


@pytest.mark.parametrize(
    "table, message",
    [
        ("colour = 1", "has no option 'colour': choose from elements, footprint_B, alpha, dtype"),
        ("beta = 1.0", "has no scalar beta"),
        ("pages = 3", "pages 3 is not one of"),
        ("alpha = 'x'", "alpha"),
        ("footprint_B = {}", "footprint_B must be a number from 1 to 4.6.*e[+]18, not {}"),
        ("ci = 'x'", "ci must be a finite number, not 'x'"),
        ("elements = []", "elements is an empty list"),
    ],
)
def test_unknown_keys_and_wrong_values_have_different_messages(table, message, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(f"[[case]]\nkernel = 'stream.triad'\n{table}\n")
    with pytest.raises(InputError, match=f"case 0 of {path}: .*{message}"):
        read_sweep(path, {})


GATHER = "[[case]]\nkernel = 'gather'\npattern = "


@pytest.mark.parametrize(
    "text, message",
    [
        ("x = [", "is not TOML"),
        ("repeats = 1", r"\[\[case\]\]"),
        (f"repeats = 0\n{GATHER}'0'", "repeats"),
        ("[[case]]\npattern = '0'", "kernel"),
        ("[[case]]\nkernel = 'gather'", "pattern"),
        (f"{GATHER}'0'\ncount = 'x'", "count"),
        ("[[case]]\nsuite = 'none'", "none"),
        ("colours = 1", "unknown key 'colours': choose from repeats, defaults, case"),
        (f"[defaults]\ncolour = 1\n{GATHER}'0'", "'colour'"),
        ("[[case]]\nsuite = 'amg'\ncolour = 1", "no option 'colour': choose from pattern, "),
        ("[[case]]\nkernel = 'spmv.crs'", "'spmv.crs' needs matrix"),
    ],
)
def test_unknown_and_missing_keys_are_named(text, message, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_sweep(path, {})


def _in_a_sweep(options: str, folder: Path) -> object:
    path = folder / "idle.toml"
    path.write_text(f'[[case]]\nkernel = "latency.chase"\nsize_B = 4096\n{options}\n')
    return list(read_sweep(path, {})[0])


@pytest.mark.parametrize(
    "build",
    [
        lambda folder: mk.latency(4096, prefetch=8),
        lambda folder: mk.latency(4096).with_(prefetch=8),
        lambda folder: _in_a_sweep("prefetch = 8", folder),
        lambda folder: _in_a_sweep("prefetch = [0, 8]", folder),
        lambda folder: mk.tune(mk.latency(4096, threads=1), knobs={"prefetch": [0, 8]}),
    ],
    ids=["built", "changed", "sweep", "sweep of a list", "tuned"],
)
def test_knobs_without_effect_are_refused_wherever_they_are_given(build, tmp_path):
    with pytest.raises(InputError, match=r"prefetch has no effect on latency\.chase"):
        build(tmp_path)


def test_knobs_without_effect_may_have_their_defaults(tmp_path):
    assert mk.latency(4096, prefetch=0) == mk.latency(4096)
    assert _in_a_sweep("prefetch = 0", tmp_path)


@pytest.mark.parametrize("spec", registry().values(), ids=registry().keys())
def test_knobs_without_effect_are_knobs(spec):
    assert {*spec.limits.idle_knobs} <= {field.name for field in dataclasses.fields(Knobs)}
