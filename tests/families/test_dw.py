"""The hopping term: all layouts, symmetries, the check of results, records and the verb."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checking import PROPERTY, STREAMED, Changed, checked, corrupted, once_a_kind
from dw_cases import WIDTHS, fields, fixed
from hypothesis import given, settings
from hypothesis import strategies as st

import memkern as mk
from memkern import _memkern
from memkern.families.dw import kernels as family
from memkern.host import capacity
from memkern.inputs import lattice
from memkern.spec.case import Case

pytestmark = pytest.mark.usefixtures("ceilings")


CUTS = ("s", "t", "z", "y", "x", "tz", "zt", "yx", "tzyx")


LIMITS = {"float64": 1e-14, "float32": 1e-6}


def assert_close(got: Any, wanted: Any, limit: float = 1e-14) -> None:
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= limit * np.abs(wanted).max()


def compare(extents: Any, ls: int, dtype: str, **options: Any) -> None:
    """Compare a hop of random fields with the formula."""
    links, psi = fields(extents, ls, dtype, seed=ls)
    kept = links.copy(), psi.copy()
    physics = {k: options[k] for k in ("dagger", "antiperiodic_t", "parity") if k in options}
    got = mk.dw.hop(links, psi, **options)
    assert got.dtype == psi.dtype
    wanted = lattice.hop(links, psi, **physics)
    assert_close(got, wanted, LIMITS[dtype])
    np.testing.assert_array_equal(got[wanted == 0], 0)
    np.testing.assert_array_equal(links, kept[0])
    np.testing.assert_array_equal(psi, kept[1])


def numbers_of(layout: str, bits: int, dtype: str) -> int:
    """Return the number of complex numbers in a vector."""
    reals = bits // (8 * np.dtype(dtype).itemsize)
    return reals if layout == "RRII" else reals // 2 if layout == "RIRI" else 1


def extents_of(cut: str, parts: int, local: Any) -> tuple[int, ...]:
    """Return the extents of a lattice whose parts have the local extents."""
    extents = dict(zip("xyzt", local, strict=True))
    for k in range(parts.bit_length() - 1):
        extents[cut[k % len(cut)]] *= 2
    return tuple(extents.values())


# Every kind of layout cut in s and cut in all directions; the first layout with every cut.
LAYOUTS = list(itertools.product(["float64", "float32"], ["RRII", "RIRI"], WIDTHS, CUTS))


@pytest.mark.parametrize(
    "kind",
    once_a_kind(
        LAYOUTS,
        lambda kind: kind if kind[:3] == LAYOUTS[0][:3] or kind[3] in ("s", "tzyx") else None,
        lambda kind: "-".join(map(str, kind)),
    ),
)
def test_every_layout_agrees_with_the_formula(kind):
    dtype, layout, bits, cut = kind
    parts = numbers_of(layout, bits, dtype)
    how = fixed(layout=layout, vector=bits, cut=cut)
    if cut == "s":
        for ls, k in itertools.product((parts, 3 * parts), range(2)):
            compare((3, 1, 2, 2 + k), ls, dtype, dagger=k > 0, antiperiodic_t=k > 0, **how)
            parity = ("even", "odd")[k]
            compare((2, 4, 2, 2), ls, dtype, parity=parity, antiperiodic_t=k == 0, **how)
        return
    # Parts with one, two and three sites in a direction that is cut.
    compare(extents_of(cut, parts, (1, 1, 1, 1)), 3, dtype, antiperiodic_t=True, **how)
    compare(extents_of(cut, parts, (3, 1, 2, 1)), 1, dtype, dagger=True, **how)
    compare(extents_of(cut, parts, (1, 3, 1, 2)), 2, dtype, **{**how, "threads": 2})
    small = extents_of(cut, parts, (2, 2, 2, 2))
    compare(small, 1, dtype, parity="even", antiperiodic_t=True, **how)
    compare(small, 3, dtype, parity="odd", dagger=True, **{**how, "variant": STREAMED})


@st.composite
def hops(draw: st.DrawFn) -> tuple[Any, int, str, dict[str, Any]]:
    parity = draw(st.sampled_from(lattice.PARITIES))
    extents = tuple(draw(st.integers(1, 6)) for _ in range(4))
    if parity != "full":
        extents = tuple(n + n % 2 for n in extents)
    layout = draw(st.sampled_from(family.LAYOUTS))
    options: dict[str, Any] = {
        "layout": layout,
        "parity": parity,
        "dagger": draw(st.booleans()),
        "antiperiodic_t": draw(st.booleans()),
        "threads": draw(st.integers(1, 3)),
        "prefetch": draw(st.sampled_from([0, 1, 7, 10**6])),
        "prefetch_into": draw(st.sampled_from(["L1", "L2"])),
        "order": "".join(draw(st.permutations("tzyx"))),
        "block": [draw(st.sampled_from([0, 1, 2, 3, 100])) for _ in range(4)],
        "schedule": draw(st.sampled_from(["static", "dynamic"])),
        "repetition": draw(st.sampled_from(["fork", "barrier", "free"])),
    }
    options.update(draw(st.sampled_from([{}, {"share_planes": True}, {"chunk": 3}])))
    if options["repetition"] == "free":
        options["schedule"] = "static"
    if layout != "lexicographic":
        options["vector"] = draw(st.sampled_from([0, *WIDTHS]))
    return extents, draw(st.integers(1, 9)), draw(st.sampled_from(list(LIMITS))), options


@settings(PROPERTY, max_examples=60)
@given(hops())
def test_any_lattice_is_right_with_any_knob(made):
    extents, ls, dtype, options = made
    case = mk.dw.case(
        extents,
        ls=ls,
        dtype=dtype,
        **{k: v for k, v in options.items() if k not in ("dagger", "antiperiodic_t")},
    )
    # The layout depends on the extents, and the variants on the layout.
    variant = "scalar" if case.template_variant == "lexicographic" else "simd"
    compare(extents, ls, dtype, variant=variant, **options)


def test_the_defaults_are_right():
    for extents, ls in (((4, 4, 4, 4), 8), ((4, 4, 4, 4), 3), ((3, 3, 3, 3), 3)):
        for dtype in LIMITS:
            compare(extents, ls, dtype)


@pytest.mark.parametrize("form", ["strided", "reversed", "read-only", "Fortran"])
def test_arrays_may_have_any_strides(form):
    links, psi = fields((2, 4, 2, 4), 2)
    wanted = lattice.hop(links, psi)
    if form == "strided":
        links, psi = (np.repeat(a, 2, axis=0)[::2] for a in (links, psi))
    elif form == "reversed":
        links, psi = (a[..., ::-1].copy()[..., ::-1] for a in (links, psi))
    elif form == "Fortran":
        links, psi = np.asfortranarray(links), np.asfortranarray(psi)
    links.setflags(write=False)
    psi.setflags(write=False)
    got = mk.dw.hop(links, psi, **fixed())
    assert_close(got, wanted)
    assert got.flags.writeable


def layouts() -> Iterator[family.Layout]:
    """Yield layouts of every kind and parity."""
    for parity, split in itertools.product(lattice.PARITIES, (True, False)):
        yield family.Layout((2, 4, 6, 4), 3, 1, True, parity=parity)
        reals = 4 if split else 8
        yield family.Layout((4, 2, 2, 6), 8, reals, split, parity=parity)
        yield family.Layout((2, 2, 4, 8), 3, reals, split, (1, 1, 2, 2), False, parity)
        yield family.Layout((8, 4, 2, 2), 2, reals, split, (4, 1, 1, 1), False, parity)


@pytest.mark.parametrize("where", list(layouts()))
def test_every_number_has_one_place(where):
    x, y, z, t = where.extents
    sites = np.indices((t, z, y, x)).reshape(4, -1)[::-1].T
    lanes = 1 if where.shared else where.numbers
    for parity in ("even", "odd") if where.parity != "full" else ("full",):
        some = sites if parity == "full" else sites[sites.sum(axis=1) % 2 == (parity == "odd")]
        spinors = where.spinors_at(some)
        assert spinors.shape == (len(some), where.ls, 4, 3, 2)
        assert sorted(spinors.ravel()) == list(range(len(some) * where.ls * 24))
        assert len(some) == where.sites * (1 if where.shared else where.numbers)
        links = where.links_at(some)
        assert sorted(links.ravel()) == list(range(where.sites * lanes * 144))
    # Numbers of a vector are consecutive, real and imaginary parts in the order of the layout.
    one_number = where.spinors_at(sites[:1])[0, 0, 0, 0]
    assert one_number[1] - one_number[0] == (where.numbers if where.split else 1)


def at_most(bits: int) -> int:
    return min(bits, max(WIDTHS))


@pytest.mark.parametrize("layout, size", [("RRII", 1), ("RIRI", 2)])
def test_lanes_are_s_or_sites_or_none(layout, size):
    bits = at_most(512)
    lanes = bits // 64 // size

    def cut_of(extents: Any, ls: int, **options: Any) -> Any:
        case = mk.dw.case(extents, ls=ls, layout=layout, vector=bits, **options)
        columns = case.columns
        return case.template_variant, columns["cut"], columns["partitions"], columns["vector_bits"]

    sites = {2: "t2", 4: "z2 t2", 8: "y2 z2 t2", 1: ""}[lanes]
    assert cut_of((3, 3, 3, 3), 2 * lanes) == (f"{layout}/s/{bits}", "s", 1, bits)
    if lanes == 1:
        return
    assert cut_of((3, 4, 4, 4), lanes + 1) == (f"{layout}/sites/{bits}", sites, lanes, bits)
    assert cut_of((3, 4, 4, 4), lanes // 2)[1] == sites
    assert cut_of((4, 4, 4, 4), lanes, cut="tzyx")[1] == sites
    assert cut_of((4, 4, 4, 3), lanes + 1) == ("lexicographic", "", 1, 64)
    # One parity needs twice the extent.
    assert cut_of((2, 4, 4, 4), 3, parity="odd")[1] == sites
    assert cut_of((2, 2, 2, 2), 3, parity="odd")[0] == "lexicographic"
    assert cut_of((2, 2, 2, 2), 3)[1] == sites


def test_dimensions_are_halved_in_turn():
    bits = max(WIDTHS)
    lanes = bits // 64

    def of(cut: str) -> tuple[int, ...]:
        case = mk.dw.case((8, 8, 8, 8), ls=1, cut=cut)
        return tuple(case.integers[f"cut_{d}"] for d in "xyzt")

    assert of("x") == (lanes, 1, 1, 1)
    assert of("t") == (1, 1, 1, lanes)
    if lanes == 8:
        assert of("tz") == (1, 1, 2, 4)
        assert of("zt") == (1, 1, 4, 2)
        assert of("zzt") == (1, 1, 4, 2)
        assert of("xyzt") == (2, 2, 2, 1)


def test_the_widest_vector_is_taken():
    assert sorted(WIDTHS, reverse=True) == WIDTHS
    assert mk.dw.case((4, 4, 4, 4)).columns["vector_bits"] == max(WIDTHS)
    for isa in _memkern.supported_isas():
        case = mk.dw.case((4, 4, 4, 4), isa=isa)
        # The baseline has no vectors.
        widest = max(family.widths(isa), default=64)
        assert case.columns["vector_bits"] == widest
        assert (case.template_variant == "lexicographic") == (widest == 64)
        assert case.prepare().obtained["isa"] == isa


def visited(case: Case) -> list[tuple[int, ...]]:
    """Return the sites (x, y, z, t) of a part in the order in which the kernel visits them."""
    where = family.layout_of(case)
    sites = family.sites_of(where.local, where.parity)
    return [tuple(site) for site in sites[case.indices["order"]]]


@pytest.mark.parametrize("order", ["tzyx", "xyzt", "yxtz"])
@pytest.mark.parametrize("parity", ["full", "odd"])
def test_loops_follow_the_order(order, parity):
    case = mk.dw.case((2, 4, 6, 2), layout="lexicographic", order=order, parity=parity)
    extents = dict(zip("xyzt", (2, 4, 6, 2), strict=True))
    wanted = []
    for numbers in itertools.product(*(range(extents[d]) for d in order)):
        at = dict(zip(order, numbers, strict=True))
        if parity == "full" or sum(numbers) % 2 == 1:
            wanted.append(tuple(at[d] for d in "xyzt"))
    assert visited(case) == wanted


@pytest.mark.parametrize("block", [(2, 0, 0, 0), (0, 2, 3, 0), (2, 2, 2, 2), (3, 5, 1, 9)])
def test_blocks_are_visited_one_after_the_other(block):
    extents = (4, 6, 3, 2)
    case = mk.dw.case(extents, layout="lexicographic", order="zxyt", block=block)
    sites = visited(case)
    assert sorted(sites) == sorted(itertools.product(*map(range, extents)))
    sizes = dict(zip("xyzt", (b or n for b, n in zip(block, extents, strict=True)), strict=True))

    def key(site: tuple[int, ...]) -> tuple[Any, Any]:
        at = dict(zip("xyzt", site, strict=True))
        return [at[d] // sizes[d] for d in "zxyt"], [at[d] % sizes[d] for d in "zxyt"]

    assert sites == sorted(sites, key=key)


def test_blocks_divide_each_part():
    case = mk.dw.case((2, 2, 4, 8), ls=3, layout="RIRI", vector=128, dtype="float32", cut="t",
                      block=(0, 0, 0, 2))  # fmt: skip
    assert family.layout_of(case).local == (2, 2, 4, 4)
    assert [site[3] for site in visited(case)] == [0] * 16 + [1] * 16 + [2] * 16 + [3] * 16
    assert case.columns["block"] == "0x0x0x2"


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_workers_share_planes(threads):
    case = mk.dw.case((4, 4, 4, 6), layout="lexicographic", share_planes=True, threads=threads)
    assert case.knobs.chunk == 64 // threads
    t = np.array([site[3] for site in visited(case)]).reshape(-1, threads, case.knobs.chunk)
    assert (t == t[:, :1, :1]).all()
    assert mk.dw.case((4, 4, 4, 6), layout="lexicographic", threads=threads).knobs.chunk == 0


def test_lattices_larger_than_the_caches_are_prefetched(monkeypatch):
    sites, ls = 4**4, 8
    fields_B = sites * (72 + 24 * ls) * 16
    for layout in family.LAYOUTS:
        for cache_B, distance in ((fields_B, 0), (fields_B - 1, 3)):
            monkeypatch.setattr(capacity, "last_level_cache_B", lambda cache_B=cache_B: cache_B)
            case = mk.dw.case((4, 4, 4, 4), ls=ls, layout=layout)
            assert case.knobs.prefetch == distance
            assert case.columns["prefetch_into"] == "L2"
            half = mk.dw.case((4, 4, 4, 4), ls=ls, layout=layout, parity="odd")
            assert half.knobs.prefetch == 0
            for prefetch in (0, 7):
                case = mk.dw.case((4, 4, 4, 4), ls=ls, layout=layout, prefetch=prefetch)
                assert case.knobs.prefetch == prefetch


@pytest.mark.parametrize("held_B", [2**10, 2**14, 2**17, 2**24])
@pytest.mark.parametrize(
    "options",
    [
        {"layout": "lexicographic"},
        {"layout": "lexicographic", "parity": "odd"},
        {"layout": "lexicographic", "order": "zxty"},
        {"layout": "lexicographic", "block": (0, 2, 4, 0)},
        *([{"layout": "RIRI", "cut": "t"}] if WIDTHS else []),
    ],
)
def test_spinors_that_were_read_long_ago_are_prefetched(options, held_B, monkeypatch):
    monkeypatch.setattr(family, "_HELD_B", held_B)
    case = mk.dw.case((8, 4, 4, 8), ls=2, **options)
    found = family.layout_of(case)
    visit_B = math.prod(found.cuts) * (72 + 2 * 24) * 16
    read: dict[int, int] = {}
    ago = np.full((found.sites, 8), found.sites)
    for visit, around in enumerate(case.indices["neighbours"].reshape(-1, 8) // 2):
        for direction, site in enumerate(around):
            ago[visit, direction] = visit - read.get(site, visit - found.sites)
        read |= dict.fromkeys(around.tolist(), visit)
    distant = np.median(ago, axis=0) * visit_B > held_B
    assert case.integers["prefetched"] == sum(2**k for k in range(8) if distant[k])


CHECKED = [
    mk.dw.case((2, 4, 4, 8), **{"ls": 8, "dtype": dtype, "parity": parity, **fixed(**way)})
    for way in (
        {"layout": "RRII", "cut": "tzy"},
        {"layout": "RIRI", "cut": "s", "vector": min(WIDTHS)},
        {"layout": "lexicographic"},
    )
    for parity in ("full", "odd")
    for dtype in ("float64", "float32")
]


@pytest.mark.parametrize("case", CHECKED)
def test_the_check_finds_wrong_results(case):
    native: Any = case.prepare().native
    good = checked(case, native)
    assert good.valid
    assert good.how == "whole"
    last = native.arrays()["result"]["columns"] - 1
    scale = float(np.abs(native.copy_out("result")).max())
    for position in (0, last // 2, last):
        for change in (lambda v: v + 1e-4 * scale, lambda v: np.nan, lambda v: -v + scale):
            check = checked(case, corrupted(native, "result", position, change))
            assert not check.valid
            assert check.error_max > 0
    assert not checked(case, Changed(native, run=lambda k: 0.0)).valid
    half = Changed(native, run=lambda k: native.run_range(0, case.iterations // 2))
    assert not checked(case, half).valid


@pytest.mark.parametrize("case", CHECKED)
def test_the_check_finds_wrong_tables(case):
    where = family.layout_of(case)
    changes: list[tuple[str, int, Any]] = [
        ("neighbours", 3, lambda n: (n + 2) % (2 * where.sites)),  # another site
        ("neighbours", 8 * case.iterations - 1, lambda n: (n - 2) % (2 * where.sites)),
        ("order", 5, lambda n: (n - 1) % where.sites),  # one site twice and another never
    ]
    if not where.shared:
        changes.append(("neighbours", 7, lambda n: n ^ 1))  # of another part
    for name, at, change in changes:
        table = case.indices[name].copy()
        table[at] = change(table[at])
        other = dataclasses.replace(case, indices={**case.indices, name: table})
        assert other.identity() != case.identity()
        assert not checked(case, other.prepare().native).valid, (name, at)
    if not where.shared:
        lanes = case.indices["permutations"].reshape(8, -1).copy()
        lanes[3] = lanes[3, ::-1]
        other = dataclasses.replace(case, indices={**case.indices, "permutations": lanes.ravel()})
        assert not checked(case, other.prepare().native).valid


@pytest.mark.parametrize("parity", ["full", "even"])
@pytest.mark.parametrize("way", [{"cut": "tzy"}, {"layout": "lexicographic"}])
def test_large_lattices_are_checked_by_samples(way, parity):
    case = mk.dw.case((8, 8, 12, 16), ls=2, parity=parity, **fixed(**way))
    native: Any = case.prepare().native
    check = checked(case, native)
    assert check.valid
    assert check.how == "sampled"
    assert not checked(case, Changed(native, run=lambda k: 0.0)).valid
    # Only the first or only the second half of the visits.
    for begin, end in ((0, case.iterations // 2), (case.iterations // 2, case.iterations)):
        half = Changed(native, run=lambda k, b=begin, e=end: native.run_range(b, e))
        assert not checked(case, half).valid


@pytest.mark.parametrize("case", CHECKED)
def test_any_seed_and_number_of_runs_validates(case):
    measured = case.with_(seed=5, threads=2, runs=3).measure()
    assert measured.valid and measured.record["seed"] == 5


def test_different_cases_have_different_identities():
    extents = (4, 4, 4, 8)
    base: dict[str, Any] = {"cut": "tzy", "vector": max(WIDTHS), "prefetch": 2, "threads": 2}
    changes: list[dict[str, Any]] = [
        {},
        {"lattice": (4, 4, 8, 4)},
        {"ls": 16},
        {"layout": "RIRI"},
        {"cut": "s"},
        {"cut": "t"},
        {"cut": "x", "vector": 128},
        {"vector": min(WIDTHS), "cut": "t"},
        {"parity": "even"},
        {"parity": "odd"},
        {"order": "xyzt"},
        {"block": (2, 0, 0, 0)},
        {"block": (0, 0, 2, 0)},
        {"share_planes": True},
        {"prefetch_into": "L1"},
    ]
    cases = [mk.dw.case(**{"lattice": extents, **base, **change}) for change in changes]
    cases.append(mk.dw.case(extents, layout="lexicographic", prefetch=2, threads=2))
    assert len({case.identity() for case in cases}) == len(cases)
    # A default has the same identity as its explicit value.
    assert mk.dw.case(extents).identity() == mk.dw.case(extents, vector=max(WIDTHS)).identity()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("parity", ["full", "odd"])
@pytest.mark.parametrize("way", [{"cut": "tz"}, {"cut": "s"}, {"layout": "lexicographic"}])
def test_bytes_are_those_of_the_fields(way, parity, dtype):
    extents, ls = (2, 4, 8, 16), 16
    case = mk.dw.case(extents, ls=ls, parity=parity, dtype=dtype, **fixed(**way))
    size = np.dtype(dtype).itemsize
    sites = math.prod(extents) // (1 if parity == "full" else 2)
    links, spinors = sites * 8 * 9 * 2 * size, sites * ls * 12 * 2 * size
    arrays = case.prepare().native.arrays()
    number = 1 if way.get("cut") != "tz" else family.layout_of(case).numbers
    held = {name: a["columns"] * size for name, a in arrays.items()}
    assert held["psi"] == held["result"] == spinors
    assert held["links"] == sites // number * number * 144 * size == links
    assert case.bytes_B == links + 2 * spinors
    assert case.bytes_model_B == pytest.approx(links + 3 * spinors)
    assert case.traffic.write * case.iterations == pytest.approx(spinors)
    assert case.bytes_index_B == 4 * 9 * case.iterations
    nontemporal = case.with_(variant="nt")
    assert nontemporal.bytes_model_B == pytest.approx(links + 2 * spinors)
