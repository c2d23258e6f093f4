"""Configuration of Sphinx. `make docs` builds the pages in build/docs, without a network."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

project = "memkern"
author = "the memkern developers"
copyright = f"{author}, MIT licence"
release = importlib.metadata.version("memkern")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["families", "generated/*.inc"]
# Names between single backquotes in docstrings.
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False
# The types of parameters are words, some of which are names of attributes as well.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"memkern {release}"
html_static_path = ["static"]
html_css_files = ["memkern.css"]
html_copy_source = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}


def _number_footnotes(_app: Sphinx, _what: str, name: str, *rest: Any) -> None:
    """Make the footnotes of a docstring different from those of others on its page."""
    lines = rest[-1]
    label = rf"[#{name.replace('.', '-').lower()}-\1]"
    lines[:] = [re.sub(r"\[(\d+)\](?=_|[ ])", label, line) for line in lines]


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx looks for sources."""
    import pages
    from pages import options

    pages.write(DOCS / "generated")
    # Before napoleon reads the sections.
    app.connect("autodoc-process-docstring", options.shorten_docstring, priority=400)
    app.connect("autodoc-process-signature", options.shorten_signature)
    app.connect("autodoc-process-docstring", _number_footnotes)
