"""All generators: seeds, index widths, memory, names in texts, wrong arguments."""

import math
import tracemalloc
from inspect import signature

import numpy as np
import pytest
from checking import PROPERTY, unless_refused
from hypothesis import given
from hypothesis import strategies as st
from small_matrices import CASES, refusal, same

from memkern.inputs.matrices import (
    GENERATORS,
    WORDS,
    anderson,
    arrow,
    assembly,
    banded_random,
    build,
    chains,
    five_point,
    free_fermions,
    from_sparse,
    graphene,
    grids,
    hpcg,
    kkt,
    reorder,
    rmat,
    rows_for,
    seven_point,
    spin_chain,
    statistics,
    synthetic,
    tall_skinny,
    topological_insulator,
)


def test_the_sizes_of_the_papers_matrices(monkeypatch):
    def sizes(rows, columns, nonzeros, parts):
        assert rows == columns
        return rows, nonzeros

    for module in (grids, chains):
        monkeypatch.setattr(module, "assemble", sizes)
    assert hpcg(192) == (7_077_888, 189_119_224)
    assert spin_chain(26) == (10_400_600, 145_608_400)
    assert free_fermions(26) == (10_400_600, 140_616_112)
    assert graphene(4096, 4096) == (16_777_216, 218_013_704)


SEEDED = ["anderson", "graphene", "topins", "band", "rmat", "kkt"]


@pytest.mark.parametrize("name", SEEDED)
def test_the_seed_selects_the_matrix(name):
    make = CASES[name]
    assert same(make(3), make(3))
    assert not same(make(3), make(4))


@pytest.mark.parametrize("name", CASES)
def test_blocks_make_no_difference(name, monkeypatch):
    expected = CASES[name]()
    for block in (1, 50, 777):
        monkeypatch.setattr(assembly, "BLOCK", block)
        assert same(CASES[name](), expected)


@pytest.mark.parametrize("name", CASES)
def test_indices_are_as_wide_as_needed(name, monkeypatch):
    expected = CASES[name]()
    largest = max(*expected.shape, expected.nnz)
    monkeypatch.setattr(assembly, "_INT32_MAX", largest)
    fits = CASES[name]()
    monkeypatch.setattr(assembly, "_INT32_MAX", largest - 1)
    wide = CASES[name]()
    assert fits.indices.dtype == fits.indptr.dtype == np.int32
    assert wide.indices.dtype == wide.indptr.dtype == np.int64
    assert same(fits, expected)
    assert same(wide, expected)
    # Matrices made from it keep 64-bit indices, although SciPy would narrow them.
    assert from_sparse(wide).indices.dtype == from_sparse(wide).indptr.dtype == np.int64
    if wide.shape[0] == wide.shape[1]:
        again, permutation = reorder(wide)
        assert again.indices.dtype == again.indptr.dtype == np.int64
        assert np.array_equal(again.toarray(), expected.toarray()[permutation][:, permutation])


def peak_of(make):
    """Return the bytes of a matrix and the peak of allocated bytes while it was made."""
    hpcg(2)  # imports SciPy
    peaks = []
    # The lower of two peaks, since other threads of the interpreter may allocate as well.
    for _ in range(2):
        tracemalloc.start()
        try:
            matrix = make()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        size = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
        del matrix
    return size, min(peaks)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hpcg(32),
        lambda: anderson(32, 32, 32),
        lambda: graphene(200, 150),
        lambda: topological_insulator(16, 16, 16),
        lambda: spin_chain(18),
        lambda: free_fermions(18),
        lambda: tall_skinny(20000, 20),
        lambda: banded_random(20000, 1000, 15),
        lambda: rmat(15),
        lambda: kkt(30, 27000),
        lambda: arrow(200000),
    ],
)
def test_no_generator_holds_its_matrix_twice(make, monkeypatch):
    # These matrices are small, so blocks must be small too.
    monkeypatch.setattr(assembly, "BLOCK", 2**12)
    monkeypatch.setattr(synthetic, "_EDGES_AT_ONCE", 2**12)
    size, peak = peak_of(make)
    assert size > 2.5e6
    assert peak < 1.75 * size


