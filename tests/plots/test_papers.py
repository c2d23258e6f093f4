"""Figures and tables of papers: declared with them, and made together."""

import json
import sys
from pathlib import Path

import pytest
from checking import output_of, refused, refused_words, run
from spatter_records import own_records

from memkern.cli import analysis
from memkern.families.amo.kernels import PATTERNS
from memkern.plots import figures, registry, tables
from memkern.plots.papers import REMARKS
from memkern.plots.registry import PAPERS, of_paper, origin


def test_the_names_of_the_figures_of_spatter_are_the_numbers_of_the_paper():
    found = of_paper(figures, "lavin2020")
    *numbered, last = found
    assert numbered == [f"spatter-fig{number}" for number in (3, 4, 5, 6, 7, 8, 9)]
    assert last == "spatter-delta"
    for name in numbered:
        assert figures.origins[name].numbers == (f"figure {name[-1]}",)
    assert figures.origins["bs-mesh"].numbers == ("figure 6", "figure 7")


def test_an_origin_is_one_of_the_paper():
    assert origin("", "", True) is None
    with pytest.raises(KeyError, match="lavin2020 has no figure 10"):
        origin("lavin2020", "figure 9, 10", True)
    with refused("paper 'lavin' is not one of alappat2021, .*: did you mean"):
        of_paper(figures, "lavin")


def test_all_figures_of_a_paper_are_drawn(capsys, monkeypatch, tmp_path):
    # The others take half a minute to draw.
    few = {name: figures[name] for name in ("spatter-fig3", "spatter-fig4", "spatter-fig6")}
    monkeypatch.setattr(registry, "of_paper", lambda where, paper: few)
    folder = tmp_path / "new"
    out, err = output_of(capsys, "figure", "--paper", "lavin2020", "-o", str(folder))
    written = sorted(path.name for path in folder.iterdir())
    assert written == ["lavin2020-spatter-fig3.pdf"]
    assert sorted(Path(line).name for line in out.splitlines()) == written
    lacking = "memkern: figure spatter-fig4 is left out: no pattern was measured with and without"
    assert err.startswith(lacking) and "figure spatter-fig6 is left out: no uniform stride" in err
    # The first positional argument is a file of records, and no file is overwritten.
    monkeypatch.setattr(analysis, "_loaded", lambda paths: own_records() if paths else None)
    words = ("figure", "--paper", "lavin2020", "own.db", "-o", str(folder))
    assert "lavin2020-spatter-fig3.pdf exists already" in refused_words(capsys, *words)
    out, err = output_of(capsys, *words, "--force", "--machine", "none.json")
    assert "spatter-fig6.pdf" in out
    assert err.startswith(lacking) and "fig6" not in err


def test_all_tables_of_a_paper_are_printed(capsys, tmp_path):
    out, _ = output_of(capsys, "table", "--paper", "chalmers2020")
    assert out.startswith("chalmers2020-bs-devices\n")
    assert "\n\nchalmers2020-bs-t0-wmax\ntest " in out
    code, out, _ = run(capsys, "table", "--paper", "chalmers2020", "--json")
    assert json.loads(out)["chalmers2020-bs-t0-wmax"][0]["test"] == "BS1"
    code, out, _ = run(capsys, "table", "--paper", "chalmers2020", "-o", str(tmp_path))
    assert (code, out) == (
        0,
        f"{tmp_path}/chalmers2020-bs-devices.csv\n{tmp_path}/chalmers2020-bs-t0-wmax.csv\n",
    )
    assert (tmp_path / "chalmers2020-bs-t0-wmax.csv").read_text().startswith("test,")


