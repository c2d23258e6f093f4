"""Files of Matrix Market, packed or not, are read, or refused in one line."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from checking import PROPERTY, allocating_at_most, unless_refused
from hypothesis import given, settings
from hypothesis import strategies as st
from small_matrices import dense, refusal, same

from memkern.errors import InputError
from memkern.inputs.matrices import build, read


def market(text, kind="coordinate real general"):
    return f"%%MatrixMarket matrix {kind}\n{text}"


def written(tmp_path, text, name="a.mtx"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


A_FEW = [[1.5, 0], [0, -25]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (market("2 2 2\n1 1 1.5\n2 2 -2.5e1\n"), A_FEW),
        (market("2 2 2\n2 2 -25.\n1 1 1.5"), A_FEW),
        (market("2 2 2\r\n1 1 15E-1\r\n2 2 -25\r\n").replace("general\n", "general\r\n"), A_FEW),
        (market("% a comment\n%\n\n 2\t2 2 \n\n \t1  1 1.5 \n\n2 2 -25\n\n \n"), A_FEW),
        (" %%MatrixMarket  MATRIX Coordinate REAL General\n2 2 2\n1 1 1.5\n2 2 -25\n", A_FEW),
        (market("2 3 0\n"), [[0, 0, 0]] * 2),
        (market("1 2 3\n1 1 1\n1 2 5\n1 1 2\n"), [[3, 5]]),
        (market("1 1 1\n01 1 1\n"), [[1]]),
        (market("1 1 1\n1 1 2\n", "coordinate double general"), [[2]]),
        (market("1 1 1\n1 1 -2\n", "coordinate integer general"), [[-2]]),
        (market("1 1 1\n1 1 2\n", "coordinate unsigned-integer general"), [[2]]),
        (market("1 2 1\n1 2\n", "coordinate pattern general"), [[0, 1]]),
        (market("2 2 2\n1 1\n2 1\n", "coordinate pattern symmetric"), [[1, 1], [1, 0]]),
        (market("2 2 2\n1 1 4\n2 1 3\n", "coordinate real symmetric"), [[4, 3], [3, 0]]),
        (market("2 2 2\n1 1 4\n1 2 3\n", "coordinate real symmetric"), [[4, 3], [3, 0]]),
        (market("2 2 2\n2 1 4\n2 1 3\n", "coordinate integer symmetric"), [[0, 7], [7, 0]]),
        (market("2 2 1\n2 1 3\n", "coordinate real skew-symmetric"), [[0, -3], [3, 0]]),
        (market("1 1 1\n1 1 3 0\n", "coordinate complex general"), [[3]]),
        (market("2 2 1\n2 1 3 -0.0\n", "coordinate complex hermitian"), [[0, 3], [3, 0]]),
        (market("2 2 1\n2 1 3\n", "coordinate real hermitian"), [[0, 3], [3, 0]]),
        (market("2 3\n1\n2\n3\n0\n5\n6\n", "array real general"), [[1, 3, 5], [2, 0, 6]]),
        (market("2 2\n1\n2\n3\n", "array integer symmetric"), [[1, 2], [2, 3]]),
        (market("2 2\n1\n2\n3\n", "array real hermitian"), [[1, 2], [2, 3]]),
        (
            market("3 3\n1\n2\n3\n", "array real skew-symmetric"),
            [[0, -1, -2], [1, 0, -3], [2, 3, 0]],
        ),
        (market("1 1\n7 0\n", "array complex general"), [[7]]),
        (market("2 2 2\n1 1 +1.5e+3\n2 2 -2\n"), [[1500, 0], [0, -2]]),
        (market("2 2 1\n2 1 +7\n", "coordinate integer general"), [[0, 0], [7, 0]]),
        ("\ufeff" + market("2 2 1\n2 1 7\n"), [[0, 0], [7, 0]]),
        (
            market("2 2 3\n1 1 0\n2 1 5\n2 2 0.0\n", "coordinate real skew-symmetric"),
            [[0, -5], [5, 0]],
        ),
    ],
)
def test_files_of_every_kind(tmp_path, text, expected):
    path = written(tmp_path, text)
    assert np.array_equal(dense(read(path)), expected)
    assert np.array_equal(dense(read(str(path))), expected)
    packed = written(tmp_path, gzip.compress(text.encode()), "b.MTX.GZ")
    assert np.array_equal(dense(read(packed)), expected)
    label, matrix = build(str(packed))
    assert label == "file b.MTX.GZ"
    assert np.array_equal(dense(matrix), expected)


def test_zeros_of_coordinates_are_kept_and_those_of_arrays_not(tmp_path):
    assert read(written(tmp_path, market("2 2 2\n1 1 0\n2 2 1\n"))).nnz == 2
    assert read(written(tmp_path, market("2 1\n0\n1\n", "array real general"))).nnz == 1


SENTENCE_OF_ENTRY = "line 3 of {} must be a row and a column, counted from 1, and a number"


BAD = [
    ("", "{} is empty, but must hold a matrix"),
    (
        "2 2 1\n1 1 1\n",
        "{} must begin like %%MatrixMarket matrix coordinate real general, not with '2",
    ),
    (market("1 1 1\n1 1 1\n").upper(), "{} must begin like"),
    ("\n" + market("1 1 1\n1 1 1\n"), "{} must begin like"),
    (market("1 1 1\n1 1 1\n", "coordinate real"), "{} must begin like"),
    (
        market("1 1 1\n1 1 1\n", "csr real general"),
        "must contain one of coordinate, array, not 'csr'",
    ),
    (market("1 1 1\n1 1 1\n", "coordinate real upper"), "hermitian, not 'upper'"),
    (market("1 1\n", "array pattern general"), "{} must have values"),
    (market("2 2 1\n2 1\n", "coordinate pattern skew-symmetric"), "{} must have values"),
    (market(""), "line 2 of {} must be the numbers of rows, columns and entries, not ''"),
    (market("% only\n\n"), "line 4 of {} must be the numbers of"),
    (market("2 2 1 1\n1 1 1\n"), "line 2 of {} must be the numbers"),
    (market("2 2 1\n1\n", "array real general"), "the numbers of rows and columns, not '2 2 1'"),
    (market("2.0 2 1\n"), "not '2.0 2 1'"),
    (market("-2 2 1\n"), "not '-2 2 1'"),
    (market("0 0 0\n"), "{} must have at least one row and one column"),
    (market("99999999999999999999 1 1\n1 1 1\n"), "{} can't be read: a matrix has at most"),
    (market("1 4611686018427387904 1\n1 1 1\n"), "has at most 1099511627776 columns"),
    (market("1 1 9223372036854775807\n1 1 1\n"), "declares, 9223372036854775807, not 1"),
    (market(f"{'9' * 5000} 1 1\n1 1 1\n"), "line 2 of {} must be the numbers"),
    (market("3000000 300000\n1\n", "array real general"), "declares, 900000000000, not 1"),
    (
        market("2 2 3\n1 1 1\n2 2 1\n"),
        "{} must have as many entries as its size line declares, 3, not 2",
    ),
    (market("2 2\n1\n2\n3\n", "array real general"), "declares, 4, not 3"),
    (market("2 2\n1\n2\n3\n4\n", "array real symmetric"), "declares, 3, not 4"),
    (market("2 2\n1\n2\n", "array real skew-symmetric"), "declares, 1, not 2"),
    (market("2 2 1\n3 1 1\n"), "{} can't be read as a Matrix Market file: Line 3: Row index"),
    (market("2 2 1\n4294967297 1 1\n"), "Line 3: Integer out of range"),
    (market("1 1 1\n1 1 99999999999999999999\n", "coordinate integer general"), "Integer out of"),
    (market("2 2 1\n0 1 1\n"), SENTENCE_OF_ENTRY + ", not '0 1 1'"),
    (market("2 2 1\n1.0 1 1\n"), SENTENCE_OF_ENTRY),
    (market("2 2 1\n1 1 nan\n"), SENTENCE_OF_ENTRY),
    (
        market("2 2 1\n1 1 1e999\n"),
        "{} must hold finite numbers, but the value in row 0 and column 0",
    ),
    (market("2 2 1\n1 1\n"), SENTENCE_OF_ENTRY),
    (market("2 2 2\n1 1 1 2 2 2\n"), SENTENCE_OF_ENTRY),
    (market("2 2 2\n1 1 1\n% a comment\n2 2 1\n"), "line 4 of {} must be a row"),
    (
        market("1 1 1\n1 1 1\n", "coordinate complex general"),
        "and two numbers, the parts of a value",
    ),
    (market("1 1 1\n1 1 1.5\n", "coordinate integer general"), "counted from 1, and an integer"),
    (market("2 2\n1 2\n3 4\n", "array real general"), "line 3 of {} must be a number, not '1 2'"),
    # SciPy's reader accepts these silently.
    (market("2 2 1\n1 1 5abc\n"), SENTENCE_OF_ENTRY),
    (market("2 2 1\n1 1 1.0D+2\n"), SENTENCE_OF_ENTRY),
    (
        market("2 2 1\n1 1 3\n", "coordinate real skew-symmetric"),
        "{} must have a diagonal of zeros",
    ),
    (market("1 1 1\n1 1 3 1\n", "coordinate complex general"), "{} must be real, but some of its"),
    # SciPy's reader crashes on these.
    (market("2 2 2\n1 1 1.5\0\n2 2 1\n"), "line 3 of {} must be a row"),
    (market("2 3\n1\n2\n3\n", "array real symmetric"), "because it is symmetric, not 2 x 3"),
    (market("1 1 1\n1 1 " + "1" * 100000 + "\n"), SENTENCE_OF_ENTRY),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=range(len(BAD)))
def test_bad_files_are_refused(tmp_path, text, says):
    path = written(tmp_path, text)
    assert says.format(path) in refusal(read, path)
    packed = written(tmp_path, gzip.compress(text.encode()), "b.mtx.gz")
    assert says.format(packed) in refusal(build, packed)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    assert f"{tmp_path} can't be read: Is a directory" in refusal(read, tmp_path)
    missing = tmp_path / "none.mtx"
    assert f"{missing} does not exist" in refusal(read, missing)
    assert "the path of a file that exists" in refusal(build, str(missing))
    text = market("1 1 1\n1 1 1\n").encode()
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        sound = compress(text)
        for part in (sound[:12], sound[:-4], sound[:20] + b"\xff\xff" + sound[22:]):
            path = written(tmp_path, part, "a.mtx.gz")
            assert f"{path} can't be decompressed: " in refusal(read, path)


def archive(*names, compress=gzip.compress):
    """Return a tar archive of matrices; the n-th one has a single entry, in row n."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number, name in enumerate(names):
            text = market(f"9 9 1\n{number + 1} 1 1\n").encode()
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return compress(out.getvalue())


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_files_and_archives_are_decompressed(tmp_path, compress):
    text = market("9 9 1\n1 1 1\n").encode()
    expected = dense(read(written(tmp_path, text)))
    # The suffix of the name does not matter.
    assert np.array_equal(dense(read(written(tmp_path, compress(text), "b.mtx.xz"))), expected)
    for names in (["x/a.mtx"], ["b/b.mtx", "b/b_b.mtx", "b/b_x.mtx"], ["c.mtx", "readme.txt"]):
        path = written(tmp_path, archive(*names, compress=compress), "c.tar.gz")
        assert np.array_equal(dense(read(path)), expected)
    for names, shown in ((["a.mtx", "b/c.mtx"], "a.mtx, b/c.mtx"), (["readme.txt"], "none")):
        path = written(tmp_path, archive(*names, compress=compress), "c.tar.gz")
        assert f"holds '{shown}': unpack it" in refusal(read, path)


