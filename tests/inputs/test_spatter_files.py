"""Spatter's JSON files: meaning of the keys, version 0, and errors."""

import json

import pytest
from checking import PROPERTY, allocating_at_most, refusal, unless_refused
from hypothesis import given, settings
from hypothesis import strategies as st
from spatter_defaults import DEFAULTS

from memkern.inputs.patterns import custom, parse
from memkern.inputs.spatter_files import configs_from_options, read_json


def read(*configs, **options):
    """Read configurations given as dictionaries."""
    return read_json(json.dumps(configs).encode(), **options)


def one(**values):
    """Read a single configuration whose keys are written with underscores."""
    return read({key.replace("_", "-"): value for key, value in values.items()})


def test_defaults_are_spatters():
    result = one(pattern=[0, 1])
    assert result.configs == [DEFAULTS]
    assert result.warnings == []
    assert result.threads is None


def test_every_key_is_read():
    result = read(
        {
            "name": "all keys",
            "kernel": "Scatter",
            "pattern": "UNIFORM:8:3",
            "pattern-size": 4,
            "delta": 16,
            "boundary": 7,
            "seed": 5,
            "wrap": 2,
            "count": 1e6,
            "nruns": 3,
        }
    )
    (first,) = result.configs
    assert first.pop("pattern").indices.tolist() == [0, 3, 6, 2]
    assert first == {
        **{key: value for key, value in DEFAULTS.items() if key != "pattern"},
        "name": "all keys",
        "kernel": "scatter",
        "delta": 16,
        "seed": 5,
        "wrap": 2,
        "count": 1_000_000,
        "runs": 3,
    }
    assert type(first["count"]) is int
    assert result.warnings == []


def test_multi_kernels_take_an_outer_and_an_inner_pattern():
    outer = "UNIFORM:8:4:NR"
    (config,) = one(kernel="MultiGather", pattern=outer, pattern_gather=[7.0, 0]).configs
    assert config["pattern"] == parse(outer)
    assert config["pattern_gather"] == custom([7, 0])
    assert config["delta"] == 32


@pytest.mark.parametrize(
    ("pattern", "delta", "expected", "warned"),
    [
        ("UNIFORM:8:1:NR", None, 8, False),
        ("UNIFORM:8:1:NR", 8, 8, False),
        ("UNIFORM:8:1:NR", 4, 8, True),
        ("UNIFORM:8:1:3", 4, 3, True),
        ("UNIFORM:8:1:3", [3, 3], 3, True),
        ("LAPLACIAN:2:1:10", None, 1, False),
        ("UNIFORM:8:1", 4, 4, False),
        ("UNIFORM:8:1", None, 8, False),
        ("MS1:8:4:20", -4, -4, False),
    ],
)
def test_the_delta_of_a_generator_takes_precedence(pattern, delta, expected, warned):
    values = {"pattern": pattern} if delta is None else {"pattern": pattern, "delta": delta}
    result = one(**values)
    assert result.configs[0]["delta"] == expected
    assert any("delta has no effect" in warning for warning in result.warnings) == warned


def test_patterns_are_truncated_then_remapped_then_compressed():
    values = {"pattern": [5000, 1000, 9, 70_000], "pattern-size": 3, "boundary": 4500}
    assert read(values).configs[0]["pattern"].indices.tolist() == [500, 1000, 9]
    # Pages of 512 values, numbered by first touch: 2000 in page 0, 1000 in page 1, 9 in page 2.
    compressed = read({**values, "boundary": 3000}, compress=True).configs[0]["pattern"]
    assert [5000 % 3000, 1000, 9] == [2000, 1000, 9]
    assert compressed.indices.tolist() == [2000 % 512, 512 + 1000 % 512, 1024 + 9]


def test_without_a_boundary_large_indices_are_unchanged():
    for values in ({"pattern": [2**62]}, {"pattern": [2**62], "boundary": 0}):
        assert read(values).configs[0]["pattern"].maximum == 2**62


