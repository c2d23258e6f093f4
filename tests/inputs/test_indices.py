"""Index arrays: definitions, frequencies, files, errors."""

import io
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checking import PROPERTY, refusal, unless_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from memkern.inputs import indices
from memkern.inputs.indices import (
    build,
    central,
    chase,
    check,
    distinct,
    hot,
    permutation,
    stride,
    zipf,
)


def is_index_array(array, n):
    return (
        array.dtype == np.int64
        and array.shape == (n,)
        and array.flags.c_contiguous
        and array.flags.writeable
        and array.min() >= 0
        and array.max() < n
    )


MAKERS = {
    "permutation": permutation,
    "chase": chase,
    "zipf": lambda n, seed: zipf(n, 1.0, seed),
    "hot": lambda n, seed: hot(n, 0.9, 0.1, seed),
}


@PROPERTY
@given(st.sampled_from(sorted(MAKERS)), st.integers(1, 300), st.integers(0, 2**63 - 1))
def test_random_arrays_follow_their_seed(name, n, seed):
    array = MAKERS[name](n, seed)
    assert is_index_array(array, n)
    assert np.array_equal(array, MAKERS[name](n, seed))
    assert not np.array_equal(MAKERS[name](100, seed), MAKERS[name](100, seed ^ 1))


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("permutation", 1),
        ("stride:2", 3),
        ("chase", 1),
        ("central", 1),
        ("zipf:1", 5),
        ("hot:1:1", 3),
    ],
)
def test_arrays_beyond_memory_are_refused(monkeypatch, text, arrays):
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (7e9, "the test"))
    assert (
        f"an index array of 1000000000 elements needs about {8 * arrays} GB of memory, but the "
        "test leaves 7 GB"
    ) in refusal(build, text, 10**9)


@PROPERTY
@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 9))
def test_permutations_visit_everything_once(n, step, seed):
    for array in (permutation(n, seed), stride(n, step), chase(n, seed)):
        assert is_index_array(array, n)
        assert sorted(array.tolist()) == list(range(n))
        assert distinct(array)


@PROPERTY
@given(st.integers(1, 60), st.integers(1, 70))
def test_strides_continue_at_the_next_start(n, step):
    expected = [i for first in range(min(step, n)) for i in range(first, n, step)]
    assert stride(n, step).tolist() == expected


def test_huge_strides_are_stride_one():
    assert stride(5, 2**63 - 1).tolist() == stride(5, 1).tolist() == [0, 1, 2, 3, 4]


@PROPERTY
@given(st.integers(1, 100), st.integers(0, 2**32))
def test_a_chase_is_one_cycle_from_zero(n, seed):
    order = chase(n, seed)
    follows = dict(zip(order.tolist(), np.roll(order, -1).tolist(), strict=True))
    at, visited = 0, []
    for _ in range(n):
        visited.append(at)
        at = follows[at]
    assert at == 0
    assert visited == order.tolist()
    assert len(set(visited)) == n


def test_all_chases_are_equally_likely():
    drawn = Counter(tuple(chase(4, seed).tolist()) for seed in range(6000))
    assert set(drawn) == {(0, *rest) for rest in itertools.permutations((1, 2, 3))}
    # 1000 of each are expected, with a standard deviation of 29.
    assert max(abs(count - 1000) for count in drawn.values()) < 150


def test_central_is_always_element_zero():
    assert is_index_array(central(7), 7)
    assert central(7).tolist() == [0] * 7
    assert not distinct(central(7))
    assert distinct(central(1))


@pytest.mark.parametrize("exponent", [0, 0.5, 1.0, 2.0, np.float32(1.5)])
def test_zipf_draws_ranks_by_their_power(exponent):
    n, seeds = 50, 2000
    # The seed decides which elements are frequent: the generator's first permutation maps ranks to
    # elements.
    counts = np.zeros(n)
    for seed in range(seeds):
        ranks = np.argsort(np.random.default_rng(seed).permutation(n))
        counts += np.bincount(ranks[zipf(n, exponent, seed)], minlength=n)
    weights = np.array([(r + 1) ** -float(exponent) for r in range(n)])
    expected = seeds * n * weights / weights.sum()
    # Six standard deviations.
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected) + 1).all()


