"""Tables of the papers: what shows their exhibits, and numbers that only their text states."""

from __future__ import annotations

from typing import NamedTuple

from memkern import reference
from memkern.checks import unknown
from memkern.plots.kit import (
    GREY,
    PAPERS,
    Axes,
    DataFrame,
    Records,
    new_table,
    published_table,
    tabulated,
)

TOLD = "a64fx-told"
"""Name of the table."""

_FIGURES = "2, 3, 4, 5, 8, 9, 11, 15, 16, 18, 21, 22, 23, 24, 25"


@published_table(
    TOLD,
    "alappat2021-text",
    "exhibit, section (of the paper), quantity, case, cores (of the 12 of a group or the 48 of the "
    "chip; missing where they are the quantity or do not matter), value, unit",
    paper="alappat2021",
    number=f"figure {_FIGURES}",
)
def told_table(records: Records = None) -> None:
    """Numbers of the A64FX in the text of Alappat et al. 2021, on figures without values."""


def told_points(ax: Axes, exhibit: str, quantity: str) -> list[int]:
    """Draw the told numbers of a figure over the cores, and return the cores.

    Parameters
    ----------
    ax : Axes
    exhibit : str
        Such as ``"figure 3"``.
    quantity : str
        As in the table.
    """
    rows = [
        row
        for row in reference.rows("alappat2021-text")
        if (row["exhibit"], row["quantity"]) == (exhibit, quantity)
    ]
    cores = [row["cores"] for row in rows]
    ax.plot(
        cores, [row["value"] for row in rows], marker="D", color=GREY, linestyle="none",
        markersize=4, label=f"A64FX, {rows[0]['case']}",
    )  # fmt: skip
    return cores


class Remark(NamedTuple):
    """What the registries of figures and tables do not tell of a paper's exhibit.

    Attributes
    ----------
    status : str
        ``in part``, ``missing``, ``drawing`` (without values) or ``command`` (of another kind).
        Empty for one that is shown in full.
    sentence : str
        What is missing, and why.
    command : str
        The command that shows it, if no figure or table does.
    """

    status: str
    sentence: str
    command: str = ""


_DRAWING = Remark("drawing", "It has no values.")
_CRS = Remark("", "The matrices are generated: `tsm`, `hpcg`.")
_COUNTED = "Traffic is drawn beside the prediction where records have counts (`--counters`)."
_BUILDS = "Compilers are builds, which are apart where records come from several."
_ONLY_FITS = Remark(
    "",
    "The published GPUs as their fits of table 3: the measured points were not published as "
    "numbers.",
)

