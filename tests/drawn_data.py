"""The data of all figures that tests draw, to compare them before and after a change of the code.

pytest --drawn before.jsonl -m "not ranks" tests/plots tests/families     # and after the change
python tests/drawn_data.py before.jsonl after.jsonl

Figures of tests whose records are measured differ from run to run, and are in both lists of two
runs of the same code.
"""

import functools
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np


def _numbers(values: Any) -> list[Any]:
    """Return numbers with nine digits, which roundings do not change."""
    return [
        f"{value:.9g}" for value in np.ravel(np.ma.filled(np.asarray(values, dtype=float), np.nan))
    ]


def _of_axes(ax: Any) -> dict[str, Any]:
    from matplotlib.colors import to_hex

    about = [ax.get_title(), ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()]
    lines = [
        [line.get_label(), to_hex(line.get_color()), line.get_marker(), str(line.get_linestyle()),
         *map(_numbers, line.get_data())]
        for line in ax.lines
    ]  # fmt: skip
    patches = [[type(p).__name__, *_numbers(p.get_path().vertices[:4])] for p in ax.patches]
    groups = [
        [c.get_label(), _numbers(c.get_offsets()), *(_numbers(p.vertices) for p in c.get_paths())]
        for c in ax.collections
    ]
    return {
        **{"about": about, "limits": _numbers([ax.get_xlim(), ax.get_ylim()]), "lines": lines},
        **{"patches": patches, "collections": groups},
        "texts": sorted(text.get_text() for text in ax.texts),
        "images": [_numbers(image.get_array()) for image in ax.images],
    }


def record_figures(path: str) -> None:
    """Write each figure that is drawn from now on to a file, a line each."""
    from memkern.plots import style

    register, count = style.register, Counter[tuple[str, str]]()

    def recording(where: Any, name: str, draw: Any, of: Any) -> Any:
        @functools.wraps(draw)
        def drawn(*args: Any, **options: Any) -> Any:
            fig = draw(*args, **options)
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            count[test, name] += 1
            every = getattr(fig, "axes", [])
            data = [_of_axes(ax) for ax in (every if isinstance(every, list) else [])]
            texts = sorted(text.get_text() for text in getattr(fig, "texts", []))
            row = {"test": test, "figure": name, "number": count[test, name]}
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "axes": data, "texts": texts}) + "\n")
            return fig

        return register(where, name, drawn, of)

    style.register = recording


def differences(before: Path, after: Path) -> list[str]:
    """Return the figures that are in one file only, or differ, and in which part."""
    found = []
    rows = [
        {
            (row["test"], row["figure"], row["number"]): row
            for row in map(json.loads, path.read_text().splitlines())
        }
        for path in (before, after)
    ]
    for key in sorted({*rows[0], *rows[1]}):
        a, b = (each.get(key) for each in rows)
        if a is None or b is None:
            found.append(f"{key}: only {'after' if a is None else 'before'}")
        elif a != b:
            parts = [
                k for x, y in zip(a["axes"], b["axes"], strict=False) for k in x if x[k] != y[k]
            ]
            found.append(f"{key}: {', '.join(dict.fromkeys(parts)) or 'panels or small print'}")
    return found


if __name__ == "__main__":
    print("\n".join(differences(*map(Path, sys.argv[1:3]))))