def test_large_zipf_by_its_counts():
    n = 1_000_000
    draws = zipf(n, 1.0, 3)
    counts = np.bincount(draws, minlength=n)
    hottest = np.argsort(counts)[::-1][:8]
    total = (1 / np.arange(1, n + 1)).sum()
    assert np.allclose(counts[hottest], n / total / np.arange(1, 9), rtol=0.05)
    # Hot elements are spread: two of eight random places are closer with a probability of 6 %.
    assert np.diff(np.sort(hottest)).min() > n / 1000
    # Draws are in random order: either half has the hottest element equally often.
    early = np.count_nonzero(draws[: n // 2] == hottest[0])
    assert abs(early - counts[hottest[0]] / 2) < 6 * np.sqrt(counts[hottest[0]] / 4)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("exponent", [1e3, 1e30])
def test_steep_zipf_draws_one_element(exponent):
    assert len(set(zipf(1000, exponent).tolist())) == 1


def test_hot_elements_get_their_share():
    n = 100_000
    draws = hot(n, 0.9, 0.01, 5)
    counts = np.bincount(draws, minlength=n)
    hottest = np.argsort(counts)[::-1][:1000]
    assert counts[hottest].sum() == 90_000
    # 90 draws of a hot element are expected, with a standard deviation of 9.5; 0.1 of others.
    assert counts[hottest].min() > 30
    assert counts[hottest].max() < 150
    cold = np.delete(counts, hottest)
    assert cold.max() < 10
    assert cold.sum() == 10_000
    # In random order, and spread over the whole range.
    early = np.isin(draws[: n // 2], hottest).sum()
    assert abs(early - 45_000) < 500
    assert abs(hottest.mean() - n / 2) < 6 * n / np.sqrt(12 * 1000)


@pytest.mark.parametrize(
    ("accesses", "elements", "kinds"),
    [(1, 0, 1), (1.0, 0.001, 1), (1, 0.02, 2), (1, 1, 100), (0, 1, 100), (0, 0, 99), (0, 0.5, 50)],
)
def test_edges_of_hot(accesses, elements, kinds):
    draws = [hot(100, accesses, elements, seed) for seed in range(200)]
    assert all(is_index_array(array, 100) for array in draws)
    assert kinds / 2 <= max(len(set(array.tolist())) for array in draws) <= kinds


@PROPERTY
@given(st.lists(st.integers(0, 19), min_size=20, max_size=20))
def test_repeats_are_found(values):
    repeats = len(set(values)) < 20
    assert distinct(np.array(values)) == (not repeats)
    assert check(values, 20, repeats=True).tolist() == values
    if repeats:
        first = next(i for i, value in enumerate(values) if value in values[:i])
        assert refusal(check, values, 20) == (
            f"IDX[{first}] repeats {values[first]}: a permutation of 0 to 19 has every index once; "
            "set repeats=True to allow it"
        )


@PROPERTY
@given(st.permutations(range(20)), st.sampled_from([np.int8, np.uint64, ">i4", np.int64]))
def test_every_type_of_sequence_is_accepted(values, dtype):
    array = np.array(values, dtype)
    for given_as in (values, tuple(values), array, np.repeat(array, 2)[::2], list(array)):
        copy = check(given_as, 20)
        assert is_index_array(copy, 20)
        assert copy.tolist() == values
    assert check(range(20), 20).tolist() == list(range(20))


def test_a_check_returns_a_copy():
    source = np.arange(4)
    copy = check(source, 4)
    source[0] = 99
    assert copy.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 1], "IDX[2] repeats 1: a permutation of 0 to 2 has every index once"),
        ([0, 1], "IDX must have one index for each of 3 elements, not 2"),
        ([0, 1, 3], "IDX[2] must be from 0 to 2, not 3"),
        (np.array([0, -1, 3]), "IDX[1] must be from 0 to 2, not -1"),
        ([0, 1, 2**63], "IDX[2] must be at most 9223372036854775807"),
        (np.array([0, 2**63, 1], dtype=np.uint64), "IDX[1] must be at most 9223372036854775807"),
        ([0, 1.0, 2], "IDX[1] must be an integer, not 1.0"),
        ([0, True, 2], "IDX[1] must be an integer, not True"),
        (np.array([0.0, 1.0, 2.0]), "IDX must hold whole numbers, not float64 values"),
        (np.zeros((1, 3), dtype=int), "IDX must be a one-dimensional array of whole numbers"),
        (3, "IDX must be a one-dimensional"),
        ((i for i in range(3)), "IDX must be a one-dimensional"),
        (range(10**30), "IDX must"),
    ],
)
def test_bad_arrays_are_refused(values, message):
    assert message in refusal(check, values, 3)
    assert message in refusal(build, values, 3)
    if "repeats" not in message:
        assert message in refusal(check, values, 3, True)


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, None, "3", float("nan"), 2**63, 2**41])
def test_wrong_numbers_of_elements_are_refused_everywhere(wrong):
    for call in (permutation, chase, central):
        assert "n must be" in refusal(call, wrong)
    assert "n must be" in refusal(stride, wrong, 1)
    assert "n must be" in refusal(zipf, wrong, 1.0)
    assert "n must be" in refusal(hot, wrong, 0.5, 0.5)
    assert "n must be" in refusal(check, [0], wrong)
    assert "n must be" in refusal(build, "chase", wrong)
    if wrong != 2**41:
        assert "step must be" in refusal(stride, 3, wrong)