REMARKS: dict[str, dict[str, Remark]] = {
    "alappat2021": {
        "figure 1": _DRAWING,
        "figure 2": Remark(
            "",
            "The variant `nt` zeroes lines on AArch64 (DC ZVA); on x86-64, its non-temporal stores "
            "are in the place of zero-filled lines.",
        ),
        "figure 3": Remark(
            "",
            "Of the A64FX's hardware barrier the two numbers in the text. The text states almost "
            "2200 cycles for more than 12 cores, not for a number of cores: drawn at all 48.",
        ),
        "figure 4": Remark(
            "", f"The variant `nta` is in the place of the sector cache. {_COUNTED}"
        ),
        "figure 5": Remark("", "TLB misses, which need `--counters`, have a figure of their own."),
        "figure 6": Remark(
            "",
            "Computed from the published bandwidths. The paper's text only has a formula of (d); "
            "(a) to (c) are derived from it. Of own records also the hypotheses that fit best.",
        ),
        "figure 7": Remark("", "Loops without unrolling need records with `--unroll 1`."),
        "figure 8": _CRS,
        "figure 9": _CRS,
        "figure 10": _DRAWING,
        "figure 11": _CRS,
        "figure 12": Remark("", "The matrices are those of the given records."),
        "figure 13": Remark(
            "",
            "The variant `nta` is in the place of the sector cache, and has a series of its own if "
            f"it was requested (`--variant simd,nta`). {_BUILDS}",
        ),
        "figure 14": Remark(
            "",
            "CRS, SELL, CSC and ELLPACK of this package; the option `libraries` draws the fastest "
            "of oneMKL, Eigen, librsb, PETSc and SciPy beside them, from the file that "
            f"`bench/beside_spmv.py` writes. {_BUILDS}",
        ),
        "figure 15": Remark(
            "in part",
            "Performance, energy and their changes by `--clock-limit`; eco mode is a setting of "
            "the A64FX alone, see below.",
        ),
        "figure 16": Remark(
            "in part",
            "Processors only: no sparse product runs on GPUs. The text states 1.6 to 2 times the "
            "performance of Cascade Lake AP, the paper's summary 2 times.",
        ),
        "figure 17": _DRAWING,
        "figure 18": Remark("", f"{_COUNTED} {_BUILDS}"),
        "figure 19": _DRAWING,
        "figure 20": _DRAWING,
        "figure 21": Remark("", f"A simulated cache is drawn as well. {_COUNTED}"),
        "figure 22": Remark("", f"{_COUNTED} {_BUILDS}"),
        "figure 23": Remark("", _COUNTED),
        "figure 24": Remark(
            "in part",
            "By layout and `--clock-limit`; eco mode is a setting of the A64FX alone, see below.",
        ),
        "figure 25": Remark("in part", "Processors only: this kernel does not run on GPUs."),
        "table 1": Remark("command", "", "machine A64FX"),
        "table 2": Remark("command", "", "machine A64FX"),
        "table 3": Remark(
            "",
            "With data in memory, the model of the published machine (`ecm-overlap`) has 2 to 3 % "
            "fewer cycles than printed for copy, daxpy, dot, init, init4, load4, triad and "
            "Schoenauer: by the paper's formula memory overlaps, and these are bound by L2.",
        ),
        "table 4": Remark(
            "in part",
            "The matrices of the given records: the paper's text lacks the file with the table. "
            "Those of the suite (`memkern spmv alappat2021-matrices`) have the rows and nonzeros "
            "of the files and the structures that the text states, not their columns; files are "
            "measured as `memkern spmv FILE.mtx`.",
        ),
        "table 5": Remark(
            "",
            "With the sizes in bytes for a lattice. By these, L2 no longer fulfils LC_y for four "
            "cores (8 MiB / 4 < 2580480 B); the paper's text says five.",
        ),
        "table 6": Remark(
            "",
            "Beside them terms of our own, which do not count the spills of registers. T_Mem is "
            "15.4 cycles, 1488 B at 213 GB/s and 2.2 GHz, where the paper prints 15.9.",
        ),
    },
    "beebe2022-circustent": {
        "chart of atomics in GAPBS": Remark(
            "command",
            "Its values were not published as numbers. Of own programs, atomic accesses and the "
            "lines that several threads share.",
            "patterns TRACE",
        ),
        "chart of remote atomics": Remark("", "Its values were not published as numbers."),
        "table of atomics per iteration": Remark(
            "command", "", "table kernels --option family=amo"
        ),
    },
    "beebe2022-raiderstream": {
        "figure 1": _DRAWING,
        "figure 2": _DRAWING,
        "table I": Remark("command", "", "table kernels --option family=raider"),
    },
    "chalmers2020": {
        **{f"figure {number}": _ONLY_FITS for number in range(1, 8)},
        "table 1": Remark("command", "", "table kernels --option family=bs"),
        "table 2": Remark("", "With the peak bandwidths of section 6.1."),
    },
    "lavin2020": {
        "figure 1": _DRAWING,
        "figure 2": _DRAWING,
        "figure 4": Remark(
            "",
            "For scatters as well; where prefetchers can't be switched, by the order of accesses.",
        ),
        "figure 6": Remark("", "As a ratio instead of percent."),
        "figure 9": Remark(
            "",
            "Of the four gathers, the paper's text only names PENNANT-G12; `--option patterns=` "
            "takes others.",
        ),
        "table 1": Remark(
            "", "As published; `memkern patterns` counts the gathers and scatters of a program."
        ),
        "table 2": Remark("", "As published, in our words."),
        "table 5": Remark("", "With the class of each pattern, also of those of own records."),
        "insight 5 of section 5.4.2": Remark("", "The paper has a sentence and no figure of it."),
    },
}
"""Remarks on exhibits by paper and number. What no figure or table shows has one."""


@tabulated(
    "papers",
    "paper, exhibit, shown_by (commands without ``memkern``), status and remark. The status is "
    '"published" if published values are shown without own records, "told" if these are only '
    'numbers in the text of the paper, "own" if only own records are shown, "in part", "command" '
    'if another command shows it, "missing", or "drawing" for one without values.',
    records="Not used",
    lack="the paper is unknown",
    optional=True,
)
def paper_table(records: Records = None, paper: str = "") -> DataFrame:
    """All figures and tables of the papers: what shows them, and why some are missing.

    Parameters
    ----------
    paper : str
        The only paper; by default all.
    """
    from memkern.plots import figures, tables  # with those of all families

    if paper and paper not in PAPERS:
        raise unknown(paper, "paper", PAPERS)
    rows = []
    for name in [paper] if paper else PAPERS:
        for exhibit in PAPERS[name].exhibits:
            shown = {
                f"{where.what} {key}": origin.published
                for where in (figures, tables)
                for key, origin in sorted(where.origins.items())
                if origin.paper == name and exhibit in origin.numbers
            }
            remark = REMARKS.get(name, {}).get(exhibit, Remark("", ""))
            curves = any(published for key, published in shown.items() if key != f"table {TOLD}")
            status = "published" if curves else "told" if f"table {TOLD}" in shown else "own"
            status = remark.status or status
            by = ", ".join([*shown, *([remark.command] if remark.command else [])])
            rows.append((name, exhibit, by, status, remark.sentence))
    return new_table(rows, columns=["paper", "exhibit", "shown_by", "status", "remark"])
