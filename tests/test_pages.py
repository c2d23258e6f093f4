"""The generated pages of the documentation have what the registries and parsers have."""

import re
import sys
from pathlib import Path

from documents import options_of_verbs
from pages import columns, drawn, kernels, notebooks, papers, python, shell, text
from pages import options as shared

import memkern as mk
from memkern.plots.registry import PAPERS
from memkern.spec.columns import COLUMNS
from memkern.spec.registry import registry


def written(paths: list[Path]) -> str:
    return "".join(path.read_text() for path in paths)


def test_each_kernel_has_its_facts(tmp_path):
    made = kernels.write(tmp_path)
    pages = {path.stem: path.read_text() for path in made}
    assert len(pages) == 1 + len({name.partition(".")[0] for name in registry()})
    for name in registry():
        assert f"\n## `{name}`\n" in pages[name.partition(".")[0]]
    triad = pages["stream"].partition("## `stream.triad`")[2].partition("\n## ")[0]
    assert "a = b + s c" in triad and "- Bytes of an iteration: 24 B" in triad
    assert "- Flops of an iteration: 2\n" in triad
    assert "| `a` | write | `(elements,)` |" in triad and "Source: McCalpin" in triad
    assert re.search(r"- Variants: .*`nt`", triad) and "- Types of values: `float64`" in triad
    assert "`acq_rel`" in pages["amo"]
    # Notes about a family are for a family that exists.
    assert {path.stem for path in kernels.NOTES.glob("*.md")} <= set(pages)


def test_each_option_of_each_verb_is_described(tmp_path):
    pages = {path.stem: path.read_text() for path in shell.write(tmp_path)}
    common = pages.pop("measuring")
    verbs = "".join(pages.values())
    for verb, options in options_of_verbs().items():
        anchor = f"verb-{verb.replace(' ', '-')}"
        section = verbs.partition(f"\n({anchor})=\n")[2].partition("\n(verb-")[0]
        assert section, verb
        shared = common if "(measuring.md)" in section else ""
        for option in options - {"help", "help-all"}:
            assert re.search(rf"`(?:[^`]+, )?--{option}[ `]", section + shared), (verb, option)


def test_every_column_and_paper_is_listed(tmp_path):
    page = written(columns.write(tmp_path))
    assert all(f"\n| `{name}` | " in page for name in COLUMNS)
    page = written(papers.write(tmp_path))
    assert all(f"\n## `{name}`: " in f"\n{page}" for name in PAPERS)
    assert "| figure 3 | [`figure spatter-fig3`](#figure-spatter-fig3) | published |" in page


def test_options_of_all_cases_are_described_once(tmp_path):
    described = shared.without_shared(mk.gather.__doc__)
    assert "\ncount : int" in described and "memkern.Knobs" in described
    assert not re.search(r"^(threads|pages|runs)\b", described, re.MULTILINE)
    signature, _ = shared.shorten_signature(None, "", "", mk.gather, {}, "", "")
    assert signature.startswith("(pattern, *, ") and signature.endswith(", **options)")
    assert "threads" not in signature
    assert shared.shorten_signature(None, "", "", mk.compare, {}, "", "") is None
    index = python.write(tmp_path)[0].read_text()
    assert "   * - :py:obj:`gather <memkern.gather>`\n     - Case of ``A[:]" in index


def test_a_notebook_becomes_a_page(tmp_path):
    pages = {path.stem: path.read_text() for path in notebooks.write(tmp_path)}
    assert pages["gather_scatter"].startswith("# Gather and scatter on this machine\n")
    assert "\n```python\nimport memkern as mk\n" in pages["gather_scatter"]
    assert "\ngather_scatter\n" in pages["index"]


def test_a_picture_says_whether_its_records_are_made_up(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert drawn.drawn("spatter-fig3")[1] == drawn.PUBLISHED
    assert drawn.drawn("amo-sharing")[1] == drawn.MADE_UP


def test_text_of_tables_is_literal(tmp_path):
    assert text.code("a|b") == "`a\\|b`" and text.code("") == ""
    assert text.cell("x_1 * <y>, as --threads") == "x\\_1 \\* \\<y\\>, as `--threads`"
    page = text.put(tmp_path / "a" / "page.md", "text")
    before = page.stat().st_mtime_ns
    assert text.put(page, "text").stat().st_mtime_ns == before
