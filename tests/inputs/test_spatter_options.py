"""Spatter's options on the command line and from Python: meaning and errors."""

import argparse
import shlex
import time

import numpy as np
import pytest
from checking import refusal
from spatter_defaults import DEFAULTS

from memkern.families.spatter.kernels import from_config
from memkern.inputs.patterns import custom, parse
from memkern.inputs.spatter_files import (
    add_options,
    configs_from_options,
    options_to_configs,
    read_json,
)


def command(line):
    """Return the configurations and the parsed arguments of a command line."""
    parser = argparse.ArgumentParser(prog="spatter", exit_on_error=False)
    add_options(parser)
    namespace = parser.parse_args(shlex.split(line))
    return options_to_configs(namespace), namespace


def test_python_callers_may_pass_numpy_values():
    result = configs_from_options(
        pattern=np.arange(4), delta=np.array([8, 0]), count=np.int64(7), wrap=np.int32(2)
    )
    assert result.configs == [
        {**DEFAULTS, "pattern": custom([0, 1, 2, 3]), "delta": [8, 0], "count": 7, "wrap": 2}
    ]
    assert "delta must be an integer" in refusal(
        configs_from_options, pattern=[0], delta=np.array(0.5)
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-p 0,1", {}),
        ("-p0,1 -kSCATTER -d9 -l100 -w5 -r2 -nlabel", {
            "kernel": "scatter", "delta": 9, "count": 100, "wrap": 5, "runs": 2, "name": "label",
        }),
        ("--pattern=0,1 --kernel=Scatter --delta=9 --count=100 --wrap=5 --runs=2 --name=label", {
            "kernel": "scatter", "delta": 9, "count": 100, "wrap": 5, "runs": 2, "name": "label",
        }),
        ("-p 0,1,2,3 -j 2", {"pattern": parse("0,1,2,3").truncated(2)}),
        ("--pattern 7,1 --boundary 7", {}),
        ("-p 512,1025 -e 1024 -c", {"pattern": custom([0, 513])}),
        ("-p0,1 -d -5", {"delta": -5}),
        ("-p0,1 -d 8,0,-8", {"delta": [8, 0, -8]}),
        ("-p0,1 -s123", {"seed": 123}),
        ("-p0,1 -s 0", {"seed": 0}),
        ("-p0,1 --random=789", {"seed": 789}),
        ("-k gs -g 3,4 -u 5,6 -x 2 -y 3", {
            "kernel": "gs", "pattern": None, "pattern_gather": custom([3, 4]),
            "pattern_scatter": custom([5, 6]), "delta_gather": 2, "delta_scatter": 3,
        }),
        ("-k gs --pattern-gather UNIFORM:2:3:NR --pattern-scatter UNIFORM:2:1:5", {
            "kernel": "gs", "pattern": None, "pattern_gather": parse("UNIFORM:2:3:NR"),
            "pattern_scatter": parse("UNIFORM:2:1:5"), "delta_gather": 6, "delta_scatter": 5,
        }),
        ("-k MultiGather -p 0,1 -g 1,1,0", {
            "kernel": "multigather", "pattern_gather": custom([1, 1, 0]),
        }),
    ],
)  # fmt: skip
def test_options_mean_what_they_do_in_spatter(line, expected):
    result, _ = command(line)
    assert result.configs == [{**DEFAULTS, **expected}]
    assert result.warnings == []


def test_the_later_of_delta_and_generator_counts():
    assert command("-d4 -pUNIFORM:8:1:NR")[0].configs[0]["delta"] == 8
    assert command("-pUNIFORM:8:1:NR -d4")[0].configs[0]["delta"] == 4
    gs = "-kgs -uUNIFORM:8:1:NR -gUNIFORM:8:1:NR"
    assert command(f"{gs} -x 3")[0].configs[0]["delta_gather"] == 3
    assert command(f"{gs} -x 3")[0].configs[0]["delta_scatter"] == 8
    assert command(f"-y 3 {gs}")[0].configs[0]["delta_scatter"] == 8
    assert command("-d4 -pUNIFORM:8:1:NR")[0].warnings == [
        "delta has no effect beside pattern UNIFORM:8:1, which sets it to 8"
    ]


def test_a_seed_without_a_value_comes_from_the_clock():
    before = int(time.time())
    for line in ("-p0 -s", "-s -p0", "-p0 --random"):
        assert before <= command(line)[0].configs[0]["seed"] <= time.time()


