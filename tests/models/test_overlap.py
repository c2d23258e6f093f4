"""Hypotheses on the overlap of transfers: sums and maxima, their texts, and those of the paper."""

import itertools

import pytest
from checking import refused
from hypothesis import given
from hypothesis import strategies as st

from memkern import reference
from memkern.models import Overlap, hypotheses, paper_hypotheses, published
from memkern.models.overlap import overlap_of

LEVELS = ("L1", "L2", "memory")
TRANSFERS = tuple(f"{level} {way}" for level in LEVELS for way in ("load", "store"))
CYCLES = st.lists(st.floats(0.0, 1e6), min_size=6, max_size=6)


def terms_of(values):
    """Return terms of three levels from six numbers."""
    return dict(zip(LEVELS, zip(values[::2], values[1::2], strict=True), strict=True))


@st.composite
def overlaps(draw, transfers=TRANSFERS, operator="+"):
    """Return a hypothesis on some transfers: a nested sum of maxima."""
    order = draw(st.permutations(transfers))
    cuts = sorted(draw(st.sets(st.integers(1, max(len(order) - 1, 1)))))
    parts = [order[a:b] for a, b in itertools.pairwise((0, *cuts, len(order))) if order[a:b]]
    other = "max" if operator == "+" else "+"
    nested = len(parts) > 1
    return Overlap(
        operator,
        tuple(
            draw(overlaps(part, other)) if nested and len(part) > 1 else Overlap("max", tuple(part))
            for part in parts
        ),
    )


@given(overlaps())
def test_texts_are_read_as_they_were_written(overlap):
    assert Overlap.parse(str(overlap)) == overlap
    overlap.check(LEVELS)


@given(overlaps(), CYCLES)
def test_f_is_the_sum_of_the_longest_terms(overlap, values):
    terms = terms_of(values)
    longest = overlap.longest(terms)
    assert sum(cycles for _, cycles in longest) == pytest.approx(overlap.cycles(terms))
    assert len({term for term, _ in longest}) == len(longest)
    named = paper_hypotheses(LEVELS)
    assert overlap.cycles(terms) <= named["a"].cycles(terms) * (1 + 1e-12)
    assert overlap.cycles(terms) >= max(values) * (1 - 1e-12)


def test_nested_texts_have_one_form():
    assert str(Overlap.parse(" max( L1 load+max(L1 store ,L2),memory )")) == (
        "max(L1 load + max(L1 store, L2), memory)"
    )
    assert str(Overlap.parse("max(max(L1, max(L2 + L3)), memory)")) == "max(L1, L2 + L3, memory)"
    assert Overlap.parse("max(L1 + L2)") == Overlap.parse("L1 + L2")
    assert Overlap.parse("max(L1)") == Overlap("+", ("L1",)) == Overlap("max", ("L1",))
    assert Overlap("+", (Overlap("+", ("L1",)), Overlap("+", ("L2", "memory")))).parts == (
        "L1", "L2", "memory",
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "L1 + ", "L1 * L2", "max(L1, L2", "min(L1, L2)", "L1 loads", "registers", "max()",
     "L1 + L2)", "(L1 + L2)", "max(L1,)", "L1 L2", "L12", "+ L1", "max(" * 10_000,
     "max(" * 30 + "L1" + ")" * 30],
)  # fmt: skip
def test_texts_that_are_no_hypothesis(text):
    with refused("is not a hypothesis: write sums and maxima of levels"):
        Overlap.parse(text)


def test_a_transfer_counts_once():
    with refused("every transfer must be in it exactly once"):
        Overlap.parse("L1 load + max(L1, L2)")
    with refused("every transfer must be in it exactly once"):
        Overlap("+", ())
    with refused("'L1 reads' is not a term such as L2 or L1 load"):
        Overlap("+", ("L1 reads",))
    with refused("operator 'min' is not one of"):
        Overlap("min", ("L1", "L2"))
    with refused("does not have memory load"):
        published("A64FX").model_of(Overlap.parse("L1 + L2"))
    with refused("has L3 load"):
        published("A64FX").model_of(Overlap.parse("L1 + L2 + L3 + memory"))


def test_f_of_the_paper_is_hypothesis_d():
    """Check the equation of f in the paper, and its example of the hopping term."""
    d = paper_hypotheses(LEVELS)["d"]
    assert str(d) == "max(L1 load + max(L1 store, L2), memory)"
    assert d.cycles({"L1": (25.6, 3), "L2": (35.3, 0), "memory": (15.9, 0)}) == 25.6 + 35.3
    assert d.cycles({"L1": (2, 3), "L2": (1, 0), "memory": (4, 0)}) == 5
    assert d.cycles({"L1": (2, 3), "L2": (1, 0), "memory": (4, 2)}) == 6


@pytest.mark.parametrize(
    ("layout", "compiler", "data", "cycles"),
    [("RIRI", "GCC", 60.9, 168), ("RIRI", "FCC", 68.3, 168), ("RRII", "GCC", 69.7, 70.8),
     ("RRII", "FCC", 82.5, 85.5)],
)  # fmt: skip
def test_the_domain_wall_of_the_paper(layout, compiler, data, cycles):
    """Check f and T_ECM of the four codes of table 6."""
    (row,) = [
        row
        for row in reference.rows("alappat2021-domain-wall")
        if (row["layout"], row["compiler"]) == (layout, compiler)
    ]
    terms = {
        "L1": (row["L1_load_cycles"], row["L1_store_cycles"]),
        "L2": (row["L2_cycles"], 0.0),
        "memory": (row["memory_cycles"], 0.0),
    }
    f = paper_hypotheses(LEVELS)["d"].cycles(terms)
    assert f == pytest.approx(data)
    assert max(row["core_cycles"], f) == row["cycles"] == cycles


def test_the_other_hypotheses_of_the_paper():
    a, b, c, _ = paper_hypotheses(LEVELS).values()
    assert str(a) == "L1 load + L1 store + L2 + memory"
    assert str(b) == "max(L1 load, L1 store, L2, memory)"
    assert str(c) == "max(L1 load + max(L1 store, L2), memory load) + memory store"
    four = paper_hypotheses(("L1", "L2", "L3", "memory"))
    assert str(four["d"]) == "max(L1 load + max(L1 store, L2), L3, memory)"
    assert str(four["c"]) == "max(L1 load + max(L1 store, L2), L3, memory load) + memory store"
    two = paper_hypotheses(("L1", "memory"))
    assert str(two["d"]) == "L1 load + max(L1 store, memory)"
    assert str(two["c"]) == "L1 load + max(L1 store, memory load) + memory store"


def test_a_fit_chooses_from_the_paper_s_and_from_every_sum_of_maxima():
    found = hypotheses(LEVELS)
    # The partitions of four units (15), (c) and (d).
    assert len(found) == 17
    assert list(found)[:4] == ["none", "full", "c", "d"]
    assert [found[name] for name in list(found)[:4]] == list(paper_hypotheses(LEVELS).values())
    assert len({str(one) for one in found.values()}) == 17
    for name, one in found.items():
        one.check(LEVELS)
        assert Overlap.parse(str(one)) == overlap_of(name, LEVELS) == one
    assert "L1 load + max(L1 store, L2, memory)" in found
    assert len(hypotheses(("L1", "L2", "L3", "memory"))) == 54
    assert overlap_of("b", LEVELS) == found["full"]
    with refused("'e' is not a hypothesis"):
        overlap_of("e", LEVELS)
