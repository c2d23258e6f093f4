"""Sizes and lists of whole numbers, written as text."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memkern.errors import InputError
from memkern.inputs.sizes import integer_list_parser, parse_bytes, parse_sizes, sizes


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("1", 1),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("1.5GB", 1.5e9),
        ("1e6", 1e6),
        ("2MiB", 2**21),
        (4096, 4096),
        (1e3, 1000),
    ],
)
def test_bytes_are_read_as_written(text, wanted):
    assert parse_bytes(text) == wanted


@given(st.integers(1, 2**40), st.integers(1, 2**10), st.integers(1, 500))
def test_sizes_are_evenly_spaced(low, factor, count):
    found = sizes(low, low * factor, count)
    assert found == sorted(set(found))
    assert found[0] == low
    assert found[-1] == (low * factor if count > 1 else low)
    assert len(found) <= count
    if len(found) == count > 2 and low > 2**20:
        ratios = [b / a for a, b in itertools.pairwise(found)]
        assert max(ratios) / min(ratios) < 1.001


def test_sizes_as_text():
    assert parse_sizes("1KiB:4KiB:3") == [1024, 2048, 4096]
    assert parse_sizes("64KiB,1MB") == [65536, 10**6]


@pytest.mark.parametrize(
    "text, match",
    [
        ("1KiB:4KiB:x", "LOW:HIGH:COUNT"),
        *((text, "is not a size in bytes") for text in ("٣", "", "KiB", "-3", "1 XB", "1..2")),
        *((text, "is not a size in bytes") for text in ("nan", "1e400", "0", "1e30")),
        ("1KiB:4KiB:0", "number of sizes"),
        ("1KiB,big", "'big'"),
    ],
)
def test_wrong_sizes_are_refused(text, match):
    with pytest.raises(InputError, match=match):
        parse_sizes(text)


def test_lists_of_whole_numbers():
    parse = integer_list_parser(0, "tests")
    assert parse("0..3,7, 2") == [0, 1, 2, 3, 7]
    for wrong in ("", "a", "3..1", "-1", "1,,2", "0..9999999999", "1.5", "٣", "²"):
        with pytest.raises(InputError, match="tests"):
            parse(wrong)
    with pytest.raises(InputError, match="at least 2"):
        integer_list_parser(2, "tests")("1")
