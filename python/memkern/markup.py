"""Tables in HTML for notebooks, which keep inline styles only."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence


def html_table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    colours: Sequence[str] = (),
) -> str:
    """Return a table as HTML, with all texts escaped.

    Parameters
    ----------
    caption : str
    head : sequence of str
        Titles of the columns; without any, the table has no head.
    rows : iterable of sequence of str
        The texts of the cells.
    right : collection of int
        Columns that are aligned to the right.
    colours : sequence of str
        Background of each row, empty for none; by default none.
    """

    def row(tag: str, texts: Sequence[str], colour: str = "") -> str:
        cells = (
            f'<{tag} style="padding:.2em .7em;text-align:{"right" if i in right else "left"}">'
            f"{html.escape(text)}</{tag}>"
            for i, text in enumerate(texts)
        )
        style = f' style="background:{colour};color:#222"' if colour else ""
        return f"<tr{style}>{''.join(cells)}</tr>"

    every = list(rows)
    body = "".join(map(row, ["td"] * len(every), every, colours or [""] * len(every)))
    titles = f'<thead style="border-bottom:1px solid">{row("th", head)}</thead>' if head else ""
    return (
        '<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">'
        f'<caption style="text-align:left;padding:.3em 0">{html.escape(caption)}</caption>'
        f"{titles}<tbody>{body}</tbody></table>"
    )
