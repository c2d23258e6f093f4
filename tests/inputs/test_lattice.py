"""The hopping term's reference: its algebra, parities and spectrum, and a loop over sites."""

import itertools
from typing import Any

import numpy as np
import pytest
from checking import refused

from memkern.inputs import lattice
from memkern.inputs.lattice import GAMMA, GAMMA5, hop, random_field, random_links

EXTENTS = (4, 3, 2, 5)
EVEN = (4, 2, 6, 2)
SMALL = [(1, 1, 1, 1), (2, 1, 3, 2), (3, 2, 1, 4), (1, 4, 2, 1)]


def fields(extents: Any = EXTENTS, ls: int = 2, seed: int = 0) -> tuple[Any, Any]:
    return random_links(extents, seed=seed), random_field(extents, ls, seed=seed + 1)


def close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


def hop_in_loops(
    links: Any, psi: Any, dagger: bool = False, antiperiodic_t: bool = False, parity: str = "full"
) -> Any:
    """Return the hopping term by scalar loops over sites, directions, spins and colours."""
    t, z, y, x, ls = psi.shape[:5]
    extents, sign = (x, y, z, t), -1 if dagger else 1
    result = np.zeros_like(psi)
    for n in itertools.product(*map(range, extents)):
        if parity != "full" and (sum(n) % 2 == 0) != (parity == "even"):
            continue
        for mu, way in itertools.product(range(4), (1, -1)):
            there = list(n)
            there[mu] = (n[mu] + way) % extents[mu]
            crossed = not 0 <= n[mu] + way < extents[mu]
            factor = -1 if antiperiodic_t and mu == 3 and crossed else 1
            link = links[n[::-1]][mu] if way == 1 else links[tuple(there[::-1])][mu].conj().T
            for s, i, j, a, b in itertools.product(
                range(ls), range(4), range(4), range(3), range(3)
            ):
                spin = (i == j) + sign * way * GAMMA[mu, i, j]
                value = psi[tuple(there[::-1])][s, j, b]
                result[n[::-1]][s, i, a] += factor * spin * link[a, b] * value
    return result


def test_the_gamma_matrices_anticommute():
    for mu, nu in itertools.product(range(4), repeat=2):
        both = GAMMA[mu] @ GAMMA[nu] + GAMMA[nu] @ GAMMA[mu]
        np.testing.assert_array_equal(both, 2 * (mu == nu) * np.eye(4))


def test_gamma5_is_their_product_and_anticommutes():
    x, y, z, t = GAMMA
    np.testing.assert_array_equal(x @ y @ z @ t, GAMMA5)
    np.testing.assert_array_equal(GAMMA5, np.diag([1, 1, -1, -1]))
    for gamma in GAMMA:
        np.testing.assert_array_equal(gamma, gamma.conj().T)
        np.testing.assert_array_equal(gamma @ GAMMA5, -GAMMA5 @ gamma)


def test_half_spinors_are_those_of_grid():
    psi = np.array([1, 10, 100, 1000], dtype=complex)
    for gamma, upper in zip(
        GAMMA,
        [
            (1 + 1000j, 10 + 100j),
            (1 - 1000, 10 + 100),
            (1 + 100j, 10 - 1000j),
            (1 + 100, 10 + 1000),
        ],
        strict=True,
    ):
        np.testing.assert_array_equal(((np.eye(4) + gamma) @ psi)[:2], upper)


def test_the_gamma_matrices_are_read_only():
    for matrices in (GAMMA, GAMMA5):
        with pytest.raises(ValueError, match="read-only"):
            matrices[0] = 0


@pytest.mark.parametrize("dtype, eps", [("complex128", 1e-14), ("complex64", 1e-6)])
def test_links_are_in_su3(dtype, eps):
    links = random_links(EXTENTS, dtype=dtype)
    assert links.shape == (5, 2, 3, 4, 4, 3, 3)
    assert links.dtype == dtype
    product = links @ np.swapaxes(links.conj(), -1, -2)
    assert np.abs(product - np.eye(3)).max() < eps
    assert np.abs(np.linalg.det(links) - 1).max() < eps


def test_links_are_uniform():
    links = random_links((8, 8, 8, 4))
    # For a uniform distribution, <U> = 0, <|tr U|^2> = 1 and <|U_ab|^2> = 1/3.
    assert np.abs(links.mean(axis=(0, 1, 2, 3, 4))).max() < 0.02
    assert (np.abs(np.trace(links, axis1=-2, axis2=-1)) ** 2).mean() == pytest.approx(1, abs=0.05)
    assert np.abs((np.abs(links) ** 2).mean(axis=(0, 1, 2, 3, 4)) - 1 / 3).max() < 0.01


def test_fields_follow_the_seed():
    field = random_field(EXTENTS, 3, dtype="complex64")
    assert field.shape == (5, 2, 3, 4, 3, 4, 3)
    assert field.dtype == np.complex64
    for make in (random_links, lambda extents, seed: random_field(extents, 2, seed=seed)):
        np.testing.assert_array_equal(make(EXTENTS, seed=3), make(EXTENTS, seed=3))
        assert not np.array_equal(make(EXTENTS, seed=3), make(EXTENTS, seed=4))


@pytest.mark.parametrize("dagger", [False, True])
@pytest.mark.parametrize("antiperiodic_t", [False, True])
@pytest.mark.parametrize("extents", SMALL)
def test_a_loop_over_sites_agrees(extents, dagger, antiperiodic_t):
    links, psi = fields(extents)
    how = {"dagger": dagger, "antiperiodic_t": antiperiodic_t}
    close(hop(links, psi, **how), hop_in_loops(links, psi, **how))


