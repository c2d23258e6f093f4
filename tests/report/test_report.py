"""The report: one self-contained file whose findings follow from the records."""

import re
from html.parser import HTMLParser

import merit_records
import pandas as pd
import pytest
from checking import refused
from markupsafe import Markup
from spatter_records import GATHER, OWN, own_records, record

from memkern import plots, report
from memkern.errors import InputError
from memkern.families.spatter import figures as spatter
from memkern.report import page as pages
from memkern.report.svg import Inline
from memkern.report.tables import _parts, breakable, table_of

ENVIRONMENT = {
    "machine": {
        "model": "Own Machine 3000",
        "caches": [{"level": 1, "size_B": 32768}, {"level": 2, "size_B": 1 << 20}],
        "memory_B": 24 << 30,
        "hypervisor": None,
    },
    "os": {"kernel": "6.1"},
    "settings": {"thp": {"enabled": "madvise"}, "empty": {}},
    "build": {},
    "python": {"memkern": "0.1.0"},
}


class Page(HTMLParser):
    """The tags, links, figures, words, rows and scripts of an HTML text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.loaded, self.words, self.titles = [], [], [], [], []
        self.rows, self.scripts, self.ids, self.parts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.joined = tag == "wbr"
        if self.joined:
            return
        self.tags.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        if tag == "tr":
            self.rows.append([])
        if "href" in values:
            (self.links if tag == "a" else self.loaded).append(values["href"])
        if "xlink:href" in values:
            assert values["xlink:href"].startswith("#")
        if tag == "svg":
            self.titles.append(values["aria-label"])
        if values.get("class") == "plot":
            self.parts.append(values["style"])
        if "src" in values:
            self.loaded.append(values["src"])
        self.scripts += [name for name in values if name.startswith("on")]

    def handle_data(self, data):
        if not data.strip() or self.tags[-1] in ("script", "style"):
            return
        for words in [self.words, *([self.rows[-1]] if self.tags[-1] in ("td", "th") else [])]:
            if self.joined:
                words[-1] += data.rstrip()
            else:
                words.append(data.strip())
        self.joined = False

    @property
    def outside(self):
        """Links other than those within the page, and data in the page itself."""
        return [link for link in self.links if not link.startswith(("#", "data:text/csv"))]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page(tmp_path, records, **options):
    """Write a report and read it as a page."""
    options = {"title": "A title", "environment": ENVIRONMENT} | options
    path = report.write(records, tmp_path / "report.html", **options)
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a report of all records of a run, as a page and as a file."""
    folder = tmp_path_factory.mktemp("report")
    options = {"command": "memkern report --quick", "data": folder / "records.parquet"}
    seen = page(folder, own_records(), **options)
    return seen, folder / "report.html"


@pytest.fixture
def undrawn(monkeypatch):
    """Leave figures and tables out of the section on gather and scatter."""
    monkeypatch.setattr(spatter, "_EXHIBITS", ())


@pytest.fixture
def unencoded(monkeypatch):
    """Have figures in pages by their titles alone."""

    def titled(figure, name, title):
        return Inline(Markup(f'<svg aria-label="{title}"></svg>'), [], "")

    monkeypatch.setattr(pages, "inline", titled)


def test_identifiers_in_citations_are_links():
    both = "Somebody: Title, 2021, arXiv:2103.03013, doi:10.1002/cpe.6512; Others, doi:10.1/a(b)c;"
    assert pages._sources(both) == [
        ("arXiv:2103.03013", "https://arxiv.org/abs/2103.03013"),
        ("doi:10.1002/cpe.6512", "https://doi.org/10.1002/cpe.6512"),
        ("doi:10.1/a(b)c", "https://doi.org/10.1/a%28b%29c"),
    ]
    assert pages._sources("Slides, 2022") == []


def test_a_report_is_one_file_that_loads_nothing(whole):
    seen, path = whole
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    assert path.stat().st_size < 4e6
    assert seen.tags.count("script") == 1 and seen.scripts == [] and seen.loaded == []
    assert len(seen.titles) == 6 and len(set(seen.titles)) == 6
    assert len(seen.ids) == len(set(seen.ids))
    assert seen.outside == ["https://doi.org/10.1145/3422575.3422794", "records.parquet"]
    css = re.search(r"<style>(.*?)</style>", path.read_text(), flags=re.S)[1]
    assert "url(" not in css and "@import" not in css and "<image" not in path.read_text()
    assert "prefers-color-scheme: dark" in css and "@media print" in css


