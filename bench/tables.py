"""Write the tables of the pages from the records.

A table is between ``<!-- table: NAME -->`` and ``<!-- end -->``, where NAME is the name of a file
in bench/records; the rows of several names follow each other. With ``--check`` nothing is written,
and the exit code is 1 if a table of a page differs from its records.
"""

import argparse
import re
import sys
from pathlib import Path

from records import read, table

PAGES = sorted((Path(__file__).parent / "measured").glob("*.md"))
MARKED = re.compile(r"^( *)<!-- table: (.*) -->\n(?:.*\n)*?\1<!-- end -->$", re.MULTILINE)


def with_tables(page: str) -> str:
    """Return a page with the tables of its records."""

    def made(found: re.Match[str]) -> str:
        rows = [row for name in found[2].split() for row in read(name)["rows"]]
        lines = [f"<!-- table: {found[2]} -->", *table(rows), "<!-- end -->"]
        return "\n".join(found[1] + line for line in lines)

    return MARKED.sub(made, page)


def main() -> int:
    """Write or check the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only tell whether tables differ")
    args = parser.parse_args()
    for path in PAGES:
        page = path.read_text()
        now = with_tables(page)
        if args.check and now != page:
            print(f"{path} has tables that differ from the records: run bench/tables.py")
            return 1
        if not args.check:
            path.write_text(now)
    return 0


if __name__ == "__main__":
    sys.exit(main())
