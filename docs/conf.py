"""Configuration of Sphinx. `make docs` builds the pages in build/docs, without a network."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

project = "memkern"
author = "the memkern developers"
copyright = f"{author}, MIT licence"
release = version("memkern")

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
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"memkern {release}"
html_static_path = ["static"]
html_css_files = ["memkern.css"]
html_copy_source = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}


def setup(app: object) -> None:
    """Write the generated pages before Sphinx looks for sources."""
    import pages

    pages.write(DOCS / "generated")