def test_findings_follow_from_the_records(whole):
    text = whole[0].text
    assert "At stride 1: gather 82.5 GB/s, scatter 55 GB/s." in text
    # The records have 1/8 of the bandwidth at stride 8, and a tenth from stride 10 on.
    assert "gather keeps 12 % at stride 8 and 10 % at stride 16" in text
    assert "Each of its 4 threads has 20.6 GB/s in the stride-1 gather, a thread of 6 publ" in text
    assert "to 5.8 (Cascade Lake, 20 threads); all threads of a platform share" in text
    assert "rank" not in text
    assert "simd won 32" in text
    assert "a stride-1 gather 1.10 times and scatter 1.10 times as against 4 KiB pages" in text
    assert "the worst is PENNANT-G15" in text and "the best AMG-G0, with 121 %" in text
    assert f"All {len(own_records())} records passed validation." in text
    assert "Lavin" in text and "Pearson" in text


def test_a_report_shows_machine_settings_and_how_to_reproduce(whole):
    seen = whole[0]
    assert ["caches", "level 1, size_B 32 KiB"] in seen.rows
    assert ["memory_B", "24 GiB"] in seen.rows
    assert ["thp.enabled", "madvise"] in seen.rows
    assert "hypervisor" not in seen.text
    assert "memkern report --quick" in seen.text and "memkern 0.1.0" in seen.text


def test_all_results_are_in_the_table(whole):
    records = own_records()
    shown = [row for row in whole[0].rows if len(row) > 10 and row[0] == GATHER]
    assert len(shown) == int((records["kernel"] == GATHER).sum())
    assert ["AMG-G0", "100.0"] in [[row[1], row[7]] for row in shown]


def test_contents_link_to_every_section(whole):
    seen = whole[0]
    inside = {link.removeprefix("#") for link in seen.links if link.startswith("#")}
    assert inside <= set(seen.ids)
    assert {"first", "section-1", "validity", "results", "machine", "reproduce"} <= inside


def test_figures_have_one_scale(tmp_path, monkeypatch):
    from memkern.plots.style import COLUMN_IN, DOUBLE_IN, new_figure

    exhibits = tuple(
        plots.Exhibit("sizes", "Figure", new_figure(width, 2.0), "")
        for width in (DOUBLE_IN, COLUMN_IN)
    )
    monkeypatch.setitem(plots.sections, "one", lambda _: plots.Section("One", (), exhibits))
    parts = page(tmp_path, own_records(), sections=["one"]).parts
    assert parts == [f"--w: {DOUBLE_IN}in", f"--w: {COLUMN_IN}in"]


def test_a_table_of_numbers_that_is_wider_than_long_is_transposed():
    wide = pd.DataFrame({"test": ["BS1", "BS2"], "A: x": [1.5, 2.5], "B: x": [3.5, 4.5], "C": 5.5})
    turned = table_of(wide)
    assert turned.head == ["test", "BS1", "BS2"]
    assert turned.rows[0] == ["A: x", "1.500", "2.500"] and len(turned.rows) == 3
    for other in (wide.assign(C="word"), wide.iloc[:, :3], wide.iloc[:1]):
        assert table_of(other).head == list(other)


def test_lines_of_tables_break_within_long_names_but_not_within_numbers(whole):
    assert _parts("spatter.gather_triad UNIFORM:8:1") == [
        *("spatter.", "gather_", "triad", "UNIFORM:", "8:", "1")
    ]
    assert _parts("12.50 2.5e-05 -0.25") == ["12.50", "2.5e-05", "-0.25"]
    assert breakable("a_b <i>") == "a_<wbr>b &lt;i&gt;"
    narrow, wide = (pd.DataFrame({name: ["x"]}) for name in ("words_words", "wordswords"))
    assert table_of(narrow).width_em < table_of(wide).width_em
    seen, path = whole
    css = path.read_text(encoding="utf-8")
    widths = set(re.findall(r'class="sortable w(\d+)"', css))
    assert widths and widths == set(re.findall(r"\.w(\d+) { font-size: clamp", css)) and seen.rows


def test_text_from_outside_is_escaped(tmp_path, monkeypatch):
    monkeypatch.setattr(spatter, "_EXHIBITS", spatter._EXHIBITS[:1])
    bad = "<script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>"
    environment = {"machine": {bad: bad, "list": [bad, {bad: bad}]}, bad: {"a": bad}}
    records = own_records(platform=f"{bad}, 2 threads", variant=bad, isa=bad, validation=bad)
    records.loc[3, "valid"] = False
    seen = page(
        tmp_path,
        records,
        title=bad,
        environment=environment,
        command=bad,
        data=tmp_path / 'x" onclick="alert(1)',
    )
    assert seen.tags.count("script") == 1 and seen.scripts == [] and seen.loaded == []
    assert all("evil" not in link for link in seen.outside)
    assert seen.text.count("alert('x')") > 10


