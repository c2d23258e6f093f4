"""Wrong input on the command line: one sentence, exit code 2, and nothing half-written."""

import dataclasses
import itertools
import math
import os

import pytest
from checking import (
    SMALL,
    measured,
    once_a_kind,
    one_sentence,
    output_of,
    python,
    refused_words,
    run,
)

import memkern as mk
from memkern import cli
from memkern.spec.kernel import Check, Validation, finish
from memkern.spec.registry import registry


def test_options_without_effect_are_reported(capsys):
    _, err = output_of(
        capsys,
        "spatter", "-p", "0,1", *SMALL, "-a", "-m", "64", "-z", "32", "-o", "1", "-s",
        "--dense-buffers", "--atomic-writes", "--atomic-thread-fence", "-b", "openmp", "-c",
    )  # fmt: skip
    for option in ("-a", "-m", "-o", "--dense-buffers", "--atomic-writes", "--atomic-thread"):
        assert option in err
    quiet = run(capsys, "spatter", "-p", "0,1", *SMALL, "-a", "-v", "0")
    assert quiet == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("spatter -p UNIFORM:8:x", "stride"),
        ("spatter -p -1", "-p"),
        ("spatter -p 0 -k scan", "kernel"),
        ("spatter -p 0 -l 0", "count"),
        ("spatter -p 0 -l 999999999999999999999", "count"),
        ("spatter -p 0 -l 99999999999", "GB"),
        ("spatter -p 0 -d 999999999999999 -l 99999999999", "2**60"),
        ("spatter -p 0 -t 1000000", "threads"),
        ("spatter -p 0 --pages 8k", "pages '8k' is not one of"),
        ("spatter -p 0 --isa mmx", "--isa"),
        ("spatter -p 0 --variant magic", "magic"),
        ("spatter -p 0 --pin 4,x", "pin"),
        ("spatter -p 0 --numa node:99", "node:99"),
        ("spatter -p 0 --ci -1", "--ci"),
        ("spatter -p 0 --budget nan", "--budget"),
        ("spatter -p 0 --runs 2 --ci 1", "--runs sets the number of samples"),
        ("spatter -p 0 -b cuda --device cpu", "-b cuda does not run on cpu"),
        ("spatter -p 0 -b serial --device cuda", "-b serial does not run on"),
        ("spatter -p 0 --output /nowhere/x.db", "/nowhere"),
        ("spatter -p 0 --output x.xlsx", ".parquet"),
        ("spatter -f /nowhere.json", "/nowhere.json"),
        ("spatter", "pattern"),
        ("suite nothing", "nothing"),
        ("suite lulesh --footprint 1", "footprint"),
        ("sweep /nowhere.toml", "/nowhere.toml"),
        ("tune -p 0:0", "0:0"),
        ("amo --kernel rand --iters 99999999999", "GB of memory"),
        ("dw --lattice 9999 9999 9999 9999", "GB of memory"),
        ("raider -n 99999999999", "an index array of 99999999999 elements needs"),
        ("spmv hpcg:2000", "a matrix of 8000000000 x 8000000000"),
        ("compare /a.db /b.db", "/a.db"),
        ("figure mona-lisa", "mona-lisa"),
        ("figure spatter-fig3 /a.db", "/a.db"),
        ("table spatter-table4 -o x.doc", ".csv"),
        ("report -o x.pdf", ".html"),
        ("doctor -o x.txt", "x.txt must end in one of"),
        ("fly", "fly"),
        ("stream --kernel quad", "stream.quad"),
        ("stream triad", "unrecognized arguments: triad: did you mean --kernel triad?"),
        ("stream --runs 300 -n 9", "at most 200"),
        ("loops --sizes 1KiB:2KiB", "LOW:HIGH:COUNT"),
        ("loops --sizes 1KiB -n 9", "exclude each other"),
        ("bs two", "two"),
        ("loops -k copy --threads 0 -n 9", "--threads"),
        ("loops --layer-condition L9 -n 99", "'L9'"),
        ("loops -k copy --layer-condition L1", "stencil"),
        ("machine barrier --kinds nap", "nap"),
        ("tune -k stream.triad --set elements", "'elements' is not NAME=VALUE"),
        ("tune -k stream.triad --set 3=4", "'3=4' is not NAME=VALUE"),
        ("tune -k stream.triad --set elements=many", "elements must be an integer"),
        ("tune -k stream.triad --set rows=3", "has no option 'rows'"),
        ("tune -k stream.dance", "'stream.dance' is not one of"),
        ("tune", "needs pattern"),
        ("amo -b RAND_MUL", "'RAND_MUL'"),
        ("amo -b RAND_ADD --kernel rand", "exclude each other"),
        ("amo -p 0", "'0'"),
        ("amo --kernel striden -s 100 -m 800 -i 50", "need an array of"),
        ("amo --primitive exchange --dtype float64", "no pattern has exchange"),
        ("amo --kernel nothing", "'amo.nothing'"),
        ("dw -t 1", "--lattice"),
        ("dw -t 1 --lattice 4 4 4", "expected 4 arguments"),
        ("dw --lattice 4 4 4 x", "'x'"),
        ("dw --lattice 4 4 4 -4", "at least 1"),
        ("dw --lattice 5 5 5 5 --cut t", "multiple of"),
        ("dw --lattice 4 4 4 4 --ls 0", "ls must be a list of whole numbers of at least 1"),
        ("dw --lattice 4 4 4 4 --vector wide", "vector"),
        ("dw --lattice 4 4 4 4 --block 2 2 2", "--block: expected 4 arguments"),
        ("dw --lattice 4 4 4 4 --prefetch-into L3", "L3"),
        ("latency structure --pages thp", "latency structure chooses pages"),
        ("latency structure -k chase", "latency structure chooses the kernel"),
        ("latency numa --pin 0", "latency numa chooses pin"),
        ("latency loaded -k chase", "chooses the kernel"),
        ("latency -k ping_pong --chains 2", "chains"),
        ("latency cores --loads 3", "loads"),
        ("latency -k nope", "'nope' is not one of chase, loaded"),
        ("latency --order pairs", "distance_B must be a power of two"),
        ("latency loaded --distance 64", "distance"),
        ("latency --sizes 1KiB:1B:3", "must ascend"),
        ("messages", "give device mpi or shmem"),
        ("messages -k shout", "messages.shout"),
        # Options without a meaning
        ("amo --kernel rand --prefetch 0,4", "--prefetch has no effect on amo.rand"),
        ("bs 1..3 --elements 5", "--elements is for bs.bs6, bs.bs7, bs.bs8, not for bs.bs1, "),
        ("bs 6..8 --sizes 1KiB:2KiB:2", "--sizes is for"),
        ("bs 1,6 --alpha 2", "--alpha is for bs.bs2, bs.bs5"),
        ("bs 0 --variant simd", "--variant is for"),
        ("bs 0 --prefetch 4", "--prefetch has no effect on bs.bs0"),
        (
            "loops -k stencil --rows 9 --columns 9 -n 5",
            "takes either rows and columns",
        ),
        ("loops --layer-condition L1 --rows 9", "layer_condition chooses rows and columns"),
        ("spmv hpcg:4 --tune --prefetch 8", "--prefetch has no effect with --tune"),
        ("spmv hpcg:4 --tune --runs 3", "--runs has no effect with --tune"),
        (
            "dw --lattice 4 4 4 4 --layout lexicographic --cut s",
            "--cut has no effect in the lexico",
        ),
        ("dw --lattice 4 4 4 4 --layout lexicographic --vector 256", "--vector has no effect"),
        ("dw --lattice 4 4 4 4 --prefetch-into L1", "--prefetch-into has no effect without"),
        ("corun stream.copy --explain", "--explain has no effect in turns"),
        ("tune -k stream.copy --explain", "--explain has no effect in a search"),
        ("spmv hpcg:4 --tune --explain", "--explain has no effect with --tune"),
        ("suite apps --counts paper --footprint 1e6", "--footprint has no effect with"),
        ("tune -p UNIFORM:8:1 --repeats 3", "--repeats has no effect in a search"),
        ("tune -k latency.chase --set prefetch=8", "prefetch has no effect on latency.chase"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(words, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert message in refused_words(capsys, *words.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["amo", "bs", "loops", "raider", "stream"])
def test_inputs_of_other_kernels_are_refused(verb, capsys):
    (verbs,) = (a.choices for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    kernels = {name: spec for name, spec in registry().items() if name.startswith(f"{verb}.")}
    option = {"amo": ["--kernel"], "bs": []}.get(verb, ["-k"])
    for kernel in [*kernels][:: len(kernels) - 1]:
        own = {row.flag for row in kernels[kernel].inputs}
        for row in (row for spec in kernels.values() for row in spec.inputs):
            if not row.flag or row.flag in own:
                continue
            (action,) = [a for a in verbs[verb]._actions if a.dest == row.flag]
            flag = action.option_strings[-1]
            value = [] if action.nargs == 0 else [(row.option.choices or ["9"])[-1]]
            name = kernel.partition(".")[2].removeprefix("bs")
            assert f"{flag} is for " in refused_words(capsys, verb, *option, name, flag, *value)


TOO_LARGE = {
    "rows.mtx": b"%%MatrixMarket matrix coordinate real general\n"
    b"99999999999 99999999999 1\n1 1 1\n",
    "idx.npy": b"\x93NUMPY\x01\x00\x46\x00"
    + b"{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999,), }".ljust(69)
    + b"\n",
    "u.json": b"[" + b'{"pattern": "UNIFORM:200000000:1"},' * 9 + b'{"pattern": "0"}]',
}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("spmv rows.mtx", "rows.mtx can't be read: a matrix of 99999999999 x 99999999999"),
        ("raider -n 8 --pattern ./idx.npy", "idx.npy can't be read as a NumPy array: mmap length"),
        ("bs 6 --elements 1000 --degree 7", "a mesh of 512000000000 local nodes needs"),
        ("spatter -f u.json", "'u.json', config 0: pattern 'UNIFORM:200000000:1': a pattern of"),
        ("sweep /dev/zero", "/dev/zero must be a regular file, or end after at most"),
    ],
)
def test_sizes_beyond_memory_are_refused_before_allocation(tmp_path, words, message):
    for name, content in TOO_LARGE.items():
        (tmp_path / name).write_bytes(content)
    script = (
        "import re, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31));"
        "from memkern.cli import main; code = main(sys.argv[1:]);"
        "print(re.search('VmHWM:\\\\s+([0-9]+) kB', open('/proc/self/status').read())[1]);"
        "sys.exit(code)"
    )
    one = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = python("-c", script, *words.split(), cwd=tmp_path, env=one)
    assert done.returncode == 2, done.stderr
    assert one_sentence(done.stderr).startswith(f"memkern: {message}")
    peak_kB = int(done.stdout)
    # At most 256 MiB are read from a pipe or device before it is refused.
    assert peak_kB < (550_000 if "/dev/zero" in words else 200_000)


@pytest.mark.parametrize(
    "words",
    [
        "spatter -p 0,1 -l 256",
        "stream -k copy -n 256",
        "raider -k gather_copy -n 256",
        "loops -k sum -n 256",
        "bs 1 -n 256",
        "amo --kernel rand -i 256",
        "dw --lattice 4 4 4 4 --layout lexicographic",
        *(f"spmv 5pt:4:5 -f {form}" for form in ("crs", "sell", "ell", "csc")),
    ],
)
def test_a_failed_validation_is_exit_code_1(capsys, monkeypatch, words):
    def refuted(validation: Validation, invocations: int) -> Check:
        return dataclasses.replace(finish(validation, invocations), valid=False)

    for module in ("sampling.prepared", "placing.run"):
        monkeypatch.setattr(f"memkern.engine.{module}.finish", refuted)
    code, out, _ = run(capsys, *words.split(), "--runs", "2", "-t", "1", "--variant", "scalar")
    assert code == 1
    assert "INVALID" in out


@pytest.mark.parametrize("three", ["٣", "³", "３", "1_0"])
@pytest.mark.parametrize(
    "words",
    [
        "stream --budget X",
        "stream --ci X",
        "stream --alpha X",
        "stream -n X",
        "stream --sizes 1KiB:1MiB:X",
        "stream --sizes X",
        "stream -t X",
        "stream --seed X",
        "bs X",
        "spatter -p UNIFORM:8:X",
        "spatter -p 0,X",
        "spatter -p 0 -l X",
        "spatter -p 0 -d X",
        "tune -p 0 -d X",
        "raider -n 8 --pattern zipf:X",
        "raider -n 8 --pattern stride:X",
        "spmv anderson:2:2:2:X",
        "spmv hpcg:X",
        "dw --lattice 4 4 4 X",
        "dw --lattice 4 4 4 4 --block X 4 4 4",
        "suite lulesh --footprint X",
        "compare a.db b.db --fail-on slower:X",
        "fit a.db --level X",
        "fit a.db --leave-out X",
        "report --wait-quiet X",
    ],
)
def test_numbers_with_other_signs_than_ascii_digits_are_refused(capsys, words, three):
    assert repr(three)[1:-1] in refused_words(capsys, *words.replace("X", three).split())


@pytest.mark.parametrize("verb", ["amo", "spatter", "stream", "compare", "report"])
def test_errors_name_the_help_of_their_verb(capsys, verb):
    for words in (("--colour", "red"), ("--threads", "none"), ("--force=1",)):
        assert refused_words(capsys, verb, *words).endswith(f"(see memkern {verb} --help)")


@pytest.fixture(scope="module")
def plain_results() -> mk.ResultSet:
    """Return two records of a gather."""
    cases = [mk.gather(f"UNIFORM:8:{n}:NR", count=64, threads=1, runs=2) for n in (1, 2)]
    return mk.sweep([case.with_(variant="scalar", placements=1) for case in cases])


ANALYSES = [
    "compare x.json x.json",
    "fit x.json",
    "table spatter-table4 x.json",
    "figure spatter-fig3 x.json -o x.png",
]


ODD = itertools.product(
    ANALYSES,
    ["bytes_B", "bandwidth_median_GBps", "kernel", "time_median_s"],
    ["left out", None, "text", math.inf, -1.0],
)


# Figures take longest, and columns that they do not read have no effect.
@pytest.mark.parametrize(
    "case",
    once_a_kind(
        ODD,
        kind=lambda case: case[:2] if case[0].startswith("figure") else case,
        name=lambda case: " ".join(map(str, case)),
    ),
)
def test_results_with_odd_columns_are_analysed_or_refused(
    capsys, tmp_path, monkeypatch, plain_results, case
):
    command, column, value = case
    monkeypatch.chdir(tmp_path)
    odd = [{k: v for k, v in r.items() if k != column} for r in plain_results]
    if value != "left out":
        odd = [{**record, column: value} for record in odd]
    mk.ResultSet(odd, plain_results.samples, plain_results.environments).save("x.json")
    code = cli.main(command.split())
    refused = [line for line in capsys.readouterr().err.splitlines() if line]
    assert code in (0, 2)
    assert code == 0 or len(refused) == 1
    assert (tmp_path / "x.png").exists() == (code == 0 and command.startswith("figure"))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"text", b"\x89PNG", b"SQLite format 3\0"])
@pytest.mark.parametrize("suffix", ["json", "csv", "parquet", "db"])
@pytest.mark.parametrize("command", ANALYSES)
def test_files_of_other_formats_are_refused(
    capsys, tmp_path, monkeypatch, command, suffix, content
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"x.{suffix}").write_bytes(content)
    assert cli.main(command.replace("x.json", f"x.{suffix}").split()) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert f"x.{suffix}" in sentence
    assert sorted(tmp_path.iterdir()) == [tmp_path / f"x.{suffix}"]


@pytest.mark.parametrize(
    ("words", "column", "values"),
    [
        ("stream -k copy -n 1e3 --runs 1", "elements", [1000]),
        ("amo --kernel rand --words 2.5e2 --runs 1", "words", [250]),
        ("amo --kernel rand --padding 0,6.4e1 --words 64 --runs 1", "padding_B", [0, 64]),
        ("spmv hpcg:4 --format csr --runs 1", "kernel", ["spmv.crs"]),
    ],
)
def test_numbers_with_exponents_and_other_names_of_formats(words, column, values, capsys):
    assert sorted(record[column] for record in measured(capsys, *words.split())) == values
