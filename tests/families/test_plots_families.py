"""Tests of the findings and sections of all families."""

import math
import os

import amo_figure_records
import dw_figure_records
import messages_figure_records
import pytest
import spmv_figure_records
import streaming_family
import transfers_figure_records
from checking import once_a_kind, refused
from plotting import Results, contents, footnotes, frame, measured_briefly

import memkern as mk
from memkern import report
from memkern.families.amo import kernels as amo
from memkern.families.dw import kernels as dw
from memkern.families.latency import kernels as latency
from memkern.families.spatter import kernels as spatter
from memkern.families.spmv import kernels as spmv
from memkern.plots import figures, sections
from memkern.plots.frames import frame_of
from memkern.spec.kernel import Check

FAMILIES = [
    module.FAMILY
    for module in (
        amo_figure_records,
        dw_figure_records,
        messages_figure_records,
        spmv_figure_records,
        transfers_figure_records,
        streaming_family,
    )
]
BY_SECTION = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.section)


def each(choose):
    """Parametrise a test by the families and the values chosen for each family."""
    chosen = [(family, *some) for family in FAMILIES for some in choose(family)]
    words = [" ".join(word for word in some if isinstance(word, str)) for some in chosen]
    return [pytest.param(*some, id=word) for some, word in zip(chosen, words, strict=True)]


@pytest.mark.parametrize(
    ("family", "name", "rows", "options", "culprit"), each(lambda family: family.missing)
)
def test_missing_records_are_named(family, name, rows, options, culprit):
    with refused(culprit):
        figures[name](frame(rows), **options)


@pytest.mark.parametrize(
    ("name", "rows", "others"),
    [
        (
            "amo-rates",
            amo_figure_records.patterns(),
            [
                *amo_figure_records.patterns((4,), ("add",), order="seq_cst"),
                *amo_figure_records.patterns((4,), ("add", "cas"), dtype="uint32"),
            ],
        ),
        (
            "dw-layouts",
            dw_figure_records.layouts(),
            [
                *dw_figure_records.layouts(kinds=["RRII s"], parity="even"),
                *dw_figure_records.layouts(kinds=["RRII s"], dtype="float32", speed=999.0),
            ],
        ),
        (
            "spmv-matrices",
            spmv_figure_records.matrices(),
            [
                *spmv_figure_records.matrices((4,), result="write"),
                *spmv_figure_records.matrices((4,), dtype="float32", performance_GFLOPs=99.0),
            ],
        ),
    ],
)
def test_records_of_another_setting_are_left_out(name, rows, others):
    fig = figures[name](frame([*rows, *others]))
    assert f"{len(others)} records under another setting" in footnotes(fig)
    assert contents(fig) == contents(figures[name](frame(rows)))


# The streaming family's records are already from two machines.
@pytest.mark.parametrize("family", FAMILIES[:-1], ids=lambda family: family.section)
def test_findings_of_several_machines_name_them(family):
    one, two = family.everything(), family.everything(machine="Other")
    found = family.findings(frame_of(frame([*one, *two])))
    assert found[0].startswith("Own Machine 3000")
    assert found[-1].startswith("Other")
    assert len(found) == 2 * len(family.findings(frame_of(frame(one))))


@pytest.mark.parametrize(
    ("family", "rows", "shown", "found", "remarks"), each(lambda family: family.few)
)
def test_sections_of_few_records(family, rows, shown, found, remarks):
    section = sections[family.section](frame(rows))
    numbers = (len(section.exhibits), len(section.findings), len(section.remarks))
    assert numbers == (shown, found, remarks)
    assert all("\n" not in remark for remark in section.remarks)


@pytest.mark.parametrize(("family", "words"), each(lambda family: [(w,) for w in family.marked]))
def test_findings_mark_disturbed_numbers(family, words):
    assert words in " ".join(family.findings(frame_of(frame(family.everything(disturbed=True)))))


@BY_SECTION
def test_sections_of_other_records(family):
    assert sections[family.section](frame([{"kernel": "spatter.gather"}])) is None
    assert sections[family.section](frame([{"platform": "Own"}])) is None


def test_the_order_of_the_sections():
    known = ("spatter", "streaming", "atomics", "spmv", "dw", "latency", "messages", "transfers")
    assert [name for name in sections if name in known] == [*known]


@pytest.mark.parametrize(
    "family",
    once_a_kind(
        sorted(FAMILIES, key=lambda family: family.images), name=lambda family: family.section
    ),
)
def test_sections_in_a_report(family, tmp_path):
    records = Results(family.everything())
    path = report.write(records, tmp_path / "report.html", title="A title", environment={})
    text = path.read_text(encoding="utf-8")
    assert f"<h2>{family.title}</h2>" in text
    assert text.count("<svg") == family.images and family.shown in text


def small_lattices(*how):
    """Return the cases of a report on lattices that are quickly filled."""
    every = dw.report_cases(*how)
    return [case for case in every if case.iterations * case.spec.counts.width(case) <= 8 * 12**4]


# By section: cases of a report, whether it is a quick one, and the number of exhibits.
REPORTS = [
    ("atomics", amo.report_cases, False, 7),
    ("dw", small_lattices, False, 5),
    ("spmv", spmv.report_cases, False, 5),
    ("latency", latency.report_cases, True, 2),
]
QUICK = [
    ("atomics", amo.report_cases, True, 4),
    ("dw", small_lattices, True, 3),
    ("spmv", spmv.report_cases, True, 2),
]


@pytest.mark.usefixtures("ceilings")
@pytest.mark.parametrize(
    ("name", "cases", "quick", "exhibits"),
    [*REPORTS, *(pytest.param(*row, marks=pytest.mark.release) for row in QUICK)],
)
def test_a_report_measures_what_its_section_shows(name, cases, quick, exhibits, monkeypatch):
    def unchecked(prepared):
        yield
        return Check(True, 0.0, "none")

    if name == "dw":
        # The reference of all these lattices takes seconds.
        monkeypatch.setattr(mk.Prepared, "_validation", unchecked)
    section = sections[name](frame_of(measured_briefly(cases(quick, 2**18, 2**31))))
    if len(os.sched_getaffinity(0)) > 1:
        assert len(section.exhibits) == exhibits
        assert quick or section.remarks == ()


def of_fields(cases):
    return max(case.bytes_B for case in cases)


def of_matrices(cases):
    """Return the bytes of all matrices, and of the largest four times more."""
    held_B = {id(case.data["values"]): case.data["values"].nbytes * 1.5 for case in cases}
    return math.fsum(held_B.values()) + 4 * max(held_B.values())


def of_sparse_arrays(cases):
    sides = [(spatter.gather_side(case), spatter.scatter_side(case)) for case in cases]
    return max(sum(side.size for side in both if side is not None) * 8 for both in sides)


@pytest.mark.parametrize(("cache_B", "memory_B"), [(2**23, 2**26), (2**23, 2**34)])
@pytest.mark.parametrize(
    ("module", "held_B", "quick"),
    [
        *((dw, of_fields, quick) for quick in (True, False)),
        *((spatter, of_sparse_arrays, quick) for quick in (True, False)),
        (spmv, of_matrices, False),
    ],
)
def test_cases_of_a_report_fit_half_of_the_memory(module, held_B, quick, cache_B, memory_B):
    cases = module.report_cases(quick, cache_B, memory_B)
    assert len({case.identity() for case in cases}) == len(cases) > 0
    assert held_B(cases) <= memory_B / 2
    if not quick:
        # The caches hold less than the largest.
        assert held_B(cases) > min(cache_B, memory_B / 64)
