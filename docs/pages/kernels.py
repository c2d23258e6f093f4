"""The pages of the kernels, one for each family."""

from __future__ import annotations

from itertools import groupby, zip_longest
from pathlib import Path

from memkern.extension import _memkern
from memkern.spec.case import KernelSpec
from memkern.spec.registry import case, registry
from pages.text import cell, code, put, rows, title, tree

NOTES = Path(__file__).parents[1] / "families"

_HEAD = """# Kernels

{count} kernels in {families} families. `memkern table kernels` prints the list, and
`mk.case("stream.triad", elements=2**24)` builds a case of any of them. Bytes are those of the
definition in float64, without indices and write-allocates; they are empty where they depend on the
inputs of the case.

"""


def write(folder: Path) -> list[Path]:
    """Write an overview and the page of each family."""
    grouped = groupby(registry().values(), key=lambda spec: spec.name.partition(".")[0])
    families = {family: list(specs) for family, specs in grouped}
    count = sum(map(len, families.values()))
    overview = [_HEAD.format(count=count, families=len(families)), tree(*families)]
    for family, specs in families.items():
        overview.append(f"\n## {title(family)}\n\n{_listing(specs)}")
    made = [put(folder / "kernels" / "index.md", "".join(overview))]
    for family, specs in families.items():
        made.append(put(folder / "kernels" / f"{family}.md", _page(family, specs)))
    return made


def _listing(specs: list[KernelSpec]) -> str:
    body = [
        [f"[{code(spec.name)}](#{_anchor(spec)})", code(spec.summary), *_counts(spec)]
        for spec in specs
    ]
    return rows(["kernel", "definition", "bytes", "flops"], body)


def _anchor(spec: KernelSpec) -> str:
    return "kernel-" + spec.name.replace(".", "-").replace("@", "-").replace("_", "-")


def _counts(spec: KernelSpec) -> list[str]:
    """Return bytes and flops of an iteration as text, empty where all cases differ."""
    shapes = {array.shape for array in spec.arrays} - {"(1,)"}
    moved = 0.0
    if shapes == {"(elements,)"}:
        moved = case(spec.name, elements=1).bytes_B
    return [f"{count:.0f}" if count else "" for count in (moved, spec.counts.flops)]


def _page(family: str, specs: list[KernelSpec]) -> str:
    notes = NOTES / f"{family}.md"
    parts = [f"# {title(family)}\n\n", notes.read_text() + "\n" if notes.exists() else ""]
    return "".join([*parts, *map(_section, specs)])


def _section(spec: KernelSpec) -> str:
    """Return the section of a kernel: definition, counts, what it is built for, arrays, source."""
    moved, flops = _counts(spec)
    facts = {
        "Bytes of an iteration": moved and f"{moved} B of values",
        "Flops of an iteration": flops,
        "Scalars": ", ".join(f"{code(name)} = {value:g}" for name, value in spec.numbers.items()),
        "Index arrays": ", ".join(map(code, spec.indices)),
        **_built(spec),
    }
    listed = "".join(f"- {name}: {text}\n" for name, text in facts.items() if text)
    arrays = [[code(array.name), array.role, code(array.shape)] for array in spec.arrays]
    table = rows(["array", "role", "shape"], arrays) + "\n" if arrays else ""
    return (
        f"({_anchor(spec)})=\n## {code(spec.name)}\n\n```text\n{spec.summary}\n```\n\n"
        f"{listed}\n{table}Source: {cell(spec.source)}.\n\n"
    )


def _built(spec: KernelSpec) -> dict[str, str]:
    """Return for what a kernel is built for processors: variants, types, operations."""
    entries = [entry for entry in _memkern.entries() if entry[0] == spec.name]
    places = {"Variants": 1, "Types of values": 3, "Types of indices": 4, "Unrollings": 5}
    found = {what: dict.fromkeys(entry[at] for entry in entries) for what, at in places.items()}
    # Each word of an operation has its own column; some kernels lack the last words.
    words = zip_longest(*(entry[6].split("/") for entry in entries), fillvalue="")
    columns = zip(spec.template_columns, words, strict=False)
    found |= {f"Values of {code(column)}": dict.fromkeys(each) for column, each in columns}
    return {
        what: ", ".join(code(str(value)) for value in values if value)
        for what, values in found.items()
    }
