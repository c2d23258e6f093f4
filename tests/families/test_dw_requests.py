"""Wrong fields, options and words of the domain-wall kernel, and its verb."""

import itertools
import math

import pytest
from checking import measured, refused
from dw_cases import WIDTHS, fields

import memkern as mk
from memkern import _memkern
from memkern.errors import InputError
from memkern.families.dw import kernels as family
from memkern.families.dw.verb import TABLE

pytestmark = pytest.mark.usefixtures("ceilings")


LINKS, PSI = fields((2, 2, 4, 4), 2)


@pytest.mark.parametrize(
    "links, psi, match",
    [
        (LINKS[0], PSI, r"links must have the shape \(Lt, Lz, Ly, Lx, 4, 3, 3\), not"),
        (LINKS.astype(">c16"), PSI, "links must be complex64 or complex128, not >c16"),
        (LINKS.astype("complex64"), PSI, "the same type, not complex64 and complex128"),
        (LINKS, PSI.astype("complex64"), "the same type, not complex128 and complex64"),
        (LINKS, None, "psi must be a NumPy array, not a NoneType"),
    ],
)
def test_wrong_fields_are_refused(links, psi, match):
    with refused(match):
        mk.dw.hop(links, psi)


@pytest.mark.parametrize("wrong", [{"lattice": (2, 2, 4, 4)}, {"ls": 2}, {"dtype": "float64"}])
def test_options_that_follow_from_the_fields_are_refused(wrong):
    with refused(f"{next(iter(wrong))} follows from psi"):
        mk.dw.hop(LINKS, PSI, **wrong)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"cut": "w"}, "cut 'w' is not one of auto, s, t, z, y and x"),
        ({"cut": ""}, "cut '' is not one of"),
        ({"cut": "st"}, "cut 'st' is not one of"),
        ({"vector": 192}, "vector of 192 bits is not one of"),
        (
            {"cut": "s", "vector": 128, "ls": 3},
            "Ls must be a multiple of the 2 complex numbers of a vector, not 3",
        ),
        ({"cut": "y", "vector": 128, "lattice": (2, 2, 2, 2), "parity": "even"},
         "the extent of y must be a multiple of 4 for 2 parts, of which 2 are along y, not 2"),
        ({"layout": "lexicographic", "cut": "t"}, "has no vectors: leave out cut and vector"),
        ({"layout": "lexicographic", "vector": 128}, "has no vectors: leave out"),
        ({"parity": "even", "lattice": (4, 4, 4, 3)}, "extents that are all even, not 4 4 4 3"),
        ({"order": "txyy"}, "order must name t, z, y and x once each, not 'txyy'"),
        ({"order": "tzy"}, "once each, not 'tzy'"),
        ({"block": (2, 2, 2)}, r"four numbers of sites, of x, y, z and t, not \(2, 2, 2\)"),
        ({"block": 3}, "block must be four numbers of sites, of x, y, z and t, not 3"),
        ({"lattice": 4}, "four integers of at least 1, of x, y, z and t, not 4"),
        ({"block": (0, 0, 0, -1)}, "block must be at least 0, not -1"),
        ({"block": (0, 0, 0, 1.5)}, "block must be an integer, not 1.5"),
        ({"lattice": (4, 4, 4)}, "extents must be four integers of at least 1"),
        ({"lattice": (4, 4, 4, 4.0)}, "four integers"),
        ({"unroll": 2}, "unroll 2"),
        ({"variant": "scalar"}, "no variant 'scalar'"),
        ({"layout": "lexicographic", "variant": "nt"}, "no variant 'nt'"),
        ({"block": "2220"}, "block"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(options, match):
    with refused(match):
        mk.dw.case(**{"lattice": (4, 4, 4, 4), "ls": 4, **options}).prepare()


def test_narrower_instruction_sets_have_narrower_vectors() -> None:
    for isa in _memkern.supported_isas():
        widest = max(family.widths(isa), default=0)
        for bits in WIDTHS:
            if bits > widest:
                with pytest.raises(InputError, match=f"vector of {bits} bits is not|no vectors"):
                    mk.dw.case((4, 4, 4, 4), isa=isa, vector=bits)
                with pytest.raises(InputError, match="has no variant"):
                    mk.dw.case((4, 4, 4, 4), vector=bits).with_(isa=isa).prepare()
            else:
                mk.dw.case((4, 4, 4, 4), isa=isa, vector=bits).prepare()


@pytest.mark.parametrize(
    "extents, ls",
    # The last fields take 26 TB, though the tables of these sites are small.
    [
        *(((2**20,) * 4, 8), ((2**31,) * 4, 1), ((2**10,) * 4, 8), ((2**62, 2, 2, 2), 1)),
        ((16,) * 4, 2**20),
    ],
)
@pytest.mark.parametrize("layout", family.LAYOUTS)
def test_more_than_memory_holds_is_refused(extents, ls, layout):
    with pytest.raises((InputError, MemoryError)) as caught:
        mk.dw.case(extents, ls=ls, layout=layout).prepare()
    assert "\n" not in str(caught.value)
    assert str(caught.value)


SMALL = ("--lattice", "4", "4", "4", "4")


def test_the_verb_measures_every_combination(capsys):
    records = measured(
        *(capsys, "dw", *SMALL, "--lattice", "2", "4", "4", "8", "--ls", "2,4"),
        *("--layout", "RRII,RIRI,lexicographic", "--cut", "s,t", "--vector", "128"),
        *("--parity", "full,odd", "--order", "xyzt", "--block", "2", "2", "0", "0"),
        *("--share-planes", "--prefetch", "3", "--prefetch-into", "L1", "--runs", "2", "-t", "1"),
    )
    same = {"order": "xyzt", "block": "2x2x0x0", "share_planes": True, "prefetch": 3}
    same |= {"kernel": "dw.hop", "prefetch_into": "L1", "valid": True}
    assert all(same.items() <= record.items() for record in records)
    seen = {(r["lattice"], r["Ls"], r["layout"], r["cut"], r["parity"]) for r in records}
    wanted = set()
    for where, ls, parity in itertools.product(("4x4x4x4", "2x4x4x8"), (2, 4), ("full", "odd")):
        wanted |= {(where, ls, "RRII", cut, parity) for cut in ("s", "t2")}
        # Vectors of one complex number cut no lattice.
        wanted |= {(where, ls, "RIRI", cut, parity) for cut in ("s", "")}
        wanted.add((where, ls, "lexicographic", "", parity))
    assert seen == wanted
    assert len(records) == len(wanted)


def test_a_row_of_memory_without_a_roofline_is_not_in_cache(ceilings):
    case = mk.case("dw.hop", lattice=[2, 2, 2, 2], ls=2, threads=1, variant="simd", runs=1)
    record = case.measure().record | {"memory_load_B": 0.0, "memory_store_B": 0.0}
    record["roofline_fraction"] = math.nan
    assert "in cache" in TABLE.row(0, record)
    assert "in cache" not in TABLE.row(0, record | {"memory_load_B": 1e6})
