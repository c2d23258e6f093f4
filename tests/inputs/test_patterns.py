"""Patterns: golden values, independent oracles, errors."""

import re

import numpy as np
import pytest
from checking import PROPERTY, refusal, unless_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from memkern.inputs import patterns
from memkern.inputs.patterns import Pattern, as_pattern, custom, laplacian, ms1, parse, uniform

INDICES = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40)
SMALL = st.lists(st.integers(0, 20_000), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", "uniform"),
        ("UNIFORM:8:24", "uniform"),
        ("9,6,3", "uniform"),
        ("4,4,4", "broadcast"),
        ("0,0,5,5,9", "broadcast"),
        ("MS1:8:4:20", "mostly stride-1"),
        ("LAPLACIAN:2:2:100", "mostly stride-1"),
        ("0,1,9,3", "mostly stride-1"),
        ("0,1,9,3,7", "complex"),
        ("9223372036854775807,0", "uniform"),
        ("5,5,0", "complex"),
    ],
)
def test_classes_of_patterns(text, expected):
    assert parse(text).access_class == expected


@pytest.mark.parametrize(
    "indices, expected",
    [
        ([0, 4, 8], 4),
        (np.arange(0, 2**20, 8), 8),
        (np.append(np.arange(0, 2**20, 8), 2**20 + 1), None),  # only the last step differs
        ([9, 6, 3], -3),
        ([4, 4, 4], None),
        ([7], None),
        ("UNIFORM:8:4:NR", 4),
        ("MS1:8:4:20", None),
    ],
)
def test_strides_of_patterns(indices, expected):
    pattern = as_pattern(indices)
    assert pattern.stride == expected
    assert (pattern.access_class == "uniform") == (expected is not None or len(pattern) == 1)


@pytest.mark.parametrize(
    ("text", "expected", "delta"),
    [
        ("UNIFORM:8:4:NR", [0, 4, 8, 12, 16, 20, 24, 28], 32),
        ("UNIFORM:2:3:5", [0, 3], 5),
        ("MS1:8:2,3:20,22", [0, 1, 21, 43, 44, 45, 46, 47], None),
        ("Ms1:8:0:10", [9, 10, 11, 12, 13, 14, 15, 16], None),
        ("MS1:8:1, 5, 7:3, 8, 20", [0, 3, 4, 5, 6, 14, 15, 35], None),
        # Spatter searches breaks in order: the second 3 is never reached, nor a 9 of 8 elements.
        ("MS1:8:3,3:18", [0, 1, 2, 20, 21, 22, 23, 24], None),
        ("MS1:8:4,3:18", [0, 1, 2, 3, 21, 22, 23, 24], None),
        ("MS1:8:9:18", [0, 1, 2, 3, 4, 5, 6, 7], None),
        ("laplacian:3:1:100", [0, 9900, 9999, 10000, 10001, 10100, 20000], 1),
        ("0,4,8", [0, 4, 8], None),
        (" 3, 1", [3, 1], None),
    ],
)
def test_golden_texts(text, expected, delta):
    pattern = parse(text)
    assert pattern.indices.tolist() == expected
    assert pattern.indices.dtype == np.int64
    assert pattern.delta == delta
    assert len(pattern) == len(expected)
    assert pattern.maximum == max(expected)
    assert as_pattern(text) == pattern


@PROPERTY
@given(st.integers(1, 100), st.integers(1, 10**6), st.none() | st.just("NR") | st.integers(-9, 9))
def test_uniform_is_an_arithmetic_progression(n, stride, delta):
    pattern = uniform(n, stride, delta)
    assert pattern.indices.tolist() == [i * stride for i in range(n)]
    assert pattern.delta == (n * stride if delta == "NR" else delta)
    assert parse(pattern.name).indices.tolist() == pattern.indices.tolist()


