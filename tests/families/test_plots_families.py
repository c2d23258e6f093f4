"""Tests of the findings and sections of all families."""

import amo_figure_records
import dw_figure_records
import messages_figure_records
import pytest
import spmv_figure_records
import streaming_family
import transfers_figure_records
from checking import once_a_kind, refused
from plotting import Results, frame

from memkern import report
from memkern.plots import figures, sections
from memkern.plots.frames import frame_of

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