# Values of the parameters without a default.
SOUND = {
    **dict.fromkeys(("nx", "ny", "nz"), 3),
    **{"rows": 5, "nonzeros_per_row": 1, "bandwidth": 1, "sites": 4, "scale": 3, "n": 2},
    **{"constraints": 2, "bytes_B": 100},
}
WRONG = {
    "int": [0, -1, 1.0, True, None, "3", math.nan, 2**70],
    "float": [-1, True, None, "3", math.nan, math.inf, 10**400, 1j],
}
FROM_ZERO = ("seed", "bandwidth", "up", "particles")
PARAMETERS = {
    f"{make.__name__} {parameter.name}": (make, parameter)
    for make in (*GENERATORS.values(), rows_for)
    for parameter in signature(make).parameters.values()
    # An anisotropy may be negative.
    if parameter.annotation.partition(" ")[0] in WRONG and parameter.name != "anisotropy"
}


@pytest.mark.parametrize(("make", "parameter"), PARAMETERS.values(), ids=PARAMETERS)
def test_wrong_numbers_are_refused(make, parameter):
    name, (kind, _, optional) = parameter.name, parameter.annotation.partition(" ")
    given = {each: SOUND[each] for each in signature(make).parameters if each in SOUND}
    for wrong in WRONG[kind]:
        if (wrong is None and optional) or (wrong == 0 and name in FROM_ZERO):
            continue
        message = refusal(make, **{**given, name: wrong})
        assert message.startswith(f"{name} must be") or "a matrix has at most" in message


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hpcg(2, 3), "hpcg needs nx alone, or all of nx, ny and nz"),
        (lambda: hpcg(10000), "a matrix has at most 1099511627776 nonzeros, not 26994600359992"),
        (lambda: anderson(3, 2, 3), "ny must be at least 3 where the lattice is periodic, not 2"),
        (lambda: topological_insulator(3, 1, 3), "ny must be at least 3 where"),
        (lambda: graphene(2, 2, 4), "neighbours must be at most 3, not 4"),
        (lambda: graphene(2**40, 2), "at most 1099511627776 rows, not 2199023255552"),
        (lambda: spin_chain(1), "sites must be at least 2, not 1"),
        (lambda: spin_chain(63), "sites must be at most 62, not 63"),
        (lambda: spin_chain(62), "at most 1099511627776 rows, not 465428353255261088"),
        (lambda: spin_chain(4, 5), "up must be at most 4, not 5"),
        (lambda: spin_chain(4, anisotropy=math.nan), "anisotropy must be a finite number, not nan"),
        (lambda: free_fermions(4, 5), "particles must be at most 4, not 5"),
        (lambda: free_fermions(2), "sites must be at least 3, not 2"),
        (lambda: tall_skinny(5, 6, 5), "nonzeros_per_row must be at most 5, not 6"),
        (lambda: banded_random(5, 5, 1), "bandwidth must be at most 4, not 5"),
        (lambda: banded_random(5, 1, 4), "nonzeros_per_row must be at most 3, not 4"),
        (lambda: rmat(32), "scale must be at most 31, not 32"),
        (lambda: rmat(3, a=0.6, b=0.3, c=0.2), "a, b and c must add up to at most 1, not 1.1"),
        (lambda: kkt(2, 9), "constraints must be at most 8, not 9"),
        (lambda: kkt(2, 1, 9), "nonzeros_per_constraint must be at most 8, not 9"),
        (lambda: reorder(tall_skinny(2, 1, 3)), "must be square, not 2 x 3"),
        (lambda: reorder(arrow(3), "amd"), "order must be rcm, not 'amd'"),
        (lambda: reorder([[1]]), "a matrix must be SciPy's, not [[1]]"),
        (lambda: statistics(np.eye(2)), "a matrix must be SciPy's, not array"),
    ],
)
def test_wrong_arguments_are_refused(call, says):
    assert says in refusal(call)


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        ("hpcg:3:4:5", "hpcg:3:4:5", lambda: hpcg(3, 4, 5)),
        (" HPCG:3 ", "hpcg:3", lambda: hpcg(3, 3, 3)),
        ("tsm:10:3", "tsm:10:3", lambda: tall_skinny(10, 3)),
        ("tsm:10:3:7", "tsm:10:3:7", lambda: tall_skinny(10, 3, 7)),
        ("5pt:3:4", "5pt:3:4", lambda: five_point(3, 4)),
        ("7pt:3:4:5", "7pt:3:4:5", lambda: seven_point(3, 4, 5)),
        ("spin:8", "spin:8", lambda: spin_chain(8, 4)),
        ("fermions:8", "fermions:8", lambda: free_fermions(8, 4)),
        ("spin:8:3", "spin:8:3", lambda: spin_chain(8, 3)),
        ("fermions:8:3", "fermions:8:3", lambda: free_fermions(8, 3)),
        ("anderson:3:4:5", "anderson:3:4:5:16.5:9", lambda: anderson(3, 4, 5, 16.5, 9)),
        ("anderson:3:4:5:2e0:7", "anderson:3:4:5:2:7", lambda: anderson(3, 4, 5, 2, 7)),
        ("graphene:5:6", "graphene:5:6:3:1:9", lambda: graphene(5, 6, 3, 1, 9)),
        ("graphene:5:6:1:0", "graphene:5:6:1:0:9", lambda: graphene(5, 6, 1, 0)),
        ("topins:3:4:5", "topins:3:4:5:0:9", lambda: topological_insulator(3, 4, 5)),
        ("band:20:5:3", "band:20:5:3:9", lambda: banded_random(20, 5, 3, 9)),
        ("rmat:5", "rmat:5:16:9", lambda: rmat(5, seed=9)),
        ("kkt:3:4", "kkt:3:4:4:9", lambda: kkt(3, 4, seed=9)),
        ("arrow:9", "arrow:9", lambda: arrow(9)),
    ],
)
def test_texts_select_generators(text, label, expected):
    made, matrix = build(text, seed=9)
    assert made == label
    assert same(matrix, expected())
    assert same(build(label)[1], matrix)