@pytest.mark.parametrize("wrong", [-1, 1.0, True, None, "3", 2**63])
def test_wrong_seeds_are_refused_everywhere(wrong):
    for call in (permutation, chase):
        assert "seed must be" in refusal(call, 3, wrong)
    assert "seed must be" in refusal(zipf, 3, 1.0, wrong)
    assert "seed must be" in refusal(hot, 3, 0.5, 0.5, wrong)
    assert "seed must be" in refusal(build, "chase", 3, wrong)


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf"), True, None, "1", 1j, 10**400])
def test_wrong_fractions_and_exponents_are_refused(wrong):
    assert "exponent must be a finite number of at least 0" in refusal(zipf, 3, wrong)
    assert "accesses must be a number from 0 to 1" in refusal(hot, 3, wrong, 0.5)
    assert "elements must be a number from 0 to 1" in refusal(hot, 3, 0.5, wrong)


@pytest.mark.parametrize(
    ("word", "label", "expected"),
    [
        ("permutation", "permutation", permutation(30, 7)),
        (" Random ", "permutation", permutation(30, 7)),
        ("stride1", "stride1", np.arange(30)),
        ("stride:4", "stride:4", stride(30, 4)),
        ("STRIDE:04", "stride:4", stride(30, 4)),
        ("chase", "chase", chase(30, 7)),
        ("central", "central", central(30)),
        ("zipf:1.0", "zipf:1", zipf(30, 1.0, 7)),
        ("zipf:0.99", "zipf:0.99", zipf(30, 0.99, 7)),
        ("hot:0.9:1e-1", "hot:0.9:0.1", hot(30, 0.9, 0.1, 7)),
    ],
)
def test_patterns_by_word(word, label, expected):
    made_label, made = build(word, 30, 7)
    assert made_label == label
    assert is_index_array(made, 30)
    assert np.array_equal(made, expected)
    again_label, again = build(label, 30, 7)
    assert again_label == label
    assert np.array_equal(again, made)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "an index pattern is one of permutation, stride1, stride:STEP"),
        ("rnadom", "not 'rnadom'"),
        ("stride:", "step must be an integer, not ''"),
        ("stride:0", "step must be at least 1, not 0"),
        ("stride:99999999999999999999", "step must be at most"),
        ("chase:1", "an index pattern is one of"),
        ("zipf:x", "exponent must be a number, not 'x'"),
        ("zipf:-1", "exponent must be a finite number of at least 0, not -1.0"),
        ("hot:0.9:x", "elements must be a number, not 'x'"),
        ("hot:2:0.1", "accesses must be a number from 0 to 1, not 2.0"),
        ("hot:0.9:1.01", "elements must be a number from 0 to 1, not 1.01"),
        ("no/such/file", "the path of a file that exists, not 'no/such/file'"),
        ("a.\0", "the path of a file that exists"),
        ("." * 5000, "the path of a file that exists"),
        ("/", "/ can't be read: Is a directory"),
    ],
)
def test_wrong_patterns_are_refused(word, message):
    assert message in refusal(build, word, 30)


@settings(PROPERTY, max_examples=150)
@given(
    st.text(max_size=20)
    | st.from_regex(r"(stride|zipf|hot|chase)(:-?[0-9.e]{0,4}){0,3}", fullmatch=True)
)
def test_any_text_makes_an_index_array_or_one_sentence(text):
    made = unless_refused(build, text, 20)
    if made is not None:
        label, array = made
        assert label
        assert is_index_array(array, 20)