def test_runs_can_be_replaced():
    values = {"pattern": [0], "nruns": 3}
    assert [c["runs"] for c in read(values, {"pattern": [0]}).configs] == [3, 10]
    assert [c["runs"] for c in read(values, values, runs=7).configs] == [7, 7]
    assert "runs must be at least 1" in refusal(read, values, runs=0)


def test_keys_without_effect_are_warned_of_once_with_their_configurations():
    odd = {"pattern": [0], "ptrn": 1, "local-work-size": 64}
    result = read(*[odd] * 8, {"pattern": [0], "pattern-gather": [1], "delta-scatter": 3})
    assert result.warnings == [
        "unknown key 'ptrn' is ignored (configs 0, 1, 2, 3, 4, 5 and 2 more)",
        "local-work-size has no effect on this backend, only on cuda "
        "(configs 0, 1, 2, 3, 4, 5 and 2 more)",
        "pattern-gather has no effect on kernel gather (config 8)",
        "delta-scatter has no effect on kernel gather (config 8)",
    ]
    assert result.configs[0]["local_work_size"] == 64
    assert result.configs[8]["pattern_gather"] is None
    gs = one(kernel="gs", pattern="0,1", pattern_gather=[0], pattern_scatter=[0], delta=1, wrap=2)
    assert [warning.split()[0] for warning in gs.warnings] == ["pattern", "delta", "wrap"]


def test_quotation_marks_within_a_text_and_a_byte_order_mark_are_dropped():
    assert one(pattern='"UNIFORM:8:1"').configs[0]["pattern"] == parse("UNIFORM:8:1")
    assert len(read_json(b'\xef\xbb\xbf[{"pattern": [0]}]').configs) == 1


def test_files_are_read_by_path(tmp_path):
    path = tmp_path / "suite.json"
    path.write_text('[{"pattern": "UNIFORM:8:2", "count": 5}]')
    assert read_json(path) == read_json(str(path)) == read_json(path.read_bytes())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "pattern is missing, and kernel gather needs it"),
        ({"kernel": "GS", "pattern-gather": [0]}, "pattern-scatter is missing"),
        ({"kernel": "multigather", "pattern": [0]}, "pattern-gather is missing"),
        ({"kernel": "gather2", "pattern": [0]}, "multiscatter, not 'gather2'"),
        ({"kernel": 5, "pattern": [0]}, "kernel must be one of"),
        ({"name": 5, "pattern": [0]}, "name must be a text, not 5"),
        ({"name": "\ud800", "pattern": [0]}, "name must be valid Unicode"),
        (
            {"kernel": "gs", "pattern-gather": [0], "pattern-scatter": [0, 1]},
            "one length, not of 1 and 2",
        ),
        (
            {"kernel": "multigather", "pattern": [0, 9], "pattern-gather": [2]},
            "pattern-gather must hold positions in pattern, which are below 2, not 2",
        ),
        ({"pattern": []}, "pattern: a pattern needs at least one index"),
        ({"pattern": [-5]}, "-5"),
        ({"pattern": None}, "not None"),
        ({"pattern": "UNIFORM:8:0"}, "pattern 'UNIFORM:8:0': stride must be at least 1, not 0"),
        ({"pattern": [0], "pattern-size": 2}, "pattern-size must be at most 1"),
        ({"pattern": [0], "pattern-size": 0}, "pattern-size must be at least 1, not 0"),
        ({"pattern": [0], "boundary": -1}, "boundary must be at least 0, not -1"),
        ({"pattern": [0], "seed": -1}, "seed must be at least 0, not -1"),
        ({"pattern": [0], "wrap": 0}, "wrap must be at least 1, not 0"),
        ({"pattern": [0], "count": 0}, "count must be at least 1, not 0"),
        ({"pattern": [0], "nruns": 0}, "nruns must be at least 1, not 0"),
        ({"pattern": [0], "local-work-size": -1}, "local-work-size must be at least 0"),
        ({"pattern": [0], "count": 1.5}, "count must be an integer, not 1.5"),
        ({"pattern": [0], "count": 1e300}, "count must be at most 9223372036854775807"),
        ({"pattern": [0], "delta": []}, "not an empty list"),
        ({"pattern": [0], "delta": [1, 0.5]}, "delta 1 must be an integer, not 0.5"),
        ({"pattern": [0], "delta": -(2**63)}, "delta must be at least"),
        *(
            ({"pattern": [0], key: 1}, f"config 1: {key} of Spatter 0 is not in Spatter 2")
            for key in ("stride", "morton", "hilbert", "roblock", "op")
        ),
        ({"pattern": [0], "runs": 7, "nruns": 7}, "nruns is given twice"),
        ({"pattern": "HYDRO:3"}, "HYDRO is a generator of Spatter 0 alone, and a pattern"),
    ],
)
def test_wrong_values_are_refused_with_configuration_key_and_value(values, says):
    message = refusal(read, {"pattern": [0]}, values)
    assert message.startswith("the JSON text, config 1")
    assert says in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02", "is not JSON"),
        (b"[]", "an empty list"),
        (b'{"pattern": [0]}', "must hold a list of configurations, not an object"),
        (b"5", "not 5"),
        (b"[5]", "config 0 must be an object, not 5"),
        (b'[\n{"pattern": [0]},\n\n]', "comma"),
        (b'[{"pattern": [0,\n1,],\n"count": 2}]', " at line 2"),
        (b'[{"kernel": "sg", "pattern": [0]}]', "not 'sg', which is called gs since Spatter 2"),
        (b'[{"pattern": [0]', "is not JSON: Expecting ',' delimiter at line 1, column 17"),
        (b"\x7fELF\x02\x01\x01\x00\xff", "not UTF-8"),
        (b'[{"pattern": [0], "count": 1, "count": 2}]', "key 'count' is given twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"pattern": [0], "count": 1' + b"0" * 5000 + b"}]", "more than 128 bits"),
        (b'[{"pattern": [0], "count": 1e999}]', "not inf"),
        (b'[{"pattern": [NaN]}]', "index 0 is nan"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 262654195\n",
            "is a git-lfs pointer, not JSON",
        ),
    ],
)
def test_hostile_texts_are_refused(text, says):
    assert says in refusal(read_json, text)