@PROPERTY
@given(st.data())
def test_ms1_steps_one_except_at_breaks(data):
    n = data.draw(st.integers(1, 40))
    breaks = sorted(data.draw(st.sets(st.integers(1, n + 3), min_size=1, max_size=6)))
    sizes = st.integers(0, 1000)
    gaps = data.draw(
        st.lists(sizes, min_size=len(breaks), max_size=len(breaks))
        | st.lists(sizes, min_size=1, max_size=1)
    )
    pattern = ms1(n, breaks, gaps)
    indices = pattern.indices.tolist()
    assert indices[0] == 0
    steps = dict(zip(breaks, gaps if len(gaps) > 1 else gaps * len(breaks), strict=True))
    for i in range(1, n):
        assert indices[i] - indices[i - 1] == steps.get(i, 1)
    assert parse(pattern.name) == pattern


@PROPERTY
@given(st.integers(1, 5), st.integers(1, 5), st.integers(6, 200))
def test_laplacian_is_the_set_of_neighbours_along_the_axes(dim, order, size):
    offsets = {0}
    for axis in range(dim):
        for distance in range(1, order + 1):
            offsets |= {distance * size**axis, -distance * size**axis}
    pattern = laplacian(dim, order, size)
    assert pattern.indices.tolist() == [o - min(offsets) for o in sorted(offsets)]
    assert pattern.delta == 1
    assert parse(pattern.name) == pattern


@PROPERTY
@given(st.integers(1, 200), st.integers(1, 1000), st.integers(0, 2**63 - 1))
def test_random_is_reproducible_and_in_range(n, high, seed):
    pattern = patterns.random(n, high, seed)
    assert len(pattern) == n
    assert 0 <= pattern.indices.min() <= pattern.maximum < high
    assert parse(pattern.name) == pattern == patterns.random(n, high, seed)
    assert patterns.random(100, 8, 1) != patterns.random(100, 8, 2)


@PROPERTY
@given(INDICES)
def test_every_way_to_give_indices_agrees(indices):
    expected = custom(indices)
    assert expected.indices.tolist() == indices
    assert parse(",".join(map(str, indices))) == expected
    for given_as in (
        tuple(indices),
        np.array(indices, dtype=np.int64),
        np.array(indices, dtype=np.uint64),
        np.array(indices, dtype=">i8"),
        np.array(indices, dtype=object),
        np.array(indices * 2, dtype=np.int64)[: len(indices)],
        [np.int64(i) for i in indices],
        expected,
    ):
        assert as_pattern(given_as) == expected
    assert np.asarray(expected).tolist() == indices
    assert np.asarray(custom([1, 2]), dtype=np.int32).dtype == np.int32


@PROPERTY
@given(SMALL, st.integers(1, 5000))
def test_remapped_takes_the_remainder(indices, boundary):
    pattern = Pattern(indices, "p", 3).remapped(boundary)
    assert pattern.indices.tolist() == [i % boundary for i in indices]
    assert pattern.delta == 3