def test_every_generator_has_a_name_in_texts():
    assert [form.partition(":")[0].partition("[")[0] for form in WORDS] == list(GENERATORS)
    assert {maker.__name__ for maker in GENERATORS.values()} == {
        name
        for module in (grids, chains, synthetic)
        for name, made in vars(module).items()
        if getattr(made, "__annotations__", {}).get("return") == "CSR"
        and made.__module__ == module.__name__
        and not name.startswith("_")
    }
    message = refusal(build, "laplace:5")
    assert all(form in message for form in WORDS)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nothing", "or the path of a file that exists, not 'nothing'"),
        ("hpcg:", "nx must be an integer, not ''"),
        ("hpcg:2:3", "matrix 'hpcg:2:3' must have the form hpcg[:N or :NX:NY:NZ]"),
        ("hpcg:0", "nx must be at least 1, not 0"),
        ("spin:8:x", "up must be an integer, not 'x'"),
        ("anderson:3:3:3:x", "disorder must be a number, not 'x'"),
        (5, "a matrix is a text, a path, a SciPy matrix, a NumPy array or triplets, not 5"),
        (([0], [0]), "triplets must be (rows, columns, values)"),
        (np.ones(3), "the matrix must be an array of rows and columns, not of shape (3,)"),
        (np.array([["x"]]), "the matrix must hold real numbers, not <U1 values"),
        (np.array([[1, np.inf]]), "row 0 and column 1, counted from 0, is inf"),
    ],
)
def test_what_is_no_matrix_is_refused(given, says):
    assert says in refusal(build, given)


@PROPERTY
@given(
    st.text(max_size=20)
    | st.from_regex(r"(hpcg|spin|rmat|band|tsm|kkt|topins)(:-?[0-9.e]{0,2}){0,4}", fullmatch=True)
)
def test_any_text_is_a_matrix_or_refused_in_one_line(text):
    with pytest.MonkeyPatch.context() as patch:
        # Only sizes are checked: no matrix is made.
        for module in (grids, chains, synthetic):
            patch.setattr(module, "assemble", lambda *sizes: sizes)
        made = unless_refused(build, text)
    assert made is None or made[0]