def test_a_pipe_of_a_compressed_file_is_read(tmp_path):
    text = market("9 9 1\n1 1 1\n").encode()
    os.mkfifo(tmp_path / "pipe")
    thread = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[gzip.compress(text)])
    thread.start()
    assert dense(read(tmp_path / "pipe"))[0, 0] == 1
    thread.join()


HARWELL = (
    "1138 bus                                                                MATRIX\n"
    "             6             1             1             4             0\n"
    "RSA             1138          1138          2596             0\n"
)
OTHER = [
    (b"MATLAB 5.0 MAT-file, Platform: GLNXA64", "is a MATLAB file, not a Matrix Market file"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 or MATLAB 7.3 file"),
    (b"PK\x03\x04\x14", "is a zip file, not a Matrix Market file: unzip it"),
    (HARWELL.encode(), "is a Harwell-Boeing or Rutherford-Boeing file"),
    (b"%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n", "with two %"),
    (market("34 78\n1 2 3\n").encode(), "add the number of columns as the second one"),
    (
        market("3 3 1\n1 2 0.5\n", "coordinate pattern general").encode(),
        "write real instead of pattern in the first line",
    ),
    (
        market("3 3 2\n1 2 1\n2 1 1\n", "coordinate real symmetric").encode(),
        "some on both: write general in its first line",
    ),
]


@pytest.mark.parametrize(("content", "says"), OTHER)
def test_other_formats_are_named_with_what_converts_them(tmp_path, content, says):
    message = refusal(read, written(tmp_path, content))
    assert says in message and "\\x" not in message


HUGE = 10**11


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        # The row starts alone take 400 GB.
        (market(f"{HUGE} {HUGE} 1\n1 1 1\n"), f"a matrix of {HUGE} x {HUGE} with 1 nonzeros needs"),
        (
            market(f"1000 1000 {HUGE}\n" + "1 1 1\n" * 200_000),
            f"declares, {HUGE}, but a file of its",
        ),
        (market("9 9 3\n" + "\n" * 3_000_000), "declares, 3, but its text is longer than"),
        (
            market("9 9 3\n1 1 1\n" + "2 2 1\n" * 200_000),
            "declares, 3, but its text is longer than",
        ),
        ("%%MatrixMarket" + "%" * 2_000_000, "must begin like %%MatrixMarket"),
        ("\0" * 3_000_000, "must begin like %%MatrixMarket"),
    ],
)
def test_sizes_in_headers_are_checked_before_memory_is_allocated(
    tmp_path, monkeypatch, text, says, packed
):
    content = gzip.compress(text.encode()) if packed else text.encode()
    path = written(tmp_path, content, "a.mtx" + ".gz" * packed)
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (2**30, "the test"))
    refusal(read, path)  # imports modules
    with allocating_at_most(8 * 2**20):
        assert says in refusal(read, path)