def test_failed_and_disturbed_records_are_reported(tmp_path):
    records = own_records()
    records.loc[[0, 5], ["valid", "error_max"]] = [False, 0.25]
    records.loc[7, "disturbed"] = True
    seen = page(tmp_path, records, sections=[])
    assert f"2 of {len(records)} records failed validation" in seen.text
    assert "1 record is disturbed" in seen.text
    failed = [row for row in seen.rows if row[-2:] == ["whole", "0.2500"]]
    assert len(failed) == 2 and failed[0][:2] == [GATHER, "UNIFORM:8:1"]


@pytest.mark.usefixtures("undrawn")
def test_many_disturbed_records_are_reported_with_the_validity(tmp_path):
    records = own_records()
    few, many = len(records) // 20, len(records) // 20 + 1
    records.loc[records.index[:few], "disturbed"] = True
    text = page(tmp_path, records, sections=[]).text
    assert "Measure again when" not in text and " warning" not in text
    records.loc[records.index[:many], "disturbed"] = True
    seen = page(tmp_path, records)
    warning = f"{many} of {len(records)} records are disturbed, since workers waited for processors"
    assert warning in seen.text and seen.text.index(warning) > seen.text.index("At stride 1")
    # One link leads there from the first page.
    assert seen.text.index("1 warning") < seen.text.index("At stride 1")
    assert seen.links.count("#validity") == 2


@pytest.mark.usefixtures("undrawn")
def test_a_shared_host_is_named_below_the_title_and_described_with_the_validity(tmp_path):
    text = page(tmp_path, own_records(state="quiet"), sections=[]).text
    assert "host is shared" not in text and "The host was quiet." in text
    records = own_records(state="shared", shared_with="", states="", core_share=0.76)
    text = page(tmp_path, records).text
    assert text.index("The host is shared.") < text.index("At stride 1")
    told = "This host is shared: its cores have 76% of their best throughput; the intervals show"
    assert told in text and text.index(told) > text.index("At stride 1")


def test_cases_that_were_left_out_are_reported(tmp_path):
    records = own_records()
    for left_out, words in ((0, ""), (1, "1 case was not measured"), (3, "3 cases were not meas")):
        text = page(tmp_path, records, sections=[], left_out=left_out).text
        assert ("not measured: the time of" in text) is bool(left_out) and words in text


def test_contradictions_are_with_the_validity_and_ask_for_nothing(tmp_path):
    rows = merit_records.records()
    twin = {**rows[0], "kernel": "raider.copy", "bandwidth_GBps": 2 * rows[0]["bandwidth_GBps"]}
    assert "warning" not in page(tmp_path, merit_records.results(rows), sections=[]).text
    text = page(tmp_path, merit_records.results([*rows, twin]), sections=[]).text
    assert "1 warning" in text and "Numbers of this report contradict each other:" in text
    assert "measure again" not in text and "as raider.copy are 100 % apart" in text


def test_validity_reports_retaken_samples_and_the_scope_of_intervals(tmp_path):
    records = own_records(
        samples=20,
        samples_disturbed=lambda frame: (frame.index == 3) * 7,
        cpu_share=lambda frame: 1.0 - 0.25 * (frame.index == 3),
        core_share=lambda frame: 1.0 - 0.125 * (frame.index == 4),
        ci_scope=lambda frame: ["none" if i == 3 else "next run" for i in frame.index],
        ci_relative=lambda frame: [float("nan") if i == 3 else 0.04 for i in frame.index],
        time_min_ci_relative=lambda frame: [float("nan") if i == 3 else 0.03 for i in frame.index],
        within_ci_relative=lambda frame: [64.6 if i == 4 else 0.01 for i in frame.index],
        disturbed=lambda frame: frame.index == 3,
    )
    text = page(tmp_path, records, sections=[]).text
    assert "1 record is disturbed, drawn with hollow markers and left out of fits." in text
    assert (
        f"7 samples were disturbed and retaken, in addition to {20 * len(records)} that count"
        in text
    )
    assert "a worker had 75.0% of its processor (cpu_share) and 87.5% of its core" in text
    assert f"of {len(records) - 1} records for the next run and of 1 record for no runs" in text
    assert "interval of the shortest time is 3% of the value in the median record and 3%" in text
    assert "the interval of the median is 4% of the value in the median record and 4%" in text
    assert "the interval within the run is 1% of the value in the median record and ×÷129 " in text


