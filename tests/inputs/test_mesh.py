"""Meshes compared with coordinates of nodes and brute force; errors."""

import itertools

import numpy as np
import pytest
from checking import PROPERTY, refusal
from hypothesis import given
from hypothesis import strategies as st

from memkern.inputs.mesh import MAX_NODES, HexMesh, rows_of

SIZES = [(k, n) for k in range(1, 5) for n in range(1, 8)]


def coordinates(elements, degree):
    """Return z, y, x of the local nodes by element, on unit cubes with unevenly spaced nodes."""
    nodes = (1 - np.cos(np.pi * np.arange(degree + 1) / degree)) / 2
    inside = np.array(list(itertools.product(nodes, repeat=3)))
    corners = np.array(list(itertools.product(range(elements), repeat=3)), dtype=float)
    return np.concatenate([corner + inside for corner in corners]).round(9)


@pytest.mark.parametrize(("elements", "degree"), SIZES)
def test_nodes_at_one_place_share_an_id(elements, degree):
    places = coordinates(elements, degree)
    unique, expected = np.unique(places, axis=0, return_inverse=True)
    mesh = HexMesh(elements, degree, numbering="lexicographic")
    assert mesh.local_nodes == len(places) == (elements * (degree + 1)) ** 3
    assert mesh.global_nodes == len(unique) == (elements * degree + 1) ** 3
    assert mesh.ids.dtype == np.int64
    # Global nodes are numbered in the order of their places sorted by z, y, x.
    assert np.array_equal(mesh.ids, expected.reshape(-1))


@pytest.mark.parametrize(("elements", "degree"), SIZES)
def test_nodes_are_numbered_as_elements_meet_them(elements, degree):
    mesh, other = HexMesh(elements, degree), HexMesh(elements, degree, "none", "lexicographic")
    # Both numberings identify the same nodes: each id of one is paired with one id of the other.
    pairs = np.unique(np.stack([mesh.ids, other.ids]), axis=1)
    assert pairs.shape[1] == mesh.global_nodes == other.global_nodes
    highest = np.maximum.accumulate(np.concatenate([[-1], mesh.ids]))
    assert np.array_equal(mesh.ids[mesh.ids > highest[:-1]], np.arange(mesh.global_nodes))


@pytest.mark.parametrize(("elements", "degree"), SIZES)
def test_the_boundary_is_the_surface_of_the_box(elements, degree):
    places = coordinates(elements, degree)
    on_surface = ((places == 0) | (places == elements)).any(axis=1)
    masked = HexMesh(elements, degree, "boundary")
    assert np.array_equal(masked.ids, np.where(on_surface, -1, HexMesh(elements, degree).ids))
    assert masked.local_nodes == HexMesh(elements, degree).local_nodes
    assert masked.global_nodes == HexMesh(elements, degree).global_nodes
    assert len(masked.gather_rows()[1]) == np.count_nonzero(~on_surface)


@pytest.mark.parametrize(("elements", "degree"), SIZES)
def test_multiplicity_is_two_for_every_axis_along_which_a_node_lies_between_elements(
    elements, degree
):
    along = np.ones(elements * degree + 1, dtype=int)
    along[degree : elements * degree : degree] = 2
    expected = (along[:, None, None] * along[:, None] * along).ravel()
    mesh = HexMesh(elements, degree, numbering="lexicographic")
    assert mesh.multiplicity.dtype == np.int64
    assert np.array_equal(mesh.multiplicity, expected)
    assert mesh.multiplicity.sum() == mesh.local_nodes


def test_a_mesh_of_one_element_of_degree_one_may_be_all_boundary():
    mesh = HexMesh(1, 1, "boundary")
    assert mesh.ids.tolist() == [-1] * 8
    assert mesh.multiplicity.tolist() == [0] * 8
    starts, columns = mesh.gather_rows()
    assert starts.tolist() == [0] * 9
    assert columns.tolist() == []


def test_a_mesh_is_a_value():
    mesh = HexMesh(np.int64(2), np.int32(3))
    assert mesh == HexMesh(2, 3) != HexMesh(2, 3, "boundary")
    assert hash(mesh) == hash(HexMesh(2, 3))
    assert repr(mesh) == "HexMesh(elements=2, degree=3, masked='none', numbering='elements')"
    with pytest.raises(AttributeError):
        mesh.elements = 3
    with pytest.raises(ValueError, match="read-only"):
        mesh.ids[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        mesh.multiplicity[0] = 9


@PROPERTY
@given(st.data())
def test_rows_are_what_brute_force_finds(data):
    global_nodes = data.draw(st.integers(1, 12))
    ids = data.draw(st.lists(st.integers(-3, global_nodes - 1), max_size=40))
    dtype = data.draw(st.sampled_from([None, np.int64, np.int8, ">i4"]))
    starts, columns = rows_of(ids if dtype is None else np.array(ids, dtype), global_nodes)
    assert starts.dtype == columns.dtype == np.int64
    assert len(starts) == global_nodes + 1
    assert (starts[0], starts[-1]) == (0, len(columns))
    for node in range(global_nodes):
        row = columns[starts[node] : starts[node + 1]].tolist()
        assert row == [local for local, id_ in enumerate(ids) if id_ == node]


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, None, "3", float("nan"), 2**63])
def test_wrong_numbers_are_refused(wrong):
    assert "elements" in refusal(HexMesh, wrong, 1)
    assert "degree" in refusal(HexMesh, 1, wrong)
    assert "global_nodes" in refusal(rows_of, [0], wrong)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0, 1), "elements must be at least 1, not 0"),
        ((2, 1, "surface"), "masked must be none or boundary, not 'surface'"),
        ((2, 1, ["none"]), "masked must be none or boundary"),
        ((5161, 1), "5161 and 1 give 1099743906248"),
        # 2**66 nodes would be 0 in 64 bits.
        ((2**21, 1), "at most 1099511627776 local nodes"),
        ((2**63 - 1, 2**63 - 1), "give an integer of more than 128 bits"),
    ],
)
def test_bad_meshes_are_refused_before_anything_is_allocated(arguments, says):
    assert says in refusal(HexMesh, *arguments)


def test_the_largest_mesh_is_described_without_being_made():
    mesh = HexMesh(5160, 1)
    assert mesh.local_nodes == 10320**3 <= MAX_NODES
    assert mesh.global_nodes == 5161**3


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([0, 3, 1], "ids[1] must be below the number of global nodes, 3, not 3"),
        (np.array([0, 1, -1, 99]), "ids[3] must be below the number of global nodes, 3, not 99"),
        ([0, 1.0], "ids[1] must be an integer, not 1.0"),
        ("0", "ids must be a one-dimensional"),
    ],
)
def test_bad_ids_are_refused(ids, says):
    assert says in refusal(rows_of, ids, 3)


def test_a_mesh_without_memory_is_refused(monkeypatch):
    monkeypatch.setattr("memkern.limits.memory_left", lambda: (2**30, "the test"))
    mesh = HexMesh(1000, 7)
    assert "a mesh of 512000000000 local nodes needs about 2.05e+04 GB" in refusal(lambda: mesh.ids)