def test_the_exhibits_of_a_paper_are_listed(capsys):
    out, _ = output_of(capsys, "figure", "--paper", "chalmers2020", "--list")
    one, two = out.splitlines()
    assert one.startswith("bs-fit ") and one.endswith(
        "(figure 1, figure 2, figure 3, figure 4, figure 5)"
    )
    assert two.startswith("bs-mesh ")


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        ("figure --paper nope", "paper 'nope' is not one of alappat2021, "),
        ("figure --paper lavin2020 --option x=1", "--option is for one figure, and --paper makes"),
        (
            "figure --paper beebe2022-circustent",
            "no figure of beebe2022-circustent can be made from these records",
        ),
        ("table --paper lavin2020 -o /dev/null/x", "/dev/null/x can't be written: Not a directory"),
        ("table --paper lavin2020 no.db", "no.db"),
    ],
)
def test_what_a_paper_lacks_is_refused(capsys, monkeypatch, tmp_path, words, culprit):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words.split())
    assert (code, out) == (2, "") and culprit in err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_every_exhibit_of_a_paper_is_shown_or_has_a_remark():
    table = tables["papers"]()
    for name, paper in PAPERS.items():
        assert len(set(paper.exhibits)) == len(paper.exhibits)
        assert set(REMARKS[name]) <= set(paper.exhibits)
        rows = table[table["paper"] == name]
        assert rows["exhibit"].tolist() == list(paper.exhibits)
    for row in table.itertuples():
        own = row.shown_by.startswith(("figure ", "table "))
        wanted = {"missing": "", "drawing": ""}.get(row.status)
        assert (row.shown_by == wanted) if wanted is not None else row.shown_by, row
        assert row.remark or own or row.status == "command", row
        assert not row.remark or row.remark.endswith("."), row
    spatter = table[table["paper"].eq("lavin2020")].set_index("exhibit")
    assert spatter.loc["figure 3", ["shown_by", "status"]].tolist() == [
        "figure spatter-fig3", "published",
    ]  # fmt: skip
    assert spatter.loc["figure 6", "status"] == "own"
    told = tables["a64fx-told"]()
    of_a64fx = table[table["paper"].eq("alappat2021")].set_index("exhibit")
    for exhibit in set(told["exhibit"]):
        assert of_a64fx.loc[exhibit, "status"] in ("told", "in part")
        assert "table a64fx-told" in of_a64fx.loc[exhibit, "shown_by"]
    assert set(of_a64fx.index[of_a64fx["status"] == "told"]) <= set(told["exhibit"])
    assert tables["papers"](paper="chalmers2020")["paper"].unique().tolist() == ["chalmers2020"]
    with refused("paper 'x' is not one of"):
        tables["papers"](paper="x")


def test_every_exhibit_is_in_a_section_or_shows_one_of_a_paper():
    modules = [module for name, module in sys.modules.items() if name.startswith("memkern.")]
    rows = [
        row for module in modules for key in ("_EXHIBITS", "_RARE")
        for row in vars(module).get(key, ())
    ]  # fmt: skip
    placed = {function for _, function, *_ in rows}
    commands = [remark.command for of in REMARKS.values() for remark in of.values()]
    listed = {"papers", *(command.split()[1] for command in commands if command)}
    for where in (figures, tables):
        elsewhere = {*where.origins, *listed} if where is tables else {*where.origins}
        assert not [n for n, make in where.items() if make not in placed and n not in elsewhere]


def test_kernels_have_their_atomics():
    table = tables["kernels"](family="amo").set_index("kernel")
    amos = dict(zip(PATTERNS, (1, 1, 1, 1, 1, 3, 3, 4), strict=True))
    assert table["amos"].to_dict() == {f"amo.{name}": count for name, count in amos.items()}
    assert table["bytes"].tolist() == [16 * count for count in amos.values()]
    assert set(tables["kernels"](family="stream")["amos"]) == {0}


def test_the_commands_of_remarks_run(capsys):
    commands = {remark.command for remarks in REMARKS.values() for remark in remarks.values()} - {
        ""
    }
    # Some need a file of the user.
    for command in {command for command in commands if "TRACE" not in command}:
        assert run(capsys, *command.split())[0] == 0, command