def test_the_loop_agrees_on_one_parity():
    links, psi = fields((2, 2, 2, 4), ls=1)
    for parity in lattice.PARITIES:
        close(hop(links, psi, parity=parity), hop_in_loops(links, psi, parity=parity))


@pytest.mark.parametrize("dagger", [False, True])
@pytest.mark.parametrize("antiperiodic_t", [False, True])
def test_plane_waves_are_eigenvectors_of_the_free_field(dagger, antiperiodic_t):
    links = np.broadcast_to(np.eye(3, dtype=complex), (*EXTENTS[::-1], 4, 3, 3))
    rng = np.random.default_rng(1)
    t, z, y, x = np.indices(EXTENTS[::-1])
    for _ in range(8):
        k = rng.integers(0, EXTENTS) + np.array([0, 0, 0, antiperiodic_t / 2])
        p = 2 * np.pi * k / EXTENTS
        wave = np.exp(1j * (p[0] * x + p[1] * y + p[2] * z + p[3] * t))
        # (1 + gamma) e^{ip} + (1 - gamma) e^{-ip}, where gamma^2 = 1.
        sine = 2 * np.sin(p)
        slash = 1j * np.tensordot(sine, GAMMA, 1) * (-1 if dagger else 1)
        for way in (1, -1):
            # The eigenvalues of slash are +-i |sine|; a projection gives the eigenvectors.
            size = np.sqrt((sine**2).sum())
            value = 2 * np.cos(p).sum() + way * 1j * size
            u = (1j * size * np.eye(4) + way * slash) @ rng.normal(size=(4, 3))
            psi = (wave[..., None, None] * u)[..., None, :, :]
            got = hop(links, psi, dagger=dagger, antiperiodic_t=antiperiodic_t)
            np.testing.assert_allclose(got, value * psi, rtol=0, atol=1e-13 * 8 * (1 + size) ** 2)


@pytest.mark.parametrize("options", [{}, {"dagger": True}, {"antiperiodic_t": True}])
def test_parities_add_up_and_each_reads_the_other(options):
    links, psi = fields(EVEN)
    even, odd = (hop(links, psi, parity=parity, **options) for parity in ("even", "odd"))
    np.testing.assert_array_equal(even + odd, hop(links, psi, **options))
    assert even[0, 0, 0, 0].any()
    assert not odd[0, 0, 0, 0].any()
    assert not (even.astype(bool) & odd.astype(bool)).any()
    # A field on odd sites contributes to even sites only.
    np.testing.assert_array_equal(hop(links, odd, parity="odd", **options), 0)


def test_single_precision_is_computed_in_double_and_inputs_stay_unchanged():
    links, psi = (field.astype(np.complex64) for field in fields())
    kept = links.copy(), psi.copy()
    got = hop(links, psi, antiperiodic_t=True)
    assert got.dtype == np.complex128
    exact = hop(links.astype(complex), psi.astype(complex), antiperiodic_t=True)
    np.testing.assert_array_equal(got, exact)
    np.testing.assert_array_equal(links, kept[0])
    np.testing.assert_array_equal(psi, kept[1])


def test_extents_and_ls_are_read_off_the_fields():
    assert lattice.check_fields(*fields(EXTENTS, 3)) == (EXTENTS, 3)


LINKS, PSI = fields((2, 3, 4, 5), 2)


@pytest.mark.parametrize(
    "links, psi, match",
    [
        (LINKS[0], PSI, r"links must have the shape .* not \(4, 3, 2, 4, 3, 3\)"),
        (LINKS[..., :3, :, :], PSI, "links must have the shape"),
        (LINKS, PSI[..., 0, :, :], r"psi must have the shape \(Lt, Lz, Ly, Lx, Ls, 4, 3\)"),
        (LINKS, np.swapaxes(PSI, -1, -2), "psi must have the shape"),
        (LINKS.real, PSI, "links must be complex64 or complex128, not float64"),
        (LINKS, PSI.astype(np.clongdouble), "psi must be complex64 or complex128, not c"),
        (LINKS.tolist(), PSI, "links must be a NumPy array, not a list"),
        (LINKS, PSI[:4], "must have the same extents"),
        (LINKS, PSI[:, :, :, :, :0], "Ls must be an integer of at least 1, not 0"),
        (LINKS[:0], PSI[:0], "extents must be four integers of at least 1"),
    ],
)
def test_wrong_fields_are_refused(links, psi, match):
    for refuse in (lattice.check_fields, hop):
        with refused(match):
            refuse(links, psi)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: random_links((4, 4, 4)), "four integers"),
        (lambda: random_links((4, 4, 4, 0)), "at least 1"),
        (lambda: random_links((4, 4, 4, 2.0)), "four integers"),
        (lambda: random_field((4, 4, 4, 4), 0), "Ls must be an integer of at least 1, not 0"),
        (lambda: random_links((2, 2, 2, 2), dtype=float), "complex64 or complex128, not float64"),
        (lambda: random_field((2, 2, 2, 2), 1, dtype="wide"), "complex64 or complex128, not wide"),
        (lambda: hop(*fields((2, 3, 4, 5)), parity="even"), "that are all even, not 2 3 4 5"),
        (lambda: hop(*fields((2, 2, 2, 2)), parity="both"), "full, even or odd, not 'both'"),
    ],
)
def test_wrong_sizes_and_types_are_refused(call, match):
    with refused(match):
        call()