def test_a_gzip_bomb_is_inflated_no_further_than_the_sizes_in_its_header(tmp_path):
    path = tmp_path / "bomb.mtx.gz"
    with gzip.open(path, "wb") as file:
        file.write(market("9 9 3\n").encode())
        for _ in range(64):
            file.write(b"\n" * 2**20)
    with allocating_at_most(8 * 2**20):
        assert "text is longer than" in refusal(read, path)


def test_a_text_of_more_than_a_mebibyte_is_read_whole(tmp_path):
    entries = "".join(f"{i} {i} 1.{i:06d}\n" for i in range(1, 70_001))
    text = market(f"70000 70000 70000\n{entries}").encode().removesuffix(b"\n")
    assert len(text) > 2**20
    plain = read(written(tmp_path, text))
    assert plain.nnz == 70_000 and plain.data[-1] == 1.07
    assert same(read(written(tmp_path, gzip.compress(text), "a.mtx.gz")), plain)
    cut = written(tmp_path, gzip.compress(text)[:-9], "b.mtx.gz")
    assert f"{cut} can't be decompressed" in refusal(read, cut)


def test_matrices_without_memory_are_refused(monkeypatch):
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (2**30, "the test"))
    message = refusal(build, "hpcg:2000")
    size = "8000000000 x 8000000000 with 215784071992 nonzeros"
    assert f"a matrix of {size} needs about 3.64e" in message
    assert message.endswith(" GB of memory, but the test leaves 1.07 GB")