def test_validity_reports_what_ran_beside_it_and_few_placements(tmp_path):
    records = own_records(
        placements=lambda frame: [4 if i == 3 else 3 if i in (4, 5) else 5 for i in frame.index],
        placements_requested=lambda frame: [3 if i in (4, 5) else 5 for i in frame.index],
    )
    text = page(tmp_path, records, sections=[], beside="stress (process 77)").text
    assert "When measuring began, stress (process 77) also ran on this machine." in text
    assert (
        f"3 of {len(records)} records have fewer than 5 placements, 2 since no more were requested "
        "(--quick, --runs or a GPU), 1 since time was short or placements were disturbed: their "
        "intervals are less certain."
    ) in text
    records["placements"] = 5
    text = page(tmp_path, records, sections=[]).text
    assert "When measuring began" not in text and "fewer than 5 placements" not in text


@pytest.mark.usefixtures("undrawn")
def test_records_of_older_versions_are_read(tmp_path):
    records = own_records().rename(columns={"disturbed": "noisy"})
    records.loc[7, "noisy"] = True
    seen = page(tmp_path, records)
    assert "1 record is disturbed" in seen.text and "retaken" not in seen.text


@pytest.mark.usefixtures("unencoded")
def test_a_report_without_any_valid_record_is_written(tmp_path):
    seen = page(tmp_path, own_records(valid=False))
    assert "At stride 1" not in seen.text
    assert "records failed validation" in seen.text


@pytest.mark.usefixtures("unencoded")
def test_missing_figures_are_explained(tmp_path):
    records = own_records()
    records = records[(records["variant"] == "simd") & (records["pages_requested"] == "thp")]
    seen = page(tmp_path, records)
    assert len(seen.titles) == 4
    assert "Vectorised against scalar code: no uniform stride was measured" in seen.text
    assert "Page policies: no platform was measured under two page policies" in seen.text
    assert "Transparent huge pages (thp) change" not in seen.text


@pytest.mark.usefixtures("undrawn")
def test_several_platforms_are_named_in_the_findings(tmp_path):
    both = pd.concat([own_records(), own_records(platform="Other, 1 thread")], ignore_index=True)
    text = page(tmp_path, both).text
    assert f"{OWN}: At stride 1" in text and "Other, 1 thread: At stride 1" in text


@pytest.mark.usefixtures("unencoded")
def test_records_of_a_gpu_add_the_figures_of_gpus(tmp_path):
    gpu = own_records(backend="cuda", variant="cuda")
    seen = page(tmp_path, gpu)
    assert "Bandwidth against stride on GPUs" in seen.text
    assert "Among" not in seen.text  # threads of GPUs are not compared


@pytest.mark.usefixtures("undrawn")
def test_a_new_family_adds_its_section_by_registering_it(tmp_path, monkeypatch):
    table = pd.DataFrame({"kernel": ["stream.add"], "bandwidth_GBps": [12.5]})

    def section(frame):
        rows = frame[frame["kernel"] == "stream.add"]
        exhibit = plots.Exhibit("streams", "Streams", table, "A caption.")
        return plots.Section("Streaming", ("Add runs.",), (exhibit,)) if len(rows) else None

    monkeypatch.setitem(plots.sections, "stream", section)
    frame = pd.concat(
        [own_records(), pd.DataFrame([record("stream.add", "", 12.5, suite="")])],
        ignore_index=True,
    )
    text = page(tmp_path, frame).text
    places = [text.rindex(each) for each in ("At stride 1", "Streaming", "Add runs.", "A caption.")]
    assert places == sorted(places)
    only = page(tmp_path, frame, sections=["stream"])
    assert "Streaming" in only.text and "At stride 1" not in only.text and only.titles == []
    assert "Add runs." not in page(tmp_path, own_records(), sections=["stream"]).text


def test_kernels_without_a_section_are_in_the_results(tmp_path):
    frame = pd.DataFrame([record("launch.empty", "", float("nan"))])
    seen = page(tmp_path, frame)
    assert seen.titles == []
    assert any("launch.empty" in row for row in seen.rows)


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"records": own_records().iloc[:0]}, "no record"),
        ({"records": own_records().drop(columns="suite")}, "'suite'"),
        ({"records": own_records(bandwidth_GBps=-1.0)}, "not a positive number"),
        ({"sections": ["nonsense"]}, "'nonsense'"),
        ({"records": None}, "needs records"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(change, culprit, tmp_path):
    with refused(culprit):
        page(tmp_path, **{"records": own_records()} | change)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("undrawn")
def test_an_unwritable_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="can't be written"):
        page(tmp_path / "missing", own_records())