@PROPERTY
@given(SMALL, st.sampled_from([(8, 4096), (4, 4096), (8, 64), (8, 8)]))
def test_compressed_numbers_pages_by_first_touch(indices, sizes):
    value_size, page = sizes
    numbers: dict[int, int] = {}
    expected = []
    for index in indices:
        number, offset = divmod(index * value_size, page)
        place = numbers.setdefault(number, len(numbers))
        expected.append((place * page + offset) // value_size)
    pattern = custom(indices).compressed(value_size, page)
    assert pattern.indices.tolist() == expected
    assert pattern.compressed(value_size, page) == pattern


@PROPERTY
@given(SMALL, st.data())
def test_truncated_keeps_the_first(indices, data):
    n = data.draw(st.integers(1, len(indices)))
    pattern = Pattern(indices, delta=5).truncated(n)
    assert pattern.indices.tolist() == indices[:n]
    assert pattern.delta == 5


def test_the_name_of_a_changed_pattern_tells_the_change():
    pattern = parse("UNIFORM:8:1000")
    assert pattern.truncated(4).name == "UNIFORM:8:1000[:4]"
    assert pattern.remapped(7).name == "UNIFORM:8:1000%7"
    assert pattern.compressed().name == "UNIFORM:8:1000 compressed"
    assert pattern.truncated(8) is pattern
    assert pattern.remapped(7001) is pattern


def test_indices_are_a_read_only_copy():
    source = np.arange(4)
    pattern = custom(source)
    view = source[:]
    view.setflags(write=False)
    from_view = custom(view)
    source[0] = 99
    assert pattern.indices[0] == 0
    assert from_view.indices[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        pattern.indices[0] = 1
    with pytest.raises(AttributeError):
        pattern.name = "other"


def test_texts_of_patterns_differ_where_patterns_differ():
    assert str(parse("uniform:8:4")) == "UNIFORM:8:4"
    assert str(custom([0, 4, 8])) == "0,4,8"
    assert str(custom([1, 2], "pair")) == "pair"
    one, other = np.arange(100), np.arange(100)
    other[50] = 7
    assert re.fullmatch(r"0,1,2,3,\.\.\.\(100 indices, [0-9a-f]{8}\)", str(custom(one)))
    assert str(custom(one)) != str(custom(other))
    assert repr(parse("UNIFORM:8:4:NR")) == (
        "Pattern('UNIFORM:8:4', length=8, maximum=28, delta=32)"
    )
    assert len(repr(custom(range(100_000)))) < 120


def test_equality_and_hash_cover_indices_name_and_delta():
    assert custom([1, 2]) == custom(np.array([1, 2]))
    assert hash(custom([1, 2])) == hash(custom(np.array([1, 2])))
    assert custom([1, 2]) != custom([1, 3])
    assert custom([1, 2]) != custom([1, 2], "named")
    assert uniform(2, 1) != uniform(2, 1, "NR")
    assert custom([1, 2]) != [1, 2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "empty"),
        ("STRIDE:8:1", "one of UNIFORM"),
        ("NaN", "one of UNIFORM"),
        ("UNIFORM:8:4:NR:1", "UNIFORM:length:stride"),
        ("UNIFORM:8:4:RN", "delta must be an integer"),
        ("UNIFORM:0:4", "length must be at least 1, not 0"),
        ("UNIFORM:8:0", "stride must be at least 1, not 0"),
        ("UNIFORM:8x:1", "'8x'"),
        ("\u0664,8", "ASCII"),
        ("UNIFORM:268435457:1", "at most 268435456 indices"),
        ("UNIFORM:3:9223372036854775807", "indices must be at most"),
        ("UNIFORM:2:9223372036854775807:NR", "delta must be at most"),
        (f"UNIFORM:{'9' * 5000}:1", "below 2**63"),
        ("MS1:8::20", "break 0"),
        ("MS1:8:2:-1", "gap 0 must be at least 0"),
        ("MS1:8:2,3,4:1,2", "one for each of 3, not 2"),
        ("MS1:8:0:0", "first index -1"),
        ("MS1:8:1:9223372036854775807", "indices must be at most"),
        ("LAPLACIAN:3:1:9999999999", "indices must be at most"),
        ("LAPLACIAN:1000000:1:9", "indices must be at most"),
        ("LAPLACIAN:100000:100000:1", "at most 268435456 indices"),
        ("0,-1", "-1"),
        ("0,,1", "index 1"),
        ("9223372036854775808", "at most 9223372036854775807"),
        ([], "empty"),
        (np.array([], dtype=int), "empty"),
        ([0, -5], "-5"),
        (np.array([3, -2]), "-2"),
        ([0, True], "index 1 is True"),
        (np.array([True]), "bool"),
        (np.zeros((2, 2), dtype=int), "one-dimensional"),
        (np.array(3), "sequence"),
        (5, "sequence"),
        ({0, 1}, "one-dimensional"),
        ([2**63], "at most 9223372036854775807"),
        ([10**5000], "more than 128 bits"),
        (np.array([2**63], dtype=np.uint64), "at most 9223372036854775807"),
        (range(2**28 + 1), "at most 268435456 indices"),
        (range(10**30), "at most 268435456 indices"),
    ],
)
def test_bad_texts_and_indices_are_refused_with_what_would_be_right(given, says):
    assert says in refusal(as_pattern, given)


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, None, "3", float("nan"), 2**63, np.float64(2)])
def test_wrong_numbers_are_refused_everywhere(wrong):
    pattern = custom([0, 1])
    refusal(uniform, wrong, 1)
    refusal(uniform, 8, wrong)
    refusal(ms1, wrong, 1, 1)
    refusal(laplacian, wrong, 1, 1)
    refusal(laplacian, 1, wrong, 1)
    refusal(laplacian, 1, 1, wrong)
    refusal(patterns.random, wrong, 1, 0)
    refusal(patterns.random, 1, wrong, 0)
    refusal(pattern.truncated, wrong)
    refusal(pattern.remapped, wrong)
    refusal(pattern.compressed, wrong)