def test_backends_and_threads():
    assert command("-p0 -t 3")[0].threads == 3
    assert command("-p0 -b OpenMP --omp-threads=2")[0].threads == 2
    assert command("-p0 -b serial")[0].threads == 1
    result, _ = command("-p0 -b serial -t 4")
    assert result.threads == 1
    assert "-t/--omp-threads has no effect on backend serial" in result.warnings[0]
    assert command("-p0 -b cuda")[0].on_gpu and not command("-p0 -b openmp")[0].on_gpu


def test_the_size_of_a_block_reaches_gpus(tmp_path):
    result, _ = command("-p0,1 -b cuda -z 64")
    assert result.configs == [{**DEFAULTS, "local_work_size": 64}] and result.warnings == []
    assert from_config(result.configs[0], device="cuda").knobs.block_threads == 64
    assert from_config(result.configs[0], device="cuda", block_threads=32).knobs.block_threads == 32
    assert from_config(result.configs[0]).knobs.block_threads == 0
    # By default it is the kernel's size.
    assert from_config(command("-p0")[0].configs[0], device="cuda").knobs.block_threads == 0
    file = tmp_path / "blocks.json"
    file.write_text('[{"pattern": [0, 1], "local-work-size": 128}]')
    result, _ = command(f"-f{file} --backend cuda")
    assert result.configs[0]["local_work_size"] == 128 and result.warnings == []


def test_shared_memory_reaches_gpus(tmp_path):
    result, _ = command("-p0,1 -b cuda -m 4096")
    assert (result.block_shared, result.warnings) == (4096, [])
    file = tmp_path / "blocks.json"
    file.write_text('[{"pattern": [0, 1]}]')
    assert command(f"-f{file} -b cuda -m 8")[0].block_shared == 8
    result, _ = command("-p0,1 -m 4096")
    assert result.block_shared is None
    assert result.warnings == ["-m/--shared-memory has no effect on this backend, only on cuda"]


def test_a_file_on_the_command_line(tmp_path):
    path = tmp_path / "suite.json"
    path.write_text('[{"pattern": [0, 9999]}, {"pattern": [0, 1], "nruns": 4, "delta": 2}]')
    result, _ = command(f"-f {path}")
    assert result == read_json(path)
    result, _ = command(f"-c --file={path} -r 2 -t 1 -p 0 -l 5 -e 0")
    assert [config["runs"] for config in result.configs] == [2, 2]
    assert result.configs[0]["pattern"].indices.tolist() == [0, 512 + 9999 % 512]
    assert result.configs[1]["count"] == 1024
    assert result.threads == 1
    assert sorted(result.warnings) == [
        "-e/--boundary has no effect beside -f/--file",
        "-l/--count has no effect beside -f/--file",
        "-p/--pattern has no effect beside -f/--file",
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-p0 -d 1.5", "argument -d/--delta: delta must be an integer, not '1.5'"),
        ("-p0 -d 1,,2", "argument -d/--delta: delta must be an integer, not ''"),
        ("-p0 -x 9223372036854775808", "argument -x/--delta-gather"),
        ("-p0 -l 0", "argument -l/--count: the value must be at least 1, not 0"),
        ("-p0 -l 8abc", "argument -l/--count: the value must be an integer, not '8abc'"),
        ("-p0 -w 0", "argument -w/--wrap"),
        ("-p0 -r 0", "argument -r/--runs"),
        ("-p0 -j 0", "argument -j/--pattern-size"),
        ("-p0 -e -1", "argument -e/--boundary: the value must be at least 0, not -1"),
        ("-p0 -m -1", "argument -m/--shared-memory"),
        ("-p0 -o x", "argument -o/--op"),
        ("-p0 -s -1", "argument -s/--random"),
        ("-p0 -s2147483648", "argument -s/--random"),
        ("-p0 -t 0", "argument -t/--omp-threads: the value must be at least 1, not 0"),
        ("-p0 -v -1", "argument -v/--verbosity"),
        ("-p0 -z -1", "argument -z/--local-work-size"),
        ("-p0 -b hip", "argument -b/--backend: the backend must be one of serial"),
    ],
)
def test_wrong_options_are_refused_with_their_name(line, says):
    with pytest.raises(argparse.ArgumentError) as caught:
        command(line)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-k gs -g 0", "pattern-scatter is missing"),
        ("-k gs -g 0 -u 0,1", "one length"),
        ("-p 0,1 -j 3", "pattern-size must be at most 2"),
    ],
)
def test_options_that_describe_no_case_are_refused(line, says):
    assert says in refusal(command, line)


def test_a_file_as_older_releases_name_it_is_refused_with_its_option():
    with pytest.raises(argparse.ArgumentError, match=r"'FILE=a/b.json' is a file: .* -f a/b.json"):
        command("-pFILE=a/b.json")
    with pytest.raises(argparse.ArgumentError, match="'sg', which is called gs since Spatter 2"):
        command("-k sg")