def test_arrays_are_labelled_as_such():
    label, array = build([2, 0, 1], 3)
    assert label == "array"
    assert array.tolist() == [2, 0, 1]
    assert build(np.array([1, 1, 1]), 3, repeats=True)[1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["<i8", ">i8", "u4", "i2"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_files_are_read(tmp_path, dtype, version):
    values = permutation(50, 1)
    path = tmp_path / "idx.NPY"
    with path.open("wb") as stream:
        np.lib.format.write_array(stream, values.astype(dtype), version)
    assert np.array_equal(indices.read(path), values)
    label, array = build(path, 50)
    assert label == "file idx.NPY"
    assert is_index_array(array, 50)
    assert np.array_equal(array, values)
    assert np.array_equal(build(str(path), 50)[1], values)


def test_columns_of_parquet_files_are_read(tmp_path):
    values = permutation(50, 1)
    frame = pd.DataFrame({"i": values.astype(np.int32), "x": values / 2})
    frame.to_parquet(tmp_path / "idx.parquet")
    assert np.array_equal(indices.read(f"{tmp_path}/idx.parquet:i"), values)
    for name, says in {
        "idx.parquet:x": "idx.parquet must hold whole numbers, not float64 values",
        "idx.parquet:y": "idx.parquet has no column 'y'",
        "idx.parquet:": "idx.parquet has no column ''",
        "missing.parquet:i": "missing.parquet",
    }.items():
        assert says in refusal(indices.read, f"{tmp_path}/{name}")


@pytest.mark.parametrize("name", ["idx.txt", "idx.csv", "idx"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n  \n"])
def test_text_files_are_read(tmp_path, name, end, last):
    values = permutation(50, 1)
    path = tmp_path / name
    path.write_bytes((end.join(map(str, values)) + last).encode())
    assert indices.read(str(path)).dtype == np.int64
    label, array = build(str(path), 50)
    assert label == f"file {name}"
    assert np.array_equal(array, values)


def test_a_pattern_has_precedence_over_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("zipf:1.5").write_text("0\n")
    assert build("zipf:1.5", 1)[0] == "zipf:1.5"
    assert build("./zipf:1.5", 1)[0] == "file zipf:1.5"
    Path("plain").write_text("0\n")
    assert "not 'plain'" in refusal(build, "plain", 1)
    assert build(Path("plain"), 1)[0] == "file plain"


NO_ARRAY = "{} can't be read as a NumPy array: "
DAMAGED = (
    b"'zz', 'fortran_order': False, 'shape': (2,)",
    *(
        b"'<i8', 'fortran_order': False, 'shape': (%s,)" % length
        for length in (b"2", b"-2", b"1000000000000000", b"9" * 40)
    ),
)


def saved(values):
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


def npy(header):
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\n1.0\n", "line 2 of {} must be one whole number, not '1.0'"),
        ("index\n0\n", "line 1 of {} must be one whole number, not 'index'"),
        ("0\n\n1\n", "line 2 of {} must be one whole number, not ''"),
        ("0\n٣\n", "line 2 of {} must be one whole number, not '٣'"),
        ("9" * 30, "{} must hold whole numbers that fit 64 bits"),
        ("9" * 5000, "line 1 of {} must be one whole number"),
        (saved([0.0, 1.0]), "idx.npy must hold whole numbers, not float64 values"),
        (saved(np.zeros((2, 1), dtype=int)), "idx.npy must be a one-dimensional array"),
        (saved(np.array([0, 1], dtype=object)), f"{NO_ARRAY}Array can't be memory-mapped"),
        (saved([0, 2]), "idx.npy[1] must be from 0 to 1, not 2"),
        (b"", NO_ARRAY),
        (npy(b"(((("), NO_ARRAY),
        (npy(b"\xff\xfe"), NO_ARRAY),
        *((npy(b"{'descr': %s, }" % header), NO_ARRAY) for header in DAMAGED),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    is_text = isinstance(content, str)
    path = tmp_path / ("idx.txt" if is_text else "idx.npy")
    path.write_bytes(content.encode() if is_text else content)
    assert message.format(path) in refusal(build, path, 2)


def test_indices_of_files_are_checked(tmp_path):
    path = tmp_path / "idx.txt"
    path.write_text("0\n2\n0\n")
    assert "idx.txt[2] repeats 0: a permutation of 0 to 2" in refusal(build, path, 3)
    assert build(path, 3, repeats=True)[1].tolist() == [0, 2, 0]
    assert "idx.txt must have one index for each of 4 elements, not 3" in refusal(build, path, 4)
    path.unlink()
    assert f"{path} does not exist" in refusal(build, path, 4)


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")
def test_any_damage_to_an_npy_file_is_one_sentence_or_other_numbers(tmp_path):
    path = tmp_path / "idx.npy"
    np.save(path, np.arange(4))
    sound = path.read_bytes()
    generator = np.random.default_rng(4)
    for _ in range(2000):
        damaged = bytearray(sound[: generator.integers(len(sound) + 1)])
        for place in generator.integers(0, max(len(damaged), 1), 3)[: len(damaged)]:
            damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        array = unless_refused(indices.read, path)
        assert array is None or array.dtype == np.int64