def test_an_error_in_a_long_file_is_reported_with_its_line(tmp_path):
    lines = [f"{1 + i % 7} {1 + i % 5} {i}" for i in range(20000)]
    lines[12345] = "1 1 x"
    path = written(tmp_path, market("7 7 20000\n" + "\n".join(lines)))
    assert f"line 12348 of {path} must be a row" in refusal(read, path)
    lines[12345] = "8 1 1"
    path = written(tmp_path, market("7 7 20000\n" + "\n".join(lines)))
    assert "Line 12348: Row index out of bounds" in refusal(read, path)


@settings(PROPERTY, max_examples=150)
@given(
    st.from_regex(r"[-+]?[0-9]{0,3}\.?[0-9]{0,3}([eEdD][-+]?[0-9]{1,2})?[ \tx]?", fullmatch=True)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
)
def test_numbers_are_read_as_in_python_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "number.mtx"
    path.write_text(market(f"1 1 1\n1 1 {text}\n"))
    try:
        matrix = read(path)
    except InputError:
        with pytest.raises(ValueError, match="could not convert"):
            # A plus sign is refused, although Python accepts it.
            float("x" if text.startswith("+") else text)
    else:
        assert matrix.toarray() == [[float(text)]]


def test_damaged_files_are_refused_in_one_line_or_another_matrix(tmp_path):
    kinds = ["coordinate real general", "coordinate real symmetric", "array real symmetric"]
    sound = [
        market("5 5 4\n1 1 1.5\n2 1 2e1\n\n3 3 -4\n5 4 .25\n", kinds[0]).encode(),
        market("3 3 3\n1 1 1\n2 1 2\n3 2 3\n", kinds[1]).encode(),
        market("3 3\n1\n2\n3\n4\n5\n6\n", kinds[2]).encode(),
    ]
    generator = np.random.default_rng(4)
    good = 0
    for turn in range(900):
        damaged = bytearray(sound[turn % 3])
        for place in generator.integers(0, len(damaged), 1 + turn % 2):
            damaged[place] = generator.choice([*b"0123456789.-e \n%\0", generator.integers(256)])
        path = written(tmp_path, bytes(damaged))
        matrix = unless_refused(read, path)
        if matrix is None:
            continue
        # A size may have become larger.
        if max(matrix.shape) < 1000:
            dense(matrix)
        good += 1
    assert good > 10


def test_the_reader_uses_the_processors_it_may_use(tmp_path, monkeypatch):
    from scipy.io import _fast_matrix_market as reader

    path = written(tmp_path, market("1 1 1\n1 1 1\n"))
    used = []
    mmread = scipy.io.mmread

    def watched(source):
        used.append(reader.PARALLELISM)
        return mmread(source)

    monkeypatch.setattr(scipy.io, "mmread", watched)
    before = reader.PARALLELISM
    read(path)
    assert used == [len(os.sched_getaffinity(0))]
    assert before == reader.PARALLELISM
    refusal(read, written(tmp_path, market("1 1 1\n1 2 1\n")))
    assert before == reader.PARALLELISM


def test_paths_may_look_like_generators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("arrow:3").write_text(market("1 1 1\n1 1 7\n"))
    assert build("arrow:3")[0] == "arrow:3"
    assert build("./arrow:3")[0] == "file arrow:3"
    assert build(Path("arrow:3"))[1].toarray() == [[7]]