def test_other_wrong_arguments_are_refused():
    assert "2 indices cannot be truncated to 3" in refusal(custom([0, 1]).truncated, 3)
    assert "multiple of value_size=8" in refusal(custom([0, 1]).compressed, 8, 100)
    assert "NR" in refusal(uniform, 8, 1, "nothing")
    assert "delta" in refusal(Pattern, [0], "", 1.5)
    assert "name" in refusal(custom, [0], 5)
    assert "at least one gap" in refusal(ms1, 8, [1], [])
    assert "break 0 must be an integer" in refusal(ms1, 8, object(), 1)
    assert "string" in refusal(parse, 5)


@settings(PROPERTY, max_examples=150)
@given(
    st.text(max_size=30)
    | st.from_regex(
        r"(UNIFORM|MS1|LAPLACIAN|RANDOM|BASES)(:-?[0-9]{0,4}(,[0-9]{1,3})?){0,4}", fullmatch=True
    )
)
def test_any_text_is_a_pattern_or_refused_in_one_line(text):
    pattern = unless_refused(parse, text)
    if pattern is not None:
        assert len(pattern) >= 1
        assert pattern.indices.min() >= 0


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(PROPERTY, max_examples=150)
@given(ANYTHING)
def test_any_object_is_a_pattern_or_refused_in_one_line(obj):
    pattern = unless_refused(custom, obj)
    if pattern is not None:
        assert pattern.indices.tolist() == obj
        assert all(type(index) is int for index in obj)


def test_bases_in_ascending_and_in_random_order():
    plain, mixed = parse("BASES:8:4:64"), parse("bases:8:4:64:3")
    assert (plain.name, mixed.name) == ("BASES:8:4:64", "BASES:8:4:64:3")
    assert plain.delta == mixed.delta == 8 * 4 * 64
    assert plain.indices.tolist() == list(range(0, 8 * 4 * 64, 4))
    instances = mixed.indices.reshape(64, 8)
    # Each instance is whole, and each base occurs once.
    assert (np.diff(instances, axis=1) == 4).all()
    assert sorted(instances[:, 0]) == list(range(0, 64 * 32, 32))
    assert instances[:, 0].tolist() != sorted(instances[:, 0])
    for text, culprit in (
        ("BASES:8:4", "its form must be BASES:length:stride:count"),
        ("BASES:8:4:0", "count"),
        ("BASES:8:4:4:-1", "seed"),
        ("BASES:0:4:4", "length"),
        ("BASES:1000000:1000000:1000000", ""),
    ):
        assert culprit in refusal(parse, text)


def test_patterns_are_read_from_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("own.npy", np.array([3, 0, 9], dtype=np.int32))
    for text in ("own.npy", "./own.npy", str(tmp_path / "own.npy")):
        pattern = parse(text)
        assert (pattern.indices.tolist(), str(pattern)) == ([3, 0, 9], "file own.npy")
        assert pattern.delta is None
    np.save("negative.npy", np.array([0, -1]))
    assert "missing.npy" in refusal(parse, "missing.npy")
    assert "indices must not be negative" in refusal(parse, "negative.npy")


def test_many_indices_are_applied_once():
    assert [patterns.usual_count(custom(np.arange(n))) for n in (1, 1024, 1025)] == [1024, 1024, 1]
