"""The table of all figures and tables of the papers: what shows them, and why some are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memkern.checks import unknown
from memkern.plots.exhibits import tabulated
from memkern.plots.frames import Records
from memkern.plots.registry import PAPERS

if TYPE_CHECKING:
    from pandas import DataFrame


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
_UNTOLD_TRAFFIC = "The counted traffic is in records measured with `--counters`, but not drawn."
_WITHOUT_LINES = Remark(
    "in part",
    "Own points and fits; the published T0 and Wmax are in table 3, but not drawn as lines. "
    "The measured points were not published as numbers.",
)

REMARKS: dict[str, dict[str, Remark]] = {
    "alappat2021": {
        "figure 1": _DRAWING,
        "figure 2": Remark(
            "", "Non-temporal stores (variant `nt`) are in the place of zero-filled lines."
        ),
        "figure 3": Remark("", "Without the hardware barrier, see below."),
        "figure 4": Remark(
            "in part",
            "Performance with the limits of 8 and 24 B for an iteration, with and without `nta` in "
            f"the place of the sector cache. {_UNTOLD_TRAFFIC}",
        ),
        "figure 5": Remark("in part", "TLB misses are counted (`--counters`), but not drawn."),
        "figure 6": Remark(
            "in part",
            "The hypotheses that fit this machine best, beside no and full overlap, instead of the "
            "paper's four.",
        ),
        "figure 7": Remark("in part", "Only the best unrolling is drawn."),
        "figure 8": _CRS,
        "figure 9": _CRS,
        "figure 10": _DRAWING,
        "figure 11": _CRS,
        "figure 12": Remark("", "The matrices are those of the given records."),
        "figure 13": Remark(
            "in part",
            "The variant `nta` is in the place of the sector cache; of several variants the "
            "fastest is drawn.",
        ),
        "figure 14": Remark(
            "in part",
            "CRS, SELL, CSC and ELLPACK of this package; the libraries of others are compared by "
            "`bench/beside_spmv.py`.",
        ),
        "figure 15": Remark(
            "in part",
            "Changes by `--clock-limit`; eco mode is a setting of the A64FX alone, see below.",
        ),
        "figure 16": Remark("in part", "Processors only: no sparse product runs on GPUs."),
        "figure 17": _DRAWING,
        "figure 18": Remark(
            "in part", f"Performance with the roofline. {_UNTOLD_TRAFFIC} Compilers are builds."
        ),
        "figure 19": _DRAWING,
        "figure 20": _DRAWING,
        "figure 21": Remark(
            "in part", f"By layer conditions and a simulated cache. {_UNTOLD_TRAFFIC}"
        ),
        "figure 22": Remark(
            "in part",
            f"Performance with and without prefetch. {_UNTOLD_TRAFFIC} Compilers and their options "
            "are builds.",
        ),
        "figure 23": Remark("in part", f"Performance. {_UNTOLD_TRAFFIC}"),
        "figure 24": Remark(
            "in part",
            "RIRI against RRII at the clocks of the records, in percent; eco mode is a setting of "
            "the A64FX alone, see below.",
        ),
        "figure 25": Remark("in part", "Processors only: this kernel does not run on GPUs."),
        "table 1": Remark(
            "in part",
            "Clock, cores, caches and bandwidths, without the entries of the TLBs.",
            "machine A64FX",
        ),
        "table 2": Remark("command", "", "machine A64FX"),
        "table 4": Remark(
            "in part", "The matrices of the given records; the paper's are not packaged as a suite."
        ),
        "table 5": Remark(
            "missing",
            "Python computes it: `memkern.models.LayerConditions(...).paper_conditions()`.",
        ),
        "table 6": Remark(
            "missing",
            "Python computes the transfers: `memkern.models.LayerConditions(...).transfers()`; the "
            "terms of the core depend on the compiler.",
        ),
    },
    "beebe2022-circustent": {
        "chart of atomics in GAPBS": Remark(
            "missing",
            "Its values were not published as numbers, and memkern does not count the atomic "
            "instructions of programs.",
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
        **{f"figure {number}": _WITHOUT_LINES for number in range(1, 8)},
        "table 1": Remark("command", "", "table kernels --option family=bs"),
        "table 2": Remark(
            "missing", 'Python has its data: `mk.reference.load("chalmers2020-devices")`.'
        ),
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
        "table 1": Remark("", "As published only: memkern does not trace applications."),
        "table 2": Remark("", "As published, in our words."),
        "table 5": Remark("", "With the class of each pattern, also of those of own records."),
        "insight 5 of section 5.4.2": Remark("", "The paper has a sentence and no figure of it."),
    },
}
"""Remarks on exhibits by paper and number. What no figure or table shows has one."""


@tabulated(
    "papers",
    "paper, exhibit, shown_by (commands without ``memkern``), status and remark. The status is "
    '"published" if published values are shown without own records, "own" if only own records are '
    'shown, "in part", "command" if another command shows it, "missing", or "drawing" for one '
    "without values.",
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
    from pandas import DataFrame

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
            status = remark.status or ("published" if any(shown.values()) else "own")
            by = ", ".join([*shown, *([remark.command] if remark.command else [])])
            rows.append((name, exhibit, by, status, remark.sentence))
    return DataFrame(rows, columns=["paper", "exhibit", "shown_by", "status", "remark"])