def test_files_that_cannot_be_read_are_named(tmp_path):
    missing = tmp_path / "missing.json"
    assert f"{missing} does not exist" in refusal(read_json, missing)
    assert "Is a directory" in refusal(read_json, tmp_path)
    assert "can't be read" in refusal(read_json, "")
    assert "by its path, not 5" in refusal(read_json, 5)


def test_a_file_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("memkern.inputs.spatter_files.MAX_FILE_B", 10)
    path = tmp_path / "large.json"
    path.write_text('[{"pattern": [0]}]')
    assert "larger than 10 bytes" in refusal(read_json, path)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("UNIFORM:268435456:1", "a pattern of 268435456 indices needs about 4.29 GB of memory"),
        ("MS1:268435456:1:1", "a pattern of 268435456 indices needs about 4.29 GB"),
        ("RANDOM:268435456:8:1", "a pattern of 268435456 indices needs about 2.15 GB"),
        ("LAPLACIAN:1:100000000:1", "a pattern of 200000001 indices needs about 4.8 GB"),
        ("UNIFORM:8:1e15", "stride must be an integer, not '1e15'"),
    ],
)
def test_patterns_without_memory_are_refused(monkeypatch, pattern, says):
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (2**30, "the test"))
    text = json.dumps([{"pattern": pattern}]).encode()
    refusal(read_json, text)  # imports modules
    with allocating_at_most(2**20):
        assert says in refusal(read_json, text)


def test_many_small_patterns_are_refused_together(monkeypatch):
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (2**23, "the test"))
    text = json.dumps([{"pattern": "UNIFORM:65536:1"}] * 200).encode()
    assert "the JSON text with all of its patterns needs about 0.0" in refusal(read_json, text)


SIZE = st.integers(1, 2**40)
KERNEL = st.sampled_from(["gather", "Gather", "SCATTER", "gs", "MultiGather", "multiscatter"])


