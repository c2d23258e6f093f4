"""The report in a browser: no error, no overlap and nothing cut off on the first page.

The checks run in a copy of the page, by a script that writes what it finds into the title.
"""

import json
import re
import shutil
import subprocess

import pytest
from merit_records import ENVIRONMENT, records, results

from memkern import report

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

ERRORS = "<script>var errors = []; window.onerror = (text) => errors.push(String(text));</script>"
CHECK = """<script>
window.addEventListener("load", () => {
  const parts = "h1, .verdict, .banner, .facts, .tile, .next, .beside";
  const boxes = [...document.querySelectorAll("#first")[0].querySelectorAll(parts)];
  const shape = (part) => part.getBoundingClientRect();
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 ||
                          a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
  const name = (part) => part.className + " " + part.textContent.trim().slice(0, 40);
  const overlapping = [], cut = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (!apart(shape(a), shape(b))) overlapping.push([name(a), name(b)]);
  }));
  for (const part of document.querySelectorAll("#first *")) {
    if (part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0) cut.push(name(part));
  }
  document.title = JSON.stringify({
    errors, overlapping, cut, tiles: document.querySelectorAll(".tile").length,
    bottom: shape(document.querySelector(".next")).bottom,
    wide: document.documentElement.scrollWidth, width: innerWidth,
    ink: getComputedStyle(document.body).color,
  });
});
</script>"""


def opened(page, width, height, *options):
    """Open a page in a window of this size, and return what the check finds."""
    text = page.read_text(encoding="utf-8")
    copy = page.with_name("copy.html")
    copy.write_text(
        text.replace("<title>", f"{ERRORS}<title>").replace("</body>", f"{CHECK}</body>")
    )
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={page.parent / 'profile'}", f"--window-size={width},{height}",
         "--virtual-time-budget=5000", "--dump-dom", *options, copy.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(re.search(r"<title>(.*?)</title>", done.stdout)[1].replace("&amp;", "&"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the report of a machine with all figures of merit, on a shared host."""
    states = {"state": "shared", "shared_with": "a program (process 77)", "core_share": 0.8}
    rows = [{**row, **states, "doctor": "fit with reservations"} for row in records()]
    return report.write(
        results(rows),
        tmp_path_factory.mktemp("browser") / "report.html",
        title="Data movement on Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz",
        environment=ENVIRONMENT,
        command="memkern report",
        sections=["latency"],
    )


def test_the_first_page_answers_without_scrolling(page):
    found = opened(page, 1300, 800)
    assert found["errors"] == found["overlapping"] == found["cut"] == []
    assert found["tiles"] == 8 and found["bottom"] <= 800
    assert found["wide"] <= found["width"] == 1300


@pytest.mark.release
@pytest.mark.parametrize("width", [400, 800])
def test_narrow_windows_cut_nothing_off(page, width):
    found = opened(page, width, 800)
    assert found["errors"] == found["overlapping"] == found["cut"] == []
    assert found["wide"] <= found["width"]


@pytest.mark.release
def test_dark_pages_have_light_ink(page):
    dark = opened(page, 1300, 800, "--blink-settings=preferredColorScheme=0")
    assert dark["ink"] == "rgb(232, 230, 227)" and dark["errors"] == []


@pytest.mark.release
def test_the_page_prints(page):
    printed = page.with_suffix(".pdf")
    subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
         f"--user-data-dir={page.parent / 'profile'}", f"--print-to-pdf={printed}", page.as_uri()],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    assert printed.read_bytes().startswith(b"%PDF")