@settings(PROPERTY, max_examples=150)
@given(st.data())
def test_valid_configurations_are_read_as_they_stand(data):
    length = data.draw(st.integers(1, 12))
    outer = data.draw(st.lists(st.integers(0, 2**62), min_size=length, max_size=length))
    inner = data.draw(st.lists(st.integers(0, length - 1), min_size=length, max_size=length))
    kernel = data.draw(KERNEL)
    delta = data.draw(st.integers(-(2**40), 2**40) | st.lists(st.integers(-9, 9), min_size=1))
    count, wrap, runs, seed = (data.draw(SIZE) for _ in range(4))
    needs = {
        "gather": {"pattern": outer, "delta": delta},
        "scatter": {"pattern": outer, "delta": delta},
        "gs": {"pattern-gather": outer, "pattern-scatter": inner, "delta-gather": delta},
        "multigather": {"pattern": outer, "pattern-gather": inner, "delta": delta},
        "multiscatter": {"pattern": outer, "pattern-scatter": inner, "delta": delta},
    }[kernel.lower()]
    sizes = {"count": count, "nruns": float(runs), "seed": seed}
    if kernel != "gs":
        sizes["wrap"] = wrap
    result = read({"kernel": kernel, **needs, **sizes})
    (config,) = result.configs
    assert result.warnings == []
    assert config["kernel"] == kernel.lower()
    for key, value in needs.items():
        got = config[key.replace("-", "_")]
        assert (got.indices.tolist() if key.startswith("pattern") else got) == value
    assert (config["count"], config["runs"], config["seed"]) == (count, runs, seed)
    assert config["wrap"] == (1 if kernel == "gs" else wrap)
    # Keywords of Python give the same configuration.
    named = {key.replace("-", "_").replace("nruns", "runs"): v for key, v in sizes.items()}
    named["runs"] = runs
    keywords = {key.replace("-", "_"): value for key, value in needs.items()}
    assert configs_from_options(kernel=kernel, **keywords, **named).configs == [config]


KEYS = (
    "name kernel pattern pattern-gather pattern-scatter pattern-size delta delta-gather "
    "delta-scatter boundary seed wrap count local-work-size nruns other"
)
VALUE = (
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(-3, 9)
        | st.floats()
        | st.text(max_size=4)
        | st.sampled_from(["gather", "gs", "UNIFORM:4:2:NR", "MS1:4:1:3", "0,1"]),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
        ),
        max_leaves=4,
    )
    | KERNEL
    | st.lists(st.integers(0, 5), min_size=1, max_size=3)
)
HOSTILE = st.lists(st.dictionaries(st.sampled_from(KEYS.split()), VALUE, max_size=5), max_size=3)


def read_or_refuse(text):
    """Check that a text gives valid configurations or an error of one line."""
    result = unless_refused(read_json, text)
    if result is None:
        return
    assert len(result.configs) >= 1
    for config in result.configs:
        assert config.keys() == DEFAULTS.keys()
        assert config["count"] >= 1
        assert config["wrap"] >= 1
        assert config["runs"] >= 1
        assert all(len(warning.splitlines()) == 1 for warning in result.warnings)


@settings(PROPERTY, max_examples=200)
@given(HOSTILE | VALUE)
def test_any_json_is_configurations_or_refused_in_one_line(value):
    read_or_refuse(json.dumps(value).encode())


@settings(PROPERTY, max_examples=200)
@given(st.data())
def test_damaged_files_are_configurations_or_refused_in_one_line(data):
    text = bytearray(b'[{"kernel":"Gather","pattern":[0,1,2],"delta":-4,"count":1e3,"wrap":2}]')
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(text))


def test_keys_of_version_0_without_effect_are_ignored():
    idle = {"stride": 0, "morton": "0", "op": "COPY", "hilbert": False, "shared-memory": None}
    found = read_json(json.dumps([{"pattern": "UNIFORM:8:1", **idle}]).encode())
    assert found.configs == read_json(b'[{"pattern": "UNIFORM:8:1"}]').configs
    assert [sentence.split()[2] for sentence in found.warnings] == [repr(key) for key in idle]


def test_runs_of_version_0_are_nruns():
    found = read_json(b'[{"pattern": "UNIFORM:8:1", "runs": 7}]')
    assert found.configs[0]["runs"] == 7 and found.warnings == []
